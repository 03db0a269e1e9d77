use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use futures_util::FutureExt;
use guild_bus::{Bus, Local};
use guild_protocol::env::{BoxFuture, Clock, Random, UnixMs};
use guild_roles::audit_log::{AuditLog, Entry, Note, Options, bell_sink};
use guild_roles::turn::Turns;
use guild_store::outbox::{Failure, Message};
use guild_store::{Hooks, Migrations, Rx, Service, audit};
use serde_json::Map;

/// Time passes only when the test says so; then every wait is over.
#[derive(Default)]
struct Hand(AtomicBool);
impl Clock for Hand {
    fn now_ms(&self) -> UnixMs {
        7
    }
    fn sleep(&self, _: i64) -> BoxFuture<()> {
        match self.0.load(Ordering::SeqCst) {
            true => Box::pin(std::future::ready(())),
            false => Box::pin(std::future::pending()),
        }
    }
}

#[derive(Default)]
struct Counting(AtomicU64);
impl Random for Counting {
    fn fill(&self, bytes: &mut [u8]) {
        let drawn = self.0.fetch_add(1, Ordering::SeqCst).to_le_bytes();
        bytes.iter_mut().zip(drawn.iter().cycle()).for_each(|(byte, drawn)| *byte = *drawn);
    }
}

struct Scene {
    _dir: tempfile::TempDir,
    service: Option<Service>,
    bus: Arc<Local>,
    clock: Arc<Hand>,
    turns: Turns,
    log: AuditLog,
}

impl Scene {
    fn new() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let options = guild_store::Options::file(&dir.path().join("node.db"));
        let service = Service::open(&options, &Migrations::store(), Hooks::default(), 0).unwrap();
        let (bus, clock) = (Arc::new(Local::new()), Arc::new(Hand::default()));
        let turns = Turns::new(service.handle());
        let log = AuditLog::new(
            Options { page_max: 3, ..Options::default() },
            turns.clone(),
            bus.clone(),
            clock.clone(),
            Arc::new(Counting::default()),
        );
        Scene { _dir: dir, service: Some(service), bus, clock, turns, log }
    }

    async fn append(&self, id: Option<u64>) -> i64 {
        let note = Note {
            entry_id: id.map(|id| format!("entry_{id:032x}").parse().unwrap()),
            actor: "tester".to_owned(),
            action: "test.done".to_owned(),
            subject: None,
            detail: Map::new(),
        };
        self.log.append(note).await.unwrap().1
    }

    fn close(&mut self) {
        if let Some(service) = self.service.take() {
            service.close();
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.close();
    }
}

fn numbers(entries: &[Entry]) -> Vec<i64> {
    entries.iter().map(|entry| entry.seq).collect()
}

#[tokio::test]
async fn a_note_with_an_id_is_written_once_and_without_one_each_time() {
    let scene = Scene::new();
    assert_eq!([scene.append(Some(1)).await, scene.append(Some(1)).await], [1, 1]);
    assert_eq!([scene.append(None).await, scene.append(None).await], [2, 3]);
    let page = scene.log.page(0, i64::MAX).await.unwrap();
    assert_eq!(numbers(&page), [1, 2, 3]);
    assert_eq!(page[0].at_ms, 7);
}

#[tokio::test]
async fn pages_have_a_limit_whatever_is_asked_for() {
    let scene = Scene::new();
    for _ in 0..5 {
        scene.append(None).await;
    }
    for (limit, expected) in [(i64::MAX, 3), (2, 2), (0, 0), (-1, 0)] {
        assert_eq!(scene.log.page(0, limit).await.unwrap().len(), expected, "{limit}");
    }
    assert_eq!(scene.log.before_last(2).await.unwrap(), 3);
}

/// Anybody may read the log. While others read something, it waits; writing does not.
#[tokio::test]
async fn the_log_is_read_in_turn() {
    let scene = Scene::new();
    scene.append(None).await;
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let long = move |_: &mut Rx<'_>| {
        let _ = wait.lock().unwrap().recv();
        Ok::<_, guild_store::Error>(())
    };
    assert!(Box::pin(scene.turns.read(long)).now_or_never().is_none());
    let mut follower = scene.log.follow(0);
    let mut followed = Box::pin(follower.next());
    for _ in 0..50 {
        assert!(Box::pin(scene.log.page(0, 1)).now_or_never().is_none());
        assert!(Box::pin(scene.log.before_last(1)).now_or_never().is_none());
        assert!(followed.as_mut().now_or_never().is_none());
    }
    assert_eq!(scene.append(None).await, 2);
    go.send(()).unwrap();
    assert_eq!(numbers(&followed.await.unwrap()), [1, 2]);
    assert_eq!(scene.log.before_last(1).await.unwrap(), 1);
}

#[tokio::test]
async fn a_follower_gets_each_entry_once_by_a_bell() {
    let scene = Scene::new();
    for _ in 0..4 {
        scene.append(None).await;
    }
    let mut follower = scene.log.follow(0);
    assert_eq!(numbers(&follower.next().await.unwrap()), [1, 2, 3]);
    assert_eq!(numbers(&follower.next().await.unwrap()), [4]);
    // A bell for what was seen already, doubled, gives nothing and does no harm.
    scene.bus.ring(audit::TOPIC, 0);
    scene.bus.ring(audit::TOPIC, 3);
    let appended = async {
        let seq = scene.append(None).await;
        scene.bus.ring(audit::TOPIC, seq - 1);
    };
    let (entries, ()) = futures_util::join!(follower.next(), appended);
    assert_eq!(numbers(&entries.unwrap()), [5]);
}

#[tokio::test]
async fn a_follower_that_is_dropped_while_it_waits_loses_nothing() {
    let scene = Scene::new();
    scene.append(None).await;
    let mut follower = scene.log.follow(0);
    let mut seen = Vec::new();
    for _ in 0..20 {
        // Given up at any moment, also between the read and its answer.
        if let Some(entries) = follower.next().now_or_never() {
            seen.extend(numbers(&entries.unwrap()));
        }
    }
    if seen.is_empty() {
        seen = numbers(&follower.next().await.unwrap());
    }
    assert_eq!(seen, [1]);
}

#[tokio::test]
async fn a_follower_needs_no_bell() {
    let scene = Scene::new();
    let mut follower = scene.log.follow(0);
    scene.clock.0.store(true, Ordering::SeqCst);
    let (entries, _) = futures_util::join!(follower.next(), scene.append(None));
    assert_eq!(numbers(&entries.unwrap()), [1]);
}

#[tokio::test]
async fn a_closed_store_ends_its_followers() {
    let mut scene = Scene::new();
    let mut follower = scene.log.follow(0);
    scene.close();
    assert!(follower.next().await.unwrap_err().is_closed());
}

#[tokio::test]
async fn the_sink_rings_what_is_a_bell_and_refuses_the_rest_for_good() {
    let bus = Arc::new(Local::new());
    let mut listener = bus.listen("audit");
    let sink = bell_sink(bus.clone());
    let message = |body: &str| Message {
        seq: 1,
        sink: audit::BELL_SINK.to_owned(),
        key: audit::TOPIC.to_owned(),
        idempotency_key: "id".to_owned(),
        body: body.to_owned(),
        attempts: 0,
    };
    assert_eq!(sink(message(r#"{"topic":"audit","after":41}"#)).await, Ok(()));
    assert_eq!(listener.try_hear(), Some(41));
    for body in ["", "[]", "{}", r#"{"topic":"audit"}"#, r#"{"topic":1,"after":1}"#] {
        let answer = sink(message(body)).await;
        assert!(matches!(answer, Err(Failure::Never(_))), "{body}: {answer:?}");
    }
    assert_eq!(listener.try_hear(), None);
}
