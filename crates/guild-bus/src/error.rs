//! The error of this crate. Bells themselves never fail: only names, addresses and letters can be wrong.

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
        BAD_LETTER = "bus.bad_letter", Invalid,
            "A letter has a header that none can have, or a payload that is no JSON object.",
            "Correct the header or the payload named.";
        CONTROL_FIELD = "bus.control_field", Invalid,
            "A payload says who acts in which turn, which only headers may say.",
            "Take the field named out of the payload; the headers of the command say it.";
        TOO_LARGE = "bus.too_large", Invalid,
            "A letter is larger than the bus carries.",
            "Send less; large content belongs into an artifact that the payload names.";
        UNREACHABLE = "bus.unreachable", Unavailable,
            "The server of the bus is away, or did not confirm what it was given.", "Try again.";
        UNHEARD = "bus.unheard", Unavailable,
            "Nobody listens where the letter was sent to.", "Start whoever should listen there.";
        NO_ANSWER = "bus.no_answer", Unavailable,
            "No answer came in time.", "Ask again: whoever is asked takes the same question once.";
        BUSY = "bus.busy", Unavailable,
            "Whoever listens has too many letters waiting.", "Try again.";
    }
}

/// What can be wrong with a name, an address or a letter.
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
    /// A letter.
    #[error("{0}")]
    BadLetter(String),
    /// A field of a payload.
    #[error("the payload has the field {0}")]
    ControlField(String),
    /// A letter's size.
    #[error("the letter has {bytes} bytes, at most {max_bytes}")]
    TooLarge {
        /// How large it is.
        bytes: usize,
        /// How large it may be.
        max_bytes: usize,
    },
    /// The server, which is away.
    #[error("the bus: {0}")]
    Unreachable(String),
    /// Nobody listens.
    #[error("nobody listens there")]
    Unheard,
    /// Nobody answered in time.
    #[error("no answer came in time")]
    NoAnswer,
    /// Too much waits.
    #[error("whoever listens has too many letters waiting")]
    Busy,
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
            Error::BadLetter(_) => &code::BAD_LETTER,
            Error::ControlField(_) => &code::CONTROL_FIELD,
            Error::TooLarge { .. } => &code::TOO_LARGE,
            Error::Unreachable(_) => &code::UNREACHABLE,
            Error::Unheard => &code::UNHEARD,
            Error::NoAnswer => &code::NO_ANSWER,
            Error::Busy => &code::BUSY,
        }
    }

    /// The kind of its code.
    pub fn kind(&self) -> Kind {
        self.code().kind
    }
}
