//! Nonces: a signed message is good once.
//!
//! A nonce is 128 random bits, good for five minutes and for one try, whether that succeeds or not. So many are
//! outstanding at once, and the table cannot grow. From one place: whoever asks for more is refused. In all: the oldest
//! is given up, since to refuse would let few strangers with many addresses keep everybody out.

use std::fmt;
use std::str::FromStr;

use guild_protocol::env::{Random, UnixMs};
use guild_protocol::hash::{Hash, to_hex};
use guild_store::{Tx, args};
use zeroize::Zeroizing;

use super::siwe::{Field, Malformed};
use super::{Place, SWEEP_MAX, code, count};
use crate::{Error, Result};

/// For how long a nonce is good: 5 minutes.
pub const LIFETIME_MS: i64 = 5 * 60 * 1_000;

/// A nonce. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Nonce(Zeroizing<String>);

impl Nonce {
    /// A new one: 128 random bits, as 32 hex digits.
    pub fn make(random: &dyn Random) -> Nonce {
        let mut bytes = [0; 16];
        random.fill(&mut bytes);
        Nonce(Zeroizing::new(to_hex(&bytes)))
    }

    /// The text, for whoever asked for it and for the message to sign.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    fn hash(&self) -> String {
        Hash::of(self.0.as_bytes()).hex()
    }
}

impl FromStr for Nonce {
    type Err = Malformed;

    /// Reads 8 to 128 letters and digits: what EIP-4361 allows, and not without end.
    fn from_str(text: &str) -> Result<Nonce, Malformed> {
        if (8..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Ok(Nonce(Zeroizing::new(text.to_owned())));
        }
        Err(Malformed { field: Field::Nonce, reason: "has 8 to 128 ASCII letters and digits" })
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce(…)")
    }
}

/// How many nonces may be outstanding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// From one place.
    pub per_place: i64,
    /// In all.
    pub in_all: i64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { per_place: 32, in_all: 10_000 }
    }
}

/// Writes down that a nonce was given to somebody; until when it is good.
pub fn issue(
    tx: &mut Tx<'_>,
    nonce: &Nonce,
    place: Place,
    limits: &Limits,
    now_ms: UnixMs,
) -> Result<UnixMs> {
    // Whoever asks makes room first, so the limits count hardly anything that has expired.
    sweep(tx, now_ms)?;
    let place = place.to_string();
    let (here, first_ms) = outstanding(tx, &place)?;
    if here >= limits.per_place {
        let message = format!("{here} nonces were asked for from here and not used");
        let retry_after_ms = first_ms.unwrap_or(now_ms).saturating_sub(now_ms);
        return Err(Error::Limited { code: &code::NONCE_LIMIT, message, retry_after_ms });
    }
    make_room(tx, limits.in_all)?;
    let expires_ms = now_ms.saturating_add(LIFETIME_MS);
    tx.exec(
        "INSERT INTO access_nonce (nonce_hash, place, expires_ms) VALUES ($1, $2, $3)",
        args![&nonce.hash(), &place, expires_ms],
    )?;
    Ok(expires_ms)
}

/// How many were given to this place, and when the first of them expires.
fn outstanding(tx: &mut Tx<'_>, place: &str) -> Result<(i64, Option<UnixMs>)> {
    let row: Option<(i64, Option<i64>)> = tx.first(
        "SELECT count(*), min(expires_ms) FROM access_nonce WHERE place = $1",
        args![place],
    )?;
    Ok(row.unwrap_or((0, None)))
}

/// Gives up the oldest, so that there are fewer than so many.
fn make_room(tx: &mut Tx<'_>, in_all: i64) -> Result<()> {
    let have = count(tx, "SELECT count(*) FROM access_nonce", args![])?;
    let too_many = have.saturating_sub(in_all.max(1)).saturating_add(1);
    if too_many > 0 {
        tx.exec(
            "DELETE FROM access_nonce WHERE nonce_hash IN (SELECT nonce_hash FROM access_nonce
               ORDER BY expires_ms LIMIT $1)",
            args![too_many],
        )?;
    }
    Ok(())
}

/// Uses a nonce up; false if it is not there or has expired. Of any number of tries one gets true.
pub(super) fn consume(tx: &mut Tx<'_>, nonce: &Nonce, now_ms: UnixMs) -> Result<bool> {
    let there: Option<(i64,)> = tx.first(
        "DELETE FROM access_nonce WHERE nonce_hash = $1 RETURNING expires_ms",
        args![&nonce.hash()],
    )?;
    Ok(there.is_some_and(|(expires_ms,)| now_ms < expires_ms && expires_ms <= latest(now_ms)))
}

/// Clocks of several processes may differ by so much.
const SKEW_MS: i64 = 60_000;

/// The latest expiry that can be. One beyond it was given under a wrong clock, and would be good for too long.
fn latest(now_ms: UnixMs) -> UnixMs {
    now_ms.saturating_add(LIFETIME_MS).saturating_add(SKEW_MS)
}

/// Takes away a few that have expired.
pub(super) fn sweep(tx: &mut Tx<'_>, now_ms: UnixMs) -> Result<u64> {
    Ok(tx.exec(
        "DELETE FROM access_nonce WHERE nonce_hash IN (SELECT nonce_hash FROM access_nonce
           WHERE expires_ms <= $1 OR expires_ms > $2 LIMIT $3)",
        args![now_ms, latest(now_ms), SWEEP_MAX],
    )?)
}
