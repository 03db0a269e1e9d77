//! Ollama's own way of speaking: JSON lines.

use serde_json::{Value, json};

use super::super::draft::Draft;
use super::super::talk::Said;
use super::super::{Failure, failure, signed};
use super::{Ask, Choice, Question, Reader, bearer, schema, set, text, tokens};

pub(super) fn ask(question: &Question, key: Option<&str>) -> (Ask, Box<dyn Reader>) {
    let messages: Vec<Value> = question.said.iter().flat_map(message).collect();
    let mut body = json!({
        "model": question.model,
        "messages": messages,
        "stream": question.is_streamed,
    });
    // It cannot be told to call. It can be kept from it.
    if !question.tools.is_empty() && question.choice != Choice::None {
        let tools = question.tools.iter().map(|tool| {
            let (name, description) = (&tool.name, &tool.description);
            let parameters = schema(tool);
            json!({
                "type": "function",
                "function": { "name": name, "description": description, "parameters": parameters },
            })
        });
        set(&mut body, "tools", tools.collect());
    }
    let mut options = json!({});
    let same = ["temperature", "top_p", "stop", "seed"].map(|name| (name, name));
    question.settings(&mut options, &same);
    question.settings(&mut options, &[("max_tokens", "num_predict")]);
    set(&mut body, "options", options);
    question.settings(&mut body, &[("reasoning_effort", "think")]);
    (Ask { path: "/api/chat".to_owned(), headers: bearer(key), body }, Box::new(Lines))
}

fn message(said: &Said) -> Vec<Value> {
    match said {
        Said::System(text) => vec![json!({ "role": "system", "content": text })],
        Said::User(text) => vec![json!({ "role": "user", "content": text })],
        Said::Assistant { text, reasoning, calls } => {
            let mut message = json!({ "role": "assistant", "content": text });
            if !calls.is_empty() {
                let calls = calls.iter().map(|call| {
                    json!({ "function": { "name": call.name, "arguments": call.arguments } })
                });
                set(&mut message, "tool_calls", calls.collect());
            }
            if let Some(reasoning) = reasoning {
                set(&mut message, "thinking", signed::split(reasoning, "").0.into());
            }
            vec![message]
        }
        Said::Results(results) => results
            .iter()
            .map(|result| json!({ "role": "tool", "tool_name": result.name, "content": result.text }))
            .collect(),
    }
}

/// Reads lines. A call comes whole, and mostly without an id.
struct Lines;

impl Reader for Lines {
    fn take(&mut self, piece: Value, draft: &mut Draft) -> Result<(), Failure> {
        if let Some(error) = piece.get("error").filter(|error| !error.is_null()) {
            return Err(failure::of_event(error));
        }
        // Those that pass on for others keep the others' name for thoughts.
        for name in ["/message/thinking", "/message/reasoning_content"] {
            draft.think(text(&piece, name));
        }
        draft.say(text(&piece, "/message/content"));
        let calls = piece.pointer("/message/tool_calls").and_then(Value::as_array);
        for call in calls.into_iter().flatten() {
            let place = draft.call(text(call, "/id"), text(call, "/function/name"))?;
            match call.pointer("/function/arguments") {
                Some(Value::String(arguments)) => draft.arguments(place, arguments),
                Some(Value::Null) | None => (),
                Some(arguments) => draft.arguments(place, &arguments.to_string()),
            }
        }
        draft.used(tokens(&piece, "prompt_eval_count"), tokens(&piece, "eval_count"));
        if piece.get("done") == Some(&Value::Bool(true)) {
            draft.is_finished = true;
            draft.is_over = true;
        }
        Ok(())
    }
}
