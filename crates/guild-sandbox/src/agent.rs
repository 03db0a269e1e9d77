//! The sandbox-agent: serves one sandbox that stays, over HTTP, to the one controller whose key it was given.
//!
//! | path, below `/v1` | what |
//! |---|---|
//! | `GET /health` | what the sandbox does, and until when it may |
//! | `POST /exec` | start a command |
//! | `GET /exec/{id}/stream?from=` | what it prints, as lines of JSON, from any frame on |
//! | `POST /exec/{id}/stdin`, `/exec/{id}/signal` | what it reads; what it is told |
//! | `PUT`, `GET`, `DELETE /files?path=` | a file of its workspace |
//! | `GET /files/list?path=` | what is in a directory |
//! | `POST`, `GET /files/archive?path=` | a tree, as tar, in or out |
//! | `GET /ports/{n}` | a tunnel to a port inside, by WebSocket |
//! | `GET /attestation` | what it says that it is |
//! | `POST /release-secrets` | secrets for commands, sealed to its key |
//! | `POST /lease` | until when it may run, signed |
//! | `POST /resize` | another shape, where the host can |
//! | `POST /freeze`, `/thaw`, `/shutdown` | stand still, go on, end |
//!
//! Every request is signed ([`Party`]), every answer too. [`Client`] speaks all of it.
//!
//! The agent is outside of the sandbox: no process inside can see it, reach its port or read its key. It ends the
//! workload by itself when its lease is over, and when it is killed, the sandbox's launcher ends everything.

mod auth;
mod client;
mod error;
mod execs;
mod lease;
mod once;
mod output;
mod redact;
mod secrets;
mod serve;
mod socket;
mod wire;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use futures_util::future::{Either, select};
use guild_protocol::env::{Clock, Random, Shutdown, Signer, UnixMs};
use guild_protocol::identity::{PublicKey, SecretKey};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::outcome::{Class, Outcome};
use crate::running::{Handle, Running};
use crate::workspace::Workspace;
use auth::Gate;
use execs::Execs;
use redact::Forms;
use secrets::Vault;

pub use auth::{Nonce, Party, SandboxId, WINDOW_MS};
pub use client::{Attested, Client, Download, ExecStream, Tunnel};
pub use error::{Error, Result, code};
pub use lease::{Lease, Term};
pub use secrets::Secrets;
pub use wire::{
    Attestation, Bytes64, EndedBy, Entry, ExecId, ExecRequest, ExecStarted, FileWritten, Frame,
    Health, LeaseStands, Listing, ResizeRequest, SecretRelease, SecretsReleased, Shape,
    SignalRequest, State, StdinRequest, StdinTaken, Stream,
};

/// How often the agent looks whether its time is over.
const TICK_MS: i64 = 200;
/// How long a sandbox may run before its first lease, if nothing else was said.
pub const FIRST_LEASE_MS: i64 = 600_000;
/// How long, after the shutdown, answers that are under way may still take.
const FAREWELL_MS: i64 = 2_000;

/// Whom an agent serves, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// Who may ask.
    pub controller: PublicKey,
    /// What the sandbox's system is called.
    pub image_version: String,
    /// Until when it may run at first, or waits for its first lease.
    pub run_until_ms: UnixMs,
    /// Whether nothing runs before the first lease: until then commands, files and ports are refused.
    pub awaits_lease: bool,
    /// The largest file or archive.
    pub file_max_bytes: u64,
    /// How long files can be fetched after the sandbox has ended.
    pub linger_ms: i64,
}

/// What every handler may use.
struct Shared {
    options: Options,
    party: Party,
    key: SecretKey,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    shutdown: Shutdown,
    handle: Handle,
    workspace: Workspace,
    /// Whether no command can look into another.
    keeps_apart: bool,
    execs: Execs,
    gate: Mutex<Gate>,
    term: Mutex<Term>,
    vault: Mutex<Vault>,
    forms: Arc<RwLock<Forms>>,
    status: Mutex<Status>,
    /// One resize after the other: what is said of them is what the last one gave.
    resizing: Mutex<()>,
    tunnels: Arc<Semaphore>,
}

#[derive(Debug)]
struct Status {
    frozen: bool,
    shape: Shape,
    ended_by: Option<EndedBy>,
    class: Option<Class>,
}

/// An agent and its sandbox.
pub struct Agent {
    shared: Arc<Shared>,
    running: Running,
}

impl Agent {
    /// An agent for a sandbox that was started to stay. It answers with `key`.
    pub fn new(
        options: Options,
        running: Running,
        key: SecretKey,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        shutdown: Shutdown,
    ) -> Agent {
        let now_ms = clock.now_ms();
        let party = Party { sandbox_id: options.sandbox_id.clone(), agent: key.public_key() };
        let limits = running.limits();
        let memory_mib = limits.memory_hard_bytes >> 20;
        let shape = Shape { cpu_milli: limits.cores_milli, memory_mib };
        let vault = Vault::default();
        let term = match options.awaits_lease {
            true => Term::waiting(options.run_until_ms, now_ms),
            false => Term::new(options.run_until_ms, now_ms),
        };
        let shared = Shared {
            gate: Mutex::new(Gate::new(party.clone(), options.controller, now_ms)),
            term: Mutex::new(term),
            forms: vault.forms(),
            vault: Mutex::new(vault),
            status: Mutex::new(Status { frozen: false, shape, ended_by: None, class: None }),
            resizing: Mutex::default(),
            execs: Execs::default(),
            handle: running.handle(),
            workspace: running.workspace(),
            keeps_apart: running.keeps_apart(),
            tunnels: Arc::new(Semaphore::new(serve::MAX_TUNNELS)),
            options,
            party,
            key,
            clock,
            random,
            shutdown,
        };
        Agent { shared: Arc::new(shared), running }
    }

    /// Whom clients must sign for, and whose answers they must expect.
    pub fn party(&self) -> &Party {
        &self.shared.party
    }

    /// Serves until the shutdown, or for a while after the sandbox has ended. At the end nothing of it runs any more;
    /// whoever is still connected then may hold its files a little longer.
    pub async fn run(self, listener: TcpListener) -> Result<()> {
        let Agent { shared, running } = self;
        let kill = Kill(shared.clone());
        // Waiting is all that is left to do with it; the handle does the rest.
        let waiting = tokio::task::spawn_blocking(move || running.wait());
        let watching = std::pin::pin!(watch(shared.clone(), waiting));
        let serving = std::pin::pin!(serve::serve(shared.clone(), listener));
        let watched = match select(watching, serving).await {
            Either::Left(((), serving)) => {
                shared.shutdown.trigger();
                return serving.await;
            }
            Either::Right((served, watching)) => {
                shared.end(EndedBy::Stop);
                served?;
                watching
            }
        };
        // Nothing may be left when this returns.
        shared.shutdown.trigger();
        watched.await;
        drop(kill);
        Ok(())
    }
}

/// Looks after the sandbox: ends it when its time is over, and notes when it has ended. Ready a while after its end, or
/// at once if nobody wants anything any more.
async fn watch(shared: Arc<Shared>, waiting: tokio::task::JoinHandle<crate::Result<Outcome>>) {
    let mut waiting = waiting;
    let outcome = loop {
        match select(waiting, shared.clock.sleep(TICK_MS)).await {
            Either::Left((outcome, _)) => break outcome,
            Either::Right((_, still)) => waiting = still,
        }
        shared.tick();
    };
    let class = outcome.ok().and_then(Result::ok).map(|outcome| outcome.class);
    shared.end(EndedBy::Sandbox);
    lock(&shared.term).end(shared.clock.now_ms());
    shared.status().class = class;
    tracing::info!(?class, "the sandbox has ended");
    let until = shared.uptime_ms().saturating_add(shared.options.linger_ms);
    while shared.uptime_ms() < until && !shared.shutdown.is_triggered() {
        select(shared.clock.sleep(TICK_MS), shared.shutdown.triggered()).await;
        shared.tick();
    }
}

/// Ends the sandbox with the agent, however that ends.
struct Kill(Arc<Shared>);

impl Drop for Kill {
    fn drop(&mut self) {
        self.0.end(EndedBy::Stop);
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while holding one of these.
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn status(&self) -> MutexGuard<'_, Status> {
        lock(&self.status)
    }

    /// How long the agent has run, whatever its clock says.
    fn uptime_ms(&self) -> i64 {
        lock(&self.term).gone_ms()
    }

    fn tick(&self) {
        let now_ms = self.clock.now_ms();
        let (is_over, uptime_ms) = {
            let mut term = lock(&self.term);
            term.tick(now_ms, TICK_MS);
            (term.is_over(now_ms), term.gone_ms())
        };
        if self.shutdown.is_triggered() {
            self.end(EndedBy::Stop);
        } else if is_over {
            self.end(EndedBy::Lease);
        }
        self.execs.expire(uptime_ms);
    }

    /// Ends the workload, once.
    fn end(&self, by: EndedBy) {
        // Looked at and set at once: of two who end it one was the first.
        match &mut self.status().ended_by {
            Some(_) => return,
            ended_by => *ended_by = Some(by),
        }
        if let Err(error) = self.handle.kill() {
            // The launcher is gone, and with it everything else.
            tracing::debug!(%error, "there is nobody to kill");
        }
        lock(&self.vault).wipe();
        self.execs.hurry();
    }

    /// Refuses what needs a sandbox that has not ended.
    fn require_alive(&self) -> Result<()> {
        match self.status().ended_by {
            Some(by) => Err(Error::new(&code::ENDED, format!("the sandbox has ended ({by:?})"))),
            None => Ok(()),
        }
    }

    /// Refuses what needs a sandbox that runs.
    fn require_running(&self) -> Result<()> {
        self.require_alive()?;
        match lock(&self.term).has_begun() {
            true => Ok(()),
            false => Err(Error::new(&code::NOT_LEASED, "the sandbox has no lease yet")),
        }
    }
}
