//! The pure decision: given balances and holds, what a transfer changes, or why it is refused.
//!
//! A [`Book`] holds only what a batch touches. It is filled from the database, decides transfer after transfer, and
//! tells what must be written. The audit fills one from nothing and gets the whole history: the same code decides and
//! checks.

use std::collections::BTreeMap;

use guild_protocol::amount::{Amount, AssetId};
use guild_protocol::env::UnixMs;

use crate::account::{Account, AccountId, Balance, Limit};
use crate::error::code;
use crate::transfer::{NewTransfer, Step, TransferId};
use crate::{Error, Result};

/// Keeps a reserve in an account: no transfer may take it below, except to accounts of the purposes it lets through
/// (the running costs that the reserve is for).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// What must stay free.
    pub reserve_units: i64,
    /// The purposes of the node's own accounts that may be paid from the reserve.
    pub lets_through: Vec<String>,
}

/// An account with what has gone through it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The account.
    pub account: Account,
    /// What has gone through it.
    pub balance: Balance,
    /// Its gate, if it has one.
    pub gate: Option<Gate>,
}

/// A transfer as it is booked: what it did, with all amounts resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booked {
    /// Names it.
    pub transfer_id: TransferId,
    /// `post`, `hold`, `settle`, `void` or `expire`.
    pub step: &'static str,
    /// From here.
    pub debit: AccountId,
    /// To here.
    pub credit: AccountId,
    /// What it moves, holds, settles or gives back.
    pub amount: Amount,
    /// The hold it closes, if it closes one.
    pub hold: Option<TransferId>,
    /// When it runs out, if it is a hold.
    pub expires_ms: Option<UnixMs>,
    /// Why.
    pub memo: String,
    /// When it was booked.
    pub at_ms: UnixMs,
}

/// What became of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Booked now.
    New(Booked),
    /// Booked before, with the same content.
    Known(Booked),
}

/// The accounts, holds and earlier transfers that a batch touches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Book {
    /// By id.
    pub accounts: BTreeMap<AccountId, Entry>,
    /// Transfers booked before, by id; the holds among them can be closed.
    pub booked: BTreeMap<TransferId, Booked>,
    /// Which hold was closed by which transfer.
    pub closed: BTreeMap<TransferId, TransferId>,
}

impl Book {
    /// Decides one transfer and applies it. A refusal changes nothing.
    pub fn apply(&mut self, transfer: &NewTransfer, now_ms: UnixMs) -> Result<Outcome> {
        self.apply_undoably(transfer, now_ms).map(|(outcome, _)| outcome)
    }

    /// Decides a chain of transfers: all of them, or none. The outcome of each, in order.
    pub fn apply_chain(&mut self, chain: &[NewTransfer], now_ms: UnixMs) -> Vec<Result<Outcome>> {
        let mut outcomes = Vec::with_capacity(chain.len());
        let mut undos = Vec::new();
        for transfer in chain {
            match self.apply_undoably(transfer, now_ms) {
                Ok((outcome, undo)) => {
                    outcomes.push(Ok(outcome));
                    undos.extend(undo);
                }
                Err(refusal) => {
                    undos.into_iter().rev().for_each(|undo| self.undo(undo));
                    outcomes.push(Err(refusal));
                    return broken(chain, outcomes);
                }
            }
        }
        outcomes
    }

    fn apply_undoably(
        &mut self,
        transfer: &NewTransfer,
        now_ms: UnixMs,
    ) -> Result<(Outcome, Option<Undo>)> {
        if let Some(known) = self.booked.get(&transfer.transfer_id) {
            return match same_content(known, transfer) {
                true => Ok((Outcome::Known(known.clone()), None)),
                false => Err(Error::refused(
                    &code::TRANSFER_CONFLICT,
                    format!("{} is booked with other content", transfer.transfer_id),
                )),
            };
        }
        let booked = self.resolve(transfer, now_ms)?;
        let (debit, credit) = self.moved(&booked)?;
        // All checks have passed: from here on nothing can fail.
        let undo = Undo {
            debit: self.set_balance(&booked.debit, debit),
            credit: self.set_balance(&booked.credit, credit),
            booked: booked.clone(),
        };
        if let Some(hold) = &booked.hold {
            self.closed.insert(hold.clone(), booked.transfer_id.clone());
        }
        self.booked.insert(booked.transfer_id.clone(), booked.clone());
        Ok((Outcome::New(booked), Some(undo)))
    }

    fn undo(&mut self, undo: Undo) {
        self.set_balance(&undo.booked.credit, undo.credit);
        self.set_balance(&undo.booked.debit, undo.debit);
        if let Some(hold) = &undo.booked.hold {
            self.closed.remove(hold);
        }
        self.booked.remove(&undo.booked.transfer_id);
    }

    /// The balance before.
    fn set_balance(&mut self, account_id: &AccountId, balance: Balance) -> Balance {
        match self.accounts.get_mut(account_id) {
            Some(entry) => std::mem::replace(&mut entry.balance, balance),
            None => balance,
        }
    }

    fn entry(&self, account_id: &AccountId) -> Result<&Entry> {
        self.accounts.get(account_id).ok_or_else(|| {
            Error::refused(&code::UNKNOWN_ACCOUNT, format!("there is no account {account_id}"))
        })
    }

    /// The transfer with everything it leaves unsaid: which accounts, how much.
    fn resolve(&self, transfer: &NewTransfer, now_ms: UnixMs) -> Result<Booked> {
        let row = |debit: &AccountId, credit: &AccountId, amount: Amount| Booked {
            transfer_id: transfer.transfer_id.clone(),
            step: transfer.step.as_str(),
            debit: debit.clone(),
            credit: credit.clone(),
            amount,
            hold: None,
            expires_ms: None,
            memo: transfer.memo.clone(),
            at_ms: now_ms,
        };
        match &transfer.step {
            Step::Post { debit, credit, amount } => {
                self.check_sides(debit, credit, amount)?;
                Ok(row(debit, credit, amount.clone()))
            }
            Step::Hold { debit, credit, amount, expires_ms } => {
                self.check_sides(debit, credit, amount)?;
                if *expires_ms <= now_ms {
                    return Err(Error::refused(
                        &code::HOLD_EXPIRED,
                        "the hold would have run out already",
                    ));
                }
                Ok(Booked { expires_ms: Some(*expires_ms), ..row(debit, credit, amount.clone()) })
            }
            Step::Settle { hold, units } => {
                let held = self.open_hold(hold)?;
                if held.expires_ms.is_some_and(|at| at <= now_ms) {
                    return Err(Error::refused(&code::HOLD_EXPIRED, format!("{hold} has run out")));
                }
                let units = units.unwrap_or(held.amount.units);
                if units < 1 || units > held.amount.units {
                    let message =
                        format!("{units} is not between 1 and the {} held", held.amount.units);
                    return Err(Error::refused(&code::BAD_AMOUNT, message));
                }
                let amount = Amount::new(held.amount.asset_id.clone(), units);
                Ok(Booked { hold: Some(hold.clone()), ..row(&held.debit, &held.credit, amount) })
            }
            Step::Void { hold } => {
                let held = self.open_hold(hold)?;
                Ok(Booked {
                    hold: Some(hold.clone()),
                    ..row(&held.debit, &held.credit, held.amount.clone())
                })
            }
            Step::Expire { hold } => {
                let held = self.open_hold(hold)?;
                if held.expires_ms.is_none_or(|at| at > now_ms) {
                    return Err(Error::refused(
                        &code::NOT_EXPIRED,
                        format!("{hold} has not run out"),
                    ));
                }
                Ok(Booked {
                    hold: Some(hold.clone()),
                    ..row(&held.debit, &held.credit, held.amount.clone())
                })
            }
        }
    }

    fn check_sides(&self, debit: &AccountId, credit: &AccountId, amount: &Amount) -> Result<()> {
        if debit == credit {
            return Err(Error::refused(&code::SAME_ACCOUNT, format!("{debit} is on both sides")));
        }
        if amount.units < 1 {
            let message = format!("{} is not at least 1", amount.units);
            return Err(Error::refused(&code::BAD_AMOUNT, message));
        }
        for side in [debit, credit] {
            let asset_id: &AssetId = &self.entry(side)?.account.asset_id;
            if *asset_id != amount.asset_id {
                let message = format!("{side} holds {asset_id}, not {}", amount.asset_id);
                return Err(Error::refused(&code::WRONG_ASSET, message));
            }
        }
        Ok(())
    }

    fn open_hold(&self, hold: &TransferId) -> Result<&Booked> {
        let held =
            self.booked.get(hold).filter(|booked| booked.step == "hold").ok_or_else(|| {
                Error::refused(&code::UNKNOWN_HOLD, format!("there is no hold {hold}"))
            })?;
        match self.closed.get(hold) {
            None => Ok(held),
            Some(by) => {
                Err(Error::refused(&code::HOLD_CLOSED, format!("{hold} was closed by {by}")))
            }
        }
    }

    /// Both balances after the transfer, if both may be so.
    fn moved(&self, booked: &Booked) -> Result<(Balance, Balance)> {
        let (from, to) = (self.entry(&booked.debit)?, self.entry(&booked.credit)?);
        let held = booked.hold.as_ref().and_then(|hold| self.booked.get(hold));
        let change = Change::of(booked, held);
        let debit = change.debited(&from.balance)?;
        let credit = change.credited(&to.balance)?;
        // Closing a hold only frees what was set aside; whether it may leave was decided when it was held.
        if held.is_none() {
            check_limit(from, &debit)?;
            check_limit(to, &credit)?;
            check_gate(from, &debit, to)?;
        }
        Ok((debit, credit))
    }
}

/// What to put back when a chain breaks after this transfer.
struct Undo {
    debit: Balance,
    credit: Balance,
    booked: Booked,
}

/// What a transfer adds to the counters of its two accounts.
struct Change {
    posted: i64,
    pending: i64,
}

impl Change {
    fn of(booked: &Booked, held: Option<&Booked>) -> Change {
        let released = held.map_or(0, |held| held.amount.units.saturating_neg());
        match booked.step {
            "post" => Change { posted: booked.amount.units, pending: 0 },
            "hold" => Change { posted: 0, pending: booked.amount.units },
            "settle" => Change { posted: booked.amount.units, pending: released },
            _ => Change { posted: 0, pending: released },
        }
    }

    fn debited(&self, balance: &Balance) -> Result<Balance> {
        Ok(Balance {
            debits_posted: added(balance.debits_posted, self.posted)?,
            debits_pending: added(balance.debits_pending, self.pending)?,
            ..*balance
        })
    }

    fn credited(&self, balance: &Balance) -> Result<Balance> {
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

fn check_limit(entry: &Entry, after: &Balance) -> Result<()> {
    let (out, into) = match entry.account.limit {
        Limit::None => return Ok(()),
        Limit::NeverNegative => {
            (after.debits_posted.checked_add(after.debits_pending), after.credits_posted)
        }
        Limit::NeverPositive => {
            (after.credits_posted.checked_add(after.credits_pending), after.debits_posted)
        }
    };
    if out.is_some_and(|out| out <= into) {
        return Ok(());
    }
    let message = format!(
        "{} of {} has {} free",
        entry.account.purpose,
        entry.account.owner,
        entry.balance.free_units()
    );
    Err(Error::refused(&code::OVERDRAFT, message))
}

fn check_gate(from: &Entry, after: &Balance, to: &Entry) -> Result<()> {
    let Some(gate) = &from.gate else { return Ok(()) };
    let running_cost =
        to.account.owner == "node" && gate.lets_through.contains(&to.account.purpose);
    if running_cost || after.free_units() >= gate.reserve_units {
        return Ok(());
    }
    let message =
        format!("{} would stay free, the gate keeps {}", after.free_units(), gate.reserve_units);
    Err(Error::refused(&code::GATED, message))
}

/// Whether a transfer asks for what is booked. When it was asked does not matter.
fn same_content(known: &Booked, asked: &NewTransfer) -> bool {
    if known.step != asked.step.as_str() || known.memo != asked.memo {
        return false;
    }
    match &asked.step {
        Step::Post { debit, credit, amount } => {
            known.debit == *debit && known.credit == *credit && known.amount == *amount
        }
        Step::Hold { debit, credit, amount, expires_ms } => {
            known.debit == *debit
                && known.credit == *credit
                && known.amount == *amount
                && known.expires_ms == Some(*expires_ms)
        }
        Step::Settle { hold, units } => {
            known.hold.as_ref() == Some(hold)
                && units.is_none_or(|units| units == known.amount.units)
        }
        Step::Void { hold } | Step::Expire { hold } => known.hold.as_ref() == Some(hold),
    }
}

/// The outcomes of a chain that was refused: its one refusal, and the same news for all others.
fn broken(chain: &[NewTransfer], outcomes: Vec<Result<Outcome>>) -> Vec<Result<Outcome>> {
    let refused_at = outcomes.len().saturating_sub(1);
    let told =
        || Err(Error::refused(&code::CHAIN_BROKEN, "another transfer of the chain was refused"));
    let mut all: Vec<Result<Outcome>> = outcomes
        .into_iter()
        .enumerate()
        .map(|(i, outcome)| if i == refused_at { outcome } else { told() })
        .collect();
    all.resize_with(chain.len(), told);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(owner: &str, limit: Limit) -> Account {
        Account::new(owner, "main", AssetId::usd_micro(), limit).unwrap()
    }

    /// The outside world, and two users; the first has 100.
    fn book() -> (Book, [AccountId; 3]) {
        let accounts = [
            account("outside", Limit::None),
            account("ann", Limit::NeverNegative),
            account("bob", Limit::NeverNegative),
        ];
        let ids = accounts.clone().map(|account| account.account_id);
        let mut book = Book::default();
        for account in accounts {
            let entry = Entry { balance: Balance::default(), gate: None, account };
            book.accounts.insert(entry.account.account_id.clone(), entry);
        }
        book.apply(&post("deposit", &ids[0], &ids[1], 100), 0).unwrap();
        (book, ids)
    }

    fn transfer(name: &str, step: Step) -> NewTransfer {
        NewTransfer::new(TransferId::named(&[name]), step, "test").unwrap()
    }

    fn usd(units: i64) -> Amount {
        Amount::new(AssetId::usd_micro(), units)
    }

    fn post(name: &str, debit: &AccountId, credit: &AccountId, units: i64) -> NewTransfer {
        let (debit, credit) = (debit.clone(), credit.clone());
        transfer(name, Step::Post { debit, credit, amount: usd(units) })
    }

    fn hold(name: &str, debit: &AccountId, credit: &AccountId, units: i64) -> NewTransfer {
        let (debit, credit) = (debit.clone(), credit.clone());
        transfer(name, Step::Hold { debit, credit, amount: usd(units), expires_ms: 1_000 })
    }

    fn named(name: &str) -> TransferId {
        TransferId::named(&[name])
    }

    fn free(book: &Book, id: &AccountId) -> (i64, i64) {
        let balance = &book.accounts[id].balance;
        (balance.units(), balance.free_units())
    }

    fn refused(book: &mut Book, transfer: &NewTransfer, now_ms: UnixMs) -> &'static str {
        let before = book.clone();
        let code = book.apply(transfer, now_ms).unwrap_err().code().name;
        assert_eq!(*book, before, "a refusal changes nothing");
        code
    }

    #[test]
    fn a_hold_is_settled_voided_or_expires_once() {
        let (mut book, [_, ann, bob]) = book();
        for name in ["settled", "part", "voided", "expired"] {
            book.apply(&hold(name, &ann, &bob, 20), 0).unwrap();
        }
        assert_eq!(free(&book, &ann), (100, 20));
        let settle = |name: &str, units| {
            transfer(&format!("{name}-s"), Step::Settle { hold: named(name), units })
        };
        let void = transfer("void", Step::Void { hold: named("voided") });
        let expire = transfer("expire", Step::Expire { hold: named("expired") });
        book.apply(&settle("settled", None), 10).unwrap();
        book.apply(&settle("part", Some(5)), 10).unwrap();
        book.apply(&void, 10).unwrap();
        assert_eq!(refused(&mut book, &expire, 999), "ledger.not_expired");
        assert_eq!(refused(&mut book, &settle("expired", None), 1_000), "ledger.hold_expired");
        book.apply(&expire, 1_000).unwrap();
        assert_eq!((free(&book, &ann), free(&book, &bob)), ((75, 75), (25, 25)));
        for name in ["settled", "part", "voided", "expired"] {
            let again = transfer("again", Step::Void { hold: named(name) });
            assert_eq!(refused(&mut book, &again, 2_000), "ledger.hold_closed");
        }
    }

    #[test]
    fn a_repeat_is_the_same_transfer_and_other_content_a_conflict() {
        let (mut book, [_, ann, bob]) = book();
        let first = book.apply(&post("x", &ann, &bob, 10), 5).unwrap();
        let Outcome::New(booked) = first else { panic!("{first:?}") };
        assert_eq!(book.apply(&post("x", &ann, &bob, 10), 99), Ok(Outcome::Known(booked)));
        assert_eq!(refused(&mut book, &post("x", &ann, &bob, 11), 5), "ledger.transfer_conflict");
        assert_eq!(refused(&mut book, &post("x", &bob, &ann, 10), 5), "ledger.transfer_conflict");
        assert_eq!(free(&book, &bob), (10, 10));
    }

    #[test]
    fn what_must_not_be_is_refused() {
        let (mut book, [outside, ann, bob]) = book();
        let stranger = account("stranger", Limit::None).account_id;
        let msat = Step::Post {
            debit: ann.clone(),
            credit: bob.clone(),
            amount: Amount::new(AssetId::btc_ln(), 1),
        };
        for (asked, code) in [
            (post("a", &ann, &bob, 101), "ledger.overdraft"),
            (hold("a", &ann, &bob, 101), "ledger.overdraft"),
            (post("a", &ann, &bob, 0), "ledger.bad_amount"),
            (post("a", &ann, &bob, -5), "ledger.bad_amount"),
            (post("a", &ann, &bob, i64::MIN), "ledger.bad_amount"),
            (post("a", &ann, &ann, 1), "ledger.same_account"),
            (post("a", &ann, &stranger, 1), "ledger.unknown_account"),
            (transfer("a", msat), "ledger.wrong_asset"),
            (transfer("a", Step::Void { hold: named("nothing") }), "ledger.unknown_hold"),
            (transfer("a", Step::Void { hold: named("deposit") }), "ledger.unknown_hold"),
            (post("a", &outside, &ann, i64::MAX), "ledger.overflow"),
        ] {
            assert_eq!(refused(&mut book, &asked, 0), code, "{asked:?}");
        }
        let late = hold("a", &ann, &bob, 1);
        assert_eq!(refused(&mut book, &late, 1_000), "ledger.hold_expired");
        book.apply(&hold("h", &ann, &bob, 60), 0).unwrap();
        assert_eq!(refused(&mut book, &post("a", &ann, &bob, 41), 0), "ledger.overdraft");
        let more = transfer("a", Step::Settle { hold: named("h"), units: Some(61) });
        assert_eq!(refused(&mut book, &more, 0), "ledger.bad_amount");
    }

    #[test]
    fn a_gate_keeps_its_reserve_from_everything_but_running_costs() {
        let (mut book, [outside, ann, bob]) = book();
        let fees =
            Account::new("node", "sandboxes", AssetId::usd_micro(), Limit::NeverNegative).unwrap();
        let (costs, entry) = (
            fees.account_id.clone(),
            Entry { account: fees, balance: Balance::default(), gate: None },
        );
        book.accounts.insert(costs.clone(), entry);
        let gate = Gate { reserve_units: 30, lets_through: vec!["sandboxes".to_owned()] };
        book.accounts.get_mut(&ann).unwrap().gate = Some(gate);
        for to in [&outside, &bob] {
            assert_eq!(refused(&mut book, &post("a", &ann, to, 71), 0), "ledger.gated");
            assert_eq!(refused(&mut book, &hold("a", &ann, to, 71), 0), "ledger.gated");
        }
        book.apply(&hold("out", &ann, &outside, 70), 0).unwrap();
        assert_eq!(refused(&mut book, &post("a", &ann, &bob, 1), 0), "ledger.gated");
        book.apply(&post("minute", &ann, &costs, 30), 0).unwrap();
        assert_eq!(free(&book, &ann), (70, 0));
    }

    #[test]
    fn a_chain_stands_or_falls_as_one() {
        let (mut book, [_, ann, bob]) = book();
        let before = book.clone();
        let chain = [
            hold("h", &ann, &bob, 50),
            transfer("s", Step::Settle { hold: named("h"), units: None }),
            post("back", &bob, &ann, 51),
            post("never", &ann, &bob, 1),
        ];
        let codes: Vec<_> = book
            .apply_chain(&chain, 0)
            .into_iter()
            .map(|outcome| outcome.unwrap_err().code().name)
            .collect();
        let broken = "ledger.chain_broken";
        assert_eq!(codes, [broken, broken, "ledger.overdraft", broken]);
        assert_eq!(book, before);
        let good = book.apply_chain(&chain[..2], 0);
        assert!(good.iter().all(|outcome| matches!(outcome, Ok(Outcome::New(_)))));
        assert_eq!(free(&book, &bob), (50, 50));
    }
}
