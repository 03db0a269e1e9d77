//! What several attempts at one benchmark come to.

use serde::{Deserialize, Serialize};

use super::Options;
use crate::judge::Class;

/// How an attempt went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attempt {
    /// All of it is right.
    Success,
    /// Most of it is.
    Partial,
    /// It is not, or nothing came.
    Failure,
}

impl From<Class> for Attempt {
    fn from(class: Class) -> Attempt {
        match class {
            Class::Success => Attempt::Success,
            Class::Partial => Attempt::Partial,
            Class::Failure | Class::Error | Class::SecurityViolation => Attempt::Failure,
        }
    }
}

/// What follows from the attempts so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "advice")]
pub enum Advice {
    /// So many more attempts are needed.
    Continue {
        /// How many.
        more: usize,
    },
    /// Active at once.
    Promote,
    /// Taken under conditions.
    Condition,
    /// Not taken, and not asked again for a while.
    Reject {
        /// For how long.
        cooldown_ms: i64,
    },
}

/// So many attempts are made at first.
const FIRST: usize = 3;

/// What attempts, in the order in which they were made, come to.
///
/// | attempts | advice |
/// |---|---|
/// | three successes in a row | promote |
/// | two successes and something else | go on to five attempts |
/// | one success and two failures, or anything in between | conditions |
/// | three failures in a row, or no success beside a failure | reject, for 30 days |
///
/// Of five attempts, four successes without a failure promote, three failures reject, anything else is conditional.
///
/// ```
/// use guild_market::evaluation::{Advice, Attempt::*, Options, advise};
/// let advice = |attempts: &[_]| advise(&Options::default(), attempts);
/// assert_eq!(advice(&[Success, Success]), Advice::Continue { more: 1 });
/// assert_eq!(advice(&[Success, Success, Success]), Advice::Promote);
/// assert_eq!(advice(&[Success, Partial, Success]), Advice::Continue { more: 2 });
/// assert_eq!(advice(&[Failure, Success, Failure]), Advice::Condition);
/// ```
pub fn advise(options: &Options, attempts: &[Attempt]) -> Advice {
    let reject = Advice::Reject { cooldown_ms: options.rejected_ms };
    let last = attempts.last_chunk::<FIRST>();
    match last {
        Some([Attempt::Success, Attempt::Success, Attempt::Success]) => return Advice::Promote,
        Some([Attempt::Failure, Attempt::Failure, Attempt::Failure]) => return reject,
        _ => {}
    }
    let count = |of: Attempt| attempts.iter().filter(|attempt| **attempt == of).count();
    let (good, bad) = (count(Attempt::Success), count(Attempt::Failure));
    let extended = options.extended_attempts.max(FIRST);
    match attempts.len() {
        made if made < FIRST => Advice::Continue { more: FIRST.saturating_sub(made) },
        made if made >= extended => match (good, bad) {
            (_, bad) if bad >= FIRST => reject,
            (good, 0) if good >= extended.saturating_sub(1) => Advice::Promote,
            _ => Advice::Condition,
        },
        // An extended evaluation goes on to its end.
        made if made > FIRST => Advice::Continue { more: extended.saturating_sub(made) },
        made if good >= 2 && extended > made => {
            Advice::Continue { more: extended.saturating_sub(made) }
        }
        _ if good == 0 && bad > 0 => reject,
        _ => Advice::Condition,
    }
}

#[cfg(test)]
mod tests {
    use super::Attempt::{Failure, Partial, Success};
    use super::*;

    fn advice(attempts: &[Attempt]) -> Advice {
        advise(&Options::default(), attempts)
    }

    #[test]
    fn three_attempts_decide_or_ask_for_more() {
        let reject = Advice::Reject { cooldown_ms: 30 * 24 * 3_600_000 };
        let cases = [
            ([Success, Success, Success], Advice::Promote),
            ([Success, Success, Partial], Advice::Continue { more: 2 }),
            ([Partial, Success, Success], Advice::Continue { more: 2 }),
            ([Success, Failure, Success], Advice::Continue { more: 2 }),
            ([Success, Failure, Failure], Advice::Condition),
            ([Success, Partial, Failure], Advice::Condition),
            ([Success, Partial, Partial], Advice::Condition),
            ([Partial, Partial, Partial], Advice::Condition),
            ([Partial, Partial, Failure], reject),
            ([Failure, Failure, Failure], reject),
        ];
        for (attempts, expected) in cases {
            assert_eq!(advice(&attempts), expected, "{attempts:?}");
        }
        assert_eq!(advice(&[]), Advice::Continue { more: 3 });
        assert_eq!(advice(&[Failure, Failure]), Advice::Continue { more: 1 });
    }

    #[test]
    fn five_attempts_decide() {
        let begun = [Success, Success, Partial];
        let after = |rest: &[Attempt]| advice(&[&begun[..], rest].concat());
        assert_eq!(after(&[Success]), Advice::Continue { more: 1 });
        assert_eq!(after(&[Success, Success]), Advice::Promote);
        assert_eq!(after(&[Success, Partial]), Advice::Condition);
        assert_eq!(after(&[Failure, Success]), Advice::Condition);
        let failing = [Success, Failure, Success, Failure, Failure];
        assert!(matches!(advice(&failing), Advice::Reject { .. }));
        assert_eq!(advice(&[Success, Partial, Success, Success, Success]), Advice::Promote);
    }

    #[test]
    fn more_is_asked_for_only_so_often() {
        // Every series ends: with as many attempts as an extended evaluation has there is always a decision.
        for code in 0..3_usize.pow(5) {
            let attempts: Vec<Attempt> = (0..5_u32)
                .map(|place| [Success, Partial, Failure][code / 3_usize.pow(place) % 3])
                .collect();
            assert!(!matches!(advice(&attempts), Advice::Continue { .. }), "{attempts:?}");
        }
    }
}
