//! Canonical JSON (RFC 8785) and the hashes over it.
//!
//! Reading is strict, so that no two different texts with one hash can mean two things: duplicate keys, integers
//! beyond ±(2^53−1), numbers that are not finite, lone surrogates, invalid UTF-8 and deep nesting are refused.
//! Numbers written with a fraction or an exponent are IEEE doubles, as in RFC 8785.
//!
//! ```
//! use guild_protocol::json;
//! let hash = json::hash_text(br#"{"b": 1.0, "a": "x"}"#).unwrap();
//! assert_eq!(hash, json::hash_text(br#"{"a":"x","b":1}"#).unwrap());
//! assert_eq!(json::hash_text(br#"{"a":1,"a":2}"#).unwrap_err().code().name, "json.duplicate_key");
//! ```

use std::borrow::Cow;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::hash::Hash;
use crate::{Error, Result};

mod build;
pub mod legacy;
mod parse;
mod read;
mod write;

pub(crate) use parse::Reader;

/// The codes of this module.
pub mod code {
    crate::codes! {
        SYNTAX = "json.syntax", Invalid,
            "The text is not JSON.", "Fix the text at the place named.";
        UTF8 = "json.utf8", Invalid,
            "The text is not UTF-8.", "Save the file as UTF-8, without a byte order mark.";
        SURROGATE = "json.lone_surrogate", Invalid,
            "A \\u escape is half of a surrogate pair.", "Write the character itself, or both halves.";
        DUPLICATE_KEY = "json.duplicate_key", Invalid,
            "An object has the same key twice, so readers may disagree about its value.",
            "Remove one of the two.";
        INTEGER_RANGE = "json.integer_range", Invalid,
            "An integer is beyond ±(2^53−1), so readers may round it to different numbers.",
            "Write it as a string.";
        NOT_FINITE = "json.not_finite", Invalid,
            "A number is not finite, or too large for a double.", "Leave it out or write it as a string.";
        DEPTH = "json.depth", Invalid,
            "Arrays and objects are nested too deeply.", "Flatten the document to at most 128 levels.";
        SIZE = "json.size", Invalid,
            "The text is larger than the limit.", "Split it, or refer to large content by its CID.";
        NOT_CANONICAL = "json.not_canonical", Invalid,
            "The bytes are not the canonical form of what they say.",
            "Write RFC 8785 canonical JSON: sorted keys, no white space, no trailing newline.";
        SHAPE = "json.shape", Invalid,
            "A field is missing, unknown, or of another type than expected.",
            "Correct the field named; the documentation of the format lists all of them.";
        KEY_TYPE = "json.key_type", Invalid,
            "A map key is not a text or a number.", "Use text keys.";
        LEGACY_KEY = "json.legacy_key", Invalid,
            "The legacy form does not escape keys, so a key that needs escaping has no safe legacy hash.",
            "Use the canonical form, without --legacy.";
    }
}

/// The largest integer that every JSON reader keeps exactly: 2^53 − 1.
pub const MAX_SAFE_INTEGER: u64 = 9_007_199_254_740_991;

/// What a reader accepts at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of text.
    pub max_bytes: usize,
    /// Levels of arrays and objects.
    pub max_depth: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { max_bytes: 256 * 1024 * 1024, max_depth: 128 }
    }
}

/// A JSON document that has passed every check, borrowing its texts where it can.
/// The keys of its objects are unique and in canonical (UTF-16) order.
#[derive(Debug, Clone, PartialEq)]
pub enum Doc<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, as it was written.
    Number(Cow<'a, str>),
    /// A text, unescaped.
    Text(Cow<'a, str>),
    /// An array.
    Array(Vec<Doc<'a>>),
    /// An object.
    Object(Vec<(Cow<'a, str>, Doc<'a>)>),
}

impl<'a> Doc<'a> {
    /// Reads a text, strictly, within the default limits.
    pub fn parse(text: &'a [u8]) -> Result<Doc<'a>> {
        Doc::parse_within(text, Limits::default())
    }

    /// Reads a text, strictly, within these limits.
    pub fn parse_within(text: &'a [u8], limits: Limits) -> Result<Doc<'a>> {
        parse::parse(text, limits, parse::Integers::Safe)
    }

    /// The canonical bytes (RFC 8785).
    pub fn to_canonical(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        write::canonical(self, &mut out);
        out
    }

    /// The hash of the canonical bytes.
    pub fn hash(&self) -> Hash {
        Hash::of(&self.to_canonical())
    }

    /// Refuses a document whose canonical bytes a reader with this depth would refuse: it is nested too deeply, or a
    /// double is written as an integer beyond ±(2^53−1) there, as 1e16 is.
    ///
    /// ```
    /// use guild_protocol::json;
    /// let [small, large] = [1e15, 1e16].map(|number| json::to_doc(&[number]).unwrap());
    /// assert_eq!(small.check_reads_back(1), Ok(()));
    /// assert_eq!(large.check_reads_back(1).unwrap_err().code().name, "json.integer_range");
    /// assert_eq!(small.check_reads_back(0).unwrap_err().code().name, "json.depth");
    /// ```
    pub fn check_reads_back(&self, max_depth: usize) -> Result<()> {
        let inner = match self {
            Doc::Null | Doc::Bool(_) | Doc::Text(_) => return Ok(()),
            Doc::Number(written) => return write::check_number(written),
            Doc::Array(_) | Doc::Object(_) => max_depth.checked_sub(1),
        };
        let Some(left) = inner else {
            return Err(Error::new(&code::DEPTH, "arrays and objects are nested too deeply"));
        };
        match self {
            Doc::Array(items) => items.iter().try_for_each(|item| item.check_reads_back(left)),
            Doc::Object(members) => {
                members.iter().try_for_each(|(_, value)| value.check_reads_back(left))
            }
            _ => Ok(()),
        }
    }

    /// The member of an object.
    pub fn get(&self, key: &str) -> Option<&Doc<'a>> {
        match self {
            Doc::Object(members) => members.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }
}

/// The document of a value, refusing what has no canonical form (a NaN, an integer out of range).
pub fn to_doc<T: Serialize + ?Sized>(value: &T) -> Result<Doc<'static>> {
    value.serialize(build::Builder).map_err(|e| e.0)
}

/// The canonical bytes of a value.
pub fn to_canonical<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>> {
    Ok(to_doc(value)?.to_canonical())
}

/// The hash over the canonical bytes of a value.
pub fn hash<T: Serialize + ?Sized>(value: &T) -> Result<Hash> {
    Ok(to_doc(value)?.hash())
}

/// The hash over the canonical form of a JSON text.
pub fn hash_text(text: &[u8]) -> Result<Hash> {
    Ok(Doc::parse(text)?.hash())
}

/// Reads a value, strictly: the text passes every check of [`Doc::parse`], then its shape is checked.
pub fn decode<T: DeserializeOwned>(text: &[u8]) -> Result<T> {
    decode_within(text, Limits::default())
}

/// As [`decode`], within these limits.
pub fn decode_within<T: DeserializeOwned>(text: &[u8], limits: Limits) -> Result<T> {
    decode_checked(Doc::parse_within(text, limits)?)
}

/// Checks that `text` is exactly the canonical form of `doc`, and says where it first is not.
pub fn require_canonical(text: &[u8], doc: &Doc<'_>) -> Result<()> {
    let canonical = doc.to_canonical();
    if text == canonical {
        return Ok(());
    }
    let same = text.iter().zip(&canonical).take_while(|(a, b)| a == b).count();
    let what = if same == canonical.len() {
        "there are bytes after the document's end (a newline?)"
    } else {
        "the bytes are not canonical from here on"
    };
    Err(Error::new(&code::NOT_CANONICAL, what).at(format!("byte {same}")))
}

/// Writes a text as the canonical form does: for whoever writes many small documents of a known shape.
pub(crate) fn write_text(text: &str, out: &mut Vec<u8>) {
    write::string(text, out);
}

fn decode_checked<T: DeserializeOwned>(doc: Doc<'_>) -> Result<T> {
    serde_path_to_error::deserialize(read::Reader(doc)).map_err(|e| {
        let place = e.path().to_string();
        let error = Error::new(&code::SHAPE, e.into_inner().0);
        if place == "." { error } else { error.at(place) }
    })
}
