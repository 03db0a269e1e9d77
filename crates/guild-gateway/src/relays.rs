//! The relays of others: what is known of each, and an event for all of them.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode};
use guild_protocol::nostr::{Event, Limits};
use serde_json::{Value, json};

use crate::{Error, Result, Shared, guard};

pub(crate) async fn list(State(shared): State<Shared>) -> Json<Value> {
    Json(json!({ "relays": shared.relays.status() }))
}

/// Publishes the event that is the body.
pub(crate) async fn publish(
    State(shared): State<Shared>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Json<Value>)> {
    guard::require_token(&shared, &headers)?;
    let body = body.map_err(|rejected| match rejected.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Error::TooLarge(shared.options.body_max_bytes),
        _ => Error::bad("body", rejected.body_text()),
    })?;
    let event = Event::parse(&body, &Limits::DEFAULT).map_err(|e| {
        Error::bad(e.place().unwrap_or("body"), format!("{} ({})", e.message(), e.code().name))
    })?;
    let published = shared.relays.publish(event).await?;
    let body = json!({ "event_id": published.event_id, "relays": published.relays });
    Ok((StatusCode::CREATED, Json(body)))
}
