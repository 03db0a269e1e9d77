//! How partners come and go: from what was noticed of a provider to whether it is hired, and when it is tried again.
//!
//! | stage | by | what follows | how it ends |
//! |---|---|---|---|
//! | `well` | | | |
//! | `warned` | a first signal | it is watched | with the next success, unless the [early signal](Cusum) is on |
//! | `reduced` | a second one, or a warning that lasts | half as much work | with a benchmark that it passes |
//! | `suspended` | a third one, or a trigger | none | by a fresh evaluation after a [cooldown](retry_ms), or by hand |
//! | `removed` | failure after failure | none, of anything | never: the key is shut out |
//!
//! Triggers suspend at once: too few successes within a week, a 95th percentile far above what was usual, timeouts in
//! a row. [`PATHS`] has every way from one stage to another, and there is no other: what would go along none of them
//! is refused, and [`audit`] looks for it in what was written. All of it is a part of the
//! [entry](crate::routing::Entry) and changes with the row of the log that says what happened, so nothing is learnt
//! twice.

use guild_store::{Migration, Sql};
use serde::{Deserialize, Serialize};

pub mod audit;
mod cooldown;
mod cusum;
pub mod fresh;
pub mod known;
pub mod probe;
mod state;
pub mod watch;

pub use cooldown::{Engagement, Retry, cooldown_ms, is_other_version, retry, retry_ms};
pub use cusum::Cusum;
pub(crate) use state::Outcome;
pub use state::{Health, Pace};

pub(crate) fn migration() -> Migration {
    let sql = Sql {
        lite: include_str!("../migrations/sqlite/0012_lifecycle.sql"),
        pg: include_str!("../migrations/postgres/0012_lifecycle.sql"),
    };
    Migration { area: "market", number: 12, name: "lifecycle", sql }
}

const DAY_MS: i64 = 24 * 3_600_000;

/// The numbers of the lifecycle. The defaults are the documented ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Whether stages follow from outcomes at all.
    pub is_on: bool,
    /// Fewer successes than this part of a week suspend, in ten-thousandths,
    pub success_min_bp: u32,
    /// if there were so many outcomes.
    pub outcomes_min: u32,
    /// A 95th percentile above this part of what was usual suspends, in hundredths.
    pub latency_max_pct: u32,
    /// So many timeouts in a row suspend.
    pub timeouts_max: u32,
    /// A warning that has lasted so long is a second signal.
    pub sustained_ms: i64,
    /// How long it is not tried again: after the first failure, the second and so on; the last for all that follow.
    pub cooldowns_ms: [i64; 4],
    /// After so long whoever is suspended for the third time is tried again anyway.
    pub auto_retry_ms: i64,
    /// So many failed engagements in a row are persistent failure.
    pub remove_after: u32,
    /// An engagement that lasted so long was no failure: counting begins again.
    pub forget_ms: i64,
    /// How often somebody does well who is well, in ten-thousandths,
    pub well_bp: u32,
    /// and who has become worse.
    pub worse_bp: u32,
    /// What the sum of the early signal must come to, in millionths.
    pub alarm_micro: i64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            is_on: true,
            success_min_bp: 9_500,
            outcomes_min: 20,
            latency_max_pct: 200,
            timeouts_max: 3,
            sustained_ms: 7 * DAY_MS,
            cooldowns_ms: [DAY_MS, 3 * DAY_MS, 7 * DAY_MS, 30 * DAY_MS],
            auto_retry_ms: 30 * DAY_MS,
            remove_after: 6,
            forget_ms: 90 * DAY_MS,
            well_bp: 9_500,
            worse_bp: 8_000,
            alarm_micro: 5_000_000,
        }
    }
}

impl Options {
    /// Outcomes move trust and nothing else: for measuring how one is chosen.
    pub fn off() -> Options {
        Options { is_on: false, ..Options::default() }
    }
}

/// How well somebody does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Nothing is wrong.
    #[default]
    Well,
    /// It is watched.
    Warned,
    /// It gets half as much work.
    Reduced,
    /// It gets none.
    Suspended,
    /// It never will again.
    Removed,
}

impl Stage {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Well => "well",
            Stage::Warned => "warned",
            Stage::Reduced => "reduced",
            Stage::Suspended => "suspended",
            Stage::Removed => "removed",
        }
    }
}

/// What moves somebody from one stage to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// It did not do what was ordered.
    Failed,
    /// Its answer is not the one that is known.
    Mismatch,
    /// A warning has lasted too long.
    Sustained,
    /// Too few successes within a week.
    Rate,
    /// It takes far longer than it did.
    Latency,
    /// Nothing came, several times in a row.
    Timeouts,
    /// It failed an evaluation.
    Rejected,
    /// It did not answer when it was met.
    Silent,
    /// It tried what is forbidden.
    Forbidden,
    /// It failed one engagement after the other.
    Persistent,
    /// It did what was ordered.
    Succeeded,
    /// It gave the answer that is known.
    Verified,
    /// An evaluation has taken it.
    Evaluated,
    /// Somebody here has looked at it.
    Reviewed,
}

impl Signal {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Signal::Failed => "failed",
            Signal::Mismatch => "mismatch",
            Signal::Sustained => "sustained",
            Signal::Rate => "rate",
            Signal::Latency => "latency",
            Signal::Timeouts => "timeouts",
            Signal::Rejected => "rejected",
            Signal::Silent => "silent",
            Signal::Forbidden => "forbidden",
            Signal::Persistent => "persistent",
            Signal::Succeeded => "succeeded",
            Signal::Verified => "verified",
            Signal::Evaluated => "evaluated",
            Signal::Reviewed => "reviewed",
        }
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Signal::Failed => "did not do what was ordered",
            Signal::Mismatch => "gave another answer than the one that is known",
            Signal::Sustained => "was warned for too long",
            Signal::Rate => "did too few of the jobs of a week well",
            Signal::Latency => "takes far longer than it did",
            Signal::Timeouts => "sent nothing, several times in a row",
            Signal::Rejected => "failed an evaluation",
            Signal::Silent => "did not answer when it was met",
            Signal::Forbidden => "tried what is forbidden",
            Signal::Persistent => "failed one engagement after the other",
            Signal::Succeeded => "did what was ordered",
            Signal::Verified => "gave the answer that is known",
            Signal::Evaluated => "was evaluated anew",
            Signal::Reviewed => "was looked at by hand",
        }
    }
}

/// Every way from one stage to another, and by what: whatever is not here does not happen.
pub const PATHS: [(Stage, Signal, Stage); 34] = [
    (Stage::Well, Signal::Failed, Stage::Warned),
    (Stage::Well, Signal::Mismatch, Stage::Warned),
    (Stage::Warned, Signal::Failed, Stage::Reduced),
    (Stage::Warned, Signal::Mismatch, Stage::Reduced),
    (Stage::Warned, Signal::Sustained, Stage::Reduced),
    (Stage::Reduced, Signal::Failed, Stage::Suspended),
    (Stage::Reduced, Signal::Mismatch, Stage::Suspended),
    (Stage::Well, Signal::Rate, Stage::Suspended),
    (Stage::Warned, Signal::Rate, Stage::Suspended),
    (Stage::Reduced, Signal::Rate, Stage::Suspended),
    (Stage::Well, Signal::Latency, Stage::Suspended),
    (Stage::Warned, Signal::Latency, Stage::Suspended),
    (Stage::Reduced, Signal::Latency, Stage::Suspended),
    (Stage::Well, Signal::Timeouts, Stage::Suspended),
    (Stage::Warned, Signal::Timeouts, Stage::Suspended),
    (Stage::Reduced, Signal::Timeouts, Stage::Suspended),
    (Stage::Well, Signal::Rejected, Stage::Suspended),
    (Stage::Warned, Signal::Rejected, Stage::Suspended),
    (Stage::Reduced, Signal::Rejected, Stage::Suspended),
    (Stage::Suspended, Signal::Rejected, Stage::Suspended),
    (Stage::Well, Signal::Silent, Stage::Suspended),
    (Stage::Warned, Signal::Silent, Stage::Suspended),
    (Stage::Reduced, Signal::Silent, Stage::Suspended),
    (Stage::Suspended, Signal::Silent, Stage::Suspended),
    (Stage::Well, Signal::Forbidden, Stage::Removed),
    (Stage::Warned, Signal::Forbidden, Stage::Removed),
    (Stage::Reduced, Signal::Forbidden, Stage::Removed),
    (Stage::Suspended, Signal::Forbidden, Stage::Removed),
    (Stage::Suspended, Signal::Persistent, Stage::Removed),
    (Stage::Warned, Signal::Succeeded, Stage::Well),
    (Stage::Reduced, Signal::Verified, Stage::Well),
    (Stage::Warned, Signal::Evaluated, Stage::Well),
    (Stage::Reduced, Signal::Evaluated, Stage::Well),
    (Stage::Suspended, Signal::Evaluated, Stage::Well),
];

/// Where a signal leads from a stage; nothing if it leads nowhere. What somebody here decides leads anywhere but out of
/// [`Stage::Removed`].
///
/// ```
/// use guild_market::health::{Signal, Stage, path};
/// assert_eq!(path(Stage::Warned, Signal::Succeeded), Some(Stage::Well));
/// assert_eq!(path(Stage::Reduced, Signal::Succeeded), None, "that takes a benchmark");
/// assert_eq!(path(Stage::Removed, Signal::Evaluated), None);
/// ```
pub fn path(from: Stage, signal: Signal) -> Option<Stage> {
    let found = PATHS.iter().find(|(start, by, _)| *start == from && *by == signal);
    found.map(|(_, _, to)| *to)
}

#[cfg(test)]
mod tests;
