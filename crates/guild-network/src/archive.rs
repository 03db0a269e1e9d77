//! One archive for all events, whoever brought them. The relay serves from it, the index is derived from it, and what
//! is published is put into it first.
//!
//! Relays forget, and so does the archive: replaced versions, what its author deleted (NIP-09), what has expired
//! (NIP-40), and the oldest when there is too much. What is pinned is never forgotten: once deleted or replaced it is
//! only no longer served.

use guild_protocol::env::UnixMs;
use guild_protocol::nostr::{Event, EventId, Limits, kind};
use guild_store::{Migration, Rx, Sql, Tx, args};

use crate::Result;

mod key;
mod known;
#[cfg(test)]
mod plans;
mod put;
mod query;
mod sweep;
mod verified;

pub use known::{known, set_known};
pub use put::{Put, put};
pub use query::{Budget, Stored, count, ids_within, query, query_within};
pub use sweep::{Bounds, Swept, sweep};
pub use verified::Verified;

pub(crate) use key::{answer_terms, id_key, offer_key, pubkey_key};
pub(crate) use put::{Done, put_from};

/// The bell that rings after a commit that stored events: new after a number.
pub const TOPIC: &str = "nostr";

/// The tables of this module.
pub(crate) fn migration() -> Migration {
    let sql = Sql {
        lite: include_str!("../migrations/sqlite/0001_archive.sql"),
        pg: include_str!("../migrations/postgres/0001_archive.sql"),
    };
    Migration { area: "network", number: 1, name: "archive", sql }
}

/// What watermarks leave out, and what no flood pushes out.
pub(crate) fn kept_migration() -> Migration {
    let sql = Sql {
        lite: include_str!("../migrations/sqlite/0008_kept.sql"),
        pg: include_str!("../migrations/postgres/0008_kept.sql"),
    };
    Migration { area: "network", number: 8, name: "kept", sql }
}

/// What is in the archive has been read within limits once.
const STORED: Limits = Limits {
    max_bytes: usize::MAX,
    max_content_bytes: usize::MAX,
    max_tags: usize::MAX,
    max_tag_items: usize::MAX,
    max_tag_item_bytes: usize::MAX,
};

/// The canonical JSON of an event, put together again from the columns of its row.
macro_rules! json {
    () => {
        json!("")
    };
    ($row:literal) => {
        concat!(
            "format('{\"content\":%s,\"created_at\":%s,\"id\":\"%s\",\"kind\":%s,\"pubkey\":\"%s\",\"sig\":\"%s', ",
            $row,
            "content, ",
            $row,
            "created_at, ",
            $row,
            "event_id, ",
            $row,
            "kind, ",
            $row,
            "pubkey, ",
            $row,
            "rest)"
        )
    };
}
pub(crate) use json;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The last number that was given.
    pub last_seq: i64,
    /// How many events are kept.
    pub events: i64,
    /// How many bytes their texts have.
    pub bytes: i64,
    /// How many deletions are remembered.
    pub(crate) deletions: i64,
    /// How many of the events are pinned, and how many bytes of the texts are theirs.
    pub(crate) pinned_events: i64,
    pub(crate) pinned_bytes: i64,
    /// How many of the others are announcements, and how many bytes of the texts are theirs.
    pub(crate) announced_events: i64,
    pub(crate) announced_bytes: i64,
    /// Up to here only pinned events are left, announcements, and lists of those who are known.
    pub(crate) swept_seq: i64,
}

type HeadRow = (i64, i64, i64, i64, i64, i64, i64, i64, i64);

/// How much is kept, and the last number given.
pub fn head(rx: &mut Rx<'_>) -> Result<Head> {
    let row: Option<HeadRow> = rx.first(
        "SELECT last_seq, events, bytes, deletions, pinned_events, pinned_bytes, announced_events,
           announced_bytes, swept_seq FROM nostr_archive",
        &[],
    )?;
    let row = row.ok_or_else(|| unreadable("the archive has no head"))?;
    let (last_seq, events, bytes, deletions, pinned_events, pinned_bytes, ..) = row;
    let (.., announced_events, announced_bytes, swept_seq) = row;
    Ok(Head {
        last_seq,
        events,
        bytes,
        deletions,
        pinned_events,
        pinned_bytes,
        announced_events,
        announced_bytes,
        swept_seq,
    })
}

/// Writes the head again; what is pinned is counted where it is pinned.
fn set_head(tx: &mut Tx<'_>, head: &Head) -> Result<()> {
    let Head { last_seq, events, bytes, deletions, swept_seq, .. } = *head;
    let Head { announced_events, announced_bytes, .. } = *head;
    tx.exec(
        "UPDATE nostr_archive
         SET last_seq = $1, events = $2, bytes = $3, deletions = $4, announced_events = $5,
           announced_bytes = $6, swept_seq = $7",
        args![last_seq, events, bytes, deletions, announced_events, announced_bytes, swept_seq],
    )?;
    Ok(())
}

/// Writes what is there already: whether the archive can be written at all.
pub fn touch(tx: &mut Tx<'_>) -> Result<()> {
    let head = head(tx)?;
    set_head(tx, &head)
}

/// An event by its id, also one that is no longer served.
pub fn event(rx: &mut Rx<'_>, id: &EventId) -> Result<Option<Event>> {
    let row: Option<(String,)> = rx.first(
        concat!("SELECT ", json!(), " FROM nostr_event WHERE id_key = $1 AND event_id = $2"),
        args![id_key(id), &id.hex()],
    )?;
    row.map(|(json,)| parse(&json)).transpose()
}

/// When an event came, if it is kept.
pub fn received_ms(rx: &mut Rx<'_>, id: &EventId) -> Result<Option<UnixMs>> {
    let row: Option<(UnixMs,)> = rx.first(
        "SELECT received_ms FROM nostr_event WHERE id_key = $1 AND event_id = $2",
        args![id_key(id), &id.hex()],
    )?;
    Ok(row.map(|(received_ms,)| received_ms))
}

/// So many events are looked at to see when the first of them came.
const RECEIVED_MAX: i64 = 1_000;

/// The earliest time at which one of the next events after a number came; none if there are none. Usually that is when
/// the first of them came, but a clock may have been set back since.
pub fn received_after(rx: &mut Rx<'_>, seq: i64) -> Result<Option<UnixMs>> {
    let row: Option<(Option<UnixMs>,)> = rx.first(
        "SELECT min(received_ms) FROM
           (SELECT received_ms FROM nostr_event WHERE seq > $1 ORDER BY seq LIMIT $2) AS next",
        args![seq, RECEIVED_MAX],
    )?;
    Ok(row.and_then(|(received_ms,)| received_ms))
}

macro_rules! after {
    ($of_kinds:literal) => {
        concat!(
            "SELECT e.seq, ",
            json!("e."),
            " FROM (
               SELECT seq, CAST(sum(bytes) OVER (ORDER BY seq) AS BIGINT) - bytes AS ahead FROM (
                 SELECT seq, bytes FROM nostr_event WHERE seq > $1 AND ($2 = '[]' OR ",
            $of_kinds,
            ") ORDER BY seq LIMIT $3) AS page) AS summed
             JOIN nostr_event e ON e.seq = summed.seq WHERE summed.ahead < $4 ORDER BY e.seq"
        )
    };
}

const AFTER: Sql = Sql {
    lite: after!("kind IN (SELECT value FROM json_each($2))"),
    pg: after!("kind = ANY (translate($2, '[]', '{}')::bigint[])"),
};

/// How much is read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// At most so many events.
    pub events: usize,
    /// No further event once these have so many bytes.
    pub bytes: usize,
}

/// Up to `limit` events after a number, in the order in which they came; of these kinds, or of any if none is named.
/// What was replaced or forgotten since is left out.
pub fn after(rx: &mut Rx<'_>, seq: i64, kinds: &[u16], limit: usize) -> Result<Vec<(i64, Event)>> {
    Ok(after_within(rx, seq, kinds, Reach { events: limit, bytes: usize::MAX })?.events)
}

/// Some of what came after a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// The events. A row that cannot be read is not among them: it must not hold up whoever follows the archive.
    pub events: Vec<(i64, Event)>,
    /// The last number that was looked at; none if there was nothing.
    pub last_seq: Option<i64>,
    /// Whether nothing is behind that.
    pub is_last: bool,
}

/// As [`after`], as far as this reaches.
pub fn after_within(rx: &mut Rx<'_>, seq: i64, kinds: &[u16], reach: Reach) -> Result<Reached> {
    let kinds: Vec<String> = kinds.iter().map(u16::to_string).collect();
    let kinds = format!("[{}]", kinds.join(","));
    let (events, bytes) =
        (i64::try_from(reach.events).unwrap_or(i64::MAX), i64::try_from(reach.bytes));
    let rows: Vec<(i64, String)> =
        rx.all(AFTER, args![seq, &kinds, events, bytes.unwrap_or(i64::MAX)])?;
    let read_bytes: usize = rows.iter().map(|(_, json)| json.len()).sum();
    let is_last = rows.len() < reach.events && read_bytes < reach.bytes;
    let last_seq = rows.last().map(|(seq, _)| *seq);
    let readable = |(seq, json): (i64, String)| match parse(&json) {
        Ok(event) => Some((seq, event)),
        Err(error) => {
            metrics::counter!("archive_unreadable_total").increment(1);
            tracing::error!(%error, seq, "an event of the archive cannot be read, and is left out");
            None
        }
    };
    Ok(Reached { events: rows.into_iter().filter_map(readable).collect(), last_seq, is_last })
}

/// Keeps an event for ever: ours, or of a job of ours. False if it is not there.
pub fn pin(tx: &mut Tx<'_>, id: &EventId) -> Result<bool> {
    let row: Option<(i64, i64, i64, i64)> = tx.first(
        "SELECT seq, pinned, bytes, kind FROM nostr_event WHERE id_key = $1 AND event_id = $2",
        args![id_key(id), &id.hex()],
    )?;
    let Some((seq, pinned, bytes, kind)) = row else { return Ok(false) };
    if pinned == 0 {
        tx.exec("UPDATE nostr_event SET pinned = 1 WHERE seq = $1", args![seq])?;
        tx.exec(
            "UPDATE nostr_archive
             SET pinned_events = pinned_events + 1, pinned_bytes = pinned_bytes + $1,
               announced_events = announced_events - $2, announced_bytes = announced_bytes - $2 * $1",
            args![bytes, i64::from(kind == i64::from(kind::ANNOUNCEMENT))],
        )?;
    }
    Ok(true)
}

/// A row with its event.
pub(crate) struct Whole {
    pub(crate) seq: i64,
    pub(crate) is_hidden: bool,
    pub(crate) first_ms: i64,
    pub(crate) received_ms: i64,
    pub(crate) event: Event,
}

/// Up to `limit` rows after a number.
pub(crate) fn rows_after(rx: &mut Rx<'_>, seq: i64, limit: i64) -> Result<Vec<Whole>> {
    let rows: Vec<(i64, i64, i64, i64, String)> = rx.all(
        concat!(
            "SELECT seq, hidden, first_ms, received_ms, ",
            json!(),
            " FROM nostr_event WHERE seq > $1 ORDER BY seq LIMIT $2"
        ),
        args![seq, limit],
    )?;
    let whole = |(seq, hidden, first_ms, received_ms, json): (i64, i64, i64, i64, String)| {
        Ok(Whole { seq, is_hidden: hidden != 0, first_ms, received_ms, event: parse(&json)? })
    };
    rows.into_iter().map(whole).collect()
}

pub(crate) fn parse(json: &str) -> Result<Event> {
    Event::parse(json.as_bytes(), &STORED).map_err(|e| unreadable(&e.to_string()))
}

pub(crate) fn unreadable(what: &str) -> crate::Error {
    guild_store::Error::Decode(format!("nostr archive: {what}")).into()
}
