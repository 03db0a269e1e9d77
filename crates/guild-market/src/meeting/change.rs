//! What the routing matrix learns of a meeting.

use std::collections::BTreeSet;

use guild_protocol::env::UnixMs;
use guild_protocol::nostr::EventId;
use guild_store::{Tx, args};

use super::{Meeting, Outcome, get, trial_of};
use crate::Result;
use crate::evaluation;
use crate::routing::log::{self, Appended};
use crate::routing::work::TWO_RESULTS_MS;
use crate::routing::{Cause, Change, Matrix, Mutation, Options, Status};

/// What the routing matrix is to be told of a meeting that is decided. Only who is there can be moved; whoever tried
/// what is forbidden is shut out in any case, of everything. Whoever was shut out meanwhile is not let in again.
pub fn changes(meeting: &Meeting, options: &evaluation::Options, matrix: &Matrix) -> Vec<Change> {
    let (task, provider) = (&meeting.task, &meeting.terms.provider);
    let Some(outcome) = meeting.outcome else { return Vec::new() };
    if outcome == Outcome::Forbidden {
        let reason = meeting.meeting_id.as_str();
        return matrix.shutting_out((task, provider), &meeting.d, reason);
    }
    if matrix.is_blacklisted(provider) {
        return Vec::new();
    }
    let is_known = matrix.entry(task, provider).is_some();
    let mutation = match outcome {
        Outcome::Active => Some(admitted(meeting, options, Status::Active)),
        Outcome::Conditional => Some(admitted(meeting, options, Status::Conditional)),
        Outcome::Rejected => Some(moved(meeting, Status::Quarantined, Cause::Rejected)),
        Outcome::Unresponsive => Some(moved(meeting, Status::Unresponsive, Cause::Silent)),
        Outcome::Forbidden | Outcome::Undelivered | Outcome::Unpaid => None,
    };
    let mutation = mutation.filter(|_| is_known || outcome.is_admitted());
    let change = |mutation| Change {
        key: format!("met:{}", meeting.meeting_id),
        task: task.clone(),
        provider: *provider,
        mutation,
    };
    mutation.into_iter().map(change).collect()
}

fn admitted(meeting: &Meeting, options: &evaluation::Options, status: Status) -> Mutation {
    let found = meeting.evaluation.as_ref();
    let (pace, notes) = found.map_or((evaluation::Pace::Standard, BTreeSet::new()), |found| {
        (found.pace, found.notes.clone())
    });
    let trust_bp = match status {
        Status::Active => found.and_then(|found| found.trust_bp).unwrap_or(options.active_trust_bp),
        _ => options.conditional_trust_bp,
    };
    Mutation::Admitted { d: meeting.d.clone(), status, trust_bp, pace, notes }
}

fn moved(meeting: &Meeting, status: Status, cause: Cause) -> Mutation {
    Mutation::Moved { status, cause: Some(cause), until_ms: meeting.cooldown_until_ms }
}

/// Writes down that the provider of a request has signed two different results of it, if it has: who is hired is not
/// for a day, as with orders. Again it is the same.
pub fn signed_twice(
    tx: &mut Tx<'_>,
    options: &Options,
    request_id: &EventId,
    now_ms: UnixMs,
) -> Result<Vec<Appended>> {
    let Some(trial) = trial_of(tx, request_id)? else { return Ok(Vec::new()) };
    let both: Option<(String,)> = tx.first(
        "SELECT event_id FROM market_word WHERE request_id = $1 AND standing = 'equivocation' LIMIT 1",
        args![&request_id.hex()],
    )?;
    let meeting = get(tx, &trial.meeting_id)?;
    let (task, provider) = (meeting.task, meeting.terms.provider);
    let key = format!("met:{}:signed_twice", meeting.meeting_id);
    let entry = log::latest(tx, &task, &provider)?;
    // Whoever is not asked anyway must not be let in again earlier by this.
    let is_hired = entry.is_some_and(|entry| entry.status.is_hireable());
    if both.is_none() || !is_hired || log::is_known(tx, &key)? {
        return Ok(Vec::new());
    }
    let mutation = Mutation::Moved {
        status: Status::Quarantined,
        cause: Some(Cause::Forbidden),
        until_ms: Some(now_ms.saturating_add(TWO_RESULTS_MS)),
    };
    log::append(tx, options, &[Change { key, task, provider, mutation }], now_ms)
}
