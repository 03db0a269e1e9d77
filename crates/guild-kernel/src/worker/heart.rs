//! Keeps leases alive: of turns, of runs, and of targets that only one worker may serve. Whoever has lost one is
//! dropped: nothing that it still does can be written.

use std::collections::BTreeMap;
use std::pin::pin;

use futures_util::future::{AbortHandle, AbortRegistration, select};
use guild_bus::ANYTHING;
use guild_bus::subject::{Subject, WorkerTarget};
use guild_protocol::env::UnixMs;
use guild_store::lease::{self, Lease};

use super::scribe::is_passing;
use super::{Worker, is_closed, lock};
use crate::turn::{self, Fence, RunFence, SET_MAX};
use crate::{Error, LeaseToken, Result, code};

/// What a worker holds, each under a number of its own.
#[derive(Default)]
pub(super) struct Held {
    next: u64,
    leases: BTreeMap<u64, HeldLease>,
    turns: usize,
    /// The targets that only this worker serves.
    targets: BTreeMap<WorkerTarget, Lease>,
}

/// What must be shown to renew a lease.
#[derive(Debug, Clone)]
pub(super) enum Shown {
    Turn(Fence),
    Run(RunFence),
}

struct HeldLease {
    shown: Shown,
    until_ms: UnixMs,
    task: AbortHandle,
    /// What was done under it is being written: that write tells whether it was lost.
    is_written: bool,
}

/// A lease's number, and what drops its task.
pub(super) type Hold = (u64, AbortRegistration);

impl Held {
    /// How many turns there are.
    pub(super) fn turns(&self) -> usize {
        self.turns
    }

    /// How many runs of tools there are.
    pub(super) fn runs(&self) -> usize {
        self.leases.len().saturating_sub(self.turns)
    }

    /// No target that only one may serve is served until its lease is looked at again.
    pub(super) fn forget_targets(&mut self) {
        self.targets.clear();
    }

    /// The lease of a target that only one may serve.
    pub(super) fn target(&self, target: &WorkerTarget) -> Option<Lease> {
        self.targets.get(target).cloned()
    }
}

/// How long a worker waits at its end for the store.
const LEAVE_MS: i64 = 5_000;

type Answers = (Vec<Result<UnixMs>>, Vec<Result<UnixMs>>);

impl Worker {
    /// From now on this is kept.
    pub(super) fn hold(&self, shown: Shown, until_ms: UnixMs) -> Hold {
        let (task, registration) = AbortHandle::new_pair();
        let mut held = lock(&self.held);
        held.next = held.next.wrapping_add(1);
        if matches!(shown, Shown::Turn(_)) {
            held.turns = held.turns.saturating_add(1);
        }
        let number = held.next;
        held.leases.insert(number, HeldLease { shown, until_ms, task, is_written: false });
        (number, registration)
    }

    /// It is given for longer.
    pub(super) fn held_until(&self, number: u64, until_ms: UnixMs) {
        if let Some(held) = lock(&self.held).leases.get_mut(&number) {
            held.until_ms = held.until_ms.max(until_ms);
        }
    }

    /// It is not kept any more.
    pub(super) fn let_go(&self, number: u64) {
        let mut held = lock(&self.held);
        if let Some(HeldLease { shown: Shown::Turn(_), .. }) = held.leases.remove(&number) {
            held.turns = held.turns.saturating_sub(1);
        }
        drop(held);
        self.freed.push(());
    }

    /// Renews all leases, three times in the time that a run lasts.
    pub(super) async fn heart(&self) {
        loop {
            self.parts.clock.sleep((self.options.lease_ms / 6).max(1)).await;
            let all: Vec<(u64, Shown)> =
                lock(&self.held).leases.iter().map(|(n, held)| (*n, held.shown.clone())).collect();
            if self.beat_all(&all).await.is_err() {
                return;
            }
            self.drop_the_late();
        }
    }

    /// Renews all of these. What fails together is tried in halves, so that one bad row takes nobody else's lease; an
    /// error is that the store is closed.
    async fn beat_all(&self, all: &[(u64, Shown)]) -> Result<()> {
        let mut left: Vec<&[(u64, Shown)]> = all.chunks(SET_MAX).collect();
        while let Some(some) = left.pop() {
            match self.beat(some).await {
                Ok(()) => {}
                Err(error) if is_closed(&error) => return Err(error),
                Err(error) if some.len() > 1 && !is_passing(&error) => {
                    let (one, other) = some.split_at(some.len() / 2);
                    left.extend([other, one]);
                }
                Err(error) => self.warn(&error, "leases cannot be renewed now"),
            }
        }
        Ok(())
    }

    async fn beat(&self, some: &[(u64, Shown)]) -> Result<()> {
        let (mut turns, mut runs) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        for (number, shown) in some {
            match shown {
                Shown::Turn(fence) => {
                    turns.0.push(*number);
                    turns.1.push(fence.clone());
                }
                Shown::Run(fence) => {
                    runs.0.push(*number);
                    runs.1.push(fence.clone());
                }
            }
        }
        let (clock, ttl_ms) = (self.parts.clock.clone(), self.options.lease_ms);
        let (fences, run_fences) = (turns.1, runs.1);
        let beat = self.parts.store.write(move |tx| -> Result<Answers> {
            let now_ms = clock.now_ms();
            let turns = turn::heartbeat_all(tx, &fences, ttl_ms, now_ms)?;
            let run_ttl_ms = Some(turn::run_ttl_ms(ttl_ms));
            Ok((turns, turn::renew_runs(tx, &run_fences, run_ttl_ms, now_ms)?))
        });
        let (of_turns, of_runs) = beat.await?;
        let numbers = turns.0.into_iter().chain(runs.0);
        for (number, answer) in numbers.zip(of_turns.into_iter().chain(of_runs)) {
            match answer {
                Ok(until_ms) => self.held_until(number, until_ms),
                Err(_) => self.drop_task(number),
            }
        }
        Ok(())
    }

    /// Its lease is lost, unless it ended it itself meanwhile.
    fn drop_task(&self, number: u64) {
        if let Some(held) = lock(&self.held).leases.get(&number) {
            self.drop_held(held);
        }
    }

    /// Whose lease is over without an answer may have lost it.
    fn drop_the_late(&self) {
        let now_ms = self.parts.clock.now_ms();
        for held in lock(&self.held).leases.values().filter(|held| held.until_ms <= now_ms) {
            self.drop_held(held);
        }
    }

    fn drop_held(&self, held: &HeldLease) {
        if !held.is_written && !held.task.is_aborted() {
            self.counts.add("dropped", 1);
            held.task.abort();
        }
    }

    /// Whether what was done under a lease is being written now.
    pub(super) fn set_written(&self, number: u64, is_written: bool) {
        if let Some(held) = lock(&self.held).leases.get_mut(&number) {
            held.is_written = is_written;
        }
    }

    /// Serves targets that only one worker may serve, as long as nobody else does.
    pub(super) async fn doorman(&self) {
        let exclusive: Vec<&WorkerTarget> =
            self.options.targets.iter().filter(|target| target.is_exclusive()).collect();
        if exclusive.is_empty() {
            return;
        }
        let token = LeaseToken::make(&*self.parts.clock, &*self.parts.random);
        let mut refused = false;
        loop {
            for target in &exclusive {
                match self.enter(target, &token).await {
                    Ok(()) => refused = false,
                    Err(error) if is_closed(&error) => return,
                    Err(error) => {
                        self.counts.add("target_held", 1);
                        // Once is enough to be told.
                        if !std::mem::replace(&mut refused, true) {
                            let (code, holder) = (error.code().name, &self.options.holder);
                            tracing::warn!(holder, %error, code, "a target is not served from here");
                        }
                    }
                }
            }
            self.parts.clock.sleep((self.options.lease_ms / 3).max(1)).await;
        }
    }

    async fn enter(&self, target: &WorkerTarget, token: &LeaseToken) -> Result<()> {
        let (name, token) =
            (format!("kernel.worker.{}", target.as_str()), token.as_str().to_owned());
        let (holder, ttl_ms) = (self.options.holder.clone(), self.options.lease_ms);
        let clock = self.parts.clock.clone();
        let entered = self.parts.store.write(move |tx| -> Result<Option<Lease>> {
            Ok(lease::acquire(tx, &name, &holder, &token, ttl_ms, clock.now_ms())?)
        });
        match entered.await? {
            Some(lease) => {
                let was_held = lock(&self.held).targets.insert((*target).clone(), lease).is_some();
                if !was_held {
                    let subject = Subject::Wakeup((*target).clone());
                    self.parts.bus.ring(subject.topic()?.as_str(), ANYTHING);
                }
                Ok(())
            }
            None => {
                lock(&self.held).targets.remove(target);
                let message = format!("another worker serves {}", target.as_str());
                Err(Error::refused(&code::TARGET_HELD, message))
            }
        }
    }

    /// Gives back whatever is held, so that nobody has to wait for it.
    pub(super) async fn leave(&self) {
        let (leases, targets) = {
            let mut held = lock(&self.held);
            (std::mem::take(&mut held.leases), std::mem::take(&mut held.targets))
        };
        let shown: Vec<Shown> = leases.into_values().map(|lease| lease.shown).collect();
        let targets: Vec<Lease> = targets.into_values().collect();
        let left = async {
            let released = self.parts.store.write(move |tx| -> Result<()> {
                targets.iter().try_for_each(|target| Ok(lease::release(tx, target).map(drop)?))
            });
            self.is_left(released.await);
            self.give_back_all(&shown).await;
        };
        select(pin!(left), self.parts.clock.sleep(LEAVE_MS)).await;
    }

    /// In halves, too, if it fails together.
    async fn give_back_all(&self, all: &[Shown]) {
        let mut left: Vec<&[Shown]> = all.chunks(SET_MAX).collect();
        while let Some(some) = left.pop() {
            let (turns, runs) = sorted(some.iter().cloned());
            let clock = self.parts.clock.clone();
            let given = self.parts.store.write(move |tx| -> Result<()> {
                let now_ms = clock.now_ms();
                turn::give_back_all(tx, &turns, now_ms)?;
                turn::renew_runs(tx, &runs, None, now_ms).map(drop)
            });
            match given.await {
                Err(error) if some.len() > 1 && !is_passing(&error) && !is_closed(&error) => {
                    let (one, other) = some.split_at(some.len() / 2);
                    left.extend([other, one]);
                }
                given => self.is_left(given),
            }
        }
    }

    fn is_left(&self, left: Result<()>) {
        if let Err(error) = left {
            let words = "what was held could not be given back; it is free when its leases end";
            self.warn(&error, words);
        }
    }
}

/// Turns and runs, each for themselves.
fn sorted(shown: impl Iterator<Item = Shown>) -> (Vec<Fence>, Vec<RunFence>) {
    let (mut turns, mut runs) = (Vec::new(), Vec::new());
    for shown in shown {
        match shown {
            Shown::Turn(fence) => turns.push(fence),
            Shown::Run(fence) => runs.push(fence),
        }
    }
    (turns, runs)
}
