//! The error of this crate. Bells themselves never fail: only names and addresses can be wrong.

use guild_protocol::error::{Code, Kind};

/// The codes of this crate.
pub mod code {
    guild_protocol::codes! {
        BAD_SUBJECT = "bus.bad_subject", Invalid,
            "A topic, a subject or one of its parts is not one that a bus can carry.",
            "Use parts of letters, digits, _ and -, joined by single dots.";
        BAD_NAMESPACE = "bus.bad_namespace", Invalid,
            "The namespace of the bus is not a single part of lower-case letters, digits, _ and -.",
            "Set bus.namespace to a name such as guild.";
        BAD_URL = "bus.bad_url", Invalid,
            "The address of the bus is not one of a NATS server.",
            "Set bus.url to nats://host:port or tls://host:port, or leave it empty.";
    }
}

/// What can be wrong with a name or an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A topic, a subject or one of its parts.
    #[error("{0}")]
    BadSubject(String),
    /// The namespace of a bus.
    #[error("{0}")]
    BadNamespace(String),
    /// The address of a server. The message never holds the address: there may be a password in it.
    #[error("{0}")]
    BadUrl(String),
}

/// The result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The stable code.
    pub fn code(&self) -> &'static Code {
        match self {
            Error::BadSubject(_) => &code::BAD_SUBJECT,
            Error::BadNamespace(_) => &code::BAD_NAMESPACE,
            Error::BadUrl(_) => &code::BAD_URL,
        }
    }

    /// The kind of its code.
    pub fn kind(&self) -> Kind {
        self.code().kind
    }
}
