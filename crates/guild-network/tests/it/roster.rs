//! The relays that are known, how requests fared there, and the ways to a provider, on both databases.

use guild_network::archive::{self, Verified};
use guild_network::client::tier::{Rules, Tier};
use guild_network::delivery::{self, Outcome};
use guild_network::publish::{self, Destinations};
use guild_network::roster::{self, Bounds, Known, Learnt, Look, Source};
use guild_network::ways::{self, Reason, RelayList};
use guild_protocol::env::Signer;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Event, kind};

use crate::support::{NOW_S, Scratch, block_on, both, event, key};

const NOW_MS: i64 = 1_800_000_000_000;

fn somebody(n: u64) -> PublicKey {
    key(n).public_key()
}

fn learn(scratch: &Scratch, url: &str, n: u64, bounds: &Bounds) -> Learnt {
    let (url, bounds) = (url.to_owned(), bounds.clone());
    let write = scratch
        .store
        .write(move |tx| roster::learn(tx, &url, Source::Hint, &somebody(n), &bounds, NOW_MS));
    block_on(write).unwrap()
}

fn configure(scratch: &Scratch, live: &[&str], polled: &[&str]) {
    let own = |urls: &[&str]| urls.iter().map(|&url| url.to_owned()).collect::<Vec<_>>();
    let (live, polled) = (own(live), own(polled));
    let write = scratch.store.write(move |tx| roster::configure(tx, &live, &polled, NOW_MS));
    block_on(write).unwrap();
}

fn list(scratch: &Scratch) -> Vec<Known> {
    block_on(scratch.store.read(|rx| roster::list(rx, None))).unwrap()
}

fn names(scratch: &Scratch) -> Vec<(String, Tier)> {
    list(scratch).into_iter().map(|one| (one.relay, one.standing.tier)).collect()
}

fn settle(scratch: &Scratch, relay: &'static str, look: Look, now_ms: i64) -> Option<Known> {
    let write = scratch.store.write(move |tx| {
        let (bounds, rules) = (Bounds::default(), Rules::default());
        roster::settle(tx, relay, &look, (&bounds, &rules), (now_ms, now_ms + 300_000))
    });
    block_on(write).unwrap()
}

fn failed() -> Look {
    Look { error: Some("refused".to_owned()), ..Look::default() }
}

#[test]
fn what_the_settings_say_is_known_and_what_they_say_no_more_is_a_strangers() {
    both(|scratch| {
        configure(scratch, &["wss://A.example/"], &["wss://b.example", "wss://a.example"]);
        let is = |name: &str, tier| (format!("wss://{name}.example"), tier);
        assert_eq!(names(scratch), [is("a", Tier::Live), is("b", Tier::Polled)]);
        for now_ms in 0..200 {
            settle(scratch, "wss://a.example", failed(), now_ms);
            settle(scratch, "wss://b.example", failed(), now_ms);
        }
        assert_eq!(names(scratch), [is("a", Tier::Live), is("b", Tier::Polled)]);
        let b = &list(scratch)[1];
        assert_eq!((b.tally.windows, b.tally.failures_in_row), (200, 200));
        assert_eq!(b.due_ms, Some(300_199));
        assert_eq!(b.tally.last_error.as_deref(), Some("refused"));
        configure(scratch, &["wss://b.example"], &[]);
        assert_eq!(names(scratch), [is("b", Tier::Live), is("a", Tier::Sampled)]);
        assert_eq!(list(scratch)[0].tally.windows, 200, "what was counted stays");
        configure(scratch, &["wss://b.example"], &[]);
        assert_eq!(list(scratch)[1].standing.why, "the settings name it no more");
    });
}

#[test]
fn strangers_make_few_relays_known_and_what_is_of_no_use_makes_room() {
    both(|scratch| {
        let bounds = Bounds { known_max: 4, ..Bounds::default() };
        let learn = |url: &str, n| learn(scratch, url, n, &bounds);
        for bad in
            ["rubbish", "https://a.example", "ws://127.0.0.1:80", "wss://[::1]", "ws://localhost"]
        {
            assert_eq!(learn(bad, 1), Learnt::Invalid, "{bad}");
        }
        assert_eq!(learn("wss://a.example", 1), Learnt::New);
        assert_eq!(learn("WSS://A.example/", 2), Learnt::Known);
        for n in 0..4 {
            let expected = if n < 2 { Learnt::New } else { Learnt::TooMany };
            assert_eq!(learn(&format!("wss://b{n}.example"), 1), expected, "{n}");
        }
        assert_eq!(learn("wss://c.example", 3), Learnt::New);
        assert_eq!(learn("wss://d.example", 4), Learnt::Full);
        for now_ms in 0..3 {
            settle(scratch, "wss://b1.example", failed(), now_ms);
        }
        assert_eq!(learn("wss://d.example", 4), Learnt::New);
        let known: Vec<String> = list(scratch).into_iter().map(|one| one.relay).collect();
        assert!(!known.contains(&"wss://b1.example".to_owned()), "{known:?}");
        assert_eq!(learn("wss://e.example", 5), Learnt::Full, "the others were not tried yet");
        let many = Bounds::default();
        for (n, expected) in
            (10..).zip([Learnt::New, Learnt::New, Learnt::New, Learnt::New, Learnt::TooMany])
        {
            let url = format!("wss://one.example/{n}");
            assert_eq!(super::roster::learn(scratch, &url, n, &many), expected, "{url}");
        }
    });
}

#[test]
fn a_relay_that_is_not_known_is_not_weighed_and_a_forger_waits() {
    both(|scratch| {
        assert_eq!(settle(scratch, "wss://a.example", failed(), 0), None);
        configure(scratch, &[], &["wss://a.example"]);
        let forged = Look { is_reached: true, hostile: 2, ..Look::default() };
        let one = settle(scratch, "wss://a.example", forged, 1_000).unwrap();
        assert_eq!((one.standing.tier, one.due_ms), (Tier::Polled, Some(3_601_000)));
        assert_eq!((one.tally.hostile, one.tally.bans), (2, 1));
        let good =
            Look { is_reached: true, is_fetched: true, connect_ms: Some(40), ..Look::default() };
        let one = settle(scratch, "wss://a.example", good, 3_601_000).unwrap();
        assert_eq!((one.standing.banned_until_ms, one.due_ms), (None, Some(3_901_000)));
        assert_eq!((one.standing.latency_ms, one.tally.is_fetched), (Some(40), true));
        assert_eq!(one.tally.last_error, None);
    });
}

fn put(scratch: &Scratch, event: &Event, origin: &'static str) {
    let event = Verified::check(event.clone()).unwrap();
    let put = scratch
        .store
        .write(move |tx| archive::put(tx, std::slice::from_ref(&event), origin, NOW_MS));
    block_on(put).unwrap();
}

fn ways_to(scratch: &Scratch, n: u64) -> Vec<(String, Reason)> {
    let ways =
        block_on(scratch.store.read(move |rx| ways::ways(rx, &somebody(n), NOW_MS))).unwrap();
    ways.into_iter().map(|way| (way.relay, way.reason)).collect()
}

fn record(scratch: &Scratch, relay: &'static str, n: u64, outcome: Outcome) {
    let write =
        scratch.store.write(move |tx| delivery::record(tx, relay, &somebody(n), outcome, NOW_MS));
    block_on(write).unwrap();
}

#[test]
fn the_ways_to_a_provider_follow_what_it_says_until_something_else_was_observed() {
    both(|scratch| {
        assert_eq!(ways_to(scratch, 7), []);
        let tags: [&[&str]; 3] = [&["d", "x"], &["k", "5050"], &["relays", "wss://tag.example"]];
        put(scratch, &event(7, kind::ANNOUNCEMENT, NOW_S, &tags, "{}"), "wss://seen.example");
        let list: [&[&str]; 3] = [
            &["r", "wss://in.example", "read"],
            &["r", "wss://out.example", "write"],
            &["r", "wss://tag.example"],
        ];
        put(scratch, &event(7, kind::RELAY_LIST, NOW_S, &list, ""), "wss://else.example");
        let is = |name: &str, reason| (format!("wss://{name}.example"), reason);
        let said =
            [is("tag", Reason::Announced), is("in", Reason::Listed), is("seen", Reason::Seen)];
        assert_eq!(ways_to(scratch, 7), said);
        let read = block_on(scratch.store.read(|rx| ways::relay_list(rx, &somebody(7), NOW_MS)));
        let RelayList { read, write } = read.unwrap().unwrap();
        assert_eq!(
            (read.len(), write),
            (2, vec!["wss://out.example".into(), "wss://tag.example".into()])
        );

        for _ in 0..2 {
            record(scratch, "wss://tag.example", 7, Outcome::Unanswered);
            record(scratch, "wss://seen.example", 7, Outcome::Answered { after_ms: 300 });
        }
        assert_eq!(ways_to(scratch, 7), said, "too little was observed");
        record(scratch, "wss://tag.example", 7, Outcome::Refused);
        record(scratch, "wss://seen.example", 7, Outcome::Taken);
        let observed = [
            is("seen", Reason::Delivered),
            is("in", Reason::Listed),
            is("tag", Reason::Undelivered),
        ];
        assert_eq!(ways_to(scratch, 7), observed);
        assert_eq!(ways_to(scratch, 8), [], "what was observed of one says nothing of another");

        let at = block_on(
            scratch.store.read(|rx| delivery::at_relay(rx, "wss://seen.example", 9, NOW_MS)),
        );
        let at = at.unwrap();
        assert_eq!((at.len(), at[0].0, at[0].1.answered), (1, somebody(7), 2_000));
        // Long after that nothing of it counts, and later it is gone.
        let weeks_ms = 9 * 7 * 24 * 3_600_000;
        let faded =
            block_on(scratch.store.read(move |rx| ways::ways(rx, &somebody(7), NOW_MS + weeks_ms)));
        assert_eq!(faded.unwrap()[0].reason, Reason::Announced);
        let gone = block_on(scratch.store.write(move |tx| delivery::forget(tx, NOW_MS + weeks_ms)));
        assert_eq!(gone.unwrap(), 2);
    });
}

#[test]
fn a_relay_that_takes_requests_and_drops_them_is_no_way() {
    both(|scratch| {
        let (drops, passes) = ("wss://drops.example", "wss://passes.example");
        let tags: [&[&str]; 3] = [&["d", "x"], &["k", "5050"], &["relays", passes]];
        put(scratch, &event(7, kind::ANNOUNCEMENT, NOW_S, &tags, "{}"), passes);
        for n in 0..3 {
            let to = somebody(7).hex();
            let tags: [&[&str]; 1] = [&["p", &to]];
            let request = event(1, kind::DEFAULT_REQUEST, NOW_S + n, &tags, "");
            let request = Verified::check(request).unwrap();
            let write = scratch.store.write(move |tx| {
                let to = Destinations::own(&[drops.to_owned()]);
                publish::enqueue(tx, &request, &to, NOW_MS)?;
                let (id, taken) = (request.event().id, (publish::AckState::Acked, ""));
                publish::acknowledge(tx, &id, drops, taken, NOW_MS)?;
                delivery::record(tx, drops, &somebody(7), Outcome::Taken, NOW_MS)?;
                // Nobody ever answered.
                delivery::silent(tx, &id, &somebody(7), NOW_MS)
            });
            block_on(write).unwrap();
        }
        let ways = ways_to(scratch, 7);
        assert_eq!(ways[0], (passes.to_owned(), Reason::Announced), "{ways:?}");
        assert!(ways.iter().all(|(_, reason)| *reason != Reason::Delivered), "{ways:?}");
        let at = block_on(scratch.store.read(|rx| delivery::at_relay(rx, drops, 9, NOW_MS)));
        assert_eq!(at.unwrap()[0].1.unanswered, 3_000);
    });
}

#[test]
fn of_one_provider_few_relays_are_remembered() {
    both(|scratch| {
        let write = scratch.store.write(|tx| {
            (0..100).try_for_each(|n| {
                let relay = format!("wss://r{n}.example");
                delivery::record(tx, &relay, &somebody(7), Outcome::Taken, NOW_MS)
            })
        });
        block_on(write).unwrap();
        assert_eq!(scratch.number("SELECT count(*) FROM relay_delivery"), 32);
    });
}
