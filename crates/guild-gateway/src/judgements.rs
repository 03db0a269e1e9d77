//! Verdicts of the judge: they are kept by provider.

use axum::Json;
use axum::extract::State;
use guild_protocol::identity::PublicKey;
use guild_roles::judgements::{Judged, Verdict};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::Sent;
use crate::guard::Owner;
use crate::{Result, Shared};

/// A verdict about what somebody delivered.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Keep {
    provider: PublicKey,
    at_ms: Option<i64>,
    verdict: Verdict,
}

pub(crate) async fn keep(
    State(shared): State<Shared>,
    _: Owner,
    Sent(asked): Sent<Keep>,
) -> Result<Json<Value>> {
    let Keep { provider, at_ms, verdict } = asked;
    let id = shared.judgements.keep(Judged { provider, at_ms, verdict }).await?;
    Ok(Json(json!({ "judgement_id": id })))
}
