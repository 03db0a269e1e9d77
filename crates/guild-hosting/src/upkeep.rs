//! The loop of the meter: minutes are paid, what is over ends, what has no meaning any more goes.
//!
//! Any number of processes may run it on one database. It lets whoever asks for something go first, and its batches
//! are small while somebody does: nobody waits for more than one of them. A batch that fails is gone through piece by
//! piece: what fails [three times](STRIKES_MAX) by itself is set aside, everything else is metered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::{Either, select};
use guild_protocol::env::{Clock, Shutdown};
use guild_store::Store;

use crate::machine::driver::Counts;
use crate::meter::{self, Piece, Sight, Ticked};
use crate::{Error, Result, access, money};

/// So often a piece may fail before it is set aside: a database may fail now and then, and does not mean the piece.
pub const STRIKES_MAX: u32 = 3;

/// How the loop works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How often it looks. Well below [`meter::LEAD_MS`], so that a look or two may fail.
    pub every_ms: i64,
    /// How many sandboxes are looked at in one transaction while somebody waits for it.
    pub batch_min: i64,
    /// How many at most while nobody does: the next who asks waits for this one.
    pub batch_max: i64,
}

impl Default for Options {
    fn default() -> Options {
        Options { every_ms: 500, batch_min: 16, batch_max: 512 }
    }
}

impl Options {
    /// Where every statement is a journey, a small batch takes nearly as long as a larger one, and so does what users
    /// ask for.
    pub fn on_server() -> Options {
        Options { batch_min: 40, batch_max: 2_048, ..Options::default() }
    }
}

/// A look that lasts longer lets nobody go first any more: half of the time is over that there was to pay in.
const POLITE_MS: i64 = meter::LEAD_MS / 2;

/// How many are looked at in one transaction: fewer as long as somebody waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pace {
    size: i64,
    min: i64,
    max: i64,
}

impl Pace {
    fn of(options: &Options) -> Pace {
        let Options { batch_min, batch_max, .. } = options;
        Pace { size: *batch_min, min: *batch_min, max: *batch_max }
    }

    /// The size after a batch for which others had to wait, or nobody.
    fn next(self, others_waited: bool) -> Pace {
        let size = match others_waited {
            true => self.size / 4,
            false => self.size.saturating_mul(2),
        };
        Pace { size: size.clamp(self.min, self.max), ..self }
    }
}

/// The service that keeps the meter.
pub struct Upkeep {
    options: Options,
    store: Store,
    clock: Arc<dyn Clock>,
    counts: Counts,
    /// What failed by itself, and how often in a row.
    strikes: Mutex<BTreeMap<Piece, u32>>,
}

/// Whether it may be the fault of what was looked at. A store that is out of reach blames nobody.
fn blames_a_row(error: &Error) -> bool {
    use guild_store::Error as Store;
    let (Error::Store(store) | Error::Ledger(guild_ledger::Error::Store(store))) = error else {
        return true;
    };
    !matches!(
        store,
        Store::QueueFull(_)
            | Store::Locked
            | Store::Closed
            | Store::Conflict(_)
            | Store::Unreachable(_)
            | Store::CommitUnknown(_)
            | Store::Crashed
    )
}

impl Upkeep {
    /// Keeps the meter of this store.
    pub fn new(options: Options, store: Store, clock: Arc<dyn Clock>) -> Upkeep {
        let batch_max = options.batch_max.clamp(1, meter::BATCH_MAX);
        let batch_min = options.batch_min.clamp(1, batch_max);
        let options = Options { batch_min, batch_max, ..options };
        let (counts, strikes) = (Counts::default(), Mutex::default());
        Upkeep { options, store, clock, counts, strikes }
    }

    /// What it meets: `failed` pieces, and those that were `set_aside`.
    pub fn counts(&self) -> Counts {
        self.counts.clone()
    }

    /// Looks at all that is due now, a batch at a time.
    pub async fn look(&self) -> Result<Sight> {
        let mut pace = Pace::of(&self.options);
        let mut kept_waiting = self.store.kept_waiting();
        let polite_until_ms = self.clock.now_ms().saturating_add(POLITE_MS);
        loop {
            let (clock, size) = (self.clock.clone(), pace.size);
            let tick = self.store.write_patiently(move |tx| meter::tick(tx, clock.now_ms(), size));
            let ticked: Ticked = match tick.await {
                Ok(ticked) => ticked,
                Err(error) if blames_a_row(&error) => return self.piece_by_piece().await,
                Err(error) => return Err(error),
            };
            self.strikes().clear();
            if !ticked.more {
                return Ok(ticked.clock);
            }
            let waited = self.store.kept_waiting();
            let others_waited = waited > std::mem::replace(&mut kept_waiting, waited);
            pace = pace.next(others_waited && self.clock.now_ms() < polite_until_ms);
        }
    }

    /// Looks at what is due, each in a transaction of its own. What is not reached now is next time.
    async fn piece_by_piece(&self) -> Result<Sight> {
        let (clock, batch_max) = (self.clock.clone(), self.options.batch_max);
        let due = self.store.read(move |rx| meter::pieces(rx, clock.now_ms(), batch_max));
        let due: Vec<Piece> = due.await?;
        self.strikes().retain(|piece, _| due.contains(piece));
        for piece in due {
            let (clock, one) = (self.clock.clone(), piece.clone());
            let tick = self.store.write(move |tx| meter::tick_one(tx, &one, clock.now_ms()));
            match tick.await {
                Ok(Ticked { clock: Sight::Steady, .. }) => {
                    self.strikes().remove(&piece);
                }
                Ok(ticked) => return Ok(ticked.clock),
                Err(error) if blames_a_row(&error) => self.strike(piece, &error).await?,
                Err(error) => return Err(error),
            }
        }
        Ok(Sight::Steady)
    }

    async fn strike(&self, piece: Piece, error: &Error) -> Result<()> {
        self.counts.add("failed");
        let strikes = {
            let mut strikes = self.strikes();
            let strikes = strikes.entry(piece.clone()).or_default();
            *strikes = strikes.saturating_add(1);
            *strikes
        };
        if strikes < STRIKES_MAX {
            tracing::debug!(?piece, %error, "something could not be metered; it is tried again");
            return Ok(());
        }
        let (clock, one, words) = (self.clock.clone(), piece.clone(), error.to_string());
        let aside = self.store.write(move |tx| meter::set_aside(tx, &one, &words, clock.now_ms()));
        aside.await?;
        self.counts.add("set_aside");
        self.strikes().remove(&piece);
        tracing::warn!(?piece, %error, code = error.code().name, "something cannot be metered; it is set aside");
        Ok(())
    }

    fn strikes(&self) -> std::sync::MutexGuard<'_, BTreeMap<Piece, u32>> {
        // Nothing panics while holding it.
        self.strikes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes away a few of the rows that have no meaning any more; true if there may be more. Nothing, where the clock
    /// cannot be believed: a glimpse of tomorrow would end what is kept for a day.
    pub async fn sweep(&self) -> Result<bool> {
        let clock = self.clock.clone();
        let swept = self.store.write(move |tx| match meter::believed(tx, clock.now_ms())? {
            Some(now_ms) => access::sweep(tx, now_ms),
            None => Ok(false),
        });
        swept.await
    }

    /// Closes withdrawals that nobody has sent in time; how many. Also by a clock that can be believed.
    pub async fn close_withdrawals(&self) -> Result<usize> {
        let clock = self.clock.clone();
        let any = self.store.read(move |rx| match meter::believed(rx, clock.now_ms())? {
            Some(now_ms) => Ok(!money::withdrawals_unsent(rx, now_ms, 1)?.is_empty()),
            None => Ok::<_, Error>(false),
        });
        if !any.await? {
            return Ok(0);
        }
        let clock = self.clock.clone();
        let closed = self.store.write(move |tx| match meter::believed(tx, clock.now_ms())? {
            Some(now_ms) => money::expire_withdrawals(tx, now_ms, access::SWEEP_MAX),
            None => Ok(0),
        });
        closed.await
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
            match self.close_withdrawals().await {
                Ok(0) => {}
                Ok(closed) => tracing::warn!(closed, "nobody sent these withdrawals in time"),
                Err(error) => tracing::debug!(%error, "no withdrawal was closed"),
            }
            let wait = self.clock.sleep(self.options.every_ms);
            if let Either::Right(_) = select(wait, shutdown.triggered()).await {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_small_while_somebody_waits_and_grow_while_nobody_does() {
        let options = Options { batch_min: 32, batch_max: 512, ..Options::default() };
        let mut pace = Pace::of(&options);
        let mut sizes = Vec::new();
        for others_waited in [false, false, false, false, false, true, true, true, false] {
            sizes.push(pace.size);
            pace = pace.next(others_waited);
        }
        assert_eq!(sizes, [32, 64, 128, 256, 512, 512, 128, 32, 32]);
        assert_eq!(pace.size, 64);
    }
}
