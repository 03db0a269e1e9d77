//! What a transfer does to counters.

use super::ClosedHold;
use crate::account::Balance;
use crate::error::code;
use crate::transfer::StepName;
use crate::{Error, Result};

/// What a transfer adds to the counters of its two accounts.
pub(crate) struct Change {
    posted: i64,
    pending: i64,
    /// Whether it closes a hold.
    pub(super) closes: bool,
}

impl Change {
    pub(crate) fn of(step: StepName, units: i64, hold: Option<&ClosedHold>) -> Change {
        let released = hold.map_or(0, |hold| hold.units.saturating_neg());
        let (posted, pending) = match step {
            StepName::Post => (units, 0),
            StepName::Hold => (0, units),
            StepName::Settle => (units, released),
            StepName::Void | StepName::Expire => (0, released),
        };
        Change { posted, pending, closes: hold.is_some() }
    }

    /// The change that takes this one back.
    pub(crate) fn reversed(&self) -> Change {
        let (posted, pending) = (self.posted.saturating_neg(), self.pending.saturating_neg());
        Change { posted, pending, closes: self.closes }
    }

    pub(crate) fn debited(&self, balance: &Balance) -> Result<Balance> {
        Ok(Balance {
            debits_posted: added(balance.debits_posted, self.posted)?,
            debits_pending: added(balance.debits_pending, self.pending)?,
            ..*balance
        })
    }

    pub(crate) fn credited(&self, balance: &Balance) -> Result<Balance> {
        Ok(Balance {
            credits_posted: added(balance.credits_posted, self.posted)?,
            credits_pending: added(balance.credits_pending, self.pending)?,
            ..*balance
        })
    }
}

/// No counter wraps or falls below zero.
fn added(counter: i64, units: i64) -> Result<i64> {
    match counter.checked_add(units) {
        Some(sum) if sum >= 0 => Ok(sum),
        _ => Err(Error::refused(&code::OVERFLOW, "a balance would no longer fit into 64 bits")),
    }
}
