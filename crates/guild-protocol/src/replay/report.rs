//! What is said of a replay.

use std::fmt;

use serde::Serialize;

use crate::hash::Hash;
use crate::identity::PublicKey;
use crate::verification::Verification;

/// How far a replay can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It is sealed, and a valid receipt signs for it.
    Verified,
    /// It is sealed and whole; without a receipt nobody has signed for it.
    Sealed,
    /// It keeps the rules, but carries no chain: nobody can tell whether it was changed.
    Unsealed,
    /// A repair has closed it.
    Repaired,
    /// It was converted from a format without hashes.
    Imported,
    /// Something does not hold.
    Refused,
}

impl Standing {
    /// One sentence for people.
    pub fn sentence(self) -> &'static str {
        match self {
            Standing::Verified => "verified: sealed, and signed for by its receipt",
            Standing::Sealed => "sealed and whole; no receipt was given that signs for it",
            Standing::Unsealed => "valid but not sealed: it proves nothing",
            Standing::Repaired => "repaired after an interruption: not evidence",
            Standing::Imported => "imported from a format without hashes: not evidence",
            Standing::Refused => "refused",
        }
    }
}

/// What is known of a replay after checking it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// How far it can be trusted.
    pub standing: Standing,
    /// Whose receipt signs for it, if it is verified. Anybody can sign for a replay: ask whether this is who must pay.
    pub signed_by: Option<PublicKey>,
    /// Every check.
    pub checks: Verification,
    /// The session it tells of.
    pub session_id: Option<String>,
    /// The policy under which the session ran.
    pub policy_bundle_id: Option<String>,
    /// The end of its chain, if it is sealed.
    pub trajectory_hash: Option<Hash>,
    /// How many lines it has.
    pub lines: u64,
    /// How many tools were called.
    pub tool_calls: u64,
}

impl Report {
    /// Whether it is evidence: whole, sealed, and signed for.
    pub fn is_verified(&self) -> bool {
        self.standing == Standing::Verified
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.standing.sentence())?;
        write!(f, "{}", self.checks)
    }
}
