//! The registry of a node, with a real intake in front of it: who is found, whatever strangers send.

mod attacks;
mod flood;
mod hires;

use std::sync::Arc;

use futures_util::future::join3;
use guild_bus::{Bus, Local};
use guild_ledger::policy::Bundle;
use guild_market::evaluation::Pace;
use guild_market::routing::{Change, Mutation};
use guild_network::intake::{Intake, Options as IntakeOptions, Origin, Verdict};
use guild_network::publish::Destinations;
use guild_protocol::amount::Msat;
use guild_protocol::env::{BoxFuture, Clock, Random, Shutdown, Signer, UnixMs};
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::nostr::announcement::{Announcement, JobPrices, Pricing};
use guild_protocol::nostr::heartbeat::Heartbeat;
use guild_protocol::nostr::{Draft, Event, kind, tag, unix_s};
use guild_protocol::schema::Registry;
use guild_roles::buyer::{self, Buyer, Choice};
use guild_roles::discovery::{Discovery, Entry, Health, Node, Options, Wanted, health};
use guild_roles::router::{Cause, Copies, Options as RouterOptions, Router, Status, TaskType};
use guild_store::{Hooks, Migrations, Service, Store};
use tokio::sync::watch;

use crate::town::{fund, wish};

const T0: UnixMs = 1_768_465_800_000;
const HOUR_MS: i64 = 3_600_000;
const WORK: &str = "oa.embedding.v1";

/// Time passes when the test says so.
struct Hand(watch::Sender<UnixMs>);

impl Hand {
    fn pass(&self, ms: i64) {
        self.0.send_modify(|now| *now += ms);
    }
}

impl Clock for Hand {
    fn now_ms(&self) -> UnixMs {
        *self.0.borrow()
    }

    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        let (mut moved, until) = (self.0.subscribe(), self.now_ms() + duration_ms);
        Box::pin(async move {
            // Whoever set the clock may be gone.
            let _ = moved.wait_for(|now| *now >= until).await;
        })
    }
}

struct Dice;

impl Random for Dice {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

fn key(n: u64) -> SecretKey {
    format!("{n:064x}").parse().unwrap()
}

fn who(n: u64) -> PublicKey {
    key(n).public_key()
}

/// A node that takes events in and keeps a registry.
#[derive(Clone)]
struct Hall {
    store: Store,
    clock: Arc<Hand>,
    intake: Intake,
    discovery: Discovery,
    router: Router,
    /// Somebody who hires by this registry. Nobody settles what it orders.
    buyer: Buyer,
}

/// Who hires, and gets copies of its matrix.
fn own() -> SecretKey {
    SecretKey::from_bytes([99; 32]).unwrap()
}

impl Hall {
    fn now_s(&self) -> u64 {
        unix_s(self.clock.now_ms())
    }

    /// Time passes, and something comes that rings the bell: whoever was busy just then looks again.
    async fn pass(&self, ms: i64) {
        // The last half hour of a long time in steps: whoever hears nothing for long concludes nothing.
        let mut left = ms.min(1_600_000);
        self.clock.pass(ms - left);
        while left > 0 {
            let step = left.min(400_000);
            left -= step;
            self.clock.pass(step);
            self.ring().await;
        }
    }

    /// Something comes that rings the bell.
    async fn ring(&self) {
        let draft =
            Draft { kind: 1, created_at: self.now_s(), tags: Vec::new(), content: String::new() };
        self.bring(draft.sign(&key(999)).unwrap(), "ws://honest").await;
    }

    /// Somebody announces work, by a relay.
    async fn announce(&self, n: u64, card: &Announcement, relay: &str) -> Verdict {
        self.bring(card.draft(self.now_s()).unwrap().sign(&key(n)).unwrap(), relay).await
    }

    async fn bring(&self, event: Event, relay: &str) -> Verdict {
        self.intake.offer(&Origin::Relay(relay.to_owned()), event).await
    }

    /// Somebody gives a sign of life.
    async fn beat(&self, n: u64) {
        let beat = Heartbeat::default().draft(self.now_s()).unwrap().sign(&key(n)).unwrap();
        let verdict = self.bring(beat, "ws://honest").await;
        assert!(matches!(verdict, Verdict::Stored { .. }), "{verdict:?}");
    }

    fn entry(&self, n: u64, d: &str) -> Option<Entry> {
        self.discovery.ask(|registry, _| registry.get(&who(n), d).cloned()).flatten()
    }

    /// Who is found for some work, the best first.
    fn found(&self, task: &str) -> Vec<PublicKey> {
        let wanted = Wanted { task, live_only: false, least_bp: 0, limit: 100 };
        self.discovery.find(&wanted).into_iter().map(|one| one.provider).collect()
    }

    async fn health(&self) -> Health {
        self.store.read(|rx| health(rx, 20)).await.unwrap()
    }

    /// How often something was refused, as the rows say.
    async fn counted(&self, what: &str) -> i64 {
        let counts = self.health().await.counts;
        counts.iter().find(|one| one.what == what).map_or(0, |one| one.count)
    }

    /// Whom work goes to now.
    async fn hired(&self, text: &str) -> PublicKey {
        self.buyer.hire(wish(text, Choice::Best)).await.unwrap().provider.unwrap()
    }

    /// Somebody is admitted to the matrix.
    async fn admit(&self, n: u64, d: &str) {
        let admitted = Mutation::Admitted {
            d: d.to_owned(),
            status: Status::Active,
            trust_bp: 6_000,
            pace: Pace::Standard,
            notes: [].into(),
        };
        let change = Change {
            key: format!("met:{n}"),
            task: WORK.parse().unwrap(),
            provider: who(n),
            mutation: admitted,
        };
        self.router.record(vec![change]).await.unwrap();
    }

    fn is_sound(&self) -> bool {
        self.discovery.ask(|registry, _| registry.problems()) == Some(Vec::new())
    }
}

/// Waits until something is so: other threads and tasks have to do it.
async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    while !is_so().await {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        testbed::wait_ms(1);
    }
}

fn run<F: Future<Output = ()>>(
    place: &guild_store::Options,
    options: Options,
    test: impl FnOnce(Hall) -> F,
) {
    let all = Migrations::store()
        .and(guild_ledger::migrations())
        .and(guild_network::migrations())
        .and(guild_market::migrations())
        .and(guild_roles::migrations());
    let bus = Arc::new(Local::new());
    let bells = bus.clone();
    let hooks = Hooks::on_ring(move |topic, after| bells.ring(topic, after));
    let database = Service::open(place, &all, hooks, T0).unwrap();
    let clock = Arc::new(Hand(watch::Sender::new(T0)));
    let store = database.handle();
    let (intake, taking) =
        Intake::new(IntakeOptions::default(), store.clone(), &*bus, clock.clone());
    let copies = Copies {
        key: Arc::new(own()),
        to: Destinations::own(&["wss://copies.example".to_owned()]),
    };
    let router = Router::new(
        RouterOptions::default(),
        store.clone(),
        clock.clone(),
        Arc::new(Dice),
        Some(copies),
    );
    let node = Node {
        store: store.clone(),
        bus,
        clock: clock.clone(),
        router: router.clone(),
        intake: Some(intake.clone()),
    };
    let discovery = Discovery::unread(clock.clone());
    let keeping = discovery.kept(options, node);
    let hires = buyer::Node {
        store: store.clone(),
        bus: Arc::new(Local::new()),
        clock: clock.clone(),
        random: Arc::new(Dice),
        registry: Arc::new(Registry::builtin()),
        policy: Arc::new(Bundle::builtin().unwrap()),
        workshop: None,
        judge: None,
        refer: None,
        discovery: Some(discovery.clone()),
    };
    let (buyer, _) = Buyer::new(buyer::Options::default(), own(), hires);
    let shutdown = Shutdown::new();
    let stop = shutdown.clone();
    let funded = store.write(fund);
    let test = test(Hall { store, clock, intake, discovery, router, buyer });
    let test = async move {
        funded.await.unwrap();
        test.await;
        stop.trigger();
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let all = join3(taking.run(shutdown.clone()), keeping.run(shutdown), test);
    runtime.block_on(testbed::in_time(all)).0.unwrap();
    database.close();
}

fn on_sqlite<F: Future<Output = ()>>(options: Options, test: impl FnOnce(Hall) -> F) {
    let dir = tempfile::tempdir().unwrap();
    run(&guild_store::Options::file(&dir.path().join("node.db")), options, test);
}

/// Runs a test on every kind of database.
fn both<F: Future<Output = ()>>(options: &Options, test: impl Fn(Hall) -> F) {
    on_sqlite(options.clone(), &test);
    let database = testbed::Database::new().unwrap();
    run(&guild_store::Options::at(&database.url()), options.clone(), &test);
}

/// An honest announcement of embeddings.
fn card(d: &str) -> Announcement {
    let mut card = Announcement::new(d);
    card.kinds.push("5050".to_owned());
    card.topics.push(WORK.to_owned());
    card.content.name = Some(format!("Honest {d}"));
    card
}

/// An announcement of embeddings for a price.
fn priced(d: &str, price: i64) -> Announcement {
    let mut card = card(d);
    let per_job = JobPrices([(WORK.to_owned(), Msat(price))].into());
    card.content.pricing = Some(Pricing { per_job: Some(per_job), ..Pricing::default() });
    card
}

/// An announcement as somebody may send it who does not use our own code.
fn raw(hall: &Hall, n: u64, tags: &[&[&str]], content: &str) -> Event {
    let tags = tags.iter().map(|tag| tag.iter().map(|&item| item.to_owned()).collect()).collect();
    let created_at = hall.now_s();
    let draft = Draft { kind: kind::ANNOUNCEMENT, created_at, tags, content: content.to_owned() };
    draft.sign(&key(n)).unwrap()
}

#[test]
fn providers_appear_are_matched_and_leave() {
    both(&Options::default(), async |hall| {
        hall.announce(1, &card("a"), "ws://honest").await;
        until(async || hall.entry(1, "a").is_some()).await;
        assert_eq!(hall.found(WORK), [who(1)]);
        // Its announcement was a sign of life.
        hall.pass(30_000).await;
        until(async || hall.entry(1, "a").is_some_and(|entry| entry.life.is_live)).await;
        hall.pass(900_001).await;
        until(async || hall.entry(1, "a").is_some_and(|entry| !entry.life.is_live)).await;
        // A newer version, with other work.
        let mut other = card("a");
        other.topics = vec!["other.work.v1".to_owned()];
        hall.announce(1, &other, "ws://honest").await;
        until(async || hall.entry(1, "a").is_some_and(|entry| entry.versions == 2)).await;
        assert_eq!((hall.found(WORK), hall.found("other.work.v1")), (vec![], vec![who(1)]));
        // It takes the announcement back (NIP-09).
        hall.pass(1_000).await;
        let address = card("a").address(&who(1));
        let deletion = Draft {
            kind: kind::DELETION,
            created_at: hall.now_s(),
            tags: vec![tag::tag(["a", &address])],
            content: String::new(),
        };
        hall.bring(deletion.sign(&key(1)).unwrap(), "ws://honest").await;
        hall.pass(30_000).await;
        until(async || hall.entry(1, "a").is_none()).await;
        assert!(hall.is_sound());
    });
}

#[test]
fn whoever_is_stale_is_quarantined_and_a_copy_of_that_leaves() {
    both(&Options::default(), async |hall| {
        hall.announce(1, &card("a"), "ws://honest").await;
        until(async || hall.entry(1, "a").is_some()).await;
        let task: TaskType = WORK.parse().unwrap();
        hall.admit(1, "a").await;
        hall.pass(31 * 24 * HOUR_MS).await;
        let entry = async || hall.router.current().await.unwrap().entry(&task, &who(1)).cloned();
        until(async || entry().await.unwrap().status == Status::Quarantined).await;
        assert_eq!(entry().await.unwrap().cause, Some(Cause::Stale));
        let found = hall.router.copies(Arc::new(own())).await.unwrap();
        assert_eq!((found.messages, found.same, found.other.len()), (2, 2, 0));
    });
}

#[test]
fn whoever_is_not_seen_for_long_is_not_found_until_it_is_back() {
    both(&Options::default(), async |hall| {
        hall.announce(1, &card("a"), "ws://honest").await;
        until(async || hall.entry(1, "a").is_some()).await;
        hall.pass(31 * 24 * HOUR_MS).await;
        until(async || hall.found(WORK).is_empty()).await;
        assert_eq!(hall.discovery.summary().unwrap().quarantined, 1);
        hall.beat(1).await;
        hall.pass(30_000).await;
        until(async || hall.found(WORK) == [who(1)]).await;
        // What a process sees that was not there before.
        let (store, now_ms) = (hall.store.clone(), hall.clock.now_ms());
        let seen = guild_roles::discovery::read(&store, Options::default(), now_ms).await.unwrap();
        let (ours, theirs) =
            (hall.entry(1, "a").unwrap(), seen.registry().get(&who(1), "a").unwrap().clone());
        assert_eq!(
            (ours.state, ours.seen_ms, ours.versions),
            (theirs.state, theirs.seen_ms, theirs.versions)
        );
    });
}
