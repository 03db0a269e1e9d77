//! Orders of this node: made, looked at and given up by whoever has its token. What was ordered may be private, so
//! nobody else reads it.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use guild_protocol::amount::Msat;
use guild_protocol::identity::PublicKey;
use guild_protocol::schema::SchemaId;
use guild_roles::budget::{Bid, Urgency, Wanted};
use guild_roles::buyer::{Buyer, Choice, Enquiry, Order, OrderId, Progress, Proposed, Why, Wish};
use guild_roles::router::Policy;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::Sent;
use crate::guard::Owner;
use crate::{Error, Result, Shared};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewOrder {
    schema_id: SchemaId,
    input: Value,
    budget_msat: Option<i64>,
    urgency: Option<String>,
    target_trust_bp: Option<u32>,
    time_limit_ms: i64,
    provider: Option<String>,
    #[serde(default)]
    private: bool,
    policy: Option<String>,
    kind: Option<u16>,
    idempotency_key: Option<String>,
}

pub(crate) async fn create(
    State(shared): State<Shared>,
    _: Owner,
    Sent(asked): Sent<NewOrder>,
) -> Result<(StatusCode, Json<Value>)> {
    let buyer = buyer(&shared)?;
    let proposed = proposed(buyer, &asked).await?;
    let wish = Wish {
        schema_id: asked.schema_id,
        input: asked.input,
        budget: proposed.budget(),
        time_limit_ms: asked.time_limit_ms,
        provider: choice(asked.provider.as_deref())?,
        private: asked.private,
        policy: policy(asked.policy.as_deref())?,
        kind: asked.kind,
        idempotency_key: asked.idempotency_key,
    };
    let order = buyer.hire(wish).await?;
    let Progress { order, why, .. } = buyer.progress(order.order_id).await?;
    let mut body = view(&order);
    body["choice"] = choice_of(why);
    body["bid"] = proposed.bid().map(bid_of).unwrap_or_default();
    Ok((StatusCode::CREATED, Json(body)))
}

/// What is offered: what was named, or else what the formula says.
async fn proposed(buyer: &Buyer, asked: &NewOrder) -> Result<Proposed> {
    if let Some(msat) = asked.budget_msat {
        if asked.urgency.is_some() || asked.target_trust_bp.is_some() {
            let message = "is named, so neither urgency nor target_trust_bp can change it";
            return Err(Error::bad("budget_msat", message));
        }
        return Ok(Proposed::Before(Msat(msat)));
    }
    let word = asked.urgency.as_deref().unwrap_or("normal");
    let urgency = Urgency::parse(word);
    let urgency =
        urgency.ok_or_else(|| Error::bad("urgency", "must be normal, urgent or critical"))?;
    let target_trust_bp = asked.target_trust_bp.unwrap_or(Wanted::default().target_trust_bp);
    if target_trust_bp > 10_000 {
        return Err(Error::bad("target_trust_bp", "must be 0 to 10000"));
    }
    let ask = Enquiry {
        schema_id: asked.schema_id.clone(),
        wanted: Wanted { urgency, target_trust_bp },
        idempotency_key: asked.idempotency_key.clone(),
    };
    Ok(buyer.propose(ask).await?)
}

/// Every factor of a bid, and the same in words.
fn bid_of(bid: &Bid) -> Value {
    let mut body = json!(bid);
    body["words"] = json!(bid.words());
    body
}

fn choice(provider: Option<&str>) -> Result<Choice> {
    match provider {
        None | Some("best") => Ok(Choice::Best),
        Some("any") => Ok(Choice::Any),
        Some(key) => key.parse::<PublicKey>().map(Choice::Chosen).map_err(|_| {
            Error::bad("provider", "must be best, any, or the key of a provider, npub1… or hex")
        }),
    }
}

pub(crate) fn policy(name: Option<&str>) -> Result<Option<Policy>> {
    let unknown = || Error::bad("policy", "must be tiered or thompson");
    name.map(|name| Policy::named(name).ok_or_else(unknown)).transpose()
}

pub(crate) async fn show(
    State(shared): State<Shared>,
    _: Owner,
    Path(id): Path<String>,
) -> Result<Json<Value>> {
    let buyer = buyer(&shared)?;
    Ok(Json(shown(&buyer.progress(order_id(&id)?).await?)))
}

/// An order, why it went to whom it went, and what was answered to it.
pub(crate) fn shown(progress: &Progress) -> Value {
    let Progress { order, why, answers, partials } = progress;
    let mut body = view(order);
    body["choice"] = choice_of(why.clone());
    let answers = answers.iter().map(|answer| {
        json!({
            "event_id": answer.event_id,
            "provider": answer.author,
            "kind": answer.kind,
            "status": answer.status,
            "price_msat": answer.price.map(|price| price.0),
            "received_ms": answer.received_ms,
            "partial": partials.get(&answer.event_id),
        })
    });
    body["answers"] = answers.collect();
    body
}

pub(crate) async fn cancel(
    State(shared): State<Shared>,
    _: Owner,
    Path(id): Path<String>,
) -> Result<Json<Value>> {
    let buyer = buyer(&shared)?;
    Ok(Json(view(&buyer.cancel(order_id(&id)?).await?)))
}

/// Why it went to whom it went, if that was decided here.
fn choice_of(why: Option<Why>) -> Value {
    why.map(|why| json!({ "how": why.how, "words": why.words, "document": why.document }))
        .unwrap_or_default()
}

fn buyer(shared: &Shared) -> Result<&Buyer> {
    shared.buyer.as_ref().ok_or_else(|| Error::NoSuchPath("/api/orders".to_owned()))
}

fn order_id(text: &str) -> Result<OrderId> {
    text.parse().map_err(|_| Error::bad("order_id", "must be the id of an order, order_…"))
}

fn view(order: &Order) -> Value {
    let document = |text: &Option<String>| -> Value {
        text.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    };
    json!({
        "order_id": order.order_id,
        "request_id": order.request_id,
        "schema_id": order.schema_id.as_str(),
        "provider": order.provider.map(|provider| provider.npub()),
        "private": order.private,
        "price_msat": order.price.map(|price| price.0),
        "budget_msat": order.budget.0,
        "posted_ms": order.posted_ms,
        "deadline_ms": order.deadline_ms,
        "state": order.state.as_str(),
        "words": order.words,
        "verdict": document(&order.verdict),
        "paid_msat": order.paid.map(|paid| paid.0),
        "receipt_id": order.receipt_id,
        "output": document(&order.output_text),
    })
}
