//! Those who do not do what was agreed: cheats, forgers, latecomers, providers that are slow.

use std::sync::Arc;

use guild_ledger::policy::Bundle;
use guild_market::job::{self, Refusal};
use guild_market::order::{Order, State};
use guild_protocol::amount::Msat;
use guild_protocol::env::{BoxFuture, Signer};
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::nostr::job::{Feedback, JobResult, Price, Status};
use guild_protocol::nostr::{Draft, Event, Filter, kind};
use guild_protocol::schema::SchemaId;
use guild_roles::buyer::{self, Buyer, Choice};
use guild_roles::provider::{Embedder, Task, Worker};
use guild_store::Store;
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::{Value, json};

use crate::town::{Hand, Hub, PRICE, Town, key, owed, payable, until, until_known, wallet, wish};

/// One who sends vectors of the right form that are wrong.
pub(crate) struct Cheat;

impl Worker for Cheat {
    fn schema_ids(&self) -> Vec<SchemaId> {
        Embedder.schema_ids()
    }

    fn work(&self, task: Task) -> BoxFuture<Result<Value, Refusal>> {
        let honest = Embedder.work(task);
        Box::pin(async move {
            let mut output = honest.await?;
            output["embeddings"] = json!([[1, 0, 0, 0, 0, 0, 0, 0]]);
            Ok(output)
        })
    }
}

/// One who takes jobs and never does them.
pub(crate) struct Sloth;

impl Worker for Sloth {
    fn schema_ids(&self) -> Vec<SchemaId> {
        Embedder.schema_ids()
    }

    fn work(&self, _: Task) -> BoxFuture<Result<Value, Refusal>> {
        Box::pin(std::future::pending())
    }
}

/// A buyer with a node of its own. Its providers are played by the test.
pub(crate) struct Alone {
    pub(crate) buyer: Buyer,
    pub(crate) store: Store,
    pub(crate) clock: Arc<Hand>,
    pub(crate) hub: Hub,
}

impl Alone {
    pub(crate) fn in_town(town: &mut Town) -> Alone {
        Alone::with(town, buyer::Options::default(), Bundle::builtin().unwrap())
    }

    pub(crate) fn with(town: &mut Town, options: buyer::Options, policy: Bundle) -> Alone {
        let node = town.node();
        let buyer = town.buyer_with(node, key(1), options, policy);
        let (store, clock, hub) = (town.store(node).clone(), town.clock.clone(), town.hub.clone());
        Alone { buyer, store, clock, hub }
    }

    pub(crate) async fn hire(&self, text: &str, provider: Choice) -> Order {
        self.until_funded().await;
        self.buyer.hire(wish(text, provider)).await.unwrap()
    }

    pub(crate) async fn until_funded(&self) {
        until(&self.clock, "the wallet is full", || async { wallet(&self.store).await > 0 }).await;
    }

    pub(crate) async fn order(&self, order: &Order) -> Order {
        self.buyer.order(order.order_id.clone()).await.unwrap()
    }

    /// Waits until the buyer has met something so often.
    pub(crate) async fn until_counted(&self, word: &str, times: u64) {
        until(&self.clock, word, || async { self.buyer.counts().of(word) >= times }).await;
        assert_eq!(self.buyer.counts().of(word), times, "{word}");
    }
}

/// An honest output for an order, by somebody.
pub(crate) async fn honest(order: &Order, by: PublicKey) -> String {
    let registry = guild_protocol::schema::Registry::builtin();
    let task = Task { job: order.job(&registry).unwrap(), provider: by };
    Embedder.work(task).await.unwrap().to_string()
}

pub(crate) fn result(order: &Order, content: &str, by: &SecretKey) -> Event {
    let request = order.request().unwrap();
    let mut result = JobResult::answering(&request, content).unwrap();
    result.price = Some(Price::new(PRICE));
    result.draft(request.created_at).unwrap().sign(by).unwrap()
}

#[test]
fn a_cheat_is_not_paid() {
    let mut town = Town::new();
    let (a, b) = (town.node(), town.node());
    let buyer = town.buyer(a, key(1));
    let cheat = town.provider_with(b, key(2), Town::offer(), Arc::new(Cheat));
    let (ours, theirs, clock) = (town.store(a).clone(), town.store(b).clone(), town.clock.clone());
    town.tell(async move {
        until_known(&clock, &ours, cheat.public_key()).await;
        let posted = buyer.hire(wish("cheat", Choice::Best)).await.unwrap();
        let done = buyer.wait(&posted.order_id).await.unwrap();
        assert_eq!((done.state, done.paid), (State::Withheld, None));
        assert_eq!(wallet(&ours).await, 100_000);
        until(&clock, "the cheat is told", || async {
            let job = cheat.job(done.request_id).await.unwrap().unwrap();
            job.state == job::State::Withheld
        })
        .await;
        let books =
            (payable(&ours, key(2).public_key()).await, owed(&theirs, key(1).public_key()).await);
        assert_eq!(books, (0, 0));
    });
}

#[test]
fn only_the_first_result_of_the_provider_counts() {
    let mut town = Town::new();
    let alone = Alone::in_town(&mut town);
    town.tell(async move {
        let them = key(2).public_key();
        let order = alone.hire("one", Choice::Chosen(them)).await;
        // Right, and signed by somebody who was not asked.
        alone.hub.post(result(&order, &honest(&order, them).await, &key(3))).await;
        alone.until_counted("answer_refused", 1).await;
        assert_eq!(alone.order(&order).await.state, State::Posted);
        let first = result(&order, &honest(&order, them).await, &key(2));
        alone.hub.post(first.clone()).await;
        let done = alone.buyer.wait(&order.order_id).await.unwrap();
        assert_eq!(
            (done.state, done.paid, done.result_id),
            (State::Released, Some(PRICE), Some(first.id))
        );
        alone.hub.post(first).await;
        alone.hub.post(result(&order, "{\"something\":\"else\"}", &key(2))).await;
        alone.until_counted("result_equivocation", 1).await;
        assert_eq!(alone.order(&order).await, done);
        assert_eq!(payable(&alone.store, them).await, PRICE.0);
        let thief = payable(&alone.store, key(3).public_key()).await;
        assert_eq!((thief, wallet(&alone.store).await), (0, 100_000 - PRICE.0));
        let books = alone.store.read(guild_ledger::audit::run).await.unwrap();
        assert_eq!(books.problems, Vec::<String>::new());
    });
}

#[test]
fn a_replayed_result_is_counted_and_changes_nothing() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let numbers = recorder.handle();
    let _counting = metrics::set_default_local_recorder(&recorder);
    let mut town = Town::new();
    let alone = Alone::in_town(&mut town);
    town.tell(async move {
        let them = key(2).public_key();
        let order = alone.hire("replayed", Choice::Chosen(them)).await;
        let first = result(&order, &honest(&order, them).await, &key(2));
        alone.hub.post(first.clone()).await;
        let done = alone.buyer.wait(&order.order_id).await.unwrap();
        assert_eq!((done.state, done.paid), (State::Released, Some(PRICE)));
        // As it was: no further than the intake.
        let known = alone.hub.known();
        alone.hub.post(first.clone()).await;
        assert_eq!(alone.hub.known(), known + 1);
        // Signed anew, and once more for an order that is still open: it answers the one that it names.
        let Event { kind, created_at, tags, content, .. } = first;
        let anew = Draft { kind, created_at: created_at + 1, tags, content }.sign(&key(2)).unwrap();
        let next = alone.hire("next", Choice::Chosen(them)).await;
        alone.hub.post(anew).await;
        alone.until_counted("result_repeated", 1).await;
        assert_eq!((alone.order(&order).await, alone.order(&next).await), (done, next));
        assert_eq!(payable(&alone.store, them).await, PRICE.0);
        let counted = numbers.render();
        for (what, times) in [("result_delivered", 1), ("result_repeated", 1)] {
            let line = format!("role_met_total{{role=\"buyer\",what=\"{what}\"}} {times}");
            assert!(counted.lines().any(|shown| shown == line), "{line} is not in:\n{counted}");
        }
    });
}

#[test]
fn what_comes_late_is_kept_and_changes_nothing() {
    let mut town = Town::new();
    let alone = Alone::in_town(&mut town);
    town.tell(async move {
        let them = key(2).public_key();
        let order = alone.hire("late", Choice::Chosen(them)).await;
        assert_eq!(wallet(&alone.store).await, 99_000);
        alone.clock.forward(61_000);
        let over = alone.buyer.wait(&order.order_id).await.unwrap();
        assert_eq!(over.state, State::Expired);
        assert_eq!(wallet(&alone.store).await, 100_000);
        let deletions = || alone.hub.published(&Filter::kinds([kind::DELETION]));
        until(&alone.clock, "the request is taken back", || async { deletions().len() == 1 }).await;
        assert_eq!(deletions()[0].tag("e"), Some(order.request_id.hex().as_str()));
        alone.hub.post(result(&order, &honest(&order, them).await, &key(2))).await;
        alone.until_counted("result_late", 1).await;
        assert_eq!(alone.order(&order).await, over);
        assert_eq!(payable(&alone.store, them).await, 0);
    });
}

#[test]
fn a_provider_that_refuses_ends_the_order() {
    let mut town = Town::new();
    let alone = Alone::in_town(&mut town);
    town.tell(async move {
        let them = key(2).public_key();
        let cases = [
            (Status::Error, None, "no time"),
            (Status::PaymentRequired, Some(700), "the provider wants to be paid first"),
            (
                Status::Processing,
                Some(1_001),
                "the provider asks for 1001 msat, the budget is 1000",
            ),
        ];
        for (status, asked, words) in cases {
            let order = alone.hire(words, Choice::Chosen(them)).await;
            let request = order.request().unwrap();
            let mut feedback = Feedback::about(&request, status);
            feedback.info = Some("no time".to_owned());
            feedback.price = asked.map(|msat| Price::new(Msat(msat)));
            // By somebody else it says nothing.
            let draft = feedback.draft(request.created_at).unwrap();
            alone.hub.post(draft.clone().sign(&key(3)).unwrap()).await;
            alone.hub.post(draft.sign(&key(2)).unwrap()).await;
            let over = alone.buyer.wait(&order.order_id).await.unwrap();
            assert_eq!((over.state, over.words.as_deref()), (State::Failed, Some(words)));
        }
        assert_eq!(alone.buyer.counts().of("answer_refused"), 3);
        assert_eq!(wallet(&alone.store).await, 100_000);
        // Whoever only asked for more must not go on working.
        let deletions = || alone.hub.published(&Filter::kinds([kind::DELETION]));
        until(&alone.clock, "all are taken back", || async { deletions().len() == 3 }).await;
    });
}

#[test]
fn an_open_order_believes_those_who_announce_the_work() {
    let mut town = Town::new();
    let alone = Alone::in_town(&mut town);
    let b = town.node();
    let provider = town.provider(b, key(2));
    let theirs = town.store(b).clone();
    town.tell(async move {
        until_known(&alone.clock, &alone.store, provider.public_key()).await;
        let order = alone.hire("open", Choice::Any).await;
        assert!(order.is_open && order.provider.is_none());
        // Right, and by nobody we have ever heard of.
        alone.hub.post(result(&order, &honest(&order, key(3).public_key()).await, &key(3))).await;
        let done = alone.buyer.wait(&order.order_id).await.unwrap();
        assert_eq!((done.state, done.provider), (State::Released, Some(provider.public_key())));
        alone.until_counted("answer_refused", 1).await;
        until(&alone.clock, "it is owed", || async {
            owed(&theirs, key(1).public_key()).await == PRICE.0
        })
        .await;
        assert_eq!(payable(&alone.store, provider.public_key()).await, PRICE.0);
        assert_eq!(wallet(&alone.store).await, 100_000 - PRICE.0);
    });
}

#[test]
fn a_request_that_is_taken_back_is_not_worked_on() {
    let mut town = Town::new();
    let alone = Alone::in_town(&mut town);
    let b = town.node();
    let sloth = town.provider_with(b, key(2), Town::offer(), Arc::new(Sloth));
    town.tell(async move {
        until_known(&alone.clock, &alone.store, sloth.public_key()).await;
        let order = alone.hire("cancelled", Choice::Best).await;
        let state = || async { sloth.job(order.request_id).await.unwrap().map(|job| job.state) };
        until(&alone.clock, "accepted", || async { state().await == Some(job::State::Accepted) })
            .await;
        let over = alone.buyer.cancel(order.order_id.clone()).await.unwrap();
        assert_eq!(over.state, State::Cancelled);
        until(&alone.clock, "let go", || async { state().await == Some(job::State::Cancelled) })
            .await;
        assert_eq!(wallet(&alone.store).await, 100_000);
        assert_eq!(sloth.counts().of("job_cancelled"), 1);
    });
}

#[test]
fn work_that_takes_too_long_is_given_up_with_words() {
    let mut town = Town::new();
    let alone = Alone::in_town(&mut town);
    let b = town.node();
    let offer = guild_roles::provider::Options { job_timeout_ms: 30, ..Town::offer() };
    let sloth = town.provider_with(b, key(2), offer, Arc::new(Sloth));
    town.tell(async move {
        until_known(&alone.clock, &alone.store, sloth.public_key()).await;
        let order = alone.hire("slow", Choice::Best).await;
        let over = alone.buyer.wait(&order.order_id).await.unwrap();
        assert_eq!(over.state, State::Failed);
        assert_eq!(over.words.as_deref(), Some("it was not done in 30 ms [provider.timeout]"));
    });
}
