//! Job schemas: what a kind of work takes, what it gives, and how the result is verified.
//!
//! A [`Registry`] holds the four built-in schemas and those added by users. It turns a request's payload into a
//! [`Job`] and a provider's answer into an [`Output`]: all problems are listed, defaults are filled in, and what
//! remains has exactly one form. So a sparse request and its fully written twin are one job with one hash.
//!
//! ```
//! use guild_protocol::schema::Registry;
//! let registry = Registry::builtin();
//! let id = "oa.embedding.v1".parse().unwrap();
//! let job = registry.validate_input(&id, &serde_json::json!({"texts": ["Hello"]})).unwrap();
//! assert_eq!(job.payload()["verification"]["mode"], "objective");
//!
//! let problems = registry.validate_input(&id, &serde_json::json!({"text": ["Hello"]})).unwrap_err();
//! assert_eq!(problems.iter().count(), 2); // `texts` is missing, `text` is not known
//! ```

mod check;
mod id;
mod job;
mod model;
mod provenance;
mod registry;
mod validate;

pub use id::SchemaId;
pub use job::{Job, Output, payload_hash, verification_hash, verification_projection};
pub use model::{
    Algorithm, Canonicalization, Field, FieldType, Fields, Format, HashRules, Schema, Scope,
    VerificationMode,
};
pub use provenance::{Detail, Level};
pub use registry::Registry;

/// The codes of this module.
pub mod code {
    crate::codes! {
        BAD_ID = "schema.id_malformed", Invalid,
            "A schema id does not have the form `oa.<name>.v<n>` or `oa.<domain>.<operation>.v<n>`.",
            "Write it like oa.sandbox_run.v1: lower-case parts between dots, and a version.";
        UNKNOWN = "schema.unknown", NotFound,
            "No schema with this id is registered.",
            "Check the spelling, or add the schema's file first.";
        VERSION = "schema.version_unknown", Invalid,
            "A schema document is of a version that this program does not know.",
            "Upgrade the program, or write the document in version 1.";
        MALFORMED = "schema.malformed", Invalid,
            "A schema document contradicts itself or breaks a rule for such documents.",
            "Correct the place named; docs/formats/job-schemas.md lists the rules.";
        REDEFINED = "schema.redefined", Conflict,
            "A schema with this id and another content is already registered.",
            "Give the changed schema a new version, and so a new id.";
        MISSING_FIELD = "schema.field_missing", Invalid,
            "A required field is absent.", "Add the field named.";
        UNKNOWN_FIELD = "schema.field_unknown", Invalid,
            "A field is not part of the schema.", "Remove it, or correct its spelling.";
        TWO_NAMES = "schema.field_twice", Invalid,
            "A field is given under two names at once.", "Keep one of them.";
        TYPE = "schema.type", Invalid,
            "A field is of another type than the schema says.", "Change the value to the type named.";
        NULL = "schema.null", Invalid,
            "A field is null where the schema does not allow it.",
            "Leave the field out: an absent field and null are two things.";
        CHOICE = "schema.choice", Invalid,
            "A text is not one of those allowed.", "Use one of the texts listed.";
        BOUNDS = "schema.bounds", Invalid,
            "A number is outside of its bounds.", "Use a number within the bounds named.";
        LENGTH = "schema.length", Invalid,
            "A text, an array or an object is too short or too long.",
            "Shorten it, or refer to large content by its CID.";
        FORMAT = "schema.format", Invalid,
            "A text is not what the schema says it is, such as a hash or a public key.",
            "Copy the value whole.";
        DEPTH = "schema.depth", Invalid,
            "A value is nested too deeply.", "Flatten it to at most 32 levels.";
        SIZE = "schema.size", Invalid,
            "A payload is larger than the limit.", "Refer to large content by its CID.";
    }
}

/// The most bytes of a request's payload, in canonical form.
pub const MAX_INPUT_BYTES: usize = 4 * 1024 * 1024;
/// The most bytes of an output, in canonical form.
pub const MAX_OUTPUT_BYTES: usize = 64 * 1024 * 1024;
/// The most levels inside a field without declared shape.
pub const MAX_FREE_DEPTH: usize = 32;
/// The most levels of fields inside fields in a schema document.
pub const MAX_FIELD_DEPTH: usize = 16;
/// The most fields of a schema document, at all levels.
pub const MAX_FIELDS: usize = 512;

/// The member of every output that says how it was made.
const PROVENANCE: &str = "provenance";
