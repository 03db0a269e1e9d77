//! What becomes of an event that was offered.

use std::fmt;

use guild_protocol::error::Code;

use crate::Error;

/// What became of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Stored now, under this number of the archive.
    Stored {
        /// Its number.
        seq: i64,
    },
    /// Seen before.
    Known,
    /// It is what its author signed, and is not kept.
    NotKept(NotKept),
    /// Not taken.
    Refused(Refusal),
}

impl Verdict {
    /// Whether a relay answers `true` to whoever published it.
    pub fn is_accepted(&self) -> bool {
        match self {
            Verdict::Stored { .. } | Verdict::Known => true,
            Verdict::NotKept(reason) => !matches!(reason, NotKept::Deleted | NotKept::Expired),
            Verdict::Refused(_) => false,
        }
    }

    /// The words of a relay's answer, with the prefix of NIP-01.
    pub fn message(&self) -> String {
        match self {
            Verdict::Stored { .. } | Verdict::NotKept(NotKept::Ephemeral) => String::new(),
            Verdict::Known => "duplicate: the event is known".to_owned(),
            Verdict::NotKept(NotKept::Older) => "duplicate: a newer version is known".to_owned(),
            Verdict::NotKept(NotKept::Deleted) => "blocked: its author deleted it".to_owned(),
            Verdict::NotKept(NotKept::Expired) => "invalid: the event has expired".to_owned(),
            Verdict::Refused(refusal) => refusal.to_string(),
        }
    }
}

/// Why a good event is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotKept {
    /// A newer version is there.
    Older,
    /// Its author has deleted it.
    Deleted,
    /// Its time is over.
    Expired,
    /// It was passed on to whoever listens now.
    Ephemeral,
}

/// The first word of a relay's refusal (NIP-01).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefix {
    /// The event is not what it should be.
    Invalid,
    /// Not wanted here.
    Blocked,
    /// Too much at once.
    RateLimited,
    /// Too little work was proven.
    Pow,
    /// Something failed here.
    Error,
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Prefix::Invalid => "invalid",
            Prefix::Blocked => "blocked",
            Prefix::RateLimited => "rate-limited",
            Prefix::Pow => "pow",
            Prefix::Error => "error",
        })
    }
}

/// Why an event was not taken. Written as a relay answers: `invalid: …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The sort of it.
    pub prefix: Prefix,
    /// Its code.
    pub code: &'static Code,
    /// For people.
    pub words: String,
    is_hostile: bool,
}

impl Refusal {
    /// A refusal with its code and words.
    pub fn new(prefix: Prefix, code: &'static Code, words: impl Into<String>) -> Refusal {
        Refusal { prefix, code, words: words.into(), is_hostile: false }
    }

    /// Whether whoever brought it cannot have meant well: its id or its signature is forged.
    pub fn is_hostile(&self) -> bool {
        self.is_hostile
    }

    pub(super) fn of(error: guild_protocol::Error) -> Refusal {
        Refusal::new(Prefix::Invalid, error.code(), error.to_string())
    }

    pub(super) fn hostile(error: impl Into<Error>) -> Refusal {
        let error = error.into();
        let refusal = Refusal::new(Prefix::Invalid, error.code(), error.to_string());
        Refusal { is_hostile: true, ..refusal }
    }

    pub(super) fn from_the_future(created_at: u64, latest: u64) -> Refusal {
        let words = format!("created_at {created_at} is later than {latest}");
        Refusal::new(Prefix::Invalid, &crate::code::FUTURE, words)
    }

    /// Nobody need bring it again.
    pub(super) fn unstorable() -> Refusal {
        let words = "this event cannot be stored here";
        Refusal::new(Prefix::Blocked, &crate::code::UNSTORABLE, words)
    }

    pub(super) fn failed(error: &Error) -> Refusal {
        if *error.code() == crate::code::UNSTORABLE {
            return Refusal::unstorable();
        }
        // What exactly failed here is no business of whoever brings events.
        tracing::warn!(%error, code = error.code().name, "events could not be stored");
        Refusal::new(Prefix::Error, error.code(), "the event could not be stored")
    }

    pub(super) fn stopped() -> Refusal {
        Refusal::new(Prefix::Error, &crate::code::STOPPED, "this node is stopping")
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.prefix, self.words)
    }
}

impl From<Refusal> for Verdict {
    fn from(refusal: Refusal) -> Verdict {
        Verdict::Refused(refusal)
    }
}
