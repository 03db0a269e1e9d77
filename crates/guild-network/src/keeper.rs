//! Keeps the archive within its bounds while the node runs, and forgets what relays said long ago.

use std::sync::Arc;

use futures_util::future::select;
use guild_protocol::env::{Clock, Shutdown};
use guild_protocol::nostr::unix_s;
use guild_store::Store;

use crate::archive::{self, Bounds};
use crate::{delivery, publish};

/// How often it looks.
const EVERY_MS: i64 = 5_000;

/// The service that forgets what has expired and what is too much.
pub struct Keeper {
    bounds: Bounds,
    store: Store,
    clock: Arc<dyn Clock>,
}

impl Keeper {
    /// A keeper of these bounds.
    pub fn new(bounds: Bounds, store: Store, clock: Arc<dyn Clock>) -> Keeper {
        Keeper { bounds, store, clock }
    }

    /// Looks at once and then every few seconds, until the shutdown.
    pub async fn run(self, shutdown: Shutdown) {
        let rounds = std::pin::pin!(async {
            loop {
                self.sweep().await;
                self.forget_acks().await;
                self.clock.sleep(EVERY_MS).await;
            }
        });
        select(shutdown.triggered(), rounds).await;
    }

    async fn sweep(&self) {
        let mut forgotten = 0;
        loop {
            let (bounds, now_s) = (self.bounds, unix_s(self.clock.now_ms()));
            match self.store.write(move |tx| archive::sweep(tx, now_s, &bounds)).await {
                Ok(swept) => {
                    forgotten += swept.forgotten;
                    if !swept.more {
                        break;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the archive could not be swept");
                    break;
                }
            }
        }
        metrics::counter!("archive_forgotten_total").increment(forgotten);
    }

    async fn forget_acks(&self) {
        let clock = self.clock.clone();
        // A few at a time: they come no faster than events of our own.
        let forgotten = self.store.write(move |tx| {
            delivery::forget(tx, clock.now_ms())?;
            publish::forget(tx, clock.now_ms())
        });
        let forgotten = forgotten.await;
        if let Err(error) = forgotten {
            tracing::warn!(%error, "what relays said long ago could not be forgotten");
        }
    }
}
