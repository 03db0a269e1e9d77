//! One relay across all its connections.

use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures_util::future::{Either, join, select};
use guild_protocol::env::{Shutdown, UnixMs};
use tokio::sync::mpsc;

use super::Shared;
use super::address::Address;
use super::connection::{Command, Connection, Ended, Mode};
use super::dial::{self, Socket};
use super::information::Information;
use super::pace::pause_ms;
use super::session::{Begin, Session, Wrongs};
use super::status::{Counts, EchoState, RelayStatus, State, SubState, words};
use super::want::Want;
use crate::marks::{self, Mark};
use crate::publish;
use crate::sync::lock;
use crate::{Error, Result};

/// A connection that stood for so long was a good one.
const GOOD_MS: i64 = 60_000;
/// A relay that never passed on an echo, on so many connections, is one that does not.
const DEAF_MAX: u32 = 3;
/// How long a relay may take to say what it is.
const INFORMATION_MS: i64 = 3_000;
/// How long what it said is good for.
const INFORMATION_AGE_MS: i64 = 3_600_000;

/// What came of a poll.
pub(super) struct Polled {
    pub(super) ended: Ended,
    pub(super) counts: Counts,
    pub(super) connect_ms: Option<i64>,
    pub(super) is_fetched: bool,
}

/// A relay that is kept in touch with.
pub(super) struct Link {
    address: Address,
    url: String,
    mode: Mode,
    /// Whether the settings name it, so that it may be anywhere.
    is_ours: bool,
    status: Arc<Mutex<RelayStatus>>,
    commands: mpsc::Receiver<Command>,
    /// The wish that this relay is left.
    leave: Shutdown,
    /// What it did wrong lately, on earlier connections.
    wrongs: Option<Wrongs>,
    /// When it last said what it is.
    informed_ms: Option<UnixMs>,
    has_echoed: bool,
    deaf_times: u32,
}

impl Link {
    pub(super) fn new(
        address: Address,
        (mode, is_ours): (Mode, bool),
        status: Arc<Mutex<RelayStatus>>,
        (commands, leave): (mpsc::Receiver<Command>, Shutdown),
    ) -> Link {
        let url = address.to_string();
        let (informed_ms, has_echoed, deaf_times) = (None, false, 0);
        Link {
            address,
            url,
            mode,
            is_ours,
            status,
            commands,
            leave,
            wrongs: None,
            informed_ms,
            has_echoed,
            deaf_times,
        }
    }

    /// Connects again and again; a relay that is not followed only once. Its address, for whoever forgets it.
    pub(super) async fn keep(mut self, shared: Arc<Shared>) -> String {
        let mut failures: u32 = 0;
        loop {
            self.stand(State::Connecting, failures, None, &shared);
            let began_ms = shared.clock.now_ms();
            let ended = self.connect(&shared).await;
            let now_ms = shared.clock.now_ms();
            if !self.mode.is_kept() || ended == Ended::Idle {
                return self.url;
            }
            let good = now_ms.saturating_sub(began_ms) >= GOOD_MS;
            failures = if good { 1 } else { failures.saturating_add(1) };
            let options = &shared.options;
            let drawn = shared.random.next_u64();
            let pause_ms = pause_ms(failures, options.retry_min_ms, options.retry_max_ms, drawn);
            let (state, why, pause_ms) = match ended {
                Ended::Banned(why) => (State::Banned, why, options.ban_ms),
                Ended::Deaf => {
                    let why = "the relay did not pass on what it was given";
                    (State::Waiting, why.to_owned(), pause_ms)
                }
                Ended::Lost(why) => (State::Waiting, why, pause_ms),
                Ended::Cut(why) => (State::Waiting, why.to_owned(), pause_ms),
                Ended::Idle => return self.url,
            };
            if failures == 1 || state == State::Banned {
                tracing::warn!(relay = self.url, why, pause_ms, "a relay is not connected");
            } else {
                tracing::debug!(relay = self.url, why, failures, "a relay is tried again");
            }
            let word = if state == State::Banned { "banned" } else { "lost" };
            metrics::counter!("client_connections_ended_total", "why" => word).increment(1);
            self.stand(state, failures, Some(why), &shared);
            select(shared.clock.sleep(pause_ms), pin!(self.leave.triggered())).await;
            if self.leave.is_triggered() {
                return self.url;
            }
        }
    }

    /// Fetches what is missing, and leaves.
    pub(super) async fn poll(mut self, shared: &Shared) -> Polled {
        self.stand(State::Connecting, 0, None, shared);
        let ended = self.connect(shared).await;
        let status = lock(&self.status);
        let (counts, connect_ms) = (status.counts, status.connect_ms);
        Polled { ended, counts, connect_ms, is_fetched: status.fetched && counts.connections > 0 }
    }

    fn stand(&self, state: State, failures: u32, why: Option<String>, shared: &Shared) {
        let mut status = lock(&self.status);
        (status.state, status.failures) = (state, failures);
        status.since_ms = shared.clock.now_ms();
        if state != State::Connected {
            status.live = SubState::Idle;
        }
        if why.is_some() {
            status.last_error = why;
        }
    }

    async fn connect(&mut self, shared: &Shared) -> Ended {
        let (socket, wants) = match self.open(shared).await {
            Ok(opened) => opened,
            Err(why) => return Ended::Lost(words(&why)),
        };
        tracing::info!(relay = self.url, "a relay is connected");
        // First: what is revived may be sent at once, and must find the relay connected.
        self.stand(State::Connected, 0, None, shared);
        if self.mode == Mode::Configured {
            self.revive(shared).await;
        }
        let (information, counts) = {
            let status = lock(&self.status);
            (status.information.clone(), status.counts)
        };
        let session = Session::new(Begin {
            url: self.url.clone(),
            options: shared.options.clone(),
            signer: shared.signer.clone(),
            random: shared.random.clone(),
            information,
            wants,
            follows: self.mode.is_kept(),
            wrongs: self.wrongs.take(),
            echoes: self.has_echoed || self.deaf_times < DEAF_MAX,
            counts,
            now_ms: shared.clock.now_ms(),
        });
        let place = (&*self.status, self.url.as_str(), self.mode);
        let connection =
            Connection::new(shared, place, &self.leave, &mut self.commands, socket, session);
        let (ended, session) = connection.run().await;
        self.has_echoed |= *session.echo_state().0 == EchoState::Heard;
        if ended == Ended::Deaf {
            self.deaf_times = self.deaf_times.saturating_add(1);
        }
        // A ban has settled what led to it.
        if !matches!(ended, Ended::Banned(_)) {
            self.wrongs = Some(session.into_wrongs());
        }
        ended
    }

    /// A socket that stands, and how far each want has come.
    async fn open(
        &mut self,
        shared: &Shared,
    ) -> Result<(Socket, Vec<(Want, Option<Mark>)>), String> {
        let private = self.is_ours || shared.options.private_guests;
        let now_ms = shared.clock.now_ms();
        let fresh = |at_ms: UnixMs| now_ms.saturating_sub(at_ms) < INFORMATION_AGE_MS;
        let ask = !self.informed_ms.is_some_and(fresh);
        let address = &self.address;
        let information =
            async { if ask { Some(information(address, private, shared).await) } else { None } };
        let socket = within(shared, shared.options.connect_ms, async {
            let socket = dial::open(address, dial::dial(address, private).await?).await?;
            Ok((socket, shared.clock.now_ms()))
        });
        let (socket, information) = join(socket, information).await;
        let (socket, stood_ms) = socket.map_err(|error| error.to_string())?;
        lock(&self.status).connect_ms = Some(stood_ms.saturating_sub(now_ms).max(0));
        if let Some(Ok(information)) = information {
            self.informed_ms = Some(now_ms);
            lock(&self.status).information = information;
        }
        let wants =
            if self.mode == Mode::Guest { Vec::new() } else { shared.options.wants.clone() };
        let wants = self.marks(shared, wants).await;
        Ok((socket, wants.map_err(|error| format!("the watermarks cannot be read: {error}"))?))
    }

    /// What waits for this relay need not wait longer. If that fails it leaves in its own time.
    async fn revive(&self, shared: &Shared) {
        let mut after = Some(0);
        while let Some(last) = after {
            let (relay, clock) = (self.url.clone(), shared.clock.clone());
            let revived =
                shared.store.write(move |tx| publish::revive(tx, &relay, last, clock.now_ms()));
            after = revived.await.unwrap_or_else(|error| {
                tracing::warn!(relay = self.url, %error, "what waits for a relay waits longer");
                None
            });
        }
    }

    async fn marks(&self, shared: &Shared, wants: Vec<Want>) -> Result<Vec<(Want, Option<Mark>)>> {
        let names: Vec<String> = wants.iter().map(Want::mark_name).collect();
        let relay = self.url.clone();
        let read = shared.store.read(move |rx| {
            names.iter().map(|name| marks::get(rx, &relay, name)).collect::<Result<Vec<_>, Error>>()
        });
        Ok(wants.into_iter().zip(read.await?).collect())
    }
}

/// What a relay says of itself: nice to know, and not worth waiting for.
async fn information(address: &Address, private: bool, shared: &Shared) -> io::Result<Information> {
    within(shared, INFORMATION_MS, async {
        dial::information(address, dial::dial(address, private).await?).await
    })
    .await
}

/// The same, within a time.
async fn within<T>(
    shared: &Shared,
    most_ms: i64,
    wanted: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    match select(pin!(wanted), shared.clock.sleep(most_ms)).await {
        Either::Left((got, _)) => got,
        Either::Right(_) => {
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {most_ms} ms")))
        }
    }
}
