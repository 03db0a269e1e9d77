//! What others say of somebody, as far as it is heard: it stands in for outcomes that we do not have.

use std::collections::BTreeMap;

use guild_protocol::identity::PublicKey;
use serde::Serialize;

use super::Entry;

/// So many outcomes of one's own are worth more than whatever is said.
const OWN_ENOUGH: u64 = 5;
const ONE_MILLI: u64 = 1_000;

/// Outcomes that others say they had, in thousandths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Hearsay {
    /// Good ones.
    pub good_milli: u64,
    /// Bad ones.
    pub bad_milli: u64,
}

/// What is said of whom.
pub type Hearsays = BTreeMap<PublicKey, Hearsay>;

impl Hearsay {
    /// What of it counts beside our own outcomes: of five, as many as are missing. Nothing once there were five.
    ///
    /// It is asked how many there ever were, and not what is left of them: whoever has proven itself must not be talked
    /// down later.
    #[must_use]
    pub fn beside(self, entry: &Entry) -> Hearsay {
        let missing = OWN_ENOUGH.saturating_sub(entry.jobs).saturating_mul(ONE_MILLI);
        let missing = u128::from(missing);
        let sum = u128::from(self.good_milli).saturating_add(u128::from(self.bad_milli));
        if sum <= missing {
            return self;
        }
        let part = |milli: u64| {
            let part = u128::from(milli).saturating_mul(missing).checked_div(sum).unwrap_or(0);
            u64::try_from(part).unwrap_or(0)
        };
        Hearsay { good_milli: part(self.good_milli), bad_milli: part(self.bad_milli) }
    }

    /// Good and bad, in outcomes.
    pub(super) fn counts(self) -> (f64, f64) {
        let outcomes = |milli: u64| milli as f64 / ONE_MILLI as f64;
        (outcomes(self.good_milli), outcomes(self.bad_milli))
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::tests::entry;
    use super::*;

    #[test]
    fn what_is_said_gives_way_to_what_was_seen() {
        let said = Hearsay { good_milli: 1_000, bad_milli: 4_000 };
        let beside = |jobs: u64| said.beside(&Entry { jobs, ..entry(6_000) });
        assert_eq!(beside(0), said);
        assert_eq!(beside(3), Hearsay { good_milli: 400, bad_milli: 1_600 });
        assert_eq!((beside(5), beside(u64::MAX)), (Hearsay::default(), Hearsay::default()));
        let little = Hearsay { good_milli: 0, bad_milli: 700 };
        assert_eq!(little.beside(&Entry { jobs: 4, ..entry(6_000) }), little);
        let absurd = Hearsay { good_milli: u64::MAX, bad_milli: u64::MAX };
        let beside = absurd.beside(&entry(6_000));
        assert!(beside.good_milli + beside.bad_milli <= 5_000);
    }
}
