//! Whether the lifecycle of every provider went along documented paths: each row of the routing log beside the one
//! before it. It decides by [`PATHS`] alone, and uses nothing of what wrote the rows.

use guild_protocol::env::UnixMs;
use guild_protocol::json;
use guild_store::{Rx, args};

use super::{PATHS, Signal, Stage};
use crate::Result;
use crate::routing::{Entry, Mutation, Status};

/// So many problems are told.
const PROBLEMS_MAX: usize = 50;
/// So many rows are read at a time.
const PAGE: i64 = 500;

/// What was looked at, and what is wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// How many entries there are.
    pub entries: i64,
    /// How often one of them came to another stage.
    pub steps: i64,
    /// Everything that is wrong, in words.
    pub problems: Vec<String>,
}

/// task_type, provider, version, mutation, entry
type Row = (String, String, i64, String, String);

/// Looks at all of them.
pub fn run(rx: &mut Rx<'_>) -> Result<Report> {
    let mut report = Report::default();
    let mut last: (String, String, i64) = (String::new(), String::new(), 0);
    let mut before: Option<Entry> = None;
    loop {
        let rows: Vec<Row> = rx.all(
            "SELECT task_type, provider, version, mutation, entry FROM market_route_log
             WHERE task_type > $1 OR (task_type = $1 AND (provider > $2 OR (provider = $2 AND version > $3)))
             ORDER BY task_type, provider, version LIMIT $4",
            args![&last.0, &last.1, last.2, PAGE],
        )?;
        let is_last = i64::try_from(rows.len()).unwrap_or(PAGE) < PAGE;
        for (task, provider, version, mutation, entry) in rows {
            if (&task, &provider) != (&last.0, &last.1) {
                before = None;
                report.entries = report.entries.saturating_add(1);
            }
            let mutation: Mutation = json::decode(mutation.as_bytes())?;
            let entry: Entry = json::decode(entry.as_bytes())?;
            if let Some(before) = &before {
                report.steps = report.steps.saturating_add(i64::from(moved(before, &entry)));
            }
            let problem = problem(before.as_ref(), &mutation, &entry);
            if let Some(problem) = problem.filter(|_| report.problems.len() < PROBLEMS_MAX) {
                report.problems.push(format!("{provider} for {task}, change {version}: {problem}"));
            }
            before = Some(entry);
            last = (task, provider, version);
        }
        if is_last {
            return Ok(report);
        }
    }
}

/// Whether an entry has come to another stage, or once more to the same.
fn moved(before: &Entry, after: &Entry) -> bool {
    let of = |entry: &Entry| -> (Stage, Option<Signal>, UnixMs) {
        (entry.health.stage, entry.health.signal, entry.health.since_ms)
    };
    of(before) != of(after)
}

/// What is wrong with a row.
fn problem(before: Option<&Entry>, mutation: &Mutation, after: &Entry) -> Option<String> {
    let stage = after.health.stage;
    let hired = after.status.is_hireable();
    if hired && stage >= Stage::Suspended {
        return Some(format!("it is hired, and {}", stage.name()));
    }
    let shut_out = matches!(after.status, Status::Archived | Status::Blacklisted);
    if stage == Stage::Removed && !shut_out {
        return Some(format!("it is removed, and {}", after.status.name()));
    }
    let before = before?;
    let was_hired = before.status.is_hireable();
    let by_hand = matches!(mutation, Mutation::Admitted { .. } | Mutation::Moved { .. });
    if hired && !was_hired && !by_hand {
        return Some(format!("it is hired again by {}", mutation.name()));
    }
    if before.health.stage == Stage::Removed && stage != Stage::Removed {
        return Some("it was removed, and is not any more".to_owned());
    }
    // Whoever is evaluated while it is well is evaluated anew, and that is no step.
    let anew = before.health.stage == Stage::Well && stage == Stage::Well;
    if !moved(before, after) || anew {
        return None;
    }
    let Some(signal) = after.health.signal else {
        return Some(format!("it came to {} by nothing", stage.name()));
    };
    let path = (before.health.stage, signal, stage);
    let known = PATHS.contains(&path) || (signal == Signal::Reviewed && stage == Stage::Well);
    if !known {
        let (from, to) = (before.health.stage.name(), stage.name());
        return Some(format!("no path leads from {from} to {to} by {}", signal.name()));
    }
    let fits = match mutation {
        Mutation::Outcome { .. } => matches!(
            signal,
            Signal::Failed
                | Signal::Succeeded
                | Signal::Rate
                | Signal::Latency
                | Signal::Timeouts
                | Signal::Forbidden
        ),
        Mutation::Noticed { signal: noticed } => signal == *noticed,
        Mutation::Admitted { .. } => signal == Signal::Evaluated,
        Mutation::Moved { .. } => matches!(
            signal,
            Signal::Rejected | Signal::Silent | Signal::Forbidden | Signal::Reviewed
        ),
        Mutation::Assigned | Mutation::Returned | Mutation::Verified => false,
    };
    (!fits).then(|| format!("{} cannot say {}", mutation.name(), signal.name()))
}
