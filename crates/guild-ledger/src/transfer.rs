//! What can be asked of the ledger.

use guild_protocol::amount::Amount;
use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_protocol::typed_id;

use crate::account::AccountId;
use crate::error::code;
use crate::{Error, Result};

typed_id! {
    /// Names a transfer. Made from what it is (a request and its step, a sandbox and its minute), never from when it is
    /// tried: asking again is asking for the same transfer.
    TransferId = "xfer", content;
}

impl TransferId {
    /// The id of a transfer that is fully described by these words.
    pub fn named(words: &[&str]) -> TransferId {
        // Lengths keep ["ab", "c"] apart from ["a", "bc"].
        let text: String = words.iter().map(|word| format!("{}:{word},", word.len())).collect();
        TransferId::of(&Hash::of(text.as_bytes()))
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
    /// The word in the database and in exports.
    pub fn as_str(&self) -> &'static str {
        match self {
            Step::Post { .. } => "post",
            Step::Hold { .. } => "hold",
            Step::Settle { .. } => "settle",
            Step::Void { .. } => "void",
            Step::Expire { .. } => "expire",
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
        if memo.is_empty() || memo.len() > MEMO_MAX_BYTES || memo.chars().any(char::is_control) {
            let message = format!("memo must be 1 to {MEMO_MAX_BYTES} bytes of plain text");
            return Err(Error::refused(&code::MALFORMED, message));
        }
        Ok(NewTransfer { transfer_id, step, memo: memo.to_owned() })
    }
}
