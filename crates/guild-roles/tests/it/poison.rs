//! One thing that always fails: whoever sent it, it holds up nothing else.

use std::sync::Arc;

use guild_market::job::{self, Refusal};
use guild_market::order::State;
use guild_protocol::amount::Msat;
use guild_protocol::env::{BoxFuture, Signer};
use guild_protocol::nostr::job::{Input, Request};
use guild_protocol::nostr::{Event, unix_s};
use guild_protocol::schema::{Job, SchemaId};
use guild_roles::buyer::Choice;
use guild_roles::provider::{Embedder, Options, Task, Worker};
use guild_store::Store;
use serde_json::{Value, json};

use crate::attacks::{Alone, honest, result};
use crate::town::{PRICE, T0, Town, embedding, key, until};

/// One who breaks at the word.
struct Fragile;

impl Worker for Fragile {
    fn schema_ids(&self) -> Vec<SchemaId> {
        Embedder.schema_ids()
    }

    fn check(&self, job: &Job, max_output_bytes: usize) -> Result<(), Refusal> {
        assert!(!job.payload().to_string().contains("poison"), "this is planted");
        Embedder.check(job, max_output_bytes)
    }

    fn work(&self, task: Task) -> BoxFuture<Result<Value, Refusal>> {
        Embedder.work(task)
    }
}

fn ask(text: &str) -> Event {
    let mut request = Request::new(5050);
    request.inputs.push(Input::text(json!({"texts": [text], "dimensions": 8}).to_string()));
    request.schema_id = Some(embedding().to_string());
    request.bid = Some(Msat(1_000));
    request.providers.push(key(2).public_key());
    request.draft(unix_s(T0)).unwrap().sign(&key(7)).unwrap()
}

macro_rules! plant {
    ($table:literal) => {
        concat!(
            "CREATE TRIGGER planted BEFORE UPDATE ON ",
            $table,
            " WHEN NEW.payload LIKE '%poison%' BEGIN SELECT RAISE(ABORT, 'planted'); END"
        )
    };
}

/// From now on the database refuses to change rows whose input has the word: a write that fails by itself.
async fn plant(store: &Store, trigger: &'static str) {
    store.write(move |tx| tx.exec(trigger, &[])).await.unwrap();
}

#[test]
fn a_request_that_breaks_its_reader_holds_up_no_other() {
    let mut town = Town::new();
    let node = town.node();
    // One event a page: whatever is behind the poison is not even seen before it is done with.
    let offer = Options { page_max: 1, ..Town::offer() };
    let provider = town.provider_with(node, key(2), offer, Arc::new(Fragile));
    let (poison, well) = (ask("poison"), ask("well"));
    let (hub, clock) = (town.hub.clone(), town.clock.clone());
    town.tell(async move {
        hub.post(poison.clone()).await;
        hub.post(well.clone()).await;
        until(&clock, "the other is done", || async {
            let job = provider.job(well.id).await.unwrap();
            job.is_some_and(|job| job.state == job::State::Delivered)
        })
        .await;
        assert_eq!(provider.counts().of("request_failed"), 1, "tried, counted, and left");
        assert_eq!(provider.job(poison.id).await.unwrap(), None);
    });
}

/// Work that cannot be written down is done once more at most, and its buyer is told.
#[test]
fn a_job_that_cannot_be_handed_in_is_not_done_for_ever() {
    let mut town = Town::new();
    let node = town.node();
    let offer = Options { concurrency: 1, ..Town::offer() };
    let provider = town.provider_with(node, key(2), offer, Arc::new(Embedder));
    let (poison, well) = (ask("poison"), ask("well"));
    let (store, hub, clock) = (town.store(node).clone(), town.hub.clone(), town.clock.clone());
    town.tell(async move {
        plant(&store, plant!("market_job")).await;
        hub.post(poison.clone()).await;
        hub.post(well.clone()).await;
        until(&clock, "the other is done", || async {
            let job = provider.job(well.id).await.unwrap();
            job.is_some_and(|job| job.state == job::State::Delivered)
        })
        .await;
        // It is counted behind what is done: the other may be first.
        until(&clock, "it was tried and told", || async {
            provider.counts().of("job_not_handed_in") >= 2
        })
        .await;
        store.write(|tx| tx.exec("DROP TRIGGER planted", &[])).await.unwrap();
        until(&clock, "it is found again", || async {
            let job = provider.job(poison.id).await.unwrap();
            job.is_some_and(|job| job.state == job::State::Delivered)
        })
        .await;
    });
}

/// An order that cannot change: neither its result nor its end holds up the others.
#[test]
fn an_order_that_cannot_change_holds_up_no_other() {
    let mut town = Town::new();
    let alone = Alone::in_town(&mut town);
    town.tell(async move {
        let them = Choice::Chosen(key(2).public_key());
        let poison = alone.hire("poison", them).await;
        let well = alone.hire("well", them).await;
        let unanswered = alone.hire("unanswered", them).await;
        plant(&alone.store, plant!("market_order")).await;
        for order in [&poison, &well] {
            let text = honest(order, key(2).public_key()).await;
            alone.hub.post(result(order, &text, &key(2))).await;
        }
        let well = alone.buyer.wait(&well.order_id).await.unwrap();
        assert_eq!((well.state, well.paid), (State::Released, Some(PRICE)));
        assert_eq!(alone.order(&poison).await.state, State::Posted);
        assert_eq!(alone.buyer.counts().of("answer_refused"), 1, "tried, counted, and left");
        alone.clock.forward(60_000);
        let over = alone.buyer.wait(&unanswered.order_id).await.unwrap();
        assert_eq!(over.state, State::Expired);
        until(&alone.clock, "its end is counted", || async {
            alone.buyer.counts().of("order_not_ended") >= 1
        })
        .await;
        // Whoever mends the database finds it as it was.
        alone.store.write(|tx| tx.exec("DROP TRIGGER planted", &[])).await.unwrap();
        let over = alone.buyer.wait(&poison.order_id).await.unwrap();
        assert_eq!(over.state, State::Expired);
    });
}
