//! What the owner of a sandbox may do with it.

use guild_protocol::env::UnixMs;
use guild_store::{Rx, Sql, Tx, args};

use super::create::minutes_bought;
use super::life::{changed, expect};
use super::{
    Ends, MINUTE_MS, Reason, Sandbox, SandboxId, Status, due_before, end_all, get, give_back,
    known, run_until, set_run,
};
use crate::clamp::{self, Answer, Bounds, Extend, Granted, Policy};
use crate::error::code;
use crate::job::{self, check_version};
use crate::meter::LEAD_MS;
use crate::money::{self, Buys};
use crate::price::{self, Shape};
use crate::{Error, HostingJobId, Result, UserId};

/// A use that comes so soon after another is not written.
const TOUCH_EVERY_MS: i64 = 1_000;

/// Gives a sandbox more money or time, or another idle timeout, within what its job has left.
pub fn extend(
    tx: &mut Tx<'_>,
    user_id: &UserId,
    sandbox_id: &SandboxId,
    asked: &Extend,
    policy: &Policy,
    now_ms: UnixMs,
) -> Result<(Sandbox, Granted)> {
    let sandbox = get(tx, user_id, sandbox_id)?;
    if sandbox.answer.asked == *asked {
        return Ok((sandbox.clone(), sandbox.answer.granted));
    }
    if sandbox.status != Status::Starting {
        expect_runs(&sandbox, now_ms)?;
    }
    check_version(sandbox.version, asked.version)?;
    let job = job::get(tx, user_id, &sandbox.job_id)?;
    job::check_running(&job, now_ms)?;
    // The first minute of one that starts is held, not yet spent.
    let spent = match sandbox.status {
        Status::Starting => sandbox.price,
        _ => sandbox.spent,
    };
    let granted = clamp::extend(
        asked,
        &Bounds {
            now_ms,
            spent,
            spend: sandbox.cap,
            expires_ms: sandbox.expires_ms,
            spend_cap: policy.sandbox_cap_max,
            ttl_max_ms: policy.sandbox_ttl_max_ms,
            job: Some((spent.saturating_add(job.left()), job.expires_ms)),
        },
    )?;
    write_extended(tx, &sandbox, asked, &granted, job.expires_ms, now_ms)?;
    job::touch(tx, &job.job_id, now_ms)?;
    Ok((changed(tx, sandbox_id, now_ms)?, granted))
}

fn write_extended(
    tx: &mut Tx<'_>,
    sandbox: &Sandbox,
    asked: &Extend,
    granted: &Granted,
    job_expires_ms: UnixMs,
    now_ms: UnixMs,
) -> Result<()> {
    let expires_ms = granted.expires_ms.granted;
    let ends_ms = sandbox
        .paid_until_ms()
        .map(|paid_until_ms| run_until(paid_until_ms, expires_ms, job_expires_ms));
    tx.cas(
        "UPDATE hosting_sandbox SET expires_ms = $3, idle_timeout_ms = $4, last_activity_ms = $5, answer = $6,
           version = version + 1
         WHERE sandbox_no = $1 AND version = $2",
        args![
            sandbox.sandbox_no,
            sandbox.version,
            expires_ms,
            asked.idle_timeout_ms.or(sandbox.idle_timeout_ms),
            now_ms.max(sandbox.last_activity_ms),
            &Answer { asked: *asked, granted: *granted }.to_text()?
        ],
    )?;
    Ok(tx.cas(
        "UPDATE hosting_run SET cap = $2, ends_ms = coalesce($3, ends_ms), due_ms = coalesce($4, due_ms)
         WHERE sandbox_no = $1",
        args![
            sandbox.sandbox_no,
            granted.spend.granted,
            ends_ms,
            ends_ms.map(due_before)
        ],
    )?)
}

/// Whether somebody can pay for another shape: what a quote would be about, if the account has not enough for one
/// minute of it. What cap and job do not leave is refused. What gets no dearer is not asked about: it is paid like the
/// last minute, or ends.
pub(crate) fn short_for(
    rx: &mut Rx<'_>,
    sandbox: &Sandbox,
    shape: &Shape,
    policy: &Policy,
    now_ms: UnixMs,
) -> Result<Option<Buys>> {
    policy.check_shape(shape)?;
    let price = price::per_minute(&policy.rates, shape)?;
    if price <= sandbox.next_price() {
        return Ok(None);
    }
    let job = job::get(rx, &sandbox.user_id, &sandbox.job_id)?;
    let left = job.left().min(sandbox.cap.saturating_sub(sandbox.spent));
    if left < price {
        let message = format!("a minute of it costs {price}, {left} may be spent");
        return Err(Error::refused(&code::BUDGET, message));
    }
    if money::balance(rx, &sandbox.user_id)?.free >= price {
        return Ok(None);
    }
    let runs_ms = sandbox.expires_ms.min(job.expires_ms).saturating_sub(now_ms);
    let minutes = minutes_bought(price, left, runs_ms);
    Ok(Some(Buys { shape: *shape, price, minutes }))
}

/// Gives a running sandbox another shape: at its price from the next minute on that is not paid, and in truth when that
/// minute begins. `version` is the one that its owner has read. Asking again for the shape that it has, or is to get,
/// changes nothing.
pub fn resize(
    tx: &mut Tx<'_>,
    user_id: &UserId,
    sandbox_id: &SandboxId,
    version: i64,
    shape: &Shape,
    policy: &Policy,
    now_ms: UnixMs,
) -> Result<Sandbox> {
    let mut sandbox = get(tx, user_id, sandbox_id)?;
    expect_runs(&sandbox, now_ms)?;
    if sandbox.next.map_or(sandbox.shape, |next| next.shape) == *shape {
        return Ok(sandbox);
    }
    check_version(sandbox.version, version)?;
    policy.check_shape(shape)?;
    let price = price::per_minute(&policy.rates, shape)?;
    let from_ms = sandbox.paid_until_ms().unwrap_or(now_ms);
    if let Some(next) = sandbox.next.filter(|next| sandbox.is_paid(next.from_ms)) {
        if sandbox.is_resizing(now_ms) {
            let message = format!("the minute that begins at {} is paid already", next.from_ms);
            return Err(Error::refused(&code::RESIZING, message));
        }
        (sandbox.shape, sandbox.price) = (next.shape, next.price);
    }
    tx.cas(
        "UPDATE hosting_sandbox SET cpu_milli = $3, ram_mib = $4, disk_mib = $5, price = $6, next_cpu_milli = $7,
           next_ram_mib = $8, next_disk_mib = $9, next_price = $10, next_from_ms = $11, version = version + 1
         WHERE sandbox_id = $1 AND version = $2",
        args![
            sandbox_id.as_str(),
            sandbox.version,
            sandbox.shape.cpu_milli,
            sandbox.shape.ram_mib,
            sandbox.shape.disk_mib,
            sandbox.price,
            shape.cpu_milli,
            shape.ram_mib,
            shape.disk_mib,
            price,
            from_ms
        ],
    )?;
    use_of(tx, &sandbox, now_ms)?;
    changed(tx, sandbox_id, now_ms)
}

/// Ends a sandbox at once; its files are kept. The minute that is paid is not given back, what is held for a first
/// minute is. Whatever has ended already stays as it is.
pub fn stop(
    tx: &mut Tx<'_>,
    user_id: &UserId,
    sandbox_id: &SandboxId,
    now_ms: UnixMs,
) -> Result<Sandbox> {
    let sandbox = get(tx, user_id, sandbox_id)?;
    match sandbox.status {
        Status::Starting | Status::Running => {
            end_all(tx, [(&sandbox, Reason::User)], Ends::Now, now_ms)?;
        }
        // It ends anyhow, but not so soon.
        Status::Ending if sandbox.ends_ms.is_some_and(|ends_ms| ends_ms > now_ms) => {
            tx.cas(
                "UPDATE hosting_sandbox SET version = version + 1 WHERE sandbox_id = $1 AND status = 'ending'",
                args![sandbox_id.as_str()],
            )?;
            set_run(tx, &sandbox, Some(now_ms), None)?;
            changed(tx, sandbox_id, now_ms)?;
        }
        _ => {}
    }
    get(tx, user_id, sandbox_id)
}

/// Ends a sandbox at once, and has it removed with its files. The same again changes nothing.
pub fn destroy(
    tx: &mut Tx<'_>,
    user_id: &UserId,
    sandbox_id: &SandboxId,
    now_ms: UnixMs,
) -> Result<Sandbox> {
    let sandbox = get(tx, user_id, sandbox_id)?;
    if matches!(sandbox.status, Status::Destroying | Status::Destroyed) {
        return Ok(sandbox);
    }
    if sandbox.status == Status::Starting {
        give_back(tx, &[&sandbox], now_ms)?;
    }
    remove(tx, &sandbox, Reason::User, now_ms)
}

/// Lets a sandbox be removed.
fn remove(tx: &mut Tx<'_>, sandbox: &Sandbox, reason: Reason, now_ms: UnixMs) -> Result<Sandbox> {
    let reason = sandbox.stop_reason.unwrap_or(reason);
    let ends_ms = sandbox.ends_ms.map_or(now_ms, |ends_ms| ends_ms.min(now_ms));
    tx.cas(
        "UPDATE hosting_sandbox SET status = 'destroying', stop_reason = $2, version = version + 1
         WHERE sandbox_no = $1 AND version = $3",
        args![sandbox.sandbox_no, reason.as_str(), sandbox.version],
    )?;
    set_run(tx, sandbox, Some(ends_ms), None)?;
    changed(tx, &sandbox.sandbox_id, now_ms)
}

/// The files of a sandbox that has stopped have been kept long enough.
pub(crate) fn forget(tx: &mut Tx<'_>, sandbox: &Sandbox, now_ms: UnixMs) -> Result<Sandbox> {
    remove(tx, sandbox, Reason::SandboxTtl, now_ms)
}

/// Pauses a running sandbox. It stays paid for: its memory is in use.
pub fn pause(
    tx: &mut Tx<'_>,
    user_id: &UserId,
    sandbox_id: &SandboxId,
    now_ms: UnixMs,
) -> Result<Sandbox> {
    set_paused(tx, user_id, sandbox_id, true, now_ms)
}

/// Lets a paused sandbox go on.
pub fn resume(
    tx: &mut Tx<'_>,
    user_id: &UserId,
    sandbox_id: &SandboxId,
    now_ms: UnixMs,
) -> Result<Sandbox> {
    set_paused(tx, user_id, sandbox_id, false, now_ms)
}

fn set_paused(
    tx: &mut Tx<'_>,
    user_id: &UserId,
    sandbox_id: &SandboxId,
    paused: bool,
    now_ms: UnixMs,
) -> Result<Sandbox> {
    let sandbox = get(tx, user_id, sandbox_id)?;
    expect_runs(&sandbox, now_ms)?;
    if sandbox.paused == paused {
        return Ok(sandbox);
    }
    tx.cas(
        "UPDATE hosting_sandbox SET paused = $2, version = version + 1
         WHERE sandbox_id = $1 AND status = 'running'",
        args![sandbox_id.as_str(), i64::from(paused)],
    )?;
    use_of(tx, &sandbox, now_ms)?;
    changed(tx, sandbox_id, now_ms)
}

/// Notes that a sandbox, and its job, is used: by a command, a file or a port. Refused unless it runs.
pub fn touch(tx: &mut Tx<'_>, sandbox_id: &SandboxId, now_ms: UnixMs) -> Result<Sandbox> {
    let sandbox = known(tx, sandbox_id)?;
    expect_runs(&sandbox, now_ms)?;
    if now_ms.saturating_sub(sandbox.last_activity_ms) < TOUCH_EVERY_MS {
        return Ok(sandbox);
    }
    use_of(tx, &sandbox, now_ms)?;
    known(tx, sandbox_id)
}

fn use_of(tx: &mut Tx<'_>, sandbox: &Sandbox, now_ms: UnixMs) -> Result<()> {
    tx.exec(
        "UPDATE hosting_sandbox SET last_activity_ms = $2 WHERE sandbox_id = $1 AND last_activity_ms < $2",
        args![sandbox.sandbox_id.as_str(), now_ms],
    )?;
    job::touch(tx, &sandbox.job_id, now_ms)
}

/// Refuses what does not run: its lease may have run out before anybody has written that it ends.
fn expect_runs(sandbox: &Sandbox, now_ms: UnixMs) -> Result<()> {
    expect(sandbox, &[Status::Running])?;
    match sandbox.ends_ms {
        Some(ends_ms) if ends_ms <= now_ms => {
            let message = format!("{} ran until {ends_ms}", sandbox.sandbox_id);
            Err(Error::refused(&code::SANDBOX_ENDED, message))
        }
        _ => Ok(()),
    }
}

/// A job ends later now: so may its running sandboxes, as far as they are paid. One whose lease has run out
/// is not among them.
pub(crate) fn run_until_job_ends(
    tx: &mut Tx<'_>,
    job_id: &HostingJobId,
    expires_ms: UnixMs,
    now_ms: UnixMs,
) -> Result<()> {
    const LATER: Sql = Sql {
        lite: "UPDATE hosting_run AS r SET ends_ms = min(r.started_ms + $3 * r.paid_minutes, s.expires_ms, $2),
                 due_ms = min(r.started_ms + $3 * r.paid_minutes, s.expires_ms, $2) - $4
               FROM hosting_sandbox AS s
               WHERE s.sandbox_no = r.sandbox_no AND s.job_id = $1 AND s.status = 'running' AND r.ends_ms > $5",
        pg: "UPDATE hosting_run AS r SET ends_ms = least(r.started_ms + $3 * r.paid_minutes, s.expires_ms, $2),
                 due_ms = least(r.started_ms + $3 * r.paid_minutes, s.expires_ms, $2) - $4
               FROM hosting_sandbox AS s
               WHERE s.sandbox_no = r.sandbox_no AND s.job_id = $1 AND s.status = 'running' AND r.ends_ms > $5",
    };
    tx.exec(LATER, args![job_id.as_str(), expires_ms, MINUTE_MS, LEAD_MS, now_ms])?;
    Ok(())
}
