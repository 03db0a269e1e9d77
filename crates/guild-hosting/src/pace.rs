//! How fast money goes, and how long it lasts: what is shown beside every job and sandbox.
//!
//! A time that only looks at the clock lies to whoever runs out of money before. What is shown here is until when
//! everything goes on at least, if nothing changes: no deposit, no other sandbox, no extension. Idleness is left out,
//! because looking at a thing is no reason to believe that nobody will use it.

use std::collections::BTreeMap;

use guild_ledger::ledger;
use guild_protocol::env::UnixMs;
use guild_store::{Rx, args};

use crate::job::Job;
use crate::sandbox::{MINUTE_MS, Sandbox, Status};
use crate::{Result, UserId, money};

/// How fast the money of a user goes, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    /// What the account can spend.
    free: i64,
    /// What the next minute of everything costs that starts or runs.
    burn: i64,
    jobs: BTreeMap<String, JobPace>,
}

/// How fast the money of a job goes in which something starts or runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct JobPace {
    burn: i64,
    /// What its budget leaves.
    left: i64,
    expires_ms: UnixMs,
    /// When the first of its sandboxes needs another minute; not known while all of them start.
    paid_until_ms: Option<UnixMs>,
}

/// What is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Lasts {
    /// What the next minute costs, in micro-USD; nothing if there is none.
    pub(crate) burn: i64,
    /// How long it goes on at least, if nothing changes.
    pub(crate) lasts_ms: i64,
}

/// By the jobs that run, which are few, and not by all sandboxes that there ever were.
pub(crate) const PACE: &str =
    "SELECT j.job_id, CAST(sum(coalesce(s.next_price, s.price)) AS BIGINT), j.max_spend - j.spent - j.held,
       j.expires_ms, min(r.started_ms + 60000 * r.paid_minutes)
     FROM hosting_job AS j
       JOIN hosting_sandbox AS s ON s.job_id = j.job_id
       JOIN hosting_run AS r ON r.sandbox_no = s.sandbox_no
     WHERE j.user_id = $1 AND j.status = 'running' AND s.status IN ('starting', 'running')
     GROUP BY j.job_id, j.max_spend, j.spent, j.held, j.expires_ms";

impl Pace {
    /// That of this user.
    pub(crate) fn of(rx: &mut Rx<'_>, user_id: &UserId) -> Result<Pace> {
        type Row = (String, i64, i64, UnixMs, Option<UnixMs>);
        let rows: Vec<Row> = rx.all(PACE, args![user_id.as_str()])?;
        if rows.is_empty() {
            return Ok(Pace::default());
        }
        let account_id = money::account(user_id)?.account_id;
        let entry = ledger::entries(rx, &[account_id].into())?.into_values().next();
        let free = entry.map_or(0, |entry| entry.balance.free_units());
        let burn = rows.iter().fold(0_i64, |sum, row| sum.saturating_add(row.1));
        let job = |(job_id, burn, left, expires_ms, paid_until_ms): Row| {
            (job_id, JobPace { burn, left, expires_ms, paid_until_ms })
        };
        Ok(Pace { free, burn, jobs: rows.into_iter().map(job).collect() })
    }

    /// How many more minutes of everything the account pays.
    fn account_minutes(&self) -> i64 {
        minutes(self.free, self.burn)
    }

    /// Of a job.
    pub(crate) fn job(&self, job: &Job, now_ms: UnixMs) -> Lasts {
        if job.ended_ms.is_some() {
            return Lasts::default();
        }
        let Some(pace) = self.jobs.get(job.job_id.as_str()) else {
            return Lasts { burn: 0, lasts_ms: left(job.expires_ms, now_ms) };
        };
        let more = minutes(pace.left, pace.burn).min(self.account_minutes());
        let paid_ms = pace.paid_until_ms.unwrap_or(now_ms.saturating_add(MINUTE_MS));
        let until_ms = paid_for(paid_ms, more).min(job.expires_ms);
        Lasts { burn: pace.burn, lasts_ms: left(until_ms, now_ms) }
    }

    /// Of a sandbox.
    pub(crate) fn sandbox(&self, sandbox: &Sandbox, now_ms: UnixMs) -> Lasts {
        if sandbox.status == Status::Ending {
            // Its end is decided: nothing more is paid.
            let lasts_ms = sandbox.ends_ms.map_or(0, |ends_ms| left(ends_ms, now_ms));
            return Lasts { burn: 0, lasts_ms };
        }
        if !sandbox.status.is_live() {
            return Lasts::default();
        }
        let price = sandbox.next_price();
        // The first minute of what starts is held, and so is of no cap.
        let held = if sandbox.started_ms.is_none() { price } else { 0 };
        let cap_left = sandbox.cap.saturating_sub(sandbox.spent).saturating_sub(held);
        let paid_ms = sandbox.paid_until_ms().unwrap_or(now_ms.saturating_add(MINUTE_MS));
        let mut more = minutes(cap_left, price).min(self.account_minutes());
        let mut expires_ms = sandbox.expires_ms;
        if let Some(job) = self.jobs.get(sandbox.job_id.as_str()) {
            more = more.min(minutes(job.left, job.burn));
            expires_ms = expires_ms.min(job.expires_ms);
        }
        let until_ms = paid_for(paid_ms, more).min(expires_ms);
        Lasts { burn: price, lasts_ms: left(until_ms, now_ms) }
    }
}

/// Those of several users, each read once.
#[derive(Debug, Default)]
pub(crate) struct Paces(BTreeMap<String, Pace>);

impl Paces {
    /// That of this user.
    pub(crate) fn of(&mut self, rx: &mut Rx<'_>, user_id: &UserId) -> Result<&Pace> {
        if !self.0.contains_key(user_id.as_str()) {
            let pace = Pace::of(rx, user_id)?;
            self.0.insert(user_id.as_str().to_owned(), pace);
        }
        self.0.get(user_id.as_str()).ok_or_else(|| guild_store::Error::Panicked.into())
    }
}

/// How many minutes so much pays, at this price for each.
fn minutes(units: i64, price: i64) -> i64 {
    units.max(0).checked_div(price).unwrap_or(i64::MAX)
}

/// Until when it is paid, with so many minutes more.
fn paid_for(paid_until_ms: UnixMs, minutes: i64) -> UnixMs {
    paid_until_ms.saturating_add(minutes.saturating_mul(MINUTE_MS))
}

fn left(until_ms: UnixMs, now_ms: UnixMs) -> i64 {
    until_ms.saturating_sub(now_ms).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::row;

    const NOW: UnixMs = 1_000_000;

    /// A sandbox that has run for ten seconds of its first minute, for 908 a minute.
    fn running() -> Sandbox {
        Sandbox {
            status: Status::Running,
            started_ms: Some(NOW - 10_000),
            paid_minutes: 1,
            spent: 908,
            ends_ms: Some(NOW + 50_000),
            ..row()
        }
    }

    fn pace(free: i64, job_left: i64) -> Pace {
        let job = JobPace {
            burn: 908,
            left: job_left,
            expires_ms: 100_000_000,
            paid_until_ms: Some(NOW + 50_000),
        };
        Pace { free, burn: 908, jobs: [(row().job_id.to_string(), job)].into() }
    }

    #[test]
    fn whatever_ends_first_counts() {
        let much = 1_000_000_000;
        let lasts = |sandbox: &Sandbox, pace: &Pace| pace.sandbox(sandbox, NOW).lasts_ms;
        // One minute is paid, and fifty seconds of it are left.
        assert_eq!(lasts(&running(), &pace(907, much)), 50_000, "the account");
        assert_eq!(lasts(&running(), &pace(908, much)), 110_000);
        assert_eq!(lasts(&running(), &pace(much, 907)), 50_000, "the budget of the job");
        assert_eq!(lasts(&running(), &pace(much, 2 * 908)), 170_000);
        let capped = Sandbox { cap: 3 * 908, ..running() };
        assert_eq!(lasts(&capped, &pace(much, much)), 170_000, "its own cap");
        let short = Sandbox { expires_ms: NOW + 60_001, ..running() };
        assert_eq!(lasts(&short, &pace(much, much)), 60_001, "its time");
        let mut pressed = pace(much, much);
        pressed.jobs.values_mut().for_each(|job| job.expires_ms = NOW + 55_000);
        assert_eq!(lasts(&running(), &pressed), 55_000, "the time of its job");
        // Others spend the same money.
        let shared = Pace { burn: 10 * 908, ..pace(19 * 908, much) };
        assert_eq!(lasts(&running(), &shared), 110_000);
    }

    #[test]
    fn what_starts_has_its_first_minute_and_what_ends_has_no_other() {
        let starting = Sandbox { cap: 908, ..row() };
        let pace = pace(0, 0);
        assert_eq!(pace.sandbox(&starting, NOW), Lasts { burn: 908, lasts_ms: 60_000 });
        let ending = Sandbox { status: Status::Ending, ..running() };
        assert_eq!(pace.sandbox(&ending, NOW), Lasts { burn: 0, lasts_ms: 50_000 });
        for status in [Status::Stopped, Status::Failed, Status::Destroying, Status::Destroyed] {
            let over = Sandbox { status, ..running() };
            assert_eq!(pace.sandbox(&over, NOW), Lasts::default());
        }
    }
}
