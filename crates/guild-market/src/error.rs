//! The error of this crate.

use guild_protocol::error::{Code, Kind};

/// The codes of this crate.
pub mod code {
    guild_protocol::codes! {
        UNKNOWN_ORDER = "market.unknown_order", NotFound,
            "There is no such order.", "`guild requests ls` lists those that exist.";
    }
}

/// What can go wrong on the market.
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
    /// The network refused.
    #[error(transparent)]
    Network(#[from] guild_network::Error),
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
            Error::Refused { code, .. } => code,
            Error::Protocol(error) => error.code(),
            Error::Network(error) => error.code(),
            Error::Ledger(error) => error.code(),
            Error::Store(error) => error.code(),
        }
    }

    /// The kind of its code.
    pub fn kind(&self) -> Kind {
        self.code().kind
    }
}
