//! One thing that is due, by itself. A row that cannot be metered must not keep all others from being: where a batch
//! fails, each of it is looked at in a transaction of its own, and one that fails again and again is set aside.

use guild_protocol::env::UnixMs;
use guild_store::{Rx, Tx, args};
use serde_json::json;

use super::due::{self, Due};
use super::{Ticked, clock, end_due, meter, sweep};
use crate::event::{Told, tell};
use crate::row::page;
use crate::sandbox::{self, Reason};
use crate::{Result, job};

/// What is set aside and cannot be ended is looked at again after so long.
const ASIDE_MS: i64 = 600_000;

/// A job or a sandbox that is due. Of its row nothing is known but its key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Piece {
    /// A job, by its id.
    Job(String),
    /// A sandbox, by its number.
    Sandbox(i64),
}

/// What is due, at most so many of each kind, in the order in which a tick takes it.
pub fn pieces(rx: &mut Rx<'_>, now_ms: UnixMs, limit: i64) -> Result<Vec<Piece>> {
    let jobs: Vec<(String,)> = rx.all(
        "SELECT job_id FROM hosting_job WHERE due_ms <= $1 ORDER BY due_ms, job_id LIMIT $2",
        args![now_ms, page(limit)],
    )?;
    let sandboxes: Vec<(i64,)> = rx.all(
        "SELECT sandbox_no FROM hosting_run WHERE due_ms <= $1 ORDER BY due_ms, sandbox_no LIMIT $2",
        args![now_ms, limit],
    )?;
    let jobs = jobs.into_iter().map(|(id,)| Piece::Job(id));
    Ok(jobs.chain(sandboxes.into_iter().map(|(no,)| Piece::Sandbox(no))).collect())
}

/// As [`super::tick`], for one thing alone.
pub fn tick_one(tx: &mut Tx<'_>, piece: &Piece, now_ms: UnixMs) -> Result<Ticked> {
    let (clock, now_ms) = clock::look(tx, now_ms)?;
    let mut ticked = Ticked::new(clock);
    let Some(now_ms) = now_ms else { return Ok(ticked) };
    match piece {
        Piece::Job(job_id) => {
            let due = job::find(tx, &job_id.parse()?)?;
            if let Some(job) = due.filter(|job| job.is_due(now_ms)) {
                end_due(tx, &job, now_ms, &mut ticked)?;
            }
        }
        Piece::Sandbox(number) => match due::read_one(tx, *number, now_ms)? {
            Some(due) if due.status == sandbox::Status::Running => {
                let due: [Due; 1] = [due];
                meter(tx, &due, now_ms, &mut ticked)?;
            }
            Some(due) => sweep(tx, &due, now_ms, &mut ticked)?,
            None => {}
        },
    }
    Ok(ticked)
}

/// Sets aside what cannot be metered, and tells so. A running sandbox ends when what is paid is over: nobody can be
/// asked to pay for more. Anything else is left as it is, and looked at again much later.
pub fn set_aside(tx: &mut Tx<'_>, piece: &Piece, words: &str, now_ms: UnixMs) -> Result<()> {
    let again_ms = now_ms.saturating_add(ASIDE_MS);
    let named = match piece {
        Piece::Job(job_id) => {
            tx.exec(
                "UPDATE hosting_job SET due_ms = $2 WHERE job_id = $1 AND due_ms IS NOT NULL",
                args![job_id.as_str(), again_ms],
            )?;
            job_id.clone()
        }
        Piece::Sandbox(number) => {
            let ended = tx.exec(
                "UPDATE hosting_sandbox SET status = 'ending', stop_reason = $2, words = $3, version = version + 1
                 WHERE sandbox_no = $1 AND status = 'running'",
                args![*number, Reason::MeterGap.as_str(), &sandbox::shown(words)],
            )?;
            let due_ms = (ended == 0).then_some(again_ms);
            tx.exec(
                "UPDATE hosting_run SET due_ms = $2 WHERE sandbox_no = $1",
                args![*number, due_ms],
            )?;
            let id: Option<(String,)> = tx.first(
                "SELECT sandbox_id FROM hosting_sandbox WHERE sandbox_no = $1",
                args![*number],
            )?;
            id.map_or_else(|| number.to_string(), |(id,)| id)
        }
    };
    let told = Told {
        id: format!("aside:{named}:{now_ms}"),
        kind: "meter.set_aside".to_owned(),
        body: json!({"what": named, "words": sandbox::shown(words)}),
    };
    tell(tx, &[told], now_ms)
}
