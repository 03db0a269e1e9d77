//! The error of this crate.

use guild_protocol::error::{Code, Kind};

/// The codes of this crate.
pub mod code {
    guild_protocol::codes! {
        NO_PROVIDER = "buyer.no_provider", NotFound,
            "Nobody who is known, alive and within the budget does this kind of work.",
            "`guild providers ls` lists who is known; raise the budget, or name a provider.";
        UNHEARD = "meeting.provider_unheard", NotFound,
            "A provider that was to be met announces nothing that was heard here.",
            "`guild market watch` shows who is heard; check the key, or add a relay where it announces itself.";
        KIND = "buyer.kind_not_allowed", Invalid,
            "The kind of a request is not one of those that ask for work.", "Use 5000 to 5999.";
        OFFER = "provider.offer_malformed", Invalid,
            "What a provider is told to offer contradicts itself or its limits.", "Correct what is named.";
        WORK_TIMEOUT = "provider.timeout", Unavailable,
            "The work was not done in the time that there was.", "Allow more time, or ask for less at once.";
        WORK_FAILED = "provider.work_failed", Internal,
            "The work could not be done.", "Choose another provider, or ask again later.";
        WORK_CANCELLED = "provider.cancelled", Conflict,
            "The buyer took the job back before it was done.", "Order it again if it is still wanted.";
        OPEN_RUN = "buyer.open_run", Invalid,
            "Commands are checked by running them again, so not everybody may try.",
            "Name a provider, or let the best one be chosen.";
        WORKSHOP = "workshop.failed", Unavailable,
            "Commands cannot be run here now.", "`guild doctor` says what this host can do; it is tried again.";
        TOOL_UNKNOWN = "tool.unknown", Invalid,
            "The settings name a tool that nodes do not have.", "Name tools that the message lists.";
        TOOL_ARGUMENTS = "tool.arguments_malformed", Invalid,
            "An agent called a tool of its node with something that the tool does not take.",
            "Nothing is to be done: the model is told so.";
        TOOL_NO_SANDBOX = "tool.no_sandbox", Unavailable,
            "A command of an agent was not run, because this host has no sandbox for it.",
            "`guild doctor` says what is missing; nothing is ever run outside of a sandbox.";
        TOOL_LIMIT = "tool.limit_reached", Denied,
            "A command of an agent was ended by a limit of its sandbox.",
            "Ask for less at once, or raise the limit in `sandbox_run.*`.";
        TOOL_BUDGET = "tool.budget_exceeded", Denied,
            "An agent wanted to pay more for an order than it may.",
            "Ask for less, or raise `kernel.hire_max_msat`.";
        TOOL_ORDER = "tool.order_unfulfilled", Conflict,
            "An order of an agent has no result that could be accepted, or none yet.",
            "`guild requests show` tells what became of it.";
        QUARANTINE = "route.quarantine_refused", Invalid,
            "Somebody cannot be taken out of the choice, or back into it, as was asked.",
            "`guild providers show` says what the matrix knows of a provider.";
        CURSOR = "explorer.cursor_malformed", Invalid,
            "A cursor does not belong to the list.", "Use the cursor that the page before gave, or none.";
    }
}

/// What can go wrong in a role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Refused here.
    #[error("{message}")]
    Refused {
        /// Why, as a code.
        code: &'static Code,
        /// Why, about this case.
        message: String,
    },
    /// Something that strangers must agree with does not hold.
    #[error(transparent)]
    Protocol(#[from] guild_protocol::Error),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] guild_store::Error),
    /// The ledger refused.
    #[error(transparent)]
    Ledger(guild_ledger::Error),
    /// The kernel refused.
    #[error(transparent)]
    Kernel(guild_kernel::Error),
    /// The cursor is none of this list.
    #[error("the cursor does not belong to this list")]
    Cursor,
    /// The market refused.
    #[error(transparent)]
    Market(guild_market::Error),
    /// The network refused.
    #[error(transparent)]
    Network(guild_network::Error),
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
            Error::Protocol(error) => error.code(),
            Error::Store(error) => error.code(),
            Error::Ledger(error) => error.code(),
            Error::Kernel(error) => error.code(),
            Error::Cursor => &code::CURSOR,
            Error::Market(error) => error.code(),
            Error::Network(error) => error.code(),
        }
    }

    /// The kind of its code.
    pub fn kind(&self) -> Kind {
        self.code().kind
    }

    /// The field of the input that is wrong, if it is one.
    pub fn field(&self) -> Option<&str> {
        match self {
            Error::Store(guild_store::Error::EntryMalformed { field, .. }) => Some(field),
            Error::Cursor => Some("after"),
            Error::Protocol(error) => error.place(),
            _ => None,
        }
    }

    /// Whether the store is gone for good, so that whoever follows it should end.
    pub fn is_closed(&self) -> bool {
        matches!(self, Error::Store(guild_store::Error::Closed | guild_store::Error::Crashed))
    }

    /// Whether the store would fail whoever asks it now, whatever for. Any other error of a store may be the fault of
    /// what was asked of it.
    pub(crate) fn concerns_all(&self) -> bool {
        use guild_store::Error as Store;
        let Error::Store(error) = self else { return false };
        match error {
            Store::QueueFull(_)
            | Store::Locked
            | Store::Closed
            | Store::Crashed
            | Store::Conflict(_)
            | Store::Unreachable(_)
            | Store::CommitUnknown(_)
            | Store::Full(_)
            | Store::Io(_)
            | Store::Gone(_)
            | Store::NotADatabase(_)
            | Store::Damaged(_) => true,
            Store::Fenced
            | Store::Panicked
            | Store::Database(_)
            | Store::Decode(_)
            | Store::NewerSchema(_)
            | Store::OlderSchema(_)
            | Store::ChangedMigration(_)
            | Store::BadUrl { .. }
            | Store::EventConflict(_)
            | Store::OutboxConflict(_)
            | Store::EntryMalformed { .. }
            | Store::NoSuchEvent(_)
            | Store::Inconsistent(_)
            | Store::BackupExists(_)
            | Store::BackupFailed(_)
            | Store::NoPgDump(_)
            | Store::BadOptions(_) => false,
        }
    }
}

// What the store says is the same, whoever heard it: it is always `Error::Store`.

impl From<guild_ledger::Error> for Error {
    fn from(error: guild_ledger::Error) -> Error {
        match error {
            guild_ledger::Error::Store(error) => Error::Store(error),
            error @ guild_ledger::Error::Refused { .. } => Error::Ledger(error),
        }
    }
}

impl From<guild_kernel::Error> for Error {
    fn from(error: guild_kernel::Error) -> Error {
        match error {
            guild_kernel::Error::Store(error) => Error::Store(error),
            guild_kernel::Error::Protocol(error) => Error::Protocol(error),
            error @ (guild_kernel::Error::Refused { .. } | guild_kernel::Error::Bus(_)) => {
                Error::Kernel(error)
            }
        }
    }
}

impl From<guild_network::Error> for Error {
    fn from(error: guild_network::Error) -> Error {
        match error {
            guild_network::Error::Store(error) => Error::Store(error),
            guild_network::Error::Protocol(error) => Error::Protocol(error),
            error @ guild_network::Error::Refused { .. } => Error::Network(error),
        }
    }
}

impl From<guild_market::Error> for Error {
    fn from(error: guild_market::Error) -> Error {
        match error {
            guild_market::Error::Store(error) => Error::Store(error),
            guild_market::Error::Protocol(error) => Error::Protocol(error),
            guild_market::Error::Ledger(error) => error.into(),
            guild_market::Error::Network(error) => error.into(),
            error @ (guild_market::Error::Refused { .. } | guild_market::Error::Sandbox(_)) => {
                Error::Market(error)
            }
        }
    }
}

impl From<guild_protocol::problems::Problems> for Error {
    fn from(problems: guild_protocol::problems::Problems) -> Error {
        Error::Protocol(problems.into())
    }
}
