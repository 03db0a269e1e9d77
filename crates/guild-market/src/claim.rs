//! Who does a piece of work, where several processes share one database.
//!
//! A claim is a random token, an end, and an epoch that grows with every new claim of the same row. Whoever works holds
//! one, renews it, and names token and epoch in the write that hands the work in: a holder that was away for too long
//! finds its claim taken, and changes nothing. The row decides, not the clock: it names one holder. The clock only says
//! how soon another one may try, so a claim that is over and that nobody has taken is still good.
//!
//! ```
//! use guild_market::claim::{Claimant, Claimed};
//! let [one, other] = ["one", "other"].map(|token| Claimant { token: token.into(), ttl_ms: 15_000, at_once: 2 });
//! let free = Claimed::default();
//! let claim = free.claim_by(&one, 100).unwrap();
//! assert_eq!((claim.epoch, claim.until_ms), (1, 15_100));
//! let held = Claimed::from(&claim);
//! assert!(held.claim_by(&other, 15_099).is_none());
//! assert_eq!(held.claim_by(&other, 15_100).unwrap().epoch, 2);
//! ```

use guild_protocol::env::{Random, UnixMs};
use guild_protocol::hash::to_hex;
use guild_store::{Tx, args};

use crate::error::code;
use crate::row::Cells;
use crate::{Error, Result};

/// How long a claim lasts unless it is renewed: so long the work of a process that was killed waits for another one.
pub const TTL_MS: i64 = 15_000;

/// Somebody who claims work: one role of one process, in one life.
#[derive(Clone, PartialEq, Eq)]
pub struct Claimant {
    /// Random, known to this one alone.
    pub token: String,
    /// How long its claims last unless they are renewed.
    pub ttl_ms: i64,
    /// How many pieces it works on at once: what comes in beyond that is left to whoever has room.
    pub at_once: u64,
}

impl Claimant {
    /// One that nobody else is.
    pub fn new(random: &dyn Random, ttl_ms: i64, at_once: u64) -> Claimant {
        let mut bytes = [0; 16];
        random.fill(&mut bytes);
        Claimant { token: to_hex(&bytes), ttl_ms: ttl_ms.max(1), at_once }
    }

    /// What is claimed for longer than this was claimed under a wrong clock.
    pub(crate) fn longest_ms(&self, now_ms: UnixMs) -> UnixMs {
        now_ms.saturating_add(self.ttl_ms.saturating_mul(2))
    }

    /// A claim from now on.
    pub(crate) fn claim(&self, epoch: i64, now_ms: UnixMs) -> Claim {
        let until_ms = now_ms.saturating_add(self.ttl_ms);
        Claim { token: self.token.clone(), epoch, until_ms }
    }
}

impl std::fmt::Debug for Claimant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the token: whoever has it can act as the holder.
        write!(f, "Claimant({} at once, {} ms)", self.at_once, self.ttl_ms)
    }
}

/// A claim as its holder knows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Claim {
    /// The holder's.
    pub token: String,
    /// Which claim of this row.
    pub epoch: i64,
    /// When it ends, unless it is renewed.
    pub until_ms: UnixMs,
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Claim(epoch {}, until {})", self.epoch, self.until_ms)
    }
}

/// What a row says of who works on it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Claimed {
    token: Option<String>,
    until_ms: UnixMs,
    epoch: i64,
}

impl std::fmt::Debug for Claimed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.token {
            Some(_) => write!(f, "Claimed(epoch {}, until {})", self.epoch, self.until_ms),
            None => write!(f, "Claimed(nobody, epoch {})", self.epoch),
        }
    }
}

impl From<&Claim> for Claimed {
    fn from(claim: &Claim) -> Claimed {
        let Claim { token, epoch, until_ms } = claim.clone();
        Claimed { token: Some(token), until_ms, epoch }
    }
}

impl Claimed {
    /// The next three columns: token, end, epoch.
    pub(crate) fn read(cells: &mut Cells<'_>) -> guild_store::Result<Claimed> {
        let token = cells.next()?;
        let until_ms: Option<i64> = cells.next()?;
        Ok(Claimed { token, until_ms: until_ms.unwrap_or(0), epoch: cells.next()? })
    }

    /// The claim that this one has.
    pub fn held_by(&self, who: &Claimant) -> Option<Claim> {
        let token = self.token.clone().filter(|token| *token == who.token)?;
        Some(Claim { token, epoch: self.epoch, until_ms: self.until_ms })
    }

    /// The claim that this one gets, if nobody else has it: with a new epoch, also if it was its own before.
    pub fn claim_by(&self, who: &Claimant, now_ms: UnixMs) -> Option<Claim> {
        let is_others = self.token.as_ref().is_some_and(|token| *token != who.token);
        let is_live = self.until_ms > now_ms && self.until_ms <= who.longest_ms(now_ms);
        (!(is_others && is_live)).then(|| who.claim(self.epoch.saturating_add(1), now_ms))
    }

    /// Refuses unless it is this claim that the row names.
    pub(crate) fn check(&self, claim: &Claim) -> Result<()> {
        let is_it = self.token.as_ref() == Some(&claim.token) && self.epoch == claim.epoch;
        if is_it { Ok(()) } else { Err(lost()) }
    }
}

/// Frees everything that is claimed. Only for the one process that a database has: whoever claimed it is dead.
pub fn forget_all(tx: &mut Tx<'_>) -> Result<()> {
    tx.exec(
        "UPDATE market_job SET claim_token = NULL, claim_until_ms = NULL
         WHERE state = 'accepted' AND claim_token IS NOT NULL",
        args![],
    )?;
    tx.exec(
        "UPDATE market_order SET claim_token = NULL, claim_until_ms = NULL
         WHERE state = 'delivered' AND claim_token IS NOT NULL",
        args![],
    )?;
    tx.exec(
        "UPDATE market_meeting SET claim_token = NULL, claim_until_ms = NULL
         WHERE state <> 'ended' AND claim_token IS NOT NULL",
        args![],
    )?;
    Ok(())
}

/// Somebody else has it now.
pub(crate) fn lost() -> Error {
    Error::refused(&code::CLAIM_LOST, "another process has taken it over")
}

/// A write that must find its claim.
pub(crate) fn fenced(changed: u64) -> Result<()> {
    if changed == 1 { Ok(()) } else { Err(lost()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(token: &str) -> Claimant {
        Claimant { token: token.to_owned(), ttl_ms: 10, at_once: 1 }
    }

    #[test]
    fn it_is_given_to_one_until_it_ends() {
        let (one, other) = (who("one"), who("other"));
        let free = Claimed::default();
        assert_eq!(free.held_by(&one), None);
        let first = free.claim_by(&one, 100).unwrap();
        let held = Claimed::from(&first);
        assert_eq!(held.held_by(&one), Some(first.clone()));
        assert_eq!(held.held_by(&other), None);
        // By whom, when, and which claim it is then.
        let given = |who: &Claimant, now_ms| held.claim_by(who, now_ms).map(|claim| claim.epoch);
        assert_eq!(given(&other, 109), None);
        assert_eq!(given(&other, 110), Some(2));
        assert_eq!(given(&one, 101), Some(2));
        // It cannot have been given for so long: the clock was another one.
        assert_eq!(given(&other, 90), None);
        assert_eq!(given(&other, 89), Some(2));
        let second = held.claim_by(&other, 110).unwrap();
        let held = Claimed::from(&second);
        assert!(held.check(&second).is_ok());
        assert_eq!(held.check(&first).unwrap_err().code(), &code::CLAIM_LOST);
        let again = Claim { epoch: 2, ..first };
        assert_eq!(held.check(&again).unwrap_err().code(), &code::CLAIM_LOST);
        assert!(!format!("{second:?} {held:?} {other:?}").contains("other"));
    }
}
