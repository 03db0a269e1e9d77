//! What the trials of a meeting come to: a pure decision.

use serde::{Deserialize, Serialize};

use super::End;
use crate::evaluation::{
    Advice, Attempt, Baseline, Evaluation, Observed, Options, Resources, Standing, Tests, advise,
    evaluate,
};
use crate::judge::Class;

/// What became of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// What its result was worth; none if there was none to judge.
    pub class: Option<Class>,
    /// How it ended, if there was none.
    pub end: Option<End>,
    /// Tests that passed.
    pub passed: u64,
    /// Tests that there are.
    pub total: u64,
    /// From the request to the result.
    pub latency_ms: Option<u64>,
    /// The most memory at one time.
    pub memory_peak_bytes: Option<u64>,
    /// How well it is made, in thousandths of a point.
    pub quality_milli: Option<u64>,
}

/// How a meeting ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is hired.
    Active,
    /// It is hired, under conditions.
    Conditional,
    /// It failed.
    Rejected,
    /// It tried, or sent, what is forbidden.
    Forbidden,
    /// It said nothing.
    Unresponsive,
    /// It was never reached.
    Undelivered,
    /// It wants money that it does not get.
    Unpaid,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Outcome; 7] = [
        Outcome::Active,
        Outcome::Conditional,
        Outcome::Rejected,
        Outcome::Forbidden,
        Outcome::Unresponsive,
        Outcome::Undelivered,
        Outcome::Unpaid,
    ];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Active => "active",
            Outcome::Conditional => "conditional",
            Outcome::Rejected => "rejected",
            Outcome::Forbidden => "forbidden",
            Outcome::Unresponsive => "unresponsive",
            Outcome::Undelivered => "undelivered",
            Outcome::Unpaid => "unpaid",
        }
    }

    /// The outcome of that name.
    pub fn named(name: &str) -> Option<Outcome> {
        Outcome::ALL.into_iter().find(|outcome| outcome.name() == name)
    }

    /// Whether the provider is hired from now on.
    pub fn is_admitted(self) -> bool {
        matches!(self, Outcome::Active | Outcome::Conditional)
    }
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Weighed {
    /// One more trial.
    Next,
    /// It is decided.
    Ended {
        /// How.
        outcome: Outcome,
        /// What was found, if something could be judged.
        evaluation: Option<Evaluation>,
        /// For how long it is not met again.
        cooldown_ms: Option<i64>,
    },
}

/// What trials, in the order in which they were made, come to.
pub fn weigh(
    options: &Options,
    baseline: &Baseline,
    unresponsive_ms: i64,
    trials: &[Tried],
) -> Weighed {
    let ended =
        |outcome, evaluation, cooldown_ms| Weighed::Ended { outcome, evaluation, cooldown_ms };
    let last = trials.last();
    match last.and_then(|last| last.end) {
        Some(End::Unresponsive) => {
            return ended(Outcome::Unresponsive, None, Some(unresponsive_ms));
        }
        Some(End::Undelivered) => return ended(Outcome::Undelivered, None, None),
        Some(End::Unpaid) => return ended(Outcome::Unpaid, None, None),
        Some(End::Timeout | End::Failed) | None => {}
    }
    let evaluation = evaluate(options, baseline, &observed(trials));
    if last.is_some_and(|last| last.class == Some(Class::SecurityViolation)) {
        return ended(Outcome::Forbidden, Some(evaluation), Some(i64::MAX));
    }
    let attempts: Vec<Attempt> =
        trials.iter().map(|one| one.class.map_or(Attempt::Failure, Attempt::from)).collect();
    let rejected = Some(options.rejected_ms);
    match (advise(options, &attempts), evaluation.standing) {
        (Advice::Continue { .. }, _) => Weighed::Next,
        (Advice::Reject { cooldown_ms }, _) => {
            ended(Outcome::Rejected, Some(evaluation), Some(cooldown_ms))
        }
        (_, Standing::Rejected) => ended(Outcome::Rejected, Some(evaluation), rejected),
        (Advice::Promote, Standing::Active) => ended(Outcome::Active, Some(evaluation), None),
        (Advice::Promote | Advice::Condition, Standing::Active | Standing::Conditional) => {
            ended(Outcome::Conditional, Some(evaluation), None)
        }
    }
}

/// All trials as one observation. What was not delivered has passed nothing.
fn observed(trials: &[Tried]) -> Observed {
    let sum = |of: fn(&Tried) -> u64| trials.iter().map(of).fold(0_u64, u64::saturating_add);
    let judged = || trials.iter().filter(|one| one.class.is_some());
    let violations = judged().filter(|one| one.class == Some(Class::Error)).count();
    let quality: Vec<u64> = judged().filter_map(|one| one.quality_milli).collect();
    let count = u64::try_from(quality.len()).unwrap_or(u64::MAX);
    let whole = quality.iter().copied().fold(0, u64::saturating_add);
    Observed {
        tests: Some(Tests { passed: sum(|one| one.passed), total: sum(|one| one.total) }),
        latencies_ms: judged().filter_map(|one| one.latency_ms).collect(),
        resources: judged().next().is_some().then(|| Resources {
            violations: u64::try_from(violations).unwrap_or(u64::MAX),
            memory_peak_bytes: judged().filter_map(|one| one.memory_peak_bytes).max(),
            memory_limit_bytes: None,
        }),
        quality_milli: whole.checked_div(count),
        coverage_bp: None,
        forbidden: trials.iter().any(|one| one.class == Some(Class::SecurityViolation)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(class: Class, passed: u64) -> Tried {
        Tried {
            class: Some(class),
            end: None,
            passed,
            total: 10,
            latency_ms: Some(100),
            memory_peak_bytes: Some(1 << 20),
            quality_milli: None,
        }
    }

    fn ended(end: End) -> Tried {
        Tried {
            class: None,
            end: Some(end),
            passed: 0,
            latency_ms: None,
            ..judged(Class::Error, 0)
        }
    }

    fn outcome(trials: &[Tried]) -> Option<(&'static str, Option<i64>)> {
        match weigh(&Options::default(), &Baseline::default(), 7, trials) {
            Weighed::Next => None,
            Weighed::Ended { outcome, cooldown_ms, .. } => Some((outcome.name(), cooldown_ms)),
        }
    }

    #[test]
    fn trials_decide_or_ask_for_more() {
        let (good, bad) = (judged(Class::Success, 10), judged(Class::Failure, 2));
        let most = judged(Class::Partial, 9);
        let days = Some(30 * 24 * 3_600_000);
        for (trials, expected) in [
            (vec![good.clone()], None),
            (vec![good.clone(); 2], None),
            (vec![good.clone(); 3], Some(("active", None))),
            (vec![good.clone(), good.clone(), most.clone()], None),
            (vec![most; 3], Some(("conditional", None))),
            (vec![bad.clone(); 3], Some(("rejected", days))),
            (vec![ended(End::Timeout), ended(End::Failed), bad.clone()], Some(("rejected", days))),
            (vec![good.clone(), ended(End::Timeout), bad], Some(("rejected", days))),
            (vec![ended(End::Unresponsive)], Some(("unresponsive", Some(7)))),
            (vec![good.clone(), ended(End::Unresponsive)], Some(("unresponsive", Some(7)))),
            (vec![ended(End::Undelivered)], Some(("undelivered", None))),
            (vec![ended(End::Unpaid)], Some(("unpaid", None))),
            (vec![good, judged(Class::SecurityViolation, 10)], Some(("forbidden", Some(i64::MAX)))),
        ] {
            assert_eq!(outcome(&trials), expected, "{trials:?}");
        }
        for outcome in Outcome::ALL {
            assert_eq!(Outcome::named(outcome.name()), Some(outcome));
        }
    }

    #[test]
    fn who_is_slow_is_annotated() {
        let mut baseline = Baseline::default();
        (0..20).for_each(|_| baseline.add(100));
        let slow = Tried { latency_ms: Some(5_000), ..judged(Class::Success, 10) };
        let weighed = weigh(&Options::default(), &baseline, 7, &[slow.clone(), slow.clone(), slow]);
        let Weighed::Ended { outcome, evaluation: Some(evaluation), .. } = weighed else {
            panic!("{weighed:?}")
        };
        assert_eq!((outcome.name(), evaluation.pace.name()), ("conditional", "SLOW"));
    }
}
