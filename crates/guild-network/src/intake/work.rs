//! Signatures are checked by plain threads, on all cores.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use guild_protocol::nostr::Event;
use tokio::sync::oneshot;

use super::source::Held;
use super::{Shared, Verdict};
use crate::archive::Verified;

/// An event whose signature is still to be checked.
pub(super) struct Job {
    pub(super) event: Event,
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
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    is_closed: bool,
}

/// So many a worker takes at a time: enough that the lock costs nothing, few enough that all cores share the work.
pub(super) const TAKE: usize = 16;

impl Queue {
    pub(super) fn push(&self, job: Job) {
        let mut waiting = self.lock();
        if waiting.is_closed {
            // Its answer is dropped, which says that the node stops.
            return;
        }
        self.unchecked.fetch_add(1, Ordering::Relaxed);
        waiting.jobs.push_back(job);
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Lets the workers finish what waits, and takes nothing more.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.arrived.notify_all();
    }

    /// Blocks until something waits; nothing once the queue is closed and empty.
    fn take(&self) -> Option<Vec<Job>> {
        let idle = |waiting: &mut Waiting| waiting.jobs.is_empty() && !waiting.is_closed;
        let waiting = self.arrived.wait_while(self.lock(), idle);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        let count = waiting.jobs.len().min(TAKE);
        (count > 0).then(|| waiting.jobs.drain(..count).collect())
    }

    /// Whether everything was checked and sent on.
    pub(super) fn is_idle(&self) -> bool {
        self.unchecked.load(Ordering::Acquire) == 0
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // A panic while holding the lock cannot leave the deque half changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks until the queue is closed and empty.
pub(super) fn run(shared: &Shared) {
    while let Some(jobs) = shared.queue.take() {
        let count = jobs.len();
        let ready: Vec<_> = jobs.into_iter().filter_map(|job| shared.check(job)).collect();
        // Nobody receives once the service has ended; the answers are then dropped, and say so.
        let _ = shared.ready.send(ready);
        if shared.queue.unchecked.fetch_sub(count, Ordering::Release) == count {
            // The last: whoever waits for more must look again.
            let _ = shared.ready.send(Vec::new());
        }
    }
}
