//! Who lends how much, and what is carried into the next month. Pure.

use std::cmp::Reverse;

use crate::routing::TaskType;

use super::{Period, Terms};

/// Ten thousand parts are the whole.
const WHOLE_BP: i128 = 10_000;
/// Longer than this no month is carried over one by one: by then what is carried has long stopped changing.
const MONTHS_MAX: i64 = 120;

/// A part of something, rounded down.
fn part(units: i64, bp: i64) -> i64 {
    let product = i128::from(units.max(0)).saturating_mul(i128::from(bp.max(0)));
    i64::try_from(product.checked_div(WHOLE_BP).unwrap_or(0)).unwrap_or(i64::MAX)
}

/// Somebody who could lend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Donor {
    /// Which envelope.
    pub task: TaskType,
    /// How important its work is.
    pub priority: i64,
    /// What it has left.
    pub unused: i64,
    /// The most that it may lend now.
    pub may_lend: i64,
}

impl Donor {
    /// An envelope as a donor, in one period: all that it lends in the period is at most a part of what it would have
    /// left without having lent.
    pub fn of(task: &TaskType, terms: &Terms, period: &Period) -> Donor {
        let unused = period.room();
        let whole = unused.saturating_add(period.lent);
        let may_lend =
            part(whole, terms.lends_bp).saturating_sub(period.lent).clamp(0, unused.max(0));
        Donor { task: task.clone(), priority: terms.priority, unused, may_lend }
    }
}

/// From whom the missing part comes: those of the lowest priority first, of these whoever has the most left, of these
/// by name. Nobody lends to work that is less important than its own. Nothing if all together cannot lend enough.
pub fn lenders(short: i64, priority: i64, donors: &[Donor]) -> Option<Vec<(TaskType, i64)>> {
    let mut willing: Vec<&Donor> =
        donors.iter().filter(|one| one.priority <= priority && one.may_lend > 0).collect();
    willing.sort_by(|one, other| {
        let key = |one: &Donor| (one.priority, Reverse(one.unused), one.task.clone());
        key(one).cmp(&key(other))
    });
    let (mut left, mut lent) = (short.max(0), Vec::new());
    for donor in willing {
        if left == 0 {
            break;
        }
        let units = left.min(donor.may_lend);
        left = left.saturating_sub(units);
        lent.push((donor.task.clone(), units));
    }
    (left == 0).then_some(lent)
}

/// What all that may lend to work of this priority could lend together.
pub fn could_lend(priority: i64, donors: &[Donor]) -> i64 {
    let willing = donors.iter().filter(|one| one.priority <= priority);
    willing.map(|one| one.may_lend.max(0)).fold(0, i64::saturating_add)
}

/// What is carried into a month: a part of what was left at the end of the last month that was used, `months` ago, and
/// of every month between, in which nothing was spent. Never more than the limit of one month.
pub fn carried(unspent: i64, months: i64, terms: &Terms) -> i64 {
    let limit = terms.monthly.0;
    let mut carried = part(unspent, terms.rolls_bp).min(limit);
    for _ in 1..months.clamp(1, MONTHS_MAX) {
        carried = part(limit.saturating_add(carried), terms.rolls_bp).min(limit);
    }
    carried
}

#[cfg(test)]
mod tests {
    use guild_protocol::amount::Msat;
    use proptest::prelude::*;

    use super::*;

    fn donor(name: &str, priority: i64, unused: i64, may_lend: i64) -> Donor {
        Donor { task: name.parse().unwrap(), priority, unused, may_lend }
    }

    fn terms(monthly: i64, lends_bp: i64, rolls_bp: i64) -> Terms {
        Terms { daily: Msat(0), monthly: Msat(monthly), priority: 0, lends_bp, rolls_bp }
    }

    fn told(lent: Option<Vec<(TaskType, i64)>>) -> String {
        let one = |(task, units): (TaskType, i64)| format!("{task}:{units}");
        lent.map_or("-".to_owned(), |all| all.into_iter().map(one).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn the_least_important_with_the_most_left_lends_first() {
        let donors = [
            donor("dear", 5, 900, 270),
            donor("little", 1, 100, 30),
            donor("much", 1, 500, 150),
            donor("none", 0, 0, 0),
            donor("also-much", 1, 500, 150),
        ];
        assert_eq!(told(lenders(100, 5, &donors)), "also-much:100");
        assert_eq!(told(lenders(310, 5, &donors)), "also-much:150 much:150 little:10");
        assert_eq!(told(lenders(600, 5, &donors)), "also-much:150 much:150 little:30 dear:270");
        assert_eq!(told(lenders(601, 5, &donors)), "-");
        assert_eq!(told(lenders(331, 4, &donors)), "-", "the more important keeps its own");
        assert_eq!(told(lenders(0, 0, &[])), "");
        assert_eq!((could_lend(5, &donors), could_lend(4, &donors)), (600, 330));
    }

    #[test]
    fn a_donor_lends_a_part_of_what_it_has_left_however_often_it_is_asked() {
        let mut period = Period { limit: 1_000, spent: 200, ..Period::default() };
        let terms = terms(1_000, 3_000, 0);
        let task: TaskType = "a".parse().unwrap();
        assert_eq!(Donor::of(&task, &terms, &period).may_lend, 240);
        period.lent = 200;
        assert_eq!(Donor::of(&task, &terms, &period).may_lend, 40);
        period.lent = 240;
        assert_eq!(Donor::of(&task, &terms, &period).may_lend, 0);
        period.spent = 900;
        assert_eq!(Donor::of(&task, &terms, &period).may_lend, 0, "it needs the rest itself");
    }

    #[test]
    fn what_is_carried_over_decays_and_never_passes_one_month() {
        let half = terms(1_000, 0, 5_000);
        assert_eq!(carried(1_000, 1, &half), 500);
        assert_eq!(carried(333, 1, &half), 166, "rounded down");
        assert_eq!(carried(-5, 1, &half), 0);
        assert_eq!(carried(1_000, 2, &half), 750);
        assert_eq!(carried(0, 2, &half), 500);
        assert_eq!(carried(1_000, 100, &half), 999);
        assert_eq!(carried(9_000, 1, &half), 1_000);
        assert_eq!(carried(9_000, 5, &terms(1_000, 0, 0)), 0);
        assert_eq!(carried(i64::MAX, 1, &terms(i64::MAX, 0, 10_000)), i64::MAX);
    }

    proptest! {
        #[test]
        fn exactly_what_is_missing_is_lent_and_nobody_lends_too_much(
            short in 1i64..2_000,
            priority in 0i64..4,
            donors in prop::collection::vec((0i64..4, 0i64..1_000, 0i64..=10_000), 0..8),
        ) {
            let donors: Vec<Donor> = donors
                .into_iter()
                .enumerate()
                .map(|(n, (rank, unused, bp))| donor(&format!("d{n}"), rank, unused, part(unused, bp)))
                .collect();
            match lenders(short, priority, &donors) {
                None => prop_assert!(could_lend(priority, &donors) < short),
                Some(lent) => {
                    prop_assert_eq!(lent.iter().map(|(_, units)| units).sum::<i64>(), short);
                    for (task, units) in lent {
                        let from = donors.iter().find(|one| one.task == task).unwrap();
                        prop_assert!(units > 0 && units <= from.may_lend && from.priority <= priority);
                    }
                }
            }
        }
    }
}
