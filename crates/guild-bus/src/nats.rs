//! Bells between processes, over the core subjects of a NATS server.
//!
//! A bell of topic `audit` is a message on `{namespace}.bell.audit` whose payload is the number in decimal. A process
//! hears every bell of its namespace by one subscription, so a listener hears from the moment it is made. Letters have
//! other subjects ([`crate::mail`]): whoever listens for bells is not sent them. The server keeps
//! nothing: whenever a bell may have been missed, every listener is rung with [`ANYTHING`]. What was handed to a
//! connection that broke is lost to the others, who look by themselves now and then.
//!
//! [`Nats`] is the handle; [`Service`] owns the connection and must run inside a tokio runtime.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, ServerAddr, Subscriber};
use futures_util::StreamExt;
use futures_util::future::{ready, select};
use guild_protocol::env::{Clock, Random, Shutdown};

use crate::error::{Error, Result};
use crate::subject::{self, Topic};
use crate::{ANYTHING, Bus, Listener, Local, Ringer, lock};

mod message;
mod queue;

use queue::Queue;

/// Where the server is, and whose bells are heard.
#[derive(Clone, PartialEq, Eq)]
pub struct Options {
    /// `nats://host:port`, or `tls://host:port`; a name and a password may stand before the host.
    pub url: String,
    /// The first token of every subject. Processes with the same store share it; all others have another.
    pub namespace: String,
    /// How many topics may wait for the server; bells of further ones stay in this process.
    pub queue_max_topics: usize,
    /// The longest pause before the next try to connect.
    pub retry_max_ms: i64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            url: String::new(),
            namespace: "guild".to_owned(),
            queue_max_topics: 10_000,
            retry_max_ms: 5_000,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the address: there may be a password in it.
        f.debug_struct("Options").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Options {
    /// Where the server is, if the options are good.
    pub fn check(&self) -> Result<Address> {
        if self.namespace.is_empty()
            || !subject::is_plain(&self.namespace)
            || self.namespace.len() > subject::TOKEN_MAX_BYTES
        {
            let start: String = self.namespace.chars().take(80).collect();
            return Err(Error::BadNamespace(format!("{start:?} cannot be a namespace")));
        }
        let bad = |why: &str| Error::BadUrl(format!("the address of the bus: {why}"));
        if !["nats://", "tls://"].iter().any(|scheme| self.url.starts_with(scheme)) {
            return Err(bad("it does not begin with nats:// or tls://"));
        }
        let server: ServerAddr = self.url.parse().map_err(|_| bad("it cannot be read"))?;
        if server.host().is_empty() {
            return Err(bad("it names no host"));
        }
        Ok(Address(server))
    }
}

/// Where a server is. Shown without name and password.
#[derive(Clone, PartialEq, Eq)]
pub struct Address(ServerAddr);

impl Address {
    /// The name or number of the host.
    pub fn host(&self) -> &str {
        self.0.host()
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.0.port()
    }

    pub(crate) async fn connect(
        &self,
        options: ConnectOptions,
    ) -> Result<Client, async_nats::ConnectError> {
        options.connect(self.0.clone()).await
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host, port) = (self.0.scheme(), self.host(), self.port());
        if host.contains(':') {
            write!(f, "{scheme}://[{host}]:{port}")
        } else {
            write!(f, "{scheme}://{host}:{port}")
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

/// How a bus is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Status {
    /// Whether bells come and go.
    pub connected: bool,
    /// Topics that wait for the server.
    pub queued: usize,
    /// Bells handed to the connection.
    pub sent: u64,
    /// Bells heard from other processes.
    pub heard: u64,
    /// Messages of our namespace that were no bells.
    pub ignored: u64,
    /// Bells that stayed in this process: too many topics waited, or the topic is none.
    pub kept_back: u64,
}

#[derive(Default)]
struct Counts {
    connected: AtomicBool,
    sent: AtomicU64,
    heard: AtomicU64,
    ignored: AtomicU64,
    kept_back: AtomicU64,
}

struct Shared {
    local: Local,
    queue: Mutex<Queue>,
    /// Wakes the service when there is something to send.
    filled: Ringer,
    counts: Counts,
}

/// A bus that other processes hear too.
#[derive(Clone)]
pub struct Nats(Arc<Shared>);

impl Nats {
    /// A bus and the service that connects it. Until that runs, and whenever the server is out of reach, bells are
    /// heard in this process only.
    pub fn new(
        options: &Options,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<(Nats, Service)> {
        let address = options.check()?;
        let (filled, to_send) = Listener::pair();
        let shared = Arc::new(Shared {
            local: Local::new(),
            queue: Mutex::new(Queue::new(options.queue_max_topics)),
            filled,
            counts: Counts::default(),
        });
        let service = Service {
            options: options.clone(),
            address,
            shared: shared.clone(),
            to_send,
            clock,
            random,
        };
        Ok((Nats(shared), service))
    }

    /// How it is doing.
    pub fn status(&self) -> Status {
        let counts = &self.0.counts;
        Status {
            connected: counts.connected.load(Ordering::Relaxed),
            queued: lock(&self.0.queue).len(),
            sent: counts.sent.load(Ordering::Relaxed),
            heard: counts.heard.load(Ordering::Relaxed),
            ignored: counts.ignored.load(Ordering::Relaxed),
            kept_back: counts.kept_back.load(Ordering::Relaxed),
        }
    }
}

impl Bus for Nats {
    fn ring(&self, topic: &str, after: i64) {
        // Here at once; the server does not send our own bells back to us.
        self.0.local.ring(topic, after);
        self.0.send_later(topic, after);
    }

    fn listen(&self, topic: &str) -> Listener {
        self.0.local.listen(topic)
    }
}

impl Shared {
    fn send_later(&self, topic: &str, after: i64) {
        if Topic::is_valid(topic) && lock(&self.queue).put(topic, after) {
            self.filled.ring(0);
        } else {
            self.counts.kept_back.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What the client says about its connection. A listener keeps the smaller number, so the worse news wins.
const LOST: i64 = 0;
const MISSED: i64 = 1;

const ALONE: &str = "until it is back, other processes notice later";

/// Keeps the connection. Dropping it closes the connection.
pub struct Service {
    options: Options,
    address: Address,
    shared: Arc<Shared>,
    to_send: Listener,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

/// A connection whose subscription the server has confirmed.
struct Session {
    client: Client,
    incoming: Subscriber,
    news: Listener,
}

impl Service {
    /// Where it connects to.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Connects, again and again, until the shutdown.
    pub async fn run(mut self, shutdown: Shutdown) {
        select(pin!(self.stay_connected()), shutdown.triggered()).await;
    }

    async fn stay_connected(&mut self) {
        let mut failures: u32 = 0;
        loop {
            match self.connect().await {
                Ok(session) => {
                    failures = 0;
                    tracing::info!(server = %self.address, "the bus is connected");
                    self.serve(session).await;
                    tracing::warn!(server = %self.address, "the bus has lost its server: {ALONE}");
                }
                Err(why) if failures == 0 => {
                    let server = &self.address;
                    tracing::warn!(%server, why, "the bus does not reach its server: {ALONE}");
                }
                Err(why) => {
                    tracing::debug!(server = %self.address, why, failures, "the bus tries again");
                }
            }
            failures = failures.saturating_add(1);
            let pause_ms = pause_ms(failures, self.options.retry_max_ms, self.random.next_u64());
            self.clock.sleep(pause_ms).await;
        }
    }

    async fn connect(&self) -> Result<Session, String> {
        let (ringer, news) = Listener::pair();
        let tell = move |event: Event| {
            match event {
                Event::Disconnected | Event::Closed => drop(ringer.ring(LOST)),
                Event::SlowConsumer(_) => drop(ringer.ring(MISSED)),
                _ => {}
            }
            ready(())
        };
        let options = ConnectOptions::new()
            .name("guild")
            .no_echo()
            // The client's own tries go on when nobody holds it any more; ours end with the service. Zero would mean
            // for ever.
            .max_reconnects(1)
            // A server that vanished without a word is found out after three of these.
            .ping_interval(Duration::from_secs(10))
            .request_timeout(Some(Duration::from_secs(2)))
            .event_callback(tell);
        let said = |error: &dyn fmt::Display| error.to_string();
        let client = self.address.connect(options).await.map_err(|e| said(&e))?;
        let namespace = &self.options.namespace;
        let incoming =
            client.subscribe(message::subject(namespace, ">")).await.map_err(|e| said(&e))?;
        // A question that nobody answers comes back from the server, after it has read the subscription. Whoever is
        // told from here on misses nothing. Without an answer it is only likely.
        let _ = client.request(namespace.clone(), "".into()).await;
        Ok(Session { client, incoming, news })
    }

    /// Carries bells until the connection is lost.
    async fn serve(&mut self, session: Session) {
        let Session { client, incoming, mut news } = session;
        let shared = &*self.shared;
        shared.counts.connected.store(true, Ordering::Relaxed);
        shared.local.ring_all(ANYTHING);
        let watch = async {
            while news.hear().await != LOST {
                tracing::warn!("bells came faster than they were heard");
                shared.local.ring_all(ANYTHING);
            }
        };
        let namespace = &self.options.namespace;
        let send = send(shared, &mut self.to_send, &client, namespace);
        let receive = receive(shared, incoming, namespace);
        select(pin!(watch), pin!(select(pin!(send), pin!(receive)))).await;
        shared.counts.connected.store(false, Ordering::Relaxed);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.counts.connected.store(false, Ordering::Relaxed);
    }
}

/// Hands bells to the client until that is gone.
async fn send(shared: &Shared, to_send: &mut Listener, client: &Client, namespace: &str) {
    loop {
        while let Some((topic, after)) = { lock(&shared.queue).take() } {
            let subject = message::subject(namespace, &topic);
            if client.publish(subject, message::payload(after).into()).await.is_err() {
                shared.send_later(&topic, after);
                return;
            }
            shared.counts.sent.fetch_add(1, Ordering::Relaxed);
        }
        to_send.hear().await;
    }
}

/// Rings what comes in until nothing more can.
async fn receive(shared: &Shared, mut incoming: Subscriber, namespace: &str) {
    while let Some(heard) = incoming.next().await {
        match message::read(namespace, &heard.subject, &heard.payload) {
            Some((topic, after)) => {
                shared.counts.heard.fetch_add(1, Ordering::Relaxed);
                shared.local.ring(topic, after);
            }
            None => {
                shared.counts.ignored.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(
                    bytes = heard.payload.len(),
                    "a message of our namespace is no bell"
                );
            }
        }
    }
}

/// From 25 ms, doubled with every failure; the upper half is drawn, so that many processes do not come back at once.
pub(crate) fn pause_ms(failures: u32, most_ms: i64, drawn: u64) -> i64 {
    let most_ms = u64::try_from(most_ms).unwrap_or(0).max(2);
    let whole =
        50_u64.saturating_mul(2_u64.saturating_pow(failures.saturating_sub(1))).min(most_ms);
    let half = whole / 2;
    i64::try_from(half + drawn % (whole - half + 1)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, namespace: &str) -> Result<String> {
        let options =
            Options { url: url.to_owned(), namespace: namespace.to_owned(), ..Options::default() };
        options.check().map(|address| address.to_string())
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        let shown = |url| check(url, "guild").unwrap();
        assert_eq!(shown("nats://h"), "nats://h:4222");
        assert_eq!(shown("tls://user:secret@h.example:1"), "tls://h.example:1");
        assert_eq!(shown("nats://[::1]:4223"), "nats://[::1]:4223");
        let url = "nats://user:secret@h".to_owned();
        let options = Options { url, ..Options::default() };
        let shown = format!("{options:?} {:?}", options.check().unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn bad_options_are_refused_without_their_password() {
        for url in [
            "",
            "h:4222",
            "http://h",
            "ws://h",
            "nats://",
            "nats://u:secret@",
            "nats://u:secret@h:x",
        ] {
            let error = check(url, "guild").unwrap_err();
            assert_eq!(error.code().name, "bus.bad_url", "{url:?}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        for namespace in ["", "a.b", "a b", "*", ">", "Guild", "$SYS", "ä", &"n".repeat(200)] {
            let error = check("nats://h", namespace).unwrap_err();
            assert_eq!(error.code().name, "bus.bad_namespace", "{namespace:?}");
        }
    }

    #[test]
    fn the_pause_grows_to_its_limit_and_is_never_none() {
        assert_eq!((pause_ms(1, 5_000, 0), pause_ms(1, 5_000, 25)), (25, 50));
        assert_eq!((pause_ms(2, 5_000, 0), pause_ms(2, 5_000, 50)), (50, 100));
        assert_eq!(
            (pause_ms(u32::MAX, 5_000, 0), pause_ms(u32::MAX, 5_000, 2_500)),
            (2_500, 5_000)
        );
        assert!(pause_ms(1, i64::MIN, u64::MAX) > 0);
    }
}
