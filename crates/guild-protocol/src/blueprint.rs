//! Blueprints: what a job must achieve, as invariants that can be measured.
//!
//! ```
//! use guild_protocol::blueprint::{Blueprint, Measurements, Verdict};
//! let blueprint = Blueprint::parse(br#"{"invariants": [
//!     {"id": "TEST-001", "type": "FLOOR", "metric": "test_coverage", "min": 80,
//!      "assessment": "Run coverage report"}
//! ]}"#).unwrap();
//! let measured = Measurements::parse(br#"{"TEST-001": 91.5}"#).unwrap();
//! assert_eq!(blueprint.evaluate(&measured).unwrap().verdict, Verdict::Pass);
//! ```

use serde::Serialize;

use crate::Result;
use crate::error::Code;
use crate::hash::Hash;
use crate::json;

mod evaluate;
mod parse;

pub use evaluate::{Evaluation, Measured, Measurements, Outcome, Verdict};

/// The codes of this module.
pub mod code {
    crate::codes! {
        NOT_JSON = "blueprint.not_json", Invalid,
            "A blueprint is not JSON (elsewhere INVALID_BLUEPRINT).",
            "Write a JSON object with an `invariants` array.";
        STRUCTURE = "blueprint.structure", Invalid,
            "A blueprint lacks a part or has one of the wrong type (elsewhere INVALID_BLUEPRINT_STRUCTURE).",
            "Correct the place named; docs/formats/blueprints.md lists the fields of each type.";
        SEMANTICS = "blueprint.semantics", Invalid,
            "An invariant can never hold or is ambiguous (elsewhere INVALID_INVARIANT_SEMANTICS).",
            "Give every invariant its own id, and a RANGE a min below its max.";
        MEASUREMENT = "blueprint.measurement", Invalid,
            "A measurement does not fit the blueprint: an unknown id, or a value of the wrong sort.",
            "Measure BOOLEAN invariants with true or false, all others with a finite number.";
    }
}

/// The name under which the source documents know one of our codes; tools that dispatch jobs answer with it.
///
/// ```
/// use guild_protocol::blueprint::{code, documented_code};
/// assert_eq!(documented_code(&code::STRUCTURE), Some("INVALID_BLUEPRINT_STRUCTURE"));
/// ```
pub fn documented_code(code: &Code) -> Option<&'static str> {
    [
        (&code::NOT_JSON, "INVALID_BLUEPRINT"),
        (&code::STRUCTURE, "INVALID_BLUEPRINT_STRUCTURE"),
        (&code::SEMANTICS, "INVALID_INVARIANT_SEMANTICS"),
    ]
    .into_iter()
    .find_map(|(ours, theirs)| (ours.name == code.name).then_some(theirs))
}

/// The most bytes of a blueprint's text.
pub const MAX_BYTES: usize = 1024 * 1024;
/// The most invariants of a blueprint.
pub const MAX_INVARIANTS: usize = 1000;
/// The most bytes of an id or a metric.
pub const MAX_NAME_BYTES: usize = 256;
/// The most bytes of any other text in an invariant.
pub const MAX_TEXT_BYTES: usize = 16 * 1024;
/// The fewest characters of an assessment: less says nothing about how to measure.
pub const MIN_ASSESSMENT_CHARS: usize = 10;

/// A job's success criteria. Its invariants have passed every check: at least one, each with its own id.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Blueprint {
    invariants: Vec<Invariant>,
}

/// One thing that must hold.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Invariant {
    /// Names it within the blueprint.
    pub id: String,
    /// What must hold.
    #[serde(flatten)]
    pub check: Check,
    /// How to measure it.
    pub assessment: String,
    /// What to do and what not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub examples: Option<Examples>,
}

/// What must hold. Bounds are included: a measured value equal to the threshold passes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "UPPERCASE")]
pub enum Check {
    /// measured ≥ min
    Floor {
        /// What is measured.
        metric: String,
        /// The least that passes.
        #[serde(serialize_with = "plainly")]
        min: f64,
    },
    /// measured ≤ max
    Ceiling {
        /// What is measured.
        metric: String,
        /// The most that passes.
        #[serde(serialize_with = "plainly")]
        max: f64,
    },
    /// min ≤ measured ≤ max
    Range {
        /// What is measured.
        metric: String,
        /// The least that passes.
        #[serde(serialize_with = "plainly")]
        min: f64,
        /// The most that passes.
        #[serde(serialize_with = "plainly")]
        max: f64,
    },
    /// The condition is true.
    Boolean {
        /// What must be true.
        condition: String,
    },
}

impl Check {
    /// The name of its type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Check::Floor { .. } => "FLOOR",
            Check::Ceiling { .. } => "CEILING",
            Check::Range { .. } => "RANGE",
            Check::Boolean { .. } => "BOOLEAN",
        }
    }
}

/// What to do and what not, for whoever does the work.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Examples {
    /// Good ones.
    #[serde(rename = "do", skip_serializing_if = "Vec::is_empty")]
    pub good: Vec<String>,
    /// Bad ones.
    #[serde(rename = "dont", skip_serializing_if = "Vec::is_empty")]
    pub bad: Vec<String>,
}

impl Blueprint {
    /// The invariants, in the order of the text.
    pub fn invariants(&self) -> &[Invariant] {
        &self.invariants
    }

    /// The hash over `{"invariants": […]}`: the same for every layout of the text and for all that stands beside
    /// the invariants.
    pub fn hash(&self) -> Result<Hash> {
        json::hash(self)
    }
}

/// A whole number without a fraction, as people write it: 70, not 70.0. The canonical form is the same.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn plainly<S: serde::Serializer>(number: &f64, to: S) -> Result<S::Ok, S::Error> {
    let whole = number.fract() == 0.0 && number.abs() < 1e15;
    #[expect(clippy::cast_possible_truncation, reason = "whole and below 1e15")]
    if whole { to.serialize_i64(*number as i64) } else { to.serialize_f64(*number) }
}
