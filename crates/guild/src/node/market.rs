//! The roles that trade: who hires others, and who does work for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use guild_kernel::model::{Endpoints, Online};
use guild_ledger::policy::Bundle;
use guild_market::{benchmark, bid, claim, order, sandbox_run};
use guild_network::client::Pool;
use guild_network::content::Content;
use guild_network::intake::Intake;
use guild_protocol::amount::Msat;
use guild_protocol::env::{BoxFuture, Shutdown};
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::nostr::Event;
use guild_protocol::schema::{Registry, SchemaId};
use guild_roles::buyer::{self, Buyer};
use guild_roles::discovery::{self, Discovery};
use guild_roles::provider::{
    self, Broadcast, CommandRunner, Embedder, Provider, Solver, Together, Worker,
};
use guild_roles::reference::{self, Refer, fetch_from, refer_to};
use guild_roles::treasury::{Account, Limit, Treasury};
use guild_roles::workshop::Workshop;
use guild_roles::{judge_model, tools};
use guild_sandbox::Sandbox;

use super::{Parts, Supervisor, reviews};
use crate::config::Loaded;
use crate::error::{Error, Result, code};
use crate::image;

/// Where the money of a node's own wallet comes from.
pub(crate) fn outside() -> Result<Account> {
    let asset_id = order::wallet()?.asset_id;
    Ok(Account::new("outside", "main", asset_id, Limit::None)?)
}

/// Opens the accounts that the first order and its funding need, so that a newcomer can move money at once.
pub(super) async fn open_accounts(treasury: &Treasury) -> Result<()> {
    treasury.open(outside()?).await?;
    treasury.open(order::wallet()?).await?;
    Ok(())
}

/// Whoever claimed work before is dead, if the database is a file: only one process has it at a time. On a server
/// others may be at work, and what the dead had claimed is free when its time is over.
pub(super) async fn forget_claims(parts: &Parts) -> Result<()> {
    if parts.database_clock.is_none() {
        parts.store.write(claim::forget_all).await?;
    }
    Ok(())
}

/// What the roles are made with, beside the parts.
pub(super) struct Means<'a> {
    pub(super) loaded: &'a Loaded,
    pub(super) registry: Arc<Registry>,
    pub(super) pool: Pool,
    /// All keys of this node.
    pub(super) ours: BTreeSet<PublicKey>,
    pub(super) workshops: Workshops,
    /// What requests may refer to, and where others read it.
    pub(super) content: Content,
    pub(super) url: String,
    /// Where results are judged; none if there is no sandbox.
    pub(super) judge_in: Option<Arc<dyn Sandbox>>,
    /// Who chooses where nobody agrees; none if nobody does.
    pub(super) judge: Option<buyer::Ask>,
    /// Who is there.
    pub(super) discovery: Discovery,
}

/// Who chooses where those who do the same work do not agree, if the settings name a model.
pub(super) fn judge(
    loaded: &Loaded,
    models: &Endpoints,
    parts: &Parts,
) -> Result<Option<buyer::Ask>> {
    let name = loaded.config.market.judge_model.trim();
    if name.is_empty() {
        return Ok(None);
    }
    let online = Online::new(models.clone(), parts.clock.clone())?;
    Ok(Some(judge_model::ask(Arc::new(online), name)))
}

impl Means<'_> {
    /// What the tools of agents work with.
    pub(super) fn tools(&self, buyer: &Buyer, parts: &Parts) -> tools::Means {
        tools::Means {
            store: parts.store.clone(),
            clock: parts.clock.clone(),
            registry: self.registry.clone(),
            workshop: self.workshops.agents.clone(),
            buyer: buyer.clone(),
        }
    }
}

/// How the registry of providers works, by these settings.
pub(crate) fn discovery_options(loaded: &Loaded) -> discovery::Options {
    let market = &loaded.config.market;
    discovery::Options {
        silent_ms: i64::from(loaded.config.buyer.live_s).saturating_mul(1_000),
        synonyms: market.synonyms.0.clone(),
        trusted: market.trusted.0.clone(),
        ..discovery::Options::default()
    }
}

/// Starts what keeps the registry of providers, and compares the routing matrix with it.
pub(super) fn start_discovery(
    means: &Means<'_>,
    (intake, buyer): (&Intake, &Buyer),
    parts: &Parts,
    supervisor: &mut Supervisor,
    shutdown: &Shutdown,
) {
    let node = discovery::Node {
        store: parts.store.clone(),
        bus: parts.bus.handle.clone(),
        clock: parts.clock.clone(),
        router: buyer.router(),
        intake: Some(intake.clone()),
    };
    let service = means.discovery.kept(discovery_options(means.loaded), node);
    let stop = shutdown.clone();
    supervisor.start("discovery", async move {
        service.run(stop).await;
        Ok(())
    });
}

/// Where commands are run. Strangers' jobs and the checking of what we bought do not wait for each other.
pub(super) struct Workshops {
    /// For others, if that is offered.
    provider: Option<Workshop>,
    /// To check what others did; none if there is no sandbox.
    pub(super) buyer: Option<Workshop>,
    /// For the agents of this node, or why there is none.
    agents: Result<Workshop, String>,
}

/// What these settings ask for. Without a sandbox nothing is offered that needs one, and nothing ordered.
pub(super) fn workshops(loaded: &Loaded, sandbox: Result<Arc<dyn Sandbox>>) -> Result<Workshops> {
    let settings = &loaded.config.sandbox_run;
    let offered = settings.enabled && loaded.config.provider.enabled;
    let sandbox = match sandbox {
        Err(error) if offered => return Err(error),
        Err(error) => {
            tracing::debug!(%error, "commands cannot be run here");
            return Ok(Workshops { provider: None, buyer: None, agents: Err(error.to_string()) });
        }
        Ok(sandbox) => sandbox,
    };
    let bounds = image::bounds(&loaded.config);
    let at_once = usize::try_from(settings.at_once).unwrap_or(1);
    let workshop = || Workshop::new(sandbox.clone(), bounds.clone(), at_once);
    Ok(Workshops {
        provider: offered.then(workshop),
        buyer: Some(workshop()),
        agents: Ok(workshop()),
    })
}

/// What is offered where nobody says how much, by these settings.
fn bid_options(loaded: &Loaded) -> bid::Options {
    let settings = &loaded.config.buyer;
    let prices = settings.bid_prices.0.iter();
    bid::Options {
        prices: prices.map(|(schema_id, msat)| (schema_id.clone(), Msat(*msat))).collect(),
        price: Msat(settings.bid_price_msat.into()),
        buffer_bp: i64::from(settings.bid_buffer_percent).saturating_mul(100),
        ceiling: Msat(settings.bid_max_msat.into()),
    }
}

/// How what is too large for a request is kept.
pub(super) fn refer(means: &Means<'_>, parts: &Parts) -> Refer {
    let (store, clock) = (parts.store.clone(), parts.clock.clone());
    refer_to(means.content.clone(), store, clock, &means.url)
}

/// Starts the role that hires.
pub(super) fn start_buyer(
    means: &Means<'_>,
    (key, policy): (SecretKey, Bundle),
    parts: &Parts,
    supervisor: &mut Supervisor,
    shutdown: &Shutdown,
) -> Buyer {
    let options = buyer::Options {
        relays: means.pool.relays(),
        ours: means.ours.iter().copied().collect(),
        live_ms: i64::from(means.loaded.config.buyer.live_s).saturating_mul(1_000),
        policy: means.loaded.config.market.policy.into(),
        copies: means.loaded.config.market.copies,
        bid: bid_options(means.loaded),
        reviews: reviews::options(means.loaded, &means.ours),
        hidden_rate_bp: means.loaded.config.buyer.hidden_rate_bp,
        hidden_max: Msat(means.loaded.config.buyer.hidden_max_msat.into()),
        ..buyer::Options::default()
    };
    let node = buyer::Node {
        store: parts.store.clone(),
        bus: parts.bus.handle.clone(),
        clock: parts.clock.clone(),
        random: parts.random.clone(),
        registry: means.registry.clone(),
        policy: Arc::new(policy),
        workshop: means.workshops.buyer.clone(),
        judge: means.judge.clone(),
        refer: Some(refer(means, parts)),
        discovery: Some(means.discovery.clone()),
    };
    let (content, store, clock) = (means.content.clone(), parts.store.clone(), parts.clock.clone());
    let stop = shutdown.clone();
    supervisor.start("references", async move {
        reference::look_after(content, store, clock, stop).await;
        Ok(())
    });
    let (buyer, service) = Buyer::new(options, key, node);
    let stop = shutdown.clone();
    supervisor.start("buyer", async move {
        service.run(stop).await;
        Ok(())
    });
    buyer
}

/// Starts the role that works, if the settings want it.
pub(super) fn start_provider(
    means: &Means<'_>,
    (key, worker): (SecretKey, Option<Arc<dyn Worker>>),
    parts: &Parts,
    supervisor: &mut Supervisor,
    shutdown: &Shutdown,
) -> Result<Option<Provider>> {
    if !means.loaded.config.provider.enabled {
        return Ok(None);
    }
    let worker = match worker {
        Some(worker) => worker,
        None => built_in(means)?,
    };
    let node = provider::Node {
        store: parts.store.clone(),
        bus: parts.bus.handle.clone(),
        clock: parts.clock.clone(),
        random: parts.random.clone(),
        registry: means.registry.clone(),
        fetch: Some(fetch_from(means.content.clone(), parts.clock.clone())),
    };
    let options = provider_options(means, &*worker);
    let (provider, service) =
        Provider::new(options, key, worker, broadcast(means.pool.clone()), node)?;
    let stop = shutdown.clone();
    supervisor.start("provider", async move {
        service.run(stop).await;
        Ok(())
    });
    Ok(Some(provider))
}

/// What is built in and switched on.
fn built_in(means: &Means<'_>) -> Result<Arc<dyn Worker>> {
    let mut workers: Vec<Arc<dyn Worker>> = vec![Arc::new(Embedder)];
    if let Some(workshop) = means.workshops.provider.clone() {
        workers.push(Arc::new(CommandRunner(workshop)));
    }
    if let Some(solver) = solver(means)? {
        workers.push(Arc::new(solver));
    }
    Ok(Arc::new(Together(workers)))
}

/// The largest program that does benchmarks.
const SOLVER_MAX_BYTES: u64 = 4 << 20;

/// Who does benchmarks, if the settings want it.
fn solver(means: &Means<'_>) -> Result<Option<Solver>> {
    match means.loaded.config.provider.solver.as_str() {
        "" => Ok(None),
        "reference" => Ok(Some(Solver::Reference)),
        path => {
            let path = std::path::Path::new(path);
            let size = std::fs::metadata(path).map_err(|e| Error::io(path, &e))?.len();
            if size > SOLVER_MAX_BYTES {
                let why = format!("the solver has {size} bytes; {SOLVER_MAX_BYTES} are the most");
                return Err(Error::new(&code::CONFIG_BAD_VALUE, why).in_file(path));
            }
            let bytes = std::fs::read(path).map_err(|e| Error::io(path, &e))?;
            let workshop = means.workshops.agents.clone().map_err(|why| {
                let why = format!("provider.solver needs a sandbox: {why}");
                Error::new(&code::CONFIG_BAD_VALUE, why)
            })?;
            Ok(Some(Solver::Program { workshop, bytes }))
        }
    }
}

/// Results travel, a shell starts and a sandbox is cleaned up in this time, beside that of the commands.
const RUN_EXTRA_S: u32 = 60;
/// A job with a tree of files may be as large as an event can carry.
const RUN_INPUT_BYTES: usize = 192 * 1_024;

fn provider_options(means: &Means<'_>, worker: &dyn Worker) -> provider::Options {
    let settings = &means.loaded.config.provider;
    let defaults = provider::Options::default();
    let runs = &means.loaded.config.sandbox_run;
    let price = |schema_id: &SchemaId| match schema_id.as_str() {
        sandbox_run::SCHEMA_ID => Msat(runs.price_msat.into()),
        // Who wants to be hired shows for nothing what it can do.
        benchmark::SCHEMA_ID => Msat(0),
        _ => Msat(settings.price_msat.into()),
    };
    let schema_ids = worker.schema_ids();
    let has_runs = schema_ids.iter().any(|id| id.as_str() == sandbox_run::SCHEMA_ID);
    let run_ms = i64::from(runs.max_timeout_s.saturating_add(RUN_EXTRA_S)).saturating_mul(1_000);
    provider::Options {
        name: match settings.name.trim() {
            "" => defaults.name,
            name => name.to_owned(),
        },
        kinds: means.loaded.config.network.request_kinds.0.iter().copied().collect(),
        prices: schema_ids.into_iter().map(|id| (id.clone(), price(&id))).collect(),
        job_timeout_ms: if has_runs { run_ms } else { defaults.job_timeout_ms },
        max_input_bytes: if has_runs { RUN_INPUT_BYTES } else { defaults.max_input_bytes },
        concurrency: usize::try_from(settings.concurrency).unwrap_or(usize::MAX),
        credit: Msat(settings.credit_msat.into()),
        relays: means.pool.relays(),
        ..defaults
    }
}

/// Offers an event to every configured relay at once, and forgets it.
fn broadcast(pool: Pool) -> Broadcast {
    Arc::new(move |event: Event| {
        let pool = pool.clone();
        Box::pin(async move {
            let relays = pool.relays();
            let sent = relays.iter().map(|relay| pool.publish(relay, &event));
            // Whoever did not take it hears the next one.
            let _ = futures_util::future::join_all(sent).await;
        }) as BoxFuture<()>
    })
}
