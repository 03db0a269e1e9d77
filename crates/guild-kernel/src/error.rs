//! The error of this crate.

use guild_protocol::error::{Code, Kind};

/// The codes of this crate. Some are only ever read in rows and events: they say why a turn ended as it did.
pub mod code {
    guild_protocol::codes! {
        MALFORMED = "kernel.malformed", Invalid,
            "A field of a call to the kernel is empty, too long or of the wrong form.", "Correct the field named.";
        TOO_LARGE = "kernel.too_large", Invalid,
            "A card, a payload or a list is larger than the kernel takes.",
            "Send less; large content belongs into an artifact that the card names.";
        UNKNOWN_AGENT = "kernel.unknown_agent", NotFound,
            "The project has no such agent, or it is retired.", "Provision the agent first.";
        UNKNOWN_PROFILE = "kernel.unknown_profile", NotFound,
            "The project has no profile of this name.", "Store the profile first.";
        UNKNOWN_BOX = "kernel.unknown_box", NotFound,
            "The project has no such box.", "Make the box first, in the same project.";
        UNKNOWN_CARD = "kernel.unknown_card", NotFound,
            "The project has no such card.", "Store the card first, in the same project.";
        UNKNOWN_TURN = "kernel.unknown_turn", NotFound,
            "There is no such turn.", "Check the id.";
        UNKNOWN_CALL = "kernel.unknown_call", NotFound,
            "No turn waits for this call.", "Report with the ids that came with the call.";
        FOREIGN_CALL = "kernel.foreign_call", Denied,
            "The call belongs to another turn than the one named.", "Report with the ids that came with the call.";
        ANSWERED = "kernel.answered", Conflict,
            "The call has its result already, or its turn no longer waits for it.",
            "Nothing is left to do: the first result counts.";
        CONFLICT = "kernel.correlation_conflict", Conflict,
            "Something else was accepted under this correlation before.",
            "Use a new correlation for something new.";
        TOO_DEEP = "kernel.too_deep", Conflict,
            "Turns that ask turns are nested too deeply.", "Answer without asking another agent.";
        PARENT_CLOSED = "kernel.parent_closed", Conflict,
            "The turn that asks is over, or no longer waits for the call that is to be answered.",
            "Nothing is left to do: nobody waits for the answer.";
        FENCED = "kernel.fenced", Conflict,
            "The lease under which this was written is not the turn's any more; nothing of it was kept.",
            "Stop: whoever holds the turn now goes on with it.";
        NOT_QUEUED = "kernel.not_queued", Conflict,
            "The turn has begun or ended, so it cannot be taken back.", "Stop it instead.";
        STOPPED = "kernel.stopped", Conflict,
            "The turn was stopped before it ended by itself.", "Ask again if it is still wanted.";
        CANCELED = "kernel.canceled", Conflict,
            "The turn was taken back before it began.", "Ask again if it is still wanted.";
        TURN_CLOSED = "kernel.turn_closed", Conflict,
            "The turn ended before this was looked at.", "Nothing is left to do.";
        LOST_TOO_OFTEN = "kernel.lost_too_often", Unavailable,
            "Worker after worker was lost in the same step, so the turn was given up.",
            "Look for what kills the workers; then ask again.";
        TIMED_OUT = "kernel.tool_timeout", Unavailable,
            "The tool did not answer before its deadline.", "Look at the tool; then ask again.";
        NOTHING_AWAITED = "kernel.nothing_awaited", Internal,
            "A suspended turn waited for nothing, which must not be; it was closed.", "Please report it.";
        MALFORMED_ROW = "kernel.malformed_row", Corrupt,
            "A row of the inbox cannot be read.",
            "Another program has changed it, or this one has a bug: please report it.";
    }
}

/// What can go wrong in the kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The kernel refuses.
    #[error("{message}")]
    Refused {
        /// Why, as a code.
        code: &'static Code,
        /// Why, about this case.
        message: String,
    },
    /// A subject is none.
    #[error(transparent)]
    Bus(#[from] guild_bus::Error),
    /// Something that others must agree with does not hold.
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
            Error::Bus(error) => error.code(),
            Error::Protocol(error) => error.code(),
            Error::Store(error) => error.code(),
        }
    }

    /// The kind of its code.
    pub fn kind(&self) -> Kind {
        self.code().kind
    }
}
