use std::collections::{BTreeMap, BTreeSet};

use guild_network::index::Announced;
use guild_protocol::env::{Signer, UnixMs};
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::nostr::EventId;
use guild_protocol::nostr::announcement::{Announcement, Performance};
use proptest::prelude::*;

use super::*;
use crate::discovery::{Footing, How, Standing, Wanted};

const T0: UnixMs = 1_800_000_000_000;

fn who(n: u64) -> PublicKey {
    format!("{:064x}", n + 1).parse::<SecretKey>().unwrap().public_key()
}

/// An announcement of somebody, the `seq`th that came.
fn card(n: u64, d: &str, seq: i64, kinds: &[&str]) -> Card {
    card_with(
        n,
        seq,
        Announcement {
            kinds: kinds.iter().map(|k| (*k).to_owned()).collect(),
            ..Announcement::new(d)
        },
    )
}

fn card_with(n: u64, seq: i64, card: Announcement) -> Card {
    let announced = Announced {
        seq,
        event_id: format!("{seq:064x}").parse::<EventId>().unwrap(),
        pubkey: who(n),
        created_at: 1_800_000_000 + u64::try_from(seq).unwrap(),
        origin: "wss://a.example".into(),
        first_ms: T0,
        received_ms: T0,
        card: Ok(std::sync::Arc::new(card.clone())),
    };
    Card::of(&announced, &card)
}

fn registry(options: Options) -> Registry {
    Registry::new(options)
}

fn found(registry: &Registry, task: &str) -> Vec<(u64, How)> {
    let wanted = Wanted { task, live_only: false, least_bp: 0, limit: 100 };
    let n = |key: PublicKey| (0..100).find(|n| who(*n) == key).unwrap();
    let found = registry.find(&wanted, T0);
    found.into_iter().map(|one| (n(one.provider), one.how)).collect()
}

#[test]
fn the_newest_version_is_kept_and_versions_are_counted() {
    let mut registry = registry(Options::default());
    assert_eq!(registry.take(card(1, "A", 5, &["5000"]), None, false, T0), Taken::New);
    assert_eq!(registry.take(card(1, "A", 4, &["5001"]), None, false, T0), Taken::Known);
    assert_eq!(registry.take(card(1, "A", 6, &["5002"]), None, false, T0), Taken::Newer);
    // Another case is another offer.
    assert_eq!(registry.take(card(1, "a", 7, &["5003"]), None, false, T0), Taken::New);
    let entry = registry.get(&who(1), "A").unwrap();
    assert_eq!((entry.versions, entry.card.seq), (2, 6));
    // Of two made in one second the one with the lower id.
    let mut twin = card(1, "A", 6, &["5004"]);
    twin.event_id = format!("{:064x}", 7).parse().unwrap();
    assert_eq!(registry.take(twin.clone(), None, false, T0), Taken::Known);
    twin.event_id = format!("{:064x}", 1).parse().unwrap();
    assert_eq!(registry.take(twin, None, false, T0), Taken::Newer);
    assert_eq!(registry.of(&who(1)).count(), 2);
    // One that offers nothing any more is gone.
    let gone = registry.take(card(1, "a", 9, &["1"]), None, false, T0);
    assert_eq!((gone, registry.len()), (Taken::Refused(Why::NoWork), 1));
    assert_eq!(registry.problems(), Vec::<String>::new());
}

#[test]
fn names_that_look_the_same_are_shown_with_their_key() {
    let mut registry = registry(Options::default());
    let (honest, thief) =
        (card(1, "fast-box", 1, &["5000"]), card(2, "f\u{430}st b\u{43e}x", 2, &["5000"]));
    registry.take(honest.clone(), None, false, T0);
    assert_eq!(registry.shown(&honest), "fast-box");
    registry.take(thief.clone(), None, false, T0);
    assert!(registry.is_shared(&honest) && registry.is_shared(&thief));
    assert!(
        registry.shown(&honest).starts_with("npub1")
            && registry.shown(&honest).ends_with("/fast-box")
    );
    assert_ne!(registry.shown(&honest), registry.shown(&thief));
    assert_eq!(registry.summary(T0).collisions, 1);
    assert!(registry.withdraw(&(who(2), thief.d)));
    assert_eq!(
        (registry.shown(&honest).as_str(), registry.summary(T0).collisions),
        ("fast-box", 0)
    );
    assert_eq!(registry.problems(), Vec::<String>::new());
}

#[test]
fn who_is_not_seen_is_quarantined_archived_and_taken_back() {
    let options = Options::default();
    let (day, gone) = (24 * 3_600_000, options.quarantine_ms);
    let mut registry = registry(options);
    registry.take(card(1, "a", 1, &["5000"]), None, false, T0);
    let state = |registry: &Registry| registry.get(&who(1), "a").unwrap().state;
    assert_eq!((registry.tick(T0 + gone), state(&registry)), (0, State::Listed));
    assert_eq!((registry.tick(T0 + gone + 1), state(&registry)), (1, State::Quarantined));
    assert!(found(&registry, "5000").is_empty());
    assert_eq!((registry.tick(T0 + gone + 60 * day), state(&registry)), (0, State::Quarantined));
    assert_eq!((registry.tick(T0 + gone + 60 * day + 2), state(&registry)), (1, State::Archived));
    registry.hear(&who(1), "", T0 + 100 * day, T0 + 100 * day);
    assert_eq!((registry.tick(T0 + 100 * day), state(&registry)), (1, State::Listed));
    assert_eq!(found(&registry, "5000").len(), 1);
    // What a later life knows of it.
    let marks = registry.take_dirty();
    assert_eq!(marks.len(), 1);
    let (name, mark) = marks.first().unwrap();
    assert_eq!((&*name.1, mark.state, mark.seen_ms), ("a", State::Listed, T0 + 100 * day));
    assert!(registry.take_dirty().is_empty());
}

#[test]
fn a_flood_takes_the_places_of_nobody_else() {
    let options =
        Options { new_per_hour: 10, offers_per_key: 3, entries_max: 25, ..Options::default() };
    let mut registry = registry(options);
    for n in 0..20 {
        for d in 0..5 {
            registry.take(
                card(n, &format!("{d}"), i64::try_from(n * 5 + d).unwrap(), &["5000"]),
                None,
                false,
                T0,
            );
        }
    }
    // Ten places of this relay in this hour: three keys with three offers, and one with one.
    assert_eq!((registry.len(), registry.take_loud().len()), (10, 20));
    // Another relay has places of its own, another hour too, and whoever is recommended needs none.
    let mut other = card(30, "x", 900, &["5000"]);
    other.origin = "wss://b.example".into();
    assert_eq!(registry.take(other, None, false, T0), Taken::New);
    let late = card(31, "x", 901, &["5000"]);
    assert_eq!(registry.take(late.clone(), None, false, T0), Taken::Refused(Why::Budget));
    assert_eq!(registry.take(late, None, true, T0 + 3_600_000), Taken::New);
    assert_eq!(registry.take_dirty().len(), 1, "a row must tell that it was let in");
    registry.set_recommended(&BTreeMap::from([(who(32), BTreeSet::from([who(50)]))]));
    assert_eq!(registry.take(card(32, "x", 902, &["5000"]), None, false, T0), Taken::New);
    // Full: a stranger has no place, and whoever is recommended takes that of one who was never heard.
    for n in 60..72 {
        let mut one = card(n, "x", i64::try_from(1_000 + n).unwrap(), &["5000"]);
        one.origin = "wss://c.example".into();
        one.first_ms += 3_600_000 * i64::try_from(n % 2).unwrap();
        assert_eq!(registry.take(one, None, false, T0), Taken::New, "{n}");
    }
    let mut one = card(80, "x", 2_000, &["5000"]);
    one.origin = "wss://d.example".into();
    assert_eq!(registry.take(one.clone(), None, false, T0), Taken::Refused(Why::Full));
    registry.set_recommended(&BTreeMap::from([(who(80), BTreeSet::from([who(50)]))]));
    assert_eq!(registry.take(one, None, false, T0), Taken::New);
    assert_eq!((registry.len(), registry.problems()), (25, Vec::new()));
}

#[test]
fn work_is_matched_by_what_is_said_and_what_is_meant() {
    let mut registry = registry(Options::default());
    registry.take(card(1, "a", 1, &["benchmark-task"]), None, false, T0);
    registry.take(card(2, "a", 2, &["perf-test"]), None, false, T0);
    registry.take(card(3, "a", 3, &["bench*-task"]), None, false, T0);
    registry.take(card(4, "a", 4, &["Benchmark Task"]), None, false, T0);
    registry.take(card(5, "a", 5, &["benchmrk-task"]), None, false, T0);
    let mut fast = Announcement::new("a");
    fast.kinds.push("5000".to_owned());
    let mut told = fast.clone();
    fast.content.performance =
        Some(Performance { typical_latency_ms: Some(9), ..Performance::default() });
    registry.take(card_with(6, 6, fast), None, false, T0);
    told.content.description = Some("We do benchmarking, fast.".to_owned());
    registry.take(card_with(7, 7, told), None, false, T0);
    registry.take(card(8, "a", 8, &["5000"]), None, false, T0);
    registry.take(card(9, "a", 9, &["translate"]), None, false, T0);
    let by = |n: u64| {
        found(&registry, "benchmark-task").into_iter().find(|one| one.0 == n).map(|one| one.1)
    };
    assert_eq!(by(1), Some(How::Exact));
    assert_eq!(by(2), Some(How::Synonym("perf-test".to_owned())));
    assert_eq!(by(3), Some(How::Pattern("bench*-task".to_owned())));
    assert_eq!(by(4), Some(How::Looks("Benchmark Task".to_owned())));
    assert_eq!(by(5), Some(How::Near("benchmrk-task".to_owned())));
    assert_eq!(by(6), Some(How::KindAndPerformance(5000)));
    assert_eq!(by(7), Some(How::KindAndWords(5000)));
    assert_eq!((by(8), by(9)), (None, None));
    let wanted = Wanted { task: "benchmark-task", live_only: false, least_bp: 0, limit: 100 };
    let scores: Vec<u32> = registry.find(&wanted, T0).iter().map(|one| one.score_bp).collect();
    assert_eq!(scores, [10_000, 9_000, 8_000, 8_000, 8_000, 6_000, 6_000]);
    let sure = Wanted { least_bp: 8_000, limit: 4, ..wanted };
    assert_eq!(registry.find(&sure, T0).len(), 4);
    // Versions are not slips of the pen.
    registry.take(card(10, "a", 10, &["oa.embedding.v2"]), None, false, T0);
    assert!(found(&registry, "oa.embedding.v1").is_empty());
    assert_eq!(found(&registry, "5000").len(), 3);
}

#[test]
fn a_claim_that_the_announcement_disputes_is_worth_less() {
    let mut registry = registry(Options::default());
    let mut liar = Announcement::new("a");
    liar.kinds.push("5000".to_owned());
    liar.content.supported_kinds =
        Some(guild_protocol::nostr::announcement::KindNames(vec!["5100".to_owned()]));
    registry.take(card_with(1, 1, liar), None, false, T0);
    registry.take(card(2, "a", 2, &["5000"]), None, false, T0);
    let wanted = Wanted { task: "5000", live_only: false, least_bp: 0, limit: 9 };
    let found = registry.find(&wanted, T0);
    let shown: Vec<(u32, Standing)> =
        found.iter().map(|one| (one.score_bp, one.standing)).collect();
    assert_eq!(shown, [(10_000, Standing::Alone), (9_000, Standing::Disputed)]);
    assert_eq!(registry.summary(T0).disputed, 1);
}

#[test]
fn what_the_matrix_knows_is_compared_with_who_is_there() {
    let mut registry = registry(Options::default());
    registry.take(card(1, "main", 1, &["5050"]), None, false, T0);
    registry.take(card(2, "main", 2, &["translate"]), None, false, T0);
    let task: TaskType = "oa.embedding.v1".parse().unwrap();
    let known = BTreeMap::from([1, 2, 3].map(|n| (who(n), BTreeSet::from([task.clone()]))));
    let live = registry.live(&known);
    let of = |n: u64| live.iter().find(|one| one.provider == who(n)).map(|one| one.tasks.len());
    assert_eq!((of(1), of(2), of(3)), (Some(1), Some(0), None));
    // Benchmarks are asked for by whatever kind somebody announces.
    let task: TaskType = "benchmark-task".parse().unwrap();
    let known = BTreeMap::from([1, 2].map(|n| (who(n), BTreeSet::from([task.clone()]))));
    let live = registry.live(&known);
    let of = |n: u64| live.iter().find(|one| one.provider == who(n)).map(|one| one.tasks.len());
    assert_eq!((of(1), of(2)), (Some(1), Some(0)));
}

#[test]
fn whom_the_matrix_knows_comes_in_over_every_budget_and_stays() {
    let options = Options { new_per_hour: 0, entries_max: 2, ..Options::default() };
    let mut registry = registry(options);
    assert_eq!(
        registry.take(card(1, "a", 1, &["5000"]), None, false, T0),
        Taken::Refused(Why::Budget)
    );
    registry.set_members([who(1), who(2), who(3)].into());
    assert_eq!(registry.missing(None, 9).len(), 3);
    for n in [1, 2] {
        let one = card(n, "a", i64::try_from(n).unwrap(), &["5000"]);
        assert_eq!(registry.take(one, None, true, T0), Taken::New);
    }
    assert_eq!(registry.missing(None, 9), [who(3)]);
    assert_eq!(registry.missing(Some(&who(3)), 9), []);
    // Nobody takes their places, not even who is known too.
    let third = card(3, "a", 3, &["5000"]);
    assert_eq!(registry.take(third, None, true, T0), Taken::Refused(Why::Full));
    assert!(registry.problems().is_empty());
}

const MINUTE_MS: i64 = 60_000;

/// Minutes in which relays bring something, and these give signs.
fn minutes(registry: &mut Registry, from_ms: UnixMs, count: i64, heard: &[u64]) -> UnixMs {
    let end_ms = from_ms + count * MINUTE_MS;
    for minute in 1..=count {
        let now_ms = from_ms + minute * MINUTE_MS;
        registry.received(now_ms, now_ms);
        heard.iter().for_each(|n| registry.hear(&who(*n), "", now_ms, now_ms));
        registry.tick(now_ms);
    }
    end_ms
}

fn four() -> Registry {
    let mut registry = registry(Options::default());
    for n in 1..=4 {
        registry.take(card(n, "a", i64::try_from(n).unwrap(), &["5000"]), None, false, T0);
    }
    registry
}

fn flips(registry: &Registry, now_ms: UnixMs) -> Vec<(bool, u32)> {
    registry.iter().map(|entry| (entry.life.is_live, entry.life.flips(now_ms))).collect()
}

#[test]
fn while_we_are_away_nobody_else_is() {
    let mut registry = four();
    let mut now_ms = minutes(&mut registry, T0, 20, &[1, 2, 3, 4]);
    for _ in 0..3 {
        // All of our relays are away for an hour; we go on looking.
        for _ in 0..120 {
            now_ms += 30_000;
            registry.tick(now_ms);
        }
        // They come back one after the other.
        now_ms = minutes(&mut registry, now_ms, 10, &[1]);
        now_ms = minutes(&mut registry, now_ms, 60, &[1, 2, 3, 4]);
        assert_eq!(flips(&registry, now_ms), [(true, 0); 4]);
    }
    // A process that was stopped hears nothing either, and looks only afterwards.
    now_ms += 40 * 24 * 60 * MINUTE_MS;
    assert_eq!(registry.tick(now_ms), 0);
    now_ms = minutes(&mut registry, now_ms, 20, &[1, 2, 3, 4]);
    assert_eq!(flips(&registry, now_ms), [(true, 0); 4]);
    assert!(registry.iter().all(|entry| entry.state == State::Listed));
}

#[test]
fn whoever_is_silent_while_others_are_heard_has_gone() {
    let mut registry = four();
    let now_ms = minutes(&mut registry, T0, 20, &[1, 2, 3, 4]);
    let now_ms = minutes(&mut registry, now_ms, 16, &[1]);
    // Nobody vouches for them, so that most are silent says nothing.
    let gone = flips(&registry, now_ms);
    assert_eq!(gone.iter().filter(|one| **one == (false, 1)).count(), 3, "{gone:?}");
    assert_eq!(gone.iter().filter(|one| **one == (true, 0)).count(), 1);
}

#[test]
fn most_of_those_who_are_known_do_not_go_together() {
    let mut registry = four();
    registry.set_members([who(1), who(2), who(3)].into());
    let now_ms = minutes(&mut registry, T0, 20, &[1, 2, 3, 4]);
    // The relay by which two of them come is away; strangers are heard by another.
    let now_ms = minutes(&mut registry, now_ms, 40, &[3, 4]);
    let now_ms = minutes(&mut registry, now_ms, 40, &[1, 2, 3, 4]);
    assert_eq!(flips(&registry, now_ms), [(true, 0); 4]);
    // If it lasts, they have gone.
    let now_ms = minutes(&mut registry, now_ms, 80, &[3, 4]);
    let gone = flips(&registry, now_ms);
    assert_eq!(gone.iter().filter(|one| **one == (false, 1)).count(), 2, "{gone:?}");
}

#[test]
fn an_offer_stands_as_its_key_and_its_claim_do() {
    let mut registry = four();
    let stands = |registry: &Registry, n, d, now_ms| registry.footing(&who(n), d, "5000", now_ms);
    assert_eq!(stands(&registry, 1, "a", T0), Footing::Unlisted, "nobody has heard it yet");
    let now_ms = minutes(&mut registry, T0, 2, &[1, 2]);
    assert_eq!(stands(&registry, 1, "a", now_ms), Footing::Sound);
    assert_eq!(stands(&registry, 9, "a", now_ms), Footing::Unlisted, "it was never let in");
    assert_eq!(registry.footing(&who(1), "a", "5001", now_ms), Footing::Unlisted);
    // It comes and goes, and does so under every name.
    let mut now_ms = now_ms;
    for _ in 0..3 {
        now_ms = minutes(&mut registry, now_ms, 20, &[2]);
        now_ms = minutes(&mut registry, now_ms, 14, &[1, 2]);
    }
    registry.take(card(1, "b", 9, &["5000"]), None, false, now_ms);
    for d in ["a", "b", "c"] {
        assert_eq!(stands(&registry, 1, d, now_ms), Footing::Unfit, "{d}");
    }
    assert_eq!(stands(&registry, 2, "a", now_ms), Footing::Sound);
    // Whoever was not seen for a month is not asked.
    let now_ms = now_ms + 31 * 24 * 60 * MINUTE_MS;
    let now_ms = minutes(&mut registry, now_ms, 20, &[1]);
    assert_eq!(stands(&registry, 2, "a", now_ms), Footing::Unfit);
}

#[test]
fn a_registry_that_is_wrong_is_seen_to_be() {
    let mut registry = registry(Options { offers_per_key: 1, ..Options::default() });
    registry.take(card(1, "a", 1, &["5000"]), None, false, T0);
    assert!(registry.problems().is_empty());
    // A bug that lets a second offer of a key in, and forgets its name.
    let planted = Entry::new(card(1, "b", 2, &["5000"]), None);
    registry.offers.entry(who(1)).or_default().insert("b".into(), Box::new(planted));
    registry.count += 1;
    assert_eq!(registry.problems().len(), 2, "{:?}", registry.problems());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn whatever_comes_the_bounds_hold(
        steps in proptest::collection::vec((0_u64..6, 0_u8..5, 0_i64..9, 0_u8..4, 0_i64..5), 1..120)
    ) {
        let options = Options {
            new_per_hour: 6, offers_per_key: 3, entries_max: 9, versions_per_hour: 2, ..Options::default()
        };
        let mut registry = registry(options);
        let mut now_ms = T0;
        for (n, d, seq, what, hours) in steps {
            now_ms += hours * 3_600_000;
            let name = format!("n{d}");
            match what {
                0 | 1 => {
                    let kinds: &[&str] = if seq == 8 { &["1"] } else { &["5000", "compute-*"] };
                    let mut one = card(n, &name, seq, kinds);
                    (one.first_ms, one.came_ms) = (now_ms, now_ms);
                    registry.take(one, None, what == 1, now_ms);
                }
                2 => registry.hear(&who(n), if d == 0 { "" } else { &name }, now_ms, now_ms),
                _ => { registry.tick(now_ms); }
            }
            prop_assert_eq!(registry.problems(), Vec::<String>::new());
            prop_assert!(registry.take_dirty().len() <= 9);
        }
    }
}
