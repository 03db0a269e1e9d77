//! Which terms a walk goes along: those of the condition of a filter that lets the least through.

use std::collections::BTreeSet;

use guild_protocol::nostr::Filter;
use guild_store::{Column, Rx, Sql};

use super::super::key::{self, Stem};
use super::Visits;
use super::scan::Span;
use crate::Result;

/// How many rows a term has in a time, up to a few.
pub(in super::super) const SAMPLE: Sql = Sql {
    lite: "SELECT count(*) FROM (SELECT 1 FROM nostr_term
             WHERE term = $1 AND place >= $2 AND place <= $3 LIMIT $4) AS found",
    pg: "SELECT found.n FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[])
           AS ask (term, first_place, last_place, most),
         LATERAL (SELECT count(*) AS n FROM (SELECT 1 FROM nostr_term t
           WHERE t.term = ask.term AND t.place >= ask.first_place AND t.place <= ask.last_place
           LIMIT ask.most) AS few) AS found",
};

/// How many rows a stem has at any time, up to a few.
pub(in super::super) const SAMPLE_STEM: Sql = Sql {
    lite: "SELECT count(*) FROM (SELECT 1 FROM nostr_term
             WHERE term >= $1 AND term <= $2 LIMIT $3) AS found",
    pg: "SELECT found.n FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])
           AS ask (first_term, last_term, most),
         LATERAL (SELECT count(*) AS n FROM (SELECT 1 FROM nostr_term t
           WHERE t.term >= ask.first_term AND t.term <= ask.last_term
           LIMIT ask.most) AS few) AS found",
};

/// The terms from the first to the last that have rows, up to a few: one look for each, however many rows it has.
pub(in super::super) const PRESENT: Sql = Sql {
    lite: "WITH RECURSIVE present (term) AS (
             SELECT (SELECT term FROM nostr_term WHERE term >= $1 AND term <= $2
                     ORDER BY term LIMIT 1)
             UNION ALL
             SELECT (SELECT t.term FROM nostr_term t WHERE t.term > present.term AND t.term <= $2
                     ORDER BY t.term LIMIT 1)
             FROM present WHERE present.term IS NOT NULL LIMIT $3)
           SELECT term FROM present WHERE term IS NOT NULL",
    pg: "SELECT found.term FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])
           AS ask (first_term, last_term, most),
         LATERAL (WITH RECURSIVE present (term) AS (
             SELECT (SELECT t.term FROM nostr_term t
                     WHERE t.term >= ask.first_term AND t.term <= ask.last_term
                     ORDER BY t.term LIMIT 1)
             UNION ALL
             SELECT (SELECT t.term FROM nostr_term t
                     WHERE t.term > present.term AND t.term <= ask.last_term
                     ORDER BY t.term LIMIT 1)
             FROM present WHERE present.term IS NOT NULL)
           SELECT term FROM (SELECT term FROM present LIMIT ask.most) AS few
           WHERE term IS NOT NULL) AS found",
};

/// So far is counted to see which condition lets the least through.
const SAMPLE_MAX_ROWS: i64 = 256;
/// Of so many values of it.
const SAMPLE_MAX_TERMS: usize = 16;
/// No more terms than this are made of the values and the kinds of a filter.
const PAIRS_MAX: usize = 1_024;
/// So many kinds are looked for under every stem at once; few have more.
const PRESENT_STEP: usize = 64;

/// A condition that a walk can go along.
enum Condition {
    /// These terms.
    Terms(BTreeSet<i64>),
    /// The terms of these stems with any kind that the filter lets through.
    Stems(BTreeSet<Stem>),
}

/// The terms of the condition that lets the least through. Every kind beyond the first under a stem is a visit: a
/// stranger may point at somebody with as many kinds as there are.
pub(super) fn terms(
    rx: &mut Rx<'_>,
    filter: &Filter,
    span: Span,
    visits: &mut Visits,
) -> Result<BTreeSet<i64>> {
    match narrowest(rx, conditions(filter), span)? {
        Condition::Terms(terms) => Ok(terms),
        Condition::Stems(stems) => {
            let mut terms = present(rx, &stems, visits)?;
            let passes = |term: &i64| {
                filter.kinds.as_ref().is_none_or(|kinds| kinds.contains(&key::kind_of(*term)))
            };
            terms.retain(passes);
            Ok(terms)
        }
    }
}

/// Kinds only if there is nothing else: every term of a stem has its kind.
fn conditions(filter: &Filter) -> Vec<Condition> {
    let tags = filter.tags.iter().map(|(letter, values)| {
        values.iter().map(|value| Stem::tag(*letter, value)).collect::<BTreeSet<_>>()
    });
    let authors = filter.authors.iter().map(|keys| keys.iter().map(Stem::author).collect());
    let mut conditions: Vec<Condition> =
        tags.chain(authors).map(|stems| with_kinds(filter, stems)).collect();
    if conditions.is_empty() {
        conditions.push(Condition::Terms(match &filter.kinds {
            Some(kinds) => kinds.iter().map(|kind| key::kind_term(*kind)).collect(),
            None => BTreeSet::from([key::EVERYTHING]),
        }));
    }
    conditions
}

/// The terms of stems, if the filter names kinds and there are not too many pairs.
fn with_kinds(filter: &Filter, stems: BTreeSet<Stem>) -> Condition {
    match &filter.kinds {
        Some(kinds) if kinds.len().saturating_mul(stems.len()) <= PAIRS_MAX => {
            let pairs = stems.iter().flat_map(|stem| kinds.iter().map(|kind| stem.term(*kind)));
            Condition::Terms(pairs.collect())
        }
        _ => Condition::Stems(stems),
    }
}

/// The condition that lets the least through, as far as a short look tells. A prolific author, or a tag that many use,
/// is known only to the database.
fn narrowest(rx: &mut Rx<'_>, conditions: Vec<Condition>, span: Span) -> Result<Condition> {
    let mut best = None;
    let is_only = conditions.len() == 1;
    for condition in conditions {
        let rows = if is_only { 0 } else { sample(rx, &condition, span)? };
        if best.as_ref().is_none_or(|(least, _)| rows < *least) {
            best = Some((rows, condition));
        }
    }
    Ok(best.map_or(Condition::Terms(BTreeSet::new()), |(_, condition)| condition))
}

/// About how many rows a condition has.
fn sample(rx: &mut Rx<'_>, condition: &Condition, span: Span) -> Result<i64> {
    let (all, some, rows): (usize, usize, Vec<(i64,)>) = match condition {
        Condition::Terms(terms) => {
            let some = some_of(terms);
            let [first, last, most] =
                [span.first, span.last, SAMPLE_MAX_ROWS].map(|value| vec![value; some.len()]);
            let columns = [&some, &first, &last, &most].map(|column| Column::Ints(column));
            (terms.len(), some.len(), rx.all_set(SAMPLE, &columns)?)
        }
        Condition::Stems(stems) => {
            let some = some_of(stems);
            let rows = rx.all_set(SAMPLE_STEM, &ends(&some, SAMPLE_MAX_ROWS).columns())?;
            (stems.len(), some.len(), rows)
        }
    };
    // Those that were not looked at are like those that were.
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let rows: i64 = rows.iter().map(|(rows,)| *rows).sum();
    Ok(rows.saturating_mul(number(all)).checked_div(number(some)).unwrap_or(0))
}

fn some_of<T: Copy>(all: &BTreeSet<T>) -> Vec<T> {
    all.iter().copied().step_by(all.len().div_ceil(SAMPLE_MAX_TERMS).max(1)).collect()
}

/// What is asked about stems: the first term of each, the last, and how much of it at most.
struct Ends([Vec<i64>; 3]);

impl Ends {
    fn columns(&self) -> [Column<'_>; 3] {
        self.0.each_ref().map(|column| Column::Ints(column))
    }
}

fn ends(stems: &[Stem], most: i64) -> Ends {
    let of = |kind: u16| stems.iter().map(|stem| stem.term(kind)).collect();
    Ends([of(0), of(u16::MAX), vec![most; stems.len()]])
}

/// The terms of stems that have rows.
fn present(rx: &mut Rx<'_>, stems: &BTreeSet<Stem>, visits: &mut Visits) -> Result<BTreeSet<i64>> {
    let asked: Vec<Stem> = stems.iter().copied().collect();
    let mut terms = BTreeSet::new();
    for some in asked.chunks(PRESENT_STEP) {
        let step = i64::try_from(PRESENT_STEP).unwrap_or(i64::MAX);
        let rows: Vec<(i64,)> = rx.all_set(PRESENT, &ends(some, step).columns())?;
        visits.charge(rows.len().saturating_sub(some.len()), 0)?;
        terms.extend(rows.iter().map(|(term,)| *term));
    }
    for stem in asked {
        rest(rx, stem, &mut terms, visits)?;
    }
    Ok(terms)
}

/// The other terms of a stem that has so many kinds that not all were found at once.
fn rest(rx: &mut Rx<'_>, stem: Stem, terms: &mut BTreeSet<i64>, visits: &mut Visits) -> Result<()> {
    if terms.range(stem.term(0)..=stem.term(u16::MAX)).count() < PRESENT_STEP {
        return Ok(());
    }
    let last = terms.range(..=stem.term(u16::MAX)).next_back().copied().unwrap_or(i64::MAX);
    // One more than may be, to see that it is too much.
    let most = i64::try_from(visits.left().saturating_add(1)).unwrap_or(i64::MAX);
    let columns = [last.saturating_add(1), stem.term(u16::MAX), most].map(|value| [value]);
    let columns = columns.each_ref().map(|column| Column::Ints(column));
    let rows: Vec<(i64,)> = rx.all_set(PRESENT, &columns)?;
    visits.charge(rows.len(), 0)?;
    terms.extend(rows.iter().map(|(term,)| *term));
    Ok(())
}
