//! The thin effect: accounts are opened, rules set and batches of transfers booked in the caller's transaction, with a
//! few statements whatever the size of the batch. Whatever changes the ledger ends with a new head.

mod load;
mod save;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use guild_protocol::env::UnixMs;
use guild_store::{Migration, Rx, Sql, Tx, args};

use crate::account::{Account, AccountId};
use crate::book::{Booked, Entry, Outcome};
use crate::error::code;
use crate::head::Head;
use crate::record::{Record, What};
use crate::row::{Opened, Row, columns, unreadable, with_accounts};
use crate::rule::Rule;
use crate::transfer::{NewTransfer, TransferId, check_time};
use crate::{Error, Result};

/// The tables of this crate.
pub fn migrations() -> Vec<Migration> {
    let migration =
        |number, name, lite, pg| Migration { area: "ledger", number, name, sql: Sql { lite, pg } };
    vec![
        migration(
            1,
            "ledger",
            include_str!("../migrations/sqlite/0001_ledger.sql"),
            include_str!("../migrations/postgres/0001_ledger.sql"),
        ),
        migration(
            2,
            "history",
            include_str!("../migrations/sqlite/0002_history.sql"),
            include_str!("../migrations/postgres/0002_history.sql"),
        ),
    ]
}

/// Opens an account; an account that is open stays as it is.
pub fn open(tx: &mut Tx<'_>, account: &Account, now_ms: UnixMs) -> Result<()> {
    check_time("now", now_ms)?;
    account.check()?;
    if let Some(entry) = entry(tx, &account.account_id)? {
        if *entry.account == *account {
            return Ok(());
        }
        let message = format!("{} is open with another limit", account.account_id);
        return Err(Error::refused(&code::ACCOUNT_CONFLICT, message));
    }
    let head = head(tx)?;
    let seq = head.last_seq.saturating_add(1);
    tx.exec(
        "INSERT INTO ledger_account
           (account_no, account_id, owner, purpose, asset_id, balance_limit, opened_seq, opened_ms)
         SELECT coalesce(max(account_no), 0) + 1, $1, $2, $3, $4, $5, $6, $7 FROM ledger_account",
        args![
            account.account_id.as_str(),
            &account.owner,
            &account.purpose,
            account.asset_id.as_str(),
            account.limit.as_str(),
            seq,
            now_ms
        ],
    )?;
    let what = What::Account { account: Cow::Borrowed(account), account_no: 0 };
    append_head(tx, &head.after([Record { seq, at_ms: now_ms, what }]))
}

/// Sets the whole rule of an account. It binds from now on; what was booked before stays. Setting the rule that is in
/// force changes nothing.
pub fn set_rule(
    tx: &mut Tx<'_>,
    account_id: &AccountId,
    rule: &Rule,
    now_ms: UnixMs,
) -> Result<()> {
    rule.check()?;
    check_time("now", now_ms)?;
    let Some(entry) = entry(tx, account_id)? else {
        let message = format!("there is no account {account_id}");
        return Err(Error::refused(&code::UNKNOWN_ACCOUNT, message));
    };
    if entry.rule == *rule {
        return Ok(());
    }
    let head = head(tx)?;
    let seq = head.last_seq.saturating_add(1);
    let reserve_units = rule.gate.as_ref().map(|gate| gate.reserve_units);
    let lets_through = match &rule.gate {
        Some(gate) => Some(serde_json::to_string(&gate.lets_through).map_err(unreadable)?),
        None => None,
    };
    tx.exec(
        "INSERT INTO ledger_rule (seq, account_no, reserve_units, lets_through, credit_units, at_ms)
         VALUES ($1, $2, $3, $4, $5, $6)",
        args![
            seq,
            entry.account_no,
            reserve_units,
            lets_through.as_ref(),
            rule.credit_units,
            now_ms
        ],
    )?;
    tx.exec(
        "UPDATE ledger_account SET reserve_units = $2, lets_through = $3, credit_units = $4
         WHERE account_no = $1",
        args![entry.account_no, reserve_units, lets_through.as_ref(), rule.credit_units],
    )?;
    let what = What::Rule { account_id: Cow::Borrowed(account_id), rule: Cow::Borrowed(rule) };
    append_head(tx, &head.after([Record { seq, at_ms: now_ms, what }]))
}

/// Books a batch of chains, each all or nothing; a refused chain holds up no other. For each chain the outcomes of its
/// transfers, or its one refusal.
pub fn book(
    tx: &mut Tx<'_>,
    chains: &[Vec<NewTransfer>],
    now_ms: UnixMs,
) -> Result<Vec<Result<Vec<Outcome>>>> {
    book_known(tx, BTreeMap::new(), chains, now_ms)
}

/// As [`book`], for whoever has read accounts in this very transaction, by [`entries`], and booked nothing since: they
/// are not read again.
pub fn book_known(
    tx: &mut Tx<'_>,
    known: BTreeMap<AccountId, Entry>,
    chains: &[Vec<NewTransfer>],
    now_ms: UnixMs,
) -> Result<Vec<Result<Vec<Outcome>>>> {
    let (head, mut book) = load::load(tx, known, chains)?;
    let decided: Vec<Result<Vec<Outcome>>> =
        chains.iter().map(|chain| book.apply_chain(chain, now_ms)).collect();
    save::save(tx, &head, &book, &decided)?;
    Ok(decided)
}

/// Whether a transfer with this id is booked.
pub fn is_booked(rx: &mut Rx<'_>, transfer_id: &TransferId) -> Result<bool> {
    let sql = "SELECT seq FROM ledger_transfer WHERE transfer_id = $1";
    let row: Option<(i64,)> = rx.first(sql, args![transfer_id.as_str()])?;
    Ok(row.is_some())
}

/// What a hold holds, and when it runs out; nothing if it was closed, or never made.
pub fn held(rx: &mut Rx<'_>, hold: &TransferId) -> Result<Option<(i64, UnixMs)>> {
    let sql =
        "SELECT t.units, h.expires_ms FROM ledger_transfer t JOIN ledger_hold h ON h.seq = t.seq
               WHERE t.transfer_id = $1 AND h.closed_by IS NULL";
    Ok(rx.first(sql, args![hold.as_str()])?)
}

/// The transfers with these ids that are booked.
pub fn booked(rx: &mut Rx<'_>, ids: &[TransferId]) -> Result<BTreeMap<TransferId, Booked>> {
    let ids: Vec<&str> = ids.iter().map(TransferId::as_str).collect();
    let rows = load::transfers_by_id(rx, &ids)?;
    let booked = with_accounts(rx, rows)?.into_iter();
    Ok(booked.map(|(booked, _)| (booked.transfer_id.clone(), booked)).collect())
}

/// The accounts with these ids, as they stand.
pub fn entries(rx: &mut Rx<'_>, ids: &BTreeSet<AccountId>) -> Result<BTreeMap<AccountId, Entry>> {
    let ids: Vec<&str> = ids.iter().map(AccountId::as_str).collect();
    Ok(load::accounts_by_id(rx, &ids)?.into_iter().map(named).collect())
}

/// Every account, as it stands.
pub fn all_entries(rx: &mut Rx<'_>) -> Result<BTreeMap<AccountId, Entry>> {
    const ALL: &str = concat!("SELECT ", columns!(account), " FROM ledger_account AS a");
    let all: Vec<Opened> = rx.all(ALL, args![])?;
    Ok(all.into_iter().map(named).collect())
}

/// The accounts of this owner for this purpose: one for each asset, in the order of the assets.
pub fn entries_named(rx: &mut Rx<'_>, owner: &str, purpose: &str) -> Result<Vec<Entry>> {
    const NAMED: &str = concat!(
        "SELECT ",
        columns!(account),
        " FROM ledger_account AS a WHERE a.owner = $1 AND a.purpose = $2 ORDER BY a.asset_id"
    );
    let all: Vec<Opened> = rx.all(NAMED, args![owner, purpose])?;
    Ok(all.into_iter().map(|opened| opened.entry).collect())
}

/// The first `limit` names, owner and purpose, for which there are accounts.
pub fn names(rx: &mut Rx<'_>, limit: i64) -> Result<Vec<(String, String)>> {
    let sql = "SELECT DISTINCT owner, purpose FROM ledger_account ORDER BY owner, purpose LIMIT $1";
    Ok(rx.all(sql, args![limit])?)
}

pub(crate) fn entry(rx: &mut Rx<'_>, account_id: &AccountId) -> Result<Option<Entry>> {
    let found = load::accounts_by_id(rx, &[account_id.as_str()])?;
    Ok(found.into_iter().next().map(|opened| opened.entry))
}

fn named(opened: Opened) -> (AccountId, Entry) {
    (opened.entry.account.account_id.clone(), opened.entry)
}

/// The head after everything that happened so far.
pub fn head(rx: &mut Rx<'_>) -> Result<Head> {
    const NEWEST: &str =
        concat!("SELECT ", columns!(head), " FROM ledger_head ORDER BY last_seq DESC LIMIT 1");
    match rx.first(NEWEST, args![])? {
        Some(Row::Head(head)) => Ok(head),
        _ => Ok(Head::start()),
    }
}

fn append_head(tx: &mut Tx<'_>, head: &Head) -> Result<()> {
    tx.exec(
        "INSERT INTO ledger_head (last_seq, hash) VALUES ($1, $2)",
        args![head.last_seq, &head.hash.to_string()],
    )?;
    Ok(())
}
