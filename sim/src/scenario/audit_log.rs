//! The audit log under crashes: append → event row → outbox → bell → stream.
//!
//! One to three processes share a database. Each appends its entries one after another, and repeats an append until
//! it is answered; each drains the outbox, and has an operator who retries dead letters; each streams the log to a
//! client that outlives it. What must hold:
//!
//! 1. every entry is stored exactly once, numbered without a gap, and the entries of one writer in their order;
//! 2. every client sees every entry, in order, and each once;
//! 3. no bell tells of something that is not committed;
//! 4. no two processes deliver one lane at a time, unless the first one's lease has run out, or clocks differ;
//! 5. no message leaves before an earlier one of its lane, unless that one was a dead letter;
//! 6. no message is closed that the sink has not taken;
//! 7. when faults end and clocks agree again, everything is delivered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use guild_bus::Bus;
use guild_protocol::env::{Clock, Shutdown, UnixMs};
use guild_protocol::id::EntryId;
use guild_roles::audit_log::{AuditLog, Note, Options as LogOptions, bell_sink};
use guild_roles::turn::Turns;
use guild_store::outbox::{self, Deliver, Drainer, Failure, Message, Options as OutboxOptions};
use guild_store::{Error, Migrations, Point, Store, args, audit};
use serde_json::Map;

use super::Report;
use crate::bus::{SimBus, Witness};
use crate::database::{Database, Plant};
use crate::executor::{Executor, Life, PointPlant};
use crate::fault::{Kind, Selection};
use crate::rates::Rates;
use crate::world::World;

/// A bug to be planted, and found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Bug {
    /// The bells ring before the commit.
    RingBeforeCommit,
    /// The outbox is drained by whoever comes along.
    DrainWithoutLease,
    /// The outbox is drained from its end.
    DrainNewestFirst,
    /// A dead letter is retried by saying that it was delivered.
    RetryWithoutDelivery,
    /// A writer that was not answered writes again under another id.
    AppendWithoutId,
    /// A stream goes on one entry too late.
    FollowerSkips,
    /// A stream waits for bells alone.
    FollowerWithoutSweep,
}

const ENTRIES_PER_PROCESS: usize = 6;
const LEASE_MS: i64 = 100;
const FAULTS_UNTIL_MS: UnixMs = 3_000;
const END_MS: UnixMs = 120_000;

/// What the clients of the system know. They outlive every crash.
#[derive(Default)]
struct Clients {
    /// Per process: how many of its entries have been answered.
    answered: Vec<usize>,
    /// Entries that a writer has tried to append; kept for the planted bug alone.
    tried: BTreeSet<(usize, usize)>,
    /// Per process: what its stream client has seen.
    seen: Vec<Vec<(i64, EntryId)>>,
    /// The keys of the messages that the sink has taken.
    taken: BTreeSet<String>,
    /// The numbers of the messages that were dead letters once.
    once_dead: BTreeSet<i64>,
}

/// A delivery that has begun and not ended.
struct InFlight {
    process: usize,
    life: Life,
    started_ms: UnixMs,
    lease_until_ms: UnixMs,
}

#[derive(Clone)]
struct Shared {
    world: World,
    rates: Rates,
    database: Database,
    bus: SimBus,
    clients: Arc<Mutex<Clients>>,
    in_flight: Arc<Mutex<BTreeMap<u64, InFlight>>>,
    bug: Option<Bug>,
}

/// In one world of four the faults end while there is still much to do: a crash also rescues, since whoever starts anew
/// looks around, and what only works by being restarted must be seen too.
fn faults_until_ms(seed: u64) -> UnixMs {
    if seed % 4 == 3 { 200 } else { FAULTS_UNTIL_MS }
}

/// Runs one seed, with these of its faults.
pub fn run(seed: u64, bug: Option<Bug>, selection: &Selection) -> Report {
    let world = World::new(seed, faults_until_ms(seed), selection);
    let polls = match prepare(&world, seed, bug) {
        Ok(shared) => simulate(&shared),
        Err(error) => {
            world.violate(format!("the database could not be made: {error}"));
            0
        }
    };
    Report::of(seed, &world, polls)
}

fn prepare(world: &World, seed: u64, bug: Option<Bug>) -> Result<Shared, Error> {
    let rates = Rates::for_seed(seed);
    let database = Database::new(world, seed, &Migrations::store(), Plant::default())?;
    let bus = SimBus::new(world.clone(), rates, bell_witness(world.clone(), database.clone()));
    Ok(Shared {
        world: world.clone(),
        rates,
        database,
        bus,
        clients: Arc::default(),
        in_flight: Arc::default(),
        bug,
    })
}

fn simulate(shared: &Shared) -> u64 {
    let world = &shared.world;
    let processes = usize::try_from(1 + world.below(3)).unwrap_or(1);
    {
        let mut clients = lock(&shared.clients);
        clients.answered = vec![0; processes];
        clients.seen = vec![Vec::new(); processes];
    }
    let boot = |executor: &mut Executor, life: &Life| boot(shared, executor, life);
    let mut executor = Executor::new(world.clone(), shared.rates, processes, &boot);
    let total = processes * ENTRIES_PER_PROCESS;
    let finished = executor.run(END_MS, &boot, &|| all_done(shared, total));
    if !finished {
        world.violate(
            "faults have ended, but not everything was answered, delivered and seen".to_owned(),
        );
    }
    check_history(shared, processes);
    executor.polls
}

/// One life of one process.
fn boot(shared: &Shared, executor: &mut Executor, life: &Life) {
    let process = life.process();
    let Ok(connections) = shared.database.connect(life) else {
        shared.world.violate("a process could not open the database".to_owned());
        return;
    };
    let bus: Arc<dyn Bus> = Arc::new(shared.bus.clone());
    let ringing = bus.clone();
    let ring = move |topic: &str, after: i64| ringing.ring(topic, after);
    let store = executor.spawn_store(life, connections, ring, plant(shared));
    let clock = executor.spawn_clock(life, &store);
    let log = AuditLog::new(
        LogOptions { page_max: 4, sweep_ms: sweep_ms(shared.bug) },
        Turns::new(store.clone()),
        bus.clone(),
        clock.clone(),
        Arc::new(shared.world.clone()),
    );
    let deliver = watched_sink(shared, life, bell_sink(bus.clone()));
    executor.spawn(process, append_all(shared.clone(), process, log.clone()));
    executor.spawn(process, stream(shared.clone(), process, log));
    executor.spawn(process, operate(shared.clone(), clock.clone(), store.clone()));
    match shared.bug {
        Some(bug @ (Bug::DrainWithoutLease | Bug::DrainNewestFirst)) => {
            executor.spawn(process, drain_wrongly(bug, shared.world.clone(), store, deliver));
        }
        _ => executor.spawn(process, drain(shared.clone(), clock, store, bus, deliver)),
    }
}

fn sweep_ms(bug: Option<Bug>) -> i64 {
    if bug == Some(Bug::FollowerWithoutSweep) { 2 * END_MS } else { 200 }
}

fn plant(shared: &Shared) -> Option<PointPlant> {
    let bus = shared.bus.clone();
    let early: PointPlant = Arc::new(move |point, bells| {
        if point == Point::BeforeCommit {
            bells.iter().for_each(|(topic, after)| bus.ring(topic, *after));
        }
    });
    (shared.bug == Some(Bug::RingBeforeCommit)).then_some(early)
}

/// The writer: one entry after the other, each repeated with its id until it is answered.
async fn append_all(shared: Shared, process: usize, log: AuditLog) {
    loop {
        let next = lock(&shared.clients).answered[process];
        if next == ENTRIES_PER_PROCESS {
            return;
        }
        let note = Note {
            entry_id: match shared.bug {
                Some(Bug::AppendWithoutId) if is_repeat(&shared, process, next) => None,
                _ => entry_id(process, next),
            },
            actor: format!("writer-{process}"),
            action: "test.appended".to_owned(),
            subject: Some(next.to_string()),
            detail: Map::new(),
        };
        match log.append(note).await {
            Ok((_, seq)) => {
                shared.world.note(seq.unsigned_abs());
                lock(&shared.clients).answered[process] += 1;
            }
            Err(error) if error.is_closed() => return,
            Err(_) => {}
        }
        let pause_ms = shared.world.below_ms(60);
        shared.world.sleep(pause_ms).await;
    }
}

/// Whether this writer has tried to append this entry before, in this life or an earlier one.
fn is_repeat(shared: &Shared, process: usize, entry: usize) -> bool {
    !lock(&shared.clients).tried.insert((process, entry))
}

fn entry_id(process: usize, entry: usize) -> Option<EntryId> {
    format!("entry_{:032x}", process * 1_000 + entry).parse().ok()
}

/// The stream to a client that reconnects after every crash with the last number it saw.
async fn stream(shared: Shared, process: usize, log: AuditLog) {
    let last = lock(&shared.clients).seen[process].last().map_or(0, |(seq, _)| *seq);
    let skipped = i64::from(shared.bug == Some(Bug::FollowerSkips) && last > 0);
    let mut follower = log.follow(last + skipped);
    loop {
        match follower.next().await {
            Ok(entries) => {
                entries.iter().for_each(|entry| shared.world.note(entry.seq.unsigned_abs()));
                let seen = entries.into_iter().map(|entry| (entry.seq, entry.entry_id));
                lock(&shared.clients).seen[process].extend(seen);
            }
            Err(error) if error.is_closed() => return,
            Err(_) => shared.world.sleep(10).await,
        }
    }
}

async fn drain(
    shared: Shared,
    clock: Arc<dyn Clock>,
    store: Store,
    bus: Arc<dyn Bus>,
    deliver: Deliver,
) {
    let options = OutboxOptions {
        lease_ms: LEASE_MS,
        batch_max: 3,
        sweep_ms: 150,
        backoff_min_ms: 20,
        backoff_max_ms: 2_000,
        ..OutboxOptions::default()
    };
    let mut listener = bus.listen(outbox::TOPIC);
    let wake = Box::new(move || {
        let bell = listener.hear();
        Box::pin(async move {
            bell.await;
        }) as guild_protocol::env::BoxFuture<()>
    });
    let random = Arc::new(shared.world.clone());
    match Drainer::new(options, store, clock, random) {
        Ok(drainer) => drainer.sink(audit::BELL_SINK, deliver, wake).run(Shutdown::new()).await,
        Err(error) => shared.world.violate(format!("the drainer does not start: {error}")),
    }
}

/// The operator: now and then retries what was given up.
async fn operate(shared: Shared, clock: Arc<dyn Clock>, store: Store) {
    loop {
        let pause_ms = shared.world.below_ms(150);
        shared.world.sleep(pause_ms).await;
        let dead = store.read(|rx| outbox::dead_letters(rx, 10)).await.unwrap_or_default();
        for seq in dead.into_iter().map(|letter| letter.message.seq) {
            let (now_ms, bug) = (clock.now_ms(), shared.bug);
            let retried = store.write(move |tx| match bug {
                Some(Bug::RetryWithoutDelivery) => {
                    let done = "UPDATE outbox SET state = 'done' WHERE seq = $1 AND state = 'dead'";
                    tx.exec(done, args![seq]).map(|changed| changed == 1)
                }
                _ => outbox::retry(tx, seq, now_ms),
            });
            match retried.await {
                Ok(_) => shared.world.note(seq.unsigned_abs()),
                Err(Error::Closed) => return,
                Err(_) => {}
            }
        }
    }
}

/// The planted bugs: reads what is queued and delivers it, whoever else does the same, or in another order.
async fn drain_wrongly(bug: Bug, world: World, store: Store, deliver: Deliver) {
    let sql = match bug {
        Bug::DrainNewestFirst => {
            "SELECT seq, sink, key, idempotency_key, body FROM outbox WHERE state = 'queued' ORDER BY seq DESC"
        }
        _ => {
            "SELECT seq, sink, key, idempotency_key, body FROM outbox WHERE state = 'queued' ORDER BY seq"
        }
    };
    loop {
        let queued =
            store.read(move |rx| rx.all::<(i64, String, String, String, String)>(sql, args![]));
        for (seq, sink, key, idempotency_key, body) in queued.await.unwrap_or_default() {
            let message = Message { seq, sink, key, idempotency_key, body, attempts: 0 };
            if deliver(message).await.is_err() {
                break;
            }
            let done = store.write(move |tx| {
                tx.exec(
                    "UPDATE outbox SET state = 'done', closed_ms = 0 WHERE seq = $1",
                    args![seq],
                )
            });
            if done.await.is_err() {
                return;
            }
        }
        world.sleep(20).await;
    }
}

/// The real sink, made slow and unreliable, with the check that lanes have one holder at a time.
fn watched_sink(shared: &Shared, life: &Life, inner: Deliver) -> Deliver {
    let (shared, life) = (shared.clone(), life.clone());
    Arc::new(move |message: Message| {
        let (shared, life, inner) = (shared.clone(), life.clone(), inner.clone());
        Box::pin(async move {
            let flight = begin(&shared, &life, &message);
            check_order(&shared, &message);
            let slow_ms = shared.world.below_ms(25);
            shared.world.sleep(slow_ms).await;
            if life.dies_at(Kind::CrashBeforeDelivery) || dies_on_the_way(&shared, &life, &message)
            {
                return Err(Failure::Retry("dead".to_owned()));
            }
            let answer = unreliably(&shared, &life, message, &inner).await;
            life.dies_at(Kind::CrashAfterDelivery);
            drop(flight);
            answer
        })
    })
}

/// The process dies while the message is on its way; the sink takes it all the same, some time later.
fn dies_on_the_way(shared: &Shared, life: &Life, message: &Message) -> bool {
    let Some(mut dice) = life.meets(Kind::SinkTakesFromTheDead) else { return false };
    life.die();
    let (clients, key) = (shared.clients.clone(), message.idempotency_key.clone());
    shared.world.later(dice.below_ms(400), move || {
        lock(&clients).taken.insert(key);
    });
    true
}

async fn unreliably(
    shared: &Shared,
    life: &Life,
    message: Message,
    inner: &Deliver,
) -> Result<(), Failure> {
    if life.meets(Kind::SinkFails).is_some() {
        return Err(Failure::Retry("the sink fails now and then".to_owned()));
    }
    if life.meets(Kind::SinkRefuses).is_some() {
        lock(&shared.clients).once_dead.insert(message.seq);
        return Err(Failure::Never("the sink refuses now and then".to_owned()));
    }
    if life.meets(Kind::SinkStalls).is_some() {
        shared.world.sleep(3 * LEASE_MS).await;
    }
    let key = message.idempotency_key.clone();
    let answer = inner(message).await;
    if answer.is_ok() {
        lock(&shared.clients).taken.insert(key);
    }
    if life.meets(Kind::SinkAnswersLate).is_some() {
        shared.world.sleep(3 * LEASE_MS).await;
    }
    answer
}

/// An earlier message of the lane that was never taken must not still be waiting.
fn check_order(shared: &Shared, message: &Message) {
    let sql = "SELECT seq, idempotency_key FROM outbox
        WHERE sink = $1 AND key = $2 AND seq < $3 AND state = 'queued'";
    let args = args![&message.sink, &message.key, message.seq];
    let earlier: Vec<(i64, String)> = shared.database.all(sql, args).unwrap_or_default();
    let clients = lock(&shared.clients);
    for (seq, key) in earlier {
        if !clients.taken.contains(&key) && !clients.once_dead.contains(&seq) {
            shared.world.violate(format!("message {} leaves before message {seq}", message.seq));
        }
    }
}

/// Ends the delivery when dropped: also when the drainer gives up on it.
struct Flight(Arc<Mutex<BTreeMap<u64, InFlight>>>, u64);

impl Drop for Flight {
    fn drop(&mut self) {
        lock(&self.0).remove(&self.1);
    }
}

/// Where clocks differ, a lease is over for one before it is over for the other: there two may deliver one lane, and
/// nothing is said about it here. What they write is fenced, and the order of the messages holds in all worlds.
fn begin(shared: &Shared, life: &Life, message: &Message) -> Flight {
    let (process, now_ms) = (life.process(), life.clock().now_ms());
    let clocks_agree = shared.rates.clock_step == 0;
    let mut in_flight = lock(&shared.in_flight);
    for other in
        in_flight.values().filter(|other| other.process != process && !other.life.is_dead())
    {
        let had_lease = other.lease_until_ms > other.started_ms;
        let lost_it = other.lease_until_ms <= now_ms;
        if clocks_agree && !(had_lease && lost_it) {
            shared.world.violate(format!(
                "processes {} and {process} deliver lane {}/{} at the same time",
                other.process, message.sink, message.key
            ));
        }
    }
    let lease_until_ms = shared
        .database
        .one::<i64>(
            "SELECT until_ms FROM outbox_lane WHERE sink = $1 AND key = $2",
            args![&message.sink, &message.key],
        )
        .ok()
        .flatten()
        .unwrap_or(0);
    // Two drawn numbers are never equal in a run this short.
    let id = shared.world.below(u64::MAX);
    in_flight
        .insert(id, InFlight { process, life: life.clone(), started_ms: now_ms, lease_until_ms });
    Flight(shared.in_flight.clone(), id)
}

/// A bell for something after N: something after N must be there for everybody to read.
fn bell_witness(world: World, database: Database) -> Witness {
    Arc::new(move |topic, after| {
        world.note_text(topic);
        world.note(after.unsigned_abs());
        let sql = match topic {
            audit::TOPIC => "SELECT coalesce(max(seq), 0) FROM event",
            _ => "SELECT coalesce(max(seq), 0) FROM outbox",
        };
        // A table that cannot be read has changes that are not committed.
        let committed = database.one::<i64>(sql, args![]).ok().flatten().unwrap_or(0);
        if committed <= after {
            world.violate(format!(
                "a bell on {topic} tells of {}, committed is {committed}",
                after + 1
            ));
        }
    })
}

fn all_done(shared: &Shared, total: usize) -> bool {
    let clients = lock(&shared.clients);
    let answered = clients.answered.iter().all(|count| *count == ENTRIES_PER_PROCESS);
    let seen = clients.seen.iter().all(|seen| seen.len() >= total);
    let queued =
        shared.database.one::<i64>("SELECT count(*) FROM outbox WHERE state <> 'done'", args![]);
    answered && seen && queued == Ok(Some(0))
}

fn check_history(shared: &Shared, processes: usize) {
    let world = &shared.world;
    let sql = "SELECT seq, id FROM event ORDER BY seq";
    let stored: Vec<(i64, String)> = shared.database.all(sql, args![]).unwrap_or_default();
    let ids: Vec<&str> = stored.iter().map(|(_, id)| id.as_str()).collect();
    for process in 0..processes {
        let wanted: Vec<String> = (0..ENTRIES_PER_PROCESS)
            .filter_map(|entry| entry_id(process, entry))
            .map(|id| id.to_string())
            .collect();
        let found: Vec<&str> =
            ids.iter().copied().filter(|id| wanted.iter().any(|w| w == id)).collect();
        if found != wanted {
            world.violate(format!("writer {process} appended {wanted:?}, stored is {found:?}"));
        }
    }
    for (client, seen) in lock(&shared.clients).seen.iter().enumerate() {
        let seen: Vec<(i64, String)> =
            seen.iter().map(|(seq, id)| (*seq, id.to_string())).collect();
        if seen != stored {
            world.violate(format!("client {client} saw {seen:?}, stored is {stored:?}"));
        }
    }
    let wanted = processes * ENTRIES_PER_PROCESS;
    if stored.len() != wanted {
        world.violate(format!("{wanted} entries were appended, {} are stored", stored.len()));
    }
    if let Some((seq, _)) = (1..).zip(&stored).map(|(n, row)| (n, row.0)).find(|(n, seq)| n != seq)
    {
        world.violate(format!("there is no entry with number {seq}"));
    }
    stored.iter().for_each(|(seq, id)| world.note_text(&format!("{seq} {id}")));
    check_outbox(shared);
}

fn check_outbox(shared: &Shared) {
    let sql = "SELECT seq, idempotency_key, state, attempts, closed_ms FROM outbox ORDER BY seq";
    type Row = (i64, String, String, i64, Option<i64>);
    let rows: Vec<Row> = shared.database.all(sql, args![]).unwrap_or_default();
    for row in rows {
        let (seq, key, state, ..) = &row;
        if state == "done" && !lock(&shared.clients).taken.contains(key) {
            shared.world.violate(format!("message {seq} is closed, and the sink never took it"));
        }
        shared.world.note_text(&format!("{row:?}"));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
