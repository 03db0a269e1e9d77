//! The relays of others: an event for all of them.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use guild_protocol::nostr::{Event, Limits};
use serde_json::{Value, json};

use crate::body::{self, Raw};
use crate::guard::Owner;
use crate::{Result, Shared};

/// Publishes the event that is the body.
pub(crate) async fn publish(
    State(shared): State<Shared>,
    _: Owner,
    Raw(body): Raw,
) -> Result<(StatusCode, Json<Value>)> {
    let event = Event::parse(&body, &Limits::DEFAULT).map_err(|e| body::malformed(&e))?;
    let published = shared.relays.publish(event).await?;
    let body = json!({ "event_id": published.event_id, "relays": published.relays });
    Ok((StatusCode::CREATED, Json(body)))
}
