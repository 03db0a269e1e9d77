//! What the events say about the market.

use guild_network::archive::{self, Bounds};
use guild_network::index::{self, Answer, Page, Provider, Request, Wanted};
use guild_protocol::amount::Msat;
use guild_protocol::env::Signer;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::announcement::Announcement;
use guild_protocol::nostr::job::{self, Feedback, Input, JobResult, Price, Status};
use guild_protocol::nostr::{Event, EventId, kind};

use crate::support::{NOW_S, Scratch, block_on, both, event, key};

mod older;
mod rebuild;

const NOW_MS: i64 = NOW_S as i64 * 1000;

impl Scratch {
    fn providers(&self, wanted: Wanted) -> Vec<Provider> {
        block_on(self.store.read(move |rx| index::providers(rx, &wanted))).unwrap()
    }

    fn requests(&self, page: Page) -> Vec<Request> {
        block_on(self.store.read(move |rx| index::requests(rx, &page))).unwrap()
    }

    fn answers(&self, request: EventId) -> Vec<Answer> {
        block_on(self.store.read(move |rx| index::answers_within(rx, &request, &[], 100))).unwrap()
    }
}

fn card(author: u64, d: &str, schemas: &[&str], created_at: u64) -> Event {
    let mut card = Announcement::new(d);
    card.kinds.push("5050".to_owned());
    card.topics.extend(schemas.iter().map(|&schema| schema.to_owned()));
    card.relays.push("wss://relay.example".to_owned());
    card.content.name = Some(format!("Provider {author}"));
    card.draft(created_at).unwrap().sign(&key(author)).unwrap()
}

fn request(buyer: u64, provider: Option<u64>, created_at: u64) -> Event {
    let mut request = job::Request::new(kind::DEFAULT_REQUEST);
    request.inputs.push(Input::text("{}"));
    request.schema_id = Some("oa.embedding.v1".to_owned());
    request.bid = Some(Msat(21));
    request.providers.extend(provider.map(|n| key(n).public_key()));
    request.draft(created_at).unwrap().sign(&key(buyer)).unwrap()
}

fn result(request: &Event, provider: u64, created_at: u64) -> Event {
    let mut result = JobResult::answering(request, "done").unwrap();
    result.price = Some(Price::new(Msat(20)));
    result.draft(created_at).unwrap().sign(&key(provider)).unwrap()
}

fn feedback(request: &Event, provider: u64, status: Status, created_at: u64) -> Event {
    Feedback::about(request, status).draft(created_at).unwrap().sign(&key(provider)).unwrap()
}

fn heartbeat(author: u64, d: &str, created_at: u64) -> Event {
    event(author, kind::HEARTBEAT, created_at, &[&["d", d]], "")
}

/// Somebody recommends the offers of these keys.
fn recommendation(author: u64, d: &str, providers: &[u64], created_at: u64) -> Event {
    let address = |n: &u64| format!("31990:{}:x", key(*n).public_key().hex());
    let addresses: Vec<String> = providers.iter().map(address).collect();
    let mut tags: Vec<Vec<&str>> = vec![vec!["d", d]];
    tags.extend(addresses.iter().map(|address| vec!["a", address, "wss://relay.example"]));
    let tags: Vec<&[&str]> = tags.iter().map(Vec::as_slice).collect();
    event(author, kind::RECOMMENDATION, created_at, &tags, "")
}

/// An announcement that says everything twice.
fn stammering(author: u64, d: &str, created_at: u64) -> Event {
    let content = r#"{"capabilities":{"supported_jobs":["a.v1","b.v1","a.v1"]}}"#;
    let tags: [&[&str]; 4] = [&["d", d], &["t", "b.v1"], &["t", "b.v1"], &["d", "another"]];
    event(author, kind::ANNOUNCEMENT, created_at, &tags, content)
}

#[test]
fn a_provider_that_claims_a_schema_twice_is_found_once() {
    both(|scratch| {
        scratch.put(&[stammering(1, "box", NOW_S)]);
        for schema in ["a.v1", "b.v1"] {
            let wanted = Wanted { schema_id: Some(schema.to_owned()), ..Wanted::default() };
            assert_eq!(scratch.providers(wanted).len(), 1, "{schema}");
        }
    });
}

#[test]
fn a_provider_is_found_by_what_it_claims_while_it_is_heard() {
    both(|scratch| {
        let cards = [
            card(1, "Box One", &["oa.embedding.v1"], NOW_S - 9_000),
            card(2, "b", &["oa.embedding.v1", "oa.sandbox_run.v1"], NOW_S - 8_000),
            card(3, "c", &[], NOW_S - 7_000),
        ];
        scratch.put(&cards);
        let of = |wanted: Wanted| {
            let found = scratch.providers(wanted);
            found.into_iter().map(|provider| provider.card.d).collect::<Vec<_>>()
        };
        let schema = |id: &str| Wanted { schema_id: Some(id.to_owned()), ..Wanted::default() };
        assert_eq!(of(Wanted::default()), ["c", "b", "Box One"]);
        assert_eq!(of(Wanted { limit: 1, ..Wanted::default() }), ["c"]);
        assert_eq!(of(schema("oa.embedding.v1")), ["b", "Box One"]);
        assert_eq!(of(schema("oa.sandbox_run.v1")), ["b"]);
        assert_eq!(of(schema("nobody.v1")), [""; 0]);
        // Only who was heard: by a heartbeat for that very offer, or by an answer to somebody.
        let live = || Wanted { live_since_ms: Some(NOW_MS - 900_000), ..Wanted::default() };
        assert_eq!(of(live()), [""; 0]);
        scratch.put(&[heartbeat(1, "Box One", NOW_S - 60), heartbeat(3, "another", NOW_S - 60)]);
        assert_eq!(of(live()), ["Box One"]);
        let asked = request(9, Some(2), NOW_S - 50);
        scratch.put(&[asked.clone(), feedback(&asked, 2, Status::Processing, NOW_S - 40)]);
        assert_eq!(of(live()), ["b", "Box One"]);
        // An old heartbeat that comes late is an old sign of life.
        scratch.put(&[heartbeat(3, "c", NOW_S - 5_000)]);
        assert_eq!(of(live()), ["b", "Box One"]);
        let one = key(1).public_key();
        let found = block_on(scratch.store.read(move |rx| index::provider(rx, &one))).unwrap();
        let [provider] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((provider.pubkey, provider.event_id), (one, cards[0].id));
        assert_eq!(provider.canonical_d, "box-one");
        assert_eq!(provider.heard_ms, Some(NOW_MS - 60_000));
        assert_eq!((provider.first_ms, provider.last_ms), (NOW_MS, NOW_MS));
        assert_eq!(provider.card.relays, ["wss://relay.example"]);
    });
}

#[test]
fn a_new_version_takes_the_place_of_the_old_and_keeps_when_it_was_first_seen() {
    both(|scratch| {
        scratch.put_at(&[card(1, "x", &["a.v1"], 1)], NOW_S);
        scratch.put_at(&[card(1, "x", &["b.v1"], 2)], NOW_S + 7);
        let found = scratch.providers(Wanted::default());
        let [provider] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((provider.first_ms, provider.last_ms), (NOW_MS, NOW_MS + 7_000));
        assert_eq!(provider.card.schema_ids(), ["b.v1"]);
        let a = Wanted { schema_id: Some("a.v1".to_owned()), ..Wanted::default() };
        assert_eq!(scratch.providers(a), []);
        let address = format!("31990:{}:x", key(1).public_key().hex());
        scratch.put(&[event(1, kind::DELETION, 3, &[&["a", &address]], "")]);
        assert_eq!(scratch.providers(Wanted::default()), []);
    });
}

const HEARTBEATS: &str = "SELECT count(*) FROM index_heartbeat";

#[test]
fn only_who_offers_something_is_remembered_as_heard_and_only_so_long() {
    both(|scratch| {
        let strangers: Vec<Event> = (10..40).map(|n| heartbeat(n, "x", NOW_S)).collect();
        scratch.put(&strangers);
        assert_eq!(scratch.number(HEARTBEATS), 0);
        scratch.put(&[card(1, "x", &[], NOW_S - 900), card(1, "y", &[], NOW_S - 900)]);
        let asked = request(9, None, NOW_S - 50);
        scratch.put(&[asked.clone(), feedback(&asked, 1, Status::Processing, NOW_S - 40)]);
        scratch.put(&[heartbeat(1, "x", NOW_S - 30)]);
        scratch.put(&[heartbeat(1, "nothing of the sort", NOW_S - 20)]);
        assert_eq!(scratch.number(HEARTBEATS), 2, "announcements need no row of their own");
        let heard = || {
            let found = scratch.providers(Wanted::default());
            let heard = |one: Provider| (one.card.d, one.heard_ms.unwrap() - NOW_MS);
            found.into_iter().map(heard).collect::<Vec<_>>()
        };
        assert_eq!(heard(), [("x".to_owned(), -30_000), ("y".to_owned(), -40_000)]);
        // An offer that is announced anew was still heard.
        scratch.put(&[card(1, "x", &["a.v1"], NOW_S - 800)]);
        assert_eq!(heard()[0], ("x".to_owned(), -30_000));
        let delete = |d: &str| {
            let address = format!("31990:{}:{d}", key(1).public_key().hex());
            scratch.put(&[event(1, kind::DELETION, NOW_S, &[&["a", &address]], "")]);
        };
        delete("x");
        assert_eq!(heard(), [("y".to_owned(), -40_000)]);
        assert_eq!(scratch.number(HEARTBEATS), 1);
        delete("y");
        assert_eq!(scratch.number(HEARTBEATS), 0);
    });
}

#[test]
fn the_long_silent_are_forgotten_in_small_steps() {
    both(|scratch| {
        let many = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 620)
                    INSERT INTO index_heartbeat (pubkey, d, last_ms) SELECT 'k', CAST(i AS TEXT), i FROM n";
        block_on(scratch.store.write(move |tx| tx.exec(many, &[]))).unwrap();
        let sweep = || {
            let sweep = scratch.store.write(|tx| archive::sweep(tx, NOW_S, &Bounds::default()));
            (block_on(sweep).unwrap().more, scratch.number(HEARTBEATS))
        };
        assert_eq!((sweep(), sweep()), ((true, 120), (false, 0)));
    });
}

#[test]
fn of_a_key_that_announces_very_much_the_newest_is_read() {
    both(|scratch| {
        let cards: Vec<Event> =
            (0..70).map(|n| card(1, &format!("offer {n}"), &[], NOW_S - 70 + n)).collect();
        scratch.put(&cards);
        let one = key(1).public_key();
        let found = block_on(scratch.store.read(move |rx| index::provider(rx, &one))).unwrap();
        let ids: Vec<EventId> = found.iter().map(|provider| provider.event_id).collect();
        let newest: Vec<EventId> = cards[6..].iter().rev().map(|card| card.id).collect();
        assert_eq!(ids, newest);
    });
}

fn named(author: u64, d: &str, name: &str) -> Event {
    let mut card = Announcement::new(d);
    card.content.name = Some(name.to_owned());
    card.draft(NOW_S).unwrap().sign(&key(author)).unwrap()
}

#[test]
fn a_name_that_only_looks_the_same_is_shared() {
    both(|scratch| {
        scratch.put(&[
            named(1, "a", "Fast Box"),
            named(1, "b", "Fast Box"),
            named(2, "a", "Quiet"),
        ]);
        let is_shared = |author: u64, name: &'static str| {
            let key = key(author).public_key();
            block_on(scratch.store.read(move |rx| index::is_name_shared(rx, &key, name))).unwrap()
        };
        assert!(!is_shared(1, "Fast Box"), "one key may use it often");
        assert!(is_shared(2, "Fast Box") && is_shared(3, " fast\u{200b}BOX "));
        scratch.put(&[named(3, "a", "FAST-box\u{202e}")]);
        assert!(is_shared(1, "Fast Box") && is_shared(3, "FAST-box") && !is_shared(2, "Quiet"));
        let keys = [key(1).public_key(), key(3).public_key(), key(9).public_key()];
        let names = block_on(scratch.store.read(move |rx| index::names(rx, &keys))).unwrap();
        let names: Vec<&str> = names.values().map(String::as_str).collect();
        assert_eq!(names.len(), 2);
        assert!(names.contains(&"Fast Box"));
    });
}

#[test]
fn who_recommends_a_provider_is_counted_by_keys() {
    both(|scratch| {
        let of = |provider: u64, limit: usize| {
            let provider = key(provider).public_key();
            let read = scratch.store.read(move |rx| index::recommendations(rx, &provider, limit));
            let found = block_on(read).unwrap();
            let number =
                |key: &PublicKey| (1..9).find(|n| crate::support::key(*n).public_key() == *key);
            (found.count, found.authors.iter().filter_map(number).collect::<Vec<u64>>())
        };
        scratch.put(&[
            recommendation(2, "5050", &[1, 1, 3], NOW_S),
            recommendation(2, "5100", &[1], NOW_S),
            recommendation(4, "5050", &[1], NOW_S),
            // Nobody recommends itself, and only announcements are recommended.
            recommendation(1, "5050", &[1], NOW_S),
            event(
                5,
                kind::RECOMMENDATION,
                NOW_S,
                &[&["a", "30023:rubbish:x"], &["a", "31990"]],
                "",
            ),
        ]);
        assert_eq!((of(1, 9), of(3, 9), of(7, 9)), ((2, vec![4, 2]), (1, vec![2]), (0, vec![])));
        assert_eq!(of(1, 1), (2, vec![4]));
        // Who changes its mind recommends no more.
        scratch.put(&[recommendation(4, "5050", &[3], NOW_S + 1)]);
        assert_eq!((of(1, 9), of(3, 9)), ((1, vec![2]), (2, vec![4, 2])));
    });
}

#[test]
fn requests_and_answers_are_rows() {
    both(|scratch| {
        let asked = request(1, Some(2), NOW_S);
        let mut private = job::Request::new(5_100);
        private.schema_id = Some("secret.v1".to_owned());
        private.bid = Some(Msat(5));
        private.providers.push(key(2).public_key());
        let private = private.sealed_draft(NOW_S, &key(1), &Zeros).unwrap().sign(&key(1)).unwrap();
        let answers = [
            feedback(&asked, 2, Status::Processing, NOW_S + 1),
            result(&asked, 2, NOW_S + 2),
            // Anybody can answer; whether it counts is for the reader to say.
            result(&asked, 3, NOW_S + 3),
        ];
        scratch.put(&[asked.clone(), private.clone()]);
        scratch.put(&answers);
        scratch.put(&[event(1, 5050, NOW_S, &[&["bid", "much"]], ""), event(2, 7000, 1, &[], "")]);
        let requests = scratch.requests(Page::default());
        let [second, first] = requests.as_slice() else { panic!("{requests:?}") };
        assert_eq!(
            *first,
            Request {
                seq: 1,
                request_id: asked.id,
                buyer: key(1).public_key(),
                kind: 5050,
                schema_id: Some("oa.embedding.v1".to_owned()),
                bid: Some(Msat(21)),
                providers: vec![key(2).public_key()],
                is_private: false,
                is_taken_back: false,
                created_at: NOW_S,
                received_ms: NOW_MS,
            }
        );
        assert!(second.is_private && second.schema_id.is_none());
        assert_eq!((second.bid, second.kind), (Some(Msat(5)), 5_100));
        assert_eq!(second.providers, [key(2).public_key()]);
        let page = Page { before_seq: Some(2), limit: 5 };
        assert_eq!(scratch.requests(page), std::slice::from_ref(first));
        let id = asked.id;
        let read = scratch.store.read(move |rx| index::request(rx, &id));
        assert_eq!(block_on(read).unwrap().as_ref(), Some(first));
        let rows = scratch.answers(asked.id);
        let said: Vec<_> = rows
            .iter()
            .map(|a| (a.event_id, a.kind, a.status.as_deref(), a.price.map(|price| price.0)))
            .collect();
        assert_eq!(
            said,
            [
                (answers[0].id, 7000, Some("processing"), None),
                (answers[1].id, 6050, None, Some(20)),
                (answers[2].id, 6050, None, Some(20)),
            ]
        );
        assert_eq!(rows[2].author, key(3).public_key());
        assert_eq!(scratch.answers(private.id), []);
    });
}

#[test]
fn texts_that_no_row_can_hold_do_no_harm() {
    both(|scratch| {
        let long = "x".repeat(5_000);
        let odd = [
            event(1, kind::ANNOUNCEMENT, 1, &[&["d", "a\0b"]], ""),
            event(1, kind::ANNOUNCEMENT, 1, &[&["d", &long], &["t", "a.v1"]], ""),
            event(
                1,
                kind::ANNOUNCEMENT,
                1,
                &[&["d", "x"], &["t", &format!("{long}.v1")]],
                "{\"name\":\"a\\u0000\"}",
            ),
            event(1, kind::ANNOUNCEMENT, 1, &[&["d", "broken"]], "{"),
            event(1, kind::HEARTBEAT, 1, &[&["d", "\0"]], ""),
            event(1, 5050, 1, &[&["param", "schema_id", "\0"]], ""),
            event(1, 7000, 1, &[&["status", "\0"], &["e", &"0".repeat(64)]], ""),
        ];
        let puts = scratch.put(&odd);
        assert!(puts.iter().all(|put| matches!(put, archive::Put::New { .. })), "{puts:?}");
        let found = scratch.providers(Wanted::default());
        assert_eq!(found.iter().map(|p| p.card.d.as_str()).collect::<Vec<_>>(), ["x"]);
    });
}

/// A request of ours that was taken back is still one that was made. One of others is forgotten.
#[test]
fn a_request_that_is_pinned_and_taken_back_stays_and_says_so() {
    both(|scratch| {
        let (ours, theirs) = (request(1, Some(2), 5), request(3, Some(2), 5));
        scratch.put(&[ours.clone(), theirs.clone(), card(2, "x", &["oa.embedding.v1"], 5)]);
        let id = ours.id;
        block_on(scratch.store.write(move |tx| archive::pin(tx, &id))).unwrap();
        let deletion =
            |by: u64, of: &Event| event(by, kind::DELETION, 6, &[&["e", &of.id.hex()]], "");
        scratch.put(&[deletion(1, &ours), deletion(3, &theirs)]);
        let seen = || {
            let all = scratch.requests(Page::default());
            all.iter().map(|one| (one.request_id, one.is_taken_back)).collect::<Vec<_>>()
        };
        assert_eq!(seen(), [(ours.id, true)]);
        block_on(scratch.store.write(index::rebuild)).unwrap();
        assert_eq!(seen(), [(ours.id, true)]);
        let announces = |n: u64, schema_id: &'static str| {
            let key = key(n).public_key();
            block_on(scratch.store.read(move |rx| index::announces(rx, &key, schema_id))).unwrap()
        };
        assert!(announces(2, "oa.embedding.v1"));
        assert!(!announces(2, "oa.other.v1") && !announces(3, "oa.embedding.v1"));
    });
}

#[test]
fn results_are_found_by_their_authors() {
    both(|scratch| {
        let asked = request(1, None, 5);
        let answers = [
            result(&asked, 3, 6),
            result(&asked, 2, 7),
            feedback(&asked, 2, Status::Partial, 7),
            result(&asked, 4, 8),
            result(&asked, 2, 9),
        ];
        scratch.put(std::slice::from_ref(&asked));
        scratch.put(&answers);
        let by = |who: &[u64], limit: usize| {
            let keys: Vec<_> = who.iter().map(|n| key(*n).public_key()).collect();
            let id = asked.id;
            let read = scratch.store.read(move |rx| index::results_by(rx, &id, &keys, limit));
            block_on(read).unwrap()
        };
        assert_eq!(by(&[2, 4], 9), [answers[1].id, answers[3].id, answers[4].id]);
        assert_eq!(by(&[2, 4], 1), [answers[1].id]);
        assert_eq!(by(&[9], 9), []);
        assert_eq!(by(&[], 9), []);
    });
}

/// No randomness is needed to be read again.
struct Zeros;

impl guild_protocol::env::Random for Zeros {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }
}

#[test]
fn an_answer_is_that_of_the_request_which_it_names_first() {
    both(|scratch| {
        let (asked, other) = (request(1, Some(2), NOW_S), request(1, Some(2), NOW_S + 1));
        let (named, beside) = (asked.id.hex(), other.id.hex());
        let tags: [&[&str]; 3] = [&["e", &named], &["e", &beside], &["encrypted"]];
        let answers = [6000, 6999, 7000].map(|kind| event(2, kind, NOW_S, &tags, ""));
        let no_answers = [5999, 7001].map(|kind| event(2, kind, NOW_S, &tags, ""));
        scratch.put(&[asked.clone(), other.clone()]);
        scratch.put(&no_answers);
        scratch.put(&answers);
        let found = scratch.answers(asked.id).into_iter().map(|answer| answer.event_id);
        assert!(found.eq(answers.map(|answer| answer.id)));
        assert_eq!(scratch.answers(other.id), []);
    });
}
