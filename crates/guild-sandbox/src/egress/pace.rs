//! How much may pass in a second.

/// A bucket that fills by the clock. What is in it may pass at once; it holds a quarter of a second.
#[derive(Debug)]
pub(super) struct Pace {
    bytes_per_s: u64,
    /// In thousandths of a byte, so that no millisecond is lost.
    milli: u64,
    filled_ms: u64,
}

impl Pace {
    pub(super) fn new(bytes_per_s: u64, now_ms: u64) -> Pace {
        Pace { bytes_per_s, milli: 0, filled_ms: now_ms }
    }

    /// How many of the wanted bytes may pass now.
    pub(super) fn take(&mut self, wanted: usize, now_ms: u64) -> usize {
        let passed_ms = now_ms.saturating_sub(self.filled_ms);
        self.filled_ms = self.filled_ms.max(now_ms);
        let most = self.bytes_per_s.saturating_mul(250).max(1_000);
        let more = self.bytes_per_s.saturating_mul(passed_ms);
        self.milli = self.milli.saturating_add(more).min(most);
        let granted = usize::try_from(self.milli / 1_000).unwrap_or(usize::MAX).min(wanted);
        self.milli -= u64::try_from(granted).unwrap_or(0) * 1_000;
        granted
    }

    /// Puts back what was not used.
    pub(super) fn give_back(&mut self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(0);
        self.milli = self.milli.saturating_add(bytes.saturating_mul(1_000));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_used_stays() {
        let mut pace = Pace::new(1_000, 0);
        assert_eq!(pace.take(100, 0), 0);
        assert_eq!(pace.take(100, 50), 50);
        pace.give_back(20);
        assert_eq!(pace.take(100, 50), 20);
        // A long silence does not save up.
        assert_eq!(pace.take(100_000, 60_000), 250);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn never_more_than_the_pace(
            rate in 1u64..10_000_000,
            steps in proptest::collection::vec((0u64..500, 0usize..100_000), 1..100),
        ) {
            let mut pace = Pace::new(rate, 0);
            let (mut now, mut passed) = (0u64, 0u64);
            for (wait, wanted) in steps {
                now += wait;
                passed += u64::try_from(pace.take(wanted, now)).unwrap();
                prop_assert!(passed <= rate * now / 1_000 + 1);
            }
        }
    }
}
