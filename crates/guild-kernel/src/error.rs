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
        UNPROVEN = "kernel.unproven", Denied,
            "A letter to the kernel does not show the secret of the call that it names.",
            "Send back the headers of the command that called the tool, as they came.";
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
        NOT_CLOSED = "kernel.not_closed", Conflict,
            "The turn is not over, so there is nothing to seal yet.", "Wait for its end, or stop it.";
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
        DELEGATION_DENIED = "kernel.delegation_denied", Denied,
            "The profile of the agent that asks has no delegation_policy, or one that does not name this profile.",
            "Ask another one, or let the policy name its profile or its tags.";
        BOX_DENIED = "kernel.box_denied", Denied,
            "The box is neither one of the turn that asks nor one of an agent of its own.",
            "Hand over a box of this turn, or leave it out.";
        AGENT_FIXED = "kernel.agent_fixed", Conflict,
            "The agent is there already and is another one; what an agent is cannot be changed.",
            "Use it as it is, or make an agent of another name.";
        WAITS_FOR_ITSELF = "kernel.waits_for_itself", Conflict,
            "The agent works on a turn that would wait for the new one, so that one could never begin.",
            "Ask another agent, or do not wait for the answer.";
        BATCH_FAILED = "kernel.batch_failed", Conflict,
            "Not all tasks of the batch ended well.", "Look at the results of its tasks.";
        BATCH_OVER = "kernel.batch_over", Conflict,
            "The batch was over before this task: in time, by the failure of another one, or because nobody waited.",
            "Give it more time, or ask again.";
        NOTHING_AWAITED = "kernel.nothing_awaited", Internal,
            "A suspended turn waited for nothing, which must not be; it was closed.", "Please report it.";
        MAX_STEPS = "kernel.max_steps", Conflict,
            "The turn has used all the steps that it may take.",
            "Give it less to do, or its profile more steps.";
        BAD_PROFILE = "kernel.bad_profile", Invalid,
            "The profile of the turn cannot be read.", "Correct the body of the profile.";
        UNKNOWN_TOOL = "kernel.unknown_tool", NotFound,
            "The model called a tool that is not there, or that the profile does not allow.",
            "Store the tool, allow it, or tell the model what there is.";
        BAD_ARGUMENTS = "kernel.bad_arguments", Invalid,
            "The model called a tool with something that is no JSON object.",
            "Nothing is to be done: the model is told so.";
        NO_ENVIRONMENT = "kernel.missing_environment", Unavailable,
            "A tool wants an argument from the worker's environment, and it is not there.",
            "Set it where the worker runs.";
        TOOL_FAILED = "kernel.tool_failed", Internal,
            "A tool that runs in the worker stopped in the middle by a bug.", "Please report it.";
        NOT_ALONE = "kernel.submit_not_alone", Invalid,
            "The model submitted its result and called other tools in the same step; none of it was done.",
            "Nothing is to be done: the model is told so.";
        BAD_RESULT = "kernel.bad_result", Invalid,
            "The result that was submitted lacks fields that the task wants, or has one twice.",
            "Nothing is to be done: the model is told so, and in the last step it is delivered as it is.";
        MODEL_BUSY = "kernel.model_busy", Unavailable,
            "The model did not answer: too many questions, or no way to it.",
            "See that the model can be reached and is paid; then ask again.";
        MODEL_REFUSED = "kernel.model_refused", Conflict,
            "The model refuses the question.", "The message names the cause: a key, a name, or a limit.";
        MODEL_GARBLED = "kernel.model_garbled", Unavailable,
            "The answer of the model cannot be read.", "See that the URL names the right service; then ask again.";
        MODEL_TIMEOUT = "kernel.model_timeout", Unavailable,
            "The model did not answer in time.", "Ask again, or give it more time.";
        TARGET_HELD = "kernel.target_held", Conflict,
            "Another worker serves this target, which only one may serve.",
            "Stop the other one; this one waits and takes over.";
        UNWRITABLE = "kernel.unwritable", Corrupt,
            "Something about the turn could not be written again and again, so it was put aside.",
            "Another program has changed its rows, or this one has a bug: please report it.";
        MODEL_ENDPOINT = "kernel.model_endpoint", Invalid,
            "The description of where models answer cannot be right, or holds none for the model that is wanted.",
            "Correct the endpoint or the name of the model that the message names.";
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
