//! The database's time. Leases of several processes are compared with one another, so all must read one clock: that of
//! the database they share.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use futures_util::future::select;
use guild_protocol::env::{BoxFuture, Clock, Shutdown, UnixMs};

use crate::db::Sql;
use crate::pump::Store;
use crate::{Error, Result};

/// SQLite's file is on this machine, whose clock is ours already.
const NOW: Sql = Sql {
    lite: "SELECT NULL",
    pg: "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint",
};

/// How often the difference is measured, so that the shortest journey counts.
const SAMPLES: usize = 3;
/// How often it is tried if no journey is short enough: a machine may be busy for a while.
const SAMPLES_MAX: usize = 30;
/// A journey that took longer says too little.
const JOURNEY_MAX_MS: i64 = 1_000;
const EVERY_MS: i64 = 60_000;

/// This process's clock, corrected to that of the database.
pub struct DatabaseClock {
    own: Arc<dyn Clock>,
    ahead_ms: AtomicI64,
}

impl DatabaseClock {
    /// Not corrected yet.
    pub fn new(own: Arc<dyn Clock>) -> Arc<DatabaseClock> {
        Arc::new(DatabaseClock { own, ahead_ms: AtomicI64::new(0) })
    }

    /// How far the database's clock is ahead of ours.
    pub fn ahead_ms(&self) -> i64 {
        self.ahead_ms.load(Ordering::SeqCst)
    }

    /// Measures the difference and takes it over. A database that is too slow to tell its time is an error: leases must
    /// not be compared by a clock that nobody has corrected.
    pub async fn correct(&self, store: &Store) -> Result<()> {
        let mut best: Option<(i64, i64)> = None;
        for n in 0..SAMPLES_MAX {
            if n >= SAMPLES && best.is_some() {
                break;
            }
            let sent_ms = self.own.now_ms();
            let told = store.read(|rx| rx.first::<(Option<i64>,)>(NOW, &[])).await?;
            let heard_ms = self.own.now_ms();
            let Some((Some(told_ms),)) = told else { return Ok(()) };
            best = best.into_iter().chain(sample(sent_ms, told_ms, heard_ms)).min();
        }
        let (_, ahead_ms) = best.ok_or_else(|| {
            Error::Unreachable(format!("it takes more than {JOURNEY_MAX_MS} ms to tell its time"))
        })?;
        self.take(ahead_ms);
        Ok(())
    }

    fn take(&self, ahead_ms: i64) {
        let before_ms = self.ahead_ms.swap(ahead_ms, Ordering::SeqCst);
        if before_ms.abs_diff(ahead_ms) > 1_000 {
            tracing::warn!(
                before_ms,
                ahead_ms,
                "the clocks of the database and of this host differ"
            );
        }
    }

    /// Corrects it now and then until the shutdown.
    pub async fn run(self: Arc<Self>, store: Store, shutdown: Shutdown) {
        let keep_right = async {
            loop {
                match self.correct(&store).await {
                    Err(Error::Closed) => return,
                    Err(error) => tracing::debug!(%error, "the clock could not be corrected"),
                    Ok(()) => {}
                }
                self.own.sleep(EVERY_MS).await;
            }
        };
        select(shutdown.triggered(), std::pin::pin!(keep_right)).await;
    }
}

/// How long the journey took, and how far ahead the database is if its answer was given half-way.
fn sample(sent_ms: UnixMs, told_ms: UnixMs, heard_ms: UnixMs) -> Option<(i64, i64)> {
    let journey_ms =
        heard_ms.checked_sub(sent_ms).filter(|ms| (0..=JOURNEY_MAX_MS).contains(ms))?;
    let ours_ms = sent_ms.checked_add(journey_ms / 2)?;
    Some((journey_ms, told_ms.checked_sub(ours_ms)?))
}

impl Clock for DatabaseClock {
    fn now_ms(&self) -> UnixMs {
        self.own.now_ms().saturating_add(self.ahead_ms())
    }

    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        self.own.sleep(duration_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_journey_tells_the_difference() {
        assert_eq!(sample(1_000, 5_005, 1_010), Some((10, 4_000)));
        assert_eq!(sample(1_000, 505, 1_010), Some((10, -500)));
        assert_eq!(sample(1_000, 5_000, 2_001), None, "too long");
        assert_eq!(sample(1_000, 5_000, 999), None, "our clock was set back meanwhile");
    }
}
