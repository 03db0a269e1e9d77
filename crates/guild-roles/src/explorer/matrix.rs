//! What this node believes of providers: the routing matrix, for readers.

use std::collections::BTreeMap;

use guild_market::evaluation::Pace;
use guild_market::review;
use guild_market::routing::{
    self, Entry, Explanation, Matrix, Mutation, Status, TaskType, Tier, log,
};
use guild_protocol::identity::PublicKey;
use guild_store::Rx;
use serde::Serialize;

use super::page::{Cursor, Listed, Page, cut};
use super::people::People;
use super::view::Party;
use crate::{Error, Result};

/// So many changes of an entry are drawn.
const POINTS_MAX: i64 = 200;
/// So many task types stand beside each other.
pub const COLUMNS_MAX: usize = 12;
/// So many kinds of work of one provider are told.
const BELIEFS_MAX: usize = 50;

/// What is believed of a provider for one kind of work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Belief {
    /// Which work.
    pub task: TaskType,
    /// Its tier; none if it is not hired.
    pub tier: Option<Tier>,
    /// The part of its outcomes of 30 days that were successes, in ten-thousandths.
    pub success_rate_30d_bp: Option<u32>,
    /// What a job of its costs, by the latest.
    pub cost_msat: Option<i64>,
    /// How long a job of its takes, by the latest.
    pub latency_ms: Option<i64>,
    /// How much of the last hour's work it was given,
    pub share_jobs: usize,
    /// of so much.
    pub share_of: usize,
    /// All of it.
    pub entry: Entry,
}

/// The same in short, beside an offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stance {
    /// Which work.
    pub task: TaskType,
    /// Whether it is hired.
    pub status: Status,
    /// How far it is trusted, in ten-thousandths.
    pub trust_bp: u32,
    /// Its tier; none if it is not hired.
    pub tier: Option<Tier>,
    /// How quick it was when it was evaluated.
    pub pace: Pace,
    /// What a job of its costs, by the latest.
    pub cost_msat: Option<i64>,
}

/// How trust went for one kind of work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Curve {
    /// Which work.
    pub task: TaskType,
    /// After every change that moved it, the oldest first.
    pub points: Vec<Point>,
}

/// Trust after a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Point {
    /// When.
    pub at_ms: i64,
    /// How far it was trusted then, in ten-thousandths.
    pub trust_bp: u32,
    /// What happened, in a word.
    pub what: &'static str,
    /// Whether it was hired then.
    pub hired: bool,
}

/// One kind of work, as a column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Work {
    /// Which.
    pub task: TaskType,
    /// How many were ever admitted.
    pub providers: usize,
    /// How many of them are active.
    pub active: usize,
    /// How many active ones are missing.
    pub short_of_active: usize,
}

/// One provider, as a row: what is believed of it for each kind of work that has a column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Who.
    pub provider: Party,
    /// A cell for each column.
    pub cells: Vec<Option<Stance>>,
}

/// A part of the matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sheet {
    /// The number of the last row of the log that counts.
    pub log_seq: i64,
    /// Kinds of work, the first ones.
    pub works: Vec<Work>,
    /// How many more there are.
    pub more_works: usize,
    /// Providers, by their keys.
    pub rows: Listed<Row>,
}

/// Some work, explained, with names.
#[derive(Debug, Clone, PartialEq)]
pub struct Explained {
    /// Everybody for it, and what either policy would choose.
    pub explanation: Explanation,
    /// Who the candidates are, in their order.
    pub parties: Vec<Party>,
}

/// What is believed of a provider for every kind of work.
pub(super) fn beliefs(matrix: &Matrix, provider: &PublicKey, now_ms: i64) -> Vec<Belief> {
    let belief = |task: &TaskType| {
        let entry = matrix.entry(task, provider)?;
        let (share_jobs, share_of) = matrix.share(task, provider, now_ms);
        Some(Belief {
            task: task.clone(),
            tier: Tier::of(matrix.options(), entry),
            success_rate_30d_bp: entry.success_rate_30d_bp(now_ms),
            cost_msat: entry.cost_msat(),
            latency_ms: entry.latency_ms(),
            share_jobs,
            share_of,
            entry: entry.clone(),
        })
    };
    matrix.tasks_of(provider).take(BELIEFS_MAX).filter_map(belief).collect()
}

fn stance(matrix: &Matrix, task: &TaskType, provider: &PublicKey) -> Option<Stance> {
    let entry = matrix.entry(task, provider)?;
    Some(Stance {
        task: task.clone(),
        status: entry.status,
        trust_bp: entry.trust_bp,
        tier: Tier::of(matrix.options(), entry),
        pace: entry.pace,
        cost_msat: entry.cost_msat(),
    })
}

/// The same in short.
pub(super) fn stances(matrix: &Matrix, provider: &PublicKey) -> Vec<Stance> {
    let tasks = matrix.tasks_of(provider).take(BELIEFS_MAX);
    tasks.filter_map(|task| stance(matrix, task, provider)).collect()
}

/// How trust in a provider went, for each of these kinds of work.
pub(super) fn curves(
    rx: &mut Rx<'_>,
    provider: &PublicKey,
    beliefs: &[Belief],
) -> Result<Vec<Curve>> {
    let mut curves = Vec::new();
    for Belief { task, .. } in beliefs.iter().take(COLUMNS_MAX) {
        let mut points: Vec<Point> = Vec::new();
        for effect in log::history(rx, task, provider, POINTS_MAX)?.into_iter().rev() {
            let point = Point {
                at_ms: effect.at_ms,
                trust_bp: effect.entry.trust_bp,
                what: word(&effect.mutation),
                hired: effect.entry.status.is_hireable(),
            };
            let moved = points
                .last()
                .is_none_or(|last| (last.trust_bp, last.hired) != (point.trust_bp, point.hired));
            if moved {
                points.push(point);
            }
        }
        curves.push(Curve { task: task.clone(), points });
    }
    Ok(curves)
}

/// A change in a word.
pub(super) fn word(mutation: &Mutation) -> &'static str {
    match mutation {
        Mutation::Outcome { class, .. } => class.name(),
        other => other.name(),
    }
}

/// Providers beside kinds of work.
pub(super) fn sheet(rx: &mut Rx<'_>, matrix: &Matrix, page: &Page) -> Result<Sheet> {
    let short_of = matrix.short_of();
    let work = |task: &TaskType| {
        let all = || matrix.providers_of(task);
        Work {
            task: task.clone(),
            providers: all().count(),
            active: all().filter(|(_, entry)| entry.status == Status::Active).count(),
            short_of_active: short_of.get(task).copied().unwrap_or(0),
        }
    };
    let works: Vec<Work> = matrix.task_types().take(COLUMNS_MAX).map(work).collect();
    let more_works = matrix.task_types().count().saturating_sub(works.len());
    let everybody: BTreeMap<String, PublicKey> = matrix
        .task_types()
        .flat_map(|task| matrix.providers_of(task))
        .map(|(provider, _)| (provider.npub(), *provider))
        .collect();
    let after = page.after.as_ref().map(|cursor| cursor.id.as_str());
    if after.is_some_and(|after| after.parse::<PublicKey>().is_err()) {
        return Err(Error::Cursor);
    }
    let behind = |npub: &str| after.is_none_or(|after| npub > after);
    let lines = page.lines();
    let found: Vec<(String, PublicKey)> = everybody
        .into_iter()
        .filter(|(npub, _)| behind(npub))
        .take(lines.saturating_add(1))
        .collect();
    let cursor = |(npub, _): &(String, PublicKey)| Cursor { at: 0, id: npub.clone() };
    let (found, next) = cut(found, lines, cursor);
    let people = People::of(rx, found.iter().map(|(_, key)| *key))?;
    let row = |(_, key): &(String, PublicKey)| Row {
        provider: people.party(key),
        cells: works.iter().map(|work| stance(matrix, &work.task, key)).collect(),
    };
    let rows = Listed { items: found.iter().map(row).collect(), next };
    Ok(Sheet { log_seq: matrix.seq(), works, more_works, rows })
}

/// Everybody for some work; nothing if nobody was ever admitted for it. The choices are those of a seed that follows
/// from the log, so that a page is the same until something happens.
pub(super) fn explained(
    rx: &mut Rx<'_>,
    matrix: &Matrix,
    task: &TaskType,
    now_ms: i64,
) -> Result<Option<Explained>> {
    let seed = u64::try_from(matrix.seq()).unwrap_or(0);
    let said = review::hearsay(rx, task)?;
    let explanation = routing::explain_with(matrix, task, &said, now_ms, seed);
    let Some(explanation) = explanation else { return Ok(None) };
    let people = People::of(rx, explanation.candidates.iter().map(|one| one.provider))?;
    let parties = explanation.candidates.iter().map(|one| people.party(&one.provider)).collect();
    Ok(Some(Explained { explanation, parties }))
}
