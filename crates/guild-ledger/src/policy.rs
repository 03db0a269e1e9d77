//! Policy bundles: which payments go through by themselves, which need a guardian, which are refused.
//!
//! A bundle is a JSON document, named by the hash of its canonical form, so that a receipt can refer to it. Its rules
//! are an ordered list: the first that matches decides. When none matches, the bundle's cap for the asset does: at or
//! below it the payment is allowed, above it, or without a cap, it is denied. The format is written down in
//! `docs/formats/policy.md`.
//!
//! ```
//! use guild_ledger::policy::{Action, Asked, Bundle, Tier, decide};
//! use guild_protocol::amount::{Amount, AssetId};
//! use guild_protocol::receipt::Rail;
//! let bundle = Bundle::parse(br#"{"schema_version": "guild.policy_bundle.v1", "name": "careful",
//!     "caps": {"USD_MICRO": 500},
//!     "rules": [{"id": "strangers", "when": {"provider_tiers": ["tertiary", "untrusted"]}, "action": "deny"}]}"#)
//!     .unwrap();
//! let mut asked = Asked {
//!     amount: Amount::new(AssetId::usd_micro(), 500),
//!     provider_tier: Tier::Primary,
//!     schema_id: None,
//!     rail: Rail::Ledger,
//! };
//! assert_eq!(decide(&bundle, &asked).action, Action::Auto);
//! asked.provider_tier = Tier::Tertiary;
//! assert_eq!(decide(&bundle, &asked).approval_rule_id.as_deref(), Some("strangers"));
//! ```

use std::collections::{BTreeMap, BTreeSet};

use guild_protocol::amount::{Amount, AssetId};
use guild_protocol::identity::PublicKey;
use guild_protocol::receipt::Rail;
use guild_protocol::schema::SchemaId;
use guild_protocol::typed_id;

mod decide;
mod lint;
mod parse;

pub use decide::{Decision, decide};
pub use lint::{Warning, lint};

/// The codes of this module.
pub mod code {
    guild_protocol::codes! {
        VERSION = "policy.unknown_version", Invalid,
            "A policy bundle has a schema_version that this program does not know.",
            "Use a newer program, or write the bundle as guild.policy_bundle.v1.";
        VALUE = "policy.bad_value", Invalid,
            "A name, a word, a key or a number in a policy bundle is not one that may stand there.",
            "Correct the place named; docs/formats/policy.md lists what each field takes.";
        RANGE = "policy.empty_range", Invalid,
            "A condition of a policy bundle is empty or contradicts itself, so it could never hold.",
            "Give at_least, at_most or both, the first not above the second; leave out a condition that is not meant.";
        DUPLICATE = "policy.duplicate", Invalid,
            "Something stands twice in a policy bundle.",
            "Give every rule its own id, and name each thing once.";
        TOO_MANY = "policy.too_many", Invalid,
            "A policy bundle has more rules, caps or names in a list than the limit.",
            "Join rules that do the same; put what is common into one rule.";
        GUARDIAN = "policy.guardian", Invalid,
            "A rule needs a guardian but names no key, or names a key that it does not need.",
            "Give guardian_key with the action guardian, and with no other.";
    }
}

/// The version that this program reads.
pub const SCHEMA_VERSION: &str = "guild.policy_bundle.v1";
/// The most bytes of a bundle's text.
pub const MAX_BYTES: usize = 64 * 1024;
/// The most rules of a bundle.
pub const MAX_RULES: usize = 200;
/// The most caps of a bundle, and names in one list of a condition.
pub const MAX_NAMES: usize = 100;
/// The most bytes of a bundle's name.
pub const MAX_NAME_BYTES: usize = 100;
/// The most bytes of a rule's id.
pub const MAX_RULE_ID_BYTES: usize = 64;

typed_id! {
    /// Names a policy bundle by the hash of its canonical form.
    PolicyBundleId = "policy", content;
}

/// How far a provider is trusted, by the tiers from which providers are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Proven: trust of at least 0.8.
    Primary,
    /// Trust from 0.5 to 0.8.
    Secondary,
    /// Trust from 0.3 to 0.5, or not verified yet: every stranger.
    Tertiary,
    /// Trust below 0.3, suspended or blacklisted.
    Untrusted,
}

impl Tier {
    /// All of them.
    pub const ALL: [Tier; 4] = [Tier::Primary, Tier::Secondary, Tier::Tertiary, Tier::Untrusted];

    /// The word in bundles and quotes.
    pub fn as_str(self) -> &'static str {
        match self {
            Tier::Primary => "primary",
            Tier::Secondary => "secondary",
            Tier::Tertiary => "tertiary",
            Tier::Untrusted => "untrusted",
        }
    }

    /// The one with this word.
    pub fn from_word(word: &str) -> Option<Tier> {
        Tier::ALL.into_iter().find(|tier| tier.as_str() == word)
    }
}

/// What is to be paid, as far as a policy looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// How much of what.
    pub amount: Amount,
    /// How far the provider is trusted.
    pub provider_tier: Tier,
    /// The kind of work, if it has a schema.
    pub schema_id: Option<SchemaId>,
    /// What is to move the money.
    pub rail: Rail,
}

/// What becomes of a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It goes through by itself.
    Auto,
    /// This key must approve it before its quote expires.
    Guardian(PublicKey),
    /// It is refused.
    Deny,
}

impl Action {
    /// The word in bundles and quotes.
    pub fn as_str(&self) -> &'static str {
        match self {
            Action::Auto => "auto",
            Action::Guardian(_) => "guardian",
            Action::Deny => "deny",
        }
    }

    /// The key that must approve, if one must.
    pub fn guardian_key(&self) -> Option<&PublicKey> {
        if let Action::Guardian(key) = self { Some(key) } else { None }
    }
}

/// Units from one bound to the other, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// At least so many; 1 if not said.
    pub at_least: Option<i64>,
    /// At most so many; no limit if not said.
    pub at_most: Option<i64>,
}

impl Range {
    const ALL: Range = Range { at_least: None, at_most: None };

    fn least(&self) -> i64 {
        self.at_least.unwrap_or(1)
    }

    fn most(&self) -> i64 {
        self.at_most.unwrap_or(i64::MAX)
    }

    /// Whether so many units are within.
    pub fn holds(&self, units: i64) -> bool {
        (self.least()..=self.most()).contains(&units)
    }

    fn covers(&self, other: &Range) -> bool {
        self.least() <= other.least() && other.most() <= self.most()
    }
}

/// The conditions of a rule. All that are given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct When {
    /// The asset is one of these, and the units are in its range.
    pub amount: Option<BTreeMap<AssetId, Range>>,
    /// The provider is of one of these tiers.
    pub provider_tiers: Option<BTreeSet<Tier>>,
    /// The work has one of these schemas.
    pub schema_ids: Option<BTreeSet<SchemaId>>,
    /// The money moves on one of these rails.
    pub rails: Option<BTreeSet<Rail>>,
}

impl When {
    /// Whether all conditions hold.
    pub fn holds(&self, asked: &Asked) -> bool {
        fn one_of<T: Ord>(wanted: Option<&BTreeSet<T>>, given: Option<&T>) -> bool {
            wanted.is_none_or(|wanted| given.is_some_and(|given| wanted.contains(given)))
        }
        let amount = self.amount.as_ref().is_none_or(|ranges| {
            ranges.get(&asked.amount.asset_id).is_some_and(|range| range.holds(asked.amount.units))
        });
        amount
            && one_of(self.provider_tiers.as_ref(), Some(&asked.provider_tier))
            && one_of(self.schema_ids.as_ref(), asked.schema_id.as_ref())
            && one_of(self.rails.as_ref(), Some(&asked.rail))
    }
}

/// One rule: what happens when its conditions hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Names it within the bundle; a receipt's `approval_rule_id`.
    pub id: String,
    /// Its conditions.
    pub when: When,
    /// What happens.
    pub action: Action,
}

/// A policy bundle that has passed every check. What it says cannot be changed apart from its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    policy_bundle_id: PolicyBundleId,
    canonical: String,
    name: String,
    caps: BTreeMap<AssetId, i64>,
    rules: Vec<Rule>,
}

impl Bundle {
    /// The bundle of a node whose owner has not written one: small payments go through, strangers get less, large
    /// payments are denied.
    pub fn builtin() -> Result<Bundle, guild_protocol::problems::Problems> {
        Bundle::parse(include_bytes!("policy/default.json"))
    }

    /// Its name by its content.
    pub fn policy_bundle_id(&self) -> &PolicyBundleId {
        &self.policy_bundle_id
    }

    /// The canonical JSON whose hash the id carries.
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// What its author calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is allowed of each asset when no rule matches.
    pub fn caps(&self) -> &BTreeMap<AssetId, i64> {
        &self.caps
    }

    /// The rules, in their order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }
}
