//! What a replica's result is worth, once the whole is decided: the document that its receipt repeats.
//!
//! It is the document of the result's own check, and what was agreed on beside it. It follows from rows that never
//! change again, so it is the same after every crash.

use guild_protocol::hash::Hash;
use guild_protocol::json;
use guild_protocol::schema::VerificationMode;
use guild_protocol::verification::{Problem, Verification};
use serde_json::{Value, json};

use super::read::{Delegation, Replica, Standing, State};
use crate::error::code;
use crate::order::Order;
use crate::row::unreadable;
use crate::verify::{SCHEMA_VERSION, Verdict};
use crate::{Error, Result};

/// The name of the check that says whether others said the same.
const CHECK: &str = "consensus";

/// The verdict about the result of a replica.
pub fn verdict_of(
    delegation: &Delegation,
    replicas: &[Replica],
    replica: &Replica,
    order: &Order,
) -> Result<Verdict> {
    if delegation.state == State::Open {
        let message = format!("{} is not decided yet", delegation.delegation_id);
        return Err(Error::refused(&code::DELEGATION_OPEN, message));
    }
    let passed = replica.standing == Standing::Agrees;
    let problem = (!passed).then(|| problem(delegation, replica));
    let mut document = match &replica.ballot {
        Some(ballot) => serde_json::from_str(ballot).map_err(unreadable)?,
        None => unchecked(delegation, replica, order),
    };
    let score = document.get("score").and_then(Value::as_f64);
    let check = json!({
        "code": problem.as_ref().map(|problem| problem.code.name), "field": null, "name": CHECK, "ok": passed,
    });
    if let Some(checks) = document.get_mut("checks").and_then(Value::as_array_mut) {
        checks.push(check);
    }
    if let Some(members) = document.as_object_mut() {
        members.insert("passed".to_owned(), json!(passed));
        members.insert(CHECK.to_owned(), consensus(delegation, replicas, replica));
    }
    let mut checks = Verification::default();
    checks.record(CHECK, "its answer is the one that counts", problem);
    let document = String::from_utf8_lossy(&json::to_canonical(&document)?).into_owned();
    let verdict_hash = Hash::of(document.as_bytes());
    let mode = mode(delegation);
    Ok(Verdict { passed, mode, checks, score, document, verdict_hash })
}

fn mode(delegation: &Delegation) -> VerificationMode {
    match delegation.objective {
        true => VerificationMode::Objective,
        false => VerificationMode::Subjective,
    }
}

fn problem(delegation: &Delegation, replica: &Replica) -> Problem {
    match (delegation.state, replica.passed) {
        (_, Some(false)) => Problem::new(&code::DELEGATION_DIFFERS, "its own check failed"),
        (_, None) => Problem::new(&code::UNVERIFIABLE, "it could not be checked"),
        (State::Decided, _) => Problem::new(&code::DELEGATION_DIFFERS, "others agree on another"),
        _ => Problem::new(&code::DELEGATION_NO_CONSENSUS, "no answer was agreed on"),
    }
}

/// What was agreed on, and what this one says.
fn consensus(delegation: &Delegation, replicas: &[Replica], replica: &Replica) -> Value {
    let agreeing = replicas.iter().filter(|one| one.standing == Standing::Agrees).count();
    json!({
        "agreeing": agreeing,
        "asked": delegation.replicas,
        "by": delegation.decided_by.map(super::DecidedBy::as_str),
        "delegation_id": delegation.delegation_id,
        "needed": delegation.needed,
        "replicas": replicas.len(),
        "rule": delegation.consensus.as_str(),
        "says": replica.says,
        "state": delegation.state.as_str(),
        "vote": replica.vote,
        "winner": delegation.winner,
    })
}

/// The document of a result that nobody could check in time.
fn unchecked(delegation: &Delegation, replica: &Replica, order: &Order) -> Value {
    json!({
        "checks": [],
        "job_hash": delegation.job_hash,
        "min_likeness": null,
        "mode": mode(delegation).as_str(),
        "output_hash": Hash::of(order.output_text.as_deref().unwrap_or_default().as_bytes()),
        "passed": false,
        "provider_id": replica.provider,
        "schema_id": delegation.schema_id.as_str(),
        "schema_version": SCHEMA_VERSION,
        "score": null,
    })
}
