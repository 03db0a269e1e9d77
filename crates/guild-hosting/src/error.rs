//! The error of this crate.

use guild_protocol::error::{Code, Kind};

/// The codes of this crate.
pub mod code {
    guild_protocol::codes! {
        MALFORMED = "hosting.malformed", Invalid,
            "A field of a request is empty, too long or out of range.", "Correct the field named.";
        BAD_SHAPE = "hosting.bad_shape", Invalid,
            "A sandbox of this size is not sold here.", "Ask for cpu, ram and disk between the bounds named.";
        NOT_ENABLED = "hosting.not_enabled", Invalid,
            "This security mode is not offered here yet.", "Ask for the mode standard.";
        UNKNOWN_JOB = "hosting.unknown_job", NotFound,
            "You have no such job.", "`guild job ls` lists yours.";
        UNKNOWN_SANDBOX = "hosting.unknown_sandbox", NotFound,
            "You have no such sandbox.", "`guild sandbox ls` lists yours.";
        UNKNOWN_WITHDRAWAL = "hosting.unknown_withdrawal", NotFound,
            "There is no such withdrawal.", "Check the id.";
        UNKNOWN_QUOTE = "hosting.unknown_quote", NotFound,
            "There is no such quote.", "Check the id, or ask for what you want again.";
        PORT_CLOSED = "hosting.port_closed", NotFound,
            "This port of the sandbox has no address here.",
            "Give it one: `guild sandbox ports SANDBOX expose PORT`.";
        JOB_ENDED = "hosting.job_ended", Conflict,
            "The job has ended: nothing is bought in it any more.", "Create another job.";
        SANDBOX_ENDED = "hosting.sandbox_ended", Conflict,
            "The sandbox is not in the state that this needs.", "Read the sandbox again.";
        VERSION = "hosting.version_conflict", Conflict,
            "It was changed since you read it.", "Read it again, and ask with its present version.";
        SHRINKS = "hosting.shrinks", Conflict,
            "An extension cannot take away time, or money that is spent already.",
            "Ask for a later end and for at least what is spent; stop it to end it.";
        TOO_MANY = "hosting.too_many", Conflict,
            "There are as many of these as you may have at once.", "Stop one of them first.";
        BUDGET = "hosting.over_budget", Conflict,
            "What is left of the budget does not pay for one minute.", "Extend the job, or ask for a smaller sandbox.";
        RESIZING = "hosting.resizing", Conflict,
            "The next minute is paid with another shape already.", "Ask again when it has begun.";
        ID_TAKEN = "hosting.id_taken", Conflict,
            "This id is in use for something else.", "Make a new id.";
        REFERENCE_TAKEN = "hosting.reference_taken", Conflict,
            "A deposit with this reference is booked, for another user or amount.",
            "Each payment from outside has a reference of its own.";
        CANNOT = "hosting.machine_cannot", Conflict,
            "The machine that the sandbox runs on cannot do this.",
            "Buy another sandbox of the shape that you need.";
        INSUFFICIENT = "hosting.insufficient_balance", Conflict,
            "The account does not hold enough for the first minute, or for one of another shape.",
            "Pay in what the quote names, then send the same request again.";
        NO_ORIGIN = "hosting.no_origin", Unavailable,
            "This node does not know its own address, so nobody can sign a message for it.",
            "Whoever runs it names the address in hosting.origins.";
        BYPASS_OFF = "hosting.bypass_off", Denied,
            "Signing in without a proof is switched off.", "Sign in with a wallet or a Nostr key.";
        WITHDRAWAL_CLOSED = "hosting.withdrawal_closed", Conflict,
            "The withdrawal has been confirmed or has failed already.", "Read the withdrawal again.";
    }
}

/// What can go wrong with hosting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Hosting refuses.
    #[error("{message}")]
    Refused {
        /// Why, as a code.
        code: &'static Code,
        /// Why, about this case.
        message: String,
    },
    /// Too much of it for now.
    #[error("{message}")]
    Limited {
        /// Why, as a code.
        code: &'static Code,
        /// Why, about this case.
        message: String,
        /// After so many milliseconds it is worth trying again.
        retry_after_ms: i64,
    },
    /// The agent of a sandbox refused, or could not be asked.
    #[error(transparent)]
    Agent(#[from] guild_sandbox::agent::Error),
    /// Something that strangers must agree with does not hold.
    #[error(transparent)]
    Protocol(#[from] guild_protocol::Error),
    /// The ledger refused.
    #[error(transparent)]
    Ledger(#[from] guild_ledger::Error),
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
            Error::Refused { code, .. } | Error::Limited { code, .. } => code,
            Error::Agent(error) => error.code(),
            Error::Protocol(error) => error.code(),
            Error::Ledger(error) => error.code(),
            Error::Store(error) => error.code(),
        }
    }

    /// After how many milliseconds it is worth trying again, if waiting helps.
    pub fn retry_after_ms(&self) -> Option<i64> {
        match self {
            Error::Limited { retry_after_ms, .. } => Some(*retry_after_ms),
            _ => None,
        }
    }

    /// The kind of its code.
    pub fn kind(&self) -> Kind {
        self.code().kind
    }
}
