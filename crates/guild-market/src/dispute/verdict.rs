//! A result that was disputed is settled by what was decided: the document that its receipt repeats says so.

use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_protocol::json;
use guild_protocol::nostr::dispute::{Outcome, Side};
use guild_protocol::schema::VerificationMode;
use guild_protocol::verification::{Problem, Verification};
use guild_store::{Tx, args};
use serde_json::{Value, json};

use super::close::learn;
use super::hear::{Named, subject_of};
use super::read::{Dispute, get, of_request};
use crate::error::code;
use crate::order::{Order, State};
use crate::row::unreadable;
use crate::verify::Verdict;
use crate::{Error, Result};

/// The name of the check that says what was decided.
const CHECK: &str = "dispute";

/// The verdict about a result that was disputed: what checking it has shown, and what was decided.
pub(super) fn verdict_of(
    dispute: &Dispute,
    order: &Order,
    base: Option<&Verdict>,
) -> Result<Verdict> {
    let text = base.map(|verdict| verdict.document.as_str()).or(order.verdict.as_deref());
    let mut document: Value = match text {
        Some(text) => serde_json::from_str(text).map_err(unreadable)?,
        None => json!({ "checks": [] }),
    };
    let passed = dispute.outcome == Some(Outcome::Release);
    let problem =
        (!passed).then(|| Problem::new(&code::DISPUTE_LOST, "a dispute was decided for the buyer"));
    let check = json!({
        "code": problem.as_ref().map(|problem| problem.code.name), "field": null, "name": CHECK, "ok": passed,
    });
    if let Some(checks) = document.get_mut("checks").and_then(Value::as_array_mut) {
        checks.push(check);
    }
    let score = document.get("score").and_then(Value::as_f64);
    let mode = match document.get("mode").and_then(Value::as_str) {
        Some("subjective") => VerificationMode::Subjective,
        _ => VerificationMode::Objective,
    };
    if let Some(members) = document.as_object_mut() {
        members.insert("passed".to_owned(), json!(passed));
        let decided = json!({
            "by": dispute.by.map(super::By::as_str), "dispute_id": dispute.dispute_id,
            "outcome": dispute.outcome.map(Outcome::as_str),
        });
        members.insert(CHECK.to_owned(), decided);
    }
    let mut checks = Verification::default();
    checks.record(CHECK, "what was decided about it", problem);
    let document = String::from_utf8_lossy(&json::to_canonical(&document)?).into_owned();
    let verdict_hash = Hash::of(document.as_bytes());
    Ok(Verdict { passed, mode, checks, score, document, verdict_hash })
}

/// The verdict by which an order is settled: this one, unless a dispute about it was decided. While one is open nothing
/// is settled.
pub(crate) fn ruling(tx: &mut Tx<'_>, order: &Order, found: &Verdict) -> Result<Verdict> {
    let Some(dispute) = of_request(tx, &order.request_id, Side::Buyer)? else {
        return Ok(found.clone());
    };
    if !dispute.state.is_over() {
        let message = format!("{} is {}", dispute.dispute_id, dispute.state.as_str());
        return Err(Error::refused(&code::DISPUTE_OPEN, message));
    }
    match dispute.outcome {
        Some(_) => verdict_of(&dispute, order, Some(found)),
        None => Ok(found.clone()),
    }
}

/// An order was settled: a dispute that left it to the verdict has its outcome now.
pub(crate) fn settled(tx: &mut Tx<'_>, order: &Order, now_ms: UnixMs) -> Result<()> {
    let outcome = match order.state {
        State::Released => Outcome::Release,
        State::Withheld => Outcome::Withhold,
        _ => return Ok(()),
    };
    let Some(dispute) = of_request(tx, &order.request_id, Side::Buyer)? else { return Ok(()) };
    if !dispute.state.is_over() || dispute.outcome.is_some() {
        return Ok(());
    }
    tx.exec(
        "UPDATE market_dispute SET outcome = $2, changed_ms = $3 WHERE dispute_id = $1 AND side = 'buyer'",
        args![dispute.dispute_id.as_str(), outcome.as_str(), now_ms],
    )?;
    let dispute = get(tx, &dispute.dispute_id, Side::Buyer)?;
    let subject = subject_of(tx, Side::Buyer, &Named::by(&dispute))?;
    learn(tx, &dispute, &subject, now_ms)
}
