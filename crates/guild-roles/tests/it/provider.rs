//! What a provider offers, refuses and never begins, whatever its buyers are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use guild_market::job::{self, Refusal, TakenJob};
use guild_market::order::State;
use guild_network::publish;
use guild_protocol::amount::{Amount, Msat};
use guild_protocol::env::{BoxFuture, Clock, Signer};
use guild_protocol::hash::Hash;
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::nostr::job::{Feedback, Input, Param, Request, Status};
use guild_protocol::nostr::receipt_notice::ReceiptNotice;
use guild_protocol::nostr::{Draft, Event, EventId, Filter, kind, unix_s};
use guild_protocol::receipt;
use guild_protocol::schema::SchemaId;
use guild_protocol::timestamp::Timestamp;
use guild_roles::buyer::Choice;
use guild_roles::provider::{Embedder, Options, Provider, Task, Worker};
use guild_store::outbox;
use serde_json::{Value, json};

use crate::attacks::Sloth;
use crate::town::{Hand, Hub, PRICE, T0, Town, embedding, has, key, until, until_known, wish};

/// What a provider says to a request. It has a node of its own; its buyers are played by the test.
async fn refused(hub: &Hub, clock: &Hand, request: Event) -> String {
    let id = request.id;
    hub.post(request).await;
    let feedback = || hub.published(&Filter::kinds([kind::FEEDBACK]).tag('e', [id.hex()]));
    until(clock, "feedback", || async { !feedback().is_empty() }).await;
    let [one] = feedback().try_into().unwrap();
    assert!(one.tag("expiration").is_some());
    let read = Feedback::parse(&one, Some(&key(7))).unwrap();
    match read.status {
        Status::Error => read.info.unwrap(),
        status => format!("{status} {}", read.price.unwrap()),
    }
}

fn request(provider: PublicKey, text: &str) -> Request {
    let mut request = Request::new(5050);
    request.inputs.push(Input::text(json!({"texts": [text], "dimensions": 8}).to_string()));
    request.schema_id = Some(embedding().to_string());
    request.bid = Some(Msat(1_000));
    request.providers.push(provider);
    request
}

#[test]
fn every_refusal_says_why() {
    let mut town = Town::new();
    let node = town.node();
    let offer = Options { max_input_bytes: 100, credit: Msat(1_000), ..Town::offer() };
    let provider: Provider = town.provider_with(node, key(2), offer, Arc::new(Sloth));
    let (hub, clock, random) = (town.hub.clone(), town.clock.clone(), town.random.clone());
    town.tell(async move {
        let them = provider.public_key();
        let sign = |request: &Request| request.draft(unix_s(T0)).unwrap().sign(&key(7)).unwrap();
        let ask = async |change: &dyn Fn(&mut Request)| {
            let mut request = request(them, "hello");
            change(&mut request);
            refused(&hub, &clock, sign(&request)).await
        };
        let answers = [
            ask(&|request| request.schema_id = Some("oa.sandbox_run.v1".to_owned())).await,
            ask(&|request| request.schema_id = None).await,
            ask(&|request| request.bid = Some(Msat(699))).await,
            ask(&|request| request.bid = None).await,
            ask(&|request| request.inputs = vec![Input::text("x".repeat(101))]).await,
            ask(&|request| request.inputs = vec![Input::text("{\"texts\":[]}")]).await,
            ask(&|request| request.inputs.clear()).await,
            ask(&|_| ()).await,
            // Behind the first one the credit is used up.
            ask(&|request| request.topics.push("another".to_owned())).await,
        ];
        insta::assert_snapshot!(answers.join("\n"), @r"
        oa.sandbox_run.v1 is not served here [market.schema_not_served]
        the request names no schema [market.schema_not_served]
        the price is 700 msat, the bid 699 [market.bid_too_low]
        the price is 700 msat, the bid 0 [market.bid_too_low]
        101 bytes of input are more than the 100 that are taken here [market.input_too_large]
        texts: 0 items, but at least 1 needed [schema.length]
        the request carries no input of the type text [market.input_missing]
        processing 700 msat
        1400 msat would be owed or not paid, the credit is 1000 [market.over_credit]
        ");
        // One that is encrypted is refused encrypted.
        let mut sealed = request(them, "secret");
        sealed.encrypted = true;
        let sealed =
            sealed.sealed_draft(unix_s(T0), &key(7), &*random).unwrap().sign(&key(7)).unwrap();
        let words = refused(&hub, &clock, sealed).await;
        assert!(words.ends_with("[market.over_credit]"), "{words}");
        // Garbage that claims to be encrypted to us.
        let mut garbage = sign(&request(them, "x"));
        garbage.tags.push(vec!["encrypted".to_owned()]);
        let draft = Draft {
            kind: 5050,
            created_at: garbage.created_at,
            tags: garbage.tags,
            content: "rubbish".to_owned(),
        };
        let words = refused(&hub, &clock, draft.sign(&key(7)).unwrap()).await;
        assert!(words.ends_with("[nip44.version]"), "{words}");
    });
}

/// A few kilobytes can ask for gigabytes: nothing is begun that could not be sent.
#[test]
fn what_could_not_be_sent_is_not_begun() {
    let mut town = Town::new();
    let node = town.node();
    let provider = town.provider(node, key(2));
    let (hub, clock, random) = (town.hub.clone(), town.clock.clone(), town.random.clone());
    town.tell(async move {
        let them = provider.public_key();
        let ask = |texts: Vec<&str>, dimensions: u32| {
            let mut request = request(them, "");
            let payload = json!({"texts": texts, "dimensions": dimensions});
            request.inputs = vec![Input::text(payload.to_string())];
            request
        };
        let open = |request: &Request| request.draft(unix_s(T0)).unwrap().sign(&key(7)).unwrap();
        let sealed = |mut request: Request| {
            request.encrypted = true;
            request.sealed_draft(unix_s(T0), &key(7), &*random).unwrap().sign(&key(7)).unwrap()
        };
        let answers = [
            refused(&hub, &clock, open(&ask(vec![""; 2_048], 4_096))).await,
            refused(&hub, &clock, open(&ask(vec!["a"], 4_097))).await,
            refused(&hub, &clock, open(&ask(vec!["some words"; 100], 256))).await,
            refused(&hub, &clock, sealed(ask(vec!["some words"; 100], 256))).await,
        ];
        insta::assert_snapshot!(answers.join("\n"), @r"
        8388608 numbers do not fit into a result, which has room for 26112 [market.output_too_large]
        dimensions: 4097 is not 1 to 4096 [embed.dimensions]
        processing 700 msat
        25600 numbers do not fit into a result, which has room for 6451 [market.output_too_large]
        ");
        until(&clock, "delivered", || async { provider.counts().of("job_delivered") == 1 }).await;
        assert_eq!(provider.counts().of("job_failed"), 0);
    });
}

/// A withheld payment, as a buyer tells of it.
fn withheld(job: &TakenJob, by: &SecretKey) -> Event {
    let draft = receipt::Draft {
        session_id: job.request_id.hex(),
        request_id: Some(job.request_id.hex()),
        trajectory_hash: Hash::of(b"trajectory"),
        policy_bundle_id: "theirs".to_owned(),
        job_hash: job.job_hash,
        payment_proof: None,
        rail: receipt::Rail::Ledger,
        amount: Amount::from(job.price),
        provider_id: job.provider,
        buyer_id: by.public_key(),
        approval_rule_id: None,
        idempotency_key: job.request_id.hex(),
        status: receipt::Status::Withheld,
        verdict_hash: Some(Hash::of(b"verdict")),
        timestamp: Timestamp::from_ms(T0).unwrap(),
    };
    let notice = ReceiptNotice::of(&draft.sign(by).unwrap()).unwrap();
    notice.draft(unix_s(T0)).unwrap().sign(by).unwrap()
}

/// One who never pays gets as much work as its credit, however often it asks and whatever it signs; it fills no table,
/// and keeps nobody from being served.
#[test]
fn a_buyer_over_its_credit_gets_no_more_work_and_others_do() {
    const ASKED: u64 = 60;
    let mut town = Town::new();
    let (a, b) = (town.node(), town.node());
    let buyer = town.buyer(a, key(1));
    let offer = Options { credit: Msat(2 * PRICE.0), max_refusals_per_minute: 5, ..Town::offer() };
    let unpaid_ms = offer.unpaid_ms;
    let provider = town.provider_with(b, key(2), offer, Arc::new(Embedder));
    let (ours, theirs) = (town.store(a).clone(), town.store(b).clone());
    let (hub, clock) = (town.hub.clone(), town.clock.clone());
    town.tell(async move {
        until_known(&clock, &ours, provider.public_key()).await;
        let them = provider.public_key();
        let ask = async |text: &str| {
            let at = unix_s(clock.now_ms());
            let event = request(them, text).draft(at).unwrap().sign(&key(7)).unwrap();
            hub.post(event.clone()).await;
            event.id
        };
        let met = |word: &str| provider.counts().of(word);
        let decided = || {
            ["accepted", "refused", "refused_silently"]
                .map(|word| met(&format!("request_{word}")))
                .into_iter()
                .sum::<u64>()
        };
        for n in 0..ASKED / 2 {
            ask(&format!("before {n}")).await;
        }
        until(&clock, "two are done", || async { met("job_delivered") == 2 }).await;
        // It turns one of the two down, and says nothing about the other.
        let done = theirs.read(|rx| job::unpaid_after(rx, None, 10)).await.unwrap();
        hub.post(withheld(&done[0], &key(7))).await;
        until(&clock, "one is withheld", || async { met("receipt_taken") == 1 }).await;
        for n in 0..ASKED / 2 {
            ask(&format!("after {n}")).await;
        }
        until(&clock, "all are decided", || async { decided() == ASKED }).await;
        assert_eq!((met("request_accepted"), met("job_delivered")), (2, 2));
        // An honest one is served all the same.
        let order = buyer.hire(wish("honest", Choice::Best)).await.unwrap();
        let order = buyer.wait(&order.order_id).await.unwrap();
        assert_eq!((order.state, order.paid), (State::Released, Some(PRICE)));
        // Each minute has room for five refusals, and the clock may have passed into another one.
        let rows = theirs.read(|rx| job::page_before(rx, None, 1_000)).await.unwrap();
        let refused = rows.iter().filter(|job| job.state == job::State::Refused).count();
        assert!((5..=15).contains(&refused), "{refused} refusals are written down");
        assert!(
            rows.iter().all(|job| (job.state == job::State::Refused) == job.request_json.is_none())
        );
        // It is not for ever.
        clock.forward(unpaid_ms);
        let again = ask("a week later").await;
        until(&clock, "it is served again", || async {
            let job = provider.job(again).await.unwrap();
            job.is_some_and(|job| job.state == job::State::Delivered)
        })
        .await;
    });
}

#[test]
fn a_refusal_goes_to_our_relays_alone_and_is_not_pinned() {
    let mut town = Town::new();
    let node = town.node();
    let provider = town.provider_with(node, key(2), Town::offer(), Arc::new(Sloth));
    let (store, hub, clock) = (town.store(node).clone(), town.hub.clone(), town.clock.clone());
    town.tell(async move {
        let mut asked = request(provider.public_key(), "hello");
        asked.relays = vec!["wss://hint.example".to_owned()];
        for bid in [1, 1_000] {
            asked.bid = Some(Msat(bid));
            refused(&hub, &clock, asked.draft(unix_s(T0)).unwrap().sign(&key(7)).unwrap()).await;
        }
        let pins = "SELECT pinned FROM nostr_event WHERE kind = 7000 ORDER BY seq";
        let pins: Vec<(i64,)> = store.read(move |rx| rx.all(pins, &[])).await.unwrap();
        assert_eq!(pins, [(0,), (1,)], "a refusal, and the word that work begins");
        let guests = store
            .read(|rx| outbox::waiting(rx, publish::GUEST_SINK, &key(7).public_key().hex(), 9));
        assert_eq!(guests.await, Ok(1), "only what was taken on goes where the buyer says");
    });
}

#[test]
fn what_is_not_for_us_gets_no_answer() {
    let mut town = Town::new();
    let node = town.node();
    let provider = town.provider(node, key(2));
    let (store, hub, clock) = (town.store(node).clone(), town.hub.clone(), town.clock.clone());
    town.tell(async move {
        let them = provider.public_key();
        let at = unix_s(clock.now_ms());
        let mut others = request(key(9).public_key(), "others");
        let mut open = request(them, "open");
        open.providers.clear();
        open.schema_id = Some("oa.sandbox_run.v1".to_owned());
        let mut over = request(them, "over");
        over.params.push(Param::new("time-limit", "1"));
        let old = request(them, "old");
        others.topics.push("x".to_owned());
        let events: Vec<Event> = [(&others, at), (&open, at), (&over, at - 60), (&old, at - 7_200)]
            .into_iter()
            .map(|(request, at)| request.draft(at).unwrap().sign(&key(7)).unwrap())
            .collect();
        for event in &events {
            hub.post(event.clone()).await;
            assert!(has(&store, event).await);
        }
        // One that is for us shows that the others have been read.
        let ours = request(them, "ours").draft(at).unwrap().sign(&key(7)).unwrap();
        assert_eq!(refused(&hub, &clock, ours.clone()).await, "processing 700 msat");
        let answered = hub.published(&Filter::kinds([kind::FEEDBACK]));
        let about: Vec<EventId> =
            answered.iter().map(|event| event.tag("e").unwrap().parse().unwrap()).collect();
        assert_eq!(about, [ours.id]);
        assert_eq!(provider.counts().of("request_ignored"), 3);
    });
}

#[test]
fn an_announcement_is_made_once_and_says_what_is_offered() {
    let mut town = Town::new();
    let node = town.node();
    let offer = Options { name: "Town hall".to_owned(), heartbeat_ms: 1, ..Town::offer() };
    let provider = town.provider_with(node, key(2), offer, Arc::new(Embedder));
    let (store, hub, clock) = (town.store(node).clone(), town.hub.clone(), town.clock.clone());
    town.tell(async move {
        until(&clock, "three beats", || async { provider.counts().of("heartbeat") >= 3 }).await;
        let [card] = hub.published(&Filter::kinds([kind::ANNOUNCEMENT])).try_into().unwrap();
        insta::assert_snapshot!(card.content, @r#"{"capabilities":{"models":["guild-hash-v1"],"supported_jobs":["oa.embedding.v1"]},"capacity":{"max_concurrent_jobs":2},"name":"Town hall","pricing":{"per_job_msats":{"oa.embedding.v1":700},"scheme":"per-job"},"supported_kinds":[5050],"supportsEncryption":true}"#);
        let tags: Vec<String> = card.tags.iter().map(|tag| tag.join(" ")).collect();
        assert_eq!(tags, ["d guild", "k 5050", "t oa.embedding.v1", "relays ws://town.example"]);
        let beats = hub.published(&Filter::kinds([kind::HEARTBEAT]));
        assert!(beats.iter().all(|beat| beat.tag("expiration").is_some()));
        let kept = store.read(|rx| {
            guild_network::archive::query(rx, &[Filter::kinds([kind::HEARTBEAT])], 10, unix_s(T0))
        });
        assert_eq!(kept.await.unwrap().len(), 1, "older beats are replaced");
    });
}

#[test]
fn an_announcement_that_was_replaced_is_not_kept() {
    let mut town = Town::new();
    let node = town.node();
    let offer = Options { announce_ms: 1, ..Town::offer() };
    let provider = town.provider_with(node, key(2), offer, Arc::new(Embedder));
    let (store, clock) = (town.store(node).clone(), town.clock.clone());
    town.tell(async move {
        until(&clock, "four versions", || async { provider.counts().of("announced") >= 4 }).await;
        let kept = store.read(|rx| {
            let kept = "SELECT count(*), sum(pinned) FROM nostr_event WHERE kind = 31990";
            rx.first::<(i64, i64)>(kept, &[])
        });
        assert_eq!(kept.await.unwrap(), Some((1, 0)));
    });
}

/// Works when it is let.
struct Gated(Arc<AtomicBool>, Arc<Hand>);

impl Worker for Gated {
    fn schema_ids(&self) -> Vec<SchemaId> {
        Embedder.schema_ids()
    }

    fn work(&self, task: Task) -> BoxFuture<Result<Value, Refusal>> {
        let (open, clock) = (self.0.clone(), self.1.clone());
        Box::pin(async move {
            while !open.load(Ordering::SeqCst) {
                clock.sleep(5).await;
            }
            Embedder.work(task).await
        })
    }
}

/// Receipts that came too early are looked for later; one that cannot be read keeps no other from being found, and the
/// provider from nothing else.
#[test]
fn a_receipt_that_cannot_be_looked_for_keeps_no_other_from_being_found() {
    let mut town = Town::new();
    let node = town.node();
    let open = Arc::new(AtomicBool::new(false));
    let worker = Arc::new(Gated(open.clone(), town.clock.clone()));
    let offer = Options { heartbeat_ms: 1, ..Town::offer() };
    let provider = town.provider_with(node, key(2), offer, worker);
    let (store, hub, clock) = (town.store(node).clone(), town.hub.clone(), town.clock.clone());
    town.tell(async move {
        let them = provider.public_key();
        let met = |word: &str| provider.counts().of(word);
        let ask =
            |text: &str| request(them, text).draft(unix_s(T0)).unwrap().sign(&key(7)).unwrap();
        let asked = [ask("spoilt"), ask("well")];
        for event in &asked {
            hub.post(event.clone()).await;
        }
        until(&clock, "both are taken", || async { met("request_accepted") == 2 }).await;
        for event in &asked {
            let job = provider.job(event.id).await.unwrap().unwrap();
            hub.post(withheld(&job, &key(7))).await;
        }
        until(&clock, "both came too early", || async { met("receipt_refused") == 2 }).await;
        let spoilt = asked[0].id.hex();
        let spoil = "UPDATE nostr_event SET rest = 'rubbish'
             WHERE kind = 30078 AND (content LIKE $1 OR rest LIKE $1)";
        let like = format!("%{spoilt}%");
        let spoilt = store.write(move |tx| tx.exec(spoil, guild_store::args![&like]));
        assert_eq!(spoilt.await, Ok(1));
        open.store(true, Ordering::SeqCst);
        until(&clock, "the other is found", || async { met("receipt_taken") == 1 }).await;
        let well = provider.job(asked[1].id).await.unwrap().unwrap();
        assert_eq!(well.state, job::State::Withheld);
        until(&clock, "it is counted", || async { met("receipt_not_looked_for") >= 1 }).await;
    });
}
