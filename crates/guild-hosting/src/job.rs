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
use guild_store::{Sql, Tx, args};
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
    if let Some(known) = find(tx, &new.job_id)? {
        return match known.user_id == new.user_id {
            true => Ok((known.clone(), known.answer.granted)),
            false => Err(Error::refused(&code::ID_TAKEN, format!("{} is taken", new.job_id))),
        };
    }
    check_text("name", &new.name, NAME_MAX_BYTES)?;
    check_spend(new.max_spend)?;
    check_idle(new.idle_timeout_ms)?;
    check_time("now", now_ms)?;
    let expires_ms = ends_after(now_ms, new.ttl_ms)?;
    let running = read::count_running(tx, &new.user_id)?;
    if running >= policy.jobs_max {
        let message = format!("{running} jobs run, {} may", policy.jobs_max);
        return Err(Error::refused(&code::TOO_MANY, message));
    }
    let granted = Granted {
        spend: clamp::clamp(new.max_spend, policy.job_spend_max, None),
        expires_ms: clamp::clamp(expires_ms, now_ms.saturating_add(policy.job_ttl_max_ms), None),
    };
    insert(tx, new, &granted, now_ms)?;
    let job = get(tx, &new.user_id, &new.job_id)?;
    tell(tx, &[told(&job)], now_ms)?;
    Ok((job, granted))
}

fn insert(tx: &mut Tx<'_>, new: &NewJob, granted: &Granted, now_ms: UnixMs) -> Result<()> {
    let asked = Extend {
        version: 0,
        spend: Some(new.max_spend),
        expires_ms: Some(granted.expires_ms.requested),
        idle_timeout_ms: new.idle_timeout_ms,
    };
    let expires_ms = granted.expires_ms.granted;
    tx.exec(
        "INSERT INTO hosting_job (job_id, user_id, name, status, max_spend, created_ms, expires_ms, idle_timeout_ms,
           last_activity_ms, due_ms, answer)
         VALUES ($1, $2, $3, 'running', $4, $5, $6, $7, $5, $8, $9)",
        args![
            new.job_id.as_str(),
            new.user_id.as_str(),
            &new.name,
            granted.spend.granted,
            now_ms,
            expires_ms,
            new.idle_timeout_ms,
            due_ms(expires_ms, now_ms, new.idle_timeout_ms),
            &Answer { asked, granted: *granted }.to_text()?
        ],
    )?;
    Ok(())
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
