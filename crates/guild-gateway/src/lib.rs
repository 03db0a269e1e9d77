//! HTTP in front of the roles: translate and authorise, nothing else.
//!
//! | path | what |
//! |---|---|
//! | `GET /healthz` | whether the process answers |
//! | `GET /api/events` | the audit log as a server-sent stream |
//! | `GET /api/log` | a page of the audit log |
//! | `POST /api/log` | append to it (with the node's token) |

mod error;
mod events;
mod guard;
mod health;
mod log;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::get;
use guild_protocol::env::{Clock, Shutdown};
use guild_roles::audit_log::AuditLog;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

pub use error::{Error, Result, code};

/// How the gateway serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Names under which it may be asked, beside the loopback ones. A page of another site that makes its name point
    /// here is refused by this.
    pub hosts: Vec<String>,
    /// How many streams may be open at once.
    pub streams_max: usize,
    /// How often an idle stream gets a comment, so that both ends notice a dead connection.
    pub keep_alive_ms: i64,
    /// The largest body it reads.
    pub body_max_bytes: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            hosts: Vec::new(),
            streams_max: 256,
            keep_alive_ms: 15_000,
            body_max_bytes: 128 * 1024,
        }
    }
}

/// What every handler may use.
#[derive(Clone)]
struct Shared {
    log: AuditLog,
    clock: Arc<dyn Clock>,
    shutdown: Shutdown,
    token: Arc<str>,
    options: Arc<Options>,
    streams: Arc<Semaphore>,
}

/// The gateway, ready to serve.
pub struct Service {
    router: Router,
    shutdown: Shutdown,
}

impl Service {
    /// A gateway in front of these roles. Whoever shows `token` may write.
    pub fn new(
        options: Options,
        log: AuditLog,
        clock: Arc<dyn Clock>,
        token: &str,
        shutdown: Shutdown,
    ) -> Service {
        let shared = Shared {
            log,
            clock,
            shutdown: shutdown.clone(),
            token: token.into(),
            streams: Arc::new(Semaphore::new(options.streams_max)),
            options: Arc::new(options),
        };
        Service { router: router(shared), shutdown }
    }

    /// The routes, for a test without a socket.
    pub fn router(&self) -> Router {
        self.router.clone()
    }

    /// Serves until the shutdown; then ends the streams and finishes the answers that are under way.
    pub async fn run(self, listener: TcpListener) -> Result<()> {
        let served = axum::serve(listener, self.router)
            .with_graceful_shutdown(self.shutdown.triggered())
            .await;
        served.map_err(|e| Error::Serve(e.to_string()))
    }
}

fn router(shared: Shared) -> Router {
    let body_max_bytes = shared.options.body_max_bytes;
    Router::new()
        .route("/healthz", get(health::healthz))
        .route("/api/events", get(events::events))
        .route("/api/log", get(log::page).post(log::append))
        .fallback(error::no_such_path)
        .method_not_allowed_fallback(error::no_such_method)
        .layer(DefaultBodyLimit::max(body_max_bytes))
        .layer(axum::middleware::from_fn_with_state(shared.clone(), guard::known_host))
        .with_state(shared)
}
