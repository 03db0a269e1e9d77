//! The embedded relay: strangers publish to it and read from it (NIP-01, 09, 11, 40, 42, 45, 70, 77).
//!
//! | module | what it settles |
//! |---|---|
//! | `session` | one client as a state machine: a frame in, actions out |
//! | `connection` | carries frames between a socket and its session |
//! | `hub`, `subscriptions` | from the feed of new events to those who want them |
//! | `question`, `sync` | what is stored, how many, and reconciling |
//! | `auth` | proven keys, and what only they may see |
//! | `meter` | how many in a minute, and from where |
//!
//! Whatever a client does costs a bounded amount: it is refused in words (`rate-limited: …`) and counted in
//! `relay_refused_total`, and in the end its connection is closed.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::future::{Either, select};
use futures_util::{Sink, SinkExt, Stream};
use guild_protocol::env::{Clock, Random, Shutdown};
use guild_store::Store;
use tokio::sync::Semaphore;

use crate::intake::{Intake, Lagged, Live};
use crate::sync::lock;

mod auth;
mod connection;
mod hub;
mod information;
mod meter;
mod options;
mod question;
mod session;
mod subscriptions;
mod sync;

use connection::Connection;
use hub::Hub;
use meter::Keys;
pub use meter::Places;
pub use options::{ANSWER_LEAST_BYTES, Options};

/// What goes over a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A message.
    Text(String),
    /// Are you there? Whoever carries frames answers by itself.
    Ping,
    /// I am.
    Pong,
    /// The end.
    Close,
    /// One that comes in and is larger than may be read. Nothing behind it can be.
    TooLarge,
}

/// Where a client comes from, and whom it asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// The host, with the port, under which it reached this relay: its proof of a key must name it.
    pub host: String,
}

/// Why a client is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// There are too many connections.
    InAll,
    /// There are too many from its address.
    OfAddress,
}

/// The relay. A cheap handle.
#[derive(Clone)]
pub struct Relay(Arc<Shared>);

const KIB: usize = 1_024;

/// What all connections share.
pub(crate) struct Shared {
    options: Arc<Options>,
    intake: Intake,
    store: Store,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    hub: Hub,
    keys: Mutex<Keys>,
    places: Mutex<Places>,
    turns: Arc<Semaphore>,
    /// KiB of large answers that may still be on their way.
    answers: Arc<Semaphore>,
    /// How many events the open reconciliations hold.
    syncing: Mutex<usize>,
}

/// Passes new events on. Must run for the relay to work.
pub struct Service {
    shared: Arc<Shared>,
    live: Live,
}

impl Relay {
    /// A relay in front of what the intake stores.
    pub fn new(
        options: Options,
        intake: Intake,
        store: Store,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> (Relay, Service) {
        let live = intake.live();
        let shared = Arc::new(Shared {
            keys: Mutex::new(Keys::new(options.key_events_per_minute, options.keys_max)),
            places: Mutex::default(),
            turns: Arc::new(Semaphore::new(options.queries_at_once)),
            answers: Arc::new(Semaphore::new(options.answers_max_bytes / KIB)),
            syncing: Mutex::new(0),
            hub: Hub::default(),
            options: Arc::new(options),
            intake,
            store,
            clock,
            random,
        });
        (Relay(shared.clone()), Service { shared, live })
    }

    /// What it says about itself (NIP-11).
    pub fn information(&self) -> serde_json::Value {
        information::document(&self.0.options)
    }

    /// How it serves.
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// Lets a client in, if there is room. Ask before answering its handshake.
    pub fn admit(&self, peer: Peer) -> Result<Admission, Full> {
        let Options { connections_per_address, connections_max, .. } = *self.0.options;
        let entered =
            lock(&self.0.places).enter(peer.address, connections_per_address, connections_max);
        entered.map_err(|why| {
            session::refused(why);
            if why == "connections" { Full::InAll } else { Full::OfAddress }
        })?;
        self.count_connections();
        Ok(Admission { relay: self.clone(), peer })
    }

    fn count_connections(&self) {
        metrics::gauge!("relay_connections").set(lock(&self.0.places).count() as f64);
    }
}

/// A client that was let in. Its place is free again when this is dropped.
pub struct Admission {
    relay: Relay,
    peer: Peer,
}

impl Admission {
    /// Serves the client until one of both ends it.
    pub async fn serve<S, E>(self, mut socket: S)
    where
        S: Stream<Item = Result<Frame, E>> + Sink<Frame, Error = E> + Unpin,
    {
        let mut connection = Connection::new(self.relay.0.clone(), &self);
        let ended = connection.run(&mut socket).await;
        drop(connection);
        metrics::counter!("relay_ended_total", "why" => ended).increment(1);
        tracing::debug!(peer = %self.peer.address, why = ended, "a client of the relay is gone");
        // As a courtesy, and not for long.
        let farewell = std::pin::pin!(socket.send(Frame::Close));
        let _ = select(farewell, self.relay.0.clock.sleep(FAREWELL_MS)).await;
    }

    pub(crate) fn host(&self) -> &str {
        &self.peer.host
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        lock(&self.relay.0.places).leave(self.peer.address);
        self.relay.count_connections();
    }
}

/// How long the last word to a client may take.
const FAREWELL_MS: i64 = 1_000;

impl Service {
    /// Passes new events on until the shutdown; then all connections end.
    pub async fn run(mut self, shutdown: Shutdown) {
        let mut stop = shutdown.triggered();
        loop {
            let next = std::pin::pin!(self.live.next());
            match select(stop, next).await {
                Either::Left(_) => break,
                Either::Right((Some(Ok(live)), waiting)) => {
                    self.shared.hub.pass_on(&live);
                    stop = waiting;
                }
                Either::Right((Some(Err(Lagged(_))), waiting)) => {
                    session::refused("lagged");
                    self.shared.hub.missed();
                    stop = waiting;
                }
                Either::Right((None, waiting)) => {
                    waiting.await;
                    break;
                }
            }
        }
        self.shared.hub.end();
    }
}

impl Shared {
    fn keys(&self) -> MutexGuard<'_, Keys> {
        lock(&self.keys)
    }

    fn take_sync_room(&self, events: usize) -> bool {
        let mut syncing = lock(&self.syncing);
        let there = syncing.saturating_add(events) <= self.options.syncs_max_events;
        if there {
            *syncing += events;
        }
        there
    }

    fn give_sync_room(&self, events: usize) {
        let mut syncing = lock(&self.syncing);
        *syncing = syncing.saturating_sub(events);
    }
}
