//! Work that several do: asked for, followed and given up by whoever has the token of this node.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use guild_protocol::amount::Msat;
use guild_protocol::schema::SchemaId;
use guild_roles::buyer::{Buyer, Choice, Course, Criticality, DelegationId, Wanted, Wish};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::Sent;
use crate::guard::Owner;
use crate::orders::{self, policy};
use crate::{Error, Result, Shared};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewDelegation {
    schema_id: SchemaId,
    input: Value,
    budget_msat: i64,
    time_limit_ms: i64,
    criticality: String,
    #[serde(default)]
    fewer_ok: bool,
    #[serde(default)]
    private: bool,
    policy: Option<String>,
    kind: Option<u16>,
    idempotency_key: Option<String>,
}

pub(crate) async fn create(
    State(shared): State<Shared>,
    _: Owner,
    Sent(asked): Sent<NewDelegation>,
) -> Result<(StatusCode, Json<Value>)> {
    let buyer = buyer(&shared)?;
    let unknown = || Error::bad("criticality", "must be medium, high or critical");
    let criticality = Criticality::parse(&asked.criticality);
    let criticality = criticality.filter(|one| *one != Criticality::Low).ok_or_else(unknown)?;
    let wish = Wish {
        schema_id: asked.schema_id,
        input: asked.input,
        budget: Msat(asked.budget_msat),
        time_limit_ms: asked.time_limit_ms,
        provider: Choice::Best,
        private: asked.private,
        policy: policy(asked.policy.as_deref())?,
        kind: asked.kind,
        idempotency_key: asked.idempotency_key,
    };
    let wanted = Wanted { wish, criticality, fewer_ok: asked.fewer_ok };
    let delegation = buyer.delegate(wanted).await?;
    let course = buyer.course(delegation.delegation_id).await?;
    Ok((StatusCode::CREATED, Json(view(&course))))
}

/// How it is getting on, for whoever asked for it: with what came ahead, and with the answer.
pub(crate) async fn course(
    State(shared): State<Shared>,
    _: Owner,
    Path(id): Path<String>,
) -> Result<Json<Value>> {
    let course = buyer(&shared)?.course(delegation_id(&id)?).await?;
    Ok(Json(view(&course)))
}

pub(crate) async fn cancel(
    State(shared): State<Shared>,
    _: Owner,
    Path(id): Path<String>,
) -> Result<Json<Value>> {
    let buyer = buyer(&shared)?;
    let given_up = buyer.give_up(delegation_id(&id)?).await?;
    Ok(Json(view(&buyer.course(given_up.delegation_id).await?)))
}

fn buyer(shared: &Shared) -> Result<&Buyer> {
    shared.buyer.as_ref().ok_or_else(|| Error::NoSuchPath("/api/delegations".to_owned()))
}

fn delegation_id(text: &str) -> Result<DelegationId> {
    let malformed = || Error::bad("delegation_id", "must be the id of a delegation, delegation_…");
    text.parse().map_err(|_| malformed())
}

fn view(course: &Course) -> Value {
    let delegation = &course.delegation;
    let replicas = course.replicas.iter().map(|(replica, progress)| {
        let mut body = orders::shown(progress);
        body["number"] = json!(replica.number);
        body["cluster"] = json!(replica.cluster);
        body["reason"] = json!(replica.reason.as_str());
        body["standing"] = json!(replica.standing.as_str());
        body["passed"] = json!(replica.passed);
        body["says"] = json!(replica.says);
        body["vote"] = json!(replica.vote);
        body
    });
    let output: Value =
        course.output_text().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    json!({
        "delegation_id": delegation.delegation_id,
        "schema_id": delegation.schema_id.as_str(),
        "criticality": delegation.criticality.as_str(),
        "consensus": delegation.consensus.as_str(),
        "wanted": delegation.replicas,
        "needed": delegation.needed,
        "objective": delegation.objective,
        "private": delegation.private,
        "budget_msat": delegation.budget.0,
        "paid_msat": course.paid().0,
        "posted_ms": delegation.posted_ms,
        "deadline_ms": delegation.deadline_ms,
        "state": delegation.state.as_str(),
        "settled": course.is_settled(),
        "winner": delegation.winner,
        "decided_by": delegation.decided_by.map(|by| by.as_str()),
        "why": delegation.why,
        "replicas": replicas.collect::<Vec<_>>(),
        "output": output,
    })
}
