//! The event table: the truth that every bell only hints at.

use guild_protocol::env::UnixMs;

use crate::tx::Rx;
use crate::{Result, args};

mod append;

pub use append::{append, append_all};

/// An event to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent<'a> {
    /// Who may be interested: followers read one topic.
    pub topic: &'a str,
    /// Unique in its topic: appending the same event again is the same event.
    pub id: &'a str,
    /// What happened.
    pub kind: &'a str,
    /// When.
    pub at_ms: UnixMs,
    /// Canonical JSON.
    pub body: &'a str,
}

/// A stored event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its place in the order of commits.
    pub seq: i64,
    /// Unique in its topic.
    pub id: String,
    /// What happened.
    pub kind: String,
    /// When.
    pub at_ms: UnixMs,
    /// Canonical JSON.
    pub body: String,
}

/// Whether an append stored something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// Stored now, under this number.
    New(i64),
    /// Stored before, under this number.
    Known(i64),
}

impl Appended {
    /// The number in either case.
    pub fn seq(self) -> i64 {
        match self {
            Appended::New(seq) | Appended::Known(seq) => seq,
        }
    }
}

/// A page ends once its bodies have this many bytes, however many events were asked for: a reader holds one page in
/// memory, and there are many readers.
const PAGE_BYTES: usize = 256 * 1024;

/// How many events one statement reads; a page may be larger than [`PAGE_BYTES`] by as many bodies.
const CHUNK: i64 = 16;

/// Up to `limit` events of a topic after number `after`, in order. Fewer than `limit` do not mean that there are no
/// more; none does.
///
/// `after` need not be the number of an event that is there: other topics have numbers in between, and old events may
/// have been forgotten (see [`crate::retention`]). A cursor is good for ever; what it missed is gone, and what is there
/// comes in order and once.
pub fn after(rx: &mut Rx<'_>, topic: &str, after: i64, limit: i64) -> Result<Vec<Event>> {
    let mut page: Vec<Event> = Vec::new();
    let (mut after, mut left, mut bytes) = (after, limit, 0);
    while left > 0 && bytes < PAGE_BYTES {
        let count = left.min(CHUNK);
        let rows: Vec<(i64, String, String, i64, String)> = rx.all(
            "SELECT seq, id, kind, at_ms, body FROM event WHERE topic = $1 AND seq > $2
             ORDER BY seq LIMIT $3",
            args![topic, after, count],
        )?;
        let all_read = rows.len() < usize::try_from(count).unwrap_or(usize::MAX);
        for (seq, id, kind, at_ms, body) in rows {
            (after, left, bytes) = (seq, left - 1, bytes + body.len());
            page.push(Event { seq, id, kind, at_ms, body });
        }
        if all_read {
            break;
        }
    }
    Ok(page)
}

/// The number before the last `count` events of a topic: following from there shows them.
pub fn before_last(rx: &mut Rx<'_>, topic: &str, count: i64) -> Result<i64> {
    let oldest: Option<(Option<i64>,)> = rx.first(
        "SELECT min(seq) FROM (SELECT seq FROM event WHERE topic = $1 ORDER BY seq DESC LIMIT $2)
         AS newest",
        // Less than nothing would be everything on SQLite, and refused by PostgreSQL.
        args![topic, count.max(0)],
    )?;
    match oldest {
        Some((Some(seq),)) => Ok(seq.saturating_sub(1)),
        _ => last(rx, topic),
    }
}

/// The number of the newest event of a topic; zero if there is none.
pub fn last(rx: &mut Rx<'_>, topic: &str) -> Result<i64> {
    let newest: Option<(Option<i64>,)> =
        rx.first("SELECT max(seq) FROM event WHERE topic = $1", args![topic])?;
    Ok(newest.and_then(|(seq,)| seq).unwrap_or(0))
}
