//! How far a role has read. What is read twice is done once, because every deed has an id; so a cursor may be behind,
//! and must never be ahead.

use guild_store::{Migration, Rx, Sql, Tx, args};

use crate::Result;

pub(crate) fn migration() -> Migration {
    Migration {
        area: "roles",
        number: 1,
        name: "roles",
        sql: Sql {
            lite: include_str!("../migrations/sqlite/0001_roles.sql"),
            pg: include_str!("../migrations/postgres/0001_roles.sql"),
        },
    }
}

/// The number up to which everything is done; zero at first.
pub(crate) fn load(rx: &mut Rx<'_>, name: &str) -> Result<i64> {
    let row: Option<(i64,)> =
        rx.first("SELECT seq FROM role_cursor WHERE name = $1", args![name])?;
    Ok(row.map_or(0, |(seq,)| seq))
}

/// Moves it on. Another process may be further already.
pub(crate) fn advance(tx: &mut Tx<'_>, name: &str, seq: i64) -> Result<()> {
    tx.exec(
        "INSERT INTO role_cursor (name, seq) VALUES ($1, $2)
         ON CONFLICT (name) DO UPDATE SET seq = $2 WHERE role_cursor.seq < $2",
        args![name, seq],
    )?;
    Ok(())
}
