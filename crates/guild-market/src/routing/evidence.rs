//! How often somebody did well, as the policy `thompson` remembers it.
//!
//! Outcomes fade slowly, because providers change. Whether one has changed just now is asked with every outcome: for
//! each of some spans of its latest outcomes it is weighed how much likelier they are if it became another one before
//! them, and worse. What is drawn for it is then drawn from that span, as often as that is likely; once it is all but
//! certain, everything before is forgotten. A change that is only suspected costs little if it was bad luck.

use guild_protocol::env::UnixMs;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Thompson;

/// An outcome, in thousandths.
pub(super) const ONE_MILLI: u64 = 1_000;

/// A change is looked for between the latest outcomes, so many of them, and all before.
const SPANS: [u32; 7] = [6, 10, 16, 24, 34, 48, 64];

/// There must be so many outcomes before a change.
const BEFORE_MIN: f64 = 6.0;

/// Outcomes are faded at most so often: rounding many small steps would be no fading at all.
const FADE_STEP_MS: i64 = 3_600_000;

/// How often providers do well, before anything is known, when a change is weighed: a Beta distribution.
const USUAL: (f64, f64) = (2.0, 1.0);

/// Counts of outcomes since the last change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// Good ones, in thousandths: a partial success is half a one.
    pub good_milli: u64,
    /// Bad ones, in thousandths.
    pub bad_milli: u64,
    /// Until when they are faded.
    pub faded_ms: UnixMs,
    /// The latest outcomes, a bit each, the newest lowest: set for good ones.
    #[serde(serialize_with = "to_hex", deserialize_with = "of_hex")]
    pub latest: u64,
    /// How many of those bits are outcomes.
    pub latest_count: u32,
    /// How likely it became another one before its latest 6, 10, 16, 24, 34, 48 or 64 outcomes, in ten-thousandths.
    pub changed_bp: [u32; 7],
    /// How often that was certain.
    pub changes: u32,
}

impl Evidence {
    /// Nothing is known yet.
    pub(super) fn new(now_ms: UnixMs) -> Evidence {
        Evidence { faded_ms: now_ms, ..Evidence::default() }
    }

    /// Takes an outcome of this worth.
    pub(super) fn push(&mut self, good_milli: u64, options: &Thompson, now_ms: UnixMs) {
        if now_ms.saturating_sub(self.faded_ms) >= FADE_STEP_MS {
            let left = self.left(options, now_ms);
            self.good_milli = faded(self.good_milli, left);
            self.bad_milli = faded(self.bad_milli, left);
            self.faded_ms = now_ms;
        }
        let good_milli = good_milli.min(ONE_MILLI);
        self.good_milli = self.good_milli.saturating_add(good_milli);
        let bad_milli = ONE_MILLI.saturating_sub(good_milli);
        self.bad_milli = self.bad_milli.saturating_add(bad_milli);
        let bit = u64::from(good_milli.saturating_mul(2) >= ONE_MILLI);
        self.latest = (self.latest << 1) | bit;
        self.latest_count = self.latest_count.saturating_add(1).min(u64::BITS);
        self.changed_bp = self.weigh(options);
        let certain = |(_, bp): &(u32, u32)| *bp >= options.certain_bp;
        if let Some((span, _)) = SPANS.into_iter().zip(self.changed_bp).find(certain) {
            let good = u64::from(self.good_of(span));
            self.good_milli = good.saturating_mul(ONE_MILLI);
            self.bad_milli = u64::from(span).saturating_sub(good).saturating_mul(ONE_MILLI);
            self.latest_count = span;
            self.changed_bp = [0; 7];
            self.changes = self.changes.saturating_add(1);
        }
    }

    /// What is left of an outcome by now.
    fn left(&self, options: &Thompson, now_ms: UnixMs) -> f64 {
        let since_ms = now_ms.saturating_sub(self.faded_ms).max(0);
        if options.fade_ms <= 0 || since_ms == 0 {
            return 1.0;
        }
        (-(since_ms as f64) / options.fade_ms as f64).exp()
    }

    /// Good and bad outcomes to draw from: those since a change, if `drawn`, a number from zero to one, falls on one.
    pub(super) fn counts(&self, options: &Thompson, now_ms: UnixMs, drawn: f64) -> (f64, f64) {
        let mut drawn_bp = drawn * 10_000.0;
        for (span, bp) in SPANS.into_iter().zip(self.changed_bp) {
            let bp = f64::from(bp);
            if drawn_bp < bp {
                let good = f64::from(self.good_of(span));
                return (good, f64::from(span) - good);
            }
            drawn_bp -= bp;
        }
        let left = self.left(options, now_ms);
        (in_outcomes(self.good_milli) * left, in_outcomes(self.bad_milli) * left)
    }

    /// How many of the latest were good.
    fn good_of(&self, span: u32) -> u32 {
        let older = u64::MAX.checked_shl(span).unwrap_or(0);
        (self.latest & !older).count_ones()
    }

    /// How likely it became another, worse one before each span, given how often that happens.
    fn weigh(&self, options: &Thompson) -> [u32; 7] {
        let (good, bad) = (in_outcomes(self.good_milli), in_outcomes(self.bad_milli));
        let whole = likelihood(good, bad);
        let (mut weights, mut sum, mut shorter) = ([0.0; 7], 1.0, 0);
        for (weight, span) in weights.iter_mut().zip(SPANS) {
            let places = f64::from(span.saturating_sub(shorter));
            shorter = span;
            let new_good = f64::from(self.good_of(span));
            let new_bad = f64::from(span) - new_good;
            let (old_good, old_bad) = (good - new_good, bad - new_bad);
            let known = span <= self.latest_count && old_good >= 0.0 && old_bad >= 0.0;
            let old = old_good + old_bad;
            // Nobody is harmed by a provider that became better: its counts follow by themselves.
            if !known || old < BEFORE_MIN || new_good * old > old_good * f64::from(span) {
                continue;
            }
            let gain = likelihood(new_good, new_bad) + likelihood(old_good, old_bad) - whole;
            *weight = f64::from(options.change_ppm) / 1e6 * places * gain.exp();
            sum += *weight;
        }
        weights.map(|weight| (weight / sum * 10_000.0).round() as u32)
    }
}

fn in_outcomes(milli: u64) -> f64 {
    milli as f64 / 1_000.0
}

fn faded(milli: u64, left: f64) -> u64 {
    (milli as f64 * left).round() as u64
}

/// The logarithm of how likely so many outcomes are, whatever the rate, beside none.
fn likelihood(good: f64, bad: f64) -> f64 {
    let (a, b) = USUAL;
    ln_beta(a + good, b + bad) - ln_beta(a, b)
}

fn ln_beta(a: f64, b: f64) -> f64 {
    ln_gamma(a) + ln_gamma(b) - ln_gamma(a + b)
}

/// The logarithm of the gamma function of a positive number, by Stirling's series.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut taken) = (x, 0.0);
    while x < 8.0 {
        taken -= x.ln();
        x += 1.0;
    }
    let half_ln_two_pi = 0.918_938_533_204_672_7;
    taken + (x - 0.5) * x.ln() - x + half_ln_two_pi + 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3))
}

// Not every reader of JSON keeps 64 bits.
fn to_hex<S: Serializer>(bits: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{bits:016x}"))
}

fn of_hex<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = String::deserialize(from)?;
    u64::from_str_radix(&text, 16).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::*;

    fn after(outcomes: impl IntoIterator<Item = bool>) -> Evidence {
        let (options, mut evidence) = (Options::default().thompson, Evidence::new(0));
        for good in outcomes {
            evidence.push(if good { ONE_MILLI } else { 0 }, &options, 7);
        }
        evidence
    }

    /// Nine good ones, a bad one, and so on.
    fn steady(count: usize) -> impl Iterator<Item = bool> {
        (0..count).map(|place| place % 10 != 9)
    }

    #[test]
    fn steady_work_is_never_forgotten() {
        let evidence = after(steady(1_000));
        assert_eq!((evidence.good_milli, evidence.bad_milli), (900_000, 100_000));
        assert_eq!((evidence.latest_count, evidence.changes), (64, 0));
        let suspected: u32 = evidence.changed_bp.iter().sum();
        assert!(suspected < 500, "{evidence:?}");
    }

    #[test]
    fn who_becomes_worse_is_suspected_and_then_known() {
        let changed = |bad| after(steady(200).chain(std::iter::repeat_n(false, bad)));
        assert_eq!(changed(1).changes, 0);
        let suspected = |bad| changed(bad).changed_bp.iter().sum::<u32>();
        assert!(suspected(2) > suspected(0), "{:?}", changed(2));
        let evidence = changed(40);
        assert!(evidence.changes > 0);
        assert!(evidence.good_milli <= 3_000 && evidence.bad_milli >= 30_000, "{evidence:?}");
        // Who becomes better is not suspected of anything.
        let better = after((0..200).map(|place| place % 10 == 9).chain((0..50).map(|_| true)));
        assert_eq!(better.changes, 0);
    }

    #[test]
    fn what_is_suspected_is_drawn_from_as_often() {
        let options = Options::default().thompson;
        let mut evidence = after(steady(200));
        evidence.changed_bp = [2_500, 0, 0, 0, 0, 0, 0];
        let (good, bad) = evidence.counts(&options, 7, 0.249);
        assert_eq!(good + bad, 6.0);
        let (good, bad) = evidence.counts(&options, 7, 0.251);
        assert!((good + bad - 200.0).abs() < 0.01);
    }

    #[test]
    fn outcomes_fade_however_often_they_come() {
        let options = Options::default().thompson;
        let life_ms = options.fade_ms;
        let left = |evidence: &Evidence| evidence.counts(&options, life_ms, 1.0);
        let old = after(steady(100));
        let (good, _) = left(&old);
        assert!((good / 90.0 - (-1.0_f64).exp()).abs() < 0.001, "{good}");
        // One outcome a minute, each of which fades a little of all before.
        let mut busy = after(steady(100));
        let minutes = life_ms / 60_000;
        for minute in 1..=minutes {
            busy.push(ONE_MILLI, &options, minute * 60_000);
        }
        let (_, bad) = left(&busy);
        assert!((bad / 10.0 - (-1.0_f64).exp()).abs() < 0.01, "{bad}");
    }

    #[test]
    fn partial_success_is_half_a_one() {
        let (options, mut evidence) = (Options::default().thompson, Evidence::new(1));
        evidence.push(500, &options, 1);
        assert_eq!((evidence.good_milli, evidence.bad_milli, evidence.latest), (500, 500, 1));
    }

    #[test]
    fn all_bits_survive_being_written() {
        let evidence = Evidence { latest: u64::MAX, latest_count: 64, ..Evidence::default() };
        let text = serde_json::to_string(&evidence).unwrap();
        assert!(text.contains("\"ffffffffffffffff\""), "{text}");
        assert_eq!(serde_json::from_str::<Evidence>(&text).unwrap(), evidence);
    }

    #[test]
    fn factorials_are_right() {
        for (x, expected) in [(1.0, 1.0), (5.0, 24.0), (11.0, 3_628_800.0_f64)] {
            assert!((ln_gamma(x) - expected.ln()).abs() < 1e-6, "{x}");
        }
    }
}
