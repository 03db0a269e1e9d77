//! The loop of the meter: minutes are paid, what is over ends, what has no meaning any more goes.
//!
//! Any number of processes may run it on one database. Batches are small, so that whoever asks for something gets a
//! turn in between.

use std::sync::Arc;

use futures_util::future::{Either, select};
use guild_protocol::env::{Clock, Shutdown};
use guild_store::Store;

use crate::meter::{self, Sight, Ticked};
use crate::{Result, access};

/// How the loop works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How often it looks. Well below [`meter::LEAD_MS`], so that a look or two may fail.
    pub every_ms: i64,
    /// How many sandboxes are looked at in one transaction. Whoever asks for something waits for one of these at most.
    pub batch_max: i64,
}

impl Default for Options {
    fn default() -> Options {
        Options { every_ms: 500, batch_max: 100 }
    }
}

impl Options {
    /// Where every statement is a journey, a batch costs about as much whatever its size, and so does what users ask
    /// for: larger ones keep the meter fast, and nobody waits longer by comparison.
    pub fn on_server() -> Options {
        Options { batch_max: 250, ..Options::default() }
    }
}

/// The service that keeps the meter.
pub struct Upkeep {
    options: Options,
    store: Store,
    clock: Arc<dyn Clock>,
}

impl Upkeep {
    /// Keeps the meter of this store.
    pub fn new(options: Options, store: Store, clock: Arc<dyn Clock>) -> Upkeep {
        let batch_max = options.batch_max.clamp(1, meter::BATCH_MAX);
        Upkeep { options: Options { batch_max, ..options }, store, clock }
    }

    /// Looks at all that is due now, a batch at a time.
    pub async fn look(&self) -> Result<Sight> {
        loop {
            let (clock, batch_max) = (self.clock.clone(), self.options.batch_max);
            let tick = self.store.write(move |tx| meter::tick(tx, clock.now_ms(), batch_max));
            let ticked: Ticked = tick.await?;
            if !ticked.more {
                return Ok(ticked.clock);
            }
        }
    }

    async fn sweep(&self) -> Result<bool> {
        let clock = self.clock.clone();
        self.store.write(move |tx| access::sweep(tx, clock.now_ms())).await
    }

    /// Looks now and then until the shutdown. A store that is out of reach is tried again: meanwhile leases run out,
    /// and nothing runs that is not paid.
    pub async fn run(self, shutdown: Shutdown) {
        let mut told = None;
        while !shutdown.is_triggered() {
            let seen = match self.look().await {
                Ok(Sight::Steady) => None,
                Ok(Sight::Back { by_ms }) => Some(format!("the clock ran back by {by_ms} ms")),
                Ok(Sight::Jumped { by_ms }) => Some(format!("the clock jumped by {by_ms} ms")),
                Err(crate::Error::Store(guild_store::Error::Closed)) => return,
                Err(error) => Some(error.to_string()),
            };
            // Once, not every half second for as long as it lasts.
            if let (Some(why), None) = (&seen, &told) {
                tracing::warn!(
                    why,
                    "minutes are not metered; sandboxes end when what is paid is over"
                );
            }
            told = seen;
            if let Err(error) = self.sweep().await {
                tracing::debug!(%error, "nothing was swept");
            }
            let wait = self.clock.sleep(self.options.every_ms);
            if let Either::Right(_) = select(wait, shutdown.triggered()).await {
                return;
            }
        }
    }
}
