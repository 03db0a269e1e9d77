//! How rows are read. Accounts, transfers and the head share one row form, so that PostgreSQL can answer with all three
//! in one journey.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use guild_protocol::amount::AssetId;
use guild_protocol::env::UnixMs;
use guild_store::{Column, Columns, Decode, Error as StoreError, FromVal, Rx, Sql};

use crate::account::{Account, Balance, Limit};
use crate::book::{Booked, ClosedHold, Entry, Side};
use crate::head::Head;
use crate::rule::{Gate, Rule};
use crate::transfer::StepName;
use crate::{Error, Result};

/// The columns of each kind of row: the kind, 11 integers, 6 texts. Accounts are `a`; transfers are `t`, with the hold
/// they close `o` and their own row as a hold `h`.
macro_rules! columns {
    (head) => {
        "CAST(0 AS BIGINT), last_seq, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT),
         CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT),
         CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), hash, CAST(NULL AS TEXT),
         CAST(NULL AS TEXT), CAST(NULL AS TEXT), CAST(NULL AS TEXT), CAST(NULL AS TEXT)"
    };
    (account) => {
        "CAST(1 AS BIGINT), a.account_no, a.debits_posted, a.credits_posted, a.debits_pending, a.credits_pending,
         a.last_seq, a.reserve_units, a.credit_units, a.opened_seq, a.opened_ms, CAST(NULL AS BIGINT),
         a.account_id, a.owner, a.purpose, a.asset_id, a.balance_limit, a.lets_through"
    };
    (transfer) => {
        "CAST(2 AS BIGINT), t.seq, t.debit_no, t.credit_no, t.units, t.hold_seq, o.units, t.expires_ms, t.at_ms,
         t.debit_prev_seq, t.credit_prev_seq, h.closed_by, t.transfer_id, t.step, o.transfer_id, t.memo,
         CAST(NULL AS TEXT), CAST(NULL AS TEXT)"
    };
    (transfer_joins) => {
        " LEFT JOIN ledger_hold AS h ON h.seq = t.seq LEFT JOIN ledger_transfer AS o ON o.seq = t.hold_seq "
    };
}
pub(crate) use columns;

/// A row of one of the three kinds.
pub(crate) enum Row {
    Head(Head),
    Account(Opened),
    Transfer(TransferRow),
}

/// An account with the moment it was opened.
pub(crate) struct Opened {
    pub(crate) entry: Entry,
    pub(crate) opened_seq: i64,
    pub(crate) opened_ms: UnixMs,
}

/// A transfer that knows its accounts by number only.
pub(crate) struct TransferRow {
    pub(crate) debit_no: i64,
    pub(crate) credit_no: i64,
    closed_by: Option<i64>,
    debit_prev_seq: i64,
    credit_prev_seq: i64,
    rest: Rest,
}

struct Rest {
    seq: i64,
    transfer_id: String,
    step: String,
    units: i64,
    hold: Option<(i64, i64, String)>,
    expires_ms: Option<UnixMs>,
    memo: String,
    at_ms: UnixMs,
}

type Stored<T> = guild_store::Result<T>;

fn col<T: FromVal>(row: &dyn Columns, i: usize) -> Stored<T> {
    T::from_val(row.val(i)?)
        .ok_or_else(|| StoreError::Decode(format!("ledger: column {i} has another type")))
}

pub(crate) fn unreadable(error: impl std::fmt::Display) -> Error {
    Error::Store(wrong(error))
}

fn wrong(error: impl std::fmt::Display) -> StoreError {
    StoreError::Decode(format!("ledger: {error}"))
}

impl Decode for Row {
    fn decode(row: &dyn Columns) -> Stored<Row> {
        match col::<i64>(row, 0)? {
            0 => {
                let hash = col::<String>(row, 12)?.parse().map_err(wrong)?;
                Ok(Row::Head(Head { last_seq: col(row, 1)?, hash }))
            }
            1 => Opened::decode(row).map(Row::Account),
            _ => TransferRow::decode(row).map(Row::Transfer),
        }
    }
}

impl Decode for Opened {
    fn decode(row: &dyn Columns) -> Stored<Opened> {
        let limit: String = col(row, 16)?;
        let account = Account {
            account_id: col::<String>(row, 12)?.parse().map_err(wrong)?,
            owner: col(row, 13)?,
            purpose: col(row, 14)?,
            asset_id: AssetId::new(&col::<String>(row, 15)?).map_err(wrong)?,
            limit: Limit::parse(&limit).ok_or_else(|| wrong(format!("limit {limit}")))?,
        };
        let balance = Balance {
            debits_posted: col(row, 2)?,
            credits_posted: col(row, 3)?,
            debits_pending: col(row, 4)?,
            credits_pending: col(row, 5)?,
        };
        let entry = Entry {
            account: Arc::new(account),
            account_no: col(row, 1)?,
            balance,
            rule: rule(col(row, 7)?, col(row, 17)?, col(row, 8)?)?,
            last_seq: col(row, 6)?,
        };
        Ok(Opened { entry, opened_seq: col(row, 9)?, opened_ms: col(row, 10)? })
    }
}

/// The rule that these columns hold.
pub(crate) fn rule(
    reserve_units: Option<i64>,
    lets_through: Option<String>,
    credit_units: Option<i64>,
) -> Stored<Rule> {
    let gate = match (reserve_units, lets_through) {
        (Some(reserve_units), Some(text)) => {
            Some(Gate { reserve_units, lets_through: serde_json::from_str(&text).map_err(wrong)? })
        }
        (None, None) => None,
        _ => return Err(wrong("half a gate")),
    };
    Ok(Rule { gate, credit_units })
}

impl Decode for TransferRow {
    fn decode(row: &dyn Columns) -> Stored<TransferRow> {
        let hold = match (col(row, 5)?, col(row, 6)?, col(row, 14)?) {
            (None, ..) => None,
            (Some(seq), Some(units), Some(transfer_id)) => Some((seq, units, transfer_id)),
            _ => return Err(wrong("a transfer closes a hold that does not exist")),
        };
        let rest = Rest {
            seq: col(row, 1)?,
            transfer_id: col(row, 12)?,
            step: col(row, 13)?,
            units: col(row, 4)?,
            hold,
            expires_ms: col(row, 7)?,
            memo: col(row, 15)?,
            at_ms: col(row, 8)?,
        };
        Ok(TransferRow {
            debit_no: col(row, 2)?,
            credit_no: col(row, 3)?,
            closed_by: col(row, 11)?,
            debit_prev_seq: col(row, 9)?,
            credit_prev_seq: col(row, 10)?,
            rest,
        })
    }
}

/// Accounts by their short names.
pub(crate) type Numbered = BTreeMap<i64, Arc<Account>>;

impl TransferRow {
    /// The transfer, and the number of the one that closed it if it is a hold.
    pub(crate) fn booked(self, accounts: &Numbered) -> Result<(Booked, Option<i64>)> {
        let TransferRow { debit_no, credit_no, closed_by, rest, .. } = self;
        let side = |account_no: i64, prev_seq: i64| match accounts.get(&account_no) {
            Some(account) => Ok(Side { account: account.clone(), account_no, prev_seq }),
            None => Err(unreadable(format!("transfer {} names no account", rest.seq))),
        };
        let (debit, credit) =
            (side(debit_no, self.debit_prev_seq)?, side(credit_no, self.credit_prev_seq)?);
        let hold = match rest.hold {
            None => None,
            Some((seq, units, id)) => {
                Some(ClosedHold { seq, units, transfer_id: id.parse().map_err(unreadable)? })
            }
        };
        let booked = Booked {
            seq: rest.seq,
            transfer_id: rest.transfer_id.parse().map_err(unreadable)?,
            step: StepName::parse(&rest.step)
                .ok_or_else(|| unreadable(format!("step {}", rest.step)))?,
            debit,
            credit,
            units: rest.units,
            hold,
            expires_ms: rest.expires_ms,
            memo: rest.memo,
            at_ms: rest.at_ms,
        };
        Ok((booked, closed_by))
    }
}

/// The transfers of these rows, in their order; their accounts are read in one go.
pub(crate) fn with_accounts(
    rx: &mut Rx<'_>,
    rows: Vec<TransferRow>,
) -> Result<Vec<(Booked, Option<i64>)>> {
    let numbers: BTreeSet<i64> = rows.iter().flat_map(|t| [t.debit_no, t.credit_no]).collect();
    let accounts = by_number(rx, &numbers.into_iter().collect::<Vec<_>>())?;
    let accounts: Numbered = accounts
        .into_iter()
        .map(|opened| (opened.entry.account_no, opened.entry.account))
        .collect();
    rows.into_iter().map(|row| row.booked(&accounts)).collect()
}

/// The accounts with these short names.
pub(crate) fn by_number(rx: &mut Rx<'_>, numbers: &[i64]) -> Result<Vec<Opened>> {
    const BY_NUMBER: Sql = Sql {
        lite: concat!(
            "SELECT ",
            columns!(account),
            " FROM ledger_account AS a WHERE a.account_no = $1"
        ),
        pg: concat!(
            "SELECT ",
            columns!(account),
            " FROM ledger_account AS a WHERE a.account_no = ANY ($1::bigint[])"
        ),
    };
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    Ok(rx.all_set(BY_NUMBER, &[Column::Ints(numbers)])?)
}
