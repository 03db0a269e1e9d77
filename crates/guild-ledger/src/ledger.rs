//! The thin effect: accounts are opened and batches of transfers booked in the caller's transaction, with a few
//! statements whatever the size of the batch.

use std::collections::{BTreeMap, BTreeSet};

use guild_protocol::amount::{Amount, AssetId};
use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_store::{Error as StoreError, Migration, Rx, Sql, Tx, args};
use serde_json::{Value, json};

use crate::account::{Account, AccountId, Balance, Limit};
use crate::book::{Book, Booked, Entry, Gate, Outcome};
use crate::error::code;
use crate::transfer::{NewTransfer, Step, TransferId};
use crate::{Error, Result, head};

/// The tables of this crate.
pub fn migrations() -> Vec<Migration> {
    let ledger = Migration {
        area: "ledger",
        number: 1,
        name: "ledger",
        sql: include_str!("../migrations/sqlite/0001_ledger.sql").into(),
    };
    vec![ledger]
}

/// Opens an account; an account that is open stays as it is.
pub fn open(tx: &mut Tx<'_>, account: &Account, now_ms: UnixMs) -> Result<()> {
    tx.exec(
        "INSERT INTO ledger_account (account_id, owner, purpose, asset_id, balance_limit, opened_ms)
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (account_id) DO NOTHING",
        args![
            account.account_id.as_str(),
            &account.owner,
            &account.purpose,
            account.asset_id.as_str(),
            account.limit.as_str(),
            now_ms
        ],
    )?;
    match entries(tx, &BTreeSet::from([account.account_id.clone()]))?.pop_first() {
        Some((_, entry)) if entry.account == *account => Ok(()),
        _ => {
            let message = format!("{} is open with another limit", account.account_id);
            Err(Error::refused(&code::ACCOUNT_CONFLICT, message))
        }
    }
}

/// Sets the reserve that an account must keep, or removes it.
pub fn set_gate(tx: &mut Tx<'_>, account_id: &AccountId, gate: Option<&Gate>) -> Result<()> {
    match gate {
        None => {
            tx.exec("DELETE FROM ledger_gate WHERE account_id = $1", args![account_id.as_str()])?;
        }
        Some(gate) if gate.reserve_units < 0 => {
            return Err(Error::refused(&code::BAD_AMOUNT, "a reserve is zero or more"));
        }
        Some(gate) => {
            let lets_through = json!(gate.lets_through).to_string();
            tx.exec(
                "INSERT INTO ledger_gate (account_id, reserve_units, lets_through) VALUES ($1, $2, $3)
                 ON CONFLICT (account_id) DO UPDATE
                 SET reserve_units = excluded.reserve_units, lets_through = excluded.lets_through",
                args![account_id.as_str(), gate.reserve_units, &lets_through],
            )?;
        }
    }
    Ok(())
}

/// Books chains of transfers. A chain stands or falls as one; a refused chain holds up no other. The outcome of every
/// transfer, in the order of the chains.
pub fn book(
    tx: &mut Tx<'_>,
    chains: &[Vec<NewTransfer>],
    now_ms: UnixMs,
) -> Result<Vec<Vec<Result<Outcome>>>> {
    let mut book = load(tx, chains)?;
    let outcomes: Vec<_> = chains.iter().map(|chain| book.apply_chain(chain, now_ms)).collect();
    let new: Vec<&Booked> = outcomes
        .iter()
        .flatten()
        .filter_map(|outcome| match outcome {
            Ok(Outcome::New(booked)) => Some(booked),
            _ => None,
        })
        .collect();
    if !new.is_empty() {
        insert(tx, &new)?;
        write_balances(tx, &book, &new)?;
        write_head(tx, &new)?;
    }
    Ok(outcomes)
}

/// What is read of an account and its gate.
macro_rules! select_entry {
    ($array:literal, $cast:literal, $from:literal) => {
        concat!(
            "SELECT a.account_id, a.owner, a.purpose, a.asset_id, a.balance_limit, ",
            $array,
            "(a.debits_posted, a.credits_posted, a.debits_pending, a.credits_pending)",
            $cast,
            ", g.reserve_units, g.lets_through FROM ",
            $from
        )
    };
}

/// The accounts with these ids, as they stand.
pub fn entries(rx: &mut Rx<'_>, ids: &BTreeSet<AccountId>) -> Result<BTreeMap<AccountId, Entry>> {
    const SOME: Sql = Sql {
        lite: select_entry!(
            "json_array",
            "",
            "json_each($1) AS wanted JOIN ledger_account AS a ON a.account_id = wanted.value
             LEFT JOIN ledger_gate AS g ON g.account_id = a.account_id"
        ),
        pg: select_entry!(
            "json_build_array",
            "::text",
            "ledger_account AS a LEFT JOIN ledger_gate AS g ON g.account_id = a.account_id
             WHERE a.account_id IN (SELECT json_array_elements_text($1::json))"
        ),
    };
    let wanted = json!(ids).to_string();
    rx.all::<EntryRow>(SOME, args![&wanted])?.into_iter().map(entry_of).collect()
}

/// Every account, as it stands.
pub fn all_entries(rx: &mut Rx<'_>) -> Result<BTreeMap<AccountId, Entry>> {
    const ALL: Sql = Sql {
        lite: select_entry!(
            "json_array",
            "",
            "ledger_account AS a LEFT JOIN ledger_gate AS g ON g.account_id = a.account_id"
        ),
        pg: select_entry!(
            "json_build_array",
            "::text",
            "ledger_account AS a LEFT JOIN ledger_gate AS g ON g.account_id = a.account_id"
        ),
    };
    rx.all::<EntryRow>(ALL, args![])?.into_iter().map(entry_of).collect()
}

type EntryRow = (String, String, String, String, String, String, Option<i64>, Option<String>);

fn entry_of(row: EntryRow) -> Result<(AccountId, Entry)> {
    let (account_id, owner, purpose, asset_id, limit, counters, reserve_units, lets_through) = row;
    let account_id: AccountId = account_id.parse().map_err(unreadable)?;
    let limit = Limit::parse(&limit).ok_or_else(|| unreadable(format!("limit {limit}")))?;
    let (debits_posted, credits_posted, debits_pending, credits_pending) =
        serde_json::from_str(&counters).map_err(unreadable)?;
    let gate = match (reserve_units, lets_through) {
        (Some(reserve_units), Some(text)) => Some(Gate {
            reserve_units,
            lets_through: serde_json::from_str(&text).map_err(unreadable)?,
        }),
        _ => None,
    };
    let asset_id = AssetId::new(&asset_id).map_err(unreadable)?;
    let account = Account { account_id: account_id.clone(), owner, purpose, asset_id, limit };
    let balance = Balance { debits_posted, credits_posted, debits_pending, credits_pending };
    Ok((account_id, Entry { account, balance, gate }))
}

fn unreadable(error: impl std::fmt::Display) -> Error {
    Error::Store(StoreError::Decode(format!("ledger: {error}")))
}

/// Everything that the chains touch.
fn load(tx: &mut Tx<'_>, chains: &[Vec<NewTransfer>]) -> Result<Book> {
    let mut transfer_ids = BTreeSet::new();
    let mut account_ids = BTreeSet::new();
    for transfer in chains.iter().flatten() {
        transfer_ids.insert(transfer.transfer_id.clone());
        match &transfer.step {
            Step::Post { debit, credit, .. } | Step::Hold { debit, credit, .. } => {
                account_ids.extend([debit.clone(), credit.clone()]);
            }
            Step::Settle { hold, .. } | Step::Void { hold } | Step::Expire { hold } => {
                transfer_ids.insert(hold.clone());
            }
        }
    }
    let booked = booked_by_id(tx, &transfer_ids)?;
    account_ids.extend(booked.values().flat_map(|b| [b.debit.clone(), b.credit.clone()]));
    let closed = closed_by_hold(tx, &transfer_ids)?;
    Ok(Book { accounts: entries(tx, &account_ids)?, booked, closed })
}

const BOOKED: Sql = Sql {
    lite: "SELECT t.row FROM json_each($1) AS wanted JOIN
             (SELECT transfer_id, json_array(transfer_id, step, debit, credit, asset_id, units, hold_id,
                expires_ms, memo, at_ms) AS row FROM ledger_transfer) AS t
           ON t.transfer_id = wanted.value",
    pg: "SELECT json_build_array(transfer_id, step, debit, credit, asset_id, units, hold_id, expires_ms,
           memo, at_ms)::text FROM ledger_transfer
         WHERE transfer_id IN (SELECT json_array_elements_text($1::json))",
};

fn booked_by_id(
    rx: &mut Rx<'_>,
    ids: &BTreeSet<TransferId>,
) -> Result<BTreeMap<TransferId, Booked>> {
    let rows: Vec<(String,)> = rx.all(BOOKED, args![&json!(ids).to_string()])?;
    rows.into_iter()
        .map(|(row,)| booked_of(&row).map(|booked| (booked.transfer_id.clone(), booked)))
        .collect()
}

/// Every transfer after number `after`, in order, up to `limit`.
pub fn transfers_after(rx: &mut Rx<'_>, after: i64, limit: i64) -> Result<Vec<(i64, Booked)>> {
    const AFTER: Sql = Sql {
        lite: "SELECT seq, json_array(transfer_id, step, debit, credit, asset_id, units, hold_id, expires_ms,
                 memo, at_ms) FROM ledger_transfer WHERE seq > $1 ORDER BY seq LIMIT $2",
        pg: "SELECT seq, json_build_array(transfer_id, step, debit, credit, asset_id, units, hold_id,
               expires_ms, memo, at_ms)::text FROM ledger_transfer WHERE seq > $1 ORDER BY seq LIMIT $2",
    };
    let rows: Vec<(i64, String)> = rx.all(AFTER, args![after, limit])?;
    rows.into_iter().map(|(seq, row)| Ok((seq, booked_of(&row)?))).collect()
}

type BookedRow =
    (String, String, String, String, String, i64, Option<String>, Option<UnixMs>, String, UnixMs);

fn booked_of(row: &str) -> Result<Booked> {
    let (transfer_id, step, debit, credit, asset_id, units, hold, expires_ms, memo, at_ms): BookedRow =
        serde_json::from_str(row).map_err(unreadable)?;
    let step = ["post", "hold", "settle", "void", "expire"]
        .into_iter()
        .find(|known| *known == step)
        .ok_or_else(|| unreadable(format!("step {step}")))?;
    Ok(Booked {
        transfer_id: transfer_id.parse().map_err(unreadable)?,
        step,
        debit: debit.parse().map_err(unreadable)?,
        credit: credit.parse().map_err(unreadable)?,
        amount: Amount::new(AssetId::new(&asset_id).map_err(unreadable)?, units),
        hold: hold.map(|hold| hold.parse()).transpose().map_err(unreadable)?,
        expires_ms,
        memo,
        at_ms,
    })
}

fn closed_by_hold(
    rx: &mut Rx<'_>,
    ids: &BTreeSet<TransferId>,
) -> Result<BTreeMap<TransferId, TransferId>> {
    const CLOSED: Sql = Sql {
        lite: "SELECT t.hold_id, t.transfer_id FROM json_each($1) AS wanted
               JOIN ledger_transfer AS t ON t.hold_id = wanted.value",
        pg: "SELECT hold_id, transfer_id FROM ledger_transfer
             WHERE hold_id IN (SELECT json_array_elements_text($1::json))",
    };
    let rows: Vec<(String, String)> = rx.all(CLOSED, args![&json!(ids).to_string()])?;
    rows.into_iter()
        .map(|(hold, by)| Ok((hold.parse().map_err(unreadable)?, by.parse().map_err(unreadable)?)))
        .collect()
}

fn insert(tx: &mut Tx<'_>, new: &[&Booked]) -> Result<()> {
    const INSERT: Sql = Sql {
        lite: "INSERT INTO ledger_transfer (transfer_id, step, debit, credit, asset_id, units, hold_id,
                 expires_ms, memo, at_ms)
               SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
                 value ->> 6, value ->> 7, value ->> 8, value ->> 9
               FROM json_each($1) ORDER BY key",
        pg: "INSERT INTO ledger_transfer (transfer_id, step, debit, credit, asset_id, units, hold_id,
               expires_ms, memo, at_ms)
             SELECT r ->> 0, r ->> 1, r ->> 2, r ->> 3, r ->> 4, (r ->> 5)::bigint, r ->> 6,
               (r ->> 7)::bigint, r ->> 8, (r ->> 9)::bigint
             FROM json_array_elements($1::json) WITH ORDINALITY AS rows (r, n) ORDER BY n",
    };
    let row = |b: &&Booked| {
        json!([
            b.transfer_id,
            b.step,
            b.debit,
            b.credit,
            b.amount.asset_id,
            b.amount.units,
            b.hold,
            b.expires_ms,
            b.memo,
            b.at_ms
        ])
    };
    let rows: Vec<Value> = new.iter().map(row).collect();
    tx.exec(INSERT, args![&Value::Array(rows).to_string()])?;
    Ok(())
}

fn write_balances(tx: &mut Tx<'_>, book: &Book, new: &[&Booked]) -> Result<()> {
    const UPDATE: Sql = Sql {
        lite: "UPDATE ledger_account SET debits_posted = changed.value ->> 1,
                 credits_posted = changed.value ->> 2, debits_pending = changed.value ->> 3,
                 credits_pending = changed.value ->> 4
               FROM json_each($1) AS changed WHERE account_id = changed.value ->> 0",
        pg: "UPDATE ledger_account SET debits_posted = (c ->> 1)::bigint, credits_posted = (c ->> 2)::bigint,
               debits_pending = (c ->> 3)::bigint, credits_pending = (c ->> 4)::bigint
             FROM json_array_elements($1::json) AS c WHERE account_id = c ->> 0",
    };
    let touched: BTreeSet<&AccountId> = new.iter().flat_map(|b| [&b.debit, &b.credit]).collect();
    let row = |id: &&AccountId| {
        book.accounts.get(*id).map(|entry| {
            let b = &entry.balance;
            json!([id, b.debits_posted, b.credits_posted, b.debits_pending, b.credits_pending])
        })
    };
    let rows: Vec<Value> = touched.iter().filter_map(row).collect();
    let changed = tx.exec(UPDATE, args![&Value::Array(rows).to_string()])?;
    if usize::try_from(changed) != Ok(touched.len()) {
        return Err(unreadable("a balance could not be written"));
    }
    Ok(())
}

fn write_head(tx: &mut Tx<'_>, new: &[&Booked]) -> Result<()> {
    let hash = head::next(&head_hash(tx)?, new.iter().copied()).to_string();
    tx.exec(
        "INSERT INTO ledger_head (last_seq, hash) SELECT max(seq), $1 FROM ledger_transfer",
        args![&hash],
    )?;
    Ok(())
}

/// The head after everything booked so far.
pub fn head_hash(rx: &mut Rx<'_>) -> Result<Hash> {
    let newest: Option<(String,)> =
        rx.first("SELECT hash FROM ledger_head ORDER BY last_seq DESC LIMIT 1", args![])?;
    newest.map_or(Ok(head::start()), |(hash,)| hash.parse().map_err(unreadable))
}
