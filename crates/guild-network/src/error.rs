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
        CONTENT_MISSING = "content.missing", NotFound,
            "A block of the content is not kept here.",
            "Add it, or name somebody who has it in content.peers and fetch it with `guild content get`.";
        CONTENT_CORRUPT = "content.corrupt", Corrupt,
            "What is kept under a content id has another hash. It is set aside and not served.",
            "Add the content again, and look after the disk; `guild content verify` shows what else is wrong.";
        CONTENT_BROKEN = "content.broken", Corrupt,
            "A node of something that is pinned is missing, so nobody knows what hangs below it.",
            "Add the content again, or unpin it; until then nothing is removed.";
        CONTENT_FULL = "content.full", Unavailable,
            "There is no room for more content.",
            "Unpin something and run `guild content gc`, or raise content.max_mb.";
        CONTENT_EXPIRED = "content.expired", Unavailable,
            "An addition stood still for so long that a part of it may have been removed.", "Add it again.";
        CONTENT_SOURCE = "content.source", Unavailable,
            "What is to be added could not be read.", "The message names the cause.";
        CONTENT_NOTHING = "content.nothing", Invalid,
            "There is no file and no directory to add.", "Name at least one.";
        CONTENT_PIN = "content.pin", Invalid,
            "The owner or the reason of a pin cannot be kept.", "Use a short text in one line.";
        CONTENT_PATH = "content.path", Invalid,
            "A path below a content id is too long.", "Begin at a directory further down, by its own content id.";
        CONTENT_NO_ENTRY = "content.no_entry", NotFound,
            "A path names something that its directory does not have.",
            "`guild content ls CID` shows what is there.";
        CONTENT_NOT_A_FILE = "content.not_a_file", Invalid,
            "This is a directory or a link, and a file is asked for.",
            "`guild content ls CID` shows what is there.";
        CONTENT_LIES = "content.sizes_lie", Invalid,
            "A file has parts of another size than it says.",
            "Whoever made it uses faulty or hostile software; get it from somebody else.";
        CONTENT_TOO_DEEP = "content.too_deep", Invalid,
            "A file has more levels than any honest one.",
            "Whoever made it uses faulty or hostile software; add it again with the usual layout.";
        CONTENT_TOO_WIDE = "content.too_wide", Invalid,
            "There are more blocks below a content id than are looked at.", "Pin smaller parts of it.";
        CONTENT_PEER_URL = "content.peer_url", Invalid,
            "This is not the address of a node with content.",
            "Write http://host or https://host for a gateway, kubo+http://host:5001 for the RPC of Kubo.";
        CONTENT_PEERS = "content.peers_failed", Unavailable,
            "No peer gave the block.", "The message has what each of them said.";
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
