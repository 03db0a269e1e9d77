//! Sinks that do not answer.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use guild_protocol::env::{BoxFuture, Clock, Shutdown, UnixMs};
use guild_store::Error;
use guild_store::outbox::{self, Deliver, Drainer, Message, Options};

use super::{Counting, enqueue};
use crate::{Engine, Scratch, block_on};

on_both! {
    a_sink_that_never_answers_is_given_up_and_what_it_took_before_is_not_sent_again,
}

/// A clock that stands until it is moved on, to the first moment for which somebody waits.
#[derive(Default)]
struct Stepping {
    now_ms: AtomicI64,
    waits: Mutex<Vec<(UnixMs, std::task::Waker)>>,
}

impl Stepping {
    fn step(&self) {
        let mut waits = self.waits.lock().unwrap();
        let Some(first_ms) = waits.iter().map(|(until_ms, _)| *until_ms).min() else { return };
        self.now_ms.fetch_max(first_ms, Ordering::SeqCst);
        waits.drain(..).for_each(|(_, waker)| waker.wake());
    }
}

struct Steps(Arc<Stepping>);

impl Clock for Steps {
    fn now_ms(&self) -> UnixMs {
        self.0.now_ms.load(Ordering::SeqCst)
    }
    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        let (clock, until_ms) = (self.0.clone(), self.now_ms() + duration_ms);
        Box::pin(std::future::poll_fn(move |cx| {
            if clock.now_ms.load(Ordering::SeqCst) >= until_ms {
                return std::task::Poll::Ready(());
            }
            clock.waits.lock().unwrap().push((until_ms, cx.waker().clone()));
            std::task::Poll::Pending
        }))
    }
}

/// A delivery that lasts as long as its lease must not be taken from its holder by the holder itself.
fn a_sink_that_never_answers_is_given_up_and_what_it_took_before_is_not_sent_again(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    for id in ["good", "silent"] {
        enqueue(&store, "a", id, "{}").unwrap();
    }
    let given = Arc::new(Mutex::new(Vec::new()));
    let seen = given.clone();
    let deliver: Deliver = Arc::new(move |message: Message| {
        seen.lock().unwrap().push(message.idempotency_key.clone());
        match message.idempotency_key.as_str() {
            "good" => Box::pin(std::future::ready(Ok(()))),
            _ => Box::pin(std::future::pending()),
        }
    });
    let (clock, shutdown) = (Arc::new(Stepping::default()), Shutdown::new());
    let options =
        Options { lease_ms: 100, max_attempts: 3, backoff_min_ms: 10, ..Options::default() };
    let steps = Arc::new(Steps(clock.clone()));
    let drainer = Drainer::new(options, store.clone(), steps, Arc::new(Counting::default()));
    let draining = drainer
        .unwrap()
        .sink("s", deliver, Box::new(|| Box::pin(std::future::pending())))
        .run(shutdown.clone());
    let watching = async {
        for _ in 0..60 {
            // Whatever can happen at this moment has time to.
            for _ in 0..10 {
                store.write(|_| Ok::<_, Error>(())).await.unwrap();
                store.read(|_| Ok::<_, Error>(())).await.unwrap();
            }
            clock.step();
        }
        shutdown.trigger();
    };
    block_on(async { futures_util::join!(draining, watching) });
    assert_eq!(*given.lock().unwrap(), ["good", "silent", "silent", "silent"]);
    let dead = block_on(store.read(|rx| outbox::dead_letters(rx, 10))).unwrap();
    let told: Vec<_> =
        dead.iter().map(|letter| (letter.message.attempts, letter.last_error.as_str())).collect();
    assert_eq!(told, [(3, "no answer within the lease")]);
}
