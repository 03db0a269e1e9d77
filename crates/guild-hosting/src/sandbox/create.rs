//! Ordering a sandbox: what is granted, and the first minute held.

use guild_ledger::{NewTransfer, Step};
use guild_protocol::env::UnixMs;
use guild_store::{Tx, args};

use super::{MINUTE_MS, START_MAX_MS, Sandbox, SandboxId, count_live, find, get, hold_id, told};
use crate::clamp::{
    self, Answer, Extend, Granted, Policy, check_idle, check_spend, check_text, check_time,
    ends_after,
};
use crate::error::code;
use crate::event::tell;
use crate::job::{self, Job};
use crate::money::{self, Buys, HostingQuoteId, Quote};
use crate::price::{self, Shape};
use crate::{Error, HostingJobId, Result, UserId};

/// How the memory of a sandbox is kept from its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecurityMode {
    /// Not at all.
    Standard,
    /// By the processor. Not offered yet.
    Confidential,
}

impl SecurityMode {
    /// The mode of this word.
    pub fn parse(word: &str) -> Option<SecurityMode> {
        match word {
            "standard" => Some(SecurityMode::Standard),
            "confidential" => Some(SecurityMode::Confidential),
            _ => None,
        }
    }
}

/// A sandbox that somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSandbox {
    /// Made by the caller, so that asking again is asking for the same sandbox.
    pub sandbox_id: SandboxId,
    /// Made by the caller, for the quote that is given if the account does not pay for the first minute.
    pub quote_id: HostingQuoteId,
    /// The job that pays.
    pub job_id: HostingJobId,
    /// Whose it is.
    pub user_id: UserId,
    /// How large it is.
    pub shape: Shape,
    /// What it may spend, in micro-USD.
    pub cap: i64,
    /// For how long.
    pub ttl_ms: i64,
    /// After how long without use it ends.
    pub idle_timeout_ms: Option<i64>,
    /// Its image, by version. Whether it is on the list is the caller's to check.
    pub image: String,
    /// What that version is now.
    pub image_digest: String,
    /// How its memory is kept from its host.
    pub security_mode: SecurityMode,
    /// What it shall run on.
    pub machine: String,
}

/// What became of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placed {
    /// It starts; or did so before, if it was asked for again.
    Starting(Box<Sandbox>, Granted),
    /// The account does not pay for the first minute. Nothing is held; this is what is missing.
    Quoted(Quote),
}

/// Orders a sandbox: the first minute is held in this transaction, or nothing is.
pub fn create(
    tx: &mut Tx<'_>,
    new: &NewSandbox,
    policy: &Policy,
    now_ms: UnixMs,
) -> Result<Placed> {
    if let Some(known) = find(tx, &new.sandbox_id)? {
        return match known.user_id == new.user_id && known.job_id == new.job_id {
            true => Ok(Placed::Starting(Box::new(known.clone()), known.answer.granted)),
            false => Err(Error::refused(&code::ID_TAKEN, format!("{} is taken", new.sandbox_id))),
        };
    }
    let job = job::get(tx, &new.user_id, &new.job_id)?;
    job::check_running(&job, now_ms)?;
    let expires_ms = check(tx, new, policy, now_ms)?;
    let price = price::per_minute(&policy.rates, &new.shape)?;
    let granted = grant(new, &job, policy, price, expires_ms, now_ms)?;
    if let Some(quote) = hold(tx, new, &granted, price, now_ms)? {
        return Ok(Placed::Quoted(quote));
    }
    insert(tx, new, &granted, price, now_ms)?;
    job::spend(tx, &job.job_id, price, 0)?;
    job::touch(tx, &job.job_id, now_ms)?;
    let sandbox = get(tx, &new.user_id, &new.sandbox_id)?;
    tell(tx, &[told(&sandbox)], now_ms)?;
    Ok(Placed::Starting(Box::new(sandbox), granted))
}

/// Refuses what cannot be meant or is not offered; when it would end.
fn check(tx: &mut Tx<'_>, new: &NewSandbox, policy: &Policy, now_ms: UnixMs) -> Result<UnixMs> {
    if new.security_mode == SecurityMode::Confidential {
        return Err(Error::refused(&code::NOT_ENABLED, "confidential sandboxes are not enabled"));
    }
    policy.check_shape(&new.shape)?;
    check_spend(new.cap)?;
    check_idle(new.idle_timeout_ms)?;
    check_text("image", &new.image, 200)?;
    check_text("image_digest", &new.image_digest, 200)?;
    check_text("machine", &new.machine, 100)?;
    check_time("now", now_ms)?;
    let live = count_live(tx, &new.job_id)?;
    if live >= policy.sandboxes_max {
        let message = format!("{live} sandboxes of the job run, {} may", policy.sandboxes_max);
        return Err(Error::refused(&code::TOO_MANY, message));
    }
    ends_after(now_ms, new.ttl_ms)
}

fn grant(
    new: &NewSandbox,
    job: &Job,
    policy: &Policy,
    price: i64,
    expires_ms: UnixMs,
    now_ms: UnixMs,
) -> Result<Granted> {
    let granted = Granted {
        spend: clamp::clamp(new.cap, policy.sandbox_cap_max, Some(job.left())),
        expires_ms: clamp::clamp(
            expires_ms,
            now_ms.saturating_add(policy.sandbox_ttl_max_ms),
            Some(job.expires_ms),
        ),
    };
    if granted.spend.granted < price {
        let message = format!("a minute costs {price}, {} may be spent", granted.spend.granted);
        return Err(Error::refused(&code::BUDGET, message));
    }
    Ok(granted)
}

/// Holds the first minute; a quote if the account has not so much.
fn hold(
    tx: &mut Tx<'_>,
    new: &NewSandbox,
    granted: &Granted,
    price: i64,
    now_ms: UnixMs,
) -> Result<Option<Quote>> {
    let (from, to) = (money::open(tx, &new.user_id, now_ms)?, money::open_revenue(tx, now_ms)?);
    let step = Step::Hold {
        debit: from,
        credit: to,
        amount: money::usd(price),
        // Long after it counts as not started, so that the meter is the one that gives it back.
        expires_ms: now_ms.saturating_add(START_MAX_MS.saturating_mul(2)),
    };
    let memo = format!("sandbox.hold {}", new.sandbox_id);
    let hold = NewTransfer::new(hold_id(&new.sandbox_id, now_ms), step, &memo)?;
    match money::book_one(tx, hold, now_ms)? {
        Ok(_) => Ok(None),
        Err(refused) if refused.code() == &guild_ledger::code::OVERDRAFT => {
            let runs_ms = granted.expires_ms.granted.saturating_sub(now_ms);
            let minutes = minutes_bought(price, granted.spend.granted, runs_ms);
            let buys = Buys { shape: new.shape, price, minutes };
            money::quote(tx, &new.quote_id, &new.user_id, &buys, now_ms).map(Some)
        }
        Err(refused) => Err(refused.into()),
    }
}

/// How many minutes a quote is about: an hour, or what cap and time allow; at least the first.
pub(super) fn minutes_bought(price: i64, cap: i64, runs_ms: i64) -> i64 {
    const HOUR: i64 = 60;
    let by_cap = cap.checked_div(price).unwrap_or(1);
    let by_time = runs_ms.saturating_add(MINUTE_MS.saturating_sub(1)).checked_div(MINUTE_MS);
    HOUR.min(by_cap).min(by_time.unwrap_or(1)).max(1)
}

fn insert(
    tx: &mut Tx<'_>,
    new: &NewSandbox,
    granted: &Granted,
    price: i64,
    now_ms: UnixMs,
) -> Result<()> {
    let asked = Extend {
        version: 0,
        spend: Some(new.cap),
        expires_ms: Some(granted.expires_ms.requested),
        idle_timeout_ms: new.idle_timeout_ms,
    };
    let next: Option<(i64,)> =
        tx.first("SELECT coalesce(max(sandbox_no), 0) + 1 FROM hosting_sandbox", args![])?;
    let sandbox_no = next.map_or(1, |(next,)| next);
    tx.exec(
        "INSERT INTO hosting_sandbox (sandbox_no, sandbox_id, job_id, user_id, status, cpu_milli, ram_mib, disk_mib,
           price, created_ms, expires_ms, idle_timeout_ms, last_activity_ms, image, image_digest, security_mode,
           machine, answer)
         VALUES ($1, $2, $3, $4, 'starting', $5, $6, $7, $8, $9, $10, $11, $9, $12, $13, 'standard', $14, $15)",
        args![
            sandbox_no,
            new.sandbox_id.as_str(),
            new.job_id.as_str(),
            new.user_id.as_str(),
            new.shape.cpu_milli,
            new.shape.ram_mib,
            new.shape.disk_mib,
            price,
            now_ms,
            granted.expires_ms.granted,
            new.idle_timeout_ms,
            &new.image,
            &new.image_digest,
            &new.machine,
            &Answer { asked, granted: *granted }.to_text()?
        ],
    )?;
    tx.exec(
        "INSERT INTO hosting_run (sandbox_no, cap, due_ms) VALUES ($1, $2, $3)",
        args![sandbox_no, granted.spend.granted, now_ms.saturating_add(START_MAX_MS)],
    )?;
    Ok(())
}
