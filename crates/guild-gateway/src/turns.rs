//! The agents of this node: they are given tasks, and turns are ended.

use axum::Json;
use axum::extract::State;
use guild_roles::agents::{AgentTurnId, Task};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::Sent;
use crate::guard::Owner;
use crate::{Error, Result, Shared};

pub(crate) async fn ask(
    State(shared): State<Shared>,
    _: Owner,
    Sent(task): Sent<Task>,
) -> Result<Json<Value>> {
    let agent_turn_id = shared.agents.ask(task).await?;
    Ok(Json(json!({ "agent_turn_id": agent_turn_id })))
}

/// Why a turn is ended.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reason {
    reason: String,
}

pub(crate) async fn stop(
    State(shared): State<Shared>,
    _: Owner,
    axum::extract::Path(id): axum::extract::Path<String>,
    Sent(Reason { reason }): Sent<Reason>,
) -> Result<Json<Value>> {
    let id: AgentTurnId = id.parse().map_err(|_| Error::bad("id", "is not the id of a turn"))?;
    let stopped = shared.agents.stop(id.clone(), reason).await?;
    Ok(Json(json!({ "agent_turn_id": id, "outcome": stopped.as_str() })))
}
