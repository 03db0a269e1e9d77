//! Any filters over any events, against a model that looks at every event.

use std::collections::{BTreeMap, BTreeSet};

use guild_protocol::env::Signer;
use guild_protocol::nostr::{Event, EventId, Filter, kind, tag};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::{NOW_S, Scratch, event, key};

const LETTERS: [&str; 3] = ["e", "t", "T"];
const VALUES: [&str; 4] = ["", "a", "b", "a:b"];
const KINDS: [u16; 5] = [0, 1, 5050, 31990, 20_001];

#[derive(Debug, Clone)]
enum Step {
    Event {
        author: u64,
        kind: usize,
        at: u64,
        tags: Vec<(usize, usize)>,
        d: Option<usize>,
        expires: Option<u64>,
    },
    /// Of one of the events before: by id or by address.
    Deletion { author: u64, at: u64, of: usize, by_address: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let tags = proptest::collection::vec((0..LETTERS.len(), 0..VALUES.len()), 0..4);
    let of = |max| proptest::option::weighted(0.3, 0..max);
    let event = (1..4u64, 0..KINDS.len(), 0..6u64, tags, of(VALUES.len() as u64), of(4)).prop_map(
        |(author, kind, at, tags, d, expires)| Step::Event {
            author,
            kind,
            at,
            tags,
            d: d.map(|d| d as usize),
            expires,
        },
    );
    let deletion = (1..4u64, 0..6u64, 0..40usize, any::<bool>())
        .prop_map(|(author, at, of, by_address)| Step::Deletion { author, at, of, by_address });
    prop_oneof![4 => event, 1 => deletion]
}

#[derive(Debug, Clone)]
struct Asked {
    ids: Option<Vec<usize>>,
    authors: Option<BTreeSet<u64>>,
    kinds: Option<BTreeSet<usize>>,
    tags: BTreeMap<usize, BTreeSet<usize>>,
    since: Option<u64>,
    until: Option<u64>,
    limit: Option<u64>,
}

fn asked() -> impl Strategy<Value = Asked> {
    use proptest::collection::{btree_map, btree_set, vec};
    use proptest::option::weighted;
    (
        weighted(0.15, vec(0..40usize, 0..5)),
        weighted(0.3, btree_set(1..5u64, 0..3)),
        weighted(0.3, btree_set(0..KINDS.len(), 0..4)),
        btree_map(0..LETTERS.len(), btree_set(0..VALUES.len(), 0..3), 0..3),
        weighted(0.2, 0..7u64),
        weighted(0.2, 0..7u64),
        weighted(0.3, 0..8u64),
    )
        .prop_map(|(ids, authors, kinds, tags, since, until, limit)| Asked {
            ids,
            authors,
            kinds,
            tags,
            since,
            until,
            limit,
        })
}

impl Asked {
    fn filter(&self, events: &[Event]) -> Filter {
        let id = |n: &usize| events.get(*n).map(|event| event.id);
        let mut filter = Filter {
            ids: self.ids.as_ref().map(|ids| ids.iter().filter_map(id).collect()),
            authors: self
                .authors
                .as_ref()
                .map(|a| a.iter().map(|n| key(*n).public_key()).collect()),
            kinds: self.kinds.as_ref().map(|kinds| kinds.iter().map(|n| KINDS[*n]).collect()),
            since: self.since.map(|at| NOW_S + at),
            until: self.until.map(|at| NOW_S + at),
            limit: self.limit,
            ..Filter::default()
        };
        for (letter, values) in &self.tags {
            let letter = LETTERS[*letter].chars().next().unwrap();
            filter = filter.tag(letter, values.iter().map(|n| VALUES[*n]));
        }
        filter
    }
}

fn events_of(steps: &[Step]) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for (n, step) in steps.iter().enumerate() {
        let made = match step {
            Step::Event { author, kind, at, tags, d, expires } => {
                let expires = expires.map(|at| (NOW_S + at).to_string());
                let mut all: Vec<Vec<&str>> =
                    tags.iter().map(|(l, v)| vec![LETTERS[*l], VALUES[*v]]).collect();
                all.extend(d.map(|d| vec!["d", VALUES[d]]));
                all.extend(expires.as_deref().map(|at| vec!["expiration", at]));
                let all: Vec<&[&str]> = all.iter().map(Vec::as_slice).collect();
                event(*author, KINDS[*kind], NOW_S + at, &all, &n.to_string())
            }
            Step::Deletion { author, at, of, by_address } => {
                let target = events.get(*of);
                let named = target.map_or_else(String::new, |target| {
                    if *by_address { address(target) } else { target.id.hex() }
                });
                let letter = if *by_address { "a" } else { "e" };
                event(*author, kind::DELETION, NOW_S + at, &[&[letter, &named]], &n.to_string())
            }
        };
        events.push(made);
    }
    events
}

fn address(event: &Event) -> String {
    let d = if kind::is_addressable(event.kind) { event.tag("d").unwrap_or_default() } else { "" };
    format!("{}:{}:{d}", event.kind, event.pubkey.hex())
}

fn is_versioned(event: &Event) -> bool {
    kind::is_addressable(event.kind) || kind::is_replaceable(event.kind)
}

/// What should be there: by looking at all pairs of events.
fn kept(events: &[Event]) -> Vec<Event> {
    let mut there: Vec<&Event> = Vec::new();
    for event in events {
        let expired = tag::value(&event.tags, "expiration")
            .is_some_and(|at| at.parse::<u64>().unwrap() <= NOW_S);
        let is_target = |deletion: &&&Event, event: &Event| {
            deletion.kind == kind::DELETION
                && event.kind != kind::DELETION
                && deletion.pubkey == event.pubkey
                && (deletion.tag("e") == Some(&event.id.hex())
                    || is_versioned(event)
                        && deletion.tag("a") == Some(&address(event))
                        && event.created_at <= deletion.created_at)
        };
        let deleted = there.iter().any(|deletion| is_target(&deletion, event));
        let same = |other: &&Event| is_versioned(event) && address(other) == address(event);
        let rank = |event: &Event| (u64::MAX - event.created_at, event.id);
        let older = there.iter().any(|other| same(other) && rank(other) < rank(event));
        if expired || deleted || older || kind::is_ephemeral(event.kind) || there.contains(&event) {
            continue;
        }
        there.retain(|other| !same(other));
        there.push(event);
        there.retain(|other| !is_target(&&event, other));
    }
    there.into_iter().cloned().collect()
}

fn expected(kept: &[Event], filters: &[Filter], limit_max: usize) -> Vec<EventId> {
    let mut found: BTreeSet<(u64, EventId)> = BTreeSet::new();
    for filter in filters {
        let mut passing: Vec<_> = kept
            .iter()
            .filter(|event| filter.matches(event))
            .map(|event| (u64::MAX - event.created_at, event.id))
            .collect();
        passing.sort();
        let limit = filter.limit.map_or(limit_max, |n| usize::try_from(n).unwrap().min(limit_max));
        found.extend(passing.into_iter().take(limit));
    }
    found.into_iter().map(|(_, id)| id).collect()
}

fn agrees(scratch: &Scratch, cases: u32) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let steps = proptest::collection::vec(step(), 1..40);
    let asked = proptest::collection::vec(proptest::collection::vec(asked(), 1..3), 1..12);
    let all = (steps, asked, 1..6usize, 1..12usize);
    TestRunner::new(config)
        .run(&all, |(steps, asked, group, limit_max)| {
            scratch.clear();
            let events = events_of(&steps);
            for group in events.chunks(group) {
                scratch.put(group);
            }
            let kept = kept(&events);
            prop_assert_eq!(scratch.head().events, kept.len() as i64);
            for asked in &asked {
                let filters: Vec<Filter> = asked.iter().map(|a| a.filter(&events)).collect();
                let found = scratch.query_at(&filters, limit_max, NOW_S);
                let ids: Vec<EventId> = found.iter().map(|stored| stored.event_id).collect();
                prop_assert_eq!(&ids, &expected(&kept, &filters, limit_max), "{:?}", &filters);
                let unlimited: Vec<Filter> =
                    filters.iter().map(|f| Filter { limit: None, ..f.clone() }).collect();
                let count = expected(&kept, &unlimited, usize::MAX).len().min(limit_max);
                prop_assert_eq!(scratch.count(&filters, limit_max), count as u64);
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn any_filters_find_what_a_look_at_every_event_finds_on_sqlite() {
    agrees(&Scratch::sqlite(), 100);
}

#[test]
fn any_filters_find_what_a_look_at_every_event_finds_on_postgres() {
    agrees(&Scratch::postgres(), 12);
}
