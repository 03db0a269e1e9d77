//! The strict reader.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::write::plain_prefix;
use super::{Doc, Limits, MAX_SAFE_INTEGER, code};
use crate::{Error, Result};

/// Which integers may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Integers {
    /// Up to ±(2^53−1).
    Safe,
    /// All of them: only for the legacy form, which keeps 64 bits and rounds the rest.
    Any,
}

pub(super) fn parse(text: &[u8], limits: Limits, integers: Integers) -> Result<Doc<'_>> {
    if text.len() > limits.max_bytes {
        let message =
            format!("{} bytes are more than the limit of {}", text.len(), limits.max_bytes);
        return Err(Error::new(&code::SIZE, message));
    }
    let text = std::str::from_utf8(text).map_err(|e| {
        Error::new(&code::UTF8, "invalid UTF-8").at(format!("byte {}", e.valid_up_to()))
    })?;
    let mut reader = Reader::over(text, limits.max_depth, integers);
    reader.skip_space();
    let doc = reader.value()?;
    if !reader.ends() {
        return Err(reader.syntax("expected the end of the text"));
    }
    Ok(doc)
}

/// Reads a text from left to right. Whoever knows the form of what comes can read it piece by piece.
pub(crate) struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth_left: usize,
    integers: Integers,
}

/// For those who know what comes. Each piece takes the space behind it too, and is none if something else stands there.
impl<'a> Reader<'a> {
    /// At the first piece of a text of at most so many bytes.
    pub(crate) fn new(text: &'a [u8], max_bytes: usize) -> Option<Reader<'a>> {
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= max_bytes)?;
        let mut reader = Reader::over(text, 0, Integers::Safe);
        reader.skip_space();
        Some(reader)
    }

    /// The bracket that opens a list or an object.
    pub(crate) fn open(&mut self, bracket: u8) -> Option<()> {
        self.closes(bracket).then_some(())
    }

    /// Whether this very byte stands here; then it is taken.
    pub(crate) fn closes(&mut self, bracket: u8) -> bool {
        let closes = self.peek() == Some(bracket);
        if closes {
            self.advance(1);
            self.skip_space();
        }
        closes
    }

    /// A text.
    pub(crate) fn quoted(&mut self) -> Option<Cow<'a, str>> {
        let text = (self.peek() == Some(b'"')).then(|| self.string().ok()).flatten()?;
        self.skip_space();
        Some(text)
    }

    /// What stands between a name and its value.
    pub(crate) fn colon(&mut self) -> Option<()> {
        self.open(b':')
    }

    /// A number without sign, point or exponent.
    pub(crate) fn whole(&mut self) -> Option<u64> {
        let start = self.at;
        self.number().ok()?;
        let number = self.slice(start).parse().ok();
        self.skip_space();
        number
    }

    /// Behind an item: whether another follows, or the bracket closes.
    pub(crate) fn goes_on(&mut self, bracket: u8) -> Option<bool> {
        if self.closes(b',') {
            return Some(true);
        }
        self.closes(bracket).then_some(false)
    }

    /// Whether nothing is left.
    pub(crate) fn ends(&mut self) -> bool {
        self.skip_space();
        self.at >= self.text.len()
    }
}

impl<'a> Reader<'a> {
    fn over(text: &'a str, depth_left: usize, integers: Integers) -> Reader<'a> {
        Reader { text, bytes: text.as_bytes(), at: 0, depth_left, integers }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn advance(&mut self, bytes: usize) {
        // Never past the end by more than a token, and a text is far shorter than usize::MAX.
        self.at = self.at.saturating_add(bytes);
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.advance(1);
        }
    }

    fn syntax(&self, expected: &str) -> Error {
        let found = match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            Some(c) => format!("found {c:?}"),
            None => "the text ends".to_owned(),
        };
        self.error(&code::SYNTAX, format!("{expected}, but {found}"))
    }

    fn error(&self, code: &'static crate::error::Code, message: impl Into<String>) -> Error {
        Error::new(code, message).at(format!("byte {}", self.at))
    }

    fn value(&mut self) -> Result<Doc<'a>> {
        match self.peek() {
            Some(b'{') => self.nested(Reader::object),
            Some(b'[') => self.nested(Reader::array),
            Some(b'"') => Ok(Doc::Text(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Doc::Bool(true)),
            Some(b'f') => self.word("false", Doc::Bool(false)),
            Some(b'n') => self.word("null", Doc::Null),
            _ => Err(self.syntax("expected a value")),
        }
    }

    fn word(&mut self, word: &str, doc: Doc<'a>) -> Result<Doc<'a>> {
        if !self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(word.as_bytes())) {
            return Err(self.syntax("expected a value"));
        }
        self.advance(word.len());
        Ok(doc)
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Doc<'a>>) -> Result<Doc<'a>> {
        self.depth_left = self
            .depth_left
            .checked_sub(1)
            .ok_or_else(|| self.error(&code::DEPTH, "nested too deeply"))?;
        self.advance(1);
        self.skip_space();
        let doc = read(self)?;
        self.depth_left = self.depth_left.saturating_add(1);
        Ok(doc)
    }

    /// After an item: true if another follows, false if the container is closed.
    fn more(&mut self, close: u8, expected: &str) -> Result<bool> {
        self.skip_space();
        let more = match self.peek() {
            Some(b',') => true,
            Some(b) if b == close => false,
            _ => return Err(self.syntax(expected)),
        };
        self.advance(1);
        if more {
            self.skip_space();
        }
        Ok(more)
    }

    fn array(&mut self) -> Result<Doc<'a>> {
        let mut items = Vec::new();
        if self.peek() == Some(b']') {
            self.advance(1);
            return Ok(Doc::Array(items));
        }
        loop {
            items.push(self.value()?);
            if !self.more(b']', "expected `,` or `]`")? {
                return Ok(Doc::Array(items));
            }
        }
    }

    fn object(&mut self) -> Result<Doc<'a>> {
        let mut members = Vec::new();
        if self.peek() == Some(b'}') {
            self.advance(1);
            return Ok(Doc::Object(members));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.syntax("expected a key"));
            }
            let key = self.string()?;
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.syntax("expected `:`"));
            }
            self.advance(1);
            self.skip_space();
            members.push((key, self.value()?));
            if !self.more(b'}', "expected `,` or `}`")? {
                break;
            }
        }
        match sort_members(&mut members) {
            Ok(()) => Ok(Doc::Object(members)),
            Err(key) => {
                let short = crate::hash::shorten(&key);
                Err(self.error(&code::DUPLICATE_KEY, format!("the key {short:?} stands twice")))
            }
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>> {
        self.advance(1);
        let start = self.at;
        self.skip_plain();
        if self.peek() == Some(b'"') {
            let plain = self.slice(start);
            self.advance(1);
            return Ok(Cow::Borrowed(plain));
        }
        let mut owned = self.slice(start).to_owned();
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.advance(1);
                    return Ok(Cow::Owned(owned));
                }
                Some(b'\\') => owned.push(self.escape()?),
                Some(_) => {
                    return Err(self.syntax("a control character must be escaped in a string"));
                }
                None => return Err(self.syntax("expected the end of a string")),
            }
            let start = self.at;
            self.skip_plain();
            owned.push_str(self.slice(start));
        }
    }

    fn skip_plain(&mut self) {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        self.advance(plain_prefix(rest));
    }

    /// From `start` to here. Both stand before or after an ASCII byte, so they are character boundaries.
    fn slice(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn escape(&mut self) -> Result<char> {
        self.advance(1);
        let plain = match self.peek() {
            Some(b @ (b'"' | b'\\' | b'/')) => char::from(b),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.syntax("expected an escape")),
        };
        self.advance(1);
        Ok(plain)
    }

    fn unicode_escape(&mut self) -> Result<char> {
        let first = self.four_digits()?;
        if let Some(c) = char::from_u32(first) {
            return Ok(c);
        }
        let lone =
            self.error(&code::SURROGATE, format!("\\u{first:04x} is half of a surrogate pair"));
        if !self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(b"\\u")) {
            return Err(lone);
        }
        self.advance(1);
        let second = self.four_digits()?;
        let pair = [first, second].map(|unit| u16::try_from(unit).unwrap_or(0));
        match char::decode_utf16(pair).next() {
            Some(Ok(c)) => Ok(c),
            _ => Err(lone),
        }
    }

    /// At the `u` of an escape; ends behind its digits.
    fn four_digits(&mut self) -> Result<u32> {
        self.advance(1);
        let end = self.at.saturating_add(4);
        let digits =
            self.text.get(self.at..end).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(value) = digits.and_then(|d| u32::from_str_radix(d, 16).ok()) else {
            return Err(self.syntax("expected four hex digits"));
        };
        self.at = end;
        Ok(value)
    }

    fn number(&mut self) -> Result<Doc<'a>> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.advance(1);
        }
        match self.peek() {
            Some(b'0') => self.advance(1),
            Some(b'1'..=b'9') => self.skip_digits()?,
            _ => return Err(self.syntax("expected a digit")),
        }
        let mut integer = true;
        if self.peek() == Some(b'.') {
            integer = false;
            self.advance(1);
            self.skip_digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            integer = false;
            self.advance(1);
            if let Some(b'+' | b'-') = self.peek() {
                self.advance(1);
            }
            self.skip_digits()?;
        }
        let written = self.slice(start);
        self.check_range(written, integer)?;
        Ok(Doc::Number(Cow::Borrowed(written)))
    }

    fn skip_digits(&mut self) -> Result<()> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.syntax("expected a digit"));
        }
        while let Some(b'0'..=b'9') = self.peek() {
            self.advance(1);
        }
        Ok(())
    }

    fn check_range(&self, written: &str, integer: bool) -> Result<()> {
        if integer && self.integers == Integers::Safe {
            let digits = written.strip_prefix('-').unwrap_or(written);
            // Fifteen digits always fit; no leading zeros can stand here.
            let fits = digits.len() <= 15
                || digits.parse::<u64>().is_ok_and(|number| number <= MAX_SAFE_INTEGER);
            return if fits {
                Ok(())
            } else {
                let short = crate::hash::shorten(written);
                Err(self.error(&code::INTEGER_RANGE, format!("{short} is beyond ±(2^53−1)")))
            };
        }
        match written.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(()),
            _ => {
                let short = crate::hash::shorten(written);
                Err(self.error(&code::NOT_FINITE, format!("{short} is too large for a double")))
            }
        }
    }
}

/// Puts members into canonical order, by UTF-16 code units; the key is returned if it stands twice.
pub(super) fn sort_members(members: &mut [(Cow<'_, str>, Doc<'_>)]) -> Result<(), String> {
    members.sort_by(|(a, _), (b, _)| utf16_order(a, b));
    for pair in members.windows(2) {
        if let [(a, _), (b, _)] = pair
            && a == b
        {
            return Err(a.to_string());
        }
    }
    Ok(())
}

/// RFC 8785 §3.2.3. Differs from the order of UTF-8 bytes only above U+FFFF.
fn utf16_order(a: &str, b: &str) -> Ordering {
    if a.is_ascii() && b.is_ascii() {
        return a.cmp(b);
    }
    a.encode_utf16().cmp(b.encode_utf16())
}
