//! Processes and their tasks, in one thread.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use guild_protocol::env::{BoxFuture, Clock, UnixMs};
use guild_store::{DatabaseClock, Db, Error, Hooks, Point, Pump, Store, pumps};

use crate::clock::ProcessClock;
use crate::fault::{Dice, Kind};
use crate::rates::Rates;
use crate::world::World;

/// So many steps at one moment are a loop that waits for nothing: time would stand still for ever.
const SPIN_MAX: u64 = 200_000;

/// How often a process that corrects its clock asks the database for the time.
const CORRECT_EVERY_MS: i64 = 400;

struct Task {
    process: usize,
    future: BoxFuture<()>,
}

#[derive(Default)]
struct ReadySet(Mutex<BTreeSet<u64>>);

impl ReadySet {
    fn with<T>(&self, f: impl FnOnce(&mut BTreeSet<u64>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Ready(u64, Arc<ReadySet>);

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.1.with(|ready| ready.insert(self.0));
    }
}

/// One life of a process: it ends by a crash, and the next one knows nothing of it but what was stored.
#[derive(Clone)]
pub struct Life {
    world: World,
    rates: Rates,
    process: usize,
    clock: ProcessClock,
    dead: Arc<AtomicBool>,
    /// When it was doomed to die.
    doomed_ms: Arc<Mutex<Option<UnixMs>>>,
}

impl Life {
    /// Which process it is of.
    pub fn process(&self) -> usize {
        self.process
    }

    /// The clock of its machine.
    pub fn clock(&self) -> &ProcessClock {
        &self.clock
    }

    /// Asked at every place where something can go wrong for this process; if so, with dice for how.
    pub fn meets(&self, kind: Kind) -> Option<Dice> {
        self.world.fault(Some(self.process), kind, self.rates.one_in(kind))
    }

    /// Asked at every named place where a process can die; one that is dead stays so.
    pub fn dies_at(&self, kind: Kind) -> bool {
        if !self.is_dead() && self.meets(kind).is_some() {
            self.die();
        }
        self.is_dead()
    }

    /// Dies: what it is doing now is the last thing it does.
    pub fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    /// Dies a little later, when what it does at this moment is done: for a bug to be planted.
    pub(crate) fn doom(&self) {
        let now_ms = self.world.now_ms();
        self.doomed_ms.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(now_ms);
    }

    fn is_doomed(&self) -> bool {
        let doomed_ms = self.doomed_ms.lock().unwrap_or_else(PoisonError::into_inner);
        doomed_ms.is_some_and(|at_ms| at_ms < self.world.now_ms())
    }

    /// Whether it is over.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// What happens at a point of the store.
    fn store_point(&self, point: Point) -> Option<Error> {
        self.world.note(point as u64);
        let crash = match point {
            Point::BeforeStatement => Kind::CrashBeforeStatement,
            Point::AfterStatement => Kind::CrashAfterStatement,
            Point::BeforeCommit => Kind::CrashBeforeCommit,
            Point::AfterCommit => Kind::CrashAfterCommit,
            Point::AfterBell => Kind::CrashAfterBell,
        };
        if self.dies_at(crash) {
            return Some(Error::Crashed);
        }
        let failures: &[Kind] = match point {
            Point::BeforeStatement => {
                &[Kind::StatementRefused, Kind::StatementConflict, Kind::StatementLocked]
            }
            Point::AfterStatement => &[Kind::StatementLost],
            Point::BeforeCommit => &[
                Kind::CommitRefused,
                Kind::CommitConflict,
                Kind::CommitLocked,
                Kind::CommitUnknown,
            ],
            Point::AfterCommit => &[Kind::CommitAnswerLost],
            // All is told; there is nothing left that could fail.
            Point::AfterBell => &[],
        };
        failures.iter().find(|kind| self.meets(**kind).is_some()).map(|kind| failure(*kind))
    }
}

/// What the database says when it meets this.
fn failure(kind: Kind) -> Error {
    let words = kind.words().to_owned();
    match kind {
        Kind::StatementConflict | Kind::CommitConflict => Error::Conflict(words),
        Kind::StatementLocked | Kind::CommitLocked => Error::Locked,
        Kind::CommitUnknown => Error::CommitUnknown(words),
        _ => Error::Database(words),
    }
}

/// A bug put into the store's surroundings, to see it found: called at every point with the bells not yet rung.
pub type PointPlant = Arc<dyn Fn(Point, &[(String, i64)]) + Send + Sync>;

/// Starts a process: called at the beginning and after every crash.
pub type Boot<'a> = dyn Fn(&mut Executor, &Life) + 'a;

/// Runs the tasks of all processes.
pub struct Executor {
    /// Time, randomness, trace.
    pub world: World,
    rates: Rates,
    tasks: BTreeMap<u64, Task>,
    tasks_made: u64,
    ready: Arc<ReadySet>,
    lives: Vec<Life>,
    paused_until_ms: Vec<UnixMs>,
    down_until_ms: Vec<Option<UnixMs>>,
    /// How many steps of tasks were run.
    pub polls: u64,
}

impl Executor {
    /// So many processes, all booted.
    pub fn new(world: World, rates: Rates, processes: usize, boot: &Boot<'_>) -> Executor {
        let clocks: Vec<ProcessClock> =
            (0..processes).map(|_| ProcessClock::new(world.clone())).collect();
        let right_again = clocks.clone();
        world.later(world.faults_until_ms(), move || {
            right_again.iter().for_each(ProcessClock::set_right);
        });
        let mut this = Executor {
            world,
            rates,
            tasks: BTreeMap::new(),
            tasks_made: 0,
            ready: Arc::default(),
            lives: Vec::new(),
            paused_until_ms: vec![0; processes],
            down_until_ms: vec![None; processes],
            polls: 0,
        };
        for (process, clock) in clocks.into_iter().enumerate() {
            let life = this.new_life(process, clock);
            this.lives.push(life.clone());
            boot(&mut this, &life);
        }
        this
    }

    fn new_life(&self, process: usize, clock: ProcessClock) -> Life {
        let (world, rates) = (self.world.clone(), self.rates);
        Life { world, rates, process, clock, dead: Arc::default(), doomed_ms: Arc::default() }
    }

    /// Adds a task to a process.
    pub fn spawn(&mut self, process: usize, future: impl Future<Output = ()> + Send + 'static) {
        let id = self.tasks_made;
        self.tasks_made += 1;
        self.tasks.insert(id, Task { process, future: Box::pin(future) });
        self.ready.with(|ready| ready.insert(id));
    }

    /// Adds a task of the world outside: of clients and auditors, on whose machines nothing goes wrong.
    pub fn spawn_outside(&mut self, future: impl Future<Output = ()> + Send + 'static) {
        self.spawn(usize::MAX, future);
    }

    /// A store of this process on these two connections. In production threads call the pumps, here tasks do: the
    /// whole difference.
    pub fn spawn_store(
        &mut self,
        life: &Life,
        connections: (impl Db + 'static, impl Db + 'static),
        ring: impl Fn(&str, i64) + Send + Sync + 'static,
        plant: Option<PointPlant>,
    ) -> Store {
        let at_point = life.clone();
        let hooks = Hooks::on_ring(ring).with_faults(move |point, bells| {
            if let Some(plant) = &plant {
                plant(point, bells);
            }
            at_point.store_point(point)
        });
        let (writer, reader) = connections;
        let (store, writes, reads) = pumps(1_000, &hooks);
        self.spawn(life.process, pump_task(self.world.clone(), writes, writer));
        self.spawn(life.process, pump_task(self.world.clone(), reads, reader));
        store
    }

    /// The clock that this process goes by: its own, or its own corrected to that of the database.
    pub fn spawn_clock(&mut self, life: &Life, store: &Store) -> Arc<dyn Clock> {
        let own = Arc::new(life.clock.clone());
        if self.rates.clock_step == 0 || !self.rates.corrected {
            return own;
        }
        let clock = DatabaseClock::new(own);
        let (world, store, corrected) = (self.world.clone(), store.clone(), clock.clone());
        self.spawn(life.process, async move {
            while corrected.correct(&store).await != Err(Error::Closed) {
                world.sleep(CORRECT_EVERY_MS).await;
            }
        });
        clock
    }

    /// Runs until `done` holds and nothing is left to do at this moment, or until the end of time.
    pub fn run(&mut self, until_ms: UnixMs, boot: &Boot<'_>, done: &dyn Fn() -> bool) -> bool {
        let (mut moment_ms, mut since) = (self.world.now_ms(), self.polls);
        while self.world.now_ms() < until_ms {
            if self.world.now_ms() != moment_ms {
                (moment_ms, since) = (self.world.now_ms(), self.polls);
            }
            if self.polls - since > SPIN_MAX {
                self.world.violate("[spin] somebody runs and never waits".to_owned());
                return false;
            }
            self.reboot_due(boot);
            let ready = self.runnable();
            if ready.is_empty() {
                if done() {
                    return true;
                }
                if !self.world.advance() {
                    return false;
                }
                continue;
            }
            let drawn = self.world.below(ready.len() as u64);
            let id = ready[usize::try_from(drawn).unwrap_or(0)];
            self.step(id);
        }
        false
    }

    fn runnable(&self) -> Vec<u64> {
        let now_ms = self.world.now_ms();
        let may_run = |id: &u64| {
            let task = self.tasks.get(id);
            task.is_some_and(|task| {
                self.paused_until_ms.get(task.process).is_none_or(|until_ms| *until_ms <= now_ms)
            })
        };
        self.ready.with(|ready| {
            ready.retain(|id| self.tasks.contains_key(id));
            ready.iter().copied().filter(|id| may_run(id)).collect()
        })
    }

    fn step(&mut self, id: u64) {
        self.ready.with(|ready| ready.remove(&id));
        let Some(mut task) = self.tasks.remove(&id) else { return };
        self.world.note(id);
        self.polls += 1;
        let waker = Waker::from(Arc::new(Ready(id, self.ready.clone())));
        let process = task.process;
        if task.future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            self.tasks.insert(id, task);
        }
        let Some(life) = self.lives.get(process).cloned() else { return };
        if life.is_doomed() {
            life.die();
        }
        if life.dies_at(Kind::CrashBetweenSteps) {
            self.bury(process);
            return;
        }
        if let Some(mut dice) = life.meets(Kind::Pause) {
            self.pause(process, dice.below_ms(self.rates.pause_max_ms));
        }
        if let Some(mut dice) = life.meets(Kind::ClockStep) {
            life.clock.step(&mut dice);
        }
    }

    /// A crash drops every future of the process, and with them its connections.
    fn bury(&mut self, process: usize) {
        self.tasks.retain(|_, task| task.process != process);
        let wait_ms = self.world.below_ms(self.rates.down_max_ms.max(1));
        self.down_until_ms[process] = Some(self.world.now_ms() + wait_ms);
        // Something must happen at that moment, or nobody would notice it.
        self.world.later(wait_ms, || {});
    }

    fn reboot_due(&mut self, boot: &Boot<'_>) {
        for process in 0..self.lives.len() {
            let due = self.down_until_ms[process].is_some_and(|at| at <= self.world.now_ms());
            if due {
                self.down_until_ms[process] = None;
                self.paused_until_ms[process] = 0;
                let life = self.new_life(process, self.lives[process].clock.clone());
                self.lives[process] = life.clone();
                boot(self, &life);
            }
        }
    }

    fn pause(&mut self, process: usize, pause_ms: i64) {
        self.paused_until_ms[process] = self.world.now_ms() + pause_ms;
        self.world.later(pause_ms, || {});
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.tasks.clear();
        self.world.end();
    }
}

async fn pump_task(world: World, pump: Pump, mut db: impl Db) {
    loop {
        poll_fn(|cx| pump.poll_waiting(cx)).await;
        let max = usize::try_from(1 + world.below(4)).unwrap_or(1);
        if pump.drain(&mut db, max).is_err() {
            // Dead: the executor buries the process after this step.
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use guild_store::Migrations;

    use super::*;
    use crate::clock::BEGIN_MS;
    use crate::database::{Database, Plant};
    use crate::fault::Selection;

    /// What the clock of a process shows beside the right time, a while after it was set to another.
    fn off_ms(corrected: bool) -> i64 {
        let world = World::new(1, 10_000, &Selection::ALL);
        let database = Database::new(&world, 1, &Migrations::store(), Plant::default()).unwrap();
        let clock: Mutex<Option<Arc<dyn Clock>>> = Mutex::default();
        let boot = |executor: &mut Executor, life: &Life| {
            let connections = database.connect(life).unwrap();
            let store = executor.spawn_store(life, connections, |_, _| {}, None);
            life.clock().step(&mut Dice::new(&[7]));
            *clock.lock().unwrap() = Some(executor.spawn_clock(life, &store));
        };
        // Clocks may step in this world, but never do by themselves.
        let rates = Rates { clock_step: u64::MAX, corrected, ..Rates::default() };
        let mut executor = Executor::new(world.clone(), rates, 1, &boot);
        let later = world.clone();
        executor.spawn_outside(async move { later.sleep(1_000).await });
        executor.run(1_000, &boot, &|| false);
        let shown_ms = clock.lock().unwrap().as_ref().unwrap().now_ms();
        shown_ms - BEGIN_MS - world.now_ms()
    }

    #[test]
    fn a_loop_that_waits_for_nothing_is_found() {
        let world = World::new(1, 0, &Selection::ALL);
        let boot = |_: &mut Executor, _: &Life| {};
        let mut executor = Executor::new(world.clone(), Rates::default(), 0, &boot);
        executor.spawn_outside(poll_fn(|cx| {
            cx.waker().wake_by_ref();
            std::task::Poll::Pending
        }));
        assert!(!executor.run(1_000, &boot, &|| false));
        assert!(world.violations()[0].contains("[spin]"));
    }

    #[test]
    fn a_corrected_clock_shows_the_time_of_the_database() {
        assert_ne!(off_ms(false), 0);
        assert_eq!(off_ms(true), 0);
    }
}
