//! The matrix in memory: what replaying the log gives, with what choosing quickly needs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;

use super::entry::D_MAX_BYTES;
use super::shares::Shares;
use super::{Change, Entry, Mutation, Options, Parts, Status, TaskType, Tier, next};
use crate::error::code;
use crate::evaluation::Pace;
use crate::{Error, Result};

/// Something that has happened to an entry: what a row of the log says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// Its number: one more than that of the effect before it.
    pub seq: i64,
    /// When.
    pub at_ms: UnixMs,
    /// Which work.
    pub task: TaskType,
    /// Whose entry.
    pub provider: PublicKey,
    /// What happened.
    pub mutation: Mutation,
    /// What the entry is afterwards. It is kept, and not computed again: other settings must not change the past.
    pub entry: Entry,
}

/// Everybody for one task type. Places are given in the order of admission and kept for ever.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Task {
    places: BTreeMap<PublicKey, usize>,
    entries: Vec<(PublicKey, Entry)>,
    /// What their scores are made of, by place.
    parts: Vec<Parts>,
    /// Those who are hired, by tier, the best first.
    pools: [BTreeSet<(Reverse<u32>, usize)>; 4],
    pub(super) shares: Shares,
    /// Outcomes in all.
    pub(super) outcomes: u64,
    /// Of all who are hired: the sum of how often each did well, in ten-thousandths.
    means_bp: u64,
    active: usize,
}

impl Task {
    pub(super) fn entries(&self) -> &[(PublicKey, Entry)] {
        &self.entries
    }

    pub(super) fn entry(&self, provider: &PublicKey) -> Option<&Entry> {
        self.places.get(provider).and_then(|place| self.entries.get(*place)).map(|(_, entry)| entry)
    }

    /// What the scores are made of, by place.
    pub(super) fn parts(&self) -> &[Parts] {
        &self.parts
    }

    /// The places of those in a tier, the best first.
    pub(super) fn pool(&self, tier: Tier) -> &BTreeSet<(Reverse<u32>, usize)> {
        let [primary, secondary, tertiary, below] = &self.pools;
        match tier {
            Tier::Primary => primary,
            Tier::Secondary => secondary,
            Tier::Tertiary => tertiary,
            Tier::Below => below,
        }
    }

    fn pool_mut(&mut self, tier: Tier) -> &mut BTreeSet<(Reverse<u32>, usize)> {
        let [primary, secondary, tertiary, below] = &mut self.pools;
        match tier {
            Tier::Primary => primary,
            Tier::Secondary => secondary,
            Tier::Tertiary => tertiary,
            Tier::Below => below,
        }
    }

    /// How many are hired.
    pub(super) fn hireable(&self) -> usize {
        self.pools.iter().fold(0_usize, |sum, pool| sum.saturating_add(pool.len()))
    }

    /// How many are active.
    pub(super) fn active(&self) -> usize {
        self.active
    }

    /// How often those who are hired do well, on average, each counting once.
    pub(super) fn mean(&self) -> f64 {
        match self.hireable() {
            0 => 0.5,
            count => self.means_bp as f64 / 10_000.0 / count as f64,
        }
    }

    /// Takes what follows from an entry into account, or out of it.
    fn index(&mut self, options: &Options, place: usize, there: bool) {
        let Some((_, entry)) = self.entries.get(place) else { return };
        let Some(parts) = self.parts.get(place) else { return };
        let (status, mean_bp) = (entry.status, mean_bp(entry));
        let Some(tier) = Tier::of(options, entry) else { return };
        let rank = (Reverse(parts.score_micro(options)), place);
        let active = usize::from(status == Status::Active);
        if there {
            self.pool_mut(tier).insert(rank);
            self.means_bp = self.means_bp.saturating_add(mean_bp);
            self.active = self.active.saturating_add(active);
        } else {
            self.pool_mut(tier).remove(&rank);
            self.means_bp = self.means_bp.saturating_sub(mean_bp);
            self.active = self.active.saturating_sub(active);
        }
    }

    fn put(&mut self, options: &Options, provider: PublicKey, entry: Entry) {
        let parts = Parts::of(options, &entry);
        let place = match self.places.get(&provider).copied() {
            Some(place) => {
                self.index(options, place, false);
                if let Some(kept) = self.entries.get_mut(place) {
                    kept.1 = entry;
                }
                if let Some(kept) = self.parts.get_mut(place) {
                    *kept = parts;
                }
                place
            }
            None => {
                let place = self.entries.len();
                self.places.insert(provider, place);
                self.entries.push((provider, entry));
                self.parts.push(parts);
                place
            }
        };
        self.index(options, place, true);
    }
}

/// How often somebody did well, in ten-thousandths, drawn to the middle while little is known.
fn mean_bp(entry: &Entry) -> u64 {
    let good = entry.evidence.good_milli.saturating_add(1_000);
    let all = good.saturating_add(entry.evidence.bad_milli).saturating_add(1_000);
    good.saturating_mul(10_000).checked_div(all).unwrap_or(0)
}

/// The routing matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matrix {
    options: Options,
    /// The number of the last effect that is in it.
    seq: i64,
    /// The hash of the row of that effect.
    head: Hash,
    tasks: BTreeMap<TaskType, Task>,
    providers: BTreeMap<PublicKey, BTreeSet<TaskType>>,
}

impl Matrix {
    /// Nobody is known.
    pub fn new(options: Options) -> Matrix {
        let (tasks, providers) = (BTreeMap::new(), BTreeMap::new());
        Matrix { options, seq: 0, head: super::log::start(), tasks, providers }
    }

    /// Its numbers.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The number of the last effect that is in it.
    pub fn seq(&self) -> i64 {
        self.seq
    }

    /// The hash of the row of that effect; of a matrix without a log, a constant.
    pub fn head(&self) -> Hash {
        self.head
    }

    /// What would happen, if it happened now. Nothing has.
    pub fn plan(&self, change: &Change, now_ms: UnixMs) -> Result<Effect> {
        change.check()?;
        let before = self.entry(&change.task, &change.provider);
        Ok(Effect {
            seq: self.seq.saturating_add(1),
            at_ms: now_ms,
            task: change.task.clone(),
            provider: change.provider,
            mutation: change.mutation.clone(),
            entry: next(&self.options, before, &change.mutation, now_ms)?,
        })
    }

    /// Takes an effect over. It must be the next one.
    pub fn apply(&mut self, effect: Effect) -> Result<()> {
        if effect.seq != self.seq.saturating_add(1) {
            let why =
                format!("row {} does not follow row {} of the routing log", effect.seq, self.seq);
            return Err(Error::refused(&code::ROUTE_LOG, why));
        }
        let Effect { seq, at_ms, task, provider, mutation, entry } = effect;
        self.seq = seq;
        self.providers.entry(provider).or_default().insert(task.clone());
        let shelf = self.tasks.entry(task).or_default();
        match mutation {
            Mutation::Assigned => shelf.shares.give(&self.options, provider, at_ms),
            Mutation::Outcome { .. } => shelf.outcomes = shelf.outcomes.saturating_add(1),
            _ => {}
        }
        shelf.put(&self.options, provider, entry);
        Ok(())
    }

    pub(super) fn set_head(&mut self, head: Hash) {
        self.head = head;
    }

    /// Makes a matrix from what a snapshot holds.
    pub(super) fn restored(
        options: Options,
        (seq, head): (i64, Hash),
        tasks: BTreeMap<TaskType, super::snapshot::Shelf>,
    ) -> Matrix {
        let mut matrix = Matrix { seq, head, ..Matrix::new(options) };
        for (task, shelf) in tasks {
            let mut restored = Task { outcomes: shelf.outcomes, ..Task::default() };
            for (provider, entry) in shelf.entries {
                matrix.providers.entry(provider).or_default().insert(task.clone());
                restored.put(&matrix.options, provider, entry);
            }
            for (at_ms, provider) in shelf.given {
                restored.shares.give(&matrix.options, provider, at_ms);
            }
            matrix.tasks.insert(task, restored);
        }
        matrix
    }

    pub(super) fn task(&self, task: &TaskType) -> Option<&Task> {
        self.tasks.get(task)
    }

    pub(super) fn tasks(&self) -> &BTreeMap<TaskType, Task> {
        &self.tasks
    }

    /// The task types that somebody was ever admitted for.
    pub fn task_types(&self) -> impl Iterator<Item = &TaskType> {
        self.tasks.keys()
    }

    /// Who was ever admitted for a task type, in the order of admission.
    pub fn providers_of(&self, task: &TaskType) -> impl Iterator<Item = (&PublicKey, &Entry)> {
        let entries = self.tasks.get(task).map(Task::entries).unwrap_or_default();
        entries.iter().map(|(provider, entry)| (provider, entry))
    }

    /// The task types that a provider was ever admitted for.
    pub fn tasks_of(&self, provider: &PublicKey) -> impl Iterator<Item = &TaskType> {
        self.providers.get(provider).into_iter().flatten()
    }

    /// What is believed of a provider for a task type.
    pub fn entry(&self, task: &TaskType, provider: &PublicKey) -> Option<&Entry> {
        self.tasks.get(task)?.entry(provider)
    }

    /// The task types with too few active providers, and how many are missing: somebody should be met.
    pub fn short_of(&self) -> BTreeMap<&TaskType, usize> {
        let missing = |shelf: &Task| self.options.min_active.saturating_sub(shelf.active());
        let all = self.tasks.iter().map(|(task, shelf)| (task, missing(shelf)));
        all.filter(|(_, missing)| *missing > 0).collect()
    }

    /// How much of a task type's work a provider was given lately, and how much there was.
    pub fn share(&self, task: &TaskType, provider: &PublicKey, now_ms: UnixMs) -> (usize, usize) {
        let shelf = self.tasks.get(task);
        shelf.map_or((0, 0), |shelf| shelf.shares.count(&self.options, provider, now_ms))
    }

    /// The changes that blacklist a provider for everything, with the operator's other keys, if they are known.
    pub fn blacklisting(&self, keys: &[PublicKey], reason: &str) -> Vec<Change> {
        let moved = Mutation::Moved {
            status: Status::Blacklisted,
            cause: Some(super::Cause::Forbidden),
            until_ms: None,
        };
        let mut changes = Vec::new();
        for provider in keys {
            for task in self.tasks_of(provider) {
                let entry = self.entry(task, provider);
                if entry.is_some_and(|entry| entry.status != Status::Blacklisted) {
                    changes.push(Change {
                        key: format!("blacklist:{reason}:{task}:{provider}"),
                        task: task.clone(),
                        provider: *provider,
                        mutation: moved.clone(),
                    });
                }
            }
        }
        changes
    }

    /// Whether a provider has ever tried what is forbidden, or was removed, whatever the work was. Such a key is
    /// neither met nor hired.
    pub fn is_blacklisted(&self, provider: &PublicKey) -> bool {
        self.tasks_of(provider)
            .any(|task| self.entry(task, provider).is_some_and(Entry::is_shut_out))
    }

    /// All keys that are shut out.
    pub fn shut_out(&self) -> BTreeSet<PublicKey> {
        self.providers.keys().filter(|provider| self.is_blacklisted(provider)).copied().collect()
    }

    /// The changes that blacklist whoever tried what is forbidden in some work: for that, also if it was never admitted
    /// for anything, and for everything else that it is known for.
    pub fn shutting_out(
        &self,
        (task, provider): (&TaskType, &PublicKey),
        d: &str,
        reason: &str,
    ) -> Vec<Change> {
        let mut changes = self.blacklisting(&[*provider], reason);
        if self.entry(task, provider).is_none() && !self.is_blacklisted(provider) {
            let key = |what: &str| format!("{what}:{reason}:{task}:{provider}");
            let change =
                |key, mutation| Change { key, task: task.clone(), provider: *provider, mutation };
            // Only who has an entry can be shut out. Nobody sees the one between the two: both are one transaction.
            let known = Mutation::Admitted {
                d: if d.len() <= D_MAX_BYTES { d.to_owned() } else { String::new() },
                status: Status::Conditional,
                trust_bp: 0,
                pace: Pace::Standard,
                notes: BTreeSet::new(),
            };
            let moved = Mutation::Moved {
                status: Status::Blacklisted,
                cause: Some(super::Cause::Forbidden),
                until_ms: None,
            };
            changes.push(change(key("known"), known));
            changes.push(change(key("blacklist"), moved));
        }
        changes
    }

    /// What contradicts itself in it: nothing, unless there is a bug.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (task, shelf) in &self.tasks {
            let mut fresh = Task { outcomes: shelf.outcomes, ..Task::default() };
            for (provider, entry) in &shelf.entries {
                fresh.put(&self.options, *provider, entry.clone());
                let known = self.providers.get(provider).is_some_and(|tasks| tasks.contains(task));
                if !known {
                    problems.push(format!("{provider} is not known to do {task}"));
                }
                if entry.trust_bp > self.options.trust_max_bp {
                    problems.push(format!("{provider} is trusted too much for {task}"));
                }
            }
            fresh.shares = shelf.shares.clone();
            if fresh != *shelf {
                problems.push(format!("what is kept beside the entries of {task} is not of them"));
            }
        }
        for (provider, tasks) in &self.providers {
            let lost = tasks.iter().filter(|task| self.entry(task, provider).is_none());
            problems.extend(lost.map(|task| format!("{provider} has no entry for {task}")));
        }
        problems
    }
}
