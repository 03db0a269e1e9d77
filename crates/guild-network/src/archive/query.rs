//! Finds events by filters, newest first, between events of one second the lowest id first (NIP-01).

use std::cmp::Ordering;
use std::collections::BTreeMap;

use guild_protocol::nostr::{EventId, Filter};
use guild_store::{Column, Rx, Sql};

use super::{key, parse};
use crate::error::code;
use crate::{Error, Result};

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

/// All events that pass any of the filters: of each filter at most its `limit` and `limit_max`, the newest, each event
/// once. Expired events are left out.
pub fn query(
    rx: &mut Rx<'_>,
    filters: &[Filter],
    limit_max: usize,
    now_s: u64,
) -> Result<Vec<Stored>> {
    let mut found: BTreeMap<i64, Stored> = BTreeMap::new();
    for filter in filters {
        let limit = filter.limit.and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.unwrap_or(usize::MAX).min(limit_max);
        for stored in find(rx, filter, limit, now_s)? {
            found.insert(stored.seq, stored);
        }
    }
    let mut found: Vec<Stored> = found.into_values().collect();
    found.sort_by(Stored::order);
    Ok(found)
}

/// How many events pass any of the filters, whatever their limits; no more than `limit_max` are counted.
pub fn count(rx: &mut Rx<'_>, filters: &[Filter], limit_max: usize, now_s: u64) -> Result<u64> {
    let unlimited = |filter: &Filter| Filter { limit: None, ..filter.clone() };
    let filters: Vec<Filter> = filters.iter().map(unlimited).collect();
    let found = query(rx, &filters, limit_max, now_s)?.len().min(limit_max);
    Ok(u64::try_from(found).unwrap_or(u64::MAX))
}

/// One filter never looks at more events than this, beyond those that it finds.
const VISIT_MAX: usize = 100_000;

/// So many rows are read at a time.
const STEP: usize = 256;

fn find(rx: &mut Rx<'_>, filter: &Filter, limit: usize, now_s: u64) -> Result<Vec<Stored>> {
    let mut found = Vec::new();
    if filter.is_empty() || limit == 0 {
        return Ok(found);
    }
    if let Some(ids) = &filter.ids {
        let keys: Vec<i64> = ids.iter().map(key::id_key).collect();
        let rows: Vec<Row> = rx.all_set(BY_ID, &[Column::Ints(&keys)])?;
        found = passing(rows, filter, now_s)?;
        found.sort_by(Stored::order);
        found.truncate(limit);
        return Ok(found);
    }
    let mut scan = Scan::new(filter);
    while found.len() < limit {
        if scan.visited().saturating_sub(found.len()) > VISIT_MAX {
            let message = format!("{VISIT_MAX} events were looked at and too few pass");
            return Err(Error::refused(&code::TOO_WIDE, message));
        }
        let step = STEP.min(limit.saturating_sub(found.len()));
        let Some(seqs) = scan.next(rx, step)? else { break };
        let rows: Vec<Row> = rx.all_set(BY_SEQ, &[Column::Ints(&seqs)])?;
        let mut passing = passing(rows, filter, now_s)?;
        passing.sort_by(Stored::order);
        found.append(&mut passing);
    }
    Ok(found)
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
fn passing(rows: Vec<Row>, filter: &Filter, now_s: u64) -> Result<Vec<Stored>> {
    let mut passing = Vec::new();
    for (seq, expires_at, json) in rows {
        if expires_at.is_some_and(|at| u64::try_from(at).unwrap_or(0) <= now_s) {
            continue;
        }
        let event = parse(&json)?;
        if filter.matches(&event) {
            let (event_id, created_at) = (event.id, event.created_at);
            passing.push(Stored { seq, event_id, created_at, json });
        }
    }
    Ok(passing)
}

/// What is asked of large tables, and how many numbers are bound.
#[cfg(test)]
pub(super) const STATEMENTS: [(Sql, usize); 3] = [(BY_ID, 1), (BY_SEQ, 1), (scan::AHEAD, 6)];
