//! What the tests share: databases, keys, events.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use guild_bus::{Bus, Local};
use guild_network::archive::{self, Put, Verified};
use guild_protocol::env::{BoxFuture, Clock, UnixMs};
use guild_protocol::identity::SecretKey;
use guild_protocol::nostr::{Draft, Event, Tag};
use guild_store::{Hooks, Migrations, Options, Service, Store};

/// Unix seconds at which the tests begin.
pub(crate) const NOW_S: u64 = 1_800_000_000;

/// An archive on a database of its own.
pub(crate) struct Scratch {
    pub(crate) store: Store,
    pub(crate) bus: Arc<Local>,
    service: Option<Service>,
    _place: Place,
}

#[expect(dead_code, reason = "held only so that it is removed at the end")]
enum Place {
    Directory(tempfile::TempDir),
    Database(testbed::Database),
}

/// Runs a test on every kind of database.
pub(crate) fn both(test: impl Fn(&Scratch)) {
    test(&Scratch::sqlite());
    test(&Scratch::postgres());
}

impl Scratch {
    pub(crate) fn sqlite() -> Scratch {
        Scratch::sqlite_with(|hooks| hooks)
    }

    /// With faults, for example.
    pub(crate) fn sqlite_with(change: impl FnOnce(Hooks) -> Hooks) -> Scratch {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::file(&dir.path().join("node.db"));
        Scratch::open(&options, Place::Directory(dir), change)
    }

    pub(crate) fn postgres() -> Scratch {
        let database = testbed::Database::new().unwrap();
        let options = Options::at(&database.url());
        Scratch::open(&options, Place::Database(database), |hooks| hooks)
    }

    fn open(options: &Options, place: Place, change: impl FnOnce(Hooks) -> Hooks) -> Scratch {
        let all = Migrations::store().and(guild_network::migrations());
        let bus = Arc::new(Local::new());
        let bells = bus.clone();
        let hooks = Hooks::on_ring(move |topic, after| bells.ring(topic, after));
        let service = Service::open(options, &all, change(hooks), 0).unwrap();
        Scratch { store: service.handle(), bus, service: Some(service), _place: place }
    }

    /// Forgets everything: a new database for every case of a property would take too long.
    pub(crate) fn clear(&self) {
        let clear = self.store.write(|tx| {
            for sql in [
                "DELETE FROM nostr_event",
                "DELETE FROM nostr_term",
                "DELETE FROM nostr_deletion",
                "DELETE FROM index_provider",
                "DELETE FROM index_schema",
                "DELETE FROM index_heartbeat",
                "DELETE FROM index_request",
                "DELETE FROM index_answer",
                "DELETE FROM index_recommendation",
                "UPDATE nostr_archive SET last_seq = 0, events = 0, bytes = 0, deletions = 0, pinned_events = 0,
                   pinned_bytes = 0, swept_seq = 0, announced_events = 0, announced_bytes = 0,
                   looked_ms = 0, looked_seq = 0",
                "DELETE FROM nostr_known_key",
            ] {
                tx.exec(sql, &[])?;
            }
            Ok::<(), guild_store::Error>(())
        });
        block_on(clear).unwrap();
    }

    /// What a question for one number says.
    pub(crate) fn number(&self, sql: &'static str) -> i64 {
        let read = self.store.read(move |rx| rx.first::<(i64,)>(sql, &[]));
        block_on(read).unwrap().unwrap().0
    }

    pub(crate) fn put(&self, events: &[Event]) -> Vec<Put> {
        self.put_at(events, NOW_S)
    }

    pub(crate) fn put_at(&self, events: &[Event], now_s: u64) -> Vec<Put> {
        let events: Vec<Verified> =
            events.iter().map(|event| Verified::check(event.clone()).unwrap()).collect();
        let now_ms = i64::try_from(now_s).unwrap() * 1000;
        block_on(self.store.write(move |tx| archive::put(tx, &events, "test", now_ms))).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            service.close();
        }
    }
}

/// Somebody's key.
pub(crate) fn key(n: u64) -> SecretKey {
    format!("{n:064x}").parse().unwrap()
}

/// An event by somebody.
pub(crate) fn event(
    author: u64,
    kind: u16,
    created_at: u64,
    tags: &[&[&str]],
    content: &str,
) -> Event {
    let tags: Vec<Tag> =
        tags.iter().map(|tag| tag.iter().map(|&item| item.to_owned()).collect()).collect();
    Draft { kind, created_at, tags, content: content.to_owned() }.sign(&key(author)).unwrap()
}

/// A clock that the test sets.
#[derive(Default)]
pub(crate) struct SetClock(AtomicI64);

impl SetClock {
    pub(crate) fn at(now_s: u64) -> Arc<SetClock> {
        let clock = SetClock::default();
        clock.0.store(i64::try_from(now_s).unwrap() * 1000, Ordering::SeqCst);
        Arc::new(clock)
    }
}

impl Clock for SetClock {
    fn now_ms(&self) -> UnixMs {
        self.0.load(Ordering::SeqCst)
    }

    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }
}

/// Runs a future; one that hangs fails.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(testbed::in_time(future))
}
