//! Providers that are tested without knowing it, suspended, and met again: whole nodes at one relay.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use guild_ledger::policy::Bundle;
use guild_market::health::probe::{self, Reason};
use guild_market::health::{Signal, Stage, audit, watch};
use guild_market::job::Refusal;
use guild_market::meeting::{Options as MarketOptions, Times as MeetingTimes};
use guild_market::order::{self, Order, State};
use guild_protocol::amount::Msat;
use guild_protocol::env::{BoxFuture, Clock, Signer};
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Event, Filter};
use guild_protocol::schema::SchemaId;
use guild_roles::buyer::{self, Buyer, Choice};
use guild_roles::lifecycle::{Lifecycle, Node, Options};
use guild_roles::meeting::{self, Examine, Query};
use guild_roles::provider::{self, Embedder, Task, Worker};
use guild_roles::router::{Entry, Status, TaskType};
use guild_store::Store;
use serde_json::{Value, json};

use crate::town::{Hand, Hold, Hub, Town, embedding, key, until, until_known, wallet, wish};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
const GOOD: u8 = 3;
const OTHER: u8 = 4;

fn who(n: u8) -> PublicKey {
    key(n).public_key()
}

fn task() -> TaskType {
    embedding().as_str().parse().unwrap()
}

/// What somebody does with a job, by its first text and by how many it was given before.
#[derive(Clone, Copy)]
enum Way {
    Right,
    Wrong,
    Never,
}

/// One who does its jobs in its own way.
struct Moody {
    way: fn(&str, usize) -> Way,
    given: AtomicUsize,
}

impl Moody {
    fn of(way: fn(&str, usize) -> Way) -> Moody {
        Moody { way, given: AtomicUsize::new(0) }
    }
}

impl Worker for Moody {
    fn schema_ids(&self) -> Vec<SchemaId> {
        Embedder.schema_ids()
    }

    fn work(&self, task: Task) -> BoxFuture<Result<Value, Refusal>> {
        let before = self.given.fetch_add(1, Ordering::SeqCst);
        let way = (self.way)(task.job.payload()["texts"][0].as_str().unwrap(), before);
        let honest = Embedder.work(task);
        Box::pin(async move {
            match way {
                Way::Right => honest.await,
                Way::Wrong => {
                    let mut output = honest.await?;
                    let vectors = output["embeddings"].as_array().unwrap().len();
                    let size = output["embeddings"][0].as_array().unwrap().len();
                    let mut vector = vec![0; size];
                    vector[0] = 1;
                    output["embeddings"] = json!(vec![vector; vectors]);
                    Ok(output)
                }
                Way::Never => std::future::pending().await,
            }
        })
    }
}

/// A buyer that tests with every order, and looks at everybody.
struct Market {
    buyer: Buyer,
    store: Store,
    clock: Arc<Hand>,
    hub: Hub,
}

impl Market {
    fn in_town(town: &mut Town, node: usize, rate_bp: u32, way: fn(&str, usize) -> Way) -> Market {
        let options = buyer::Options {
            hidden_rate_bp: rate_bp,
            hidden_delay_ms: 0,
            ..buyer::Options::default()
        };
        let buyer = town.buyer_with(node, key(1), options, Bundle::builtin().unwrap());
        for (n, worker) in
            [(GOOD, Arc::new(Embedder) as Arc<dyn Worker>), (OTHER, Arc::new(Moody::of(way)))]
        {
            let prices = [(embedding(), Msat(300))].into();
            let offer = provider::Options { prices, concurrency: 16, ..Town::offer() };
            let theirs = town.node();
            town.provider_with(theirs, key(n), offer, worker);
        }
        let times = MeetingTimes { look_ms: 20, ..MeetingTimes::default() };
        let mut market = MarketOptions { times, ..MarketOptions::default() };
        // How long somebody takes here is the machine's doing.
        (market.evaluation.slow_pct, market.evaluation.exceptional_pct) = (1_000_000, 0);
        let options = meeting::Options { market, ..meeting::Options::default() };
        // Embeddings are checked as their schema says: nobody judges a program.
        let examine: Examine = Arc::new(|_, _| Box::pin(std::future::pending()));
        let query: Query = Arc::new(|_, _| Box::pin(std::future::ready(Vec::new())));
        let hold = Hold::default();
        let meetings = town.meetings(node, key(1), options, (examine, query), hold);
        let node_of = Node {
            store: town.store(node).clone(),
            clock: town.clock.clone(),
            random: town.random.clone(),
            buyer: buyer.clone(),
            meetings: Some(meetings),
        };
        let options = Options { sweep_ms: 20, ..Options::default() };
        // Two of them: as processes that share a database.
        for _ in 0..2 {
            town.lifecycle(Lifecycle::new(options.clone(), node_of.clone()));
        }
        let (store, clock, hub) = (town.store(node).clone(), town.clock.clone(), town.hub.clone());
        Market { buyer, store, clock, hub }
    }

    async fn opened(&self) {
        for n in [GOOD, OTHER] {
            until_known(&self.clock, &self.store, who(n)).await;
        }
        until(&self.clock, "the wallet is full", || async { wallet(&self.store).await > 0 }).await;
    }

    async fn hire(&self, text: &str, n: u8) -> Order {
        let posted = self.buyer.hire(wish(text, Choice::Chosen(who(n)))).await.unwrap();
        self.buyer.wait(&posted.order_id).await.unwrap()
    }

    async fn entry(&self, n: u8) -> Entry {
        let matrix = self.buyer.router().current().await.unwrap();
        matrix.entry(&task(), &who(n)).unwrap().clone()
    }

    async fn until_stage(&self, n: u8, stage: Stage) {
        until(&self.clock, stage.name(), || async { self.entry(n).await.health.stage == stage })
            .await;
    }

    /// The orders that test somebody, the oldest first, once all of them have ended.
    async fn tests(&self, n: u8, count: usize) -> Vec<(Reason, Order)> {
        let read = || async {
            let found = self.store.read(move |rx| {
                let mut tests = Vec::new();
                for order in order::page_before(rx, None, 100)? {
                    let Some(probe) = probe::of_order(rx, &order.order_id)? else { continue };
                    if order.provider == Some(who(n)) {
                        tests.push((probe.reason, order));
                    }
                }
                tests.reverse();
                Ok::<_, guild_market::Error>(tests)
            });
            found.await.unwrap()
        };
        until(&self.clock, "all tests have ended", || async {
            let tests = read().await;
            tests.len() >= count && tests.iter().all(|(_, order)| order.state.is_closed())
        })
        .await;
        let tests = read().await;
        assert_eq!(tests.len(), count, "{tests:?}");
        tests
    }

    fn request(&self, order: &Order) -> Event {
        order.request().unwrap()
    }
}

/// What anybody can see of a request: its kind, and its tags by name, in order, and how long each but the input is.
fn shape(event: &Event) -> (u16, Vec<Vec<usize>>, Vec<String>) {
    let lengths = |tag: &guild_protocol::nostr::Tag| {
        let length = |text: &String| if tag[0] == "i" { 0 } else { text.len() };
        tag.iter().map(length).collect()
    };
    let names = event.tags.iter().map(|tag| match tag[0].as_str() {
        "param" => format!("param {}", tag[1]),
        name => name.to_owned(),
    });
    (event.kind, event.tags.iter().map(lengths).collect(), names.collect())
}

async fn tested(market: Market) {
    market.opened().await;
    // Strangers are not tested.
    let first = market.hire("one", GOOD).await;
    assert_eq!(first.state, State::Released);
    assert_eq!(market.hire("two", OTHER).await.state, State::Released);
    // The other does what it is asked, and cheats in what is the test.
    assert_eq!(market.hire("three", OTHER).await.state, State::Released);
    let (reason, test) = market.tests(OTHER, 1).await.remove(0);
    assert_eq!((reason, test.state), (Reason::Hidden, State::Withheld));
    let verdict = test.verdict.clone().unwrap();
    assert!(verdict.contains("\"name\":\"recomputed\",\"ok\":false"), "{verdict}");
    // Whoever remembers all that relays have shown knows nothing of it.
    let asked = market.hub.published(&Filter::kinds([5050]));
    let same = |event: &&Event| event.to_json().contains(&test.job_hash.to_string());
    assert_eq!(asked.iter().filter(same).count(), 1);
    let texts = |order: &Order| {
        let payload: Value = serde_json::from_str(&order.payload).unwrap();
        let texts = payload["texts"].as_array().unwrap().clone();
        (texts.len(), payload["dimensions"].clone(), texts)
    };
    let (count, dimensions, words) = texts(&test);
    assert_eq!((count, dimensions), (texts(&first).0, texts(&first).1), "it looks like the rest");
    let bought = ["one", "two", "three"];
    for text in &words {
        let text = text.as_str().unwrap();
        assert!(!bought.contains(&text) && text.split(' ').all(|word| bought.contains(&word)));
    }
    assert!(test.receipt_id.is_some() && test.paid.is_none(), "evidence, and no money");
    // Nobody could tell: the same shape as the ordinary one, tag by tag, and but for the input length by length.
    assert_eq!(shape(&market.request(&test)), shape(&market.request(&first)));
    assert_ne!(market.request(&test).id, market.request(&first).id);
    assert_eq!(test.order_key.len(), 32, "as a key that is made up");
    let requests = market.hub.published(&Filter::kinds([5050]));
    let of_it = |event: &&Event| event.tag("p") == Some(who(OTHER).hex().as_str());
    assert_eq!(requests.iter().filter(of_it).count(), 3, "asked once for each");
    market.until_stage(OTHER, Stage::Reduced).await;
    assert_eq!(market.entry(OTHER).await.health.signal, Some(Signal::Mismatch));
    // It may show at once that it is well, and does.
    market.clock.forward(2 * HOUR_MS);
    market.until_stage(OTHER, Stage::Well).await;
    let tests = market.tests(OTHER, 2).await;
    assert_eq!((tests[1].0, tests[1].1.state), (Reason::Verify, State::Released));
    assert_eq!(market.entry(OTHER).await.health.signal, Some(Signal::Verified));
    let problems = market.store.read(audit::run).await.unwrap().problems;
    assert_eq!(problems, Vec::<String>::new());
}

/// The third job is the first test.
fn third_is_wrong(_: &str, before: usize) -> Way {
    if before == 2 { Way::Wrong } else { Way::Right }
}

#[test]
fn whoever_cheats_in_a_test_is_found_and_may_show_that_it_is_well() {
    let mut town = Town::new();
    let node = town.node();
    let market = Market::in_town(&mut town, node, 10_000, third_is_wrong);
    town.tell(tested(market));
}

#[test]
fn whoever_cheats_in_a_test_is_found_on_a_server_too() {
    let mut town = Town::new();
    let node = town.node_on_postgres();
    let market = Market::in_town(&mut town, node, 10_000, third_is_wrong);
    town.tell(tested(market));
}

fn three_are_never_done(text: &str, _: usize) -> Way {
    if ["two", "three", "four"].contains(&text) { Way::Never } else { Way::Right }
}

#[test]
fn whoever_is_suspended_is_met_again_from_nothing() {
    let mut town = Town::new();
    let node = town.node();
    let market = Market::in_town(&mut town, node, 0, three_are_never_done);
    town.tell(async move {
        market.opened().await;
        assert_eq!(market.hire("one", OTHER).await.state, State::Released);
        for text in ["two", "three", "four"] {
            let posted = market.buyer.hire(wish(text, Choice::Chosen(who(OTHER)))).await.unwrap();
            market.clock.forward(61_000);
            let ended = market.buyer.wait(&posted.order_id).await.unwrap();
            assert_eq!(ended.state, State::Expired);
        }
        let gone = market.entry(OTHER).await;
        assert_eq!(gone.health.signal, Some(Signal::Timeouts));
        assert_eq!((gone.status, gone.health.failures), (Status::SuspectedDegraded, 1));
        // For a day nobody asks it anything.
        let asked = || {
            let all = market.hub.published(&Filter::kinds([5050]));
            let ids: BTreeSet<_> = all
                .iter()
                .filter(|event| event.tag("p") == Some(who(OTHER).hex().as_str()))
                .map(|event| event.id)
                .collect();
            ids.len()
        };
        let before = 4;
        until(&market.clock, "all that was asked is published", || async { asked() == before })
            .await;
        market.clock.forward(DAY_MS - 2 * HOUR_MS);
        until(&market.clock, "somebody has looked", || async {
            let (this, now_ms) = ((who(OTHER), task()), market.clock.now_ms());
            let read = market.store.read(move |rx| watch::find(rx, (&this.0, &this.1)));
            let row = read.await.unwrap().unwrap();
            row.due_ms > now_ms && row.suspended_ms.is_some()
        })
        .await;
        assert_eq!(asked(), before);
        // Then it is met, by a whole benchmark, and is taken as if for the first time.
        market.clock.forward(3 * HOUR_MS);
        market.until_stage(OTHER, Stage::Well).await;
        let back = market.entry(OTHER).await;
        assert_eq!(back.health.signal, Some(Signal::Evaluated));
        assert_eq!((back.status.is_hireable(), back.health.failures), (true, 1));
        assert_eq!(asked(), before + 3, "three trials");
        assert!(back.health.week.is_empty() && back.samples.is_empty(), "nothing is credited");
        let problems = market.store.read(audit::run).await.unwrap().problems;
        assert_eq!(problems, Vec::<String>::new());
    });
}
