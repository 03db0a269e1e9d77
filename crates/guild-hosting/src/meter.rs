//! The meter: each minute is paid before it begins, or the sandbox ends when what is paid is over.
//!
//! A running sandbox is looked at [`LEAD_MS`] before its end. [`decide`] says, purely, whether its next minute is
//! bought. What cannot be paid is tried again, every [`RETRY_MS`], until [`GRACE_MS`] before the end: a deposit or an
//! extension may still come. Nothing is bought later than [`LAST_MS`] before the end: whoever paid then would find the
//! lease over before it is renewed. Then it ends, for the first reason in this order: its time, its idleness, the time
//! and the idleness of its job, its cap, the budget of its job, the account. A job that is over ends all its sandboxes
//! at once.
//!
//! What lies behind is never billed: a sandbox that nobody metered in time has lost its lease, and ends. Two meters at
//! once are harmless: a minute is one transfer with one id, and each write finds the row as it read it or not at all.
//!
//! A batch is one transaction: if it fails, whoever calls goes through it [piece](Piece) by piece, and sets aside what
//! fails by itself again and again.

use std::collections::{BTreeMap, BTreeSet};

use guild_ledger::book::Entry;
use guild_ledger::{AccountId, NewTransfer, Step, TransferId, ledger};
use guild_protocol::env::UnixMs;
use guild_store::Tx;

use crate::job::{self, Job, Status};
use crate::sandbox::{self, Ends, MINUTE_MS, Reason};
use crate::{HostingJobId, Result, SandboxId, UserId, money};

mod clock;
mod decide;
mod due;
mod piece;

pub(crate) use clock::believed;
pub use clock::{BACK_MAX_MS, JUMP_MAX_MS, Seen, Sight, accept_clock, seen, sight};
pub use decide::{Decision, Facts, decide};
use due::{Due, Paid};
pub use piece::{Piece, pieces, set_aside, tick_one};

#[cfg(test)]
pub(crate) use due::DUE;

/// So long before its end a sandbox is looked at.
pub const LEAD_MS: i64 = 20_000;
/// So long before its end what cannot be paid is given up: the stop must come in time.
pub const GRACE_MS: i64 = 3_000;
/// So long before its end a minute is bought at the latest. A lease ends a second before what is paid, and it takes a
/// moment to say that it goes on: a minute bought later would be paid and not run.
pub const LAST_MS: i64 = 2_000;
/// So often what cannot be paid is tried again.
pub const RETRY_MS: i64 = 1_000;
/// More jobs than these are not ended in one transaction: each may have many sandboxes.
const JOBS_MAX: i64 = 20;
/// More sandboxes than these are not looked at in one transaction, whatever is asked for.
pub const BATCH_MAX: i64 = 10_000;

/// What a tick did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticked {
    /// What it saw of the clock. Unless that is steady, it did nothing else.
    pub clock: Sight,
    /// Minutes that were paid.
    pub paid: u64,
    /// Sandboxes that cannot be paid yet.
    pub waiting: u64,
    /// Sandboxes that end.
    pub ended: u64,
    /// Sandboxes that did not start in time.
    pub not_started: u64,
    /// Sandboxes whose files were kept long enough.
    pub forgotten: u64,
    /// Jobs that ended.
    pub jobs_ended: u64,
    /// Whether there may be more to do at once.
    pub more: bool,
}

impl Ticked {
    fn new(clock: Sight) -> Ticked {
        Ticked {
            clock,
            paid: 0,
            waiting: 0,
            ended: 0,
            not_started: 0,
            forgotten: 0,
            jobs_ended: 0,
            more: false,
        }
    }
}

/// Looks at the jobs and sandboxes that are due, at most `limit` of these (and [`BATCH_MAX`]), in a few statements
/// whatever their number. To be called again at once while there is [more](Ticked::more).
pub fn tick(tx: &mut Tx<'_>, now_ms: UnixMs, limit: i64) -> Result<Ticked> {
    let (clock, now_ms) = clock::look(tx, now_ms)?;
    let mut ticked = Ticked::new(clock);
    let Some(now_ms) = now_ms else { return Ok(ticked) };
    end_due_jobs(tx, now_ms, &mut ticked)?;
    let limit = limit.clamp(1, BATCH_MAX);
    let due = due::read(tx, now_ms, limit)?;
    ticked.more |= due.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
    let (running, others): (Vec<Due>, Vec<Due>) =
        due.into_iter().partition(|due| due.status == sandbox::Status::Running);
    meter(tx, &running, now_ms, &mut ticked)?;
    for other in others {
        sweep(tx, &other, now_ms, &mut ticked)?;
    }
    if !ticked.more {
        money::forget_quotes(tx, now_ms.saturating_sub(money::QUOTE_KEPT_MS), limit)?;
    }
    Ok(ticked)
}

/// Jobs whose time or idleness is reached end, with all their sandboxes.
fn end_due_jobs(tx: &mut Tx<'_>, now_ms: UnixMs, ticked: &mut Ticked) -> Result<()> {
    let jobs = job::due(tx, now_ms, JOBS_MAX)?;
    ticked.more |= jobs.len() >= usize::try_from(JOBS_MAX).unwrap_or(usize::MAX);
    jobs.iter().try_for_each(|job| end_due(tx, job, now_ms, ticked))
}

fn end_due(tx: &mut Tx<'_>, job: &Job, now_ms: UnixMs, ticked: &mut Ticked) -> Result<()> {
    let (status, reason) = match job.expires_ms <= now_ms {
        true => (Status::Expired, Reason::JobTtl),
        false => (Status::Idle, Reason::JobIdle),
    };
    finish(tx, &job.job_id, status, reason, now_ms, ticked)
}

fn finish(
    tx: &mut Tx<'_>,
    job_id: &HostingJobId,
    status: Status,
    reason: Reason,
    now_ms: UnixMs,
    ticked: &mut Ticked,
) -> Result<()> {
    let ended = job::finish(tx, job_id, status, reason, Ends::AsPaid, now_ms)?;
    ticked.jobs_ended = ticked.jobs_ended.saturating_add(1);
    ticked.ended = ticked.ended.saturating_add(u64::try_from(ended).unwrap_or(0));
    Ok(())
}

/// What is due but does not run.
fn sweep(tx: &mut Tx<'_>, due: &Due, now_ms: UnixMs, ticked: &mut Ticked) -> Result<()> {
    let sandbox_id: SandboxId = due.sandbox_id.parse()?;
    // Its job may have ended in this very tick, and the sandbox with it.
    let sandbox = sandbox::known(tx, &sandbox_id)?;
    match sandbox.status {
        sandbox::Status::Starting => {
            sandbox::failed(tx, &sandbox_id, "it did not start in time", now_ms)?;
            ticked.not_started = ticked.not_started.saturating_add(1);
        }
        sandbox::Status::Stopped => {
            sandbox::forget(tx, &sandbox, now_ms)?;
            ticked.forgotten = ticked.forgotten.saturating_add(1);
        }
        _ => {}
    }
    Ok(())
}

/// Decides about running sandboxes that are due, in their order, and writes what was decided.
fn meter(tx: &mut Tx<'_>, due: &[Due], now_ms: UnixMs, ticked: &mut Ticked) -> Result<()> {
    if due.is_empty() {
        return Ok(());
    }
    let mut purses = Purses::load(tx, due)?;
    let mut decided = Decided::default();
    let mut chains = Vec::new();
    for due in due {
        match purses.decide(due, now_ms) {
            Decision::Pay => {
                chains.push(vec![purses.minute(due)?]);
                decided.paid.push(due);
            }
            Decision::Wait(_) => decided.waiting.push(due),
            Decision::End(reason) => decided.ended.push((due, reason)),
            Decision::Early => {}
        }
    }
    let outcomes = ledger::book_known(tx, purses.entries, &chains, now_ms)?;
    decided.take_outcomes(&outcomes, now_ms);
    decided.write(tx, now_ms, ticked)
}

/// What accounts and jobs have left while a batch is decided.
struct Purses<'a> {
    users: BTreeMap<&'a str, (AccountId, i64)>,
    jobs: BTreeMap<&'a str, i64>,
    /// Jobs that end in this batch: their other sandboxes end with them.
    over: BTreeSet<&'a str>,
    revenue: AccountId,
    /// The accounts as they were read.
    entries: BTreeMap<AccountId, Entry>,
}

impl<'a> Purses<'a> {
    fn load(tx: &mut Tx<'_>, due: &'a [Due]) -> Result<Purses<'a>> {
        let mut users: BTreeMap<&str, (AccountId, i64)> = BTreeMap::new();
        let mut jobs = BTreeMap::new();
        for due in due {
            jobs.entry(due.job_id.as_str()).or_insert(due.job_left());
            if !users.contains_key(due.user_id.as_str()) {
                let user_id: UserId = due.user_id.parse()?;
                users.insert(&due.user_id, (money::account(&user_id)?.account_id, 0));
            }
        }
        let revenue = money::revenue()?.account_id;
        let accounts = users.values().map(|(account_id, _)| account_id.clone());
        let ids = accounts.chain([revenue.clone()]).collect();
        let entries = ledger::entries(tx, &ids)?;
        for (account_id, free) in users.values_mut() {
            *free = entries.get(account_id).map_or(0, |entry| entry.balance.free_units());
        }
        Ok(Purses { users, jobs, over: BTreeSet::new(), revenue, entries })
    }

    /// What becomes of a sandbox. What it pays is no longer there for the next.
    fn decide(&mut self, due: &'a Due, now_ms: UnixMs) -> Decision {
        let job_id = due.job_id.as_str();
        if self.over.contains(job_id) {
            return Decision::Early;
        }
        let job_left = self.jobs.get(job_id).copied().unwrap_or(0);
        let free = self.users.get(due.user_id.as_str()).map_or(0, |(_, free)| *free);
        let decision = decide(&due.facts(now_ms, job_left, free));
        match decision {
            Decision::Pay => {
                if let Some(left) = self.jobs.get_mut(job_id) {
                    *left = left.saturating_sub(due.price);
                }
                if let Some((_, free)) = self.users.get_mut(due.user_id.as_str()) {
                    *free = free.saturating_sub(due.price);
                }
            }
            Decision::End(reason) if job_end(reason).is_some() => {
                self.over.insert(job_id);
            }
            _ => {}
        }
        decision
    }

    /// The transfer that pays the next minute of a sandbox.
    fn minute(&self, due: &Due) -> Result<NewTransfer> {
        let number = due.paid_minutes.to_string();
        let words = sandbox::minute_words(&due.sandbox_id, &number);
        let debit = self.users.get(due.user_id.as_str()).map(|(account_id, _)| account_id.clone());
        let step = Step::Post {
            debit: debit.ok_or(guild_store::Error::Panicked)?,
            credit: self.revenue.clone(),
            amount: money::usd(due.price),
        };
        let transfer_id = TransferId::named(due.paid_until_ms(), &words);
        Ok(NewTransfer::new(transfer_id, step, &words.join(" "))?)
    }
}

/// What a job becomes when one of its sandboxes ends for this reason.
fn job_end(reason: Reason) -> Option<Status> {
    match reason {
        Reason::JobTtl => Some(Status::Expired),
        Reason::JobIdle => Some(Status::Idle),
        Reason::JobCap => Some(Status::StoppedDueToBudget),
        _ => None,
    }
}

/// What was decided about a batch.
#[derive(Default)]
struct Decided<'a> {
    paid: Vec<&'a Due>,
    waiting: Vec<&'a Due>,
    ended: Vec<(&'a Due, Reason)>,
}

impl<'a> Decided<'a> {
    /// The ledger has the last word. It refuses only if something else is wrong with an account.
    fn take_outcomes<T>(&mut self, outcomes: &[guild_ledger::Result<T>], now_ms: UnixMs) {
        let tried = std::mem::take(&mut self.paid);
        for (due, outcome) in tried.into_iter().zip(outcomes) {
            match outcome {
                Ok(_) => self.paid.push(due),
                Err(_) if now_ms < due.ends_ms().saturating_sub(GRACE_MS) => self.waiting.push(due),
                Err(_) => self.ended.push((due, Reason::Account)),
            }
        }
    }

    fn write(self, tx: &mut Tx<'_>, now_ms: UnixMs, ticked: &mut Ticked) -> Result<()> {
        let count = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
        due::write_paid(tx, &Paid::of(&self.paid, now_ms))?;
        due::write_waiting(tx, &self.waiting, now_ms)?;
        ticked.paid = ticked.paid.saturating_add(count(self.paid.len()));
        ticked.waiting = ticked.waiting.saturating_add(count(self.waiting.len()));
        self.write_ended(tx, now_ms, ticked)
    }

    fn write_ended(self, tx: &mut Tx<'_>, now_ms: UnixMs, ticked: &mut Ticked) -> Result<()> {
        if self.ended.is_empty() {
            return Ok(());
        }
        let alone = self.ended.iter().filter(|(_, reason)| job_end(*reason).is_none());
        let reasons: BTreeMap<&str, Reason> =
            alone.map(|(due, reason)| (due.sandbox_id.as_str(), *reason)).collect();
        let ids: Vec<&str> = reasons.keys().copied().collect();
        let sandboxes = sandbox::with_ids(tx, &ids)?;
        let ending = sandboxes.iter().filter_map(|sandbox| {
            reasons.get(sandbox.sandbox_id.as_str()).map(|reason| (sandbox, *reason))
        });
        sandbox::end_all(tx, ending, Ends::AsPaid, now_ms)?;
        ticked.ended =
            ticked.ended.saturating_add(u64::try_from(sandboxes.len()).unwrap_or(u64::MAX));
        for (due, reason) in &self.ended {
            if let Some(status) = job_end(*reason) {
                finish(tx, &due.job_id.parse()?, status, *reason, now_ms, ticked)?;
            }
        }
        // A job whose last sandbox could not be paid from the account has nothing left to run.
        let unpaid = self.ended.iter().filter(|(_, reason)| *reason == Reason::Account);
        let jobs: BTreeSet<&str> = unpaid.map(|(due, _)| due.job_id.as_str()).collect();
        for job_id in jobs {
            let job_id: HostingJobId = job_id.parse()?;
            let runs = job::find(tx, &job_id)?.is_some_and(|job| job.status == Status::Running);
            if runs && sandbox::count_live(tx, &job_id)? == 0 {
                let status = Status::StoppedDueToBalance;
                finish(tx, &job_id, status, Reason::Account, now_ms, ticked)?;
            }
        }
        Ok(())
    }
}

/// When the minute begins that is not paid yet.
fn paid_until(started_ms: UnixMs, paid_minutes: i64) -> UnixMs {
    started_ms.saturating_add(paid_minutes.saturating_mul(MINUTE_MS))
}
