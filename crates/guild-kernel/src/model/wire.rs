//! What goes over the line: one module for each way of speaking.

mod anthropic;
mod gemini;
mod ollama;
mod openai;

use serde_json::{Map, Value, json};

use super::draft::Draft;
use super::endpoint::{Endpoint, Provider};
use super::talk::{Said, Systems, talk};
use super::{Failure, Prompt, ToolSpec};

/// What the kernel itself decides about a question, whatever a profile says.
const RESERVED: [&str; 4] = ["model", "messages", "contents", "stream"];

/// A question, for a provider that is known.
struct Question {
    model: String,
    said: Vec<Said>,
    tools: Vec<ToolSpec>,
    choice: Choice,
    is_streamed: bool,
    is_compatible: bool,
    config: Map<String, Value>,
}

/// What of its tools a model must call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Choice {
    Auto,
    None,
    Any,
    One(String),
}

/// A question as it is sent.
pub(super) struct Ask {
    /// Below the path of the endpoint's url.
    pub(super) path: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Value,
}

/// Reads pieces of an answer, in order.
pub(super) trait Reader: Send {
    /// Takes one.
    fn take(&mut self, piece: Value, draft: &mut Draft) -> Result<(), Failure>;
}

/// A question, and who reads the answer.
pub(super) fn ask(endpoint: &Endpoint, model: &str, prompt: Prompt) -> (Ask, Box<dyn Reader>) {
    let provider = endpoint.provider;
    let systems = match provider {
        Provider::OpenAi | Provider::Ollama => Systems::Anywhere,
        // Many of those who speak as OpenAI does fill templates that know the system only at the start.
        Provider::OpenAiCompatible | Provider::Anthropic | Provider::Gemini => Systems::First,
    };
    let config = match prompt.config {
        Value::Object(config) => config,
        _ => Map::new(),
    };
    let question = Question {
        model: model.to_owned(),
        said: talk(prompt.messages, systems),
        choice: choice(&config, prompt.must_call),
        tools: prompt.tools,
        is_streamed: config.get("stream").and_then(Value::as_bool).unwrap_or(true),
        is_compatible: provider == Provider::OpenAiCompatible,
        config,
    };
    let key = endpoint.key.as_ref().map(|key| key.reveal());
    let (mut ask, reader) = match provider {
        Provider::OpenAi | Provider::OpenAiCompatible => openai::ask(&question, key),
        Provider::Anthropic => anthropic::ask(&question, key, endpoint.url()),
        Provider::Gemini => gemini::ask(&question, key),
        Provider::Ollama => ollama::ask(&question, key),
    };
    if let Some(Value::Object(options)) = question.config.get("provider_options") {
        let options = options.iter().filter(|(name, _)| !RESERVED.contains(&name.as_str()));
        options.for_each(|(name, value)| merge(&mut ask.body, name, value));
    }
    (ask, reader)
}

impl Question {
    /// A setting of the profile, if it says anything.
    fn setting(&self, name: &str) -> Option<&Value> {
        self.config.get(name).filter(|value| !value.is_null())
    }

    /// Copies settings to where a provider expects them.
    fn settings(&self, into: &mut Value, names: &[(&str, &str)]) {
        for (ours, theirs) in names {
            if let Some(value) = self.setting(ours) {
                set(into, theirs, value.clone());
            }
        }
    }
}

/// Sets a member of an object.
fn set(object: &mut Value, name: &str, value: Value) {
    if let Value::Object(members) = object {
        members.insert(name.to_owned(), value);
    }
}

/// Sets a member, or, if both are objects, the members of it.
fn merge(into: &mut Value, name: &str, value: &Value) {
    match (into.get_mut(name), value) {
        (Some(inner @ Value::Object(_)), Value::Object(members)) => {
            members.iter().for_each(|(name, value)| merge(inner, name, value));
        }
        _ => set(into, name, value.clone()),
    }
}

fn bearer(key: Option<&str>) -> Vec<(&'static str, String)> {
    key.map(|key| ("authorization", format!("Bearer {key}"))).into_iter().collect()
}

/// What the profile says of calling, in OpenAI's words. That it must call is never less than that.
fn choice(config: &Map<String, Value>, must_call: bool) -> Choice {
    let said = config.get("tool_choice").unwrap_or(&Value::Null);
    let one = said.pointer("/function/name").or(said.get("name")).and_then(Value::as_str);
    match (one, said.as_str()) {
        (Some(name), _) => Choice::One(name.to_owned()),
        (_, Some("required" | "any")) => Choice::Any,
        _ if must_call => Choice::Any,
        (_, Some("none")) => Choice::None,
        _ => Choice::Auto,
    }
}

/// The schema of a tool's arguments, which is always that of an object.
fn schema(tool: &ToolSpec) -> Value {
    match &tool.parameters {
        Value::Object(members) if members.contains_key("type") => tool.parameters.clone(),
        Value::Object(members) if !members.is_empty() => {
            let mut schema = tool.parameters.clone();
            set(&mut schema, "type", json!("object"));
            schema
        }
        _ => json!({ "type": "object", "properties": {} }),
    }
}

/// A text member, which may be missing.
fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A count of tokens, which may be missing.
fn tokens(value: &Value, name: &str) -> Option<i64> {
    value.get(name).and_then(Value::as_i64)
}

/// Counts that belong together, if there is any of them.
fn sum(counts: [Option<i64>; 3]) -> Option<i64> {
    counts.into_iter().flatten().reduce(i64::saturating_add)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::endpoint::Limits;
    use super::super::{Message, Prompt};
    use super::*;

    /// The names that readers look for, and the words that they know.
    const NAMES: [&str; 32] = [
        "choices",
        "delta",
        "message",
        "content",
        "tool_calls",
        "index",
        "id",
        "function",
        "name",
        "arguments",
        "finish_reason",
        "usage",
        "prompt_tokens",
        "output_tokens",
        "type",
        "input",
        "content_block",
        "thinking",
        "signature",
        "partial_json",
        "stop_reason",
        "candidates",
        "parts",
        "text",
        "thought",
        "functionCall",
        "args",
        "finishReason",
        "usageMetadata",
        "promptTokenCount",
        "done",
        "error",
    ];
    const WORDS: [&str; 12] = [
        "",
        "é",
        "message_start",
        "content_block_start",
        "content_block_delta",
        "message_delta",
        "content_block_stop",
        "message_stop",
        "tool_use",
        "thinking",
        "STOP",
        "{\"a\":",
    ];

    /// JSON that looks like an answer and is none.
    fn nonsense() -> impl Strategy<Value = Value> {
        let word = proptest::sample::select(&WORDS[..]).prop_map(Value::from);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            word,
        ];
        leaf.prop_recursive(6, 64, 8, |inner| {
            let name = proptest::sample::select(&NAMES[..]).prop_map(str::to_owned);
            let list = proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from);
            let object = proptest::collection::btree_map(name, inner, 0..8);
            prop_oneof![1 => list, 4 => object.prop_map(|members| json!(members))]
        })
    }

    fn endpoint(provider: Provider) -> Endpoint {
        Endpoint {
            name: "a".to_owned(),
            provider,
            url: None,
            key: None,
            default_model: None,
            prices: Default::default(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// Whatever a service sends, there is an answer or a failure; and what was answered can be sent back to all.
        #[test]
        fn no_answer_is_too_strange(pieces in proptest::collection::vec(nonsense(), 0..6)) {
            for provider in Provider::ALL {
                let (_, mut reader) = ask(&endpoint(provider), "m", Prompt::default());
                let mut draft = Draft::new(Box::new(|_| ()), &Limits::default());
                for piece in &pieces {
                    let _ = reader.take(piece.clone(), &mut draft);
                }
                let reply = draft.into_reply("a/m".to_owned(), None);
                prop_assert!(reply.calls.len() <= 64 && reply.usage.prompt_tokens >= 0);
                let (text, reasoning, calls) = (reply.text, reply.reasoning, reply.calls);
                let messages = vec![Message::Assistant { text, reasoning, calls }];
                for other in Provider::ALL {
                    let prompt = Prompt { messages: messages.clone(), ..Prompt::default() };
                    let (sent, _) = ask(&endpoint(other), "m", prompt);
                    prop_assert!(sent.body.is_object());
                }
            }
        }
    }

    #[test]
    fn what_must_be_called_is_said_in_many_words() {
        let of = |config: Value, must| choice(config.as_object().unwrap(), must);
        assert_eq!(of(json!({}), false), Choice::Auto);
        assert_eq!(of(json!({}), true), Choice::Any);
        assert_eq!(of(json!({ "tool_choice": "none" }), false), Choice::None);
        assert_eq!(of(json!({ "tool_choice": "none" }), true), Choice::Any);
        assert_eq!(of(json!({ "tool_choice": "required" }), false), Choice::Any);
        let one = json!({ "tool_choice": { "type": "function", "function": { "name": "x" } } });
        assert_eq!(of(one, true), Choice::One("x".to_owned()));
        assert_eq!(of(json!({ "tool_choice": { "name": "x" } }), false), Choice::One("x".into()));
        assert_eq!(of(json!({ "tool_choice": 3 }), false), Choice::Auto);
    }

    #[test]
    fn options_are_merged_into_each_other() {
        let mut body = json!({ "options": { "a": 1, "b": 2 }, "c": 3 });
        merge(&mut body, "options", &json!({ "b": 4, "d": 5 }));
        merge(&mut body, "c", &json!({ "e": 6 }));
        merge(&mut body, "f", &json!(7));
        let expected = json!({ "options": { "a": 1, "b": 4, "d": 5 }, "c": { "e": 6 }, "f": 7 });
        assert_eq!(body, expected);
    }

    #[test]
    fn a_schema_is_that_of_an_object() {
        let of = |parameters| {
            schema(&ToolSpec { name: String::new(), description: String::new(), parameters })
        };
        let nothing = json!({ "type": "object", "properties": {} });
        assert_eq!(of(Value::Null), nothing);
        assert_eq!(of(json!({})), nothing);
        assert_eq!(of(json!({ "required": [] })), json!({ "required": [], "type": "object" }));
        assert_eq!(of(nothing.clone()), nothing);
    }
}
