//! Carries messages from the outbox to their sinks.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{Either, join_all, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use guild_protocol::env::{BoxFuture, Clock, Random, Shutdown, UnixMs};
use guild_protocol::hash::to_hex;

use super::Message;
use super::lane::{self, Failed, Lease, Old, Outcome, Then};
use crate::pump::Store;
use crate::{Error, Result};

/// Why a sink did not take a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It may take it later.
    Retry(String),
    /// It never will: the message becomes a dead letter at once.
    Never(String),
}

/// Delivers one message. It may be called again with the same message, so it must be idempotent by its key.
pub type Deliver = Arc<dyn Fn(Message) -> BoxFuture<Result<(), Failure>> + Send + Sync>;

/// Ready when a bell says that something may have been queued. A lost bell costs at most `sweep_ms`.
pub type Wake = Box<dyn FnMut() -> BoxFuture<()> + Send>;

/// How messages are delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long a holder may deliver one lane before another may take it over.
    pub lease_ms: i64,
    /// How many messages of a lane are delivered under one lease.
    pub batch_max: i64,
    /// How many lanes of a sink are delivered at once: a key that stalls holds up no other.
    pub lanes_max: i64,
    /// How often the outbox is looked at without a bell.
    pub sweep_ms: i64,
    /// After so many failures a message is a dead letter.
    pub max_attempts: i64,
    /// The wait after the first failure; it doubles with each further one.
    pub backoff_min_ms: i64,
    /// The longest wait.
    pub backoff_max_ms: i64,
    /// How long a delivered message is remembered, and with it its idempotency key.
    pub keep_done_ms: i64,
    /// How long a dead letter is kept.
    pub keep_dead_ms: i64,
    /// How many dead letters of a sink are kept; the oldest go first.
    pub dead_max: i64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            lease_ms: 10_000,
            batch_max: 64,
            lanes_max: 8,
            sweep_ms: 1_000,
            max_attempts: 12,
            backoff_min_ms: 500,
            backoff_max_ms: 300_000,
            keep_done_ms: 24 * 3_600 * 1_000,
            keep_dead_ms: 30 * 24 * 3_600 * 1_000,
            dead_max: 100_000,
        }
    }
}

impl Options {
    fn check(&self) -> Result<()> {
        let settings = [
            ("lease_ms", self.lease_ms),
            ("batch_max", self.batch_max),
            ("lanes_max", self.lanes_max),
            ("sweep_ms", self.sweep_ms),
            ("max_attempts", self.max_attempts),
            ("backoff_min_ms", self.backoff_min_ms),
            ("backoff_max_ms", self.backoff_max_ms),
            ("keep_done_ms", self.keep_done_ms),
            ("keep_dead_ms", self.keep_dead_ms),
            ("dead_max", self.dead_max),
        ];
        match settings.iter().find(|(_, value)| *value < 1) {
            Some((name, _)) => Err(Error::BadOptions(format!("outbox.{name} must be at least 1"))),
            None => Ok(()),
        }
    }
}

/// The service that drains the outbox. Several processes may run one: the lanes are shared out by lease.
pub struct Drainer {
    courier: Courier,
    sinks: Vec<(String, Deliver, Wake)>,
}

/// What the loops of all sinks share.
struct Courier {
    store: Store,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    options: Options,
}

/// The keys of the lanes that a sink's loop delivers now.
#[derive(Default)]
struct Held(Mutex<BTreeSet<String>>);

impl Held {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn as_json(&self) -> String {
        serde_json::Value::from_iter(self.lock().iter().cloned()).to_string()
    }
}

/// One of them, for as long as it is delivered.
struct Lane<'a> {
    held: &'a Held,
    key: String,
}

impl<'a> Lane<'a> {
    fn of(held: &'a Held, lease: &Lease) -> Lane<'a> {
        let key = lease.key.clone();
        held.lock().insert(key.clone());
        Lane { held, key }
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        self.held.lock().remove(&self.key);
    }
}

/// What a sink's loop remembers of its rounds.
struct Rounds {
    tidied_ms: Option<UnixMs>,
    seen_ms: UnixMs,
}

impl Drainer {
    /// A drainer without sinks.
    pub fn new(
        options: Options,
        store: Store,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<Drainer> {
        options.check()?;
        Ok(Drainer { courier: Courier { store, clock, random, options }, sinks: Vec::new() })
    }

    /// Registers the sink of a kind. Each kind is drained on its own, so a stalled one holds up no other.
    #[must_use]
    pub fn sink(mut self, kind: &str, deliver: Deliver, wake: Wake) -> Drainer {
        self.sinks.push((kind.to_owned(), deliver, wake));
        self
    }

    /// Delivers until the shutdown. What is being delivered then is delivered again by the next process.
    pub async fn run(self, shutdown: Shutdown) {
        let Drainer { courier, sinks } = self;
        let courier = &courier;
        let loops =
            sinks.into_iter().map(|(sink, deliver, wake)| courier.drain_sink(sink, deliver, wake));
        let all = std::pin::pin!(join_all(loops));
        select(shutdown.triggered(), all).await;
    }
}

impl Courier {
    async fn drain_sink(&self, sink: String, deliver: Deliver, mut wake: Wake) {
        let lanes_max = usize::try_from(self.options.lanes_max).unwrap_or(usize::MAX);
        let mut rounds = Rounds { tidied_ms: None, seen_ms: UnixMs::MIN };
        let held = Held::default();
        let mut under_way = FuturesUnordered::new();
        loop {
            // Before the next lane, not after the last: a sink that is never idle must be tidied too.
            beside(&mut under_way, self.tidy(&sink, &mut rounds)).await;
            if under_way.len() >= lanes_max {
                under_way.next().await;
            }
            match beside(&mut under_way, self.claim(&sink, &held)).await {
                Ok(Some((lease, messages))) => {
                    let lane = Lane::of(&held, &lease);
                    under_way.push(self.drain_lane(lane, lease, messages, &deliver));
                    continue;
                }
                Ok(None) => {}
                Err(Error::Closed) => return,
                Err(error) => {
                    tracing::warn!(sink, %error, code = error.code().name, "the outbox cannot be drained now");
                    // What is due stays due, and a bell changes nothing: not again at once.
                    beside(&mut under_way, self.clock.sleep(self.options.sweep_ms)).await;
                    continue;
                }
            }
            let pause_ms = beside(&mut under_way, self.pause_ms(&sink, &held)).await;
            let waiting = select(wake(), self.clock.sleep(pause_ms));
            // A lane that ends may have more to deliver, or leave room for another.
            if under_way.is_empty() {
                waiting.await;
            } else {
                select(waiting, under_way.next()).await;
            }
        }
    }

    /// Forgets what is old now and then; at the start and whenever the clock was set back, also recalls what would
    /// wait for a moment that was never meant.
    async fn tidy(&self, sink: &str, rounds: &mut Rounds) {
        let now_ms = self.clock.now_ms();
        let set_back = now_ms < rounds.seen_ms;
        rounds.seen_ms = now_ms;
        let every_ms = self.options.keep_done_ms / 24 + 1;
        let fresh = rounds.tidied_ms.is_some_and(|last| now_ms < last.saturating_add(every_ms));
        if fresh && !set_back {
            return;
        }
        if rounds.tidied_ms.is_none() || set_back {
            self.recall(sink, now_ms).await;
        }
        rounds.tidied_ms = Some(now_ms);
        self.forget(sink, now_ms).await;
    }

    async fn claim(&self, sink: &str, held: &Held) -> Result<Option<(Lease, Vec<Message>)>> {
        let (token, held) = (self.token(), held.as_json());
        let (kind, lease_ms, batch_max) =
            (sink.to_owned(), self.options.lease_ms, self.options.batch_max);
        let clock = self.clock.clone();
        let claimed = self.store.write(move |tx| {
            let now_ms = clock.now_ms();
            lane::claim(tx, &kind, &held, (now_ms, lease_ms), &token, batch_max)
        });
        claimed.await
    }

    /// Delivers what was claimed of a lane, and settles it. Until then the lane is not claimed here again, also if its
    /// lease is over: the claim would fence our own settling, and what became of the batch would never be known.
    async fn drain_lane(
        &self,
        _lane: Lane<'_>,
        lease: Lease,
        messages: Vec<Message>,
        deliver: &Deliver,
    ) {
        let outcome = self.deliver_batch(&lease, messages, deliver).await;
        let clock = self.clock.clone();
        let settled =
            self.store.write(move |tx| lane::settle(tx, &lease, &outcome, clock.now_ms()));
        match settled.await {
            // Fenced: another holder has taken over and delivers again; nothing of ours may be written.
            Ok(()) | Err(Error::Fenced | Error::Closed) => {}
            Err(error) => {
                tracing::warn!(%error, code = error.code().name, "a lane of the outbox could not be settled");
            }
        }
    }

    async fn deliver_batch(
        &self,
        lease: &Lease,
        messages: Vec<Message>,
        deliver: &Deliver,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        for message in messages {
            // A clock that was set back makes no lease longer.
            let left_ms = lease.until_ms.saturating_sub(self.clock.now_ms());
            // What is left at its end is for settling: others may take the lane over the moment it is over.
            let left_ms =
                left_ms.min(self.options.lease_ms).saturating_sub(self.options.lease_ms / 10);
            // A delivery that has too little time left would be cut off and counted as a failure: the next lease has
            // more. Every delivery has about as much time as the first.
            let least_ms = self.options.lease_ms.saturating_mul(4) / 5;
            let too_late = !outcome.done.is_empty() && left_ms < least_ms;
            if left_ms <= 0 || too_late {
                break;
            }
            let (seq, attempts) = (message.seq, message.attempts);
            // A sink that panics fails this message, not the node: otherwise every start would end at it again.
            let delivery = AssertUnwindSafe(async { deliver(message).await }).catch_unwind();
            let delivery = std::pin::pin!(delivery);
            let failure = match select(delivery, self.clock.sleep(left_ms)).await {
                Either::Left((Ok(Ok(())), _)) => {
                    outcome.done.push(seq);
                    continue;
                }
                Either::Left((Ok(Err(failure)), _)) => failure,
                Either::Left((Err(_), _)) => Failure::Retry("the sink panicked".to_owned()),
                Either::Right(_) => Failure::Retry("no answer within the lease".to_owned()),
            };
            outcome.failed = Some(self.failed(seq, attempts, failure));
            break;
        }
        outcome
    }

    fn failed(&self, seq: i64, attempts: i64, failure: Failure) -> Failed {
        let tried = attempts.saturating_add(1);
        let wait_ms = backoff_ms(&self.options, tried, self.random.next_u64());
        let (error, then) = match failure {
            Failure::Retry(error) if tried < self.options.max_attempts => {
                (error, Then::Again(self.clock.now_ms().saturating_add(wait_ms)))
            }
            Failure::Retry(error) => (error, Then::GivenUp),
            Failure::Never(error) => (error, Then::Refused),
        };
        Failed { seq, error: storable(&error), then }
    }

    async fn recall(&self, sink: &str, now_ms: UnixMs) {
        let (kind, longest_ms) = (sink.to_owned(), self.longest_ms());
        let recalled = self.store.write(move |tx| lane::recall(tx, &kind, now_ms, longest_ms));
        match recalled.await {
            Ok(0) => {}
            Ok(count) => {
                tracing::warn!(sink, count, "messages waited for a time that a wrong clock gave");
            }
            Err(error) => tracing::warn!(sink, %error, "the outbox could not be looked through"),
        }
    }

    async fn forget(&self, sink: &str, now_ms: UnixMs) {
        let old = Old {
            done_before_ms: now_ms.saturating_sub(self.options.keep_done_ms),
            dead_before_ms: now_ms.saturating_sub(self.options.keep_dead_ms),
            dead_max: self.options.dead_max,
        };
        loop {
            let kind = sink.to_owned();
            match self.store.write(move |tx| lane::forget(tx, &kind, old)).await {
                Ok(forgotten) if forgotten >= lane::FORGET_MAX => {}
                Ok(_) => return,
                Err(error) => {
                    tracing::warn!(sink, %error, "old messages could not be forgotten");
                    return;
                }
            }
        }
    }

    /// No wait and no lease is meant to be longer.
    fn longest_ms(&self) -> i64 {
        let Options { backoff_max_ms, lease_ms, .. } = self.options;
        backoff_max_ms.max(lease_ms).saturating_mul(2)
    }

    /// Until the next lane is due, but never longer than a sweep.
    async fn pause_ms(&self, sink: &str, held: &Held) -> i64 {
        let (kind, held) = (sink.to_owned(), held.as_json());
        let due = self.store.read(move |rx| lane::first_and_last_due(rx, &kind, &held));
        let due: Option<(UnixMs, UnixMs)> = due.await.ok().flatten();
        let Some((first_ms, last_ms)) = due else { return self.options.sweep_ms };
        let now_ms = self.clock.now_ms();
        // Our own clock need not have been wrong: another process may have written this, or our clock may have been
        // set forth and back while we slept.
        if last_ms.saturating_sub(now_ms) > self.longest_ms() {
            self.recall(sink, now_ms).await;
        }
        first_ms.saturating_sub(now_ms).clamp(1, self.options.sweep_ms)
    }

    fn token(&self) -> String {
        let mut bytes = [0; 16];
        self.random.fill(&mut bytes);
        to_hex(&bytes)
    }
}

const ERROR_MAX_CHARS: usize = 1_000;

/// What a sink says may come from a stranger. A text that the database refuses could never be written down, and its
/// message would be tried for ever.
fn storable(error: &str) -> String {
    error.chars().take(ERROR_MAX_CHARS).map(|c| if c == '\0' { '\u{fffd}' } else { c }).collect()
}

/// Waits for one thing while the lanes under way go on.
async fn beside<T, L: Future<Output = ()>>(
    under_way: &mut FuturesUnordered<L>,
    wanted: impl Future<Output = T>,
) -> T {
    let mut wanted = std::pin::pin!(wanted);
    loop {
        if under_way.is_empty() {
            return wanted.await;
        }
        if let Either::Left((got, _)) = select(wanted.as_mut(), under_way.next()).await {
            return got;
        }
    }
}

/// Doubles from the shortest to the longest wait, ±20 % so that many failures do not come back together.
fn backoff_ms(options: &Options, tried: i64, draw: u64) -> i64 {
    let doublings = u32::try_from(tried.saturating_sub(1).clamp(0, 40)).unwrap_or(40);
    let plain =
        options.backoff_min_ms.saturating_mul(1i64 << doublings).min(options.backoff_max_ms);
    let spread = plain / 5;
    let offset = i64::try_from(draw % 1_000).unwrap_or(0);
    plain
        .saturating_sub(spread)
        .saturating_add(spread.saturating_mul(2).saturating_mul(offset) / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_limit_and_spreads() {
        let options = Options { backoff_min_ms: 100, backoff_max_ms: 1_000, ..Options::default() };
        let middle = |tried| backoff_ms(&options, tried, 500);
        assert_eq!([1, 2, 3, 4, 5, 100].map(middle), [100, 200, 400, 800, 1_000, 1_000]);
        assert_eq!(backoff_ms(&options, 1, 0), 80);
        assert_eq!(backoff_ms(&options, 1, 999), 119);
    }
}
