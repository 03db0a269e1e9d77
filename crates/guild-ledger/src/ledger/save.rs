//! Writes what a batch decided: transfers, balances, holds, and the head.

use std::sync::Arc;

use guild_store::{Column, Engine, Tx};

use crate::Result;
use crate::book::{Book, Booked, Outcome};
use crate::head::Head;
use crate::record::Record;
use crate::row::unreadable;
use crate::transfer::StepName;

type Ints = Vec<Option<i64>>;
type Texts<'a> = Vec<Option<&'a str>>;

/// The new transfers, column by column.
#[derive(Default)]
struct Transfers<'a> {
    seq: Ints,
    transfer_id: Texts<'a>,
    step: Texts<'a>,
    debit_no: Ints,
    credit_no: Ints,
    units: Ints,
    hold_seq: Ints,
    expires_ms: Ints,
    memo: Texts<'a>,
    at_ms: Ints,
    debit_prev_seq: Ints,
    credit_prev_seq: Ints,
    /// For a hold that the same batch closes: by which transfer.
    closed_by: Ints,
}

impl<'a> Transfers<'a> {
    fn push(&mut self, t: &'a Booked, closed_by: Option<i64>) {
        self.seq.push(Some(t.seq));
        self.transfer_id.push(Some(t.transfer_id.as_str()));
        self.step.push(Some(t.step.as_str()));
        self.debit_no.push(Some(t.debit.account_no));
        self.credit_no.push(Some(t.credit.account_no));
        self.units.push(Some(t.units));
        self.hold_seq.push(t.hold.as_ref().map(|hold| hold.seq));
        self.expires_ms.push(t.expires_ms);
        self.memo.push(Some(&t.memo));
        self.at_ms.push(Some(t.at_ms));
        self.debit_prev_seq.push(Some(t.debit.prev_seq));
        self.credit_prev_seq.push(Some(t.credit.prev_seq));
        self.closed_by.push(closed_by);
    }

    fn columns(&self) -> [Column<'_>; 12] {
        [
            Column::OptInts(&self.seq),
            Column::OptTexts(&self.transfer_id),
            Column::OptTexts(&self.step),
            Column::OptInts(&self.debit_no),
            Column::OptInts(&self.credit_no),
            Column::OptInts(&self.units),
            Column::OptInts(&self.hold_seq),
            Column::OptInts(&self.expires_ms),
            Column::OptTexts(&self.memo),
            Column::OptInts(&self.at_ms),
            Column::OptInts(&self.debit_prev_seq),
            Column::OptInts(&self.credit_prev_seq),
        ]
    }

    fn pad_to(&mut self, rows: usize) {
        for texts in [&mut self.transfer_id, &mut self.step, &mut self.memo] {
            texts.resize(rows, None);
        }
        for ints in [
            &mut self.seq,
            &mut self.debit_no,
            &mut self.credit_no,
            &mut self.units,
            &mut self.hold_seq,
            &mut self.expires_ms,
            &mut self.at_ms,
            &mut self.debit_prev_seq,
            &mut self.credit_prev_seq,
            &mut self.closed_by,
        ] {
            ints.resize(rows, None);
        }
    }
}

/// The accounts that were touched, column by column.
#[derive(Default)]
struct Balances([Ints; 6]);

impl Balances {
    fn of(book: &Book, since: &Head) -> Balances {
        let mut this = Balances::default();
        for entry in book.entries().iter().filter(|entry| entry.last_seq > since.last_seq) {
            let b = &entry.balance;
            let row = [
                entry.account_no,
                b.debits_posted,
                b.credits_posted,
                b.debits_pending,
                b.credits_pending,
                entry.last_seq,
            ];
            this.0.iter_mut().zip(row).for_each(|(column, value)| column.push(Some(value)));
        }
        this
    }

    fn rows(&self) -> usize {
        self.0.first().map_or(0, Vec::len)
    }

    fn columns(&self) -> [Column<'_>; 6] {
        self.0.each_ref().map(|column| Column::OptInts(column))
    }
}

/// How many rows of each table must be written; anything else is a database that contradicts itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    transfers: u64,
    balances: u64,
    holds: u64,
    closed: u64,
}

/// Writes the new transfers among the outcomes and all that follows from them. Nothing new: nothing is written.
pub(super) fn save(
    tx: &mut Tx<'_>,
    head: &Head,
    book: &Book,
    decided: &[Result<Vec<Outcome>>],
) -> Result<()> {
    let outcomes = decided.iter().flatten().flatten();
    let new: Vec<&Arc<Booked>> = outcomes
        .filter_map(|outcome| match outcome {
            Outcome::New(booked) => Some(booked),
            Outcome::Known(_) => None,
        })
        .collect();
    if new.is_empty() {
        return Ok(());
    }
    let mut transfers = Transfers::default();
    for booked in &new {
        transfers.push(booked, book.closed_by(&booked.transfer_id));
    }
    let balances = Balances::of(book, head);
    let next = head.after(new.iter().map(|booked| Record::of_transfer(booked)));
    let expected = Counts {
        transfers: new.len() as u64,
        balances: balances.rows() as u64,
        holds: new.iter().filter(|b| b.step == StepName::Hold).count() as u64,
        closed: earlier_holds(&new, head).count() as u64,
    };
    let written = match tx.engine() {
        Engine::Sqlite => {
            save_row_by_row(tx, &transfers, &balances, &next, earlier_holds(&new, head))?
        }
        Engine::Postgres => save_at_once(tx, transfers, balances, &next)?,
    };
    if written != expected {
        return Err(unreadable(format!("{expected:?} was to be written, not {written:?}")));
    }
    Ok(())
}

/// The holds of earlier batches that this one closes, each with the number of the transfer that does.
fn earlier_holds(new: &[&Arc<Booked>], head: &Head) -> impl Iterator<Item = (i64, i64)> {
    let before = head.last_seq;
    new.iter()
        .filter_map(|booked| booked.hold.as_ref().map(|hold| (hold.seq, booked.seq)))
        .filter(move |(hold_seq, _)| *hold_seq <= before)
}

fn save_row_by_row(
    tx: &mut Tx<'_>,
    transfers: &Transfers<'_>,
    balances: &Balances,
    head: &Head,
    closed: impl Iterator<Item = (i64, i64)>,
) -> Result<Counts> {
    let (closed_seq, closed_by): (Vec<i64>, Vec<i64>) = closed.unzip();
    let mut holds = [Ints::new(), Ints::new(), Ints::new()];
    let rows = transfers.seq.iter().zip(&transfers.expires_ms).zip(&transfers.closed_by);
    for ((seq, expires_ms), closed_by) in rows.filter(|((_, expires_ms), _)| expires_ms.is_some()) {
        let row = [*seq, *expires_ms, *closed_by];
        holds.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
    }
    let counts = Counts {
        transfers: tx.exec_set(
            "INSERT INTO ledger_transfer (seq, transfer_id, step, debit_no, credit_no, units, hold_seq,
               expires_ms, memo, at_ms, debit_prev_seq, credit_prev_seq)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
            &transfers.columns(),
        )?,
        balances: tx.exec_set(
            "UPDATE ledger_account SET debits_posted = $2, credits_posted = $3, debits_pending = $4,
               credits_pending = $5, last_seq = $6 WHERE account_no = $1",
            &balances.columns(),
        )?,
        holds: tx.exec_set(
            "INSERT INTO ledger_hold (seq, expires_ms, closed_by) VALUES ($1, $2, $3)",
            &holds.each_ref().map(|column| Column::OptInts(column)),
        )?,
        closed: tx.exec_set(
            "UPDATE ledger_hold SET closed_by = $2 WHERE seq = $1 AND closed_by IS NULL",
            &[Column::Ints(&closed_seq), Column::Ints(&closed_by)],
        )?,
    };
    super::append_head(tx, head)?;
    Ok(counts)
}

/// One journey. A statement does not see what it writes itself: a hold that the same batch closes is inserted closed.
/// `coalesce` keeps the index of all open holds out of the search for one of them.
const AT_ONCE: &str = "WITH
    new AS MATERIALIZED (SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[],
        $6::bigint[], $7::bigint[], $8::bigint[], $9::text[], $10::bigint[], $11::bigint[], $12::bigint[],
        $13::bigint[]) AS n (seq, transfer_id, step, debit_no, credit_no, units, hold_seq, expires_ms, memo, at_ms,
        debit_prev_seq, credit_prev_seq, closed_by) WHERE seq IS NOT NULL),
    transfers AS (INSERT INTO ledger_transfer (seq, transfer_id, step, debit_no, credit_no, units, hold_seq,
        expires_ms, memo, at_ms, debit_prev_seq, credit_prev_seq)
      SELECT seq, transfer_id, step, debit_no, credit_no, units, hold_seq, expires_ms, memo, at_ms, debit_prev_seq,
        credit_prev_seq FROM new RETURNING 1),
    balances AS (UPDATE ledger_account AS a SET debits_posted = c.debits_posted,
        credits_posted = c.credits_posted, debits_pending = c.debits_pending, credits_pending = c.credits_pending,
        last_seq = c.last_seq
      FROM unnest($14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::bigint[])
        AS c (account_no, debits_posted, credits_posted, debits_pending, credits_pending, last_seq)
      WHERE a.account_no = c.account_no RETURNING 1),
    holds AS (INSERT INTO ledger_hold (seq, expires_ms, closed_by)
      SELECT seq, expires_ms, closed_by FROM new WHERE step = 'hold' RETURNING 1),
    closed AS (UPDATE ledger_hold AS h SET closed_by = n.seq FROM new AS n
      WHERE h.seq = n.hold_seq AND coalesce(h.closed_by, 0) = 0 RETURNING 1),
    head AS (INSERT INTO ledger_head (last_seq, hash)
      SELECT last_seq, hash FROM unnest($20::bigint[], $21::text[]) AS n (last_seq, hash)
      WHERE last_seq IS NOT NULL RETURNING 1)
  SELECT (SELECT count(*) FROM transfers), (SELECT count(*) FROM balances), (SELECT count(*) FROM holds),
    (SELECT count(*) FROM closed), (SELECT count(*) FROM head)";

fn save_at_once(
    tx: &mut Tx<'_>,
    mut transfers: Transfers<'_>,
    mut balances: Balances,
    head: &Head,
) -> Result<Counts> {
    // Columns of a set are equally long.
    let rows = transfers.seq.len().max(balances.rows());
    transfers.pad_to(rows);
    balances.0.iter_mut().for_each(|column| column.resize(rows, None));
    let hash = head.hash.to_string();
    let (mut last_seq, mut hashes) = (vec![Some(head.last_seq)], vec![Some(hash.as_str())]);
    last_seq.resize(rows, None);
    hashes.resize(rows, None);
    let mut columns = transfers.columns().to_vec();
    columns.push(Column::OptInts(&transfers.closed_by));
    columns.extend(balances.columns());
    columns.extend([Column::OptInts(&last_seq), Column::OptTexts(&hashes)]);
    let counts: Vec<(i64, i64, i64, i64, i64)> = tx.all_set(AT_ONCE, &columns)?;
    let count = |n: &i64| u64::try_from(*n).unwrap_or(0);
    match counts.as_slice() {
        [(transfers, balances, holds, closed, 1)] => Ok(Counts {
            transfers: count(transfers),
            balances: count(balances),
            holds: count(holds),
            closed: count(closed),
        }),
        _ => Err(unreadable("the head could not be written")),
    }
}
