//! Ending sandboxes: one or many, in a few statements.

use std::collections::BTreeMap;

use guild_ledger::{NewTransfer, Step, TransferId, ledger};
use guild_protocol::env::UnixMs;
use guild_store::{Column, Sql, Tx, args};

use super::{Reason, Sandbox, Status, hold_id, told, with_ids};
use crate::event::tell;
use crate::{HostingJobId, Result, job};

/// When what ends has to be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// At once.
    Now,
    /// When what is paid is over.
    AsPaid,
}

/// Lets sandboxes that start or run end. What is held for those that never ran is given back.
pub(crate) fn end_all<'a>(
    tx: &mut Tx<'_>,
    ending: impl IntoIterator<Item = (&'a Sandbox, Reason)>,
    ends: Ends,
    now_ms: UnixMs,
) -> Result<()> {
    const END: Sql = Sql {
        lite: "UPDATE hosting_sandbox SET status = 'ending', stop_reason = $2, version = version + 1
               WHERE sandbox_no = $1 AND status IN ('starting', 'running')",
        pg: "UPDATE hosting_sandbox AS s SET status = 'ending', stop_reason = e.reason, version = s.version + 1
             FROM unnest($1::bigint[], $2::text[]) AS e (sandbox_no, reason)
             WHERE s.sandbox_no = e.sandbox_no AND s.status IN ('starting', 'running')",
    };
    const END_RUN: Sql = Sql {
        lite: "UPDATE hosting_run SET ends_ms = $2, due_ms = NULL WHERE sandbox_no = $1",
        pg: "UPDATE hosting_run AS r SET ends_ms = e.ends_ms, due_ms = NULL
             FROM unnest($1::bigint[], $2::bigint[]) AS e (sandbox_no, ends_ms)
             WHERE r.sandbox_no = e.sandbox_no",
    };
    let (mut ids, mut numbers) = (Vec::new(), Vec::new());
    let (mut reasons, mut ends_ms) = (Vec::new(), Vec::new());
    let mut starting = Vec::new();
    for (sandbox, reason) in ending {
        ids.push(sandbox.sandbox_id.as_str());
        numbers.push(sandbox.sandbox_no);
        reasons.push(reason.as_str());
        ends_ms.push(match (ends, sandbox.ends_ms) {
            (Ends::AsPaid, Some(paid_ms)) => paid_ms,
            (_, paid_ms) => paid_ms.map_or(now_ms, |paid_ms| paid_ms.min(now_ms)),
        });
        if sandbox.status == Status::Starting {
            starting.push(sandbox);
        }
    }
    if ids.is_empty() {
        return Ok(());
    }
    give_back(tx, &starting, now_ms)?;
    tx.exec_set(END, &[Column::Ints(&numbers), Column::Texts(&reasons)])?;
    tx.exec_set(END_RUN, &[Column::Ints(&numbers), Column::Ints(&ends_ms)])?;
    let ended = with_ids(tx, &ids)?;
    tell(tx, &ended.iter().map(told).collect::<Vec<_>>(), now_ms)
}

/// Sets until when a sandbox may run, and when the meter looks at it.
pub(crate) fn set_run(
    tx: &mut Tx<'_>,
    sandbox: &Sandbox,
    ends_ms: Option<UnixMs>,
    due_ms: Option<UnixMs>,
) -> Result<()> {
    Ok(tx.cas(
        "UPDATE hosting_run SET ends_ms = $2, due_ms = $3 WHERE sandbox_no = $1",
        args![sandbox.sandbox_no, ends_ms, due_ms],
    )?)
}

/// Gives back what is held for the first minute of sandboxes that start. A hold that ran out has gone back by itself.
pub(crate) fn give_back(tx: &mut Tx<'_>, starting: &[&Sandbox], now_ms: UnixMs) -> Result<()> {
    let mut chains = Vec::new();
    let mut held: BTreeMap<&HostingJobId, i64> = BTreeMap::new();
    for sandbox in starting {
        let id = &sandbox.sandbox_id;
        let void = TransferId::named(sandbox.created_ms, &["sandbox.void", id.as_str()]);
        let step = Step::Void { hold: hold_id(id, sandbox.created_ms) };
        chains.push(vec![NewTransfer::new(void, step, &format!("sandbox.void {id}"))?]);
        let held = held.entry(&sandbox.job_id).or_default();
        *held = held.saturating_sub(sandbox.price);
    }
    for booked in ledger::book(tx, &chains, now_ms)? {
        match booked {
            Err(refused) if refused.code() != &guild_ledger::code::HOLD_CLOSED => {
                return Err(refused.into());
            }
            _ => {}
        }
    }
    held.into_iter().try_for_each(|(job_id, held)| job::spend(tx, job_id, held, 0))
}
