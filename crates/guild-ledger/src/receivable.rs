//! Money between nodes: each has a book of its own.
//!
//! A buyer's signed receipt on the rail `ledger` is an IOU. The buyer has booked it in its own book, towards the
//! provider's `payable` account there; the provider books the same amount in its book as the buyer's `receivable`, once
//! for each entry of the buyer's book, with the receipt's id, within the credit it gives that buyer. When the buyer
//! pays by another rail, the provider books that against the receivable. So the two books agree, and nobody has to
//! trust a third one.

use guild_protocol::amount::{Amount, AssetId};
use guild_protocol::env::UnixMs;
use guild_protocol::id::ReceiptId;
use guild_protocol::identity::PublicKey;
use guild_protocol::receipt::{Proof, Rail, Receipt, Status};
use guild_store::{Rx, Tx};

use crate::account::{Account, Balance, Limit};
use crate::book::Outcome;
use crate::error::code;
use crate::rule::Rule;
use crate::transfer::{NewTransfer, Step, TransferId};
use crate::{Error, Result, ledger};

/// What the memo of an IOU begins with; the receipt's id follows. An audit finds the two together by it.
pub const MEMO: &str = "iou ";

/// What a buyer owes us.
pub fn receivable(buyer: &PublicKey, asset_id: AssetId) -> Result<Account> {
    Account::new(&buyer.npub(), "receivable", asset_id, Limit::NeverPositive)
}

/// What we owe a provider.
pub fn payable(provider: &PublicKey, asset_id: AssetId) -> Result<Account> {
    Account::new(&provider.npub(), "payable", asset_id, Limit::NeverNegative)
}

/// What this node has earned.
pub fn revenue(asset_id: AssetId) -> Result<Account> {
    Account::new("node", "revenue", asset_id, Limit::NeverNegative)
}

/// Where payments by another rail come from.
pub fn outside(rail: Rail, asset_id: AssetId) -> Result<Account> {
    Account::new("outside", rail.as_str(), asset_id, Limit::None)
}

/// The transfer that books the IOU of a receipt. It is made from the entry of the buyer's book that the receipt proves:
/// a buyer that signs a second receipt for one entry owes it once, and the second receipt is refused as a conflict.
pub fn transfer_id(receipt: &Receipt) -> TransferId {
    let stated = receipt.stated();
    match &stated.payment_proof {
        Some(Proof::LedgerTransfer { transfer_id, .. }) => {
            let words = ["iou", &stated.buyer_id.npub(), transfer_id];
            TransferId::named(time_in(transfer_id), &words)
        }
        // Not on the rail `ledger`, so it is never booked.
        _ => TransferId::named(0, &["iou", receipt.receipt_id().as_str()]),
    }
}

/// The time at the front of a transfer id, if it is of our form: entries of one time lie together in the index.
fn time_in(transfer_id: &str) -> UnixMs {
    let digits = transfer_id.parse::<TransferId>().ok();
    let front = digits.as_ref().and_then(|id| id.as_str().get(5..17));
    front.and_then(|front| UnixMs::from_str_radix(front, 16).ok()).unwrap_or(0)
}

/// Books what a receipt says that its buyer owes `us`. The same receipt again is the same entry. A buyer may owe
/// `credit_units`, or what [`set_credit`] gave it; more than that is refused with `ledger.credit_limit` and changes
/// nothing.
pub fn book(
    tx: &mut Tx<'_>,
    receipt: &Receipt,
    us: &PublicKey,
    credit_units: i64,
    now_ms: UnixMs,
) -> Result<Outcome> {
    let stated = receipt.stated();
    check_is_iou_to(receipt, us)?;
    let asset_id = || stated.amount.asset_id.clone();
    let (debtor, earned) = (receivable(&stated.buyer_id, asset_id())?, revenue(asset_id())?);
    let transfer_id = transfer_id(receipt);
    if !ledger::is_booked(tx, &transfer_id)? {
        check_credit(tx, (&debtor, &earned), stated.amount.units, credit_units)?;
    }
    ledger::open(tx, &debtor, now_ms)?;
    ledger::open(tx, &earned, now_ms)?;
    let memo = format!("{MEMO}{}", receipt.receipt_id());
    let step = Step::Post {
        debit: debtor.account_id,
        credit: earned.account_id,
        amount: stated.amount.clone(),
    };
    book_one(tx, NewTransfer::new(transfer_id, step, &memo)?, now_ms)
}

/// The usual credit is a setting, which the operator may change at any time: it is no rule of the account. One that the
/// operator has set for this buyer is, and then the book itself keeps to it.
fn check_credit(
    rx: &mut Rx<'_>,
    (debtor, earned): (&Account, &Account),
    units: i64,
    credit_units: i64,
) -> Result<()> {
    let entry = ledger::entry(rx, &debtor.account_id)?;
    if entry.as_ref().is_some_and(|entry| entry.rule.credit_units.is_some()) {
        return Ok(());
    }
    let mut after = entry.map_or_else(Balance::default, |entry| entry.balance);
    after.debits_posted = after.debits_posted.saturating_add(units);
    Rule { gate: None, credit_units: Some(credit_units) }.allow_debit(&after, earned)
}

/// Gives a buyer a credit of its own. What it owes already stays, also beyond a lower credit.
pub fn set_credit(
    tx: &mut Tx<'_>,
    buyer: &PublicKey,
    asset_id: AssetId,
    credit_units: i64,
    now_ms: UnixMs,
) -> Result<()> {
    let debtor = receivable(buyer, asset_id)?;
    ledger::open(tx, &debtor, now_ms)?;
    let rule = Rule { gate: None, credit_units: Some(credit_units) };
    ledger::set_rule(tx, &debtor.account_id, &rule, now_ms)
}

/// A payment that came by another rail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payment {
    /// By which.
    pub rail: Rail,
    /// What the rail calls it: a preimage's hash, a transaction. Booked once.
    pub reference: String,
    /// How much.
    pub amount: Amount,
}

/// Books a payment against what a buyer owes. More than is owed is refused: it is not ours to keep.
pub fn paid(
    tx: &mut Tx<'_>,
    buyer: &PublicKey,
    payment: &Payment,
    now_ms: UnixMs,
) -> Result<Outcome> {
    if payment.rail == Rail::Ledger {
        let message = "a debt is not paid by another promise: name the rail the money came by";
        return Err(Error::refused(&code::NOT_AN_IOU, message));
    }
    let asset_id = || payment.amount.asset_id.clone();
    let (debtor, source) = (receivable(buyer, asset_id())?, outside(payment.rail, asset_id())?);
    ledger::open(tx, &source, now_ms)?;
    let words = ["iou.paid", payment.rail.as_str(), payment.reference.as_str()];
    let step = Step::Post {
        debit: source.account_id,
        credit: debtor.account_id,
        amount: payment.amount.clone(),
    };
    // No time: whoever sees a payment a second time may see it at another one.
    let transfer = NewTransfer::new(TransferId::named(0, &words), step, "iou.paid")?;
    book_one(tx, transfer, now_ms)
}

/// What a buyer owes us now.
pub fn owed_units(rx: &mut Rx<'_>, buyer: &PublicKey, asset_id: AssetId) -> Result<i64> {
    let debtor = receivable(buyer, asset_id)?;
    let entry = ledger::entry(rx, &debtor.account_id)?;
    Ok(entry.map_or(0, |entry| entry.balance.units().saturating_neg()))
}

/// The receipt that an entry of a statement stands for, if it is an IOU.
pub fn receipt_of(memo: &str) -> Option<ReceiptId> {
    memo.strip_prefix(MEMO)?.parse().ok()
}

fn check_is_iou_to(receipt: &Receipt, us: &PublicKey) -> Result<()> {
    let stated = receipt.stated();
    let refused = |message: String| Err(Error::refused(&code::NOT_AN_IOU, message));
    if stated.provider_id != *us {
        return refused(format!("it is owed to {}, not to us", stated.provider_id.npub()));
    }
    if stated.rail != Rail::Ledger {
        return refused(format!("it was paid by {}, so nothing is owed", stated.rail.as_str()));
    }
    match stated.status {
        Status::Released | Status::Prepaid => Ok(()),
        Status::Withheld | Status::Refunded => {
            refused(format!("its payment is {}, so nothing is owed", stated.status.as_str()))
        }
    }
}

fn book_one(tx: &mut Tx<'_>, transfer: NewTransfer, now_ms: UnixMs) -> Result<Outcome> {
    let outcomes = ledger::book(tx, &[vec![transfer]], now_ms)?.pop();
    let missing = || Error::Store(guild_store::Error::Panicked);
    outcomes.ok_or_else(missing)??.pop().ok_or_else(missing)
}
