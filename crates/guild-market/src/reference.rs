//! Content that requests only refer to: for how long it is kept.
//!
//! It is pinned before its request is signed, so the row of a reference is there first. Each request that names it is a
//! use, written in the transaction that writes the request's order or trial. When all of them have been over for long
//! enough for anybody to look at the evidence, the pin is let go, in the transaction that forgets the row: whoever
//! refers to the same content meanwhile has it kept.

use guild_network::content;
use guild_protocol::content::Cid;
use guild_protocol::env::UnixMs;
use guild_protocol::nostr::{Event, tag};
use guild_store::{Migration, Rx, Sql, Tx, args};

use crate::Result;
use crate::row::page;

/// Who keeps what requests refer to.
pub const OWNER: &str = "market";

const DAY_MS: i64 = 24 * 3_600_000;
/// Content that no request names after so long was put here in vain.
const UNUSED_MS: i64 = DAY_MS;
/// What is under way is looked at again after so long.
const LOOK_MS: i64 = DAY_MS;
/// Whoever looks at the evidence of a request finds its input for so long after it was over: longer than anything can
/// be disputed, and as long as what was lost in a dispute counts.
pub const KEPT_MS: i64 = crate::dispute::LOST_MS;
/// So many are looked at in one go.
const BATCH: i64 = 100;
/// So many inputs of a request are looked at.
const INPUTS_MAX: usize = 16;

/// The tables of this module.
pub(crate) fn migration() -> Migration {
    let sql = Sql {
        lite: include_str!("../migrations/sqlite/0021_references.sql"),
        pg: include_str!("../migrations/postgres/0021_references.sql"),
    };
    Migration { area: "market", number: 21, name: "references", sql }
}

/// Writes down that content is about to be pinned for a request that will name it.
pub fn kept(tx: &mut Tx<'_>, cid: &Cid, now_ms: UnixMs) -> Result<()> {
    remember(tx, cid, now_ms.saturating_add(UNUSED_MS))
}

/// Writes down content that was pinned before this was written down: what uses it is not known.
pub fn adopt(tx: &mut Tx<'_>, cid: &Cid, now_ms: UnixMs) -> Result<()> {
    let known: Option<(i64,)> =
        tx.first("SELECT due_ms FROM market_reference WHERE cid = $1", args![&cid.to_string()])?;
    if known.is_some() {
        return Ok(());
    }
    remember(tx, cid, now_ms.saturating_add(KEPT_MS))
}

fn remember(tx: &mut Tx<'_>, cid: &Cid, due_ms: UnixMs) -> Result<()> {
    tx.exec(
        "INSERT INTO market_reference (cid, due_ms) VALUES ($1, $2)
         ON CONFLICT (cid) DO UPDATE SET due_ms =
           CASE WHEN market_reference.due_ms > $2 THEN market_reference.due_ms ELSE $2 END",
        args![&cid.to_string(), due_ms],
    )?;
    Ok(())
}

/// Writes down which content of ours a request of ours names.
pub(crate) fn used_by(tx: &mut Tx<'_>, request: &Event) -> Result<()> {
    let inputs = tag::values(&request.tags, "i").take(INPUTS_MAX);
    for cid in inputs.filter_map(|address| address.rsplit_once("/ipfs/")).map(|(_, cid)| cid) {
        tx.exec(
            "INSERT INTO market_reference_use (cid, request_id)
             SELECT cid, CAST($2 AS TEXT) FROM market_reference WHERE cid = $1 ON CONFLICT DO NOTHING",
            args![cid, &request.id.hex()],
        )?;
    }
    Ok(())
}

/// How it stands with those who use some content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Uses {
    /// How many are under way, or disputed.
    open: i64,
    /// When the last of the others was over, if there are any.
    ended_ms: Option<UnixMs>,
}

/// When content is looked at again; nothing if nobody needs it any more.
fn needed_until(uses: Uses, now_ms: UnixMs) -> Option<UnixMs> {
    if uses.open > 0 {
        return Some(now_ms.saturating_add(LOOK_MS));
    }
    let until_ms = uses.ended_ms?.saturating_add(KEPT_MS);
    (until_ms > now_ms).then_some(until_ms)
}

const USES: &str = "
    SELECT CAST(coalesce(sum(is_open), 0) AS BIGINT), max(ended_ms) FROM (
      SELECT CASE WHEN o.state IN ('posted', 'delivered') OR m.state <> 'ended' OR EXISTS (
               SELECT 1 FROM market_dispute d WHERE d.request_id = u.request_id
                 AND (d.state IN ('open', 'answered') OR (d.pending = 1 AND d.given_up = 0)))
             THEN 1 ELSE 0 END AS is_open,
        CASE WHEN coalesce(m.ended_ms, 0) > coalesce(o.changed_ms, 0) THEN m.ended_ms ELSE o.changed_ms END AS ended_ms
      FROM market_reference_use u
      LEFT JOIN market_order o ON o.request_id = u.request_id
      LEFT JOIN market_trial t ON t.request_id = u.request_id
      LEFT JOIN market_meeting m ON m.meeting_id = t.meeting_id
      WHERE u.cid = $1) AS used";

fn uses_of(rx: &mut Rx<'_>, cid: &str) -> Result<Uses> {
    let row: Option<(i64, Option<i64>)> = rx.first(USES, args![cid])?;
    let (open, ended_ms) = row.unwrap_or_default();
    Ok(Uses { open, ended_ms })
}

/// Lets go of what nobody needs any more, a limited number at a time; how many were let go, and whether there may be
/// more to look at.
pub fn let_go(tx: &mut Tx<'_>, now_ms: UnixMs) -> Result<(u64, bool)> {
    let due: Vec<(String,)> = tx.all(
        "SELECT cid FROM market_reference WHERE due_ms <= $1 ORDER BY due_ms, cid LIMIT $2",
        args![now_ms, page(BATCH)],
    )?;
    let is_full = i64::try_from(due.len()).unwrap_or(0) >= BATCH;
    let mut gone = 0_u64;
    for (cid,) in due {
        if let Some(until_ms) = needed_until(uses_of(tx, &cid)?, now_ms) {
            tx.exec(
                "UPDATE market_reference SET due_ms = $2 WHERE cid = $1",
                args![&cid, until_ms],
            )?;
            continue;
        }
        tx.exec("DELETE FROM market_reference_use WHERE cid = $1", args![&cid])?;
        tx.exec("DELETE FROM market_reference WHERE cid = $1", args![&cid])?;
        content::let_go(tx, &cid.parse()?, OWNER)?;
        gone = gone.saturating_add(1);
    }
    Ok((gone, is_full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_needed_while_anything_is_under_way_and_for_a_while_after() {
        let uses = |open, ended_ms| Uses { open, ended_ms };
        assert_eq!(needed_until(uses(0, None), 5), None, "no request has named it");
        assert_eq!(needed_until(uses(1, Some(0)), KEPT_MS * 2), Some(KEPT_MS * 2 + LOOK_MS));
        assert_eq!(needed_until(uses(0, Some(7)), 8), Some(7 + KEPT_MS));
        assert_eq!(needed_until(uses(0, Some(7)), 7 + KEPT_MS), None);
    }
}
