//! Reads what a batch touches: the head, the accounts, the transfers that are booked already and the holds.

use std::collections::{BTreeMap, BTreeSet};

use guild_store::{Column, Engine, Rx, Sql, Tx};

use crate::Result;
use crate::account::AccountId;
use crate::book::{Book, Entry, check_length};
use crate::head::Head;
use crate::row::{Numbered, Opened, Row, TransferRow, by_number, columns};
use crate::transfer::{NewTransfer, Step, TransferId};

/// What the chains name, each once and in order: neighbours in an index are read together.
struct Wanted<'a> {
    transfers: Vec<&'a str>,
    accounts: Vec<&'a str>,
}

impl<'a> Wanted<'a> {
    fn of(chains: &'a [Vec<NewTransfer>], known: &BTreeMap<AccountId, Entry>) -> Wanted<'a> {
        let (mut transfers, mut accounts) = (Vec::new(), Vec::new());
        // What is refused for its length is not looked up: it may name millions.
        for transfer in chains.iter().filter(|chain| check_length(chain).is_ok()).flatten() {
            transfers.push(transfer.transfer_id.as_str());
            match &transfer.step {
                Step::Post { debit, credit, .. } | Step::Hold { debit, credit, .. } => {
                    let unknown = [debit, credit].into_iter().filter(|id| !known.contains_key(id));
                    accounts.extend(unknown.map(AccountId::as_str));
                }
                Step::Settle { hold, .. } | Step::Void { hold } | Step::Expire { hold } => {
                    transfers.push(TransferId::as_str(hold));
                }
            }
        }
        for names in [&mut transfers, &mut accounts] {
            names.sort_unstable();
            names.dedup();
        }
        Wanted { transfers, accounts }
    }
}

/// What was found.
#[derive(Default)]
struct Found {
    head: Option<Head>,
    accounts: Vec<Opened>,
    transfers: Vec<TransferRow>,
}

impl Found {
    fn of(rows: Vec<Row>) -> Found {
        let mut found = Found::default();
        for row in rows {
            match row {
                Row::Head(head) => found.head = Some(head),
                Row::Account(account) => found.accounts.push(account),
                Row::Transfer(transfer) => found.transfers.push(transfer),
            }
        }
        found
    }

    fn into_book(self, known: BTreeMap<AccountId, Entry>) -> Result<(Head, Book)> {
        let head = self.head.unwrap_or_else(Head::start);
        let mut book = Book::after(head.last_seq);
        let mut numbered = Numbered::new();
        let known_transfers = !self.transfers.is_empty();
        let read = self.accounts.into_iter().map(|opened| opened.entry);
        for entry in known.into_values().chain(read) {
            if known_transfers {
                numbered.insert(entry.account_no, entry.account.clone());
            }
            book.add_account(entry);
        }
        for row in self.transfers {
            let (booked, closed_by) = row.booked(&numbered)?;
            book.add_booked(booked, closed_by);
        }
        Ok((head, book))
    }
}

/// Everything that the chains touch; of the accounts those that are not known.
pub(super) fn load(
    tx: &mut Tx<'_>,
    known: BTreeMap<AccountId, Entry>,
    chains: &[Vec<NewTransfer>],
) -> Result<(Head, Book)> {
    let wanted = Wanted::of(chains, &known);
    let found = match tx.engine() {
        Engine::Sqlite => load_row_by_row(tx, &wanted)?,
        Engine::Postgres => load_at_once(tx, &wanted)?,
    };
    found.into_book(known)
}

fn load_row_by_row(rx: &mut Rx<'_>, wanted: &Wanted<'_>) -> Result<Found> {
    let transfers = transfers_by_id(rx, &wanted.transfers)?;
    let mut accounts = accounts_by_id(rx, &wanted.accounts)?;
    let there: BTreeSet<i64> = accounts.iter().map(|a| a.entry.account_no).collect();
    let sides = transfers.iter().flat_map(|t| [t.debit_no, t.credit_no]);
    let missing: BTreeSet<i64> = sides.filter(|number| !there.contains(number)).collect();
    accounts.extend(by_number(rx, &missing.into_iter().collect::<Vec<_>>())?);
    Ok(Found { head: Some(super::head(rx)?), accounts, transfers })
}

/// One journey: the accounts of known transfers are found by the same statement as the transfers.
const AT_ONCE: &str = concat!(
    "WITH asked AS MATERIALIZED (SELECT * FROM ledger_transfer WHERE transfer_id = ANY ($1::text[]))
     (SELECT ",
    columns!(head),
    " FROM ledger_head ORDER BY last_seq DESC LIMIT 1)
     UNION ALL SELECT ",
    columns!(account),
    " FROM ledger_account AS a WHERE a.account_id = ANY ($2::text[])
     UNION ALL SELECT ",
    columns!(account),
    " FROM ledger_account AS a
      WHERE a.account_no IN (SELECT debit_no FROM asked UNION SELECT credit_no FROM asked)
     UNION ALL SELECT ",
    columns!(transfer),
    " FROM asked AS t",
    columns!(transfer_joins)
);

fn load_at_once(rx: &mut Rx<'_>, wanted: &Wanted<'_>) -> Result<Found> {
    // Columns of a set are equally long; NULL equals nothing.
    let rows = wanted.transfers.len().max(wanted.accounts.len());
    let transfers = padded_to(rows, &wanted.transfers);
    let accounts = padded_to(rows, &wanted.accounts);
    let columns = [Column::OptTexts(&transfers), Column::OptTexts(&accounts)];
    Ok(Found::of(rx.all_set(AT_ONCE, &columns)?))
}

fn padded_to<'a>(rows: usize, names: &[&'a str]) -> Vec<Option<&'a str>> {
    let mut padded: Vec<Option<&str>> = names.iter().copied().map(Some).collect();
    padded.resize(rows, None);
    padded
}

/// The transfers with these ids.
pub(super) fn transfers_by_id(rx: &mut Rx<'_>, ids: &[&str]) -> Result<Vec<TransferRow>> {
    const BY_ID: Sql = Sql {
        lite: concat!(
            "SELECT ",
            columns!(transfer),
            " FROM ledger_transfer AS t",
            columns!(transfer_joins),
            "WHERE t.transfer_id = $1"
        ),
        pg: concat!(
            "SELECT ",
            columns!(transfer),
            " FROM ledger_transfer AS t",
            columns!(transfer_joins),
            "WHERE t.transfer_id = ANY ($1::text[])"
        ),
    };
    Ok(rx.all_set(BY_ID, &[Column::Texts(ids)])?)
}

/// The accounts with these ids.
pub(super) fn accounts_by_id(rx: &mut Rx<'_>, ids: &[&str]) -> Result<Vec<Opened>> {
    const BY_ID: Sql = Sql {
        lite: concat!(
            "SELECT ",
            columns!(account),
            " FROM ledger_account AS a WHERE a.account_id = $1"
        ),
        pg: concat!(
            "SELECT ",
            columns!(account),
            " FROM ledger_account AS a WHERE a.account_id = ANY ($1::text[])"
        ),
    };
    Ok(rx.all_set(BY_ID, &[Column::Texts(ids)])?)
}
