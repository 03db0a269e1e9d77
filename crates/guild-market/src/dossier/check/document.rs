//! The document of a verdict (`guild.verdict.v1`), read strictly.

use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::json::{self, Doc, Limits};
use serde::Deserialize;

/// The version that is read.
const VERSION: &str = "guild.verdict.v1";
/// Checks that are none of the result by itself, in the order in which they follow those that are: whether it is the
/// answer that was known, whether others said the same, and what a dispute came to. Each has a member of its name.
const ADDED: [&str; 3] = ["known_answer", "consensus", DISPUTE];
const DISPUTE: &str = "dispute";
const MAX_BYTES: usize = 1_024 * 1_024;

/// What a verdict says.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    schema_version: String,
    pub(super) schema_id: String,
    pub(super) job_hash: Hash,
    pub(super) provider_id: PublicKey,
    pub(super) output_hash: Hash,
    pub(super) mode: String,
    pub(super) min_likeness: Option<f64>,
    checks: Vec<Checked>,
    score: Option<f64>,
    pub(super) passed: bool,
    #[serde(default)]
    pub(super) known_answer: Option<KnownAnswer>,
    #[serde(default)]
    pub(super) consensus: Option<Consensus>,
    #[serde(default)]
    dispute: Option<Decided>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Checked {
    name: String,
    ok: bool,
    code: Option<String>,
    field: Option<String>,
}

/// The answer that was known before it was asked.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KnownAnswer {
    hash: Hash,
    order_id: String,
}

/// What a dispute came to.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Decided {
    by: Option<String>,
    dispute_id: String,
    outcome: Option<String>,
}

/// What several agreed on.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Consensus {
    pub(super) delegation_id: String,
    pub(super) rule: String,
    /// How many were asked at first: by that, and the rule, follows how many must say the same.
    pub(super) asked: u32,
    pub(super) replicas: u32,
    pub(super) needed: u32,
    pub(super) agreeing: u32,
    pub(super) by: Option<String>,
    pub(super) state: String,
    pub(super) says: Option<Hash>,
    pub(super) vote: Option<Hash>,
    pub(super) winner: Option<Hash>,
}

/// What the check of a result by itself gave, whatever others said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    /// It is what was ordered, as far as it can be told.
    Passed,
    /// It is not.
    Failed,
    /// Nobody could look.
    Unchecked,
}

impl Document {
    /// Reads one; else why not.
    pub(super) fn read(bytes: &[u8]) -> Result<Document, String> {
        let limits = Limits { max_bytes: MAX_BYTES, max_depth: 8 };
        let doc = Doc::parse_within(bytes, limits).map_err(|error| error.to_string())?;
        json::require_canonical(bytes, &doc).map_err(|error| error.to_string())?;
        let document: Document =
            json::decode_within(bytes, limits).map_err(|error| error.to_string())?;
        document.agrees_with_itself()?;
        Ok(document)
    }

    fn agrees_with_itself(&self) -> Result<(), String> {
        if self.schema_version != VERSION {
            return Err(format!("its schema_version is not {VERSION}"));
        }
        if !["objective", "subjective"].contains(&self.mode.as_str()) {
            return Err("its mode is neither objective nor subjective".to_owned());
        }
        if let Some(odd) = self.checks.iter().find(|check| check.ok == check.code.is_some()) {
            return Err(format!("its check {:?} is ok and is not", odd.name));
        }
        let follows = match &self.dispute {
            // Whatever was found before: it is settled as was decided.
            Some(decided) => {
                let is_released = decided.outcome.as_deref() == Some("release");
                self.passed == is_released
                    && self.checks.last().is_some_and(|check| check.ok == is_released)
            }
            None => {
                let all = !self.checks.is_empty() && self.checks.iter().all(|check| check.ok);
                self.passed == all
            }
        };
        if !follows {
            return Err("whether it passed does not follow from its checks".to_owned());
        }
        let there = [self.known_answer.is_some(), self.consensus.is_some(), self.dispute.is_some()];
        let members: Vec<&str> =
            ADDED.into_iter().zip(there).filter(|(_, is)| *is).map(|(name, _)| name).collect();
        let own = self.checks.iter().take_while(|check| !is_added(check)).count();
        let added: Vec<&str> =
            self.checks.iter().skip(own).map(|check| check.name.as_str()).collect();
        if added != members {
            return Err("a check of more than the result is not where it belongs".to_owned());
        }
        Ok(())
    }

    /// Whether a dispute has decided otherwise.
    pub(super) fn is_overruled(&self) -> bool {
        self.dispute.is_some()
    }

    /// What its own checks gave.
    pub(super) fn own(&self) -> Own {
        let own = || self.checks.iter().filter(|check| !is_added(check));
        match own().next() {
            None => Own::Unchecked,
            Some(_) if own().all(|check| check.ok) => Own::Passed,
            Some(_) => Own::Failed,
        }
    }
}

fn is_added(check: &Checked) -> bool {
    ADDED.contains(&check.name.as_str())
}

/// The bytes of the verdict about the result by itself.
pub(super) fn ballot(bytes: &[u8], own: Own) -> Option<Vec<u8>> {
    let mut value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let members = value.as_object_mut()?;
    for name in ADDED {
        members.remove(name);
    }
    members.insert("passed".to_owned(), (own == Own::Passed).into());
    let checks = members.get_mut("checks")?.as_array_mut()?;
    let name = |check: &serde_json::Value| check.get("name")?.as_str().map(str::to_owned);
    checks.retain(|check| !name(check).is_some_and(|name| ADDED.contains(&name.as_str())));
    json::to_canonical(&value).ok()
}
