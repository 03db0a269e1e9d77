//! How long to wait, and how much to put up with.

use std::collections::VecDeque;

use guild_protocol::env::UnixMs;

/// Doubled with every failure from the shortest to the longest; the upper half is drawn, so that many nodes do not come
/// back at once.
pub(super) fn pause_ms(failures: u32, least_ms: i64, most_ms: i64, drawn: u64) -> i64 {
    let least = u64::try_from(least_ms).unwrap_or(0).max(2);
    let most = u64::try_from(most_ms).unwrap_or(0).max(least);
    let doublings = failures.saturating_sub(1).min(40);
    let whole = least.saturating_mul(1_u64 << doublings).min(most);
    let half = whole / 2;
    i64::try_from(half + drawn % (whole - half + 1)).unwrap_or(i64::MAX)
}

/// Counts what somebody does wrong, and tells when it is too often.
#[derive(Debug)]
pub(super) struct Strikes {
    most: usize,
    window_ms: i64,
    at_ms: VecDeque<UnixMs>,
}

impl Strikes {
    pub(super) fn new(most: usize, window_ms: i64) -> Strikes {
        Strikes { most, window_ms, at_ms: VecDeque::new() }
    }

    /// One more; true if there were more than `most` within the window.
    pub(super) fn strike(&mut self, now_ms: UnixMs) -> bool {
        let since_ms = now_ms.saturating_sub(self.window_ms);
        // Also what a clock that was set back has left in the future.
        self.at_ms.retain(|at_ms| (since_ms..=now_ms).contains(at_ms));
        self.at_ms.push_back(now_ms);
        let too_often = self.at_ms.len() > self.most;
        if too_often {
            self.at_ms.clear();
        }
        too_often
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_grows_to_its_limit_and_is_never_none() {
        assert_eq!((pause_ms(1, 500, 60_000, 0), pause_ms(1, 500, 60_000, 250)), (250, 500));
        assert_eq!((pause_ms(3, 500, 60_000, 0), pause_ms(3, 500, 60_000, 1_000)), (1_000, 2_000));
        assert_eq!(pause_ms(u32::MAX, 500, 60_000, 30_000), 60_000);
        assert!(pause_ms(0, i64::MIN, i64::MIN, u64::MAX) > 0);
    }

    #[test]
    fn only_what_happens_too_often_within_the_window_counts() {
        let mut strikes = Strikes::new(2, 100);
        assert!(!strikes.strike(0) && !strikes.strike(50));
        assert!(!strikes.strike(101), "the first is forgotten");
        assert!(strikes.strike(120));
        assert!(!strikes.strike(121), "what was answered for is not held against it again");
        assert!(!strikes.strike(-1_000), "a clock that was set back makes no offender");
    }
}
