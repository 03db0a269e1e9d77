//! How well we do: counted when a job ends, in the transaction that ends it.

use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::announcement;
use guild_store::{Rx, Tx, args};

use super::{State, TakenJob};
use crate::Result;

/// How well we have done, measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stability {
    /// Jobs that ended well: delivered, and not turned down by their buyer.
    pub good: u64,
    /// Jobs that ended otherwise: failed, or turned down.
    pub bad: u64,
    /// From the request to the result, on average over all that were delivered.
    pub avg_latency_ms: u64,
}

impl Stability {
    /// As it is announced: nothing is claimed before the first job has ended.
    pub fn announced(&self) -> Option<announcement::Stability> {
        let all = self.good.saturating_add(self.bad);
        if all == 0 {
            return None;
        }
        // Thousandths, so that the announcement does not change with every job.
        let thousandths = self.good.saturating_mul(1_000).checked_div(all).unwrap_or(0);
        Some(announcement::Stability {
            success_rate: Some(f64::from(u32::try_from(thousandths).unwrap_or(0)) / 1_000.0),
            avg_latency_ms: Some(self.avg_latency_ms),
            jobs_completed: Some(self.good),
            ..announcement::Stability::default()
        })
    }
}

/// How well this key of ours has done.
pub fn stability(rx: &mut Rx<'_>, us: &PublicKey) -> Result<Stability> {
    let row: Option<(i64, i64, i64, i64)> = rx.first(
        "SELECT good, bad, delivered, latency_ms FROM market_stability WHERE provider = $1",
        args![&us.npub()],
    )?;
    let (good, bad, delivered, latency_ms) = row.unwrap_or_default();
    let count = |units: i64| u64::try_from(units).unwrap_or(0);
    Ok(Stability {
        good: count(good),
        bad: count(bad),
        avg_latency_ms: count(latency_ms).checked_div(count(delivered)).unwrap_or(0),
    })
}

/// Counts that a job has come to the state in which it is. Each change of state is counted once.
pub(super) fn count(tx: &mut Tx<'_>, job: &TakenJob) -> Result<()> {
    let waited_ms = job.delivered_ms.map_or(0, |at_ms| at_ms.saturating_sub(job.taken_ms).max(0));
    let (good, bad, delivered, latency_ms) = match job.state {
        State::Delivered => (1, 0, 1, waited_ms),
        State::Failed => (0, 1, 0, 0),
        // It was counted as good when it was delivered.
        State::Withheld => (-1, 1, 0, 0),
        State::Accepted | State::Paid | State::Underpaid | State::Cancelled | State::Refused => {
            return Ok(());
        }
    };
    let npub = job.provider.npub();
    tx.exec(
        "INSERT INTO market_stability (provider, good, bad, delivered, latency_ms)
         VALUES ($1, 0, 0, 0, 0) ON CONFLICT (provider) DO NOTHING",
        args![&npub],
    )?;
    tx.exec(
        "UPDATE market_stability SET good = good + $2, bad = bad + $3, delivered = delivered + $4,
           latency_ms = latency_ms + $5 WHERE provider = $1",
        args![&npub, good, bad, delivered, latency_ms],
    )?;
    Ok(())
}
