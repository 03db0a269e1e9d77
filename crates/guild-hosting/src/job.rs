//! Bounded spending windows that own sandboxes.
//!
//! | from | to | when |
//! |---|---|---|
//! | | `running` | [`create`]: what is granted of the budget and of the time |
//! | `running` | `running` | [`extend`]: more of both, absolutely |
//! | `running` | `stopped` | [`stop`] |
//! | `running` | `expired`, `idle`, `stopped_due_to_budget`, `stopped_due_to_balance` | [`crate::meter::tick`] |
//!
//! Whatever ends a job ends its sandboxes in the same transaction. A job that has ended stays so.

use guild_protocol::env::UnixMs;
use guild_protocol::typed_id;
use guild_store::{Rx, Sql, Tx, args};
use serde_json::json;

use crate::clamp::{
    self, Answer, Bounds, Extend, Granted, Policy, check_idle, check_spend, check_text, check_time,
    ends_after,
};
use crate::error::code;
use crate::event::{Told, tell};
use crate::sandbox::{self, Ends, Reason};
use crate::{Error, Result, UserId};

mod read;
mod state;

pub(crate) use read::due;
pub use read::{Job, find, get, page_before, page_of_all};
pub use state::Status;

#[cfg(test)]
pub(crate) use read::DUE;

typed_id! {
    /// Names a hosting job.
    HostingJobId = "job", made;
}

const NAME_MAX_BYTES: usize = 100;

/// A job that somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// Made by the caller, so that asking again is asking for the same job.
    pub job_id: HostingJobId,
    /// Whose it is.
    pub user_id: UserId,
    /// What its owner calls it.
    pub name: String,
    /// What all its sandboxes may spend, in micro-USD.
    pub max_spend: i64,
    /// For how long.
    pub ttl_ms: i64,
    /// After how long without use it ends.
    pub idle_timeout_ms: Option<i64>,
}

/// Makes a job; one that is there already stays as it is. No money moves: a job only bounds what its sandboxes spend.
pub fn create(
    tx: &mut Tx<'_>,
    new: &NewJob,
    policy: &Policy,
    now_ms: UnixMs,
) -> Result<(Job, Granted)> {
    check_text("name", &new.name, NAME_MAX_BYTES)?;
    check_spend(new.max_spend)?;
    check_idle(new.idle_timeout_ms)?;
    check_time("now", now_ms)?;
    let expires_ms = ends_after(now_ms, new.ttl_ms)?;
    let granted = Granted {
        spend: clamp::clamp(new.max_spend, policy.job_spend_max, None),
        expires_ms: clamp::clamp(expires_ms, now_ms.saturating_add(policy.job_ttl_max_ms), None),
    };
    let Some(job) = insert(tx, new, &granted, policy, now_ms)? else {
        return known_or_too_many(tx, new, policy);
    };
    tell(tx, &[told(&job)], now_ms)?;
    Ok((job, granted))
}

/// Makes the job, unless there is one with this id or too many of the user's jobs run: one journey for what is nearly
/// always so.
fn insert(
    tx: &mut Tx<'_>,
    new: &NewJob,
    granted: &Granted,
    policy: &Policy,
    now_ms: UnixMs,
) -> Result<Option<Job>> {
    let asked = Extend {
        version: 0,
        spend: Some(new.max_spend),
        expires_ms: Some(granted.expires_ms.requested),
        idle_timeout_ms: new.idle_timeout_ms,
    };
    let expires_ms = granted.expires_ms.granted;
    Ok(tx.first(
        read::INSERT,
        args![
            new.job_id.as_str(),
            new.user_id.as_str(),
            &new.name,
            granted.spend.granted,
            now_ms,
            expires_ms,
            new.idle_timeout_ms,
            due_ms(expires_ms, now_ms, new.idle_timeout_ms),
            &Answer { asked, granted: *granted }.to_text()?,
            policy.jobs_max
        ],
    )?)
}

/// Why a job was not made: it is there, of this user or of another, or too many run.
fn known_or_too_many(rx: &mut Rx<'_>, new: &NewJob, policy: &Policy) -> Result<(Job, Granted)> {
    match find(rx, &new.job_id)? {
        Some(known) if known.user_id == new.user_id => {
            let granted = known.answer.granted;
            Ok((known, granted))
        }
        Some(_) => Err(Error::refused(&code::ID_TAKEN, format!("{} is taken", new.job_id))),
        None => {
            let running = read::count_running(rx, &new.user_id)?;
            let message = format!("{running} jobs run, {} may", policy.jobs_max);
            Err(Error::refused(&code::TOO_MANY, message))
        }
    }
}

/// When a job ends if nobody uses or extends it.
fn due_ms(expires_ms: UnixMs, last_activity_ms: UnixMs, idle_timeout_ms: Option<i64>) -> UnixMs {
    let idle = idle_timeout_ms.map(|timeout_ms| last_activity_ms.saturating_add(timeout_ms));
    idle.map_or(expires_ms, |idle_ms| idle_ms.min(expires_ms))
}

/// Gives a job more money or time, or another idle timeout. What it has spent stays spent; its time never shrinks.
pub fn extend(
    tx: &mut Tx<'_>,
    user_id: &UserId,
    job_id: &HostingJobId,
    asked: &Extend,
    policy: &Policy,
    now_ms: UnixMs,
) -> Result<(Job, Granted)> {
    let job = get(tx, user_id, job_id)?;
    if job.answer.asked == *asked {
        return Ok((job.clone(), job.answer.granted));
    }
    check_running(&job, now_ms)?;
    check_version(job.version, asked.version)?;
    let granted = clamp::extend(
        asked,
        &Bounds {
            now_ms,
            spent: job.spent.saturating_add(job.held),
            spend: job.max_spend,
            expires_ms: job.expires_ms,
            spend_cap: policy.job_spend_max,
            ttl_max_ms: policy.job_ttl_max_ms,
            job: None,
        },
    )?;
    let idle_timeout_ms = asked.idle_timeout_ms.or(job.idle_timeout_ms);
    let expires_ms = granted.expires_ms.granted;
    tx.cas(
        "UPDATE hosting_job SET max_spend = $3, expires_ms = $4, idle_timeout_ms = $5, last_activity_ms = $6,
           due_ms = $7, answer = $8, version = version + 1
         WHERE job_id = $1 AND version = $2 AND status = 'running'",
        args![
            job_id.as_str(),
            job.version,
            granted.spend.granted,
            expires_ms,
            idle_timeout_ms,
            now_ms.max(job.last_activity_ms),
            due_ms(expires_ms, now_ms.max(job.last_activity_ms), idle_timeout_ms),
            &Answer { asked: *asked, granted }.to_text()?
        ],
    )?;
    sandbox::run_until_job_ends(tx, job_id, expires_ms, now_ms)?;
    let job = get(tx, user_id, job_id)?;
    tell(tx, &[told(&job)], now_ms)?;
    Ok((job, granted))
}

/// Ends a job and, at once, all its sandboxes. What their minutes cost is not given back.
pub fn stop(
    tx: &mut Tx<'_>,
    user_id: &UserId,
    job_id: &HostingJobId,
    now_ms: UnixMs,
) -> Result<Job> {
    let job = get(tx, user_id, job_id)?;
    if job.status == Status::Running {
        finish(tx, job_id, Status::Stopped, Reason::JobStopped, Ends::Now, now_ms)?;
    }
    get(tx, user_id, job_id)
}

/// Ends a running job, and with it all its sandboxes. How many of these were there.
pub(crate) fn finish(
    tx: &mut Tx<'_>,
    job_id: &HostingJobId,
    status: Status,
    reason: Reason,
    ends: Ends,
    now_ms: UnixMs,
) -> Result<usize> {
    let live = sandbox::live_of_job(tx, job_id)?;
    sandbox::end_all(tx, live.iter().map(|sandbox| (sandbox, reason)), ends, now_ms)?;
    tx.cas(
        "UPDATE hosting_job SET status = $2, ended_ms = $3, due_ms = NULL, version = version + 1
         WHERE job_id = $1 AND status = 'running'",
        args![job_id.as_str(), status.as_str(), now_ms],
    )?;
    if let Some(job) = find(tx, job_id)? {
        tell(tx, &[told(&job)], now_ms)?;
    }
    Ok(live.len())
}

/// Notes that a job is used.
pub(crate) fn touch(tx: &mut Tx<'_>, job_id: &HostingJobId, now_ms: UnixMs) -> Result<()> {
    const TOUCH: Sql = Sql {
        lite: "UPDATE hosting_job SET last_activity_ms = $2,
                 due_ms = min(expires_ms, coalesce($2 + idle_timeout_ms, expires_ms))
               WHERE job_id = $1 AND status = 'running' AND last_activity_ms < $2",
        pg: "UPDATE hosting_job SET last_activity_ms = $2,
               due_ms = least(expires_ms, coalesce($2 + idle_timeout_ms, expires_ms))
             WHERE job_id = $1 AND status = 'running' AND last_activity_ms < $2",
    };
    tx.exec(TOUCH, args![job_id.as_str(), now_ms])?;
    Ok(())
}

/// Changes what is held for sandboxes that are starting, and what is spent.
pub(crate) fn spend(tx: &mut Tx<'_>, job_id: &HostingJobId, held: i64, spent: i64) -> Result<()> {
    Ok(tx.cas(
        "UPDATE hosting_job SET held = held + $2, spent = spent + $3 WHERE job_id = $1",
        args![job_id.as_str(), held, spent],
    )?)
}

/// Whether something can be bought in a job.
pub(crate) fn check_running(job: &Job, now_ms: UnixMs) -> Result<()> {
    if job.status == Status::Running && job.expires_ms > now_ms {
        return Ok(());
    }
    let status = match job.status {
        Status::Running => Status::Expired,
        ended => ended,
    };
    Err(Error::refused(&code::JOB_ENDED, format!("{} is {}", job.job_id, status.as_str())))
}

pub(crate) fn check_version(present: i64, asked: i64) -> Result<()> {
    if present == asked {
        return Ok(());
    }
    let message = format!("its version is {present}, not {asked}");
    Err(Error::refused(&code::VERSION, message))
}

/// Tells how a job stands. The version names the happening.
fn told(job: &Job) -> Told {
    let status = job.status.as_str();
    Told {
        id: format!("{}:{}", job.job_id, job.version),
        kind: format!("job.{status}"),
        body: json!({
            "job_id": job.job_id, "user_id": job.user_id.as_str(), "status": status, "spent": job.spent,
            "max_spend": job.max_spend, "expires_ms": job.expires_ms, "version": job.version,
        }),
    }
}
