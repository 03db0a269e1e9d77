//! Puts events into the archive: what is known, who decides, then one set of statements whatever the number of events.

use std::sync::Arc;

use guild_protocol::env::UnixMs;
use guild_protocol::nostr::{EventId, unix_s};
use guild_store::Tx;

use super::verified::seconds;
use super::{Head, TOPIC, Verified, head, set_head};
use crate::Result;
use crate::index::{self, Announced, Seen};

pub(super) mod load;
mod plan;
pub(super) mod save;

pub(super) use save::{forget, hide};

use load::load;
use plan::Plan;

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// Stored now, under this number.
    New {
        /// Its place in the order in which events came.
        seq: i64,
    },
    /// Stored before.
    Known,
    /// A newer version is there.
    Older,
    /// Its author has deleted it.
    Deleted,
    /// Its time is over.
    Expired,
    /// Of a kind that is passed on and not kept.
    Ephemeral,
}

impl Put {
    /// The number under which it was stored now, if it was.
    pub fn seq(self) -> Option<i64> {
        match self {
            Put::New { seq } => Some(seq),
            _ => None,
        }
    }
}

/// A row of the archive, as far as decisions need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) seq: i64,
    pub(crate) event_id: EventId,
    pub(crate) pubkey: String,
    pub(crate) kind: i64,
    pub(crate) created_at: i64,
    pub(crate) address: Option<String>,
    pub(crate) pinned: bool,
    pub(crate) first_ms: UnixMs,
}

/// An event that is stored now.
pub(crate) struct New<'a> {
    pub(crate) seq: i64,
    pub(crate) event: &'a Verified,
    /// When the first version of it came.
    pub(crate) first_ms: UnixMs,
}

/// Stores events, by the rules of NIP-01, 09 and 40; one answer for each, in order. What they say is indexed in the
/// same transaction, and after it the bell rings.
pub fn put(tx: &mut Tx<'_>, events: &[Verified], origin: &str, now_ms: UnixMs) -> Result<Vec<Put>> {
    let events: Vec<_> = events.iter().map(|event| (event, origin)).collect();
    Ok(put_from(tx, &events, now_ms)?.puts)
}

/// What a group of events came to.
pub(crate) struct Done {
    /// One answer for each, in order.
    pub(crate) puts: Vec<Put>,
    /// The numbers that were given follow this one,
    pub(crate) after_seq: i64,
    /// and this is the last.
    pub(crate) last_seq: i64,
    /// The announcements among them.
    pub(crate) announced: Vec<Announced>,
}

/// As [`put`], each event with its own origin.
pub(crate) fn put_from(
    tx: &mut Tx<'_>,
    events: &[(&Verified, &str)],
    now_ms: UnixMs,
) -> Result<Done> {
    let before = head(tx)?;
    let known = load(tx, events, &before)?;
    let mut plan = Plan::new(known, before.last_seq, seconds(unix_s(now_ms)), now_ms);
    let puts: Vec<Put> = events.iter().map(|(event, origin)| plan.put(event, origin)).collect();
    let decided = plan.decided();
    let (after_seq, last_seq) = (before.last_seq, decided.last_seq);
    if decided.is_nothing() {
        return Ok(Done { puts, after_seq, last_seq, announced: Vec::new() });
    }
    let added_bytes = save::insert(tx, &decided.new, now_ms)?;
    let deletions = save::insert_deletions(tx, &decided.deletions)?;
    let seen: Vec<Seen<'_>> = decided
        .new
        .iter()
        .map(|(New { seq, event, first_ms }, _)| Seen {
            seq: *seq,
            event: event.event(),
            said: event.said(),
            first_ms: *first_ms,
            received_ms: now_ms,
        })
        .collect();
    index::apply(tx, &seen)?;
    // After what takes their place: so an offer that is announced anew stays heard.
    let gone = forget(tx, &decided.forget)?;
    hide(tx, &decided.hide)?;
    let added = i64::try_from(decided.new.len()).unwrap_or(i64::MAX);
    let (announced_events, announced_bytes) = save::announced(&decided.new);
    let now = |before: i64, new: i64, gone: i64| before.saturating_add(new).saturating_sub(gone);
    set_head(
        tx,
        &Head {
            last_seq,
            events: before.events.saturating_add(added).saturating_sub(gone.events),
            bytes: before.bytes.saturating_add(added_bytes).saturating_sub(gone.bytes),
            deletions: before.deletions.saturating_add(deletions).saturating_sub(gone.deletions),
            announced_events: now(before.announced_events, announced_events, gone.announced_events),
            announced_bytes: now(before.announced_bytes, announced_bytes, gone.announced_bytes),
            ..before
        },
    )?;
    if !decided.new.is_empty() {
        tx.ring(TOPIC, before.last_seq);
    }
    let announced = announced(&decided.new, now_ms);
    Ok(Done { puts, after_seq, last_seq, announced })
}

/// The announcements among new events. Those that came from one place in a row share its name.
fn announced(new: &[(New<'_>, &str)], now_ms: UnixMs) -> Vec<Announced> {
    let mut shared: Arc<str> = "".into();
    let announced = |(New { seq, event, first_ms }, origin): &(New<'_>, &str)| {
        if *shared != **origin {
            shared = (*origin).into();
        }
        Announced::of_stored(event, *seq, shared.clone(), *first_ms, now_ms)
    };
    new.iter().filter_map(announced).collect()
}
