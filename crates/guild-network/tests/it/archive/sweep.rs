//! What is forgotten when there is too much.

use guild_network::archive::{self, Bounds, Swept};
use guild_protocol::nostr::{Event, Filter, kind};

use super::is_new;
use crate::support::{NOW_S, Scratch, block_on, both, event};

const ROOMY: Bounds = Bounds { max_events: 1_000, max_bytes: i64::MAX };

fn sweep(scratch: &Scratch, now_s: u64, bounds: Bounds) -> Swept {
    block_on(scratch.store.write(move |tx| archive::sweep(tx, now_s, &bounds))).unwrap()
}

/// What is left in all tables that hold a row for an event.
fn rows(scratch: &Scratch) -> Vec<i64> {
    let tables = [
        "SELECT count(*) FROM nostr_event",
        "SELECT count(*) FROM nostr_term",
        "SELECT count(*) FROM nostr_deletion",
    ];
    let read = scratch.store.read(move |rx| {
        tables
            .into_iter()
            .map(|sql| Ok(rx.first::<(i64,)>(sql, &[])?.map_or(0, |(count,)| count)))
            .collect::<Result<Vec<i64>, guild_store::Error>>()
    });
    block_on(read).unwrap()
}

fn notes(count: u64) -> Vec<Event> {
    (0..count).map(|n| event(1, 1, 1_000 - n, &[&["t", "x"]], &n.to_string())).collect()
}

#[test]
fn the_oldest_received_go_and_never_the_pinned() {
    both(|scratch| {
        let events = notes(20);
        assert!(is_new(&scratch.put(&events)));
        for pinned in [0, 3, 4, 19] {
            assert!(scratch.pin(&events[pinned]));
        }
        assert_eq!(sweep(scratch, NOW_S, ROOMY).forgotten, 0);
        let tight = Bounds { max_events: 6, ..ROOMY };
        assert_eq!(sweep(scratch, NOW_S, tight), Swept { forgotten: 10, more: false });
        let left: Vec<usize> = (0..20).filter(|n| scratch.event(&events[*n]).is_some()).collect();
        assert_eq!(left, [0, 3, 4, 13, 14, 15, 16, 17, 18, 19]);
        assert_eq!((scratch.head().events, scratch.query(&[Filter::default()]).len()), (10, 10));
        // Nothing but the pinned, whatever is asked for.
        let nothing = Bounds { max_events: 0, ..ROOMY };
        sweep(scratch, NOW_S, nothing);
        assert_eq!(sweep(scratch, NOW_S, nothing).forgotten, 0);
        assert_eq!(scratch.head().events, 4);
        assert_eq!(rows(scratch)[..2], [4, 4 * 4]);
        // Numbers are never given twice.
        assert_eq!(scratch.put(&events[1..2]), [archive::Put::New { seq: 21 }]);
    });
}

fn pin_all(scratch: &Scratch, events: &[Event]) {
    let ids: Vec<_> = events.iter().map(|event| event.id).collect();
    let pin = scratch.store.write(move |tx| {
        // Twice: it counts once.
        ids.iter().chain(&ids).try_for_each(|id| archive::pin(tx, id).map(drop))
    });
    block_on(pin).unwrap();
}

#[test]
fn what_is_pinned_is_no_reason_to_forget_the_rest() {
    both(|scratch| {
        let events = notes(12);
        assert!(is_new(&scratch.put(&events)));
        let tight = Bounds { max_events: 2, max_bytes: scratch.head().bytes / 5 };
        pin_all(scratch, &events[..10]);
        assert_eq!(sweep(scratch, NOW_S, tight), Swept::default());
        assert_eq!(scratch.head().events, 12);
        assert!(is_new(&scratch.put(&[event(2, 1, 1, &[], "one more")])));
        assert_eq!(sweep(scratch, NOW_S, tight).forgotten, 1);
        assert_eq!(scratch.event(&events[10]), None);
    });
}

#[test]
fn a_step_that_meets_only_pinned_events_is_not_the_last() {
    both(|scratch| {
        let events = notes(600);
        assert!(is_new(&scratch.put(&events)));
        // As pinning one after the other would, only faster.
        for sql in [
            "UPDATE nostr_event SET pinned = 1 WHERE seq < 500",
            "UPDATE nostr_archive SET pinned_events = 499, pinned_bytes = bytes - 1",
        ] {
            block_on(scratch.store.write(move |tx| tx.exec(sql, &[]))).unwrap();
        }
        let none = Bounds { max_events: 0, ..ROOMY };
        assert_eq!(sweep(scratch, NOW_S, none), Swept { forgotten: 1, more: true });
        assert_eq!(sweep(scratch, NOW_S, none), Swept { forgotten: 100, more: false });
        assert_eq!(scratch.head().events, 499);
    });
}

#[test]
fn what_has_expired_counts_as_gone() {
    both(|scratch| {
        let until = (NOW_S + 1).to_string();
        let expiring = |n: u64| event(2, 1, n, &[&["expiration", &until]], "");
        assert!(is_new(&scratch.put(&[expiring(1), expiring(2), expiring(3)])));
        assert!(is_new(&scratch.put(&notes(7))));
        // Seven are left; two of them are too many.
        let tight = Bounds { max_events: 5, ..ROOMY };
        assert_eq!(sweep(scratch, NOW_S + 1, tight), Swept { forgotten: 5, more: false });
        assert_eq!(scratch.head().events, 5);
    });
}

#[test]
fn bytes_are_bounded_too() {
    both(|scratch| {
        let events = notes(10);
        assert!(is_new(&scratch.put(&events)));
        let half = Bounds { max_bytes: scratch.head().bytes / 2, ..ROOMY };
        assert_eq!(sweep(scratch, NOW_S, half).forgotten, 5);
        assert!(scratch.head().bytes <= half.max_bytes);
        let texts: usize = events[5..].iter().map(|event| event.to_json().len()).sum();
        assert_eq!(scratch.head().bytes, i64::try_from(texts).unwrap());
    });
}

#[test]
fn what_has_expired_goes_unless_it_is_pinned() {
    both(|scratch| {
        let until = |n: u64| (NOW_S + n).to_string();
        let expiring = |n: u64| event(1, 1, n, &[&["expiration", &until(n)]], "");
        let events: Vec<Event> = (1..=4).map(expiring).collect();
        assert!(is_new(&scratch.put(&events)));
        assert!(scratch.pin(&events[0]));
        assert_eq!(sweep(scratch, NOW_S + 3, ROOMY).forgotten, 2);
        assert_eq!(scratch.event(&events[0]), Some(events[0].clone()));
        assert_eq!(scratch.event(&events[1]), None);
        assert_eq!(scratch.head().events, 2);
    });
}

#[test]
fn a_deletion_goes_with_its_event() {
    both(|scratch| {
        let target = event(1, 1, 5, &[], "target");
        let id = target.id.hex();
        let deletion = event(1, kind::DELETION, 6, &[&["e", &id]], "");
        assert!(is_new(&scratch.put(&[deletion])));
        assert_eq!(rows(scratch)[2], 1);
        assert_eq!(sweep(scratch, NOW_S, Bounds { max_events: 0, ..ROOMY }).forgotten, 1);
        assert_eq!(rows(scratch), [0, 0, 0]);
        assert!(is_new(&scratch.put(&[target])));
    });
}

#[test]
fn a_sweep_takes_small_steps() {
    both(|scratch| {
        assert!(is_new(&scratch.put(&notes(1_000))));
        let none = Bounds { max_events: 0, ..ROOMY };
        assert_eq!(sweep(scratch, NOW_S, none), Swept { forgotten: 500, more: true });
        assert_eq!(sweep(scratch, NOW_S, none), Swept { forgotten: 500, more: true });
        assert_eq!(sweep(scratch, NOW_S, none), Swept { forgotten: 0, more: false });
    });
}
