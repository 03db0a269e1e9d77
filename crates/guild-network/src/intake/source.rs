//! Somebody who brings events, and how much of it may wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use guild_protocol::nostr::{Event, EventText, kind};
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

#[cfg(test)]
impl Held {
    /// For an event that nobody else waits behind.
    pub(super) fn alone() -> Held {
        use futures_util::FutureExt;
        let room = Room::new(2);
        let take = || room.take(1).now_or_never().flatten().expect("there is room for two");
        Held { _origin: take(), _total: take() }
    }
}

impl Room {
    pub(super) fn new(max_bytes: usize) -> Room {
        let max = u32::try_from(max_bytes).unwrap_or(u32::MAX).clamp(1, 1 << 29);
        Room { free: Arc::new(Semaphore::new(usize::try_from(max).unwrap_or(1))), max }
    }

    /// Waits until there is room. An event that is larger than all of it takes all of it.
    async fn take(&self, bytes: u32) -> Option<OwnedSemaphorePermit> {
        self.free.clone().acquire_many_owned(bytes.min(self.max)).await.ok()
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
}

impl Source {
    pub(super) fn new(shared: Arc<Shared>, origin: &Origin) -> Source {
        let room = Arc::new(Room::new(shared.options.origin_max_bytes));
        Source { shared, origin: origin.name(), room }
    }

    /// Offers an event; ready once it is stored or refused. Waits while too much of this source waits.
    pub async fn offer(&self, event: Event) -> Verdict {
        self.submit(event).await.await
    }

    /// Offers an event; ready once it is taken up, with the verdict to come. So a reader of a socket keeps many on
    /// their way, and stops reading when it brings more than is checked.
    pub async fn submit(&self, event: Event) -> Pending {
        let text = match self.look(&event) {
            Ok(text) => text,
            Err(verdict) => return Pending::done(verdict),
        };
        let bytes = weight(&event);
        let (Some(origin), Some(total)) =
            (self.room.take(bytes).await, self.shared.room.take(bytes).await)
        else {
            return Pending::done(Refusal::stopped().into());
        };
        self.queue(event, text, Held { _origin: origin, _total: total })
    }

    fn look(&self, event: &Event) -> Result<EventText, Verdict> {
        self.shared.look(event).inspect_err(|verdict| {
            self.shared.counters.count(verdict);
            if event.kind == kind::ANNOUNCEMENT {
                self.shared.counters.refuse_announcement(verdict);
            }
        })
    }

    fn queue(&self, event: Event, text: EventText, held: Held) -> Pending {
        let (answer, verdict) = oneshot::channel();
        let job = Job { event, text, origin: self.origin.clone(), held, answer };
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
