//! The pure decision: given balances and holds, what a transfer changes, or why it is refused.
//!
//! A [`Book`] holds only what a batch touches. It is filled from the database, decides transfer after transfer, and
//! tells what must be written. The audit fills one from nothing and gets the whole history: the same code decides and
//! checks.

mod change;
mod entry;
mod resolve;

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use guild_protocol::amount::Amount;
use guild_protocol::env::UnixMs;

use crate::account::{Account, AccountId, Balance};
use crate::error::code;
use crate::rule::{Rule, allow_limit};
use crate::transfer::{NewTransfer, Step, TransferId, check_time};
use crate::{Error, Result};

use resolve::Resolved;

pub(crate) use change::Change;
pub use entry::{Booked, ClosedHold, Entry, Outcome, Side};

/// How many transfers can be linked.
pub const CHAIN_MAX_TRANSFERS: usize = 256;

/// Orders accounts by their id without a second copy of it.
#[derive(Debug, Clone)]
struct ById(Arc<Account>);

impl Borrow<AccountId> for ById {
    fn borrow(&self) -> &AccountId {
        &self.0.account_id
    }
}

impl Ord for ById {
    fn cmp(&self, other: &ById) -> Ordering {
        self.0.account_id.cmp(&other.0.account_id)
    }
}

impl PartialOrd for ById {
    fn partial_cmp(&self, other: &ById) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ById {
    fn eq(&self, other: &ById) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ById {}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    booked: Arc<Booked>,
    /// If it is a hold: the number of the transfer that closed it.
    closed_by: Option<i64>,
}

/// The accounts, holds and earlier transfers that a batch touches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Book {
    entries: Vec<Entry>,
    places: BTreeMap<ById, usize>,
    known: BTreeMap<TransferId, Known>,
    last_seq: i64,
}

impl Book {
    /// An empty book that continues after number `last_seq`.
    pub fn after(last_seq: i64) -> Book {
        Book { last_seq, ..Book::default() }
    }

    /// The number of the last thing that happened.
    pub fn last_seq(&self) -> i64 {
        self.last_seq
    }

    /// Something else than a transfer happened and has this number: an account was opened, a rule set.
    pub fn skip_to(&mut self, seq: i64) {
        self.last_seq = seq;
    }

    /// Takes an account in; one that is in stays as it is.
    pub fn add_account(&mut self, entry: Entry) {
        let place = self.entries.len();
        if self.places.contains_key(&entry.account.account_id) {
            return;
        }
        self.places.insert(ById(entry.account.clone()), place);
        self.entries.push(entry);
    }

    /// Takes in a transfer that is booked already; for a hold, with the number of the transfer that closed it.
    pub fn add_booked(&mut self, booked: Booked, closed_by: Option<i64>) {
        let known = Known { booked: Arc::new(booked), closed_by };
        self.known.insert(known.booked.transfer_id.clone(), known);
    }

    /// Forgets a transfer that nothing will refer to again.
    pub fn forget(&mut self, transfer_id: &TransferId) {
        self.known.remove(transfer_id);
    }

    /// The account with this id.
    pub fn entry(&self, account_id: &AccountId) -> Option<&Entry> {
        self.places.get(account_id).and_then(|place| self.entries.get(*place))
    }

    /// All accounts, in the order in which they were taken in.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Sets the rule of an account; false if it is not here.
    pub fn set_rule(&mut self, account_id: &AccountId, rule: Rule) -> bool {
        let place = self.places.get(account_id);
        match place.and_then(|place| self.entries.get_mut(*place)) {
            Some(entry) => {
                entry.rule = rule;
                true
            }
            None => false,
        }
    }

    /// The number of the transfer that closed this hold, if one did.
    pub fn closed_by(&self, hold: &TransferId) -> Option<i64> {
        self.known.get(hold).and_then(|known| known.closed_by)
    }

    /// Decides one transfer and applies it. A refusal changes nothing.
    pub fn apply(&mut self, transfer: &NewTransfer, now_ms: UnixMs) -> Result<Outcome> {
        self.apply_undoably(transfer, now_ms).map(|(outcome, _)| outcome)
    }

    /// Decides a chain of transfers: all of them, or none. The outcome of each, in order, or the one refusal.
    pub fn apply_chain(&mut self, chain: &[NewTransfer], now_ms: UnixMs) -> Result<Vec<Outcome>> {
        check_length(chain)?;
        let mut outcomes = Vec::with_capacity(chain.len());
        let mut undos = Vec::new();
        for (i, transfer) in chain.iter().enumerate() {
            match self.apply_undoably(transfer, now_ms) {
                Ok((outcome, undo)) => {
                    outcomes.push(outcome);
                    undos.extend(undo);
                }
                Err(refusal) => {
                    undos.into_iter().rev().for_each(|undo| self.undo(undo));
                    return Err(of_chain(refusal, i, chain.len()));
                }
            }
        }
        Ok(outcomes)
    }

    fn apply_undoably(
        &mut self,
        transfer: &NewTransfer,
        now_ms: UnixMs,
    ) -> Result<(Outcome, Option<Undo>)> {
        if let Some(known) = self.known.get(&transfer.transfer_id) {
            return match same_content(&known.booked, transfer) {
                true => Ok((Outcome::Known(known.booked.clone()), None)),
                false => Err(Error::refused(
                    &code::TRANSFER_CONFLICT,
                    format!("{} is booked with other content", transfer.transfer_id),
                )),
            };
        }
        transfer.check()?;
        check_time("now", now_ms)?;
        let Resolved { debit, credit, units, hold, expires_ms } =
            self.resolve(&transfer.step, now_ms)?;
        let step = transfer.step.name();
        let (debit, credit) = self.moved(debit, credit, &Change::of(step, units, hold.as_ref()))?;
        // All checks have passed: from here on nothing can fail.
        let seq = self.last_seq.saturating_add(1);
        self.last_seq = seq;
        self.set(debit.place, debit.after, seq);
        self.set(credit.place, credit.after, seq);
        self.close(hold.as_ref(), Some(seq));
        let undo = Undo {
            transfer_id: transfer.transfer_id.clone(),
            debit: debit.before(),
            credit: credit.before(),
        };
        let booked = Arc::new(Booked {
            seq,
            transfer_id: transfer.transfer_id.clone(),
            step,
            debit: debit.side,
            credit: credit.side,
            units,
            hold,
            expires_ms,
            memo: transfer.memo.clone(),
            at_ms: now_ms,
        });
        let known = Known { booked: booked.clone(), closed_by: None };
        self.known.insert(transfer.transfer_id.clone(), known);
        Ok((Outcome::New(booked), Some(undo)))
    }

    fn undo(&mut self, undo: Undo) {
        if let Some(Known { booked, .. }) = self.known.remove(&undo.transfer_id) {
            self.close(booked.hold.as_ref(), None);
        }
        for Before { place, balance, last_seq } in [undo.credit, undo.debit] {
            self.set(place, balance, last_seq);
        }
        self.last_seq = self.last_seq.saturating_sub(1);
    }

    fn set(&mut self, place: usize, balance: Balance, last_seq: i64) {
        if let Some(entry) = self.entries.get_mut(place) {
            entry.balance = balance;
            entry.last_seq = last_seq;
        }
    }

    fn close(&mut self, hold: Option<&ClosedHold>, closed_by: Option<i64>) {
        if let Some(known) = hold.and_then(|hold| self.known.get_mut(&hold.transfer_id)) {
            known.closed_by = closed_by;
        }
    }

    fn place(&self, account_id: &AccountId) -> Result<usize> {
        self.places.get(account_id).copied().ok_or_else(|| unknown_account(account_id))
    }

    /// Both sides after the change, if both may be so.
    fn moved(&self, debit: usize, credit: usize, change: &Change) -> Result<(Moved, Moved)> {
        let (Some(from), Some(to)) = (self.entries.get(debit), self.entries.get(credit)) else {
            return Err(Error::refused(&code::UNKNOWN_ACCOUNT, "an account is not in this book"));
        };
        let after = (change.debited(&from.balance)?, change.credited(&to.balance)?);
        // Closing a hold only frees what was set aside; whether it may leave was decided when it was held.
        if !change.closes {
            allow_limit(&from.account, &from.balance, &after.0)?;
            allow_limit(&to.account, &to.balance, &after.1)?;
            from.rule.allow_debit(&after.0, &to.account)?;
        }
        Ok((Moved::new(debit, from, after.0), Moved::new(credit, to, after.1)))
    }
}

/// Refuses a chain that nobody may link: it is not even read.
pub(crate) fn check_length(chain: &[NewTransfer]) -> Result<()> {
    if chain.len() > CHAIN_MAX_TRANSFERS {
        let message = format!("a chain has at most {CHAIN_MAX_TRANSFERS} transfers");
        return Err(Error::refused(&code::MALFORMED, message));
    }
    Ok(())
}

fn unknown_account(account_id: &AccountId) -> Error {
    Error::refused(&code::UNKNOWN_ACCOUNT, format!("there is no account {account_id}"))
}

/// What becomes of one side.
struct Moved {
    place: usize,
    side: Side,
    was: Balance,
    after: Balance,
}

impl Moved {
    fn new(place: usize, entry: &Entry, after: Balance) -> Moved {
        let (account, account_no) = (entry.account.clone(), entry.account_no);
        let side = Side { account, account_no, prev_seq: entry.last_seq };
        Moved { place, side, was: entry.balance, after }
    }

    fn before(&self) -> Before {
        Before { place: self.place, balance: self.was, last_seq: self.side.prev_seq }
    }
}

struct Before {
    place: usize,
    balance: Balance,
    last_seq: i64,
}

/// What to put back when a chain breaks after this transfer.
struct Undo {
    transfer_id: TransferId,
    debit: Before,
    credit: Before,
}

/// Whether a transfer asks for what is booked. When it was asked does not matter.
fn same_content(known: &Booked, asked: &NewTransfer) -> bool {
    if known.step != asked.step.name() || known.memo != asked.memo {
        return false;
    }
    let same_sides = |debit: &AccountId, credit: &AccountId, amount: &Amount| {
        known.debit.account.account_id == *debit
            && known.credit.account.account_id == *credit
            && known.units == amount.units
            && *known.asset_id() == amount.asset_id
    };
    let same_hold =
        |hold: &TransferId| known.hold.as_ref().is_some_and(|closed| closed.transfer_id == *hold);
    match &asked.step {
        Step::Post { debit, credit, amount } => same_sides(debit, credit, amount),
        Step::Hold { debit, credit, amount, expires_ms } => {
            same_sides(debit, credit, amount) && known.expires_ms == Some(*expires_ms)
        }
        // All of it, if not said: whoever asks for all must not be told that a part is the same.
        Step::Settle { hold, units } => known.hold.as_ref().is_some_and(|closed| {
            closed.transfer_id == *hold && units.unwrap_or(closed.units) == known.units
        }),
        Step::Void { hold } | Step::Expire { hold } => same_hold(hold),
    }
}

/// Says which transfer of a chain was refused.
fn of_chain(refusal: Error, place: usize, count: usize) -> Error {
    match refusal {
        Error::Refused { code, message } if count > 1 => {
            let number = place.saturating_add(1);
            Error::refused(code, format!("transfer {number} of {count}: {message}"))
        }
        refusal => refusal,
    }
}
#[cfg(test)]
mod tests;
