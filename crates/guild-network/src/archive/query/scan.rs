//! Walks along the terms of a filter, all of them at once, in the order of answers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use guild_protocol::nostr::Filter;
use guild_store::{Column, Rx, Sql};

use super::super::key;
use super::super::verified::seconds;
use super::Visits;
use super::terms::terms;
use crate::Result;

pub(in super::super) const AHEAD: Sql = Sql {
    lite: "SELECT term, place, seq FROM nostr_term
           WHERE term = $1 AND (place, seq) > ($2, $3) AND place <= $4
           ORDER BY place, seq LIMIT $5",
    pg: "SELECT found.* FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[],
           $5::bigint[]) AS ask (term, place, seq, last_place, step),
         LATERAL (SELECT t.term, t.place, t.seq FROM nostr_term t
           WHERE t.term = ask.term AND (t.place, t.seq) > (ask.place, ask.seq)
             AND t.place <= ask.last_place
           ORDER BY t.place, t.seq LIMIT ask.step) AS found",
};

/// After so many a step ends, so that whoever bounds the walk can look.
const STEP_VISITS: usize = 4_096;
/// A step does not end between events of one place, but after so many it does.
const STEP_MAX_TIES: usize = 64;
/// No more rows than this are read ahead at a time, unless there are more lanes.
const AHEAD_MAX_ROWS: usize = 4_096;

/// A row under a term: its place, and the number of its event.
type Spot = (i64, i64);

/// One term, read ahead a little.
struct Lane {
    at: Spot,
    ahead: VecDeque<Spot>,
    is_done: bool,
}

/// A walk along several terms.
pub(super) struct Scan {
    lanes: BTreeMap<i64, Lane>,
    /// Those that have run dry.
    dry: Vec<i64>,
    /// The first of every lane that has one.
    front: BinaryHeap<Reverse<(Spot, i64)>>,
    last_place: i64,
    last: Option<Spot>,
    visited: usize,
}

/// From the first to the last place that may pass.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) first: i64,
    pub(super) last: i64,
}

impl Scan {
    pub(super) fn new(rx: &mut Rx<'_>, filter: &Filter, visits: &mut Visits) -> Result<Scan> {
        let span = Span {
            first: filter.until.map_or(i64::MIN, |until| key::first_place(seconds(until))),
            last: filter.since.map_or(i64::MAX, |since| key::last_place(seconds(since))),
        };
        let terms: BTreeSet<i64> = terms(rx, filter, span, visits)?;
        let lane =
            |term| (term, Lane { at: (span.first, 0), ahead: VecDeque::new(), is_done: false });
        Ok(Scan {
            dry: terms.iter().copied().collect(),
            lanes: terms.into_iter().map(lane).collect(),
            front: BinaryHeap::new(),
            last_place: span.last,
            last: None,
            visited: 0,
        })
    }

    /// How many events were looked at.
    pub(super) fn visited(&self) -> usize {
        self.visited
    }

    /// The numbers of the next events, about `step`, perhaps none; nothing at the end.
    pub(super) fn next(&mut self, rx: &mut Rx<'_>, step: usize) -> Result<Option<Vec<i64>>> {
        let mut seqs = Vec::new();
        let enough = self.visited.saturating_add(STEP_VISITS);
        let most = step.saturating_add(STEP_MAX_TIES);
        loop {
            self.fill(rx, step)?;
            let Some(Reverse((spot, term))) = self.front.peek().copied() else {
                return Ok((!seqs.is_empty()).then_some(seqs));
            };
            let is_tie = self.last.is_some_and(|last| last.0 == spot.0);
            if (seqs.len() >= step && !is_tie) || seqs.len() >= most || self.visited >= enough {
                return Ok(Some(seqs));
            }
            self.front.pop();
            self.advance(term);
            self.visited = self.visited.saturating_add(1);
            // An event with two of the terms stands in two lanes.
            if self.last != Some(spot) {
                seqs.push(spot.1);
            }
            self.last = Some(spot);
        }
    }

    /// Leaves the first row of a lane behind.
    fn advance(&mut self, term: i64) {
        let Some(lane) = self.lanes.get_mut(&term) else { return };
        lane.ahead.pop_front();
        match lane.ahead.front() {
            Some(next) => self.front.push(Reverse((*next, term))),
            None if !lane.is_done => self.dry.push(term),
            None => {}
        }
    }

    /// Reads ahead in every lane that has run dry.
    fn fill(&mut self, rx: &mut Rx<'_>, step: usize) -> Result<()> {
        if self.dry.is_empty() {
            return Ok(());
        }
        let dry = std::mem::take(&mut self.dry);
        let lanes: Vec<(i64, Spot)> =
            dry.iter().filter_map(|term| Some((*term, self.lanes.get(term)?.at))).collect();
        let most = AHEAD_MAX_ROWS.checked_div(lanes.len()).unwrap_or(0).clamp(1, 512);
        let step = i64::try_from(step.max(8).min(most)).unwrap_or(i64::MAX);
        let column = |of: fn(&(i64, Spot)) -> i64| lanes.iter().map(of).collect::<Vec<_>>();
        let rows: Vec<(i64, i64, i64)> = rx.all_set(
            AHEAD,
            &[
                Column::Ints(&column(|(term, _)| *term)),
                Column::Ints(&column(|(_, at)| at.0)),
                Column::Ints(&column(|(_, at)| at.1)),
                Column::Ints(&vec![self.last_place; lanes.len()]),
                Column::Ints(&vec![step; lanes.len()]),
            ],
        )?;
        for (term, place, seq) in rows {
            if let Some(lane) = self.lanes.get_mut(&term) {
                lane.ahead.push_back((place, seq));
            }
        }
        for (term, _) in lanes {
            let Some(lane) = self.lanes.get_mut(&term) else { continue };
            lane.is_done = i64::try_from(lane.ahead.len()).unwrap_or(0) < step;
            if let (Some(first), Some(last)) = (lane.ahead.front(), lane.ahead.back()) {
                self.front.push(Reverse((*first, term)));
                lane.at = *last;
            }
        }
        Ok(())
    }
}
