//! Leases: the right to do a thing that only one may do at a time, until it expires.
//!
//! A lease is a random token, a moment of expiry, and an epoch that grows with every new holder. Every write of a
//! holder calls [`check`] in its own transaction, so a holder that was paused for too long changes nothing any more:
//!
//! ```
//! # use guild_protocol::env::UnixMs;
//! # use guild_store::{Result, Tx, args, lease::{self, Lease}};
//! fn sweep(tx: &mut Tx<'_>, mine: &Lease, now_ms: UnixMs) -> Result<u64> {
//!     lease::check(tx, mine, now_ms)?;
//!     tx.exec("DELETE FROM outbox WHERE state = 'done' AND closed_ms < $1", args![now_ms])
//! }
//! ```
//!
//! The row decides, not the clock: it names one token, so two holders never both pass. A clock only decides how soon
//! another one may try.

use guild_protocol::env::UnixMs;

use crate::tx::{Rx, Tx};
use crate::{Error, Result, args};

/// The longest lease. One that seems to last longer was given under a wrong clock, and counts as expired.
pub const TTL_MAX_MS: i64 = 24 * 3_600 * 1_000;

/// Whoever asks for a lease asks for about as long as its holder did. One that seems to last so many times as long was
/// given under a wrong clock too: otherwise a clock that was an hour ahead would keep everybody out for an hour.
const TTLS_MAX: i64 = 10;

const NAME_MAX_BYTES: usize = 200;

/// A lease as its holder knows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Lease {
    /// What it is about.
    pub name: String,
    /// Who holds it, for a person to read.
    pub holder: String,
    /// Random, known to the holder alone.
    pub token: String,
    /// Grows with every new holder and is never given again: a fence for effects outside the database.
    pub epoch: i64,
    /// When it expires, unless it is renewed.
    pub until_ms: UnixMs,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the token: whoever has it can act as the holder.
        let Lease { name, holder, epoch, until_ms, .. } = self;
        write!(f, "Lease({name} held by {holder}, epoch {epoch}, until {until_ms})")
    }
}

/// Takes the lease if it is free or has expired, or extends it if this token has it already. Nothing if somebody else
/// has it.
pub fn acquire(
    tx: &mut Tx<'_>,
    name: &str,
    holder: &str,
    token: &str,
    ttl_ms: i64,
    now_ms: UnixMs,
) -> Result<Option<Lease>> {
    for (what, text) in [("name", name), ("holder", holder), ("token", token)] {
        check_text(what, text)?;
    }
    let until_ms = expiry(ttl_ms, now_ms)?;
    let longest_ms = ttl_ms.saturating_mul(TTLS_MAX).min(TTL_MAX_MS);
    let taken: Option<(i64,)> = tx.first(
        "INSERT INTO lease (name, holder, token, epoch, until_ms) VALUES ($1, $2, $3, 1, $4)
         ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, token = excluded.token,
           until_ms = excluded.until_ms,
           epoch = CASE WHEN lease.token = excluded.token THEN lease.epoch ELSE lease.epoch + 1 END
         WHERE lease.token IS NULL OR lease.token = excluded.token
            OR lease.until_ms <= $5 OR lease.until_ms > $6
         RETURNING epoch",
        args![name, holder, token, until_ms, now_ms, now_ms.saturating_add(longest_ms)],
    )?;
    Ok(taken.map(|(epoch,)| Lease {
        name: name.to_owned(),
        holder: holder.to_owned(),
        token: token.to_owned(),
        epoch,
        until_ms,
    }))
}

/// Extends a lease that is still held; `Fenced` if it has expired or somebody else has it. A holder that was late asks
/// again with [`acquire`], and knows by the epoch whether another one was there meanwhile.
pub fn renew(tx: &mut Tx<'_>, lease: &Lease, ttl_ms: i64, now_ms: UnixMs) -> Result<Lease> {
    let until_ms = expiry(ttl_ms, now_ms)?;
    tx.cas(
        "UPDATE lease SET until_ms = $4
         WHERE name = $1 AND token = $2 AND epoch = $3 AND until_ms > $5",
        args![&lease.name, &lease.token, lease.epoch, until_ms, now_ms],
    )?;
    Ok(Lease { until_ms, ..lease.clone() })
}

/// Gives the lease back, so that nobody has to wait for its end; false if it was lost already. The row stays: its
/// epoch is not given again.
pub fn release(tx: &mut Tx<'_>, lease: &Lease) -> Result<bool> {
    let released = tx.exec(
        "UPDATE lease SET holder = NULL, token = NULL, until_ms = 0
         WHERE name = $1 AND token = $2 AND epoch = $3",
        args![&lease.name, &lease.token, lease.epoch],
    )?;
    Ok(released == 1)
}

/// Refuses with `Fenced` unless the lease is held and has not expired. Every write of a holder begins with it, in the
/// same transaction.
pub fn check(rx: &mut Rx<'_>, lease: &Lease, now_ms: UnixMs) -> Result<()> {
    let held: Option<(i64,)> = rx.first(
        "SELECT epoch FROM lease WHERE name = $1 AND token = $2 AND epoch = $3 AND until_ms > $4",
        args![&lease.name, &lease.token, lease.epoch, now_ms],
    )?;
    if held.is_some() { Ok(()) } else { Err(Error::Fenced) }
}

fn expiry(ttl_ms: i64, now_ms: UnixMs) -> Result<UnixMs> {
    if (1..=TTL_MAX_MS).contains(&ttl_ms) {
        return Ok(now_ms.saturating_add(ttl_ms));
    }
    Err(Error::BadOptions(format!("a lease lasts from 1 to {TTL_MAX_MS} ms, not {ttl_ms}")))
}

fn check_text(what: &str, text: &str) -> Result<()> {
    if text.is_empty() || text.len() > NAME_MAX_BYTES || text.chars().any(char::is_control) {
        let message = format!(
            "the {what} of a lease has 1 to {NAME_MAX_BYTES} bytes without control characters"
        );
        return Err(Error::BadOptions(message));
    }
    Ok(())
}
