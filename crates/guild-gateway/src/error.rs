//! The one mapping from errors to HTTP.

use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use guild_protocol::error::Code;
use serde_json::json;

use crate::dress::Told;

/// The codes of this crate.
pub mod code {
    guild_protocol::codes! {
        BAD_REQUEST = "gateway.bad_request", Invalid,
            "A parameter, header or body of the request is wrong.", "Correct what the message names.";
        NO_SUCH_PATH = "gateway.no_such_path", NotFound,
            "There is nothing at this path.", "Begin at /, or at /api/summary for programs.";
        UNKNOWN = "gateway.unknown_id", NotFound,
            "This node knows nothing under that id.",
            "Look at /providers, /requests or /receipts for those that it knows.";
        CORRUPT = "gateway.corrupt", Corrupt,
            "Something that this node keeps cannot be read.",
            "Run `guild store check`; restore from a backup if it finds damage.";
        NO_SUCH_METHOD = "gateway.no_such_method", Invalid,
            "This path does not know the method.", "The header `allow` lists those it knows.";
        UNKNOWN_HOST = "gateway.unknown_host", Denied,
            "The request names a host that is not this node's.",
            "Use http://127.0.0.1, or add the name to gateway.hosts.";
        NO_TOKEN = "gateway.no_token", Denied,
            "Writing needs the node's token.",
            "Send `authorization: Bearer <token>` with the token from node.json in the data directory.";
        FOREIGN_PAGE = "gateway.foreign_page", Denied,
            "The request does not come from a page of this node.",
            "Sign in at the address of this node; programs use /v1.";
        TOO_MANY_STREAMS = "gateway.too_many_streams", Unavailable,
            "Too many streams are open.", "Close one, then try again.";
        TOO_LARGE = "gateway.too_large", Invalid,
            "The body of the request is larger than the gateway reads.", "Send less at once.";
        TOO_SLOW = "gateway.too_slow", Unavailable,
            "The request took too long.",
            "Send it again, with the same id: what was done already is not done twice.";
        NEEDS_WEB_SOCKET = "gateway.needs_web_socket", Invalid,
            "This path is a Nostr relay.",
            "Connect by WebSocket, or ask with `accept: application/nostr+json` what it is.";
        PORT_ANSWER = "gateway.port_answer", Unavailable,
            "What listens on that port of the sandbox does not answer as it should.",
            "Look at what the program in the sandbox says; it must speak HTTP/1.1.";
        SERVE = "gateway.serve", Unavailable,
            "The gateway cannot serve.", "The message names the cause.";
    }
}

/// What can go wrong in the gateway.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A wrong parameter, header or body.
    #[error("{field}: {message}")]
    BadRequest {
        /// What is wrong.
        field: String,
        /// Why.
        message: String,
    },
    /// Nothing is there.
    #[error("there is nothing at {0}")]
    NoSuchPath(String),
    /// Nothing has this id.
    #[error("there is no {what} {id} here")]
    Unknown {
        /// What sort of thing.
        what: &'static str,
        /// Its id.
        id: String,
    },
    /// What is kept cannot be read.
    #[error("what is kept cannot be read: {0}")]
    Corrupt(String),
    /// Not with this method.
    #[error("this path does not know the method {0}")]
    NoSuchMethod(String),
    /// Another site's name.
    #[error("{0:?} is not a name of this node")]
    UnknownHost(String),
    /// No token, or a wrong one.
    #[error("writing needs the node's token")]
    NoToken,
    /// Not a page of this node.
    #[error("the request does not come from a page of this node")]
    ForeignPage,
    /// The limit is reached.
    #[error("{0} streams are open, which is the limit")]
    TooManyStreams(usize),
    /// More than it reads.
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    /// Longer than it waits.
    #[error("there was no answer within {0} ms")]
    TooSlow(i64),
    /// A relay is there, for those who speak its language.
    #[error("a relay answers here, by WebSocket")]
    NeedsWebSocket,
    /// A program in a sandbox does not answer as it should.
    #[error("the port does not answer: {0}")]
    PortAnswer(String),
    /// The socket failed.
    #[error("{0}")]
    Serve(String),
    /// A role refused.
    #[error(transparent)]
    Role(#[from] guild_roles::Error),
    /// Hosting refused.
    #[error(transparent)]
    Hosting(#[from] guild_hosting::Error),
    /// What is between this node and others refused.
    #[error(transparent)]
    Network(#[from] guild_network::Error),
}

/// The result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The stable code.
    pub fn code(&self) -> &'static Code {
        match self {
            Error::BadRequest { .. } => &code::BAD_REQUEST,
            Error::NoSuchPath(_) => &code::NO_SUCH_PATH,
            Error::Unknown { .. } => &code::UNKNOWN,
            Error::Corrupt(_) => &code::CORRUPT,
            Error::NoSuchMethod(_) => &code::NO_SUCH_METHOD,
            Error::UnknownHost(_) => &code::UNKNOWN_HOST,
            Error::NoToken => &code::NO_TOKEN,
            Error::ForeignPage => &code::FOREIGN_PAGE,
            Error::TooManyStreams(_) => &code::TOO_MANY_STREAMS,
            Error::TooLarge(_) => &code::TOO_LARGE,
            Error::TooSlow(_) => &code::TOO_SLOW,
            Error::NeedsWebSocket => &code::NEEDS_WEB_SOCKET,
            Error::PortAnswer(_) => &code::PORT_ANSWER,
            Error::Serve(_) => &code::SERVE,
            Error::Role(error) => error.code(),
            Error::Hosting(error) => error.code(),
            Error::Network(error) => error.code(),
        }
    }

    fn field(&self) -> Option<&str> {
        match self {
            Error::BadRequest { field, .. } => Some(field),
            Error::Role(error) => error.field(),
            _ => None,
        }
    }

    /// After how many whole seconds it is worth trying again, if waiting helps. A day, if it never is.
    fn retry_after_s(&self) -> Option<i64> {
        const DAY_S: i64 = 86_400;
        let Error::Hosting(error) = self else { return None };
        let seconds = error.retry_after_ms()?.saturating_add(999).div_euclid(1_000);
        Some(seconds.clamp(1, DAY_S))
    }

    /// The status of its answer.
    pub(crate) fn status(&self) -> StatusCode {
        let code = self.code();
        match self {
            Error::NoSuchMethod(_) => StatusCode::METHOD_NOT_ALLOWED,
            Error::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Error::NeedsWebSocket => StatusCode::UPGRADE_REQUIRED,
            Error::PortAnswer(_) => StatusCode::BAD_GATEWAY,
            Error::Hosting(_) => StatusCode::from_u16(guild_hosting::access::http_status(code))
                .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            _ => StatusCode::from_u16(code.kind.http_status())
                .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }

    pub(crate) fn bad(field: &str, message: impl Into<String>) -> Error {
        Error::BadRequest { field: field.to_owned(), message: message.into() }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let (code, status, retry_after_s) = (self.code(), self.status(), self.retry_after_s());
        // What strangers run does not fill our log.
        if status.is_server_error() && status != StatusCode::BAD_GATEWAY {
            tracing::error!(code = code.name, error = %self, "a request failed");
        }
        let body = json!({ "error": {
            "code": code.name,
            "kind": code.kind.as_str(),
            "message": self.to_string(),
            "field": self.field(),
            "help": code.remedy,
        }});
        let told = Told { status, code, message: self.to_string() };
        let mut response = (status, Extension(told), Json(body)).into_response();
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = retry_after_s {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

pub(crate) async fn no_such_path(uri: axum::http::Uri) -> Error {
    Error::NoSuchPath(uri.path().chars().take(200).collect())
}

pub(crate) async fn no_such_method(method: axum::http::Method) -> Error {
    Error::NoSuchMethod(method.to_string())
}
