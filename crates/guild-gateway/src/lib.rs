//! HTTP in front of the roles: translate and authorise, nothing else.
//!
//! | path | what |
//! |---|---|
//! | `GET /`, `/providers`, `/requests`, `/receipts`, and one of each by its id | the explorer's pages |
//! | `GET /api/summary`, `/api/providers`, `/api/requests`, `/api/receipts`, and one of each | the same as JSON |
//! | the same with the node's token | also what is private |
//! | `GET /matrix`, `/matrix/{task}`, and below `/api` | what this node believes of providers, and whom it would hire |
//! | `GET /budgets`, `/api/budgets` | how much may be spent on which kind of work, to whoever sees the matrix |
//! | `POST /api/budgets/set` | set that (with the node's token) |
//! | `GET /reviews`, `GET /api/reviews` | what this node says of providers, and what others say |
//! | `POST /api/reviews/publish` | publish a review of ours (with the node's token) |
//! | `POST /api/routing/quarantine` | take a provider out of the choice, or back into it (with the node's token) |
//! | `GET /api/receipts/{id}/replay` | what a receipt's trajectory hash seals; of private work with the node's token |
//! | `GET /api/market/events` | what happens on the market, as a server-sent stream |
//! | `GET /healthz`, `/readyz` | whether the process answers; whether all of it runs |
//! | `GET /metrics` | its numbers, for Prometheus |
//! | `GET /api/events` | the audit log as a server-sent stream |
//! | `GET /api/log` | a page of the audit log |
//! | `POST /api/log` | append to it (with the node's token) |
//! | `POST /api/ledger/account` | open an account (with the node's token) |
//! | `POST /api/ledger/transfer` | book a chain of transfers (with the node's token) |
//! | `POST /api/ledger/approval` | what a guardian has signed about a payment (with the node's token) |
//! | `POST /api/ledger/rule` | change the rule of an account (with the node's token) |
//! | `GET /relays`, `GET /api/relays` | what is known of the relays of others |
//! | `POST /api/relays/publish` | publish a signed event there (with the node's token) |
//! | `POST /api/meetings`, `GET /api/meetings/{id}` | get to know a provider, look (with the node's token) |
//! | `POST /api/orders`, `GET` and `DELETE /api/orders/{id}` | hire, look, give up (with the node's token) |
//! | `POST /api/judgements` | keep a verdict of the judge (with the node's token) |
//! | `POST /api/turns`, `/api/turns/{id}/stop` | give an agent a task; end a turn (with the node's token) |
//! | `GET /api/agents/{project}/{agent}/live` | what an agent's model says, as a server-sent stream (with the token) |
//! | `POST /api/outbox/retry` | try dead letters again (with the node's token) |
//! | `GET /ipfs/{cid}/{path}` | content, for everybody unless the settings say otherwise |
//! | `POST /api/v0/…` | content as Kubo's RPC has it; what changes something with the node's token |
//! | `/v1/…` | hosting: sign-in, jobs, sandboxes, billing; `/v1` and `/v1/openapi.json` describe it |
//! | `GET /hosting/…` | the same for people: pages, for whoever has signed in there |
//! | `GET /relay`, also at `/` | the Nostr relay, by WebSocket; what it is, as `application/nostr+json` |

mod body;
mod budgets;
mod delegations;
mod disputes;
mod dress;
mod error;
mod events;
mod explore;
mod guard;
mod health;
mod hosting;
mod ipfs;
mod judgements;
mod kubo;
mod ledger;
mod log;
mod meetings;
mod meter;
mod orders;
mod outbox;
mod proxy;
mod relay;
mod relays;
mod reviews;
mod routing;
mod socket;
mod turns;
mod v1;
mod web;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{any, delete, get, post};
use futures_util::future::{Either, select};
use guild_hosting::desk::Desk;
use guild_network::content::Content;
use guild_network::relay::Relay;
use guild_protocol::env::{Clock, Shutdown};
use guild_protocol::nostr::Limits;
use guild_roles::agents::Agents;
use guild_roles::audit_log::AuditLog;
use guild_roles::buyer::Buyer;
use guild_roles::disputes::Disputes;
use guild_roles::explorer::Explorer;
use guild_roles::judgements::Judgements;
use guild_roles::meeting::Meetings;
use guild_roles::outbox::Outbox;
use guild_roles::relays::Relays;
use guild_roles::reviews::Reviews;
use guild_roles::treasury::Treasury;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use socket::Limited;

pub use error::{Error, Result, code};
pub use explore::encoded;
pub use health::Services;
pub use meter::{REQUEST_MS, Render};
pub use proxy::Network;

/// The document that describes `/v1`, as it is checked in.
pub fn openapi() -> String {
    v1::document::text()
}

/// How the gateway serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Names under which it may be asked, beside the loopback ones. A page of another site that makes its name point
    /// here is refused by this.
    pub hosts: Vec<String>,
    /// How many streams may be open at once.
    pub streams_max: usize,
    /// Whether strangers may read content.
    pub content_public: bool,
    /// How often an idle stream gets a comment, so that both ends notice a dead connection.
    pub keep_alive_ms: i64,
    /// The largest body it reads. An event must fit, and with it an order, whose input becomes a part of one.
    pub body_max_bytes: usize,
    /// How long a request may take until its answer begins, its body included.
    pub request_max_ms: i64,
    /// How many connections may be open at once; further ones wait.
    pub connections_max: usize,
    /// How many of them one address may have (one /64 network); further ones are dropped.
    pub connections_per_address: usize,
    /// Proxies that are believed when they say for whom they ask (`x-forwarded-for`): limits by address count that
    /// one, and the proxies themselves may have as many connections as there are.
    pub trusted_proxies: Vec<Network>,
    /// How long a connection may stand still. Must be longer than `keep_alive_ms` and `request_max_ms`.
    pub idle_max_ms: i64,
    /// How long, after the shutdown, answers that are under way may still take.
    pub farewell_ms: i64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            hosts: Vec::new(),
            streams_max: 256,
            content_public: true,
            keep_alive_ms: 15_000,
            body_max_bytes: Limits::DEFAULT.max_bytes,
            request_max_ms: 30_000,
            connections_max: 1_024,
            connections_per_address: 256,
            trusted_proxies: Vec::new(),
            idle_max_ms: 60_000,
            farewell_ms: 2_000,
        }
    }
}

/// What the gateway stands in front of.
#[derive(Clone)]
pub struct Roles {
    /// The agents of this node.
    pub agents: Agents,
    /// Content by its hash, if this node keeps any.
    pub content: Option<Content>,
    /// Who did what.
    pub log: AuditLog,
    /// What the judge said.
    pub judgements: Judgements,
    /// What must leave the node.
    pub outbox: Outbox,
    /// The relay for strangers, if there is one.
    pub relay: Option<Relay>,
    /// The relays of others.
    pub relays: Relays,
    /// The money.
    pub treasury: Treasury,
    /// Who hires others, if this node does.
    pub buyer: Option<Buyer>,
    /// Who gets to know providers, if this node does.
    pub meetings: Option<Meetings>,
    /// Who disputes about results, if this node does.
    pub disputes: Option<Disputes>,
    /// Who says what became of providers, if this node does.
    pub reviews: Option<Reviews>,
    /// Who sells sandboxes, if this node does.
    pub desk: Option<Desk>,
    /// The market, for readers.
    pub explorer: Explorer,
    /// What runs.
    pub services: Services,
    /// The numbers of this process, if somebody keeps them.
    pub metrics: Option<Render>,
}

/// What every handler may use.
#[derive(Clone)]
struct Shared {
    agents: Agents,
    content: Option<Content>,
    log: AuditLog,
    judgements: Judgements,
    outbox: Outbox,
    relay: Option<Relay>,
    relays: Relays,
    treasury: Treasury,
    buyer: Option<Buyer>,
    meetings: Option<Meetings>,
    disputes: Option<Disputes>,
    reviews: Option<Reviews>,
    desk: Option<Desk>,
    explorer: Explorer,
    services: Services,
    metrics: Option<Render>,
    clock: Arc<dyn Clock>,
    shutdown: Shutdown,
    token: Arc<str>,
    options: Arc<Options>,
    streams: Arc<Semaphore>,
}

/// The gateway, ready to serve.
pub struct Service {
    router: Router,
    clock: Arc<dyn Clock>,
    options: Arc<Options>,
    shutdown: Shutdown,
}

impl Service {
    /// A gateway in front of these roles. Whoever shows `token` may write.
    pub fn new(
        options: Options,
        roles: Roles,
        clock: Arc<dyn Clock>,
        token: &str,
        shutdown: Shutdown,
    ) -> Service {
        let options = Arc::new(options);
        let Roles {
            agents,
            content,
            log,
            judgements,
            outbox,
            relay,
            relays,
            treasury,
            buyer,
            meetings,
            disputes,
            reviews,
            desk,
            explorer,
            services,
            metrics,
        } = roles;
        let shared = Shared {
            agents,
            content,
            log,
            judgements,
            outbox,
            relay,
            relays,
            treasury,
            buyer,
            meetings,
            disputes,
            reviews,
            desk,
            explorer,
            services,
            metrics,
            clock: clock.clone(),
            shutdown: shutdown.clone(),
            token: token.into(),
            streams: Arc::new(Semaphore::new(options.streams_max)),
            options: options.clone(),
        };
        Service { router: router(shared), clock, options, shutdown }
    }

    /// The routes, for a test without a socket.
    pub fn router(&self) -> Router {
        self.router.clone()
    }

    /// Serves until the shutdown; then ends the streams and finishes the answers that are under way, within
    /// `farewell_ms`. A client that does not read or does not finish its request cannot hold up the end.
    pub async fn run(self, listener: TcpListener) -> Result<()> {
        let farewell_ms = self.options.farewell_ms;
        let listener = Limited::new(listener, self.clock.clone(), self.options);
        let service = self.router.into_make_service_with_connect_info::<relay::Remote>();
        let served = axum::serve(listener, service)
            .with_graceful_shutdown(self.shutdown.triggered())
            .into_future();
        let late = std::pin::pin!(async {
            self.shutdown.triggered().await;
            self.clock.sleep(farewell_ms).await;
        });
        match select(served, late).await {
            Either::Left((served, _)) => served.map_err(|e| Error::Serve(e.to_string())),
            Either::Right(_) => {
                tracing::info!("some connections did not end in time and are dropped");
                Ok(())
            }
        }
    }
}

fn router(shared: Shared) -> Router {
    let body_max_bytes = shared.options.body_max_bytes;
    Router::new()
        .merge(explorer_routes())
        .merge(hosting::routes())
        .merge(ipfs::routes())
        .merge(kubo::routes())
        .merge(v1::routes())
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(meter::metrics))
        .route("/api/events", get(events::events))
        .route("/api/log", get(log::page).post(log::append))
        .route("/api/budgets/set", post(budgets::set))
        .route("/api/judgements", post(judgements::keep))
        .route("/api/ledger/account", post(ledger::open))
        .route("/api/ledger/transfer", post(ledger::transfer))
        .route("/api/ledger/approval", post(ledger::approve))
        .route("/api/ledger/rule", post(ledger::rule))
        .route("/api/meetings", post(meetings::create))
        .route("/api/meetings/{id}", get(meetings::show))
        .route("/api/delegations", post(delegations::create))
        .route("/api/delegations/{id}", delete(delegations::cancel))
        .route("/api/delegations/{id}/course", get(delegations::course))
        .route("/api/disputes", post(disputes::file))
        .route("/api/disputes/{id}/answer", post(disputes::answer))
        .route("/api/disputes/{id}/resolve", post(disputes::resolve))
        .route("/api/delegations/{id}/evidence", get(explore::evidence))
        .route("/api/orders", post(orders::create))
        .route("/api/orders/{id}", get(orders::show).delete(orders::cancel))
        .route("/api/outbox/retry", post(outbox::retry))
        .route("/api/reviews/publish", post(reviews::publish))
        .route("/api/routing/quarantine", post(routing::quarantine))
        .route("/api/relays/publish", post(relays::publish))
        .route("/api/agents/{project}/{agent}/live", get(turns::live))
        .route("/api/turns", post(turns::ask))
        .route("/api/turns/{id}/stop", post(turns::stop))
        .route("/relay", any(relay::relay))
        .fallback(error::no_such_path)
        .method_not_allowed_fallback(error::no_such_method)
        .layer(DefaultBodyLimit::max(body_max_bytes))
        .layer(axum::middleware::from_fn_with_state(shared.clone(), relay::at_root))
        .layer(axum::middleware::from_fn_with_state(shared.clone(), guard::in_time))
        .layer(axum::middleware::from_fn_with_state(shared.clone(), guard::known_host))
        .layer(axum::middleware::from_fn_with_state(shared.clone(), meter::count))
        .layer(axum::middleware::from_fn(dress::dress))
        .with_state(shared)
}

/// The market for readers: every path as a page, and below `/api` as JSON.
fn explorer_routes() -> Router<Shared> {
    let mut routes = Router::new()
        .route("/", get(explore::home))
        .route("/api/summary", get(explore::home))
        .route("/assets/{name}", get(web::asset::asset))
        .route("/api/receipts/{id}/replay", get(explore::replay))
        .route("/api/requests/{id}/evidence", get(explore::evidence))
        .route("/api/market/events", get(events::market));
    for base in ["", "/api"] {
        let at = |path: &str| format!("{base}{path}");
        routes = routes
            .route(&at("/providers"), get(explore::providers))
            .route(&at("/providers/{key}"), get(explore::provider))
            .route(&at("/matrix"), get(explore::matrix))
            .route(&at("/matrix/{task}"), get(explore::explained))
            .route(&at("/delegations"), get(explore::delegations))
            .route(&at("/delegations/{id}"), get(explore::delegation))
            .route(&at("/disputes"), get(explore::disputes))
            .route(&at("/disputes/{id}"), get(explore::dispute))
            .route(&at("/budgets"), get(explore::budgets))
            .route(&at("/requests"), get(explore::requests))
            .route(&at("/requests/{id}"), get(explore::request))
            .route(&at("/reviews"), get(explore::reviews))
            .route(&at("/relays"), get(explore::relays))
            .route(&at("/receipts"), get(explore::receipts))
            .route(&at("/receipts/{id}"), get(explore::receipt));
    }
    routes
}
