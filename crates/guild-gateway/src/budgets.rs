//! Envelopes: whoever has the node's token sets how much may be spent on which kind of work.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use guild_protocol::amount::Msat;
use guild_roles::budget::{Asked, TaskType};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::Sent;
use crate::guard::Owner;
use crate::{Error, Result, Shared};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewEnvelope {
    task: TaskType,
    daily_msat: Option<i64>,
    monthly_msat: Option<i64>,
    priority: Option<i64>,
    lends_bp: Option<i64>,
    rolls_bp: Option<i64>,
    #[serde(default)]
    remove: bool,
}

pub(crate) async fn set(
    State(shared): State<Shared>,
    _: Owner,
    Sent(asked): Sent<NewEnvelope>,
) -> Result<(StatusCode, Json<Value>)> {
    let path = || Error::NoSuchPath("/api/budgets/set".to_owned());
    let budgets = shared.buyer.as_ref().ok_or_else(path)?.budgets();
    let (task, remove) = (asked.task, asked.remove);
    let asked = Asked {
        daily: asked.daily_msat.map(Msat),
        monthly: asked.monthly_msat.map(Msat),
        priority: asked.priority,
        lends_bp: asked.lends_bp,
        rolls_bp: asked.rolls_bp,
    };
    if remove {
        if asked != Asked::default() {
            return Err(Error::bad("remove", "takes the whole envelope away: name nothing else"));
        }
        let outcome = if budgets.remove(task.clone()).await? { "removed" } else { "known" };
        return Ok((StatusCode::OK, Json(json!({ "task": task, "outcome": outcome }))));
    }
    let (envelope, is_new) = budgets.set(task, asked).await?;
    let (status, outcome) =
        if is_new { (StatusCode::CREATED, "new") } else { (StatusCode::OK, "known") };
    let mut body = json!(envelope);
    body["outcome"] = json!(outcome);
    Ok((status, Json(body)))
}
