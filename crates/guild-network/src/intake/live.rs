//! The feed of what comes in.

use std::sync::Arc;

use guild_protocol::nostr::Event;
use tokio::sync::broadcast;

use crate::archive::Verified;

/// An event that was stored or passed on just now.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveEvent {
    /// Its number in the archive; none if it is only passed on.
    pub seq: Option<i64>,
    /// The event and its text.
    pub event: Verified,
}

impl LiveEvent {
    /// The event.
    pub fn event(&self) -> &Event {
        self.event.event()
    }

    /// Its canonical JSON.
    pub fn json(&self) -> &str {
        self.event.json()
    }
}

/// So many events were missed, because they were not taken in time. What was stored can be read from the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lagged(pub u64);

/// A bounded feed: stored events in the order of their numbers, each once, and those that are only passed on. It has
/// what this node stores, whoever puts it into the archive, and what other nodes of the same database store.
pub struct Live(pub(super) broadcast::Receiver<Arc<LiveEvent>>);

impl Live {
    /// The next event; none once the intake is gone.
    pub async fn next(&mut self) -> Option<Result<Arc<LiveEvent>, Lagged>> {
        match self.0.recv().await {
            Ok(event) => Some(Ok(event)),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(Err(Lagged(missed))),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}
