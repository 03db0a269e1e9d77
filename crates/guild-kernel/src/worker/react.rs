//! What follows from what a model said. Pure: the same answer to the same prompt is the same step.

use std::collections::BTreeMap;

use guild_protocol::error::Code;
use serde_json::{Map, Value, json};

use super::profile::Profile;
use super::prompt::{Budget, Cards, NOTHING_SAID};
use super::submit::{self, Submitted};
use super::toolbox::{Entry, Runs, SUBMIT_RESULT, Toolbox, callable};
use crate::card::{CARD_MAX_BYTES, CardType, Role};
use crate::inbox::Outcome;
use crate::model::{ModelCall, Reply};
use crate::roster::{AfterExecution, check_subject};
use crate::row::{check_text, said_json, to_json};
use crate::tool::{self, ToolOutcome};
use crate::turn::{CALLS_MAX, Call, Finish, StepCard, Then};
use crate::{AgentKey, AgentTurnId, ChannelId, StepId, ToolCallId, code};

/// The longest arguments of one call, and of all calls of a step.
const ARGUMENTS_MAX_BYTES: usize = 192 * 1024;
const ALL_ARGUMENTS_MAX_BYTES: usize = 384 * 1024;
/// The longest text of a thought, and of what was thought before it.
const TEXT_MAX_BYTES: usize = 256 * 1024;
const REASONING_MAX_BYTES: usize = 64 * 1024;
const MODEL_CALL_ID_MAX_BYTES: usize = 256;
/// How much is kept of arguments that cannot be read.
const UNREADABLE_MAX_CHARS: usize = 1_000;

/// Everything that a decision may depend on.
pub(super) struct Scene<'a> {
    pub(super) profile: &'a Profile,
    pub(super) toolbox: &'a Toolbox,
    pub(super) cards: &'a Cards,
    pub(super) key: &'a AgentKey,
    pub(super) channel_id: &'a ChannelId,
    pub(super) agent_turn_id: &'a AgentTurnId,
    pub(super) step_id: &'a StepId,
    pub(super) budget: Budget,
    pub(super) environment: &'a BTreeMap<String, String>,
    pub(super) suspend_timeout_ms: i64,
}

/// A call that a model makes, and what is done about it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Planned {
    pub(super) place: usize,
    pub(super) tool_name: String,
    pub(super) way: Way,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Way {
    /// Nothing: it cannot be made.
    Refused(&'static Code, String),
    /// It runs now, inside the step.
    Here {
        arguments: Map<String, Value>,
        secrets: Map<String, Value>,
        timeout_ms: i64,
        after: AfterExecution,
    },
    /// It is awaited.
    Awaited(Call),
    /// It ends the turn. With a fault it is delivered all the same, as a part.
    Submit(Map<String, Value>, Option<String>),
}

/// What a model said, understood.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Thought {
    card: StepCard,
    /// Whether it said anything at all.
    text: Option<String>,
    pub(super) calls: Vec<Planned>,
    warnings: Vec<String>,
}

/// What a step writes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Done {
    pub(super) cards: Vec<StepCard>,
    pub(super) then: Then,
    pub(super) metadata: Value,
}

/// Understands what a model said.
pub(super) fn understand(scene: &Scene<'_>, reply: Reply) -> Thought {
    let mut warnings = scene.toolbox.warnings.clone();
    let Reply { text, reasoning, mut calls, .. } = reply;
    if calls.len() > CALLS_MAX {
        warnings.push(format!("{} calls at once, only {CALLS_MAX} were looked at", calls.len()));
        calls.truncate(CALLS_MAX);
    }
    let text = shortened(text, TEXT_MAX_BYTES, &mut warnings);
    let mut room = ALL_ARGUMENTS_MAX_BYTES;
    let (mut planned, mut named) =
        (Vec::with_capacity(calls.len()), Vec::with_capacity(calls.len()));
    for (place, call) in calls.into_iter().enumerate() {
        let fits = call.arguments.len() <= ARGUMENTS_MAX_BYTES.min(room);
        room = room.saturating_sub(if fits { call.arguments.len() } else { 0 });
        let way = if fits {
            scene.way(place, &call, &mut warnings)
        } else {
            let message = format!("the arguments have {} bytes", call.arguments.len());
            warnings.push(format!("call {place}: {message}"));
            Way::Refused(&code::TOO_LARGE, message)
        };
        named.push(named_call(scene, place, &call, &way));
        let way = scene.kept(&call, way);
        planned.push(Planned { place, tool_name: call.tool_name, way });
    }
    scene.let_one_submit(&mut planned);
    let reasoning = reasoning
        .filter(|reasoning| scene.profile.saves_reasoning() && !reasoning.is_empty())
        .map(|reasoning| shortened(reasoning, REASONING_MAX_BYTES, &mut warnings));
    let said = if text.is_empty() && named.is_empty() { NOTHING_SAID } else { &text };
    let mut content = json!({ "text": said });
    if let (Some(content), false) = (content.as_object_mut(), named.is_empty()) {
        content.insert("tool_calls".to_owned(), Value::Array(named));
    }
    let metadata = match reasoning {
        Some(reasoning) => json!({ "reasoning_content": reasoning }),
        None => json!({}),
    };
    let card = StepCard {
        card_type: CardType::Thought,
        role: Role::Assistant,
        content,
        metadata,
        call: None,
    };
    Thought { card, text: (!text.is_empty()).then_some(text), calls: planned, warnings }
}

/// A call as a thought names it. It is shown to models again, so it has a form that every provider takes; what cannot
/// be taken for arguments stands beside it.
fn named_call(scene: &Scene<'_>, place: usize, call: &ModelCall, way: &Way) -> Value {
    let readable = !matches!(way, Way::Refused(code, _) if [&code::TOO_LARGE, &code::BAD_ARGUMENTS].contains(code));
    let arguments =
        if readable && !call.arguments.trim().is_empty() { &call.arguments } else { "{}" };
    let mut named = json!({
        "tool_call_id": ToolCallId::of(scene.step_id, place),
        "tool_name": callable(&call.tool_name),
        "arguments": arguments,
    });
    if let Some(named) = named.as_object_mut() {
        let said =
            |text: &str, most: usize| Value::from(text.chars().take(most).collect::<String>());
        if !call.id.is_empty() {
            named.insert("model_call_id".to_owned(), said(&call.id, MODEL_CALL_ID_MAX_BYTES));
        }
        if !readable {
            named.insert("said".to_owned(), said(&call.arguments, UNREADABLE_MAX_CHARS));
        }
    }
    named
}

/// At most so many bytes of a text.
fn shortened(mut text: String, most: usize, warnings: &mut Vec<String>) -> String {
    if text.len() > most {
        warnings.push(format!("{} bytes were said, {most} were kept", text.len()));
        let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

impl Scene<'_> {
    /// In the last step nothing is sent back: a result that cannot be read is delivered as the text that it is.
    fn kept(&self, call: &ModelCall, way: Way) -> Way {
        let submits = call.tool_name == SUBMIT_RESULT && self.toolbox.submits();
        match way {
            Way::Refused(_, why) if submits && self.budget.is_last() => {
                let text = shortened(call.arguments.clone(), TEXT_MAX_BYTES, &mut Vec::new());
                let said = Map::from_iter([("result".to_owned(), Value::String(text))]);
                Way::Submit(said, Some(why))
            }
            way => way,
        }
    }

    /// A result is submitted alone. In the last step the first one that can be read is delivered whatever else is
    /// called, and nothing else runs.
    fn let_one_submit(&self, planned: &mut [Planned]) {
        let submits = |one: &Planned| one.tool_name == SUBMIT_RESULT && self.toolbox.submits();
        if planned.len() < 2 || !planned.iter().any(submits) {
            return;
        }
        let is_whole = |one: &Planned| matches!(one.way, Way::Submit(_, None));
        let is_any = |one: &Planned| matches!(one.way, Way::Submit(..));
        let first = planned.iter().position(is_whole).or_else(|| planned.iter().position(is_any));
        let first = first.filter(|_| self.budget.is_last());
        let message = format!("{SUBMIT_RESULT} must be the only call of its step; nothing was run");
        for (at, one) in planned.iter_mut().enumerate() {
            match &mut one.way {
                Way::Submit(_, fault) if first == Some(at) => {
                    fault.get_or_insert_with(|| {
                        format!("{SUBMIT_RESULT} was not the only call of the last step")
                    });
                }
                way => *way = Way::Refused(&code::NOT_ALONE, message.clone()),
            }
        }
    }

    fn way(&self, place: usize, call: &ModelCall, warnings: &mut Vec<String>) -> Way {
        let arguments = match read_arguments(&call.arguments) {
            Ok(arguments) => arguments,
            Err((code, message)) => {
                warnings.push(format!("call {place} of {:?}: {message}", short(&call.tool_name)));
                return Way::Refused(code, message);
            }
        };
        if call.tool_name == SUBMIT_RESULT && self.toolbox.submits() {
            return Way::Submit(arguments, None);
        }
        let Some(entry) = self.toolbox.get(&call.tool_name) else {
            let message = format!("there is no tool {:?}", short(&call.tool_name));
            warnings.push(message.clone());
            return Way::Refused(&code::UNKNOWN_TOOL, message);
        };
        match self.resolve(place, call, entry, arguments) {
            Ok(way) => way,
            Err((code, message)) => {
                warnings.push(format!("call {place} of {:?}: {message}", short(&call.tool_name)));
                Way::Refused(code, message)
            }
        }
    }

    fn resolve(
        &self,
        place: usize,
        call: &ModelCall,
        entry: &Entry,
        chosen: Map<String, Value>,
    ) -> Result<Way, (&'static Code, String)> {
        let arguments = entry.options.complete(chosen);
        said_json("arguments", &arguments, CARD_MAX_BYTES / 2)
            .map_err(|error| (error.code(), error.to_string()))?;
        let timeout_ms = entry.options.timeout_ms(self.suspend_timeout_ms);
        let mut secrets = Map::new();
        let added = entry.options.add_environment(&mut secrets, self.environment);
        added.map_err(|name| (&code::NO_ENVIRONMENT, format!("the worker has no {name}")))?;
        let target_subject = match &entry.runs {
            Runs::Here => {
                return Ok(Way::Here { arguments, secrets, timeout_ms, after: entry.after });
            }
            Runs::Later => None,
            Runs::Elsewhere(subject) => {
                // Whoever runs it asks for its arguments, and is told what comes from the environment only then.
                let subject = subject
                    .replace("{project_id}", self.key.project_id.as_str())
                    .replace("{channel_id}", self.channel_id.as_str())
                    .replace("{agent_id}", self.key.agent_id.as_str());
                check_subject(&subject).map_err(|error| (error.code(), error.to_string()))?;
                Some(subject)
            }
        };
        let arguments = Value::Object(arguments);
        let named = check_text("id", &call.id, MODEL_CALL_ID_MAX_BYTES).is_ok();
        Ok(Way::Awaited(Call {
            place,
            tool_name: call.tool_name.clone(),
            arguments,
            model_call_id: named.then(|| call.id.clone()),
            after_execution: entry.after,
            target_subject,
            timeout_ms,
        }))
    }
}

/// A name as it may stand in a message.
fn short(name: &str) -> String {
    name.chars().take(80).collect()
}

/// What a model wrote as arguments. Nothing is no arguments.
fn read_arguments(text: &str) -> Result<Map<String, Value>, (&'static Code, String)> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    let bad = |message: String| (&code::BAD_ARGUMENTS, message);
    let value: Value =
        serde_json::from_str(text).map_err(|e| bad(format!("the arguments are no JSON: {e}")))?;
    let Value::Object(arguments) = value else {
        return Err(bad("the arguments are no JSON object".to_owned()));
    };
    // What cannot be written down the same way by everybody, and read again, cannot be called.
    said_json("arguments", &arguments, CARD_MAX_BYTES)
        .map_err(|error| bad(format!("the arguments cannot be kept: {error}")))?;
    Ok(arguments)
}

/// How a call went that could not be made.
fn refusal(code: &Code, message: &str) -> ToolOutcome {
    ToolOutcome {
        status: Outcome::Failed,
        result: Value::Null,
        error: json!({ "code": code.name, "message": message, "source": "sys.worker" }),
        after_execution: None,
    }
}

/// What a step writes, once the tools that run inside it have run.
pub(super) fn conclude(
    scene: &Scene<'_>,
    thought: Thought,
    mut outcomes: BTreeMap<usize, ToolOutcome>,
) -> Done {
    let Thought { card, text, calls, mut warnings } = thought;
    let mut cards = vec![card];
    let (mut awaited, mut ends, mut delivered) = (Vec::new(), Vec::new(), None);
    let none_called = calls.is_empty();
    for Planned { place, tool_name, way } in calls {
        let (arguments, outcome, after) = match way {
            Way::Awaited(call) => {
                awaited.push(call);
                continue;
            }
            Way::Refused(code, message) => (None, refusal(code, &message), AfterExecution::Suspend),
            Way::Here { arguments, after, .. } => {
                let missing = || refusal(&code::TOOL_FAILED, "the tool gave no result");
                let outcome = outcomes.remove(&place).unwrap_or_else(missing);
                (Some(arguments), fit(outcome), after)
            }
            Way::Submit(arguments, fault) => {
                let (outcome, finish) = submit(scene, &arguments, fault, &mut warnings);
                delivered = finish;
                let after = AfterExecution::Suspend;
                (Some(arguments), outcome, after)
            }
        };
        let after = tool::after_of(&outcome.result).or(outcome.after_execution).unwrap_or(after);
        if after == AfterExecution::Terminate {
            ends.push((outcome.status, outcome.result.clone()));
        }
        if let Some(arguments) = arguments {
            cards.push(call_card(place, &tool_name, arguments));
        }
        cards.push(result_card(place, &tool_name, outcome, after));
    }
    let then = if !awaited.is_empty() {
        Then::Suspend(awaited)
    } else if let Some(finish) = delivered {
        Then::Finish(finish)
    } else if !ends.is_empty() {
        Then::Finish(ended_by_tool(&ends))
    } else if none_called && scene.profile.must_end_with().is_empty() {
        Then::Finish(answered(text))
    } else {
        if none_called {
            cards.push(reminder(scene.profile.must_end_with()));
        }
        if scene.budget.is_last() {
            Then::Finish(out_of_steps(text.as_deref()))
        } else {
            Then::Continue
        }
    };
    let metadata = if warnings.is_empty() { json!({}) } else { json!({ "warnings": warnings }) };
    Done { cards, then, metadata }
}

fn call_card(place: usize, tool_name: &str, arguments: Map<String, Value>) -> StepCard {
    StepCard {
        card_type: CardType::ToolCall,
        role: Role::Assistant,
        content: json!({ "tool_name": tool_name, "arguments": arguments, "status": "called" }),
        metadata: json!({}),
        call: Some(place),
    }
}

fn result_card(
    place: usize,
    tool_name: &str,
    outcome: ToolOutcome,
    after: AfterExecution,
) -> StepCard {
    let ToolOutcome { status, result, error, .. } = outcome;
    StepCard {
        card_type: CardType::ToolResult,
        role: Role::Tool,
        content: json!({
            "status": status.as_str(),
            "after_execution": after.as_str(),
            "result": result,
            "error": error,
        }),
        metadata: json!({ "function_name": short(tool_name) }),
        call: Some(place),
    }
}

fn reminder(must_end_with: &[String]) -> StepCard {
    let names = must_end_with.join(", ");
    StepCard {
        card_type: CardType::MustEndWith,
        role: Role::System,
        content: json!({ "text": format!("The turn must end with a call of one of these tools: {names}.") }),
        metadata: json!({}),
        call: None,
    }
}

/// A result that a card can hold, or one that says why it cannot.
pub(super) fn fit(outcome: ToolOutcome) -> ToolOutcome {
    let held = [&outcome.result, &outcome.error];
    match said_json("result", &held, CARD_MAX_BYTES / 2) {
        Ok(_) => outcome,
        Err(error) => ToolOutcome {
            after_execution: outcome.after_execution,
            ..refusal(error.code(), &error.to_string())
        },
    }
}

fn submit(
    scene: &Scene<'_>,
    arguments: &Map<String, Value>,
    fault: Option<String>,
    warnings: &mut Vec<String>,
) -> (ToolOutcome, Option<Finish>) {
    let wanted = submit::wanted(&scene.cards.context);
    if wanted.unreadable {
        warnings.push("what the result must have cannot be read".to_owned());
    }
    let outcome = |status, result, error| ToolOutcome {
        status,
        result,
        error,
        after_execution: Some(AfterExecution::Terminate),
    };
    let finish = |outcome, deliverable| {
        Some(Finish { outcome, deliverable: Some(deliverable), error_code: None })
    };
    let submitted = match (submit::submitted(arguments, &wanted, scene.budget.is_last()), fault) {
        (Submitted::Whole(fields) | Submitted::Part(fields, _), Some(fault)) => {
            Submitted::Part(fields, fault)
        }
        (submitted, _) => submitted,
    };
    match submitted {
        Submitted::Whole(fields) => {
            let said = json!({ "accepted": true });
            (outcome(Outcome::Success, said, Value::Null), finish(Outcome::Success, fields))
        }
        Submitted::Part(fields, fault) => {
            let error =
                json!({ "code": code::BAD_RESULT.name, "message": &fault, "source": "sys.worker" });
            warnings.push(fault);
            (outcome(Outcome::Partial, Value::Null, error), finish(Outcome::Partial, fields))
        }
        Submitted::Again(fault) => (refusal(&code::BAD_RESULT, &fault), None),
    }
}

/// A turn that a tool has ended.
pub(super) fn ended_by_tool(ends: &[(Outcome, Value)]) -> Finish {
    let bad = ends.iter().map(|(outcome, _)| *outcome).find(|one| *one != Outcome::Success);
    let last = ends.last().map(|(_, result)| result.clone()).unwrap_or_default();
    Finish {
        outcome: bad.unwrap_or(Outcome::Success),
        deliverable: Some(delivered("result", last)),
        error_code: None,
    }
}

/// A deliverable of one field. What a card cannot hold as it is, it holds as text.
fn delivered(name: &str, value: Value) -> Value {
    let of = |value: Value| json!({ "fields": [{ "name": name, "value": value }] });
    let whole = of(value);
    if to_json("deliverable", &whole, CARD_MAX_BYTES).is_ok() {
        return whole;
    }
    let text = whole.pointer("/fields/0/value").map(Value::to_string).unwrap_or_default();
    of(Value::String(shortened(text, TEXT_MAX_BYTES, &mut Vec::new())))
}

/// A turn that ends with what the model says.
fn answered(text: Option<String>) -> Finish {
    let outcome = if text.is_some() { Outcome::Success } else { Outcome::Partial };
    let text = text.unwrap_or_else(|| NOTHING_SAID.to_owned());
    Finish { outcome, deliverable: Some(json!({ "text": text })), error_code: None }
}

/// A turn that has used all its steps.
pub(super) fn out_of_steps(text: Option<&str>) -> Finish {
    failed(&code::MAX_STEPS, code::MAX_STEPS.meaning, text)
}

/// A turn that cannot go on, and what was said last.
pub(super) fn failed(code: &'static Code, message: &str, text: Option<&str>) -> Finish {
    let message: String = message.chars().take(4_096).collect();
    let mut fields = vec![
        json!({ "name": "summary", "value": message }),
        json!({ "name": "reason", "value": code.name }),
    ];
    if let Some(text) = text {
        fields.push(json!({ "name": "output", "value": text }));
    }
    Finish {
        outcome: Outcome::Failed,
        deliverable: Some(json!({ "kind": "fallback_deliverable", "fields": fields })),
        error_code: Some(code.name.to_owned()),
    }
}

/// Whether a result that the turn has waited for ends it. The turn's own cards tell: the results of its last step.
pub(super) fn ended_by_results(cards: &Cards, turn: &AgentTurnId) -> Option<Finish> {
    let own: Vec<_> = cards.own(turn).collect();
    let since = own.iter().rposition(|card| card.card_type == CardType::Thought)?;
    let mut ends = Vec::new();
    for card in own.get(since..)?.iter().filter(|card| card.card_type == CardType::ToolResult) {
        let word = |name: &str| card.content.get(name).and_then(Value::as_str).unwrap_or_default();
        if word("after_execution") == AfterExecution::Terminate.as_str() {
            let status = word("status").parse().unwrap_or(Outcome::Failed);
            ends.push((status, card.content.get("result").cloned().unwrap_or_default()));
        }
    }
    (!ends.is_empty()).then(|| ended_by_tool(&ends))
}

/// What the turn has said last.
pub(super) fn last_text<'a>(cards: &'a Cards, turn: &'a AgentTurnId) -> Option<&'a str> {
    let thoughts = cards.own(turn).filter(|card| card.card_type == CardType::Thought);
    let text = |card: &'a super::prompt::Seen| card.content.get("text").and_then(Value::as_str);
    thoughts.filter_map(text).filter(|text| !text.is_empty()).last()
}
