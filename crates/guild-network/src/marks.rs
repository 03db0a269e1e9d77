//! How far each relay has been read: a watermark for each thing that is followed there.
//!
//! A mark is written only after the events that it vouches for are stored, so whatever dies when, the next connection
//! fetches at least what is missing.

use guild_protocol::env::UnixMs;
use guild_store::{Migration, Rx, Sql, Tx, args};

use crate::Result;

/// The tables of this module and of [`publish`](crate::publish).
pub(crate) fn migration() -> Migration {
    let sql = Sql {
        lite: include_str!("../migrations/sqlite/0003_relays.sql"),
        pg: include_str!("../migrations/postgres/0003_relays.sql"),
    };
    Migration { area: "network", number: 3, name: "relays", sql }
}

/// Everything from `low_s` to `until_s` (Unix seconds) has been fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The watermark: what is newer is fetched next time.
    pub until_s: u64,
    /// The lower end.
    pub low_s: u64,
    /// Whether nothing is missing below `low_s`.
    pub complete: bool,
}

/// The mark of a filter at a relay.
pub fn get(rx: &mut Rx<'_>, relay: &str, filter_name: &str) -> Result<Option<Mark>> {
    let row: Option<(i64, i64, i64)> = rx.first(
        "SELECT until_s, low_s, complete FROM relay_mark WHERE relay = $1 AND filter_name = $2",
        args![relay, filter_name],
    )?;
    let seconds = |at: i64| u64::try_from(at).unwrap_or(0);
    Ok(row.map(|(until_s, low_s, complete)| Mark {
        until_s: seconds(until_s),
        low_s: seconds(low_s),
        complete: complete != 0,
    }))
}

/// Sets the mark of a filter at a relay.
pub fn set(
    tx: &mut Tx<'_>,
    relay: &str,
    filter_name: &str,
    mark: &Mark,
    now_ms: UnixMs,
) -> Result<()> {
    let stored = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
    let (until_s, low_s) = (stored(mark.until_s), stored(mark.low_s));
    tx.exec(
        "INSERT INTO relay_mark (relay, filter_name, until_s, low_s, complete, at_ms)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (relay, filter_name) DO UPDATE
         SET until_s = $3, low_s = $4, complete = $5, at_ms = $6",
        args![relay, filter_name, until_s, low_s, i64::from(mark.complete), now_ms],
    )?;
    Ok(())
}
