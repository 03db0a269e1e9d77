//! One node with everything that a delegated job passes: buyer, outbox, intake, archive, providers, judgement, ledger.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use guild_bus::{Bus, Local};
use guild_ledger::policy::Bundle;
use guild_ledger::{Account, Limit, NewTransfer, Step, TransferId, ledger};
use guild_network::intake::{Intake, Options as IntakeOptions, Origin};
use guild_network::publish;
use guild_protocol::amount::{Amount, AssetId, Msat};
use guild_protocol::env::{BoxFuture, Clock, Random, Shutdown, Signer, UnixMs};
use guild_protocol::identity::SecretKey;
use guild_protocol::nostr::{Event, Limits, kind};
use guild_protocol::schema::{Registry, SchemaId};
use guild_roles::buyer::{self, Buyer, Choice, Criticality, State, Wanted, Wish};
use guild_roles::provider::{self, Embedder, Provider, Task, Worker};
use guild_store::outbox::{Deliver, Drainer, Failure, Message, Options as OutboxOptions, TOPIC};
use guild_store::{Hooks, Migrations, Service, Store, Tx};
use serde_json::json;
use testbed::bench::Watch;

use crate::said;

/// So many jobs are on their way at once.
const AT_ONCE: usize = 64;
/// What a job costs.
const PRICE: Msat = Msat(1);
/// Enough for everything.
const WALLET: Msat = Msat(1_000_000_000);
const RELAY: &str = "ws://hall.example";

/// How many do a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    One,
    Three,
}

/// The time of this host.
pub(crate) struct Wall;

impl Clock for Wall {
    #[expect(clippy::disallowed_methods, reason = "a benchmark has a real clock")]
    fn now_ms(&self) -> UnixMs {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    #[expect(clippy::disallowed_methods, reason = "a benchmark has a real clock")]
    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        let wait = Duration::from_millis(u64::try_from(duration_ms).unwrap_or(0));
        Box::pin(tokio::time::sleep(wait))
    }
}

#[derive(Default)]
struct Dice(AtomicU64);

impl Random for Dice {
    fn fill(&self, bytes: &mut [u8]) {
        for byte in bytes {
            let thrown = self.0.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *byte = thrown.to_le_bytes()[7];
        }
    }
}

/// Every event that was published, in order.
type Seen = Arc<Mutex<Vec<String>>>;

/// What was done, and how fast.
pub(crate) struct Done {
    pub(crate) per_s: f64,
    /// The events of these jobs.
    pub(crate) frames: Vec<String>,
    /// How long each took that was alone, from the shortest to the longest.
    alone_ms: Vec<f64>,
    /// How long a call of the worker takes.
    pub(crate) direct_ms: f64,
}

impl Done {
    /// How much longer a job takes than a call, of so many in a hundred.
    pub(crate) fn overhead_ms(&self, percent: usize) -> f64 {
        let place = self.alone_ms.len().saturating_sub(1) * percent / 100;
        self.alone_ms.get(place).copied().unwrap_or(0.0) - self.direct_ms
    }
}

pub(crate) struct Hall {
    service: Service,
    bus: Arc<Local>,
    clock: Arc<Wall>,
    random: Arc<Dice>,
    intake: Intake,
    seen: Seen,
    runtime: tokio::runtime::Runtime,
    shutdown: Shutdown,
}

impl Hall {
    pub(crate) fn open(options: &guild_store::Options) -> Result<Hall, String> {
        let migrations = Migrations::store()
            .and(guild_ledger::migrations())
            .and(guild_network::migrations())
            .and(guild_market::migrations())
            .and(guild_roles::migrations());
        let (bus, clock) = (Arc::new(Local::new()), Arc::new(Wall));
        let bells = bus.clone();
        let hooks = Hooks::on_ring(move |topic, after| bells.ring(topic, after));
        let service = Service::open(options, &migrations, hooks, clock.now_ms()).map_err(said)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_time()
            .build()
            .map_err(said)?;
        let (intake, taking) =
            Intake::new(IntakeOptions::default(), service.handle(), &*bus, clock.clone());
        let shutdown = Shutdown::new();
        let stop = shutdown.clone();
        runtime.spawn(async move { taking.run(stop).await.map_err(said) });
        let (random, seen) = (Arc::default(), Seen::default());
        let hall = Hall { service, bus, clock, random, intake, seen, runtime, shutdown };
        hall.publish()?;
        Ok(hall)
    }

    fn store(&self) -> Store {
        self.service.handle()
    }

    /// What is queued reaches the intake, as it does by the embedded relay.
    fn publish(&self) -> Result<(), String> {
        let mut bell = self.bus.listen(TOPIC);
        let wake = Box::new(move || {
            let bell = bell.hear();
            Box::pin(async move {
                bell.await;
            }) as BoxFuture<()>
        });
        let (store, clock, random) = (self.store(), self.clock.clone(), self.random.clone());
        let drainer = Drainer::new(OutboxOptions::default(), store, clock, random).map_err(said)?;
        let drainer = drainer.sink(publish::SINK, self.sink(), wake);
        self.runtime.spawn(drainer.run(self.shutdown.clone()));
        Ok(())
    }

    fn sink(&self) -> Deliver {
        let (store, intake) = (self.store(), self.intake.clone());
        let (seen, clock) = (self.seen.clone(), self.clock.clone());
        Arc::new(move |message: Message| {
            let (store, intake, seen) = (store.clone(), intake.clone(), seen.clone());
            let now_ms = clock.now_ms();
            Box::pin(async move {
                let event = Event::parse(message.body.as_bytes(), &Limits::DEFAULT)
                    .map_err(|error| Failure::Never(error.to_string()))?;
                seen.lock().unwrap_or_else(PoisonError::into_inner).push(message.body.clone());
                let id = event.id;
                intake.offer(&Origin::Relay(RELAY.to_owned()), event).await;
                let said = (publish::AckState::Acked, "");
                let told =
                    store.write(move |tx| publish::acknowledge(tx, &id, RELAY, said, now_ms));
                told.await.map_err(|error: guild_network::Error| Failure::Retry(error.to_string()))
            })
        })
    }

    fn provider(&self, number: u8) -> Result<Provider, String> {
        let options = provider::Options {
            prices: [(embedding()?, PRICE)].into(),
            relays: vec![RELAY.to_owned()],
            concurrency: AT_ONCE,
            max_open_jobs: 1_000_000,
            credit: WALLET,
            upkeep_ms: 50,
            ..provider::Options::default()
        };
        let intake = self.intake.clone();
        let broadcast: provider::Broadcast = Arc::new(move |event| {
            let intake = intake.clone();
            Box::pin(async move {
                intake.offer(&Origin::Relay(RELAY.to_owned()), event).await;
            })
        });
        let node = provider::Node {
            store: self.store(),
            bus: self.bus.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            registry: Arc::new(Registry::builtin()),
            fetch: None,
        };
        let (provider, service) =
            Provider::new(options, key(number)?, Arc::new(Embedder), broadcast, node)
                .map_err(said)?;
        self.runtime.spawn(service.run(self.shutdown.clone()));
        Ok(provider)
    }

    fn buyer(&self) -> Result<Buyer, String> {
        let options =
            buyer::Options { relays: vec![RELAY.to_owned()], ..buyer::Options::default() };
        let node = buyer::Node {
            store: self.store(),
            bus: self.bus.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            registry: Arc::new(Registry::builtin()),
            policy: Arc::new(Bundle::builtin().map_err(said)?),
            workshop: None,
            judge: None,
            refer: None,
            discovery: None,
        };
        let now_ms = self.clock.now_ms();
        let funded = self.store().write(move |tx| fund(tx, now_ms));
        self.runtime.block_on(funded).map_err(said)?;
        let (buyer, service) = Buyer::new(options, key(1)?, node);
        self.runtime.spawn(service.run(self.shutdown.clone()));
        Ok(buyer)
    }

    /// Has so many jobs done, then some more one after the other.
    pub(crate) fn run(self, way: Way, jobs: u64, alone: usize) -> Result<Done, String> {
        let providers = (2..5).map(|n| self.provider(n)).collect::<Result<Vec<_>, String>>()?;
        let buyer = self.buyer()?;
        let done = self.runtime.block_on(async {
            for provider in &providers {
                self.until_known(provider).await?;
            }
            // What came before is no part of any job.
            self.lock().clear();
            let watch = Watch::start();
            let all = stream::iter(0..jobs).map(|n| job(&buyer, way, format!("job {n}")));
            all.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
            let per_s = watch.per_s(jobs);
            self.until_published().await;
            let frames = self.lock().clone();
            let mut alone_ms = Vec::new();
            for n in 0..alone {
                let watch = Watch::start();
                job(&buyer, way, format!("alone {n}")).await?;
                alone_ms.push(watch.elapsed().as_secs_f64() * 1_000.0);
            }
            alone_ms.sort_by(f64::total_cmp);
            let direct_ms = direct(alone).await?;
            Ok::<_, String>(Done { per_s, frames, alone_ms, direct_ms })
        });
        self.shutdown.trigger();
        self.runtime.shutdown_timeout(Duration::from_secs(10));
        self.service.close();
        done
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receipts go out behind the answer: they belong to the jobs too.
    async fn until_published(&self) {
        let mut before = usize::MAX;
        while before != self.lock().len() {
            before = self.lock().len();
            self.clock.sleep(500).await;
        }
    }

    async fn until_known(&self, provider: &Provider) -> Result<(), String> {
        let key = provider.public_key();
        for _ in 0..1_000 {
            let read = self.store().read(move |rx| guild_network::index::provider(rx, &key));
            if read.await.map_err(said)?.iter().any(|one| one.heard_ms.is_some()) {
                return Ok(());
            }
            self.clock.sleep(20).await;
        }
        Err("a provider never appeared".to_owned())
    }
}

fn key(number: u8) -> Result<SecretKey, String> {
    SecretKey::from_bytes([number; 32]).map_err(said)
}

fn embedding() -> Result<SchemaId, String> {
    "oa.embedding.v1".parse().map_err(said)
}

fn input(text: &str) -> serde_json::Value {
    json!({"texts": [text], "dimensions": 8})
}

/// One job, from the wish until everybody is paid.
async fn job(buyer: &Buyer, way: Way, text: String) -> Result<(), String> {
    let wish = Wish {
        schema_id: embedding()?,
        input: input(&text),
        budget: Msat(PRICE.0 * 5),
        time_limit_ms: 60_000,
        provider: Choice::Best,
        private: false,
        policy: None,
        kind: Some(kind::DEFAULT_REQUEST),
        idempotency_key: Some(text),
    };
    match way {
        Way::One => {
            let order = buyer.hire(wish).await.map_err(said)?;
            let order = buyer.wait(&order.order_id).await.map_err(said)?;
            if order.state != State::Released {
                return Err(format!("an order ended as {:?}", order.state));
            }
        }
        Way::Three => {
            let wanted = Wanted { wish, criticality: Criticality::High, fewer_ok: false };
            let delegation = buyer.delegate(wanted).await.map_err(said)?;
            let course = buyer.wait_for(&delegation.delegation_id).await.map_err(said)?;
            if course.paid().0 < 2 * PRICE.0 {
                return Err(format!("a delegation was paid {} msat", course.paid().0));
            }
        }
    }
    Ok(())
}

/// How long the worker takes if it is called, at the median.
async fn direct(times: usize) -> Result<f64, String> {
    let registry = Registry::builtin();
    let mut took_ms = Vec::new();
    for n in 0..times {
        let job =
            registry.validate_input(&embedding()?, &input(&format!("direct {n}"))).map_err(said)?;
        let watch = Watch::start();
        let done = Embedder.work(Task { job, provider: key(2)?.public_key() }).await;
        done.map_err(|refusal| format!("{refusal:?}"))?;
        took_ms.push(watch.elapsed().as_secs_f64() * 1_000.0);
    }
    took_ms.sort_by(f64::total_cmp);
    Ok(took_ms.get(times / 2).copied().unwrap_or(0.0))
}

fn fund(tx: &mut Tx<'_>, now_ms: UnixMs) -> guild_ledger::Result<()> {
    let open = |tx: &mut Tx<'_>, owner, purpose, limit| {
        let account = Account::new(owner, purpose, AssetId::btc_ln(), limit)?;
        ledger::open(tx, &account, now_ms)?;
        Ok::<_, guild_ledger::Error>(account.account_id)
    };
    let step = Step::Post {
        debit: open(tx, "outside", "main", Limit::None)?,
        credit: open(tx, "node", "wallet", Limit::NeverNegative)?,
        amount: Amount::from(WALLET),
    };
    let transfer = NewTransfer::new(TransferId::named(0, &["funds"]), step, "funds")?;
    for booked in ledger::book(tx, &[vec![transfer]], now_ms)? {
        booked?;
    }
    Ok(())
}
