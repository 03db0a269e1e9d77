//! Processes and their tasks, in one thread.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use guild_protocol::env::{BoxFuture, Clock, UnixMs};
use guild_store::{Db, Error, Hooks, Point, Pump, Store, pumps};

use crate::world::World;

/// How often things go wrong, as one in so many.
#[derive(Debug, Clone, Copy)]
pub struct Faults {
    /// A crash at a fault point of the store.
    pub crash_one_in: u64,
    /// A crash between two steps of any task.
    pub poll_crash_one_in: u64,
    /// A pause of the whole process, long enough to lose a lease.
    pub pause_one_in: u64,
    /// The longest such pause.
    pub pause_max_ms: u64,
}

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
    faults: Faults,
    dead: Arc<AtomicBool>,
}

impl Life {
    /// Asked at every named place where a process can die.
    pub fn dies_at(&self, point: &'static str, one_in: u64) -> bool {
        if !self.dead.load(Ordering::SeqCst) && self.world.fault(one_in) {
            self.dead.store(true, Ordering::SeqCst);
            self.world.count_crash(point);
            self.world.note_text(point);
        }
        self.dead.load(Ordering::SeqCst)
    }

    /// Whether it is over.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    fn store_point(&self, point: Point) -> bool {
        self.world.note(point as u64);
        let name = match point {
            Point::BeforeStatement => "before a statement",
            Point::AfterStatement => "after a statement",
            Point::BeforeCommit => "before the commit",
            Point::AfterCommit => "after the commit",
            Point::AfterBell => "after the bells",
        };
        self.dies_at(name, self.faults.crash_one_in)
    }
}

/// A bug put into the store's surroundings, to see it found: called at every point with the bells not yet rung.
pub type Plant = Arc<dyn Fn(Point, &[(String, i64)]) + Send + Sync>;

/// Starts a process: called at the beginning and after every crash.
pub type Boot<'a> = dyn Fn(&mut Executor, usize, &Life) + 'a;

/// Runs the tasks of all processes.
pub struct Executor {
    /// Time, randomness, trace.
    pub world: World,
    faults: Faults,
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
    pub fn new(world: World, faults: Faults, processes: usize, boot: &Boot<'_>) -> Executor {
        let mut this = Executor {
            world,
            faults,
            tasks: BTreeMap::new(),
            tasks_made: 0,
            ready: Arc::default(),
            lives: Vec::new(),
            paused_until_ms: vec![0; processes],
            down_until_ms: vec![None; processes],
            polls: 0,
        };
        for process in 0..processes {
            let life = this.new_life();
            this.lives.push(life.clone());
            boot(&mut this, process, &life);
        }
        this
    }

    fn new_life(&self) -> Life {
        Life { world: self.world.clone(), faults: self.faults, dead: Arc::default() }
    }

    /// Adds a task to a process.
    pub fn spawn(&mut self, process: usize, future: impl Future<Output = ()> + Send + 'static) {
        let id = self.tasks_made;
        self.tasks_made += 1;
        self.tasks.insert(id, Task { process, future: Box::pin(future) });
        self.ready.with(|ready| ready.insert(id));
    }

    /// A store of this process on these two connections. In production threads call the pumps, here tasks do: the
    /// whole difference.
    pub fn spawn_store(
        &mut self,
        process: usize,
        life: &Life,
        connections: (impl Db + 'static, impl Db + 'static),
        ring: impl Fn(&str, i64) + Send + Sync + 'static,
        plant: Option<Plant>,
    ) -> Store {
        let dying = life.clone();
        let hooks = Hooks::on_ring(ring).with_faults(move |point, bells| {
            if let Some(plant) = &plant {
                plant(point, bells);
            }
            dying.store_point(point).then_some(Error::Crashed)
        });
        let (writer, reader) = connections;
        let (store, writes, reads) = pumps(1_000, &hooks);
        self.spawn(process, pump_task(self.world.clone(), writes, writer));
        self.spawn(process, pump_task(self.world.clone(), reads, reader));
        store
    }

    /// Runs until `done` holds and nothing is left to do at this moment, or until the end of time.
    pub fn run(&mut self, until_ms: UnixMs, boot: &Boot<'_>, done: &dyn Fn() -> bool) -> bool {
        while self.world.now_ms() < until_ms {
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
            task.is_some_and(|task| self.paused_until_ms[task.process] <= now_ms)
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
        let life = self.lives[process].clone();
        if life.dies_at("between two steps", self.faults.poll_crash_one_in) {
            self.bury(process);
        } else if self.world.fault(self.faults.pause_one_in) {
            self.pause(process);
        }
    }

    /// A crash drops every future of the process, and with them its connections.
    fn bury(&mut self, process: usize) {
        self.tasks.retain(|_, task| task.process != process);
        let wait_ms = i64::try_from(self.world.below(200)).unwrap_or(0);
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
                let life = self.new_life();
                self.lives[process] = life.clone();
                boot(self, process, &life);
            }
        }
    }

    fn pause(&mut self, process: usize) {
        let pause_ms = i64::try_from(self.world.below(self.faults.pause_max_ms)).unwrap_or(0);
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
