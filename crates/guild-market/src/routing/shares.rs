//! Who was given how much of a task type's work lately.

use std::collections::{BTreeMap, VecDeque};

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;

use super::Options;

/// The jobs of a task type that were given away within the last while.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Shares {
    /// When, and to whom: the oldest first.
    given: VecDeque<(UnixMs, PublicKey)>,
    of: BTreeMap<PublicKey, VecDeque<UnixMs>>,
}

impl Shares {
    /// A job was given to somebody. What is older than the window is forgotten.
    pub(super) fn give(&mut self, options: &Options, provider: PublicKey, at_ms: UnixMs) {
        // A clock that was set back must not make the order wrong.
        let at_ms = at_ms.max(self.given.back().map_or(i64::MIN, |(last, _)| *last));
        self.given.push_back((at_ms, provider));
        self.of.entry(provider).or_default().push_back(at_ms);
        let since = at_ms.saturating_sub(options.share_ms);
        while let Some((_, old)) = self.given.front().copied().filter(|(at, _)| *at <= since) {
            self.given.pop_front();
            if let Some(times) = self.of.get_mut(&old) {
                times.pop_front();
                if times.is_empty() {
                    self.of.remove(&old);
                }
            }
        }
    }

    /// Whether somebody may be given the next job: with it, it has no more than its part of the window, rounded up.
    pub(super) fn allow(&self, options: &Options, provider: &PublicKey, now_ms: UnixMs) -> bool {
        if options.share_pct >= 100 {
            return true;
        }
        let since = now_ms.saturating_sub(options.share_ms);
        let Some(times) = self.of.get(provider) else { return true };
        let own = times.len().saturating_sub(times.partition_point(|at| *at <= since));
        if own == 0 {
            return true;
        }
        let old = self.given.partition_point(|(at, _)| *at <= since);
        let all = self.given.len().saturating_sub(old).saturating_add(1);
        let share = usize::try_from(options.share_pct).unwrap_or(100);
        own < all.saturating_mul(share).div_ceil(100)
    }

    /// When, and to whom: the oldest first.
    pub(super) fn given(&self) -> impl Iterator<Item = (UnixMs, PublicKey)> {
        self.given.iter().copied()
    }

    /// How many of them somebody has, and how many there are.
    pub(super) fn count(
        &self,
        options: &Options,
        provider: &PublicKey,
        now_ms: UnixMs,
    ) -> (usize, usize) {
        let since = now_ms.saturating_sub(options.share_ms);
        let within = self.given.iter().filter(|(at, _)| *at > since);
        within.fold((0_usize, 0_usize), |(own, all), (_, to)| {
            (own.saturating_add(usize::from(to == provider)), all.saturating_add(1))
        })
    }
}

#[cfg(test)]
mod tests {
    use guild_protocol::env::Signer;
    use guild_protocol::identity::SecretKey;

    use super::*;

    fn key(n: u8) -> PublicKey {
        SecretKey::from_bytes([n; 32]).unwrap().public_key()
    }

    #[test]
    fn nobody_gets_more_than_half() {
        let options = Options::default();
        let mut shares = Shares::default();
        let (a, b) = (key(1), key(2));
        assert!(shares.allow(&options, &a, 0), "the first job has to go somewhere");
        shares.give(&options, a, 0);
        assert!(!shares.allow(&options, &a, 1), "two of two");
        assert!(shares.allow(&options, &b, 1));
        shares.give(&options, b, 1);
        assert!(shares.allow(&options, &a, 2), "two of three, rounded up");
        shares.give(&options, a, 2);
        assert!(!shares.allow(&options, &a, 3), "three of four");
        assert_eq!(shares.count(&options, &a, 3), (2, 3));
        // An hour after the first only one of two is left.
        assert!(shares.allow(&options, &a, options.share_ms));
        assert_eq!(shares.count(&options, &a, options.share_ms), (1, 2));
        shares.give(&options, a, options.share_ms);
        assert_eq!(shares.given().count(), 3);
        let none = Options { share_pct: 100, ..options };
        assert!(shares.allow(&none, &a, 4));
    }

    #[test]
    fn a_clock_that_goes_back_changes_no_order() {
        let options = Options::default();
        let mut shares = Shares::default();
        shares.give(&options, key(1), 500);
        shares.give(&options, key(2), 100);
        assert_eq!(shares.given().map(|(at, _)| at).collect::<Vec<_>>(), [500, 500]);
    }
}
