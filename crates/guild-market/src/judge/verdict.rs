//! What came out: a class, by integer arithmetic, and everything that it follows from.

use std::collections::BTreeMap;

use guild_protocol::hash::Hash;
use guild_sandbox::{Flag, Limit, LimitReport, Standing};
use serde::{Deserialize, Serialize};

use super::metrics::Metrics;
use super::pattern::Finding;
use super::suite::Layer;
use crate::error::code;
use crate::{Error, Result};

/// The version of the format.
pub(super) const SCHEMA_VERSION: u32 = 1;

/// What a submission is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Class {
    /// Every test passed.
    Success,
    /// At least 80 of 100 passed.
    Partial,
    /// Fewer did, or a smoke test failed.
    Failure,
    /// It could not be run to its end.
    Error,
    /// It tried, or holds, what is forbidden.
    SecurityViolation,
}

impl Class {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Class::Success => "SUCCESS",
            Class::Partial => "PARTIAL",
            Class::Failure => "FAILURE",
            Class::Error => "ERROR",
            Class::SecurityViolation => "SECURITY_VIOLATION",
        }
    }

    /// The class of that name.
    pub fn named(name: &str) -> Option<Class> {
        let all = [
            Class::Success,
            Class::Partial,
            Class::Failure,
            Class::Error,
            Class::SecurityViolation,
        ];
        all.into_iter().find(|class| class.name() == name)
    }
}

/// What decides the class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that there are, run or not.
    pub total: u64,
    /// Whether a test ended in an error.
    pub has_errors: bool,
    /// Whether a smoke test failed.
    pub failed_smoke: bool,
    /// Whether something forbidden was seen or found.
    pub is_flagged: bool,
}

impl Tally {
    /// What these tests come to.
    pub fn of(tests: &[TestResult], is_flagged: bool) -> Tally {
        let mut tally = Tally { is_flagged, ..Tally::default() };
        for test in tests {
            tally.total = tally.total.saturating_add(1);
            match test.status {
                Status::Passed => tally.passed = tally.passed.saturating_add(1),
                Status::Failed => tally.failed_smoke |= test.layer == Layer::Smoke,
                Status::Error => tally.has_errors = true,
                Status::NotRun => {}
            }
        }
        tally
    }

    /// What is forbidden wins over everything, then errors, then the score. Nothing tested is an error.
    ///
    /// ```
    /// use guild_market::judge::{Class, Tally};
    /// let of = |passed, total| Tally { passed, total, ..Tally::default() }.class();
    /// assert_eq!((of(4, 5), of(3, 5), of(0, 0)), (Class::Partial, Class::Failure, Class::Error));
    /// ```
    pub fn class(self) -> Class {
        let Tally { passed, total, .. } = self;
        if self.is_flagged {
            Class::SecurityViolation
        } else if self.has_errors || total == 0 || passed > total {
            Class::Error
        } else if self.failed_smoke {
            Class::Failure
        } else if passed == total {
            Class::Success
        } else if u128::from(passed).saturating_mul(100) >= u128::from(total).saturating_mul(80) {
            Class::Partial
        } else {
            Class::Failure
        }
    }

    /// What the class does to the trust in whoever delivered it.
    pub fn trust(self) -> Trust {
        let class = self.class();
        let full: u64 = Layer::ALL.into_iter().map(Layer::full_count).sum();
        // How far from the first to the second, in parts of `of`.
        let (least, most, part, of) = match class {
            Class::Success => (1_000, 1_500, self.total.min(full), full),
            Class::Partial => {
                let fifth = self.total.saturating_mul(80).div_ceil(100);
                (200, 800, self.passed.saturating_sub(fifth), self.total.saturating_sub(fifth))
            }
            Class::Failure => {
                (-1_500, -1_000, self.passed.saturating_mul(100), self.total.saturating_mul(80))
            }
            Class::Error => (-2_000, -500, self.passed, self.total),
            Class::SecurityViolation => {
                return Trust { least_bp: 0, most_bp: 0, step_bp: 0, blacklist: true };
            }
        };
        let between = |part: u64, of: u64| -> i64 {
            let (part, of) = (i128::from(part.min(of)), i128::from(of.max(1)));
            let span = i128::from(most).saturating_sub(i128::from(least));
            let step = span.saturating_mul(part).checked_div(of).unwrap_or(0);
            i64::try_from(step.saturating_add(i128::from(least))).unwrap_or(least)
        };
        Trust { least_bp: least, most_bp: most, step_bp: between(part, of), blacklist: false }
    }
}

/// How a verdict moves trust, in ten-thousandths: the range of its class, and where in it this verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trust {
    /// The lower end.
    pub least_bp: i64,
    /// The upper end.
    pub most_bp: i64,
    /// This one.
    pub step_bp: i64,
    /// Whether whoever delivered it is not hired again.
    pub blacklist: bool,
}

/// How far a verdict can be relied on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The runner held the tests and compared by itself.
    Trusted,
    /// Tests and submission shared a process: forgery may be seen, and may not be.
    TamperEvident,
}

/// What became of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It gave what was expected.
    Passed,
    /// It gave something else.
    Failed,
    /// It gave nothing that can be compared.
    Error,
    /// It was not run, because of an earlier one; it counts as failed.
    NotRun,
}

impl Status {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Status::Passed => "passed",
            Status::Failed => "failed",
            Status::Error => "error",
            Status::NotRun => "not_run",
        }
    }
}

/// One test of a verdict. What was expected is not in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestResult {
    /// Its name.
    pub id: String,
    /// Its layer.
    pub layer: Layer,
    /// What became of it.
    pub status: Status,
    /// Why, if it did not pass.
    pub why: Option<String>,
    /// How long the answer took, the quickest of a performance test's large call.
    pub wall_us: Option<u64>,
}

/// Tests of a layer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {
    /// That passed.
    pub passed: u64,
    /// That there are.
    pub total: u64,
}

/// What a judge says about a submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// The version of the format.
    pub schema_version: u32,
    /// The name of the suite.
    pub suite: String,
    /// Names the suite by its content.
    pub suite_hash: Hash,
    /// Names the submission by its content.
    pub submission_hash: Hash,
    /// What it is worth.
    pub class: Class,
    /// How far that can be relied on.
    pub mode: Mode,
    /// Tests that passed.
    pub passed: u64,
    /// Tests that there are.
    pub total: u64,
    /// Whether the suite has as many tests in every layer as a full one.
    pub full: bool,
    /// The same for each layer.
    pub layers: BTreeMap<Layer, Count>,
    /// Every test, in the order of the suite.
    pub tests: Vec<TestResult>,
    /// What the kernel saw it try.
    pub flags: Vec<Flag>,
    /// Forbidden names that stand in it.
    pub findings: Vec<Finding>,
    /// What it does to trust.
    pub trust: Trust,
    /// What was measured.
    pub metrics: Metrics,
    /// How well each limit of the sandboxes held, the worst of all of them.
    pub limits: BTreeMap<Limit, LimitReport>,
    /// The layers of isolation, the worst of all sandboxes.
    pub isolation: BTreeMap<guild_sandbox::Layer, Standing>,
    /// What the submission printed, the beginning of it.
    pub printed: String,
}

impl Verdict {
    /// Whether its class, its numbers, those of the layers too, and its step of trust follow from its tests. One that
    /// came from elsewhere may say anything.
    pub fn check(&self) -> Result<()> {
        let tally = Tally::of(&self.tests, !self.flags.is_empty() || !self.findings.is_empty());
        let metrics = &self.metrics;
        let parts = [
            (&metrics.coverage_bp, "metrics.coverage_bp"),
            (&metrics.pylint_milli, "metrics.pylint_milli"),
            (&metrics.bandit_milli, "metrics.bandit_milli"),
            (&metrics.mypy_milli, "metrics.mypy_milli"),
        ];
        let too_large = parts.iter().find(|(measure, _)| measure.value() > Some(10_000));
        let wrong = match too_large {
            Some((_, field)) => field,
            None if self.schema_version != SCHEMA_VERSION => "schema_version",
            None if self.passed != tally.passed => "passed",
            None if self.total != tally.total => "total",
            None if self.class != tally.class() => "class",
            None if self.trust != tally.trust() => "trust",
            None if self.layers != count_layers(&self.tests) => "layers",
            None => return Ok(()),
        };
        let why = format!("{wrong} does not follow from the rest of the verdict");
        Err(Error::refused(&code::JUDGE_VERDICT, why))
    }
}

/// How many there are of each layer, and how many of them passed.
pub(super) fn count_layers(tests: &[TestResult]) -> BTreeMap<Layer, Count> {
    let mut layers: BTreeMap<Layer, Count> = BTreeMap::new();
    for test in tests {
        let count = layers.entry(test.layer).or_default();
        count.total = count.total.saturating_add(1);
        count.passed = count.passed.saturating_add(u64::from(test.status == Status::Passed));
    }
    layers
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tally(passed: u64, total: u64) -> Tally {
        Tally { passed, total, ..Tally::default() }
    }

    #[test]
    fn the_score_is_counted_in_whole_numbers() {
        let class = |passed, total| tally(passed, total).class();
        assert_eq!(class(55, 55), Class::Success);
        assert_eq!(class(999_999, 1_000_000), Class::Partial, "99.9999 % is not all");
        assert_eq!(class(44, 55), Class::Partial, "exactly 80 %");
        assert_eq!(class(43, 55), Class::Failure);
        assert_eq!(class(79_999, 100_000), Class::Failure);
        assert_eq!(class(0, 0), Class::Error, "nothing was tested");
        assert_eq!(class(2, 1), Class::Error);
        assert_eq!(class(u64::MAX, u64::MAX), Class::Success);
    }

    #[test]
    fn a_tally_counts_what_was_not_run() {
        let test = |layer, status| TestResult {
            id: String::new(),
            layer,
            status,
            why: None,
            wall_us: None,
        };
        let tests = [
            test(Layer::Smoke, Status::Passed),
            test(Layer::Edge, Status::NotRun),
            test(Layer::Edge, Status::Failed),
        ];
        assert_eq!(Tally::of(&tests, false), tally(1, 3));
        assert_eq!(Tally::of(&tests, false).class(), Class::Failure);
        let smoke = Tally::of(&[test(Layer::Smoke, Status::Failed)], true);
        assert_eq!(smoke, Tally { failed_smoke: true, is_flagged: true, ..tally(0, 1) });
        assert!(Tally::of(&[test(Layer::Edge, Status::Error)], false).has_errors);
    }

    #[test]
    fn what_is_worse_wins() {
        let all = tally(10, 10);
        let error = Tally { has_errors: true, ..all };
        let smoke = Tally { failed_smoke: true, ..tally(9, 10) };
        assert_eq!(error.class(), Class::Error);
        assert_eq!(smoke.class(), Class::Failure, "though 90 % passed");
        assert_eq!(Tally { failed_smoke: true, ..error }.class(), Class::Error);
        for tally in [all, error, smoke, tally(0, 0)] {
            let flagged = Tally { is_flagged: true, ..tally };
            assert_eq!(flagged.class(), Class::SecurityViolation);
            assert!(flagged.trust().blacklist);
        }
    }

    #[test]
    fn trust_moves_within_the_range_of_the_class() {
        let step = |tally: Tally| tally.trust().step_bp;
        assert_eq!((step(tally(55, 55)), step(tally(1, 1))), (1_500, 1_009));
        assert_eq!((step(tally(80, 100)), step(tally(99, 100))), (200, 770));
        assert_eq!((step(tally(0, 100)), step(tally(79, 100))), (-1_500, -1_007));
        let error = |passed| Tally { has_errors: true, ..tally(passed, 100) };
        assert_eq!((step(error(0)), step(error(99))), (-2_000, -515));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_better_score_is_never_worse(total in 1u64..500, a in 0u64..500, b in 0u64..500) {
            let (a, b) = (a.min(total), b.min(total));
            let (low, high) = (tally(a.min(b), total), tally(a.max(b), total));
            prop_assert!(low.class() >= high.class());
            prop_assert!(low.trust().step_bp <= high.trust().step_bp);
            for trust in [low.trust(), high.trust()] {
                prop_assert!((trust.least_bp..=trust.most_bp).contains(&trust.step_bp));
            }
        }
    }
}
