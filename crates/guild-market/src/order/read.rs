//! Orders as they are stored.

use std::collections::{BTreeMap, BTreeSet};

use guild_ledger::TransferId;
use guild_protocol::amount::Msat;
use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_protocol::id::ReceiptId;
use guild_protocol::identity::PublicKey;
use guild_protocol::json;
use guild_protocol::nostr::{Event, EventId, Limits};
use guild_protocol::schema::{Job, Registry, SchemaId};
use guild_store::{Column, Columns, Decode, Rx, Sql, args};

use super::{OrderId, State};
use crate::claim::{Claimant, Claimed};
use crate::error::code;
use crate::row::{Cells, page, unreadable};
use crate::sandbox_run::SCHEMA_ID;
use crate::{Error, Result};

/// An order as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// Names it.
    pub order_id: OrderId,
    /// The caller's name for it.
    pub order_key: String,
    /// The id of its request.
    pub request_id: EventId,
    /// The request itself.
    pub request_json: String,
    /// Under which of our keys.
    pub buyer: PublicKey,
    /// From whom. Of an order that is open to all: who delivered, once somebody has.
    pub provider: Option<PublicKey>,
    /// Whether it was open to all.
    pub is_open: bool,
    /// What kind of work.
    pub schema_id: SchemaId,
    /// Which work.
    pub job_hash: Hash,
    /// Its input, in canonical JSON.
    pub payload: String,
    /// Whether input and result travel encrypted.
    pub private: bool,
    /// What was agreed, if something was.
    pub price: Option<Msat>,
    /// The most that is paid.
    pub budget: Msat,
    /// Until when the result must be here.
    pub deadline_ms: UnixMs,
    /// Where the request was published.
    pub relays: Vec<String>,
    /// The policy that decided.
    pub policy_bundle_id: String,
    /// The rule of it that decided.
    pub approval_rule_id: Option<String>,
    /// The transfer that holds the budget, if there is one.
    pub hold_id: Option<TransferId>,
    /// When it was posted.
    pub posted_ms: UnixMs,
    /// Where it stands.
    pub state: State,
    /// Since when.
    pub changed_ms: UnixMs,
    /// The id of the result that counts.
    pub result_id: Option<EventId>,
    /// What the result says.
    pub output_text: Option<String>,
    /// What was asked with it.
    pub asked: Option<Msat>,
    /// When it came.
    pub delivered_ms: Option<UnixMs>,
    /// The document of the verdict.
    pub verdict: Option<String>,
    /// What was paid, if it was released.
    pub paid: Option<Msat>,
    /// The receipt, if there is one.
    pub receipt_id: Option<ReceiptId>,
    /// The sealed replay, once it is settled.
    pub replay: Option<String>,
    /// Why it ended without a result.
    pub words: Option<String>,
    /// Which process judges it.
    pub claimed: Claimed,
}

impl Decode for Order {
    fn decode(row: &dyn Columns) -> guild_store::Result<Order> {
        let mut cells = Cells::of(row);
        Ok(Order {
            order_id: cells.parsed()?,
            order_key: cells.next()?,
            request_id: cells.parsed()?,
            request_json: cells.next()?,
            buyer: cells.parsed()?,
            provider: cells.parsed_or_none()?,
            is_open: cells.next::<i64>()? != 0,
            schema_id: cells.parsed()?,
            job_hash: cells.parsed()?,
            payload: cells.next()?,
            private: cells.next::<i64>()? != 0,
            price: cells.msat_or_none()?,
            budget: cells.msat()?,
            deadline_ms: cells.next()?,
            relays: json::decode(cells.next::<String>()?.as_bytes()).map_err(unreadable)?,
            policy_bundle_id: cells.next()?,
            approval_rule_id: cells.next()?,
            hold_id: cells.parsed_or_none()?,
            posted_ms: cells.next()?,
            state: State::parse(&cells.next::<String>()?)
                .ok_or_else(|| unreadable("an order has an unknown state"))?,
            changed_ms: cells.next()?,
            result_id: cells.parsed_or_none()?,
            output_text: cells.next()?,
            asked: cells.msat_or_none()?,
            delivered_ms: cells.next()?,
            verdict: cells.next()?,
            paid: cells.msat_or_none()?,
            receipt_id: cells.parsed_or_none()?,
            replay: cells.next()?,
            words: cells.next()?,
            claimed: Claimed::read(&mut cells)?,
        })
    }
}

impl Order {
    /// The request.
    pub fn request(&self) -> Result<Event> {
        let event = Event::parse(self.request_json.as_bytes(), &Limits::DEFAULT);
        Ok(event.map_err(unreadable)?)
    }

    /// Whom its result is from. An order that nobody has delivered has none.
    pub fn deliverer(&self) -> Result<PublicKey> {
        self.provider.ok_or_else(|| {
            let message = format!("nobody has delivered {}", self.order_id);
            Error::refused(&code::ORDER_CLOSED, message)
        })
    }

    /// Whether its result is checked by doing the work again: what was asked for, as
    /// [`mode_of`](crate::verify::mode_of) reads it from the job.
    pub fn is_objective(&self) -> bool {
        let payload: serde_json::Value =
            serde_json::from_str(&self.payload).unwrap_or(serde_json::Value::Null);
        payload.pointer("/verification/mode").and_then(|mode| mode.as_str()) == Some("objective")
    }

    /// The work that was ordered, to be judged.
    pub fn job(&self, registry: &Registry) -> Result<Job> {
        let job = registry.validate_input_text(&self.schema_id, self.payload.as_bytes());
        let job = job.map_err(guild_protocol::Error::from)?;
        if job.job_hash() != self.job_hash {
            // The schema is another one by now, so nobody knows any more what was agreed.
            let message = format!("{} does not have its hash any more", self.order_id);
            return Err(Error::refused(&code::UNVERIFIABLE, message));
        }
        Ok(job)
    }

    /// The id of the transfer that pays for it: made from what it is.
    pub fn payment_id(&self) -> TransferId {
        TransferId::named(self.posted_ms, &["order.paid", self.order_id.as_str()])
    }

    /// The id of the transfer that gives its budget back.
    pub fn void_id(&self) -> TransferId {
        TransferId::named(self.posted_ms, &["order.void", self.order_id.as_str()])
    }
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT order_id, order_key, request_id, request_json, buyer, coalesce(provider, delivered_by),
               CAST(CASE WHEN provider IS NULL THEN 1 ELSE 0 END AS BIGINT), schema_id, job_hash, payload, private,
               price_units, budget_units, deadline_ms, relays, policy_bundle_id, approval_rule_id, hold_id,
               posted_ms, state, changed_ms, result_id, output_text, asked_units, delivered_ms, verdict, paid_units,
               receipt_id, replay, words, claim_token, claim_until_ms, claim_epoch FROM market_order ",
            $rest
        )
    };
}

/// The order with this id, if there is one.
pub fn find(rx: &mut Rx<'_>, order_id: &OrderId) -> Result<Option<Order>> {
    Ok(rx.first(select!("WHERE order_id = $1"), args![order_id.as_str()])?)
}

/// The order with this id.
pub fn get(rx: &mut Rx<'_>, order_id: &OrderId) -> Result<Order> {
    find(rx, order_id)?
        .ok_or_else(|| Error::refused(&code::UNKNOWN_ORDER, format!("there is no {order_id}")))
}

/// The order of this request, if it is one of ours.
pub fn of_request(rx: &mut Rx<'_>, request_id: &EventId) -> Result<Option<Order>> {
    Ok(rx.first(select!("WHERE request_id = $1"), args![&request_id.hex()])?)
}

/// What an order may wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// A verdict that can be computed at once.
    Verdict,
    /// A verdict that means running commands again.
    Runs,
    /// Its end: nothing has come, and its deadline has passed at this moment.
    End(UnixMs),
}

/// How many ids are read at a time.
const LOOKED_AT: usize = 200;

macro_rules! waiting {
    ($for:expr) => {
        concat!(
            "SELECT deadline_ms, order_id FROM market_order WHERE ",
            $for,
            " AND (deadline_ms > $2 OR (deadline_ms = $2 AND order_id > $3))
             ORDER BY deadline_ms, order_id LIMIT $4"
        )
    };
}

macro_rules! verdict {
    ($for:literal) => {
        waiting!(concat!(
            "state = 'delivered' AND ",
            $for,
            " AND (claim_token IS NULL OR claim_token = $5 OR claim_until_ms <= $6 OR claim_until_ms > $7)
             AND NOT EXISTS (SELECT 1 FROM market_replica r JOIN market_delegation d
               ON d.delegation_id = r.delegation_id WHERE r.order_id = market_order.order_id
               AND r.judged_ms IS NOT NULL AND d.state = 'open')
             AND NOT EXISTS (SELECT 1 FROM market_dispute x WHERE x.request_id = market_order.request_id
               AND x.side = 'buyer' AND x.state IN ('open', 'answered'))"
        ))
    };
}

/// Orders that wait for this, the most urgent first, but for those that are put off, and of those that wait for a
/// verdict only what this one judges or may claim. A replica that was checked by itself waits for the decision of its
/// delegation, and for its verdict only then. What is disputed waits until that is decided.
pub fn waiting(
    rx: &mut Rx<'_>,
    waits: Waits,
    who: (&Claimant, UnixMs),
    put_off: &BTreeSet<OrderId>,
    limit: i64,
) -> Result<Vec<OrderId>> {
    let most = usize::try_from(page(limit)).unwrap_or(usize::MAX);
    let looked_at = i64::try_from(LOOKED_AT).unwrap_or(i64::MAX);
    let (token, now_ms, longest_ms) = (&who.0.token, who.1, who.0.longest_ms(who.1));
    let (mut at_ms, mut last) = (i64::MIN, String::new());
    let mut found = Vec::new();
    while found.len() < most {
        let rows: Vec<(i64, String)> = match waits {
            Waits::Verdict => rx.all(
                verdict!("schema_id <> $1"),
                args![SCHEMA_ID, at_ms, &last, looked_at, token, now_ms, longest_ms],
            ),
            Waits::Runs => rx.all(
                verdict!("schema_id = $1"),
                args![SCHEMA_ID, at_ms, &last, looked_at, token, now_ms, longest_ms],
            ),
            Waits::End(at_last_ms) => rx.all(
                waiting!("state = 'posted' AND deadline_ms <= $1"),
                args![at_last_ms, at_ms, &last, looked_at],
            ),
        }?;
        let is_last = rows.len() < LOOKED_AT;
        for (deadline_ms, id) in rows {
            let order_id: OrderId = id.parse().map_err(unreadable)?;
            (at_ms, last) = (deadline_ms, id);
            if found.len() < most && !put_off.contains(&order_id) {
                found.push(order_id);
            }
        }
        if is_last {
            break;
        }
    }
    Ok(found)
}

/// The requests of orders that are open to all and for which nothing has come that counts, the most urgent first.
pub fn open_to_all(rx: &mut Rx<'_>, limit: i64) -> Result<Vec<EventId>> {
    let ids: Vec<(String,)> = rx.all(
        "SELECT request_id FROM market_order WHERE state = 'posted' AND provider IS NULL
         ORDER BY deadline_ms, order_id LIMIT $1",
        args![page(limit)],
    )?;
    ids.into_iter().map(|(id,)| Ok(id.parse()?)).collect()
}

/// What must be known of an order to tell whether somebody may answer it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brief {
    /// The id of its request.
    pub request_id: EventId,
    /// Whom it addresses; none if it is open to all.
    pub provider: Option<PublicKey>,
    /// What kind of work.
    pub schema_id: SchemaId,
    /// Until when the result must be here.
    pub deadline_ms: UnixMs,
    /// Where it stands.
    pub state: State,
}

impl Decode for Brief {
    fn decode(row: &dyn Columns) -> guild_store::Result<Brief> {
        let mut cells = Cells::of(row);
        Ok(Brief {
            request_id: cells.parsed()?,
            provider: cells.parsed_or_none()?,
            schema_id: cells.parsed()?,
            deadline_ms: cells.next()?,
            state: State::parse(&cells.next::<String>()?)
                .ok_or_else(|| unreadable("an order has an unknown state"))?,
        })
    }
}

const BRIEFS: Sql = Sql {
    lite: "SELECT request_id, provider, schema_id, deadline_ms, state FROM market_order WHERE request_id = $1",
    pg: "SELECT request_id, provider, schema_id, deadline_ms, state FROM market_order
         WHERE request_id = ANY ($1::text[])",
};

/// Those of these requests that are of our orders.
pub fn briefs(rx: &mut Rx<'_>, request_ids: &[EventId]) -> Result<BTreeMap<EventId, Brief>> {
    let ids: Vec<String> = request_ids.iter().map(EventId::hex).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let rows: Vec<Brief> = rx.all_set(BRIEFS, &[Column::Texts(&ids)])?;
    Ok(rows.into_iter().map(|brief| (brief.request_id, brief)).collect())
}

/// A page of orders, the newest first: those before this one, or the newest of all.
pub fn page_before(
    rx: &mut Rx<'_>,
    before: Option<(UnixMs, &OrderId)>,
    limit: i64,
) -> Result<Vec<Order>> {
    let (at_ms, id) = before.map_or((i64::MAX, ""), |(at_ms, id)| (at_ms, id.as_str()));
    Ok(rx.all(
        select!(
            "WHERE posted_ms < $1 OR (posted_ms = $1 AND order_id < $2)
             ORDER BY posted_ms DESC, order_id DESC LIMIT $3"
        ),
        args![at_ms, id, page(limit)],
    )?)
}
