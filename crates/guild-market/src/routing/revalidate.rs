//! The matrix beside who is there: after a start, and now and then.

use std::collections::{BTreeMap, BTreeSet};

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;

use crate::health::Stage;

use super::{Cause, Change, Entry, Matrix, Mutation, Status, TaskType};

/// How old a look at an announcement may be before a new one is written down.
const VERIFIED_MS: i64 = 24 * 3_600_000;

/// An announcement that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    /// Whose.
    pub provider: PublicKey,
    /// Its `d` tag.
    pub d: String,
    /// What it offers.
    pub tasks: BTreeSet<TaskType>,
    /// When it, or another sign of life of its provider, was seen last.
    pub seen_ms: UnixMs,
}

/// What follows for the matrix from the announcements that are there: whoever is hired and has none for its work, or an
/// old one, is quarantined as stale; who was stale and is there again is taken back, under conditions.
///
/// Give all announcements, or nothing: whoever could not look must not conclude that nobody is there, so `None` changes
/// nothing.
pub fn revalidate(matrix: &Matrix, live: Option<&[Live]>, now_ms: UnixMs) -> Vec<Change> {
    let Some(live) = live else { return Vec::new() };
    let live: BTreeMap<(PublicKey, &str), &Live> =
        live.iter().map(|one| ((one.provider, one.d.as_str()), one)).collect();
    let since = now_ms.saturating_sub(matrix.options().stale_ms);
    let mut changes = Vec::new();
    for task in matrix.task_types() {
        for (provider, entry) in matrix.providers_of(task) {
            let found = live.get(&(*provider, entry.d.as_str()));
            let there = found.is_some_and(|one| one.seen_ms > since && one.tasks.contains(task));
            if let Some(mutation) = follows(entry, there, now_ms) {
                // The version names the state that this is about: seen twice, it happens once.
                let key = format!("revalidated:{task}:{provider}:{}", entry.version);
                changes.push(Change { key, task: task.clone(), provider: *provider, mutation });
            }
        }
    }
    changes
}

/// What follows from time alone: whoever was not to be asked for a while, and that is over, is taken back under
/// conditions.
pub fn over(matrix: &Matrix, now_ms: UnixMs) -> Vec<Change> {
    let mut changes = Vec::new();
    for task in matrix.task_types() {
        for (provider, entry) in matrix.providers_of(task) {
            // Whoever failed an evaluation, or was not there, comes back by a fresh one.
            let is_over = matches!(entry.status, Status::Quarantined | Status::Unresponsive)
                && entry.health.stage != Stage::Suspended
                && entry.until_ms.is_some_and(|until_ms| until_ms <= now_ms);
            if is_over {
                let key = format!("over:{task}:{provider}:{}", entry.version);
                let mutation =
                    Mutation::Moved { status: Status::Conditional, cause: None, until_ms: None };
                changes.push(Change { key, task: task.clone(), provider: *provider, mutation });
            }
        }
    }
    changes
}

fn follows(entry: &Entry, there: bool, now_ms: UnixMs) -> Option<Mutation> {
    let stale = entry.status == Status::Quarantined && entry.cause == Some(Cause::Stale);
    let (status, cause) = match there {
        false if entry.status.is_hireable() => (Status::Quarantined, Some(Cause::Stale)),
        true if stale => (Status::Conditional, None),
        true if entry.status.is_hireable()
            && now_ms.saturating_sub(entry.last_verified_ms) >= VERIFIED_MS =>
        {
            return Some(Mutation::Verified);
        }
        _ => return None,
    };
    Some(Mutation::Moved { status, cause, until_ms: None })
}
