//! Gives back what has run out: holds that nobody settled, and quotes that nobody reserved.
//!
//! Any number of processes may sweep one database: the transfer that gives a hold back is named by the hold, so it is
//! booked once.

use std::sync::Arc;

use futures_util::future::{Either, select};
use guild_ledger::history::{PAGE_MAX, expire_due};
use guild_ledger::quote;
use guild_protocol::env::{Clock, Shutdown};
use guild_store::Store;

use crate::Result;

/// How the sweeper works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How often it looks.
    pub every_ms: i64,
    /// How many of each kind it gives back in one transaction; at most [`PAGE_MAX`].
    pub batch_max: i64,
}

impl Default for Options {
    fn default() -> Options {
        Options { every_ms: 1_000, batch_max: PAGE_MAX }
    }
}

/// What was given back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many holds.
    pub holds: u64,
    /// How many quotes.
    pub quotes: u64,
}

/// The service that sweeps.
pub struct Sweeper {
    options: Options,
    store: Store,
    clock: Arc<dyn Clock>,
}

impl Sweeper {
    /// Sweeps this store.
    pub fn new(options: Options, store: Store, clock: Arc<dyn Clock>) -> Sweeper {
        let batch_max = options.batch_max.clamp(1, PAGE_MAX);
        Sweeper { options: Options { batch_max, ..options }, store, clock }
    }

    /// Gives back all that has run out by now, a batch at a time, so that others get their turn in between.
    pub async fn sweep(&self) -> Result<Swept> {
        let mut all = Swept::default();
        loop {
            let Swept { holds, quotes } = self.batch().await?;
            all.holds = all.holds.saturating_add(holds);
            all.quotes = all.quotes.saturating_add(quotes);
            let full = u64::try_from(self.options.batch_max).unwrap_or(u64::MAX);
            if holds < full && quotes < full {
                return Ok(all);
            }
        }
    }

    async fn batch(&self) -> Result<Swept> {
        let (clock, limit) = (self.clock.clone(), self.options.batch_max);
        let swept = self.store.write(move |tx| {
            let now_ms = clock.now_ms();
            let holds = u64::try_from(expire_due(tx, now_ms, limit)?).unwrap_or(u64::MAX);
            let quotes = quote::expire(tx, now_ms, limit)?;
            Ok::<_, guild_ledger::Error>(Swept { holds, quotes })
        });
        Ok(swept.await?)
    }

    /// Sweeps now and then until the shutdown. A store that is out of reach is tried again.
    pub async fn run(self, shutdown: Shutdown) {
        let mut failing = false;
        while !shutdown.is_triggered() {
            match self.sweep().await {
                Ok(Swept { holds: 0, quotes: 0 }) => failing = false,
                Ok(Swept { holds, quotes }) => {
                    failing = false;
                    tracing::info!(holds, quotes, "gave back what had run out");
                }
                Err(error) if error.is_closed() => return,
                // Once, not every second for as long as it lasts.
                Err(error) if !std::mem::replace(&mut failing, true) => {
                    tracing::warn!(%error, "what has run out cannot be given back; trying again");
                }
                Err(_) => {}
            }
            let sleep = self.clock.sleep(self.options.every_ms);
            if let Either::Left(_) = select(shutdown.triggered(), sleep).await {
                return;
            }
        }
    }
}
