//! Looks after the sandboxes of a machine: makes them, lets them run as long as they are paid, ends and removes them.
//!
//! What is to be done stands in the rows. [`next_act`] decides, the rest asks the machine and the agents and writes
//! down what came of it. Whatever dies, the next look at the rows goes on:
//!
//! ```text
//! starting ─▶ make (once for each name) ─▶ attestation = image? ─▶ started: minute 0 is paid ─▶ first lease
//! running  ─▶ a lease whenever more is paid; freeze, thaw; a look now and then: gone? ─▶ failed
//! ending   ─▶ stop at its end ─▶ stopped: its files are kept       destroying ─▶ remove ─▶ destroyed
//! ```
//!
//! Nothing of this is needed for the rule that no unpaid minute runs: the agent ends by itself when its lease is over.
//! Two drivers that see the same machine would only do the same twice; two that see different hosts under one name
//! would take what the other has for lost. So a driver with a [`Claim`] acts only while that stands: it is taken before
//! anything else, renewed at every comparison, and looked at again in the transaction of each write.

mod act;
mod perform;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, Either, join, select};
use futures_util::stream::FuturesUnordered;
use guild_protocol::env::{Shutdown, UnixMs};
use guild_store::Store;
use guild_store::lease::Lease;
use guild_store::outbox::Wake;

use super::claim::Claim;
use super::link::Link;
use super::{Machine, reconcile};
use crate::sandbox::{self, Sandbox};
use crate::{Error, Result, SandboxId};

pub use act::{Act, Kind, Note, Resized, Wait, next_act};
pub(super) use perform::is_of;

/// How soon a machine is claimed again that could not be.
const CLAIM_AGAIN_MS: i64 = 2_000;

/// How a machine is driven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How often the rows are looked at without a bell.
    pub tick_ms: i64,
    /// How many sandboxes something is done with at once.
    pub at_once: usize,
    /// How many of those may be starting: a start takes long, a lease must not wait for it.
    pub starts_at_once: usize,
    /// By how much a lease ends before what is paid: an agent needs a moment to end everything.
    pub margin_ms: i64,
    /// How often an agent is asked how it is.
    pub look_ms: i64,
    /// How often it is tried to start a sandbox.
    pub start_tries: u32,
    /// The wait after the first failure; it doubles with each further one.
    pub backoff_min_ms: i64,
    /// The longest wait.
    pub backoff_max_ms: i64,
    /// How often what the machine has is compared with what the rows want.
    pub reconcile_ms: i64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            tick_ms: 500,
            at_once: 32,
            starts_at_once: 16,
            margin_ms: 1_000,
            look_ms: 15_000,
            start_tries: 5,
            backoff_min_ms: 500,
            backoff_max_ms: 30_000,
            reconcile_ms: 60_000,
        }
    }
}

impl Options {
    fn check(&self) -> Result<()> {
        let at_least_one = [
            ("tick_ms", self.tick_ms),
            ("look_ms", self.look_ms),
            ("backoff_min_ms", self.backoff_min_ms),
            ("backoff_max_ms", self.backoff_max_ms),
            ("reconcile_ms", self.reconcile_ms),
            ("start_tries", i64::from(self.start_tries)),
            ("at_once", i64::try_from(self.at_once).unwrap_or(i64::MAX)),
            ("starts_at_once", i64::try_from(self.starts_at_once).unwrap_or(i64::MAX)),
        ];
        let wrong = at_least_one.iter().find(|(_, value)| *value < 1).map(|(name, _)| *name);
        let wrong = wrong.or((self.margin_ms < 0).then_some("margin_ms"));
        match wrong {
            Some(name) => {
                let why = format!("{name} of the machine's driver is too small");
                Err(Error::refused(&crate::code::MALFORMED, why))
            }
            None => Ok(()),
        }
    }
}

/// What a service has done and met since it started, by a word for it. Cheap to clone; clones count together.
#[derive(Debug, Clone, Default)]
pub struct Counts(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Counts {
    pub(crate) fn add(&self, word: &'static str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(word).or_default();
        *count = count.saturating_add(1);
    }

    /// How often this has happened: `started`, `failed`, `leased`, `stopped`, `removed`, `lost`, `leak`,
    /// `unreadable`, `unclaimed` or `error`; of a meter `failed` or `set_aside`.
    pub fn of(&self, word: &str) -> u64 {
        self.all().get(word).copied().unwrap_or(0)
    }

    /// Everything that has happened.
    pub fn all(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The service that drives one machine.
pub struct Driver {
    pub(super) machine: Arc<dyn Machine>,
    pub(super) link: Link,
    pub(super) store: Store,
    pub(super) counts: Counts,
    options: Options,
    wake: Mutex<Wake>,
    /// Whose machine it is, if more than one may think that it is theirs; and the lease that says so, while it is held.
    claim: Option<Claim>,
    held: Mutex<Option<Lease>>,
    notes: Mutex<BTreeMap<SandboxId, Note>>,
    /// What is being done, and with whom.
    under_way: Mutex<BTreeMap<SandboxId, Act>>,
}

/// What is being done.
type UnderWay<'a> = FuturesUnordered<BoxFuture<'a, ()>>;

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while holding one of these.
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Driver {
    /// A driver of one machine. `wake` is ready when a bell of [`crate::TOPIC`] rings.
    pub fn new(
        options: Options,
        machine: Arc<dyn Machine>,
        link: Link,
        store: Store,
        wake: Wake,
    ) -> Result<Driver> {
        options.check()?;
        Ok(Driver {
            machine,
            link,
            store,
            counts: Counts::default(),
            options,
            wake: Mutex::new(wake),
            claim: None,
            held: Mutex::default(),
            notes: Mutex::default(),
            under_way: Mutex::default(),
        })
    }

    /// The same, acting only while this claim stands.
    #[must_use]
    pub fn claiming(self, claim: Claim) -> Driver {
        Driver { claim: Some(claim), ..self }
    }

    /// What it does and meets.
    pub fn counts(&self) -> Counts {
        self.counts.clone()
    }

    /// Drives until the shutdown. Sandboxes go on running as long as they are paid.
    pub async fn run(self, shutdown: Shutdown) {
        let all = std::pin::pin!(async {
            self.renew().await;
            join(self.drive(), self.reconcile()).await
        });
        select(shutdown.triggered(), all).await;
    }

    async fn drive(&self) {
        let mut under_way: UnderWay<'_> = FuturesUnordered::new();
        loop {
            let busy: BTreeSet<SandboxId> = lock(&self.under_way).keys().cloned().collect();
            let rows = match self.may_act() {
                true => beside(&mut under_way, self.rows()).await,
                false => Ok(Vec::new()),
            };
            let all_begun = match rows {
                Ok(rows) => {
                    let ended = busy.iter().any(|id| !self.is_under_way(id));
                    let all_begun = self.begin(rows, &busy, &mut under_way);
                    if ended {
                        continue;
                    }
                    all_begun
                }
                Err(Error::Store(guild_store::Error::Closed)) => return,
                Err(error) => {
                    self.counts.add("error");
                    tracing::warn!(%error, code = error.code().name, "the sandboxes cannot be read now");
                    true
                }
            };
            let bell = (lock(&self.wake))();
            let pause = select(bell, self.link.clock().sleep(self.options.tick_ms));
            if all_begun || under_way.is_empty() {
                beside(&mut under_way, pause).await;
            } else {
                // Whatever ends leaves room for what is waiting.
                select(pause, under_way.next()).await;
            }
        }
    }

    /// Looks for what was left or lost, at the start and then now and then.
    async fn reconcile(&self) {
        loop {
            let compared = match self.may_act() {
                true => reconcile::run(self).await,
                false => Ok(()),
            };
            if let Err(error) = compared {
                self.counts.add("error");
                tracing::warn!(%error, code = error.code().name, "a machine cannot be compared with its rows now");
            }
            // Whoever could not ask has to ask again soon: leases are short.
            let pause_ms = match self.may_act() {
                true => self.options.reconcile_ms,
                false => self.options.reconcile_ms.min(CLAIM_AGAIN_MS),
            };
            self.link.clock().sleep(pause_ms).await;
            self.renew().await;
        }
    }

    /// Takes the machine, or makes the claim to it last longer.
    async fn renew(&self) {
        let Some(claim) = self.claim.clone() else { return };
        let clock = self.link.clock().clone();
        let taken = self.store.write(move |tx| claim.take(tx, clock.now_ms())).await;
        match taken {
            Ok(taken) => {
                let held = std::mem::replace(&mut *lock(&self.held), taken);
                if self.may_act() {
                    return;
                }
                if held.is_some() || self.counts.of("unclaimed") == 0 {
                    let machine = self.machine.name();
                    tracing::warn!(
                        machine,
                        "another directory has this machine; nothing is done with it"
                    );
                }
                self.counts.add("unclaimed");
            }
            // What was held stands until it runs out: every write looks at it again.
            Err(error) => {
                self.counts.add("error");
                tracing::warn!(%error, code = error.code().name, "a machine cannot be claimed now");
            }
        }
    }

    fn may_act(&self) -> bool {
        self.claim.is_none() || lock(&self.held).is_some()
    }

    /// What a write has to look at first: nothing where nobody else may think that the machine is theirs.
    pub(super) fn fence(&self) -> Result<Option<Lease>> {
        match (&self.claim, lock(&self.held).clone()) {
            (Some(claim), None) => Err(claim.refused()),
            (_, held) => Ok(held),
        }
    }

    /// All rows of this machine that want anything.
    pub(super) async fn rows(&self) -> Result<Vec<Sandbox>> {
        const PAGE: i64 = 500;
        let mut rows = Vec::new();
        let mut after = String::new();
        loop {
            let page = self.store.read(move |rx| sandbox::opened_after(rx, &after, PAGE));
            let sandbox::Opened { rows: page, unreadable, last } = page.await?;
            for sandbox_id in unreadable {
                self.counts.add("unreadable");
                tracing::debug!(
                    sandbox_id,
                    "the row of a sandbox cannot be read; its lease runs out"
                );
            }
            rows.extend(page.into_iter().filter(|row| row.machine == self.machine.name()));
            match last {
                Some(last) => after = last,
                None => return Ok(rows),
            }
        }
    }

    /// Begins what is to be done, the most urgent first, as much as may be at once. Says whether that was all.
    fn begin<'a>(
        &'a self,
        rows: Vec<Sandbox>,
        busy: &BTreeSet<SandboxId>,
        under_way: &mut UnderWay<'a>,
    ) -> bool {
        let mut all_begun = true;
        for (act, row) in self.acts(rows, busy) {
            if !self.has_room(act) {
                all_begun = false;
                continue;
            }
            lock(&self.under_way).insert(row.sandbox_id.clone(), act);
            let turn = Turn { driver: self, sandbox_id: row.sandbox_id.clone() };
            under_way.push(Box::pin(async move {
                let _turn = turn;
                self.perform(act, &row).await;
            }));
        }
        all_begun
    }

    /// What is to be done with those that nothing is being done with, the most urgent first. `busy` are those that
    /// something was being done with when the rows began to be read: it may have ended since and changed the row,
    /// and would be done twice.
    fn acts(&self, rows: Vec<Sandbox>, busy: &BTreeSet<SandboxId>) -> Vec<(Act, Sandbox)> {
        let now_ms = self.now_ms();
        let open: BTreeSet<SandboxId> = rows.iter().map(|row| row.sandbox_id.clone()).collect();
        let (mut notes, under_way) = (lock(&self.notes), lock(&self.under_way));
        // What has no row that wants anything needs no note.
        notes.retain(|id, _| open.contains(id) || under_way.contains_key(id));
        let is_idle = |id: &SandboxId| !under_way.contains_key(id) && !busy.contains(id);
        let idle = rows.into_iter().filter(|row| is_idle(&row.sandbox_id));
        let act = |row: Sandbox| {
            let note = notes.entry(row.sandbox_id.clone()).or_default();
            (next_act(&row, note, &self.options, now_ms), row)
        };
        let acts = idle.map(act).filter(|(act, _)| *act != Act::Nothing);
        let mut acts: Vec<(Act, Sandbox)> = acts.collect();
        acts.sort_by_key(|(act, _)| *act);
        acts
    }

    fn has_room(&self, act: Act) -> bool {
        let under_way = lock(&self.under_way);
        let starts = under_way.values().filter(|act| **act == Act::Start).count();
        let may_start = act != Act::Start || starts < self.options.starts_at_once;
        may_start && under_way.len() < self.options.at_once
    }

    pub(super) fn is_under_way(&self, sandbox_id: &SandboxId) -> bool {
        lock(&self.under_way).contains_key(sandbox_id)
    }

    pub(super) fn now_ms(&self) -> UnixMs {
        self.link.clock().now_ms()
    }

    fn note(&self, sandbox_id: &SandboxId, change: impl FnOnce(&mut Note)) {
        change(lock(&self.notes).entry(sandbox_id.clone()).or_default());
    }
}

/// Keeps everybody else away from a sandbox.
struct Turn<'a> {
    driver: &'a Driver,
    sandbox_id: SandboxId,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(&self.driver.under_way).remove(&self.sandbox_id);
    }
}

/// Does something while what is under way goes on.
async fn beside<T>(under_way: &mut UnderWay<'_>, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    while !under_way.is_empty() {
        match select(work, under_way.next()).await {
            Either::Left((done, _)) => return done,
            Either::Right((_, still)) => work = still,
        }
    }
    work.await
}
