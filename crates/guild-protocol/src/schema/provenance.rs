//! What a result says about how it was made.
//!
//! Two sets of names are in use for the same things. We write the first and read both:
//! `model` and `model_id`, `provider_id` and `provider_pubkey`, `token_counts` and `tokens`, `sampling_params` and
//! `sampling`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::model::Fields;
use super::validate::Walk;
use super::{PROVENANCE, code};
use crate::hash::shorten;
use crate::problems::Place;

/// One thing that provenance can say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Detail {
    /// The model, or the program, that did the work.
    Model,
    /// The provider's public key.
    ProviderId,
    /// Tokens read and written.
    TokenCounts,
    /// How the model was sampled.
    SamplingParams,
    /// The job hash of the request that was answered.
    InputSha256,
    /// The hash of the result's output fields.
    OutputSha256,
    /// When, in Unix seconds.
    ExecutedAt,
    /// For how long.
    DurationMs,
}

impl Detail {
    /// Every detail.
    pub const ALL: [Detail; 8] = [
        Detail::Model,
        Detail::ProviderId,
        Detail::TokenCounts,
        Detail::SamplingParams,
        Detail::InputSha256,
        Detail::OutputSha256,
        Detail::ExecutedAt,
        Detail::DurationMs,
    ];

    /// The name that is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Detail::Model => "model",
            Detail::ProviderId => "provider_id",
            Detail::TokenCounts => "token_counts",
            Detail::SamplingParams => "sampling_params",
            Detail::InputSha256 => "input_sha256",
            Detail::OutputSha256 => "output_sha256",
            Detail::ExecutedAt => "executed_at",
            Detail::DurationMs => "duration_ms",
        }
    }

    /// The detail with this name, of either set.
    pub fn named(name: &str) -> Option<Detail> {
        Detail::ALL.into_iter().find(|d| d.as_str() == name || d.alias() == Some(name))
    }

    /// The other name that is read.
    pub fn alias(self) -> Option<&'static str> {
        match self {
            Detail::Model => Some("model_id"),
            Detail::ProviderId => Some("provider_pubkey"),
            Detail::TokenCounts => Some("tokens"),
            Detail::SamplingParams => Some("sampling"),
            _ => None,
        }
    }
}

/// How much a detail is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// A result without it is refused.
    Required,
    /// A result without it is accepted, and the lack is reported.
    Recommended,
    /// It may be there.
    Optional,
}

/// Reads levels by name, so that an unknown name is an error with the name in it.
pub(super) fn levels<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<Detail, Level>, D::Error> {
    let mut levels = BTreeMap::new();
    for (name, level) in BTreeMap::<String, Level>::deserialize(from)? {
        let detail = Detail::named(&name).ok_or_else(|| {
            let known = Detail::ALL.map(Detail::as_str).join(", ");
            D::Error::custom(format!("{:?} is not one of: {known}", shorten(&name)))
        })?;
        if levels.insert(detail, level).is_some() {
            return Err(D::Error::custom(format!("{} is given under two names", detail.as_str())));
        }
    }
    Ok(levels)
}

/// The shape of each detail; none is required here, because each schema decides that.
static SHAPE: LazyLock<Fields> = LazyLock::new(|| {
    // A unit test proves that the file can be read; without it every detail would be refused as unknown.
    serde_json::from_str(include_str!("../../schemas/provenance.json")).unwrap_or_default()
});

/// Checks and normalises the provenance of an output, and lists which recommended details it lacks.
pub(super) fn check(
    walk: &mut Walk<'_>,
    levels: &BTreeMap<Detail, Level>,
    given: Option<&Value>,
) -> (Option<Value>, Vec<Detail>) {
    let top = Place::Top;
    let at = Place::Member(&top, PROVENANCE);
    let at_level = |level: Level| levels.iter().filter(move |(_, l)| **l == level).map(|(d, _)| *d);
    let none = Map::new();
    let members = match given {
        Some(Value::Object(members)) => members,
        None => &none,
        Some(other) => {
            walk.object(&SHAPE, other, &at);
            return (None, Vec::new());
        }
    };
    let renamed = rename(walk, members, &at);
    for detail in at_level(Level::Required).filter(|d| !renamed.contains_key(d.as_str())) {
        let message = "is missing; this schema requires it";
        walk.refuse(&code::MISSING_FIELD, &Place::Member(&at, detail.as_str()), message);
    }
    let lacking =
        at_level(Level::Recommended).filter(|d| !renamed.contains_key(d.as_str())).collect();
    let normal = walk.object(&SHAPE, &Value::Object(renamed), &at);
    (given.map(|_| normal), lacking)
}

/// The members under the names we write.
fn rename(walk: &mut Walk<'_>, members: &Map<String, Value>, at: &Place<'_>) -> Map<String, Value> {
    let mut renamed = members.clone();
    for detail in Detail::ALL {
        let Some(alias) = detail.alias() else { continue };
        let Some(value) = renamed.remove(alias) else { continue };
        if renamed.contains_key(detail.as_str()) {
            let message = format!("says the same as {}; give one of them", detail.as_str());
            walk.refuse(&code::TWO_NAMES, &Place::Member(at, alias), message);
        } else {
            renamed.insert(detail.as_str().to_owned(), value);
        }
    }
    renamed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_detail_has_a_shape_and_nothing_else_has() {
        let names: Vec<&str> = SHAPE.keys().map(String::as_str).collect();
        let mut details: Vec<&str> = Detail::ALL.iter().map(|d| d.as_str()).collect();
        details.sort_unstable();
        assert_eq!(names, details);
        assert!(SHAPE.values().all(|field| !field.is_required()));
        for detail in Detail::ALL {
            let written = serde_json::to_value(detail).unwrap();
            assert_eq!(written, detail.as_str());
        }
    }
}
