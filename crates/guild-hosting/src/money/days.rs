//! What a user spends on sandboxes, day by day.

use guild_protocol::env::UnixMs;
use guild_store::{Column, Rx, Sql, Tx, args};

use super::burn;
use crate::{Result, UserId};

const DAY_MS: i64 = 86_400_000;
const MINUTES_A_DAY: i64 = 1_440;
/// So many whole days count.
const DAYS: i64 = 7;

/// The number of the day, in UTC.
pub(crate) fn day_of(at_ms: UnixMs) -> i64 {
    at_ms.div_euclid(DAY_MS)
}

/// Adds to what users have spent on the day of `now_ms`. Each user is named once.
pub(crate) fn add_to_day(tx: &mut Tx<'_>, spent: &[(&str, i64)], now_ms: UnixMs) -> Result<()> {
    const ADD: Sql = Sql {
        lite: "INSERT INTO hosting_day (user_id, day, units) VALUES ($1, $2, $3)
               ON CONFLICT (user_id, day) DO UPDATE SET units = units + excluded.units",
        pg: "INSERT INTO hosting_day AS d (user_id, day, units)
             SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[])
             ON CONFLICT (user_id, day) DO UPDATE SET units = d.units + excluded.units",
    };
    let users: Vec<&str> = spent.iter().map(|(user_id, _)| *user_id).collect();
    let units: Vec<i64> = spent.iter().map(|(_, units)| *units).collect();
    let days = vec![day_of(now_ms); spent.len()];
    tx.exec_set(ADD, &[Column::Texts(&users), Column::Ints(&days), Column::Ints(&units)])?;
    Ok(())
}

/// What a user burns in a minute, typically: what its sandboxes cost now, or the median of the last seven whole days,
/// whichever is more. So stopping everything just before a withdrawal does not empty the reserve.
pub fn typical_burn(rx: &mut Rx<'_>, user_id: &UserId, now_ms: UnixMs) -> Result<i64> {
    let today = day_of(now_ms);
    let rows: Vec<(i64,)> = rx.all(
        "SELECT units FROM hosting_day WHERE user_id = $1 AND day >= $2 AND day < $3",
        args![user_id.as_str(), today.saturating_sub(DAYS), today],
    )?;
    let days = rows.into_iter().map(|(units,)| units).collect();
    Ok(burn(rx, user_id)?.max(median_burn(days)))
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
    fn a_day_begins_at_midnight() {
        assert_eq!((day_of(-1), day_of(0), day_of(86_399_999), day_of(86_400_000)), (-1, 0, 0, 1));
    }
}
