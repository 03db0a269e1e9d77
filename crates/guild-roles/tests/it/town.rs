//! Nodes that meet at one relay, without sockets: what a node publishes reaches the intake of every node.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use guild_bus::{Bus, Local};
use guild_ledger::policy::Bundle;
use guild_ledger::{Account, Limit, NewTransfer, Step, TransferId, ledger, receivable};
use guild_network::content::Content;
use guild_network::intake::{Intake, Options as IntakeOptions, Origin};
use guild_network::{archive, publish};
use guild_protocol::amount::{Amount, AssetId, Msat};
use guild_protocol::env::{BoxFuture, Clock, Random, Shutdown, Signer, UnixMs};
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::nostr::{Event, Filter, Limits};
use guild_protocol::schema::{Registry, SchemaId};
use guild_roles::buyer::{self, Buyer, Choice, Wish};
use guild_roles::disputes::{self, Disputes};
use guild_roles::lifecycle::Lifecycle;
use guild_roles::meeting::{self, Meetings};
use guild_roles::provider::{self, Embedder, Provider, Worker};
use guild_roles::reference::{Refer, fetch_from, refer_to};
use guild_roles::reviews::{self, Reviews};
use guild_roles::router::{Copies, Options as RouterOptions, Router};
use guild_roles::workshop::Workshop;
use guild_store::outbox::{Deliver, Drainer, Failure, Message, Options as OutboxOptions, TOPIC};
use guild_store::{Hooks, Migrations, Options, Service, Store, Tx};
use serde_json::json;

/// The address of the relay.
pub(crate) const RELAY: &str = "ws://town.example";
/// When everything begins.
pub(crate) const T0: UnixMs = 1_800_000_000_000;
/// What work costs here, unless a test says otherwise.
pub(crate) const PRICE: Msat = Msat(700);

/// Time that passes by itself only as fast as the machine does, and that a test can put forward.
pub(crate) struct Hand {
    ahead_ms: AtomicI64,
    begun: std::time::Instant,
}

impl Hand {
    #[expect(clippy::disallowed_methods, reason = "the clock of the tests has to begin somewhere")]
    fn new() -> Hand {
        Hand { ahead_ms: AtomicI64::new(0), begun: std::time::Instant::now() }
    }

    pub(crate) fn forward(&self, ms: i64) {
        self.ahead_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for Hand {
    fn now_ms(&self) -> UnixMs {
        let passed = i64::try_from(self.begun.elapsed().as_millis()).unwrap();
        T0 + passed + self.ahead_ms.load(Ordering::SeqCst)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock of the tests")]
    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        let wait = std::time::Duration::from_millis(u64::try_from(duration_ms).unwrap_or(0));
        Box::pin(tokio::time::sleep(wait))
    }
}

/// Numbers that are different each time, and the same in every run.
#[derive(Default)]
pub(crate) struct Dice(AtomicU64);

impl Random for Dice {
    fn fill(&self, bytes: &mut [u8]) {
        for byte in bytes {
            let thrown = self.0.fetch_add(1, Ordering::SeqCst).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *byte = u8::try_from(thrown >> 56).unwrap();
        }
    }
}

pub(crate) fn key(n: u8) -> SecretKey {
    SecretKey::from_bytes([n; 32]).unwrap()
}

pub(crate) fn embedding() -> SchemaId {
    "oa.embedding.v1".parse().unwrap()
}

/// A wish that costs up to 1000 msat and waits for a minute.
pub(crate) fn wish(text: &str, provider: Choice) -> Wish {
    Wish {
        schema_id: embedding(),
        input: json!({"texts": [text], "dimensions": 8}),
        budget: Msat(1_000),
        time_limit_ms: 60_000,
        provider,
        private: false,
        policy: None,
        kind: None,
        idempotency_key: Some(text.to_owned()),
    }
}

/// The relay: everything that was published, and who listens.
#[derive(Clone, Default)]
pub(crate) struct Hub {
    pub(crate) seen: Arc<Mutex<Vec<Event>>>,
    intakes: Arc<Mutex<Vec<Intake>>>,
    /// Whether it passes everything on, and never says that it took something.
    pub(crate) withholds: Arc<AtomicBool>,
}

impl Hub {
    /// Publishes an event, whoever made it.
    pub(crate) async fn post(&self, event: Event) {
        self.seen.lock().unwrap().push(event.clone());
        let intakes = self.intakes.lock().unwrap().clone();
        for intake in intakes {
            intake.offer(&Origin::Relay(RELAY.to_owned()), event.clone()).await;
        }
    }

    /// How many events came to a node that had them already, over all nodes.
    pub(crate) fn known(&self) -> u64 {
        self.intakes.lock().unwrap().iter().map(|intake| intake.counts().known).sum()
    }

    /// Takes what a node publishes, and says so.
    fn sink(&self, store: &Store) -> Deliver {
        let (hub, store) = (self.clone(), store.clone());
        Arc::new(move |message: Message| {
            let (hub, store) = (hub.clone(), store.clone());
            Box::pin(async move {
                let event = Event::parse(message.body.as_bytes(), &Limits::DEFAULT).unwrap();
                let id = event.id;
                hub.post(event).await;
                if hub.withholds.load(Ordering::SeqCst) {
                    return Ok(());
                }
                let said = (publish::AckState::Acked, "");
                let told = store.write(move |tx| publish::acknowledge(tx, &id, RELAY, said, T0));
                told.await.map_err(|e: guild_network::Error| Failure::Retry(e.to_string()))
            })
        })
    }

    /// What was published and passes a filter, each once.
    pub(crate) fn published(&self, filter: &Filter) -> Vec<Event> {
        let seen = self.seen.lock().unwrap();
        let passing = seen.iter().filter(|event| filter.matches(event));
        let by_id: BTreeMap<_, _> = passing.map(|event| (event.id, event.clone())).collect();
        by_id.into_values().collect()
    }
}

#[expect(dead_code, reason = "held only so that it is removed at the end")]
enum Place {
    Directory(tempfile::TempDir),
    Database(testbed::Database),
}

/// Stops a service in the middle of whatever it does, and lets it go on.
#[derive(Clone, Default)]
pub(crate) struct Hold(Arc<Mutex<(bool, Option<Waker>)>>);

impl Hold {
    pub(crate) fn stop(&self) {
        self.0.lock().unwrap().0 = true;
    }

    pub(crate) fn go_on(&self) {
        let mut held = self.0.lock().unwrap();
        held.0 = false;
        held.1.take().into_iter().for_each(Waker::wake);
    }

    fn over(self, mut service: BoxFuture<()>) -> BoxFuture<()> {
        Box::pin(poll_fn(move |cx| {
            let mut held = self.0.lock().unwrap();
            if held.0 {
                held.1 = Some(cx.waker().clone());
                return Poll::Pending;
            }
            drop(held);
            service.as_mut().poll(cx)
        }))
    }
}

/// A node with its store.
pub(crate) struct Node {
    pub(crate) store: Store,
    service: Service,
    bus: Arc<Local>,
    _place: Place,
}

/// All nodes, and what runs for them.
pub(crate) struct Town {
    pub(crate) hub: Hub,
    pub(crate) clock: Arc<Hand>,
    pub(crate) random: Arc<Dice>,
    nodes: Vec<Node>,
    running: FuturesUnordered<BoxFuture<()>>,
    shutdown: Shutdown,
    /// What requests may refer to; everybody reads the same here.
    pub(crate) content: Option<Content>,
}

impl Town {
    pub(crate) fn new() -> Town {
        Town {
            hub: Hub::default(),
            clock: Arc::new(Hand::new()),
            random: Arc::default(),
            nodes: Vec::new(),
            running: FuturesUnordered::new(),
            shutdown: Shutdown::new(),
            content: None,
        }
    }

    /// What is kept at a node is what requests refer to from now on.
    pub(crate) fn share_content_of(&mut self, node: usize) {
        let (store, clock) = (self.nodes[node].store.clone(), self.clock.clone());
        self.content = Some(Content::new(Default::default(), store, clock, self.random.clone()));
    }

    /// Keeps what is too large for a request of this node, where content is shared.
    fn refer(&self, node: usize) -> Option<Refer> {
        let (store, clock) = (self.nodes[node].store.clone(), self.clock.clone());
        let content = self.content.clone()?;
        Some(refer_to(content, store, clock, "http://town.example"))
    }

    /// One more node, on a file; its number.
    pub(crate) fn node(&mut self) -> usize {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::file(&dir.path().join("node.db"));
        self.open(&options, Place::Directory(dir))
    }

    /// One more node, on a server.
    pub(crate) fn node_on_postgres(&mut self) -> usize {
        let database = testbed::Database::new().unwrap();
        let options = Options::at(&database.url());
        self.open(&options, Place::Database(database))
    }

    fn open(&mut self, options: &Options, place: Place) -> usize {
        let all = Migrations::store()
            .and(guild_ledger::migrations())
            .and(guild_network::migrations())
            .and(guild_market::migrations())
            .and(guild_roles::migrations());
        let bus = Arc::new(Local::new());
        let bells = bus.clone();
        let hooks = Hooks::on_ring(move |topic, after| bells.ring(topic, after));
        let service = Service::open(options, &all, hooks, T0).unwrap();
        let node = Node { store: service.handle(), service, bus, _place: place };
        self.wire(&node);
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// Its intake and its outbox.
    fn wire(&mut self, node: &Node) {
        let options = IntakeOptions { workers: 0, ..IntakeOptions::default() };
        let (intake, service) =
            Intake::new(options, node.store.clone(), &*node.bus, self.clock.clone());
        self.hub.intakes.lock().unwrap().push(intake);
        let stop = self.shutdown.clone();
        self.running.push(Box::pin(async move { service.run(stop).await.unwrap() }));
        let mut bell = node.bus.listen(TOPIC);
        let wake = Box::new(move || {
            let bell = bell.hear();
            Box::pin(async move {
                bell.await;
            }) as BoxFuture<()>
        });
        let options = OutboxOptions { sweep_ms: 50, ..OutboxOptions::default() };
        let (store, clock) = (node.store.clone(), self.clock.clone());
        let drainer = Drainer::new(options, store, clock, self.random.clone()).unwrap();
        let drainer = drainer.sink(publish::SINK, self.hub.sink(&node.store), wake);
        self.running.push(Box::pin(drainer.run(self.shutdown.clone())));
    }

    pub(crate) fn store(&self, node: usize) -> &Store {
        &self.nodes[node].store
    }

    /// What a provider here offers, unless a test says otherwise.
    pub(crate) fn offer() -> provider::Options {
        provider::Options {
            prices: [(embedding(), PRICE)].into(),
            relays: vec![RELAY.to_owned()],
            sweep_ms: 20,
            upkeep_ms: 20,
            ..provider::Options::default()
        }
    }

    pub(crate) fn provider(&mut self, node: usize, key: SecretKey) -> Provider {
        self.provider_with(node, key, Town::offer(), Arc::new(Embedder))
    }

    pub(crate) fn provider_with(
        &mut self,
        node: usize,
        key: SecretKey,
        options: provider::Options,
        worker: Arc<dyn Worker>,
    ) -> Provider {
        self.provider_held(node, key, (options, worker), Hold::default())
    }

    /// A provider that can be stopped and let go on, as a process can.
    pub(crate) fn provider_held(
        &mut self,
        node: usize,
        key: SecretKey,
        (options, worker): (provider::Options, Arc<dyn Worker>),
        hold: Hold,
    ) -> Provider {
        let hub = self.hub.clone();
        let broadcast: provider::Broadcast = Arc::new(move |event| {
            let hub = hub.clone();
            Box::pin(async move { hub.post(event).await })
        });
        let parts = provider::Node {
            store: self.nodes[node].store.clone(),
            bus: self.nodes[node].bus.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            registry: Arc::new(Registry::builtin()),
            fetch: self.content.clone().map(|content| fetch_from(content, self.clock.clone())),
        };
        let (provider, service) = Provider::new(options, key, worker, broadcast, parts).unwrap();
        self.running.push(hold.over(Box::pin(service.run(self.shutdown.clone()))));
        provider
    }

    /// Who gets to know providers, and can be stopped and let go on, as a process can.
    pub(crate) fn meetings(
        &mut self,
        node: usize,
        key: SecretKey,
        options: meeting::Options,
        (examine, query): (meeting::Examine, meeting::Query),
        hold: Hold,
    ) -> Meetings {
        let options = meeting::Options { relays: vec![RELAY.to_owned()], sweep_ms: 20, ..options };
        let hub = self.hub.clone();
        let resend: meeting::Resend = Arc::new(move |event, _| {
            let hub = hub.clone();
            Box::pin(async move { hub.post(event).await })
        });
        let store = self.nodes[node].store.clone();
        let copies = Copies {
            key: Arc::new(SecretKey::from_bytes(key.to_bytes()).unwrap()),
            to: publish::Destinations::own(&[RELAY.to_owned()]),
        };
        let router = Router::new(
            RouterOptions::default(),
            store.clone(),
            self.clock.clone(),
            self.random.clone(),
            Some(copies),
        );
        let parts = meeting::Node {
            store,
            bus: self.nodes[node].bus.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            router,
            refer: self.refer(node),
            examine: Some(examine),
            resend,
            query,
        };
        let (meetings, service) = Meetings::new(options, key, parts);
        self.running.push(hold.over(Box::pin(service.run(self.shutdown.clone()))));
        meetings
    }

    /// Who says what became of providers, and listens to others.
    pub(crate) fn reviews(
        &mut self,
        node: usize,
        key: SecretKey,
        market: guild_market::review::Options,
    ) -> Reviews {
        let options = reviews::Options {
            relays: vec![RELAY.to_owned()],
            market,
            sweep_ms: 20,
            ..reviews::Options::default()
        };
        let parts = reviews::Node {
            store: self.nodes[node].store.clone(),
            bus: self.nodes[node].bus.clone(),
            clock: self.clock.clone(),
            is_disputed: Some(disputes::is_disputed()),
        };
        let (reviews, service) = Reviews::new(options, key, parts);
        self.running.push(Box::pin(service.run(self.shutdown.clone())));
        reviews
    }

    /// Who disputes about results: the buyer and the provider of a node, under these keys.
    pub(crate) fn disputes(&mut self, node: usize, keys: (SecretKey, SecretKey)) -> Disputes {
        let rules =
            disputes::Rules { arbiters: [key(9).public_key()].into(), ..Default::default() };
        let relays = vec![RELAY.to_owned()];
        let options = disputes::Options { relays, rules, sweep_ms: 20, ..Default::default() };
        let parts = disputes::Node {
            store: self.nodes[node].store.clone(),
            bus: self.nodes[node].bus.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            registry: Arc::new(Registry::builtin()),
            workshop: None,
        };
        let (disputes, service) = Disputes::new(options, keys, parts);
        self.running.push(Box::pin(service.run(self.shutdown.clone())));
        disputes
    }

    /// Who looks at everybody now and then.
    pub(crate) fn lifecycle(&mut self, lifecycle: Lifecycle) {
        self.running.push(Box::pin(lifecycle.run(self.shutdown.clone())));
    }

    /// A buyer with a full wallet.
    pub(crate) fn buyer(&mut self, node: usize, key: SecretKey) -> Buyer {
        self.buyer_with(node, key, buyer::Options::default(), Bundle::builtin().unwrap())
    }

    pub(crate) fn buyer_with(
        &mut self,
        node: usize,
        key: SecretKey,
        options: buyer::Options,
        policy: Bundle,
    ) -> Buyer {
        self.buyer_who_runs(node, key, (options, policy), None)
    }

    /// A buyer with somebody who chooses where nobody agrees.
    pub(crate) fn buyer_with_judge(
        &mut self,
        node: usize,
        key: SecretKey,
        options: buyer::Options,
        judge: Option<buyer::Ask>,
    ) -> Buyer {
        let hold = Hold::default();
        self.any_buyer(node, key, (options, Bundle::builtin().unwrap()), (None, judge), hold)
    }

    /// A buyer that can be stopped and let go on, as a process can.
    pub(crate) fn buyer_held(&mut self, node: usize, key: SecretKey, hold: Hold) -> Buyer {
        let options = (buyer::Options::default(), Bundle::builtin().unwrap());
        self.any_buyer(node, key, options, (None, None), hold)
    }

    /// A buyer that runs commands again, if there is a workshop.
    pub(crate) fn buyer_who_runs(
        &mut self,
        node: usize,
        key: SecretKey,
        (options, policy): (buyer::Options, Bundle),
        workshop: Option<Workshop>,
    ) -> Buyer {
        self.any_buyer(node, key, (options, policy), (workshop, None), Hold::default())
    }

    fn any_buyer(
        &mut self,
        node: usize,
        key: SecretKey,
        (options, policy): (buyer::Options, Bundle),
        (workshop, judge): (Option<Workshop>, Option<buyer::Ask>),
        hold: Hold,
    ) -> Buyer {
        let options = buyer::Options { relays: vec![RELAY.to_owned()], sweep_ms: 20, ..options };
        let parts = buyer::Node {
            store: self.nodes[node].store.clone(),
            bus: self.nodes[node].bus.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            registry: Arc::new(Registry::builtin()),
            policy: Arc::new(policy),
            workshop,
            judge,
            refer: self.refer(node),
            discovery: None,
        };
        let funded = self.nodes[node].store.write(fund);
        let (buyer, service) = Buyer::new(options, key, parts);
        let stop = self.shutdown.clone();
        let running = hold.over(Box::pin(service.run(stop)));
        self.running.push(Box::pin(async move {
            funded.await.unwrap();
            running.await;
        }));
        buyer
    }

    /// Runs a story while all services run, then ends them in order.
    pub(crate) fn tell<F: Future<Output = ()>>(self, story: F) {
        self.tell_and(story, std::future::ready(()));
    }

    /// The same, with what is to be seen once the services have ended.
    pub(crate) fn tell_and<F, G>(mut self, story: F, epilogue: G)
    where
        F: Future<Output = ()>,
        G: Future<Output = ()>,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let told = async {
            let running = &mut self.running;
            let all = Box::pin(async { while running.next().await.is_some() {} });
            match select(Box::pin(story), all).await {
                Either::Left(((), all)) => {
                    self.shutdown.trigger();
                    all.await;
                    epilogue.await;
                }
                Either::Right(_) => panic!("the services ended before the story"),
            }
        };
        runtime.block_on(testbed::in_time(told));
        for node in self.nodes {
            node.service.close();
        }
    }
}

pub(crate) fn fund(tx: &mut Tx<'_>) -> guild_ledger::Result<()> {
    let open = |tx: &mut Tx<'_>, owner, purpose, limit| {
        let account = Account::new(owner, purpose, AssetId::btc_ln(), limit)?;
        ledger::open(tx, &account, T0)?;
        Ok::<_, guild_ledger::Error>(account.account_id)
    };
    let step = Step::Post {
        debit: open(tx, "outside", "main", Limit::None)?,
        credit: open(tx, "node", "wallet", Limit::NeverNegative)?,
        amount: Amount::from(Msat(100_000)),
    };
    let transfer = NewTransfer::new(TransferId::named(0, &["funds"]), step, "funds")?;
    ledger::book(tx, &[vec![transfer]], T0)?.pop().unwrap().map(|_| ())
}

/// What a node owes a provider.
pub(crate) async fn payable(store: &Store, provider: PublicKey) -> i64 {
    let account = receivable::payable(&provider, AssetId::btc_ln()).unwrap();
    balance(store, account).await
}

/// What a buyer owes a node.
pub(crate) async fn owed(store: &Store, buyer: PublicKey) -> i64 {
    let read = store.read(move |rx| receivable::owed_units(rx, &buyer, AssetId::btc_ln()));
    read.await.unwrap()
}

/// What is left in a wallet and not held.
pub(crate) async fn wallet(store: &Store) -> i64 {
    let account = Account::new("node", "wallet", AssetId::btc_ln(), Limit::NeverNegative).unwrap();
    balance(store, account).await
}

async fn balance(store: &Store, account: Account) -> i64 {
    let read = store.read(move |rx| ledger::entries(rx, &[account.account_id.clone()].into()));
    read.await.unwrap().into_values().map(|entry| entry.balance.free_units()).sum()
}

/// Waits until something holds.
pub(crate) async fn until<F: Future<Output = bool>>(
    clock: &Hand,
    what: &str,
    holds: impl Fn() -> F,
) {
    // A minute and more: a loaded machine is slow, and only what never comes is a failure.
    for _ in 0..6_000 {
        if holds().await {
            return;
        }
        clock.sleep(10).await;
    }
    panic!("it never came: {what}");
}

/// Waits until a node has a provider's announcement and sign of life.
pub(crate) async fn until_known(clock: &Hand, store: &Store, provider: PublicKey) {
    until(clock, "the provider is known", || async {
        let read = store.read(move |rx| guild_network::index::provider(rx, &provider));
        read.await.unwrap().iter().any(|one| one.heard_ms.is_some())
    })
    .await;
}

/// Whether a node has an event.
pub(crate) async fn has(store: &Store, event: &Event) -> bool {
    let id = event.id;
    store.read(move |rx| archive::event(rx, &id)).await.unwrap().is_some()
}
