//! What could not be done, until it is tried again: later each time.
//!
//! It is remembered by this process alone. The next one tries everything at once, and then waits as well.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use guild_protocol::env::UnixMs;

/// The longest wait is so many times the first.
const LONGEST: i64 = 60;
/// Of so many things it is kept what was found out about them.
const KEPT_MAX: usize = 1_000;

/// Things that wait, and what is known of them. There are never more than there are rows of our own that wait.
#[derive(Debug)]
pub(crate) struct Later<K, V> {
    first_ms: i64,
    waiting: Mutex<BTreeMap<K, Waiting<V>>>,
}

#[derive(Debug)]
struct Waiting<V> {
    pause_ms: i64,
    until_ms: UnixMs,
    kept: Option<V>,
}

impl<K: Ord + Clone, V: Clone> Later<K, V> {
    /// The first wait lasts so long; each further one of the same thing twice as long, up to sixty times.
    pub(crate) fn new(first_ms: i64) -> Later<K, V> {
        Later { first_ms: first_ms.max(1), waiting: Mutex::default() }
    }

    /// It could not be done now. What was found out is not found out again.
    pub(crate) fn put_off(&self, key: K, found_out: Option<V>, now_ms: UnixMs) {
        let mut waiting = self.lock();
        let room = waiting.len() < KEPT_MAX;
        let longest_ms = self.longest_ms();
        let one = waiting.entry(key).or_insert(Waiting { pause_ms: 0, until_ms: 0, kept: None });
        one.pause_ms = one.pause_ms.saturating_mul(2).clamp(self.first_ms, longest_ms);
        one.until_ms = now_ms.saturating_add(one.pause_ms);
        one.kept = one.kept.take().or(found_out.filter(|_| room));
    }

    /// It is done.
    pub(crate) fn done(&self, key: &K) {
        self.lock().remove(key);
    }

    /// Whether it was put off and is not done.
    pub(crate) fn knows(&self, key: &K) -> bool {
        self.lock().contains_key(key)
    }

    /// What was found out about it.
    pub(crate) fn kept(&self, key: &K) -> Option<V> {
        self.lock().get(key).and_then(|one| one.kept.clone())
    }

    /// Those whose time has not come.
    pub(crate) fn waiting(&self, now_ms: UnixMs) -> BTreeSet<K> {
        let longest_ms = self.longest_ms();
        let mut waiting = self.lock();
        // Whoever has not come back for so long has ended in another way.
        waiting.retain(|_, one| now_ms.saturating_sub(one.until_ms) <= longest_ms);
        // A clock that was set back makes no wait longer.
        let waits = |one: &Waiting<V>| {
            one.until_ms > now_ms && one.until_ms.saturating_sub(now_ms) <= longest_ms
        };
        waiting.iter().filter(|(_, one)| waits(one)).map(|(key, _)| key.clone()).collect()
    }

    fn longest_ms(&self) -> i64 {
        self.first_ms.saturating_mul(LONGEST)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, Waiting<V>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_is_longer_up_to_a_limit_and_ends() {
        let later = Later::<u8, &str>::new(10);
        let mut now_ms = 0;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            later.put_off(1, None, now_ms);
            let until_ms = (now_ms..).find(|at_ms| later.waiting(*at_ms).is_empty()).unwrap();
            pauses.push(until_ms - now_ms);
            now_ms = until_ms;
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
        later.done(&1);
        later.put_off(1, None, now_ms);
        assert!(later.waiting(now_ms + 10).is_empty(), "it begins anew");
    }

    #[test]
    fn what_was_found_out_is_kept_until_it_is_done() {
        let later = Later::new(10);
        later.put_off(1, Some("found"), 0);
        later.put_off(1, None, 10);
        assert_eq!((later.kept(&1), later.knows(&1)), (Some("found"), true));
        later.done(&1);
        assert_eq!((later.kept(&1), later.knows(&1)), (None, false));
        for n in 0..2_000 {
            later.put_off(n, Some("found"), 0);
        }
        assert_eq!((0..2_000).filter(|n| later.kept(n).is_some()).count(), KEPT_MAX);
        assert_eq!(later.waiting(5).len(), 2_000, "they wait all the same");
        assert!(later.waiting(1_000_000).is_empty());
        assert_eq!(later.kept(&0), None, "forgotten, not only over");
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_wait_longer() {
        let later = Later::<u8, ()>::new(10);
        later.put_off(1, None, 1_000_000);
        assert!(later.waiting(0).is_empty());
    }
}
