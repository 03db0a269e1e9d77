//! The name of a job schema.

use std::fmt;
use std::str::FromStr;

use super::code;
use crate::hash::shorten;
use crate::{Error, Result};

/// Names a job schema: `oa.<name>.v<n>` or `oa.<domain>.<operation>.v<n>`. Others may put their own first word
/// in place of `oa`. The id is what identifies a kind of work; the event kind that carries it is configuration.
///
/// ```
/// use guild_protocol::schema::SchemaId;
/// let id: SchemaId = "oa.embeddings.v1".parse().unwrap(); // an older spelling
/// assert_eq!(id.as_str(), "oa.embedding.v1");
/// assert_eq!(id.version(), 1);
/// assert!("oa.embedding".parse::<SchemaId>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SchemaId {
    text: String,
    version: u16,
}

/// Older spellings, read as today's id.
const ALIASES: [(&str, &str); 1] = [("oa.embeddings.v1", "oa.embedding.v1")];

const MAX_SEGMENT_BYTES: usize = 64;

impl SchemaId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The number after `v`. A change that breaks readers gets a new number and so a new id.
    pub fn version(&self) -> u16 {
        self.version
    }
}

impl FromStr for SchemaId {
    type Err = Error;

    fn from_str(text: &str) -> Result<SchemaId> {
        let text = ALIASES.iter().find(|(old, _)| *old == text).map_or(text, |(_, new)| new);
        let refuse =
            |why: &str| Error::new(&code::BAD_ID, format!("schema id {:?} {why}", shorten(text)));
        let segments: Vec<&str> = text.split('.').collect();
        let Some((version, names)) = segments.split_last().filter(|_| segments.len() <= 4) else {
            return Err(refuse("must be oa.<name>.v<n> or oa.<domain>.<operation>.v<n>"));
        };
        if names.len() < 2 {
            return Err(refuse("must be oa.<name>.v<n> or oa.<domain>.<operation>.v<n>"));
        }
        if !names.iter().all(|name| is_name(name)) {
            return Err(refuse(
                "has a part that is not 1 to 64 lower-case letters, digits and underscores, letter first",
            ));
        }
        let version = version
            .strip_prefix('v')
            .filter(|digits| !digits.starts_with(['0', '+']))
            .and_then(|digits| digits.parse::<u16>().ok())
            .ok_or_else(|| refuse("must end in .v and a number from 1 to 65535"))?;
        Ok(SchemaId { text: text.to_owned(), version })
    }
}

fn is_name(name: &str) -> bool {
    name.len() <= MAX_SEGMENT_BYTES
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

impl fmt::Display for SchemaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl serde::Serialize for SchemaId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.text)
    }
}

impl<'de> serde::Deserialize<'de> for SchemaId {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<SchemaId, D::Error> {
        <String as serde::Deserialize>::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_documented_forms_are_read() {
        for good in ["oa.sandbox_run.v1", "oa.code.review.v2", "acme.x.v65535", "a1.b_2.c3.v10"] {
            assert_eq!(good.parse::<SchemaId>().unwrap().as_str(), good);
        }
        assert_eq!("oa.code.review.v12".parse::<SchemaId>().unwrap().version(), 12);
    }

    #[test]
    fn other_forms_are_refused() {
        let long = format!("oa.{}.v1", "a".repeat(65));
        for bad in [
            "",
            ".",
            "oa",
            "oa.v1",
            "oa.x",
            "oa.x.1",
            "oa.x.v",
            "oa.x.v0",
            "oa.x.v01",
            "oa.x.v+1",
            "oa.x.v65536",
            "oa.X.v1",
            "oa..v1",
            "oa.1x.v1",
            "oa.a.b.c.v1",
            "oa.x.v1.",
            " oa.x.v1",
            "oa.é.v1",
            &long,
        ] {
            assert_eq!(bad.parse::<SchemaId>().unwrap_err().code(), &code::BAD_ID, "{bad}");
        }
    }
}
