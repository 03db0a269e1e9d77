//! What we bought.
//!
//! | from | to | when |
//! |---|---|---|
//! | | `posted` | [`post`]: the policy allows it, the budget is held, the request is signed |
//! | `posted` | `delivered` | [`deliver`]: a result of the provider came in time |
//! | `posted` | `posted` | [`reject`]: of an order that is open to all, a result that is not what was ordered |
//! | `posted` | `expired`, `cancelled`, `failed` | [`expire`], [`cancel`], [`fail`]: the budget is given back |
//! | `delivered` | `released`, `withheld` | [`settle`](crate::settle::settle): by the verdict |
//!
//! An order addresses one provider: its budget is held towards what we owe that one, so nobody else can be paid by it.
//! Or it is open to all: then it takes the first result of somebody whose announcement names the schema, and that is
//! what was ordered: it is judged first, so that rubbish does not keep others from doing the work. The first result in
//! time counts. Every other one is kept as evidence and changes nothing.
//!
//! Several processes may share the rows: which of them judges an order is its [claim](crate::claim), and settling needs
//! it. Whoever takes a result that can be judged at once has it claimed in the same statement.

use guild_ledger::policy::Bundle;
use guild_ledger::quote::{self, NewQuote, Quote, QuoteId};
use guild_ledger::{Account, Limit, NewTransfer, Step, TransferId, ledger, receivable};
use guild_network::delivery;
use guild_protocol::amount::{Amount, AssetId, Msat};
use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::Event;
use guild_protocol::receipt::Rail;
use guild_protocol::typed_id;
use guild_store::{Rx, Tx, args};
use serde_json::json;

use crate::delegation;
use crate::error::code;
use crate::event::tell;
use crate::receipts::{Role, deal_under};
use crate::{Error, Result, budget, reference};

mod answer;
mod claiming;
mod new;
mod read;
mod state;

pub use answer::{Answer, Delivery, Standing, answers, deliver, fail, may_try, reject};
pub use claiming::{claim, release, renew};
pub use new::{MAX_DEADLINE_MS, NewOrder, ORDER_ID, TIME_LIMIT};
pub use read::{
    Brief, Order, Waits, briefs, find, get, of_request, open_to_all, page_before, waiting,
};
pub use state::{Act, State};

typed_id! {
    /// Names an order: made from the caller's key, so that ordering again is the same order.
    OrderId = "order", content;
}

impl OrderId {
    /// The order that a caller names by this key.
    pub fn of_key(order_key: &str) -> OrderId {
        OrderId::of(&Hash::of(format!("guild.order.v1\n{order_key}").as_bytes()))
    }
}

/// How long the budget stays held after the deadline: a node that was down must still find it when it judges.
pub const HOLD_AFTER_DEADLINE_MS: i64 = 7 * 24 * 3_600 * 1_000;
/// How long a guardian has to approve an order, whatever time the work itself may take.
pub const QUOTE_LIFETIME_MS: i64 = 24 * 3_600 * 1_000;

/// Where the budget of every order comes from.
pub fn wallet() -> Result<Account> {
    Ok(Account::new("node", "wallet", AssetId::btc_ln(), Limit::NeverNegative)?)
}

/// Towards what the budget of an order is held whose provider is not known yet. It is never paid out of here.
fn open_orders() -> Result<Account> {
    Ok(Account::new("node", "open-orders", AssetId::btc_ln(), Limit::NeverNegative)?)
}

/// What became of an order that was asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Placed {
    /// It is posted: its request is to be published in this transaction.
    Posted(Order),
    /// It was posted before, and stands like this; its own request counts, not the one that was offered now.
    Known(Order),
    /// The policy asks a guardian first. Nothing is held; ordering again after the approval posts it.
    Waits(Box<Quote>),
}

impl Placed {
    /// The order, or the refusal to wait for a guardian.
    pub fn order(self) -> Result<Order> {
        match self {
            Placed::Posted(order) | Placed::Known(order) => Ok(order),
            Placed::Waits(quote) => {
                let guardian = quote.terms.decision.action.guardian_key().map(ToString::to_string);
                let (id, who) = (&quote.terms.wanted.quote_id, guardian.unwrap_or_default());
                let message = format!(
                    "{id} waits for {who}; once that key has approved it (`guild policy approve {id}`), order again \
                     under the same key"
                );
                Err(guild_ledger::Error::refused(&quote::code::NOT_APPROVED, message).into())
            }
        }
    }
}

/// Posts an order: the policy decides, the budget is held, in the ledger and in the [envelope](crate::budget) of the
/// work, and the order is written. The caller publishes `request` in the same transaction if the order is
/// [new](Placed::Posted).
pub fn post(
    tx: &mut Tx<'_>,
    new: &NewOrder,
    request: &Event,
    bundle: &Bundle,
    now_ms: UnixMs,
) -> Result<Placed> {
    let order_id = new.order_id();
    if let Some(known) = find(tx, &order_id)? {
        new.check_same(&known)?;
        return Ok(Placed::Known(known));
    }
    new.check(request, now_ms)?;
    if let Some(other) = of_request(tx, &request.id)? {
        let message = format!("the request is that of {}", other.order_id);
        return Err(Error::refused(&code::ORDER_MALFORMED, message));
    }
    let mut terms = Terms {
        hold_id: None,
        policy_bundle_id: bundle.policy_bundle_id().to_string(),
        approval_rule_id: None,
    };
    if new.budget.0 > 0 {
        match reserve(tx, new, bundle, now_ms)? {
            Reserved::Held(held) => terms = held,
            Reserved::Waits(quote) => return Ok(Placed::Waits(quote)),
        }
    }
    deal_under(tx, Role::Buyer, &request.pubkey, now_ms)?;
    insert(tx, new, request, &terms, now_ms)?;
    budget::charge(tx, &order_id, new.job.schema_id().as_str(), new.budget, now_ms)?;
    let order = get(tx, &order_id)?;
    tell_of(tx, &order, now_ms)?;
    Ok(Placed::Posted(order))
}

struct Terms {
    hold_id: Option<TransferId>,
    policy_bundle_id: String,
    approval_rule_id: Option<String>,
}

enum Reserved {
    Held(Terms),
    Waits(Box<Quote>),
}

/// Lets the policy decide and holds the budget, from the wallet towards what we owe the provider.
fn reserve(tx: &mut Tx<'_>, new: &NewOrder, bundle: &Bundle, now_ms: UnixMs) -> Result<Reserved> {
    let wallet = wallet()?;
    let owed = match &new.provider {
        Some(provider) => receivable::payable(provider, AssetId::btc_ln())?,
        None => open_orders()?,
    };
    ledger::open(tx, &wallet, now_ms)?;
    ledger::open(tx, &owed, now_ms)?;
    let expires_ms = now_ms.saturating_add(QUOTE_LIFETIME_MS);
    let wanted = NewQuote {
        quote_id: quote_id(&new.order_id())?,
        debit: wallet.account_id,
        credit: owed.account_id,
        amount: Amount::from(new.budget),
        subject: match &new.provider {
            Some(provider) => format!("{} by {}", new.job.schema_id(), provider.npub()),
            None => format!("{} by anybody", new.job.schema_id()),
        },
        provider_tier: new.provider_tier,
        schema_id: Some(new.job.schema_id().clone()),
        rail: Rail::Ledger,
        expires_ms,
        // Posted as late as the quote allows, with as much time as an order may have: its budget is held after that.
        hold_until_ms: expires_ms
            .saturating_add(MAX_DEADLINE_MS)
            .saturating_add(HOLD_AFTER_DEADLINE_MS),
    };
    let wanted = as_quoted(tx, wanted, &new.order_key)?;
    let quote = quote::make(tx, &wanted, bundle, now_ms)?;
    if quote.state_at(now_ms) == quote::State::Quoted {
        return Ok(Reserved::Waits(Box::new(quote)));
    }
    let reservation = quote::reserve(tx, &wanted.quote_id, now_ms)?;
    let hold_id = reservation.hold.transfer_id.clone();
    book(tx, vec![reservation.hold], now_ms)?.map_err(|refused| unfunded(refused, new))?;
    Ok(Reserved::Held(Terms {
        hold_id: Some(hold_id),
        policy_bundle_id: reservation.policy_bundle_id.to_string(),
        approval_rule_id: reservation.approval_rule_id,
    }))
}

/// What is wanted, with the times of the quote that a guardian was asked about before, if there is one: the same order,
/// asked for again, is what was approved.
fn as_quoted(tx: &mut Tx<'_>, wanted: NewQuote, order_key: &str) -> Result<NewQuote> {
    let Some(known) = quote::find(tx, &wanted.quote_id)? else { return Ok(wanted) };
    let known = known.terms.wanted;
    let (expires_ms, hold_until_ms) = (known.expires_ms, known.hold_until_ms);
    let asked = NewQuote { expires_ms, hold_until_ms, ..wanted };
    if asked != known {
        let message = format!("{order_key:?} is the key of other work");
        return Err(Error::refused(&code::ORDER_CONFLICT, message));
    }
    Ok(asked)
}

/// The quote about which a guardian was asked for this order, if one was.
pub fn quoted(rx: &mut Rx<'_>, order_id: &OrderId) -> Result<Option<Quote>> {
    Ok(quote::find(rx, &quote_id(order_id)?)?)
}

/// Whether a quote would pay this provider.
pub fn would_pay(quote: &Quote, provider: &PublicKey) -> Result<bool> {
    let owed = receivable::payable(provider, AssetId::btc_ln())?;
    Ok(quote.terms.wanted.credit == owed.account_id)
}

fn quote_id(order_id: &OrderId) -> Result<QuoteId> {
    let digits = order_id.as_str().strip_prefix("order_").and_then(|digits| digits.get(..32));
    Ok(format!("{}_{}", QuoteId::PREFIX, digits.unwrap_or_default()).parse()?)
}

/// An empty wallet is what a newcomer meets first: the answer is a command.
fn unfunded(refused: guild_ledger::Error, new: &NewOrder) -> Error {
    if refused.code() != &guild_ledger::code::OVERDRAFT {
        return refused.into();
    }
    let message = format!(
        "{refused}, and the order needs {units}; `guild ledger transfer --from outside/main --to node/wallet \
         --asset BTC_LN --units {units}` funds it",
        units = new.budget.0
    );
    Error::refused(&code::WALLET, message)
}

/// Books one chain. The inner refusal has changed nothing; the caller may go another way.
pub(crate) fn book(
    tx: &mut Tx<'_>,
    chain: Vec<NewTransfer>,
    now_ms: UnixMs,
) -> Result<guild_ledger::Result<()>> {
    let outcomes = ledger::book(tx, &[chain], now_ms)?.pop();
    let outcomes = outcomes.ok_or(guild_store::Error::Panicked)?;
    Ok(outcomes.map(|_| ()))
}

fn insert(
    tx: &mut Tx<'_>,
    new: &NewOrder,
    request: &Event,
    terms: &Terms,
    now_ms: UnixMs,
) -> Result<()> {
    let job = &new.job;
    tx.exec(
        "INSERT INTO market_order (order_id, order_key, request_id, request_json, buyer, provider, schema_id, job_hash,
           payload, private, price_units, budget_units, deadline_ms, relays, policy_bundle_id, approval_rule_id,
           hold_id, posted_ms, state, changed_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, 'posted', $18)",
        args![
            new.order_id().as_str(),
            &new.order_key,
            &request.id.hex(),
            &request.to_json(),
            &request.pubkey.npub(),
            new.provider.map(|provider| provider.npub()).as_ref(),
            job.schema_id().as_str(),
            &job.job_hash().to_string(),
            &new.payload_text()?,
            i64::from(new.private),
            new.price.map(|price| price.0),
            new.budget.0,
            new.deadline_ms,
            &json!(new.relays).to_string(),
            &terms.policy_bundle_id,
            terms.approval_rule_id.as_ref(),
            terms.hold_id.as_ref().map(TransferId::as_str),
            now_ms
        ],
    )?;
    reference::used_by(tx, request)
}

/// Gives up an order that nothing has come for. Publishing a wish to delete the request is the caller's.
pub fn cancel(tx: &mut Tx<'_>, order_id: &OrderId, now_ms: UnixMs) -> Result<Order> {
    let order = get(tx, order_id)?;
    if order.state == State::Cancelled {
        return Ok(order);
    }
    close(tx, &order, Act::Cancel, "we cancelled it", now_ms)
}

/// Ends an order whose deadline has passed without a result; none if it waits on. Its deadline must not be behind
/// `read_until_ms` either: the results that came until then have been read, and what came in time while the node was
/// down, or busy, still counts.
pub fn expire(
    tx: &mut Tx<'_>,
    order_id: &OrderId,
    read_until_ms: UnixMs,
    now_ms: UnixMs,
) -> Result<Option<Order>> {
    let order = get(tx, order_id)?;
    if order.state != State::Posted || order.deadline_ms > read_until_ms.min(now_ms) {
        return Ok(None);
    }
    if let Some(provider) = &order.provider {
        delivery::silent(tx, &order.request_id, provider, now_ms)?;
    }
    close(tx, &order, Act::Expire, "nothing came in time", now_ms).map(Some)
}

/// Ends an order that was not delivered: the budget goes back to the wallet.
fn close(tx: &mut Tx<'_>, order: &Order, act: Act, words: &str, now_ms: UnixMs) -> Result<Order> {
    let state = order.state.after(act)?;
    give_back(tx, order, now_ms)?;
    budget::close(tx, &order.order_id, Msat(0), now_ms)?;
    tx.cas(
        "UPDATE market_order SET state = $2, words = $3, changed_ms = $4
         WHERE order_id = $1 AND state = 'posted'",
        args![order.order_id.as_str(), state.as_str(), words, now_ms],
    )?;
    delegation::stir(tx, &order.order_id)?;
    let order = get(tx, &order.order_id)?;
    tell_of(tx, &order, now_ms)?;
    Ok(order)
}

/// Gives the held budget back. A hold that ran out has gone back by itself.
pub(crate) fn give_back(tx: &mut Tx<'_>, order: &Order, now_ms: UnixMs) -> Result<()> {
    let Some(hold) = order.hold_id.clone() else { return Ok(()) };
    let void = NewTransfer::new(order.void_id(), Step::Void { hold }, "order.void")?;
    match book(tx, vec![void], now_ms)? {
        Err(refused) if refused.code() != &guild_ledger::code::HOLD_CLOSED => Err(refused.into()),
        _ => Ok(()),
    }
}

/// Tells that an order has come to the state in which it is. Anybody may follow these events, so what a private order
/// is about, and what its provider wrote, is not in them.
pub(crate) fn tell_of(tx: &mut Tx<'_>, order: &Order, now_ms: UnixMs) -> Result<()> {
    let state = order.state.as_str();
    let schema_id = (!order.private).then(|| order.schema_id.as_str());
    let words = order.words.as_ref().filter(|_| !order.private);
    let body = json!({
        "order_id": order.order_id, "request_id": order.request_id, "provider": order.provider,
        "schema_id": schema_id, "budget_msat": order.budget.0, "private": order.private,
        "paid_msat": order.paid.map(|paid| paid.0), "receipt_id": order.receipt_id, "words": words,
    });
    let id = format!("{}:{state}", order.order_id);
    tell(tx, &id, &format!("order.{state}"), &body, now_ms)
}

/// What a verdict that passes pays: what was agreed, or asked for if nothing was; never more than the budget.
///
/// | agreed | asked with the result | pays |
/// |---|---|---|
/// | yes | no | what was agreed |
/// | yes | yes | the smaller |
/// | no | yes | what is asked, up to the budget |
/// | no | no | nothing: the work is free |
pub fn price_due(agreed: Option<Msat>, asked: Option<Msat>, budget: Msat) -> Msat {
    let due = match (agreed, asked) {
        (Some(agreed), Some(asked)) => agreed.0.min(asked.0),
        (Some(one), None) | (None, Some(one)) => one.0,
        (None, None) => 0,
    };
    Msat(due.clamp(0, budget.0.max(0)))
}
