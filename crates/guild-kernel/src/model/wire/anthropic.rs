//! Messages, as Anthropic speaks.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::draft::Draft;
use super::super::talk::{Called, Said};
use super::super::{Failure, failure, signed};
use super::{Ask, Choice, Question, Reader, schema, set, sum, text, tokens};

const VERSION: &str = "2023-06-01";
/// It wants to be told, and takes no more than the model can.
const MAX_TOKENS: i64 = 8_192;
const BY: &str = "anthropic";

pub(super) fn ask(question: &Question, key: Option<&str>, url: &str) -> (Ask, Box<dyn Reader>) {
    let mut messages: Vec<Value> = question.said.iter().filter_map(message).collect();
    // A model does not go on with what it said itself.
    if messages.last().is_some_and(|last| text(last, "/role") == "assistant") {
        messages.push(json!({ "role": "user", "content": "Go on." }));
    }
    let mut body = json!({
        "model": question.model,
        "max_tokens": question.setting("max_tokens").cloned().unwrap_or(MAX_TOKENS.into()),
        "messages": messages,
        "stream": question.is_streamed,
    });
    if let Some(Said::System(system)) = question.said.first() {
        set(&mut body, "system", json!(system));
    }
    if !question.tools.is_empty() {
        let tools = question.tools.iter().map(|tool| {
            let (name, description) = (&tool.name, &tool.description);
            json!({ "name": name, "description": description, "input_schema": schema(tool) })
        });
        set(&mut body, "tools", tools.collect());
        if let Some(choice) = choice(question) {
            set(&mut body, "tool_choice", choice);
        }
    }
    question.settings(&mut body, &[("temperature", "temperature"), ("top_p", "top_p")]);
    match question.setting("stop") {
        Some(Value::String(stop)) => set(&mut body, "stop_sequences", json!([stop])),
        Some(stop) => set(&mut body, "stop_sequences", stop.clone()),
        None => (),
    }
    let mut headers = vec![("anthropic-version", VERSION.to_owned())];
    headers.extend(key.map(|key| ("x-api-key", key.to_owned())));
    // Both are written in the wild: with and without the version.
    let path =
        if url.trim_end_matches('/').ends_with("/v1") { "/messages" } else { "/v1/messages" };
    (Ask { path: path.to_owned(), headers, body }, Box::new(Events::default()))
}

/// A model that thinks cannot be made to call.
fn choice(question: &Question) -> Option<Value> {
    let thinks = question.config.get("provider_options").and_then(|o| o.get("thinking"));
    let thinks = thinks.is_some_and(|thinking| text(thinking, "/type") != "disabled");
    match &question.choice {
        Choice::Auto => None,
        Choice::None => Some(json!({ "type": "none" })),
        Choice::Any | Choice::One(_) if thinks => None,
        Choice::Any => Some(json!({ "type": "any" })),
        Choice::One(name) => Some(json!({ "type": "tool", "name": name })),
    }
}

fn message(said: &Said) -> Option<Value> {
    match said {
        // It stands beside the messages.
        Said::System(_) => None,
        Said::User(text) => Some(json!({ "role": "user", "content": text })),
        Said::Assistant { text, reasoning, calls } => {
            let mut content = thoughts(reasoning.as_deref().unwrap_or_default(), calls);
            if !text.trim().is_empty() {
                content.push(json!({ "type": "text", "text": text }));
            }
            content.extend(calls.iter().map(|call| {
                json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments })
            }));
            Some(json!({ "role": "assistant", "content": content }))
        }
        Said::Results(results) => {
            let of = |id: &str, text: &str| json!({ "type": "tool_result", "tool_use_id": id, "content": text });
            let content: Vec<_> =
                results.iter().map(|result| of(&result.id, &result.text)).collect();
            Some(json!({ "role": "user", "content": content }))
        }
    }
}

/// The signed thoughts that led to calls. Those that do not fit their signatures are left out: they would be refused.
fn thoughts(reasoning: &str, calls: &[Called]) -> Vec<Value> {
    let (mut rest, signatures) = signed::split(reasoning, BY);
    let Some(Value::Array(signatures)) = signatures.filter(|_| !calls.is_empty()) else {
        return Vec::new();
    };
    let mut blocks = Vec::with_capacity(signatures.len());
    for entry in &signatures {
        if let Some(data) = entry.get("redacted") {
            blocks.push(json!({ "type": "redacted_thinking", "data": data }));
            continue;
        }
        let bytes = entry.get("bytes").and_then(Value::as_u64).and_then(|n| n.try_into().ok());
        let Some((thinking, after)) = bytes.and_then(|bytes| rest.split_at_checked(bytes)) else {
            return Vec::new();
        };
        let signature = text(entry, "/signature");
        blocks.push(json!({ "type": "thinking", "thinking": thinking, "signature": signature }));
        rest = after;
    }
    if rest.is_empty() { blocks } else { Vec::new() }
}

/// Reads events, or the one message that is not streamed.
#[derive(Default)]
struct Events {
    blocks: BTreeMap<u64, Block>,
    signed: Vec<Value>,
}

enum Block {
    Text,
    Call { place: usize, input: String },
    Thought { from: usize, signature: String },
    Other,
}

impl Reader for Events {
    fn take(&mut self, piece: Value, draft: &mut Draft) -> Result<(), Failure> {
        let index = piece.get("index").and_then(Value::as_u64).unwrap_or(0);
        let part = |name| piece.get(name).unwrap_or(&Value::Null);
        match text(&piece, "/type") {
            "message_start" => used(part("message"), draft),
            "content_block_start" => {
                let block = self.begin(part("content_block"), draft)?;
                self.blocks.insert(index, block);
            }
            "content_block_delta" => {
                if let Some(block) = self.blocks.get_mut(&index) {
                    block.go_on(part("delta"), draft);
                }
            }
            "content_block_stop" => {
                if let Some(block) = self.blocks.remove(&index) {
                    self.end(block, draft);
                }
            }
            "message_delta" => {
                used(&piece, draft);
                ended(text(&piece, "/delta/stop_reason"), draft)?;
            }
            "message_stop" => self.over(draft),
            "message" => {
                used(&piece, draft);
                for block in piece.get("content").and_then(Value::as_array).into_iter().flatten() {
                    let block = self.begin(block, draft)?;
                    self.end(block, draft);
                }
                ended(text(&piece, "/stop_reason"), draft)?;
                self.over(draft);
            }
            "error" => return Err(failure::of_event(part("error"))),
            // `ping`, and whatever comes to be.
            _ => (),
        }
        Ok(())
    }
}

impl Events {
    fn begin(&mut self, block: &Value, draft: &mut Draft) -> Result<Block, Failure> {
        Ok(match text(block, "/type") {
            "text" => {
                draft.say(text(block, "/text"));
                Block::Text
            }
            "tool_use" => {
                let place = draft.call(text(block, "/id"), text(block, "/name"))?;
                let input = block.get("input").map(Value::to_string).unwrap_or_default();
                Block::Call { place, input }
            }
            "thinking" => {
                let from = draft.thought_bytes();
                draft.think(text(block, "/thinking"));
                Block::Thought { from, signature: text(block, "/signature").to_owned() }
            }
            "redacted_thinking" => {
                self.signed.push(json!({ "redacted": block.get("data") }));
                Block::Other
            }
            _ => Block::Other,
        })
    }

    fn end(&mut self, block: Block, draft: &mut Draft) {
        match block {
            // The input comes in pieces, and then the first one is empty; or it is there from the start.
            Block::Call { place, input }
                if draft.calls().get(place).is_some_and(|call| call.arguments.is_empty()) =>
            {
                draft.arguments(place, &input);
            }
            Block::Thought { from, signature } if !signature.is_empty() => {
                let bytes = draft.thought_bytes().saturating_sub(from);
                self.signed.push(json!({ "bytes": bytes, "signature": signature }));
            }
            _ => (),
        }
    }

    fn over(&mut self, draft: &mut Draft) {
        draft.is_finished = true;
        draft.is_over = true;
        // Only thoughts that led to calls are wanted back.
        if !self.signed.is_empty() && !draft.calls().is_empty() {
            draft.signed = Some((BY, Value::Array(std::mem::take(&mut self.signed))));
        }
    }
}

impl Block {
    fn go_on(&mut self, delta: &Value, draft: &mut Draft) {
        match self {
            Block::Text => draft.say(text(delta, "/text")),
            Block::Call { place, .. } => draft.arguments(*place, text(delta, "/partial_json")),
            Block::Thought { signature, .. } => {
                draft.think(text(delta, "/thinking"));
                signature.push_str(text(delta, "/signature"));
            }
            Block::Other => (),
        }
    }
}

/// What was read from a cache, or put into one, was read.
fn used(message: &Value, draft: &mut Draft) {
    let Some(usage) = message.get("usage") else { return };
    let cached = ["cache_creation_input_tokens", "cache_read_input_tokens"];
    let [made, read] = cached.map(|name| tokens(usage, name));
    // The end of a stream mostly tells only what was written.
    let prompt = tokens(usage, "input_tokens").and_then(|fresh| sum([Some(fresh), made, read]));
    draft.used(prompt, tokens(usage, "output_tokens"));
}

/// Why it stopped.
fn ended(reason: &str, draft: &mut Draft) -> Result<(), Failure> {
    if reason == "refusal" && draft.text.is_empty() && draft.calls().is_empty() {
        return Err(Failure::Refused("the model refuses to answer".to_owned()));
    }
    if !reason.is_empty() {
        draft.is_finished = true;
    }
    Ok(())
}
