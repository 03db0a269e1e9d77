//! The rules of money, written as plainly as they can be: a second opinion about every record.
//!
//! A record that breaks a rule is reported once and, where it says what moved, carried out all the same: it stands in
//! the history, so what follows was decided with it. An account that breaks a rule is named once, until it keeps the
//! rule again.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use guild_protocol::hash::Hash;

use super::code;
use super::finding::Refusal;
use super::record::{
    AccountKey, Counters, Limit, Opened, Rule, Step, Transfer, TransferKey, account_text,
    transfer_text,
};

/// How many unknown accounts are remembered as named.
const UNKNOWN_MAX: usize = 1_000;

type Checked = Result<(), Refusal>;

#[derive(Debug)]
struct Account {
    key: AccountKey,
    owner: String,
    purpose: String,
    asset_id: String,
    limit: Limit,
    credit_units: Option<i128>,
    gate: Option<Gate>,
    counters: Counters,
    /// Which rules it breaks, and was named for.
    named: Named,
}

#[derive(Debug)]
struct Gate {
    reserve_units: i128,
    lets_through: Vec<String>,
}

#[derive(Debug, Default)]
struct Named {
    limit: bool,
    gate: bool,
    credit: bool,
    overflow: bool,
}

#[derive(Debug)]
struct Hold {
    debit: AccountKey,
    credit: AccountKey,
    sides: Sides,
    units: i128,
    expires_ms: i64,
}

/// Where the two accounts of a transfer stand in the list, if they are known. Looked up once for each transfer.
#[derive(Debug, Clone, Copy)]
struct Sides {
    debit: Option<usize>,
    credit: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    NoHold,
    Open,
    Closed,
}

/// The state that the records so far have led to.
#[derive(Debug, Default)]
pub(super) struct Money {
    accounts: Vec<Account>,
    by_key: BTreeMap<AccountKey, usize>,
    open_holds: BTreeMap<TransferKey, Hold>,
    transfers: BTreeMap<TransferKey, Fate>,
    unknown: BTreeSet<AccountKey>,
}

impl Money {
    /// How many accounts are open.
    pub(super) fn accounts(&self) -> u64 {
        u64::try_from(self.accounts.len()).unwrap_or(u64::MAX)
    }

    /// The asset of an account, and what has gone through it.
    pub(super) fn account(&self, key: &AccountKey) -> Option<(&str, Counters)> {
        let account = self.accounts.get(*self.by_key.get(key)?)?;
        Some((&account.asset_id, account.counters))
    }

    fn sides(&self, transfer: &Transfer<'_>) -> Sides {
        Sides {
            debit: self.by_key.get(&transfer.debit).copied(),
            credit: self.by_key.get(&transfer.credit).copied(),
        }
    }

    fn at(&self, number: Option<usize>) -> Option<&Account> {
        self.accounts.get(number?)
    }

    fn at_mut(&mut self, number: Option<usize>) -> Option<&mut Account> {
        self.accounts.get_mut(number?)
    }

    pub(super) fn open(&mut self, opened: &Opened<'_>) -> Checked {
        let Opened { account: key, owner, purpose, asset_id, limit } = *opened;
        if self.by_key.contains_key(&key) {
            let message = format!("{} is open already", account_text(&key));
            return Err(Refusal::new(&code::REOPENED, message));
        }
        self.by_key.insert(key, self.accounts.len());
        self.accounts.push(Account {
            key,
            owner: owner.to_owned(),
            purpose: purpose.to_owned(),
            asset_id: asset_id.to_owned(),
            limit,
            credit_units: None,
            gate: None,
            counters: Counters::default(),
            named: Named::default(),
        });
        let name = format!("guild.account.v1\n{owner}\n{purpose}\n{asset_id}");
        let hash = Hash::of(name.as_bytes());
        if *hash.as_bytes() == key {
            return Ok(());
        }
        let message = format!("the name of {} has the hash {}", account_text(&key), hash.hex());
        Err(Refusal::new(&code::ACCOUNT_ID, message))
    }

    pub(super) fn set_rule(&mut self, rule: &Rule<'_>) -> Checked {
        let number = self.by_key.get(&rule.account).copied();
        let Some(account) = self.at_mut(number) else { return self.unknown(&rule.account) };
        account.credit_units = rule.credit_units;
        account.gate = rule.gate.as_ref().map(|gate| Gate {
            reserve_units: gate.reserve_units,
            lets_through: gate.lets_through.iter().map(|p| (*p).to_owned()).collect(),
        });
        (account.named.gate, account.named.credit) = (false, false);
        Ok(())
    }

    /// Checks a transfer and carries it out as far as it can be.
    pub(super) fn take(&mut self, transfer: &Transfer<'_>) -> Checked {
        let doubled = self.transfers.contains_key(&transfer.transfer);
        let moved = self.carry_out(transfer);
        if doubled {
            let message = format!("{} is booked already", transfer_text(&transfer.transfer));
            return Err(Refusal::new(&code::DOUBLED, message));
        }
        // A hold has noted itself; whatever else became of it, the id is taken.
        self.transfers.entry(transfer.transfer).or_insert(Fate::NoHold);
        moved
    }

    fn carry_out(&mut self, transfer: &Transfer<'_>) -> Checked {
        let units = transfer.units;
        if !(1..=i128::from(i64::MAX)).contains(&units) {
            let message = format!("units is {units}, not between 1 and {}", i64::MAX);
            return Err(Refusal::new(&code::AMOUNT, message));
        }
        let sides = self.sides(transfer);
        match transfer.step {
            Step::Post => {
                let checked = self.check_sides(transfer, sides);
                checked.and(self.move_units(sides, units, 0))
            }
            Step::Hold { expires_ms } => {
                let checked = self.check_sides(transfer, sides);
                checked.and(self.hold(transfer, sides, expires_ms))
            }
            Step::Settle { hold } => self.close(transfer, sides, &hold, units),
            Step::Void { hold } | Step::Expire { hold } => self.close(transfer, sides, &hold, 0),
        }
    }

    fn check_sides(&mut self, transfer: &Transfer<'_>, sides: Sides) -> Checked {
        let (from, to) = match (self.at(sides.debit), self.at(sides.credit)) {
            (Some(from), Some(to)) => (from, to),
            (None, _) => return self.unknown(&transfer.debit),
            (_, None) => return self.unknown(&transfer.credit),
        };
        if from.key == to.key {
            let message = format!("{} is on both sides", account_text(&from.key));
            return Err(Refusal::new(&code::SAME_ACCOUNT, message));
        }
        if from.asset_id != to.asset_id {
            let message = format!("from {} to {}", from.asset_id, to.asset_id);
            return Err(Refusal::new(&code::ASSET, message));
        }
        Ok(())
    }

    /// An unknown account is named once: all its records would say the same.
    pub(super) fn unknown(&mut self, account: &AccountKey) -> Checked {
        if self.unknown.contains(account) {
            return Ok(());
        }
        if self.unknown.len() < UNKNOWN_MAX {
            self.unknown.insert(*account);
        }
        let message = format!("{} is not opened before", account_text(account));
        Err(Refusal::new(&code::UNKNOWN_ACCOUNT, message))
    }

    fn hold(&mut self, transfer: &Transfer<'_>, sides: Sides, expires_ms: i64) -> Checked {
        let Transfer { transfer: key, debit, credit, units, at_ms, .. } = *transfer;
        if let Entry::Vacant(free) = self.transfers.entry(key) {
            free.insert(Fate::Open);
            self.open_holds.insert(key, Hold { debit, credit, sides, units, expires_ms });
        }
        self.move_units(sides, 0, units)?;
        if at_ms >= expires_ms {
            let message = format!("made at {at_ms}, it ran out at {expires_ms}");
            return Err(Refusal::new(&code::EXPIRY, message));
        }
        Ok(())
    }

    /// Closes a hold and posts so much of it.
    fn close(
        &mut self,
        transfer: &Transfer<'_>,
        sides: Sides,
        key: &TransferKey,
        posted: i128,
    ) -> Checked {
        let Some(held) = self.open_holds.remove(key) else {
            // Nothing is held any more, but what was said to be paid was paid.
            self.add(sides, posted, 0);
            let text = transfer_text(key);
            return Err(match self.transfers.get(key) {
                Some(Fate::Closed) => {
                    Refusal::new(&code::HOLD_CLOSED, format!("{text} is closed already"))
                }
                _ => Refusal::new(&code::UNKNOWN_HOLD, format!("{text} is no hold made before")),
            });
        };
        self.transfers.insert(*key, Fate::Closed);
        self.add(held.sides, posted, held.units.saturating_neg());
        check_closing(transfer, key, &held)?;
        self.check_overflow(held.sides)
    }

    /// Moves units that leave an account for the first time, so all its rules are asked.
    fn move_units(&mut self, sides: Sides, posted: i128, pending: i128) -> Checked {
        let let_through = self.lets_through(sides);
        for side in [sides.debit, sides.credit] {
            if let Some(account) = self.at_mut(side) {
                account.forgive();
            }
        }
        self.add(sides, posted, pending);
        // All rules are asked before one is reported, so that each is named in its time.
        let mut checked = Ok(());
        if let Some(account) = self.at_mut(sides.debit) {
            checked = account.check_limit();
            checked = checked.and(account.check_gate(let_through));
            checked = checked.and(account.check_credit());
        }
        if let Some(account) = self.at_mut(sides.credit) {
            checked = checked.and(account.check_limit());
        }
        checked.and(self.check_overflow(sides))
    }

    /// Whether the gate of one account lets everything through to the other.
    fn lets_through(&self, sides: Sides) -> bool {
        let gate = self.at(sides.debit).and_then(|account| account.gate.as_ref());
        let Some(gate) = gate else { return true };
        self.at(sides.credit)
            .is_some_and(|to| to.owner == "node" && gate.lets_through.contains(&to.purpose))
    }

    fn add(&mut self, sides: Sides, posted: i128, pending: i128) {
        // Each line adds at most 2^63, so 128 bits cannot be filled.
        if let Some(Account { counters, .. }) = self.at_mut(sides.debit) {
            counters.debits_posted = counters.debits_posted.saturating_add(posted);
            counters.debits_pending = counters.debits_pending.saturating_add(pending);
        }
        if let Some(Account { counters, .. }) = self.at_mut(sides.credit) {
            counters.credits_posted = counters.credits_posted.saturating_add(posted);
            counters.credits_pending = counters.credits_pending.saturating_add(pending);
        }
    }

    fn check_overflow(&mut self, sides: Sides) -> Checked {
        let debit = self.at_mut(sides.debit).map_or(Ok(()), Account::check_overflow);
        debit.and(self.at_mut(sides.credit).map_or(Ok(()), Account::check_overflow))
    }
}

fn check_closing(transfer: &Transfer<'_>, key: &TransferKey, held: &Hold) -> Checked {
    let Transfer { step, debit, credit, units, at_ms, .. } = *transfer;
    let hold = transfer_text(key);
    if (debit, credit) != (held.debit, held.credit) {
        let message = format!("{hold} is held between other accounts");
        return Err(Refusal::new(&code::SIDES, message));
    }
    let partly = matches!(step, Step::Settle { .. }) && units < held.units;
    if units != held.units && !partly {
        let message = format!("{units} of {} held by {hold}", held.units);
        return Err(Refusal::new(&code::HELD, message));
    }
    let in_time = match step {
        Step::Settle { .. } => at_ms < held.expires_ms,
        Step::Expire { .. } => at_ms >= held.expires_ms,
        _ => true,
    };
    if !in_time {
        let message = format!("{} at {at_ms}, {hold} runs out at {}", step.word(), held.expires_ms);
        return Err(Refusal::new(&code::EXPIRY, message));
    }
    Ok(())
}

impl Account {
    /// What is there and not held.
    fn free(&self) -> i128 {
        let out = self.counters.debits_posted.saturating_add(self.counters.debits_pending);
        self.counters.credits_posted.saturating_sub(out)
    }

    /// What came in or will come in, beyond what went out.
    fn above(&self) -> i128 {
        let into = self.counters.credits_posted.saturating_add(self.counters.credits_pending);
        into.saturating_sub(self.counters.debits_posted)
    }

    fn breaks_limit(&self) -> bool {
        match self.limit {
            Limit::NeverNegative => self.free() < 0,
            Limit::NeverPositive => self.above() > 0,
            Limit::None => false,
        }
    }

    fn breaks_gate(&self) -> bool {
        self.gate.as_ref().is_some_and(|gate| self.free() < gate.reserve_units)
    }

    fn breaks_credit(&self) -> bool {
        self.credit_units.is_some_and(|most| self.free().saturating_neg() > most)
    }

    /// Forgets the rules that the account keeps again.
    fn forgive(&mut self) {
        self.named.limit &= self.breaks_limit();
        self.named.gate &= self.breaks_gate();
        self.named.credit &= self.breaks_credit();
    }

    fn check_limit(&mut self) -> Checked {
        if self.named.limit || !self.breaks_limit() {
            return Ok(());
        }
        self.named.limit = true;
        let (code, units) = match self.limit {
            Limit::NeverPositive => (&code::ABOVE_ZERO, self.above()),
            _ => (&code::OVERDRAFT, self.free()),
        };
        Err(Refusal::new(code, format!("{} is left with {units}", self.called())))
    }

    fn check_gate(&mut self, let_through: bool) -> Checked {
        let Some(gate) = &self.gate else { return Ok(()) };
        if self.named.gate || let_through || !self.breaks_gate() {
            return Ok(());
        }
        let (free, reserve) = (self.free(), gate.reserve_units);
        self.named.gate = true;
        let message = format!("{} is left with {free}, its gate keeps {reserve}", self.called());
        Err(Refusal::new(&code::GATE, message))
    }

    fn check_credit(&mut self) -> Checked {
        let Some(most) = self.credit_units else { return Ok(()) };
        if self.named.credit || !self.breaks_credit() {
            return Ok(());
        }
        self.named.credit = true;
        let message =
            format!("{} is left with {}, its credit is {most}", self.called(), self.free());
        Err(Refusal::new(&code::CREDIT, message))
    }

    fn check_overflow(&mut self) -> Checked {
        let Counters { credits_pending, credits_posted, debits_pending, debits_posted } =
            self.counters;
        let counters = [credits_pending, credits_posted, debits_pending, debits_posted];
        let fits = |counter: i128| (0..=i128::from(i64::MAX)).contains(&counter);
        if self.named.overflow || counters.into_iter().all(fits) {
            return Ok(());
        }
        self.named.overflow = true;
        let message = format!("a counter of {} does not fit into 64 bits", self.called());
        Err(Refusal::new(&code::OVERFLOW, message))
    }

    fn called(&self) -> String {
        format!("{} ({} of {})", account_text(&self.key), self.purpose, self.owner)
    }
}
