//! Money under crashes: deposits, posts, holds, settles, voids, chains, expiries and changing rules.
//!
//! One to three processes share a database. Each books for whoever asks, and gives back holds that ran out. The clients
//! are outside: they write down what they ask and what they are told, ask whichever process is there, and ask again
//! with the same ids until they are answered. What must hold, at the end and at moments between:
//!
//! 1. the exported history passes the independent checker: sum zero, no overdraft, gates and credits hold, no hold is
//!    closed twice or at the wrong time, nothing is booked twice, every head is right, the balances are those of the
//!    history;
//! 2. compared with what clients asked and were told, nothing is lost, made up or changed;
//! 3. the database-side audit finds nothing;
//! 4. the same ask has the same answer, whenever and wherever it is asked; other content under the same id is refused;
//! 5. when faults end, every ask is answered and every hold that ran out is given back.
//!
//! All of this holds whatever the clocks of the processes show: a hold is made, settled and given back by the time of
//! the process that books, and that time is in the record.

mod bug;
mod check;
mod client;
mod diary;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use guild_ledger::writer::Options;
use guild_ledger::{Writer, history};
use guild_protocol::env::{Clock, UnixMs};
use guild_store::{Error as StoreError, Migrations, Store, args};

use self::diary::Diary;
use super::Report;
use crate::clock::BEGIN_MS;
use crate::database::Database;
use crate::executor::{Executor, Life};
use crate::fault::Selection;
use crate::rates::Rates;
use crate::world::World;

pub use self::bug::Bug;

const FAULTS_UNTIL_MS: UnixMs = 1_500;
const END_MS: UnixMs = 60_000;

/// What a process offers to its clients, in this life.
#[derive(Clone)]
struct Door {
    life: Life,
    writer: Writer,
    store: Store,
    clock: Arc<dyn Clock>,
}

#[derive(Clone)]
struct Shared {
    world: World,
    seed: u64,
    rates: Rates,
    database: Database,
    doors: Arc<Mutex<Vec<Option<Door>>>>,
    diary: Arc<Mutex<Diary>>,
    clients: u64,
    bug: Option<Bug>,
}

impl Shared {
    /// A door that is open, if the one tried is.
    fn door(&self) -> Option<Door> {
        let doors = lock(&self.doors);
        let tried = self.world.below(doors.len() as u64);
        let door = doors.get(usize::try_from(tried).unwrap_or(0)).cloned().flatten();
        door.filter(|door| !door.life.is_dead())
    }
}

/// In one world of four the faults end while there is still much to do.
fn faults_until_ms(seed: u64) -> UnixMs {
    if seed % 4 == 3 { 200 } else { FAULTS_UNTIL_MS }
}

/// Runs one seed, with these of its faults.
pub fn run(seed: u64, bug: Option<Bug>, selection: &Selection) -> Report {
    let world = World::new(seed, faults_until_ms(seed), selection);
    let migrations = Migrations::store().and(guild_ledger::migrations());
    let plant = bug.map(Bug::plant).unwrap_or_default();
    let polls = match Database::new(&world, seed, &migrations, plant) {
        Ok(database) => simulate(&world, seed, bug, database),
        Err(error) => {
            world.violate(format!("the database could not be made: {error}"));
            0
        }
    };
    Report::of(seed, &world, polls)
}

fn simulate(world: &World, seed: u64, bug: Option<Bug>, database: Database) -> u64 {
    let processes = usize::try_from(1 + world.below(3)).unwrap_or(1);
    let shared = Shared {
        world: world.clone(),
        seed,
        rates: Rates::for_seed(seed),
        database,
        doors: Arc::new(Mutex::new(vec![None; processes])),
        diary: Arc::default(),
        clients: 3 + world.below(3),
        bug,
    };
    let boot = |executor: &mut Executor, life: &Life| boot(&shared, executor, life);
    let mut executor = Executor::new(world.clone(), shared.rates, processes, &boot);
    for number in 0..shared.clients {
        executor.spawn_outside(client::live(shared.clone(), number));
    }
    executor.spawn_outside(check::now_and_then(shared.clone()));
    let finished = executor.run(END_MS, &boot, &|| world.is_violated() || all_done(&shared));
    if !finished {
        let what = "faults have ended, but not every ask was answered and every hold given back";
        world.violate(what.to_owned());
    }
    check::at_the_end(&shared);
    executor.polls
}

/// One life of one process.
fn boot(shared: &Shared, executor: &mut Executor, life: &Life) {
    let Ok(connections) = shared.database.connect(life) else {
        shared.world.violate("a process could not open the database".to_owned());
        return;
    };
    let store = executor.spawn_store(life, connections, |_, _| {}, None);
    let clock = executor.spawn_clock(life, &store);
    // Small, so that both limits are met.
    let options = Options { queue_max_chains: 3, batch_max_transfers: 4 };
    match Writer::new(&options, store.clone(), clock.clone()) {
        Ok((writer, service)) => {
            executor.spawn(life.process(), service);
            executor.spawn(life.process(), sweep(shared.clone(), clock.clone(), store.clone()));
            let door = Door { life: life.clone(), writer, store, clock };
            lock(&shared.doors)[life.process()] = Some(door);
        }
        Err(error) => shared.world.violate(format!("the writer does not start: {error}")),
    }
}

/// Gives back the holds that ran out, every now and then.
async fn sweep(shared: Shared, clock: Arc<dyn Clock>, store: Store) {
    loop {
        shared.world.sleep(30 + shared.world.below_ms(150)).await;
        let clock = clock.clone();
        match store.write(move |tx| history::expire_due(tx, clock.now_ms(), 3)).await {
            Ok(0) => {}
            Ok(_) => shared.world.count("sweep that gave holds back"),
            Err(guild_ledger::Error::Store(StoreError::Closed)) => return,
            Err(error) => shared.world.note_text(error.code().name),
        }
    }
}

fn all_done(shared: &Shared) -> bool {
    if lock(&shared.diary).finished < shared.clients {
        return false;
    }
    let sql = "SELECT count(*) FROM ledger_hold WHERE closed_by IS NULL AND expires_ms <= $1";
    let now_ms = BEGIN_MS + shared.world.now_ms();
    shared.database.one::<i64>(sql, args![now_ms]) == Ok(Some(0))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
