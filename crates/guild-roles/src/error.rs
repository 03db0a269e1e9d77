//! The error of this crate.

use guild_protocol::error::{Code, Kind};

/// What can go wrong in a role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] guild_store::Error),
    /// The ledger refused.
    #[error(transparent)]
    Ledger(guild_ledger::Error),
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
            Error::Store(_) | Error::Ledger(_) | Error::Network(_) => None,
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
            // What the store says is the same, whoever heard it.
            guild_network::Error::Store(error) => Error::Store(error),
            error => Error::Network(error),
        }
    }
}
