//! Recomputes everything from the transfers alone, with the code that decided them, and compares.

use std::collections::BTreeMap;

use guild_store::{Rx, args};

use crate::account::AccountId;
use crate::book::{Book, Booked, Entry, Outcome};
use crate::ledger::{all_entries, transfers_after};
use crate::transfer::{NewTransfer, Step};
use crate::{Result, head};

const PAGE: i64 = 1_000;

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

/// Replays all transfers from nothing: each must be allowed where it stands, the balances they lead to must be those
/// that are stored, every asset must add up to zero, and the heads must be those of the history.
pub fn run(rx: &mut Rx<'_>) -> Result<Report> {
    let stored = all_entries(rx)?;
    let mut replay = Replay::new(&stored);
    let heads: BTreeMap<i64, String> = rx
        .all::<(i64, String)>("SELECT last_seq, hash FROM ledger_head ORDER BY last_seq", args![])?
        .into_iter()
        .collect();
    let mut after = 0;
    loop {
        let page = transfers_after(rx, after, PAGE)?;
        let Some((last, _)) = page.last() else { break };
        after = *last;
        for (seq, booked) in page {
            replay.take(seq, booked, &heads);
        }
    }
    Ok(replay.report(&stored, &heads))
}

struct Replay {
    book: Book,
    since_head: Vec<Booked>,
    head: guild_protocol::hash::Hash,
    transfers: u64,
    last_seq: i64,
    problems: Vec<String>,
}

impl Replay {
    /// The accounts as they were opened. Gates are left out: they change over time and are not part of the history.
    fn new(stored: &BTreeMap<AccountId, Entry>) -> Replay {
        let opened = |(id, entry): (&AccountId, &Entry)| {
            let entry =
                Entry { account: entry.account.clone(), balance: Default::default(), gate: None };
            (id.clone(), entry)
        };
        let book = Book { accounts: stored.iter().map(opened).collect(), ..Book::default() };
        let problems = Vec::new();
        Replay {
            book,
            since_head: Vec::new(),
            head: head::start(),
            transfers: 0,
            last_seq: 0,
            problems,
        }
    }

    fn take(&mut self, seq: i64, booked: Booked, heads: &BTreeMap<i64, String>) {
        self.transfers = self.transfers.saturating_add(1);
        if seq != self.last_seq.saturating_add(1) {
            self.problems
                .push(format!("transfer {seq} follows {}: numbers are missing", self.last_seq));
        }
        self.last_seq = seq;
        match self.book.apply(&asked(&booked), booked.at_ms) {
            Ok(Outcome::New(again)) if again == booked => {}
            Ok(_) => {
                self.problems.push(format!("transfer {seq} is not what it should have become"));
            }
            Err(error) => self.problems.push(format!("transfer {seq} was not allowed: {error}")),
        }
        self.since_head.push(booked);
        if let Some(stored) = heads.get(&seq) {
            self.head = head::next(&self.head, &self.since_head);
            self.since_head.clear();
            if self.head.to_string() != *stored {
                self.problems
                    .push(format!("the head after transfer {seq} is not that of the history"));
            }
        }
    }

    fn report(
        mut self,
        stored: &BTreeMap<AccountId, Entry>,
        heads: &BTreeMap<i64, String>,
    ) -> Report {
        if !self.since_head.is_empty()
            || heads.keys().next_back().is_some_and(|seq| *seq > self.last_seq)
        {
            self.problems
                .push("the last head and the last transfer do not belong together".to_owned());
        }
        let mut sums: BTreeMap<&str, i128> = BTreeMap::new();
        for (id, entry) in stored {
            let computed = self.book.accounts.get(id).map(|e| e.balance);
            if computed != Some(entry.balance) {
                self.problems.push(format!(
                    "{id} is stored as {:?}, its transfers make {computed:?}",
                    entry.balance
                ));
            }
            let sum = sums.entry(entry.account.asset_id.as_str()).or_default();
            *sum = sum.saturating_add(i128::from(entry.balance.units()));
        }
        for (asset, sum) in sums.into_iter().filter(|(_, sum)| *sum != 0) {
            self.problems.push(format!("all accounts of {asset} together hold {sum}, not zero"));
        }
        Report { accounts: stored.len(), transfers: self.transfers, problems: self.problems }
    }
}

/// The transfer as it must have been asked for.
fn asked(booked: &Booked) -> NewTransfer {
    let (debit, credit, amount) =
        (booked.debit.clone(), booked.credit.clone(), booked.amount.clone());
    let hold = || booked.hold.clone().unwrap_or_else(|| booked.transfer_id.clone());
    let step = match booked.step {
        "post" => Step::Post { debit, credit, amount },
        "hold" => Step::Hold { debit, credit, amount, expires_ms: booked.expires_ms.unwrap_or(0) },
        "settle" => Step::Settle { hold: hold(), units: Some(booked.amount.units) },
        "void" => Step::Void { hold: hold() },
        _ => Step::Expire { hold: hold() },
    };
    NewTransfer { transfer_id: booked.transfer_id.clone(), step, memo: booked.memo.clone() }
}
