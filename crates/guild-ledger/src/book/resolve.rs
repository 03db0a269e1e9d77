//! What a step leaves unsaid, and whether it can be meant at all.

use guild_protocol::amount::Amount;
use guild_protocol::env::UnixMs;

use super::{Book, Booked, ClosedHold, Known, unknown_account};
use crate::account::AccountId;
use crate::error::code;
use crate::transfer::{Step, StepName, TransferId};
use crate::{Error, Result};

/// A transfer with everything it leaves unsaid; accounts by their place in the book.
pub(super) struct Resolved {
    pub(super) debit: usize,
    pub(super) credit: usize,
    pub(super) units: i64,
    pub(super) hold: Option<ClosedHold>,
    pub(super) expires_ms: Option<UnixMs>,
}

impl Book {
    /// The transfer with everything it leaves unsaid: which accounts, how much.
    pub(super) fn resolve(&self, step: &Step, now_ms: UnixMs) -> Result<Resolved> {
        match step {
            Step::Post { debit, credit, amount } => self.resolve_sides(debit, credit, amount),
            Step::Hold { debit, credit, amount, expires_ms } => {
                let resolved = self.resolve_sides(debit, credit, amount)?;
                if *expires_ms <= now_ms {
                    let message = "the hold would have run out already";
                    return Err(Error::refused(&code::HOLD_EXPIRED, message));
                }
                Ok(Resolved { expires_ms: Some(*expires_ms), ..resolved })
            }
            Step::Settle { hold, units } => {
                let held = self.open_hold(hold)?;
                if held.expires_ms.is_some_and(|at| at <= now_ms) {
                    return Err(Error::refused(&code::HOLD_EXPIRED, format!("{hold} has run out")));
                }
                let units = units.unwrap_or(held.units);
                if units < 1 || units > held.units {
                    let message = format!("{units} is not between 1 and the {} held", held.units);
                    return Err(Error::refused(&code::BAD_AMOUNT, message));
                }
                self.resolve_closing(held, units)
            }
            Step::Void { hold } => {
                let held = self.open_hold(hold)?;
                self.resolve_closing(held, held.units)
            }
            Step::Expire { hold } => {
                let held = self.open_hold(hold)?;
                if held.expires_ms.is_none_or(|at| at > now_ms) {
                    let message = format!("{hold} has not run out");
                    return Err(Error::refused(&code::NOT_EXPIRED, message));
                }
                self.resolve_closing(held, held.units)
            }
        }
    }

    fn resolve_sides(
        &self,
        debit: &AccountId,
        credit: &AccountId,
        amount: &Amount,
    ) -> Result<Resolved> {
        if debit == credit {
            return Err(Error::refused(&code::SAME_ACCOUNT, format!("{debit} is on both sides")));
        }
        if amount.units < 1 {
            let message = format!("{} is not at least 1", amount.units);
            return Err(Error::refused(&code::BAD_AMOUNT, message));
        }
        for side in [debit, credit] {
            let entry = self.entry(side).ok_or_else(|| unknown_account(side))?;
            let asset_id = &entry.account.asset_id;
            if *asset_id != amount.asset_id {
                let message = format!("{side} holds {asset_id}, not {}", amount.asset_id);
                return Err(Error::refused(&code::WRONG_ASSET, message));
            }
        }
        Ok(Resolved {
            debit: self.place(debit)?,
            credit: self.place(credit)?,
            units: amount.units,
            hold: None,
            expires_ms: None,
        })
    }

    fn resolve_closing(&self, held: &Booked, units: i64) -> Result<Resolved> {
        let hold =
            ClosedHold { seq: held.seq, transfer_id: held.transfer_id.clone(), units: held.units };
        Ok(Resolved {
            debit: self.place(&held.debit.account.account_id)?,
            credit: self.place(&held.credit.account.account_id)?,
            units,
            hold: Some(hold),
            expires_ms: None,
        })
    }

    fn open_hold(&self, hold: &TransferId) -> Result<&Booked> {
        match self.known.get(hold).filter(|known| known.booked.step == StepName::Hold) {
            Some(Known { booked, closed_by: None }) => Ok(booked),
            Some(Known { closed_by: Some(by), .. }) => {
                let message = format!("{hold} was closed by transfer number {by}");
                Err(Error::refused(&code::HOLD_CLOSED, message))
            }
            None => Err(Error::refused(&code::UNKNOWN_HOLD, format!("there is no hold {hold}"))),
        }
    }
}
