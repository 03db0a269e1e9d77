//! What is forgotten when there is too much.

use std::collections::BTreeSet;

use guild_network::archive::{self, Bounds, Swept};
use guild_protocol::env::Signer;
use guild_protocol::nostr::{Event, Filter, kind};

use super::{card, is_new};
use crate::support::{NOW_S, Scratch, block_on, both, event, key};

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

fn know(scratch: &Scratch, authors: &[u64]) {
    let keys: BTreeSet<_> = authors.iter().map(|n| key(*n).public_key()).collect();
    let expected = keys.clone();
    block_on(scratch.store.write(move |tx| archive::set_known(tx, &keys))).unwrap();
    assert_eq!(block_on(scratch.store.read(archive::known)).unwrap(), expected);
}

/// An announcement by which its author can be hired.
fn offer(author: u64, d: &str, created_at: u64) -> Event {
    event(author, kind::ANNOUNCEMENT, created_at, &[&["d", d], &["k", "5050"]], "{}")
}

/// What announcements count as is what they are.
fn is_counted(scratch: &Scratch) {
    let same = |told: &'static str, so: &'static str| {
        assert_eq!(scratch.number(told), scratch.number(so), "{so}");
    };
    same(
        "SELECT announced_events FROM nostr_archive",
        "SELECT count(*) FROM nostr_event WHERE kind = 31990 AND pinned = 0",
    );
    same(
        "SELECT announced_bytes FROM nostr_archive",
        "SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM nostr_event
         WHERE kind = 31990 AND pinned = 0",
    );
}

fn left(scratch: &Scratch, events: &[Event]) -> usize {
    events.iter().filter(|event| scratch.event(event).is_some()).count()
}

#[test]
fn a_flood_of_announcements_pushes_out_neither_who_is_known_nor_who_came_before_it_nor_work() {
    both(|scratch| {
        let friends: Vec<Event> = (1..=3).map(|n| offer(n, "a", NOW_S - 9_000_000)).collect();
        let list = event(1, kind::RELAY_LIST, NOW_S, &[&["r", "wss://there.example"]], "");
        let old: Vec<Event> = (11..=14).map(|n| offer(n, "a", NOW_S - 100)).collect();
        let work = notes(8);
        assert!(
            is_new(&scratch.put(&friends)) && is_new(&scratch.put(std::slice::from_ref(&list)))
        );
        assert!(is_new(&scratch.put(&old)) && is_new(&scratch.put(&work)));
        know(scratch, &[1, 2, 3]);
        let bounds = Bounds { max_events: 20, ..ROOMY };
        for wave in 0..3 {
            let flood: Vec<Event> =
                (0..60).map(|n| offer(1_000 + wave * 60 + n, "a", NOW_S)).collect();
            assert!(is_new(&scratch.put_at(&flood, NOW_S + 1 + wave)));
            // An old one that says the same again is no newcomer by that.
            let again = offer(11, "a", NOW_S + wave);
            assert!(is_new(&scratch.put_at(std::slice::from_ref(&again), NOW_S + 1 + wave)));
            sweep(scratch, NOW_S + 1 + wave, bounds);
            assert_eq!(left(scratch, &friends), 3, "wave {wave}");
            assert_eq!((left(scratch, &old[1..]), left(scratch, &[again])), (3, 1), "wave {wave}");
            assert_eq!((left(scratch, &work), left(scratch, std::slice::from_ref(&list))), (8, 1));
            assert_eq!(scratch.head().events, 20, "and it is bounded");
            is_counted(scratch);
        }
        // Whoever is known no longer, and has long been silent, makes room for strangers.
        know(scratch, &[1]);
        assert!(is_new(&scratch.put(&[offer(21, "a", NOW_S), offer(22, "a", NOW_S)])));
        sweep(scratch, NOW_S + 9, bounds);
        assert_eq!((left(scratch, &friends), left(scratch, &friends[..1])), (1, 1));
        is_counted(scratch);
    });
}

#[test]
fn work_that_nobody_asked_for_pushes_out_no_announcement() {
    both(|scratch| {
        let offers: Vec<Event> = (1..=5).map(|n| offer(n, "a", NOW_S)).collect();
        let list = event(9, kind::RELAY_LIST, NOW_S, &[&["r", "wss://there.example"]], "");
        assert!(is_new(&scratch.put(&offers)) && is_new(&scratch.put(std::slice::from_ref(&list))));
        know(scratch, &[9]);
        assert!(is_new(&scratch.put(&notes(100))));
        assert_eq!(sweep(scratch, NOW_S, Bounds { max_events: 20, ..ROOMY }).forgotten, 86);
        assert_eq!((left(scratch, &offers), left(scratch, &[list])), (5, 1));
        assert_eq!(scratch.head().events, 20);
    });
}

#[test]
fn one_key_keeps_sixteen_offers_and_what_nobody_can_be_hired_by_goes_first() {
    both(|scratch| {
        let loud: Vec<Event> = (0..30).map(|n| offer(1, &n.to_string(), NOW_S)).collect();
        let unreadable: Vec<Event> = (0..5).map(|n| card(100 + n, "a", NOW_S, "no JSON")).collect();
        assert!(is_new(&scratch.put(&loud)) && is_new(&scratch.put(&unreadable)));
        let quiet: Vec<Event> = (2..=5).map(|n| offer(n, "a", NOW_S)).collect();
        assert!(is_new(&scratch.put_at(&quiet, NOW_S + 10)));
        know(scratch, &[1]);
        let bounds = Bounds { max_events: 40, ..ROOMY };
        assert!(is_new(&scratch.put(&notes(21))));
        assert_eq!(sweep(scratch, NOW_S, bounds).forgotten, 20);
        assert_eq!((left(scratch, &loud[14..]), left(scratch, &loud[..14])), (16, 0));
        assert_eq!((left(scratch, &unreadable), left(scratch, &quiet)), (0, 4));
        is_counted(scratch);
        // Who is known goes too, when there is nobody else: what is kept is bounded.
        sweep(scratch, NOW_S, Bounds { max_events: 20, ..ROOMY });
        assert_eq!((left(scratch, &quiet), left(scratch, &loud)), (0, 10));
        sweep(scratch, NOW_S, Bounds { max_events: 0, ..ROOMY });
        assert_eq!(scratch.head().events, 0);
        is_counted(scratch);
    });
}

#[test]
fn announcements_are_bounded_by_bytes_too_and_what_is_pinned_of_them_does_not_count() {
    both(|scratch| {
        let pinned = offer(1, "a", NOW_S - 5);
        assert!(is_new(&scratch.put(std::slice::from_ref(&pinned))) && scratch.pin(&pinned));
        is_counted(scratch);
        // It is kept as evidence, and its place is taken.
        assert!(is_new(&scratch.put(&[offer(1, "a", NOW_S)])));
        is_counted(scratch);
        let work = notes(10);
        assert!(is_new(&scratch.put(&work)));
        let large = "x".repeat(2_000);
        let padded = |n| {
            let tags: [&[&str]; 3] = [&["d", "a"], &["k", "5050"], &["t", &large]];
            event(n, kind::ANNOUNCEMENT, NOW_S, &tags, "{}")
        };
        let flood: Vec<Event> = (100..130).map(padded).collect();
        assert!(is_new(&scratch.put_at(&flood, NOW_S + 1)));
        let bounds = Bounds { max_bytes: 20_000, ..ROOMY };
        sweep(scratch, NOW_S, bounds);
        assert_eq!(left(scratch, &work), 10);
        assert!((1..10).contains(&left(scratch, &flood)));
        is_counted(scratch);
    });
}
