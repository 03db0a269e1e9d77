//! What a provider sends for an order: the result that counts, those that do not, and its refusal.

use guild_network::index;
use guild_protocol::amount::Msat;
use guild_protocol::env::UnixMs;
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::nostr::job::{Feedback, JobResult, Status, correlates, feedback_correlates};
use guild_protocol::nostr::{Event, EventId};
use guild_store::{Columns, Decode, Rx, Tx, args};
use serde_json::json;

use super::{Act, Order, State, close, get, of_request, tell_of};
use crate::claim::Claimant;
use crate::error::code;
use crate::event::tell;
use crate::row::{Cells, unreadable};
use crate::sandbox_run::SCHEMA_ID;
use crate::{Error, Result};

/// How many results of one order are kept. A provider that sends more has said enough.
const ANSWERS_MAX: i64 = 16;
/// How many may try an order that is open to all and fail. Each has one try; behind these nobody has.
const REJECTED_MAX: i64 = 1_000;
/// How much of a provider's words is kept.
const WORDS_MAX_CHARS: usize = 300;

/// What a result was good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is the one that counts.
    Delivered,
    /// It came when nobody waited for it any more.
    Late,
    /// It says what the one that counts says.
    Repeated,
    /// It says something else than the one that counts: the provider has signed both.
    Equivocation,
    /// It is not what was ordered, and others may still do it: the order is open to all.
    Rejected,
}

impl Standing {
    /// All of them.
    pub const ALL: [Standing; 5] = [
        Standing::Delivered,
        Standing::Late,
        Standing::Repeated,
        Standing::Equivocation,
        Standing::Rejected,
    ];

    /// The word in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Standing::Delivered => "delivered",
            Standing::Late => "late",
            Standing::Repeated => "repeated",
            Standing::Equivocation => "equivocation",
            Standing::Rejected => "rejected",
        }
    }

    /// What a result with this text is good for, coming now.
    fn of(order: &Order, output_text: &str, now_ms: UnixMs) -> Standing {
        match (order.state, &order.output_text) {
            (State::Posted, _) if now_ms < order.deadline_ms => Standing::Delivered,
            (_, Some(first)) if first == output_text => Standing::Repeated,
            (_, Some(_)) => Standing::Equivocation,
            (_, None) => Standing::Late,
        }
    }
}

/// A result that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Names it.
    pub event_id: EventId,
    /// What it was good for.
    pub standing: Standing,
    /// The event as it was signed. Rubbish that somebody sent for an order that is open to all is not kept.
    pub json: Option<String>,
    /// When it came.
    pub received_ms: UnixMs,
}

impl Decode for Answer {
    fn decode(row: &dyn Columns) -> guild_store::Result<Answer> {
        let mut cells = Cells::of(row);
        let event_id = cells.parsed()?;
        let word: String = cells.next()?;
        let standing = Standing::ALL.into_iter().find(|standing| standing.as_str() == word);
        Ok(Answer {
            event_id,
            standing: standing.ok_or_else(|| unreadable("an answer has an unknown standing"))?,
            json: cells.next()?,
            received_ms: cells.next()?,
        })
    }
}

/// What became of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// What it was good for.
    pub standing: Standing,
    /// Whether it was seen before.
    pub known: bool,
    /// Whether it is kept as evidence, now or before. Of one request not everything is: anybody could fill us up.
    pub kept: bool,
    /// The order as it stands now.
    pub order: Order,
}

/// Takes a result. Anybody can send one, so it is checked here again: it must name our request, be signed by the
/// provider, and open with our key if it is encrypted. Else it is refused and changes nothing. One for an order that is
/// open to all must have been judged before: see [`reject`]. The claimant judges it, unless that takes long.
pub fn deliver(
    tx: &mut Tx<'_>,
    result: &Event,
    key: &SecretKey,
    claimant: &Claimant,
    now_ms: UnixMs,
) -> Result<Delivery> {
    let order = order_named_by(tx, result)?;
    correlates(&order.request()?, &believed(tx, &order, result)?, result)?;
    if let Some(standing) = standing_of(tx, &result.id)? {
        return Ok(Delivery { standing, known: true, kept: true, order });
    }
    let mut parsed = JobResult::parse(result, Some(key))?;
    // PostgreSQL keeps no NUL in a text. No JSON holds it, nor what stands for it here: the verdict is the same.
    parsed.content = parsed.content.replace('\0', "\u{1}");
    let standing = match Standing::of(&order, &parsed.content, now_ms) {
        // Somebody else was faster.
        Standing::Repeated | Standing::Equivocation if order.provider != Some(result.pubkey) => {
            Standing::Late
        }
        standing => standing,
    };
    let kept = keep(tx, &order, result, standing, now_ms)?;
    let order = match standing {
        Standing::Delivered => accept(tx, &order, result, &parsed, claimant, now_ms)?,
        _ => order,
    };
    Ok(Delivery { standing, known: false, kept, order })
}

/// Notes that a result for an order that is open to all is not what was ordered. The order stays posted, for others;
/// whoever sent it has had its try.
pub fn reject(tx: &mut Tx<'_>, result: &Event, now_ms: UnixMs) -> Result<Order> {
    let order = order_named_by(tx, result)?;
    correlates(&order.request()?, &believed(tx, &order, result)?, result)?;
    if !order.is_open || order.state != State::Posted {
        let message = format!("{} does not wait for anybody's result", order.order_id);
        return Err(Error::refused(&code::ORDER_CLOSED, message));
    }
    tx.exec(
        "INSERT INTO market_answer (event_id, request_id, author, standing, json, received_ms)
         VALUES ($1, $2, $3, 'rejected', NULL, $4)",
        args![&result.id.hex(), &order.request_id.hex(), &result.pubkey.npub(), now_ms],
    )?;
    Ok(order)
}

fn accept(
    tx: &mut Tx<'_>,
    order: &Order,
    result: &Event,
    parsed: &JobResult,
    claimant: &Claimant,
    now_ms: UnixMs,
) -> Result<Order> {
    order.state.after(Act::Deliver)?;
    // What takes minutes to judge is left to whoever has room.
    let claim = (order.schema_id.as_str() != SCHEMA_ID).then(|| claimant.claim(1, now_ms));
    tx.cas(
        "UPDATE market_order SET state = 'delivered', result_id = $2, output_text = $3, asked_units = $4,
           delivered_ms = $5, changed_ms = $5, delivered_by = $6, claim_token = $7, claim_until_ms = $8,
           claim_epoch = $9 WHERE order_id = $1 AND state = 'posted'",
        args![
            order.order_id.as_str(),
            &result.id.hex(),
            &parsed.content,
            parsed.price.as_ref().map(|price| price.msat.0),
            now_ms,
            &result.pubkey.npub(),
            claim.as_ref().map(|claim| &claim.token),
            claim.as_ref().map(|claim| claim.until_ms),
            claim.as_ref().map_or(0, |claim| claim.epoch)
        ],
    )?;
    let order = get(tx, &order.order_id)?;
    tell_of(tx, &order, now_ms)?;
    Ok(order)
}

fn keep(
    tx: &mut Tx<'_>,
    order: &Order,
    result: &Event,
    standing: Standing,
    now_ms: UnixMs,
) -> Result<bool> {
    let (request_id, event_id) = (order.request_id.hex(), result.id.hex());
    let kept = tx.exec(
        "INSERT INTO market_answer (event_id, request_id, author, standing, json, received_ms)
         SELECT $1, $2, $3, $4, $5, $6
         WHERE (SELECT count(*) FROM market_answer WHERE request_id = $2 AND standing <> 'rejected') < $7",
        args![
            &event_id,
            &request_id,
            &result.pubkey.npub(),
            standing.as_str(),
            &result.to_json(),
            now_ms,
            ANSWERS_MAX
        ],
    )?;
    if kept == 1 && standing == Standing::Equivocation {
        let body = json!({
            "order_id": order.order_id, "request_id": request_id, "provider": order.provider,
            "result_id": order.result_id, "other_id": event_id,
        });
        tell(tx, &format!("answer:{event_id}"), "order.equivocation", &body, now_ms)?;
    }
    Ok(kept == 1)
}

fn standing_of(rx: &mut Rx<'_>, event_id: &EventId) -> Result<Option<Standing>> {
    let sql = "SELECT event_id, standing, json, received_ms FROM market_answer WHERE event_id = $1";
    let answer: Option<Answer> = rx.first(sql, args![&event_id.hex()])?;
    Ok(answer.map(|answer| answer.standing))
}

/// The results of an order that were kept, the first one first.
pub fn answers(rx: &mut Rx<'_>, request_id: &EventId) -> Result<Vec<Answer>> {
    let sql = "SELECT event_id, standing, json, received_ms FROM market_answer
               WHERE request_id = $1 ORDER BY received_ms, event_id";
    Ok(rx.all(sql, args![&request_id.hex()])?)
}

/// Who is believed: the provider that was addressed; if all were, whoever announces the schema and has not failed.
fn believed(rx: &mut Rx<'_>, order: &Order, answer: &Event) -> Result<Vec<PublicKey>> {
    if !order.is_open {
        return Ok(order.provider.into_iter().collect());
    }
    let believed = index::announces(rx, &answer.pubkey, order.schema_id.as_str())?
        && may_try(rx, &order.request_id, &answer.pubkey)?;
    Ok(if believed { vec![answer.pubkey] } else { Vec::new() })
}

/// Whether somebody may still try an order that is open to all: each has one try.
pub fn may_try(rx: &mut Rx<'_>, request_id: &EventId, author: &PublicKey) -> Result<bool> {
    let failed: Option<(i64, i64)> = rx.first(
        "SELECT count(*), CAST(coalesce(sum(CASE WHEN author = $2 THEN 1 ELSE 0 END), 0) AS BIGINT)
         FROM market_answer WHERE request_id = $1 AND standing = 'rejected'",
        args![&request_id.hex(), &author.npub()],
    )?;
    Ok(failed.is_none_or(|(all, own)| all < REJECTED_MAX && own == 0))
}

/// Takes feedback. If it says that the provider has failed or refuses, wants to be paid first, or asks for more than
/// the budget, the order ends, unless others may still do it. Anything else changes nothing. The order, if it ended by
/// this.
pub fn fail(
    tx: &mut Tx<'_>,
    feedback: &Event,
    key: &SecretKey,
    now_ms: UnixMs,
) -> Result<Option<Order>> {
    let parsed = Feedback::parse(feedback, Some(key))?;
    let order = known(of_request(tx, &parsed.request.id)?, &parsed.request.id)?;
    feedback_correlates(&order.request()?, &believed(tx, &order, feedback)?, feedback, &parsed)?;
    let (Some(words), State::Posted, false) =
        (ending(parsed, order.budget), order.state, order.is_open)
    else {
        return Ok(None);
    };
    let words: String = words.chars().filter(|c| !c.is_control()).take(WORDS_MAX_CHARS).collect();
    close(tx, &order, Act::Fail, &words, now_ms).map(Some)
}

/// Why feedback ends an order, if it does.
fn ending(feedback: Feedback, budget: Msat) -> Option<String> {
    let asked = feedback.price.as_ref().map(|price| price.msat);
    match feedback.status {
        Status::Error => Some(feedback.info.unwrap_or(feedback.content)),
        Status::PaymentRequired => Some("the provider wants to be paid first".to_owned()),
        _ => asked.filter(|asked| *asked > budget).map(|asked| {
            format!("the provider asks for {} msat, the budget is {}", asked.0, budget.0)
        }),
    }
}

fn order_named_by(tx: &mut Tx<'_>, event: &Event) -> Result<Order> {
    let named: EventId = event.tag("e").unwrap_or_default().parse()?;
    known(of_request(tx, &named)?, &named)
}

fn known(order: Option<Order>, request_id: &EventId) -> Result<Order> {
    order.ok_or_else(|| {
        let message = format!("{request_id} is no request of ours");
        Error::refused(&code::UNKNOWN_ORDER, message)
    })
}
