//! Signatures are checked by plain threads, on all cores.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use guild_protocol::nostr::{Event, EventText};
use tokio::sync::oneshot;

use super::source::Held;
use super::{Shared, Verdict};
use crate::archive::Verified;

/// An event whose signature is still to be checked.
pub(super) struct Job {
    pub(super) event: Event,
    pub(super) text: EventText,
    pub(super) origin: Arc<str>,
    pub(super) held: Held,
    pub(super) answer: oneshot::Sender<Verdict>,
}

/// An event that can be stored.
pub(super) struct Ready {
    pub(super) event: Verified,
    pub(super) origin: Arc<str>,
    pub(super) held: Held,
    pub(super) answer: oneshot::Sender<Verdict>,
}

/// What waits. Bounded by the room that every job holds.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    /// How many were pushed and are not yet checked and sent on.
    unchecked: AtomicUsize,
    /// How many were ever pushed.
    pushed: AtomicUsize,
}

/// What is to be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Ahead {
    /// How many were pushed and are not yet checked and sent on.
    pub(super) unchecked: usize,
    /// How many were ever pushed.
    pub(super) pushed: usize,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    is_closed: bool,
    /// How many workers sleep.
    asleep: usize,
    /// How many of these were called and are not yet awake.
    called: usize,
}

/// So many a worker takes at a time: enough that the lock costs nothing, few enough that all cores share the work, and
/// that a list of them is no large piece of memory, for which an allocator tidies up first.
pub(super) const TAKE: usize = 14;

impl Queue {
    pub(super) fn push(&self, job: Job) {
        let mut waiting = self.lock();
        if waiting.is_closed {
            // Its answer is dropped, which says that the node stops.
            return;
        }
        self.unchecked.fetch_add(1, Ordering::Relaxed);
        self.pushed.fetch_add(1, Ordering::Relaxed);
        waiting.jobs.push_back(job);
        // Whoever is awake looks again before it sleeps. To call somebody is a call to the system too, so nobody is
        // called twice.
        let call = waiting.called < waiting.asleep;
        waiting.called = waiting.called.saturating_add(usize::from(call));
        drop(waiting);
        if call {
            self.arrived.notify_one();
        }
    }

    /// Lets the workers finish what waits, and takes nothing more.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.arrived.notify_all();
    }

    /// Blocks until something waits, and takes some of it; false once the queue is closed and empty.
    fn take(&self, jobs: &mut Vec<Job>) -> bool {
        let mut waiting = self.lock();
        while waiting.jobs.is_empty() && !waiting.is_closed {
            waiting.asleep = waiting.asleep.saturating_add(1);
            waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            waiting.asleep = waiting.asleep.saturating_sub(1);
            // One that wakes uncalled takes the call of another: then that one is called once more, at worst.
            waiting.called = waiting.called.saturating_sub(1);
        }
        let count = waiting.jobs.len().min(TAKE);
        jobs.extend(waiting.jobs.drain(..count));
        count > 0
    }

    /// What is to be checked. Once nothing is, everything was sent on.
    pub(super) fn ahead(&self) -> Ahead {
        let pushed = self.pushed.load(Ordering::Relaxed);
        Ahead { unchecked: self.unchecked.load(Ordering::Acquire), pushed }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // A panic while holding the lock cannot leave the deque half changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks until the queue is closed and empty.
pub(super) fn run(shared: &Shared) {
    // The same list each time: what waits is large.
    let mut jobs = Vec::with_capacity(TAKE);
    while shared.queue.take(&mut jobs) {
        let count = jobs.len();
        let mut ready = Vec::with_capacity(count);
        ready.extend(jobs.drain(..).filter_map(|job| shared.check(job)));
        // Nobody receives once the service has ended; the answers are then dropped, and say so.
        let _ = shared.ready.send(ready);
        if shared.queue.unchecked.fetch_sub(count, Ordering::Release) == count {
            // The last: whoever waits for more must look again.
            let _ = shared.ready.send(Vec::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use guild_protocol::identity::SecretKey;
    use guild_protocol::nostr::Draft;

    use super::*;

    #[test]
    fn whoever_sleeps_is_called_and_nothing_waits() {
        let key: SecretKey = format!("{:064x}", 1).parse().unwrap();
        let draft = Draft { kind: 1, created_at: 0, tags: Vec::new(), content: String::new() };
        let event = draft.sign(&key).unwrap();
        let queue = Queue::default();
        let push = || {
            let (answer, taken) = oneshot::channel();
            let (event, text, held) = (event.clone(), event.text(), Held::alone());
            queue.push(Job { event, text, origin: "test".into(), held, answer });
            taken
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                // A job that is dropped drops its answer.
                scope.spawn(|| {
                    let mut jobs = Vec::new();
                    while queue.take(&mut jobs) {
                        jobs.clear();
                    }
                });
            }
            for n in 0..2_000 {
                let pushed: Vec<_> = (0..n % 40).map(|_| push()).collect();
                for taken in pushed {
                    assert!(taken.blocking_recv().is_err());
                }
            }
            queue.close();
        });
        let waiting = queue.lock();
        assert_eq!((waiting.jobs.len(), waiting.asleep, waiting.called), (0, 0, 0));
    }
}
