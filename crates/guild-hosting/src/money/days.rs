//! What a user spends on sandboxes, day by day.

use guild_protocol::env::UnixMs;
use guild_store::{Rx, args};

use super::burn;
use crate::sandbox::MINUTE_MS;
use crate::{Result, UserId};

const DAY_MS: i64 = 86_400_000;
const MINUTES_A_DAY: i64 = 1_440;
/// So many whole days count.
const DAYS: i64 = 7;

/// What a user burns in a minute, typically: what its sandboxes cost now, or the median of the last seven whole days,
/// whichever is more. So stopping everything just before a withdrawal does not empty the reserve.
pub fn typical_burn(rx: &mut Rx<'_>, user_id: &UserId, now_ms: UnixMs) -> Result<i64> {
    let today_ms = now_ms.div_euclid(DAY_MS).saturating_mul(DAY_MS);
    let first_ms = today_ms.saturating_sub(DAYS.saturating_mul(DAY_MS));
    let runs: Vec<(i64, i64, i64)> = rx.all(
        "SELECT r.started_ms, r.paid_minutes, r.spent
         FROM hosting_sandbox AS s JOIN hosting_run AS r ON r.sandbox_no = s.sandbox_no
         WHERE s.user_id = $1 AND r.started_ms < $3 AND r.started_ms + 60000 * r.paid_minutes > $2",
        args![user_id.as_str(), first_ms, today_ms],
    )?;
    let day = |day: i64| {
        let begins_ms = first_ms.saturating_add(day.saturating_mul(DAY_MS));
        runs.iter().fold(0_i64, |sum, run| sum.saturating_add(spent_on(*run, begins_ms)))
    };
    Ok(burn(rx, user_id)?.max(median_burn((0..DAYS).map(day).collect())))
}

/// What a sandbox spent on the minutes that began on a day, if they all cost the same: one that was resized spreads
/// the difference over its days.
fn spent_on((started_ms, minutes, spent): (UnixMs, i64, i64), day_ms: UnixMs) -> i64 {
    // How many of its minutes began before a time.
    let before = |at_ms: UnixMs| {
        let since_ms = at_ms.saturating_sub(started_ms).max(0);
        let begun = since_ms.saturating_add(MINUTE_MS.saturating_sub(1)).div_euclid(MINUTE_MS);
        begun.min(minutes)
    };
    let on_the_day = before(day_ms.saturating_add(DAY_MS)).saturating_sub(before(day_ms));
    let units = i128::from(spent).saturating_mul(i128::from(on_the_day));
    let units = units.checked_div(i128::from(minutes)).unwrap_or(0);
    i64::try_from(units).unwrap_or(i64::MAX)
}

/// The median of seven days, as a burn per minute, rounded up. Days without a row cost nothing.
fn median_burn(mut days: Vec<i64>) -> i64 {
    days.resize(usize::try_from(DAYS).unwrap_or(7), 0);
    days.sort_unstable();
    let median = days.get(days.len() / 2).copied().unwrap_or(0);
    median.saturating_add(MINUTES_A_DAY.saturating_sub(1)) / MINUTES_A_DAY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_seven_days_counts() {
        assert_eq!(median_burn(vec![]), 0);
        assert_eq!(median_burn(vec![1_440; 3]), 0, "most days were free");
        assert_eq!(median_burn(vec![1_440; 4]), 1);
        assert_eq!(median_burn(vec![1_441; 4]), 2, "rounded up");
        assert_eq!(median_burn(vec![14_400, 0, 14_400, 7_200, 14_400, 0, 0]), 5);
        assert_eq!(median_burn(vec![i64::MAX; 7]), i64::MAX / 1_440);
    }

    #[test]
    fn minutes_count_for_the_day_on_which_they_begin() {
        // Four minutes of ten, from two and a half minutes before midnight on.
        let run = (DAY_MS - 150_000, 4, 40);
        assert_eq!(spent_on(run, 0), 30);
        assert_eq!(spent_on(run, DAY_MS), 10);
        assert_eq!(spent_on(run, 2 * DAY_MS), 0);
        let from_midnight = (DAY_MS, 1_440, 1_440);
        assert_eq!((spent_on(from_midnight, 0), spent_on(from_midnight, DAY_MS)), (0, 1_440));
        assert_eq!(spent_on((0, i64::MAX, i64::MAX), 0), 1_440);
    }
}
