//! The registry and its rows, on both databases: what a later life, or another process, makes of them.

use std::collections::BTreeSet;

use guild_market::discovery::{self, Follower, Health, Options, State};
use guild_network::archive::{self, Verified};
use guild_protocol::env::Signer;
use guild_protocol::nostr::announcement::{Announcement, KindNames};
use guild_protocol::nostr::{Draft, unix_s};

use crate::world::{Node, T0, both, key};

const DAY_MS: i64 = 24 * 3_600_000;

/// Somebody announces kinds of work.
fn announce(node: &Node, n: u8, d: &str, kinds: &[&str], at_ms: i64) {
    announce_with(node, n, d, kinds, None, at_ms);
}

fn announce_with(node: &Node, n: u8, d: &str, kinds: &[&str], named: Option<&[&str]>, at_ms: i64) {
    let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut card = Announcement::new(d);
    card.kinds = words(kinds);
    card.content.supported_kinds = named.map(|named| KindNames(words(named)));
    let event = card.draft(unix_s(at_ms)).unwrap().sign(&key(n)).unwrap();
    let event = Verified::check(event).unwrap();
    node.write(move |tx| {
        archive::put(tx, std::slice::from_ref(&event), "ws://relay.example", at_ms)?;
        Ok(())
    })
    .unwrap();
}

fn open(node: &Node, options: &Options, now_ms: i64) -> Follower {
    let options = options.clone();
    node.read(move |rx| discovery::open(rx, options.clone(), &BTreeSet::new(), now_ms))
}

/// Brings a registry to the end of the archive, and writes what follows.
fn follow(node: &Node, follower: &mut Follower, now_ms: i64) {
    loop {
        let seq = follower.seq();
        let page = node.read(move |rx| discovery::look(rx, seq));
        follower.apply(&page, now_ms);
        if page.is_last {
            break;
        }
    }
    let place = follower.place();
    let signs = node.read(move |rx| discovery::signs(rx, &place, now_ms));
    follower.tick(&signs, now_ms);
    let saved = follower.take_saved();
    node.write(move |tx| discovery::save(tx, &saved, now_ms)).unwrap();
}

/// Time passes in which relays bring something all the time, though of nobody here.
fn pass(node: &Node, follower: &mut Follower, to_ms: i64) {
    for at_ms in [to_ms - 1_600_000, to_ms - 1_200_000, to_ms - 800_000, to_ms - 400_000] {
        let tags = Vec::new();
        let draft = Draft { kind: 1, created_at: unix_s(at_ms), tags, content: String::new() };
        let event = Verified::check(draft.sign(&key(9)).unwrap()).unwrap();
        node.write(move |tx| {
            archive::put(tx, std::slice::from_ref(&event), "ws://relay.example", at_ms)?;
            Ok(())
        })
        .unwrap();
        follow(node, follower, at_ms);
    }
    follow(node, follower, to_ms);
}

fn health(node: &Node) -> Health {
    node.read(|rx| discovery::health(rx, 9))
}

/// What a registry says of everybody.
fn said(follower: &Follower) -> Vec<String> {
    let registry = follower.registry();
    assert_eq!(registry.problems(), Vec::<String>::new());
    let one = |entry: &discovery::Entry| {
        let claims: Vec<String> =
            entry.card.claims.iter().map(|(claim, _)| claim.to_string()).collect();
        let (d, life) = (&entry.card.d, entry.life);
        let (state, versions) = (entry.state, entry.versions);
        format!(
            "{} {d} {versions} {state:?} {} {} {claims:?}",
            entry.card.provider, entry.seen_ms, life.is_live
        )
    };
    registry.iter().map(one).collect()
}

#[test]
fn a_later_life_knows_what_the_earlier_one_knew() {
    both(|node| {
        let options = Options::default();
        let mut first = open(node, &options, T0);
        announce(node, 1, "a", &["5000"], T0);
        announce(node, 2, "b", &["5001", "5004"], T0);
        follow(node, &mut first, T0);
        announce(node, 1, "a", &["5002"], T0 + 1_000);
        follow(node, &mut first, T0 + 1_000);
        announce(node, 3, "c", &["5003"], T0 + 2_000);
        follow(node, &mut first, T0 + 2_000);
        assert_eq!(first.registry().get(&key(1).public_key(), "a").unwrap().versions, 2);
        let later = open(node, &options, T0 + 2_000);
        assert_eq!(said(&later), said(&first));
        assert_eq!(said(&later).len(), 3);
        // All go silent, and then are not seen for long.
        for (at_ms, states) in
            [(T0 + DAY_MS, State::Listed), (T0 + 31 * DAY_MS, State::Quarantined)]
        {
            pass(node, &mut first, at_ms);
            let later = open(node, &options, at_ms);
            assert_eq!(said(&later), said(&first));
            assert!(
                first.registry().iter().all(|entry| entry.state == states && !entry.life.is_live)
            );
        }
        // The archived have been quarantined for as long as the rows say.
        pass(node, &mut first, T0 + 60 * DAY_MS);
        let mut later = open(node, &options, T0 + 60 * DAY_MS);
        pass(node, &mut later, T0 + 92 * DAY_MS);
        assert!(later.registry().iter().all(|entry| entry.state == State::Archived));
        // One comes back.
        announce(node, 2, "b", &["5001"], T0 + 93 * DAY_MS);
        follow(node, &mut later, T0 + 93 * DAY_MS);
        let back = later.registry().get(&key(2).public_key(), "b").unwrap();
        assert_eq!((back.state, back.versions), (State::Listed, 2));
    });
}

#[test]
fn what_several_processes_see_is_counted_once() {
    both(|node| {
        let options = Options { offers_per_key: 1, ..Options::default() };
        let (mut one, mut other) = (open(node, &options, T0), open(node, &options, T0));
        for n in 0..7 {
            announce(node, 1, &format!("d{n}"), &["5000"], T0);
        }
        announce(node, 2, "e", &["1"], T0);
        announce_with(node, 3, "f", &["5000"], Some(&["5001"]), T0);
        follow(node, &mut one, T0);
        follow(node, &mut other, T0);
        assert_eq!(said(&one), said(&other));
        let seen = health(node);
        let counts: Vec<(&str, i64)> =
            seen.counts.iter().map(|one| (one.what.as_str(), one.count)).collect();
        assert_eq!(counts, [("no_work", 1), ("per_key", 6)]);
        assert_eq!((seen.loud.len(), seen.discrepancies), (1, 2));
        assert_eq!(seen.loud.first().unwrap().refused, 6);
        // The one that was quicker ends, and the other goes on counting.
        drop(one);
        announce(node, 2, "g", &["1"], T0 + 1_000);
        follow(node, &mut other, T0 + 1_000);
        let seen = health(node);
        assert_eq!(seen.counts.first().map(|one| one.count), Some(2));
        assert_eq!(said(&open(node, &options, T0 + 1_000)), said(&other));
    });
}

#[test]
fn what_is_of_no_use_any_more_is_forgotten() {
    both(|node| {
        let options = Options::default();
        let mut first = open(node, &options, T0);
        announce(node, 1, "a", &["5000"], T0);
        follow(node, &mut first, T0);
        announce(node, 1, "a", &["5001"], T0 + 1_000);
        follow(node, &mut first, T0 + 1_000);
        let marks = || {
            node.read(|rx| Ok(rx.first::<(i64,)>("SELECT count(*) FROM market_offer_mark", &[])?))
                .unwrap()
                .0
        };
        assert_eq!(marks(), 1);
        node.write(|tx| discovery::sweep(tx, T0 + 300 * DAY_MS)).unwrap();
        assert_eq!(marks(), 1);
        node.write(|tx| discovery::sweep(tx, T0 + 366 * DAY_MS)).unwrap();
        assert_eq!(marks(), 0);
    });
}
