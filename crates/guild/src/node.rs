//! A running node: one process that holds a data directory, with its store, its services and its listener.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use futures_util::future::{join, select};
use guild_gateway::{Render, Roles, Service as Gateway};
use guild_hosting::desk::Desk;
use guild_kernel::model::Endpoints;
use guild_ledger::Writer;
use guild_ledger::writer::Options as WriterOptions;
use guild_network::client::Pool;
use guild_network::content::Content;
use guild_network::publish;
use guild_network::relay::Relay;
use guild_protocol::env::{BoxFuture, Clock, Random, Shutdown};
use guild_protocol::hash::to_hex;
use guild_protocol::identity::SecretKey;
use guild_protocol::schema::Registry;
use guild_roles::agents::Agents;
use guild_roles::audit_log::{AuditLog, Note, Options as LogOptions, bell_sink};
use guild_roles::budget::Budgets;
use guild_roles::buyer::Buyer;
use guild_roles::discovery::Discovery;
use guild_roles::explorer::{Explorer, Options as ExplorerOptions};
use guild_roles::judgements::Judgements;
use guild_roles::meeting::Meetings;
use guild_roles::outbox::Outbox;
use guild_roles::provider::{Provider, Worker};
use guild_roles::relays::Relays;
use guild_roles::reviews::Reviews;
use guild_roles::router::{self, Router};
use guild_roles::tools;
use guild_roles::treasury::Treasury;
use guild_roles::turn::Turns;
use guild_sandbox::Sandbox;
use guild_store::outbox::{self, Drainer};
use guild_store::{DatabaseClock, Hooks, Migrations, Place, Service as StoreService, Store, audit};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::config::Loaded;
use crate::error::{Error, Result, code};
use crate::real::{SystemClock, SystemRandom};

mod bus;
pub(crate) mod content;
pub(crate) mod data_dir;
mod disputes;
mod hosting;
mod identity;
mod kernel;
mod lifecycle;
mod listen;
mod market;
mod meeting;
mod meter;
mod network;
mod policy;
mod reviews;
mod supervise;
mod upkeep;

use identity::Identity;
use kernel::Office;

pub(crate) use bus::nats_options;
pub(crate) use data_dir::{Hold, NodeFile};
pub(crate) use identity::Origin;
pub(crate) use market::{discovery_options, outside};
pub(crate) use meter::start as start_meter;
pub(crate) use policy::own_bundle;
pub(crate) use supervise::Supervisor;

/// The name of the SQLite file in the data directory.
const DATABASE: &str = "node.db";

/// The options of the store that these settings ask for.
pub(crate) fn store_options(loaded: &Loaded) -> guild_store::Options {
    let mut options = guild_store::Options::file(&loaded.data_file(DATABASE));
    if !loaded.config.store.url.is_empty() {
        options.url.clone_from(&loaded.config.store.url);
    }
    options.queue_max_calls =
        usize::try_from(loaded.config.store.queue_max_calls).unwrap_or(usize::MAX);
    options
}

/// Every migration of every crate that owns tables.
pub(crate) fn migrations() -> Migrations {
    Migrations::store()
        .and(guild_ledger::migrations())
        .and(guild_network::migrations())
        .and(guild_market::migrations())
        .and(guild_roles::migrations())
        .and(guild_hosting::migrations())
        .and(guild_kernel::migrations())
}

/// What every part of a node is made with.
pub(crate) struct Parts {
    /// Held as long as the node lives: nobody else writes in this directory.
    _hold: Hold,
    service: StoreService,
    store: Store,
    /// For all that strangers may read.
    turns: Turns,
    bus: bus::Wired,
    clock: Arc<dyn Clock>,
    /// The same clock, if it must be kept right.
    database_clock: Option<Arc<DatabaseClock>>,
    random: Arc<dyn Random>,
    pub(crate) log: AuditLog,
    pub(crate) outbox: Outbox,
}

impl Parts {
    /// Takes the data directory and opens its store. Nothing runs yet but the store's threads. Whoever uses time must
    /// correct the clock first.
    pub(crate) fn open(loaded: &Loaded) -> Result<Parts> {
        Parts::open_watched(loaded, 0)
    }

    /// As [`Parts::open`], for a process that stays: it reports calls that keep others waiting for `slow_call_ms`.
    fn open_watched(loaded: &Loaded, slow_call_ms: u32) -> Result<Parts> {
        let hold = Hold::take(&loaded.config.data_dir)?;
        let random: Arc<dyn Random> = Arc::new(SystemRandom);
        // Processes that share a server compare times with one another, so all read its clock.
        let database_clock = match store_options(loaded).place()? {
            Place::PostgresServer(_) => Some(DatabaseClock::new(Arc::new(SystemClock))),
            Place::SqliteFile(_) => None,
        };
        let clock: Arc<dyn Clock> = match &database_clock {
            Some(clock) => clock.clone(),
            None => Arc::new(SystemClock),
        };
        let bus = bus::wire(loaded, clock.clone(), random.clone())?;
        let ringing = bus.handle.clone();
        let mut hooks = Hooks::on_ring(move |topic, after| ringing.ring(topic, after));
        if slow_call_ms > 0 {
            // Not the corrected clock: a correction in the middle is no time that a call took.
            hooks = hooks.with_watch(Arc::new(SystemClock), i64::from(slow_call_ms));
        }
        let service =
            StoreService::open(&store_options(loaded), &migrations(), hooks, clock.now_ms())?;
        let store = service.handle();
        let turns = Turns::new(store.clone());
        let log = AuditLog::new(
            LogOptions::default(),
            turns.clone(),
            bus.handle.clone(),
            clock.clone(),
            random.clone(),
        );
        let outbox = Outbox::new(store.clone(), clock.clone());
        Ok(Parts {
            _hold: hold,
            service,
            store,
            turns,
            bus,
            clock,
            database_clock,
            random,
            log,
            outbox,
        })
    }

    /// Reads the database's clock, if that is another host's.
    pub(crate) async fn correct_clock(&self) -> Result<()> {
        match &self.database_clock {
            Some(clock) => Ok(clock.correct(&self.store).await?),
            None => Ok(()),
        }
    }

    /// How much may be spent on which kind of work.
    pub(crate) fn budgets(&self) -> Budgets {
        Budgets::new(self.store.clone(), self.clock.clone())
    }

    /// The money, and the service that must run for it: it ends when the last handle is gone.
    fn treasury(&self) -> Result<(Treasury, BoxFuture<()>)> {
        let (writer, service) =
            Writer::new(&WriterOptions::default(), self.store.clone(), self.clock.clone())?;
        let treasury = Treasury::new(self.store.clone(), writer, self.clock.clone());
        Ok((treasury, Box::pin(service)))
    }

    /// Asks the treasury one thing, in a process that is there for nothing else.
    pub(crate) fn ask_treasury<T, F>(
        &self,
        runtime: &Runtime,
        ask: impl FnOnce(Treasury) -> F,
    ) -> Result<T>
    where
        F: Future<Output = guild_roles::Result<T>>,
    {
        let (treasury, service) = self.treasury()?;
        let (answer, ()) = runtime.block_on(join(ask(treasury), service));
        Ok(answer?)
    }

    /// Writes what this node itself did into its audit log.
    pub(crate) async fn note(&self, action: &str, detail: Value) -> Result<()> {
        let detail = match detail {
            Value::Object(detail) => detail,
            _ => Map::new(),
        };
        let note = Note {
            entry_id: None,
            actor: "node".to_owned(),
            action: action.to_owned(),
            subject: None,
            detail,
        };
        self.log.append(note).await?;
        Ok(())
    }

    /// What carries the outbox away: to where this node itself wants to be heard, and, more slowly, to where others
    /// want it to be heard.
    fn drainers(
        &self,
        loaded: &Loaded,
        address: SocketAddr,
        pool: Pool,
        office: &Office,
    ) -> Result<(Drainer, Drainer)> {
        let options = outbox::Options {
            lease_ms: i64::from(loaded.config.outbox.lease_ms),
            max_attempts: i64::from(loaded.config.outbox.max_attempts),
            ..outbox::Options::default()
        };
        let guest_options = publish::guest_options(&options);
        let drainer = |options| {
            Drainer::new(options, self.store.clone(), self.clock.clone(), self.random.clone())
        };
        let relays = publish::sink(pool, self.store.clone(), self.clock.clone());
        let relays = network::at_home(&own_relays(loaded, address), relays, self);
        let own = drainer(options)?
            .sink(audit::BELL_SINK, bell_sink(self.bus.handle.clone()), self.wake())
            .sink(publish::SINK, relays.clone(), self.wake());
        let own = if loaded.config.kernel.enabled { office.sinks(own, self) } else { own };
        let guests = drainer(guest_options)?.sink(publish::GUEST_SINK, relays, self.wake());
        Ok((own, guests))
    }

    /// Ready when something may have been queued.
    fn wake(&self) -> outbox::Wake {
        let mut listener = self.bus.handle.listen(outbox::TOPIC);
        Box::new(move || {
            let bell = listener.hear();
            Box::pin(async move {
                bell.await;
            }) as BoxFuture<()>
        })
    }

    /// The market, for readers.
    fn explorer(&self, loaded: &Loaded, address: SocketAddr) -> Explorer {
        let (turns, bus) = (self.turns.clone(), self.bus.handle.clone());
        // Who can only be asked from this host is asked by whoever works on it. Another name may be a proxy's.
        let at_home = address.ip().is_loopback() && loaded.config.gateway.hosts.trim().is_empty();
        let matrix_public = loaded.config.market.public || at_home;
        let trusted_reviewers = loaded.config.market.trusted_reviewers.0.clone();
        let options =
            ExplorerOptions { matrix_public, trusted_reviewers, ..ExplorerOptions::default() };
        Explorer::new(options, turns, bus, self.clock.clone())
    }

    /// The routing matrix, for a process that is there for one change of it.
    pub(crate) fn router(&self) -> Router {
        let (store, clock) = (self.store.clone(), self.clock.clone());
        Router::new(router::Options::default(), store, clock, self.random.clone(), None)
    }

    /// The relays of others, as they are used by a process that does not stay.
    pub(crate) fn relays(&self, loaded: &Loaded, pool: Option<Pool>) -> Relays {
        let configured = &loaded.config.network.relays.0;
        Relays::new(pool, configured, self.store.clone(), self.clock.clone())
    }

    /// Makes the index again from the archive; from how many events.
    pub(crate) async fn reindex(&self) -> Result<u64> {
        Ok(self.store.write(guild_network::index::rebuild).await?)
    }

    /// The agents of this node.
    pub(crate) fn agents(&self) -> Agents {
        Agents::new(self.store.clone(), self.clock.clone())
    }

    /// What the judge said.
    pub(crate) fn judgements(&self) -> Judgements {
        Judgements::new(self.store.clone(), self.clock.clone())
    }

    /// What the gateway stands in front of.
    fn roles(
        &self,
        agents: Agents,
        handles: &Handles,
        (relay, relays, content): (Option<Relay>, Relays, Content),
        desk: Option<Desk>,
        supervisor: &Supervisor,
        metrics: Option<Render>,
    ) -> Roles {
        Roles {
            agents,
            content: Some(content),
            log: self.log.clone(),
            judgements: self.judgements(),
            outbox: self.outbox.clone(),
            relay,
            relays,
            treasury: handles.treasury.clone(),
            buyer: Some(handles.buyer.clone()),
            meetings: Some(handles.meetings.clone()),
            disputes: Some(handles.disputes.clone()),
            reviews: Some(handles.reviews.clone()),
            desk,
            explorer: handles.explorer.clone(),
            services: supervisor.services(),
            metrics,
        }
    }

    /// Takes no further writes and ends the store's threads.
    pub(crate) fn close(self) {
        self.service.close();
    }
}

/// Who a node is, and what is its own choice beside the settings.
pub(crate) struct Character<'a> {
    pub(crate) origin: Origin<'a>,
    /// Who does the work; what is built in if nobody else does.
    pub(crate) worker: Option<Arc<dyn Worker>>,
    /// Where commands are run, or why nowhere.
    pub(crate) sandbox: Result<Arc<dyn Sandbox>>,
    /// Where its agents' models are.
    pub(crate) models: Endpoints,
    /// What their tools may take from the environment.
    pub(crate) tool_env: BTreeMap<String, String>,
    /// The numbers of the process, if somebody keeps them.
    pub(crate) metrics: Option<Render>,
}

/// What can be asked of a node in the same process.
#[derive(Clone)]
pub(crate) struct Handles {
    pub(crate) buyer: Buyer,
    pub(crate) meetings: Meetings,
    pub(crate) disputes: guild_roles::disputes::Disputes,
    pub(crate) reviews: Reviews,
    /// None if it does no work.
    pub(crate) provider: Option<Provider>,
    pub(crate) treasury: Treasury,
    pub(crate) explorer: Explorer,
}

/// A node that serves.
pub(crate) struct Node {
    parts: Parts,
    supervisor: Supervisor,
    node_file: NodeFile,
    data_dir: std::path::PathBuf,
    bus_address: Option<String>,
    handles: Handles,
}

/// Bells reach other processes, if there is a server for them.
fn start_bus(parts: &mut Parts, supervisor: &mut Supervisor, shutdown: &Shutdown) {
    let Some(service) = parts.bus.service.take() else { return };
    let stop = shutdown.clone();
    supervisor.start("bus", async move {
        service.run(stop).await;
        Ok(())
    });
}

impl Node {
    /// Starts every service; when this returns, the node answers.
    pub(crate) async fn start(
        loaded: &Loaded,
        character: Character<'_>,
        shutdown: &Shutdown,
    ) -> Result<Node> {
        // Before anything is made: with a policy that nobody meant, nothing may be paid.
        let policy = own_bundle(loaded)?;
        let offer = kernel::offer(loaded)?;
        let mut parts = Parts::open_watched(loaded, loaded.config.store.slow_call_ms)?;
        parts.correct_clock().await?;
        let Character { origin, worker, sandbox, models, tool_env, metrics } = character;
        let judge_in = sandbox.as_ref().ok().cloned();
        let workshops = market::workshops(loaded, sandbox)?;
        let identity = Identity::claim(origin, loaded, &parts).await?;
        let (listener, address) = listen::bind(loaded).await?;
        let mut token = [0; 32];
        parts.random.fill(&mut token);
        let node_file = NodeFile::new(&url(address), &to_hex(&token), parts.clock.now_ms());
        let detail = json!({
            "url": node_file.url,
            "version": env!("CARGO_PKG_VERSION"),
            "policy_bundle_id": policy.policy_bundle_id(),
        });
        parts.note("node.started", detail).await?;
        let mut supervisor = Supervisor::new(shutdown.clone());
        let (treasury, ledger) = parts.treasury()?;
        market::open_accounts(&treasury).await?;
        market::forget_claims(&parts).await?;
        let started =
            network::start(loaded, &identity, address, &parts, &mut supervisor, shutdown)?;
        let network::Started { intake, relay, pool } = started;
        let office = Office::open(loaded, &parts).await?;
        let (own, guests) = parts.drainers(loaded, address, pool.clone(), &office)?;
        let relays = parts.relays(loaded, Some(pool.clone()));
        let registry = Arc::new(Registry::builtin());
        let ours = identity.public_keys();
        let judge = market::judge(loaded, &models, &parts)?;
        let content = parts.content(loaded)?;
        let (kept, url) = (content.clone(), url(address));
        let means = market::Means {
            loaded,
            registry,
            pool,
            ours,
            workshops,
            content: kept,
            url,
            judge_in,
            judge,
            discovery: Discovery::unread(parts.clock.clone()),
        };
        let Identity { buyer, provider, node } = identity;
        let keys = (&buyer, &provider);
        let disputes = disputes::start(&means, keys, &parts, &mut supervisor, shutdown)?;
        let open = hosting::start(loaded, node, address, &parts, &mut supervisor, shutdown).await?;
        let (desk, counts) = open.map(|open| (open.desk, open.counts)).unzip();
        let provider = (provider, worker);
        let provider = market::start_provider(&means, provider, &parts, &mut supervisor, shutdown)?;
        let met_by = SecretKey::from_bytes(buyer.to_bytes())?;
        let reviewed_by = SecretKey::from_bytes(buyer.to_bytes())?;
        let reviews = reviews::start(&means, reviewed_by, &parts, &mut supervisor, shutdown);
        let buyer = market::start_buyer(&means, (buyer, policy), &parts, &mut supervisor, shutdown);
        let met_by = (met_by, buyer.router());
        let meetings = meeting::start(&means, met_by, &parts, &mut supervisor, shutdown);
        lifecycle::start((&buyer, &meetings), &parts, &mut supervisor, shutdown);
        market::start_discovery(&means, (&intake, &buyer), &parts, &mut supervisor, shutdown);
        let explorer = parts.explorer(loaded, address);
        let agents = office.agents(offer.clone(), &parts);
        agents.offer_tools().await?;
        let tools = tools::tools(&offer, &means.tools(&buyer, &parts));
        let handles = Handles { buyer, meetings, disputes, reviews, provider, treasury, explorer };
        let metrics =
            metrics.map(|render| meter::with_counts(render, parts.store.clone(), intake, counts));
        content::start(loaded, &content, &mut supervisor, shutdown);
        let venue = (relay, relays, content);
        let roles = parts.roles(agents, &handles, venue, desk, &supervisor, metrics);
        let gateway = Gateway::new(
            gateway_options(loaded, address),
            roles,
            parts.clock.clone(),
            &node_file.token,
            shutdown.clone(),
        );
        let bus_address = parts.bus.service.as_ref().map(|service| service.address().to_string());
        start_bus(&mut parts, &mut supervisor, shutdown);
        let stop = shutdown.clone();
        supervisor.start("outbox", async move {
            join(own.run(stop.clone()), guests.run(stop)).await;
            Ok(())
        });
        let mind = kernel::Mind { models, tools, environment: tool_env };
        kernel::start(loaded, mind, office, &parts, &mut supervisor, shutdown)?;
        let router = handles.buyer.router();
        upkeep::start(loaded, (&parts, router), &mut supervisor, shutdown)?;
        serve(&mut supervisor, gateway, listener, ledger);
        // Only now: whoever reads the file may call at once.
        node_file.write(&loaded.config.data_dir)?;
        let data_dir = loaded.config.data_dir.clone();
        Ok(Node { parts, supervisor, node_file, data_dir, bus_address, handles })
    }

    /// What can be asked of it from here.
    pub(crate) fn handles(&self) -> &Handles {
        &self.handles
    }

    /// Whether something of its own still waits to be taken to a relay.
    pub(crate) async fn has_mail(&self) -> Result<bool> {
        Ok(self.parts.store.read(publish::has_mail).await?)
    }

    /// How to reach it, as others on this host do.
    pub(crate) fn file(&self) -> &NodeFile {
        &self.node_file
    }

    /// Where it answers.
    pub(crate) fn url(&self) -> &str {
        &self.node_file.url
    }

    /// The server that carries its bells, if it is not alone.
    pub(crate) fn bus_address(&self) -> Option<&str> {
        self.bus_address.as_deref()
    }

    /// Runs until the shutdown, or until a service fails; then ends everything in order.
    pub(crate) async fn run(self) -> Result<()> {
        let ended = self.supervisor.run().await;
        NodeFile::remove(&self.data_dir);
        let noted = self.parts.note("node.stopped", json!({ "clean": ended.is_ok() })).await;
        self.parts.close();
        ended.and(noted)
    }
}

/// Serves, and keeps the ledger's writer running for as long as somebody may still be answered.
fn serve(
    supervisor: &mut Supervisor,
    gateway: Gateway,
    listener: TcpListener,
    ledger: BoxFuture<()>,
) {
    // Dropped with the gateway, however that ends. A connection that is left behind still has a handle of the writer,
    // and must not hold up the end.
    let (serving, served) = tokio::sync::oneshot::channel::<()>();
    supervisor.start("ledger", async move {
        select(ledger, served).await;
        Ok(())
    });
    supervisor.start("gateway", async move {
        let _serving = serving;
        gateway.run(listener).await.map_err(Into::into)
    });
}

/// Where a process on this host reaches it: "any address" is not one that can be asked.
fn url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, address.port()))
}

/// Names under which the node may be asked, beside the loopback ones.
fn hosts(loaded: &Loaded, address: SocketAddr) -> Vec<String> {
    let named =
        loaded.config.gateway.hosts.split(',').map(str::trim).filter(|name| !name.is_empty());
    let mut hosts: Vec<String> = named.map(str::to_owned).collect();
    match address.ip() {
        ip if ip.is_unspecified() => {}
        IpAddr::V4(ip) => hosts.push(ip.to_string()),
        IpAddr::V6(ip) => hosts.push(format!("[{ip}]")),
    }
    hosts
}

/// The addresses under which others may know the relay of this node.
fn own_relays(loaded: &Loaded, address: SocketAddr) -> Vec<String> {
    if !loaded.config.relay.enabled {
        return Vec::new();
    }
    let names = hosts(loaded, address);
    let names = names.iter().map(String::as_str).chain(["127.0.0.1", "localhost", "[::1]"]);
    names.map(|name| format!("ws://{name}:{}/relay", address.port())).collect()
}

fn gateway_options(loaded: &Loaded, address: SocketAddr) -> guild_gateway::Options {
    guild_gateway::Options {
        hosts: hosts(loaded, address),
        trusted_proxies: loaded.config.hosting.trusted_proxies.0.clone(),
        content_public: loaded.config.content.public,
        ..guild_gateway::Options::default()
    }
}

/// Refuses if there is no database file yet.
pub(crate) fn require_database(options: &guild_store::Options) -> Result<()> {
    // A server has its own words for that.
    let Some(path) = options.sqlite_file() else { return Ok(()) };
    if path.exists() {
        return Ok(());
    }
    let message = "there is no database yet";
    Err(Error::new(&code::NODE_NO_DATABASE, message).in_file(&path))
}

/// Reads a database beside whoever writes it.
pub(crate) fn open_read_only(loaded: &Loaded) -> Result<StoreService> {
    let options = store_options(loaded);
    require_database(&options)?;
    Ok(StoreService::open_read_only(&options, &migrations())?)
}
