//! The error of this crate.

use guild_protocol::error::{Code, Kind};

/// The codes of this crate.
pub mod code {
    guild_protocol::codes! {
        MALFORMED = "ledger.malformed", Invalid,
            "A field of an account or a transfer is empty, too long or out of range.",
            "Correct the field named.";
        UNKNOWN_ACCOUNT = "ledger.unknown_account", NotFound,
            "There is no such account.", "Open it first; `guild ledger accounts` lists those that exist.";
        ACCOUNT_CONFLICT = "ledger.account_conflict", Conflict,
            "An account with this id exists, with another owner, asset or rule.",
            "Use another id for another account.";
        SAME_ACCOUNT = "ledger.same_account", Invalid,
            "A transfer names one account on both sides.", "Name two accounts.";
        WRONG_ASSET = "ledger.wrong_asset", Invalid,
            "The two accounts, or the transfer and its accounts, are of different assets.",
            "Move each asset between its own accounts; conversion needs a rail with a rate.";
        BAD_AMOUNT = "ledger.bad_amount", Invalid,
            "An amount is zero, negative, or larger than what is held.",
            "Give a whole number of smallest units, at least 1.";
        OVERFLOW = "ledger.overflow", Invalid,
            "A balance would no longer fit into 64 bits.", "Use smaller amounts.";
        OVERDRAFT = "ledger.overdraft", Conflict,
            "The account does not hold enough that is free.", "Deposit first, or transfer less.";
        GATED = "ledger.gated", Conflict,
            "The transfer would take the account below the reserve that its gate keeps.",
            "Transfer less, or lower the reserve first.";
        CREDIT_LIMIT = "ledger.credit_limit", Conflict,
            "The transfer would take the account further below zero than its rule allows.",
            "Settle what is owed first, or raise the credit.";
        UNKNOWN_HOLD = "ledger.unknown_hold", NotFound,
            "There is no such hold.", "Name the transfer that made the hold.";
        HOLD_CLOSED = "ledger.hold_closed", Conflict,
            "The hold has been settled, voided or has expired already.", "Read the hold again.";
        HOLD_EXPIRED = "ledger.hold_expired", Conflict,
            "The hold has run out and can only be given back.", "Make a new hold.";
        NOT_EXPIRED = "ledger.not_expired", Conflict,
            "The hold has not run out yet.", "Void it, or wait.";
        TRANSFER_CONFLICT = "ledger.transfer_conflict", Conflict,
            "A transfer with this id is booked already, with other content.",
            "Use a new id for a new transfer.";
        NOT_AN_IOU = "ledger.not_an_iou", Invalid,
            "The receipt does not say that its buyer owes this node something.",
            "Only a released or prepaid payment on the rail `ledger`, to this node, is booked as owed.";
        BUSY = "ledger.busy", Unavailable,
            "Too many transfers wait to be booked.",
            "Ask again in a moment, with the same ids.";
        EXPORT = "ledger.export", Unavailable,
            "The export could not be written.", "The message names the cause: a full disk, for one.";
    }
}

/// What can go wrong with money.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The ledger refuses.
    #[error("{message}")]
    Refused {
        /// Why, as a code.
        code: &'static Code,
        /// Why, about this case.
        message: String,
    },
    /// The store refused.
    #[error(transparent)]
    Store(#[from] guild_store::Error),
}

/// The result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A refusal with this code and a sentence about this very case.
    pub fn refused(code: &'static Code, message: impl Into<String>) -> Error {
        Error::Refused { code, message: message.into() }
    }

    /// The stable code.
    pub fn code(&self) -> &'static Code {
        match self {
            Error::Refused { code, .. } => code,
            Error::Store(error) => error.code(),
        }
    }

    /// The kind of its code.
    pub fn kind(&self) -> Kind {
        self.code().kind
    }
}
