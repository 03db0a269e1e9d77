//! What happened to an order, as a sealed replay.

use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_protocol::json;
use guild_protocol::receipt::Rail;
use guild_protocol::replay::{Event, Output, SessionStatus, Start, StepStatus, Writer};
use guild_protocol::timestamp::Timestamp;
use serde_json::{Value, json};

use super::Outcome;
use crate::Result;
use crate::order::{Order, State};
use crate::row::unreadable;
use crate::verify::Verdict;

/// Who writes. A part of the replay's bytes, so it changes only when the lines do.
const PRODUCER: &str = "guild-market@1";

/// The replay and its seal.
pub(super) struct Sealed {
    pub(super) text: String,
    pub(super) trajectory_hash: Hash,
}

/// Everything is made from the order's row and the verdict: sealing it again gives the same bytes.
pub(super) fn seal(
    order: &Order,
    verdict: &Verdict,
    outcome: &Outcome,
    now_ms: UnixMs,
) -> Result<Sealed> {
    let (posted, settled) = (Timestamp::from_ms(order.posted_ms)?, Timestamp::from_ms(now_ms)?);
    let delivered_ms = order.delivered_ms.unwrap_or(order.posted_ms).max(order.posted_ms);
    let delivered = Timestamp::from_ms(delivered_ms)?;
    let (mut writer, mut text) = Writer::start(&Start {
        producer: PRODUCER.to_owned(),
        t: posted,
        session_id: order.order_id.to_string(),
        issue_number: None,
        policy_bundle_id: order.policy_bundle_id.clone(),
    })?;
    let mut push = |t: Timestamp, event: &Event| -> Result<()> {
        text.extend(writer.push(t, event)?);
        Ok(())
    };
    push(posted, &hire(order)?)?;
    push(delivered, &answered(order, delivered_ms))?;
    push(settled, &call("verify", "market.verify", json!({ "output_hash": output_hash(order) })))?;
    push(settled, &judged(verdict)?)?;
    for (step_id, status) in [
        ("hire", StepStatus::Success),
        ("verify", if_passed(verdict, StepStatus::Success, StepStatus::Failed)),
    ] {
        push(settled, &Event::StepComplete { step_id: step_id.to_owned(), status, iterations: 1 })?;
    }
    if let Some(payment) = &outcome.payment {
        push(
            settled,
            &Event::Payment {
                rail: Rail::Ledger,
                amount: payment.amount.clone(),
                payment_proof: payment.proof.clone(),
                job_hash: Some(order.job_hash),
                status: payment.status,
            },
        )?;
    }
    let status = match outcome.state {
        State::Released => SessionStatus::Success,
        _ => SessionStatus::Failed,
    };
    let end = writer.finish(settled, status, verdict.score.unwrap_or(0.0))?;
    text.extend(end.line);
    let text = String::from_utf8(text).map_err(unreadable)?;
    Ok(Sealed { text, trajectory_hash: end.trajectory_hash })
}

fn call(id: &str, tool: &str, params: Value) -> Event {
    Event::ToolCall { id: id.to_owned(), tool: tool.to_owned(), params, step_id: id.to_owned() }
}

/// Whoever has the receipt may read the replay. What a private order is about stays between the two; its hash binds it.
fn hire(order: &Order) -> Result<Event> {
    let payload: Option<Value> = match order.private {
        true => None,
        false => Some(json::decode(order.payload.as_bytes())?),
    };
    let params = json!({
        "request_id": order.request_id, "provider_id": order.provider, "schema_id": order.schema_id.as_str(),
        "job_hash": order.job_hash, "payload": payload, "budget_msat": order.budget.0,
        "price_msat": order.price.map(|price| price.0), "private": order.private,
    });
    Ok(call("hire", "market.hire", params))
}

fn answered(order: &Order, delivered_ms: UnixMs) -> Event {
    let latency_ms = delivered_ms.saturating_sub(order.posted_ms);
    Event::ToolResult {
        id: "hire".to_owned(),
        output: Output::RawHash(output_hash(order)),
        exit_code: None,
        step_utility: 0.0,
        latency_ms: u32::try_from(latency_ms).unwrap_or(u32::MAX),
    }
}

fn output_hash(order: &Order) -> Hash {
    Hash::of(order.output_text.as_deref().unwrap_or_default().as_bytes())
}

fn judged(verdict: &Verdict) -> Result<Event> {
    Ok(Event::ToolResult {
        id: "verify".to_owned(),
        output: Output::Json(json::decode(verdict.document.as_bytes())?),
        exit_code: Some(if_passed(verdict, 0, 1)),
        step_utility: if_passed(verdict, 1.0, -1.0),
        latency_ms: 0,
    })
}

fn if_passed<T>(verdict: &Verdict, yes: T, no: T) -> T {
    if verdict.passed { yes } else { no }
}
