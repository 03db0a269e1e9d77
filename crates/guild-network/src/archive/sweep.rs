//! Forgets what has expired, and the oldest when there is too much. Never what is pinned.

use std::collections::BTreeSet;

use guild_store::{Rx, Tx, args};

use super::put::forget;
use super::{Head, head, set_head};
use crate::{Result, index};

/// How much may be kept, beside what is pinned.
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

const EXPIRED: &str = "SELECT seq, bytes FROM nostr_event
     WHERE expires_at IS NOT NULL AND expires_at <= $1 AND pinned = 0
     ORDER BY expires_at LIMIT $2";
const OLDEST: &str =
    "SELECT seq, pinned, bytes FROM nostr_event WHERE seq > $1 ORDER BY seq LIMIT $2";

/// One step: up to 500 events that have expired, or the oldest received beyond the bounds.
pub fn sweep(tx: &mut Tx<'_>, now_s: u64, bounds: &Bounds) -> Result<Swept> {
    let before = head(tx)?;
    let by_s = i64::try_from(now_s).unwrap_or(i64::MAX);
    let expired: Vec<(i64, i64)> = tx.all(EXPIRED, args![by_s, STEP_MAX])?;
    let room = STEP_MAX.saturating_sub(count(&expired));
    let surplus = surplus(tx, &before, bounds, &expired, room)?;
    // What stays, because it is pinned, was looked at too: a step that is full is not the last one.
    let is_full = room <= count(&surplus);
    let mut after = before;
    let mut going: BTreeSet<i64> = expired.iter().map(|(seq, _)| *seq).collect();
    for (seq, pinned, _) in surplus {
        after.swept_seq = seq;
        if pinned == 0 {
            going.insert(seq);
        }
    }
    let heartbeats_left = index::sweep(tx, now_s)?;
    let gone = forget(tx, &going.into_iter().collect::<Vec<_>>())?;
    after.events = before.events.saturating_sub(gone.events);
    after.bytes = before.bytes.saturating_sub(gone.bytes);
    after.deletions = before.deletions.saturating_sub(gone.deletions);
    if after != before {
        set_head(tx, &after)?;
    }
    let forgotten = u64::try_from(gone.events).unwrap_or(0);
    Ok(Swept { forgotten, more: is_full || heartbeats_left })
}

fn count<T>(rows: &[T]) -> i64 {
    i64::try_from(rows.len()).unwrap_or(i64::MAX)
}

/// The oldest rows that must go, and the pinned ones between them. Those that have expired go in any case.
fn surplus(
    rx: &mut Rx<'_>,
    head: &Head,
    bounds: &Bounds,
    expired: &[(i64, i64)],
    room: i64,
) -> Result<Vec<(i64, i64, i64)>> {
    let expired_bytes = expired.iter().fold(0_i64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    let beyond = |all: i64, pinned: i64, expired: i64, max: i64| {
        all.saturating_sub(pinned).saturating_sub(expired).saturating_sub(max)
    };
    let mut events = beyond(head.events, head.pinned_events, count(expired), bounds.max_events);
    let mut bytes = beyond(head.bytes, head.pinned_bytes, expired_bytes, bounds.max_bytes);
    if events <= 0 && bytes <= 0 {
        return Ok(Vec::new());
    }
    let going: BTreeSet<i64> = expired.iter().map(|(seq, _)| *seq).collect();
    let rows: Vec<(i64, i64, i64)> = rx.all(OLDEST, args![head.swept_seq, room])?;
    let must_go = |(seq, pinned, size): &(i64, i64, i64)| {
        let go = events > 0 || bytes > 0;
        if *pinned == 0 && !going.contains(seq) {
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
