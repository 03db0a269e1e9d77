//! What a bundle says in vain: rules that can never decide anything.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use guild_protocol::amount::AssetId;
use guild_protocol::receipt::Rail;

use super::{Bundle, Range, Tier, When};

/// A rule that can never be the one that decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The rule.
    pub rule_id: String,
    /// Its place in the list, counted from zero.
    pub place: usize,
    /// The earlier rule that takes everything it could match; none if it can match nothing at all.
    pub covered_by: Option<String>,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = &self.rule_id;
        match &self.covered_by {
            Some(earlier) => {
                write!(f, "{id} never decides: all it could match is taken by {earlier}")
            }
            None => write!(f, "{id} never decides: no rail it names moves an asset it names"),
        }
    }
}

/// The rules that can never decide, each with the first earlier rule that covers it. Exact for every pair of rules;
/// what only several earlier rules cover together is not looked for.
pub fn lint(bundle: &Bundle) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut earlier: Vec<(&str, Matched)> = Vec::new();
    for (place, rule) in bundle.rules().iter().enumerate() {
        let matched = Matched::by(&rule.when);
        let covered_by = earlier.iter().find(|(_, other)| other.covers(&matched));
        if covered_by.is_some() || matched.is_empty() {
            let covered_by =
                covered_by.filter(|_| !matched.is_empty()).map(|(id, _)| (*id).to_owned());
            warnings.push(Warning { rule_id: rule.id.clone(), place, covered_by });
        }
        earlier.push((rule.id.as_str(), matched));
    }
    warnings
}

/// What a rule matches: a tier of one set, a schema of another, and an asset with its range and rails.
struct Matched {
    tiers: BTreeSet<Tier>,
    schemas: Option<BTreeSet<String>>,
    assets: Assets,
}

enum Assets {
    /// Every amount of every asset that these rails move.
    Any(BTreeSet<Rail>),
    /// These, each on those of the rule's rails that move it; never without rails.
    Some(BTreeMap<AssetId, (Range, BTreeSet<Rail>)>),
}

impl Matched {
    fn by(when: &When) -> Matched {
        let rails = when
            .rails
            .clone()
            .unwrap_or_else(|| Rail::ALL.iter().copied().collect::<BTreeSet<_>>());
        // Lightning moves one asset only, so "any asset over Lightning" is that asset.
        let lightning = || rails.iter().all(|rail| *rail == Rail::Lightning);
        let ranges = match &when.amount {
            None if lightning() => Some(BTreeMap::from([(AssetId::btc_ln(), Range::ALL)])),
            given => given.clone(),
        };
        let on_its_rails = |(asset_id, range): (AssetId, Range)| {
            let moved_by: BTreeSet<Rail> =
                rails.iter().copied().filter(|rail| rail.carries(&asset_id)).collect();
            (!moved_by.is_empty()).then_some((asset_id, (range, moved_by)))
        };
        let assets = match ranges {
            None => Assets::Any(rails.clone()),
            Some(ranges) => Assets::Some(ranges.into_iter().filter_map(on_its_rails).collect()),
        };
        let ids = |ids: &BTreeSet<_>| ids.iter().map(ToString::to_string).collect();
        Matched {
            tiers: when.provider_tiers.clone().unwrap_or_else(|| Tier::ALL.into()),
            schemas: when.schema_ids.as_ref().map(ids),
            assets,
        }
    }

    fn is_empty(&self) -> bool {
        matches!(&self.assets, Assets::Some(assets) if assets.is_empty())
    }

    /// Whether this matches everything that `other` matches.
    fn covers(&self, other: &Matched) -> bool {
        let schemas = match (&self.schemas, &other.schemas) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(ours), Some(theirs)) => ours.is_superset(theirs),
        };
        schemas && self.tiers.is_superset(&other.tiers) && self.assets.cover(&other.assets)
    }
}

impl Assets {
    fn cover(&self, other: &Assets) -> bool {
        match (self, other) {
            (Assets::Any(ours), Assets::Any(theirs)) => ours.is_superset(theirs),
            (Assets::Any(ours), Assets::Some(theirs)) => {
                theirs.values().all(|(_, rails)| ours.is_superset(rails))
            }
            // There are always assets that a list does not name.
            (Assets::Some(_), Assets::Any(_)) => false,
            (Assets::Some(ours), Assets::Some(theirs)) => theirs.iter().all(|(id, theirs)| {
                ours.get(id)
                    .is_some_and(|ours| ours.0.covers(&theirs.0) && ours.1.is_superset(&theirs.1))
            }),
        }
    }
}
