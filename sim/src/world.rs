//! Everything random, ordered or timed.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use guild_protocol::env::{BoxFuture, Clock, Random, UnixMs};

use crate::fault::{Decisions, Dice, Fault, Kind, Selection};

/// What happens at a moment of virtual time.
enum Timer {
    Wake(Waker),
    Act(Box<dyn FnOnce() + Send>),
}

struct State {
    rng: Dice,
    decisions: Decisions,
    now_ms: UnixMs,
    timers: BTreeMap<(UnixMs, u64), Timer>,
    timers_made: u64,
    trace: u64,
    deeds: BTreeMap<&'static str, u64>,
    edits: BTreeMap<&'static str, bool>,
    violations: Vec<String>,
    faults_until_ms: UnixMs,
}

/// The shared state of a simulated world. Also its clock and its randomness.
#[derive(Clone)]
pub struct World(Arc<Mutex<State>>);

impl World {
    /// The world that this seed makes, with these of its faults, until a moment after which everything must come
    /// right.
    pub fn new(seed: u64, faults_until_ms: UnixMs, selection: &Selection) -> World {
        let schedule = selection.schedule;
        let parts = [seed, schedule];
        World(Arc::new(Mutex::new(State {
            rng: Dice::new(if schedule == 0 { &parts[..1] } else { &parts }),
            decisions: Decisions::new(seed, selection.clone()),
            now_ms: 0,
            timers: BTreeMap::new(),
            timers_made: 0,
            trace: 0,
            deeds: BTreeMap::new(),
            edits: BTreeMap::new(),
            violations: Vec::new(),
            faults_until_ms,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number below `n`, which must not be zero.
    pub fn below(&self, n: u64) -> u64 {
        self.lock().draw() % n
    }

    /// A number of milliseconds below `n`.
    pub fn below_ms(&self, n: u64) -> i64 {
        i64::try_from(self.below(n)).unwrap_or(0)
    }

    /// Asked at every place where something can go wrong: whether it does, once in `one_in` times (never, if that is
    /// zero), while faults happen. If so, with dice for how.
    pub fn fault(&self, who: Option<usize>, kind: Kind, one_in: u64) -> Option<Dice> {
        let mut state = self.lock();
        let now_ms = state.now_ms;
        if now_ms >= state.faults_until_ms {
            return None;
        }
        let dice = state.decisions.decide(now_ms, who, kind, one_in)?;
        state.mix(kind as u64);
        Some(dice)
    }

    /// What went wrong so far, in order.
    pub fn faults(&self) -> Vec<Fault> {
        self.lock().decisions.fired().to_vec()
    }

    /// When nothing goes wrong any more.
    pub fn faults_until_ms(&self) -> UnixMs {
        self.lock().faults_until_ms
    }

    /// Adds to the trace: two runs of one seed must agree on everything noted.
    pub fn note(&self, what: u64) {
        let mut state = self.lock();
        let now = state.now_ms.unsigned_abs();
        for part in [what, now] {
            state.mix(part);
        }
    }

    /// Adds a text to the trace.
    pub fn note_text(&self, text: &str) {
        text.bytes().for_each(|byte| self.note(u64::from(byte)));
    }

    /// The trace so far.
    pub fn trace(&self) -> u64 {
        self.lock().trace
    }

    /// Counts something that the system did, to see that a scenario reaches what it is for.
    pub fn count(&self, deed: &'static str) {
        *self.lock().deeds.entry(deed).or_default() += 1;
    }

    /// What the system did.
    pub fn deeds(&self) -> BTreeMap<&'static str, u64> {
        self.lock().deeds.clone()
    }

    /// Says that a planted bug changes this text of statements.
    pub(crate) fn plant(&self, text: &'static str) {
        self.lock().edits.entry(text).or_default();
    }

    /// Says that a statement had a text that a planted bug changes.
    pub(crate) fn planted(&self, text: &'static str) {
        self.lock().edits.insert(text, true);
    }

    /// The texts that a planted bug changes, and whether any statement had them.
    pub fn edits(&self) -> BTreeMap<&'static str, bool> {
        self.lock().edits.clone()
    }

    /// Reports something that must never happen.
    pub fn violate(&self, what: String) {
        let mut state = self.lock();
        let at = format!("at {} ms: {what}", state.now_ms);
        state.violations.push(at);
    }

    /// Whether something happened that must never happen.
    pub fn is_violated(&self) -> bool {
        !self.lock().violations.is_empty()
    }

    /// What must never happen and did.
    pub fn violations(&self) -> Vec<String> {
        self.lock().violations.clone()
    }

    /// Does something after a while.
    pub fn later(&self, wait_ms: i64, action: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        let key = state.timer_key(wait_ms);
        state.timers.insert(key, Timer::Act(Box::new(action)));
    }

    /// Forgets all timers. Their actions hold the world, which holds them: without this nothing is ever freed, and
    /// a database in memory would outlive its run.
    pub(crate) fn end(&self) {
        let timers = std::mem::take(&mut self.lock().timers);
        // Outside the lock: dropping a future may remove its timer.
        drop(timers);
    }

    /// Moves to the next moment at which something happens; false if nothing ever will.
    pub(crate) fn advance(&self) -> bool {
        let timer = {
            let mut state = self.lock();
            let Some((key, timer)) = state.timers.pop_first() else { return false };
            state.now_ms = state.now_ms.max(key.0);
            timer
        };
        // Outside the lock: waking and acting may want the world.
        match timer {
            Timer::Wake(waker) => waker.wake(),
            Timer::Act(action) => action(),
        }
        true
    }
}

impl State {
    fn draw(&mut self) -> u64 {
        let drawn = self.rng.throw();
        // Whoever draws, and when, is part of what happened.
        self.mix(drawn);
        drawn
    }

    fn mix(&mut self, part: u64) {
        self.trace = (self.trace ^ part).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    }

    fn timer_key(&mut self, wait_ms: i64) -> (UnixMs, u64) {
        self.timers_made += 1;
        (self.now_ms.saturating_add(wait_ms.max(0)), self.timers_made)
    }
}

impl Clock for World {
    fn now_ms(&self) -> UnixMs {
        self.lock().now_ms
    }

    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        let until_ms = self.now_ms().saturating_add(duration_ms);
        Box::pin(Sleep { world: self.clone(), until_ms, timer: None })
    }
}

impl Random for World {
    fn fill(&self, bytes: &mut [u8]) {
        let mut state = self.lock();
        for chunk in bytes.chunks_mut(8) {
            let drawn = state.draw().to_le_bytes();
            chunk.copy_from_slice(&drawn[..chunk.len()]);
        }
    }
}

/// Removes its timer when dropped, so that a race that was won leaves nothing behind.
struct Sleep {
    world: World,
    until_ms: UnixMs,
    timer: Option<(UnixMs, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let world = self.world.clone();
        let mut state = world.lock();
        if state.now_ms >= self.until_ms && self.timer.is_some() {
            return Poll::Ready(());
        }
        if let Some(old) = self.timer {
            state.timers.remove(&old);
        }
        let wait_ms = self.until_ms.saturating_sub(state.now_ms);
        let key = state.timer_key(wait_ms);
        state.timers.insert(key, Timer::Wake(cx.waker().clone()));
        self.timer = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.world.lock().timers.remove(&timer);
        }
    }
}
