//! A kernel with everything that meets the outside, running.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use guild_bus::Bus;
use guild_bus::mail::{Letter, Limits, Local, Mail, Mailbox};
use guild_bus::subject::{Pattern, Prefix, Topic};
use guild_kernel::outside::{
    CallKey, Desk, DeskOptions, Teller, TellerOptions, TellerParts, command_sink,
};
use guild_kernel::turn::COMMAND_SINK;
use guild_protocol::env::{BoxFuture, Clock, Random, Shutdown};
use guild_store::outbox::{Drainer, Options};
use serde_json::{Map, Value};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::world::{Node, T0};

/// Time as it passes, from the beginning of all tests on.
pub(crate) struct TestClock {
    started_ms: i64,
    ahead_ms: AtomicI64,
}

impl TestClock {
    pub(crate) fn new() -> TestClock {
        TestClock { started_ms: testbed::now_ms(), ahead_ms: AtomicI64::new(0) }
    }

    pub(crate) fn jump(&self, ms: i64) {
        self.ahead_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now_ms(&self) -> i64 {
        T0 + testbed::now_ms() - self.started_ms + self.ahead_ms.load(Ordering::SeqCst)
    }

    #[expect(clippy::disallowed_methods, reason = "real services answer in real time")]
    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        let duration = Duration::from_millis(u64::try_from(duration_ms).unwrap_or(0));
        Box::pin(async move { tokio::time::sleep(duration).await })
    }
}

/// Counts, so that every token is another one.
#[derive(Default)]
pub(crate) struct Counting(AtomicI64);

impl Random for Counting {
    fn fill(&self, bytes: &mut [u8]) {
        let count = self.0.fetch_add(1, Ordering::SeqCst).to_be_bytes();
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = count[at % count.len()];
        }
    }
}

pub(crate) struct Office<'n> {
    pub(crate) node: &'n Node,
    pub(crate) runtime: Runtime,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) mail: Arc<dyn Mail>,
    pub(crate) bus: Arc<guild_bus::Local>,
    pub(crate) prefix: Prefix,
    pub(crate) key: CallKey,
    random: Arc<Counting>,
}

fn local(clock: &Arc<TestClock>) -> Arc<dyn Mail> {
    Arc::new(Local::new(Limits::default(), clock.clone()))
}

impl<'n> Office<'n> {
    pub(crate) fn new(node: &'n Node) -> Office<'n> {
        Office::with(node, "guild", |_, clock| local(clock))
    }

    /// An office whose mail is this.
    pub(crate) fn with(
        node: &'n Node,
        namespace: &str,
        mail: impl FnOnce(&Runtime, &Arc<TestClock>) -> Arc<dyn Mail>,
    ) -> Office<'n> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let (clock, random) = (Arc::new(TestClock::new()), Arc::new(Counting::default()));
        let mail = mail(&runtime, &clock);
        let key = runtime.block_on(CallKey::load(&node.store, &*random, T0)).unwrap();
        let prefix = Prefix::of(namespace).unwrap();
        Office { node, runtime, clock, mail, bus: Arc::default(), prefix, key, random }
    }

    /// Sends commands from now on.
    pub(crate) fn drain(&self) -> JoinHandle<()> {
        let sink = command_sink(
            self.mail.clone(),
            self.prefix.clone(),
            self.key.clone(),
            self.clock.clone(),
        );
        let options = Options { sweep_ms: 20, backoff_min_ms: 20, ..Options::default() };
        let drainer =
            Drainer::new(options, self.node.store.clone(), self.clock.clone(), self.random.clone());
        let never = Box::new(|| Box::pin(std::future::pending()) as BoxFuture<()>);
        let drainer = drainer.unwrap().sink(COMMAND_SINK, sink, never);
        self.runtime.spawn(drainer.run(Shutdown::new()))
    }

    /// Takes the letters of tools from now on.
    pub(crate) fn desk(&self, options: DeskOptions) -> JoinHandle<()> {
        self.desk_with(options, BTreeMap::new())
    }

    /// The same, of a process with this environment.
    pub(crate) fn desk_with(
        &self,
        options: DeskOptions,
        environment: BTreeMap<String, String>,
    ) -> JoinHandle<()> {
        let desk = Desk::new(
            options,
            self.node.store.clone(),
            self.mail.clone(),
            self.prefix.clone(),
            self.key.clone(),
            self.clock.clone(),
        )
        .with_environment(environment);
        let run = desk.run(Shutdown::new());
        self.runtime.spawn(async { run.await.unwrap() })
    }

    /// Tells what happens from now on.
    pub(crate) fn teller(&self, holder: &str, mail: Arc<dyn Mail>) -> JoinHandle<()> {
        let options = TellerOptions {
            holder: holder.to_owned(),
            sweep_ms: 20,
            lease_ms: 10_000,
            ..TellerOptions::default()
        };
        let bus: Arc<dyn Bus> = self.bus.clone();
        let parts = TellerParts {
            store: self.node.store.clone(),
            bus,
            mail,
            prefix: self.prefix.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
        };
        self.runtime.spawn(Teller::new(options, parts).run(Shutdown::new()))
    }

    /// Takes what is sent to a subject of any project.
    pub(crate) fn listen(&self, subject: &str) -> Mailbox {
        let pattern = Pattern::everywhere(&self.prefix, subject).unwrap();
        self.mail.subscribe(pattern, Some("test"))
    }

    pub(crate) fn next(&self, mailbox: &mut Mailbox) -> Letter {
        self.within(mailbox.take())
    }

    /// Waits for something; whoever waits too long has failed.
    #[expect(clippy::disallowed_methods, reason = "real services answer in real time")]
    pub(crate) fn within<T>(&self, wanted: impl Future<Output = T>) -> T {
        let patience = Duration::from_secs(60);
        self.runtime.block_on(async { tokio::time::timeout(patience, wanted).await }).unwrap()
    }

    /// Looks until it is so.
    pub(crate) fn until(&self, is_so: impl Fn() -> bool) {
        for _ in 0..6_000 {
            if is_so() {
                return;
            }
            self.runtime.block_on(self.clock.sleep(10));
        }
        panic!("it never was so");
    }

    /// The letter with which a tool that was sent this command asks or reports.
    pub(crate) fn answer_to(&self, command: &Letter, subject: &str, payload: &[u8]) -> Letter {
        let [project_id, channel_id] = ["Guild-Project-Id", "Guild-Channel-Id"]
            .map(|name| command.headers.get(name).unwrap_or("p"));
        let topic = format!("{}.{project_id}.{channel_id}.{subject}", self.prefix.as_str());
        let mut letter = Letter::new(Topic::parse(&topic).unwrap(), payload.to_vec());
        letter.headers = command.headers.clone();
        letter
    }

    pub(crate) fn ask(&self, letter: Letter) -> Map<String, Value> {
        self.within(self.mail.ask(letter, 30_000)).unwrap().body().unwrap()
    }
}
