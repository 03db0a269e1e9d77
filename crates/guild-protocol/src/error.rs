//! What went wrong, said the same way everywhere: a stable code, a kind, and the place.
//!
//! A [`Code`] is the public name of a failure (`area.reason`). Scripts may match on it, so a code is never renamed
//! or reused. Its [`Kind`] alone decides the HTTP status and the exit code. The message is for people and may change.

use std::fmt;

/// What sort of failure it is: the only thing most callers branch on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The input is wrong; the same call can never succeed.
    Invalid,
    /// The thing named does not exist.
    NotFound,
    /// The state has moved on, or another holder won.
    Conflict,
    /// The caller may not do this.
    Denied,
    /// Something needed is out of reach or full; the same call may succeed later.
    Unavailable,
    /// Stored data contradicts itself.
    Corrupt,
    /// A bug of ours.
    Internal,
}

impl Kind {
    /// Every kind, in the order of the documentation.
    pub const ALL: [Kind; 7] = [
        Kind::Invalid,
        Kind::NotFound,
        Kind::Conflict,
        Kind::Denied,
        Kind::Unavailable,
        Kind::Corrupt,
        Kind::Internal,
    ];

    /// The name used in JSON answers and in the documentation.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Invalid => "invalid",
            Kind::NotFound => "not_found",
            Kind::Conflict => "conflict",
            Kind::Denied => "denied",
            Kind::Unavailable => "unavailable",
            Kind::Corrupt => "corrupt",
            Kind::Internal => "internal",
        }
    }

    /// The HTTP status of an answer with this kind of error.
    pub fn http_status(self) -> u16 {
        match self {
            Kind::Invalid => 400,
            Kind::NotFound => 404,
            Kind::Conflict => 409,
            Kind::Denied => 403,
            Kind::Unavailable => 503,
            Kind::Corrupt | Kind::Internal => 500,
        }
    }

    /// The exit code of a command that fails with it: 2 bad input, 3 could not find out.
    /// (0 and 1 are answers, yes and no, and never errors.)
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::Invalid | Kind::NotFound | Kind::Conflict | Kind::Denied => 2,
            Kind::Unavailable | Kind::Corrupt | Kind::Internal => 3,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One public failure: its stable name, its kind, what it means, and what the reader can do.
/// Made by [`codes!`](macro@crate::codes); `docs/errors.md` is generated from all of them.
#[derive(Debug, PartialEq, Eq)]
pub struct Code {
    /// `area.reason`, never renamed.
    pub name: &'static str,
    /// Decides status and exit code.
    pub kind: Kind,
    /// One sentence: what happened.
    pub meaning: &'static str,
    /// One sentence: what to do about it.
    pub remedy: &'static str,
}

/// Declares error codes as statics, and `ALL`, the list of them.
///
/// ```
/// guild_protocol::codes! {
///     NO_SUCH_BIRD = "bird.unknown", NotFound, "No bird has this name.", "List the birds first.";
/// }
/// assert_eq!(NO_SUCH_BIRD.kind.http_status(), 404);
/// assert_eq!(ALL.len(), 1);
/// ```
#[macro_export]
macro_rules! codes {
    ($($ident:ident = $name:literal, $kind:ident, $meaning:literal, $remedy:literal;)+) => {
        $(
            #[doc = $meaning]
            pub static $ident: $crate::error::Code = $crate::error::Code {
                name: $name,
                kind: $crate::error::Kind::$kind,
                meaning: $meaning,
                remedy: $remedy,
            };
        )+
        /// Every code declared here.
        pub static ALL: &[&$crate::error::Code] = &[$(&$ident),+];
    };
}

/// The error of this crate: a code, a sentence about this case, and where in the input it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    code: &'static Code,
    message: String,
    at: Option<String>,
}

/// The result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A failure with this code and a sentence about this very case.
    pub fn new(code: &'static Code, message: impl Into<String>) -> Error {
        Error { code, message: bounded(message.into()), at: None }
    }

    /// The same failure, placed: a field path (`amount.units`), a line or a byte offset.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Error {
        self.at = Some(bounded(place.into()));
        self
    }

    /// The same failure seen from an outer object: `units` at `amount` becomes `amount.units`.
    #[must_use]
    pub fn within(mut self, outer: &str) -> Error {
        self.at = Some(bounded(match self.at {
            Some(inner) if inner.starts_with('[') => format!("{outer}{inner}"),
            Some(inner) => format!("{outer}.{inner}"),
            None => outer.to_owned(),
        }));
        self
    }

    /// The stable code.
    pub fn code(&self) -> &'static Code {
        self.code
    }

    /// The kind of its code.
    pub fn kind(&self) -> Kind {
        self.code.kind
    }

    /// The sentence about this case, without the place.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Where in the input, if that is known.
    pub fn place(&self) -> Option<&str> {
        self.at.as_deref()
    }
}

/// A message or a place may repeat what a stranger wrote: never more of it than a few lines.
fn bounded(text: String) -> String {
    const MAX_CHARS: usize = 1_000;
    match text.char_indices().nth(MAX_CHARS) {
        None => text,
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Some(at) => write!(f, "{at}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::code::SYNTAX;

    #[test]
    fn a_place_grows_outwards() {
        let e = Error::new(&SYNTAX, "must be positive").at("units").within("amount").within("[2]");
        assert_eq!(e.to_string(), "[2].amount.units: must be positive");
        let e = Error::new(&SYNTAX, "x").at("[0]").within("texts");
        assert_eq!(e.place(), Some("texts[0]"));
    }

    #[test]
    fn hostile_texts_are_cut() {
        let long = "é".repeat(5_000);
        let e = Error::new(&SYNTAX, long.clone()).at(long.clone()).within(&long);
        assert_eq!(e.message().chars().count(), 1_001);
        assert_eq!(e.place().unwrap().chars().count(), 1_001);
        assert!(e.message().ends_with("é…"));
    }

    #[test]
    fn kinds_map_to_status_and_exit_code() {
        let table: Vec<_> =
            Kind::ALL.iter().map(|k| (k.as_str(), k.http_status(), k.exit_code())).collect();
        assert_eq!(
            table,
            [
                ("invalid", 400, 2),
                ("not_found", 404, 2),
                ("conflict", 409, 2),
                ("denied", 403, 2),
                ("unavailable", 503, 3),
                ("corrupt", 500, 3),
                ("internal", 500, 3)
            ]
        );
    }
}
