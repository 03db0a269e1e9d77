//! Jobs as they are stored.

use guild_protocol::env::UnixMs;
use guild_store::{Columns, Decode, Rx, args};

use super::{HostingJobId, Status};
use crate::clamp::Answer;
use crate::error::code;
use crate::row::{Cells, page};
use crate::{Error, Result, UserId};

/// A job as it is stored. Money is in micro-USD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Names it.
    pub job_id: HostingJobId,
    /// Whose it is.
    pub user_id: UserId,
    /// What its owner calls it.
    pub name: String,
    /// Where it stands.
    pub status: Status,
    /// What all its sandboxes may spend.
    pub max_spend: i64,
    /// What they have spent.
    pub spent: i64,
    /// What is held for the first minutes of those that are starting.
    pub held: i64,
    /// When it was made.
    pub created_ms: UnixMs,
    /// When it ends.
    pub expires_ms: UnixMs,
    /// After how long without use it ends.
    pub idle_timeout_ms: Option<i64>,
    /// When it was used last.
    pub last_activity_ms: UnixMs,
    /// When it ended.
    pub ended_ms: Option<UnixMs>,
    pub(crate) answer: Answer,
    /// Counts its changes; an extension names the one that it is about.
    pub version: i64,
}

impl Job {
    /// What its sandboxes may still spend.
    pub fn left(&self) -> i64 {
        self.max_spend.saturating_sub(self.spent).saturating_sub(self.held)
    }

    /// Whether its time or its idleness is reached.
    pub(crate) fn is_due(&self, now_ms: UnixMs) -> bool {
        let idle = self.idle_timeout_ms.map(|ms| self.last_activity_ms.saturating_add(ms));
        let is_over = self.expires_ms <= now_ms || idle.is_some_and(|idle_ms| idle_ms <= now_ms);
        self.status == Status::Running && is_over
    }
}

impl Decode for Job {
    fn decode(row: &dyn Columns) -> guild_store::Result<Job> {
        let mut cells = Cells::of(row);
        Ok(Job {
            job_id: cells.parsed()?,
            user_id: cells.parsed()?,
            name: cells.next()?,
            status: cells.word(Status::parse)?,
            max_spend: cells.next()?,
            spent: cells.next()?,
            held: cells.next()?,
            created_ms: cells.next()?,
            expires_ms: cells.next()?,
            idle_timeout_ms: cells.next()?,
            last_activity_ms: cells.next()?,
            ended_ms: cells.next()?,
            answer: cells.json()?,
            version: cells.next()?,
        })
    }
}

macro_rules! columns {
    ($before:expr, $after:expr) => {
        concat!(
            $before,
            " job_id, user_id, name, status, max_spend, spent, held, created_ms, expires_ms, idle_timeout_ms,
               last_activity_ms, ended_ms, answer, version ",
            $after
        )
    };
}

macro_rules! select {
    ($rest:literal) => {
        columns!("SELECT", concat!("FROM hosting_job ", $rest))
    };
}

/// Makes a job, unless its id is taken or so many of the user's jobs run.
pub(super) const INSERT: &str = columns!(
    "INSERT INTO hosting_job (job_id, user_id, name, status, max_spend, created_ms, expires_ms, idle_timeout_ms,
       last_activity_ms, due_ms, answer)
     SELECT $1, $2, $3, 'running', $4, $5, $6, $7, $5, $8, $9
     WHERE (SELECT count(*) FROM hosting_job WHERE user_id = $2 AND status = 'running') < $10
     ON CONFLICT (job_id) DO NOTHING
     RETURNING",
    ""
);

/// Those that somebody has to look at by now.
pub(crate) const DUE: &str = select!("WHERE due_ms <= $1 ORDER BY due_ms, job_id LIMIT $2");

/// The job with this id, whoever owns it.
pub fn find(rx: &mut Rx<'_>, job_id: &HostingJobId) -> Result<Option<Job>> {
    Ok(rx.first(select!("WHERE job_id = $1"), args![job_id.as_str()])?)
}

/// The job with this id, if this user owns it. That of another user is as unknown as one that is not there.
pub fn get(rx: &mut Rx<'_>, user_id: &UserId, job_id: &HostingJobId) -> Result<Job> {
    find(rx, job_id)?
        .filter(|job| job.user_id == *user_id)
        .ok_or_else(|| Error::refused(&code::UNKNOWN_JOB, format!("you have no job {job_id}")))
}

/// A page of a user's jobs, the newest first: those before this one, or the newest of all.
pub fn page_before(
    rx: &mut Rx<'_>,
    user_id: &UserId,
    before: Option<&HostingJobId>,
    limit: i64,
) -> Result<Vec<Job>> {
    // No id is beyond this text.
    let before = before.map_or("job_g", HostingJobId::as_str);
    Ok(rx.all(
        select!("WHERE user_id = $1 AND job_id < $2 ORDER BY job_id DESC LIMIT $3"),
        args![user_id.as_str(), before, page(limit)],
    )?)
}

/// A page of all jobs, the newest first: for the operator of this node.
pub fn page_of_all(rx: &mut Rx<'_>, before: Option<&HostingJobId>, limit: i64) -> Result<Vec<Job>> {
    let before = before.map_or("job_g", HostingJobId::as_str);
    let sql = select!("WHERE job_id < $1 ORDER BY job_id DESC LIMIT $2");
    Ok(rx.all(sql, args![before, page(limit)])?)
}

/// The jobs that have ended by now without anybody having said so.
pub(crate) fn due(rx: &mut Rx<'_>, now_ms: UnixMs, limit: i64) -> Result<Vec<Job>> {
    Ok(rx.all(DUE, args![now_ms, page(limit)])?)
}

/// How many jobs of a user run.
pub(crate) fn count_running(rx: &mut Rx<'_>, user_id: &UserId) -> Result<i64> {
    let sql = "SELECT count(*) FROM hosting_job WHERE user_id = $1 AND status = 'running'";
    let count: Option<(i64,)> = rx.first(sql, args![user_id.as_str()])?;
    Ok(count.map_or(0, |(count,)| count))
}
