//! Sandboxes by the minute, under crashes: users who buy, use, extend, resize and stop them; one or two nodes with a
//! desk and a meter each, on one database; and a machine whose agents go on when the nodes are dead. What must hold, at
//! every moment, seen from what really ran and what is really booked:
//!
//! 1. nothing runs a moment that is not paid, whoever is dead and whatever the clocks show;
//! 2. no minute is paid twice or left out, and each is paid before it begins, at the price of its time;
//! 3. no account is below zero, and all of them together hold nothing;
//! 4. no cap is passed; nothing runs beyond its time, nor when its job has ended, but for what was paid;
//! 5. where nothing goes wrong, everything ends at the exact minute, for the first reason that there is;
//! 6. when faults end, everything comes to its end: no sandbox is left on the machine that no row wants;
//! 7. nothing has a larger shape than the minute pays for in which it is, once nothing goes wrong any more;
//! 8. the audits of hosting and ledger find nothing.
//!
//! In one world of eight nothing goes wrong at all. Where clocks are set to other times, rows show other times than the
//! world has: there only lengths are compared, not moments. Whoever runs the nodes says in the end that the time is
//! right.

mod bug;
mod check;
mod client;
mod yard;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use guild_bus::Bus;
use guild_hosting::access::{nonce, rate, siwe};
use guild_hosting::clamp::Policy;
use guild_hosting::desk::{self, Desk};
use guild_hosting::machine::driver::{self, Driver};
use guild_hosting::machine::image::{Images, Source};
use guild_hosting::machine::link::Link;
use guild_hosting::machine::visit::{Door as Entrance, Limits};
use guild_hosting::machine::{Abilities, Machine};
use guild_hosting::meter;
use guild_hosting::upkeep::{self, Upkeep};
use guild_protocol::env::{BoxFuture, Clock, Shutdown, UnixMs};
use guild_protocol::identity::SecretKey;
use guild_store::{Migrations, Point, Store, args};

use self::check::Checker;
use self::yard::Yard;
use super::Report;
use crate::bus::SimBus;
use crate::clock::BEGIN_MS;
use crate::database::Database;
use crate::executor::{Executor, Life, PointPlant};
use crate::fault::Selection;
use crate::rates::Rates;
use crate::world::World;

pub use self::bug::Bug;

const FAULTS_UNTIL_MS: UnixMs = 300_000;
const END_MS: UnixMs = 1_500_000;
/// Users want nothing new after this.
const WISHES_UNTIL_MS: UnixMs = 270_000;
const IMAGE: &str = "sandbox-base:v1.0.0";
const YEAR_MS: i64 = 365 * 86_400_000;

/// What a node offers to its users, in this life.
#[derive(Clone)]
struct Node {
    life: Life,
    desk: Desk,
    entrance: Entrance,
    store: Store,
    clock: Arc<dyn Clock>,
}

#[derive(Clone)]
struct Shared {
    world: World,
    rates: Rates,
    database: Database,
    bus: SimBus,
    yard: Yard,
    nodes: Arc<Mutex<Vec<Option<Node>>>>,
    /// Whether something was committed since somebody looked.
    changed: Arc<AtomicBool>,
    users: u64,
    /// How many have nothing left to wish for.
    finished: Arc<Mutex<u64>>,
    /// What somebody wanted to end.
    unwanted: Arc<Mutex<BTreeSet<String>>>,
    is_calm: bool,
    /// Whether both nodes drive the machine.
    both_drive: bool,
}

impl Shared {
    /// A node that answers, if the one tried does.
    fn node(&self) -> Option<Node> {
        let nodes = lock(&self.nodes);
        let tried = self.world.below(nodes.len() as u64);
        let node = nodes.get(usize::try_from(tried).unwrap_or(0)).cloned().flatten();
        node.filter(|node| !node.life.is_dead())
    }

    /// How often meter and driver look: as they do by default, where everything must end at its minute; elsewhere so
    /// seldom that many worlds fit into a second, and often enough that a look or two may fail.
    fn every_ms(&self) -> i64 {
        if self.is_calm { 500 } else { 4_000 }
    }

    /// Whether the clocks of all are right, always.
    fn is_strict(&self) -> bool {
        self.rates.clock_step == 0
    }
}

/// In one world of four the faults end while there is still much to do.
fn faults_until_ms(seed: u64) -> UnixMs {
    if seed % 4 == 3 { 90_000 } else { FAULTS_UNTIL_MS }
}

fn is_calm(seed: u64) -> bool {
    seed % 8 == 5
}

/// Minutes take long: what goes wrong every moment elsewhere goes wrong a few times in a minute here.
fn rates(seed: u64) -> Rates {
    if is_calm(seed) {
        return Rates::default();
    }
    let rates = Rates::for_seed(seed);
    Rates {
        crash: rates.crash * 25,
        step_crash: rates.step_crash * 10,
        pause: rates.pause * 10,
        pause_max_ms: 15_000,
        down_max_ms: if seed.is_multiple_of(5) { 90_000 } else { 12_000 },
        statement: rates.statement * 6,
        commit: rates.commit * 6,
        clock_step: rates.clock_step * 20,
        ..rates
    }
}

/// Runs one seed, with these of its faults.
pub fn run(seed: u64, bug: Option<Bug>, selection: &Selection) -> Report {
    let world = World::new(seed, faults_until_ms(seed), selection);
    let migrations =
        Migrations::store().and(guild_ledger::migrations()).and(guild_hosting::migrations());
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
    let rates = rates(seed);
    let nodes = usize::try_from(1 + world.below(2)).unwrap_or(1);
    let shared = Shared {
        world: world.clone(),
        rates,
        database,
        bus: SimBus::new(world.clone(), rates, Arc::new(|_, _| {})),
        yard: Yard::new(world, rates, bug),
        nodes: Arc::new(Mutex::new(vec![None; nodes])),
        changed: Arc::default(),
        users: 2 + world.below(3),
        finished: Arc::default(),
        unwanted: Arc::default(),
        is_calm: is_calm(seed),
        both_drive: world.below(2) == 0,
    };
    let boot = |executor: &mut Executor, life: &Life| {
        if let Err(what) = boot(&shared, executor, life) {
            shared.world.violate(format!("a node does not start: {what}"));
        }
    };
    let mut executor = Executor::new(world.clone(), rates, nodes, &boot);
    for number in 0..shared.users {
        executor.spawn_outside(client::live(shared.clone(), number));
    }
    executor.spawn_outside(set_right(shared.clone()));
    let checker = Mutex::new(Checker::new(&shared));
    let finished = executor.run(END_MS, &boot, &|| {
        lock(&checker).look();
        world.is_violated() || is_over(&shared)
    });
    if let (false, Some(left)) = (finished, overdue(&shared)) {
        world.violate(format!("[end] faults have ended, but {left}"));
    }
    lock(&checker).at_the_end();
    executor.polls
}

/// One life of one node.
fn boot(shared: &Shared, executor: &mut Executor, life: &Life) -> Result<(), String> {
    let (number, world) = (life.process(), &shared.world);
    let connections = shared.database.connect(life).map_err(|e| e.to_string())?;
    let bus: Arc<dyn Bus> = Arc::new(shared.bus.clone());
    let ringing = bus.clone();
    let ring = move |topic: &str, after: i64| ringing.ring(topic, after);
    let changed = shared.changed.clone();
    let witness: PointPlant = Arc::new(move |point, _| {
        if point == Point::AfterCommit {
            changed.store(true, Ordering::SeqCst);
        }
    });
    let store = executor.spawn_store(life, connections, ring, Some(witness));
    let clock = executor.spawn_clock(life, &store);
    if number == 0 {
        // The machine is the host of the first node.
        shared.yard.share_clock(life.clock());
    }
    let random = Arc::new(world.clone());
    let signer = Arc::new(SecretKey::from_bytes([7; 32]).map_err(|e| e.to_string())?);
    let link = Link::new(signer, clock.clone(), random.clone());
    if number == 0 || shared.both_drive {
        let driver = drive(shared, &link, &store, &bus)?;
        executor.spawn(number, driver.run(Shutdown::new()));
    }
    let options = upkeep::Options { every_ms: shared.every_ms(), batch_min: 2, batch_max: 3 };
    let keeper = Upkeep::new(options, store.clone(), clock.clone());
    executor.spawn(number, keeper.run(Shutdown::new()));
    let entrance = Entrance::new(store.clone(), link, Limits::default());
    let parts = (entrance.clone(), store.clone(), bus, clock.clone(), random);
    let desk = desk(&shared.yard, parts)?;
    lock(&shared.nodes)[number] = Some(Node { life: life.clone(), desk, entrance, store, clock });
    Ok(())
}

fn drive(
    shared: &Shared,
    link: &Link,
    store: &Store,
    bus: &Arc<dyn Bus>,
) -> Result<Driver, String> {
    let options = driver::Options {
        tick_ms: shared.every_ms(),
        look_ms: 30_000,
        at_once: 4,
        starts_at_once: 2,
        ..driver::Options::default()
    };
    let mut bell = bus.listen(guild_hosting::TOPIC);
    let wake = Box::new(move || {
        let bell = bell.hear();
        Box::pin(async move {
            bell.await;
        }) as BoxFuture<()>
    });
    let machine: Arc<dyn Machine> = Arc::new(shared.yard.clone());
    Driver::new(options, machine, link.clone(), store.clone(), wake).map_err(|e| e.to_string())
}

type Parts = (Entrance, Store, Arc<dyn Bus>, Arc<dyn Clock>, Arc<World>);

fn desk(yard: &Yard, (entrance, store, bus, clock, random): Parts) -> Result<Desk, String> {
    let plenty = rate::Rate { per_minute: 1_000_000, burst: 1_000_000 };
    let abilities: Abilities = yard.abilities();
    let options = desk::Options {
        policy: Policy { reserve_ms: 120_000, ..Policy::default() },
        siwe: siwe::Policy { origins: Vec::new(), chain_ids: [1].into(), skew_ms: 0 },
        session_ms: YEAR_MS,
        rate: rate::Options {
            per_token: plenty,
            per_place: plenty,
            sign_ins: plenty,
            ..rate::Options::default()
        },
        nonces: nonce::Limits::default(),
        machine: yard::NAME.to_owned(),
        abilities,
        bypass: true,
    };
    let image = IMAGE.parse().map_err(|e: guild_hosting::Error| e.to_string())?;
    let images = Arc::new(Images::new().with(image, Source::Host));
    Ok(Desk::new(options, images, entrance, store, bus, clock, random))
}

/// When the clocks are right again, whoever runs the nodes says so: a meter that has seen a later time believes no
/// other by itself.
async fn set_right(shared: Shared) {
    let world = &shared.world;
    world.sleep(world.faults_until_ms() + 1).await;
    if shared.is_strict() {
        return;
    }
    loop {
        if let Some(node) = shared.node() {
            let clock = node.life.clock().clone();
            let accept =
                move |tx: &mut guild_store::Tx<'_>| meter::accept_clock(tx, clock.now_ms());
            if client::asked(&shared, &node, node.store.write(accept)).await.is_ok() {
                return;
            }
        }
        world.sleep(500).await;
    }
}

/// Whether all have what they wanted, and everything has come to its end.
fn is_over(shared: &Shared) -> bool {
    let open = "SELECT count(*) FROM hosting_sandbox WHERE status IN ('starting', 'running', 'ending', 'destroying')";
    let is_open = || shared.database.one(open, args![]).ok().flatten() != Some(0_i64);
    *lock(&shared.finished) >= shared.users && !is_open() && !has_leaks(shared, 0)
}

/// Whether there is more on the machine than what is kept and what goes on.
fn has_leaks(shared: &Shared, going_on: usize) -> bool {
    let kept = "SELECT count(*) FROM hosting_sandbox WHERE status = 'stopped'";
    let kept: i64 = shared.database.one(kept, args![]).ok().flatten().unwrap_or(0);
    let wanted = usize::try_from(kept).unwrap_or(0).saturating_add(going_on);
    shared.yard.present().len() > wanted
}

/// A sandbox that is not at its end.
struct Open {
    id: String,
    status: String,
    expires_ms: UnixMs,
    ends_ms: Option<UnixMs>,
}

impl Open {
    /// Whether it is right that it runs: it is paid, and somebody wanted it for so long. Whoever extends a sandbox
    /// while the clock is a day ahead gets that day.
    fn goes_on(&self, now_ms: UnixMs) -> bool {
        let is_paid = self.ends_ms.is_some_and(|ends_ms| ends_ms > now_ms);
        self.status == "running" && is_paid && self.expires_ms > now_ms
    }
}

/// What should have been done by the end of the world.
fn overdue(shared: &Shared) -> Option<String> {
    let finished = *lock(&shared.finished);
    if finished < shared.users {
        return Some(format!("{finished} of {} users are served", shared.users));
    }
    let rows = "SELECT s.sandbox_id, s.status, s.expires_ms, r.ends_ms
        FROM hosting_sandbox AS s LEFT JOIN hosting_run AS r ON r.sandbox_no = s.sandbox_no
        WHERE s.status IN ('starting', 'running', 'ending', 'destroying') ORDER BY s.sandbox_no";
    let rows: Vec<(String, String, UnixMs, Option<UnixMs>)> =
        shared.database.all(rows, args![]).unwrap_or_default();
    let open = rows.into_iter().map(|(id, status, expires_ms, ends_ms)| Open {
        id,
        status,
        expires_ms,
        ends_ms,
    });
    let now_ms = BEGIN_MS + shared.world.now_ms();
    // Where no clock was ever wrong, nobody can have asked for that long.
    let (going_on, late): (Vec<Open>, Vec<Open>) =
        open.partition(|open| !shared.is_strict() && open.goes_on(now_ms));
    if let Some(Open { id, status, expires_ms, ends_ms }) = late.first() {
        let times = format!("it is {now_ms}, it expires at {expires_ms}, is paid to {ends_ms:?}");
        return Some(format!("{} are not at their end: {id} is {status}, {times}", late.len()));
    }
    let present = shared.yard.present().len();
    has_leaks(shared, going_on.len()).then(|| format!("{present} are on the machine"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
