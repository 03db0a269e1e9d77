//! Recomputes everything from the history alone, with the code that decided it, and compares with what is stored.

use std::collections::BTreeMap;

use guild_protocol::amount::Amount;
use guild_store::{Rx, args};

use crate::account::{Account, AccountId};
use crate::book::{Book, Booked, Entry, Outcome};
use crate::head::{Head, NextHead};
use crate::history::{PAGE_MAX, heads_between, history_after};
use crate::ledger::all_entries;
use crate::record::{Record, What};
use crate::transfer::{NewTransfer, Step, StepName};
use crate::{Result, ledger};

/// More problems than these are not listed: a damaged ledger may have millions.
const PROBLEMS_MAX: usize = 1_000;

/// What an audit found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How many accounts were compared.
    pub accounts: usize,
    /// How many transfers were replayed.
    pub transfers: u64,
    /// What does not agree; empty when all is well.
    pub problems: Vec<String>,
}

/// Replays the history from nothing: every number must be there, each transfer must be allowed where it stands, by the
/// rules of that moment; the balances, rules, holds and statements they lead to must be those that are stored, every
/// asset must add up to zero, and the heads must be those of the history.
pub fn run(rx: &mut Rx<'_>) -> Result<Report> {
    let stored = all_entries(rx)?;
    let strays = stray_rows(rx)?;
    if !strays.is_empty() {
        // Rows that point at nothing cannot be read as a history.
        return Ok(Report { accounts: stored.len(), transfers: 0, problems: strays });
    }
    let mut replay = Replay::new();
    loop {
        let after = replay.book.last_seq();
        let page = history_after(rx, after, PAGE_MAX)?;
        let Some(last) = page.last() else { break };
        let heads = heads_between(rx, after, last.seq)?;
        replay.take_page(page, &heads);
    }
    replay.compare_holds(rx)?;
    replay.compare_counts(rx)?;
    let last_head = ledger::head(rx)?;
    Ok(replay.report(&stored, &last_head))
}

/// Transfers whose accounts or hold do not exist. There is no foreign key that would forbid them.
fn stray_rows(rx: &mut Rx<'_>) -> Result<Vec<String>> {
    let strays: Vec<(i64,)> = rx.all(
        "SELECT t.seq FROM ledger_transfer AS t
           LEFT JOIN ledger_account AS d ON d.account_no = t.debit_no
           LEFT JOIN ledger_account AS c ON c.account_no = t.credit_no
           LEFT JOIN ledger_transfer AS o ON o.seq = t.hold_seq
         WHERE d.account_no IS NULL OR c.account_no IS NULL OR (t.hold_seq IS NOT NULL AND o.seq IS NULL)
         ORDER BY t.seq LIMIT 100",
        args![],
    )?;
    let told = |(seq,)| format!("transfer {seq} names an account or a hold that does not exist");
    Ok(strays.into_iter().map(told).collect())
}

struct Replay {
    book: Book,
    head: NextHead,
    records: i64,
    heads: i64,
    transfers: u64,
    problems: Vec<String>,
}

impl Replay {
    fn new() -> Replay {
        let head = NextHead::new(&Head::start());
        let book = Book::default();
        Replay { book, head, records: 0, heads: 0, transfers: 0, problems: Vec::new() }
    }

    fn problem(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }

    fn take_page(&mut self, page: Vec<Record<'_>>, heads: &[Head]) {
        let count = |len: usize| i64::try_from(len).unwrap_or(i64::MAX);
        self.records = self.records.saturating_add(count(page.len()));
        self.heads = self.heads.saturating_add(count(heads.len()));
        let mut heads = heads.iter().peekable();
        let mut line = String::new();
        for record in page {
            while let Some(stray) = heads.next_if(|head| head.last_seq < record.seq) {
                self.problem(format!("the head after {} covers nothing", stray.last_seq));
            }
            line.clear();
            record.write_line(&mut line);
            self.take(record);
            let seq = self.book.last_seq();
            self.head.take(seq, &line);
            if let Some(stored) = heads.next_if(|head| head.last_seq == seq) {
                let computed = std::mem::replace(&mut self.head, NextHead::new(stored)).finish();
                if computed != *stored {
                    self.problem(format!("the head after {seq} is not that of the history"));
                }
            }
        }
    }

    fn take(&mut self, record: Record<'_>) {
        let (seq, last_seq) = (record.seq, self.book.last_seq());
        if seq != last_seq.saturating_add(1) {
            self.problem(format!("{seq} follows {last_seq}: numbers are missing"));
        }
        match record.what {
            What::Account { account, account_no } => {
                let account = account.into_owned();
                let named = Account::new(
                    &account.owner,
                    &account.purpose,
                    account.asset_id.clone(),
                    account.limit,
                );
                if named.as_ref() != Ok(&account) {
                    self.problem(format!(
                        "{} does not have the id of its name",
                        account.account_id
                    ));
                }
                self.book.add_account(Entry::opened(account, account_no));
            }
            What::Rule { account_id, rule } => {
                if let Err(refusal) = rule.check() {
                    self.problem(format!("rule {seq} could not be set: {refusal}"));
                }
                if !self.book.set_rule(&account_id, rule.into_owned()) {
                    self.problem(format!("rule {seq} is of an account that was not yet opened"));
                }
            }
            What::Transfer(booked) => self.take_transfer(&booked),
        }
        self.book.skip_to(seq);
    }

    fn take_transfer(&mut self, booked: &Booked) {
        let seq = booked.seq;
        self.transfers = self.transfers.saturating_add(1);
        self.book.skip_to(seq.saturating_sub(1));
        match self.book.apply(&asked(booked), booked.at_ms) {
            Ok(Outcome::New(again)) if *again == *booked => {}
            Ok(Outcome::New(again))
                if again.debit == booked.debit && again.credit == booked.credit =>
            {
                self.problem(format!("transfer {seq} is not what it should have become"));
            }
            Ok(Outcome::New(_)) => {
                self.problem(format!(
                    "transfer {seq} follows others in its statements than it says"
                ));
            }
            Ok(Outcome::Known(_)) => self.problem(format!("transfer {seq} is booked twice")),
            Err(error) => self.problem(format!("transfer {seq} was not allowed: {error}")),
        }
        // Only an open hold is referred to again. The rest of a long history need not stay in memory.
        if booked.step != StepName::Hold {
            self.book.forget(&booked.transfer_id);
        }
        if let Some(hold) = &booked.hold {
            self.book.forget(&hold.transfer_id);
        }
    }

    /// The rows of holds must be those of the transfers that made and closed them.
    fn compare_holds(&mut self, rx: &mut Rx<'_>) -> Result<()> {
        const MADE: &str =
            "SELECT t.seq FROM ledger_transfer AS t LEFT JOIN ledger_hold AS h ON h.seq = t.seq
             WHERE (t.step = 'hold') <> (h.seq IS NOT NULL) OR h.expires_ms <> t.expires_ms
             ORDER BY t.seq LIMIT 100";
        const CLOSED: &str =
            "SELECT h.seq FROM ledger_transfer AS t JOIN ledger_hold AS h ON h.seq = t.hold_seq
             WHERE h.closed_by IS NULL OR h.closed_by <> t.seq ORDER BY h.seq LIMIT 100";
        const NOT_CLOSED: &str =
            "SELECT h.seq FROM ledger_hold AS h LEFT JOIN ledger_transfer AS m ON m.seq = h.seq
               LEFT JOIN ledger_transfer AS t ON t.seq = h.closed_by
             WHERE m.seq IS NULL
               OR (h.closed_by IS NOT NULL AND (t.hold_seq IS NULL OR t.hold_seq <> h.seq))
             ORDER BY h.seq LIMIT 100";
        for sql in [MADE, CLOSED, NOT_CLOSED] {
            for (seq,) in rx.all::<(i64,)>(sql, args![])? {
                self.problem(format!("the row of hold {seq} is not what its transfers make of it"));
            }
        }
        Ok(())
    }

    /// A row that a walk from 1 onwards, page by page, does not meet: of a number below 1, or of one that is taken.
    fn compare_counts(&mut self, rx: &mut Rx<'_>) -> Result<()> {
        const COUNTS: &str =
            "SELECT (SELECT count(*) FROM ledger_transfer) + (SELECT count(*) FROM ledger_account)
               + (SELECT count(*) FROM ledger_rule), (SELECT count(*) FROM ledger_head)";
        let counts: Option<(i64, i64)> = rx.first(COUNTS, args![])?;
        let (records, heads) = counts.unwrap_or_default();
        let seen = [("record", self.records, records), ("head", self.heads, heads)];
        for (what, seen, stored) in seen.into_iter().filter(|(_, seen, stored)| seen != stored) {
            let problem = format!(
                "there are {stored} rows, {seen} were met: a {what} has no place in the history"
            );
            self.problem(problem);
        }
        Ok(())
    }

    fn report(mut self, stored: &BTreeMap<AccountId, Entry>, last_head: &Head) -> Report {
        if !self.head.is_empty() || self.head.clone().finish() != *last_head {
            let problem = "the last head and the end of the history do not belong together";
            self.problem(problem.to_owned());
        }
        let mut sums: BTreeMap<&str, i128> = BTreeMap::new();
        for (id, entry) in stored {
            if let Some(problem) = difference(id, entry, self.book.entry(id)) {
                self.problem(problem);
            }
            let sum = sums.entry(entry.account.asset_id.as_str()).or_default();
            *sum = sum.saturating_add(i128::from(entry.balance.units()));
        }
        for (asset, sum) in sums.into_iter().filter(|(_, sum)| *sum != 0) {
            self.problem(format!("all accounts of {asset} together hold {sum}, not zero"));
        }
        Report { accounts: stored.len(), transfers: self.transfers, problems: self.problems }
    }
}

/// How an account differs from what the history makes of it.
fn difference(id: &AccountId, stored: &Entry, computed: Option<&Entry>) -> Option<String> {
    let Some(computed) = computed else {
        return Some(format!("{id} was never opened"));
    };
    if stored.balance != computed.balance {
        let (stored, computed) = (stored.balance, computed.balance);
        return Some(format!("{id} is stored as {stored:?}, its transfers make {computed:?}"));
    }
    if stored.rule != computed.rule {
        return Some(format!("{id} has another rule than was set last"));
    }
    if stored.last_seq != computed.last_seq {
        let (stored, computed) = (stored.last_seq, computed.last_seq);
        return Some(format!("the statement of {id} begins at {stored}, not at {computed}"));
    }
    None
}

/// The transfer as it must have been asked for.
fn asked(booked: &Booked) -> NewTransfer {
    let debit = booked.debit.account.account_id.clone();
    let credit = booked.credit.account.account_id.clone();
    let amount: Amount = booked.amount();
    let hold = || match &booked.hold {
        Some(hold) => hold.transfer_id.clone(),
        None => booked.transfer_id.clone(),
    };
    let step = match booked.step {
        StepName::Post => Step::Post { debit, credit, amount },
        StepName::Hold => {
            Step::Hold { debit, credit, amount, expires_ms: booked.expires_ms.unwrap_or(0) }
        }
        StepName::Settle => Step::Settle { hold: hold(), units: Some(booked.units) },
        StepName::Void => Step::Void { hold: hold() },
        StepName::Expire => Step::Expire { hold: hold() },
    };
    NewTransfer { transfer_id: booked.transfer_id.clone(), step, memo: booked.memo.clone() }
}
