//! What a clock that was ahead has left behind: times that nobody meant, until which turns would wait.
//!
//! A process whose clock is a day ahead writes turns that are due in a day, leases that last a day longer, and calls
//! that are given up a day late. Once clocks agree again, [`recall`] brings all of these back to now: whoever looks
//! after turns does so when it begins, when its own clock went back, when it [`is_ahead`], and now and then.
//!
//! The clocks of all processes of a store are meant to agree within [`AHEAD_MS`]; leases are only taken away if their
//! clock was ahead by more than a lease.

use guild_bus::subject::WorkerTarget;
use guild_protocol::env::UnixMs;
use guild_store::{Rx, Tx, args};

use crate::Result;

/// As far as this, clocks of two machines may differ: nothing written by the faster one is brought back.
pub const AHEAD_MS: i64 = 5_000;

pub(crate) const DISPATCHED: &str = "SELECT 1 FROM agent_state_head
    WHERE status = 'dispatched' AND worker_target = $1 AND due_ms > $2 LIMIT 1";
pub(crate) const STOPS: &str =
    "SELECT 1 FROM agent_inbox WHERE next_retry_ms IS NOT NULL AND next_retry_ms > $1 LIMIT 1";
pub(crate) const LEASES: &str = "SELECT 1 FROM agent_state_head
    WHERE status = 'running' AND lease_until_ms > $1 AND updated_ms > $2 LIMIT 1";

pub(crate) const CALLS: &str = "SELECT 1 FROM turn_waiting_tools
    WHERE wait_status = 'waiting' AND deadline_ms > $1 AND timeout_ms > 0
      AND deadline_ms > $1 + timeout_ms LIMIT 1";
pub(crate) const SUSPENDED: &str = "SELECT 1 FROM agent_state_head AS h
    WHERE h.status = 'suspended' AND h.resume_deadline_ms > $1 AND NOT EXISTS
      (SELECT 1 FROM turn_waiting_tools AS w
       WHERE w.step_id = h.active_step_id AND w.wait_status = 'waiting') LIMIT 1";

/// Whether there are turns of these targets, leases or stops that only a clock ahead of this one can have written.
pub fn is_ahead(
    rx: &mut Rx<'_>,
    targets: &[WorkerTarget],
    now_ms: UnixMs,
    lease_ms: i64,
) -> Result<bool> {
    let ahead_ms = now_ms.saturating_add(AHEAD_MS);
    for target in targets {
        let found: Option<(i64,)> = rx.first(DISPATCHED, args![target.as_str(), ahead_ms])?;
        if found.is_some() {
            return Ok(true);
        }
    }
    let stops: Option<(i64,)> = rx.first(STOPS, args![ahead_ms])?;
    let [since_ms, until_ms] = of_lease(now_ms, lease_ms);
    let leases: Option<(i64,)> = rx.first(LEASES, args![until_ms, since_ms])?;
    Ok(stops.or(leases).is_some())
}

/// The same of calls that are awaited and of turns that are suspended, among all of them: for the start, for when the
/// own clock went back, and for now and then.
pub fn is_awaited_too_long(rx: &mut Rx<'_>, now_ms: UnixMs) -> Result<bool> {
    let ahead_ms = now_ms.saturating_add(AHEAD_MS);
    let call: Option<(i64,)> = rx.first(CALLS, args![ahead_ms])?;
    let turn: Option<(i64,)> = rx.first(SUSPENDED, args![ahead_ms])?;
    Ok(call.or(turn).is_some())
}

/// After when a lease was written by no good clock, and how long it then lasts at least.
fn of_lease(now_ms: UnixMs, lease_ms: i64) -> [UnixMs; 2] {
    let since_ms = now_ms.saturating_add(lease_ms.max(AHEAD_MS));
    [since_ms, since_ms.saturating_add(lease_ms)]
}

/// Brings back what a clock that was ahead has put off; how many rows it was.
///
/// Turns and stops are due now, and leases over: whoever still has one is fenced as if it had been late. A call is
/// awaited as long from now on as it was meant to be.
pub fn recall(tx: &mut Tx<'_>, now_ms: UnixMs, lease_ms: i64) -> Result<u64> {
    let ahead_ms = now_ms.saturating_add(AHEAD_MS);
    let [since_ms, until_ms] = of_lease(now_ms, lease_ms);
    let mut recalled = 0_u64;
    let mut count = |rows: u64| recalled = recalled.saturating_add(rows);
    count(tx.exec(
        "UPDATE agent_state_head SET due_ms = $1 WHERE status = 'dispatched' AND due_ms > $2",
        args![now_ms, ahead_ms],
    )?);
    count(tx.exec(
        "UPDATE agent_inbox SET next_retry_ms = $1
         WHERE next_retry_ms IS NOT NULL AND next_retry_ms > $2",
        args![now_ms, ahead_ms],
    )?);
    count(tx.exec(
        "UPDATE agent_state_head SET lease_until_ms = $1
         WHERE status = 'running' AND lease_until_ms > $2 AND updated_ms > $3",
        args![now_ms, until_ms, since_ms],
    )?);
    count(tx.exec(
        "UPDATE turn_waiting_tools SET run_until_ms = $1
         WHERE run_until_ms IS NOT NULL AND run_until_ms > $2 AND created_ms > $3",
        args![now_ms, until_ms, since_ms],
    )?);
    count(tx.exec(
        "UPDATE turn_waiting_tools SET deadline_ms = $1 + timeout_ms
         WHERE wait_status = 'waiting' AND timeout_ms > 0 AND deadline_ms > $2 + timeout_ms",
        args![now_ms, ahead_ms],
    )?);
    // Nobody waits for a batch when the call that asked for it is given up.
    count(tx.exec(
        "UPDATE pmo_batches SET deadline_ms =
           (SELECT w.deadline_ms FROM turn_waiting_tools AS w
            WHERE w.tool_call_id = pmo_batches.parent_tool_call_id)
         WHERE status = 'running' AND EXISTS
           (SELECT 1 FROM turn_waiting_tools AS w
            WHERE w.tool_call_id = pmo_batches.parent_tool_call_id
              AND w.deadline_ms < pmo_batches.deadline_ms)",
        &[],
    )?);
    // A turn goes on when the first of its calls is given up; one that waits for nothing, at once.
    count(tx.exec(
        "UPDATE agent_state_head SET resume_deadline_ms = coalesce(
           (SELECT min(w.deadline_ms) FROM turn_waiting_tools AS w
            WHERE w.step_id = active_step_id AND w.wait_status = 'waiting'), $1)
         WHERE status = 'suspended' AND resume_deadline_ms > $2 AND resume_deadline_ms <> coalesce(
           (SELECT min(w.deadline_ms) FROM turn_waiting_tools AS w
            WHERE w.step_id = active_step_id AND w.wait_status = 'waiting'), $1)",
        args![now_ms, ahead_ms],
    )?);
    Ok(recalled)
}
