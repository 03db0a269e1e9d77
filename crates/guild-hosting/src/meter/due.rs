//! What is due, and what becomes of it in the rows: a few statements for a whole batch.

use std::collections::{BTreeMap, BTreeSet};

use guild_protocol::env::UnixMs;
use guild_store::{Column, Columns, Decode, Error, Rx, Sql, Tx, args};

use super::{Facts, GRACE_MS, RETRY_MS, paid_until};
use crate::Result;
use crate::row::Cells;
use crate::sandbox::{MINUTE_MS, Status, due_before, run_until};

/// What the meter has to know of a sandbox that is due.
pub(super) struct Due {
    sandbox_no: i64,
    pub(super) sandbox_id: String,
    pub(super) job_id: String,
    pub(super) user_id: String,
    pub(super) status: Status,
    /// Of the next minute.
    pub(super) price: i64,
    next_from_ms: Option<UnixMs>,
    cap_left: i64,
    pub(super) paid_minutes: i64,
    started_ms: UnixMs,
    expires_ms: UnixMs,
    idle_ms: Option<UnixMs>,
    job: JobFacts,
}

/// What the meter has to know of a job.
#[derive(Clone, Copy, Default)]
struct JobFacts {
    expires_ms: UnixMs,
    idle_ms: Option<UnixMs>,
    left: i64,
}

impl Decode for Due {
    fn decode(row: &dyn Columns) -> guild_store::Result<Due> {
        let mut cells = Cells::of(row);
        Ok(Due {
            sandbox_no: cells.next()?,
            sandbox_id: cells.next()?,
            job_id: cells.next()?,
            user_id: cells.next()?,
            status: cells.word(Status::parse)?,
            price: cells.next()?,
            next_from_ms: cells.next()?,
            cap_left: cells.next()?,
            paid_minutes: cells.next()?,
            started_ms: cells.next()?,
            expires_ms: cells.next()?,
            idle_ms: cells.next()?,
            job: JobFacts::default(),
        })
    }
}

impl Due {
    pub(super) fn paid_until_ms(&self) -> UnixMs {
        paid_until(self.started_ms, self.paid_minutes)
    }

    pub(super) fn ends_ms(&self) -> UnixMs {
        run_until(self.paid_until_ms(), self.expires_ms, self.job.expires_ms)
    }

    /// What the budget of its job leaves.
    pub(super) fn job_left(&self) -> i64 {
        self.job.left
    }

    pub(super) fn facts(&self, now_ms: UnixMs, job_left: i64, free: i64) -> Facts {
        Facts {
            now_ms,
            paid_until_ms: self.paid_until_ms(),
            expires_ms: self.expires_ms,
            idle_ms: self.idle_ms,
            job_expires_ms: self.job.expires_ms,
            job_idle_ms: self.job.idle_ms,
            price: self.price,
            cap_left: self.cap_left,
            job_left,
            free,
        }
    }
}

macro_rules! due {
    ($which:literal) => {
        concat!(
            "SELECT r.sandbox_no, s.sandbox_id, s.job_id, s.user_id, s.status, coalesce(s.next_price, s.price),
       s.next_from_ms, r.cap - r.spent, r.paid_minutes, coalesce(r.started_ms, 0), s.expires_ms,
       s.last_activity_ms + s.idle_timeout_ms
     FROM (SELECT * FROM hosting_run WHERE ",
            $which,
            ") AS r
       JOIN hosting_sandbox AS s ON s.sandbox_no = r.sandbox_no
     ORDER BY r.due_ms, r.sandbox_no"
        )
    };
}

/// The longest due first. The limit comes before the join, so that no more sandboxes are read than are due.
pub(crate) const DUE: &str = due!("due_ms <= $1 ORDER BY due_ms, sandbox_no LIMIT $2");

pub(super) fn read(rx: &mut Rx<'_>, now_ms: UnixMs, limit: i64) -> Result<Vec<Due>> {
    let due = rx.all(DUE, args![now_ms, limit])?;
    with_jobs(rx, due)
}

/// One of them.
pub(super) fn read_one(rx: &mut Rx<'_>, number: i64, now_ms: UnixMs) -> Result<Option<Due>> {
    let due = rx.all(due!("due_ms <= $1 AND sandbox_no = $2"), args![now_ms, number])?;
    Ok(with_jobs(rx, due)?.pop())
}

/// Fills in what is known of their jobs, each of which is read once, however many sandboxes it has.
fn with_jobs(rx: &mut Rx<'_>, mut due: Vec<Due>) -> Result<Vec<Due>> {
    const JOBS: Sql = Sql {
        lite:
            "SELECT job_id, expires_ms, last_activity_ms + idle_timeout_ms, max_spend - spent - held
               FROM hosting_job WHERE job_id = $1",
        pg:
            "SELECT job_id, expires_ms, last_activity_ms + idle_timeout_ms, max_spend - spent - held
             FROM hosting_job WHERE job_id = ANY ($1::text[])",
    };
    let ids: BTreeSet<&str> = due.iter().map(|due| due.job_id.as_str()).collect();
    let ids: Vec<&str> = ids.into_iter().collect();
    if ids.is_empty() {
        return Ok(due);
    }
    let jobs: Vec<(String, UnixMs, Option<UnixMs>, i64)> =
        rx.all_set(JOBS, &[Column::Texts(&ids)])?;
    let facts =
        |(job_id, expires_ms, idle_ms, left)| (job_id, JobFacts { expires_ms, idle_ms, left });
    let jobs: BTreeMap<String, JobFacts> = jobs.into_iter().map(facts).collect();
    // There is none without a job.
    due.retain_mut(|due| jobs.get(&due.job_id).map(|job| due.job = *job).is_some());
    Ok(due)
}

/// The rows of sandboxes whose next minute is paid, column by column.
#[derive(Default)]
pub(super) struct Paid<'a> {
    sandbox_no: Vec<i64>,
    paid_minutes: Vec<i64>,
    price: Vec<i64>,
    ends_ms: Vec<UnixMs>,
    due_ms: Vec<UnixMs>,
    /// Whose next shape has become the present one.
    reshaped: Vec<i64>,
    jobs: BTreeMap<&'a str, i64>,
}

impl<'a> Paid<'a> {
    pub(super) fn of(paid: &[&'a Due], now_ms: UnixMs) -> Paid<'a> {
        let mut this = Paid::default();
        for due in paid {
            let paid_until_ms = due.paid_until_ms().saturating_add(MINUTE_MS);
            let ends_ms = run_until(paid_until_ms, due.expires_ms, due.job.expires_ms);
            this.sandbox_no.push(due.sandbox_no);
            this.paid_minutes.push(due.paid_minutes);
            this.price.push(due.price);
            this.ends_ms.push(ends_ms);
            this.due_ms.push(due_before(ends_ms));
            if due.next_from_ms.is_some_and(|from_ms| from_ms <= now_ms) {
                this.reshaped.push(due.sandbox_no);
            }
            let spent = this.jobs.entry(&due.job_id).or_default();
            *spent = spent.saturating_add(due.price);
        }
        this
    }
}

/// Writes that minutes are paid. A row that is not as it was read is a bug: nothing of the batch is kept.
pub(super) fn write_paid(tx: &mut Tx<'_>, paid: &Paid<'_>) -> Result<()> {
    const PAID: Sql = Sql {
        lite: "UPDATE hosting_run SET paid_minutes = $2 + 1, spent = spent + $3, ends_ms = $4, due_ms = $5
               WHERE sandbox_no = $1 AND paid_minutes = $2",
        pg: "UPDATE hosting_run AS r SET paid_minutes = p.paid_minutes + 1, spent = r.spent + p.price,
               ends_ms = p.ends_ms, due_ms = p.due_ms
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
               AS p (sandbox_no, paid_minutes, price, ends_ms, due_ms)
             WHERE r.sandbox_no = p.sandbox_no AND r.paid_minutes = p.paid_minutes",
    };
    const SPENT: Sql = Sql {
        lite: "UPDATE hosting_job SET spent = spent + $2 WHERE job_id = $1",
        pg: "UPDATE hosting_job AS j SET spent = j.spent + p.units
             FROM unnest($1::text[], $2::bigint[]) AS p (job_id, units) WHERE j.job_id = p.job_id",
    };
    const RESHAPED: Sql = Sql {
        lite: "UPDATE hosting_sandbox SET cpu_milli = next_cpu_milli, ram_mib = next_ram_mib,
                 disk_mib = next_disk_mib, price = next_price, next_cpu_milli = NULL, next_ram_mib = NULL,
                 next_disk_mib = NULL, next_price = NULL, next_from_ms = NULL
               WHERE sandbox_no = $1 AND next_price IS NOT NULL",
        pg: "UPDATE hosting_sandbox SET cpu_milli = next_cpu_milli, ram_mib = next_ram_mib,
               disk_mib = next_disk_mib, price = next_price, next_cpu_milli = NULL, next_ram_mib = NULL,
               next_disk_mib = NULL, next_price = NULL, next_from_ms = NULL
             WHERE sandbox_no = ANY ($1::bigint[]) AND next_price IS NOT NULL",
    };
    if paid.sandbox_no.is_empty() {
        return Ok(());
    }
    let columns = [
        Column::Ints(&paid.sandbox_no),
        Column::Ints(&paid.paid_minutes),
        Column::Ints(&paid.price),
        Column::Ints(&paid.ends_ms),
        Column::Ints(&paid.due_ms),
    ];
    let written = tx.exec_set(PAID, &columns)?;
    if usize::try_from(written) != Ok(paid.sandbox_no.len()) {
        return Err(Error::Fenced.into());
    }
    let (jobs, spent): (Vec<&str>, Vec<i64>) = paid.jobs.iter().unzip();
    tx.exec_set(SPENT, &[Column::Texts(&jobs), Column::Ints(&spent)])?;
    if !paid.reshaped.is_empty() {
        tx.exec_set(RESHAPED, &[Column::Ints(&paid.reshaped)])?;
    }
    Ok(())
}

/// Those that cannot be paid yet are looked at again soon, and at the latest when they have to end.
pub(super) fn write_waiting(tx: &mut Tx<'_>, waiting: &[&Due], now_ms: UnixMs) -> Result<()> {
    const AGAIN: Sql = Sql {
        lite: "UPDATE hosting_run SET due_ms = $2 WHERE sandbox_no = $1",
        pg: "UPDATE hosting_run AS r SET due_ms = w.due_ms
             FROM unnest($1::bigint[], $2::bigint[]) AS w (sandbox_no, due_ms)
             WHERE r.sandbox_no = w.sandbox_no",
    };
    if waiting.is_empty() {
        return Ok(());
    }
    let again_ms = now_ms.saturating_add(RETRY_MS);
    let numbers: Vec<i64> = waiting.iter().map(|due| due.sandbox_no).collect();
    let due_ms: Vec<UnixMs> =
        waiting.iter().map(|due| again_ms.min(due.ends_ms().saturating_sub(GRACE_MS))).collect();
    tx.exec_set(AGAIN, &[Column::Ints(&numbers), Column::Ints(&due_ms)])?;
    Ok(())
}
