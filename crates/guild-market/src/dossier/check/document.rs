//! The document of a verdict (`guild.verdict.v1`), read strictly.

use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::json::{self, Doc, Limits};
use serde::Deserialize;

/// The version that is read.
const VERSION: &str = "guild.verdict.v1";
/// The name of the check that says whether others said the same.
const CONSENSUS: &str = "consensus";
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
    pub(super) consensus: Option<Consensus>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Checked {
    name: String,
    ok: bool,
    code: Option<String>,
    field: Option<String>,
}

/// What several agreed on.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Consensus {
    pub(super) delegation_id: String,
    pub(super) rule: String,
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
        let all = !self.checks.is_empty() && self.checks.iter().all(|check| check.ok);
        if all != self.passed {
            return Err("whether it passed does not follow from its checks".to_owned());
        }
        let last = self.checks.last().is_some_and(|check| check.name == CONSENSUS);
        let count = self.checks.iter().filter(|check| check.name == CONSENSUS).count();
        if last != self.consensus.is_some() || count > 1 {
            return Err("the check of what others say is not where it belongs".to_owned());
        }
        Ok(())
    }

    /// What its own checks gave.
    pub(super) fn own(&self) -> Own {
        let own = || self.checks.iter().filter(|check| check.name != CONSENSUS);
        match own().next() {
            None => Own::Unchecked,
            Some(_) if own().all(|check| check.ok) => Own::Passed,
            Some(_) => Own::Failed,
        }
    }
}

/// The bytes of the verdict before others were asked: without what they said.
pub(super) fn ballot(bytes: &[u8], own: Own) -> Option<Vec<u8>> {
    let mut value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let members = value.as_object_mut()?;
    members.remove(CONSENSUS);
    members.insert("passed".to_owned(), (own == Own::Passed).into());
    let checks = members.get_mut("checks")?.as_array_mut()?;
    checks.retain(|check| check.get("name").and_then(|name| name.as_str()) != Some(CONSENSUS));
    json::to_canonical(&value).ok()
}
