//! Ending sandboxes: one or many, in a few statements.

use std::collections::BTreeMap;

use guild_ledger::{NewTransfer, Step, TransferId, ledger};
use guild_protocol::env::UnixMs;
use guild_store::{Column, Sql, Tx};

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
        lite: "UPDATE hosting_sandbox SET status = 'ending', stop_reason = $2, ends_ms = $3, due_ms = NULL,
                 version = version + 1
               WHERE sandbox_id = $1 AND status IN ('starting', 'running')",
        pg: "UPDATE hosting_sandbox AS s SET status = 'ending', stop_reason = e.reason, ends_ms = e.ends_ms,
               due_ms = NULL, version = s.version + 1
             FROM unnest($1::text[], $2::text[], $3::bigint[]) AS e (sandbox_id, reason, ends_ms)
             WHERE s.sandbox_id = e.sandbox_id AND s.status IN ('starting', 'running')",
    };
    let (mut ids, mut reasons, mut ends_ms) = (Vec::new(), Vec::new(), Vec::new());
    let mut starting = Vec::new();
    for (sandbox, reason) in ending {
        ids.push(sandbox.sandbox_id.as_str());
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
    tx.exec_set(END, &[Column::Texts(&ids), Column::Texts(&reasons), Column::Ints(&ends_ms)])?;
    let ended = with_ids(tx, &ids)?;
    tell(tx, &ended.iter().map(told).collect::<Vec<_>>(), now_ms)
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
