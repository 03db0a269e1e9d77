//! The money of users: an account each in the ledger, in micro-USD.
//!
//! | what | how |
//! |---|---|
//! | [`credit`] | a deposit from outside, booked once for each reference |
//! | [`balance`] | what is free and held, what a minute costs now, how many minutes are left |
//! | [`statement`] | every transfer that touched the account |
//! | [`find_quote`] | what is missing for what somebody wanted |
//! | [`withdraw`] | money out, behind a reserve |

use guild_ledger::book::Booked;
use guild_ledger::history::{self, StatementLine};
use guild_ledger::{Account, AccountId, Limit, NewTransfer, Step, TransferId, ledger};
use guild_protocol::amount::{Amount, AssetId};
use guild_protocol::env::UnixMs;
use guild_protocol::typed_id;
use guild_store::{Rx, Tx, args};
use serde_json::json;

use crate::clamp::{check_spend, check_text};
use crate::error::code;
use crate::event::{Told, tell};
use crate::{Error, Result, UserId};

mod days;
mod quotes;
mod withdrawal;

pub use days::typical_burn;
pub(crate) use quotes::quote;
pub use quotes::{Buys, QUOTE_KEPT_MS, QUOTE_LIFETIME_MS, Quote, find_quote, forget_quotes};
pub use withdrawal::{
    NewWithdrawal, Withdrawal, WithdrawalStatus, confirm, fail, find_withdrawal, reserve, withdraw,
    withdrawals_before, withdrawals_open,
};
pub(crate) use withdrawal::{expire_withdrawals, withdrawals_unsent};

typed_id! {
    /// Names a withdrawal.
    WithdrawalId = "wd", made;
    /// Names a quote.
    HostingQuoteId = "quote", made;
}

/// The purpose of the account that minutes are paid to.
pub const REVENUE: &str = "hosting_revenue";
const REFERENCE_MAX_CHARS: usize = 128;
/// What fits into the memo of a transfer, behind a word about what it is.
const REFERENCE_MAX_BYTES: usize = 180;

/// The account of a user.
pub fn account(user_id: &UserId) -> Result<Account> {
    Ok(Account::new(user_id.as_str(), "main", AssetId::usd_micro(), Limit::NeverNegative)?)
}

/// Where the minutes are paid to.
pub fn revenue() -> Result<Account> {
    Ok(Account::new("node", REVENUE, AssetId::usd_micro(), Limit::NeverNegative)?)
}

/// What we bear ourselves: what ran without being paid.
pub fn loss() -> Result<Account> {
    Ok(Account::new("node", "hosting_loss", AssetId::usd_micro(), Limit::NeverPositive)?)
}

/// Where deposits come from and withdrawals go to.
pub fn outside() -> Result<Account> {
    Ok(Account::new("outside", "hosting", AssetId::usd_micro(), Limit::None)?)
}

pub(crate) fn usd(units: i64) -> Amount {
    Amount::new(AssetId::usd_micro(), units)
}

pub(crate) fn open(tx: &mut Tx<'_>, user_id: &UserId, now_ms: UnixMs) -> Result<AccountId> {
    opened(tx, account(user_id)?, now_ms)
}

pub(crate) fn open_revenue(tx: &mut Tx<'_>, now_ms: UnixMs) -> Result<AccountId> {
    opened(tx, revenue()?, now_ms)
}

pub(crate) fn open_loss(tx: &mut Tx<'_>, now_ms: UnixMs) -> Result<AccountId> {
    opened(tx, loss()?, now_ms)
}

fn opened(tx: &mut Tx<'_>, account: Account, now_ms: UnixMs) -> Result<AccountId> {
    ledger::open(tx, &account, now_ms)?;
    Ok(account.account_id)
}

/// Books one transfer. The inner refusal has changed nothing; the caller may go another way.
pub(crate) fn book_one(
    tx: &mut Tx<'_>,
    transfer: NewTransfer,
    now_ms: UnixMs,
) -> Result<guild_ledger::Result<std::sync::Arc<Booked>>> {
    let missing = guild_store::Error::Panicked;
    let outcomes = ledger::book(tx, &[vec![transfer]], now_ms)?.pop().ok_or(missing.clone())?;
    match outcomes {
        Ok(mut outcomes) => Ok(Ok(outcomes.pop().ok_or(missing)?.booked().clone())),
        Err(refused) => Ok(Err(refused)),
    }
}

/// Puts money from outside into a user's account. `reference` is what the outside calls the payment: it is booked once,
/// whoever sees it how often; for another user or amount it is refused. Whether it is new.
pub fn credit(
    tx: &mut Tx<'_>,
    user_id: &UserId,
    units: i64,
    reference: &str,
    now_ms: UnixMs,
) -> Result<bool> {
    check_spend(units)?;
    check_text("reference", reference, REFERENCE_MAX_CHARS)?;
    if reference.len() > REFERENCE_MAX_BYTES {
        let message = format!("reference must be at most {REFERENCE_MAX_BYTES} bytes");
        return Err(Error::refused(&code::MALFORMED, message));
    }
    // No time: whoever sees a payment a second time may see it at another one.
    let transfer_id = TransferId::named(0, &["hosting.credit", reference]);
    let new = !ledger::is_booked(tx, &transfer_id)?;
    let (debit, credit) = (opened(tx, outside()?, now_ms)?, open(tx, user_id, now_ms)?);
    let step = Step::Post { debit, credit, amount: usd(units) };
    let transfer = NewTransfer::new(transfer_id, step, &format!("hosting.credit {reference}"))?;
    match book_one(tx, transfer, now_ms)? {
        Ok(_) => {}
        Err(refused) if refused.code() == &guild_ledger::code::TRANSFER_CONFLICT => {
            let message = format!("{reference:?} is booked with other content");
            return Err(Error::refused(&code::REFERENCE_TAKEN, message));
        }
        Err(refused) => return Err(refused.into()),
    }
    if new {
        let told = Told {
            id: format!("credit:{reference}"),
            kind: "account.credited".to_owned(),
            body: json!({"user_id": user_id.as_str(), "units": units}),
        };
        tell(tx, &[told], now_ms)?;
    }
    Ok(new)
}

/// How an account stands, in micro-USD.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Balance {
    /// What can be spent.
    pub free: i64,
    /// What is set aside: first minutes of sandboxes that start, withdrawals under way.
    pub held: i64,
    /// What the next minute of all running sandboxes costs.
    pub burn_per_minute: i64,
    /// How many such minutes are free; none if nothing runs.
    pub minutes_left: Option<i64>,
}

/// How the account of a user stands. Whoever never had one has nothing.
pub fn balance(rx: &mut Rx<'_>, user_id: &UserId) -> Result<Balance> {
    let account_id = account(user_id)?.account_id;
    let entry = ledger::entries(rx, &[account_id].into())?.into_values().next();
    let balance = entry.map(|entry| entry.balance).unwrap_or_default();
    let burn_per_minute = burn(rx, user_id)?;
    let free = balance.free_units();
    let minutes_left = free.checked_div(burn_per_minute);
    Ok(Balance { free, held: balance.debits_pending, burn_per_minute, minutes_left })
}

pub(crate) const BURN: &str =
    "SELECT CAST(coalesce(sum(coalesce(next_price, price)), 0) AS BIGINT) FROM hosting_sandbox
     WHERE user_id = $1 AND status IN ('starting', 'running')";

/// What the next minute of all sandboxes of a user costs that start or run.
pub fn burn(rx: &mut Rx<'_>, user_id: &UserId) -> Result<i64> {
    let sum: Option<(i64,)> = rx.first(BURN, args![user_id.as_str()])?;
    Ok(sum.map_or(0, |(sum,)| sum))
}

/// The transfers that touched the account of a user, newest first; those before number `before_seq` if it is given.
pub fn statement(
    rx: &mut Rx<'_>,
    user_id: &UserId,
    before_seq: Option<i64>,
    limit: i64,
) -> Result<Vec<StatementLine>> {
    statement_of(rx, &account(user_id)?.account_id, before_seq, limit)
}

/// The same of any account. One that was never opened has nothing to tell.
pub(crate) fn statement_of(
    rx: &mut Rx<'_>,
    account_id: &AccountId,
    before_seq: Option<i64>,
    limit: i64,
) -> Result<Vec<StatementLine>> {
    match history::statement(rx, account_id, before_seq, limit) {
        Err(refused) if refused.code() == &guild_ledger::code::UNKNOWN_ACCOUNT => Ok(Vec::new()),
        lines => Ok(lines?),
    }
}
