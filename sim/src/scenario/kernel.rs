//! Turns of agents, under crashes: one to three nodes on one database, each with a worker and an outbox; models that
//! are slow, fail and ramble; tools beside the worker and elsewhere that answer early, late, twice and never; agents
//! that ask agents, by tools of the shop and by those of orchestration; workers that leave in order; a target that one
//! worker serves; clients that ask again, stop and take back. What must hold:
//!
//! 1. one name, one turn; every turn that was accepted ends, once, with one terminal event, as its client was told;
//! 2. turns of one agent begin in the order in which they were accepted, one at a time;
//! 3. a lease is taken away only when it is over, and passes to nobody else before; epochs only grow;
//! 4. nothing is written by whoever has lost its turn, nor after the end of a turn; nothing that was written changes;
//! 5. a call has one result, its own; a result and its time-out compete for one place;
//! 6. no tool is run and no command leaves for a call that is not written down; every call that is written down is
//!    carried out at least once, if it is answered as such;
//! 7. a model sees its own wish and no other, no step that is not written down, and each call with its answer;
//! 8. a batch is joined once, and each of its tasks ends once; nobody is answered after its end;
//! 9. a target for one is served by whoever has its lease;
//! 10. the audit of the kernel finds nothing, at any moment.
//!
//! Clocks are set to other times, seconds to days off, as long as there are faults. Once they are right again,
//! everything comes to its end there too, as if they never had been wrong.

mod bug;
mod check;
mod client;
mod delegation;
mod errand;
mod mind;
mod rogue;
mod shop;
mod witness;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join;
use guild_bus::Bus;
use guild_bus::subject::WorkerTarget;
use guild_kernel::roster::{self, AfterExecution, Agent, AgentStatus, Profile};
use guild_kernel::worker::{Options, Parts, Worker};
use guild_kernel::{AgentKey, Result};
use guild_protocol::env::{BoxFuture, Clock, Shutdown, UnixMs};
use guild_store::outbox::{self, Drainer, Options as OutboxOptions};
use guild_store::{Migrations, Point, Store, Tx, args};
use serde_json::{Value, json};

use self::check::Checker;
use self::client::Diary;
use self::delegation::Delegation;
use self::errand::Errands;
use self::mind::Mind;
use self::shop::Shop;
use super::Report;
use crate::bus::SimBus;
use crate::clock::BEGIN_MS;
use crate::database::Database;
use crate::executor::{Executor, Life, PointPlant};
use crate::fault::Selection;
use crate::rates::Rates;
use crate::world::World;

pub use self::bug::Bug;

const FAULTS_UNTIL_MS: UnixMs = 4_000;
const END_MS: UnixMs = 180_000;
/// Shorter than many an answer and many a pause.
const LEASE_MS: i64 = 400;
const SWEEP_MS: i64 = 150;
/// How long a call is awaited.
const WAIT_MS: i64 = 1_500;
/// So much rarer than elsewhere are crashes at statements: a turn has hundreds of them.
const GENTLE: u64 = 14;
const PROJECT: &str = "p";
const CHANNEL: &str = "public";
const TARGETS: [&str; 3] = ["worker_generic", "worker_other", "svc1_shop_main"];
/// The agent whose target one worker serves.
const SERVED_BY_ONE: u64 = 2;
/// A worker that leaves in order does so within this time.
const STAYS_MAX_MS: u64 = 2_500;

/// What a node offers to its clients and tools, in this life.
#[derive(Clone)]
struct Node {
    life: Life,
    store: Store,
    clock: Arc<dyn Clock>,
}

#[derive(Clone)]
struct Shared {
    world: World,
    rates: Rates,
    database: Database,
    bus: SimBus,
    nodes: Arc<Mutex<Vec<Option<Node>>>>,
    diary: Arc<Mutex<Diary>>,
    shop: Shop,
    errands: Errands,
    /// How many more calls of orchestration may be made, and how many wishes came of those so far.
    delegation: Delegation,
    /// Whether something was committed since somebody looked.
    changed: Arc<AtomicBool>,
    clients: u64,
    agents: u64,
    bug: Option<Bug>,
}

impl Shared {
    /// A node that answers, if the one tried does.
    fn node(&self) -> Option<Node> {
        let nodes = lock(&self.nodes);
        let tried = self.world.below(nodes.len() as u64);
        let node = nodes.get(usize::try_from(tried).unwrap_or(0)).cloned().flatten();
        node.filter(|node| !node.life.is_dead())
    }
}

fn key(agent: u64) -> AgentKey {
    let parsed = |text: &str| text.parse();
    match (parsed(PROJECT), format!("a{agent}").parse()) {
        (Ok(project_id), Ok(agent_id)) => AgentKey { project_id, agent_id },
        // Every number is a name.
        _ => key(0),
    }
}

/// In one world of four the faults end while there is still much to do.
fn faults_until_ms(seed: u64) -> UnixMs {
    if seed % 4 == 3 { 500 } else { FAULTS_UNTIL_MS }
}

fn rates(seed: u64) -> Rates {
    let rates = Rates::for_seed(seed);
    Rates {
        crash: rates.crash * GENTLE,
        step_crash: rates.step_crash * 2,
        pause: rates.pause * 4,
        pause_max_ms: 1_200,
        statement: rates.statement * 5,
        commit: rates.commit * 2,
        clock_step: rates.clock_step * 8,
        ..rates
    }
}

/// Runs one seed, with these of its faults.
pub fn run(seed: u64, bug: Option<Bug>, selection: &Selection) -> Report {
    let world = World::new(seed, faults_until_ms(seed), selection);
    let migrations = Migrations::store()
        .and(guild_kernel::migrations())
        .and([witness::migration()])
        .and(bug.and_then(Bug::trigger).map(witness::bug));
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
    let nodes = usize::try_from(1 + world.below(3)).unwrap_or(1);
    let shared = Shared {
        world: world.clone(),
        rates,
        database,
        bus: SimBus::new(world.clone(), rates, Arc::new(|_, _| {})),
        nodes: Arc::new(Mutex::new(vec![None; nodes])),
        diary: Arc::default(),
        shop: Shop::default(),
        errands: Errands::default(),
        delegation: Delegation::for_world(world),
        changed: Arc::default(),
        clients: 2 + world.below(3),
        agents: 1 + world.below(4),
        bug,
    };
    let boot = |executor: &mut Executor, life: &Life| {
        if let Err(what) = boot(&shared, executor, life) {
            shared.world.violate(format!("a node does not start: {what}"));
        }
    };
    let mut executor = Executor::new(world.clone(), rates, nodes, &boot);
    for number in 0..shared.clients {
        executor.spawn_outside(client::live(shared.clone(), number));
    }
    executor.spawn_outside(shared.errands.clone().run());
    let checker = Mutex::new(Checker::new(&shared));
    let finished = executor.run(END_MS, &boot, &|| {
        lock(&checker).look();
        world.is_violated() || left(&shared).is_none()
    });
    if let (false, Some(left)) = (finished, left(&shared)) {
        world.violate(format!("[end] faults have ended, but {left}"));
    }
    lock(&checker).at_the_end();
    // They hold what holds them.
    shared.errands.clear();
    lock(&shared.nodes).clear();
    executor.polls
}

/// One life of one node.
fn boot(shared: &Shared, executor: &mut Executor, life: &Life) -> Result<(), String> {
    let process = life.process();
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
    if process == 0 {
        executor.spawn(process, found(shared.clone(), store.clone()));
    }
    let worker = Service {
        shared: shared.clone(),
        life: life.clone(),
        store: store.clone(),
        bus: bus.clone(),
        clock: clock.clone(),
    };
    executor.spawn(process, worker.run());
    let drainer = drainer(shared, life, &store, &bus, &clock)?;
    executor.spawn(process, drainer.run(Shutdown::new()));
    if let Some(rogue) = rogue::of(shared, life, &store, &clock) {
        executor.spawn(process, rogue);
    }
    lock(&shared.nodes)[process] = Some(Node { life: life.clone(), store, clock });
    Ok(())
}

/// The workers of a life, one after the other.
struct Service {
    shared: Shared,
    life: Life,
    store: Store,
    bus: Arc<dyn Bus>,
    clock: Arc<dyn Clock>,
}

impl Service {
    /// Works. In some lives a worker is asked to leave, in the middle of whatever it does, and another one begins.
    async fn run(self) {
        let world = &self.shared.world;
        let leaves = if world.below(3) == 0 { 1 + world.below(2) } else { 0 };
        for _ in 0..leaves {
            let (Some(worker), shutdown) = (self.worker(), Shutdown::new()) else { return };
            let stay_ms = world.below_ms(STAYS_MAX_MS);
            let ask = async {
                world.sleep(stay_ms).await;
                shutdown.trigger();
            };
            join(worker.run(shutdown.clone()), ask).await;
            self.look_after();
            world.sleep(world.below_ms(300)).await;
        }
        if let Some(worker) = self.worker() {
            worker.run(Shutdown::new()).await;
        }
    }

    fn worker(&self) -> Option<Worker> {
        let made = worker(&self.shared, &self.life, &self.store, &self.bus, &self.clock);
        made.map_err(|what| self.shared.world.violate(format!("a worker does not start: {what}")))
            .ok()
    }

    /// Whoever leaves gives everything back, unless the database stands in its way.
    fn look_after(&self) {
        let sql = "SELECT (SELECT count(*) FROM agent_state_head WHERE lease_holder = $1) +
                     (SELECT count(*) FROM lease WHERE name LIKE 'kernel.worker.%' AND holder = $1)";
        let held: Option<i64> =
            self.shared.database.one(sql, args![&holder(&self.life)]).ok().flatten();
        self.shared.world.count(match held {
            Some(0) => "worker that left with nothing",
            _ => "worker that left what it held",
        });
    }
}

/// Who a worker is, for people to read.
fn holder(life: &Life) -> String {
    format!("node-{}", life.process())
}

fn worker(
    shared: &Shared,
    life: &Life,
    store: &Store,
    bus: &Arc<dyn Bus>,
    clock: &Arc<dyn Clock>,
) -> Result<Worker, String> {
    let world = &shared.world;
    // A target that nobody needs only costs time.
    let needed = |target: &&&str| shared.agents > SERVED_BY_ONE || !target.starts_with("svc1_");
    let targets = TARGETS.iter().filter(needed).map(|target| WorkerTarget::parse(target));
    let options = Options {
        targets: targets.collect::<Result<_, _>>().map_err(|e| e.to_string())?,
        holder: holder(life),
        tasks: usize::try_from(1 + world.below(4)).unwrap_or(1),
        lease_ms: LEASE_MS,
        sweep_ms: SWEEP_MS,
        batch_max: usize::try_from(1 + world.below(8)).unwrap_or(1),
        max_steps: 6,
        suspend_timeout_ms: WAIT_MS,
        model_attempts: 3,
        model_timeout_ms: 10 * LEASE_MS,
    };
    let parts = Parts {
        store: store.clone(),
        bus: bus.clone(),
        clock: clock.clone(),
        random: Arc::new(world.clone()),
        model: Arc::new(Mind(shared.clone())),
        tools: shop::tools(shared, life),
        environment: [("SHOP".to_owned(), "open".to_owned())].into(),
        chunks: None,
    };
    Worker::new(options, parts).map_err(|e| e.to_string())
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
        // Also by a clock that is days ahead nothing is old.
        keep_done_ms: 365 * 24 * 3_600_000,
        keep_dead_ms: 365 * 24 * 3_600_000,
        ..OutboxOptions::default()
    };
    let wake = || {
        let mut bell = bus.listen(outbox::TOPIC);
        Box::new(move || {
            let bell = bell.hear();
            Box::pin(async move {
                bell.await;
            }) as BoxFuture<()>
        })
    };
    let random = Arc::new(shared.world.clone());
    let drainer =
        Drainer::new(options, store.clone(), clock.clone(), random).map_err(|e| e.to_string())?;
    let orchestration = delegation::sink(shared, life, store, clock);
    Ok(drainer.sink(guild_kernel::turn::COMMAND_SINK, shop::sink(shared, life), wake()).sink(
        guild_kernel::pmo::SINK,
        orchestration,
        wake(),
    ))
}

/// Founds the project, once.
async fn found(shared: Shared, store: Store) {
    let agents = shared.agents;
    let found = move |tx: &mut Tx<'_>| found_in(tx, agents);
    while store.write(found).await.is_err_and(|e| e.code() != &guild_store::code::CLOSED) {
        shared.world.sleep(20).await;
    }
}

fn found_in(tx: &mut Tx<'_>, agents: u64) -> Result<()> {
    let profiles = [
        (
            "basic",
            json!({
                "system_prompt_template": "You are {display_name}.",
                "delegation_policy": { "target_profiles": ["basic"] },
            }),
        ),
        ("strict", json!({ "must_end_with": ["submit_result"], "max_steps": 4 })),
    ];
    for (name, body) in profiles {
        let profile = Profile {
            project_id: PROJECT.parse()?,
            name: name.to_owned(),
            worker_target: TARGETS[0].to_owned(),
            body,
        };
        roster::put_profile(tx, &profile, BEGIN_MS)?;
    }
    for tool in tools()?.into_iter().chain(delegation::tool_rows()?) {
        roster::put_tool(tx, &tool, BEGIN_MS)?;
    }
    for agent in 0..agents {
        let target = match agent {
            1 => TARGETS[1],
            SERVED_BY_ONE => TARGETS[2],
            _ => TARGETS[0],
        };
        let agent = Agent {
            key: key(agent),
            profile_name: "basic".to_owned(),
            worker_target: target.to_owned(),
            tags: Vec::new(),
            display_name: format!("Agent {agent}"),
            owner_agent_id: None,
            status: AgentStatus::Active,
        };
        roster::put_agent(tx, &agent, &json!({}), BEGIN_MS)?;
    }
    Ok(())
}

fn tools() -> Result<Vec<roster::Tool>> {
    let tool = |name: &str,
                target_subject: Option<&str>,
                after_execution,
                options: Value|
     -> Result<_> {
        Ok(roster::Tool {
            project_id: PROJECT.parse()?,
            tool_name: name.to_owned(),
            description: "It does something.".to_owned(),
            parameters: json!({ "type": "object", "properties": { "much": { "type": "number" } } }),
            target_subject: target_subject.map(str::to_owned),
            after_execution,
            options,
        })
    };
    let goes_on = AfterExecution::Suspend;
    let (soon, usual) = (json!({ "suspend_timeout_seconds": 1 }), json!({}));
    let from_environment = json!({ "envs": { "shop": "SHOP" }, "args": { "fixed": { "a": 1 } } });
    Ok(vec![
        tool("delegate", Some("cmd.tool.shop.delegate"), goes_on, usual.clone())?,
        tool("last", Some("cmd.tool.shop.last"), AfterExecution::Terminate, usual.clone())?,
        tool("look", None, goes_on, from_environment)?,
        tool("order", Some("cmd.tool.shop.order"), goes_on, soon)?,
        tool("strike", None, goes_on, usual)?,
    ])
}

/// What is not done yet; none if everybody has what it waits for, and nothing is on its way.
fn left(shared: &Shared) -> Option<String> {
    let finished = lock(&shared.diary).finished;
    if finished < shared.clients {
        return Some(format!("{finished} of {} clients are served", shared.clients));
    }
    let count = |sql: &str| {
        let counted: Option<i64> = shared.database.one(sql, args![]).ok().flatten();
        counted.unwrap_or(1)
    };
    let open = count("SELECT count(*) FROM agent_inbox WHERE closed_ms IS NULL");
    let busy = count("SELECT count(*) FROM agent_state_head WHERE status <> 'idle'");
    let queued = count("SELECT count(*) FROM outbox WHERE state = 'queued'");
    (open + busy + queued > 0).then(|| {
        format!("{open} rows are open, {busy} agents are busy, {queued} commands are queued")
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
