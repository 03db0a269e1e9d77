//! A market on a real store: events in the archive, orders and jobs with their money, receipts. The tests of the
//! gateway use this file too.

use std::collections::BTreeMap;

use guild_ledger::policy::{Bundle, Tier};
use guild_ledger::{Account, Limit, NewTransfer, Step, TransferId, ledger};
use guild_market::claim::Claimant;
use guild_market::job::{self, Offer, Refusal, Shop, Taken};
use guild_market::order::{self, NewOrder, OrderId};
use guild_market::routing::{self, work as routed};
use guild_market::settle::{Keys, Settled, settle};
use guild_market::verify::{Options as Strictness, Subject, verify};
use guild_memory::embed::HashEmbedder;
use guild_network::archive::{self, Verified};
use guild_protocol::amount::{Amount, AssetId, Msat};
use guild_protocol::env::{Random, Signer};
use guild_protocol::hash::Hash;
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::nostr::announcement::{Announcement, JobPrices, Pricing};
use guild_protocol::nostr::job::{Feedback, JobResult, Price, Request, Status};
use guild_protocol::nostr::{Event, EventId, unix_s};
use guild_protocol::receipt::{self, Draft, Proof, Rail, Receipt};
use guild_protocol::schema::{Job, Registry, SchemaId};
use guild_protocol::timestamp::Timestamp;
use guild_roles::Error;
use guild_store::{Migrations, Store, Tx};
use serde_json::json;

/// When everything begins.
pub(crate) const T0: i64 = 1_768_465_800_000;

/// Every table that a market has.
pub(crate) fn migrations() -> Migrations {
    Migrations::store()
        .and(guild_ledger::migrations())
        .and(guild_network::migrations())
        .and(guild_market::migrations())
}

struct Dice;
impl Random for Dice {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(4);
    }
}

pub(crate) fn key(n: u8) -> SecretKey {
    SecretKey::from_bytes([n; 32]).unwrap()
}

pub(crate) fn public(n: u8) -> PublicKey {
    key(n).public_key()
}

/// The key under which this node buys.
pub(crate) const BUYER: u8 = 1;
/// The provider of an order that is open to all.
pub(crate) const ANYBODY: u8 = 0;

fn embedding() -> SchemaId {
    "oa.embedding.v1".parse().unwrap()
}

/// Who does all the work of this node.
pub(crate) fn claimant() -> Claimant {
    Claimant { token: "one".to_owned(), ttl_ms: 1_000, at_once: 4 }
}

pub(crate) struct Bazaar {
    pub(crate) store: Store,
}

/// What is ordered.
#[derive(Clone, Copy)]
pub(crate) struct Wish<'a> {
    pub(crate) order_key: &'a str,
    pub(crate) provider: u8,
    pub(crate) budget_msat: i64,
    pub(crate) private: bool,
}

impl Bazaar {
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        run: impl Fn(&mut Tx<'_>) -> Result<T, Error> + Send + 'static,
    ) -> T {
        self.store.write(run).await.unwrap()
    }

    /// An event comes in.
    pub(crate) async fn put(&self, event: &Event, now_ms: i64) {
        let event = Verified::check(event.clone()).unwrap();
        let put = move |tx: &mut Tx<'_>| {
            Ok(archive::put(tx, std::slice::from_ref(&event), "ws://relay.example", now_ms)?)
        };
        self.write(put).await;
    }

    pub(crate) async fn announce(&self, by: u8, name: &str, price_msat: i64, at_ms: i64) {
        let mut card = Announcement::new("main");
        card.kinds.push("5050".to_owned());
        card.topics.push("oa.embedding.v1".to_owned());
        card.relays.push("wss://relay.example".to_owned());
        card.content.name = Some(name.to_owned());
        card.content.description =
            Some("Embeddings of short texts, from one quiet machine.".to_owned());
        card.content.supports_encryption = Some(true);
        let prices = BTreeMap::from([(embedding().to_string(), Msat(price_msat))]);
        card.content.pricing =
            Some(Pricing { per_job: Some(JobPrices(prices)), ..Pricing::default() });
        let event = card.draft(unix_s(at_ms)).unwrap().sign(&key(by)).unwrap();
        self.put(&event, at_ms).await;
    }

    /// Puts money into the wallet.
    pub(crate) async fn fund(&self, units: i64) {
        self.write(move |tx| {
            let outside = Account::new("outside", "main", AssetId::btc_ln(), Limit::None)?;
            let wallet = order::wallet()?;
            ledger::open(tx, &outside, T0)?;
            ledger::open(tx, &wallet, T0)?;
            let amount = Amount::from(Msat(units));
            let step = Step::Post { debit: outside.account_id, credit: wallet.account_id, amount };
            let deposit = NewTransfer::new(TransferId::named(T0, &["deposit"]), step, "deposit")?;
            ledger::book(tx, &[vec![deposit]], T0)?.remove(0)?;
            Ok(())
        })
        .await;
    }

    /// This node orders something; the request, as everybody sees it.
    pub(crate) async fn order(&self, wish: Wish<'_>, at_ms: i64) -> Event {
        let new = NewOrder {
            order_key: wish.order_key.to_owned(),
            kind: 5050,
            job: work(wish.order_key),
            provider: (wish.provider != ANYBODY).then(|| public(wish.provider)),
            provider_tier: Tier::Secondary,
            price: Some(Msat(wish.budget_msat * 5 / 8)),
            budget: Msat(wish.budget_msat),
            deadline_ms: at_ms + 60_000,
            private: wish.private,
            relays: vec!["wss://relay.example".to_owned()],
        };
        let request = new.request(&key(BUYER), &Dice, at_ms).unwrap();
        let (signed, bundle) = (request.clone(), Bundle::builtin().unwrap());
        self.write(move |tx| Ok(order::post(tx, &new, &signed, &bundle, at_ms)?)).await;
        self.put(&request, at_ms).await;
        request
    }

    /// A provider says how it goes.
    pub(crate) async fn say(
        &self,
        by: u8,
        request: &Event,
        status: Status,
        info: &str,
        at_ms: i64,
    ) -> Event {
        let mut feedback = Feedback::about(request, status);
        feedback.info = Some(info.to_owned()).filter(|info| !info.is_empty());
        feedback.price = Some(Price::new(Msat(5_000)));
        let at = unix_s(at_ms);
        let draft = match feedback.encrypted {
            true => feedback.sealed_draft(at, &key(by), &Dice),
            false => feedback.draft(at),
        };
        let event = draft.unwrap().sign(&key(by)).unwrap();
        self.put(&event, at_ms).await;
        event
    }

    /// A provider answers; this node hands the answer to its order if it has one.
    pub(crate) async fn answer(&self, by: u8, request: &Event, content: &str, at_ms: i64) -> Event {
        let mut result = JobResult::answering(request, content).unwrap();
        result.price = Some(Price::new(Msat(5_000)));
        let at = unix_s(at_ms);
        let draft = match result.encrypted {
            true => result.sealed_draft(at, &key(by), &Dice),
            false => result.draft(at),
        };
        let event = draft.unwrap().sign(&key(by)).unwrap();
        self.put(&event, at_ms).await;
        let (taken, sender) = (event.clone(), public(by));
        self.write(move |tx| {
            let order = order::of_request(tx, &taken.tag("e").unwrap().parse().unwrap())?;
            if order.is_some_and(|order| order.provider.is_none_or(|provider| provider == sender)) {
                order::deliver(tx, &taken, &key(BUYER), &claimant(), at_ms)?;
            }
            Ok(())
        })
        .await;
        event
    }

    /// This node judges what was delivered, and pays or does not.
    pub(crate) async fn settle(&self, order_key: &str, at_ms: i64) -> Settled {
        let order_id = OrderId::of_key(order_key);
        self.write(move |tx| {
            let order = order::get(tx, &order_id)?;
            let (job, text) =
                (order.job(&Registry::builtin())?, order.output_text.clone().unwrap_or_default());
            let subject =
                Subject { job: &job, provider: &order.deliverer().unwrap(), output_text: &text };
            let verdict = verify(&Registry::builtin(), &Strictness::default(), &subject)?;
            let keys = Keys { key: &key(BUYER), random: &Dice };
            let claim = order::claim(tx, &order_id, &claimant(), at_ms)?.unwrap();
            Ok(settle(tx, &order_id, &claim, &verdict, keys, at_ms)?)
        })
        .await
    }

    /// The routing matrix learns how an order ended.
    pub(crate) async fn learn(&self, order_key: &str, at_ms: i64) {
        let order_id = OrderId::of_key(order_key);
        self.write(move |tx| {
            let order = order::get(tx, &order_id)?;
            Ok(routed::ended(tx, &routing::Options::default(), &order, at_ms)?)
        })
        .await;
    }

    /// Somebody asks for work, of somebody or of anybody.
    pub(crate) async fn ask(&self, by: u8, of: &[u8], text: &str, at_ms: i64) -> Event {
        let event = wanted(of, text).draft(unix_s(at_ms)).unwrap().sign(&key(by)).unwrap();
        self.put(&event, at_ms).await;
        event
    }

    /// The same, so that only the one who is asked can read it.
    pub(crate) async fn ask_in_private(&self, by: u8, of: u8, text: &str, at_ms: i64) -> Event {
        let mut request = wanted(&[of], text);
        request.encrypted = true;
        let draft = request.sealed_draft(unix_s(at_ms), &key(by), &Dice).unwrap();
        let event = draft.sign(&key(by)).unwrap();
        self.put(&event, at_ms).await;
        event
    }

    /// This node, as the provider `us`, decides about a request.
    pub(crate) async fn take(&self, us: u8, request: &Event, price_msat: i64, at_ms: i64) {
        let offer = Offer {
            provider: public(us),
            prices: BTreeMap::from([(embedding(), Msat(price_msat))]),
            max_input_bytes: 10_000,
            max_open_jobs: 8,
            credit: Msat(100_000),
            unpaid_ms: 3_600_000,
            max_samples: 0,
            max_samples_of_all: 0,
        };
        let event = request.clone();
        self.write(move |tx| {
            let request = Request::parse(&event, Some(&key(us))).unwrap();
            let registry = &Registry::builtin();
            let claimant = &claimant();
            let shop = Shop { offer: &offer, registry, can_do: &|_| Ok(()), claimant };
            if let Taken::Refused(refusal) = job::take(tx, &event, &request, &shop, at_ms)? {
                job::refuse(tx, &event, &offer.provider, &refusal, at_ms)?;
            }
            Ok(())
        })
        .await;
    }

    /// This node hands in its result.
    pub(crate) async fn hand_in(&self, us: u8, request: &Event, at_ms: i64) {
        let text = request.tag("i").unwrap().to_owned();
        let payload = serde_json::from_str(&text).unwrap();
        let job = Registry::builtin().validate_input(&embedding(), &payload).unwrap();
        let result = self.answer(us, request, &honest(&job, us), at_ms).await;
        let id = request.id;
        self.write(move |tx| {
            let claim = job::claim(tx, &id, &claimant(), at_ms)?.unwrap();
            Ok(job::deliver(tx, &id, &claim, &result, at_ms)?)
        })
        .await;
    }

    /// This node gives a job up.
    pub(crate) async fn give_up(&self, id: &EventId, refusal: &Refusal, at_ms: i64) {
        let (id, refusal) = (*id, refusal.clone());
        self.write(move |tx| {
            let claim = job::claim(tx, &id, &claimant(), at_ms)?.unwrap();
            Ok(job::fail(tx, &id, &claim, &refusal, at_ms)?)
        })
        .await;
    }

    /// The buyer of a job signs for it, and this node takes the receipt.
    pub(crate) async fn sign_for(&self, buyer: u8, us: u8, request: &Event, at_ms: i64) -> Receipt {
        let draft = Draft {
            session_id: request.id.hex(),
            request_id: Some(request.id.hex()),
            trajectory_hash: Hash::of(b"what the buyer saw"),
            policy_bundle_id: "theirs".to_owned(),
            job_hash: Request::parse(request, None).unwrap().job_hash,
            payment_proof: Some(Proof::LedgerTransfer {
                transfer_id: TransferId::named(at_ms, &["theirs", &request.id.hex()]).to_string(),
                ledger_head: Hash::of(b"their book"),
            }),
            rail: Rail::Ledger,
            amount: Amount::from(Msat(5_000)),
            provider_id: public(us),
            buyer_id: public(buyer),
            approval_rule_id: None,
            idempotency_key: request.id.hex(),
            status: receipt::Status::Released,
            verdict_hash: Some(Hash::of(b"their verdict")),
            timestamp: Timestamp::from_ms(at_ms).unwrap(),
        };
        let receipt = draft.sign(&key(buyer)).unwrap();
        let taken = receipt.clone();
        let take = move |tx: &mut Tx<'_>| {
            Ok(job::take_receipt(tx, &taken, &public(us), Msat(100_000), at_ms)?)
        };
        self.write(take).await;
        receipt
    }
}

/// A request for such work, before it is signed.
fn wanted(of: &[u8], text: &str) -> Request {
    let job = work(text);
    let mut request = Request::new(5050);
    let payload = serde_json::to_string(job.payload()).unwrap();
    request.inputs.push(guild_protocol::nostr::job::Input::text(payload));
    request.schema_id = Some("oa.embedding.v1".to_owned());
    request.job_hash = Some(job.job_hash());
    request.bid = Some(Msat(8_000));
    request.providers = of.iter().map(|n| public(*n)).collect();
    request
}

/// The work that an order of this name is about.
pub(crate) fn work(text: &str) -> Job {
    let payload = json!({"texts": [text, "another text"], "dimensions": 8});
    Registry::builtin().validate_input(&embedding(), &payload).unwrap()
}

/// What an honest provider sends.
pub(crate) fn honest(job: &Job, by: u8) -> String {
    let embedder = HashEmbedder::new(8).unwrap();
    let texts = job.payload()["texts"].as_array().unwrap();
    let vectors: Vec<Vec<f64>> =
        texts.iter().map(|text| embedder.embed(text.as_str().unwrap()).unwrap()).collect();
    answer_of(&json!(vectors), by)
}

/// What a cheat sends: of the right form, and wrong.
pub(crate) fn cheap(by: u8) -> String {
    answer_of(&json!([[1, 0, 0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0]]), by)
}

fn answer_of(vectors: &serde_json::Value, by: u8) -> String {
    let answer = json!({
        "embeddings": vectors, "model_id": "guild-hash-v1", "dimensions": 8,
        "provenance": {"model": "guild-hash-v1", "provider_id": public(by).npub()},
    });
    answer.to_string()
}
