//! The routing matrix of nodes that share a database, on both kinds.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use guild_market::evaluation::Pace;
use guild_market::judge::Class;
use guild_market::routing::snapshot::{self, INTERVAL_MS};
use guild_market::routing::{Change, Mutation, Status};
use guild_network::publish::Destinations;
use guild_protocol::env::{BoxFuture, Clock, Random, Shutdown, Signer, UnixMs};
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_roles::router::{Copies, Live, Options, Policy, Router, TaskType};
use guild_store::{Hooks, Migrations, Service, Store};

const T0: UnixMs = 1_768_465_800_000;

/// Time passes when somebody sleeps; after some sleeps the shutdown comes.
struct Hand {
    now_ms: AtomicI64,
    sleeps: AtomicI64,
    shutdown: Shutdown,
}

impl Clock for Hand {
    fn now_ms(&self) -> UnixMs {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        self.now_ms.fetch_add(duration_ms, Ordering::SeqCst);
        if self.sleeps.fetch_sub(1, Ordering::SeqCst) <= 1 {
            self.shutdown.trigger();
        }
        Box::pin(std::future::ready(()))
    }
}

struct Count(AtomicU64);

impl Random for Count {
    fn fill(&self, bytes: &mut [u8]) {
        let next = self.0.fetch_add(1, Ordering::SeqCst);
        for (to, from) in bytes.iter_mut().zip(next.to_le_bytes().into_iter().cycle()) {
            *to = from ^ 0x5a;
        }
    }
}

fn key(n: u8) -> SecretKey {
    SecretKey::from_bytes([n; 32]).unwrap()
}

fn who(n: u8) -> PublicKey {
    key(n).public_key()
}

fn task() -> TaskType {
    "oa.embedding.v1".parse().unwrap()
}

fn change(name: &str, n: u8, mutation: Mutation) -> Change {
    Change { key: format!("{name}:{n}"), task: task(), provider: who(n), mutation }
}

fn admitted(trust_bp: u32) -> Mutation {
    Mutation::Admitted {
        d: "main".to_owned(),
        status: Status::Active,
        trust_bp,
        pace: Pace::Standard,
        notes: BTreeSet::new(),
    }
}

fn hand(sleeps: i64, shutdown: &Shutdown) -> Arc<Hand> {
    let shutdown = shutdown.clone();
    Arc::new(Hand { now_ms: T0.into(), sleeps: sleeps.into(), shutdown })
}

async fn open(store: &Store, clock: &Arc<Hand>, copies: Option<Copies>) -> Router {
    let random = Arc::new(Count(1.into()));
    let clock = clock.clone();
    Router::open(Options::default(), store.clone(), clock, random, copies).await.unwrap()
}

async fn story(store: Store) {
    let shutdown = Shutdown::new();
    let clock = hand(2, &shutdown);
    let to = Destinations::own(&["ws://relay.example".to_owned()]);
    let one = open(&store, &clock, Some(Copies { key: Arc::new(key(9)), to })).await;
    let other = open(&store, &clock, None).await;
    let all: Vec<Change> =
        [(1, 9_000), (2, 6_000), (3, 3_500)].map(|(n, bp)| change("a", n, admitted(bp))).into();
    assert_eq!(one.record(all.clone()).await.unwrap().len(), 3);
    // The copy left with them, once.
    let sql = "SELECT count(*) FROM outbox";
    let queued = store.read(move |rx| rx.first::<(i64,)>(sql, &[]));
    assert_eq!(queued.await.unwrap(), Some((1,)));
    assert!(one.record(all).await.unwrap().iter().all(|row| !row.is_new));
    // The other process chooses from what the first has written.
    let none = BTreeSet::new();
    let choice = other.choose(Policy::Tiered, &task(), &none, None).await.unwrap();
    assert!(choice.chosen.is_some() && choice.tiers == [1, 1, 1, 0], "{choice}");
    let outcome = Mutation::Outcome {
        class: Class::Failure,
        step_bp: -1_500,
        cost_msat: None,
        latency_ms: None,
    };
    other.record(vec![change("job", 1, outcome)]).await.unwrap();
    assert_eq!(one.current().await.unwrap(), other.current().await.unwrap());
    assert_eq!(one.entries(&who(1)).await.unwrap()[0].1.trust_bp, 7_500);
    // A snapshot after a while, and none if there is nothing new.
    one.clone().run(shutdown.clone()).await;
    let newest = store.read(snapshot::newest).await.unwrap();
    assert_eq!(newest, Some((T0 + INTERVAL_MS, 4)));
    assert!(!other.save().await.unwrap());
    // Who is gone is found out by whoever looks.
    assert_eq!(other.revalidate(None).await.unwrap(), 0);
    let live = [2, 3].map(|n| Live {
        provider: who(n),
        d: "main".to_owned(),
        tasks: BTreeSet::from([task()]),
        seen_ms: clock.now_ms(),
    });
    assert_eq!(other.revalidate(Some(&live)).await.unwrap(), 1);
    let again = open(&store, &clock, None).await;
    assert_eq!(again.entries(&who(1)).await.unwrap()[0].1.status, Status::Quarantined);
    assert_eq!(again.current().await.unwrap(), one.current().await.unwrap());
    assert!(again.explain(&task(), Some(1)).await.unwrap().is_some());
}

fn tell(options: &guild_store::Options) {
    let all = Migrations::store()
        .and(guild_ledger::migrations())
        .and(guild_network::migrations())
        .and(guild_market::migrations());
    let service = Service::open(options, &all, Hooks::default(), T0).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(story(service.handle()));
    service.close();
}

#[test]
fn nodes_share_a_matrix_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    tell(&guild_store::Options::file(&dir.path().join("node.db")));
}

#[test]
fn nodes_share_a_matrix_on_postgres() {
    let database = testbed::Database::new().unwrap();
    tell(&guild_store::Options::at(&database.url()));
}
