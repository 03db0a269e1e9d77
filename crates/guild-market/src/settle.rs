//! A verdict becomes money.
//!
//! In one transaction: the held budget is paid, as far as it is due, or given back; what happened is sealed as a
//! replay; and the receipt that binds payment, job, replay and policy is signed. The receipt travels to the provider
//! as an event, which the caller publishes in the same transaction.
//!
//! | verdict | due | money | receipt |
//! |---|---|---|---|
//! | passed | something | paid, the rest of the budget given back | `released`, with the transfer as its proof |
//! | passed | nothing | the budget given back | none: a receipt proves a payment, and there was none |
//! | failed | | the budget given back | `withheld`, about the budget; none if nothing was held |

use guild_ledger::{NewTransfer, Step, TransferId, ledger, receivable};
use guild_protocol::amount::{Amount, AssetId, Msat};
use guild_protocol::env::{Random, Signer, UnixMs};
use guild_protocol::identity::SecretKey;
use guild_protocol::nostr::receipt_notice::ReceiptNotice;
use guild_protocol::nostr::{Event, unix_s};
use guild_protocol::receipt::{Draft, Proof, Rail, Receipt, Status};
use guild_protocol::timestamp::Timestamp;
use guild_store::{Tx, args};

use crate::claim::{self, Claim};
use crate::delegation;
use crate::dispute;
use crate::error::code;
use crate::order::{self, Act, Order, OrderId, State, price_due, wallet};
use crate::receipts::{self, Direction};
use crate::verify::Verdict;
use crate::{Error, Result, budget};

mod replay;

/// The buyer's key, and randomness to encrypt with it.
#[derive(Clone, Copy)]
pub struct Keys<'a> {
    /// Signs the receipt.
    pub key: &'a SecretKey,
    /// For what travels encrypted.
    pub random: &'a dyn Random,
}

/// What a settlement did.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    /// The order, closed.
    pub order: Order,
    /// The receipt, if there is one.
    pub receipt: Option<Receipt>,
    /// The event that carries it to the provider, to be published in this transaction. None if that was done before.
    pub notice: Option<Event>,
}

/// Settles a delivered order by its verdict. Settling again gives what was settled, whatever the verdict says now.
/// Whoever has lost its claim to another process is refused, before anything moves.
pub fn settle(
    tx: &mut Tx<'_>,
    order_id: &OrderId,
    claim: &Claim,
    verdict: &Verdict,
    keys: Keys<'_>,
    now_ms: UnixMs,
) -> Result<Settled> {
    let order = order::get(tx, order_id)?;
    if matches!(order.state, State::Released | State::Withheld) {
        let receipt = receipt_of(tx, &order)?;
        return Ok(Settled { order, receipt, notice: None });
    }
    if keys.key.public_key() != order.buyer {
        let message = format!("{order_id} is of {}", order.buyer.npub());
        return Err(Error::refused(&code::ORDER_MALFORMED, message));
    }
    // A clock may step backwards; the lines of a replay and its receipt may not.
    let now_ms = now_ms.max(order.delivered_ms.unwrap_or(0)).max(order.posted_ms);
    let act = if verdict.passed { Act::Release } else { Act::Withhold };
    let state = order.state.after(act)?;
    order.claimed.check(claim)?;
    delegation::may_settle(tx, &order, verdict)?;
    let ruled = dispute::ruling(tx, &order, verdict)?;
    let (verdict, state) = match ruled.passed {
        passed if passed == verdict.passed => (&ruled, state),
        true => (&ruled, order.state.after(Act::Release)?),
        false => (&ruled, order.state.after(Act::Withhold)?),
    };
    let due =
        if verdict.passed { price_due(order.price, order.asked, order.budget) } else { Msat(0) };
    let outcome = move_money(tx, &order, state, due, now_ms)?;
    budget::close(tx, order_id, due, now_ms)?;
    let sealed = replay::seal(&order, verdict, &outcome, now_ms)?;
    let receipt = match &outcome.payment {
        Some(payment) => Some(draft(&order, verdict, payment, &sealed, now_ms)?.sign(keys.key)?),
        None => None,
    };
    let done = Done { verdict, outcome: &outcome, sealed: &sealed, receipt: receipt.as_ref() };
    save(tx, &order, claim, &done, now_ms)?;
    let notice = match &receipt {
        Some(receipt) => Some(notice(&order, receipt, keys, now_ms)?),
        None => None,
    };
    let order = order::get(tx, order_id)?;
    dispute::settled(tx, &order, now_ms)?;
    order::tell_of(tx, &order, now_ms)?;
    Ok(Settled { order, receipt, notice })
}

/// What became of the budget.
struct Outcome {
    state: State,
    due: Msat,
    /// What a receipt is about, if there is one.
    payment: Option<Payment>,
}

struct Payment {
    amount: Amount,
    status: Status,
    proof: Option<Proof>,
}

fn move_money(
    tx: &mut Tx<'_>,
    order: &Order,
    state: State,
    due: Msat,
    now_ms: UnixMs,
) -> Result<Outcome> {
    if due.0 > 0 {
        let proof = Some(pay(tx, order, due, now_ms)?);
        let payment = Payment { amount: Amount::from(due), status: Status::Released, proof };
        return Ok(Outcome { state, due, payment: Some(payment) });
    }
    order::give_back(tx, order, now_ms)?;
    let withheld = state == State::Withheld && order.budget.0 > 0;
    let payment = withheld.then(|| Payment {
        amount: Amount::from(order.budget),
        status: Status::Withheld,
        proof: None,
    });
    Ok(Outcome { state, due, payment })
}

/// Pays from what is held. A hold that has run out meanwhile does not free us from the debt: it is then paid from the
/// wallet, as far as that goes; if it does not, nothing is settled, and it can be tried again once there is money.
fn pay(tx: &mut Tx<'_>, order: &Order, due: Msat, now_ms: UnixMs) -> Result<Proof> {
    let payment_id = order.payment_id();
    let no_hold = || Error::refused(&code::ORDER_CLOSED, "nothing was held for the order");
    let hold = order.hold_id.clone().ok_or_else(no_hold)?;
    let owed = receivable::payable(&order.deliverer()?, AssetId::btc_ln())?;
    let post = Step::Post {
        debit: wallet()?.account_id,
        credit: owed.account_id.clone(),
        amount: Amount::from(due),
    };
    let post = NewTransfer::new(payment_id.clone(), post, "order.paid")?;
    let void = NewTransfer::new(order.void_id(), Step::Void { hold: hold.clone() }, "order.void")?;
    // What was held for nobody in particular goes back, and is paid, as one.
    let first = if order.is_open {
        ledger::open(tx, &owed, now_ms)?;
        vec![void.clone(), post.clone()]
    } else {
        let settle = Step::Settle { hold, units: Some(due.0) };
        vec![NewTransfer::new(payment_id.clone(), settle, "order.paid")?]
    };
    if let Err(refused) = order::book(tx, first, now_ms)? {
        let chain = match refused.code() {
            code if code == &guild_ledger::code::HOLD_CLOSED => vec![post],
            code if code == &guild_ledger::code::HOLD_EXPIRED => vec![void, post],
            _ => return Err(refused.into()),
        };
        order::book(tx, chain, now_ms)??;
    }
    let head = ledger::head(tx)?;
    Ok(Proof::LedgerTransfer { transfer_id: payment_id.to_string(), ledger_head: head.hash })
}

fn draft(
    order: &Order,
    verdict: &Verdict,
    payment: &Payment,
    sealed: &replay::Sealed,
    now_ms: UnixMs,
) -> Result<Draft> {
    Ok(Draft {
        session_id: order.order_id.to_string(),
        request_id: Some(order.request_id.hex()),
        trajectory_hash: sealed.trajectory_hash,
        policy_bundle_id: order.policy_bundle_id.clone(),
        job_hash: Some(order.job_hash),
        payment_proof: payment.proof.clone(),
        rail: Rail::Ledger,
        amount: payment.amount.clone(),
        provider_id: order.deliverer()?,
        buyer_id: order.buyer,
        approval_rule_id: order.approval_rule_id.clone(),
        idempotency_key: order.payment_id().to_string(),
        status: payment.status,
        verdict_hash: Some(verdict.verdict_hash),
        timestamp: Timestamp::from_ms(now_ms)?,
    })
}

fn notice(order: &Order, receipt: &Receipt, keys: Keys<'_>, now_ms: UnixMs) -> Result<Event> {
    let notice = ReceiptNotice::of(receipt)?;
    let at = unix_s(now_ms);
    let draft = match order.private {
        true => notice.sealed_draft(at, keys.key, keys.random)?,
        false => notice.draft(at)?,
    };
    Ok(draft.sign(keys.key)?)
}

/// A payment for what was not accepted at first, and what proves it.
pub(crate) struct Late {
    pub(crate) receipt: Receipt,
    pub(crate) replay: String,
    pub(crate) notice: Event,
}

/// Proves a payment that a decided dispute made, as a settlement proves its own. The order stays closed as it is.
pub(crate) fn late(
    tx: &mut Tx<'_>,
    order: &Order,
    verdict: &Verdict,
    (payment_id, due): (&TransferId, Msat),
    keys: Keys<'_>,
    now_ms: UnixMs,
) -> Result<Late> {
    let now_ms = now_ms.max(order.changed_ms);
    let head = ledger::head(tx)?;
    let proof =
        Proof::LedgerTransfer { transfer_id: payment_id.to_string(), ledger_head: head.hash };
    let payment =
        Payment { amount: Amount::from(due), status: Status::Released, proof: Some(proof) };
    let outcome = Outcome { state: State::Released, due, payment: Some(payment) };
    let sealed = replay::seal(order, verdict, &outcome, now_ms)?;
    let no_payment = || Error::refused(&code::ORDER_CLOSED, "nothing was paid");
    let payment = outcome.payment.as_ref().ok_or_else(no_payment)?;
    let stated = Draft {
        idempotency_key: payment_id.to_string(),
        ..draft(order, verdict, payment, &sealed, now_ms)?
    };
    let receipt = stated.sign(keys.key)?;
    receipts::keep(tx, &receipt, Direction::Given, now_ms)?;
    let notice = notice(order, &receipt, keys, now_ms)?;
    Ok(Late { receipt, replay: sealed.text, notice })
}

/// What is written down of a settlement.
struct Done<'a> {
    verdict: &'a Verdict,
    outcome: &'a Outcome,
    sealed: &'a replay::Sealed,
    receipt: Option<&'a Receipt>,
}

fn save(
    tx: &mut Tx<'_>,
    order: &Order,
    claim: &Claim,
    done: &Done<'_>,
    now_ms: UnixMs,
) -> Result<()> {
    let Done { verdict, outcome, sealed, receipt } = *done;
    let paid = (outcome.state == State::Released).then_some(outcome.due.0);
    let settled = tx.exec(
        "UPDATE market_order SET state = $2, verdict = $3, paid_units = $4, receipt_id = $5, replay = $6,
           changed_ms = $7, claim_token = $8, claim_until_ms = NULL, claim_epoch = $9
         WHERE order_id = $1 AND state = 'delivered' AND claim_token = $8 AND claim_epoch = $9",
        args![
            order.order_id.as_str(),
            outcome.state.as_str(),
            &verdict.document,
            paid,
            receipt.map(|receipt| receipt.receipt_id().as_str()),
            &sealed.text,
            now_ms,
            &claim.token,
            claim.epoch
        ],
    )?;
    claim::fenced(settled)?;
    match receipt {
        Some(receipt) => receipts::keep(tx, receipt, Direction::Given, now_ms),
        None => Ok(()),
    }
}

fn receipt_of(tx: &mut Tx<'_>, order: &Order) -> Result<Option<Receipt>> {
    let Some(receipt_id) = &order.receipt_id else { return Ok(None) };
    let kept = receipts::get(tx, receipt_id)?;
    Ok(kept.map(|kept| Receipt::from_bytes(kept.text.as_bytes())).transpose()?)
}
