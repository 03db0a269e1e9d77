//! The routing matrix: whoever has the node's token may take somebody out of the choice, or back into it.

use axum::Json;
use axum::extract::State;
use guild_protocol::identity::PublicKey;
use guild_roles::router::{Quarantine, TaskType};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::Sent;
use crate::guard::Owner;
use crate::{Error, Result, Shared};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    provider: PublicKey,
    task: Option<TaskType>,
    until_ms: Option<i64>,
    #[serde(default)]
    lift: bool,
    reason: String,
    idempotency_key: String,
}

pub(crate) async fn quarantine(
    State(shared): State<Shared>,
    _: Owner,
    Sent(asked): Sent<Asked>,
) -> Result<Json<Value>> {
    let path = || Error::NoSuchPath("/api/routing/quarantine".to_owned());
    let router = shared.buyer.as_ref().ok_or_else(path)?.router();
    if asked.lift && asked.until_ms.is_some() {
        return Err(Error::bad("until_ms", "is for what begins, not for what is lifted"));
    }
    let asked = Quarantine {
        provider: asked.provider,
        task: asked.task,
        until_ms: asked.until_ms,
        lift: asked.lift,
        reason: asked.reason,
        idempotency_key: asked.idempotency_key,
    };
    let entries = router.quarantine(&asked).await?;
    let entry = |(task, entry)| json!({ "task": task, "entry": entry });
    Ok(Json(json!({ "entries": entries.into_iter().map(entry).collect::<Vec<_>>() })))
}
