use guild_network::archive::{self, Verified};
use guild_network::marks::{self, Gap, Mark};
use guild_network::publish::{self, AckState, Destinations};
use guild_protocol::env::Signer;
use guild_protocol::nostr::{Event, kind};
use guild_store::outbox::{self, Filter};

use crate::support::{NOW_S, Scratch, block_on, both, event, key};

const RELAYS: [&str; 3] = ["ws://a.example", "wss://b.example", "WS://A.example/"];

fn enqueue(scratch: &Scratch, event: &Event, relays: &[&str], now_ms: i64) {
    let event = Verified::check(event.clone()).unwrap();
    let relays: Vec<String> = relays.iter().map(|&url| url.to_owned()).collect();
    let to = Destinations::own(&relays);
    block_on(scratch.store.write(move |tx| publish::enqueue(tx, &event, &to, now_ms))).unwrap();
}

fn pins(scratch: &Scratch) -> Vec<(i64,)> {
    block_on(scratch.store.read(|rx| rx.all("SELECT pinned FROM nostr_event ORDER BY seq", &[])))
        .unwrap()
}

fn queued(scratch: &Scratch) -> Vec<(String, String)> {
    let list = |rx: &mut guild_store::Rx<'_>| outbox::list(rx, &Filter::default(), 100);
    let listed = block_on(scratch.store.read(list)).unwrap();
    listed.into_iter().map(|m| (m.key, m.state.as_str().to_owned())).collect()
}

fn acks(scratch: &Scratch, event: &Event) -> Vec<(String, AckState)> {
    let id = event.id;
    let acks = block_on(scratch.store.read(move |rx| publish::acks(rx, &id))).unwrap();
    acks.into_iter().map(|ack| (ack.relay, ack.state)).collect()
}

fn acknowledge(scratch: &Scratch, event: &Event, relay: &'static str, state: AckState) {
    let id = event.id;
    let said =
        scratch.store.write(move |tx| publish::acknowledge(tx, &id, relay, (state, "words"), 9));
    block_on(said).unwrap();
}

#[test]
fn an_event_is_kept_pinned_and_queued_once_for_each_relay() {
    both(|scratch| {
        let ours = event(1, kind::DEFAULT_REQUEST, NOW_S, &[], "");
        enqueue(scratch, &ours, &RELAYS, 5);
        enqueue(scratch, &ours, &[RELAYS[1], "rubbish"], 6);
        let waits = |url: &str| (url.to_owned(), "queued".to_owned());
        assert_eq!(queued(scratch), [waits("ws://a.example"), waits("wss://b.example")]);
        let queued = |url: &str| (url.to_owned(), AckState::Queued);
        assert_eq!(acks(scratch, &ours), [queued("ws://a.example"), queued("wss://b.example")]);
        let id = ours.id;
        let read = scratch.store.read(move |rx| archive::event(rx, &id));
        assert_eq!(block_on(read).unwrap(), Some(ours));
        assert_eq!(pins(scratch), [(1,)]);
    });
}

#[test]
fn what_strangers_can_make_us_say_is_queued_and_not_pinned() {
    both(|scratch| {
        let ours = event(1, kind::FEEDBACK, NOW_S, &[], "");
        let verified = Verified::check(ours).unwrap();
        let to = Destinations::own(&[RELAYS[0].to_owned()]);
        let said = scratch.store.write(move |tx| publish::enqueue_unpinned(tx, &verified, &to, 5));
        block_on(said).unwrap();
        assert_eq!(queued(scratch), [(RELAYS[0].to_owned(), "queued".to_owned())]);
        assert_eq!(pins(scratch), [(0,)]);
    });
}

#[test]
fn relays_that_others_name_have_a_sink_of_their_own_and_a_lane_for_whoever_names_them() {
    both(|scratch| {
        let [anna, bert] = [7, 8].map(|n| key(n).public_key());
        let say = |n: u64, named_by, hints: &[&str]| {
            let event = Verified::check(event(n, kind::FEEDBACK, NOW_S, &[], "")).unwrap();
            let own = Destinations::own(&[RELAYS[0].to_owned()]);
            let to = own.and_of(&named_by, hints.iter().copied(), 2);
            block_on(scratch.store.write(move |tx| publish::enqueue(tx, &event, &to, 5))).unwrap();
        };
        let named = [
            "ws://A.example",
            "rubbish",
            "ws://c.example",
            "ws://c.example/",
            "ws://d.example",
            "ws://e.example",
        ];
        say(1, anna, &named);
        say(2, bert, &named[2..3]);
        let lanes = "SELECT sink, key, idempotency_key FROM outbox ORDER BY seq";
        let lanes: Vec<(String, String, String)> =
            block_on(scratch.store.read(move |rx| rx.all(lanes, &[]))).unwrap();
        let lanes: Vec<(&str, &str, &str)> = lanes
            .iter()
            .map(|(sink, key, name)| {
                (sink.as_str(), key.as_str(), publish::addressed(name).unwrap().0)
            })
            .collect();
        let (a, b) = (anna.hex(), bert.hex());
        let guest = publish::GUEST_SINK;
        assert_eq!(
            lanes,
            [
                (publish::SINK, "ws://a.example", "ws://a.example"),
                (guest, &a, "ws://c.example"),
                (guest, &a, "ws://d.example"),
                (publish::SINK, "ws://a.example", "ws://a.example"),
                (guest, &b, "ws://c.example"),
            ]
        );
        assert!(block_on(scratch.store.read(publish::has_mail)).unwrap());

        // Whoever names very many gets some of them; our own relay gets all, and others theirs.
        for n in 10..60 {
            say(n, anna, &[&format!("ws://{n}.example")]);
        }
        say(60, bert, &["ws://60.example"]);
        let waiting = |sink: &'static str, lane: &str| {
            let lane = lane.to_owned();
            let read = scratch.store.read(move |rx| outbox::waiting(rx, sink, &lane, 1_000));
            block_on(read).unwrap()
        };
        assert_eq!([waiting(guest, &a), waiting(guest, &b)], [32, 2]);
        assert_eq!(waiting(publish::SINK, "ws://a.example"), 53);
    });
}

const DAY_MS: i64 = 24 * 3_600 * 1_000;

#[test]
fn what_relays_said_long_ago_is_forgotten() {
    both(|scratch| {
        let [old, new] = [1, 2].map(|n| event(n, kind::DEFAULT_REQUEST, NOW_S, &[], ""));
        enqueue(scratch, &old, &RELAYS, 0);
        enqueue(scratch, &new, &RELAYS, 2 * DAY_MS);
        let forget =
            |now_ms| block_on(scratch.store.write(move |tx| publish::forget(tx, now_ms))).unwrap();
        assert_eq!([forget(60 * DAY_MS), forget(61 * DAY_MS), forget(61 * DAY_MS)], [0, 2, 0]);
        assert_eq!((acks(scratch, &old).len(), acks(scratch, &new).len()), (0, 2));
    });
}

#[test]
fn who_has_it_has_it_and_a_refusal_may_be_followed_by_a_yes() {
    both(|scratch| {
        let ours = event(1, kind::DEFAULT_REQUEST, NOW_S, &[], "");
        enqueue(scratch, &ours, &RELAYS[..1], 5);
        let state = |state| {
            acknowledge(scratch, &ours, RELAYS[0], state);
            acks(scratch, &ours)[0].1
        };
        assert_eq!(state(AckState::Refused), AckState::Refused);
        assert_eq!(state(AckState::Acked), AckState::Acked);
        assert_eq!(state(AckState::Refused), AckState::Acked);
    });
}

#[test]
fn a_relay_that_is_back_gets_what_was_given_up_but_not_what_it_refused() {
    both(|scratch| {
        let [lost, refused, other] =
            [1, 2, 3].map(|n| event(n, kind::DEFAULT_REQUEST, NOW_S, &[], ""));
        for event in [&lost, &refused] {
            enqueue(scratch, event, &RELAYS[..1], 5);
        }
        enqueue(scratch, &other, &RELAYS[1..2], 5);
        let die = "UPDATE outbox SET state = 'dead', closed_ms = 1";
        let refuse = "UPDATE outbox SET refused = 1 WHERE seq = 2";
        let both = scratch.store.write(move |tx| tx.exec(die, &[]).and(tx.exec(refuse, &[])));
        block_on(both).unwrap();
        let revive = |after| {
            let revive = scratch.store.write(move |tx| publish::revive(tx, RELAYS[0], after, 10));
            block_on(revive).unwrap()
        };
        assert_eq!([revive(0), revive(1)], [Some(1), None]);
        let states: Vec<String> = queued(scratch).into_iter().map(|(_, state)| state).collect();
        assert_eq!(states, ["queued", "dead", "dead"]);
    });
}

#[test]
fn what_was_given_up_is_not_said_to_be_on_its_way() {
    both(|scratch| {
        let ours = event(1, kind::DEFAULT_REQUEST, NOW_S, &[], "");
        let verified = Verified::check(ours.clone()).unwrap();
        let to = Destinations::own(&[RELAYS[0].to_owned()]);
        let to = to.and_of(&key(7).public_key(), ["ws://guest.example"], 1);
        let said = scratch.store.write(move |tx| publish::enqueue(tx, &verified, &to, 5));
        block_on(said).unwrap();
        let change = |sql: &'static str| {
            block_on(scratch.store.write(move |tx| tx.exec(sql, &[]))).unwrap();
            let id = ours.id;
            let acks = block_on(scratch.store.read(move |rx| publish::acks(rx, &id))).unwrap();
            let ack = |ack: publish::RelayAck| (ack.state, ack.message);
            let [own, guest] = acks.into_iter().map(ack).collect::<Vec<_>>().try_into().unwrap();
            [own, guest]
        };
        let stands = |state, words: &str| (state, words.to_owned());
        let failing = "UPDATE outbox SET attempts = 1, last_error = 'no route'";
        assert_eq!(change(failing), [(); 2].map(|()| stands(AckState::Queued, "no route")));
        let dead = "UPDATE outbox SET state = 'dead', closed_ms = 1";
        assert_eq!(change(dead), [(); 2].map(|()| stands(AckState::GivenUp, "no route")));
        // The relay is back: it is on its way again. The guest's is forgotten.
        let revive = scratch.store.write(|tx| publish::revive(tx, RELAYS[0], 0, 10));
        block_on(revive).unwrap();
        assert_eq!(
            change("DELETE FROM outbox WHERE sink = 'relay-guest'"),
            [stands(AckState::Queued, "no route"), stands(AckState::GivenUp, "")]
        );
    });
}

#[test]
fn a_mark_is_kept_for_each_relay_and_filter() {
    both(|scratch| {
        let get = |relay: &'static str, name: &'static str| {
            block_on(scratch.store.read(move |rx| marks::get(rx, relay, name))).unwrap()
        };
        for mark in [
            Mark { until_s: 10, gap: None, low_s: 5, complete: false },
            Mark {
                until_s: 10,
                gap: Some(Gap { since_s: 6, until_s: 8 }),
                low_s: 5,
                complete: false,
            },
            Mark { until_s: u64::MAX, gap: None, low_s: 0, complete: true },
        ] {
            let set = mark.clone();
            let written = scratch.store.write(move |tx| marks::set(tx, "r", "f", &set, 1));
            block_on(written).unwrap();
            let kept = get("r", "f").unwrap();
            assert_eq!(
                (kept.gap, kept.low_s, kept.complete),
                (mark.gap, mark.low_s, mark.complete)
            );
        }
        assert_eq!(get("r", "f").unwrap().until_s, u64::try_from(i64::MAX).unwrap());
        assert_eq!((get("r", "other"), get("other", "f")), (None, None));
    });
}
