//! What can be asked of the ledger.

use guild_protocol::amount::Amount;
use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hasher;
use guild_protocol::typed_id;

use crate::account::AccountId;
use crate::error::code;
use crate::{Error, Result};

typed_id! {
    /// Names a transfer. Made from what it is (a request and its step, a sandbox and its minute), never from when it is
    /// tried: asking again is asking for the same transfer.
    TransferId = "xfer", made;
}

impl TransferId {
    /// The id of a transfer that is fully described by a time and these words.
    ///
    /// `at_ms` is the time of the thing that the transfer is about (when a request was made, when a sandbox's minute
    /// began), never the time of the attempt: every attempt must come to the same id. It is the front of the id, so
    /// that ids of the same time lie together in the index of all transfers. An index of plain hashes would be hit at
    /// random, and the write rate would fall as soon as it no longer fits into memory.
    ///
    /// The form is a UUID of version 8: 48 bits of time, then 74 bits of a SHA-256 of the words. Should two transfers
    /// ever come to one id, the second is refused as a conflict.
    ///
    /// ```
    /// # use guild_ledger::TransferId;
    /// let minute = TransferId::named(1_767_225_600_000, &["sandbox.minute", "sbx_7", "12"]);
    /// assert_eq!(minute, TransferId::named(1_767_225_600_000, &["sandbox.minute", "sbx_7", "12"]));
    /// assert!(minute < TransferId::named(1_767_225_660_000, &["sandbox.minute", "sbx_7", "13"]));
    /// ```
    pub fn named(at_ms: UnixMs, words: &[&str]) -> TransferId {
        const LATEST_MS: UnixMs = (1 << 48) - 1;
        let mut hasher = Hasher::new();
        for word in words {
            // Lengths keep ["ab", "c"] apart from ["a", "bc"].
            hasher.update(&u64::try_from(word.len()).unwrap_or(u64::MAX).to_be_bytes());
            hasher.update(word.as_bytes());
        }
        let digest = hasher.finish();
        let (_, hashed) = digest.as_bytes().split_at(16);
        let hashed = <[u8; 16]>::try_from(hashed).map_or(0, u128::from_be_bytes);
        let time = u128::try_from(at_ms.clamp(0, LATEST_MS)).unwrap_or(0);
        const VERSION_8: u128 = 0x8 << 76;
        const VARIANT: u128 = 0b10 << 62;
        const HASHED: u128 = !((0xffff_ffff_ffff << 80) | (0xf << 76) | (0b11 << 62));
        let id = (time << 80) | VERSION_8 | VARIANT | (hashed & HASHED);
        TransferId(format!("{}_{id:032x}", TransferId::PREFIX))
    }
}

/// The five things that a transfer can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepName {
    /// Moves an amount at once.
    Post,
    /// Sets an amount aside.
    Hold,
    /// Moves what a hold set aside.
    Settle,
    /// Gives a hold back.
    Void,
    /// Gives back a hold that has run out.
    Expire,
}

impl StepName {
    const ALL: [StepName; 5] =
        [StepName::Post, StepName::Hold, StepName::Settle, StepName::Void, StepName::Expire];

    /// The word in the database and in exports.
    pub fn as_str(self) -> &'static str {
        match self {
            StepName::Post => "post",
            StepName::Hold => "hold",
            StepName::Settle => "settle",
            StepName::Void => "void",
            StepName::Expire => "expire",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<StepName> {
        StepName::ALL.into_iter().find(|name| name.as_str() == text)
    }
}

/// What a transfer does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Moves an amount at once.
    Post {
        /// From here.
        debit: AccountId,
        /// To here.
        credit: AccountId,
        /// So much.
        amount: Amount,
    },
    /// Sets an amount aside, until it is settled, voided, or runs out.
    Hold {
        /// From here.
        debit: AccountId,
        /// To here, if it is settled.
        credit: AccountId,
        /// So much.
        amount: Amount,
        /// When it runs out.
        expires_ms: UnixMs,
    },
    /// Moves what a hold set aside, or a part of it; the rest is free again.
    Settle {
        /// The transfer that made the hold.
        hold: TransferId,
        /// How much of it; all of it if not said.
        units: Option<i64>,
    },
    /// Gives a hold back.
    Void {
        /// The transfer that made the hold.
        hold: TransferId,
    },
    /// Gives back a hold that has run out.
    Expire {
        /// The transfer that made the hold.
        hold: TransferId,
    },
}

impl Step {
    /// Its name.
    pub fn name(&self) -> StepName {
        match self {
            Step::Post { .. } => StepName::Post,
            Step::Hold { .. } => StepName::Hold,
            Step::Settle { .. } => StepName::Settle,
            Step::Void { .. } => StepName::Void,
            Step::Expire { .. } => StepName::Expire,
        }
    }
}

const MEMO_MAX_BYTES: usize = 200;

/// A transfer that somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTransfer {
    /// Names it.
    pub transfer_id: TransferId,
    /// What it does.
    pub step: Step,
    /// Why, in a word that a statement shows: `job.escrow`, `sandbox.minute`.
    pub memo: String,
}

impl NewTransfer {
    /// Checks and takes a transfer.
    pub fn new(transfer_id: TransferId, step: Step, memo: &str) -> Result<NewTransfer> {
        let this = NewTransfer { transfer_id, step, memo: memo.to_owned() };
        this.check()?;
        Ok(this)
    }

    /// What needs no book to be seen.
    pub(crate) fn check(&self) -> Result<()> {
        let memo = &self.memo;
        if memo.is_empty() || memo.len() > MEMO_MAX_BYTES || memo.chars().any(char::is_control) {
            let message = format!("memo must be 1 to {MEMO_MAX_BYTES} bytes of plain text");
            return Err(Error::refused(&code::MALFORMED, message));
        }
        match self.step {
            Step::Hold { expires_ms, .. } => check_time("expires_ms", expires_ms),
            _ => Ok(()),
        }
    }
}

/// Exports write times as JSON numbers, which are exact up to 2^53 only.
pub(crate) fn check_time(field: &str, at_ms: UnixMs) -> Result<()> {
    const LATEST_MS: UnixMs = (1 << 53) - 1;
    if (0..=LATEST_MS).contains(&at_ms) {
        return Ok(());
    }
    let message = format!("{field} must be 0 to {LATEST_MS} milliseconds since 1970");
    Err(Error::refused(&code::MALFORMED, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_begins_with_its_time_and_ends_with_its_words() {
        let id = TransferId::named(0x0192_3456_789a, &["ab", "c"]);
        let (time, rest) = id.as_str().split_at(17);
        assert_eq!(time, "xfer_01923456789a");
        assert_eq!((rest.len(), &rest[..1]), (20, "8"));
        assert!(matches!(&rest[4..5], "8" | "9" | "a" | "b"), "{rest}");
        assert_eq!(id.as_str().parse::<TransferId>().unwrap(), id);
        assert_ne!(id, TransferId::named(0x0192_3456_789a, &["a", "bc"]));
        for (at_ms, front) in [(-1, "000000000000"), (i64::MAX, "ffffffffffff")] {
            assert_eq!(&TransferId::named(at_ms, &["x"]).as_str()[5..17], front);
        }
    }

    #[test]
    fn a_time_that_json_cannot_hold_is_refused() {
        let hold = |expires_ms| Step::Hold {
            debit: crate::AccountId::of(&guild_protocol::hash::Hash::of(b"a")),
            credit: crate::AccountId::of(&guild_protocol::hash::Hash::of(b"b")),
            amount: Amount::new(guild_protocol::amount::AssetId::usd_micro(), 1),
            expires_ms,
        };
        let id = TransferId::named(0, &["x"]);
        assert!(NewTransfer::new(id.clone(), hold(9_007_199_254_740_991), "x").is_ok());
        for bad in [9_007_199_254_740_992, i64::MAX, -1] {
            let refused = NewTransfer::new(id.clone(), hold(bad), "x").unwrap_err();
            assert_eq!(refused.code(), &code::MALFORMED);
        }
    }
}
