//! What the money waits for that a decision has moved, and how long it is waited for: pure.

/// What is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Money in our wallet.
    Wallet,
    /// Room in the envelope of the work.
    Envelope,
    /// The receipt of the buyer.
    Receipt,
    /// Something that is broken here: it failed, and nobody knows whether that ends.
    Repair,
}

impl Wait {
    /// All of them.
    pub const ALL: [Wait; 4] = [Wait::Wallet, Wait::Envelope, Wait::Receipt, Wait::Repair];

    /// The word in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Wait::Wallet => "wallet",
            Wait::Envelope => "envelope",
            Wait::Receipt => "receipt",
            Wait::Repair => "repair",
        }
    }

    /// What this word means.
    pub fn parse(word: &str) -> Option<Wait> {
        Wait::ALL.into_iter().find(|one| one.as_str() == word)
    }

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Wait::Wallet => "the wallet does not have it",
            Wait::Envelope => "the envelope of the work has no room for it",
            Wait::Receipt => "the buyer has sent no receipt",
            Wait::Repair => "it fails here; see the log",
        }
    }
}

/// How long it is waited after the first try.
const FIRST_MS: i64 = 60_000;
/// No longer than this between two.
const LONGEST_MS: i64 = 24 * 3_600_000;
/// So often it is tried: that takes about a month.
pub const TRIES_MAX: i64 = 40;

/// After how long it is tried again, if it was tried so often; nothing if it was tried often enough.
pub(super) fn again_ms(tries: i64) -> Option<i64> {
    let doubled = u32::try_from(tries.saturating_sub(1).clamp(0, 32)).unwrap_or(0);
    let after_ms = FIRST_MS.saturating_mul(2_i64.saturating_pow(doubled)).min(LONGEST_MS);
    (tries < TRIES_MAX).then_some(after_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_waited_longer_and_longer_and_not_for_ever() {
        assert_eq!([1, 2, 3].map(again_ms), [Some(60_000), Some(120_000), Some(240_000)]);
        assert_eq!(again_ms(TRIES_MAX - 1), Some(LONGEST_MS));
        assert_eq!([TRIES_MAX, i64::MAX].map(again_ms), [None, None]);
        let all_ms: i64 = (1..TRIES_MAX).filter_map(again_ms).sum();
        assert_eq!(all_ms.div_euclid(24 * 3_600_000), 29);
        for one in Wait::ALL {
            assert_eq!(Wait::parse(one.as_str()), Some(one));
        }
    }
}
