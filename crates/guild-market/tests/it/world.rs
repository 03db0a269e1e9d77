//! A node with a ledger and a market on a database of its own, and what happens between a buyer and a provider.

use std::collections::BTreeMap;

use guild_ledger::policy::{Bundle, Tier};
use guild_ledger::{Account, Limit, NewTransfer, Step, TransferId, export, ledger, receivable};
use guild_market::claim::{Claim, Claimant};
use guild_market::job::{self, Offer, Refusal, Shop, Taken, TakenJob};
use guild_market::order::{self, Delivery, NewOrder, Order, OrderId, Placed};
use guild_market::settle::{self, Keys, Settled};
use guild_market::verify::{Options as Strictness, Subject, Verdict};
use guild_market::{Result, verify};
use guild_memory::embed::HashEmbedder;
use guild_network::archive::{self, Verified};
use guild_protocol::amount::{Amount, AssetId, Msat};
use guild_protocol::env::{Random, Signer};
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::nostr::announcement::Announcement;
use guild_protocol::nostr::job::{JobResult, Price, Request};
use guild_protocol::nostr::{Event, EventId, unix_s};
use guild_protocol::receipt::Receipt;
use guild_protocol::schema::{Job, Registry, SchemaId};
use guild_store::{Hooks, Migrations, Options, Rx, Service, Store, Tx};
use serde_json::{Value, json};

/// When everything begins.
pub(crate) const T0: i64 = 1_768_465_800_000;
/// For how long what was not paid counts.
pub(crate) const UNPAID_MS: i64 = 3_600_000;
/// What every order lets its provider take.
pub(crate) const TIME_MS: i64 = 60_000;

pub(crate) struct Dice;

impl Random for Dice {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(4);
    }
}

pub(crate) fn key(n: u8) -> SecretKey {
    SecretKey::from_bytes([n; 32]).unwrap()
}

pub(crate) fn buyer() -> SecretKey {
    key(1)
}

pub(crate) fn provider() -> SecretKey {
    key(2)
}

pub(crate) fn embedding() -> SchemaId {
    "oa.embedding.v1".parse().unwrap()
}

pub(crate) fn work(text: &str) -> Job {
    let payload = json!({"texts": [text, "another text"], "dimensions": 8});
    Registry::builtin().validate_input(&embedding(), &payload).unwrap()
}

/// What an honest provider sends.
pub(crate) fn output(job: &Job, by: &PublicKey) -> Value {
    let dimensions = usize::try_from(job.payload()["dimensions"].as_u64().unwrap()).unwrap();
    let embedder = HashEmbedder::new(dimensions).unwrap();
    let texts = job.payload()["texts"].as_array().unwrap();
    let vectors: Vec<Vec<f64>> =
        texts.iter().map(|text| embedder.embed(text.as_str().unwrap()).unwrap()).collect();
    json!({
        "embeddings": vectors, "model_id": "guild-hash-v1", "dimensions": dimensions,
        "provenance": {"model": "guild-hash-v1", "provider_id": by.npub()},
    })
}

/// What a cheat sends: of the right form, and wrong.
pub(crate) fn cheap(job: &Job, by: &PublicKey) -> Value {
    let mut cheap = output(job, by);
    cheap["embeddings"] = json!([[1, 0, 0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0]]);
    cheap
}

pub(crate) fn judge(job: &Job, output_text: &str) -> Verdict {
    let subject = Subject { job, provider: &provider().public_key(), output_text };
    verify::verify(&Registry::builtin(), &Strictness::default(), &subject).unwrap()
}

pub(crate) fn new_order(order_key: &str, budget: i64) -> NewOrder {
    NewOrder {
        order_key: order_key.to_owned(),
        kind: 5050,
        job: work(order_key),
        provider: Some(provider().public_key()),
        provider_tier: Tier::Secondary,
        price: (budget > 0).then_some(Msat(budget / 2)),
        budget: Msat(budget),
        deadline_ms: T0 + TIME_MS,
        private: false,
        relays: vec!["wss://relay.example".to_owned()],
    }
}

pub(crate) fn request_of(new: &NewOrder) -> Event {
    new.request(&buyer(), &Dice, T0).unwrap()
}

/// The result of a request, signed by somebody.
pub(crate) fn result_of(request: &Event, content: &str, by: &SecretKey, at_ms: i64) -> Event {
    result_asking(request, content, by, at_ms, None)
}

pub(crate) fn result_asking(
    request: &Event,
    content: &str,
    by: &SecretKey,
    at_ms: i64,
    asked: Option<i64>,
) -> Event {
    let mut result = JobResult::answering(request, content).unwrap();
    result.price = asked.map(|msat| Price::new(Msat(msat)));
    let at = unix_s(at_ms);
    let draft = match result.encrypted {
        true => result.sealed_draft(at, by, &Dice),
        false => result.draft(at),
    };
    draft.unwrap().sign(by).unwrap()
}

pub(crate) fn offer(price: i64) -> Offer {
    Offer {
        provider: provider().public_key(),
        prices: BTreeMap::from([(embedding(), Msat(price))]),
        max_input_bytes: 10_000,
        max_open_jobs: 8,
        credit: Msat(1_000),
        unpaid_ms: UNPAID_MS,
        max_samples: 2,
        max_samples_of_all: 3,
    }
}

/// A worker that can do whatever is offered.
pub(crate) fn anything(_: &Job) -> std::result::Result<(), Refusal> {
    Ok(())
}

pub(crate) struct Node {
    pub(crate) store: Store,
    service: Option<Service>,
    _place: Place,
}

#[expect(dead_code, reason = "held only so that it is removed at the end")]
enum Place {
    Directory(tempfile::TempDir),
    Database(testbed::Database),
}

/// Runs a test on every kind of database.
pub(crate) fn both(test: impl Fn(&Node)) {
    test(&Node::sqlite(Hooks::default()));
    test(&Node::postgres());
}

impl Node {
    pub(crate) fn sqlite(hooks: Hooks) -> Node {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::file(&dir.path().join("node.db"));
        Node::open(&options, hooks, Place::Directory(dir))
    }

    fn postgres() -> Node {
        let database = testbed::Database::new().unwrap();
        let options = Options::at(&database.url());
        Node::open(&options, Hooks::default(), Place::Database(database))
    }

    fn open(options: &Options, hooks: Hooks, place: Place) -> Node {
        let all = Migrations::store()
            .and(guild_ledger::migrations())
            .and(guild_network::migrations())
            .and(guild_market::migrations());
        let service = Service::open(options, &all, hooks, 0).unwrap();
        Node { store: service.handle(), service: Some(service), _place: place }
    }

    pub(crate) fn write<T: Send + 'static>(
        &self,
        run: impl Fn(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        block_on(self.store.write(run))
    }

    pub(crate) fn read<T: Send + 'static>(
        &self,
        run: impl Fn(&mut Rx<'_>) -> Result<T> + Send + 'static,
    ) -> T {
        block_on(self.store.read(run)).unwrap()
    }

    /// Puts money into the wallet.
    pub(crate) fn fund(&self, units: i64) {
        self.write(move |tx| {
            let outside = Account::new("outside", "main", AssetId::btc_ln(), Limit::None)?;
            let wallet = order::wallet()?;
            ledger::open(tx, &outside, T0)?;
            ledger::open(tx, &wallet, T0)?;
            let step = Step::Post {
                debit: outside.account_id,
                credit: wallet.account_id,
                amount: Amount::from(Msat(units)),
            };
            let id = TransferId::named(T0, &["deposit"]);
            let deposit = NewTransfer::new(id, step, "deposit")?;
            ledger::book(tx, &[vec![deposit]], T0)?.remove(0)?;
            Ok(())
        })
        .unwrap();
    }

    pub(crate) fn post(&self, new: &NewOrder) -> Result<Placed> {
        let (new, request) = (new.clone(), request_of(new));
        self.write(move |tx| order::post(tx, &new, &request, &Bundle::builtin().unwrap(), T0))
    }

    pub(crate) fn deliver(&self, result: &Event, now_ms: i64) -> Result<Delivery> {
        let result = result.clone();
        self.write(move |tx| order::deliver(tx, &result, &buyer(), &claimant(), now_ms))
    }

    pub(crate) fn reject(&self, result: &Event, now_ms: i64) -> Result<Order> {
        let result = result.clone();
        self.write(move |tx| order::reject(tx, &result, now_ms))
    }

    /// Somebody announces that it makes embeddings.
    pub(crate) fn announce(&self, by: &SecretKey) {
        let mut card = Announcement::new("main");
        card.kinds.push("5050".to_owned());
        card.topics.push(embedding().to_string());
        let event = card.draft(unix_s(T0)).unwrap().sign(by).unwrap();
        let event = Verified::check(event).unwrap();
        self.write(move |tx| {
            archive::put(tx, std::slice::from_ref(&event), "ws://relay.example", T0)?;
            Ok(())
        })
        .unwrap();
    }

    pub(crate) fn settle(
        &self,
        order_id: &OrderId,
        verdict: &Verdict,
        now_ms: i64,
    ) -> Result<Settled> {
        let (order_id, verdict) = (order_id.clone(), verdict.clone());
        self.write(move |tx| {
            let keys = Keys { key: &buyer(), random: &Dice };
            let claim = order::claim(tx, &order_id, &claimant(), now_ms)?.unwrap_or_else(no_claim);
            settle::settle(tx, &order_id, &claim, &verdict, keys, now_ms)
        })
    }

    pub(crate) fn order(&self, order_id: &OrderId) -> Order {
        let order_id = order_id.clone();
        self.read(move |rx| order::get(rx, &order_id))
    }

    /// What is in an account, and what of it is free.
    pub(crate) fn balance(&self, account: &Account) -> (i64, i64) {
        let id = account.account_id.clone();
        let entries = self.read(move |rx| Ok(ledger::entries(rx, &[id.clone()].into())?));
        entries
            .into_values()
            .next()
            .map_or((0, 0), |entry| (entry.balance.units(), entry.balance.free_units()))
    }

    pub(crate) fn wallet(&self) -> (i64, i64) {
        self.balance(&order::wallet().unwrap())
    }

    /// What we owe the provider.
    pub(crate) fn payable(&self) -> i64 {
        let owed = receivable::payable(&provider().public_key(), AssetId::btc_ln()).unwrap();
        self.balance(&owed).0
    }

    /// What the buyer owes us.
    pub(crate) fn receivable(&self) -> i64 {
        let owing = receivable::receivable(&buyer().public_key(), AssetId::btc_ln()).unwrap();
        -self.balance(&owing).0
    }

    pub(crate) fn take(&self, event: &Event, offer: &Offer, now_ms: i64) -> Result<Taken> {
        let (event, offer) = (event.clone(), offer.clone());
        let request = Request::parse(&event, Some(&provider())).unwrap();
        self.write(move |tx| {
            let registry = &Registry::builtin();
            let claimant = &claimant();
            let shop = Shop { offer: &offer, registry, can_do: &anything, claimant };
            job::take(tx, &event, &request, &shop, now_ms)
        })
    }

    /// Writes down why a request is refused.
    pub(crate) fn refuse(&self, event: &Event, refusal: &Refusal, now_ms: i64) -> TakenJob {
        let (event, refusal, us) = (event.clone(), refusal.clone(), provider().public_key());
        self.write(move |tx| job::refuse(tx, &event, &us, &refusal, now_ms)).unwrap()
    }

    pub(crate) fn hand_in(&self, request: &Event, result: &Event, now_ms: i64) -> Result<TakenJob> {
        let (id, result) = (request.id, result.clone());
        self.write(move |tx| {
            let claim = job::claim(tx, &id, &claimant(), now_ms)?.unwrap_or_else(no_claim);
            job::deliver(tx, &id, &claim, &result, now_ms)
        })
    }

    pub(crate) fn take_receipt(&self, receipt: &Receipt, credit: i64) -> Result<TakenJob> {
        let receipt = receipt.clone();
        self.write(move |tx| {
            job::take_receipt(tx, &receipt, &provider().public_key(), Msat(credit), T0 + 9)
        })
    }

    pub(crate) fn job(&self, request_id: &EventId) -> TakenJob {
        let request_id = *request_id;
        self.read(move |rx| job::get(rx, &request_id))
    }

    /// What an audit by the ledger's own rules finds wrong.
    pub(crate) fn problems(&self) -> Vec<String> {
        block_on(self.store.read(guild_ledger::audit::run)).unwrap().problems
    }

    /// The export of its ledger.
    pub(crate) fn ledger_lines(&self) -> Vec<u8> {
        self.read(|rx| {
            let mut bytes = Vec::new();
            export::export(rx, &mut bytes)?;
            Ok(bytes)
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            service.close();
        }
    }
}

/// Who does all the work, where nobody else is.
pub(crate) fn claimant() -> Claimant {
    Claimant { token: "one".to_owned(), ttl_ms: 1_000, at_once: 2 }
}

/// For what is over, and so cannot be claimed.
pub(crate) fn no_claim() -> Claim {
    Claim { token: "nobody".to_owned(), epoch: 0, until_ms: 0 }
}

/// The name of the code of a refusal.
pub(crate) fn why<T: std::fmt::Debug>(result: Result<T>) -> &'static str {
    result.unwrap_err().code().name
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}
