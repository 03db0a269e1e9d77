//! The error of this crate.

use guild_protocol::error::{Code, Kind};

/// The codes of this crate.
pub mod code {
    guild_protocol::codes! {
        RELAY_URL = "network.relay_url", Invalid,
            "This is not the address of a relay.", "Write it as wss://host or ws://host:port/path.";
        RELAY_UNREACHABLE = "network.relay_unreachable", Unavailable,
            "A relay cannot be reached, or did not answer.",
            "See that its address is right and that it runs; `guild relay ls` shows what is known of it.";
        RELAY_REFUSED = "network.relay_refused", Denied,
            "A relay refuses what it was asked for or given.", "The message has the relay's own words.";
        FUTURE = "network.event_from_the_future", Invalid,
            "An event says it was made later than the clocks of two machines may differ.",
            "Set the clock of whoever made it.";
        TOO_WIDE = "network.query_too_wide", Invalid,
            "A filter lets so few of so many events through that finding them would take too long.",
            "Name kinds, authors or a time.";
        UNSTORABLE = "network.event_unstorable", Internal,
            "One event fails whenever it is stored, and others do not.",
            "Please report it, with the event's id from the log; all other events are stored.";
        STOPPED = "network.stopped", Unavailable,
            "The node stops and takes no more events.", "Send them again when it runs.";
    }
}

/// What can go wrong between this node and others.
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
        }
    }

    /// The kind of its code.
    pub fn kind(&self) -> Kind {
        self.code().kind
    }
}
