//! Letters over a NATS server.
//!
//! A connection of its own: bells do not come back to whoever rang them, but a question and its answer may well be of
//! one process. [`Nats`] is the handle; [`Service`] owns the connection and must run inside a tokio runtime. While the
//! server is away nothing is sent and nobody waits: whoever sends from a row tries again.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, HeaderMap, Message, Subscriber};
use futures_util::StreamExt;
use futures_util::future::{Either, ready, select};
use futures_util::stream::FuturesUnordered;
use guild_protocol::env::{BoxFuture, Clock, Random, Shutdown};

use super::letter::{Headers, Letter};
use super::queue::{Limits, Mailbox, Queue, put};
use super::{Mail, Receipt, stream};
use crate::error::{Error, Result};
use crate::nats::{Address, Options, pause_ms};
use crate::subject::{Pattern, Prefix, Topic};
use crate::{Listener, Ringer, lock};

mod send;

use send::{ask, round_trip, send_all};

/// How the mail is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Status {
    /// Whether letters come and go.
    pub connected: bool,
    /// Whether the server keeps commands and events.
    pub keeps: bool,
    /// Subscriptions that the server has.
    pub subscribed: u64,
    /// Letters that wait to be cast.
    pub queued: usize,
    /// Letters that came.
    pub received: u64,
    /// Letters that came or were cast and were lost: too many waited, or they were none.
    pub lost: u64,
}

#[derive(Default)]
struct Counts {
    connected: AtomicBool,
    keeps: AtomicBool,
    subscribed: AtomicU64,
    received: AtomicU64,
    lost: AtomicU64,
}

/// Whoever takes letters here.
struct Reader {
    pattern: Pattern,
    group: Option<String>,
    queue: Weak<Mutex<Queue>>,
    /// Rings when nobody takes them any more. Whoever fills the queue listens; without a connection nobody does.
    gone: Listener,
    /// The connection that it is subscribed in.
    session: u64,
}

/// A connection that letters can be sent over.
#[derive(Clone)]
struct Way {
    client: Client,
    prefix: Prefix,
    /// Whether the server keeps commands and events.
    keeps: bool,
    clock: Arc<dyn Clock>,
}

struct Shared {
    limits: Limits,
    way: Mutex<Option<Way>>,
    loose: Mutex<Queue>,
    /// Wakes the service when there is something to cast.
    filled: Ringer,
    readers: Mutex<Vec<Reader>>,
    /// Wakes the service when somebody subscribes.
    joined: Ringer,
    counts: Counts,
}

/// Mail that other processes read too.
#[derive(Clone)]
pub struct Nats(Arc<Shared>);

impl Nats {
    /// Mail under `{namespace}.v1`, and the service that connects it.
    pub fn new(
        options: &Options,
        limits: Limits,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<(Nats, Service)> {
        let address = options.check()?;
        let prefix = Prefix::of(&options.namespace)?;
        let (filled, to_cast) = Listener::pair();
        let (joined, to_join) = Listener::pair();
        let shared = Arc::new(Shared {
            way: Mutex::default(),
            loose: Mutex::new(Queue::new(&limits)),
            limits,
            filled,
            readers: Mutex::default(),
            joined,
            counts: Counts::default(),
        });
        let retry_max_ms = options.retry_max_ms;
        let mail = Nats(shared.clone());
        let service = Service {
            address,
            prefix,
            retry_max_ms,
            shared,
            to_cast,
            to_join,
            sessions: 0,
            clock,
            random,
        };
        Ok((mail, service))
    }

    /// How it is doing.
    pub fn status(&self) -> Status {
        let counts = &self.0.counts;
        Status {
            connected: counts.connected.load(Ordering::Relaxed),
            keeps: counts.keeps.load(Ordering::Relaxed),
            subscribed: counts.subscribed.load(Ordering::Relaxed),
            queued: lock(&self.0.loose).len(),
            received: counts.received.load(Ordering::Relaxed),
            lost: counts.lost.load(Ordering::Relaxed),
        }
    }
}

impl Mail for Nats {
    fn send_all(&self, letters: Vec<Letter>) -> BoxFuture<Vec<Result<Receipt>>> {
        let (way, max_bytes) = (lock(&self.0.way).clone(), self.0.limits.letter_max_bytes);
        Box::pin(async move {
            match way {
                Some(way) => send_all(&way, letters, max_bytes).await,
                None => letters.iter().map(|_| Err(away())).collect(),
            }
        })
    }

    fn cast(&self, letter: Letter) {
        let fits = letter.check_size(self.0.limits.letter_max_bytes).is_ok();
        if fits && put(&self.0.loose, letter) {
            self.0.filled.ring(0);
        } else {
            self.0.lost();
        }
    }

    fn ask(&self, letter: Letter, timeout_ms: i64) -> BoxFuture<Result<Letter>> {
        let (way, max_bytes) = (lock(&self.0.way).clone(), self.0.limits.letter_max_bytes);
        Box::pin(async move {
            letter.check_size(max_bytes)?;
            match way {
                Some(way) => ask(&way.client, letter, timeout_ms).await,
                None => Err(away()),
            }
        })
    }

    fn subscribe(&self, pattern: Pattern, group: Option<&str>) -> Mailbox {
        let (mut mailbox, queue) = Mailbox::new(&self.0.limits);
        let (ringer, gone) = Listener::pair();
        mailbox.gone = Some(ringer);
        let group = group.map(str::to_owned);
        lock(&self.0.readers).push(Reader { pattern, group, queue, gone, session: 0 });
        self.0.joined.ring(0);
        mailbox
    }
}

fn away() -> Error {
    Error::Unreachable("the server is away".to_owned())
}

impl Shared {
    fn lost(&self) {
        self.counts.lost.fetch_add(1, Ordering::Relaxed);
    }
}

/// Keeps the connection. Dropping it closes the connection.
pub struct Service {
    address: Address,
    prefix: Prefix,
    retry_max_ms: i64,
    shared: Arc<Shared>,
    to_cast: Listener,
    to_join: Listener,
    sessions: u64,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

impl Service {
    /// Connects, again and again, until the shutdown.
    pub async fn run(mut self, shutdown: Shutdown) {
        select(pin!(self.stay_connected()), shutdown.triggered()).await;
    }

    async fn stay_connected(&mut self) {
        let mut failures: u32 = 0;
        loop {
            match self.connect().await {
                Ok((way, lost)) => {
                    failures = 0;
                    tracing::info!(server = %self.address, keeps = way.keeps, "the mail is connected");
                    self.serve(way, lost).await;
                    tracing::warn!(server = %self.address, "the mail has lost its server: what must arrive waits");
                }
                Err(why) if failures == 0 => {
                    tracing::warn!(server = %self.address, why, "the mail does not reach its server");
                }
                Err(why) => {
                    tracing::debug!(server = %self.address, why, failures, "the mail tries again");
                }
            }
            failures = failures.saturating_add(1);
            let pause_ms = pause_ms(failures, self.retry_max_ms, self.random.next_u64());
            self.clock.sleep(pause_ms).await;
        }
    }

    async fn connect(&self) -> Result<(Way, Listener), String> {
        let (ringer, lost) = Listener::pair();
        let tell = move |event: Event| {
            if matches!(event, Event::Disconnected | Event::Closed) {
                ringer.ring(0);
            }
            ready(())
        };
        let options = ConnectOptions::new()
            .name("guild mail")
            // As for bells: our own tries, which end with the service.
            .max_reconnects(1)
            .ping_interval(Duration::from_secs(10))
            .request_timeout(Some(Duration::from_secs(2)))
            .event_callback(tell);
        let client = self.address.connect(options).await.map_err(|error| error.to_string())?;
        round_trip(&client).await.map_err(|error| error.to_string())?;
        let mut keeps = client.server_info().jetstream;
        if keeps && let Err(why) = stream::ensure(&client, &self.prefix).await {
            tracing::warn!(server = %self.address, why, "the server does not keep commands and events");
            keeps = false;
        }
        let (prefix, clock) = (self.prefix.clone(), self.clock.clone());
        Ok((Way { client, prefix, keeps, clock }, lost))
    }

    /// Carries letters until the connection is lost.
    async fn serve(&mut self, way: Way, mut lost: Listener) {
        self.sessions = self.sessions.saturating_add(1);
        let shared = &*self.shared;
        *lock(&shared.way) = Some(way.clone());
        shared.counts.keeps.store(way.keeps, Ordering::Relaxed);
        shared.counts.connected.store(true, Ordering::Relaxed);
        let receive = receive(shared, &mut self.to_join, &way.client, self.sessions);
        let cast = cast(shared, &mut self.to_cast, &way.client);
        select(lost.hear(), pin!(select(pin!(receive), pin!(cast)))).await;
        shared.close();
    }
}

impl Shared {
    fn close(&self) {
        *lock(&self.way) = None;
        self.counts.connected.store(false, Ordering::Relaxed);
        self.counts.subscribed.store(0, Ordering::Relaxed);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Service({})", self.address)
    }
}

/// Hands letters that may be lost to the client until that is gone.
async fn cast(shared: &Shared, to_cast: &mut Listener, client: &Client) {
    loop {
        while let Some(letter) = { lock(&shared.loose).take() } {
            let (subject, headers) = (letter.subject.as_str().to_owned(), to_map(&letter.headers));
            let sent = client.publish_with_headers(subject, headers, letter.payload.into()).await;
            if let Err(error) = sent {
                shared.lost();
                tracing::debug!(%error, "a letter was lost");
            }
        }
        to_cast.hear().await;
    }
}

/// Fills the queues of all readers until something fails.
async fn receive(shared: &Shared, to_join: &mut Listener, client: &Client, session: u64) {
    let mut pumps = FuturesUnordered::new();
    loop {
        let joining = unplaced(shared, session);
        let placed = u64::try_from(joining.len()).unwrap_or(u64::MAX);
        for Joining { pattern, group, queue, gone } in joining {
            let pattern = pattern.as_str().to_owned();
            let subscriber = match group {
                Some(group) => client.queue_subscribe(pattern, group).await,
                None => client.subscribe(pattern).await,
            };
            match subscriber {
                Ok(subscriber) => pumps.push(pump(shared, queue, gone, subscriber)),
                Err(_) => return,
            }
        }
        if placed > 0 {
            if round_trip(client).await.is_err() {
                return;
            }
            shared.counts.subscribed.fetch_add(placed, Ordering::Relaxed);
        }
        if pumps.is_empty() {
            to_join.hear().await;
        } else if let Either::Right((Some(Ended::Connection), _)) =
            select(to_join.hear(), pumps.next()).await
        {
            return;
        }
    }
}

struct Joining {
    pattern: Pattern,
    group: Option<String>,
    queue: Weak<Mutex<Queue>>,
    gone: Listener,
}

/// The readers that this connection has no subscription of; the gone ones are forgotten.
fn unplaced(shared: &Shared, session: u64) -> Vec<Joining> {
    let mut readers = lock(&shared.readers);
    readers.retain(|reader| reader.queue.strong_count() > 0);
    let mut joining = Vec::new();
    for reader in readers.iter_mut().filter(|reader| reader.session != session) {
        reader.session = session;
        joining.push(Joining {
            pattern: reader.pattern.clone(),
            group: reader.group.clone(),
            queue: reader.queue.clone(),
            gone: reader.gone.again(),
        });
    }
    joining
}

#[derive(PartialEq, Eq)]
enum Ended {
    Reader,
    Connection,
}

/// Puts what comes into a queue.
async fn pump(
    shared: &Shared,
    queue: Weak<Mutex<Queue>>,
    mut gone: Listener,
    mut subscriber: Subscriber,
) -> Ended {
    loop {
        let message = match select(subscriber.next(), gone.hear()).await {
            Either::Left((Some(message), _)) => message,
            Either::Left((None, _)) => return Ended::Connection,
            Either::Right(_) => {
                shared.counts.subscribed.fetch_sub(1, Ordering::Relaxed);
                return Ended::Reader;
            }
        };
        shared.counts.received.fetch_add(1, Ordering::Relaxed);
        let letter = read(message, shared.limits.letter_max_bytes);
        let taken = match (letter, queue.upgrade()) {
            (Ok(letter), Some(queue)) => put(&queue, letter),
            _ => false,
        };
        if !taken {
            shared.lost();
        }
    }
}

fn to_map(headers: &Headers) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers.iter() {
        map.insert(name, value);
    }
    map
}

/// The letter in a message. Anybody may publish on the server.
fn read(message: Message, max_bytes: usize) -> Result<Letter> {
    let mut headers = Headers::new();
    for (name, values) in message.headers.iter().flat_map(HeaderMap::iter) {
        let name: &str = name.as_ref();
        if let Some(value) = values.first() {
            headers.set(name, value.as_str())?;
        }
    }
    let letter = Letter {
        subject: Topic::parse(&message.subject)?,
        headers,
        payload: message.payload.to_vec(),
        reply_to: message.reply.as_deref().map(Topic::parse).transpose()?,
    };
    letter.check_size(max_bytes)?;
    Ok(letter)
}
