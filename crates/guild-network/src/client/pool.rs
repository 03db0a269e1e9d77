//! All relays together: the handle that publishes and tells, and the service that keeps the connections.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use guild_protocol::env::{Clock, Random, Shutdown, Signer, UnixMs};
use guild_protocol::nostr::Event;
use guild_store::Store;
use tokio::sync::{mpsc, oneshot};

use super::Options;
use super::address::Address;
use super::connection::{Command, FAREWELL_MS, Mode};
use super::link::{Link, Polled};
use super::session::Answer;
use super::status::{RelayStatus, State};
use crate::error::code;
use crate::intake::Intake;
use crate::sync::lock;
use crate::{Error, Result};

/// What every connection uses.
pub(super) struct Shared {
    pub(super) options: Arc<Options>,
    pub(super) signer: Arc<dyn Signer>,
    pub(super) intake: Intake,
    pub(super) store: Store,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn Random>,
    /// Ends all connections.
    pub(super) stop: Shutdown,
}

/// A relay has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    /// What it said.
    pub message: String,
    /// When.
    pub at_ms: UnixMs,
}

/// Why a relay does not have an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// It never will.
    #[error("the relay refuses: {0}")]
    Refused(String),
    /// It may take it later.
    #[error("the relay did not take it: {0}")]
    Later(String),
}

struct Known {
    status: Arc<Mutex<RelayStatus>>,
    commands: mpsc::Sender<Command>,
    mode: Mode,
    leave: Shutdown,
}

/// The handle: cheap to clone.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
    relays: Arc<Mutex<BTreeMap<String, Known>>>,
    /// Relays that are not configured, for the service to connect.
    guests: mpsc::Sender<Link>,
}

/// Keeps the connections. Must run inside a runtime.
pub struct Service {
    pool: Pool,
    links: Vec<Link>,
    guests: mpsc::Receiver<Link>,
}

impl Pool {
    /// A handle, and the service that must run for it. `signer` is who we are to relays; events go to `intake`.
    pub fn new(
        options: Options,
        signer: Arc<dyn Signer>,
        intake: Intake,
        store: Store,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<(Pool, Service)> {
        let addresses: Vec<Address> =
            options.relays.iter().map(|url| Address::parse(url)).collect::<Result<_>>()?;
        // A channel of nothing is none.
        let (guests, arriving) = mpsc::channel(options.guests_max.max(1));
        let (options, stop) = (Arc::new(options), Shutdown::new());
        let shared = Shared { options, signer, intake, store, clock, random, stop };
        let pool = Pool { shared: Arc::new(shared), relays: Arc::default(), guests };
        let mut links = Vec::new();
        for address in addresses {
            let mut relays = lock(&pool.relays);
            if let Entry::Vacant(place) = relays.entry(address.to_string()) {
                let (known, link) = pool.link(address, (Mode::Configured, true));
                place.insert(known);
                links.push(link);
            }
        }
        Ok((pool.clone(), Service { pool, links, guests: arriving }))
    }

    fn link(&self, address: Address, (mode, is_ours): (Mode, bool)) -> (Known, Link) {
        let now_ms = self.shared.clock.now_ms();
        let configured = mode == Mode::Configured;
        let status = RelayStatus::new(&address.to_string(), configured, now_ms);
        let status = Arc::new(Mutex::new(status));
        let (commands, waiting) = mpsc::channel(self.shared.options.publishing_max.max(1));
        let leave = Shutdown::new();
        let known = Known { status: status.clone(), commands, mode, leave: leave.clone() };
        (known, Link::new(address, (mode, is_ours), status, (waiting, leave)))
    }

    /// Fetches what is missing from a relay and leaves it. None if there is a connection to it.
    pub(super) async fn poll(&self, relay: &str, is_ours: bool) -> Result<Option<Polled>> {
        let address = Address::parse(relay)?;
        let link = {
            let mut relays = lock(&self.relays);
            let Entry::Vacant(place) = relays.entry(address.to_string()) else { return Ok(None) };
            let (known, link) = self.link(address, (Mode::Poll, is_ours));
            place.insert(known);
            link
        };
        let _gone = Gone(self, relay);
        // A whole conversation is large, and only a few are held at once.
        Ok(Some(Box::pin(link.poll(&self.shared)).await))
    }

    /// Keeps a connection to a relay that is not configured from now on, if there is none.
    pub(super) fn follow(&self, relay: &str, is_ours: bool) {
        let Ok(address) = Address::parse(relay) else { return };
        let mut relays = lock(&self.relays);
        let Entry::Vacant(place) = relays.entry(address.to_string()) else { return };
        let (known, link) = self.link(address, (Mode::Followed, is_ours));
        // If there are too many just now, it is asked for again.
        if self.guests.try_send(link).is_ok() {
            place.insert(known);
        }
    }

    /// Leaves all relays that are followed and are not among these.
    pub(super) fn leave_others(&self, followed: &BTreeSet<String>) {
        for (url, known) in &*lock(&self.relays) {
            if known.mode == Mode::Followed && !followed.contains(url) {
                known.leave.trigger();
            }
        }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The addresses of the configured relays.
    pub fn relays(&self) -> Vec<String> {
        self.status().into_iter().filter(|status| status.configured).map(|s| s.url).collect()
    }

    /// What is known of each relay, by address.
    pub fn status(&self) -> Vec<RelayStatus> {
        lock(&self.relays).values().map(|known| lock(&known.status).clone()).collect()
    }

    fn is_connected(&self) -> bool {
        self.status().iter().any(|status| status.state == State::Connected)
    }

    /// Publishes an event at a relay; one that is not configured is connected for it. Publishing the same event again
    /// is the same as publishing it once.
    pub async fn publish(&self, relay_url: &str, event: &Event) -> Result<Ack, PublishError> {
        let commands = self.reach(relay_url)?;
        let (caller, answer) = oneshot::channel();
        commands.try_send(Command { event: event.clone(), caller }).map_err(|refused| {
            PublishError::Later(match refused {
                mpsc::error::TrySendError::Full(_) => "too many events wait for it".to_owned(),
                mpsc::error::TrySendError::Closed(_) => "it was just left".to_owned(),
            })
        })?;
        let clock = &self.shared.clock;
        let later = |why: &str| Err(PublishError::Later(why.to_owned()));
        match select(answer, clock.sleep(self.shared.options.publish_ms)).await {
            Either::Left((Ok(Answer::Accepted(message)), _)) => {
                Ok(Ack { message, at_ms: clock.now_ms() })
            }
            Either::Left((Ok(Answer::Refused { message, is_final: true }), _)) => {
                Err(PublishError::Refused(message))
            }
            Either::Left((Ok(Answer::Refused { message, .. }), _)) => later(&message),
            Either::Left((Ok(Answer::Unanswered), _)) => later("it did not say"),
            Either::Left((Err(_), _)) => later("the connection was lost"),
            Either::Right(_) => later("no answer in time"),
        }
    }

    /// The way to a relay that may be reached now.
    fn reach(&self, relay_url: &str) -> Result<mpsc::Sender<Command>, PublishError> {
        let address = Address::parse(relay_url)
            .map_err(|error| PublishError::Refused(format!("invalid: {error}")))?;
        let url = address.to_string();
        let mut relays = lock(&self.relays);
        if let Some(known) = relays.get(&url) {
            let status = lock(&known.status);
            // Waiting for one that just failed would hold up others.
            return match status.state {
                State::Connecting if status.failures == 0 => Ok(known.commands.clone()),
                State::Connected => Ok(known.commands.clone()),
                _ => {
                    let why = status.last_error.clone().unwrap_or_default();
                    Err(PublishError::Later(format!("it is not connected: {why}")))
                }
            };
        }
        let guests = relays.values().filter(|known| known.mode == Mode::Guest).count();
        let full = || PublishError::Later("too many other relays are connected".to_owned());
        if guests >= self.shared.options.guests_max {
            return Err(full());
        }
        let (known, link) = self.link(address, (Mode::Guest, false));
        self.guests.try_send(link).map_err(|_| full())?;
        let commands = known.commands.clone();
        relays.insert(url, known);
        Ok(commands)
    }
}

/// Forgets a relay that was polled, whatever ended the poll.
struct Gone<'a>(&'a Pool, &'a str);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        lock(&self.0.relays).remove(self.1);
    }
}

impl Service {
    /// Keeps all connections until the shutdown; then relays are told that we go.
    pub async fn run(self, shutdown: Shutdown) {
        let Service { pool, links, mut guests } = self;
        let keep = |link: Link| link.keep(pool.shared.clone());
        let mut kept: FuturesUnordered<_> = links.into_iter().map(keep).collect();
        let all = async {
            loop {
                match next(&mut guests, &mut kept).await {
                    Next::Arrived(link) => kept.push(keep(*link)),
                    Next::Ended(url) => {
                        lock(&pool.relays).remove(&url);
                    }
                }
            }
        };
        drop(select(pin!(all), shutdown.triggered()).await);
        pool.shared.stop.trigger();
        let farewells = async {
            while pool.is_connected()
                && let Some(url) = kept.next().await
            {
                lock(&pool.relays).remove(&url);
            }
        };
        select(pin!(farewells), pool.shared.clock.sleep(FAREWELL_MS)).await;
    }
}

enum Next {
    Arrived(Box<Link>),
    Ended(String),
}

async fn next<K: Future<Output = String>>(
    guests: &mut mpsc::Receiver<Link>,
    kept: &mut FuturesUnordered<K>,
) -> Next {
    poll_fn(|cx| {
        if let Poll::Ready(Some(link)) = guests.poll_recv(cx) {
            return Poll::Ready(Next::Arrived(Box::new(link)));
        }
        match kept.poll_next_unpin(cx) {
            Poll::Ready(Some(url)) => Poll::Ready(Next::Ended(url)),
            // Nothing is kept now; a guest may come.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    })
    .await
}

impl From<PublishError> for Error {
    fn from(error: PublishError) -> Error {
        let code = match &error {
            PublishError::Refused(_) => &code::RELAY_REFUSED,
            PublishError::Later(_) => &code::RELAY_UNREACHABLE,
        };
        Error::refused(code, error.to_string())
    }
}
