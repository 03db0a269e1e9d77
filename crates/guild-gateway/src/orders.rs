//! Orders of this node: made, looked at and given up by whoever has its token. What was ordered may be private, so
//! nobody else reads it.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use guild_protocol::amount::Msat;
use guild_protocol::identity::PublicKey;
use guild_protocol::schema::SchemaId;
use guild_roles::buyer::{Buyer, Choice, Order, OrderId, Progress, Why, Wish};
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
    budget_msat: i64,
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
    let wish = Wish {
        schema_id: asked.schema_id,
        input: asked.input,
        budget: Msat(asked.budget_msat),
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
    Ok((StatusCode::CREATED, Json(body)))
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

fn policy(name: Option<&str>) -> Result<Option<Policy>> {
    let unknown = || Error::bad("policy", "must be tiered or thompson");
    name.map(|name| Policy::named(name).ok_or_else(unknown)).transpose()
}

pub(crate) async fn show(
    State(shared): State<Shared>,
    _: Owner,
    Path(id): Path<String>,
) -> Result<Json<Value>> {
    let buyer = buyer(&shared)?;
    let Progress { order, why, answers } = buyer.progress(order_id(&id)?).await?;
    let mut body = view(&order);
    body["choice"] = choice_of(why);
    let answers = answers.iter().map(|answer| {
        json!({
            "event_id": answer.event_id,
            "provider": answer.author,
            "kind": answer.kind,
            "status": answer.status,
            "price_msat": answer.price.map(|price| price.0),
            "received_ms": answer.received_ms,
        })
    });
    body["answers"] = answers.collect();
    Ok(Json(body))
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
