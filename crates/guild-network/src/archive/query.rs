//! Finds events by filters, newest first, between events of one second the lowest id first (NIP-01).

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};

use guild_protocol::nostr::{Event, EventId, Filter};
use guild_store::{Column, Rx, Sql};

use super::{json, key, parse};
use crate::error::code;
use crate::{Error, Result};

mod scan;
mod terms;

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

/// What one question may cost at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Events of one filter; more are not found.
    pub events: usize,
    /// Bytes of all their texts; more are not found, but one event is, however long it is.
    pub bytes: usize,
    /// Events that all filters together look at beyond those that they find, and every KiB of such events that has to
    /// be read; with more the question is refused.
    pub visits: usize,
}

impl Budget {
    /// As much as it takes, for so many events.
    pub const fn events(events: usize) -> Budget {
        Budget { events, bytes: usize::MAX, visits: VISIT_MAX }
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
    let share = budget.bytes.checked_div(filters.len()).unwrap_or(0);
    let mut visits = Visits::new(budget.visits);
    for filter in filters {
        let (mut count, mut bytes) = (0_usize, 0_usize);
        let limit = filter.limit.and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.unwrap_or(usize::MAX).min(budget.events);
        walk(rx, filter, limit, &mut visits, now_s, &mut |event, stored| {
            if !may_see(event) {
                return Took::Nothing;
            }
            bytes = bytes.saturating_add(stored.json.len());
            if count == limit || (count > 0 && bytes > share) {
                return Took::Enough;
            }
            count = count.saturating_add(1);
            found.insert(stored.seq, stored);
            Took::This
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
/// there is room for many. They have to be read, though: with more bytes than the budget has the question is refused.
pub fn ids_within(
    rx: &mut Rx<'_>,
    filters: &[Filter],
    budget: Budget,
    now_s: u64,
    may_see: &dyn Fn(&Event) -> bool,
) -> Result<Vec<(u64, EventId)>> {
    let mut found: BTreeMap<i64, (u64, EventId)> = BTreeMap::new();
    let (mut visits, mut bytes) = (Visits::new(budget.visits), 0_usize);
    for filter in filters {
        let mut count = 0_usize;
        walk(rx, filter, budget.events, &mut visits, now_s, &mut |event, stored| {
            if !may_see(event) {
                return Took::Nothing;
            }
            bytes = bytes.saturating_add(stored.json.len());
            if count == budget.events || bytes > budget.bytes {
                return Took::Enough;
            }
            count = count.saturating_add(1);
            found.insert(stored.seq, (stored.created_at, stored.event_id));
            Took::This
        })?;
    }
    if bytes > budget.bytes {
        let message = format!("more than {} bytes of events pass", budget.bytes);
        return Err(Error::refused(&code::TOO_WIDE, message));
    }
    Ok(found.into_values().collect())
}

/// A question of our own never looks at more events than this, beyond those that it finds.
const VISIT_MAX: usize = 100_000;

/// So many bytes that are read in vain count as one event more.
const VISIT_BYTES: usize = 1_024;

/// What was looked at in vain.
struct Visits {
    count: usize,
    max: usize,
}

impl Visits {
    fn new(max: usize) -> Visits {
        Visits { count: 0, max }
    }

    fn left(&self) -> usize {
        self.max.saturating_sub(self.count)
    }

    fn charge(&mut self, events: usize, bytes: usize) -> Result<()> {
        let bytes = bytes.checked_div(VISIT_BYTES).unwrap_or(0);
        self.count = self.count.saturating_add(events).saturating_add(bytes);
        if self.count > self.max {
            let message = format!("{} events were looked at and too few pass", self.max);
            return Err(Error::refused(&code::TOO_WIDE, message));
        }
        Ok(())
    }
}

/// So many events are read at a time: few enough that they may all be large.
const STEP: usize = 64;

/// What became of an event that was handed over.
enum Took {
    /// It is part of the answer.
    This,
    /// It is not.
    Nothing,
    /// It is not, and nothing more is wanted.
    Enough,
}

/// Hands over every event that passes, newest first, until `limit` were taken or `take` wants no more.
fn walk(
    rx: &mut Rx<'_>,
    filter: &Filter,
    limit: usize,
    visits: &mut Visits,
    now_s: u64,
    take: &mut dyn FnMut(&Event, Stored) -> Took,
) -> Result<()> {
    if filter.is_empty() || limit == 0 {
        return Ok(());
    }
    let mut scan = match &filter.ids {
        Some(ids) => Walk::Named(named(rx, ids)?.into_iter()),
        None => Walk::Scan(Box::new(Scan::new(rx, filter, visits)?)),
    };
    let mut found = 0_usize;
    while found < limit {
        let before = scan.visited();
        let seqs = scan.next(rx, STEP.min(limit.saturating_sub(found)))?;
        let visited = scan.visited().saturating_sub(before);
        let Some(seqs) = seqs else { return visits.charge(visited, 0) };
        let rows: Vec<Row> = rx.all_set(BY_SEQ, &[Column::Ints(&seqs)])?;
        let mut in_vain = visited.max(rows.len());
        let mut bytes_in_vain: usize = rows.iter().map(|(_, _, json)| json.len()).sum();
        for (event, stored) in passing(rows, filter, now_s)? {
            let bytes = stored.json.len();
            match take(&event, stored) {
                Took::This => {
                    found = found.saturating_add(1);
                    in_vain = in_vain.saturating_sub(1);
                    bytes_in_vain = bytes_in_vain.saturating_sub(bytes);
                }
                Took::Nothing => {}
                Took::Enough => return Ok(()),
            }
        }
        visits.charge(in_vain, bytes_in_vain)?;
    }
    Ok(())
}

/// The numbers of events in the order of answers.
enum Walk {
    /// Of those that a filter names.
    Named(std::vec::IntoIter<i64>),
    /// Of those that have its terms.
    Scan(Box<Scan>),
}

impl Walk {
    fn visited(&self) -> usize {
        match self {
            Walk::Named(_) => 0,
            Walk::Scan(scan) => scan.visited(),
        }
    }

    fn next(&mut self, rx: &mut Rx<'_>, step: usize) -> Result<Option<Vec<i64>>> {
        match self {
            Walk::Named(seqs) => {
                let some: Vec<i64> = seqs.by_ref().take(step).collect();
                Ok((!some.is_empty()).then_some(some))
            }
            Walk::Scan(scan) => scan.next(rx, step),
        }
    }
}

/// The numbers of events with these ids, in the order of answers. Their texts are not read yet: all may be large.
fn named(rx: &mut Rx<'_>, ids: &BTreeSet<EventId>) -> Result<Vec<i64>> {
    let keys: Vec<i64> = ids.iter().map(key::id_key).collect();
    let rows: Vec<(i64, i64, i64)> = rx.all_set(BY_ID, &[Column::Ints(&keys)])?;
    let order = |(created_at, id_key, seq): (i64, i64, i64)| (Reverse(created_at), id_key, seq);
    let mut order: Vec<_> = rows.into_iter().map(order).collect();
    order.sort_unstable();
    Ok(order.into_iter().map(|(_, _, seq)| seq).collect())
}

type Row = (i64, Option<i64>, String);

const BY_ID: Sql = Sql {
    lite: "SELECT created_at, id_key, seq FROM nostr_event WHERE id_key = $1 AND hidden = 0",
    pg: "SELECT created_at, id_key, seq FROM nostr_event
         WHERE id_key = ANY ($1::bigint[]) AND hidden = 0",
};
const BY_SEQ: Sql = Sql {
    lite: concat!("SELECT seq, expires_at, ", json!(), " FROM nostr_event WHERE seq = $1"),
    pg: concat!(
        "SELECT seq, expires_at, ",
        json!(),
        " FROM nostr_event WHERE seq = ANY ($1::bigint[])"
    ),
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
pub(super) const STATEMENTS: [(Sql, usize); 6] = [
    (BY_ID, 1),
    (BY_SEQ, 1),
    (scan::AHEAD, 5),
    (terms::SAMPLE, 4),
    (terms::SAMPLE_STEM, 3),
    (terms::PRESENT, 3),
];
