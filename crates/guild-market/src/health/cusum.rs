//! An early signal: a sum that falls with every success and rises with every failure.
//!
//! Each outcome adds by how much likelier it is of somebody who has become worse, as a logarithm (a Bernoulli CUSUM);
//! below zero it does not fall. With the default numbers, 0.95 against 0.80 and a limit of 5, somebody who does well
//! 95 times of 100 raises an alarm once in about 2,600 outcomes, and somebody who falls to 80 after about 33.

use serde::{Deserialize, Serialize};

use super::Options;

/// The sum, and whether it has come to its limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cusum {
    /// The sum, in millionths.
    pub sum_micro: i64,
    /// Whether the alarm is on: from when the sum has come to its limit until it is back at nothing.
    pub is_alarmed: bool,
    /// How often that was so.
    pub alarms: u32,
}

impl Cusum {
    /// With half of the limit: whoever was just taken back must show that it is well (a fast initial response).
    pub fn head_start(options: &Options) -> Cusum {
        let sum_micro = options.alarm_micro.max(0).div_euclid(2);
        Cusum { sum_micro, ..Cusum::default() }
    }

    /// Takes an outcome; whether the alarm goes on by it.
    pub fn push(&mut self, options: &Options, is_good: bool) -> bool {
        let limit_micro = options.alarm_micro.max(1);
        let sum = self.sum_micro.saturating_add(step_micro(options, is_good));
        self.sum_micro = sum.clamp(0, limit_micro);
        if self.is_alarmed {
            self.is_alarmed = self.sum_micro > 0;
            return false;
        }
        self.is_alarmed = self.sum_micro >= limit_micro;
        self.alarms = self.alarms.saturating_add(u32::from(self.is_alarmed));
        self.is_alarmed
    }
}

/// By how much likelier an outcome is of somebody who has become worse: a logarithm, in millionths.
fn step_micro(options: &Options, is_good: bool) -> i64 {
    let part = |bp: u32| f64::from(bp.clamp(1, 9_999)) / 10_000.0;
    let (well, worse) = (part(options.well_bp), part(options.worse_bp));
    let ratio = if is_good { worse / well } else { (1.0 - worse) / (1.0 - well) };
    (ratio.ln() * 1e6).round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::Draws;

    /// After how many outcomes the alarm goes on, on average of so many runs.
    fn run_length(options: &Options, success: f64, runs: u64, start: Cusum) -> f64 {
        let (mut all, mut draws) = (0_u64, Draws::new(7));
        for _ in 0..runs {
            let mut cusum = start;
            loop {
                all += 1;
                if cusum.push(options, draws.unit() <= success) {
                    break;
                }
            }
        }
        all as f64 / runs as f64
    }

    #[test]
    fn alarms_are_as_rare_and_as_quick_as_is_said() {
        // (well, worse, limit): the lengths of runs, by another program and many runs. With few runs others have stated
        // 324 and 20, 938 and 26, 2622 and 34, 2052 and 29, 1402 and 7.
        let stated = [
            ((9_500, 8_000, 3), (360.0, 19.8)),
            ((9_500, 8_000, 4), (1_003.0, 26.5)),
            ((9_500, 8_000, 5), (2_600.0, 32.9)),
            ((9_000, 7_000, 5), (2_086.0, 29.8)),
            ((9_500, 5_000, 5), (1_330.0, 6.7)),
        ];
        for ((well_bp, worse_bp, limit), (arl0, arl1)) in stated {
            let alarm_micro = limit * 1_000_000;
            let options = Options { well_bp, worse_bp, alarm_micro, ..Options::default() };
            let of = |bp: u32, runs| {
                run_length(&options, f64::from(bp) / 10_000.0, runs, Cusum::default())
            };
            let (rare, quick) = (of(well_bp, 3_000), of(worse_bp, 3_000));
            println!("{well_bp} {worse_bp} {limit}: ARL0 {rare:.0}, ARL1 {quick:.1}");
            // The seeds are fixed: this is not left to chance.
            assert!((rare / arl0 - 1.0).abs() < 0.08, "{well_bp} {worse_bp} {limit}: ARL0 {rare}");
            assert!((quick / arl1 - 1.0).abs() < 0.06, "{well_bp} {limit}: ARL1 {quick}");
        }
    }

    #[test]
    fn whoever_was_taken_back_is_noticed_sooner() {
        let options = Options::default();
        let head = Cusum::head_start(&options);
        assert_eq!(head.sum_micro, 2_500_000);
        let (fresh, back) = (
            run_length(&options, 0.8, 1_000, Cusum::default()),
            run_length(&options, 0.8, 1_000, head),
        );
        assert!(back < fresh * 0.75, "{back} of {fresh}");
    }

    #[test]
    fn an_alarm_lasts_until_the_sum_is_back() {
        let options = Options::default();
        let mut cusum = Cusum::default();
        let raised: Vec<bool> = (0..6).map(|_| cusum.push(&options, false)).collect();
        assert_eq!(raised, [false, false, false, true, false, false], "said once");
        assert_eq!((cusum.sum_micro, cusum.alarms), (5_000_000, 1));
        let until = (1..).find(|_| {
            cusum.push(&options, true);
            !cusum.is_alarmed
        });
        assert_eq!(until, Some(30), "5 / 0.1719 successes");
        assert_eq!(cusum.sum_micro, 0);
    }
}
