//! Forgets what has expired, and the oldest when there is too much. Never what is pinned.

use guild_store::{Rx, Tx, args};

use super::put::forget;
use super::{Head, head, set_head};
use crate::{Result, index};

/// How much may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// How many events.
    pub max_events: i64,
    /// How many bytes of their texts.
    pub max_bytes: i64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { max_events: 5_000_000, max_bytes: 8 << 30 }
    }
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// How many events were forgotten.
    pub forgotten: u64,
    /// Whether there is more to do at once.
    pub more: bool,
}

/// One sweep never forgets more than this, so that no other write waits long for it.
const STEP_MAX: i64 = 500;

const EXPIRED: &str = "SELECT seq FROM nostr_event
     WHERE expires_at IS NOT NULL AND expires_at <= $1 AND pinned = 0
     ORDER BY expires_at LIMIT $2";
const OLDEST: &str =
    "SELECT seq, pinned, bytes FROM nostr_event WHERE seq > $1 ORDER BY seq LIMIT $2";

/// One step: up to 500 events that have expired, or the oldest received beyond the bounds.
pub fn sweep(tx: &mut Tx<'_>, now_s: u64, bounds: &Bounds) -> Result<Swept> {
    let before = head(tx)?;
    let mut seqs = expired(tx, i64::try_from(now_s).unwrap_or(i64::MAX))?;
    let mut swept_seq = before.swept_seq;
    let room = STEP_MAX.saturating_sub(i64::try_from(seqs.len()).unwrap_or(i64::MAX));
    let surplus = surplus(tx, &before, bounds, &seqs, room)?;
    // What stays, because it is pinned, was looked at too: a step that is full is not the last one.
    let more = room <= i64::try_from(surplus.len()).unwrap_or(i64::MAX);
    for (seq, pinned, _) in surplus {
        swept_seq = seq;
        if pinned == 0 && !seqs.contains(&seq) {
            seqs.push(seq);
        }
    }
    index::sweep(tx, now_s)?;
    let gone = forget(tx, &seqs)?;
    let after = Head {
        events: before.events.saturating_sub(gone.events),
        bytes: before.bytes.saturating_sub(gone.bytes),
        deletions: before.deletions.saturating_sub(gone.deletions),
        swept_seq,
        ..before
    };
    if after != before {
        set_head(tx, &after)?;
    }
    Ok(Swept { forgotten: u64::try_from(gone.events).unwrap_or(0), more })
}

fn expired(rx: &mut Rx<'_>, now_s: i64) -> Result<Vec<i64>> {
    let rows: Vec<(i64,)> = rx.all(EXPIRED, args![now_s, STEP_MAX])?;
    Ok(rows.into_iter().map(|(seq,)| seq).collect())
}

/// The oldest rows that must go, the pinned ones among them.
fn surplus(
    rx: &mut Rx<'_>,
    head: &Head,
    bounds: &Bounds,
    going: &[i64],
    room: i64,
) -> Result<Vec<(i64, i64, i64)>> {
    let going = i64::try_from(going.len()).unwrap_or(i64::MAX);
    let mut events = head.events.saturating_sub(going).saturating_sub(bounds.max_events);
    let mut bytes = head.bytes.saturating_sub(bounds.max_bytes);
    if events <= 0 && bytes <= 0 {
        return Ok(Vec::new());
    }
    let rows: Vec<(i64, i64, i64)> = rx.all(OLDEST, args![head.swept_seq, room])?;
    let must_go = |(_, pinned, size): &(i64, i64, i64)| {
        let go = events > 0 || bytes > 0;
        if *pinned == 0 {
            events = events.saturating_sub(1);
            bytes = bytes.saturating_sub(*size);
        }
        go
    };
    Ok(rows.into_iter().take_while(must_go).collect())
}

/// What is asked of large tables, and how many numbers are bound.
#[cfg(test)]
pub(super) const STATEMENTS: [(&str, usize); 2] = [(EXPIRED, 2), (OLDEST, 2)];
