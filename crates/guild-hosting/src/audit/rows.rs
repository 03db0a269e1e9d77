//! The rows, and whether they are what the history makes of them.

use std::collections::BTreeMap;

use guild_protocol::env::UnixMs;
use guild_store::{Rx, args};

use super::Report;
use super::walk::{Paid, Walk};
use crate::Result;
use crate::job;
use crate::sandbox::{self, MINUTE_MS, Reason, Sandbox, Status};

const PAGE: i64 = 1_000;

/// What an audit needs of a job.
pub(super) struct JobRow {
    status: job::Status,
    max_spend: i64,
    spent: i64,
    held: i64,
    expires_ms: UnixMs,
}

/// All rows, by their ids.
pub(super) struct Rows {
    pub(super) sandboxes: BTreeMap<String, Sandbox>,
    jobs: BTreeMap<String, JobRow>,
    /// Withdrawals: status and units.
    withdrawals: BTreeMap<String, (String, i64)>,
}

impl Rows {
    pub(super) fn read(rx: &mut Rx<'_>) -> Result<Rows> {
        let mut sandboxes = BTreeMap::new();
        let mut after = String::new();
        loop {
            let page = sandbox::all_after(rx, &after, PAGE)?;
            let Some(last) = page.last() else { break };
            last.sandbox_id.as_str().clone_into(&mut after);
            sandboxes.extend(page.into_iter().map(|row| (row.sandbox_id.to_string(), row)));
        }
        let withdrawals: Vec<(String, String, i64)> =
            rx.all("SELECT withdrawal_id, status, units FROM hosting_withdrawal", args![])?;
        Ok(Rows {
            sandboxes,
            jobs: read_jobs(rx)?,
            withdrawals: withdrawals
                .into_iter()
                .map(|(id, status, units)| (id, (status, units)))
                .collect(),
        })
    }

    /// Compares all of them with what the history says.
    pub(super) fn compare(&self, walk: &Walk<'_>, report: &mut Report) {
        for sandbox in self.sandboxes.values() {
            report.sandboxes = report.sandboxes.saturating_add(1);
            compare_sandbox(sandbox, walk, report);
            let job = self.jobs.get(sandbox.job_id.as_str());
            compare_end(sandbox, job.map(|job| job.expires_ms), report);
        }
        self.compare_jobs(walk, report);
        self.compare_withdrawals(walk, report);
    }

    fn compare_jobs(&self, walk: &Walk<'_>, report: &mut Report) {
        #[derive(Default)]
        struct Sum {
            spent: i64,
            held: i64,
            live: u64,
            /// Of those that its budget ended: the dearest next minute, and first minutes that were held until then.
            wanted: Option<i64>,
            given_back: i64,
        }
        let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
        for (id, sandbox) in &self.sandboxes {
            let sum = sums.entry(sandbox.job_id.as_str()).or_default();
            let spent = walk.paid.get(id.as_str()).map_or(0, |paid| paid.units);
            sum.spent = sum.spent.saturating_add(spent);
            sum.live = sum.live.saturating_add(u64::from(sandbox.status.is_live()));
            if sandbox.status == Status::Starting {
                sum.held = sum.held.saturating_add(sandbox.price);
            }
            if sandbox.stop_reason == Some(Reason::JobCap) {
                sum.wanted = sum.wanted.max(Some(sandbox.next_price()));
                if sandbox.started_ms.is_none() {
                    sum.given_back = sum.given_back.saturating_add(sandbox.price);
                }
            }
        }
        for (id, job) in &self.jobs {
            report.jobs = report.jobs.saturating_add(1);
            let sum = sums.remove(id.as_str()).unwrap_or_default();
            if job.spent != sum.spent {
                let (row, sum) = (job.spent, sum.spent);
                report.problem(format!("{id} has spent {row}, its transfers are {sum}"));
            }
            if job.held != sum.held {
                let (row, sum) = (job.held, sum.held);
                report.problem(format!("{id} holds {row}, what starts in it costs {sum}"));
            }
            if sum.spent.saturating_add(sum.held) > job.max_spend {
                let (spent, max) = (sum.spent.saturating_add(sum.held), job.max_spend);
                report.problem(format!("{id} has spent {spent} of a budget of {max}"));
            }
            // One of them wanted more than there was: all of them end then, and nothing is booked afterwards.
            let next = sum
                .wanted
                .map(|next| sum.spent.saturating_add(sum.given_back).saturating_add(next));
            if let Some(next) = next.filter(|next| *next <= job.max_spend) {
                let max = job.max_spend;
                report.problem(format!("{id} ended by its budget of {max}, which pays for {next}"));
            }
            if job.status != job::Status::Running && sum.live > 0 {
                report.problem(format!("{id} has ended, and {} of its sandboxes run", sum.live));
            }
        }
        for id in sums.keys() {
            report.problem(format!("{id} has sandboxes, and does not exist"));
        }
    }

    fn compare_withdrawals(&self, walk: &Walk<'_>, report: &mut Report) {
        for (id, (status, units)) in &self.withdrawals {
            let went_out = walk.went_out.get(id.as_str()).copied();
            let expected = (status == "confirmed").then_some(*units);
            if went_out != expected {
                let message =
                    format!("{id} over {units} is {status}, and {went_out:?} went out for it");
                report.problem(message);
            }
        }
        for id in walk.went_out.keys().filter(|id| !self.withdrawals.contains_key(*id)) {
            report.problem(format!("money went out for {id}, which does not exist"));
        }
    }
}

fn read_jobs(rx: &mut Rx<'_>) -> Result<BTreeMap<String, JobRow>> {
    type Row = (String, String, i64, i64, i64, UnixMs);
    let jobs: Vec<Row> = rx.all(
        "SELECT job_id, status, max_spend, spent, held, expires_ms FROM hosting_job",
        args![],
    )?;
    let row = |(id, status, max_spend, spent, held, expires_ms): Row| {
        let status = job::Status::parse(&status)
            .ok_or_else(|| crate::row::unreadable(format!("{id} is {status:?}")))?;
        Ok((id, JobRow { status, max_spend, spent, held, expires_ms }))
    };
    jobs.into_iter().map(row).collect()
}

fn compare_sandbox(sandbox: &Sandbox, walk: &Walk<'_>, report: &mut Report) {
    let id = &sandbox.sandbox_id;
    let paid = walk.paid.get(id.as_str()).copied().unwrap_or_default();
    if sandbox.spent != paid.units {
        let (row, sum) = (sandbox.spent, paid.units);
        report.problem(format!("{id} has spent {row}, its transfers are {sum}"));
    }
    if sandbox.paid_minutes != paid.minutes {
        let (row, sum) = (sandbox.paid_minutes, paid.minutes);
        report.problem(format!("{id} has {row} paid minutes, {sum} are booked"));
    }
    if paid.units > sandbox.cap {
        report.problem(format!("{id} has spent {} of a cap of {}", paid.units, sandbox.cap));
    }
    let paid_until_ms = sandbox
        .started_ms
        .map(|started_ms| started_ms.saturating_add(paid.minutes.saturating_mul(MINUTE_MS)));
    if let (Some(ends_ms), Some(paid_until_ms)) = (sandbox.ends_ms, paid_until_ms)
        && ends_ms > paid_until_ms
    {
        report.problem(format!("{id} may run until {ends_ms}, it is paid until {paid_until_ms}"));
    }
    compare_price(sandbox, &paid, report);
    compare_runs(sandbox, &paid, walk, report);
}

/// The last minute costs what the row says. What the minutes before it cost, the row does not say any more once it has
/// got another shape.
fn compare_price(sandbox: &Sandbox, paid: &Paid, report: &mut Report) {
    let (Some(started_ms), Some(last)) = (sandbox.started_ms, paid.last_price) else { return };
    let begins_ms =
        started_ms.saturating_add(paid.minutes.saturating_sub(1).saturating_mul(MINUTE_MS));
    let next = sandbox.next.filter(|next| next.from_ms <= begins_ms);
    let price = next.map_or(sandbox.price, |next| next.price);
    if last != price {
        let id = &sandbox.sandbox_id;
        report.problem(format!("the last minute of {id} is paid with {last}, it costs {price}"));
    }
}

/// It does not run beyond its time, nor that of its job; and it ended by its cap or its time when these were reached.
fn compare_end(sandbox: &Sandbox, job_expires_ms: Option<UnixMs>, report: &mut Report) {
    let id = &sandbox.sandbox_id;
    let expires_ms = job_expires_ms.unwrap_or(UnixMs::MAX).min(sandbox.expires_ms);
    if let (Some(ends_ms), Some(_)) = (sandbox.ends_ms, sandbox.started_ms)
        && ends_ms > expires_ms
    {
        report.problem(format!("{id} may run until {ends_ms}, its time is over at {expires_ms}"));
    }
    let next = sandbox.spent.saturating_add(sandbox.next_price());
    match sandbox.stop_reason {
        Some(Reason::SandboxCap) if next <= sandbox.cap => {
            let cap = sandbox.cap;
            report.problem(format!("{id} ended by its cap of {cap}, which pays for {next}"));
        }
        Some(Reason::SandboxTtl)
            if sandbox.paid_until_ms().is_some_and(|paid_ms| paid_ms < sandbox.expires_ms) =>
        {
            let until_ms = sandbox.expires_ms;
            report.problem(format!("{id} ended by its time, which is over at {until_ms}"));
        }
        _ => {}
    }
}

/// What ran is paid; what is not paid is borne by us, at a price that was paid for it, or more: a loss is booked at the
/// price of the moment, and never taken back when another minute is paid.
fn compare_runs(sandbox: &Sandbox, paid: &Paid, walk: &Walk<'_>, report: &mut Report) {
    let id = &sandbox.sandbox_id;
    let lost_units = walk.lost.get(id.as_str()).copied().unwrap_or(0);
    if sandbox.lost_units != lost_units {
        let row = sandbox.lost_units;
        report.problem(format!("{id} lost {row}, its transfers are {lost_units}"));
    }
    let unpaid_ms = sandbox.ran_ms.saturating_sub(paid.minutes.saturating_mul(MINUTE_MS)).max(0);
    report.overrun_ms = report.overrun_ms.saturating_add(unpaid_ms);
    report.lost_units = report.lost_units.saturating_add(lost_units);
    let least = least_loss(paid.least_price.unwrap_or(sandbox.price), unpaid_ms);
    if lost_units < least {
        report.problem(format!(
            "{id} ran {unpaid_ms} ms that nobody has paid: {lost_units} are booked as lost, not {least}"
        ));
    }
}

/// What so much time costs at least, rounded up.
fn least_loss(price: i64, unpaid_ms: i64) -> i64 {
    let minute = i128::from(MINUTE_MS);
    let units = i128::from(price).saturating_mul(i128::from(unpaid_ms));
    let units = units.saturating_add(minute.saturating_sub(1)).checked_div(minute).unwrap_or(0);
    i64::try_from(units).unwrap_or(i64::MAX)
}
