//! Four nodes on this host: a hall with a buyer and a relay, and three providers that are connected to it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use guild_kernel::model::Endpoints;
use guild_ledger::{NewTransfer, Step, TransferId};
use guild_market::delegation::Replica;
use guild_market::job::State as JobState;
use guild_market::order;
use guild_protocol::amount::{Amount, Msat};
use guild_protocol::env::{Clock, Random, Shutdown};
use guild_protocol::hash::to_hex;
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_roles::buyer::{self, Buyer, Choice, Criticality, Order, Wish};
use guild_roles::explorer::{Offer, Page, Wanted};
use guild_roles::meeting;
use guild_roles::provider::Worker;
use guild_roles::router::Quarantine;
use guild_roles::workshop::Workshop;
use guild_sandbox::Sandbox;

use super::is_settled;
use super::job::{Done, Job, Whom};
use super::met::Met;
use super::worker::{Cheat, Slow, honest};
use crate::config::{Config, Loaded, RelayUrls};
use crate::error::{Error, Result, code};
use crate::image;
use crate::keystore::make_private_directory;
use crate::node::{Character, Node, Origin, outside, start_meter};
use crate::real::{SystemClock, SystemRandom};

/// What the buyer has.
const FUNDS: Msat = Msat(20_000);
/// The most it pays for one job.
const BUDGET: Msat = Msat(2_000);
const JOB_LIMIT_MS: i64 = 20_000;
/// How long the nodes have to find each other, and receipts to arrive.
const PATIENCE_MS: i64 = 15_000;
const LOOK_MS: i64 = 20;
const SLOW_MS: i64 = 1_500;
/// The same for a benchmark: there are three of them and more.
const SLOW_TRIAL_MS: i64 = 800;
/// Who is slow takes at least so many times as long as whoever was tested before.
const SLOWER: i64 = 3;
/// Without it no result of a benchmark can be judged.
const PYTHON: [&str; 2] = ["/usr/bin/python3", "/usr/local/bin/python3"];
const WORKSHOP_AT_ONCE: usize = 2;

/// A directory that goes when the demo goes.
struct Ground(PathBuf);

impl Ground {
    fn clear() -> Result<Ground> {
        let mut bytes = [0; 8];
        SystemRandom.fill(&mut bytes);
        let path = std::env::temp_dir().join(format!("guild-demo-{}", to_hex(&bytes)));
        make_private_directory(&path)?;
        Ok(Ground(path))
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // Nobody is left who could do something about it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A node of the demo.
pub(super) struct Resident {
    pub(super) name: &'static str,
    pub(super) loaded: Loaded,
    node: Node,
}

/// All nodes.
pub(super) struct Town {
    hall: Resident,
    providers: Vec<Resident>,
    /// Whether providers can be tested here.
    tests: bool,
    /// How long the slow one takes for a benchmark.
    slow_ms: Arc<AtomicI64>,
    /// The providers leave first: their relay should still be there.
    closing: Shutdown,
    dark: Shutdown,
    ground: Ground,
}

struct Trade {
    name: &'static str,
    price_msat: u32,
    worker: Arc<dyn Worker>,
}

fn trades(workshop: Option<&Workshop>, slow_ms: &Arc<AtomicI64>) -> [Trade; 3] {
    let cheat = Cheat { bounds: workshop.map(|workshop| workshop.bounds.clone()) };
    [
        Trade { name: "Ada", price_msat: 1_000, worker: Arc::new(honest(workshop)) },
        Trade { name: "Bruno", price_msat: 800, worker: slow(workshop.is_some(), slow_ms) },
        Trade { name: "Cleo", price_msat: 500, worker: Arc::new(cheat) },
    ]
}

fn slow(benchmarks: bool, slow_ms: &Arc<AtomicI64>) -> Arc<Slow> {
    Arc::new(Slow { pause_ms: SLOW_MS, trial_pause_ms: slow_ms.clone(), benchmarks })
}

impl Town {
    /// Starts all nodes and gives the buyer its funds.
    pub(super) async fn open(port: u16, sandbox: Option<&Arc<dyn Sandbox>>) -> Result<Town> {
        let ground = Ground::clear()?;
        let (closing, dark) = (Shutdown::new(), Shutdown::new());
        let mut config = Config::default();
        config.gateway.listen = SocketAddr::from(([127, 0, 0, 1], port));
        config.provider.enabled = false;
        // Nobody who watches waits a day.
        config.market.review_delay_s = 0;
        // What is shown is what was asked for.
        config.buyer.hidden_rate_bp = 0;
        let workshop = sandbox.map(|sandbox| {
            Workshop::new(sandbox.clone(), image::bounds(&config), WORKSHOP_AT_ONCE)
        });
        let hall = settle("hall", config, (None, sandbox), &ground, &dark).await?;
        fund(&hall.node).await?;
        let relay = format!("{}/relay", hall.node.url().replacen("http", "ws", 1));
        let mut providers = Vec::new();
        let slow_ms = Arc::new(AtomicI64::new(SLOW_TRIAL_MS));
        for Trade { name, price_msat, worker } in trades(workshop.as_ref(), &slow_ms) {
            let mut config = Config::default();
            config.gateway.listen = SocketAddr::from(([127, 0, 0, 1], 0));
            config.relay.enabled = false;
            config.network.relays = RelayUrls(vec![relay.clone()]);
            config.provider.name = name.to_owned();
            config.provider.price_msat = price_msat;
            config.sandbox_run.price_msat = price_msat;
            let means = (Some(worker), sandbox);
            providers.push(settle(name, config, means, &ground, &closing).await?);
        }
        let tests = sandbox.is_some() && PYTHON.iter().any(|path| Path::new(path).exists());
        Ok(Town { hall, providers, tests, slow_ms, closing, dark, ground })
    }

    /// The directory in which everything lies.
    pub(super) fn path(&self) -> &Path {
        &self.ground.0
    }

    /// Where the buyer's node answers.
    pub(super) fn url(&self) -> &str {
        self.hall.node.url()
    }

    /// Every node.
    pub(super) fn residents(&self) -> impl Iterator<Item = &Resident> {
        std::iter::once(&self.hall).chain(&self.providers)
    }

    /// Waits until the buyer has heard of every provider.
    pub(super) async fn meet(&self) -> Result<Vec<Offer>> {
        let explorer = &self.hall.node.handles().explorer;
        patiently("the providers were not heard of", || async {
            let wanted = Wanted { live: true, ..Wanted::default() };
            let heard = explorer.providers(Page::first(self.providers.len()), wanted).await?.items;
            Ok((heard.len() == self.providers.len()).then_some(heard))
        })
        .await
    }

    /// Who is tested, in order: the first one sets the pace.
    pub(super) fn applicants(&self) -> impl Iterator<Item = &'static str> {
        self.providers.iter().filter(|_| self.tests).map(|one| one.name)
    }

    /// Gets to know a provider: it is asked to do benchmarks, and the results are judged.
    pub(super) async fn test(&self, name: &'static str) -> Result<Met> {
        let meetings = &self.hall.node.handles().meetings;
        let benchmark = meeting::Benchmark::StdV3;
        let wish = meeting::Wish {
            provider: self.key_of(name)?,
            task: None,
            benchmark,
            modules: benchmark.modules(),
            encrypted: false,
            bid: None,
            idempotency_key: Some(format!("demo meeting with {name}")),
        };
        let begun = meetings.meet(wish).await?;
        let met = Met { name, story: meetings.wait(&begun.meeting_id).await? };
        let slower_ms = met.median_ms().unwrap_or(0).saturating_mul(SLOWER);
        self.slow_ms.fetch_max(slower_ms, Ordering::Relaxed);
        Ok(met)
    }

    /// Orders a job and waits for its end: what came of it for each who did it.
    pub(super) async fn hire(&self, number: usize, job: Job) -> Result<Vec<Done>> {
        let buyer = &self.hall.node.handles().buyer;
        let provider = match job.whom {
            Whom::Cheapest | Whom::Two => Choice::Best,
            Whom::Named(name) => Choice::Chosen(self.key_of(name)?),
        };
        let wish = Wish {
            schema_id: job.schema_id().parse()?,
            input: job.input(&image::host_digest()),
            budget: BUDGET,
            time_limit_ms: JOB_LIMIT_MS,
            provider,
            private: job.private,
            policy: None,
            kind: None,
            idempotency_key: Some(format!("demo job {number}")),
        };
        let orders = match job.whom {
            Whom::Two => side_by_side(buyer, wish).await?,
            _ => vec![buyer.wait(&buyer.hire(wish).await?.order_id).await?],
        };
        let done = |order: Order| {
            let name = self.name_of(order.provider.as_ref());
            if is_settled(&order) {
                return Ok(Done { number, job, name, order });
            }
            let words = order.words.as_deref().unwrap_or_default();
            let message = format!("job {number} for {name} is {}: {words}", order.state.as_str());
            Err(Error::new(&code::DEMO_FAILED, message))
        };
        let mut done: Vec<Done> = orders.into_iter().map(done).collect::<Result<_>>()?;
        done.sort_by_key(|one| one.name);
        Ok(done)
    }

    /// Takes somebody out of the choice: nobody who is chosen by the node is this one any more.
    pub(super) async fn shut_out(&self, name: &'static str) -> Result<()> {
        let asked = Quarantine {
            provider: self.key_of(name)?,
            task: None,
            until_ms: None,
            lift: false,
            reason: "it cheats".to_owned(),
            idempotency_key: format!("demo without {name}"),
        };
        self.hall.node.handles().buyer.router().quarantine(&asked).await?;
        Ok(())
    }

    /// Waits until every provider has booked what it is owed.
    pub(super) async fn receipts_taken(&self, done: &[Done]) -> Result<()> {
        for Done { order, .. } in done {
            let at = self.providers.iter().filter_map(|one| one.node.handles().provider.as_ref());
            let Some(provider) =
                at.into_iter().find(|one| Some(one.public_key()) == order.provider)
            else {
                continue;
            };
            patiently("a receipt did not reach its provider", || async {
                let job = provider.job(order.request_id).await?;
                let ended = |job: &guild_market::job::TakenJob| {
                    matches!(job.state, JobState::Paid | JobState::Withheld)
                };
                Ok(job.is_some_and(|job| ended(&job)).then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// Ends all nodes, the providers first.
    pub(super) async fn close(self) -> Result<()> {
        let Town { hall, providers, closing, dark, ground, .. } = self;
        closing.trigger();
        let mut ended = Ok(());
        for Resident { node, .. } in providers {
            ended = ended.and(node.run().await);
        }
        dark.trigger();
        ended = ended.and(hall.node.run().await);
        drop(ground);
        ended
    }

    fn keys(&self) -> impl Iterator<Item = (&'static str, PublicKey)> {
        let key = |one: &Resident| {
            let provider = one.node.handles().provider.as_ref()?;
            Some((one.name, provider.public_key()))
        };
        self.providers.iter().filter_map(key)
    }

    fn key_of(&self, name: &str) -> Result<PublicKey> {
        let found = self.keys().find(|(known, _)| *known == name).map(|(_, key)| key);
        found.ok_or_else(|| Error::new(&code::DEMO_FAILED, format!("{name} does not work here")))
    }

    fn name_of(&self, key: Option<&PublicKey>) -> &'static str {
        self.keys().find(|(_, known)| Some(known) == key).map_or("a stranger", |(name, _)| name)
    }
}

/// Has two do the same, and waits until it is settled.
async fn side_by_side(buyer: &Buyer, wish: Wish) -> Result<Vec<Order>> {
    let wanted = buyer::Wanted { wish, criticality: Criticality::Medium, fewer_ok: false };
    let posted = buyer.delegate(wanted).await?;
    let course = buyer.wait_for(&posted.delegation_id).await?;
    let order = |(_, progress): (Replica, buyer::Progress)| progress.order;
    Ok(course.replicas.into_iter().map(order).collect())
}

/// Who works at a node, and where commands are run.
type Means<'a> = (Option<Arc<dyn Worker>>, Option<&'a Arc<dyn Sandbox>>);

async fn settle(
    name: &'static str,
    mut config: Config,
    (worker, sandbox): Means<'_>,
    ground: &Ground,
    shutdown: &Shutdown,
) -> Result<Resident> {
    config.data_dir = ground.0.join(name);
    let loaded = Loaded::chosen(config);
    let origin = Origin::Given(SecretKey::make(&SystemRandom));
    let none = || Error::new(&code::DEMO_FAILED, "there is no sandbox");
    let sandbox = sandbox.cloned().ok_or_else(none);
    let (models, metrics) = (Endpoints::default(), start_meter());
    let tool_env = BTreeMap::new();
    let character = Character { origin, worker, sandbox, models, tool_env, metrics };
    // Starting a node is a long future, and there are four of them.
    let node = Box::pin(Node::start(&loaded, character, shutdown)).await?;
    Ok(Resident { name, loaded, node })
}

async fn fund(node: &Node) -> Result<()> {
    let (debit, credit) = (outside()?.account_id, order::wallet()?.account_id);
    let transfer_id = TransferId::make(&SystemClock, &SystemRandom);
    let step = Step::Post { debit, credit, amount: Amount::from(FUNDS) };
    let transfer = NewTransfer::new(transfer_id, step, "demo")?;
    node.handles().treasury.transfer(vec![transfer]).await?;
    Ok(())
}

/// Looks again and again until there is something, for a while.
async fn patiently<T, F: Future<Output = Result<Option<T>>>>(
    otherwise: &str,
    look: impl Fn() -> F,
) -> Result<T> {
    let until_ms = SystemClock.now_ms().saturating_add(PATIENCE_MS);
    while SystemClock.now_ms() < until_ms {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        SystemClock.sleep(LOOK_MS).await;
    }
    Err(Error::new(&code::DEMO_FAILED, format!("{otherwise} in {} s", PATIENCE_MS / 1_000)))
}
