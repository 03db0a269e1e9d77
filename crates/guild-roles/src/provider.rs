//! Somebody who does work for others.
//!
//! ```text
//! archive ─▶ takes requests ─▶ row `accepted`, 7000 `processing` ─▶ works ─▶ row `delivered`, 6xxx ─▶ takes receipts
//!                └─▶ row `refused`, 7000 `error` that says why
//! ```
//!
//! Every step is one transaction: the row, and whatever is published because of it. Whatever dies when, a request has
//! one answer: what was accepted before a crash is found by its row and worked on again, and the first result that is
//! written is the only one that is ever published. A request that its buyer deletes before the work is done is let go.
//! Where several processes share one database, each job is worked on by the one that has claimed it.
//! Only so many refusals of a minute are answered; beyond that nothing is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join3;
use guild_bus::Bus;
use guild_market::claim::{self, Claimant};
use guild_market::job::{self, Offer, TakenJob};
use guild_protocol::amount::Msat;
use guild_protocol::env::{BoxFuture, Clock, Random, Shutdown, Signer};
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::nostr::{Event, EventId, kind};
use guild_protocol::schema::{Registry, SchemaId};
use guild_store::Store;

use crate::error::code;
use crate::later::Later;
use crate::reference::Fetch;
use crate::{Counts, Error, Result};

mod answer;
mod card;
mod receipt;
mod request;
mod runner;
mod solver;
mod upkeep;
mod work;
mod worker;

pub use runner::{CommandRunner, Together};
pub use solver::Solver;
pub use worker::{Embedder, Task, Worker};

/// Sends an event to all relays that can be reached now, without a promise: for what is worth nothing later.
pub type Broadcast = Arc<dyn Fn(Event) -> BoxFuture<()> + Send + Sync>;

/// What is offered, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Names the announcement among those of this key.
    pub d: String,
    /// For people.
    pub name: String,
    /// For people.
    pub description: String,
    /// The kinds of requests that are announced; requests of other kinds are taken too.
    pub kinds: Vec<u16>,
    /// What each kind of work costs: a job, and of `oa.sandbox_run.v1` a minute on a core. Work without a price is not
    /// offered.
    pub prices: BTreeMap<SchemaId, Msat>,
    /// The most bytes of an input.
    pub max_input_bytes: usize,
    /// How many jobs are worked on at once.
    pub concurrency: usize,
    /// How many jobs may be accepted and not done.
    pub max_open_jobs: u64,
    /// What a buyer may owe, work that is not paid included.
    pub credit: Msat,
    /// For how long work that was done and not paid counts against the credit.
    pub unpaid_ms: i64,
    /// How many trials an hour are done for nothing, for one buyer,
    pub max_samples: u64,
    /// and for all.
    pub max_samples_of_all: u64,
    /// How long one job may take.
    pub job_timeout_ms: i64,
    /// How long the job of a process that died waits for another one that shares the database.
    pub claim_ms: i64,
    /// A request that does not say until when its buyer waits is taken up to this age.
    pub max_age_ms: i64,
    /// How many refusals are sent in a minute. Anybody can make us refuse; what is more than this gets no answer.
    pub max_refusals_per_minute: u64,
    /// How many inputs that are only referred to are fetched in a minute. Others are refused.
    pub max_fetches_per_minute: u64,
    /// Where everything is published.
    pub relays: Vec<String>,
    /// How many of the relays that a buyer names are used too.
    pub max_hints: usize,
    /// The time between two signs of life.
    pub heartbeat_ms: i64,
    /// An announcement is repeated when it is this old.
    pub announce_ms: i64,
    /// How well we do is announced anew at most this often.
    pub restate_ms: i64,
    /// How many events are read at once.
    pub page_max: usize,
    /// How often it looks without a bell.
    pub sweep_ms: i64,
    /// How often it sees whether its announcement is right and a sign of life is due. With each of those it looks for
    /// receipts that were missed, and forgets refusals that are old or too many.
    pub upkeep_ms: i64,
}

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;

impl Default for Options {
    fn default() -> Options {
        Options {
            d: "guild".to_owned(),
            name: "a guild node".to_owned(),
            description: String::new(),
            kinds: vec![kind::DEFAULT_REQUEST],
            prices: BTreeMap::new(),
            max_input_bytes: 64 * 1024,
            concurrency: 2,
            max_open_jobs: 64,
            credit: Msat(1_000_000),
            unpaid_ms: 7 * 24 * HOUR_MS,
            max_samples: 10,
            max_samples_of_all: 100,
            job_timeout_ms: MINUTE_MS,
            claim_ms: claim::TTL_MS,
            max_age_ms: HOUR_MS,
            max_refusals_per_minute: 60,
            max_fetches_per_minute: 30,
            relays: Vec::new(),
            max_hints: 2,
            heartbeat_ms: 5 * MINUTE_MS,
            announce_ms: 24 * HOUR_MS,
            restate_ms: HOUR_MS,
            page_max: 256,
            sweep_ms: 1_000,
            upkeep_ms: 10_000,
        }
    }
}

impl Options {
    fn check(&self, worker: &dyn Worker) -> Result<()> {
        let malformed = |what: String| Err(Error::refused(&code::OFFER, what));
        if let Some(kind) = self.kinds.iter().find(|kind| !kind::is_request(**kind)) {
            return malformed(format!("the kind {kind} is not one of requests, 5000 to 5999"));
        }
        let can = worker.schema_ids();
        if let Some(schema_id) = self.prices.keys().find(|schema_id| !can.contains(schema_id)) {
            return malformed(format!("nobody here can do {schema_id}"));
        }
        let units = self.prices.values().copied().chain([self.credit]).map(|amount| amount.0);
        if units.chain([self.unpaid_ms]).any(|number| number < 0) {
            return malformed("prices, the credit and unpaid_ms are zero or more".to_owned());
        }
        let waits = [self.job_timeout_ms, self.heartbeat_ms, self.sweep_ms, self.upkeep_ms];
        if self.concurrency == 0 || waits.iter().chain([&self.claim_ms]).any(|ms| *ms < 1) {
            return malformed("concurrency and times must be at least 1".to_owned());
        }
        Ok(())
    }
}

/// What a provider needs of its node.
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
    /// How inputs are read that requests only refer to; none if such requests are refused.
    pub fetch: Option<Fetch>,
}

/// The handle of a provider: cheap to clone.
#[derive(Clone)]
pub struct Provider(Arc<Shared>);

/// What all parts of a provider share.
struct Shared {
    options: Options,
    offer: Offer,
    key: SecretKey,
    worker: Arc<dyn Worker>,
    broadcast: Broadcast,
    node: Node,
    counts: Counts,
    /// Who we are among the processes that share the rows.
    claimant: Claimant,
    /// Jobs of which nothing could be handed in, neither a result nor an excuse.
    later: Later<EventId, ()>,
}

/// The service of a provider.
pub struct Service(Arc<Shared>);

impl Provider {
    /// A provider under this key, and the service that must run for it.
    pub fn new(
        options: Options,
        key: SecretKey,
        worker: Arc<dyn Worker>,
        broadcast: Broadcast,
        node: Node,
    ) -> Result<(Provider, Service)> {
        options.check(&*worker)?;
        let offer = Offer {
            provider: key.public_key(),
            prices: options.prices.clone(),
            max_input_bytes: options.max_input_bytes,
            max_open_jobs: options.max_open_jobs,
            credit: options.credit,
            unpaid_ms: options.unpaid_ms,
            max_samples: options.max_samples,
            max_samples_of_all: options.max_samples_of_all,
        };
        let counts = Counts::of_role("provider");
        let later = Later::new(options.sweep_ms);
        let at_once = u64::try_from(options.concurrency).unwrap_or(u64::MAX);
        let claimant = Claimant::new(&*node.random, options.claim_ms, at_once);
        let shared =
            Shared { options, offer, key, worker, broadcast, node, counts, claimant, later };
        let shared = Arc::new(shared);
        Ok((Provider(shared.clone()), Service(shared)))
    }

    /// Under which key.
    pub fn public_key(&self) -> PublicKey {
        self.0.offer.provider
    }

    /// What it has done and met since it started.
    pub fn counts(&self) -> Counts {
        self.0.counts.clone()
    }

    /// A job by the id of its request, if it is one of ours.
    pub async fn job(&self, request_id: EventId) -> Result<Option<TakenJob>> {
        self.0.node.store.read(move |rx| Ok(job::find(rx, &request_id)?)).await
    }
}

impl Service {
    /// Provides until the shutdown. What is being worked on then is given back, and found by another process or the
    /// next one.
    pub async fn run(self, shutdown: Shutdown) {
        let shared = self.0;
        join3(
            Box::pin(request::follow(shared.clone(), shutdown.clone())),
            Box::pin(work::work(shared.clone(), shutdown.clone())),
            Box::pin(upkeep::look_after(shared.clone(), shutdown)),
        )
        .await;
        let claimant = shared.claimant.clone();
        let released = shared.node.store.write(move |tx| job::release(tx, &claimant)).await;
        if let Err(error) = released {
            tracing::debug!(%error, "jobs are not given back; others wait until their claims are over");
        }
    }
}

impl Shared {
    fn us(&self) -> PublicKey {
        self.offer.provider
    }

    fn now_ms(&self) -> i64 {
        self.node.clock.now_ms()
    }

    /// Counts and tells of an error that only this one thing has.
    fn shrug(&self, word: &'static str, id: &EventId, error: &Error) {
        self.counts.add(word);
        tracing::debug!(%error, code = error.code().name, %id, "{word}");
    }
}
