//! The error of this crate.

use guild_protocol::error::{Code, Kind};

/// The codes of this crate.
pub mod code {
    guild_protocol::codes! {
        CURSOR = "explorer.cursor_malformed", Invalid,
            "A cursor does not belong to the list.", "Use the cursor that the page before gave, or none.";
    }
}

/// What can go wrong in a role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] guild_store::Error),
    /// The ledger refused.
    #[error(transparent)]
    Ledger(guild_ledger::Error),
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
    /// The stable code.
    pub fn code(&self) -> &'static Code {
        match self {
            Error::Store(error) => error.code(),
            Error::Ledger(error) => error.code(),
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
            Error::Store(_) | Error::Ledger(_) | Error::Market(_) | Error::Network(_) => None,
        }
    }

    /// Whether the store is gone for good, so that whoever follows it should end.
    pub fn is_closed(&self) -> bool {
        matches!(self, Error::Store(guild_store::Error::Closed | guild_store::Error::Crashed))
    }
}

impl From<guild_ledger::Error> for Error {
    fn from(error: guild_ledger::Error) -> Error {
        match error {
            // What the store says is the same, whoever heard it.
            guild_ledger::Error::Store(error) => Error::Store(error),
            error @ guild_ledger::Error::Refused { .. } => Error::Ledger(error),
        }
    }
}

impl From<guild_network::Error> for Error {
    fn from(error: guild_network::Error) -> Error {
        match error {
            guild_network::Error::Store(error) => Error::Store(error),
            error => Error::Network(error),
        }
    }
}

impl From<guild_market::Error> for Error {
    fn from(error: guild_market::Error) -> Error {
        match error {
            guild_market::Error::Store(error) => Error::Store(error),
            guild_market::Error::Ledger(error) => error.into(),
            guild_market::Error::Network(error) => error.into(),
            error => Error::Market(error),
        }
    }
}
