//! What whoever drives the machines tells: a sandbox has started, failed, stopped, is gone, or ran so long.

use guild_ledger::{NewTransfer, Step, TransferId};
use guild_protocol::env::UnixMs;
use guild_store::{Tx, args};

use super::{
    MINUTE_MS, Reason, START_MAX_MS, Sandbox, SandboxId, Status, give_back, hold_id, told,
};
use super::{due_before, known, run_until, set_run, start_id};
use crate::clamp::{check_text, check_time};
use crate::error::code;
use crate::event::tell;
use crate::{Error, Result, job, money};

const WORDS_MAX_BYTES: usize = 1_000;
/// For how long the files of a sandbox are kept at least, once it has stopped.
pub const KEEP_MS: i64 = 3_600_000;
/// By how much an agent's clock may differ from ours.
const SKEW_MS: i64 = 60_000;

/// Notes what a machine calls the sandbox it makes, before it is ready.
pub fn placed(tx: &mut Tx<'_>, sandbox_id: &SandboxId, instance: &str) -> Result<Sandbox> {
    check_text("instance", instance, 200)?;
    let sandbox = known(tx, sandbox_id)?;
    expect(&sandbox, &[Status::Starting])?;
    tx.cas(
        "UPDATE hosting_sandbox SET instance = $2 WHERE sandbox_id = $1 AND status = 'starting'",
        args![sandbox_id.as_str(), instance],
    )?;
    known(tx, sandbox_id)
}

/// The machine is ready and its agent answers: the first minute is paid and begins now. Only after this has been
/// committed a lease may be signed. The same again changes nothing; a sandbox that has ended meanwhile, or is too late,
/// is refused.
pub fn started(
    tx: &mut Tx<'_>,
    sandbox_id: &SandboxId,
    endpoint: &str,
    agent_key: &str,
    now_ms: UnixMs,
) -> Result<Sandbox> {
    let sandbox = known(tx, sandbox_id)?;
    let same = |known: &Option<String>, text| known.as_deref() == Some(text);
    if sandbox.status == Status::Running
        && same(&sandbox.endpoint, endpoint)
        && same(&sandbox.agent_key, agent_key)
    {
        return Ok(sandbox);
    }
    expect(&sandbox, &[Status::Starting])?;
    check_text("endpoint", endpoint, 500)?;
    check_text("agent_key", agent_key, 200)?;
    check_time("now", now_ms)?;
    let job = job::find(tx, &sandbox.job_id)?.ok_or(guild_store::Error::Panicked)?;
    let latest_ms = sandbox.created_ms.saturating_add(START_MAX_MS);
    let latest_ms = latest_ms.min(sandbox.expires_ms).min(job.expires_ms);
    if now_ms >= latest_ms {
        let message = format!("{sandbox_id} had to start before {latest_ms}");
        return Err(Error::refused(&code::SANDBOX_ENDED, message));
    }
    settle_first(tx, &sandbox, now_ms)?;
    let paid_until_ms = now_ms.saturating_add(MINUTE_MS);
    let ends_ms = run_until(paid_until_ms, sandbox.expires_ms, job.expires_ms);
    tx.cas(
        "UPDATE hosting_sandbox SET status = 'running', endpoint = $2, agent_key = $3, last_activity_ms = $4,
           version = version + 1
         WHERE sandbox_id = $1 AND status = 'starting'",
        args![sandbox_id.as_str(), endpoint, agent_key, now_ms],
    )?;
    tx.cas(
        "UPDATE hosting_run SET started_ms = $2, paid_minutes = 1, spent = $3, ends_ms = $4, due_ms = $5
         WHERE sandbox_no = $1 AND paid_minutes = 0",
        args![sandbox.sandbox_no, now_ms, sandbox.price, ends_ms, due_before(ends_ms)],
    )?;
    job::spend(tx, &job.job_id, sandbox.price.saturating_neg(), sandbox.price)?;
    job::touch(tx, &job.job_id, now_ms)?;
    changed(tx, sandbox_id, now_ms)
}

/// Minute 0: what was held becomes ours.
fn settle_first(tx: &mut Tx<'_>, sandbox: &Sandbox, now_ms: UnixMs) -> Result<()> {
    let (id, created_ms) = (&sandbox.sandbox_id, sandbox.created_ms);
    let settle = start_id(id, created_ms);
    let step = Step::Settle { hold: hold_id(id, created_ms), units: None };
    let settle = NewTransfer::new(settle, step, &format!("sandbox.minute {id} 0"))?;
    money::book_one(tx, settle, now_ms)??;
    Ok(())
}

/// It could not be started, or its machine is lost: nothing is paid from now on, and what was held for a first minute
/// is given back. The same again changes nothing.
pub fn failed(
    tx: &mut Tx<'_>,
    sandbox_id: &SandboxId,
    words: &str,
    now_ms: UnixMs,
) -> Result<Sandbox> {
    let sandbox = known(tx, sandbox_id)?;
    if sandbox.status == Status::Failed {
        return Ok(sandbox);
    }
    expect(&sandbox, &[Status::Starting, Status::Running, Status::Ending])?;
    let reason = match sandbox.started_ms {
        None => Reason::NotStarted,
        Some(_) => Reason::Machine,
    };
    if sandbox.status == Status::Starting {
        give_back(tx, &[&sandbox], now_ms)?;
    }
    // A sandbox that was ending keeps the reason for which it ended.
    let reason = sandbox.stop_reason.unwrap_or(reason);
    let ends_ms = sandbox.ends_ms.map(|ends_ms| ends_ms.min(now_ms));
    tx.cas(
        "UPDATE hosting_sandbox SET status = 'failed', stop_reason = $2, words = $3, version = version + 1
         WHERE sandbox_id = $1 AND status IN ('starting', 'running', 'ending')",
        args![sandbox_id.as_str(), reason.as_str(), &shown(words)],
    )?;
    set_run(tx, &sandbox, ends_ms, None)?;
    changed(tx, sandbox_id, now_ms)
}

/// It has stopped, after having run so long. A sandbox that ran is meant to have been ending; one that stopped by
/// itself, because its lease ran out or its agent was killed, ended by its machine. The same again changes nothing.
pub fn stopped(
    tx: &mut Tx<'_>,
    sandbox_id: &SandboxId,
    ran_ms: Option<i64>,
    now_ms: UnixMs,
) -> Result<Sandbox> {
    if let Some(ran_ms) = ran_ms {
        reported(tx, sandbox_id, ran_ms, now_ms)?;
    }
    let sandbox = known(tx, sandbox_id)?;
    if matches!(sandbox.status, Status::Stopped | Status::Destroying | Status::Destroyed) {
        return Ok(sandbox);
    }
    expect(&sandbox, &[Status::Running, Status::Ending])?;
    let reason = sandbox.stop_reason.unwrap_or(Reason::Machine);
    let ends_ms = sandbox.ends_ms.map_or(now_ms, |ends_ms| ends_ms.min(now_ms));
    let keep_until_ms = sandbox.expires_ms.max(now_ms.saturating_add(KEEP_MS));
    tx.cas(
        "UPDATE hosting_sandbox SET status = 'stopped', stop_reason = $2, version = version + 1
         WHERE sandbox_id = $1 AND status IN ('running', 'ending')",
        args![sandbox_id.as_str(), reason.as_str()],
    )?;
    set_run(tx, &sandbox, Some(ends_ms), Some(keep_until_ms))?;
    changed(tx, sandbox_id, now_ms)
}

/// Nothing is left of it. The same again changes nothing.
pub fn destroyed(
    tx: &mut Tx<'_>,
    sandbox_id: &SandboxId,
    ran_ms: Option<i64>,
    now_ms: UnixMs,
) -> Result<Sandbox> {
    if let Some(ran_ms) = ran_ms {
        reported(tx, sandbox_id, ran_ms, now_ms)?;
    }
    let sandbox = known(tx, sandbox_id)?;
    if sandbox.status == Status::Destroyed {
        return Ok(sandbox);
    }
    expect(&sandbox, &[Status::Destroying, Status::Stopped, Status::Failed])?;
    tx.cas(
        "UPDATE hosting_sandbox SET status = 'destroyed', version = version + 1
         WHERE sandbox_id = $1 AND status IN ('destroying', 'stopped', 'failed')",
        args![sandbox_id.as_str()],
    )?;
    set_run(tx, &sandbox, sandbox.ends_ms, None)?;
    changed(tx, sandbox_id, now_ms)
}

/// Its agent says how long it ran in all. What it ran beyond what is paid is ours to bear: it is booked as a loss, at
/// the price of its minutes, and never charged. An agent that claims more than there was time is refused.
pub fn reported(
    tx: &mut Tx<'_>,
    sandbox_id: &SandboxId,
    ran_ms: i64,
    now_ms: UnixMs,
) -> Result<Sandbox> {
    let sandbox = known(tx, sandbox_id)?;
    let existed_ms = now_ms.saturating_sub(sandbox.created_ms).saturating_add(SKEW_MS);
    if ran_ms < 0 || ran_ms > existed_ms {
        let message = format!("{sandbox_id} cannot have run {ran_ms} ms");
        return Err(Error::refused(&code::MALFORMED, message));
    }
    if ran_ms <= sandbox.ran_ms {
        return Ok(sandbox);
    }
    let unpaid_ms = ran_ms.saturating_sub(sandbox.paid_minutes.saturating_mul(MINUTE_MS));
    let lost_units = loss(sandbox.price, unpaid_ms).max(sandbox.lost_units);
    let lost_now = lost_units.saturating_sub(sandbox.lost_units);
    if lost_now > 0 {
        book_loss(tx, &sandbox, unpaid_ms, lost_now, now_ms)?;
    }
    tx.cas(
        "UPDATE hosting_sandbox SET ran_ms = $2, lost_units = $3 WHERE sandbox_id = $1",
        args![sandbox_id.as_str(), ran_ms, lost_units],
    )?;
    known(tx, sandbox_id)
}

/// What so much time costs, rounded up.
fn loss(price: i64, unpaid_ms: i64) -> i64 {
    let minute = i128::from(MINUTE_MS);
    let units = i128::from(price).saturating_mul(i128::from(unpaid_ms.max(0)));
    let units = units.saturating_add(minute.saturating_sub(1)).checked_div(minute).unwrap_or(0);
    i64::try_from(units).unwrap_or(i64::MAX)
}

fn book_loss(
    tx: &mut Tx<'_>,
    sandbox: &Sandbox,
    unpaid_ms: i64,
    units: i64,
    now_ms: UnixMs,
) -> Result<()> {
    let (debit, credit) = (money::open_loss(tx, now_ms)?, money::open_revenue(tx, now_ms)?);
    let id = sandbox.sandbox_id.as_str();
    let words = ["sandbox.loss", id, &unpaid_ms.to_string()];
    let transfer_id = TransferId::named(sandbox.created_ms, &words);
    let step = Step::Post { debit, credit, amount: money::usd(units) };
    let loss = NewTransfer::new(transfer_id, step, &format!("sandbox.loss {id} {unpaid_ms}"))?;
    money::book_one(tx, loss, now_ms)??;
    Ok(())
}

/// Its secrets have been released to it, after its agent proved what it runs.
pub fn secrets_released(
    tx: &mut Tx<'_>,
    sandbox_id: &SandboxId,
    now_ms: UnixMs,
) -> Result<Sandbox> {
    let sandbox = known(tx, sandbox_id)?;
    expect(&sandbox, &[Status::Running])?;
    tx.cas(
        "UPDATE hosting_sandbox SET secrets_ms = coalesce(secrets_ms, $2)
         WHERE sandbox_id = $1 AND status = 'running'",
        args![sandbox_id.as_str(), now_ms],
    )?;
    known(tx, sandbox_id)
}

/// Refuses whatever needs another status.
pub(super) fn expect(sandbox: &Sandbox, statuses: &[Status]) -> Result<()> {
    if statuses.contains(&sandbox.status) {
        return Ok(());
    }
    let message = format!("{} is {}", sandbox.sandbox_id, sandbox.status.as_str());
    Err(Error::refused(&code::SANDBOX_ENDED, message))
}

/// Tells what a sandbox has become.
pub(super) fn changed(tx: &mut Tx<'_>, sandbox_id: &SandboxId, now_ms: UnixMs) -> Result<Sandbox> {
    let sandbox = known(tx, sandbox_id)?;
    tell(tx, &[told(&sandbox)], now_ms)?;
    Ok(sandbox)
}

/// A machine's words may be anything; a row takes a line of them.
pub(crate) fn shown(words: &str) -> String {
    let plain = words.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut shown = String::new();
    for c in plain {
        if shown.len().saturating_add(c.len_utf8()) > WORDS_MAX_BYTES {
            break;
        }
        shown.push(c);
    }
    shown
}
