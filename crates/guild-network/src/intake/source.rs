//! Somebody who brings events, and how much of it may wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use guild_protocol::nostr::Event;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::work::Job;
use super::{Origin, Refusal, Shared, Verdict};

/// A bounded number of bytes.
pub(super) struct Room {
    free: Arc<Semaphore>,
    max: u32,
}

/// Bytes that are taken, given back when dropped.
pub(super) struct Held {
    _origin: OwnedSemaphorePermit,
    _total: OwnedSemaphorePermit,
}

impl Room {
    pub(super) fn new(max_bytes: usize) -> Room {
        let max = u32::try_from(max_bytes).unwrap_or(u32::MAX).clamp(1, 1 << 29);
        Room { free: Arc::new(Semaphore::new(usize::try_from(max).unwrap_or(1))), max }
    }

    /// An event that is larger than all the room takes all of it.
    fn part(&self, bytes: u32) -> u32 {
        bytes.min(self.max)
    }

    fn try_take(&self, bytes: u32) -> Option<OwnedSemaphorePermit> {
        self.free.clone().try_acquire_many_owned(self.part(bytes)).ok()
    }

    async fn take(&self, bytes: u32) -> Option<OwnedSemaphorePermit> {
        self.free.clone().acquire_many_owned(self.part(bytes)).await.ok()
    }
}

/// What an event costs beside its texts.
const OVERHEAD_BYTES: usize = 512;

/// About how much memory an event takes.
fn weight(event: &Event) -> u32 {
    let tags: usize = event.tags.iter().flatten().map(|item| item.len().saturating_add(32)).sum();
    let bytes = event.content.len().saturating_add(tags).saturating_add(OVERHEAD_BYTES);
    // Twice: once as it came, once as it is stored.
    u32::try_from(bytes.saturating_mul(2)).unwrap_or(u32::MAX)
}

/// Somebody who brings events. Cheap to clone; clones share what may wait.
#[derive(Clone)]
pub struct Source {
    shared: Arc<Shared>,
    origin: Arc<str>,
    room: Arc<Room>,
    hostile: Arc<AtomicU64>,
}

impl Source {
    pub(super) fn new(shared: Arc<Shared>, origin: &Origin) -> Source {
        let room = Arc::new(Room::new(shared.options.origin_max_bytes));
        Source { shared, origin: origin.name(), room, hostile: Arc::default() }
    }

    /// Offers an event; ready once it is stored or refused. Waits while too much of this source waits.
    pub async fn offer(&self, event: Event) -> Verdict {
        self.submit(event).await.await
    }

    /// Offers an event; ready once it is taken up, with the verdict to come. So a reader of a socket keeps many on
    /// their way, and stops reading when it brings more than is checked.
    pub async fn submit(&self, event: Event) -> Pending {
        if let Err(verdict) = self.look(&event) {
            return Pending::done(verdict);
        }
        let bytes = weight(&event);
        let (Some(origin), Some(total)) =
            (self.room.take(bytes).await, self.shared.room.take(bytes).await)
        else {
            return Pending::done(Refusal::stopped().into());
        };
        self.queue(event, Held { _origin: origin, _total: total })
    }

    /// Offers an event without waiting for anything: with too much on its way it is refused, `rate-limited`.
    pub fn try_offer(&self, event: Event) -> Pending {
        if let Err(verdict) = self.look(&event) {
            return Pending::done(verdict);
        }
        let bytes = weight(&event);
        let taken = self.room.try_take(bytes).zip(self.shared.room.try_take(bytes));
        match taken {
            Some((origin, total)) => self.queue(event, Held { _origin: origin, _total: total }),
            None => {
                let verdict = Refusal::busy().into();
                self.shared.counters.count(&verdict);
                Pending::done(verdict)
            }
        }
    }

    /// How many forged events it has brought.
    pub fn hostile_events(&self) -> u64 {
        self.hostile.load(Ordering::Relaxed)
    }

    fn look(&self, event: &Event) -> Result<(), Verdict> {
        self.shared.look(event).inspect_err(|verdict| {
            self.shared.counters.count(verdict);
            if matches!(verdict, Verdict::Refused(refusal) if refusal.is_hostile()) {
                self.hostile.fetch_add(1, Ordering::Relaxed);
            }
        })
    }

    fn queue(&self, event: Event, held: Held) -> Pending {
        let (answer, verdict) = oneshot::channel();
        let hostile = self.hostile.clone();
        let job = Job { event, origin: self.origin.clone(), held, answer, hostile };
        if self.shared.options.workers == 0 {
            if let Some(ready) = self.shared.check(job) {
                // Nobody receives once the service has ended; the answer is then dropped, and says so.
                let _ = self.shared.ready.send(vec![ready]);
            }
        } else {
            self.shared.queue.push(job);
        }
        Pending(State::Waiting(verdict))
    }
}

/// A verdict to come. Dropping it does not stop the event.
#[must_use = "nobody else learns the verdict"]
pub struct Pending(State);

enum State {
    Done(Option<Verdict>),
    Waiting(oneshot::Receiver<Verdict>),
}

impl Pending {
    fn done(verdict: Verdict) -> Pending {
        Pending(State::Done(Some(verdict)))
    }
}

impl Future for Pending {
    type Output = Verdict;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Verdict> {
        let stopped = || Refusal::stopped().into();
        match &mut self.0 {
            State::Done(verdict) => Poll::Ready(verdict.take().unwrap_or_else(stopped)),
            State::Waiting(waiting) => {
                Pin::new(waiting).poll(cx).map(|verdict| verdict.unwrap_or_else(|_| stopped()))
            }
        }
    }
}
