//! The relays of others, as the operator of a node sees them: what is known of each, and what is published there.

use std::sync::Arc;

use guild_network::archive::Verified;
use guild_network::client::{Pool, RelayStatus};
use guild_network::publish::{self, Destinations};
use guild_network::roster::{self, Known};
use guild_protocol::env::Clock;
use guild_protocol::nostr::{Event, EventId};
use guild_store::Store;

use crate::Result;

/// The handle of the relays.
#[derive(Clone)]
pub struct Relays {
    /// None in a process that is there for one write.
    pool: Option<Pool>,
    configured: Arc<[String]>,
    store: Store,
    clock: Arc<dyn Clock>,
}

/// An event that was queued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Its id.
    pub event_id: EventId,
    /// The relays that it goes to.
    pub relays: Vec<String>,
}

impl Relays {
    /// The configured relays; what is published leaves through `pool`, or when a node starts.
    pub fn new(
        pool: Option<Pool>,
        configured: &[String],
        store: Store,
        clock: Arc<dyn Clock>,
    ) -> Relays {
        Relays { pool, configured: configured.into(), store, clock }
    }

    /// What is known of each relay, by address.
    pub fn status(&self) -> Vec<RelayStatus> {
        self.pool.as_ref().map(Pool::status).unwrap_or_default()
    }

    /// Every relay that is known, how closely it is followed, and why; the closest first.
    pub async fn known(&self) -> Result<Vec<Known>> {
        let read = self.store.read(|rx| Ok::<_, crate::Error>(roster::list(rx, None)?));
        read.await
    }

    /// Keeps an event and queues it for all configured relays. Its id and signature are checked here. Again is the
    /// same as once.
    pub async fn publish(&self, event: Event) -> Result<Published> {
        let event_id = event.id;
        let event = Verified::check(event)?;
        let to = Destinations::own(&self.configured);
        let (relays, clock) = (to.urls(), self.clock.clone());
        self.store.write(move |tx| publish::enqueue(tx, &event, &to, clock.now_ms())).await?;
        Ok(Published { event_id, relays })
    }
}
