//! Disputes of this node: filed, answered and decided by whoever has its token.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::EventId;
use guild_roles::disputes::{
    Answer, DisputeId, Disputes, Filing, Outcome, Reason, Reference, summary,
};
use serde::Deserialize;
use serde_json::Value;

use crate::body::Sent;
use crate::guard::Owner;
use crate::{Error, Result, Shared};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewDispute {
    request_id: EventId,
    reason: String,
    statement: Option<String>,
    #[serde(default)]
    evidence: Vec<Reference>,
    arbiter: Option<PublicKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewAnswer {
    statement: Option<String>,
    #[serde(default)]
    evidence: Vec<Reference>,
    arbiter: Option<PublicKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Decision {
    outcome: String,
    statement: Option<String>,
}

pub(crate) async fn file(
    State(shared): State<Shared>,
    _: Owner,
    Sent(asked): Sent<NewDispute>,
) -> Result<(StatusCode, Json<Value>)> {
    let known: Vec<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    let unknown = || Error::bad("reason", format!("must be one of {}", known.join(", ")));
    let reason = Reason::parse(&asked.reason).ok_or_else(unknown)?;
    let NewDispute { request_id, statement, evidence, arbiter, .. } = asked;
    let filing = Filing { request_id, reason, statement, evidence, arbiter };
    let dispute = disputes(&shared)?.file(filing).await?;
    Ok((StatusCode::CREATED, Json(summary(&dispute))))
}

pub(crate) async fn answer(
    State(shared): State<Shared>,
    _: Owner,
    Path(id): Path<String>,
    Sent(asked): Sent<NewAnswer>,
) -> Result<Json<Value>> {
    let NewAnswer { statement, evidence, arbiter } = asked;
    let answer = Answer { statement, evidence, arbiter };
    Ok(Json(summary(&disputes(&shared)?.answer(dispute_id(&id)?, answer).await?)))
}

pub(crate) async fn resolve(
    State(shared): State<Shared>,
    _: Owner,
    Path(id): Path<String>,
    Sent(asked): Sent<Decision>,
) -> Result<Json<Value>> {
    let unknown = || Error::bad("outcome", "must be release or withhold");
    let outcome = Outcome::parse(&asked.outcome).ok_or_else(unknown)?;
    let role = disputes(&shared)?;
    Ok(Json(summary(&role.resolve(dispute_id(&id)?, outcome, asked.statement).await?)))
}

fn disputes(shared: &Shared) -> Result<&Disputes> {
    shared.disputes.as_ref().ok_or_else(|| Error::NoSuchPath("/api/disputes".to_owned()))
}

fn dispute_id(text: &str) -> Result<DisputeId> {
    text.parse().map_err(|_| Error::bad("dispute_id", "must be the id of a dispute, dispute_…"))
}
