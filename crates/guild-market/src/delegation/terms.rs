//! How much a piece of work matters, and what follows from it.

use std::collections::BTreeMap;

use guild_protocol::amount::Msat;
use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::json;
use guild_protocol::schema::{Job, VerificationMode};
use guild_protocol::typed_id;

use crate::error::code;
use crate::order::MAX_DEADLINE_MS;
use crate::verify;
use crate::{Error, Result};

typed_id! {
    /// Names a delegation: made from the caller's key, so that delegating again is the same delegation.
    DelegationId = "delegation", content;
}

impl DelegationId {
    /// The delegation that a caller names by this key.
    pub fn of_key(delegation_key: &str) -> DelegationId {
        DelegationId::of(&Hash::of(format!("guild.delegation.v1\n{delegation_key}").as_bytes()))
    }
}

/// Which operator a key belongs to, as far as that is known. Whoever is not named is an operator of its own.
pub type Clusters = BTreeMap<PublicKey, String>;

/// The operator of a key.
///
/// ```
/// use guild_market::delegation::{Clusters, cluster_of};
/// use guild_protocol::{env::Signer, identity::SecretKey};
/// let key = "11".repeat(32).parse::<SecretKey>().unwrap().public_key();
/// assert_eq!(cluster_of(&Clusters::new(), &key), key.npub());
/// assert_eq!(cluster_of(&Clusters::from([(key, "acme".to_owned())]), &key), "acme");
/// ```
pub fn cluster_of(clusters: &Clusters, key: &PublicKey) -> String {
    clusters.get(key).cloned().unwrap_or_else(|| key.npub())
}

/// How much it matters that the answer is right and there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Criticality {
    /// One does it: an ordinary order, and no delegation.
    Low,
    /// Two do it.
    Medium,
    /// Three do it.
    High,
    /// Five do it.
    Critical,
}

impl Criticality {
    /// All of them.
    pub const ALL: [Criticality; 4] =
        [Criticality::Low, Criticality::Medium, Criticality::High, Criticality::Critical];

    /// The word in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Criticality::Low => "low",
            Criticality::Medium => "medium",
            Criticality::High => "high",
            Criticality::Critical => "critical",
        }
    }

    /// The one of this word.
    ///
    /// ```
    /// use guild_market::delegation::Criticality;
    /// assert_eq!(Criticality::parse("high"), Some(Criticality::High));
    /// ```
    pub fn parse(word: &str) -> Option<Criticality> {
        Criticality::ALL.into_iter().find(|one| one.as_str() == word)
    }

    /// By what such work is decided.
    pub fn consensus(self, mode: VerificationMode) -> Consensus {
        match (self, mode) {
            (Criticality::Low, _) => Consensus::None,
            (Criticality::Medium, VerificationMode::Objective) => Consensus::FirstSuccess,
            (Criticality::Medium, VerificationMode::Subjective) | (Criticality::High, _) => {
                Consensus::Majority
            }
            (Criticality::Critical, _) => Consensus::Quorum,
        }
    }
}

/// By what it is decided which answer is the right one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consensus {
    /// There is one answer.
    None,
    /// The first that passes its own check.
    FirstSuccess,
    /// More than half say the same.
    Majority,
    /// Of 2f + 1, f + 1 say the same: whichever f of them lie.
    Quorum,
}

impl Consensus {
    /// All of them.
    pub const ALL: [Consensus; 4] =
        [Consensus::None, Consensus::FirstSuccess, Consensus::Majority, Consensus::Quorum];

    /// The word in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Consensus::None => "none",
            Consensus::FirstSuccess => "first_success",
            Consensus::Majority => "majority",
            Consensus::Quorum => "quorum",
        }
    }

    /// The one of this word.
    pub fn parse(word: &str) -> Option<Consensus> {
        Consensus::ALL.into_iter().find(|one| one.as_str() == word)
    }

    /// How many of so many must say the same.
    pub fn needed(self, replicas: u32) -> u32 {
        match self {
            Consensus::None | Consensus::FirstSuccess => 1,
            Consensus::Majority | Consensus::Quorum => replicas.div_euclid(2).saturating_add(1),
        }
    }
}

/// The numbers of delegation. The defaults are the documented ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// How many do work of medium,
    pub medium: u32,
    /// high,
    pub high: u32,
    /// and critical importance.
    pub critical: u32,
    /// How many more may be asked, because one is slow or has failed.
    pub extra_max: u32,
    /// Nobody counts as slow before this.
    pub slow_least_ms: i64,
    /// So much must be left until the deadline for somebody to be asked.
    pub ask_least_ms: i64,
    /// A result that could not be checked so long after the deadline does not count.
    pub check_ms: i64,
    /// How like vectors are that say the same.
    pub vectors_alike: f64,
    /// How like texts are that say the same.
    pub texts_alike: f64,
    /// Which part of the best two rankings share that say the same.
    pub ranks_alike: f64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            medium: 2,
            high: 3,
            critical: 5,
            extra_max: 2,
            slow_least_ms: 1_000,
            ask_least_ms: 1_000,
            check_ms: 3_600_000,
            vectors_alike: verify::Options::default().min_likeness,
            texts_alike: 0.8,
            ranks_alike: 0.8,
        }
    }
}

impl Options {
    /// How many do work of this importance.
    pub fn replicas(&self, criticality: Criticality) -> u32 {
        match criticality {
            Criticality::Low => 1,
            Criticality::Medium => self.medium,
            Criticality::High => self.high,
            Criticality::Critical => self.critical,
        }
    }
}

const KEY_MAX_BYTES: usize = 200;
/// So many at most do the same work, whatever the options say: all of them are compared with each other.
pub(super) const REPLICAS_MAX: u32 = 15;

/// What is to be delegated.
#[derive(Debug, Clone, PartialEq)]
pub struct NewDelegation {
    /// The caller's name for it: delegating again under one key is the same delegation.
    pub delegation_key: String,
    /// Under which of our keys.
    pub buyer: PublicKey,
    /// The kind of the requests' events.
    pub kind: u16,
    /// The work.
    pub job: Job,
    /// How much it matters.
    pub criticality: Criticality,
    /// How many are to do it.
    pub replicas: u32,
    /// How many more may be asked.
    pub extra_max: u32,
    /// The most that is paid, to all of them together.
    pub budget: Msat,
    /// Until when results must be here.
    pub deadline_ms: UnixMs,
    /// Whether input and results travel encrypted.
    pub private: bool,
}

impl NewDelegation {
    /// Names it.
    pub fn delegation_id(&self) -> DelegationId {
        DelegationId::of_key(&self.delegation_key)
    }

    /// Whether a result can be checked by itself.
    pub fn mode(&self) -> VerificationMode {
        verify::mode_of(&self.job)
    }

    /// By what it is decided.
    pub fn consensus(&self) -> Consensus {
        self.criticality.consensus(self.mode())
    }

    /// How many must say the same.
    pub fn needed(&self) -> u32 {
        self.consensus().needed(self.replicas)
    }

    /// The name of the order of a replica.
    pub fn order_key(&self, number: i64) -> String {
        order_key(&self.delegation_id(), number)
    }

    /// The payload as it is sent.
    pub(super) fn payload_text(&self) -> Result<String> {
        let bytes = json::to_canonical(self.job.payload())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Refuses what could not be decided, or not be kept.
    pub fn check(&self, now_ms: UnixMs) -> Result<()> {
        let malformed = |what: &str| Err(Error::refused(&code::DELEGATION_MALFORMED, what));
        let key = &self.delegation_key;
        if key.is_empty() || key.len() > KEY_MAX_BYTES || key.chars().any(char::is_control) {
            return malformed("delegation_key must be 1 to 200 bytes of plain text");
        }
        if self.criticality == Criticality::Low {
            return malformed("work of low criticality is an ordinary order");
        }
        if self.budget.0 < 0 {
            return malformed("the budget is zero or more");
        }
        if self.deadline_ms <= now_ms || self.deadline_ms.saturating_sub(now_ms) > MAX_DEADLINE_MS {
            return malformed("the deadline must be in the future, by at most 14 days");
        }
        let most = self.replicas.saturating_add(self.extra_max);
        if self.replicas == 0 || most > REPLICAS_MAX {
            return malformed("it is done by 1 to 15");
        }
        if self.mode() == VerificationMode::Subjective && self.replicas < 2 {
            return malformed("what only a comparison can judge must be done by two at least");
        }
        Ok(())
    }
}

/// The name of the order of a replica.
pub(super) fn order_key(delegation_id: &DelegationId, number: i64) -> String {
    format!("{delegation_id}#{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn criticality_says_how_many_and_how_many_of_them() {
        let options = Options::default();
        let row = |criticality: Criticality, mode| {
            let (replicas, consensus) =
                (options.replicas(criticality), criticality.consensus(mode));
            format!("{replicas} {} {}", consensus.as_str(), consensus.needed(replicas))
        };
        let table = |mode| Criticality::ALL.map(|one| row(one, mode)).join("; ");
        assert_eq!(
            table(VerificationMode::Objective),
            "1 none 1; 2 first_success 1; 3 majority 2; 5 quorum 3"
        );
        assert_eq!(
            table(VerificationMode::Subjective),
            "1 none 1; 2 majority 2; 3 majority 2; 5 quorum 3"
        );
        for one in Criticality::ALL {
            assert_eq!(Criticality::parse(one.as_str()), Some(one));
        }
        for one in Consensus::ALL {
            assert_eq!(Consensus::parse(one.as_str()), Some(one));
        }
    }
}
