//! Wake-up bells between the parts of a node. A bell says "there is something new on this topic after number N".
//! Messages that carry something are letters: see [`mail`].
//!
//! Bells are hints. They may be lost, doubled or late; whoever waits for one also looks by itself now and then. So a
//! listener keeps only the earliest number it has not been told yet, and a slow one costs nothing.
//!
//! ```
//! use guild_bus::{Bus, Local};
//! let bus = Local::new();
//! let mut listener = bus.listen("audit");
//! bus.ring("audit", 41);
//! bus.ring("audit", 42);
//! assert_eq!(listener.try_hear(), Some(41), "everything after 41 is new");
//! assert_eq!(listener.try_hear(), None);
//! ```

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

mod error;
pub mod mail;
pub mod nats;
pub mod subject;

pub use error::{Error, Result, code};
pub use nats::Nats;

/// The number of a bell that says "anything may be new": numbers begin at 1. A bus rings it when it may have missed
/// bells and cannot know which; whoever keeps its own place looks from there.
pub const ANYTHING: i64 = 0;

/// Carries bells. `ring` never waits and never fails: a lost bell loses no work.
pub trait Bus: Send + Sync {
    /// Tells all listeners of `topic` that there is something new after number `after`.
    fn ring(&self, topic: &str, after: i64);

    /// Hears the bells of `topic` that ring from now on.
    fn listen(&self, topic: &str) -> Listener;
}

#[derive(Default)]
struct Slot {
    after: Option<i64>,
    waiting: Option<Waker>,
}

/// Hears one topic. Bells that ring while nobody waits are kept, as one.
pub struct Listener(Arc<Mutex<Slot>>);

impl Listener {
    /// A listener, and the end that rings it: for whoever implements [`Bus`].
    pub fn pair() -> (Ringer, Listener) {
        let slot = Arc::new(Mutex::new(Slot::default()));
        (Ringer(Arc::downgrade(&slot)), Listener(slot))
    }

    /// Waits for a bell: there is something new after this number.
    pub fn hear(&mut self) -> impl Future<Output = i64> + Send + Unpin + use<> {
        let slot = self.0.clone();
        poll_fn(move |cx| poll_slot(&slot, cx))
    }

    /// Another one that hears the same bells: each bell is heard by one of the two.
    pub(crate) fn again(&self) -> Listener {
        Listener(self.0.clone())
    }

    /// The bell that has rung since, if any.
    pub fn try_hear(&mut self) -> Option<i64> {
        lock(&self.0).after.take()
    }
}

fn poll_slot(slot: &Mutex<Slot>, cx: &mut Context<'_>) -> Poll<i64> {
    let mut slot = lock(slot);
    match slot.after.take() {
        Some(after) => Poll::Ready(after),
        None => {
            slot.waiting = Some(cx.waker().clone());
            Poll::Pending
        }
    }
}

/// Rings one listener.
pub struct Ringer(Weak<Mutex<Slot>>);

impl Ringer {
    /// Rings; false if the listener is gone.
    pub fn ring(&self, after: i64) -> bool {
        let Some(slot) = self.0.upgrade() else { return false };
        let waiting = {
            let mut slot = lock(&slot);
            slot.after = Some(slot.after.map_or(after, |earlier| earlier.min(after)));
            slot.waiting.take()
        };
        if let Some(waker) = waiting {
            waker.wake();
        }
        true
    }
}

/// The bus of a single process.
#[derive(Default)]
pub struct Local(Mutex<BTreeMap<String, Vec<Ringer>>>);

impl Local {
    /// A bus without listeners.
    pub fn new() -> Local {
        Local::default()
    }

    /// Rings every listener of every topic.
    fn ring_all(&self, after: i64) {
        lock(&self.0).retain(|_, ringers| {
            ringers.retain(|ringer| ringer.ring(after));
            !ringers.is_empty()
        });
    }
}

impl Bus for Local {
    fn ring(&self, topic: &str, after: i64) {
        let mut topics = lock(&self.0);
        if let Some(ringers) = topics.get_mut(topic) {
            ringers.retain(|ringer| ringer.ring(after));
            if ringers.is_empty() {
                topics.remove(topic);
            }
        }
    }

    fn listen(&self, topic: &str) -> Listener {
        let (ringer, listener) = Listener::pair();
        let mut topics = lock(&self.0);
        let ringers = topics.entry(topic.to_owned()).or_default();
        // Listeners come and go with every stream of the gateway: forget the gone ones here too, so that a topic
        // that never rings does not grow.
        ringers.retain(|ringer| ringer.0.strong_count() > 0);
        ringers.push(ringer);
        listener
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while holding one of these locks, and a half-told bell would be a hint like any other.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_waiting_listener_is_woken_and_told() {
        let bus = Local::new();
        let mut listener = bus.listen("a");
        let woken = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        let mut hearing = pin!(listener.hear());
        assert_eq!(hearing.as_mut().poll(&mut cx), Poll::Pending);
        bus.ring("other", 1);
        assert_eq!(woken.0.load(Ordering::SeqCst), 0);
        bus.ring("a", 7);
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert_eq!(hearing.as_mut().poll(&mut cx), Poll::Ready(7));
    }

    #[test]
    fn bells_before_the_wait_are_kept_as_the_earliest() {
        let bus = Local::new();
        let mut listener = bus.listen("a");
        for after in [9, 3, 5] {
            bus.ring("a", after);
        }
        assert_eq!(listener.try_hear(), Some(3));
        assert_eq!(listener.try_hear(), None);
    }

    #[test]
    fn all_topics_can_be_rung_at_once() {
        let bus = Local::new();
        let mut listeners = ["a", "b"].map(|topic| bus.listen(topic));
        drop(bus.listen("gone"));
        bus.ring("b", -3);
        bus.ring_all(ANYTHING);
        assert_eq!(listeners.each_mut().map(Listener::try_hear), [Some(ANYTHING), Some(-3)]);
        assert_eq!(lock(&bus.0).len(), 2);
    }

    #[test]
    fn every_listener_hears_and_gone_ones_are_forgotten() {
        let bus = Local::new();
        let mut kept = bus.listen("a");
        for _ in 0..100 {
            drop(bus.listen("a"));
        }
        assert!(lock(&bus.0)["a"].len() <= 2);
        bus.ring("a", 1);
        assert_eq!(kept.try_hear(), Some(1));
        drop(kept);
        bus.ring("a", 2);
        assert!(lock(&bus.0).is_empty());
    }
}
