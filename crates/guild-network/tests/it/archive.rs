//! The rules of NIP-01, 09 and 40, on both databases.

mod model;
mod sweep;
mod terms;

use guild_network::archive::{self, Budget, Put, Reach, Stored};
use guild_protocol::env::Signer;
use guild_protocol::nostr::{Event, Filter, kind};

use crate::support::{NOW_S, Scratch, block_on, both, event, key};

impl Scratch {
    fn query_at(&self, filters: &[Filter], limit_max: usize, now_s: u64) -> Vec<Stored> {
        let filters = filters.to_vec();
        block_on(self.store.read(move |rx| archive::query(rx, &filters, limit_max, now_s))).unwrap()
    }

    fn count(&self, filters: &[Filter], limit_max: usize) -> u64 {
        let filters = filters.to_vec();
        block_on(self.store.read(move |rx| archive::count(rx, &filters, limit_max, NOW_S))).unwrap()
    }

    fn query(&self, filters: &[Filter]) -> Vec<Stored> {
        self.query_at(filters, 1_000, NOW_S)
    }

    /// The contents of all that is served.
    fn contents(&self) -> Vec<String> {
        let found = self.query(&[Filter::default()]);
        let content = |stored: Stored| {
            let limits = guild_protocol::nostr::Limits::DEFAULT;
            Event::parse_verified(stored.json.as_bytes(), &limits).unwrap().content
        };
        found.into_iter().map(content).collect()
    }

    fn event(&self, event: &Event) -> Option<Event> {
        let id = event.id;
        block_on(self.store.read(move |rx| archive::event(rx, &id))).unwrap()
    }

    fn pin(&self, event: &Event) -> bool {
        let id = event.id;
        block_on(self.store.write(move |tx| archive::pin(tx, &id))).unwrap()
    }

    fn head(&self) -> archive::Head {
        block_on(self.store.read(archive::head)).unwrap()
    }
}

fn is_new(puts: &[Put]) -> bool {
    puts.iter().all(|put| matches!(put, Put::New { .. }))
}

/// An announcement by somebody.
fn card(author: u64, d: &str, created_at: u64, content: &str) -> Event {
    event(author, kind::ANNOUNCEMENT, created_at, &[&["d", d]], content)
}

fn address(author: u64, d: &str) -> String {
    format!("31990:{}:{d}", key(author).public_key().hex())
}

#[test]
fn an_event_is_stored_once_and_as_it_is() {
    both(|scratch| {
        let odd = event(
            1,
            1,
            NOW_S,
            &[&["t", "a\0b"], &[], &["d", "\0"]],
            "nul \0 \u{1f980} \"quoted\"\n",
        );
        assert_eq!(scratch.put(&[odd.clone(), odd.clone()]), [Put::New { seq: 1 }, Put::Known]);
        assert_eq!(scratch.put(std::slice::from_ref(&odd)), [Put::Known]);
        assert_eq!(scratch.event(&odd), Some(odd.clone()));
        let found = scratch.query(&[Filter::default().tag('t', ["a\0b"])]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].json, odd.to_json());
        let head = scratch.head();
        assert_eq!((head.last_seq, head.events), (1, 1));
        assert_eq!(usize::try_from(head.bytes).unwrap(), odd.to_json().len());
    });
}

#[test]
fn only_the_newest_of_a_replaceable_kind_is_kept() {
    both(|scratch| {
        let version = |at: u64, text: &str| event(1, 0, NOW_S + at, &[], text);
        assert!(is_new(&scratch.put(&[version(1, "one"), version(3, "three")])));
        assert_eq!(scratch.put(&[version(2, "two")]), [Put::Older]);
        assert_eq!(scratch.contents(), ["three"]);
        // Another author and another kind are others; a d tag means nothing here.
        assert!(is_new(&scratch.put(&[event(2, 0, 1, &[], "other"), event(1, 3, 1, &[], "kind")])));
        assert!(is_new(&scratch.put(&[event(1, 0, NOW_S + 4, &[&["d", "x"]], "four")])));
        assert_eq!(scratch.contents()[0], "four");
        assert_eq!(scratch.contents().len(), 3);
    });
}

#[test]
fn an_address_is_kind_author_and_d_byte_for_byte() {
    both(|scratch| {
        let cards = [
            card(1, "x", 9, "1x"),
            card(1, "X", 8, "1X"),
            card(1, "", 7, "1"),
            card(2, "x", 6, "2x"),
        ];
        assert!(is_new(&scratch.put(&cards)));
        assert_eq!(scratch.contents(), ["1x", "1X", "1", "2x"]);
        // Without a d tag it has the empty one.
        let bare = event(1, kind::ANNOUNCEMENT, 10, &[], "bare");
        assert!(is_new(&scratch.put(&[bare, card(1, "x", 11, "newer")])));
        assert_eq!(scratch.contents(), ["newer", "bare", "1X", "2x"]);
        assert_eq!(scratch.head().events, 4);
    });
}

#[test]
fn of_two_versions_of_one_second_the_lowest_id_wins() {
    both(|scratch| {
        let mut versions: Vec<Event> =
            (0..6).map(|n| card(1, "x", NOW_S, &format!("version {n}"))).collect();
        versions.sort_by_key(|version| version.id);
        let lowest = versions[0].clone();
        assert!(is_new(&scratch.put(&versions[3..4])));
        assert_eq!(scratch.put(&versions[4..6]), [Put::Older, Put::Older]);
        assert!(is_new(&scratch.put(&[versions[2].clone(), lowest.clone()])));
        assert_eq!(scratch.put(&versions[1..2]), [Put::Older]);
        assert_eq!(scratch.contents(), [lowest.content]);
    });
}

#[test]
fn a_deletion_by_id_takes_its_author_s_events_only() {
    both(|scratch| {
        let (mine, yours) = (event(1, 1, 5, &[], "mine"), event(2, 1, 6, &[], "yours"));
        let late = event(1, 1, 7, &[], "late");
        assert!(is_new(&scratch.put(&[mine.clone(), yours.clone()])));
        let ids = [mine.id.hex(), yours.id.hex(), late.id.hex()];
        let tags =
            [&["e", &ids[0]] as &[&str], &["e", &ids[1]], &["e", &ids[2]], &["e", "rubbish"]];
        // Older than what it deletes: an id names one event, whatever its time.
        let deletion = event(1, kind::DELETION, 4, &tags, "bye");
        assert!(is_new(&scratch.put(std::slice::from_ref(&deletion))));
        assert_eq!(scratch.contents(), ["yours", "bye"]);
        assert_eq!(scratch.put(&[mine, late]), [Put::Deleted, Put::Deleted]);
        // Nobody can delete a deletion.
        let id = deletion.id.hex();
        let again = event(1, kind::DELETION, 8, &[&["e", &id]], "take it back");
        assert!(is_new(&scratch.put(&[again])));
        assert_eq!(scratch.contents(), ["take it back", "yours", "bye"]);
        let head = scratch.head();
        assert_eq!(head.events, 3);
    });
}

#[test]
fn a_deletion_by_address_takes_versions_up_to_its_time() {
    both(|scratch| {
        let own = address(1, "x");
        let other = address(2, "x");
        assert!(is_new(&scratch.put(&[card(1, "x", 10, "old"), card(2, "x", 10, "not mine")])));
        let tags = [&["a", &own] as &[&str], &["a", &other], &["a", "1:2"]];
        let deletion = event(1, kind::DELETION, 20, &tags, "bye");
        assert!(is_new(&scratch.put(&[deletion])));
        assert_eq!(scratch.contents(), ["bye", "not mine"]);
        let versions =
            [card(1, "x", 19, "before"), card(1, "x", 20, "at"), card(1, "x", 21, "after")];
        let puts = scratch.put(&versions);
        assert_eq!(puts[..2], [Put::Deleted, Put::Deleted]);
        assert!(is_new(&puts[2..]));
        assert_eq!(scratch.contents(), ["after", "bye", "not mine"]);
    });
}

#[test]
fn a_deletion_that_comes_first_or_with_its_target_counts() {
    both(|scratch| {
        let target = event(1, 1, 5, &[], "target");
        let id = target.id.hex();
        let foreign = event(2, kind::DELETION, 6, &[&["e", &id]], "not yours");
        assert!(is_new(&scratch.put(&[foreign])));
        let deletion = event(1, kind::DELETION, 6, &[&["e", &id]], "mine");
        // One group: the target first, its deletion behind it.
        assert!(is_new(&scratch.put(&[target.clone(), deletion])));
        assert_eq!(scratch.contents(), ["mine", "not yours"]);
        assert_eq!(scratch.put(&[target]), [Put::Deleted]);
        assert_eq!(scratch.head().events, 2);
        // One group: a version, its replacement, and the deletion of both.
        let own = address(1, "y");
        let group = [
            card(1, "y", 1, "one"),
            card(1, "y", 2, "two"),
            event(1, kind::DELETION, 2, &[&["a", &own]], "both"),
            card(1, "y", 3, "three"),
        ];
        assert!(is_new(&scratch.put(&group)));
        assert_eq!(scratch.contents().len(), 4);
        assert!(scratch.contents().contains(&"three".to_owned()));
    });
}

#[test]
fn expired_events_are_not_kept_and_not_served() {
    both(|scratch| {
        let expiring =
            |at: u64, text: &str| event(1, 1, NOW_S, &[&["expiration", &at.to_string()]], text);
        let events = [expiring(NOW_S, "over"), expiring(NOW_S + 1, "soon")];
        let odd = event(1, 1, NOW_S, &[&["expiration", "tomorrow"]], "odd");
        let puts = scratch.put(&[events[0].clone(), events[1].clone(), odd]);
        assert_eq!(puts[0], Put::Expired);
        assert!(is_new(&puts[1..]));
        assert_eq!(scratch.contents().len(), 2);
        let later = scratch.query_at(&[Filter::default()], 10, NOW_S + 1);
        assert_eq!(later.len(), 1);
        let by_id = Filter { ids: Some([events[1].id].into()), ..Filter::default() };
        assert_eq!(scratch.query_at(std::slice::from_ref(&by_id), 10, NOW_S).len(), 1);
        assert_eq!(scratch.query_at(&[by_id], 10, NOW_S + 1).len(), 0);
    });
}

/// Beyond the year 3058 the terms do not tell seconds apart. The answers still do.
#[test]
fn times_that_share_a_place_are_told_apart() {
    both(|scratch| {
        const EDGE_S: u64 = (1 << 35) - 1;
        let times = [(1 << 53) - 1, EDGE_S + 7, EDGE_S + 1, EDGE_S, EDGE_S - 1, NOW_S, 0];
        let events: Vec<Event> =
            times.iter().map(|s| event(1, 1, *s, &[], &s.to_string())).collect();
        assert!(is_new(&scratch.put(&events)));
        let found = |since: Option<u64>, until: Option<u64>, limit: Option<u64>| -> Vec<u64> {
            let filter = Filter { since, until, limit, ..Filter::default() };
            scratch.query(&[filter]).iter().map(|stored| stored.created_at).collect()
        };
        assert_eq!(found(None, None, None), times);
        // Of those that share one, a limit takes any; together they come before all others.
        assert_eq!(found(None, None, Some(4)), times[..4]);
        assert!(found(None, None, Some(2)).iter().all(|at| *at >= EDGE_S));
        assert_eq!(found(Some(EDGE_S + 1), None, None), times[..3]);
        assert_eq!(found(None, Some(EDGE_S), None), times[3..]);
        assert_eq!(found(Some(EDGE_S), Some(EDGE_S + 1), None), times[2..4]);
        assert_eq!(found(Some(u64::MAX), None, None), [0_u64; 0]);
        assert_eq!(found(Some(0), Some(u64::MAX), None), times);
    });
}

#[test]
fn ephemeral_events_are_not_kept() {
    both(|scratch| {
        let passing = event(1, 20_000, NOW_S, &[], "passing");
        assert_eq!(scratch.put(std::slice::from_ref(&passing)), [Put::Ephemeral]);
        assert_eq!(scratch.event(&passing), None);
        assert_eq!(scratch.head().last_seq, 0);
    });
}

#[test]
fn paging_by_until_meets_every_event_though_seconds_are_shared() {
    both(|scratch| {
        let events: Vec<Event> =
            (0..60).map(|n| event(1 + n % 3, 1, 100 + n / 7, &[], &n.to_string())).collect();
        assert!(is_new(&scratch.put(&events)));
        let mut met = std::collections::BTreeSet::new();
        let mut until = None;
        for _ in 0..60 {
            let page = scratch.query(&[Filter { until, limit: Some(10), ..Filter::default() }]);
            let Some(oldest) = page.last() else { break };
            let order: Vec<_> =
                page.iter().map(|s| (u64::MAX - s.created_at, s.event_id)).collect();
            assert!(order.is_sorted());
            let before = met.len();
            met.extend(page.iter().map(|stored| stored.event_id));
            // A page that begins with the second the last one ended with brings at least three more.
            if met.len() == before {
                break;
            }
            until = Some(oldest.created_at);
        }
        assert_eq!(met.len(), 60);
    });
}

#[test]
fn events_are_followed_in_the_order_in_which_they_came() {
    both(|scratch| {
        let events = [event(1, 1, 9, &[], "a"), event(1, 7, 5, &[], "b"), card(1, "x", 1, "c")];
        assert!(is_new(&scratch.put(&events)));
        assert!(is_new(&scratch.put(&[card(1, "x", 2, "d")])));
        let after = |seq: i64, kinds: &'static [u16], limit: usize| {
            let read = scratch.store.read(move |rx| archive::after(rx, seq, kinds, limit));
            let rows = block_on(read).unwrap();
            rows.into_iter().map(|(seq, event)| (seq, event.content)).collect::<Vec<_>>()
        };
        let said = |rows: &[(i64, &str)]| {
            rows.iter().map(|(seq, text)| (*seq, (*text).to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(after(0, &[], 9), said(&[(1, "a"), (2, "b"), (4, "d")]));
        assert_eq!(after(1, &[], 1), said(&[(2, "b")]));
        assert_eq!(after(0, &[7, 31990], 9), said(&[(2, "b"), (4, "d")]));
        assert_eq!(after(4, &[], 9), []);
    });
}

/// Events may be large: as many as fit, and at least one.
#[test]
fn what_is_read_at_once_is_bounded_by_its_bytes() {
    both(|scratch| {
        let text = "x".repeat(1_000);
        let events: Vec<Event> = (0..5).map(|n| event(1, 1, n, &[], &text)).collect();
        assert!(is_new(&scratch.put(&events)));
        let after = |seq: i64, bytes: usize| {
            let reach = Reach { events: 9, bytes };
            let read = scratch.store.read(move |rx| archive::after_within(rx, seq, &[], reach));
            let reached = block_on(read).unwrap();
            assert_eq!(reached.last_seq, reached.events.last().map(|(seq, _)| *seq));
            (reached.events.into_iter().map(|(seq, _)| seq).collect::<Vec<_>>(), reached.is_last)
        };
        assert_eq!(after(0, 1), (vec![1], false));
        assert_eq!(after(0, 2_000), (vec![1, 2], false));
        assert_eq!(after(2, 2_000), (vec![3, 4], false));
        assert_eq!(after(4, 2_000), (vec![5], true));
        assert_eq!(after(0, 100_000), (vec![1, 2, 3, 4, 5], true));
    });
}

/// Whoever follows the archive comes past a row that nobody can read.
#[test]
fn a_row_that_cannot_be_read_holds_up_nobody() {
    both(|scratch| {
        let events: Vec<Event> = (0..4).map(|n| event(1, 1, n, &[], "")).collect();
        assert!(is_new(&scratch.put(&events)));
        let spoil = "UPDATE nostr_event SET rest = 'rubbish' WHERE seq IN (2, 3)";
        block_on(scratch.store.write(move |tx| tx.exec(spoil, &[]))).unwrap();
        let after = |seq: i64, events: usize| {
            let reach = Reach { events, bytes: usize::MAX };
            let read = scratch.store.read(move |rx| archive::after_within(rx, seq, &[], reach));
            let reached = block_on(read).unwrap();
            let seqs: Vec<i64> = reached.events.into_iter().map(|(seq, _)| seq).collect();
            (seqs, reached.last_seq, reached.is_last)
        };
        assert_eq!(after(0, 9), (vec![1, 4], Some(4), true));
        assert_eq!(after(0, 2), (vec![1], Some(2), false));
        assert_eq!(after(1, 2), (vec![], Some(3), false), "further on, although there is nothing");
        assert_eq!(after(4, 2), (vec![], None, true));
    });
}

#[test]
fn when_the_next_events_came_is_known_also_if_the_clock_was_set_back() {
    both(|scratch| {
        for (n, at_s) in [(1, NOW_S), (2, NOW_S + 1_000), (3, NOW_S + 5), (4, NOW_S + 6)] {
            scratch.put_at(&[event(n, 1, n, &[], "")], at_s);
        }
        let after = |seq: i64| {
            let read = scratch.store.read(move |rx| archive::received_after(rx, seq));
            block_on(read).unwrap().map(|at_ms| at_ms / 1_000 - NOW_S.cast_signed())
        };
        assert_eq!([0, 1, 2, 3].map(after), [Some(0), Some(5), Some(5), Some(6)]);
        assert_eq!(after(4), None);
    });
}

#[test]
fn the_bell_rings_for_what_is_new_only() {
    both(|scratch| {
        use guild_bus::Bus;
        let mut bell = scratch.bus.listen(archive::TOPIC);
        let one = event(1, 1, 1, &[], "");
        scratch.put(std::slice::from_ref(&one));
        assert_eq!(bell.try_hear(), Some(0));
        scratch.put(&[one, event(1, 20_000, 1, &[], "")]);
        assert_eq!(bell.try_hear(), None);
    });
}

#[test]
fn a_deleted_event_that_is_pinned_is_kept_and_not_served() {
    both(|scratch| {
        let result = event(1, 6050, 5, &[&["t", "x"]], "evidence");
        let version = card(1, "x", 5, "old card");
        assert!(is_new(&scratch.put(&[result.clone(), version.clone()])));
        assert!(scratch.pin(&result) && scratch.pin(&version));
        assert!(!scratch.pin(&event(9, 1, 1, &[], "unknown")));
        let (id, own) = (result.id.hex(), address(1, "x"));
        let deletion = event(1, kind::DELETION, 6, &[&["e", &id], &["a", &own]], "bye");
        assert!(is_new(&scratch.put(&[deletion])));
        assert_eq!(scratch.contents(), ["bye"]);
        let by_id = Filter { ids: Some([result.id].into()), ..Filter::default() };
        assert_eq!(scratch.query(&[by_id, Filter::default().tag('t', ["x"])]), []);
        assert_eq!(scratch.event(&result), Some(result.clone()));
        assert_eq!(scratch.put(&[result]), [Put::Known]);
        // What was hidden does not stand in the way of a new version.
        assert!(is_new(&scratch.put(&[card(1, "x", 7, "new card")])));
        assert_eq!(scratch.contents(), ["new card", "bye"]);
    });
}

#[test]
fn a_pinned_event_that_is_replaced_is_kept_and_not_served() {
    both(|scratch| {
        let versions: Vec<Event> = ["one", "two", "three"]
            .into_iter()
            .zip(1..)
            .map(|(c, at)| card(1, "x", at, c))
            .collect();
        assert!(is_new(&scratch.put(&versions[..1])));
        assert!(scratch.pin(&versions[0]));
        assert!(is_new(&scratch.put(&versions[1..2])));
        assert_eq!(scratch.contents(), ["two"]);
        assert_eq!(scratch.event(&versions[0]), Some(versions[0].clone()));
        assert_eq!(scratch.put(&versions[..1]), [Put::Known]);
        // Whoever deletes the hidden one by its id says nothing about the one that stands there now.
        let id = versions[0].id.hex();
        let deletion = event(1, kind::DELETION, 2, &[&["e", &id]], "bye");
        assert!(is_new(&scratch.put(&[deletion, versions[2].clone()])));
        assert_eq!(scratch.contents(), ["three", "bye"]);
        assert_eq!(scratch.event(&versions[1]), None);
        assert_eq!(scratch.head().events, 3);
    });
}

#[test]
fn an_author_s_latest_wish_about_an_address_counts_among_many() {
    both(|scratch| {
        let own = address(1, "x");
        let delete = |author: u64, at: u64| {
            event(author, kind::DELETION, at, &[&["a", &own]], &format!("{author} {at}"))
        };
        // Strangers may wish what they like; of the author's wishes the latest is not the last that came.
        let wishes = [delete(2, 90), delete(1, 10), delete(1, 30), delete(1, 20), delete(3, 99)];
        for wish in wishes {
            assert!(is_new(&scratch.put(&[wish])));
        }
        assert_eq!(scratch.put(&[card(1, "x", 30, "covered")]), [Put::Deleted]);
        assert!(is_new(&scratch.put(&[card(1, "x", 31, "later")])));
    });
}

impl Scratch {
    /// How many events are found within a budget, or why not.
    fn found_within(&self, filters: &[Filter], budget: Budget) -> Result<usize, &'static str> {
        let filters = filters.to_vec();
        let read = self.store.read(move |rx| {
            archive::query_within(rx, &filters, budget, NOW_S, &|_| true).map(|found| found.len())
        });
        block_on(read).map_err(|error| error.code().name)
    }
}

#[test]
fn what_is_read_in_vain_counts_by_its_size_and_over_all_filters() {
    both(|scratch| {
        let long = "x".repeat(20_000);
        let notes: Vec<Event> = (0..20)
            .map(|n| {
                event(1, 1, 100 + n, &[&["t", "a"], &["u", "b"]], if n < 5 { &long } else { "" })
            })
            .collect();
        assert!(is_new(&scratch.put(&notes)));
        let none =
            |kind| Filter::kinds([kind]).tag('t', ["a"]).tag('u', ["b", "c"]).tag('v', ["d"]);
        let cost = |visits| Budget { events: 100, bytes: usize::MAX, visits };
        let all = Filter::default().tag('t', ["a"]);
        assert_eq!(scratch.found_within(&[all], cost(0)), Ok(20), "what is found costs nothing");
        assert_eq!(
            scratch.found_within(&[none(1)], cost(0)),
            Ok(0),
            "the rare tag is walked along"
        );
        let ids = notes.iter().map(|note| note.id).collect();
        let named = Filter { ids: Some(ids), ..Filter::kinds([2]) };
        assert_eq!(scratch.found_within(std::slice::from_ref(&named), cost(130)), Ok(0));
        assert_eq!(
            scratch.found_within(std::slice::from_ref(&named), cost(100)),
            Err("network.query_too_wide")
        );
        let twice = [named.clone(), named];
        assert_eq!(scratch.found_within(&twice, cost(130)), Err("network.query_too_wide"));
    });
}

#[test]
fn a_walk_goes_along_the_narrowest_condition() {
    both(|scratch| {
        let popular: Vec<Event> = (0..300).map(|n| event(1, 1, n, &[&["t", "all"]], "")).collect();
        assert!(is_new(&scratch.put(&popular)));
        let (rare, other) =
            (event(2, 1, 5, &[&["t", "all"]], ""), event(1, 1, 5, &[&["t", "few"]], ""));
        assert!(is_new(&scratch.put(&[rare, other])));
        let asked = |author: u64, topic: &str| Filter {
            authors: Some([key(author).public_key()].into()),
            ..Filter::default().tag('t', [topic])
        };
        let budget = Budget { visits: 20, ..Budget::events(10) };
        assert_eq!(scratch.found_within(&[asked(2, "all")], budget), Ok(1));
        assert_eq!(scratch.found_within(&[asked(1, "few")], budget), Ok(1));
        assert_eq!(scratch.found_within(&[asked(2, "few")], budget), Ok(0));
    });
}

#[test]
fn a_filter_that_passes_none_of_very_many_is_refused() {
    both(|scratch| {
        // Rows of no event under the term of kind 1: whatever is looked at does not pass.
        let many =
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 110000)
                    INSERT INTO nostr_term (term, place, seq) SELECT 1, -CAST(i AS BIGINT) * 268435456, i FROM n";
        block_on(scratch.store.write(move |tx| tx.exec(many, &[]))).unwrap();
        let query = |filter: Filter| {
            let read = scratch
                .store
                .read(move |rx| archive::query(rx, std::slice::from_ref(&filter), 10, NOW_S));
            block_on(read).map_err(|error| error.code().name)
        };
        assert_eq!(query(Filter::kinds([1])), Err("network.query_too_wide"));
        let narrow = Filter { until: Some(1_000), ..Filter::kinds([1]) };
        assert_eq!(query(narrow), Ok(vec![]));
    });
}

#[test]
fn what_is_addressed_to_somebody_is_found_behind_whatever_else_is() {
    both(|scratch| {
        let (us, letter) = (key(1).public_key().hex(), "x".repeat(64));
        let tags: [&[&str]; 2] = [&["p", &us], &["e", &letter]];
        let mail: Vec<Event> =
            [6050, 7000].map(|kind| event(2, kind, NOW_S - 10_000, &tags, "mail")).to_vec();
        scratch.put(&mail);
        // Newer than all of it, and of a kind that nobody asks for.
        let flood: Vec<Event> =
            (0..300).map(|n| event(3, 1, NOW_S - n, &tags, &n.to_string())).collect();
        scratch.put(&flood);
        let found = |filter: Filter| {
            let budget = archive::Budget { visits: 50, ..archive::Budget::events(10) };
            let read = scratch.store.read(move |rx| {
                let filters = std::slice::from_ref(&filter);
                archive::query_within(rx, filters, budget, NOW_S, &|_| true)
            });
            let found = block_on(read).map_err(|error| error.code().name)?;
            Ok::<_, &str>(found.into_iter().map(|stored| stored.event_id).collect::<Vec<_>>())
        };
        let mut expected: Vec<_> = mail.iter().map(|event| event.id).collect();
        expected.sort();
        for filter in
            [Filter::default().tag('p', [us.clone()]), Filter::default().tag('e', [letter])]
        {
            let kinds = Some([5, 6050, 7000].into());
            assert_eq!(found(Filter { kinds, ..filter.clone() }), Ok(expected.clone()));
            assert_eq!(found(filter).unwrap().len(), 10, "of all kinds the newest");
        }
        // So many that a term for each pair would be too many: found by the tags alone.
        let kinds: Vec<u16> = (0..600).collect();
        let values = [us, "y".to_owned()];
        assert_eq!(found(Filter::kinds(kinds).tag('p', values)).unwrap().len(), 10);
        // Forgotten with the event.
        let forget = scratch.store.write(|tx| {
            let bounds = archive::Bounds { max_events: 0, max_bytes: 0 };
            archive::sweep(tx, NOW_S, &bounds)
        });
        block_on(forget).unwrap();
        let left =
            scratch.store.read(|rx| rx.first::<(i64,)>("SELECT count(*) FROM nostr_term", &[]));
        assert_eq!(block_on(left).unwrap(), Some((0,)));
    });
}
