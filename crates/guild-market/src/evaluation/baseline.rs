//! What work of one kind takes, from what was seen: so the bar rises with the market.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// So many of the latest samples count.
const SAMPLES_MAX: usize = 256;

/// The latest durations of work of one kind, whoever did it.
///
/// ```
/// use guild_market::evaluation::Baseline;
/// let mut baseline = Baseline::default();
/// assert_eq!(baseline.p50_ms(), None);
/// (1..=100).for_each(|ms| baseline.add(ms));
/// assert_eq!((baseline.p50_ms(), baseline.p95_ms()), (Some(50), Some(95)));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Baseline {
    samples_ms: VecDeque<u64>,
}

impl Baseline {
    /// Takes a duration of accepted work; the oldest of very many is forgotten.
    pub fn add(&mut self, took_ms: u64) {
        while self.samples_ms.len() >= SAMPLES_MAX {
            self.samples_ms.pop_front();
        }
        self.samples_ms.push_back(took_ms);
    }

    /// Half of the work takes no longer.
    pub fn p50_ms(&self) -> Option<u64> {
        percentile(self.samples_ms.iter().copied(), 50)
    }

    /// 95 of 100 take no longer.
    pub fn p95_ms(&self) -> Option<u64> {
        percentile(self.samples_ms.iter().copied(), 95)
    }
}

/// The nearest rank: a value that was really seen.
pub(crate) fn percentile(samples: impl Iterator<Item = u64>, pct: usize) -> Option<u64> {
    let mut sorted: Vec<u64> = samples.collect();
    sorted.sort_unstable();
    let rank = sorted.len().saturating_mul(pct).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_latest() {
        let mut baseline = Baseline::default();
        (0..1_000).for_each(|_| baseline.add(80));
        assert_eq!(baseline.samples_ms.len(), SAMPLES_MAX);
        (0..130).for_each(|_| baseline.add(20));
        assert_eq!((baseline.p50_ms(), baseline.p95_ms()), (Some(20), Some(80)));
    }

    #[test]
    fn a_percentile_is_a_sample() {
        let of = |samples: &[u64], pct| percentile(samples.iter().copied(), pct);
        assert_eq!(of(&[], 50), None);
        assert_eq!((of(&[7], 50), of(&[7], 95)), (Some(7), Some(7)));
        assert_eq!((of(&[9, 1, 5], 50), of(&[9, 1, 5], 95)), (Some(5), Some(9)));
        assert_eq!(of(&[4, 2], 50), Some(2));
    }
}
