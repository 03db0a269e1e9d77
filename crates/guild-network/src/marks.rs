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

/// A stretch of time that is still to be fetched (Unix seconds), both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The lower end.
    pub since_s: u64,
    /// The upper end.
    pub until_s: u64,
}

/// Everything from `low_s` to `until_s` (Unix seconds) has been fetched, but what is in the gap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The watermark: what is newer is fetched next time.
    pub until_s: u64,
    /// What is missing below that.
    pub gap: Option<Gap>,
    /// The lower end.
    pub low_s: u64,
    /// Whether nothing is missing below `low_s`.
    pub complete: bool,
}

type Row = (i64, Option<i64>, Option<i64>, i64, i64);

/// The mark of a filter at a relay.
pub fn get(rx: &mut Rx<'_>, relay: &str, filter_name: &str) -> Result<Option<Mark>> {
    let row: Option<Row> = rx.first(
        "SELECT until_s, gap_since_s, gap_until_s, low_s, complete
         FROM relay_mark WHERE relay = $1 AND filter_name = $2",
        args![relay, filter_name],
    )?;
    let seconds = |at: i64| u64::try_from(at).unwrap_or(0);
    let gap = |(since, until): (i64, i64)| Gap { since_s: seconds(since), until_s: seconds(until) };
    Ok(row.map(|(until_s, gap_since_s, gap_until_s, low_s, complete)| Mark {
        until_s: seconds(until_s),
        gap: gap_since_s.zip(gap_until_s).map(gap),
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
    let gap_since_s = mark.gap.map(|gap| stored(gap.since_s));
    let gap_until_s = mark.gap.map(|gap| stored(gap.until_s));
    let complete = i64::from(mark.complete);
    tx.exec(
        "INSERT INTO relay_mark
           (relay, filter_name, until_s, gap_since_s, gap_until_s, low_s, complete, at_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT (relay, filter_name) DO UPDATE
         SET until_s = $3, gap_since_s = $4, gap_until_s = $5, low_s = $6, complete = $7, at_ms = $8",
        args![relay, filter_name, until_s, gap_since_s, gap_until_s, low_s, complete, now_ms],
    )?;
    Ok(())
}
