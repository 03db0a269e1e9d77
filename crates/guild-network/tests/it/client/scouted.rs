//! Relays that are polled and sampled, over real sockets: what they bring, how they rise and fall, and what strangers
//! cannot do by them.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use guild_network::client::SubState;
use guild_network::client::tier::{Bar, Rules, Tier};
use guild_network::delivery::{self, Quality};
use guild_network::roster::{self, Bounds, Known, Source};
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::message::ClientMessage;

use super::relay::{Book, Peer, Relay};
use super::*;

/// A scout in a hurry.
fn hurried(polled: &[&str]) -> ScoutOptions {
    ScoutOptions {
        polled: polled.iter().map(|&url| url.to_owned()).collect(),
        bounds: Bounds { private: true, ..Bounds::default() },
        round_ms: 10,
        poll_every_ms: 50,
        sample_every_ms: 50,
        probe_every_ms: 20,
        ..ScoutOptions::default()
    }
}

fn scouted(options: Options, scout: ScoutOptions) -> Node {
    Node::with(Scratch::sqlite(), options, Some(scout))
}

async fn known(node: &Node, url: &str) -> Option<Known> {
    let url = url.to_owned();
    node.store().read(move |rx| roster::get(rx, &url)).await.unwrap()
}

async fn all(node: &Node) -> Vec<Known> {
    node.store().read(|rx| roster::list(rx, None)).await.unwrap()
}

async fn until_known(node: &Node, url: &str, what: &str, is_so: impl Fn(&Known) -> bool) -> Known {
    node.until(what, async |node: &Node| known(node, url).await.as_ref().is_some_and(&is_so)).await;
    known(node, url).await.unwrap()
}

/// An announcement that names relays.
fn hinting(n: u64, relays: &[&str]) -> Event {
    let d = n.to_string();
    let named: Vec<&str> = std::iter::once("relays").chain(relays.iter().copied()).collect();
    let tags: [&[&str]; 3] = [&["d", &d], &["k", "5050"], &named];
    event(1_000 + n, kind::ANNOUNCEMENT, now_s() - 60 - n, &tags, "{}")
}

/// Answers every question with the events that pass, as many as fit, and an end; until the client goes.
async fn serve(peer: &mut Peer, events: &[Event], page: usize) {
    while let Some(message) = peer.hear().await {
        match message {
            ClientMessage::Req { sub, filters } => {
                let passes = |event: &&Event| filters.iter().any(|filter| filter.matches(event));
                let mut found: Vec<&Event> = events.iter().filter(passes).collect();
                found.sort_by_key(|event| std::cmp::Reverse(event.created_at));
                for event in found.into_iter().take(page) {
                    peer.event(&sub, event).await;
                }
                peer.eose(&sub).await;
            }
            ClientMessage::Event(event) => peer.ok(&event, true, "").await,
            _ => {}
        }
    }
}

#[test]
fn a_polled_relay_is_fetched_by_pages_then_from_its_watermark_also_after_a_restart() {
    run(async {
        let cards: Vec<Event> = (0..30).map(|n| card(n, 100_000 + n * 1_000)).collect();
        let book = Book::of(&cards);
        let relay = Relay::honest(&book).await;
        let node = scouted(quick(&[]), hurried(&[&relay.url]));
        node.until_stored(&cards).await;
        let fetched = until_known(&node, &relay.url, "fetched", |one| one.tally.is_fetched).await;
        assert_eq!(
            (fetched.source, fetched.standing.tier),
            (Source::ConfiguredPolled, Tier::Polled)
        );
        assert!(fetched.standing.latency_ms.is_some());
        until_known(&node, &relay.url, "weighed", |one| one.tally.news == 30).await;
        let scratch = node.stop().await;

        // While nobody looks: one that is new, and one that reached the relay late.
        let (new, late) = (card(50, 0), card(51, 3_600));
        book.add(&new);
        book.add(&late);
        book.asked.lock().unwrap().clear();
        let node = Node::with(scratch, quick(&[]), Some(hurried(&[&relay.url])));
        node.until_stored(&[new, late]).await;
        until_known(&node, &relay.url, "weighed", |one| one.tally.news == 32).await;
        let asked = book.asked.lock().unwrap().clone();
        let overlap_s = Options::default().overlap_s;
        let recent = |filter: &Filter| filter.since.is_some_and(|s| s + overlap_s + 600 >= now_s());
        let cards_asked = asked.iter().filter(|filter| filter.matches(&cards[0]));
        assert_eq!(cards_asked.count(), 0, "what was fetched is not fetched again");
        assert!(asked.iter().filter(|filter| filter.kinds.is_some()).any(recent));
        assert!(asked.iter().all(|filter| filter.until.is_some()), "nothing is followed");
    });
}

#[test]
fn a_relay_that_an_announcement_names_is_probed_polled_and_once_it_brings_answers_followed() {
    for scratch in [Scratch::sqlite(), Scratch::postgres()] {
        let mut over = None;
        run(async { over = Some(rises(scratch).await) });
        // Not inside of the runtime: a database is removed by a client that waits.
        drop(over);
    }
}

/// From a hint to a socket that stays; the database, once all is over.
async fn rises(scratch: Scratch) -> Scratch {
    let theirs: Vec<Event> = (0..8).map(|n| card(100 + n, 50 + n)).collect();
    let far_book = Book::of(&theirs);
    let far = Relay::honest(&far_book).await;
    let near_book = Book::of(&[hinting(1, &[&far.url, "rubbish", "https://no.example"])]);
    let near = Relay::honest(&near_book).await;
    let rules = Rules {
        live: Bar { stability_milli: 700, yield_milli: 100, windows: 2 },
        // However long this takes, nothing falls meanwhile.
        keep_live: Bar { stability_milli: 0, yield_milli: 0, windows: i64::MAX },
        keep_poll: Bar { stability_milli: 0, yield_milli: 0, windows: i64::MAX },
        ..Rules::default()
    };
    let scout = ScoutOptions { rules, ..hurried(&[]) };
    let node = Node::with(scratch, quick(&[&near.url]), Some(scout));
    node.until_stored(&theirs).await;
    let polled = |one: &Known| one.standing.tier == Tier::Polled;
    let one = until_known(&node, &far.url, "polled", polled).await;
    assert_eq!((one.source, one.named_by), (Source::Hint, Some(key(1_001).public_key().hex())));
    assert_eq!(all(&node).await.len(), 2, "nothing that is no relay is known");

    // A request of ours, and the answer of whom it addresses, there alone. Somebody else answers too.
    let provider = key(1_100).public_key();
    let request = event(US, kind::DEFAULT_REQUEST, now_s(), &[&["p", &provider.hex()]], "");
    node.publish(&request, &[&near.url]).await;
    node.until_acked(&request, &[("acked", "")]).await;
    let (id, us) = (request.id.hex(), key(US).public_key().hex());
    let answer = |author| {
        let tags: [&[&str]; 2] = [&["e", &id], &["p", &us]];
        event(author, kind::DEFAULT_RESULT, now_s(), &tags, "{}")
    };
    far_book.add(&answer(1_555));
    far_book.add(&answer(1_100));
    let live = |one: &Known| one.standing.tier == Tier::Live;
    let one = until_known(&node, &far.url, "live", live).await;
    assert_eq!(one.tally.worth, 1, "only whom we asked proves something");
    assert!(one.standing.why.contains("have answered us"), "{}", one.standing.why);
    node.until("followed", async |node: &Node| {
        let status = node.pool.status();
        status.iter().any(|relay| relay.url == far.url && relay.live == SubState::Live)
    })
    .await;
    let later = card(900, 0);
    far_book.add(&later);
    node.until_stored(&[later]).await;

    let fared =
        node.store().read(move |rx| delivery::of_provider(rx, &provider, testbed::now_ms()));
    let fared: BTreeMap<String, Quality> = fared.await.unwrap().into_iter().collect();
    assert!(fared[&near.url].taken > 900 && fared[&near.url].answered == 0);
    assert!(fared[&far.url].answered > 900 && fared[&far.url].after_ms.is_some());
    let stranger = key(1_555).public_key();
    let none = node.store().read(move |rx| delivery::of_provider(rx, &stranger, 0)).await;
    assert!(none.unwrap().is_empty());
    node.stop().await
}

#[test]
fn a_polled_relay_that_changes_content_is_banned_and_what_is_known_stays_as_it_was() {
    run(async {
        let genuine = card(1, 60);
        let forged = Event { content: "{\"name\":\"other\"}".to_owned(), ..genuine.clone() };
        let book = Book::of(std::slice::from_ref(&genuine));
        let honest = Relay::honest(&book).await;
        let relay = Relay::script(move |mut peer| {
            let events = [forged.clone()];
            async move { serve(&mut peer, &events, 500).await }
        })
        .await;
        let node = scouted(quick(&[]), hurried(&[&relay.url, &honest.url]));
        let banned = |one: &Known| one.standing.is_banned(testbed::now_ms());
        let one = until_known(&node, &relay.url, "banned", banned).await;
        assert!(one.tally.hostile >= 1 && one.tally.bans == 1, "{:?}", one.tally);
        assert!(one.standing.why.contains("wrong ids or signatures"), "{}", one.standing.why);
        let (windows, later) = (one.tally.windows, card(2, 0));
        book.add(&later);
        node.until_stored(&[genuine.clone(), later]).await;
        let asked = known(&node, &honest.url).await.unwrap().tally.windows;
        until_known(&node, &honest.url, "on", |one| one.tally.windows > asked + 3).await;
        let one = known(&node, &relay.url).await.unwrap();
        assert_eq!(one.tally.windows, windows, "whoever is banned is not asked");
        assert!(node.stored(kind::ANNOUNCEMENT).await.contains(&genuine.to_json()));
    });
}

#[test]
fn a_relay_that_forges_a_little_on_every_connection_is_banned_all_the_same() {
    run(async {
        let genuine = card(1, 60);
        let known = genuine.clone();
        let relay = Relay::script(move |mut peer| {
            let forged = Event { content: "other".to_owned(), ..known.clone() };
            async move {
                // One for each connection, and away.
                while let Some(message) = peer.hear().await {
                    if let ClientMessage::Req { sub, .. } = message {
                        peer.event(&sub, &forged).await;
                        peer.bye().await;
                        return;
                    }
                }
            }
        })
        .await;
        let book = Book::of(std::slice::from_ref(&genuine));
        let honest = Relay::honest(&book).await;
        let options = Options { hostile_max: 3, ..quick(&[&relay.url, &honest.url]) };
        let node = Node::start(options);
        node.until_relay(&relay.url, "banned", |relay| relay.state == State::Banned).await;
        let counts = node.relay(&relay.url).counts;
        assert_eq!((counts.hostile, counts.bans, counts.connections), (4, 1, 4));
        assert_eq!(node.stored(kind::ANNOUNCEMENT).await, [genuine.to_json()]);
    });
}

#[test]
fn a_relay_that_makes_up_announcers_gets_no_socket_and_its_flood_counts_for_nothing() {
    run(async {
        // As many new announcers as anybody asks for, whenever somebody asks.
        let made = Arc::new(AtomicU64::new(0));
        let farm = Relay::script(move |mut peer| {
            let made = made.clone();
            async move {
                let first = made.fetch_add(40, Ordering::SeqCst);
                let cards: Vec<Event> = (first..first + 40).map(|n| card(10_000 + n, 5)).collect();
                serve(&mut peer, &cards, 500).await;
            }
        })
        .await;
        let few = Rules { flood_news: 20, ..Rules::default() };
        let honest_book = Book::of(&[hinting(1, &[&farm.url])]);
        let honest = Relay::honest(&honest_book).await;
        let node = scouted(quick(&[&honest.url]), ScoutOptions { rules: few, ..hurried(&[]) });
        let flooded = |one: &Known| one.tally.floods >= 4;
        let one = until_known(&node, &farm.url, "flooded", flooded).await;
        assert_eq!(one.standing.tier, Tier::Sampled, "{:?}", one.standing);
        assert!(one.standing.why.contains("counts for nothing"), "{}", one.standing.why);

        // Within the bounds of a flood it is polled, and never more.
        let scratch = node.stop().await;
        let node = Node::with(scratch, quick(&[&honest.url]), Some(hurried(&[])));
        until_known(&node, &farm.url, "polled", |one| one.standing.tier == Tier::Polled).await;
        let windows = known(&node, &farm.url).await.unwrap().tally.windows;
        let much = |one: &Known| one.tally.windows > windows + 15;
        let one = until_known(&node, &farm.url, "farmed", much).await;
        assert_eq!((one.standing.tier, one.tally.worth), (Tier::Polled, 0));
        let later = card(2, 0);
        honest_book.add(&later);
        node.until_stored(&[later]).await;
    });
}

#[test]
fn a_flood_of_hints_makes_few_relays_known_and_an_honest_one_is_among_them() {
    run(async {
        // By somebody who names nothing: a newer announcement would take the place of a hint.
        let far = Relay::honest(&Book::of(&[card(70_000, 60)])).await;
        // One who names many, and many who name three each, at hosts that do not exist.
        let port = free_port().await;
        let urls: Vec<String> = (0..400).map(|n| format!("ws://127.0.0.1:{port}/{n}")).collect();
        let greedy: Vec<&str> = urls.iter().take(40).map(String::as_str).collect();
        let mut events = vec![hinting(1, &[&far.url]), hinting(2, &greedy)];
        for n in 0..100 {
            let names: Vec<&str> = (0..3).map(|i| urls[100 + n * 3 + i].as_str()).collect();
            events.push(hinting(10 + u64::try_from(n).unwrap(), &names));
        }
        let near = Relay::honest(&Book::of(&events)).await;
        let bounds = Bounds { private: true, known_max: 50, ..Bounds::default() };
        let options = Options { connect_ms: 500, ..quick(&[&near.url]) };
        let node = scouted(options, ScoutOptions { bounds, ..hurried(&[]) });
        node.until_stored(&events).await;
        // What is never of use makes room, so in the end whoever is honest is known and asked.
        for round in 0..500 {
            let again = hinting(5_000 + round, &[&far.url]);
            node.intake.offer(&intake::Origin::Own, again).await;
            if known(&node, &far.url).await.is_some_and(|one| one.tally.is_fetched) {
                break;
            }
            RealClock.sleep(20).await;
        }
        until_known(&node, &far.url, "asked", |one| one.tally.is_fetched).await;
        let all = all(&node).await;
        assert!(all.len() <= 51, "{}", all.len());
        let greedy = key(1_002).public_key().hex();
        let named = all.iter().filter(|one| one.named_by.as_ref() == Some(&greedy)).count();
        assert!(named <= 3, "{named}");
        assert_eq!(known(&node, &near.url).await.unwrap().standing.tier, Tier::Live);

        // Without leave nothing on this host is known at all.
        let bounds = Bounds { private: false, ..Bounds::default() };
        let node = scouted(quick(&[&near.url]), ScoutOptions { bounds, ..hurried(&[]) });
        node.until_stored(&events).await;
        node.until("learnt", async |node: &Node| {
            let one = known(node, &near.url).await;
            one.is_some_and(|one| one.tally.events > 100)
        })
        .await;
        assert_eq!(self::all(&node).await.len(), 1);
    });
}

async fn free_port() -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn a_polled_relay_that_drops_delays_and_reorders_loses_and_repeats_nothing() {
    run(async {
        let cards: Vec<Event> = (0..40).map(|n| card(n, 1_000 + n * 100)).collect();
        let stored = cards.clone();
        let broken = Arc::new(AtomicU64::new(0));
        let drops = broken.clone();
        let relay = Relay::script(move |mut peer| {
            let (stored, drops) = (stored.clone(), drops.clone());
            async move {
                let breaks = peer.number % 2 == 0;
                while let Some(message) = peer.hear().await {
                    let ClientMessage::Req { sub, filters } = message else { continue };
                    let passes = |event: &&Event| filters.iter().any(|f| f.matches(event));
                    let mut found: Vec<&Event> = stored.iter().filter(passes).collect();
                    found.sort_by_key(|event| std::cmp::Reverse(event.created_at));
                    found.truncate(9);
                    // The oldest first, some twice, and slowly.
                    found.reverse();
                    for (n, event) in found.iter().enumerate() {
                        if breaks && n == 5 {
                            drops.fetch_add(1, Ordering::SeqCst);
                            return;
                        }
                        peer.event(&sub, event).await;
                        peer.event(&sub, event).await;
                        RealClock.sleep(2).await;
                    }
                    peer.eose(&sub).await;
                }
            }
        })
        .await;
        let node = scouted(quick(&[]), hurried(&[&relay.url]));
        node.until_stored(&cards).await;
        let one = until_known(&node, &relay.url, "fetched", |one| one.tally.is_fetched).await;
        assert_eq!(node.stored(kind::ANNOUNCEMENT).await.len(), cards.len());
        assert!(broken.load(Ordering::SeqCst) > 0 && one.tally.failures > 0, "{:?}", one.tally);
        assert_eq!(
            (one.standing.tier, one.tally.hostile),
            (Tier::Polled, 0),
            "unstable is not hostile"
        );
    });
}

#[test]
fn a_relay_that_lies_about_its_limits_is_fetched_whole() {
    run(async {
        let cards: Vec<Event> = (0..25).map(|n| card(n, 1_000 + n * 100)).collect();
        let stored = cards.clone();
        let says = r#"{"limitation":{"max_limit":18446744073709551615,"max_subscriptions":1}}"#;
        let relay = Relay::that_says(says, move |mut peer| {
            let stored = stored.clone();
            // It says that it gives all at once, and gives three.
            async move { serve(&mut peer, &stored, 3).await }
        })
        .await;
        let node = scouted(quick(&[]), hurried(&[&relay.url]));
        node.until_stored(&cards).await;
        let one = until_known(&node, &relay.url, "fetched", |one| one.tally.is_fetched).await;
        assert!(one.tally.limits > 0, "that is counted: {:?}", one.tally);
    });
}

#[test]
fn a_relay_without_an_end_is_cut_and_others_are_polled_meanwhile() {
    run(async {
        let stuck = Arc::new(Mutex::new(0_u64));
        let count = stuck.clone();
        let hole = Relay::script(move |mut peer| {
            let count = count.clone();
            async move {
                // Reads, and never answers.
                *count.lock().unwrap() += 1;
                while peer.hear().await.is_some() {}
            }
        })
        .await;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let endless = Relay::script(move |mut peer| {
            let over = over.clone();
            async move {
                let mut n = 0;
                while let Some(message) = peer.hear().await {
                    let ClientMessage::Req { sub, .. } = message else { continue };
                    while !over.load(Ordering::SeqCst) && n < 2_000 {
                        n += 1;
                        peer.event(&sub, &card(20_000 + n, 60 + n)).await;
                    }
                    peer.eose(&sub).await;
                }
            }
        })
        .await;
        let book = Book::of(&[card(1, 60)]);
        let honest = Relay::honest(&book).await;
        let options = Options { poll_ms: 2_000, poll_max_events: 100, ..quick(&[]) };
        let node = scouted(options, hurried(&[&hole.url, &endless.url, &honest.url]));
        let one = until_known(&node, &hole.url, "cut", |one| one.tally.cuts >= 2).await;
        assert_eq!(one.tally.failures, one.tally.windows, "{:?}", one.tally);
        assert!(*stuck.lock().unwrap() >= 2);
        let cut = until_known(&node, &endless.url, "cut", |one| one.tally.cuts >= 1).await;
        assert_eq!(cut.tally.last_error.as_deref(), Some("it has more events than one poll takes"));
        is_over.store(true, Ordering::SeqCst);
        let later = card(2, 0);
        book.add(&later);
        node.until_stored(&[later]).await;
        let asked = known(&node, &honest.url).await.unwrap().tally;
        assert!(asked.is_fetched && asked.failures == 0, "{asked:?}");
    });
}

#[test]
fn a_list_of_relays_is_learnt_from_too() {
    run(async {
        let theirs = card(1, 60);
        let far = Relay::honest(&Book::of(std::slice::from_ref(&theirs))).await;
        let somebody: PublicKey = key(1_200).public_key();
        let list = event(1_200, kind::RELAY_LIST, now_s() - 9, &[&["r", &far.url, "write"]], "");
        let near = Relay::honest(&Book::of(&[list])).await;
        let node = scouted(quick(&[&near.url]), hurried(&[]));
        let one = until_known(&node, &far.url, "known", |one| one.tally.is_fetched).await;
        assert_eq!((one.source, one.named_by), (Source::List, Some(somebody.hex())));
        node.until_stored(&[theirs]).await;
    });
}

#[test]
fn the_numbers_of_the_tiers_are_the_documented_ones() {
    let ScoutOptions {
        poll_every_ms,
        sample_every_ms,
        sample_percent,
        sample_min,
        sample_max,
        bounds,
        ..
    } = ScoutOptions::default();
    // Polled every five minutes; sampled each hour, a tenth, 4 to 24.
    assert_eq!((poll_every_ms, sample_every_ms), (5 * 60_000, 60 * 60_000));
    assert_eq!((sample_percent, sample_min, sample_max), (10, 4, 24));
    assert_eq!((bounds.live_max, bounds.polled_max, bounds.known_max), (8, 32, 500));
}
