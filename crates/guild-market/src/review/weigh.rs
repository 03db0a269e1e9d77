//! What reviews are worth: a pure computation, which explains itself.
//!
//! | factor | from | to |
//! |---|---|---|
//! | evidence | nothing, if it names nothing that is here, or something else | all, if request and result are here |
//! | calibration | a tenth for whoever is new; nothing for who foretells worse than the base rate | all |
//! | age | all | half after 90 days |
//!
//! The product is in outcomes: a review weighs at most one. Reviewers of one operator weigh as much as the heaviest of
//! them, all who are new weigh at most one outcome together, and all there are at most five.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use serde::Serialize;

use super::{Grade, Operator, Options};

/// What all reviews of a provider weigh at most, in thousandths of an outcome.
pub const MOST_MILLI: u64 = 5_000;
/// What all reviewers of whom nothing is known weigh at most together.
const STRANGERS_MILLI: u64 = 1_000;
/// What whoever is new is believed.
const UNKNOWN_MILLI: i64 = 100;
/// What whoever is trusted is believed at least.
const TRUSTED_MILLI: i64 = 500;
const ONE_MILLI: i64 = 1_000;
/// After so long a review weighs half.
const HALF_LIFE_MS: i64 = 90 * 24 * 3_600_000;
/// So much uncertainty is there before anything is scored: four outcomes of a coin.
const DOUBT: i64 = 4 * 25_000_000;
/// Success makes no more trust than this, so whoever says it says that all goes well.
const TRUST_TOP_BP: u64 = 9_000;
const WHOLE_BP: u64 = 10_000;

/// How well what a reviewer said foretold our own outcomes: sums of squared errors, in square ten-thousandths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Record {
    /// Of so many outcomes.
    pub outcomes: i64,
    /// What it said.
    pub brier: i64,
    /// What the base rate would have said.
    pub base: i64,
}

/// What somebody said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Who.
    pub reviewer: PublicKey,
    /// How far it trusts.
    pub trust_bp: u32,
    /// What can be looked at.
    pub grade: Grade,
    /// What it said before.
    pub record: Record,
    /// When it said so.
    pub at_ms: UnixMs,
}

/// What one review weighs, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Whose.
    pub reviewer: PublicKey,
    /// How far it trusts.
    pub trust_bp: u32,
    /// When it said so.
    pub at_ms: UnixMs,
    /// What can be looked at.
    pub grade: Grade,
    /// Of how many of our outcomes its reviewer had said something before.
    pub outcomes: i64,
    /// What its reviewer is believed, in thousandths.
    pub calibration_milli: u64,
    /// What is left of it by now, in thousandths.
    pub age_milli: u64,
    /// Whether we trust its reviewer anyway.
    pub is_trusted: bool,
    /// What it weighs by itself, in thousandths of an outcome,
    pub weight_milli: u64,
    /// and what is counted of that.
    pub counted_milli: u64,
}

/// What all reviews come to: outcomes that others say they had, in thousandths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Prior {
    /// Good ones.
    pub good_milli: u64,
    /// Bad ones. With the good ones at most [`MOST_MILLI`].
    pub bad_milli: u64,
    /// What each counts, the heaviest first.
    pub why: Vec<Line>,
}

/// How often somebody does well, if what is said of its trust is right, in ten-thousandths.
pub(super) fn foretold_bp(trust_bp: u32) -> u64 {
    let part = u64::from(trust_bp).saturating_mul(WHOLE_BP).checked_div(TRUST_TOP_BP);
    part.unwrap_or(0).min(WHOLE_BP)
}

/// What a reviewer is believed, in thousandths: by how much less it erred than the base rate.
///
/// ```
/// use guild_market::review::{Record, calibration_milli};
/// assert_eq!(calibration_milli(&Record::default(), false), 100, "nothing is known of it");
/// let outcomes = 40;
/// let well = Record { outcomes, brier: 40 * 1_000_000, base: 40 * 25_000_000 };
/// assert!(calibration_milli(&well, false) > 850);
/// let badly = Record { outcomes, brier: 40 * 64_000_000, base: 40 * 25_000_000 };
/// assert_eq!(calibration_milli(&badly, false), 0);
/// assert_eq!(calibration_milli(&badly, true), 500, "but it is trusted");
/// ```
pub fn calibration_milli(record: &Record, is_trusted: bool) -> u64 {
    let gain = i128::from(record.base).saturating_sub(i128::from(record.brier));
    let against = i128::from(record.base.max(0)).saturating_add(i128::from(DOUBT));
    let skill = gain.saturating_mul(i128::from(ONE_MILLI)).checked_div(against).unwrap_or(0);
    let skill = i64::try_from(skill).unwrap_or(0).clamp(ONE_MILLI.saturating_neg(), ONE_MILLI);
    // More than what is new by skill, less by the lack of it.
    let range = match skill >= 0 {
        true => ONE_MILLI.saturating_sub(UNKNOWN_MILLI),
        false => UNKNOWN_MILLI,
    };
    let moved = range.saturating_mul(skill).checked_div(ONE_MILLI).unwrap_or(0);
    let floor = if is_trusted { TRUSTED_MILLI } else { 0 };
    u64::try_from(UNKNOWN_MILLI.saturating_add(moved).max(floor)).unwrap_or(0)
}

fn age_milli(at_ms: UnixMs, now_ms: UnixMs) -> u64 {
    let age_ms = now_ms.saturating_sub(at_ms).max(0);
    (1_000.0 * (-(age_ms as f64) / HALF_LIFE_MS as f64).exp2()).round() as u64
}

/// What reviews of one provider for one kind of work come to.
pub fn weigh(said: &[Said], options: &Options, operator: Operator<'_>, now_ms: UnixMs) -> Prior {
    let mut lines: Vec<Line> = said.iter().map(|said| line(said, options, now_ms)).collect();
    once_each(&mut lines, operator);
    limit(&mut lines, |line| line.outcomes == 0 && !line.is_trusted, STRANGERS_MILLI);
    limit(&mut lines, |_| true, MOST_MILLI);
    lines.sort_by(|a, b| {
        let weight = |line: &Line| (line.counted_milli, line.weight_milli);
        weight(b).cmp(&weight(a)).then_with(|| a.reviewer.cmp(&b.reviewer))
    });
    let (mut good_milli, mut bad_milli) = (0_u64, 0_u64);
    for line in &lines {
        let good = part(line.counted_milli, foretold_bp(line.trust_bp), WHOLE_BP);
        good_milli = good_milli.saturating_add(good);
        bad_milli = bad_milli.saturating_add(line.counted_milli.saturating_sub(good));
    }
    Prior { good_milli, bad_milli, why: lines }
}

fn line(said: &Said, options: &Options, now_ms: UnixMs) -> Line {
    let is_trusted = options.trusted.contains(&said.reviewer);
    let calibration_milli = calibration_milli(&said.record, is_trusted);
    let age_milli = age_milli(said.at_ms, now_ms);
    let weight = said.grade.weight_milli();
    let weight_milli = part(part(weight, calibration_milli, 1_000), age_milli, 1_000);
    Line {
        reviewer: said.reviewer,
        trust_bp: said.trust_bp,
        at_ms: said.at_ms,
        grade: said.grade,
        outcomes: said.record.outcomes,
        calibration_milli,
        age_milli,
        is_trusted,
        weight_milli,
        counted_milli: weight_milli,
    }
}

/// So much of something.
fn part(of: u64, parts: u64, whole: u64) -> u64 {
    let product = u128::from(of).saturating_mul(u128::from(parts));
    let part = product.checked_div(u128::from(whole)).unwrap_or(0);
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// All of one operator count as much as the heaviest of them: that one counts, and the others do not. So nobody dilutes
/// what somebody says who is believed by copying its signs.
fn once_each(lines: &mut [Line], operator: Operator<'_>) {
    let mut operators: BTreeMap<PublicKey, (u64, u64)> = BTreeMap::new();
    for line in lines.iter() {
        let (most, ties) = operators.entry(operator(&line.reviewer)).or_default();
        match line.weight_milli.cmp(most) {
            Ordering::Greater => (*most, *ties) = (line.weight_milli, 1),
            Ordering::Equal => *ties = ties.saturating_add(1),
            Ordering::Less => {}
        }
    }
    let mut given: BTreeMap<PublicKey, u64> = BTreeMap::new();
    for line in lines.iter_mut() {
        let operator = operator(&line.reviewer);
        let (most, ties) = operators.get(&operator).copied().unwrap_or_default();
        if line.weight_milli < most {
            line.counted_milli = 0;
            continue;
        }
        // Who are equal share it; what cannot be shared goes to the first of them.
        let before = given.entry(operator).or_default();
        let rest = most.checked_rem(ties).unwrap_or(0);
        line.counted_milli = part(most, 1, ties).saturating_add(u64::from(*before < rest));
        *before = before.saturating_add(1);
    }
}

/// Those who are meant count no more than this together.
fn limit(lines: &mut [Line], is_meant: impl Fn(&Line) -> bool, most_milli: u64) {
    let meant = lines.iter().filter(|line| is_meant(line));
    let sum = meant.fold(0_u64, |sum, line| sum.saturating_add(line.counted_milli));
    if sum <= most_milli {
        return;
    }
    for line in lines.iter_mut().filter(|line| is_meant(line)) {
        line.counted_milli = part(line.counted_milli, most_milli, sum);
    }
}

#[cfg(test)]
mod tests {
    use guild_protocol::env::Signer;
    use guild_protocol::identity::SecretKey;
    use proptest::prelude::*;

    use super::super::alone;
    use super::*;

    const NOW_MS: UnixMs = 1_768_465_800_000;

    fn who(n: u8) -> PublicKey {
        SecretKey::from_bytes([n.clamp(1, 254); 32]).unwrap().public_key()
    }

    fn any_said() -> impl Strategy<Value = Said> {
        let record = (any::<i64>(), any::<i64>(), any::<i64>());
        let grade = prop::sample::select(Grade::ALL.to_vec());
        (any::<u8>(), any::<u32>(), grade, record, any::<i64>()).prop_map(
            |(n, trust_bp, grade, (outcomes, brier, base), at_ms)| Said {
                reviewer: who(n),
                trust_bp,
                grade,
                record: Record { outcomes, brier, base },
                at_ms,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn whatever_is_said_weighs_at_most_five(
            said in prop::collection::vec(any_said(), 0..200),
            trusted in prop::collection::btree_set(any::<u8>(), 0..50),
            operators in 1u8..=255,
            now_ms in any::<i64>(),
        ) {
            let trusted = trusted.into_iter().map(who).collect();
            let options = Options { trusted, ..Options::default() };
            let operator =
                |key: &PublicKey| who(key.as_bytes().first().map_or(1, |byte| byte % operators));
            let prior = weigh(&said, &options, &operator, now_ms);
            prop_assert!(prior.good_milli + prior.bad_milli <= MOST_MILLI);
            let new = prior.why.iter().filter(|line| line.outcomes == 0 && !line.is_trusted);
            prop_assert!(new.map(|line| line.counted_milli).sum::<u64>() <= STRANGERS_MILLI);
            for line in &prior.why {
                prop_assert!(line.counted_milli <= line.weight_milli && line.weight_milli <= 1_000);
                prop_assert!(line.grade.weight_milli() > 0 || line.counted_milli == 0);
            }
            prop_assert_eq!(prior.why.len(), said.len());
            prop_assert_eq!(weigh(&said, &options, &operator, now_ms), prior);
        }

        #[test]
        fn belief_is_a_part(outcomes in any::<i64>(), brier in any::<i64>(), base in any::<i64>()) {
            let record = Record { outcomes, brier, base };
            for is_trusted in [false, true] {
                prop_assert!(calibration_milli(&record, is_trusted) <= 1_000);
            }
        }
    }

    #[test]
    fn many_who_were_right_are_five() {
        let record = Record { outcomes: 100, brier: 0, base: 100 * 25_000_000 };
        let said = |n: u8| Said {
            reviewer: who(n),
            trust_bp: 9_000,
            grade: Grade::Done,
            record,
            at_ms: NOW_MS,
        };
        let many: Vec<Said> = (1..=100).map(said).collect();
        let prior = weigh(&many, &Options::default(), &alone, NOW_MS);
        assert!(prior.good_milli > 4_800 && prior.good_milli <= MOST_MILLI, "{}", prior.good_milli);
        assert_eq!(prior.bad_milli, 0);
        // All of one operator are one.
        let one = weigh(&many, &Options::default(), &|_| who(1), NOW_MS);
        assert!(one.good_milli <= 1_000 && one.good_milli > 800, "{}", one.good_milli);
        // What can be seen of nobody is nothing, also of who was right.
        let unseen: Vec<Said> =
            many.iter().map(|said| Said { grade: Grade::None, ..said.clone() }).collect();
        let prior = weigh(&unseen, &Options::default(), &alone, NOW_MS);
        assert_eq!((prior.good_milli, prior.bad_milli), (0, 0));
    }
}
