//! Finds events by filters, newest first, between events of one second the lowest id first (NIP-01).

use std::cmp::Ordering;
use std::collections::BTreeMap;

use guild_protocol::nostr::{Event, EventId, Filter};
use guild_store::{Column, Rx, Sql};

use super::{key, parse};
use crate::Result;

mod scan;

use scan::Scan;

/// An event that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its place in the order in which events came.
    pub seq: i64,
    /// Its id.
    pub event_id: EventId,
    /// Unix seconds, as its author says.
    pub created_at: u64,
    /// Its canonical JSON.
    pub json: String,
}

impl Stored {
    /// The order of answers.
    fn order(&self, other: &Stored) -> Ordering {
        other.created_at.cmp(&self.created_at).then(self.event_id.cmp(&other.event_id))
    }
}

/// A place in the order of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    age: i64,
    id_key: i64,
    seq: i64,
}

/// What one question may cost at most. What is left when it is used up is not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Events of one filter.
    pub events: usize,
    /// Bytes of all their texts; one event is found however long it is.
    pub bytes: usize,
    /// Rows that are read, also of events that do not pass.
    pub rows: usize,
}

impl Budget {
    /// As much as it takes, for so many events.
    pub const fn events(events: usize) -> Budget {
        Budget { events, bytes: usize::MAX, rows: usize::MAX }
    }
}

/// All events that pass any of the filters: of each filter at most its `limit` and `limit_max`, the newest, each event
/// once. Expired events are left out.
pub fn query(
    rx: &mut Rx<'_>,
    filters: &[Filter],
    limit_max: usize,
    now_s: u64,
) -> Result<Vec<Stored>> {
    query_within(rx, filters, Budget::events(limit_max), now_s, &|_| true)
}

/// The same for somebody else: within a budget, and only those that they may see.
pub fn query_within(
    rx: &mut Rx<'_>,
    filters: &[Filter],
    budget: Budget,
    now_s: u64,
    may_see: &dyn Fn(&Event) -> bool,
) -> Result<Vec<Stored>> {
    let mut found: BTreeMap<i64, Stored> = BTreeMap::new();
    let mut rows = budget.rows;
    let share = budget.bytes.checked_div(filters.len()).unwrap_or(0);
    for filter in filters {
        let (mut count, mut bytes) = (0_usize, 0_usize);
        let limit = filter.limit.and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.unwrap_or(usize::MAX).min(budget.events);
        walk(rx, filter, limit, &mut rows, now_s, &mut |event, stored| {
            if may_see(event) {
                bytes = bytes.saturating_add(stored.json.len());
                if count > 0 && bytes > share {
                    return false;
                }
                count = count.saturating_add(1);
                found.insert(stored.seq, stored);
            }
            count < limit
        })?;
    }
    let mut found: Vec<Stored> = found.into_values().collect();
    found.sort_by(Stored::order);
    Ok(found)
}

/// How many events pass any of the filters, whatever their limits; no more than `limit_max` are counted.
pub fn count(rx: &mut Rx<'_>, filters: &[Filter], limit_max: usize, now_s: u64) -> Result<u64> {
    let found = ids_within(rx, filters, Budget::events(limit_max), now_s, &|_| true)?;
    Ok(u64::try_from(found.len().min(limit_max)).unwrap_or(u64::MAX))
}

/// Time and id of all events that pass any of the filters, whatever their limits, in no order: without their texts
/// there is room for many.
pub fn ids_within(
    rx: &mut Rx<'_>,
    filters: &[Filter],
    budget: Budget,
    now_s: u64,
    may_see: &dyn Fn(&Event) -> bool,
) -> Result<Vec<(u64, EventId)>> {
    let mut found: BTreeMap<i64, (u64, EventId)> = BTreeMap::new();
    let mut rows = budget.rows;
    for filter in filters {
        let mut count = 0_usize;
        walk(rx, filter, budget.events, &mut rows, now_s, &mut |event, stored| {
            if may_see(event) {
                count = count.saturating_add(1);
                found.insert(stored.seq, (stored.created_at, stored.event_id));
            }
            count < budget.events
        })?;
    }
    Ok(found.into_values().collect())
}

/// So many events are read at a time: few enough that they may all be large.
const STEP: usize = 64;
/// What reading an event costs, in rows of the terms.
const EVENT_ROWS: usize = 8;

/// Hands over every event that passes, newest first, until `take` wants no more or `rows` are used up.
fn walk(
    rx: &mut Rx<'_>,
    filter: &Filter,
    limit: usize,
    rows: &mut usize,
    now_s: u64,
    take: &mut dyn FnMut(&Event, Stored) -> bool,
) -> Result<()> {
    if filter.is_empty() || limit == 0 {
        return Ok(());
    }
    if let Some(ids) = &filter.ids {
        let keys: Vec<i64> = ids.iter().map(key::id_key).collect();
        *rows = rows.saturating_sub(keys.len().saturating_mul(EVENT_ROWS));
        let found: Vec<Row> = rx.all_set(BY_ID, &[Column::Ints(&keys)])?;
        let _ = passing(found, filter, now_s)?.into_iter().all(|(e, stored)| take(&e, stored));
        return Ok(());
    }
    let mut scan = Scan::new(filter);
    while *rows > 0 {
        let seqs = scan.next(rx, STEP.min(limit), rows)?;
        if seqs.is_empty() {
            break;
        }
        *rows = rows.saturating_sub(seqs.len().saturating_mul(EVENT_ROWS));
        let found: Vec<Row> = rx.all_set(BY_SEQ, &[Column::Ints(&seqs)])?;
        if !passing(found, filter, now_s)?.into_iter().all(|(e, stored)| take(&e, stored)) {
            break;
        }
    }
    Ok(())
}

type Row = (i64, Option<i64>, String);

const BY_ID: Sql = Sql {
    lite: "SELECT seq, expires_at, json FROM nostr_event WHERE id_key = $1 AND hidden = 0",
    pg: "SELECT seq, expires_at, json FROM nostr_event
         WHERE id_key = ANY ($1::bigint[]) AND hidden = 0",
};
const BY_SEQ: Sql = Sql {
    lite: "SELECT seq, expires_at, json FROM nostr_event WHERE seq = $1",
    pg: "SELECT seq, expires_at, json FROM nostr_event WHERE seq = ANY ($1::bigint[])",
};

/// A term may stand for two things, and a filter may have several: the event itself decides.
fn passing(rows: Vec<Row>, filter: &Filter, now_s: u64) -> Result<Vec<(Event, Stored)>> {
    let mut passing = Vec::new();
    for (seq, expires_at, json) in rows {
        if expires_at.is_some_and(|at| u64::try_from(at).unwrap_or(0) <= now_s) {
            continue;
        }
        let event = parse(&json)?;
        if filter.matches(&event) {
            let (event_id, created_at) = (event.id, event.created_at);
            passing.push((event, Stored { seq, event_id, created_at, json }));
        }
    }
    passing.sort_by(|(_, a), (_, b)| a.order(b));
    Ok(passing)
}

/// What is asked of large tables, and how many numbers are bound.
#[cfg(test)]
pub(super) const STATEMENTS: [(Sql, usize); 3] = [(BY_ID, 1), (BY_SEQ, 1), (scan::AHEAD, 6)];
