//! Four dimensions, one score. A dimension that nobody looked at takes no part in it, and has not passed.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::baseline::percentile;
use super::{Baseline, Options, Weights};

/// All of it.
const WHOLE_BP: u64 = 10_000;
/// The best quality, in thousandths of a point.
const BEST_MILLI: u64 = 10_000;

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// Whether it does what it must.
    Correctness,
    /// How long it takes beside what others take.
    Performance,
    /// Whether it keeps to its limits.
    Resources,
    /// How well it is made.
    Quality,
}

impl Dimension {
    /// All of them.
    pub const ALL: [Dimension; 4] =
        [Dimension::Correctness, Dimension::Performance, Dimension::Resources, Dimension::Quality];

    fn weight(self, weights: &Weights) -> u32 {
        match self {
            Dimension::Correctness => weights.correctness,
            Dimension::Performance => weights.performance,
            Dimension::Resources => weights.resources,
            Dimension::Quality => weights.quality,
        }
    }
}

/// How many tests passed. Work that is not code has the check of its schema: one test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tests {
    /// That passed.
    pub passed: u64,
    /// That there are.
    pub total: u64,
}

/// How it kept to its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resources {
    /// How often it went beyond one.
    pub violations: u64,
    /// The most memory at one time, if it was measured.
    pub memory_peak_bytes: Option<u64>,
    /// What it may use, if it was declared.
    pub memory_limit_bytes: Option<u64>,
}

/// What was seen of a provider. What was not looked at is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// Its tests.
    pub tests: Option<Tests>,
    /// How long each run took.
    pub latencies_ms: Vec<u64>,
    /// How it kept to its limits.
    pub resources: Option<Resources>,
    /// How well it is made, in thousandths of a point.
    pub quality_milli: Option<u64>,
    /// How much of it the tests reached, in ten-thousandths.
    pub coverage_bp: Option<u64>,
    /// Whether it tried, or holds, what is forbidden.
    pub forbidden: bool,
}

/// How a dimension came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// How good it is.
    pub score_bp: u32,
    /// What it weighs.
    pub weight: u32,
    /// Whether it is as good as it must be.
    pub meets: bool,
}

/// What a score makes of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Taken.
    Active,
    /// Taken under conditions.
    Conditional,
    /// Not taken.
    Rejected,
}

/// What is remarkable about a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Note {
    /// Its median is well below that of others.
    Fast,
    /// Its slowest runs are no slower than those of others.
    Reliable,
    /// It needs clearly less memory than it may use.
    Efficient,
    /// Its tests reach nearly all of it.
    Thorough,
}

impl Note {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Note::Fast => "fast",
            Note::Reliable => "reliable",
            Note::Efficient => "efficient",
            Note::Thorough => "thorough",
        }
    }
}

/// How quick a provider is, beside others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Pace {
    /// Clearly quicker.
    Fast,
    /// As quick, or nobody knows.
    Standard,
    /// Clearly slower.
    Slow,
}

impl Pace {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Pace::Fast => "FAST",
            Pace::Standard => "STANDARD",
            Pace::Slow => "SLOW",
        }
    }
}

/// What an evaluation found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The weighted sum of the dimensions that were looked at.
    pub score_bp: u32,
    /// Each of them. One that is missing was not looked at.
    pub parts: BTreeMap<Dimension, Part>,
    /// What it makes of the provider.
    pub standing: Standing,
    /// What is remarkable.
    pub notes: BTreeSet<Note>,
    /// How quick it is.
    pub pace: Pace,
    /// The first trust in it; none in whoever is rejected.
    pub trust_bp: Option<u32>,
}

/// Judges what was seen, beside what others take.
///
/// The score alone makes nobody active: all tests must have passed. Without tests there is nothing to go by, and what
/// is forbidden is rejected whatever else is good.
pub fn evaluate(options: &Options, baseline: &Baseline, seen: &Observed) -> Evaluation {
    let parts: BTreeMap<Dimension, Part> = Dimension::ALL
        .into_iter()
        .filter_map(|dimension| {
            let (score_bp, meets) = part(options, baseline, seen, dimension)?;
            let score_bp = u32::try_from(score_bp.min(WHOLE_BP)).unwrap_or(0);
            Some((dimension, Part { score_bp, weight: dimension.weight(&options.weights), meets }))
        })
        .collect();
    let score_bp = weighted(&parts);
    let standing = match parts.get(&Dimension::Correctness) {
        _ if seen.forbidden => Standing::Rejected,
        None => Standing::Rejected,
        Some(_) if score_bp < options.conditional_bp => Standing::Rejected,
        Some(correct) if correct.meets && score_bp >= options.active_bp => Standing::Active,
        Some(_) => Standing::Conditional,
    };
    let (p50_ms, p95_ms) = (median(seen), percentile(seen.latencies_ms.iter().copied(), 95));
    let share = Share { ours: p50_ms, whole: baseline.p50_ms() };
    let exceptional = score_bp >= options.exceptional_bp && share.below(options.exceptional_pct);
    Evaluation {
        score_bp,
        standing,
        notes: notes(options, share, Share { ours: p95_ms, whole: baseline.p95_ms() }, seen),
        pace: match share {
            share if share.below(options.fast_pct) => Pace::Fast,
            Share { ours: Some(_), whole: Some(_) } if !share.below(options.slow_pct) => Pace::Slow,
            _ => Pace::Standard,
        },
        trust_bp: match standing {
            Standing::Active if exceptional => Some(options.exceptional_trust_bp),
            Standing::Active => Some(options.active_trust_bp),
            Standing::Conditional => Some(options.conditional_trust_bp),
            Standing::Rejected => None,
        },
        parts,
    }
}

/// What was looked at counts as if there were nothing else.
fn weighted(parts: &BTreeMap<Dimension, Part>) -> u32 {
    let mut sum = 0_u64;
    let mut weights = 0_u64;
    for part in parts.values() {
        let weight = u64::from(part.weight);
        sum = sum.saturating_add(u64::from(part.score_bp).saturating_mul(weight));
        weights = weights.saturating_add(weight);
    }
    u32::try_from(sum.checked_div(weights).unwrap_or(0)).unwrap_or(0)
}

/// How good a dimension is and whether that is enough; nothing if it was not looked at.
fn part(
    options: &Options,
    baseline: &Baseline,
    seen: &Observed,
    dimension: Dimension,
) -> Option<(u64, bool)> {
    match dimension {
        Dimension::Correctness => {
            let Tests { passed, total } = seen.tests?;
            let passed = passed.min(total);
            let bp = u128::from(passed).saturating_mul(u128::from(WHOLE_BP));
            let bp = bp.checked_div(u128::from(total))?;
            Some((u64::try_from(bp).unwrap_or(0), passed == total))
        }
        Dimension::Performance => {
            let (ours, whole) = (median(seen)?, baseline.p50_ms()?);
            let pct = ours.saturating_mul(100).checked_div(whole.max(1))?;
            // All of it up to the baseline, nothing from the slowest that is taken on.
            let (over, room) = (pct.saturating_sub(100), options.slow_pct.saturating_sub(100));
            let lost = over.saturating_mul(WHOLE_BP).checked_div(room.max(1))?;
            Some((WHOLE_BP.saturating_sub(lost), pct < options.slow_pct))
        }
        Dimension::Resources => {
            let kept = seen.resources?.violations == 0;
            Some((if kept { WHOLE_BP } else { 0 }, kept))
        }
        Dimension::Quality => {
            let milli = seen.quality_milli?.min(BEST_MILLI);
            Some((milli, milli > options.quality_milli))
        }
    }
}

fn median(seen: &Observed) -> Option<u64> {
    percentile(seen.latencies_ms.iter().copied(), 50)
}

/// A part of something, if both are known.
#[derive(Clone, Copy)]
struct Share {
    ours: Option<u64>,
    whole: Option<u64>,
}

impl Share {
    /// Whether it is known to be below so many hundredths.
    fn below(self, pct: u64) -> bool {
        let (Some(ours), Some(whole)) = (self.ours, self.whole) else { return false };
        u128::from(ours).saturating_mul(100) < u128::from(whole).saturating_mul(u128::from(pct))
    }
}

fn notes(options: &Options, p50: Share, p95: Share, seen: &Observed) -> BTreeSet<Note> {
    let memory = Share {
        ours: seen.resources.and_then(|used| used.memory_peak_bytes),
        whole: seen.resources.and_then(|used| used.memory_limit_bytes),
    };
    let all = [
        (Note::Fast, p50.below(options.fast_pct)),
        (Note::Reliable, p95.below(options.reliable_pct)),
        (Note::Efficient, memory.below(options.efficient_pct)),
        (Note::Thorough, seen.coverage_bp.is_some_and(|bp| bp > options.thorough_bp)),
    ];
    all.into_iter().filter(|(_, is)| *is).map(|(note, _)| note).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn baseline() -> Baseline {
        let mut baseline = Baseline::default();
        (1..=200).for_each(|ms| baseline.add(ms * 10));
        baseline
    }

    /// Right, as quick as others, within its limits, and well made.
    fn good() -> Observed {
        Observed {
            tests: Some(Tests { passed: 55, total: 55 }),
            latencies_ms: vec![1_000],
            resources: Some(Resources {
                violations: 0,
                memory_peak_bytes: Some(90),
                memory_limit_bytes: Some(100),
            }),
            quality_milli: Some(10_000),
            coverage_bp: Some(9_000),
            forbidden: false,
        }
    }

    fn of(seen: &Observed) -> Evaluation {
        evaluate(&Options::default(), &baseline(), seen)
    }

    #[test]
    fn the_weights_are_the_documented_ones() {
        assert_eq!((of(&good()).score_bp, of(&good()).standing), (10_000, Standing::Active));
        let without = |change: fn(&mut Observed)| {
            let mut seen = good();
            change(&mut seen);
            of(&seen).score_bp
        };
        let wrong = without(|seen| seen.tests = Some(Tests { passed: 0, total: 55 }));
        assert_eq!(wrong, 5_000);
        assert_eq!(without(|seen| seen.latencies_ms = vec![1_500]), 7_500);
        assert_eq!(without(|seen| seen.latencies_ms = vec![1_250]), 8_750);
        let greedy = without(|seen| seen.resources.as_mut().unwrap().violations = 1);
        assert_eq!(greedy, 8_500);
        assert_eq!(without(|seen| seen.quality_milli = Some(0)), 9_000);
    }

    #[test]
    fn what_is_absent_takes_no_part() {
        let only = Observed { tests: Some(Tests { passed: 9, total: 10 }), ..Observed::default() };
        let found = of(&only);
        assert_eq!((found.score_bp, found.parts.len()), (9_000, 1));
        // Not all tests passed: the score alone makes nobody active.
        assert_eq!((found.standing, found.trust_bp), (Standing::Conditional, Some(4_500)));
        let untested = Observed { tests: None, ..good() };
        assert_eq!((of(&untested).standing, of(&untested).trust_bp), (Standing::Rejected, None));
        let nothing = Observed { tests: Some(Tests { passed: 0, total: 0 }), ..good() };
        assert_eq!(of(&nothing).standing, Standing::Rejected, "nothing was tested");
        // Nobody knows what is usual yet: how long it took says nothing.
        let first = evaluate(&Options::default(), &Baseline::default(), &good());
        assert!(!first.parts.contains_key(&Dimension::Performance));
        assert_eq!((first.score_bp, first.pace), (10_000, Pace::Standard));
    }

    #[test]
    fn bands_and_first_trust() {
        let with = |passed| {
            let tests = Some(Tests { passed, total: 100 });
            of(&Observed { tests, ..Observed::default() }).standing
        };
        assert_eq!((with(100), with(99)), (Standing::Active, Standing::Conditional));
        assert_eq!((with(60), with(59)), (Standing::Conditional, Standing::Rejected));
        assert_eq!(of(&good()).trust_bp, Some(6_000));
        let quick = Observed { latencies_ms: vec![499], ..good() };
        assert_eq!(of(&quick).trust_bp, Some(7_500));
        let forbidden = Observed { forbidden: true, ..good() };
        assert_eq!(of(&forbidden).standing, Standing::Rejected);
    }

    #[test]
    fn annotations_follow_the_baseline() {
        assert_eq!(of(&good()).notes, BTreeSet::from([Note::Reliable]));
        let quick = Observed {
            latencies_ms: vec![700, 700, 1_899],
            coverage_bp: Some(9_001),
            resources: Some(Resources {
                violations: 0,
                memory_peak_bytes: Some(79),
                memory_limit_bytes: Some(100),
            }),
            ..good()
        };
        let all = [Note::Fast, Note::Reliable, Note::Efficient, Note::Thorough];
        assert_eq!((of(&quick).notes, of(&quick).pace), (all.into(), Pace::Fast));
        let slow = Observed { latencies_ms: vec![1_500, 1_500, 1_900], ..good() };
        assert_eq!((of(&slow).notes, of(&slow).pace), (BTreeSet::new(), Pace::Slow));
        // The market became quicker: what was fast is usual now.
        let mut quicker = baseline();
        (0..256).for_each(|_| quicker.add(700));
        assert_eq!(evaluate(&Options::default(), &quicker, &quick).pace, Pace::Standard);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nothing_is_beyond_the_whole_and_better_is_never_worse(
            total in 0u64..60, passed in 0u64..70, latency in 0u64..10_000, violations in 0u64..3,
            quality in prop::option::of(0u64..20_000),
        ) {
            let seen = Observed {
                tests: Some(Tests { passed, total }),
                latencies_ms: vec![latency],
                resources: Some(Resources {
                    violations, memory_peak_bytes: None, memory_limit_bytes: None,
                }),
                quality_milli: quality,
                ..Observed::default()
            };
            let found = of(&seen);
            prop_assert!(found.score_bp <= 10_000);
            let better = Observed {
                tests: Some(Tests { passed: passed + 1, total }),
                latencies_ms: vec![latency / 2],
                ..seen
            };
            prop_assert!(of(&better).score_bp >= found.score_bp);
            prop_assert!(of(&better).standing <= found.standing);
        }
    }
}
