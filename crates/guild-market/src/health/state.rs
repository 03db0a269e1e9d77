//! What an entry remembers of its provider's health, and what an outcome does to it.

use guild_protocol::env::UnixMs;
use serde::{Deserialize, Serialize};

use super::{Cusum, Options, Signal, Stage, cooldown_ms, path};
use crate::evaluation::percentile;
use crate::judge::Class;
use crate::routing::{Day, day_of};

/// Days of a week: older ones count for nothing.
const WEEK: i64 = 7;
/// From so many times it is learnt what is usual.
const LEARNT_FROM: usize = 20;
/// So many of the latest are compared with it. A number of fewer than 53 bits, as JSON has them.
const LATEST: u32 = 40;

/// How long somebody takes, beside what was usual when it was taken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pace {
    /// The first times, until it is known what is usual.
    pub learning_ms: Vec<i64>,
    /// In this time all but five of a hundred of the first jobs were done.
    pub usual_p95_ms: Option<i64>,
    /// The latest jobs, a bit each, the newest lowest: set for those that took far longer.
    pub slow: u64,
    /// How many of those bits are jobs.
    pub known: u32,
}

impl Pace {
    /// Takes the time of a job; whether the 95th percentile is too far above what is usual.
    fn push(&mut self, options: &Options, took_ms: i64) -> bool {
        let Some(usual_ms) = self.usual_p95_ms else {
            self.learning_ms.push(took_ms.max(0));
            if self.learning_ms.len() >= LEARNT_FROM {
                let known = self.learning_ms.drain(..).filter_map(|ms| u64::try_from(ms).ok());
                let known: Vec<u64> = known.collect();
                let p95_ms = percentile(known.iter().copied(), 95);
                self.usual_p95_ms = p95_ms.and_then(|ms| i64::try_from(ms).ok());
            }
            return false;
        };
        let max_ms = usual_ms.saturating_mul(i64::from(options.latency_max_pct)).div_euclid(100);
        let mask = (1_u64 << LATEST).saturating_sub(1);
        self.slow = ((self.slow << 1) | u64::from(took_ms > max_ms)) & mask;
        self.known = self.known.saturating_add(1).min(LATEST);
        // The 95th percentile is above the limit if more are than five of a hundred, rounded down.
        self.known >= LATEST && self.slow.count_ones() > self.known.div_euclid(20)
    }
}

/// What an entry remembers of its provider's health.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Health {
    /// Where it stands.
    pub stage: Stage,
    /// Since when.
    pub since_ms: UnixMs,
    /// By what.
    pub signal: Option<Signal>,
    /// Engagements that failed, one after the other.
    pub failures: u32,
    /// When this engagement began.
    pub engaged_ms: UnixMs,
    /// Timeouts in a row.
    pub timeouts: u32,
    /// The early signal.
    pub cusum: Cusum,
    /// Outcomes of the last seven days of this engagement, the oldest first.
    pub week: Vec<Day>,
    /// How long it takes.
    pub pace: Pace,
}

/// An outcome, as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) class: Class,
    /// Whether nothing came at all.
    pub(crate) is_timeout: bool,
    pub(crate) latency_ms: Option<i64>,
}

impl Health {
    /// Whether nothing was ever noticed: so old rows stay as they are.
    pub(crate) fn is_nothing(&self) -> bool {
        *self == Health::default()
    }

    /// The part of the outcomes of a week that were successes, in ten-thousandths, and how many there were.
    pub fn success_rate_bp(&self, now_ms: UnixMs) -> (Option<u32>, u32) {
        let since = day_of(now_ms).saturating_sub(WEEK);
        let days = self.week.iter().filter(|day| day.day > since);
        let (good, all) = days.fold((0_u32, 0_u32), |(good, all), day| {
            (good.saturating_add(day.good), all.saturating_add(day.all))
        });
        let rate = u64::from(good).saturating_mul(10_000).checked_div(u64::from(all));
        (rate.and_then(|rate| u32::try_from(rate).ok()), all)
    }

    /// A fresh evaluation has taken it: nothing of before counts but how often it failed. Whoever was known begins with
    /// a part of the early signal.
    pub(crate) fn engaged(before: Option<&Health>, options: &Options, now_ms: UnixMs) -> Health {
        let was_known = before.is_some_and(|before| !before.is_nothing());
        let moved = before.is_some_and(|before| before.stage != Stage::Well);
        Health {
            stage: Stage::Well,
            since_ms: now_ms,
            signal: moved.then_some(Signal::Evaluated),
            failures: before.map_or(0, |before| before.failures),
            engaged_ms: now_ms,
            timeouts: 0,
            cusum: if was_known { Cusum::head_start(options) } else { Cusum::default() },
            week: Vec::new(),
            pace: Pace::default(),
        }
    }

    /// Somebody here takes it back: as a fresh evaluation, said otherwise.
    pub(crate) fn reviewed(&self, options: &Options, now_ms: UnixMs) -> Health {
        let signal = Some(Signal::Reviewed);
        Health { signal, ..Health::engaged(Some(self), options, now_ms) }
    }

    /// Goes where a signal leads; whether it leads anywhere.
    pub(crate) fn follow(&mut self, options: &Options, signal: Signal, now_ms: UnixMs) -> bool {
        let Some(to) = path(self.stage, signal) else { return false };
        if to == Stage::Suspended {
            // Whoever lasted long has not failed again: it has failed for the first time.
            let lasted_ms = now_ms.saturating_sub(self.engaged_ms);
            let is_long = self.stage != Stage::Suspended && lasted_ms >= options.forget_ms;
            let before = if is_long && self.engaged_ms > 0 { 0 } else { self.failures };
            self.failures = before.saturating_add(1);
        }
        if to == Stage::Well {
            self.timeouts = 0;
        }
        (self.stage, self.since_ms, self.signal) = (to, now_ms, Some(signal));
        true
    }

    /// Until when whoever is suspended is not tried again.
    pub(crate) fn until_ms(&self, options: &Options) -> UnixMs {
        self.since_ms.saturating_add(cooldown_ms(options, self.failures))
    }

    /// Takes an outcome of somebody who is hired; whether it is suspended by that.
    pub(crate) fn take(&mut self, options: &Options, result: Outcome, now_ms: UnixMs) -> bool {
        let is_good = match result.class {
            Class::Success => true,
            Class::Failure | Class::Error => false,
            // Half of what was ordered is neither; what is forbidden is decided elsewhere.
            Class::Partial | Class::SecurityViolation => return false,
        };
        self.count(is_good, now_ms);
        self.cusum.push(options, is_good);
        self.timeouts = if result.is_timeout { self.timeouts.saturating_add(1) } else { 0 };
        let is_slow = result.latency_ms.is_some_and(|ms| self.pace.push(options, ms));
        let trigger = if self.timeouts >= options.timeouts_max.max(1) {
            Some(Signal::Timeouts)
        } else if self.is_too_low(options, now_ms) {
            Some(Signal::Rate)
        } else {
            is_slow.then_some(Signal::Latency)
        };
        if let Some(trigger) = trigger {
            return self.follow(options, trigger, now_ms);
        }
        match is_good {
            false => self.follow(options, Signal::Failed, now_ms),
            // The early signal keeps a warning.
            true if !self.cusum.is_alarmed => self.follow(options, Signal::Succeeded, now_ms),
            true => false,
        };
        self.stage == Stage::Suspended
    }

    fn is_too_low(&self, options: &Options, now_ms: UnixMs) -> bool {
        let (rate_bp, all) = self.success_rate_bp(now_ms);
        all >= options.outcomes_min.max(1) && rate_bp.is_some_and(|bp| bp < options.success_min_bp)
    }

    fn count(&mut self, is_good: bool, now_ms: UnixMs) {
        // A clock that was set back counts on the last day.
        let today = day_of(now_ms).max(self.week.last().map_or(i64::MIN, |last| last.day));
        if self.week.last().is_none_or(|last| last.day < today) {
            self.week.push(Day { day: today, good: 0, all: 0 });
        }
        if let Some(last) = self.week.last_mut() {
            last.good = last.good.saturating_add(u32::from(is_good));
            last.all = last.all.saturating_add(1);
        }
        self.week.retain(|day| day.day > today.saturating_sub(WEEK));
    }
}
