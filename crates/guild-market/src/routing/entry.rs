//! What is believed of one provider for one task type.

use std::collections::BTreeSet;

use guild_protocol::env::UnixMs;
use serde::{Deserialize, Serialize};

use super::Evidence;
use crate::evaluation::{Note, Pace, percentile};
use crate::health::{Health, Stage};

/// The longest name of a service that is kept.
pub(super) const D_MAX_BYTES: usize = 256;
/// Days of which outcomes are counted.
const DAYS: usize = 30;
/// So many of the latest costs and times are kept.
const SAMPLES_MAX: usize = 15;
const DAY_MS: i64 = 24 * 3_600_000;

/// Whether somebody is hired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// It is.
    Active,
    /// It is, from the lowest tier only.
    Conditional,
    /// Not now: it seems to have become worse.
    SuspectedDegraded,
    /// Not now: it did not answer.
    Unresponsive,
    /// Not now, for another reason.
    Quarantined,
    /// Never again.
    Blacklisted,
    /// It is gone.
    Archived,
}

impl Status {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Status::Active => "ACTIVE",
            Status::Conditional => "CONDITIONAL",
            Status::SuspectedDegraded => "SUSPECTED_DEGRADED",
            Status::Unresponsive => "UNRESPONSIVE",
            Status::Quarantined => "QUARANTINED",
            Status::Blacklisted => "BLACKLISTED",
            Status::Archived => "ARCHIVED",
        }
    }

    /// The status of that name.
    pub fn named(name: &str) -> Option<Status> {
        let all = [
            Status::Active,
            Status::Conditional,
            Status::SuspectedDegraded,
            Status::Unresponsive,
            Status::Quarantined,
            Status::Blacklisted,
            Status::Archived,
        ];
        all.into_iter().find(|status| status.name() == name)
    }

    /// Whether whoever has it may be hired.
    pub fn is_hireable(self) -> bool {
        matches!(self, Status::Active | Status::Conditional)
    }
}

/// Why somebody is not hired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Its announcement is gone, names other work, or is old.
    Stale,
    /// It did not answer.
    Silent,
    /// It became worse.
    Degraded,
    /// It tried what is forbidden.
    Forbidden,
    /// It failed an evaluation.
    Rejected,
    /// Somebody here said so.
    Operator,
}

impl Cause {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Stale => "stale",
            Cause::Silent => "silent",
            Cause::Degraded => "degraded",
            Cause::Forbidden => "forbidden",
            Cause::Rejected => "rejected",
            Cause::Operator => "operator",
        }
    }
}

/// The outcomes of a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Day {
    /// Which day, counted from 1970-01-01.
    pub day: i64,
    /// Successes.
    pub good: u32,
    /// All of them.
    pub all: u32,
}

/// What a job cost and took, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// What was paid.
    pub cost_msat: Option<i64>,
    /// From the request to the result.
    pub latency_ms: Option<i64>,
}

/// What is believed of one provider for one task type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The `d` tag of the announcement of its service.
    pub d: String,
    /// Whether it is hired.
    pub status: Status,
    /// Why it is not.
    pub cause: Option<Cause>,
    /// Until when it is not asked, if that is known.
    pub until_ms: Option<UnixMs>,
    /// How far it is trusted, in ten-thousandths.
    pub trust_bp: u32,
    /// How quick it was when it was evaluated.
    pub pace: Pace,
    /// What was remarkable then.
    pub notes: BTreeSet<Note>,
    /// When its benchmark or its announcement was looked at last.
    pub last_verified_ms: UnixMs,
    /// Counts the changes of this entry.
    pub version: i64,
    /// Successes in a row.
    pub streak: u32,
    /// What it was given and has not answered.
    pub open_jobs: u32,
    /// Outcomes in all.
    pub jobs: u64,
    /// Outcomes of the last 30 days on which there were any, the oldest first.
    pub days: Vec<Day>,
    /// What the latest jobs cost and took, the oldest first.
    pub samples: Vec<Sample>,
    /// How often it did well, since it last changed.
    pub evidence: Evidence,
    /// How well it does, and what was noticed.
    #[serde(default, skip_serializing_if = "Health::is_nothing")]
    pub health: Health,
}

impl Entry {
    /// The part of the outcomes of 30 days that were successes, in ten-thousandths; nothing without outcomes.
    pub fn success_rate_30d_bp(&self, now_ms: UnixMs) -> Option<u32> {
        let since = day_of(now_ms).saturating_sub(i64::try_from(DAYS).unwrap_or(0));
        let days = self.days.iter().filter(|day| day.day > since);
        let (good, all) = days.fold((0_u64, 0_u64), |(good, all), day| {
            (good.saturating_add(u64::from(day.good)), all.saturating_add(u64::from(day.all)))
        });
        u32::try_from(good.saturating_mul(10_000).checked_div(all)?).ok()
    }

    /// Whether its provider is shut out for ever.
    pub fn is_shut_out(&self) -> bool {
        self.status == Status::Blacklisted || self.health.stage == Stage::Removed
    }

    /// What a job of its costs: the median of the latest.
    pub fn cost_msat(&self) -> Option<i64> {
        middle(self.samples.iter().filter_map(|sample| sample.cost_msat))
    }

    /// How long a job of its takes: the median of the latest.
    pub fn latency_ms(&self) -> Option<i64> {
        middle(self.samples.iter().filter_map(|sample| sample.latency_ms))
    }

    /// In this time all but five of a hundred of its latest jobs were done; nothing if fewer than so many are known.
    pub fn latency_p95_ms(&self, least: usize) -> Option<i64> {
        let known = self.samples.iter().filter_map(|sample| sample.latency_ms);
        let known: Vec<u64> = known.filter_map(|ms| u64::try_from(ms).ok()).collect();
        let p95_ms = percentile(known.iter().copied(), 95).filter(|_| known.len() >= least)?;
        i64::try_from(p95_ms).ok()
    }

    /// Counts an outcome of a day.
    pub(super) fn count(&mut self, good: bool, now_ms: UnixMs) {
        // A clock that was set back counts on the last day.
        let today = day_of(now_ms).max(self.days.last().map_or(i64::MIN, |last| last.day));
        if self.days.last().is_none_or(|last| last.day < today) {
            self.days.push(Day { day: today, good: 0, all: 0 });
        }
        if let Some(last) = self.days.last_mut() {
            last.good = last.good.saturating_add(u32::from(good));
            last.all = last.all.saturating_add(1);
        }
        let since = today.saturating_sub(i64::try_from(DAYS).unwrap_or(0));
        self.days.retain(|day| day.day > since);
    }

    /// Keeps what a job cost and took.
    pub(super) fn sample(&mut self, sample: Sample) {
        if sample == (Sample { cost_msat: None, latency_ms: None }) {
            return;
        }
        self.samples.push(sample);
        let over = self.samples.len().saturating_sub(SAMPLES_MAX);
        self.samples.drain(..over);
    }
}

/// The day of a moment, counted from 1970-01-01.
pub(crate) fn day_of(at_ms: UnixMs) -> i64 {
    at_ms.div_euclid(DAY_MS)
}

/// The lower median: a value that was really seen.
fn middle(values: impl Iterator<Item = i64>) -> Option<i64> {
    let mut sorted = [i64::MAX; SAMPLES_MAX];
    let mut count = 0_usize;
    for (place, value) in sorted.iter_mut().zip(values) {
        *place = value;
        count = count.saturating_add(1);
    }
    let known = sorted.get_mut(..count)?;
    known.sort_unstable();
    known.get(count.checked_sub(1)?.div_euclid(2)).copied()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Somebody who was just taken.
    pub(in crate::routing) fn entry(trust_bp: u32) -> Entry {
        Entry {
            d: "main".to_owned(),
            status: Status::Active,
            cause: None,
            until_ms: None,
            trust_bp,
            pace: Pace::Standard,
            notes: BTreeSet::new(),
            last_verified_ms: 0,
            version: 1,
            streak: 0,
            open_jobs: 0,
            jobs: 0,
            days: Vec::new(),
            samples: Vec::new(),
            evidence: Evidence::default(),
            health: Health::default(),
        }
    }

    #[test]
    fn thirty_days_are_counted() {
        let mut entry = entry(6_000);
        assert_eq!(entry.success_rate_30d_bp(0), None);
        for day in 0..100 {
            entry.count(day % 4 != 0, day * DAY_MS + 5);
        }
        assert_eq!(entry.days.len(), 30);
        // Of the days 70 to 99 those that four divides: 72, 76, …, 96.
        assert_eq!(entry.success_rate_30d_bp(99 * DAY_MS), Some(23 * 10_000 / 30));
        assert_eq!(entry.success_rate_30d_bp(128 * DAY_MS), Some(10_000), "only day 99 is left");
        assert_eq!(entry.success_rate_30d_bp(129 * DAY_MS), None);
        // A clock that was set back neither loses nor reorders anything.
        entry.count(false, 0);
        assert_eq!(entry.days.last(), Some(&Day { day: 99, good: 1, all: 2 }));
    }

    #[test]
    fn the_middle_is_of_the_latest_that_are_known() {
        let mut entry = entry(6_000);
        let sample = |cost_msat, latency_ms| Sample { cost_msat, latency_ms };
        assert_eq!((entry.cost_msat(), entry.latency_ms()), (None, None));
        (0..100).for_each(|_| entry.sample(sample(Some(9), None)));
        for cost in 1..=15 {
            entry.sample(sample(Some(cost), (cost == 2).then_some(70)));
        }
        entry.sample(sample(None, None));
        assert_eq!(entry.samples.len(), SAMPLES_MAX);
        assert_eq!((entry.cost_msat(), entry.latency_ms()), (Some(8), Some(70)));
    }
}
