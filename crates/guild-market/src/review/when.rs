//! When a review is published: a pure decision.

use guild_protocol::env::UnixMs;

/// Between two reviews of one provider for one kind of work there is a day, and a review waits as long for later
/// outcomes, unless it is urgent.
pub const DAY_MS: i64 = 24 * 3_600_000;

/// A move of trust that everybody should know of at once.
const MOVED_BP: u32 = 2_000;

/// Why there is a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A benchmark was judged.
    Benchmark,
    /// An order has ended.
    Order,
    /// Trust has moved far since the last review.
    Change,
    /// It tried what is forbidden.
    Violation,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 4] =
        [Reason::Benchmark, Reason::Order, Reason::Change, Reason::Violation];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Benchmark => "benchmark",
            Reason::Order => "order",
            Reason::Change => "change",
            Reason::Violation => "violation",
        }
    }
}

/// The last review that was published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Last {
    /// What it said.
    pub trust_bp: u32,
    /// When.
    pub published_ms: UnixMs,
}

/// What is known when it is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Why there is something to say: a benchmark, an order or a violation.
    pub reason: Reason,
    /// How far the provider is trusted now.
    pub trust_bp: u32,
    /// Whether what it is about is disputed.
    pub is_disputed: bool,
    /// When a draft that is there already was to be published.
    pub drafted_due_ms: Option<UnixMs>,
    /// What was said last.
    pub last: Option<Last>,
    /// How long a review waits.
    pub delay_ms: i64,
    /// When it is decided.
    pub now_ms: UnixMs,
}

/// When a review is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// At this moment, or at once if it is over; and why.
    At(UnixMs, Reason),
    /// Not before the dispute is resolved.
    Held,
}

/// When a review is published.
///
/// | | published |
/// |---|---|
/// | what it is about is disputed | not before that is resolved |
/// | it tried what is forbidden | at once |
/// | trust has moved by more than 0.2 since the last one | at once |
/// | there is a draft | when that was due: later outcomes change what it says, and not when |
/// | otherwise | after the delay, and a day after the last one at the earliest |
///
/// ```
/// use guild_market::review::{DAY_MS, Due, Facts, Reason, when};
/// let facts = Facts {
///     reason: Reason::Order, trust_bp: 6_000, is_disputed: false, drafted_due_ms: None, last: None,
///     delay_ms: DAY_MS, now_ms: 5,
/// };
/// assert_eq!(when(&facts), Due::At(DAY_MS + 5, Reason::Order));
/// assert_eq!(when(&Facts { reason: Reason::Violation, ..facts }), Due::At(5, Reason::Violation));
/// assert_eq!(when(&Facts { is_disputed: true, ..facts }), Due::Held);
/// ```
pub fn when(facts: &Facts) -> Due {
    let Facts { reason, trust_bp, is_disputed, drafted_due_ms, last, delay_ms, now_ms } = *facts;
    if is_disputed {
        return Due::Held;
    }
    let at_once = drafted_due_ms.map_or(now_ms, |due_ms| due_ms.min(now_ms));
    if reason == Reason::Violation {
        return Due::At(at_once, Reason::Violation);
    }
    if last.is_some_and(|last| last.trust_bp.abs_diff(trust_bp) > MOVED_BP) {
        return Due::At(at_once, Reason::Change);
    }
    let usual_ms = drafted_due_ms.unwrap_or_else(|| now_ms.saturating_add(delay_ms.max(0)));
    let earliest_ms = last.map_or(UnixMs::MIN, |last| last.published_ms.saturating_add(DAY_MS));
    Due::At(usual_ms.max(earliest_ms), reason)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW_MS: UnixMs = 1_768_465_800_000;

    fn facts() -> Facts {
        Facts {
            reason: Reason::Order,
            trust_bp: 6_000,
            is_disputed: false,
            drafted_due_ms: None,
            last: None,
            delay_ms: DAY_MS,
            now_ms: NOW_MS,
        }
    }

    #[test]
    fn the_table_holds() {
        let last = |trust_bp, ago_ms| Some(Last { trust_bp, published_ms: NOW_MS - ago_ms });
        let (usual, hour) = (Due::At(NOW_MS + DAY_MS, Reason::Order), 3_600_000);
        let table = [
            ("an order", facts(), usual),
            (
                "a benchmark",
                Facts { reason: Reason::Benchmark, ..facts() },
                Due::At(NOW_MS + DAY_MS, Reason::Benchmark),
            ),
            ("without a delay", Facts { delay_ms: 0, ..facts() }, Due::At(NOW_MS, Reason::Order)),
            (
                "a delay of less than nothing",
                Facts { delay_ms: -9, ..facts() },
                Due::At(NOW_MS, Reason::Order),
            ),
            (
                "a violation",
                Facts { reason: Reason::Violation, ..facts() },
                Due::At(NOW_MS, Reason::Violation),
            ),
            (
                "a violation an hour after the last review",
                Facts { reason: Reason::Violation, last: last(0, hour), ..facts() },
                Due::At(NOW_MS, Reason::Violation),
            ),
            ("moved by exactly 0.2", Facts { last: last(4_000, 2 * DAY_MS), ..facts() }, usual),
            (
                "moved up by more",
                Facts { last: last(3_999, hour), ..facts() },
                Due::At(NOW_MS, Reason::Change),
            ),
            (
                "moved down by more",
                Facts { last: last(8_001, hour), ..facts() },
                Due::At(NOW_MS, Reason::Change),
            ),
            (
                "a draft keeps its time",
                Facts { drafted_due_ms: Some(NOW_MS + hour), ..facts() },
                Due::At(NOW_MS + hour, Reason::Order),
            ),
            (
                "a draft that becomes urgent",
                Facts { drafted_due_ms: Some(NOW_MS + hour), last: last(0, hour), ..facts() },
                Due::At(NOW_MS, Reason::Change),
            ),
            (
                "a draft that was due already",
                Facts { drafted_due_ms: Some(NOW_MS - hour), reason: Reason::Violation, ..facts() },
                Due::At(NOW_MS - hour, Reason::Violation),
            ),
            (
                "one each day",
                Facts { delay_ms: 0, last: last(6_000, hour), ..facts() },
                Due::At(NOW_MS - hour + DAY_MS, Reason::Order),
            ),
            ("a dispute", Facts { is_disputed: true, ..facts() }, Due::Held),
            (
                "a dispute about a violation",
                Facts { is_disputed: true, reason: Reason::Violation, ..facts() },
                Due::Held,
            ),
            (
                "a dispute after a move",
                Facts { is_disputed: true, last: last(0, hour), ..facts() },
                Due::Held,
            ),
        ];
        for (what, facts, due) in table {
            assert_eq!(when(&facts), due, "{what}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_not_urgent_leaves_a_day_between(
            trust_bp in 0u32..=10_000,
            said_bp in 0u32..=10_000,
            published_ms in 0i64..2 * NOW_MS,
            drafted in prop::option::of(0i64..2 * NOW_MS),
            delay_ms in -1i64..=10 * DAY_MS,
        ) {
            let last = Some(Last { trust_bp: said_bp, published_ms });
            let facts = Facts { trust_bp, last, drafted_due_ms: drafted, delay_ms, ..facts() };
            match when(&facts) {
                Due::At(at_ms, Reason::Change) => {
                    prop_assert!(at_ms <= NOW_MS && trust_bp.abs_diff(said_bp) > 2_000);
                }
                Due::At(at_ms, _) => {
                    prop_assert!(at_ms >= published_ms + DAY_MS);
                    prop_assert!(trust_bp.abs_diff(said_bp) <= 2_000);
                }
                Due::Held => prop_assert!(false, "nothing is disputed"),
            }
        }
    }
}
