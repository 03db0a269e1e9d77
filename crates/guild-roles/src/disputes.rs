//! Disputes about results: this role files, answers and decides ours, hears what others say, and does what time and
//! rules bring.
//!
//! ```text
//! file ─▶ row, hold, event ─▶ relays ─▶ the other's node: row ─▶ answer
//!            └─▶ due ─▶ decided by a check, an arbiter, who gives in, or the deadline ─▶ money, event
//! ```
//!
//! A node may be the buyer, the provider and an arbiter, of other disputes or of one: each has a row of its own. What
//! is due is found by reading rows, so any number of processes may look.

use std::sync::Arc;

use futures_util::future::join_all;
use guild_bus::Bus;
use guild_market::dispute::{self, Desk, Done};
use guild_market::settle::Keys;
use guild_market::verify;
use guild_market::{job, order};
use guild_network::archive::Verified;
use guild_network::index;
use guild_network::publish::{self, Destinations};
use guild_protocol::env::{Clock, Random, Shutdown, Signer, UnixMs};
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::nostr::{Event, EventId, kind, tag};
use guild_protocol::schema::Registry;
use guild_store::{Rx, Store, Tx};
use serde_json::{Value, json};

use crate::alone;
use crate::feed::Feed;
use crate::reviews::IsDisputed;
use crate::workshop::Workshop;
use crate::{Counts, Error, Result};

mod look;

pub use guild_market::dispute::{
    By, Dispute, DisputeId, Fallback, Filing, Message, Options as Rules, Outcome, Reason,
    Reference, Side, State, Statement, Wait, is_dispute,
};

/// How disputes are made and taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Where they are published.
    pub relays: Vec<String>,
    /// How many of the relays that the other one names are used too.
    pub max_hints: usize,
    /// The rules.
    pub rules: dispute::Options,
    /// How strict verdicts are.
    pub verify: verify::Options,
    /// How many events are read at once.
    pub page_max: usize,
    /// How often it looks without a bell.
    pub sweep_ms: i64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            relays: Vec::new(),
            max_hints: 2,
            rules: dispute::Options::default(),
            verify: verify::Options::default(),
            page_max: 256,
            sweep_ms: 1_000,
        }
    }
}

/// What this role needs of its node.
#[derive(Clone)]
pub struct Node {
    /// Where its rows are.
    pub store: Store,
    /// Where bells ring.
    pub bus: Arc<dyn Bus>,
    /// Its time.
    pub clock: Arc<dyn Clock>,
    /// For what travels encrypted.
    pub random: Arc<dyn Random>,
    /// The schemas that are known.
    pub registry: Arc<Registry>,
    /// Where commands are run again; none if nothing of that kind is ordered here.
    pub workshop: Option<Workshop>,
}

/// The handle of disputes: cheap to clone.
#[derive(Clone)]
pub struct Disputes(Arc<Shared>);

struct Shared {
    options: Options,
    /// The one that hires, and decides where it is named as an arbiter.
    buyer: SecretKey,
    /// The one that works.
    provider: SecretKey,
    node: Node,
    counts: Counts,
}

/// The service of disputes.
pub struct Service(Arc<Shared>);

/// What is said to answer a dispute.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// In words.
    pub statement: Option<String>,
    /// What it can be checked by.
    pub evidence: Vec<Reference>,
    /// Who may decide, of those whom the settings accept.
    pub arbiter: Option<PublicKey>,
}

/// Whether the result of a request is disputed, for whoever must wait for that.
pub fn is_disputed() -> IsDisputed {
    Arc::new(|rx: &mut Rx<'_>, request_id: &EventId| dispute::is_open(rx, request_id))
}

/// A dispute in short, as commands and programs are told what became of it.
pub fn summary(dispute: &Dispute) -> Value {
    json!({
        "dispute_id": dispute.dispute_id,
        "side": dispute.side.as_str(),
        "request_id": dispute.request_id,
        "filed_by": dispute.filed_by.as_str(),
        "reason": dispute.reason.as_str(),
        "state": dispute.state.as_str(),
        "by": dispute.by.map(By::as_str),
        "outcome": dispute.outcome.map(Outcome::as_str),
        "arbiter": dispute.arbiter.map(|key| key.npub()),
        "deadline_ms": dispute.deadline_ms,
        "held_msat": dispute.held.0,
        "moved_msat": dispute.moved.0,
        "pending": dispute.pending,
        "waits_for": dispute.waits_for.map(Wait::as_str),
        "given_up": dispute.given_up,
        "receipt_id": dispute.receipt_id,
    })
}

impl Disputes {
    /// Disputes under these keys, the one that hires and the one that works; and the service that must run for them.
    pub fn new(
        options: Options,
        (buyer, provider): (SecretKey, SecretKey),
        node: Node,
    ) -> (Disputes, Service) {
        let counts = Counts::of_role("disputes");
        let shared = Arc::new(Shared { options, buyer, provider, node, counts });
        (Disputes(shared.clone()), Service(shared))
    }

    /// What it has done and met since it started.
    pub fn counts(&self) -> Counts {
        self.0.counts.clone()
    }

    /// Files a dispute about the result of a request: as the buyer, if it is an order of ours, else as its provider.
    /// Again it is the same.
    pub async fn file(&self, filing: Filing) -> Result<Dispute> {
        self.0
            .say(move |tx, shared, now_ms| {
                let is_order = order::of_request(tx, &filing.request_id)?.is_some();
                let is_job = job::find(tx, &filing.request_id)?.is_some();
                // A node may be both; then the reason tells.
                let is_ours = is_order && (filing.reason.is_of(Side::Buyer) || !is_job);
                let side = if is_ours { Side::Buyer } else { Side::Provider };
                Ok(dispute::file(tx, side, &filing, shared.desk(side), now_ms)?)
            })
            .await
    }

    /// Answers an open dispute, or adds to what we have said.
    pub async fn answer(&self, dispute_id: DisputeId, answer: Answer) -> Result<Dispute> {
        self.0
            .say(move |tx, shared, now_ms| {
                let all = dispute::all_of(tx, &dispute_id)?;
                let party = |one: &&Dispute| one.side != Side::Arbiter;
                let asked = all.iter().filter(party).find(|one| one.side != one.filed_by);
                let side = asked.or(all.iter().find(party)).map_or(Side::Buyer, |one| one.side);
                let said = (answer.statement.clone(), answer.evidence.clone());
                let desk = (shared.desk(side), now_ms);
                Ok(dispute::answer(tx, (&dispute_id, side), said, answer.arbiter, desk)?)
            })
            .await
    }

    /// Decides a dispute: gives in, or, as its arbiter, says who is right.
    pub async fn resolve(
        &self,
        dispute_id: DisputeId,
        outcome: Outcome,
        statement: Option<String>,
    ) -> Result<Dispute> {
        self.0
            .say(move |tx, shared, now_ms| {
                let all = dispute::all_of(tx, &dispute_id)?;
                let may = all.iter().find(|one| one.side.wish() != Some(outcome));
                let side = may.or(all.first()).map_or(Side::Buyer, |one| one.side);
                let (statement, desk) = (statement.clone(), (shared.desk(side), now_ms));
                Ok(dispute::resolve(tx, (&dispute_id, side), outcome, statement, desk)?)
            })
            .await
    }
}

impl Service {
    /// Hears what is said and does what is due until the shutdown.
    pub async fn run(self, shutdown: Shutdown) {
        let shared = self.0;
        let node = &shared.node;
        let mut feed = Feed::new(
            "disputes".to_owned(),
            vec![kind::LABEL],
            (shared.options.page_max, shared.options.sweep_ms),
            (&node.store, &*node.bus, &node.clock),
        );
        let mut failing = false;
        loop {
            match shared.round(&mut feed).await {
                // There may be more.
                Ok(false) if !shutdown.is_triggered() => continue,
                Ok(_) => failing = false,
                Err(error) if error.is_closed() => return,
                // Once, not every second for as long as it lasts.
                Err(error) if !std::mem::replace(&mut failing, true) => {
                    tracing::warn!(%error, "disputes cannot be looked after; trying again");
                }
                Err(_) => {}
            }
            if !feed.wait(&shutdown).await {
                return;
            }
        }
    }
}

impl Shared {
    fn now_ms(&self) -> UnixMs {
        self.node.clock.now_ms()
    }

    fn key_of(&self, side: Side) -> &SecretKey {
        match side {
            Side::Provider => &self.provider,
            Side::Buyer | Side::Arbiter => &self.buyer,
        }
    }

    fn desk(&self, side: Side) -> Desk<'_> {
        let keys = Keys { key: self.key_of(side), random: &*self.node.random };
        Desk { keys, options: &self.options.rules }
    }

    /// Does something of ours, and publishes what comes of it, in one transaction.
    async fn say(
        self: &Arc<Shared>,
        what: impl Fn(&mut Tx<'_>, &Shared, UnixMs) -> Result<Done> + Send + Sync + 'static,
    ) -> Result<Dispute> {
        let this = self.clone();
        let called = alone::write(&self.node.store, move |tx| {
            let now_ms = this.now_ms();
            let done = what(tx, &this, now_ms)?;
            this.publish(tx, &done, now_ms)?;
            Ok(done.dispute)
        });
        called.await?
    }

    fn publish(&self, tx: &mut Tx<'_>, done: &Done, now_ms: UnixMs) -> Result<()> {
        if done.events.is_empty() {
            return Ok(());
        }
        let to = self.destinations(tx, &done.dispute)?;
        for event in &done.events {
            publish::enqueue(tx, &Verified::check(event.clone())?, &to, now_ms)?;
        }
        Ok(())
    }

    /// Where the other one reads: our relays, and some of those that it names.
    fn destinations(&self, rx: &mut Rx<'_>, dispute: &Dispute) -> Result<Destinations> {
        let own = Destinations::own(&self.options.relays);
        let max = self.options.max_hints;
        if dispute.side == Side::Buyer {
            let offers = index::provider(rx, &dispute.provider)?;
            let named: Vec<String> =
                offers.into_iter().flat_map(|offer| offer.card.relays).collect();
            return Ok(own.and_of(&dispute.provider, named.iter().map(String::as_str), max));
        }
        let request = match job::find(rx, &dispute.request_id)? {
            Some(job) if dispute.side == Side::Provider => Some(job.request()?),
            _ => None,
        };
        let tags = request.map(|request| request.tags).unwrap_or_default();
        let named = tag::all(&tags, "relays").flatten().map(String::as_str);
        Ok(own.and_of(&dispute.buyer, named, max))
    }

    /// Reads a page, and does what is due; whether the page was the last.
    async fn round(self: &Arc<Shared>, feed: &mut Feed) -> Result<bool> {
        let page = feed.page().await?;
        let about = page.events.iter().filter(|event| is_dispute(event));
        let calls: Vec<_> = about.flat_map(|event| self.take(event)).collect();
        join_all(calls).await.into_iter().collect::<Result<()>>()?;
        feed.done(&page).await?;
        self.look().await?;
        Ok(page.is_last)
    }

    /// Takes a message, as each that we are in its dispute. Only a store that cannot be used is an error: whatever else
    /// is wrong, is so with this message alone.
    fn take(self: &Arc<Shared>, event: &Event) -> Vec<impl Future<Output = Result<()>> + use<>> {
        let mut calls = Vec::new();
        for side in Side::ALL.iter().copied() {
            let key = self.key_of(side);
            let own = key.public_key();
            let hex = own.hex();
            if event.pubkey != own && !tag::values(&event.tags, "p").any(|named| named == hex) {
                continue;
            }
            let message = match Message::parse(event, Some(key)) {
                Ok(message) => message,
                Err(error) => {
                    self.shrug(&event.id, &error.into());
                    continue;
                }
            };
            if message.parties.side_of(&own) != Some(side) {
                continue;
            }
            let (this, id, event) = (self.clone(), event.id, event.clone());
            let called = alone::write(&self.node.store, move |tx| {
                let now_ms = this.now_ms();
                let about = (&event, &message);
                let heard = dispute::hear(tx, side, about, this.desk(side), now_ms)?;
                let word = heard.word();
                if let Some(done) = heard.done() {
                    this.publish(tx, &done, now_ms)?;
                }
                Ok(word)
            });
            let this = self.clone();
            calls.push(async move {
                match called.await? {
                    Ok(word) => this.counts.add(word),
                    Err(error) => this.shrug(&id, &error),
                }
                Ok(())
            });
        }
        calls
    }

    fn shrug(&self, id: &EventId, error: &Error) {
        self.counts.add("dispute_refused");
        tracing::debug!(%error, code = error.code().name, %id, "a message of a dispute is not taken");
    }
}
