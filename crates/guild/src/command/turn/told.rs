//! Turns in words and as JSON.

use guild_kernel::card::{Card, CardType};
use guild_kernel::story::{Standing, Story, Summary};
use guild_kernel::turn::step::Step;
use serde_json::{Value, json};

use super::super::reading;
use crate::error::Result;
use crate::output::Output;

/// What is longer is cut: the whole of it is in `--json`.
pub(super) const TEXT_MAX: usize = 2_000;
/// Where the words of a card begin, and all lines of them: behind the time and the type.
pub(super) const COLUMN: usize = TIME_WIDTH + 2 + TYPE_WIDTH + 2;
const TIME_WIDTH: usize = 20;
const TYPE_WIDTH: usize = 17;

pub(crate) fn summary(turn: &Summary) -> Value {
    json!({
        "seq": turn.seq,
        "agent_turn_id": turn.agent_turn_id,
        "project_id": turn.key.project_id,
        "agent_id": turn.key.agent_id,
        "channel_id": turn.channel_id,
        "correlation_id": turn.correlation_id,
        "profile_name": turn.profile_name,
        "parent_agent_turn_id": turn.parent_agent_turn_id,
        "status": turn.standing.as_str(),
        "outcome": turn.outcome.map(|outcome| outcome.as_str()),
        "error_code": turn.error_code,
        "steps": turn.steps,
        "model": turn.usage.model,
        "prompt_tokens": turn.usage.prompt_tokens,
        "completion_tokens": turn.usage.completion_tokens,
        "cost_micro_usd": turn.usage.cost_micro_usd,
        "created_ms": turn.created_ms,
        "closed_ms": turn.closed_ms,
    })
}

pub(crate) fn story(story: &Story) -> Value {
    json!({
        "turn": summary(&story.summary),
        "metadata": story.metadata,
        "context": story.context.iter().map(card).collect::<Vec<_>>(),
        "cards": story.cards.iter().map(card).collect::<Vec<_>>(),
        "steps": story.steps.iter().map(step).collect::<Vec<_>>(),
        "deliverable": deliverable(story).map(content),
    })
}

pub(super) fn card(card: &Card) -> Value {
    json!({
        "card_id": card.card_id,
        "type": card.card_type.as_str(),
        "role": card.role.as_str(),
        "author_id": card.author_id,
        "step_id": card.step_id,
        "tool_call_id": card.tool_call_id,
        "content": content(card),
        "created_ms": card.created_ms,
    })
}

fn step(step: &Step) -> Value {
    json!({
        "step_id": step.step_id,
        "number": step.number,
        "turn_epoch": step.turn_epoch,
        "status": step.status.as_str(),
        "error_code": step.error_code,
        "model": step.usage.model,
        "prompt_tokens": step.usage.prompt_tokens,
        "completion_tokens": step.usage.completion_tokens,
        "cost_micro_usd": step.usage.cost_micro_usd,
        "started_ms": step.started_ms,
        "ended_ms": step.ended_ms,
    })
}

/// What a card says. What another program has spoilt is shown as it is.
pub(crate) fn content(card: &Card) -> Value {
    serde_json::from_str(&card.content).unwrap_or_else(|_| Value::from(card.content.clone()))
}

/// What the turn delivered.
pub(crate) fn deliverable(story: &Story) -> Option<&Card> {
    story.cards.iter().rev().find(|card| card.card_type == CardType::Deliverable)
}

/// How far a turn is, or how it ended.
pub(crate) fn state(turn: &Summary) -> String {
    let word = match (turn.standing, turn.outcome) {
        (Standing::Closed, Some(outcome)) => outcome.as_str(),
        (standing, _) => standing.as_str(),
    };
    match &turn.error_code {
        Some(code) => format!("{word} ({code})"),
        None => word.to_owned(),
    }
}

/// A number of steps.
pub(crate) fn steps(count: i64) -> String {
    if count == 1 { "1 step".to_owned() } else { format!("{count} steps") }
}

/// An amount as people read it.
pub(crate) fn usd(micro_usd: i64) -> String {
    let (whole, part) = (micro_usd / 1_000_000, (micro_usd % 1_000_000).abs());
    format!("{whole}.{part:06} USD")
}

pub(crate) fn print(story: &Story, out: &mut Output) -> Result<()> {
    let turn = &story.summary;
    let (id, agent) = (turn.agent_turn_id.to_string(), turn.key.to_string());
    let tokens = format!(
        "{} read, {} written, {}",
        turn.usage.prompt_tokens,
        turn.usage.completion_tokens,
        usd(turn.usage.cost_micro_usd)
    );
    let (state, when) = (state(turn), reading::time(turn.created_ms));
    out.fields(&[
        ("turn", &id),
        ("agent", &agent),
        ("profile", &turn.profile_name),
        ("state", &state),
        ("asked", &when),
        ("model", turn.usage.model.as_deref().unwrap_or("none yet")),
        ("tokens", &tokens),
    ])?;
    out.line("")?;
    story.context.iter().chain(&story.cards).try_for_each(|card| tell(card, out))
}

/// Prints a card. What has several lines keeps them, all at one column.
pub(crate) fn tell(card: &Card, out: &mut Output) -> Result<()> {
    let begin = begin(card.created_ms, card.card_type);
    out.flow(&format!("{begin}{}", words(card).trim_end_matches('\n')), COLUMN)?;
    out.line("")
}

/// What stands before the words of a card.
pub(super) fn begin(at_ms: i64, card_type: CardType) -> String {
    let when = reading::time(at_ms);
    format!("{when:<TIME_WIDTH$}  {:<TYPE_WIDTH$}  ", card_type.as_str())
}

/// What a card says, as people read it.
pub(super) fn words(card: &Card) -> String {
    let content = content(card);
    let text = match card.card_type {
        CardType::ToolCall => {
            format!("{} {}", word(&content["tool_name"]), content["arguments"])
        }
        CardType::ToolResult => match content["error"].is_null() {
            true => format!("{} {}", word(&content["status"]), content["result"]),
            false => format!("{} {}", word(&content["status"]), content["error"]),
        },
        _ => text_of(&content),
    };
    cut(&text.replace("\r\n", "\n"))
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

/// The words of a card: a text, fields by name, or all of it.
pub(crate) fn text_of(content: &Value) -> String {
    if let Some(text) = content["text"].as_str() {
        return text.to_owned();
    }
    let Some(fields) = content["fields"].as_array() else { return content.to_string() };
    let field = |field: &Value| {
        let value = match &field["value"] {
            Value::Null => field["description"].as_str().unwrap_or_default().to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        format!("{}: {value}", word(&field["name"]))
    };
    fields.iter().map(field).collect::<Vec<_>>().join("\n")
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT_MAX) {
        None => text.to_owned(),
        Some(_) => text.chars().take(TEXT_MAX).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_and_fields_are_readable() {
        assert_eq!(usd(1_234_567), "1.234567 USD");
        assert_eq!(usd(12), "0.000012 USD");
        assert_eq!([steps(0), steps(1), steps(2)], ["0 steps", "1 step", "2 steps"]);
        let fields = json!({ "fields": [
            { "name": "summary", "value": "It works." }, { "name": "count", "value": 3 },
        ]});
        assert_eq!(text_of(&fields), "summary: It works.\ncount: 3");
        assert_eq!(text_of(&json!({ "text": "hello" })), "hello");
    }

    #[test]
    fn words_begin_at_one_column() {
        for card_type in [CardType::Thought, CardType::Deliverable, CardType::ToolCall] {
            assert_eq!(begin(1_768_465_800_000, card_type).chars().count(), COLUMN);
        }
    }
}
