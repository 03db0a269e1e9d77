//! A call that keeps all others waiting is named in the log.

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use guild_protocol::env::{BoxFuture, Clock, UnixMs};
use guild_store::{Error, Hooks, Sqlite, pumps};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Moves on only when it is told to.
#[derive(Default)]
struct Set(AtomicI64);

impl Clock for Set {
    fn now_ms(&self) -> UnixMs {
        self.0.load(Ordering::SeqCst)
    }

    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

/// Keeps what is logged, as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_call_that_takes_too_long_is_reported_with_its_place_and_no_other() {
    let clock = Arc::new(Set::default());
    let hooks = Hooks::default().with_watch(clock.clone(), 20);
    let (store, writes, _reads) = pumps(10, &hooks);
    let mut db = Sqlite::open_memory("slow").unwrap();
    let takes = |ms: i64| {
        let clock = clock.clone();
        move |_: &mut guild_store::Tx<'_>| {
            clock.0.fetch_add(ms, Ordering::SeqCst);
            Ok::<_, Error>(())
        }
    };
    drop(store.write(takes(19)));
    drop(store.write(takes(20)));
    let slow_line = line!() - 1;
    let log = Log::default();
    tracing::subscriber::with_default(log.clone(), || writes.drain(&mut db, 10)).unwrap();
    let lines = log.0.lock().unwrap();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let place = format!("tests/it/slow.rs:{slow_line}:");
    assert!(lines[0].contains("took_ms=20") && lines[0].contains(&place), "{lines:?}");
}
