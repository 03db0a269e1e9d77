//! The agents of this node: they are given tasks, listened to, and turns are ended.

use std::convert::Infallible;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Sse;
use axum::response::sse::Event;
use futures_util::stream::Stream;
use guild_roles::agents::{AgentKey, AgentTurnId, Task};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::Sent;
use crate::guard::Owner;
use crate::{Error, Result, Shared, events};

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
    Path(id): Path<String>,
    Sent(Reason { reason }): Sent<Reason>,
) -> Result<Json<Value>> {
    let id: AgentTurnId = id.parse().map_err(|_| Error::bad("id", "is not the id of a turn"))?;
    let stopped = shared.agents.stop(id.clone(), reason).await?;
    Ok(Json(json!({ "agent_turn_id": id, "outcome": stopped.as_str() })))
}

/// What an agent's model says from now on. It may be private, so only the owner hears it.
pub(crate) async fn live(
    State(shared): State<Shared>,
    _: Owner,
    Path((project_id, agent_id)): Path<(String, String)>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let key = AgentKey {
        project_id: project_id.parse().map_err(|_| Error::bad("project_id", "is none"))?,
        agent_id: agent_id.parse().map_err(|_| Error::bad("agent_id", "is none"))?,
    };
    let nobody = || Error::NoSuchPath("/api/agents".to_owned());
    let listening = shared.agents.listen(&key)?.ok_or_else(nobody)?;
    events::stream(shared, listening)
}
