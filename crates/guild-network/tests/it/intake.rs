//! From an event that somebody brings to one that is stored.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use futures_util::future::{FutureExt, join, join_all};
use guild_network::archive::{self, Put, Verified};
use guild_network::index;
use guild_network::intake::{Intake, Lagged, NotKept, Options, Origin, Pending, Source, Verdict};
use guild_protocol::env::{BoxFuture, Clock, Shutdown, UnixMs};
use guild_protocol::nostr::{Event, Filter, Limits, kind};
use guild_store::Point;

use crate::support::{NOW_S, Scratch, SetClock, block_on, both, event};

/// Runs a test beside the service of an intake.
fn with_intake<F: Future<Output = ()>>(
    scratch: &Scratch,
    options: Options,
    test: impl FnOnce(Intake) -> F,
) {
    let (intake, service) =
        Intake::new(options, scratch.store.clone(), &*scratch.bus, SetClock::at(NOW_S));
    let shutdown = Shutdown::new();
    let stop = shutdown.clone();
    let test = test(intake);
    let beside = async move {
        test.await;
        stop.trigger();
    };
    block_on(join(service.run(shutdown), beside)).0.unwrap();
}

#[test]
fn an_event_is_stored_once_and_fed_to_whoever_listens() {
    both(|scratch| {
        for workers in [0, 2] {
            let options = Options { workers, ..Options::default() };
            with_intake(scratch, options, async |intake| {
                let mut live = intake.live();
                let content = format!("hello {workers}");
                let note = event(1, 1, NOW_S, &[&["t", "x"]], &content);
                let relay = Origin::Relay("wss://relay.example".to_owned());
                let verdict = intake.offer(&relay, note.clone()).await;
                assert!(matches!(verdict, Verdict::Stored { .. }), "{verdict:?}");
                assert_eq!(intake.offer(&Origin::Own, note.clone()).await, Verdict::Known);
                let fed = live.next().await.unwrap().unwrap();
                assert_eq!((fed.event(), fed.json()), (&note, note.to_json().as_str()));
                let passed = event(1, 20_001, NOW_S, &[], &content);
                let verdict = intake.offer(&Origin::Client(1), passed.clone()).await;
                assert_eq!(verdict, Verdict::NotKept(NotKept::Ephemeral));
                assert_eq!(live.next().await.unwrap().unwrap().event(), &passed);
                assert_eq!(intake.counts().stored, 1);
            });
        }
        let all = [Filter::default()];
        let found = block_on(scratch.store.read(move |rx| archive::query(rx, &all, 9, NOW_S)));
        assert_eq!(found.unwrap().len(), 2);
    });
}

/// Refused: the code, and whether it was forged.
fn refused(verdict: &Verdict) -> Option<(&'static str, bool)> {
    match verdict {
        Verdict::Refused(refusal) => Some((refusal.code.name, refusal.is_hostile())),
        _ => None,
    }
}

fn note(n: u64) -> Event {
    event(1 + n % 5, 1, NOW_S, &[], &n.to_string())
}

/// An event that is taken up at once: there is room.
fn taken(source: &Source, event: Event) -> Pending {
    // However many were taken before: else tokio lets others go first, and it seems that there is no room.
    tokio::task::unconstrained(source.submit(event)).now_or_never().unwrap()
}

/// The signature of another event by the same author: right in form, wrong in fact.
fn forged(n: u64) -> Event {
    Event { sig: note(n + 5).sig, ..note(n) }
}

#[test]
fn a_changed_content_under_a_known_id_is_refused() {
    both(|scratch| {
        with_intake(scratch, Options::default(), async |intake| {
            let honest = note(1);
            let source = intake.source(&Origin::Client(1));
            assert!(matches!(source.offer(honest.clone()).await, Verdict::Stored { .. }));
            let changed = Event { content: "changed".to_owned(), ..honest.clone() };
            let verdict = source.offer(changed.clone()).await;
            assert_eq!(refused(&verdict), Some(("nostr.event_id_wrong", true)));
            assert!(verdict.message().starts_with("invalid: "), "{}", verdict.message());
            // With the id that fits, the signature does not.
            let resealed = Event { id: changed.compute_id(), ..changed };
            assert_eq!(refused(&source.offer(resealed).await), Some(("key.signature_wrong", true)));
            assert_eq!(intake.counts().hostile, 2);
            // A copy with another signature is the same event, and is not looked at again.
            let copy = Event { sig: note(6).sig, ..honest };
            assert_eq!(source.offer(copy).await, Verdict::Known);
        });
        assert_eq!(kept(scratch), ["1"]);
    });
}

fn kept(scratch: &Scratch) -> Vec<String> {
    let read = scratch.store.read(|rx| archive::after(rx, 0, &[], 100_000));
    block_on(read).unwrap().into_iter().map(|(_, event)| event.content).collect()
}

#[test]
fn a_flood_of_bad_signatures_is_counted_and_honest_work_goes_on() {
    let scratch = Scratch::sqlite();
    let options = Options { origin_max_bytes: 64 << 10, workers: 2, ..Options::default() };
    with_intake(&scratch, options, async |intake| {
        let (bad, good) = (intake.source(&Origin::Client(1)), intake.source(&Origin::Client(2)));
        let template = forged(0);
        let flood = async {
            let mut pending = Vec::new();
            for n in 0..3_000_u64 {
                let content = format!("forged {n}");
                let mut forged = Event { content, ..template.clone() };
                forged.id = forged.compute_id();
                pending.push(bad.submit(forged).await);
            }
            for verdict in pending {
                assert_eq!(refused(&verdict.await), Some(("key.signature_wrong", true)));
            }
        };
        let honest = async {
            for n in 0..100 {
                assert!(matches!(good.offer(note(n)).await, Verdict::Stored { .. }));
            }
        };
        join(flood, honest).await;
        let counts = intake.counts();
        assert_eq!((counts.hostile, counts.stored), (3_000, 100));
    });
    assert_eq!(kept(&scratch).len(), 100);
}

#[test]
fn what_waits_is_bounded_for_each_origin_and_for_all() {
    let scratch = Scratch::sqlite();
    let options =
        Options { origin_max_bytes: 20_000, total_max_bytes: 50_000, ..Options::default() };
    // The service does not run: nothing is ever checked.
    let (intake, service) =
        Intake::new(options, scratch.store.clone(), &*scratch.bus, SetClock::at(NOW_S));
    let mut taken = Vec::new();
    for origin in 0..4 {
        let source = intake.source(&Origin::Client(origin));
        let mut pending = Vec::new();
        for n in 0..100 {
            // What finds no room stays with whoever brings it.
            let Some(taken) = source.submit(note(n)).now_or_never() else { break };
            pending.push(taken);
        }
        taken.push(pending.len());
    }
    assert_eq!(taken, [19, 19, 10, 0]);
    // Whoever waits for room waits, and a stopped intake says so.
    let source = intake.source(&Origin::Own);
    let mut waiting = Box::pin(source.offer(note(1)));
    assert_eq!((&mut waiting).now_or_never(), None);
    drop(service);
}

#[test]
fn an_intake_that_has_stopped_says_so() {
    both(|scratch| {
        let mut kept = None;
        with_intake(scratch, Options::default(), async |intake| kept = Some(intake));
        let verdict = block_on(kept.unwrap().offer(&Origin::Own, note(1)));
        assert_eq!(refused(&verdict), Some(("network.stopped", false)));
        assert_eq!(verdict.message(), "error: this node is stopping");
    });
}

#[test]
fn the_future_and_the_oversized_are_refused_before_any_signature() {
    both(|scratch| {
        let limits = Limits { max_content_bytes: 100, max_tags: 2, ..Limits::DEFAULT };
        with_intake(scratch, Options { limits, ..Options::default() }, async |intake| {
            let soon = event(1, 1, NOW_S + 900, &[], "soon");
            let late = event(1, 1, NOW_S + 901, &[], "too late");
            let large = event(1, 1, NOW_S, &[], &"x".repeat(101));
            let tagged = event(1, 1, NOW_S, &[&["t"], &["t"], &["t"]], "");
            let source = intake.source(&Origin::Client(1));
            assert!(matches!(source.offer(soon).await, Verdict::Stored { .. }));
            let mut codes = Vec::new();
            for event in [late, large, tagged] {
                codes.push(refused(&source.offer(event).await).unwrap());
            }
            assert_eq!(
                codes,
                [
                    ("network.event_from_the_future", false),
                    ("nostr.content_size", false),
                    ("nostr.tag_count", false),
                ]
            );
            assert_eq!(intake.counts().refused, 3);
        });
    });
}

#[test]
fn a_flood_of_copies_is_stored_once() {
    both(|scratch| {
        with_intake(scratch, Options { workers: 2, ..Options::default() }, async |intake| {
            let sources = [1, 2, 3].map(|n| intake.source(&Origin::Client(n)));
            let mut pending = Vec::new();
            for n in 0..600 {
                pending.push(sources[n % 3].submit(note(n as u64 % 10)).await);
            }
            let mut stored = 0;
            for verdict in pending {
                match verdict.await {
                    Verdict::Stored { .. } => stored += 1,
                    verdict => assert_eq!(verdict, Verdict::Known),
                }
            }
            assert_eq!((stored, intake.counts().known), (10, 590));
        });
        assert_eq!(kept(scratch).len(), 10);
    });
}

#[test]
fn a_verdict_says_why_a_good_event_is_not_kept() {
    both(|scratch| {
        let gone = event(1, 1, NOW_S, &[], "gone");
        let id = gone.id.hex();
        let profile = |at: u64| event(1, 0, NOW_S + at, &[], "");
        scratch.put(&[event(1, 5, NOW_S, &[&["e", &id]], ""), profile(2)]);
        with_intake(scratch, Options::default(), async |intake| {
            let over = event(1, 1, NOW_S, &[&["expiration", "1"]], "");
            for (event, reason, accepted) in [
                (gone, NotKept::Deleted, false),
                (profile(1), NotKept::Older, true),
                (over, NotKept::Expired, false),
            ] {
                // Twice: what became of it is remembered.
                for _ in 0..2 {
                    let verdict = intake.offer(&Origin::Own, event.clone()).await;
                    assert_eq!(verdict, Verdict::NotKept(reason));
                    assert_eq!(verdict.is_accepted(), accepted);
                }
            }
        });
    });
}

#[test]
fn the_feed_has_everything_in_order_whoever_stored_it() {
    both(|scratch| {
        with_intake(scratch, Options { workers: 2, ..Options::default() }, async |intake| {
            let mut live = intake.live();
            let source = intake.source(&Origin::Client(1));
            let mut expected = Vec::new();
            for n in 0..30 {
                let event = note(n);
                // The first one is offered: once it is stored the service runs, and its feed has begun.
                if n % 3 == 1 {
                    let own = [Verified::check(event).unwrap()];
                    let write = scratch.store.write(move |tx| archive::put(tx, &own, "own", 1));
                    assert!(matches!(write.await.unwrap()[..], [Put::New { .. }]));
                } else {
                    assert!(matches!(source.offer(event).await, Verdict::Stored { .. }));
                }
                expected.push((Some(i64::try_from(n).unwrap() + 1), n.to_string()));
            }
            let mut fed = Vec::new();
            for _ in 0..30 {
                let event = live.next().await.unwrap().unwrap();
                fed.push((event.seq, event.event().content.clone()));
            }
            assert_eq!(fed, expected);
        });
    });
}

#[test]
fn a_slow_reader_of_the_feed_is_told_what_it_missed() {
    let scratch = Scratch::sqlite();
    let options = Options { live_max_events: 8, ..Options::default() };
    with_intake(&scratch, options, async |intake| {
        let mut live = intake.live();
        for n in 0..20 {
            assert!(matches!(intake.offer(&Origin::Own, note(n)).await, Verdict::Stored { .. }));
        }
        assert_eq!(live.next().await, Some(Err(Lagged(12))));
        assert_eq!(live.next().await.unwrap().unwrap().seq, Some(13));
    });
}

/// A database that refuses the next so many commits of events.
fn failing(failures: &Arc<AtomicU32>) -> Scratch {
    let left = failures.clone();
    Scratch::sqlite_with(move |hooks| {
        // Only where an event was stored: a bell says so.
        hooks.with_faults(move |point, bells| {
            let take =
                || left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
            let fails = point == Point::BeforeCommit && !bells.is_empty() && take().is_ok();
            fails.then(|| guild_store::Error::Database("planted".to_owned()))
        })
    })
}

#[test]
fn an_event_that_cannot_be_stored_takes_no_other_down_and_need_not_come_again() {
    let failures = Arc::new(AtomicU32::new(0));
    let scratch = failing(&failures);
    with_intake(&scratch, Options { workers: 0, ..Options::default() }, async |intake| {
        let source = intake.source(&Origin::Client(1));
        // The first group, and its first event alone, as often as it is tried.
        failures.store(11, Ordering::SeqCst);
        let pending = [taken(&source, note(1)), taken(&source, note(2)), taken(&source, note(3))];
        let mut verdicts = Vec::new();
        for verdict in pending {
            verdicts.push(verdict.await);
        }
        assert_eq!(refused(&verdicts[0]), Some(("network.event_unstorable", false)));
        assert_eq!(verdicts[0].message(), "blocked: this event cannot be stored here");
        assert!(verdicts[1..].iter().all(|verdict| matches!(verdict, Verdict::Stored { .. })));
        // Whoever brings it again costs nothing, though it could be stored now.
        assert_eq!(source.offer(note(1)).await, verdicts[0]);
        assert_eq!(intake.counts().refused, 2);
    });
    assert_eq!(kept(&scratch), ["2", "3"]);
}

#[test]
fn an_event_that_fails_by_chance_is_stored() {
    let failures = Arc::new(AtomicU32::new(0));
    let scratch = failing(&failures);
    with_intake(&scratch, Options { workers: 0, ..Options::default() }, async |intake| {
        let source = intake.source(&Origin::Client(1));
        for (n, failed) in [(1, 1), (2, 2), (3, 9)] {
            failures.store(failed, Ordering::SeqCst);
            assert!(matches!(source.offer(note(n)).await, Verdict::Stored { .. }), "{failed}");
        }
    });
    assert_eq!(kept(&scratch), ["1", "2", "3"]);
}

#[test]
fn a_database_that_refuses_everything_is_no_event_s_fault() {
    let fails = Arc::new(AtomicBool::new(false));
    let planted = fails.clone();
    let scratch = Scratch::sqlite_with(move |hooks| {
        hooks.with_faults(move |point, _| {
            let fails = point == Point::BeforeCommit && planted.load(Ordering::SeqCst);
            fails.then(|| guild_store::Error::Database("planted".to_owned()))
        })
    });
    with_intake(&scratch, Options { workers: 0, ..Options::default() }, async |intake| {
        let source = intake.source(&Origin::Client(1));
        assert!(matches!(source.offer(note(0)).await, Verdict::Stored { .. }));
        fails.store(true, Ordering::SeqCst);
        for verdict in [taken(&source, note(1)), taken(&source, note(2))] {
            let verdict = verdict.await;
            assert_eq!(refused(&verdict), Some(("store.database", false)));
            assert_eq!(verdict.message(), "error: the event could not be stored");
        }
        fails.store(false, Ordering::SeqCst);
        assert!(matches!(source.offer(note(1)).await, Verdict::Stored { .. }));
    });
    assert_eq!(kept(&scratch), ["0", "1"]);
}

#[test]
fn the_feed_leaves_nothing_out_when_a_group_is_stored_in_parts() {
    let failures = Arc::new(AtomicU32::new(0));
    let scratch = failing(&failures);
    with_intake(&scratch, Options { workers: 0, ..Options::default() }, async |intake| {
        let mut live = intake.live();
        let source = intake.source(&Origin::Client(1));
        failures.store(2, Ordering::SeqCst);
        let pending: Vec<_> = (0..8).map(|n| taken(&source, note(n))).collect();
        // Beside it, the node stores events of its own.
        let own = async {
            for n in 100..108 {
                let own = [Verified::check(note(n)).unwrap()];
                let write = scratch.store.write(move |tx| archive::put(tx, &own, "own", 1));
                // One of them may be what the database refuses.
                drop(write.await);
            }
        };
        let (_, ()) = join(join_all(pending), own).await;
        let last = scratch.store.read(archive::head).await.unwrap().last_seq;
        let mut fed = Vec::new();
        while fed.last() != Some(&Some(last)) {
            fed.push(live.next().await.unwrap().unwrap().seq);
        }
        assert_eq!(fed, (1..=last).map(Some).collect::<Vec<_>>());
    });
}

/// A clock whose sleeps are over at once, counted.
struct Counting(AtomicU32);

impl Clock for Counting {
    fn now_ms(&self) -> UnixMs {
        i64::try_from(NOW_S).unwrap() * 1000
    }

    fn sleep(&self, _: i64) -> BoxFuture<()> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(()))
    }
}

#[test]
fn what_could_not_be_read_for_the_feed_is_read_in_a_moment() {
    let failures = Arc::new(AtomicU32::new(0));
    let left = failures.clone();
    let scratch = Scratch::sqlite_with(move |hooks| {
        hooks.with_faults(move |_, _| {
            let is_reader = std::thread::current().name() == Some("store-reader");
            let take =
                || left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
            let fails = is_reader && take().is_ok();
            fails.then(|| guild_store::Error::Database("planted".to_owned()))
        })
    });
    let clock = Arc::new(Counting(AtomicU32::new(0)));
    let (intake, service) = Intake::new(
        Options { workers: 0, ..Options::default() },
        scratch.store.clone(),
        &*scratch.bus,
        clock.clone(),
    );
    let shutdown = Shutdown::new();
    let stop = shutdown.clone();
    let test = async move {
        let mut live = intake.live();
        assert!(matches!(intake.offer(&Origin::Own, note(1)).await, Verdict::Stored { .. }));
        assert_eq!(live.next().await.unwrap().unwrap().seq, Some(1));
        failures.store(2, Ordering::SeqCst);
        let own = [Verified::check(note(2)).unwrap()];
        scratch.store.write(move |tx| archive::put(tx, &own, "own", 1)).await.unwrap();
        assert_eq!(live.next().await.unwrap().unwrap().seq, Some(2));
        assert_eq!(failures.load(Ordering::SeqCst), 0);
        stop.trigger();
    };
    block_on(join(service.run(shutdown), test)).0.unwrap();
    assert!(clock.0.load(Ordering::SeqCst) > 0);
}

#[test]
fn a_group_ends_before_its_rows_are_too_many() {
    let commits = Arc::new(AtomicU32::new(0));
    let counted = commits.clone();
    let scratch = Scratch::sqlite_with(move |hooks| {
        hooks.with_faults(move |point, bells| {
            let counts = point == Point::BeforeCommit && !bells.is_empty();
            counted.fetch_add(u32::from(counts), Ordering::SeqCst);
            None
        })
    });
    let room = 256 << 20;
    let options =
        Options { workers: 0, origin_max_bytes: room, total_max_bytes: room, ..Options::default() };
    with_intake(&scratch, options, async |intake| {
        let values: Vec<String> = (0..1_990).map(|n| n.to_string()).collect();
        let tags: Vec<[&str; 2]> = values.iter().map(|value| ["t", value.as_str()]).collect();
        let tags: Vec<&[&str]> = tags.iter().map(|tag| &tag[..]).collect();
        let source = intake.source(&Origin::Client(1));
        let pending: Vec<_> =
            (0..80).map(|n| taken(&source, event(1, 1, NOW_S, &tags, &n.to_string()))).collect();
        let verdicts = join_all(pending).await;
        assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Stored { .. })));
    });
    assert_eq!(commits.load(Ordering::SeqCst), 2);
}

fn card(author: u64, created_at: u64, about: &str) -> Event {
    event(
        author,
        kind::ANNOUNCEMENT,
        created_at,
        &[&["d", "box"]],
        &format!("{{\"name\":{about:?}}}"),
    )
}

#[test]
fn an_announcement_from_the_future_does_not_take_the_place_of_honest_ones() {
    both(|scratch| {
        with_intake(scratch, Options::default(), async |intake| {
            let source = intake.source(&Origin::Client(1));
            for ahead_s in [901, 86_400, 1 << 50] {
                let verdict = source.offer(card(1, NOW_S + ahead_s, "for ever")).await;
                assert_eq!(refused(&verdict), Some(("network.event_from_the_future", false)));
            }
            assert!(matches!(source.offer(card(1, NOW_S, "now")).await, Verdict::Stored { .. }));
            assert_eq!((intake.counts().refused, intake.counts().stored), (3, 1));
        });
        let found = scratch.store.read(|rx| index::providers(rx, &index::Wanted::default()));
        let found = block_on(found).unwrap();
        assert_eq!(found[0].card.content.name.as_deref(), Some("now"));
        assert_eq!((found.len(), found[0].created_at), (1, NOW_S));
    });
}

#[test]
fn whoever_says_two_things_in_one_second_says_one_of_them_to_everybody() {
    both(|scratch| {
        let mut versions: Vec<Event> =
            (0..20).map(|n| card(1, NOW_S, &format!("version {n}"))).collect();
        let lowest = versions.iter().map(|version| version.id).min().unwrap();
        for turn in 0..2 {
            scratch.clear();
            versions.reverse();
            let versions = versions.clone();
            with_intake(scratch, Options { workers: 2, ..Options::default() }, async |intake| {
                // Two relays, each with every other version.
                let sources = [1, 2].map(|n| intake.source(&Origin::Client(n)));
                let mut pending = Vec::new();
                for (n, version) in versions.into_iter().enumerate() {
                    pending.push(sources[n % 2].submit(version).await);
                }
                let verdicts = join_all(pending).await;
                let counts = intake.counts();
                let older = Verdict::NotKept(NotKept::Older);
                let dropped = verdicts.iter().filter(|verdict| **verdict == older).count() as u64;
                assert_eq!((counts.not_kept, counts.stored), (dropped, 20 - dropped), "{turn}");
            });
            let all = [Filter::default()];
            let found = scratch.store.read(move |rx| archive::query(rx, &all, 99, NOW_S));
            let found = block_on(found).unwrap();
            assert_eq!(found.iter().map(|stored| stored.event_id).collect::<Vec<_>>(), [lowest]);
            let offers = scratch.store.read(|rx| index::providers(rx, &index::Wanted::default()));
            let offers = block_on(offers).unwrap();
            assert_eq!(offers.iter().map(|offer| offer.event_id).collect::<Vec<_>>(), [lowest]);
        }
    });
}
