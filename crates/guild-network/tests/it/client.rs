//! The pool of relays against honest, hostile and foreign ones, over real sockets on loopback.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use guild_network::archive::{self, Verified};
use guild_network::client::{Options, Pool, RelayStatus, Scout, ScoutOptions, State, market_wants};
use guild_network::intake::{self, Intake};
use guild_network::publish::{self, Destinations};
use guild_protocol::env::{BoxFuture, Clock, Random, Shutdown, Signer, UnixMs};
use guild_protocol::nostr::{Event, Filter, kind};
use guild_store::Store;
use guild_store::outbox::{self, Drainer};
use tokio::task::JoinSet;

use crate::support::{Scratch, event, key};

mod foreign;
mod honest;
mod hostile;
mod relay;
mod scouted;

/// Real time: real sockets answer in it.
pub(crate) struct RealClock;

impl Clock for RealClock {
    fn now_ms(&self) -> UnixMs {
        testbed::now_ms()
    }

    #[expect(clippy::disallowed_methods, reason = "real sockets answer in real time")]
    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        let duration = Duration::from_millis(u64::try_from(duration_ms).unwrap_or(0));
        Box::pin(tokio::time::sleep(duration))
    }
}

struct Counting(AtomicU64);

impl Random for Counting {
    fn fill(&self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.0.fetch_add(1, Ordering::Relaxed).to_le_bytes()[0];
        }
    }
}

/// Runs a test; one that hangs fails.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(testbed::in_time(test));
}

/// Who the node is.
const US: u64 = 42;

fn now_s() -> u64 {
    guild_protocol::nostr::unix_s(testbed::now_ms())
}

/// An announcement that was made so many seconds ago.
fn card(n: u64, age_s: u64) -> Event {
    let d = n.to_string();
    event(1_000 + n, kind::ANNOUNCEMENT, now_s() - age_s, &[&["d", &d], &["k", "5050"]], "{}")
}

/// Settings that make a test short.
fn quick(relays: &[&str]) -> Options {
    let keys = BTreeSet::from([key(US).public_key()]);
    Options {
        relays: relays.iter().map(|&url| url.to_owned()).collect(),
        wants: market_wants(&keys, &BTreeSet::from([5050]), 86_400),
        connect_ms: 2_000,
        answer_ms: 500,
        publish_ms: 1_000,
        retry_min_ms: 20,
        retry_max_ms: 100,
        private_guests: true,
        ..Options::default()
    }
}

/// A node: store, intake, pool and outbox.
struct Node {
    scratch: Scratch,
    pool: Pool,
    intake: Intake,
    shutdown: Shutdown,
    services: JoinSet<()>,
}

impl Node {
    fn start(options: Options) -> Node {
        Node::on(Scratch::sqlite(), options)
    }

    fn on(scratch: Scratch, options: Options) -> Node {
        Node::with(scratch, options, None)
    }

    fn with(scratch: Scratch, options: Options, scout: Option<ScoutOptions>) -> Node {
        let clock: Arc<dyn Clock> = Arc::new(RealClock);
        let random: Arc<dyn Random> = Arc::new(Counting(AtomicU64::new(1)));
        let store = scratch.store.clone();
        let (intake, checking) =
            Intake::new(intake::Options::default(), store.clone(), &*scratch.bus, clock.clone());
        let signer = Arc::new(key(US));
        let (pool, service) = Pool::new(
            options,
            signer,
            intake.clone(),
            store.clone(),
            clock.clone(),
            random.clone(),
        )
        .unwrap();
        let deliver = publish::sink(pool.clone(), store.clone(), clock.clone());
        let outbox_options = outbox::Options {
            sweep_ms: 20,
            backoff_min_ms: 20,
            backoff_max_ms: 100,
            ..outbox::Options::default()
        };
        let guest_options = publish::guest_options(&outbox_options);
        let drainer = |options, sink| {
            let wake = Box::new(|| Box::pin(std::future::pending()) as BoxFuture<()>);
            let drainer = Drainer::new(options, store.clone(), clock.clone(), random.clone());
            drainer.unwrap().sink(sink, deliver.clone(), wake)
        };
        let drainers =
            [drainer(outbox_options, publish::SINK), drainer(guest_options, publish::GUEST_SINK)];
        let (shutdown, mut services) = (Shutdown::new(), JoinSet::new());
        let stop = shutdown.clone();
        services.spawn(async move { checking.run(stop).await.unwrap() });
        services.spawn(service.run(shutdown.clone()));
        if let Some(options) = scout {
            services.spawn(Scout::new(options, pool.clone()).run(shutdown.clone()));
        }
        for drainer in drainers {
            services.spawn(drainer.run(shutdown.clone()));
        }
        Node { scratch, pool, intake, shutdown, services }
    }

    /// Ends all services, as the death of the process would; the database stays.
    async fn stop(mut self) -> Scratch {
        self.shutdown.trigger();
        self.services.shutdown().await;
        self.scratch
    }

    fn store(&self) -> &Store {
        &self.scratch.store
    }

    fn relay(&self, url: &str) -> RelayStatus {
        self.pool.status().into_iter().find(|status| status.url == url).unwrap()
    }

    /// Looks until it is so.
    async fn until(&self, what: &str, is_so: impl AsyncFn(&Node) -> bool) {
        for _ in 0..12_000 {
            if is_so(self).await {
                return;
            }
            RealClock.sleep(10).await;
        }
        panic!("not within 120 s: {what}; {:#?}", self.pool.status());
    }

    async fn until_relay(&self, url: &str, what: &str, is_so: impl Fn(&RelayStatus) -> bool) {
        self.until(what, async |node: &Node| is_so(&node.relay(url))).await;
    }

    async fn until_stored(&self, events: &[Event]) {
        let ids: Vec<_> = events.iter().map(|event| event.id).collect();
        self.until("stored", async |node: &Node| {
            let ids = ids.clone();
            let found = node.store().read(move |rx| {
                ids.iter().try_fold(0, |n, id| {
                    Ok::<_, guild_network::Error>(
                        n + usize::from(archive::event(rx, id)?.is_some()),
                    )
                })
            });
            found.await.unwrap() == events.len()
        })
        .await;
    }

    /// All stored events of a kind.
    async fn stored(&self, kind: u16) -> Vec<String> {
        let filters = vec![Filter::kinds([kind])];
        let read = self.store().read(move |rx| archive::query(rx, &filters, 100_000, now_s()));
        read.await.unwrap().into_iter().map(|stored| stored.json).collect()
    }

    /// Queues an event of ours for these relays of our own.
    async fn publish(&self, event: &Event, relays: &[&str]) {
        let relays: Vec<String> = relays.iter().map(|&url| url.to_owned()).collect();
        self.publish_to(event, Destinations::own(&relays)).await;
    }

    async fn publish_to(&self, event: &Event, to: Destinations) {
        let event = Verified::check(event.clone()).unwrap();
        let now_ms = testbed::now_ms();
        let queued = self.store().write(move |tx| publish::enqueue(tx, &event, &to, now_ms)).await;
        queued.unwrap();
    }

    async fn acks(&self, event: &Event) -> Vec<(String, String)> {
        let id = event.id;
        let acks = self.store().read(move |rx| publish::acks(rx, &id)).await.unwrap();
        acks.into_iter().map(|ack| (ack.state.as_str().to_owned(), ack.message)).collect()
    }

    async fn until_acked(&self, event: &Event, expected: &[(&str, &str)]) {
        let expected: Vec<_> = expected
            .iter()
            .map(|(state, said)| ((*state).to_owned(), (*said).to_owned()))
            .collect();
        self.until("acked", async |node: &Node| node.acks(event).await == expected).await;
    }
}

fn ours(n: u64) -> Event {
    event(US, kind::DEFAULT_REQUEST, now_s(), &[&["n", &n.to_string()]], "")
}
