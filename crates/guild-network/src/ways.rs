//! Where a request to a provider goes, and why: what was observed of earlier requests, then what the provider says,
//! then where it was seen, then what is near.

use std::collections::BTreeMap;

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Event, Filter, kind, unix_s};
use guild_store::{Rx, args};
use serde::Serialize;

use crate::client::relay_url;
use crate::client::tier::Tier;
use crate::delivery::{self, Quality};
use crate::roster::{self, Known};
use crate::{Result, archive, index};

/// So many relays of one sort are looked at: a stranger may name any number.
const NAMED_MAX: usize = 8;
/// So many relays that are only near are offered, and only if nothing else is known.
const NEAR_MAX: usize = 2;
/// From this score on what was observed goes first, and below that one it goes last.
const GOOD_MILLI: i64 = 600;
const BAD_MILLI: i64 = 400;

/// A provider's own list of relays (NIP-65). Without a word behind it a relay is for both.
///
/// ```
/// # use guild_protocol::{identity::SecretKey, nostr::Draft};
/// use guild_network::ways::RelayList;
/// # let key: SecretKey = format!("{:064x}", 1).parse().unwrap();
/// # let tag = |items: &[&str]| items.iter().map(|&item| item.to_owned()).collect::<Vec<_>>();
/// let tags = vec![
///     tag(&["r", "wss://Both.example/"]),
///     tag(&["r", "wss://in.example", "read"]),
///     tag(&["r", "wss://out.example", "write"]),
///     tag(&["r", "rubbish"]),
/// ];
/// let event = Draft { kind: 10002, created_at: 1, tags, content: String::new() }.sign(&key).unwrap();
/// let list = RelayList::of(&event);
/// assert_eq!(list.read, ["wss://both.example", "wss://in.example"]);
/// assert_eq!(list.write, ["wss://both.example", "wss://out.example"]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RelayList {
    /// Where it reads: what is for it goes there.
    pub read: Vec<String>,
    /// Where it writes: what it says is found there.
    pub write: Vec<String>,
}

impl RelayList {
    /// What an event of kind 10002 says; of each sort the first few that are relays.
    pub fn of(event: &Event) -> RelayList {
        let mut list = RelayList::default();
        let named = event.tags.iter().filter(|tag| tag.first().is_some_and(|name| name == "r"));
        for tag in named {
            let Some(url) = tag.get(1).and_then(|url| relay_url(url).ok()) else { continue };
            let word = tag.get(2).map_or("", String::as_str);
            for (sort, other) in [(&mut list.read, "write"), (&mut list.write, "read")] {
                if word != other && sort.len() < NAMED_MAX && !sort.contains(&url) {
                    sort.push(url.clone());
                }
            }
        }
        list
    }
}

/// The newest list of relays of somebody, if the archive has one.
pub fn relay_list(rx: &mut Rx<'_>, key: &PublicKey, now_ms: UnixMs) -> Result<Option<RelayList>> {
    let filter = Filter {
        authors: Some([*key].into()),
        limit: Some(1),
        ..Filter::kinds([kind::RELAY_LIST])
    };
    let found = archive::query(rx, std::slice::from_ref(&filter), 1, unix_s(now_ms))?;
    let Some(stored) = found.into_iter().next() else { return Ok(None) };
    Ok(Some(RelayList::of(&archive::parse(&stored.json)?)))
}

/// Why a relay is a way to a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Earlier requests arrived there.
    Delivered,
    /// Its announcement names it.
    Announced,
    /// Its list of relays says that it reads there.
    Listed,
    /// Its announcement came from there.
    Seen,
    /// It is near, and nothing better is known.
    Near,
    /// Earlier requests did not arrive there.
    Undelivered,
    /// The relay is banned.
    Banned,
}

impl Reason {
    /// As it is shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Delivered => "earlier requests arrived there",
            Reason::Announced => "its announcement names it",
            Reason::Listed => "its list of relays says that it reads there",
            Reason::Seen => "its announcement came from there",
            Reason::Near => "it is near, and nothing better is known",
            Reason::Undelivered => "earlier requests did not arrive there",
            Reason::Banned => "the relay is banned",
        }
    }
}

/// A relay by which a provider can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Way {
    /// The relay.
    pub relay: String,
    /// Why it stands where it stands.
    pub reason: Reason,
    /// What was observed, if anything was.
    pub quality: Option<Quality>,
    /// How long connecting takes, if that was measured.
    pub latency_ms: Option<i64>,
}

/// What is known about the ways to a provider.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Facts {
    announced: Vec<String>,
    listed: Vec<String>,
    seen: Vec<String>,
    near: Vec<String>,
    qualities: BTreeMap<String, Quality>,
    latencies: BTreeMap<String, i64>,
    banned: Vec<String>,
}

/// All ways to a provider, the best first.
pub fn ways(rx: &mut Rx<'_>, provider: &PublicKey, now_ms: UnixMs) -> Result<Vec<Way>> {
    let mut facts = Facts::default();
    for offer in index::provider(rx, provider)?.iter().take(NAMED_MAX) {
        let named = offer.card.relays.iter().filter_map(|url| relay_url(url).ok());
        facts.announced.extend(named.take(NAMED_MAX));
    }
    facts.announced.truncate(NAMED_MAX);
    facts.listed = relay_list(rx, provider, now_ms)?.unwrap_or_default().read;
    let seen: Vec<(String,)> = rx.all(
        "SELECT e.origin FROM index_provider p JOIN nostr_event e ON e.seq = p.seq
         WHERE p.pubkey_key = $1 AND p.pubkey = $2 ORDER BY p.seq DESC LIMIT $3",
        args![
            archive::pubkey_key(provider),
            &provider.hex(),
            i64::try_from(NAMED_MAX).unwrap_or(8)
        ],
    )?;
    facts.seen = seen.into_iter().filter_map(|(origin,)| relay_url(&origin).ok()).collect();
    facts.qualities = delivery::of_provider(rx, provider, now_ms)?.into_iter().collect();
    for known in near(rx)? {
        facts.near.push(known.relay);
    }
    let named: Vec<String> = facts.all().cloned().collect();
    for relay in named {
        let Some(known) = roster::get(rx, &relay)? else { continue };
        if known.standing.is_banned(now_ms) {
            facts.banned.push(relay.clone());
        }
        if let Some(latency_ms) = known.standing.latency_ms {
            facts.latencies.insert(relay, latency_ms);
        }
    }
    Ok(ranked(&facts))
}

/// The relays of those ways that may be gone, in their order.
pub fn open(ways: &[Way]) -> impl Iterator<Item = &str> {
    ways.iter().filter(|way| way.reason != Reason::Banned).map(|way| way.relay.as_str())
}

/// The relays that strangers named and that are followed closely, the nearest first.
fn near(rx: &mut Rx<'_>) -> Result<Vec<Known>> {
    let mut near: Vec<Known> = Vec::new();
    for tier in [Tier::Live, Tier::Polled] {
        near.extend(roster::list(rx, Some(tier))?);
    }
    near.retain(|known| {
        let is_well = known.standing.latency_ms.is_some() && known.tally.failures_in_row == 0;
        is_well && known.source.is_strange()
    });
    near.sort_by_key(|known| known.standing.latency_ms);
    near.truncate(NEAR_MAX);
    Ok(near)
}

impl Facts {
    fn all(&self) -> impl Iterator<Item = &String> {
        let said = self.announced.iter().chain(&self.listed).chain(&self.seen);
        said.chain(&self.near).chain(self.qualities.keys())
    }

    /// What is said of a relay, and at which place.
    fn said(&self, relay: &str) -> (Reason, usize) {
        let sorts = [
            (Reason::Announced, &self.announced),
            (Reason::Listed, &self.listed),
            (Reason::Seen, &self.seen),
        ];
        let place = |list: &Vec<String>| list.iter().position(|one| one == relay);
        let found = sorts.into_iter().find_map(|(reason, list)| Some((reason, place(list)?)));
        found.unwrap_or((Reason::Near, 0))
    }
}

fn ranked(facts: &Facts) -> Vec<Way> {
    let has_hint =
        !(facts.announced.is_empty() && facts.listed.is_empty() && facts.seen.is_empty());
    let mut found: BTreeMap<&String, (Reason, i64, usize)> = BTreeMap::new();
    for relay in facts.all() {
        let (said, place) = facts.said(relay);
        let quality = facts.qualities.get(relay).filter(|quality| quality.is_enough());
        let score = quality.map_or(0, Quality::score_milli);
        let reason = match quality {
            _ if facts.banned.contains(relay) => Reason::Banned,
            Some(_) if score >= GOOD_MILLI => Reason::Delivered,
            Some(_) if score < BAD_MILLI => Reason::Undelivered,
            // What is neither here nor there, and named by nobody, is no better than what is near.
            _ if said == Reason::Near && has_hint => continue,
            _ => said,
        };
        let score = if reason == Reason::Delivered { score } else { 0 };
        found.insert(relay, (reason, score, place));
    }
    let way = |(relay, (reason, score, place)): (&String, (Reason, i64, usize))| {
        let latency_ms = facts.latencies.get(relay).copied();
        let rank = (reason, -score, place, latency_ms.unwrap_or(i64::MAX));
        let quality = facts.qualities.get(relay).cloned();
        (rank, Way { relay: relay.clone(), reason, quality, latency_ms })
    };
    let mut ways: Vec<_> = found.into_iter().map(way).collect();
    ways.sort_by_key(|(rank, _)| *rank);
    ways.into_iter().map(|(_, way)| way).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| format!("wss://{name}.example")).collect()
    }

    fn order(facts: &Facts) -> Vec<(String, Reason)> {
        let name = |way: Way| {
            let name = way.relay.replace("wss://", "").replace(".example", "");
            (name, way.reason)
        };
        ranked(facts).into_iter().map(name).collect()
    }

    fn quality(answered: i64, unanswered: i64) -> Quality {
        Quality { answered: answered * 1_000, unanswered: unanswered * 1_000, ..Quality::default() }
    }

    #[test]
    fn hints_stand_in_their_order_and_what_was_observed_overrides_them() {
        let mut facts = Facts {
            announced: urls(&["a2", "a1"]),
            listed: urls(&["l", "a1"]),
            seen: urls(&["s"]),
            near: urls(&["n"]),
            ..Facts::default()
        };
        let said = |name: &str, reason| (name.to_owned(), reason);
        assert_eq!(
            order(&facts),
            [
                said("a2", Reason::Announced),
                said("a1", Reason::Announced),
                said("l", Reason::Listed),
                said("s", Reason::Seen),
            ]
        );
        let [a2, s, x] = ["a2", "s", "x"].map(|name| format!("wss://{name}.example"));
        facts.qualities = BTreeMap::from([(a2.clone(), quality(0, 2)), (s.clone(), quality(2, 0))]);
        assert_eq!(order(&facts)[0].0, "a2", "two observations are not enough");
        facts.qualities =
            BTreeMap::from([(a2.clone(), quality(0, 5)), (s, quality(5, 0)), (x, quality(9, 0))]);
        assert_eq!(
            order(&facts),
            [
                said("x", Reason::Delivered),
                said("s", Reason::Delivered),
                said("a1", Reason::Announced),
                said("l", Reason::Listed),
                said("a2", Reason::Undelivered),
            ]
        );
        facts.banned = vec![a2];
        assert_eq!(order(&facts).last(), Some(&said("a2", Reason::Banned)));
    }

    #[test]
    fn without_any_hint_what_is_near_is_tried() {
        let facts = Facts {
            near: urls(&["far", "close"]),
            latencies: BTreeMap::from([
                ("wss://far.example".to_owned(), 900),
                ("wss://close.example".to_owned(), 9),
            ]),
            ..Facts::default()
        };
        let near = |name: &str| (name.to_owned(), Reason::Near);
        assert_eq!(order(&facts), [near("close"), near("far")]);
    }
}
