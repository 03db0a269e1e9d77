//! A job schema as data: what stands in the JSON files.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Number, Value};

use super::provenance::{self, Detail, Level};
use super::{SchemaId, check, code};
use crate::hash::Hash;
use crate::json::{self, Limits};
use crate::problems::Problems;
use crate::{Error, Result};

/// A kind of work: what goes in, what comes out, how it is verified, and what a provider must say about itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// Its name. Some systems call this `job_type`; both are read.
    #[serde(alias = "job_type")]
    pub schema_id: SchemaId,
    /// The version of this document format: 1.
    #[serde(default = "Schema::this_version")]
    pub schema_version: u32,
    /// One sentence: what the work is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub purpose: String,
    /// The fields of a request's payload.
    pub inputs: Fields,
    /// The fields of a result, apart from its `provenance`.
    pub outputs: Fields,
    /// Whether a result can be checked without judgement.
    pub verification_mode: VerificationMode,
    /// How results are hashed.
    #[serde(default)]
    pub hash_rules: HashRules,
    /// What a result's `provenance` must say. What is not listed is optional.
    #[serde(default, deserialize_with = "provenance::levels")]
    pub provenance: BTreeMap<Detail, Level>,
}

/// Fields by name.
pub type Fields = BTreeMap<String, Field>;

/// Whether a result can be checked without judgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerificationMode {
    /// By exit codes and hashes; payment only for a correct result.
    Objective,
    /// By redundancy, adjudication or a judge; payment for consensus.
    Subjective,
}

impl VerificationMode {
    /// The name used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            VerificationMode::Objective => "objective",
            VerificationMode::Subjective => "subjective",
        }
    }
}

/// How results are hashed. Each rule has one value today; another one is refused, not guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HashRules {
    /// The hash function.
    pub algorithm: Algorithm,
    /// What text of the result is hashed.
    pub canonicalization: Canonicalization,
    /// Which part of the result is hashed.
    pub scope: Scope,
}

/// The hash function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// SHA-256, written `sha256:<hex>`.
    #[default]
    Sha256,
}

/// What text of the result is hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Canonicalization {
    /// RFC 8785.
    #[default]
    #[serde(alias = "jcs-rfc8785")]
    JsonCanonical,
}

/// Which part of the result is hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Every output field, never truncated. `provenance` stays outside: it carries this very hash.
    #[default]
    FullOutput,
}

/// One field: its type and what is allowed in it.
///
/// It is required unless it says `"required": false` or has a `default`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Field {
    /// The JSON type.
    #[serde(rename = "type")]
    pub field_type: FieldType,
    /// Whether it must be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// What it means.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// What an absent field stands for. It is written into the normalised payload.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// Whether `null` is a value. `null` and an absent field are two things.
    #[serde(default, skip_serializing_if = "is_false")]
    pub nullable: bool,
    /// Whether an empty array or object is the same as an absent field; it is then left out.
    #[serde(default, skip_serializing_if = "is_false")]
    pub omit_empty: bool,
    /// Whether honest providers agree on it. `false` keeps it out of the verification projection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<bool>,
    /// The texts allowed.
    #[serde(rename = "enum", default, skip_serializing_if = "Option::is_none")]
    pub one_of: Option<Vec<String>>,
    /// The smallest number allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Number>,
    /// The largest number allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Number>,
    /// The fewest UTF-8 bytes of a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_bytes: Option<usize>,
    /// The most UTF-8 bytes of a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<usize>,
    /// What a text begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// What a text is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// The fewest items of an array, or members of an object with `values`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_items: Option<usize>,
    /// The most items of an array, or members of an object with `values`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_items: Option<usize>,
    /// What each item of an array is; without it, anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Box<Field>>,
    /// The members of an object, no others allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Fields>,
    /// What each member of an object with free keys is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Box<Field>>,
}

/// The JSON type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldType {
    /// A text.
    String,
    /// A whole number within ±(2^53−1). `1.0` is one, as in RFC 8785.
    Integer,
    /// A number within ±(2^53−1).
    Number,
    /// `true` or `false`.
    Boolean,
    /// A list.
    Array,
    /// Named members.
    Object,
    /// Any JSON value.
    Any,
}

impl FieldType {
    /// The name with its article, for a sentence.
    pub(super) fn noun(self) -> &'static str {
        match self {
            FieldType::String => "a string",
            FieldType::Integer => "an integer",
            FieldType::Number => "a number",
            FieldType::Boolean => "a boolean",
            FieldType::Array => "an array",
            FieldType::Object => "an object",
            FieldType::Any => "any value",
        }
    }
}

/// What a text is, beyond its length. The normalised payload holds the one written form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// A SHA-256 digest: written `sha256:<hex>`, bare hex digits are read too.
    Sha256,
    /// A Nostr public key: written as an npub, hex digits are read too.
    PublicKey,
}

impl Field {
    /// Whether it must be there: unless it says otherwise or has a default.
    pub fn is_required(&self) -> bool {
        self.required.unwrap_or(self.default.is_none())
    }

    /// Whether it is part of the verification projection.
    pub fn is_compared(&self) -> bool {
        self.compared.unwrap_or(true)
    }
}

impl Schema {
    /// The version of the document format that this code reads and writes.
    pub const VERSION: u32 = 1;
    /// The longest schema document that is read.
    pub const MAX_BYTES: usize = 256 * 1024;

    fn this_version() -> u32 {
        Schema::VERSION
    }

    /// Reads a schema document. All that contradicts itself in it is listed.
    pub fn parse(text: &[u8]) -> Result<Schema, Problems> {
        let limits = Limits { max_bytes: Schema::MAX_BYTES, max_depth: 64 };
        // The version first: a newer document may have any shape.
        let any: Value = json::decode_within(text, limits)?;
        if let Some(version) = any.get("schema_version")
            && version.as_u64() != Some(u64::from(Schema::VERSION))
        {
            let message = format!("version {version} is not known here, only {}", Schema::VERSION);
            return Err(Error::new(&code::VERSION, message).at("schema_version").into());
        }
        let schema: Schema = json::decode_within(text, limits)?;
        check::schema(&schema)?;
        Ok(schema)
    }

    /// The document, laid out for people.
    pub fn to_json_pretty(&self) -> Result<String> {
        serde_json::to_string_pretty(self)
            .map_err(|e| Error::new(&code::MALFORMED, format!("cannot be written: {e}")))
    }

    /// The hash of the document: two schemas with one hash demand the same.
    pub fn hash(&self) -> Result<Hash> {
        json::hash(self)
    }
}

/// A value that stands there, be it `null`.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(value: &bool) -> bool {
    !value
}
