//! How providers do, for readers: for whoever operates this node alone, because who knows when it is tested next knows
//! what is a test.

use guild_market::health::probe::{self, Probe};
use guild_market::health::{Health, Stage, known, retry_ms, watch};
use guild_market::routing::{Cause, Entry, Matrix, Status, TaskType};
use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_store::Rx;
use serde::Serialize;

use crate::Result;

/// So many of the latest tests are shown.
const TESTS_MAX: i64 = 5;
/// So many entries are shown of all providers.
const ALL_MAX: usize = 200;

/// A test that was not drawn with an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Test {
    /// Why there was one.
    pub reason: &'static str,
    /// When it was due.
    pub due_ms: UnixMs,
    /// Its order, if it became one.
    pub order_id: Option<String>,
    /// Why it did not.
    pub words: Option<String>,
}

impl From<Probe> for Test {
    fn from(probe: Probe) -> Test {
        let order_id = probe.order_id.map(|id| id.to_string());
        let Probe { reason, due_ms, words, .. } = probe;
        Test { reason: reason.name(), due_ms, order_id, words }
    }
}

/// How a provider does in some work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Condition {
    /// Whose.
    pub provider: PublicKey,
    /// Which work.
    pub task: TaskType,
    /// Whether it is hired,
    pub status: Status,
    /// and why not.
    pub cause: Option<Cause>,
    /// What was noticed.
    pub health: Health,
    /// The part of the outcomes of a week that were successes, in ten-thousandths,
    pub success_rate_bp: Option<u32>,
    /// of so many.
    pub outcomes: u32,
    /// From when on it may be tried again, if it is suspended.
    pub retry_ms: Option<UnixMs>,
    /// When it has its next heartbeat benchmark.
    pub heartbeat_ms: Option<UnixMs>,
    /// Its latest tests that were not drawn with an order, the newest first.
    pub tests: Vec<Test>,
    /// How many tests were posted in all,
    pub tested: i64,
    /// and how many of them it did not pass.
    pub not_passed: i64,
    /// How many pieces of such work are known with their answer.
    pub known: i64,
}

/// How one provider does in all work that it is known for, or, if none is named, how all do: the worst first.
pub(super) fn conditions(
    rx: &mut Rx<'_>,
    matrix: &Matrix,
    provider: Option<&PublicKey>,
    now_ms: UnixMs,
) -> Result<Vec<Condition>> {
    let mut entries: Vec<(PublicKey, TaskType, Entry)> = Vec::new();
    for task in matrix.task_types() {
        let all = matrix.providers_of(task);
        let wanted = all.filter(|(key, _)| provider.is_none_or(|wanted| wanted == *key));
        entries.extend(wanted.map(|(key, entry)| (*key, task.clone(), entry.clone())));
    }
    let rank = |entry: &Entry| match entry.health.stage {
        // Whoever is gone for good needs nobody's attention.
        Stage::Removed => 4_u8,
        Stage::Suspended => 0,
        Stage::Reduced => 1,
        Stage::Warned => 2,
        Stage::Well => 3,
    };
    entries.sort_by_key(|(key, task, entry)| (rank(entry), key.npub(), task.clone()));
    entries.truncate(ALL_MAX);
    entries
        .into_iter()
        .map(|(key, task, entry)| condition(rx, matrix, (key, task, entry), now_ms))
        .collect()
}

fn condition(
    rx: &mut Rx<'_>,
    matrix: &Matrix,
    (provider, task, entry): (PublicKey, TaskType, Entry),
    now_ms: UnixMs,
) -> Result<Condition> {
    let of = (&provider, &task);
    let (success_rate_bp, outcomes) = entry.health.success_rate_bp(now_ms);
    let tests = probe::latest(rx, of, TESTS_MAX)?.into_iter().map(Test::from).collect();
    let (tested, not_passed) = probe::tally(rx, of)?;
    Ok(Condition {
        success_rate_bp,
        outcomes,
        retry_ms: retry_ms(&matrix.options().health, &entry),
        heartbeat_ms: watch::find(rx, of)?.map(|watch| watch.heartbeat_ms),
        tests,
        tested,
        not_passed,
        known: known::count(rx, &task)?,
        status: entry.status,
        cause: entry.cause,
        health: entry.health,
        provider,
        task,
    })
}
