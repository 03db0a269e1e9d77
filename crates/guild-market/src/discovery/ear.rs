//! Whether we hear others at all: while we do not, their silence says nothing about them.

use guild_protocol::env::UnixMs;

/// Of fewer who are known to be of use nobody can say that most of them are silent.
const WITNESSES_MIN: usize = 3;
/// Whoever has been silent for more than so many times of what is long enough to be gone is no witness any more.
const WITNESS_TIMES: i64 = 4;

/// When something last came, and until when silence is not held against anybody.
///
/// We are deaf while nothing at all comes from outside, or while most of those who are known to be of use fall silent
/// together, for half of the time after which one is gone. Strangers are no witnesses: a flood of them that stops
/// together must not keep itself from being gone. When it is over, everybody has a whole such time to be heard again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Ear {
    /// None while nothing is known of what came: then nothing is concluded of it.
    last_ms: Option<UnixMs>,
    deaf_until_ms: Option<UnixMs>,
}

impl Ear {
    /// Something came at these times, the first and the last since it was told before.
    pub(super) fn received(&mut self, silent_ms: i64, first_ms: UnixMs, last_ms: UnixMs) {
        if self.last_ms.is_some_and(|was_ms| is_long(silent_ms, was_ms, first_ms)) {
            self.deafen(first_ms.saturating_add(silent_ms));
        }
        self.last_ms = self.last_ms.max(Some(last_ms.max(first_ms)));
    }

    /// Looks at the time, and at when each of those who are known to be of use, and live, was heard.
    pub(super) fn listen(
        &mut self,
        silent_ms: i64,
        heard: impl Iterator<Item = UnixMs>,
        now_ms: UnixMs,
    ) {
        let (mut all, mut silent) = (0_usize, 0_usize);
        for heard_ms in heard {
            // Else those who are gone for good would keep everybody else there for ever.
            if now_ms.saturating_sub(heard_ms) <= silent_ms.saturating_mul(WITNESS_TIMES) {
                all = all.saturating_add(1);
                silent = silent.saturating_add(usize::from(is_long(silent_ms, heard_ms, now_ms)));
            }
        }
        let most = all >= WITNESSES_MIN && silent.saturating_mul(2) > all;
        if most || self.last_ms.is_some_and(|was_ms| is_long(silent_ms, was_ms, now_ms)) {
            self.deafen(now_ms.saturating_add(silent_ms));
        }
    }

    fn deafen(&mut self, until_ms: UnixMs) {
        self.deaf_until_ms = self.deaf_until_ms.max(Some(until_ms));
    }

    /// Whether nobody's silence says anything now.
    pub(super) fn is_deaf(&self, now_ms: UnixMs) -> bool {
        self.deaf_until_ms.is_some_and(|until_ms| now_ms < until_ms)
    }
}

fn is_long(silent_ms: i64, from_ms: UnixMs, to_ms: UnixMs) -> bool {
    to_ms.saturating_sub(from_ms) > silent_ms.div_euclid(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENT_MS: i64 = 900_000;

    fn at(ear: &mut Ear, heard: &[UnixMs], now_ms: UnixMs) -> bool {
        ear.listen(SILENT_MS, heard.iter().copied(), now_ms);
        ear.is_deaf(now_ms)
    }

    #[test]
    fn nothing_at_all_is_no_sign_of_anybody() {
        let mut ear = Ear::default();
        assert!(!at(&mut ear, &[], 10_000_000), "nothing is known of what came");
        ear.received(SILENT_MS, 10_000_000, 10_000_000);
        assert!(!at(&mut ear, &[], 10_450_000));
        assert!(at(&mut ear, &[], 10_450_001));
        assert!(at(&mut ear, &[], 90_000_000), "however long");
        ear.received(SILENT_MS, 90_001_000, 90_010_000);
        assert!(at(&mut ear, &[], 90_020_000), "others have not come back yet");
        ear.received(SILENT_MS, 90_300_000, 90_600_000);
        assert!(at(&mut ear, &[], 90_899_999));
        ear.received(SILENT_MS, 90_890_000, 90_901_000);
        assert!(!at(&mut ear, &[], 90_901_000));
    }

    #[test]
    fn a_gap_that_nobody_looked_at_counts() {
        let mut ear = Ear::default();
        ear.received(SILENT_MS, 0, 0);
        ear.received(SILENT_MS, 3_600_000, 3_600_500);
        assert!(at(&mut ear, &[], 3_600_600));
        ear.received(SILENT_MS, 3_900_000, 4_400_000);
        assert!(!at(&mut ear, &[], 4_500_000));
    }

    #[test]
    fn most_of_those_who_are_of_use_fall_silent_together() {
        let mut ear = Ear::default();
        let now_ms = 10_000_000;
        let silent = now_ms - 460_000;
        assert!(!at(&mut ear, &[silent, silent], now_ms), "two are not enough to tell");
        assert!(!at(&mut ear, &[silent, silent, now_ms, now_ms], now_ms), "half is not most");
        assert!(at(&mut ear, &[silent, silent, silent, now_ms], now_ms));
        assert!(at(&mut ear, &[now_ms; 4], now_ms + 899_999), "they may come back one by one");
        // Whoever is gone for good is a witness no more.
        let mut ear = Ear::default();
        assert!(!at(&mut ear, &[now_ms - 3_600_001; 9], now_ms));
    }
}
