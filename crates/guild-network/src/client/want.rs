//! What a node wants to hear from relays.

use std::collections::BTreeSet;

use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Filter, kind, review};

/// One thing that is fetched whole once, and then followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// What it is called in the status of a relay.
    pub name: String,
    /// What passes; without `since`, `until` and `limit`.
    pub filter: Filter,
    /// How far back the first fetch goes; `None` fetches all.
    pub lookback_s: Option<u64>,
    /// How many events are fetched before it rests, if fewer than [`Options`](super::Options) allow.
    pub max_events: Option<u64>,
}

impl Want {
    /// Under what its watermark is kept. Another filter is another want, and begins anew.
    pub(super) fn mark_name(&self) -> String {
        let hash = Hash::of(self.filter.to_json().as_bytes()).to_string();
        let digits = hash.rsplit(':').next().unwrap_or_default();
        format!("{}:{}", self.name, digits.get(..16).unwrap_or_default())
    }
}

/// How far back reviews are fetched: older ones weigh next to nothing.
const REVIEWS_S: u64 = 360 * 24 * 3_600;

/// How far back lists of relays are fetched: who is in use renews its own.
const LISTS_S: u64 = 90 * 24 * 3_600;
/// Everybody on Nostr has a list of relays, and few of them offer work.
const LISTS_MAX: u64 = 5_000;

/// All that the open market needs: who offers work, what is asked for and answered lately, what is said of whom,
/// whatever was ever addressed to one of our keys, and last, with a limit of its own, who is reached where.
///
/// ```
/// # use std::collections::BTreeSet;
/// use guild_network::client::market_wants;
/// let wants = market_wants(&BTreeSet::new(), &BTreeSet::from([5050]), 3_600);
/// let names: Vec<&str> = wants.iter().map(|want| want.name.as_str()).collect();
/// assert_eq!(names, ["providers", "jobs", "withdrawals", "reviews", "labels", "lists"]);
/// ```
pub fn market_wants(
    keys: &BTreeSet<PublicKey>,
    request_kinds: &BTreeSet<u16>,
    lookback_s: u64,
) -> Vec<Want> {
    let results = request_kinds.iter().filter_map(|kind| kind::result_of(*kind));
    let jobs: BTreeSet<u16> =
        request_kinds.iter().copied().chain(results).chain([kind::FEEDBACK]).collect();
    let want = |name: &str, filter, lookback_s| {
        let name = name.to_owned();
        Want { name, filter, lookback_s, max_events: None }
    };
    let providers = [kind::ANNOUNCEMENT, kind::RECOMMENDATION, kind::HEARTBEAT];
    let reviews = [kind::REVIEW, kind::REPLACEABLE_REVIEW];
    let withdrawn = request_kinds.iter().copied().chain([kind::ANNOUNCEMENT]).chain(reviews);
    let labels = Filter::kinds([kind::LABEL]).tag('L', [review::NAMESPACE.to_owned()]);
    let withdrawn = withdrawn.map(|kind| kind.to_string());
    let mut wants = vec![
        want("providers", Filter::kinds(providers), None),
        want("jobs", Filter::kinds(jobs.iter().copied()), Some(lookback_s)),
        want("withdrawals", Filter::kinds([kind::DELETION]).tag('k', withdrawn), Some(lookback_s)),
        want("reviews", Filter::kinds(reviews), Some(REVIEWS_S)),
        want("labels", labels, Some(REVIEWS_S)),
        Want {
            max_events: Some(LISTS_MAX),
            ..want("lists", Filter::kinds([kind::RELAY_LIST]), Some(LISTS_S))
        },
    ];
    if !keys.is_empty() {
        // Labels: a dispute is told so.
        let kinds = jobs.into_iter().chain([kind::APP_DATA, kind::DELETION, kind::LABEL]);
        let ours = Filter::kinds(kinds).tag('p', keys.iter().map(PublicKey::hex));
        wants.insert(1, want("inbox", ours, None));
    }
    wants
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_filter_has_another_watermark() {
        let wants = |kind| market_wants(&BTreeSet::new(), &BTreeSet::from([kind]), 1);
        let names = |kind| wants(kind).iter().map(Want::mark_name).collect::<Vec<_>>();
        let (a, b) = (names(5000), names(5050));
        assert_eq!(a[0], b[0], "providers do not depend on it");
        assert_ne!(a[1], b[1]);
        assert_eq!(a[0].len(), "providers:".len() + 16);
    }
}
