use guild_network::archive::{self, Verified};
use guild_network::marks::{self, Mark};
use guild_network::publish::{self, AckState};
use guild_protocol::nostr::{Event, kind};
use guild_store::outbox::{self, Filter};

use crate::support::{NOW_S, Scratch, block_on, both, event};

const RELAYS: [&str; 3] = ["ws://a.example", "wss://b.example", "WS://A.example/"];

fn enqueue(scratch: &Scratch, event: &Event, relays: &[&str], now_ms: i64) {
    let event = Verified::check(event.clone()).unwrap();
    let relays: Vec<String> = relays.iter().map(|&url| url.to_owned()).collect();
    block_on(scratch.store.write(move |tx| publish::enqueue(tx, &event, &relays, now_ms))).unwrap();
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
        let pinned =
            scratch.store.read(|rx| rx.all::<(i64,)>("SELECT pinned FROM nostr_event", &[]));
        assert_eq!(block_on(pinned).unwrap(), [(1,)]);
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
        acknowledge(scratch, &refused, RELAYS[0], AckState::Refused);
        let die = "UPDATE outbox SET state = 'dead', closed_ms = 1";
        block_on(scratch.store.write(move |tx| tx.exec(die, &[]))).unwrap();
        let revive = scratch.store.write(|tx| publish::revive(tx, RELAYS[0], 10));
        block_on(revive).unwrap();
        let states: Vec<String> = queued(scratch).into_iter().map(|(_, state)| state).collect();
        assert_eq!(states, ["queued", "dead", "dead"]);
    });
}

#[test]
fn a_mark_is_kept_for_each_relay_and_filter() {
    both(|scratch| {
        let get = |relay: &'static str, name: &'static str| {
            block_on(scratch.store.read(move |rx| marks::get(rx, relay, name))).unwrap()
        };
        for mark in [
            Mark { high_s: 10, low_s: 5, complete: false },
            Mark { high_s: u64::MAX, low_s: 0, complete: true },
        ] {
            let set = mark.clone();
            let written = scratch.store.write(move |tx| marks::set(tx, "r", "f", &set, 1));
            block_on(written).unwrap();
            let kept = get("r", "f").unwrap();
            assert_eq!((kept.low_s, kept.complete), (mark.low_s, mark.complete));
        }
        assert_eq!(get("r", "f").unwrap().high_s, u64::try_from(i64::MAX).unwrap());
        assert_eq!((get("r", "other"), get("other", "f")), (None, None));
    });
}
