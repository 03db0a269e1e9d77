//! What is held while a dispute is open, and what moves when it is decided. Every transfer is named by the dispute, so
//! each is booked once.

use guild_ledger::{NewTransfer, Step, TransferId, ledger, receivable};
use guild_protocol::amount::{Amount, AssetId, Msat};
use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::Event;
use guild_protocol::nostr::dispute::{By, DisputeId, Outcome, Side};
use guild_protocol::receipt::{Receipt, Status};
use guild_store::{Rx, Tx, args};

use super::read::{Dispute, of_request, said_in};
use super::verdict::verdict_of;
use super::wait::Wait;
use crate::error::code;
use crate::job::{self, TakenJob};
use crate::order::{HOLD_AFTER_DEADLINE_MS, Order, State, book, price_due, wallet};
use crate::receipts::{self, Direction};
use crate::settle::{Keys, late};
use crate::{Error, Result, budget};

/// What is held for a dispute, beside what its order holds.
#[derive(Default)]
pub(super) struct Held {
    pub(super) hold_id: Option<TransferId>,
    pub(super) units: i64,
}

/// What moved, and what proves it.
pub(super) struct Followed {
    /// What it waits for, if it could not follow.
    pub(super) waits_for: Option<Wait>,
    pub(super) moved: Msat,
    pub(super) receipt: Option<Receipt>,
    pub(super) verdict: Option<String>,
    pub(super) replay: Option<String>,
    pub(super) notice: Option<Event>,
}

impl Default for Followed {
    fn default() -> Followed {
        Followed {
            waits_for: None,
            moved: Msat(0),
            receipt: None,
            verdict: None,
            replay: None,
            notice: None,
        }
    }
}

fn waiting(wait: Wait) -> Followed {
    Followed { waits_for: Some(wait), ..Followed::default() }
}

fn id(order: &Order, dispute_id: &DisputeId, what: &str) -> TransferId {
    TransferId::named(order.posted_ms, &[what, dispute_id.as_str()])
}

/// What the order would pay if it had been accepted.
fn due_of(order: &Order) -> Msat {
    price_due(order.price, order.asked, order.budget)
}

/// What is to be charged to the envelope of the work, if anything is limited; nothing if there is no room for it.
fn planned(
    tx: &mut Tx<'_>,
    order: &Order,
    due: Msat,
    now_ms: UnixMs,
) -> Result<Option<Option<budget::Planned>>> {
    match budget::plan(tx, order.schema_id.as_str(), due, now_ms) {
        Ok(planned) => Ok(Some(planned)),
        Err(refused) if refused.code() == &code::BUDGET_ENVELOPE => Ok(None),
        Err(other) => Err(other),
    }
}

/// Holds what a dispute about a settled order is about: of one that was withheld what would be due, of one that was
/// paid what we owe for it. What would be due is charged to the envelope of its work as well. An empty wallet or
/// envelope keeps nobody from being heard: then nothing is held.
pub(super) fn hold(
    tx: &mut Tx<'_>,
    dispute_id: &DisputeId,
    order: &Order,
    deadline_ms: UnixMs,
    now_ms: UnixMs,
) -> Result<Held> {
    let (wallet, owed) = (wallet()?, receivable::payable(&order.deliverer()?, AssetId::btc_ln())?);
    let (debit, credit, units) = match order.state {
        State::Withheld => (&wallet, &owed, due_of(order).0),
        State::Released => (&owed, &wallet, order.paid.unwrap_or(Msat(0)).0),
        _ => return Ok(Held::default()),
    };
    if units <= 0 {
        return Ok(Held::default());
    }
    ledger::open(tx, &wallet, now_ms)?;
    ledger::open(tx, &owed, now_ms)?;
    let hold = Step::Hold {
        debit: debit.account_id.clone(),
        credit: credit.account_id.clone(),
        amount: Amount::from(Msat(units)),
        expires_ms: deadline_ms.saturating_add(HOLD_AFTER_DEADLINE_MS),
    };
    let hold_id = id(order, dispute_id, "dispute.hold");
    let transfer = NewTransfer::new(hold_id.clone(), hold, "dispute.hold")?;
    let charge = match order.state {
        State::Withheld => planned(tx, order, Msat(units), now_ms)?,
        _ => Some(None),
    };
    let Some(charge) = charge else { return Ok(Held::default()) };
    if book(tx, vec![transfer], now_ms)?.is_err() {
        return Ok(Held::default());
    }
    if let Some(charge) = charge {
        budget::apply(tx, charge, (&order.order_id, Some(dispute_id)), now_ms)?;
    }
    Ok(Held { hold_id: Some(hold_id), units })
}

/// Lets the money follow what was decided.
pub(super) fn follow(
    tx: &mut Tx<'_>,
    dispute: &Dispute,
    order: Option<&Order>,
    keys: Keys<'_>,
    now_ms: UnixMs,
) -> Result<Followed> {
    match (dispute.side, order) {
        (Side::Buyer, Some(order)) => match (dispute.stood, dispute.outcome) {
            (Some(Outcome::Withhold), Some(Outcome::Release)) => {
                pay(tx, dispute, order, keys, now_ms)
            }
            (Some(Outcome::Release), Some(Outcome::Withhold)) if may_refund(tx, dispute)? => {
                take_back(tx, dispute, order, now_ms)
            }
            _ => {
                let_go(tx, dispute, order, now_ms)?;
                Ok(Followed::default())
            }
        },
        (Side::Provider, _) => refund(tx, dispute, now_ms),
        _ => Ok(Followed::default()),
    }
}

/// Between nodes a receipt is an IOU in two books. It is taken back only where both agree: the provider has given in,
/// or both have named the arbiter who says so.
fn may_refund(rx: &mut Rx<'_>, dispute: &Dispute) -> Result<bool> {
    match dispute.by {
        Some(By::Concession) => Ok(true),
        Some(By::Arbiter) => {
            let said = said_in(rx, &dispute.dispute_id, dispute.side)?;
            let named = |key: &PublicKey| {
                said.iter().any(|one| one.author == *key && one.arbiter == dispute.arbiter)
            };
            Ok(dispute.arbiter.is_some() && named(&dispute.buyer) && named(&dispute.provider))
        }
        _ => Ok(false),
    }
}

/// Gives back what was held for the dispute.
fn let_go(tx: &mut Tx<'_>, dispute: &Dispute, order: &Order, now_ms: UnixMs) -> Result<()> {
    budget::close_dispute(tx, &dispute.dispute_id, Msat(0), now_ms)?;
    let Some(hold) = dispute.hold_id.clone() else { return Ok(()) };
    let void_id = id(order, &dispute.dispute_id, "dispute.void");
    let void = NewTransfer::new(void_id, Step::Void { hold }, "dispute.void")?;
    match book(tx, vec![void], now_ms)? {
        Err(refused) if refused.code() != &guild_ledger::code::HOLD_CLOSED => Err(refused.into()),
        _ => Ok(()),
    }
}

/// Moves what is held, or as much from where it was held if that ran out; false if it is not there.
fn move_held(
    tx: &mut Tx<'_>,
    (dispute, order): (&Dispute, &Order),
    transfer_id: &TransferId,
    (post, memo): (Step, &str),
    now_ms: UnixMs,
) -> Result<bool> {
    let post = NewTransfer::new(transfer_id.clone(), post, memo)?;
    let Some(hold) = dispute.hold_id.clone() else {
        return Ok(book(tx, vec![post], now_ms)?.is_ok());
    };
    let settle = Step::Settle { hold: hold.clone(), units: None };
    let settle = NewTransfer::new(transfer_id.clone(), settle, memo)?;
    let Err(refused) = book(tx, vec![settle], now_ms)? else { return Ok(true) };
    let void_id = id(order, &dispute.dispute_id, "dispute.void");
    let void = NewTransfer::new(void_id, Step::Void { hold }, "dispute.void")?;
    let chain = match refused.code() {
        code if code == &guild_ledger::code::HOLD_CLOSED => vec![post],
        code if code == &guild_ledger::code::HOLD_EXPIRED => vec![void, post],
        _ => return Ok(false),
    };
    Ok(book(tx, chain, now_ms)?.is_ok())
}

/// Pays for what was not accepted at first. Without money, or room in the envelope of the work, it stays pending.
fn pay(
    tx: &mut Tx<'_>,
    dispute: &Dispute,
    order: &Order,
    keys: Keys<'_>,
    now_ms: UnixMs,
) -> Result<Followed> {
    let due = due_of(order);
    if due.0 <= 0 {
        return Ok(Followed::default());
    }
    let owed = receivable::payable(&order.deliverer()?, AssetId::btc_ln())?;
    ledger::open(tx, &owed, now_ms)?;
    let post = Step::Post {
        debit: wallet()?.account_id,
        credit: owed.account_id,
        amount: Amount::from(due),
    };
    let payment_id = id(order, &dispute.dispute_id, "dispute.paid");
    let charge = match budget::charge_of_dispute(tx, &dispute.dispute_id)? {
        Some(_) => Some(None),
        None => planned(tx, order, due, now_ms)?,
    };
    let Some(charge) = charge else { return Ok(waiting(Wait::Envelope)) };
    if !move_held(tx, (dispute, order), &payment_id, (post, "dispute.paid"), now_ms)? {
        return Ok(waiting(Wait::Wallet));
    }
    if let Some(charge) = charge {
        budget::apply(tx, charge, (&order.order_id, Some(&dispute.dispute_id)), now_ms)?;
    }
    budget::close_dispute(tx, &dispute.dispute_id, due, now_ms)?;
    let verdict = verdict_of(dispute, order, None)?;
    let paid = late(tx, order, &verdict, (&payment_id, due), keys, now_ms)?;
    Ok(Followed {
        waits_for: None,
        moved: due,
        receipt: Some(paid.receipt),
        verdict: Some(verdict.document),
        replay: Some(paid.replay),
        notice: Some(paid.notice),
    })
}

/// The provider gives back what we owe it: nothing is owed for the work any more. What is not owed any more, because it
/// was paid by another rail, comes back by that.
fn take_back(
    tx: &mut Tx<'_>,
    dispute: &Dispute,
    order: &Order,
    now_ms: UnixMs,
) -> Result<Followed> {
    let paid = order.paid.unwrap_or(Msat(0));
    if paid.0 <= 0 {
        return Ok(Followed::default());
    }
    let owed = receivable::payable(&order.deliverer()?, AssetId::btc_ln())?;
    let post = Step::Post {
        debit: owed.account_id,
        credit: wallet()?.account_id,
        amount: Amount::from(paid),
    };
    let back_id = id(order, &dispute.dispute_id, "dispute.refund");
    let moved = move_held(tx, (dispute, order), &back_id, (post, "dispute.refund"), now_ms)?;
    if !moved {
        let_go(tx, dispute, order, now_ms)?;
    }
    Ok(Followed { moved: if moved { paid } else { Msat(0) }, ..Followed::default() })
}

/// The provider's book: what the buyer owed for the work is not owed any more. Or, if the buyer pays after all, its
/// receipt is waited for.
fn refund(tx: &mut Tx<'_>, dispute: &Dispute, now_ms: UnixMs) -> Result<Followed> {
    let job = job::get(tx, &dispute.request_id)?;
    let is_paid = matches!(job.state, job::State::Paid | job::State::Underpaid);
    if dispute.outcome == Some(Outcome::Release) {
        let waits = job.state == job::State::Withheld && dispute.receipt_id.is_none();
        let waits_for = waits.then_some(Wait::Receipt);
        return Ok(Followed { waits_for, ..Followed::default() });
    }
    let paid = job.paid.filter(|paid| is_paid && paid.0 > 0);
    let (Some(paid), Some(Outcome::Withhold)) = (paid, dispute.outcome) else {
        return Ok(Followed::default());
    };
    if !may_refund(tx, dispute)? {
        return Ok(Followed::default());
    }
    let earned = receivable::revenue(AssetId::btc_ln())?;
    let debtor = receivable::receivable(&job.buyer, AssetId::btc_ln())?;
    let post = Step::Post {
        debit: earned.account_id,
        credit: debtor.account_id,
        amount: Amount::from(paid),
    };
    let words = ["dispute.refund", dispute.dispute_id.as_str()];
    let transfer =
        NewTransfer::new(TransferId::named(job.taken_ms, &words), post, "dispute.refund")?;
    match book(tx, vec![transfer], now_ms)? {
        Ok(()) => Ok(Followed { moved: paid, ..Followed::default() }),
        // Whoever gives in must know that it gives nothing so.
        Err(refused) if dispute.by == Some(By::Concession) => {
            Err(Error::refused(&code::DISPUTE_REFUND, refused.to_string()))
        }
        Err(_) => Ok(Followed::default()),
    }
}

/// A buyer pays for what it did not accept at first: what it signs that it owes is booked, beside the job, which stays
/// closed. None if nothing of the kind is disputed here.
pub(crate) fn take_payment(
    tx: &mut Tx<'_>,
    job: &TakenJob,
    receipt: &Receipt,
    us: &PublicKey,
    now_ms: UnixMs,
) -> Result<Option<()>> {
    let stated = receipt.stated();
    if job.state != job::State::Withheld || stated.status != Status::Released {
        return Ok(None);
    }
    let Some(dispute) = of_request(tx, &job.request_id, Side::Provider)? else { return Ok(None) };
    if dispute.receipt_id.as_ref() == Some(receipt.receipt_id()) {
        return Ok(Some(()));
    }
    if dispute.receipt_id.is_some() {
        let message = format!("{} was paid by another receipt", dispute.dispute_id);
        return Err(Error::refused(&code::RECEIPT_MISMATCH, message));
    }
    // The work is done: refusing a debt that is signed helps nobody, however much is owed already.
    receivable::book(tx, receipt, us, i64::MAX, now_ms)?;
    receipts::keep(tx, receipt, Direction::Taken, now_ms)?;
    let (state, by, outcome) = match dispute.by {
        Some(by) => (dispute.state, by, dispute.outcome),
        None => (super::State::Decided, By::Concession, Some(Outcome::Release)),
    };
    tx.cas(
        "UPDATE market_dispute SET state = $2, decided_by = $3, outcome = $4, receipt_id = $5, moved_units = $6,
           pending = 0, waits_for = NULL, given_up = 0, changed_ms = $7 WHERE dispute_id = $1 AND side = 'provider'",
        args![
            dispute.dispute_id.as_str(),
            state.as_str(),
            by.as_str(),
            outcome.map(Outcome::as_str),
            receipt.receipt_id().as_str(),
            stated.amount.units,
            now_ms
        ],
    )?;
    Ok(Some(()))
}
