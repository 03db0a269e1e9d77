//! What an agent refuses, and what its client cannot do. Both sides say it by the same codes.

use std::fmt;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use guild_protocol::error::{Code, Kind};
use serde::{Deserialize, Serialize};

/// The codes of the sandbox-agent.
pub mod code {
    guild_protocol::codes! {
        BAD_REQUEST = "agent.bad_request", Invalid,
            "A parameter, header or body of a request to a sandbox-agent is wrong.", "Correct what the message names.";
        NO_SUCH_PATH = "agent.no_such_path", NotFound,
            "A sandbox-agent serves nothing at this path, or not with this method.",
            "docs/sandbox-agent.md lists what it serves, all below /v1.";
        TOO_LARGE = "agent.too_large", Invalid,
            "A request to a sandbox-agent is larger than what it reads.", "Send less at once.";
        NOT_SIGNED = "agent.not_signed", Denied,
            "A request to a sandbox-agent carries no signature, or one that is not written as it must be.",
            "Sign every request with the key that the agent was started with, as docs/sandbox-agent.md says.";
        WRONG_SIGNATURE = "agent.wrong_signature", Denied,
            "A request or a lease is not signed by the controller's key for this sandbox and its agent.",
            "Check the controller's key, the id of the sandbox and the key of the agent; nothing else may be signed.";
        NOT_IN_TIME = "agent.not_in_time", Denied,
            "A request was signed too long ago, before the agent started, or in the future.",
            "Sign it anew; set both clocks by the same source.";
        REPLAYED = "agent.replayed", Denied,
            "A request with this signature has been seen already.", "Sign every request anew.";
        BODY_CHANGED = "agent.body_changed", Invalid,
            "The body of a request is not the one that was signed; nothing was changed.",
            "Send exactly the bytes whose hash was signed.";
        NO_SUCH_EXEC = "agent.no_such_exec", NotFound,
            "No command has this id, or it ended so long ago that the agent has forgotten it.",
            "Use the id that the agent answered when the command was started.";
        EXEC_DIFFERS = "agent.exec_differs", Conflict,
            "Another command was started under this id.", "Choose a new id for a new command.";
        EXEC_ENDED = "agent.exec_ended", Conflict,
            "The command has ended, or its input is closed.", "Start another.";
        TOO_MANY = "agent.too_many", Unavailable,
            "The agent has as many commands, readers or tunnels as it carries.", "End one, then try again.";
        NOT_ATTESTED = "agent.not_attested", Conflict,
            "Secrets are released once for each attestation, and this one is unknown or used up.",
            "Ask for a new attestation, check it, then release again.";
        SECRETS_NOT_RELEASED = "agent.secrets_not_released", Conflict,
            "A command needs a secret that has not been released to this sandbox.",
            "Fetch the attestation, check it, release the secrets, then start the command.";
        ENDED = "agent.ended", Conflict,
            "The sandbox has ended: it was stopped, or its lease ran out.", "Start another sandbox.";
        NOT_LEASED = "agent.not_leased", Conflict,
            "The sandbox waits for its first lease; nothing runs in it before that.",
            "Send a lease first, or start the agent without --await-lease.";
        PORT_REFUSED = "agent.port_refused", Conflict,
            "Nobody listens on that port inside the sandbox.",
            "Start the service first, on 127.0.0.1 or all addresses.";
        UNREACHABLE = "agent.unreachable", Unavailable,
            "A sandbox-agent cannot be reached, or its connection broke.",
            "Check its address and that it runs; try again.";
        WRONG_AGENT = "agent.wrong_agent", Denied,
            "Whoever answers is not the sandbox-agent whose key is known.",
            "Do not send it anything: the address may belong to another sandbox by now.";
        BAD_ANSWER = "agent.bad_answer", Unavailable,
            "A sandbox-agent answered something that cannot be understood, or less than it announced.",
            "Use the same version of guild on both sides; try again.";
    }
}

/// A refusal: its code, a sentence, and the field that is wrong if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    code: &'static Code,
    message: String,
    field: Option<String>,
}

/// The result of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A refusal on its way.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    error: ToldError,
}

#[derive(Debug, Serialize, Deserialize)]
struct ToldError {
    code: String,
    kind: String,
    message: String,
    #[serde(default)]
    field: Option<String>,
    #[serde(default)]
    help: String,
}

impl Error {
    /// An error with this code, about this very case.
    pub fn new(code: &'static Code, message: impl Into<String>) -> Error {
        const MAX_CHARS: usize = 400;
        let message: String = message.into().chars().take(MAX_CHARS).collect();
        Error { code, message, field: None }
    }

    pub(crate) fn bad(field: &str, message: impl Into<String>) -> Error {
        Error { field: Some(field.to_owned()), ..Error::new(&code::BAD_REQUEST, message) }
    }

    /// The stable code.
    pub fn code(&self) -> &'static Code {
        self.code
    }

    /// The kind of its code.
    pub fn kind(&self) -> Kind {
        self.code.kind
    }

    /// The field that is wrong, if it is one.
    pub fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    /// What another side told.
    pub(crate) fn told(body: &[u8], status: u16) -> Error {
        let Ok(Told { error }) = serde_json::from_slice(body) else {
            return Error::new(&code::BAD_ANSWER, format!("an answer with status {status}"));
        };
        let mut known = code::ALL.iter().chain(crate::code::ALL);
        match known.find(|code| code.name == error.code) {
            Some(code) => Error { field: error.field, ..Error::new(code, error.message) },
            None => Error::new(&code::BAD_ANSWER, format!("{}: {}", error.code, error.message)),
        }
    }

    /// A refusal on its way, with its words changed; nothing of what cannot be read as one.
    pub(crate) fn reworded(body: &[u8], reword: impl Fn(&str) -> String) -> Vec<u8> {
        let Ok(Told { mut error }) = serde_json::from_slice(body) else { return Vec::new() };
        error.message = reword(&error.message);
        error.field = error.field.map(|field| reword(&field));
        serde_json::to_vec(&Told { error }).unwrap_or_default()
    }

    fn status(&self) -> StatusCode {
        let status = match self.code.name {
            name if name == code::TOO_LARGE.name => 413,
            _ => self.code.kind.http_status(),
        };
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "{field}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Error {}

impl From<crate::Error> for Error {
    fn from(error: crate::Error) -> Error {
        Error::new(error.code(), error.to_string())
    }
}

impl From<guild_protocol::Error> for Error {
    fn from(error: guild_protocol::Error) -> Error {
        let field = error.place().unwrap_or("body").to_owned();
        Error { field: Some(field), ..Error::new(&code::BAD_REQUEST, error.message()) }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let error = ToldError {
            code: self.code.name.to_owned(),
            kind: self.code.kind.as_str().to_owned(),
            message: self.message.clone(),
            field: self.field.clone(),
            help: self.code.remedy.to_owned(),
        };
        (self.status(), Json(Told { error })).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_the_same_on_both_sides() {
        let said = Error::bad("argv", "there is no program");
        let told = Told {
            error: ToldError {
                code: said.code.name.to_owned(),
                kind: "invalid".to_owned(),
                message: "there is no program".to_owned(),
                field: Some("argv".to_owned()),
                help: String::new(),
            },
        };
        let body = serde_json::to_vec(&told).unwrap();
        assert_eq!(Error::told(&body, 400), said);
        assert_eq!(Error::told(b"<html>", 502).code(), &code::BAD_ANSWER);
        let of_sandbox = Error::from(crate::Error::spec("argv", "there is no program"));
        assert_eq!(of_sandbox.code().name, "sandbox.bad_spec");
    }
}
