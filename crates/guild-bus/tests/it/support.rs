//! Real time, real chance, and buses that are connected.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where its set-up fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use guild_bus::nats::Options;
use guild_bus::{ANYTHING, Bus, Listener, Nats};
use guild_protocol::env::{BoxFuture, Clock, Random, Shutdown, UnixMs};
use tokio::task::JoinSet;

pub(crate) struct RealClock;

impl Clock for RealClock {
    fn now_ms(&self) -> UnixMs {
        0
    }

    #[expect(clippy::disallowed_methods, reason = "a real server answers in real time")]
    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        let duration = Duration::from_millis(u64::try_from(duration_ms).unwrap_or(0));
        Box::pin(tokio::time::sleep(duration))
    }
}

pub(crate) struct NoRandom;

impl Random for NoRandom {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }
}

/// Runs a test; one that hangs is ended.
#[expect(clippy::disallowed_methods, reason = "a real server answers in real time")]
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(120), test).await.expect("the test hangs");
    });
}

/// A namespace that no other test has.
pub(crate) fn namespace() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("test_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The bus of one process, and its service.
pub(crate) struct Process {
    pub(crate) bus: Nats,
    services: JoinSet<()>,
    pub(crate) shutdown: Shutdown,
}

impl Process {
    pub(crate) fn start(options: &Options) -> Process {
        let (bus, service) = Nats::new(options, Arc::new(RealClock), Arc::new(NoRandom)).unwrap();
        let (mut services, shutdown) = (JoinSet::new(), Shutdown::new());
        services.spawn(service.run(shutdown.clone()));
        Process { bus, services, shutdown }
    }

    /// One that other processes are heard by.
    pub(crate) async fn connected(url: &str, namespace: &str) -> Process {
        let options =
            Options { url: url.to_owned(), namespace: namespace.to_owned(), ..Options::default() };
        let process = Process::start(&options);
        process.until(|bus| bus.status().connected).await;
        process
    }

    /// Looks until it is so.
    pub(crate) async fn until(&self, is_so: impl Fn(&Nats) -> bool) {
        while !is_so(&self.bus) {
            RealClock.sleep(5).await;
        }
    }

    /// Waits for the end of the service.
    pub(crate) async fn ended(&mut self) {
        while self.services.join_next().await.is_some() {}
    }

    /// Drops the service in the middle.
    pub(crate) async fn abort(mut self) {
        self.services.shutdown().await;
    }
}

/// Everything that `ringing` has rung has arrived at `listening`: bells of one process keep their order.
pub(crate) async fn settle(ringing: &dyn Bus, listening: &dyn Bus) {
    let topic = namespace();
    let mut listener = listening.listen(&topic);
    ringing.ring(&topic, 1);
    hear(&mut listener).await;
}

/// The next bell that says something; after a connection there is one that does not.
pub(crate) async fn hear(listener: &mut Listener) -> i64 {
    loop {
        match listener.hear().await {
            ANYTHING => {}
            after => return after,
        }
    }
}
