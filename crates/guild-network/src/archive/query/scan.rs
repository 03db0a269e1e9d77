//! Walks along the terms of a filter, all of them at once, in the order of answers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use guild_protocol::nostr::Filter;
use guild_store::{Column, Rx, Sql};

use super::super::key;
use super::super::verified::seconds;
use super::Place;
use crate::Result;

pub(super) const AHEAD: Sql = Sql {
    lite: "SELECT term, age, id_key, seq, kind FROM nostr_term
           WHERE term = $1 AND (age, id_key, seq) > ($2, $3, $4) AND age <= $5
           ORDER BY age, id_key, seq LIMIT $6",
    pg: "SELECT found.* FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[],
           $5::bigint[], $6::bigint[]) AS ask (term, age, id_key, seq, max_age, step),
         LATERAL (SELECT t.term, t.age, t.id_key, t.seq, t.kind FROM nostr_term t
           WHERE t.term = ask.term AND (t.age, t.id_key, t.seq) > (ask.age, ask.id_key, ask.seq)
             AND t.age <= ask.max_age
           ORDER BY t.age, t.id_key, t.seq LIMIT ask.step) AS found",
};

/// How many rows a term has in a time, up to a few.
pub(super) const SAMPLE: Sql = Sql {
    lite: "SELECT count(*) FROM (SELECT 1 FROM nostr_term
             WHERE term = $1 AND age >= $2 AND age <= $3 LIMIT $4) AS found",
    pg: "SELECT found.n FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[])
           AS ask (term, min_age, max_age, most),
         LATERAL (SELECT count(*) AS n FROM (SELECT 1 FROM nostr_term t
           WHERE t.term = ask.term AND t.age >= ask.min_age AND t.age <= ask.max_age
           LIMIT ask.most) AS few) AS found",
};

/// So far is counted to see which condition lets the least through.
const SAMPLE_MAX_ROWS: i64 = 256;
/// Of so many values of it.
const SAMPLE_MAX_TERMS: usize = 16;

/// After so many a step ends, so that whoever bounds the walk can look.
const STEP_VISITS: usize = 4_096;

/// One term, read ahead a little.
struct Lane {
    at: Place,
    ahead: VecDeque<(Place, i64)>,
    is_done: bool,
}

/// A walk along several terms.
pub(super) struct Scan {
    lanes: BTreeMap<i64, Lane>,
    /// The first of every lane that has one.
    front: BinaryHeap<Reverse<(Place, i64)>>,
    max_age: i64,
    kinds: Option<BTreeSet<i64>>,
    last: Option<Place>,
    visited: usize,
}

impl Scan {
    pub(super) fn new(rx: &mut Rx<'_>, filter: &Filter) -> Result<Scan> {
        let newest = filter.until.map_or(i64::MIN, |until| seconds(until).saturating_neg());
        let max_age = filter.since.map_or(i64::MAX, |since| seconds(since).saturating_neg());
        let start = Place { age: newest, id_key: i64::MIN, seq: 0 };
        let lane = |term| (term, Lane { at: start, ahead: VecDeque::new(), is_done: false });
        let terms = narrowest(rx, conditions(filter), newest, max_age)?;
        Ok(Scan {
            lanes: terms.into_iter().map(lane).collect(),
            front: BinaryHeap::new(),
            max_age,
            kinds: filter
                .kinds
                .as_ref()
                .map(|kinds| kinds.iter().copied().map(i64::from).collect()),
            last: None,
            visited: 0,
        })
    }

    /// How many events were looked at.
    pub(super) fn visited(&self) -> usize {
        self.visited
    }

    /// The numbers of the next events, at most `step`, perhaps none; nothing at the end.
    pub(super) fn next(&mut self, rx: &mut Rx<'_>, step: usize) -> Result<Option<Vec<i64>>> {
        let mut seqs = Vec::new();
        let enough = self.visited.saturating_add(STEP_VISITS);
        while seqs.len() < step && self.visited < enough {
            self.fill(rx, step)?;
            let Some(Reverse((place, term))) = self.front.pop() else {
                return Ok((!seqs.is_empty()).then_some(seqs));
            };
            if let Some(lane) = self.lanes.get_mut(&term)
                && let Some((_, kind)) = lane.ahead.pop_front()
            {
                if let Some((next, _)) = lane.ahead.front() {
                    self.front.push(Reverse((*next, term)));
                }
                self.visited = self.visited.saturating_add(1);
                let wanted = self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind));
                // An event with two of the terms stands in two lanes.
                if wanted && self.last != Some(place) {
                    seqs.push(place.seq);
                }
                self.last = Some(place);
            }
        }
        Ok(Some(seqs))
    }

    /// Reads ahead in every lane that has run dry.
    fn fill(&mut self, rx: &mut Rx<'_>, step: usize) -> Result<()> {
        let dry = |(_, lane): &(&i64, &Lane)| lane.ahead.is_empty() && !lane.is_done;
        let lanes: Vec<(i64, Place)> =
            self.lanes.iter().filter(dry).map(|(term, lane)| (*term, lane.at)).collect();
        if lanes.is_empty() {
            return Ok(());
        }
        let step = i64::try_from(step.clamp(8, 512)).unwrap_or(i64::MAX);
        let column = |of: fn(&(i64, Place)) -> i64| lanes.iter().map(of).collect::<Vec<_>>();
        let rows: Vec<(i64, i64, i64, i64, i64)> = rx.all_set(
            AHEAD,
            &[
                Column::Ints(&column(|(term, _)| *term)),
                Column::Ints(&column(|(_, at)| at.age)),
                Column::Ints(&column(|(_, at)| at.id_key)),
                Column::Ints(&column(|(_, at)| at.seq)),
                Column::Ints(&vec![self.max_age; lanes.len()]),
                Column::Ints(&vec![step; lanes.len()]),
            ],
        )?;
        for (term, age, id_key, seq, kind) in rows {
            if let Some(lane) = self.lanes.get_mut(&term) {
                lane.ahead.push_back((Place { age, id_key, seq }, kind));
            }
        }
        for (term, _) in lanes {
            let Some(lane) = self.lanes.get_mut(&term) else { continue };
            lane.is_done = i64::try_from(lane.ahead.len()).unwrap_or(0) < step;
            if let (Some((first, _)), Some((last, _))) = (lane.ahead.front(), lane.ahead.back()) {
                self.front.push(Reverse((*first, term)));
                lane.at = *last;
            }
        }
        Ok(())
    }
}

/// No more terms than this are made of the values and the kinds of a filter.
const PAIRS_MAX: usize = 1_024;

/// The terms of every condition that a walk can go along. Kinds only if there is nothing else: every row has its kind.
fn conditions(filter: &Filter) -> Vec<BTreeSet<i64>> {
    let tags = filter.tags.iter().map(|(letter, values)| tag_terms(filter, *letter, values));
    let authors = filter.authors.iter().map(|keys| keys.iter().map(key::author_term).collect());
    let mut conditions: Vec<BTreeSet<i64>> = tags.chain(authors).collect();
    if conditions.is_empty() {
        conditions.push(match &filter.kinds {
            Some(kinds) => kinds.iter().map(|kind| key::kind_term(*kind)).collect(),
            None => BTreeSet::from([key::EVERYTHING]),
        });
    }
    conditions
}

/// The terms of a tag; with the kinds, if there are such terms and not too many of them.
fn tag_terms(filter: &Filter, letter: char, values: &BTreeSet<String>) -> BTreeSet<i64> {
    if let Some(kinds) = &filter.kinds
        && key::has_kind_terms(letter)
        && kinds.len().saturating_mul(values.len()) <= PAIRS_MAX
    {
        let pairs = values.iter().flat_map(|value| kinds.iter().map(move |kind| (kind, value)));
        return pairs.map(|(kind, value)| key::kind_tag_term(*kind, letter, value)).collect();
    }
    values.iter().map(|value| key::tag_term(letter, value)).collect()
}

/// The condition that lets the least through, as far as a short look tells. A prolific author, or a tag that many use,
/// is known only to the database.
fn narrowest(
    rx: &mut Rx<'_>,
    conditions: Vec<BTreeSet<i64>>,
    min_age: i64,
    max_age: i64,
) -> Result<BTreeSet<i64>> {
    if conditions.len() == 1 {
        return Ok(conditions.into_iter().next().unwrap_or_default());
    }
    let mut best = (i64::MAX, BTreeSet::new());
    for terms in conditions {
        let some: Vec<i64> = terms.iter().copied().take(SAMPLE_MAX_TERMS).collect();
        let ages = (vec![min_age; some.len()], vec![max_age; some.len()]);
        let most = vec![SAMPLE_MAX_ROWS; some.len()];
        let columns = [&some, &ages.0, &ages.1, &most].map(|column| Column::Ints(column));
        let rows: Vec<(i64,)> = rx.all_set(SAMPLE, &columns)?;
        // Those that were not looked at are like those that were.
        let all = i64::try_from(terms.len()).unwrap_or(i64::MAX);
        let looked_at = i64::try_from(some.len()).unwrap_or(i64::MAX);
        let rows: i64 = rows.iter().map(|(rows,)| *rows).sum();
        let rows = rows.saturating_mul(all).checked_div(looked_at).unwrap_or(0);
        if rows < best.0 {
            best = (rows, terms);
        }
    }
    Ok(best.1)
}
