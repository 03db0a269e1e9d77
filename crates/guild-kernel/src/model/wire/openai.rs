//! Chat completions, as OpenAI speaks and many others do.

use serde_json::{Value, json};

use super::super::draft::Draft;
use super::super::talk::Said;
use super::super::{Failure, failure, signed};
use super::{Ask, Choice, Question, Reader, bearer, schema, set, text, tokens};

pub(super) fn ask(question: &Question, key: Option<&str>) -> (Ask, Box<dyn Reader>) {
    let messages: Vec<Value> =
        question.said.iter().flat_map(|said| message(question, said)).collect();
    let mut body = json!({
        "model": question.model,
        "messages": messages,
        "stream": question.is_streamed,
    });
    if question.is_streamed {
        set(&mut body, "stream_options", json!({ "include_usage": true }));
    }
    if !question.tools.is_empty() {
        let tools = question.tools.iter().map(|tool| {
            let (name, description) = (&tool.name, &tool.description);
            let parameters = schema(tool);
            json!({
                "type": "function",
                "function": { "name": name, "description": description, "parameters": parameters },
            })
        });
        set(&mut body, "tools", tools.collect());
        if let Some(choice) = choice(&question.choice) {
            set(&mut body, "tool_choice", choice);
        }
    }
    // OpenAI's models that think refuse the old name; others know no other.
    let max = if question.is_compatible { "max_tokens" } else { "max_completion_tokens" };
    let same =
        ["temperature", "top_p", "stop", "seed", "reasoning_effort"].map(|name| (name, name));
    question.settings(&mut body, &same);
    question.settings(&mut body, &[("max_tokens", max)]);
    let ask = Ask { path: "/chat/completions".to_owned(), headers: bearer(key), body };
    (ask, Box::new(Chat::default()))
}

fn choice(choice: &Choice) -> Option<Value> {
    match choice {
        Choice::Auto => None,
        Choice::None => Some(json!("none")),
        Choice::Any => Some(json!("required")),
        Choice::One(name) => Some(json!({ "type": "function", "function": { "name": name } })),
    }
}

fn message(question: &Question, said: &Said) -> Vec<Value> {
    match said {
        Said::System(text) => vec![json!({ "role": "system", "content": text })],
        Said::User(text) => vec![json!({ "role": "user", "content": text })],
        Said::Assistant { text, reasoning, calls } => {
            let content = Some(text).filter(|text| !text.is_empty());
            let mut message = json!({ "role": "assistant", "content": content });
            if !calls.is_empty() {
                let calls = calls.iter().map(|call| {
                    let function = json!({ "name": call.name, "arguments": call.arguments.to_string() });
                    json!({ "id": call.id, "type": "function", "function": function })
                });
                set(&mut message, "tool_calls", calls.collect());
            }
            // Some that think want it back, and some refuse what they do not know: the profile says which.
            let keeps = question.setting("save_reasoning_content") == Some(&Value::Bool(true));
            if let Some(reasoning) = reasoning.as_deref().filter(|_| keeps && question.is_compatible) {
                set(&mut message, "reasoning_content", signed::split(reasoning, "").0.into());
            }
            vec![message]
        }
        Said::Results(results) => results
            .iter()
            .map(|result| json!({ "role": "tool", "tool_call_id": result.id, "content": result.text }))
            .collect(),
    }
}

/// Reads chunks, or the one answer that is not streamed: that has the same form but for one name.
#[derive(Default)]
struct Chat {
    /// Under which number each call was sent.
    indexes: Vec<Option<u64>>,
}

impl Reader for Chat {
    fn take(&mut self, piece: Value, draft: &mut Draft) -> Result<(), Failure> {
        if let Some(error) = piece.get("error").filter(|error| !error.is_null()) {
            return Err(failure::of_event(error));
        }
        for usage in [piece.get("usage"), piece.pointer("/x_groq/usage")].into_iter().flatten() {
            draft.used(tokens(usage, "prompt_tokens"), tokens(usage, "completion_tokens"));
        }
        let Some(choice) = piece.pointer("/choices/0") else { return Ok(()) };
        let said = choice.get("delta").or(choice.get("message")).unwrap_or(&Value::Null);
        for name in ["/reasoning_content", "/reasoning"] {
            draft.think(text(said, name));
        }
        content(said.get("content").unwrap_or(&Value::Null), draft);
        draft.say(text(said, "/refusal"));
        for call in said.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.call(call, draft)?;
        }
        if choice.get("finish_reason").is_some_and(|reason| !reason.is_null()) {
            draft.is_finished = true;
        }
        Ok(())
    }
}

impl Chat {
    fn call(&mut self, call: &Value, draft: &mut Draft) -> Result<(), Failure> {
        let (id, name) = (text(call, "/id"), text(call, "/function/name"));
        let index = call.get("index").and_then(Value::as_u64);
        let place = match self.find(index, id, name, draft) {
            Some(place) => place,
            None => {
                self.indexes.push(index);
                draft.call(id, name)?
            }
        };
        draft.name(place, name)?;
        match call.pointer("/function/arguments") {
            Some(Value::String(piece)) => draft.arguments(place, piece),
            Some(object @ Value::Object(_)) => draft.arguments(place, &object.to_string()),
            _ => (),
        }
        Ok(())
    }

    /// Which call a piece belongs to. By its number; but some number all of them zero, and some none: then another id
    /// is another call, and a piece without a name belongs to the last.
    fn find(&self, index: Option<u64>, id: &str, name: &str, draft: &Draft) -> Option<usize> {
        let calls = draft.calls();
        let is_other = |place: &usize| {
            let known = calls.get(*place).map(|call| call.id.as_str()).unwrap_or_default();
            !id.is_empty() && !known.is_empty() && id != known && !name.is_empty()
        };
        match index {
            Some(_) => {
                let place = self.indexes.iter().rposition(|known| *known == index)?;
                Some(place).filter(|place| !is_other(place))
            }
            None if !id.is_empty() => calls.iter().position(|call| call.id == id),
            None if !name.is_empty() => None,
            None => calls.len().checked_sub(1),
        }
    }
}

/// A text, or a list of texts and thoughts.
fn content(content: &Value, draft: &mut Draft) {
    match content {
        Value::String(said) => draft.say(said),
        Value::Array(parts) => {
            for part in parts {
                draft.say(text(part, "/text"));
                let thoughts = part.get("thinking").and_then(Value::as_array);
                thoughts
                    .into_iter()
                    .flatten()
                    .for_each(|thought| draft.think(text(thought, "/text")));
            }
        }
        _ => (),
    }
}
