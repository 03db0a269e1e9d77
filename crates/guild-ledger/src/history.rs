//! Reading what happened: the statement of an account, holds that ran out, everything in order.

use std::borrow::Cow;

use guild_protocol::env::UnixMs;
use guild_store::{Rx, Tx, args};

use crate::account::{AccountId, Balance};
use crate::book::{Booked, Change, Outcome};
use crate::error::code;
use crate::head::Head;
use crate::ledger;
use crate::record::{Record, What};
use crate::row::{Opened, Row, TransferRow, columns, rule, unreadable, with_accounts};
use crate::transfer::{NewTransfer, Step, TransferId};
use crate::{Error, Result};

/// The largest page of anything.
pub const PAGE_MAX: i64 = 1_000;

/// A line of an account's statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementLine {
    /// What was booked.
    pub booked: Booked,
    /// How the account stood after it.
    pub balance: Balance,
}

/// The transfers that touched an account, newest first, each with the balance after it; those before number
/// `before_seq` if it is given, at most `limit` (and [`PAGE_MAX`]).
///
/// The walk begins at the newest transfer, because only the present balance is stored: a page far back costs as much
/// as all the pages before it.
pub fn statement(
    rx: &mut Rx<'_>,
    account_id: &AccountId,
    before_seq: Option<i64>,
    limit: i64,
) -> Result<Vec<StatementLine>> {
    statement_told(rx, account_id, before_seq, limit, &|_| ())
}

/// As [`statement`]; `told` hears now and then over how many transfers the walk has gone.
pub fn statement_told(
    rx: &mut Rx<'_>,
    account_id: &AccountId,
    before_seq: Option<i64>,
    limit: i64,
    told: &dyn Fn(u64),
) -> Result<Vec<StatementLine>> {
    let wanted = usize::try_from(limit.clamp(0, PAGE_MAX)).unwrap_or(0);
    let Some(entry) = ledger::entry(rx, account_id)? else {
        let message = format!("there is no account {account_id}");
        return Err(Error::refused(&code::UNKNOWN_ACCOUNT, message));
    };
    let mut lines = Vec::new();
    let mut seen: u64 = 0;
    let (mut next_seq, mut balance) = (entry.last_seq, entry.balance);
    while next_seq > 0 && lines.len() < wanted {
        let walked = walk(rx, entry.account_no, next_seq)?;
        if walked.is_empty() {
            return Err(unreadable(format!("transfer {next_seq} is missing")));
        }
        seen = seen.saturating_add(u64::try_from(walked.len()).unwrap_or(u64::MAX));
        told(seen);
        for booked in walked {
            let (before, prev_seq) = undone(&booked, entry.account_no, &balance)?;
            next_seq = prev_seq;
            let after = std::mem::replace(&mut balance, before);
            if lines.len() < wanted && before_seq.is_none_or(|before| booked.seq < before) {
                lines.push(StatementLine { booked, balance: after });
            }
        }
    }
    Ok(lines)
}

/// Up to a page of the transfers of an account, from number `seq` backwards.
fn walk(rx: &mut Rx<'_>, account_no: i64, seq: i64) -> Result<Vec<Booked>> {
    const WALK: &str = concat!(
        "WITH RECURSIVE walk (n, seq, prev_seq) AS (
           SELECT CAST(1 AS BIGINT), seq, CASE debit_no WHEN $1 THEN debit_prev_seq ELSE credit_prev_seq END
           FROM ledger_transfer WHERE seq = $2
           UNION ALL
           SELECT walk.n + 1, t.seq, CASE t.debit_no WHEN $1 THEN t.debit_prev_seq ELSE t.credit_prev_seq END
           FROM walk JOIN ledger_transfer AS t ON t.seq = walk.prev_seq WHERE walk.n < $3)
         SELECT ",
        columns!(transfer),
        " FROM walk JOIN ledger_transfer AS t ON t.seq = walk.seq",
        columns!(transfer_joins),
        "ORDER BY walk.n"
    );
    let rows: Vec<TransferRow> = rx.all(WALK, args![account_no, seq, PAGE_MAX])?;
    Ok(with_accounts(rx, rows)?.into_iter().map(|(booked, _)| booked).collect())
}

/// The balance before a transfer, and the number of the one before it.
fn undone(booked: &Booked, account_no: i64, after: &Balance) -> Result<(Balance, i64)> {
    let change = Change::of(booked.step, booked.units, booked.hold.as_ref()).reversed();
    let wrong = |_| unreadable(format!("transfer {} does not fit the balance", booked.seq));
    if booked.debit.account_no == account_no {
        Ok((change.debited(after).map_err(wrong)?, booked.debit.prev_seq))
    } else if booked.credit.account_no == account_no {
        Ok((change.credited(after).map_err(wrong)?, booked.credit.prev_seq))
    } else {
        Err(unreadable(format!("transfer {} is in the statement of a stranger", booked.seq)))
    }
}

/// Open holds that ran out by `now_ms`, longest ago first, at most `limit` (and [`PAGE_MAX`]).
pub fn holds_due(rx: &mut Rx<'_>, now_ms: UnixMs, limit: i64) -> Result<Vec<Booked>> {
    const DUE: &str = concat!(
        "SELECT ",
        columns!(transfer),
        " FROM (SELECT seq, expires_ms, closed_by FROM ledger_hold
                WHERE closed_by IS NULL AND expires_ms <= $1 ORDER BY expires_ms, seq LIMIT $2) AS h
          JOIN ledger_transfer AS t ON t.seq = h.seq LEFT JOIN ledger_transfer AS o ON o.seq = t.hold_seq
          ORDER BY h.expires_ms, h.seq"
    );
    let rows: Vec<TransferRow> = rx.all(DUE, args![now_ms, limit.clamp(0, PAGE_MAX)])?;
    Ok(with_accounts(rx, rows)?.into_iter().map(|(booked, _)| booked).collect())
}

/// Gives back the holds that ran out, at most `limit` (and [`PAGE_MAX`]); how many it was. The ids are made from the
/// holds, so two sweeps at once give each back once. One that is refused, because its id is taken, holds up no other;
/// when nothing else is left, its refusal is the answer.
pub fn expire_due(tx: &mut Tx<'_>, now_ms: UnixMs, limit: i64) -> Result<usize> {
    let due = holds_due(tx, now_ms, limit)?;
    let chains: Vec<Vec<NewTransfer>> = due
        .iter()
        .map(|hold| expiry(hold).map(|transfer| vec![transfer]))
        .collect::<Result<_>>()?;
    let (mut expired, mut refusal) = (0usize, None);
    for outcomes in ledger::book(tx, &chains, now_ms)? {
        match outcomes {
            Ok(outcomes) => {
                let new = outcomes.iter().filter(|o| matches!(o, Outcome::New(_))).count();
                expired = expired.saturating_add(new);
            }
            Err(refused) => refusal = refusal.or(Some(refused)),
        }
    }
    match refusal {
        Some(refused) if expired == 0 => Err(refused),
        _ => Ok(expired),
    }
}

fn expiry(hold: &Booked) -> Result<NewTransfer> {
    let words = ["hold.expire", hold.transfer_id.as_str()];
    let transfer_id = TransferId::named(hold.expires_ms.unwrap_or(hold.at_ms), &words);
    let step = Step::Expire { hold: hold.transfer_id.clone() };
    NewTransfer::new(transfer_id, step, "hold.expire")
}

/// Everything that happened after number `after`, in order, at most `limit` (and [`PAGE_MAX`]).
pub fn history_after(rx: &mut Rx<'_>, after: i64, limit: i64) -> Result<Vec<Record<'static>>> {
    let limit = limit.clamp(0, PAGE_MAX);
    let mut records = transfers_after(rx, after, limit)?;
    records.extend(accounts_after(rx, after, limit)?);
    records.extend(rules_after(rx, after, limit)?);
    records.sort_by_key(|record| record.seq);
    records.truncate(usize::try_from(limit).unwrap_or(0));
    Ok(records)
}

fn transfers_after(rx: &mut Rx<'_>, after: i64, limit: i64) -> Result<Vec<Record<'static>>> {
    const AFTER: &str = concat!(
        "SELECT ",
        columns!(transfer),
        " FROM ledger_transfer AS t",
        columns!(transfer_joins),
        "WHERE t.seq > $1 ORDER BY t.seq LIMIT $2"
    );
    let rows: Vec<TransferRow> = rx.all(AFTER, args![after, limit])?;
    let record = |(booked, _): (Booked, _)| Record {
        seq: booked.seq,
        at_ms: booked.at_ms,
        what: What::Transfer(Cow::Owned(booked)),
    };
    Ok(with_accounts(rx, rows)?.into_iter().map(record).collect())
}

fn accounts_after(
    rx: &mut Rx<'_>,
    after: i64,
    limit: i64,
) -> Result<impl Iterator<Item = Record<'static>>> {
    const AFTER: &str = concat!(
        "SELECT ",
        columns!(account),
        " FROM ledger_account AS a WHERE a.opened_seq > $1 ORDER BY a.opened_seq LIMIT $2"
    );
    let rows: Vec<Opened> = rx.all(AFTER, args![after, limit])?;
    Ok(rows.into_iter().map(|Opened { entry, opened_seq, opened_ms }| Record {
        seq: opened_seq,
        at_ms: opened_ms,
        what: What::Account {
            account: Cow::Owned(entry.account.as_ref().clone()),
            account_no: entry.account_no,
        },
    }))
}

fn rules_after(rx: &mut Rx<'_>, after: i64, limit: i64) -> Result<Vec<Record<'static>>> {
    type RuleRow = (i64, String, Option<i64>, Option<String>, Option<i64>, UnixMs);
    let rows: Vec<RuleRow> = rx.all(
        "SELECT r.seq, a.account_id, r.reserve_units, r.lets_through, r.credit_units, r.at_ms
         FROM ledger_rule AS r JOIN ledger_account AS a ON a.account_no = r.account_no
         WHERE r.seq > $1 ORDER BY r.seq LIMIT $2",
        args![after, limit],
    )?;
    rows.into_iter()
        .map(|(seq, account_id, reserve_units, lets_through, credit_units, at_ms)| {
            let account_id: AccountId = account_id.parse().map_err(unreadable)?;
            let rule = rule(reserve_units, lets_through, credit_units)?;
            let what = What::Rule { account_id: Cow::Owned(account_id), rule: Cow::Owned(rule) };
            Ok(Record { seq, at_ms, what })
        })
        .collect()
}

/// The heads after number `after`, in order, up to and including number `until`.
pub fn heads_between(rx: &mut Rx<'_>, after: i64, until: i64) -> Result<Vec<Head>> {
    const BETWEEN: &str = concat!(
        "SELECT ",
        columns!(head),
        " FROM ledger_head WHERE last_seq > $1 AND last_seq <= $2 ORDER BY last_seq"
    );
    let rows: Vec<Row> = rx.all(BETWEEN, args![after, until])?;
    let head = |row| if let Row::Head(head) = row { Some(head) } else { None };
    Ok(rows.into_iter().filter_map(head).collect())
}

/// The heads before and after the commit to which number `seq` belongs.
pub(crate) fn heads_around(rx: &mut Rx<'_>, seq: i64) -> Result<(Head, Head)> {
    const BEFORE: &str = concat!(
        "SELECT ",
        columns!(head),
        " FROM ledger_head WHERE last_seq < $1 ORDER BY last_seq DESC LIMIT 1"
    );
    const AFTER: &str = concat!(
        "SELECT ",
        columns!(head),
        " FROM ledger_head WHERE last_seq >= $1 ORDER BY last_seq LIMIT 1"
    );
    let head = |row: Option<Row>| match row {
        Some(Row::Head(head)) => Some(head),
        _ => None,
    };
    let before = head(rx.first(BEFORE, args![seq])?).unwrap_or_else(Head::start);
    let after = head(rx.first(AFTER, args![seq])?);
    let after = after.ok_or_else(|| unreadable(format!("record {seq} has no head")))?;
    Ok((before, after))
}
