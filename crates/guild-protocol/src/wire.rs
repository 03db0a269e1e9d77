//! The fields of every type that leaves the program, as data.
//!
//! One table serves three purposes: it checks the shape of what is read, the documentation lists it, and its
//! [fingerprint](Type::fingerprint) stands in `vectors/wire_versions.json`. A test compares the two, so the fields of
//! a type cannot change without a new version and a new row.

use std::fmt;

use crate::hash::{Hash, shorten};
use crate::json::{Doc, code};
use crate::{Error, Result};

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A text.
    Text,
    /// A number without fraction or exponent.
    Integer,
    /// Any number.
    Number,
    /// `true` or `false`.
    Bool,
    /// An object, whose members the table lists under its path, or leaves open by listing none.
    Object,
    /// An array of texts.
    Texts,
    /// An array of integers.
    Integers,
    /// Any JSON.
    Any,
}

impl Shape {
    fn fits(self, doc: &Doc<'_>) -> bool {
        let integer = |n: &str| !n.contains(['.', 'e', 'E']);
        match (self, doc) {
            (Shape::Any, _)
            | (Shape::Text, Doc::Text(_))
            | (Shape::Number, Doc::Number(_))
            | (Shape::Bool, Doc::Bool(_))
            | (Shape::Object, Doc::Object(_)) => true,
            (Shape::Integer, Doc::Number(n)) => integer(n),
            (Shape::Texts, Doc::Array(items)) => items.iter().all(|i| Shape::Text.fits(i)),
            (Shape::Integers, Doc::Array(items)) => items.iter().all(|i| Shape::Integer.fits(i)),
            _ => false,
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Shape::Text => "text",
            Shape::Integer => "integer",
            Shape::Number => "number",
            Shape::Bool => "bool",
            Shape::Object => "object",
            Shape::Texts => "texts",
            Shape::Integers => "integers",
            Shape::Any => "any",
        })
    }
}

/// One field of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Where it stands: `amount.units`.
    pub path: &'static str,
    /// What it holds.
    pub shape: Shape,
    /// Whether `null` may stand in its place.
    pub nullable: bool,
    /// Whether it may be left out.
    pub optional: bool,
    /// Whether others may leave it out, although we always write it.
    pub optional_abroad: bool,
}

/// A field that must be there and must not be null.
pub const fn field(path: &'static str, shape: Shape) -> Field {
    Field { path, shape, nullable: false, optional: false, optional_abroad: false }
}

impl Field {
    /// The same field, where `null` may stand.
    pub const fn or_null(mut self) -> Field {
        self.nullable = true;
        self
    }

    /// The same field, which may be left out.
    pub const fn or_absent(mut self) -> Field {
        self.optional = true;
        self
    }

    /// The same field, which we always write and others may leave out.
    pub const fn or_absent_abroad(mut self) -> Field {
        self.optional_abroad = true;
        self
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let null = if self.nullable { "|null" } else { "" };
        let absent = match (self.optional, self.optional_abroad) {
            (true, _) => "|absent",
            (false, true) => "|absent abroad",
            (false, false) => "",
        };
        write!(f, "{}: {}{null}{absent}", self.path, self.shape)
    }
}

/// How strictly a document is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Ours: unknown fields are refused, and a field that may be null is written.
    Strict,
    /// Of others: unknown fields are kept, and a field that may be null may be left out.
    Tolerant,
}

/// A version of a type and all its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Type {
    /// Its name with its version.
    pub schema_version: &'static str,
    /// Its fields, sorted by path.
    pub fields: &'static [Field],
}

impl Type {
    /// The hash over the canonical JSON array of `path: shape` texts.
    pub fn fingerprint(&self) -> Hash {
        let lines = self.fields.iter().map(|field| Doc::Text(field.to_string().into()));
        Doc::Array(lines.collect()).hash()
    }

    /// Checks that the document has these fields, each of its shape; the error names the first that is not so.
    pub fn check(&self, doc: &Doc<'_>, reading: Reading) -> Result<()> {
        let Doc::Object(_) = doc else {
            return Err(Error::new(&code::SHAPE, "expected an object"));
        };
        if reading == Reading::Strict {
            self.refuse_unknown(doc, "")?;
        }
        self.fields.iter().try_for_each(|field| check_field(field, doc, reading))
    }

    fn refuse_unknown(&self, doc: &Doc<'_>, outer: &str) -> Result<()> {
        let Doc::Object(members) = doc else { return Ok(()) };
        for (key, value) in members {
            let path = if outer.is_empty() { key.to_string() } else { format!("{outer}.{key}") };
            // A key with a dot in it would look like the path of a field inside another.
            let known = |field: &&Field| field.path == path && !key.contains('.');
            let Some(field) = self.fields.iter().find(known) else {
                return Err(
                    Error::new(&code::SHAPE, "is not a field of this version").at(shorten(&path))
                );
            };
            let has_members = self.fields.iter().any(|f| is_inside(f.path, field.path));
            if field.shape == Shape::Object && has_members {
                self.refuse_unknown(value, &path)?;
            }
        }
        Ok(())
    }
}

fn is_inside(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'))
}

fn check_field(field: &Field, doc: &Doc<'_>, reading: Reading) -> Result<()> {
    let (outer, name) = field.path.rsplit_once('.').unwrap_or(("", field.path));
    // The object around it is checked by its own row; where that is null, there is nothing inside.
    let Some(holder @ Doc::Object(_)) = at(doc, outer) else { return Ok(()) };
    let optional_abroad = field.nullable || field.optional_abroad;
    let may_be_absent = field.optional || (optional_abroad && reading == Reading::Tolerant);
    match holder.get(name) {
        None if may_be_absent => Ok(()),
        None => Err(Error::new(&code::SHAPE, "is missing").at(field.path)),
        Some(Doc::Null) if field.nullable || field.shape == Shape::Any => Ok(()),
        Some(value) if field.shape.fits(value) => Ok(()),
        Some(_) => {
            let null = if field.nullable { " or null" } else { "" };
            let message = format!("must be of type {}{null}", field.shape);
            Err(Error::new(&code::SHAPE, message).at(field.path))
        }
    }
}

/// The value at a path of object keys; the whole document at the empty path.
pub fn at<'d, 'a>(doc: &'d Doc<'a>, path: &str) -> Option<&'d Doc<'a>> {
    if path.is_empty() {
        return Some(doc);
    }
    path.split('.').try_fold(doc, |doc, key| doc.get(key))
}

/// The text at a path.
pub fn text_at<'d>(doc: &'d Doc<'_>, path: &str) -> Option<&'d str> {
    match at(doc, path)? {
        Doc::Text(text) => Some(text),
        _ => None,
    }
}

/// The integer at a path.
pub fn integer_at(doc: &Doc<'_>, path: &str) -> Option<i64> {
    match at(doc, path)? {
        Doc::Number(number) => number.parse().ok(),
        _ => None,
    }
}

/// The canonical bytes of an object without some of its members: what a hash inside the object covers.
pub fn canonical_without(doc: &Doc<'_>, left_out: &[&str]) -> Vec<u8> {
    match doc {
        Doc::Object(members) => {
            let kept = members.iter().filter(|(key, _)| !left_out.contains(&key.as_ref()));
            Doc::Object(kept.cloned().collect()).to_canonical()
        }
        _ => doc.to_canonical(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIRD: Type = Type {
        schema_version: "bird.v1",
        fields: &[
            field("name", Shape::Text),
            field("nest", Shape::Object).or_null(),
            field("nest.eggs", Shape::Integer),
            field("ring", Shape::Text).or_absent(),
        ],
    };

    fn refusal(text: &str, reading: Reading) -> String {
        let doc = Doc::parse(text.as_bytes()).unwrap();
        BIRD.check(&doc, reading).map_or_else(|e| e.to_string(), |()| "fits".to_owned())
    }

    #[test]
    fn shapes_are_checked_and_the_field_is_named() {
        for (text, says) in [
            (r#"{"name":"a","nest":{"eggs":3}}"#, "fits"),
            (r#"{"name":"a","nest":null,"ring":"x"}"#, "fits"),
            (r#"{"name":"a","nest":{"eggs":3.5}}"#, "nest.eggs: must be of type integer"),
            (r#"{"name":"a","nest":{}}"#, "nest.eggs: is missing"),
            (r#"{"name":"a","nest":{"eggs":1,"x":1}}"#, "nest.x: is not a field of this version"),
            (
                r#"{"name":"a","nest":{"eggs":1},"nest.eggs":1}"#,
                "nest.eggs: is not a field of this version",
            ),
            (r#"{"name":1,"nest":null}"#, "name: must be of type text"),
            (r#"{"name":"a","nest":[]}"#, "nest: must be of type object or null"),
            (r#"{"name":"a"}"#, "nest: is missing"),
            ("[]", "expected an object"),
        ] {
            assert_eq!(refusal(text, Reading::Strict), says, "{text}");
        }
        assert_eq!(refusal(r#"{"name":"a","x":1}"#, Reading::Tolerant), "fits");
    }

    #[test]
    fn every_change_of_a_field_changes_the_fingerprint() {
        const CHANGED: [Type; 6] = [
            Type { fields: &[field("name", Shape::Text)], ..BIRD },
            Type { fields: &[field("name", Shape::Any)], ..BIRD },
            Type { fields: &[field("name", Shape::Text).or_null()], ..BIRD },
            Type { fields: &[field("name", Shape::Text).or_absent()], ..BIRD },
            Type { fields: &[field("name", Shape::Text).or_absent_abroad()], ..BIRD },
            Type { fields: &[field("nome", Shape::Text)], ..BIRD },
        ];
        let mut prints: Vec<_> = CHANGED.iter().map(Type::fingerprint).collect();
        prints.push(BIRD.fingerprint());
        let all = prints.len();
        prints.sort();
        prints.dedup();
        assert_eq!(prints.len(), all);
    }
}
