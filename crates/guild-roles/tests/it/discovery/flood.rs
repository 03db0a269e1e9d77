//! A flood of announcements by very many keys.

use std::collections::VecDeque;

use guild_network::archive::{self, Bounds};
use guild_network::index;
use guild_network::intake::{Origin, Pending, Verdict};
use guild_protocol::nostr::{Draft, Event, kind, tag, unix_s};
use guild_roles::discovery::Options;
use guild_roles::router::{Status, TaskType};

use super::{HOUR_MS, Hall, T0, WORK, both, card, key, on_sqlite, priced, until, who};

/// The keys of the flood begin here.
const FIRST: u64 = 1_000_000;

/// Announcements of the same work as the honest one's, signed on all cores.
fn flood(keys: u64, offers: u64) -> Vec<Event> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let made = |first: u64| {
        let mut events = Vec::new();
        for n in (first..keys).step_by(usize::try_from(threads).unwrap()) {
            let by = key(FIRST + n);
            for d in 0..offers {
                let tags = vec![
                    tag::tag(["d", &d.to_string()]),
                    tag::tag(["k", "5050"]),
                    tag::tag(["t", WORK]),
                ];
                let content = format!("{{\"name\":\"Flood {n}\"}}");
                let draft =
                    Draft { kind: kind::ANNOUNCEMENT, created_at: unix_s(T0), tags, content };
                events.push(draft.sign(&by).unwrap());
            }
        }
        events
    };
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads).map(|first| scope.spawn(move || made(first))).collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    })
}

pub(super) async fn pour(hall: &Hall, events: Vec<Event>) -> usize {
    let source = hall.intake.source(&Origin::Relay("ws://flood".to_owned()));
    let mut pending: VecDeque<Pending> = VecDeque::new();
    let mut stored = 0;
    for event in events {
        pending.push_back(source.submit(event).await);
        if pending.len() >= 8_192 {
            let verdict = pending.pop_front().unwrap().await;
            stored += usize::from(matches!(verdict, Verdict::Stored { .. }));
        }
    }
    for verdict in pending {
        stored += usize::from(matches!(verdict.await, Verdict::Stored { .. }));
    }
    stored
}

async fn rows(hall: &Hall, sql: &'static str) -> i64 {
    hall.store.read(move |rx| rx.first::<(i64,)>(sql, &[])).await.unwrap().unwrap().0
}

async fn survive(hall: Hall, keys: u64, offers: u64) {
    let budget = usize::try_from(Options::default().new_per_hour).unwrap();
    hall.announce(1, &card("a"), "ws://honest").await;
    until(async || hall.entry(1, "a").is_some()).await;
    let all = usize::try_from(keys * offers).unwrap();
    hall.pass(1_000).await;
    assert_eq!(pour(&hall, flood(keys, offers)).await, all);
    // While it lasts another one comes, by a relay of its own.
    hall.pass(1_000).await;
    hall.announce(2, &card("b"), "ws://honest").await;
    until(async || hall.entry(2, "b").is_some()).await;
    let len = || hall.discovery.ask(|registry, _| registry.len()).unwrap();
    assert_eq!(len(), budget + 2, "as many as one relay may bring in an hour");
    assert_eq!(hall.found(WORK).first(), Some(&who(1)), "it was there first");
    // Whoever is alive says so, and comes before all that only announce.
    hall.pass(600_000).await;
    hall.beat(1).await;
    hall.beat(2).await;
    hall.pass(30_000).await;
    let heard = |n, d| hall.entry(n, d).and_then(|entry| entry.life.heard_ms) >= Some(T0 + 600_000);
    until(async || heard(1, "a") && heard(2, "b")).await;
    hall.pass(400_000).await;
    until(async || hall.discovery.summary().is_some_and(|sum| sum.live == 2)).await;
    assert_eq!(hall.found(WORK).get(..2), Some(&[who(1), who(2)][..]));
    let over = i64::try_from(all - budget).unwrap();
    until(async || hall.counted("budget").await == over).await;
    // What is kept of it in rows is bounded, too.
    let marks = rows(&hall, "SELECT count(*) FROM market_offer_mark").await;
    let loud = rows(&hall, "SELECT count(*) FROM market_loud_key").await;
    assert!(marks <= i64::try_from(budget).unwrap() + 2 && loud <= 1_000, "{marks} {loud}");
    let bytes = hall.discovery.summary().unwrap().bytes;
    assert!(bytes < 4_000 * (budget + 2), "{bytes}");
    // A later hour lets as many in, and never more than there is room for.
    for hour in 1..4 {
        hall.pass(HOUR_MS).await;
        hall.beat(1).await;
        hall.pass(30_000).await;
        until(async || {
            hall.entry(1, "a").is_some_and(|entry| entry.life.heard_ms >= Some(T0 + hour * HOUR_MS))
        })
        .await;
    }
    assert!(len() <= 4 * budget + 2, "{}", len());
    assert!(hall.found(WORK).contains(&who(1)) && hall.is_sound());
}

#[test]
fn a_hundred_thousand_announcements_of_ten_thousand_keys_hide_nobody() {
    on_sqlite(Options::default(), async |hall| survive(hall, 10_000, 10).await);
}

#[test]
fn a_flood_hides_nobody_on_either_database() {
    both(&Options::default(), async |hall| survive(hall, 300, 10).await);
}

#[test]
fn whom_the_matrix_knows_is_let_in_and_not_taken_for_gone() {
    both(&Options { new_per_hour: 5, ..Options::default() }, async |hall| {
        pour(&hall, flood(20, 1)).await;
        hall.announce(1, &card("a"), "ws://flood").await;
        until(async || hall.counted("budget").await == 16).await;
        assert!(hall.entry(1, "a").is_none(), "the budget of its relay is spent");
        // Somebody of whom there is nothing is admitted after it, and looked for after it.
        hall.admit(1, "a").await;
        hall.admit(3, "c").await;
        hall.pass(330_000).await;
        let task: TaskType = WORK.parse().unwrap();
        let matrix = async || hall.router.current().await.unwrap();
        let status = async |n| matrix().await.entry(&task, &who(n)).map(|one| one.status);
        until(async || status(3).await == Some(Status::Quarantined)).await;
        assert_eq!(status(1).await, Some(Status::Active));
        assert!(hall.entry(1, "a").is_some() && hall.is_sound());
    });
}

#[test]
fn whom_the_matrix_knows_and_who_works_for_us_stay_in_the_archive() {
    both(&Options::default(), async |hall| {
        hall.announce(3, &priced("c", 400), "ws://honest").await;
        until(async || hall.entry(3, "c").is_some()).await;
        assert_eq!(hall.hired("an order that stays open").await, who(3));
        pour(&hall, flood(60, 1)).await;
        hall.announce(1, &card("a"), "ws://honest").await;
        hall.admit(1, "a").await;
        hall.pass(31_000).await;
        let known = async || hall.store.read(archive::known).await.unwrap();
        until(async || known().await == [who(1), who(3)].into()).await;
        let (now_s, bounds) = (hall.now_s(), Bounds { max_events: 10, ..Bounds::default() });
        let swept = hall.store.write(move |tx| archive::sweep(tx, now_s, &bounds)).await.unwrap();
        assert!(swept.forgotten > 50, "{swept:?}");
        let offers = [(who(1), "a"), (who(3), "c")];
        let there = hall.store.read(move |rx| index::still_announced(rx, &offers)).await.unwrap();
        assert_eq!(there, offers.map(|(key, d)| (key, d.to_owned())).into());
    });
}

#[test]
fn whoever_is_recommended_by_a_trusted_key_comes_in_and_first() {
    let trusted = [who(77)].into();
    both(&Options { new_per_hour: 5, trusted, ..Options::default() }, async |hall| {
        pour(&hall, flood(20, 1)).await;
        let recommendation = Draft {
            kind: kind::RECOMMENDATION,
            created_at: hall.now_s(),
            tags: vec![tag::tag(["d", "5050"]), tag::tag(["a", &card("a").address(&who(1))])],
            content: String::new(),
        };
        hall.bring(recommendation.sign(&key(77)).unwrap(), "ws://flood").await;
        hall.announce(1, &card("a"), "ws://flood").await;
        until(async || hall.counted("budget").await >= 15).await;
        // It is known that it is recommended, and it is looked at again.
        hall.pass(30_000).await;
        until(async || hall.entry(1, "a").is_some()).await;
        // Among those that are live it is the first.
        hall.pass(30_000).await;
        until(async || hall.found(WORK).first() == Some(&who(1))).await;
        assert_eq!(hall.found(WORK).len(), 6);
    });
}
