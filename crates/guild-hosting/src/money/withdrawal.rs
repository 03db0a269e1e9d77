//! Money out, in two steps: held when it is asked for, gone when it has arrived, given back when it has not.
//!
//! What must stay is a rule of the account, set in the transaction that holds the money: enough for the running costs
//! of three days at the typical burn. Only those may be paid from it.

use guild_ledger::{Gate, NewTransfer, Rule, Step, TransferId, ledger};
use guild_protocol::env::UnixMs;
use guild_store::{Columns, Decode, Rx, Tx, args};
use serde::Serialize;
use serde_json::json;

use super::{REFERENCE_MAX_CHARS, REVENUE, WithdrawalId, book_one, open, opened, outside, usd};
use crate::clamp::{Policy, check_spend, check_text, check_time};
use crate::error::code;
use crate::event::{Told, tell};
use crate::row::{Cells, page};
use crate::{Error, Result, UserId};

/// So long somebody may take to send it. Afterwards it is given back by itself.
const HOLD_MS: i64 = 90 * 86_400_000;
/// What nobody has sent so long before is closed here: with its hold, which the ledger would give back by itself and
/// leave the row as it is.
const CLOSE_BEFORE_MS: i64 = 3_600_000;
const NOT_SENT: &str = "nobody sent it within 90 days; it is back in the account";
const MINUTE_MS: i64 = 60_000;

/// Where a withdrawal stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WithdrawalStatus {
    /// Held, to be sent.
    Requested,
    /// It has arrived.
    Confirmed,
    /// It could not be sent, and is back in the account.
    Failed,
}

impl WithdrawalStatus {
    /// The word in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            WithdrawalStatus::Requested => "requested",
            WithdrawalStatus::Confirmed => "confirmed",
            WithdrawalStatus::Failed => "failed",
        }
    }

    fn parse(word: &str) -> Option<WithdrawalStatus> {
        [WithdrawalStatus::Requested, WithdrawalStatus::Confirmed, WithdrawalStatus::Failed]
            .into_iter()
            .find(|status| status.as_str() == word)
    }
}

/// A withdrawal that somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWithdrawal {
    /// Made by the caller, so that asking again is asking for the same.
    pub withdrawal_id: WithdrawalId,
    /// From whose account.
    pub user_id: UserId,
    /// How much, in micro-USD.
    pub units: i64,
    /// Where to.
    pub destination: String,
}

/// A withdrawal as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withdrawal {
    /// Names it.
    pub withdrawal_id: WithdrawalId,
    /// From whose account.
    pub user_id: UserId,
    /// How much, in micro-USD.
    pub units: i64,
    /// Where to.
    pub destination: String,
    /// Where it stands.
    pub status: WithdrawalStatus,
    /// What the outside calls the payment, once it has arrived.
    pub reference: Option<String>,
    /// Why it failed.
    pub words: Option<String>,
    /// When it was asked for.
    pub requested_ms: UnixMs,
    /// Since when it stands like this.
    pub changed_ms: UnixMs,
}

impl Decode for Withdrawal {
    fn decode(row: &dyn Columns) -> guild_store::Result<Withdrawal> {
        let mut cells = Cells::of(row);
        Ok(Withdrawal {
            withdrawal_id: cells.parsed()?,
            user_id: cells.parsed()?,
            units: cells.next()?,
            destination: cells.next()?,
            status: cells.word(WithdrawalStatus::parse)?,
            reference: cells.next()?,
            words: cells.next()?,
            requested_ms: cells.next()?,
            changed_ms: cells.next()?,
        })
    }
}

impl Withdrawal {
    fn hold_id(&self) -> TransferId {
        hold_id(&self.withdrawal_id, self.requested_ms)
    }

    /// The transfer that ends it.
    pub(crate) fn end_id(&self, word: &str) -> TransferId {
        TransferId::named(self.requested_ms, &[word, self.withdrawal_id.as_str()])
    }
}

fn hold_id(withdrawal_id: &WithdrawalId, requested_ms: UnixMs) -> TransferId {
    TransferId::named(requested_ms, &["withdrawal.hold", withdrawal_id.as_str()])
}

/// What has to stay in an account after a withdrawal: what the typical burn costs for as long as the policy asks.
pub fn reserve(rx: &mut Rx<'_>, user_id: &UserId, policy: &Policy, now_ms: UnixMs) -> Result<i64> {
    let burn = super::typical_burn(rx, user_id, now_ms)?;
    let minutes = policy.reserve_ms.max(0).div_euclid(MINUTE_MS);
    // A reserve that does not fit lets nothing out.
    Ok(burn.saturating_mul(minutes))
}

/// Asks for money out: the reserve is set and the money held, in one transaction. Refused with `ledger.gated` if too
/// little would stay, with `ledger.overdraft` if it is not there at all. The same again changes nothing.
pub fn withdraw(
    tx: &mut Tx<'_>,
    new: &NewWithdrawal,
    policy: &Policy,
    now_ms: UnixMs,
) -> Result<Withdrawal> {
    if let Some(known) = find_withdrawal(tx, &new.withdrawal_id)? {
        let same = known.user_id == new.user_id
            && known.units == new.units
            && known.destination == new.destination;
        let taken = || Error::refused(&code::ID_TAKEN, format!("{} is taken", new.withdrawal_id));
        return if same { Ok(known) } else { Err(taken()) };
    }
    check_spend(new.units)?;
    check_text("destination", &new.destination, 200)?;
    check_time("now", now_ms)?;
    let debit = open(tx, &new.user_id, now_ms)?;
    let gate = Gate {
        reserve_units: reserve(tx, &new.user_id, policy, now_ms)?,
        lets_through: vec![REVENUE.to_owned()],
    };
    ledger::set_rule(tx, &debit, &Rule { gate: Some(gate), credit_units: None }, now_ms)?;
    let step = Step::Hold {
        debit,
        credit: opened(tx, outside()?, now_ms)?,
        amount: usd(new.units),
        expires_ms: now_ms.saturating_add(HOLD_MS),
    };
    let memo = format!("withdrawal.hold {}", new.withdrawal_id);
    let hold = NewTransfer::new(hold_id(&new.withdrawal_id, now_ms), step, &memo)?;
    book_one(tx, hold, now_ms)??;
    tx.exec(
        "INSERT INTO hosting_withdrawal (withdrawal_id, user_id, units, destination, status, requested_ms, changed_ms)
         VALUES ($1, $2, $3, $4, 'requested', $5, $5)",
        args![
            new.withdrawal_id.as_str(),
            new.user_id.as_str(),
            new.units,
            &new.destination,
            now_ms
        ],
    )?;
    changed(tx, &new.withdrawal_id, now_ms)
}

/// The money has arrived, as the outside says under this reference. The same again changes nothing.
pub fn confirm(
    tx: &mut Tx<'_>,
    withdrawal_id: &WithdrawalId,
    reference: &str,
    now_ms: UnixMs,
) -> Result<Withdrawal> {
    check_text("reference", reference, REFERENCE_MAX_CHARS)?;
    let withdrawal = get(tx, withdrawal_id)?;
    if withdrawal.reference.as_deref() == Some(reference) {
        return Ok(withdrawal);
    }
    let step = Step::Settle { hold: withdrawal.hold_id(), units: None };
    close(tx, &withdrawal, step, "withdrawal.settle", now_ms)?;
    tx.cas(
        "UPDATE hosting_withdrawal SET status = 'confirmed', reference = $2, changed_ms = $3
         WHERE withdrawal_id = $1 AND status = 'requested'",
        args![withdrawal_id.as_str(), reference, now_ms],
    )?;
    changed(tx, withdrawal_id, now_ms)
}

/// The money could not be sent: it is given back. The same again changes nothing.
pub fn fail(
    tx: &mut Tx<'_>,
    withdrawal_id: &WithdrawalId,
    words: &str,
    now_ms: UnixMs,
) -> Result<Withdrawal> {
    check_text("words", words, 200)?;
    let withdrawal = get(tx, withdrawal_id)?;
    if withdrawal.status == WithdrawalStatus::Failed {
        return Ok(withdrawal);
    }
    let step = Step::Void { hold: withdrawal.hold_id() };
    close(tx, &withdrawal, step, "withdrawal.void", now_ms)?;
    tx.cas(
        "UPDATE hosting_withdrawal SET status = 'failed', words = $2, changed_ms = $3
         WHERE withdrawal_id = $1 AND status = 'requested'",
        args![withdrawal_id.as_str(), words, now_ms],
    )?;
    changed(tx, withdrawal_id, now_ms)
}

/// Closes withdrawals that nobody has sent in time, at most `limit`: what was held is given back, in the same
/// transaction. How many it was.
pub(crate) fn expire_withdrawals(tx: &mut Tx<'_>, now_ms: UnixMs, limit: i64) -> Result<usize> {
    let due = withdrawals_unsent(tx, now_ms, limit)?;
    for withdrawal in &due {
        fail(tx, &withdrawal.withdrawal_id, NOT_SENT, now_ms)?;
    }
    Ok(due.len())
}

fn close(
    tx: &mut Tx<'_>,
    withdrawal: &Withdrawal,
    step: Step,
    word: &str,
    now_ms: UnixMs,
) -> Result<()> {
    let id = &withdrawal.withdrawal_id;
    if withdrawal.status != WithdrawalStatus::Requested {
        let message = format!("{id} is {}", withdrawal.status.as_str());
        return Err(Error::refused(&code::WITHDRAWAL_CLOSED, message));
    }
    let transfer = NewTransfer::new(withdrawal.end_id(word), step, &format!("{word} {id}"))?;
    match book_one(tx, transfer, now_ms)? {
        // Given back by itself, after three months.
        Err(refused)
            if word == "withdrawal.void" && refused.code() == &guild_ledger::code::HOLD_CLOSED =>
        {
            Ok(())
        }
        Err(refused) => Err(refused.into()),
        Ok(_) => Ok(()),
    }
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT withdrawal_id, user_id, units, destination, status, reference, words, requested_ms, changed_ms
             FROM hosting_withdrawal ",
            $rest
        )
    };
}

/// The withdrawal with this id, whoever asked for it.
pub fn find_withdrawal(
    rx: &mut Rx<'_>,
    withdrawal_id: &WithdrawalId,
) -> Result<Option<Withdrawal>> {
    Ok(rx.first(select!("WHERE withdrawal_id = $1"), args![withdrawal_id.as_str()])?)
}

fn get(rx: &mut Rx<'_>, withdrawal_id: &WithdrawalId) -> Result<Withdrawal> {
    find_withdrawal(rx, withdrawal_id)?.ok_or_else(|| {
        let message = format!("there is no withdrawal {withdrawal_id}");
        Error::refused(&code::UNKNOWN_WITHDRAWAL, message)
    })
}

/// A page of a user's withdrawals, the newest first: those before this one, or the newest of all.
pub fn withdrawals_before(
    rx: &mut Rx<'_>,
    user_id: &UserId,
    before: Option<&WithdrawalId>,
    limit: i64,
) -> Result<Vec<Withdrawal>> {
    // No id is beyond this text.
    let before = before.map_or("wd_g", WithdrawalId::as_str);
    Ok(rx.all(
        select!("WHERE user_id = $1 AND withdrawal_id < $2 ORDER BY withdrawal_id DESC LIMIT $3"),
        args![user_id.as_str(), before, page(limit)],
    )?)
}

/// Withdrawals that are to be sent, the oldest first, after this one.
pub fn withdrawals_open(
    rx: &mut Rx<'_>,
    after: Option<&WithdrawalId>,
    limit: i64,
) -> Result<Vec<Withdrawal>> {
    Ok(rx.all(
        select!(
            "WHERE status = 'requested' AND withdrawal_id > $1 ORDER BY withdrawal_id LIMIT $2"
        ),
        args![after.map_or("", WithdrawalId::as_str), page(limit)],
    )?)
}

/// Withdrawals that should have been sent by now, at most `limit`.
pub(crate) fn withdrawals_unsent(
    rx: &mut Rx<'_>,
    now_ms: UnixMs,
    limit: i64,
) -> Result<Vec<Withdrawal>> {
    let latest_ms = now_ms.saturating_sub(HOLD_MS.saturating_sub(CLOSE_BEFORE_MS));
    Ok(rx.all(
        select!(
            "WHERE status = 'requested' AND withdrawal_id > $1 AND requested_ms <= $2
             ORDER BY withdrawal_id LIMIT $3"
        ),
        args!["", latest_ms, page(limit)],
    )?)
}

fn changed(tx: &mut Tx<'_>, withdrawal_id: &WithdrawalId, now_ms: UnixMs) -> Result<Withdrawal> {
    let withdrawal = get(tx, withdrawal_id)?;
    let status = withdrawal.status.as_str();
    let told = Told {
        id: format!("{withdrawal_id}:{status}"),
        kind: format!("withdrawal.{status}"),
        body: json!({
            "withdrawal_id": withdrawal_id, "user_id": withdrawal.user_id.as_str(), "units": withdrawal.units,
            "status": status,
        }),
    };
    tell(tx, &[told], now_ms)?;
    Ok(withdrawal)
}
