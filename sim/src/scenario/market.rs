//! Work for money between nodes, under crashes: a buyer's node and one or two providers' nodes, each with a database of
//! its own, and a relay between them that delivers late, twice and in any order. One of the providers may be a cheat.
//! The clients of the buyer are outside, and ask again until they are answered. In one world of three they want
//! commands run, which are run again to check them. In some worlds a node has two processes on its database, which may
//! do and judge its work. What must hold:
//!
//! 1. every order ends, once, as its client was told; its budget is paid or goes back, and nothing else moves;
//! 2. what the buyer owes a provider is what that one has booked: each receipt once on both sides;
//! 3. a request has at most one result of each provider, whoever died while it was worked on;
//! 4. a cheat is never paid;
//! 5. an order does not run out if its result was there in time, by the clock of the buyer's node;
//! 6. what is worked on belongs to one process at a time: nobody takes what another holds, does it without a claim of
//!    its own, or hands in what another has taken over;
//! 7. the routing matrix of the buyer knows of every order that ended how it ended, once, and is what its log gives;
//! 8. the history of every node passes the independent checker, and its database the audit.
//!
//! Where clocks are set to other times, an event may come from the future and be refused for days. There only what must
//! never happen is asked for, not that everything comes to its end. And what came after an order had run out may show
//! an earlier time than its deadline: there only what was in the archive when the order ran out is looked at, and only
//! orders to a provider, since nobody can be believed whose announcement was refused.

mod bug;
mod check;
mod client;
mod hub;
mod learnt;
mod runs;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use guild_bus::Bus;
use guild_ledger::policy::Bundle;
use guild_ledger::{Account, Limit, NewTransfer, Step, TransferId, ledger};
use guild_market::job::Refusal;
use guild_market::{sandbox_run, verify};
use guild_network::intake::{Intake, Options as IntakeOptions};
use guild_network::publish;
use guild_protocol::amount::{Amount, AssetId, Msat};
use guild_protocol::env::{BoxFuture, Clock, Shutdown, UnixMs};
use guild_protocol::identity::SecretKey;
use guild_protocol::schema::{Job, Registry, SchemaId};
use guild_roles::buyer::{self, Buyer};
use guild_roles::provider::{self, CommandRunner, Embedder, Provider, Task, Worker};
use guild_store::outbox::{self, Drainer, Options as OutboxOptions};
use guild_store::{Migration, Migrations, Sql, Store, Tx, args};
use serde_json::{Value, json};

use self::client::Diary;
use self::hub::Hub;
use super::Report;
use crate::bus::SimBus;
use crate::clock::BEGIN_MS;
use crate::database::Database;
use crate::executor::{Executor, Life};
use crate::fault::Selection;
use crate::rates::Rates;
use crate::world::World;

pub use self::bug::Bug;

const FAULTS_UNTIL_MS: UnixMs = 3_000;
const END_MS: UnixMs = 60_000;
/// Where clocks differ, clients wait until then.
const PATIENCE_MS: UnixMs = 20_000;
const LEASE_MS: i64 = 100;
/// So much rarer than elsewhere are crashes at statements.
const GENTLE: u64 = 10;
const SWEEP_MS: i64 = 120;
/// Shorter than many a job and many a pause.
const CLAIM_MS: i64 = 250;
/// The name of the relay.
const RELAY: &str = "ws://sim.example";
/// What the buyer has.
const FUNDS: i64 = 50_000;
const PRICE: i64 = 600;
/// Which provider cheats, if one does.
const CHEAT: usize = 2;

/// What the buyer's node offers to its clients, in this life.
#[derive(Clone)]
struct Door {
    life: Life,
    buyer: Buyer,
}

#[derive(Clone)]
struct Shared {
    world: World,
    rates: Rates,
    /// The buyer's first.
    databases: Vec<Database>,
    /// Which node each process is of.
    processes: Vec<usize>,
    /// How often each job was begun, by node and hash.
    begun: Arc<Mutex<BTreeMap<(usize, String), i64>>>,
    buses: Vec<SimBus>,
    hub: Hub,
    door: Arc<Mutex<Option<Door>>>,
    diary: Arc<Mutex<Diary>>,
    clients: u64,
    providers: u64,
    has_cheat: bool,
    credit: Msat,
    schema_id: SchemaId,
    /// Whether the work is commands.
    has_runs: bool,
    bug: Option<Bug>,
}

impl Shared {
    /// The door of the buyer's node, if it is open.
    fn door(&self) -> Option<Door> {
        lock(&self.door).clone().filter(|door| !door.life.is_dead())
    }

    /// Whether everything must come to its end.
    fn is_strict(&self) -> bool {
        self.rates.clock_step == 0
    }
}

/// The key of a node's role.
fn key(node: usize) -> SecretKey {
    let mut bytes = [7; 32];
    bytes[31] = u8::try_from(node + 1).unwrap_or(1);
    match SecretKey::from_bytes(bytes) {
        Ok(key) => key,
        // Every number that small is a key.
        Err(_) => key(0),
    }
}

fn migrations() -> Migrations {
    Migrations::store()
        .and(guild_ledger::migrations())
        .and(guild_network::migrations())
        .and(guild_market::migrations())
        .and(guild_roles::migrations())
        .and(vec![Migration { area: "sim", number: 1, name: "witness", sql: WITNESS }])
}

/// Who sees a claim pass from one process to another, and by how much it is too early: it lasts until so long after it
/// was taken.
macro_rules! taken_over {
    ($table:literal, $id:literal, $state:literal) => {
        concat!(
            "CREATE TRIGGER sim_sees_",
            $table,
            "_taken_over AFTER UPDATE OF claim_token ON ",
            $table,
            " WHEN OLD.state = '",
            $state,
            "' AND NEW.state = OLD.state AND OLD.claim_token IS NOT NULL AND NEW.claim_token <> OLD.claim_token
            BEGIN
                INSERT INTO sim_claim VALUES ('taken over', NEW.",
            $id,
            ", OLD.claim_until_ms - NEW.claim_until_ms);
            END;"
        )
    };
}

/// Who sees how far the archive went when an order ran out: times do not tell, where clocks are set.
const WITNESS: Sql = {
    const LITE: &str = concat!(
        "CREATE TABLE sim_ran_out (order_id TEXT PRIMARY KEY, last_seq BIGINT NOT NULL);
        CREATE TRIGGER sim_sees_it_run_out AFTER UPDATE OF state ON market_order
        WHEN NEW.state = 'expired'
        BEGIN
            INSERT INTO sim_ran_out VALUES (NEW.order_id, (SELECT last_seq FROM nostr_archive));
        END;
        CREATE TABLE sim_claim (what TEXT NOT NULL, id TEXT NOT NULL, early_ms BIGINT NOT NULL);
        CREATE TRIGGER sim_sees_a_job_end AFTER UPDATE OF state ON market_job
        WHEN OLD.state = 'accepted' AND NEW.state IN ('delivered', 'failed')
            AND (NEW.claim_token IS NOT OLD.claim_token OR NEW.claim_epoch <> OLD.claim_epoch)
        BEGIN
            INSERT INTO sim_claim VALUES ('unfenced', NEW.request_id, 0);
        END;
        CREATE TRIGGER sim_sees_an_order_end AFTER UPDATE OF state ON market_order
        WHEN OLD.state = 'delivered' AND NEW.state IN ('released', 'withheld')
            AND (NEW.claim_token IS NOT OLD.claim_token OR NEW.claim_epoch <> OLD.claim_epoch)
        BEGIN
            INSERT INTO sim_claim VALUES ('unfenced', NEW.order_id, 0);
        END;",
        taken_over!("market_job", "request_id", "accepted"),
        taken_over!("market_order", "order_id", "delivered"),
    );
    Sql { lite: LITE, pg: LITE }
};

/// In one world of four the faults end while there is still much to do.
fn faults_until_ms(seed: u64) -> UnixMs {
    if seed % 4 == 3 { 300 } else { FAULTS_UNTIL_MS }
}

/// Runs one seed, with these of its faults.
pub fn run(seed: u64, bug: Option<Bug>, selection: &Selection) -> Report {
    let world = World::new(seed, faults_until_ms(seed), selection);
    let polls = match prepare(&world, seed, bug) {
        Ok(shared) => simulate(&shared),
        Err(what) => {
            world.violate(format!("the world could not be made: {what}"));
            0
        }
    };
    Report::of(seed, &world, polls)
}

/// A settlement has dozens of statements: at the usual rates none would ever be done before the faults end, and what
/// lies behind would never meet one.
fn gentle(rates: Rates) -> Rates {
    Rates {
        crash: rates.crash * GENTLE,
        step_crash: rates.step_crash * 4,
        statement: rates.statement * 4,
        commit: rates.commit * 2,
        ..rates
    }
}

fn prepare(world: &World, seed: u64, bug: Option<Bug>) -> Result<Shared, String> {
    let rates = gentle(Rates::for_seed(seed));
    let providers = 1 + world.below(2);
    let nodes = 1 + usize::try_from(providers).unwrap_or(1);
    let plant = bug.map(Bug::plant).unwrap_or_default();
    let database = |node| Database::of_node(world, seed, node, &migrations(), plant);
    let databases: Result<Vec<Database>, _> = (0..nodes).map(database).collect();
    let mut processes: Vec<usize> = (0..nodes).collect();
    // A second process for the first provider, or for the buyer.
    processes
        .extend([Some(1), Some(1), Some(0), None][usize::try_from(world.below(4)).unwrap_or(3)]);
    let bus = |_| SimBus::new(world.clone(), rates, Arc::new(|_, _| {}));
    let has_runs = seed % 3 == 2;
    let schema_id = if has_runs { sandbox_run::SCHEMA_ID } else { "oa.embedding.v1" };
    Ok(Shared {
        world: world.clone(),
        rates,
        databases: databases.map_err(|e| e.to_string())?,
        processes,
        begun: Arc::default(),
        buses: (0..nodes).map(bus).collect(),
        hub: Hub::default(),
        door: Arc::default(),
        diary: Arc::default(),
        clients: 2 + world.below(3),
        providers,
        has_cheat: providers == 2 && world.below(2) == 0,
        credit: Msat(if world.below(4) == 0 { 1_300 } else { 100_000 }),
        schema_id: schema_id.parse().map_err(|e| format!("{e}"))?,
        has_runs,
        bug,
    })
}

fn simulate(shared: &Shared) -> u64 {
    let world = &shared.world;
    let boot = |executor: &mut Executor, life: &Life| {
        if let Err(what) = boot(shared, executor, life) {
            shared.world.violate(format!("a node does not start: {what}"));
        }
    };
    let processes = shared.processes.len();
    let mut executor = Executor::new(world.clone(), shared.rates, processes, &boot);
    for number in 0..shared.clients {
        executor.spawn_outside(client::live(shared.clone(), number));
    }
    let finished = executor.run(END_MS, &boot, &|| world.is_violated() || left(shared).is_none());
    if let (false, Some(left)) = (finished, left(shared)) {
        world.violate(format!("[end] faults have ended, but {left}"));
    }
    check::at_the_end(shared);
    executor.polls
}

/// One life of one process of a node.
fn boot(shared: &Shared, executor: &mut Executor, life: &Life) -> Result<(), String> {
    let process = life.process();
    let node = shared.processes[process];
    let connections = shared.databases[node].connect(life).map_err(|e| e.to_string())?;
    let bus: Arc<dyn Bus> = Arc::new(shared.buses[node].clone());
    let ringing = bus.clone();
    let ring = move |topic: &str, after: i64| ringing.ring(topic, after);
    let store = executor.spawn_store(life, connections, ring, None);
    let clock = executor.spawn_clock(life, &store);
    let options = IntakeOptions { workers: 0, ..IntakeOptions::default() };
    let (intake, service) = Intake::new(options, store.clone(), &*bus, clock.clone());
    let ends = life.clone();
    executor.spawn(process, async move {
        // A node whose intake has failed ends, and is started again.
        if service.run(Shutdown::new()).await.is_err() {
            ends.die();
        }
    });
    executor.spawn(process, hub::pull(shared.world.clone(), shared.hub.clone(), intake));
    let drainer = drainer(shared, life, &store, &bus, &clock)?;
    executor.spawn(process, drainer.run(Shutdown::new()));
    if node == 0 {
        let buyer = boot_buyer(shared, executor, process, (store, bus, clock))?;
        // Clients know one door.
        if process == 0 {
            *lock(&shared.door) = Some(Door { life: life.clone(), buyer });
        }
    } else {
        boot_provider(shared, executor, (process, node), (store, bus, clock))?;
    }
    Ok(())
}

type Parts = (Store, Arc<dyn Bus>, Arc<dyn Clock>);

fn boot_buyer(
    shared: &Shared,
    executor: &mut Executor,
    process: usize,
    (store, bus, clock): Parts,
) -> Result<Buyer, String> {
    // A verdict that sees nothing, if that is the bug: everything is like everything.
    let min_likeness = if shared.bug == Some(Bug::VerdictBlind) { 0.0 } else { 0.999 };
    let options = buyer::Options {
        relays: vec![RELAY.to_owned()],
        verify: verify::Options { min_likeness },
        page_max: 3,
        sweep_ms: SWEEP_MS,
        claim_ms: CLAIM_MS,
        ..buyer::Options::default()
    };
    let parts = buyer::Node {
        store: store.clone(),
        bus,
        clock,
        random: Arc::new(shared.world.clone()),
        registry: Arc::new(Registry::builtin()),
        policy: Arc::new(Bundle::builtin().map_err(|e| format!("{e:?}"))?),
        // A verdict that sees nothing, if that is the bug: it believes what a cheat says.
        workshop: shared
            .has_runs
            .then(|| runs::workshop(&shared.world, shared.bug == Some(Bug::VerdictBlind))),
        judge: None,
        refer: None,
        discovery: None,
    };
    let (buyer, service) = Buyer::new(options, key(0), parts);
    executor.spawn(process, service.run(Shutdown::new()));
    let world = shared.world.clone();
    executor.spawn(process, async move {
        while store.write(fund).await.is_err_and(|e| e.code() != &guild_store::code::CLOSED) {
            world.sleep(20).await;
        }
    });
    Ok(buyer)
}

fn boot_provider(
    shared: &Shared,
    executor: &mut Executor,
    (process, node): (usize, usize),
    (store, bus, clock): Parts,
) -> Result<(), String> {
    let options = provider::Options {
        prices: [(shared.schema_id.clone(), Msat(PRICE + i64::try_from(node).unwrap_or(0)))].into(),
        relays: vec![RELAY.to_owned()],
        credit: shared.credit,
        page_max: 3,
        sweep_ms: SWEEP_MS,
        upkeep_ms: 2 * SWEEP_MS,
        claim_ms: CLAIM_MS,
        heartbeat_ms: 2_000,
        ..provider::Options::default()
    };
    let hub = shared.hub.clone();
    let broadcast: provider::Broadcast = Arc::new(move |event| {
        hub.push(event);
        Box::pin(std::future::ready(()))
    });
    let cheats = shared.has_cheat && node == CHEAT;
    let worker: Arc<dyn Worker> = match shared.has_runs {
        true => Arc::new(CommandRunner(runs::workshop(&shared.world, cheats))),
        false => Arc::new(Slow { world: shared.world.clone(), cheats }),
    };
    let worker = Arc::new(Counted { node, begun: shared.begun.clone(), worker });
    let parts = provider::Node {
        store,
        bus,
        clock,
        random: Arc::new(shared.world.clone()),
        registry: Arc::new(Registry::builtin()),
        fetch: None,
    };
    let (_, service) =
        Provider::new(options, key(node), worker, broadcast, parts).map_err(|e| e.to_string())?;
    executor.spawn(process, service.run(Shutdown::new()));
    Ok(())
}

fn drainer(
    shared: &Shared,
    life: &Life,
    store: &Store,
    bus: &Arc<dyn Bus>,
    clock: &Arc<dyn Clock>,
) -> Result<Drainer, String> {
    let options = OutboxOptions {
        lease_ms: LEASE_MS,
        batch_max: 3,
        sweep_ms: SWEEP_MS,
        max_attempts: 1_000,
        backoff_min_ms: 10,
        backoff_max_ms: 200,
        ..OutboxOptions::default()
    };
    let mut bell = bus.listen(outbox::TOPIC);
    let wake = Box::new(move || {
        let bell = bell.hear();
        Box::pin(async move {
            bell.await;
        }) as BoxFuture<()>
    });
    let random = Arc::new(shared.world.clone());
    let drainer =
        Drainer::new(options, store.clone(), clock.clone(), random).map_err(|e| e.to_string())?;
    Ok(drainer.sink(publish::SINK, hub::sink(shared, life), wake))
}

/// Fills the wallet, once.
fn fund(tx: &mut Tx<'_>) -> guild_ledger::Result<()> {
    let account = |owner, purpose, limit| Account::new(owner, purpose, AssetId::btc_ln(), limit);
    let (outside, wallet) = (
        account("outside", "main", Limit::None)?,
        account("node", "wallet", Limit::NeverNegative)?,
    );
    ledger::open(tx, &outside, BEGIN_MS)?;
    ledger::open(tx, &wallet, BEGIN_MS)?;
    let step = Step::Post {
        debit: outside.account_id,
        credit: wallet.account_id,
        amount: Amount::from(Msat(FUNDS)),
    };
    let transfer = NewTransfer::new(TransferId::named(0, &["funds"]), step, "funds")?;
    ledger::book(tx, &[vec![transfer]], BEGIN_MS)?
        .into_iter()
        .try_for_each(|booked| booked.map(|_| ()))
}

/// Works for a while, rightly or wrongly.
struct Slow {
    world: World,
    cheats: bool,
}

impl Worker for Slow {
    fn schema_ids(&self) -> Vec<SchemaId> {
        Embedder.schema_ids()
    }

    fn work(&self, task: Task) -> BoxFuture<Result<Value, Refusal>> {
        let (world, cheats, honest) = (self.world.clone(), self.cheats, Embedder.work(task));
        Box::pin(async move {
            let pause_ms = world.below_ms(300);
            world.sleep(pause_ms).await;
            let mut output = honest.await?;
            if cheats {
                output["embeddings"] = json!([[0, 0, 0, 1]]);
            }
            Ok(output)
        })
    }
}

/// Counts what is begun.
struct Counted {
    node: usize,
    begun: Arc<Mutex<BTreeMap<(usize, String), i64>>>,
    worker: Arc<dyn Worker>,
}

impl Worker for Counted {
    fn schema_ids(&self) -> Vec<SchemaId> {
        self.worker.schema_ids()
    }

    fn models(&self) -> Vec<String> {
        self.worker.models()
    }

    fn check(&self, job: &Job, max_output_bytes: usize) -> Result<(), Refusal> {
        self.worker.check(job, max_output_bytes)
    }

    fn work(&self, task: Task) -> BoxFuture<Result<Value, Refusal>> {
        let key = (self.node, task.job.job_hash().to_string());
        *lock(&self.begun).entry(key).or_default() += 1;
        self.worker.work(task)
    }
}

/// What is not done yet; none if everybody has what it waits for, and nothing is on its way.
fn left(shared: &Shared) -> Option<String> {
    let finished = lock(&shared.diary).finished;
    if finished < shared.clients {
        return Some(format!("{finished} of {} clients are served", shared.clients));
    }
    if !shared.is_strict() {
        return None;
    }
    let count = |node: usize, sql: &str| {
        let counted: Result<Option<i64>, _> = shared.databases[node].one(sql, args![]);
        counted.ok().flatten().unwrap_or(1)
    };
    let nodes = shared.databases.len();
    let queued = |node| count(node, "SELECT count(*) FROM outbox WHERE state = 'queued'");
    let queued: i64 = (0..nodes).map(queued).sum();
    let given = count(0, "SELECT count(*) FROM market_receipt WHERE direction = 'given'");
    let taken = |node| count(node, "SELECT count(*) FROM market_receipt WHERE direction = 'taken'");
    let taken: i64 = (1..nodes).map(taken).sum();
    (queued > 0 || taken < given)
        .then(|| format!("{queued} events are queued, {taken} of {given} receipts are taken"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
