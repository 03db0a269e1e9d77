//! `Store::write` and `Store::read` queue calls; a [`Pump`] drains them, many calls to one commit.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use guild_protocol::env::Clock;
use tokio::sync::oneshot;

use crate::db::{Access, Db};
use crate::tx::{Rx, Tx};
use crate::{Error, Result};

/// Where a process can die. In production nothing looks; the simulation crashes at each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// Before a statement of a call.
    BeforeStatement,
    /// After a statement of a call.
    AfterStatement,
    /// All calls have run, nothing is committed.
    BeforeCommit,
    /// Committed; no bell has rung, no caller knows.
    AfterCommit,
    /// The bells have rung; no caller knows.
    AfterBell,
}

type Ring = dyn Fn(&str, i64) + Send + Sync;
type Reach = dyn Fn(Point, &[(String, i64)]) -> Option<Error> + Send + Sync;
type Bells = Vec<(String, i64)>;

/// So many groups of calls are guarded from the start after one of them refused.
const WARY_GROUPS: u32 = 32;

/// What surrounds the store: where its bells go, and who may stop it in the middle.
#[derive(Clone, Default)]
pub struct Hooks {
    ring: Option<Arc<Ring>>,
    reach: Option<Arc<Reach>>,
    watch: Option<(Arc<dyn Clock>, i64)>,
}

impl Hooks {
    /// Bells go to `ring(topic, after)`, after the commit.
    pub fn on_ring(ring: impl Fn(&str, i64) + Send + Sync + 'static) -> Hooks {
        Hooks { ring: Some(Arc::new(ring)), ..Hooks::default() }
    }

    /// A call that keeps its transaction for `slow_ms` or more is reported, with the place in the program that made
    /// it: all other writers wait for it.
    #[must_use]
    pub fn with_watch(mut self, clock: Arc<dyn Clock>, slow_ms: i64) -> Hooks {
        self.watch = Some((clock, slow_ms));
        self
    }

    /// Simulation only: `reach(point, bells not yet rung)` is asked at every [`Point`]. An answer is what happens
    /// there: [`Error::Crashed`] is the death of the process, anything else a failure of the database.
    #[must_use]
    pub fn with_faults(
        mut self,
        reach: impl Fn(Point, &[(String, i64)]) -> Option<Error> + Send + Sync + 'static,
    ) -> Hooks {
        self.reach = Some(Arc::new(reach));
        self
    }

    pub(crate) fn reach(&self, point: Point) -> Result<()> {
        self.reach_with(point, &[])
    }

    fn reach_with(&self, point: Point, bells: &[(String, i64)]) -> Result<()> {
        match self.reach.as_ref().and_then(|reach| reach(point, bells)) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn watched(&self, made_at: &Location<'_>, run: impl FnOnce() -> Ran) -> Ran {
        let Some((clock, slow_ms)) = &self.watch else { return run() };
        let began_ms = clock.now_ms();
        let ran = run();
        let took_ms = clock.now_ms().saturating_sub(began_ms);
        if took_ms >= *slow_ms {
            tracing::warn!(took_ms, call = %made_at, "a call kept the database from all others");
        }
        ran
    }

    fn ring_all(&self, bells: &[(String, i64)]) {
        if let Some(ring) = &self.ring {
            let all = || bells.iter().for_each(|(topic, after)| ring(topic, *after));
            if catch_unwind(AssertUnwindSafe(all)).is_err() {
                // The write is committed and its callers must learn that; a lost bell is only a lost hint.
                tracing::error!("the bell hook panicked");
            }
        }
    }
}

/// How a group of calls went.
enum Attempt {
    /// All that went well is committed, and these bells are to be rung.
    Committed(Bells),
    /// One of several calls refused, and nothing can undo it alone: once more, with a savepoint for each.
    NeedsGuards,
}

/// How a call went in its transaction.
enum Ran {
    /// What it wrote may be committed.
    Well,
    /// It refused by itself, or panicked: its own savepoint is rolled back.
    Refused,
    /// The database failed under it.
    Failed(Error),
}

/// A call waiting for its transaction. It may run more than once; it is answered once.
trait Job: Send {
    fn run<'a>(&mut self, rx: Rx<'a>, bells: &'a mut Bells) -> Ran;
    fn answer(self: Box<Self>, instead: Option<Error>);
    fn made_at(&self) -> &'static Location<'static>;
}

struct Call<F, T, E> {
    closure: F,
    outcome: Result<T, E>,
    caller: oneshot::Sender<Result<T, E>>,
    made_at: &'static Location<'static>,
}

impl<F, T, E: From<Error>> Call<F, T, E> {
    #[track_caller]
    fn new(closure: F) -> (Call<F, T, E>, oneshot::Receiver<Result<T, E>>) {
        let (caller, answer) = oneshot::channel();
        let made_at = Location::caller();
        (Call { closure, outcome: Err(Error::Closed.into()), caller, made_at }, answer)
    }

    /// Keeps the outcome for the answer. A failure of the database counts also if the closure swallowed it.
    fn keep(&mut self, outcome: std::thread::Result<Result<T, E>>, failure: Option<Error>) -> Ran {
        let mut outcome = outcome.unwrap_or_else(|_| Err(Error::Panicked.into()));
        let ran = match failure {
            Some(error) => {
                discard(std::mem::replace(&mut outcome, Err(error.clone().into())));
                Ran::Failed(error)
            }
            None if outcome.is_err() => Ran::Refused,
            None => Ran::Well,
        };
        discard(std::mem::replace(&mut self.outcome, outcome));
        ran
    }

    fn send(self, instead: Option<Error>) {
        let Call { closure, mut outcome, caller, .. } = self;
        if let Some(error) = instead {
            discard(std::mem::replace(&mut outcome, Err(error.into())));
        }
        // A caller that no longer waits is no reason to fail: its write has happened.
        if let Err(unwanted) = caller.send(outcome) {
            discard(unwanted);
        }
        discard(closure);
    }
}

/// Drops what a caller gave us. If that panics, nobody else may suffer from it: others wait to be told of their commit.
fn discard<T>(value: T) {
    if catch_unwind(AssertUnwindSafe(|| drop(value))).is_err() {
        tracing::error!("what a call left behind panicked when it was dropped");
    }
}

struct Write<F, T, E>(Call<F, T, E>);

impl<T, E, F> Job for Write<F, T, E>
where
    T: Send,
    E: From<Error> + Send,
    F: Fn(&mut Tx<'_>) -> Result<T, E> + Send,
{
    fn run<'a>(&mut self, rx: Rx<'a>, bells: &'a mut Bells) -> Ran {
        let mut tx = Tx::new(rx, bells);
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.0.closure)(&mut tx)));
        self.0.keep(outcome, tx.into_rx().into_failure())
    }

    fn answer(self: Box<Self>, instead: Option<Error>) {
        self.0.send(instead);
    }

    fn made_at(&self) -> &'static Location<'static> {
        self.0.made_at
    }
}

struct Read<F, T, E>(Call<F, T, E>);

impl<T, E, F> Job for Read<F, T, E>
where
    T: Send,
    E: From<Error> + Send,
    F: Fn(&mut Rx<'_>) -> Result<T, E> + Send,
{
    fn run<'a>(&mut self, mut rx: Rx<'a>, _: &'a mut Bells) -> Ran {
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.0.closure)(&mut rx)));
        self.0.keep(outcome, rx.into_failure())
    }

    fn answer(self: Box<Self>, instead: Option<Error>) {
        self.0.send(instead);
    }

    fn made_at(&self) -> &'static Location<'static> {
        self.0.made_at
    }
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Box<dyn Job>>,
    /// Those that let the others go first.
    patient: VecDeque<Box<dyn Job>>,
    /// The others went first: it is their turn now.
    patience_over: bool,
    /// A patient one runs, and whoever comes waits for it.
    patient_runs: bool,
    /// How many came while a patient one ran.
    kept_waiting: u64,
    pump: Option<Waker>,
    closed: bool,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.patient.is_empty()
    }

    /// What is committed next: up to `max` of those that came as usual, or a single patient one. In turn if there are
    /// both, so that nobody waits for more than one patient call, and no patient call for ever.
    fn take(&mut self, max: usize) -> Vec<Box<dyn Job>> {
        if self.jobs.is_empty() || (self.patience_over && !self.patient.is_empty()) {
            self.patience_over = false;
            let next: Vec<_> = self.patient.pop_front().into_iter().collect();
            self.patient_runs = !next.is_empty();
            return next;
        }
        self.patience_over = true;
        self.patient_runs = false;
        let count = self.jobs.len().min(max);
        self.jobs.drain(..count).collect()
    }
}

struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    max_calls: usize,
}

impl Queue {
    fn new(max_calls: usize) -> Arc<Queue> {
        Arc::new(Queue { waiting: Mutex::default(), arrived: Condvar::new(), max_calls })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // A panic while holding the lock cannot leave the deque half changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses instead of waiting: a full queue is the caller's to handle.
    fn push(&self, job: Box<dyn Job>, patient: bool) {
        let mut waiting = self.lock();
        let queue = if patient { &waiting.patient } else { &waiting.jobs };
        let refusal = if waiting.closed {
            Some(Error::Closed)
        } else if queue.len() >= self.max_calls {
            Some(Error::QueueFull(queue.len()))
        } else {
            None
        };
        if refusal.is_some() {
            drop(waiting);
            job.answer(refusal);
            return;
        }
        match patient {
            true => waiting.patient.push_back(job),
            false => {
                waiting.jobs.push_back(job);
                waiting.kept_waiting += u64::from(waiting.patient_runs);
            }
        }
        let pump = waiting.pump.take();
        drop(waiting);
        self.arrived.notify_one();
        if let Some(waker) = pump {
            waker.wake();
        }
    }

    fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
    }

    /// Nobody drains it any more: whoever waits is told, and nobody else begins to.
    fn abandon(&self) {
        self.close();
        let (jobs, patient) = {
            let mut waiting = self.lock();
            (std::mem::take(&mut waiting.jobs), std::mem::take(&mut waiting.patient))
        };
        // Outside the lock: an answer may wake a caller that calls again.
        jobs.into_iter().chain(patient).for_each(|job| job.answer(Some(Error::Closed)));
    }
}

/// The handle of a store: cheap to clone, safe to share.
#[derive(Clone)]
pub struct Store {
    writes: Arc<Queue>,
    reads: Arc<Queue>,
}

impl Store {
    /// Runs `closure` in a transaction and answers after the commit. The call is queued at once; dropping the future
    /// does not stop it, and the closure may run more than once. So whatever it writes carries an id of its own.
    ///
    /// The error is the caller's own: a refusal of the closure comes back as it is, after its writes are rolled back.
    #[track_caller]
    pub fn write<T, E, F>(
        &self,
        closure: F,
    ) -> impl Future<Output = Result<T, E>> + Send + use<T, E, F>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: Fn(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
    {
        let (call, answer) = Call::new(closure);
        self.writes.push(Box::new(Write(call)), false);
        async move { answer.await.unwrap_or_else(|_| Err(Error::Closed.into())) }
    }

    /// As [`Store::write`], for work that can wait and takes long: it shares its commit with nobody, and whoever waits
    /// goes first each time. So much of it may be done in one call as others can wait for.
    #[track_caller]
    pub fn write_patiently<T, E, F>(
        &self,
        closure: F,
    ) -> impl Future<Output = Result<T, E>> + Send + use<T, E, F>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: Fn(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
    {
        let (call, answer) = Call::new(closure);
        self.writes.push(Box::new(Write(call)), true);
        async move { answer.await.unwrap_or_else(|_| Err(Error::Closed.into())) }
    }

    /// Runs `closure` on one snapshot of the database, beside the writers.
    #[track_caller]
    pub fn read<T, E, F>(
        &self,
        closure: F,
    ) -> impl Future<Output = Result<T, E>> + Send + use<T, E, F>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: Fn(&mut Rx<'_>) -> Result<T, E> + Send + 'static,
    {
        let (call, answer) = Call::new(closure);
        self.reads.push(Box::new(Read(call)), false);
        async move { answer.await.unwrap_or_else(|_| Err(Error::Closed.into())) }
    }

    /// How many calls wait now: to write, and to read. Patient ones are not counted.
    pub fn waiting(&self) -> (usize, usize) {
        (self.writes.lock().jobs.len(), self.reads.lock().jobs.len())
    }

    /// How many writes have had to wait for a [patient](Store::write_patiently) one so far.
    pub fn kept_waiting(&self) -> u64 {
        self.writes.lock().kept_waiting
    }

    pub(crate) fn close(&self) {
        self.writes.close();
        self.reads.close();
    }

    pub(crate) fn close_writes(&self) {
        self.writes.close();
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

/// A store without a database: its handle, the pump of its writes and the pump of its reads.
pub fn pumps(max_calls: usize, hooks: &Hooks) -> (Store, Pump, Pump) {
    let store = Store { writes: Queue::new(max_calls), reads: Queue::new(max_calls) };
    let pump = |queue: &Arc<Queue>, access| Pump {
        queue: queue.clone(),
        hooks: hooks.clone(),
        access,
        wary: Arc::default(),
    };
    let (writes, reads) = (pump(&store.writes, Access::Write), pump(&store.reads, Access::Read));
    (store, writes, reads)
}

/// Drains one queue into one connection. Whoever calls it, a thread or a simulated task, is the whole difference
/// between production and simulation.
#[derive(Clone)]
pub struct Pump {
    queue: Arc<Queue>,
    hooks: Hooks,
    access: Access,
    /// How many of the next groups are guarded from the start: a savepoint is a journey on PostgreSQL, and a sixth of
    /// a small call on SQLite.
    wary: Arc<AtomicU32>,
}

impl Pump {
    /// Ready when a call waits. For a task that then calls [`Pump::drain`].
    pub fn poll_waiting(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.queue.lock();
        if !waiting.is_empty() {
            return Poll::Ready(());
        }
        waiting.pump = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Blocks until a call waits; false once the store is closed and drained. For a thread.
    fn wait(&self) -> bool {
        let idle = |waiting: &mut Waiting| waiting.is_empty() && !waiting.closed;
        let waiting = self.queue.arrived.wait_while(self.queue.lock(), idle);
        !waiting.unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// One drain: up to `max` calls, one commit. Fails only by a simulated crash.
    pub fn drain(&self, db: &mut dyn Db, max: usize) -> Result<()> {
        let jobs = self.queue.lock().take(max);
        // Another pump of the same queue may have been faster.
        if jobs.is_empty() { Ok(()) } else { self.commit(db, jobs) }
    }

    /// Drains until the store is closed. However it ends, by a bug too, no caller waits for ever.
    pub(crate) fn run(&self, db: &mut dyn Db, max: usize) {
        struct Abandon<'a>(&'a Queue);
        impl Drop for Abandon<'_> {
            fn drop(&mut self) {
                self.0.abandon();
            }
        }
        let _abandon = Abandon(&self.queue);
        while self.wait() && self.drain(db, max).is_ok() {}
    }

    fn commit(&self, db: &mut dyn Db, mut jobs: Vec<Box<dyn Job>>) -> Result<()> {
        let mut guarded = jobs.len() > 1 && self.is_wary();
        let mut tries = 0;
        loop {
            let error = match self.attempt(db, &mut jobs, guarded) {
                Ok(Attempt::Committed(bells)) => return self.tell(jobs, &bells),
                Ok(Attempt::NeedsGuards) => {
                    db.rollback();
                    self.wary.store(WARY_GROUPS, Ordering::Relaxed);
                    guarded = true;
                    continue;
                }
                Err(Error::Crashed) => return Err(Error::Crashed),
                Err(error) => error,
            };
            db.rollback();
            if db.try_again(&error, tries) {
                tries += 1;
                continue;
            }
            if jobs.len() > 1 && !error.concerns_all() {
                // One call took the others down with it: each again, on its own.
                return jobs.into_iter().try_for_each(|job| self.commit(db, vec![job]));
            }
            jobs.into_iter().for_each(|job| job.answer(Some(error.clone())));
            return Ok(());
        }
    }

    fn is_wary(&self) -> bool {
        let less = |groups: u32| groups.checked_sub(1);
        self.wary.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// It is committed: rings, and answers.
    fn tell(&self, jobs: Vec<Box<dyn Job>>, bells: &Bells) -> Result<()> {
        let instead = match self.hooks.reach(Point::AfterCommit) {
            Ok(()) => None,
            Err(Error::Crashed) => return Err(Error::Crashed),
            // The answer of the database was lost: nobody can know, so nobody rings.
            Err(error) => Some(Error::CommitUnknown(error.to_string())),
        };
        if instead.is_none() {
            self.hooks.ring_all(bells);
        }
        self.hooks.reach(Point::AfterBell)?;
        jobs.into_iter().for_each(|job| job.answer(instead.clone()));
        Ok(())
    }

    fn attempt(
        &self,
        db: &mut dyn Db,
        jobs: &mut [Box<dyn Job>],
        guarded: bool,
    ) -> Result<Attempt> {
        let mut bells = Vec::new();
        let (alone, mut kept) = (jobs.len() == 1, 0);
        db.begin(self.access)?;
        for job in jobs {
            let rung = bells.len();
            if guarded {
                db.savepoint()?;
            }
            let made_at = job.made_at();
            let run = || job.run(Rx::new(db, &self.hooks), &mut bells);
            match self.hooks.watched(made_at, run) {
                Ran::Well => {
                    kept += 1;
                    if guarded {
                        db.release_savepoint()?;
                    }
                }
                // A full disk makes SQLite give up the whole transaction, not only this call.
                Ran::Failed(error) if error.ends_transaction() || !db.in_transaction() => {
                    return Err(error);
                }
                Ran::Refused | Ran::Failed(_) => {
                    bells.truncate(rung);
                    if guarded {
                        db.rollback_to_savepoint()?;
                    } else if !alone {
                        return Ok(Attempt::NeedsGuards);
                    }
                }
            }
        }
        if kept == 0 {
            // Whoever refused is told so; there is nothing to keep.
            db.rollback();
            return Ok(Attempt::Committed(Vec::new()));
        }
        self.hooks.reach_with(Point::BeforeCommit, &bells)?;
        db.commit()?;
        Ok(Attempt::Committed(bells))
    }
}
