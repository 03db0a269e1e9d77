//! Forgets what has expired, and what is too much. Never what is pinned.
//!
//! Of what is too much, announcements have a part of their own: neither can they push out everything else, nor
//! everything else them. Within it goes first what is of no use, then whatever strangers first announced last, and only
//! then what those announce whom this node knows. So a flood pushes out itself. Of everything else the oldest go.

use std::collections::BTreeSet;

use guild_protocol::nostr::kind;
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
/// Once there is too much, announcements have at most one part in so many.
const ANNOUNCED_PART: i64 = 2;
/// Who has given no sign for so long has left.
const SILENT_S: i64 = 30 * 24 * 3_600;

const EXPIRED: &str = "SELECT seq, bytes, kind FROM nostr_event
     WHERE expires_at IS NOT NULL AND expires_at <= $1 AND pinned = 0
     ORDER BY expires_at LIMIT $2";
/// The oldest, and whether each stays nevertheless.
const OLDEST: &str = "SELECT seq, bytes,
       CAST(CASE WHEN pinned <> 0 OR kind = 31990 OR (kind = 10002 AND EXISTS (
         SELECT 1 FROM nostr_known_key k WHERE k.pubkey = nostr_event.pubkey
       )) THEN 1 ELSE 0 END AS BIGINT)
     FROM nostr_event WHERE seq > $1 ORDER BY seq LIMIT $2";
/// The announcements behind a place, and whether each is of no use: nobody can be hired by it, its key has 16 newer
/// ones, or it is of a stranger who has long left.
const LOOKED_AT: &str = "SELECT e.seq, e.bytes, e.first_ms,
       CAST(CASE WHEN NOT EXISTS (SELECT 1 FROM index_provider p WHERE p.seq = e.seq)
         OR e.seq <= (SELECT o.seq FROM index_provider p CROSS JOIN index_provider o
                      WHERE p.seq = e.seq AND o.pubkey_key = p.pubkey_key AND o.pubkey = e.pubkey
                      ORDER BY o.seq DESC LIMIT 1 OFFSET 16)
         OR (e.created_at < $3
             AND NOT EXISTS (SELECT 1 FROM index_heartbeat h
                             WHERE h.pubkey = e.pubkey AND h.last_ms >= $3 * 1000)
             AND NOT EXISTS (SELECT 1 FROM nostr_known_key k WHERE k.pubkey = e.pubkey))
         THEN 1 ELSE 0 END AS BIGINT)
     FROM nostr_event e
     WHERE e.kind = 31990 AND e.pinned = 0 AND (e.first_ms, e.seq) > ($1, $2)
     ORDER BY e.first_ms, e.seq LIMIT $4";

macro_rules! newest {
    ($whose:literal) => {
        concat!(
            "SELECT e.seq, e.bytes FROM nostr_event e
             WHERE e.kind = 31990 AND e.pinned = 0 AND e.first_ms <= $1 ",
            $whose,
            " ORDER BY e.first_ms DESC, e.seq DESC LIMIT $2"
        )
    };
}

/// What strangers announced last, by when its first version came.
const NEWEST_OF_STRANGERS: &str =
    newest!("AND NOT EXISTS (SELECT 1 FROM nostr_known_key k WHERE k.pubkey = e.pubkey)");
const NEWEST_OF_ALL: &str = newest!("");

/// How much is too much.
#[derive(Debug, Clone, Copy)]
struct Surplus {
    events: i64,
    bytes: i64,
}

impl Surplus {
    /// Of everything, what is pinned aside.
    fn of_all(head: &Head, bounds: &Bounds) -> Surplus {
        let beyond =
            |all: i64, pinned: i64, max: i64| all.saturating_sub(pinned).saturating_sub(max);
        Surplus {
            events: beyond(head.events, head.pinned_events, bounds.max_events),
            bytes: beyond(head.bytes, head.pinned_bytes, bounds.max_bytes),
        }
    }

    /// Of announcements, beyond their part.
    fn of_announced(head: &Head, bounds: &Bounds) -> Surplus {
        Surplus {
            events: head.announced_events.saturating_sub(bounds.max_events / ANNOUNCED_PART),
            bytes: head.announced_bytes.saturating_sub(bounds.max_bytes / ANNOUNCED_PART),
        }
    }

    fn is_any(self) -> bool {
        self.events > 0 || self.bytes > 0
    }

    fn less(&mut self, bytes: i64) {
        self.events = self.events.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// What goes in one step.
struct Step {
    going: BTreeSet<i64>,
    surplus: Surplus,
    announced: Surplus,
    room: i64,
}

impl Step {
    fn take(&mut self, seq: i64, bytes: i64, is_announced: bool) {
        if !self.going.insert(seq) {
            return;
        }
        self.room = self.room.saturating_sub(1);
        self.surplus.less(bytes);
        if is_announced {
            self.announced.less(bytes);
        }
    }

    /// So many rows have room for as many that are not going yet.
    fn reach(&self) -> i64 {
        self.room.saturating_add(i64::try_from(self.going.len()).unwrap_or(i64::MAX))
    }

    fn has_room(&self) -> bool {
        self.room > 0 && self.surplus.is_any()
    }

    fn is_crowded(&self) -> bool {
        self.has_room() && self.announced.is_any()
    }
}

/// One step: up to 500 events that have expired, or are beyond the bounds.
pub fn sweep(tx: &mut Tx<'_>, now_s: u64, bounds: &Bounds) -> Result<Swept> {
    let before = head(tx)?;
    let at_s = i64::try_from(now_s).unwrap_or(i64::MAX);
    let mut step = Step {
        going: BTreeSet::new(),
        surplus: Surplus::of_all(&before, bounds),
        announced: Surplus::of_announced(&before, bounds),
        room: STEP_MAX,
    };
    let expired: Vec<(i64, i64, i64)> = tx.all(EXPIRED, args![at_s, STEP_MAX])?;
    for (seq, bytes, kind) in expired {
        step.take(seq, bytes, kind == i64::from(kind::ANNOUNCEMENT));
    }
    useless(tx, &mut step, at_s)?;
    for sql in [NEWEST_OF_STRANGERS, NEWEST_OF_ALL] {
        newest(tx, &mut step, sql)?;
    }
    let (swept_seq, is_full) = oldest(tx, &mut step, before.swept_seq)?;
    let heartbeats_left = index::sweep(tx, now_s)?;
    let gone = forget(tx, &step.going.into_iter().collect::<Vec<_>>())?;
    let after = Head {
        events: before.events.saturating_sub(gone.events),
        bytes: before.bytes.saturating_sub(gone.bytes),
        deletions: before.deletions.saturating_sub(gone.deletions),
        announced_events: before.announced_events.saturating_sub(gone.announced_events),
        announced_bytes: before.announced_bytes.saturating_sub(gone.announced_bytes),
        swept_seq,
        ..before
    };
    if after != before {
        set_head(tx, &after)?;
    }
    let forgotten = u64::try_from(gone.events).unwrap_or(0);
    Ok(Swept { forgotten, more: is_full || heartbeats_left })
}

/// Announcements that are of no use: some further on in each step, and then from the beginning.
fn useless(tx: &mut Tx<'_>, step: &mut Step, now_s: i64) -> Result<()> {
    if !step.is_crowded() {
        return Ok(());
    }
    let place: Option<(i64, i64)> =
        tx.first("SELECT looked_ms, looked_seq FROM nostr_archive", &[])?;
    let (mut looked_ms, mut looked_seq) = place.unwrap_or_default();
    let silent_s = now_s.saturating_sub(SILENT_S);
    let rows: Vec<(i64, i64, i64, i64)> =
        tx.all(LOOKED_AT, args![looked_ms, looked_seq, silent_s, STEP_MAX])?;
    let is_end = i64::try_from(rows.len()).unwrap_or(i64::MAX) < STEP_MAX;
    for (seq, bytes, first_ms, is_useless) in rows {
        if !step.is_crowded() {
            break;
        }
        (looked_ms, looked_seq) = (first_ms, seq);
        if is_useless != 0 {
            step.take(seq, bytes, true);
        }
    }
    // Whoever was looked at may have become of no use since.
    if is_end && step.is_crowded() {
        (looked_ms, looked_seq) = (0, 0);
    }
    tx.exec(
        "UPDATE nostr_archive SET looked_ms = $1, looked_seq = $2",
        args![looked_ms, looked_seq],
    )?;
    Ok(())
}

/// Announcements that came last, as far as there are too many.
fn newest(rx: &mut Rx<'_>, step: &mut Step, sql: &'static str) -> Result<()> {
    if !step.is_crowded() {
        return Ok(());
    }
    let rows: Vec<(i64, i64)> = rx.all(sql, args![i64::MAX, step.reach()])?;
    for (seq, bytes) in rows {
        if !step.is_crowded() {
            break;
        }
        step.take(seq, bytes, true);
    }
    Ok(())
}

/// The oldest of everything else. Up to where it was looked, and whether there may be more to do.
fn oldest(rx: &mut Rx<'_>, step: &mut Step, swept_seq: i64) -> Result<(i64, bool)> {
    if !step.has_room() {
        return Ok((swept_seq, step.room <= 0));
    }
    let room = step.room;
    let rows: Vec<(i64, i64, i64)> = rx.all(OLDEST, args![swept_seq, room])?;
    // What stays was looked at too: a step that is full is not the last one.
    let (mut swept_seq, mut seen) = (swept_seq, 0);
    for (seq, bytes, stays) in rows {
        if !step.surplus.is_any() {
            break;
        }
        (swept_seq, seen) = (seq, seen + 1);
        if stays == 0 {
            step.take(seq, bytes, false);
        }
    }
    Ok((swept_seq, room <= seen))
}

/// What is asked of large tables, and how many numbers are bound.
#[cfg(test)]
pub(super) const STATEMENTS: [(&str, usize); 5] =
    [(EXPIRED, 2), (OLDEST, 2), (LOOKED_AT, 4), (NEWEST_OF_STRANGERS, 2), (NEWEST_OF_ALL, 2)];
