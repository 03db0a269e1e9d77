//! A turn as a sealed replay: made from its rows alone, so whoever exports it again gets the same bytes.

use std::collections::BTreeSet;

use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_protocol::replay::{Event, Output, SessionStatus, Start, StepStatus, Writer};
use guild_protocol::timestamp::Timestamp;
use guild_store::Rx;
use serde_json::{Value, json};

use crate::card::{Card, CardType};
use crate::inbox::Outcome;
use crate::story::{self, Story};
use crate::turn::step::{self, Step};
use crate::{AgentTurnId, Error, Result, ToolCallId, code};

/// Who writes. A part of the replay's bytes, so it changes only when the lines do.
const PRODUCER: &str = "guild-kernel@1";

/// A line puts a few levels around what it tells.
const TOLD_DEPTH_MAX: usize = 120;

/// A sealed replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// `REPLAY.jsonl`.
    pub text: String,
    /// What a receipt repeats.
    pub trajectory_hash: Hash,
}

/// The replay of a turn that is over.
pub fn export(rx: &mut Rx<'_>, id: &AgentTurnId, policy_bundle_id: &str) -> Result<Sealed> {
    let Some(story) = story::find(rx, id)? else { return Err(crate::turn::unknown_turn(id)) };
    let Some(closed_ms) = story.summary.closed_ms else {
        let message = format!("{id} is not over yet");
        return Err(Error::refused(&code::NOT_CLOSED, message));
    };
    seal(&story, closed_ms, policy_bundle_id)
}

/// An event and when it happened.
type Happened = (UnixMs, Event);

fn seal(story: &Story, closed_ms: UnixMs, policy_bundle_id: &str) -> Result<Sealed> {
    let summary = &story.summary;
    let start = Start {
        producer: PRODUCER.to_owned(),
        t: Timestamp::from_ms(summary.created_ms)?,
        session_id: summary.agent_turn_id.to_string(),
        issue_number: None,
        policy_bundle_id: policy_bundle_id.to_owned(),
    };
    let (mut writer, mut text) = Writer::start(&start)?;
    let mut happened = happenings(story);
    // Stable: what happened in one moment stays in its order. Clocks that were set back change no order of steps.
    let mut latest_ms = summary.created_ms;
    for (at_ms, event) in happened.drain(..) {
        latest_ms = latest_ms.max(at_ms);
        text.extend(writer.push(Timestamp::from_ms(latest_ms)?, &event)?);
    }
    let (status, confidence) = match summary.outcome {
        Some(Outcome::Success) => (SessionStatus::Success, 1.0),
        Some(Outcome::Canceled) => (SessionStatus::Cancelled, 0.0),
        Some(Outcome::Timeout) => (SessionStatus::Timeout, 0.0),
        Some(Outcome::Partial) => (SessionStatus::Failed, 0.5),
        Some(Outcome::Failed) | None => (SessionStatus::Failed, 0.0),
    };
    let end = Timestamp::from_ms(latest_ms.max(closed_ms))?;
    let end = writer.finish(end, status, confidence)?;
    text.extend(end.line);
    let text = String::from_utf8(text).map_err(crate::row::unreadable)?;
    Ok(Sealed { text, trajectory_hash: end.trajectory_hash })
}

/// What happened, in the order of the steps: what was asked, then each step with what was said, called and answered,
/// then what came out.
fn happenings(story: &Story) -> Vec<Happened> {
    let (mut told, mut seq) = (Vec::new(), 0);
    for card in &story.context {
        told.push((story.summary.created_ms, said(card, &mut seq)));
    }
    for step in &story.steps {
        tell_step(story, step, &mut told, &mut seq);
    }
    let of_step = |card: &&Card| card.step_id.is_none() || card.card_type == CardType::Deliverable;
    for card in story.cards.iter().filter(of_step) {
        told.push((card.created_ms, said(card, &mut seq)));
    }
    told
}

fn tell_step(story: &Story, step: &Step, told: &mut Vec<Happened>, seq: &mut u32) {
    let of_step = |card: &&Card| {
        card.step_id.as_ref() == Some(&step.step_id) && card.card_type != CardType::Deliverable
    };
    let (mut called, mut answered) = (BTreeSet::new(), BTreeSet::new());
    let mut last_ms = step.ended_ms.unwrap_or(step.started_ms);
    for card in story.cards.iter().filter(of_step) {
        last_ms = last_ms.max(card.created_ms);
        let event = match (card.card_type, &card.tool_call_id) {
            (CardType::ToolCall, Some(call)) => {
                called.insert(call);
                tool_call(card, call, step)
            }
            (CardType::ToolResult, Some(call)) if called.contains(call) => {
                answered.insert(call);
                tool_result(story, card, call)
            }
            _ => said(card, seq),
        };
        told.push((card.created_ms, event));
    }
    told.push((last_ms, used(step, seq)));
    // A step whose calls nobody answered is not complete.
    if called == answered {
        let status = match step.status {
            step::StepStatus::Completed | step::StepStatus::Suspended => StepStatus::Success,
            step::StepStatus::Failed => StepStatus::Failed,
            step::StepStatus::Started | step::StepStatus::Abandoned => StepStatus::Skipped,
        };
        let step_id = step.step_id.to_string();
        told.push((last_ms, Event::StepComplete { step_id, status, iterations: 1 }));
    }
}

/// What a card says. Every turn can be exported, so what cannot be read is told as the text that it is.
fn content(card: &Card) -> Value {
    serde_json::from_str(&card.content).unwrap_or_else(|_| unreadable(card.content.clone()))
}

fn unreadable(text: String) -> Value {
    json!({ "unreadable": text })
}

/// A value as a line can hold it: what no reader of replays would take, such as an integer beyond ±(2^53−1), is told as
/// the text that it is. Cards that are written today hold no such value.
fn plain(value: Value) -> Value {
    let doc = guild_protocol::json::to_doc(&value);
    match doc.and_then(|doc| doc.check_reads_back(TOLD_DEPTH_MAX)) {
        Ok(()) => value,
        Err(_) => unreadable(value.to_string()),
    }
}

fn tool_call(card: &Card, call: &ToolCallId, step: &Step) -> Event {
    let content = content(card);
    let tool = content.get("tool_name").and_then(Value::as_str).filter(|tool| !tool.is_empty());
    Event::ToolCall {
        id: call.to_string(),
        tool: tool.unwrap_or("unknown").to_owned(),
        params: plain(content.get("arguments").cloned().unwrap_or_default()),
        step_id: step.step_id.to_string(),
    }
}

fn tool_result(story: &Story, card: &Card, call: &ToolCallId) -> Event {
    let content = content(card);
    let status = content.get("status").and_then(Value::as_str);
    let good = status == Some(Outcome::Success.as_str());
    let called = story.cards.iter().find(|other| {
        other.card_type == CardType::ToolCall && other.tool_call_id.as_ref() == Some(call)
    });
    let took_ms = called.map_or(0, |called| card.created_ms.saturating_sub(called.created_ms));
    Event::ToolResult {
        id: call.to_string(),
        output: Output::Json(plain(content)),
        exit_code: None,
        step_utility: if good { 1.0 } else { -1.0 },
        latency_ms: u32::try_from(took_ms.max(0)).unwrap_or(u32::MAX),
    }
}

fn runtime_event(kind: &str, payload: Value, seq: &mut u32) -> Event {
    *seq = seq.saturating_add(1);
    Event::RuntimeEvent {
        seq: *seq,
        runtime_event_type: kind.to_owned(),
        payload,
        idempotency_key: None,
    }
}

/// A card, in full.
fn said(card: &Card, seq: &mut u32) -> Event {
    let payload = json!({
        "card_id": card.card_id,
        "role": card.role.as_str(),
        "author_id": card.author_id,
        "content": plain(content(card)),
    });
    runtime_event(card.card_type.as_str(), payload, seq)
}

fn used(step: &Step, seq: &mut u32) -> Event {
    let payload = json!({
        "step_id": step.step_id,
        "number": step.number,
        "turn_epoch": step.turn_epoch,
        "status": step.status.as_str(),
        "error_code": step.error_code,
        "model": step.usage.model,
        "prompt_tokens": step.usage.prompt_tokens,
        "completion_tokens": step.usage.completion_tokens,
        "cost_micro_usd": step.usage.cost_micro_usd,
    });
    runtime_event("step", payload, seq)
}
