//! The pure decision: given balances and holds, what a transfer changes, or why it is refused.
//!
//! A [`Book`] holds only what a batch touches. It is filled from the database, decides transfer after transfer, and
//! tells what must be written. The audit fills one from nothing and gets the whole history: the same code decides and
//! checks.

mod change;
mod entry;

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use guild_protocol::amount::Amount;
use guild_protocol::env::UnixMs;

use crate::account::{Account, AccountId, Balance};
use crate::error::code;
use crate::rule::{Rule, allow_limit};
use crate::transfer::{NewTransfer, Step, StepName, TransferId, check_time};
use crate::{Error, Result};

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

    /// The transfer with everything it leaves unsaid: which accounts, how much.
    fn resolve(&self, step: &Step, now_ms: UnixMs) -> Result<Resolved> {
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

/// A transfer with everything it leaves unsaid; accounts by their place in the book.
struct Resolved {
    debit: usize,
    credit: usize,
    units: i64,
    hold: Option<ClosedHold>,
    expires_ms: Option<UnixMs>,
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
mod tests {
    use guild_protocol::amount::AssetId;

    use super::*;
    use crate::account::Limit;
    use crate::rule::Gate;

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
            let number = i64::try_from(book.entries().len()).unwrap() + 1;
            book.add_account(Entry::opened(account, number));
        }
        book.apply(&post("deposit", &ids[0], &ids[1], 100), 0).unwrap();
        (book, ids)
    }

    fn transfer(name: &str, step: Step) -> NewTransfer {
        NewTransfer::new(TransferId::named(0, &[name]), step, "test").unwrap()
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
        TransferId::named(0, &[name])
    }

    fn free(book: &Book, id: &AccountId) -> (i64, i64) {
        let balance = book.entry(id).unwrap().balance;
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
        let costs = fees.account_id.clone();
        book.add_account(Entry::opened(fees, 4));
        let gate = Gate { reserve_units: 30, lets_through: vec!["sandboxes".to_owned()] };
        assert!(book.set_rule(&ann, Rule { gate: Some(gate), credit_units: None }));
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
        let refusal = book.apply_chain(&chain, 0).unwrap_err();
        assert_eq!(refusal.code().name, "ledger.overdraft");
        assert_eq!(refusal.to_string(), "transfer 3 of 4: main of bob has 50 free");
        assert_eq!(book, before);
        let good = book.apply_chain(&chain[..2], 0).unwrap();
        assert!(good.iter().all(|outcome| matches!(outcome, Outcome::New(_))));
        let seqs: Vec<i64> = good.iter().map(|outcome| outcome.booked().seq).collect();
        assert_eq!(seqs, [2, 3], "a refused chain takes no numbers");
        let prevs = good.iter().map(|o| (o.booked().debit.prev_seq, o.booked().credit.prev_seq));
        assert_eq!(prevs.collect::<Vec<_>>(), [(1, 0), (2, 2)]);
        assert_eq!(free(&book, &bob), (50, 50));
    }

    #[test]
    fn a_credit_is_how_far_below_zero_an_account_may_go() {
        let (mut book, [outside, ann, bob]) = book();
        let rule = |units| Rule { gate: None, credit_units: Some(units) };
        assert!(book.set_rule(&outside, rule(150)));
        assert_eq!(refused(&mut book, &post("a", &outside, &bob, 51), 0), "ledger.credit_limit");
        assert_eq!(refused(&mut book, &hold("a", &outside, &bob, 51), 0), "ledger.credit_limit");
        book.apply(&hold("h", &outside, &bob, 50), 0).unwrap();
        assert_eq!(refused(&mut book, &post("a", &outside, &bob, 1), 0), "ledger.credit_limit");
        // A lower credit leaves what was booked; paying back is always allowed.
        assert!(book.set_rule(&outside, rule(0)));
        book.apply(&post("back", &ann, &outside, 100), 0).unwrap();
        book.apply(&transfer("s", Step::Settle { hold: named("h"), units: None }), 0).unwrap();
        assert_eq!(free(&book, &outside), (-50, -50));
    }

    #[test]
    fn a_chain_that_is_too_long_is_refused() {
        let (mut book, [_, ann, bob]) = book();
        let chain: Vec<_> =
            (0..=CHAIN_MAX_TRANSFERS).map(|n| post(&n.to_string(), &ann, &bob, 1)).collect();
        assert_eq!(book.apply_chain(&chain, 0).unwrap_err().code().name, "ledger.malformed");
    }
}
