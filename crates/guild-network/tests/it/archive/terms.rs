//! What a walk along terms finds and costs.

use guild_network::archive::Budget;
use guild_protocol::env::Signer;
use guild_protocol::nostr::{Event, EventId, Filter};
use guild_store::args;

use super::is_new;
use crate::support::{NOW_S, Scratch, block_on, both, event, key};

fn ids(scratch: &Scratch, filter: &Filter, limit_max: usize) -> Vec<EventId> {
    let found = scratch.query_at(std::slice::from_ref(filter), limit_max, NOW_S);
    found.into_iter().map(|stored| stored.event_id).collect()
}

/// In the order of answers.
fn sorted(mut events: Vec<Event>) -> Vec<EventId> {
    events.sort_by_key(|event| (std::cmp::Reverse(event.created_at), event.id));
    events.into_iter().map(|event| event.id).collect()
}

#[test]
fn somebody_at_whom_very_many_kinds_point_is_found_by_all_of_them() {
    both(|scratch| {
        let us = key(1).public_key().hex();
        // Kinds and times in different orders, more kinds than are looked for at once.
        let pointing: Vec<Event> = (0..300_u16)
            .map(|n| event(2, 100 + n, NOW_S - u64::from(n) * 7 % 50, &[&["p", &us]], ""))
            .collect();
        assert!(is_new(&scratch.put(&pointing)));
        let beside = event(2, 100, NOW_S, &[&["p", "somebody else"], &["e", &us]], "");
        assert!(is_new(&scratch.put(&[beside])));
        let pointed = Filter::default().tag('p', [us.clone()]);
        let expected = sorted(pointing.clone());
        assert_eq!(ids(scratch, &pointed, 1_000), expected);
        assert_eq!(ids(scratch, &pointed, 10), expected[..10]);
        let until = Filter { until: Some(NOW_S - 20), since: Some(NOW_S - 30), ..pointed.clone() };
        let of_then: Vec<Event> = pointing
            .iter()
            .filter(|event| (NOW_S - 30..=NOW_S - 20).contains(&event.created_at))
            .cloned()
            .collect();
        assert_eq!(ids(scratch, &until, 1_000), sorted(of_then));
        // Every kind but the first costs a look. Whoever names kinds pays for none.
        let cost = |visits| Budget { visits, ..Budget::events(10) };
        assert_eq!(scratch.found_within(std::slice::from_ref(&pointed), cost(299)), Ok(10));
        for visits in [298, 100, 10] {
            assert_eq!(
                scratch.found_within(std::slice::from_ref(&pointed), cost(visits)),
                Err("network.query_too_wide")
            );
        }
        let named = Filter { kinds: Some([100, 399].into()), ..pointed.clone() };
        assert_eq!(scratch.found_within(&[named], cost(0)), Ok(2));
        // And whoever has a narrower condition goes along that.
        let rare = event(3, 99, 1, &[&["p", &us]], "");
        scratch.put(std::slice::from_ref(&rare));
        let by_whom = Filter { authors: Some([key(3).public_key()].into()), ..pointed };
        assert_eq!(scratch.found_within(&[by_whom], cost(0)), Ok(1));
    });
}

#[test]
fn what_an_author_does_is_found_by_its_kind_behind_whatever_else_it_does() {
    both(|scratch| {
        let old = event(1, 7, 1, &[], "");
        let busy: Vec<Event> =
            (0..300).map(|n| event(1, 1, NOW_S - n, &[], &n.to_string())).collect();
        assert!(is_new(&scratch.put(&busy)) && is_new(&scratch.put(&[old])));
        let authors = Some([key(1).public_key()].into());
        let asked = |kinds: &[u16]| Filter {
            authors: authors.clone(),
            ..Filter::kinds(kinds.iter().copied())
        };
        let none = Budget { visits: 0, ..Budget::events(1_000) };
        assert_eq!(scratch.found_within(&[asked(&[7, 8])], none), Ok(1));
        // More kinds than terms are made for: those that there are, are looked for.
        let many: Vec<u16> = (7..2_000).collect();
        let few = Budget { visits: 2, ..none };
        assert_eq!(scratch.found_within(&[asked(&many)], few), Ok(1));
        let all = Filter { authors: authors.clone(), ..Filter::default() };
        assert_eq!(scratch.found_within(&[all], few), Ok(301));
    });
}

#[test]
fn events_of_one_place_are_answered_by_their_ids() {
    both(|scratch| {
        let same: Vec<Event> = (0..40).map(|n| event(1, 1, NOW_S, &[], &n.to_string())).collect();
        let later = event(1, 1, NOW_S + 1, &[], "");
        assert!(is_new(&scratch.put(&same)) && is_new(&scratch.put(std::slice::from_ref(&later))));
        // As if the first bits of their ids were the same.
        let together =
            "UPDATE nostr_term SET place = (SELECT max(place) FROM nostr_term) WHERE seq <= $1";
        block_on(scratch.store.write(move |tx| tx.exec(together, args![40]))).unwrap();
        let expected = sorted(same.iter().cloned().chain([later]).collect());
        for limit in [1, 2, 5, 40, 100] {
            let found = ids(scratch, &Filter::kinds([1]), limit);
            assert_eq!(found, expected[..limit.min(41)], "{limit}");
        }
    });
}
