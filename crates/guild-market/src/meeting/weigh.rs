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
    /// What it may use.
    pub memory_limit_bytes: Option<u64>,
    /// How well it is made, in thousandths of a point.
    pub quality_milli: Option<u64>,
    /// How much of it the tests reached, in ten-thousandths.
    pub coverage_bp: Option<u64>,
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
        // The pattern of attempts decides before the score: it did well once, and what failed has lowered the score.
        (Advice::Condition, _) => ended(Outcome::Conditional, Some(evaluation), None),
        (Advice::Promote, Standing::Rejected) => {
            ended(Outcome::Rejected, Some(evaluation), rejected)
        }
        (Advice::Promote, Standing::Active) => ended(Outcome::Active, Some(evaluation), None),
        (Advice::Promote, Standing::Conditional) => {
            ended(Outcome::Conditional, Some(evaluation), None)
        }
    }
}

/// All trials as one observation. What was not delivered has passed nothing.
fn observed(trials: &[Tried]) -> Observed {
    let sum = |of: fn(&Tried) -> u64| trials.iter().map(of).fold(0_u64, u64::saturating_add);
    let judged = || trials.iter().filter(|one| one.class.is_some());
    let violations = judged().filter(|one| one.class == Some(Class::Error)).count();
    // Who delivered no program used nothing that could be measured.
    let is_measured = judged().any(|one| one.memory_peak_bytes.is_some());
    Observed {
        tests: Some(Tests { passed: sum(|one| one.passed), total: sum(|one| one.total) }),
        latencies_ms: judged().filter_map(|one| one.latency_ms).collect(),
        resources: is_measured.then(|| Resources {
            violations: u64::try_from(violations).unwrap_or(u64::MAX),
            memory_peak_bytes: judged().filter_map(|one| one.memory_peak_bytes).max(),
            memory_limit_bytes: judged().filter_map(|one| one.memory_limit_bytes).min(),
        }),
        quality_milli: mean(judged().filter_map(|one| one.quality_milli)),
        coverage_bp: mean(judged().filter_map(|one| one.coverage_bp)),
        forbidden: trials.iter().any(|one| one.class == Some(Class::SecurityViolation)),
    }
}

/// The mean of what was measured; none if nothing was.
fn mean(measured: impl Iterator<Item = u64>) -> Option<u64> {
    let (mut sum, mut count) = (0_u64, 0_u64);
    for one in measured {
        (sum, count) = (sum.saturating_add(one), count.saturating_add(1));
    }
    sum.checked_div(count)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::evaluation::{Dimension, Note};

    fn judged(class: Class, passed: u64) -> Tried {
        Tried {
            class: Some(class),
            end: None,
            passed,
            total: 10,
            latency_ms: Some(100),
            memory_peak_bytes: Some(1 << 20),
            memory_limit_bytes: Some(1 << 28),
            quality_milli: None,
            coverage_bp: None,
        }
    }

    fn ended(end: End) -> Tried {
        Tried {
            class: None,
            end: Some(end),
            passed: 0,
            latency_ms: None,
            memory_peak_bytes: None,
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
            (vec![most.clone(); 3], Some(("conditional", None))),
            (vec![bad.clone(); 3], Some(("rejected", days))),
            (vec![ended(End::Timeout), ended(End::Failed), bad.clone()], Some(("rejected", days))),
            // One success and two failures: conditional, however low the score is.
            (vec![good.clone(), ended(End::Timeout), bad.clone()], Some(("conditional", None))),
            (vec![bad.clone(), good.clone(), bad.clone()], Some(("conditional", None))),
            (vec![ended(End::Failed), bad.clone(), good.clone()], Some(("conditional", None))),
            (vec![bad.clone(), most.clone(), most], Some(("rejected", days))),
            (
                vec![good.clone(), bad.clone(), good.clone(), bad.clone(), bad],
                Some(("rejected", days)),
            ),
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

    fn found(trials: &[Tried]) -> Evaluation {
        match weigh(&Options::default(), &Baseline::default(), 7, trials) {
            Weighed::Ended { evaluation: Some(evaluation), .. } => evaluation,
            weighed => panic!("{weighed:?}"),
        }
    }

    #[test]
    fn what_was_measured_counts_and_what_was_not_takes_no_part() {
        let plain = judged(Class::Success, 10);
        let seen = found(&[plain.clone(), plain.clone(), plain.clone()]);
        assert_eq!((seen.score_bp, &seen.notes), (10_000, &BTreeSet::from([Note::Efficient])));
        assert!(!seen.parts.contains_key(&Dimension::Quality), "nobody looked at it");
        let made = |milli, bp| Tried {
            quality_milli: Some(milli),
            coverage_bp: Some(bp),
            ..plain.clone()
        };
        let seen = found(&[made(9_000, 9_400), made(8_000, 9_000), made(4_000, 9_200)]);
        // The mean of three; without others to compare with, 50, 15 and 10 are all of it.
        assert_eq!(seen.parts[&Dimension::Quality].score_bp, 7_000);
        assert_eq!(seen.score_bp, (50 * 10_000 + 15 * 10_000 + 10 * 7_000) / 75);
        assert_eq!(seen.notes, BTreeSet::from([Note::Efficient, Note::Thorough]));
        let greedy = Tried { memory_peak_bytes: Some(250 << 20), ..made(9_000, 9_000) };
        assert_eq!(found(&[greedy.clone(), greedy.clone(), greedy]).notes, BTreeSet::new());
        // Work that is not code: its schema's check decides alone, as nothing else was looked at.
        let checked = Tried { memory_peak_bytes: None, passed: 1, total: 1, ..plain };
        let seen = found(&[checked.clone(), checked.clone(), checked]);
        assert_eq!(seen.parts.keys().collect::<Vec<_>>(), [&Dimension::Correctness]);
        assert_eq!((seen.score_bp, seen.standing), (10_000, Standing::Active));
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
