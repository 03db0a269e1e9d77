//! What a model is asked: a pure function of the cards that a turn sees and of the number of its step, so a turn that
//! another worker goes on with asks the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::profile::Profile;
use super::submit;
use super::toolbox::{SUBMIT_RESULT, Toolbox};
use crate::card::CardType;
use crate::model::{Message, ModelCall, Prompt};
use crate::turn::StepCard;
use crate::{AgentTurnId, StepId, ToolCallId};

/// What stands where a model said nothing.
pub(super) const NOTHING_SAID: &str = "(no answer)";

/// A card as a turn sees it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Seen {
    /// Empty for one that this worker has just written.
    pub(super) card_id: String,
    pub(super) card_type: CardType,
    pub(super) agent_turn_id: Option<String>,
    pub(super) tool_call_id: Option<String>,
    pub(super) content: Value,
    pub(super) reasoning: Option<String>,
}

impl Seen {
    /// A card that a step writes.
    pub(super) fn of(card: &StepCard, agent_turn_id: &AgentTurnId, step_id: &StepId) -> Seen {
        Seen {
            card_id: String::new(),
            card_type: card.card_type,
            agent_turn_id: Some(agent_turn_id.as_str().to_owned()),
            tool_call_id: card.call.map(|place| ToolCallId::of(step_id, place).as_str().to_owned()),
            content: card.content.clone(),
            reasoning: reasoning_of(&card.metadata),
        }
    }
}

/// What a model thought before it spoke, as a card keeps it.
pub(super) fn reasoning_of(metadata: &Value) -> Option<String> {
    metadata.get("reasoning_content").and_then(Value::as_str).map(str::to_owned)
}

/// All cards that a turn sees.
#[derive(Debug, Clone, Default)]
pub(super) struct Cards {
    pub(super) context: Arc<Vec<Seen>>,
    pub(super) output: Arc<Vec<Seen>>,
    /// What was written since.
    pub(super) new: Vec<Seen>,
}

impl Cards {
    /// What this turn has written itself, in order.
    pub(super) fn own<'a>(&'a self, turn: &'a AgentTurnId) -> impl Iterator<Item = &'a Seen> {
        let is_own = move |card: &&Seen| card.agent_turn_id.as_deref() == Some(turn.as_str());
        self.output.iter().filter(is_own).chain(&self.new)
    }

    /// What came before in the output box, then the context, then what this turn has written itself.
    fn in_order<'a>(&'a self, turn: &'a AgentTurnId) -> Vec<&'a Seen> {
        let is_own = |card: &&Seen| card.agent_turn_id.as_deref() == Some(turn.as_str());
        let written: BTreeSet<&str> = self.output.iter().map(|c| c.card_id.as_str()).collect();
        let earlier = self.output.iter().filter(|card| !is_own(card));
        let context = self.context.iter().filter(|card| !written.contains(card.card_id.as_str()));
        earlier.chain(context).chain(self.own(turn)).collect()
    }
}

/// How far a turn is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    pub(super) step: i64,
    pub(super) most: i64,
}

impl Budget {
    /// How many steps are left, the one that begins included.
    pub(super) fn left(self) -> i64 {
        self.most.saturating_sub(self.step).saturating_add(1)
    }

    pub(super) fn is_last(self) -> bool {
        self.left() <= 1
    }
}

/// What a model is asked with.
pub(super) fn prompt(
    profile: &Profile,
    system: &str,
    toolbox: &Toolbox,
    cards: &Cards,
    turn: &AgentTurnId,
    budget: Budget,
) -> Prompt {
    let mut messages = Vec::new();
    let system = with_fields(system, toolbox, &cards.context);
    if !system.is_empty() {
        messages.push(Message::System(system));
    }
    said(&cards.in_order(turn), &mut messages);
    let tools = toolbox.offered(profile, budget.is_last());
    let ends_by = if toolbox.submits() { SUBMIT_RESULT } else { "an answer" };
    match budget.left() {
        2 => messages.push(Message::System(format!(
            "Two steps are left, this one included. End the turn with {ends_by} in time."
        ))),
        left if left <= 1 && budget.most > 1 => {
            let text = format!("This is the last step. End the turn with {ends_by} now.");
            messages.push(Message::System(text));
        }
        _ => {}
    }
    let must_call = budget.is_last() && !profile.must_end_with().is_empty() && !tools.is_empty();
    Prompt { config: profile.llm_config.clone(), messages, tools, must_call }
}

/// The system prompt, and what a result must have.
fn with_fields(system: &str, toolbox: &Toolbox, context: &[Seen]) -> String {
    let wanted = submit::wanted(context);
    if wanted.fields.is_empty() || !toolbox.submits() {
        return system.to_owned();
    }
    let line = |(name, about): &(String, String)| {
        if about.is_empty() { format!("- {name}") } else { format!("- {name}: {about}") }
    };
    let lines: Vec<String> = wanted.fields.iter().map(line).collect();
    let gap = if system.is_empty() { "" } else { "\n\n" };
    format!(
        "{system}{gap}When the work is done call {SUBMIT_RESULT}. The result has these fields, each once:\n{}",
        lines.join("\n")
    )
}

/// Puts cards into words. Every call is followed by a result, be it there or not: providers refuse anything else.
fn said(cards: &[&Seen], messages: &mut Vec<Message>) {
    let mut results: BTreeMap<&str, &Seen> = BTreeMap::new();
    let mut thought: BTreeSet<&str> = BTreeSet::new();
    for card in cards {
        match (card.card_type, &card.tool_call_id, &card.agent_turn_id) {
            (CardType::ToolResult, Some(call), _) => {
                results.insert(call, card);
            }
            (CardType::Thought, _, Some(turn)) => {
                thought.insert(turn);
            }
            _ => {}
        }
    }
    for card in cards {
        match card.card_type {
            CardType::Instruction => messages.push(Message::User(text_of(&card.content))),
            CardType::Thought => thought_said(card, &results, messages),
            CardType::AgentError | CardType::MustEndWith | CardType::JudgeFeedback => {
                messages.push(Message::System(text_of(&card.content)));
            }
            // What a turn delivered it has said already, unless only the delivery is seen.
            CardType::Deliverable => {
                let is_said = card.agent_turn_id.as_deref().is_some_and(|t| thought.contains(t));
                if !is_said {
                    let text = text_of(&card.content);
                    messages.push(Message::Assistant { text, reasoning: None, calls: Vec::new() });
                }
            }
            CardType::ResultFields
            | CardType::ToolCall
            | CardType::ToolResult
            | CardType::Profile
            | CardType::RenderedPrompt
            | CardType::Tools
            | CardType::ParentPointer => {}
        }
    }
}

fn thought_said(card: &Seen, results: &BTreeMap<&str, &Seen>, messages: &mut Vec<Message>) {
    let part = |call: &Value, name: &str| {
        call.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let calls: Vec<ModelCall> = card
        .content
        .get("tool_calls")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|call| ModelCall {
            id: part(call, "tool_call_id"),
            tool_name: part(call, "tool_name"),
            arguments: part(call, "arguments"),
        })
        .collect();
    let mut text = card.content.get("text").and_then(Value::as_str).unwrap_or_default().to_owned();
    if text.is_empty() && calls.is_empty() {
        text = NOTHING_SAID.to_owned();
    }
    let answers: Vec<Message> = calls
        .iter()
        .map(|call| Message::Tool {
            model_call_id: call.id.clone(),
            tool_name: call.tool_name.clone(),
            text: match results.get(call.id.as_str()) {
                Some(result) => result_said(&result.content),
                None => json!({ "status": "failed", "error": "There is no result." }).to_string(),
            },
        })
        .collect();
    messages.push(Message::Assistant { text, reasoning: card.reasoning.clone(), calls });
    messages.extend(answers);
}

/// The result of a call, as the model sees it.
fn result_said(content: &Value) -> String {
    let status = content.get("status").and_then(Value::as_str).unwrap_or("failed");
    let result = content.get("result").unwrap_or(&Value::Null);
    let error = content.get("error").unwrap_or(&Value::Null);
    if status == "success" && error.is_null() {
        return match result {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
    }
    let mut said = json!({ "status": status, "error": error });
    if let (Some(said), false) = (said.as_object_mut(), result.is_null()) {
        said.insert("result".to_owned(), result.clone());
    }
    said.to_string()
}

/// A card's content in words.
pub(super) fn text_of(content: &Value) -> String {
    let inner = content.get("text").or_else(|| content.get("data")).unwrap_or(content);
    match inner {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
