//! Content, as Gemini speaks.

use serde_json::{Value, json};

use super::super::draft::Draft;
use super::super::talk::{CallResult, Said};
use super::super::{Failure, failure, signed};
use super::{Ask, Choice, Question, Reader, schema, set, sum, text, tokens};

const BY: &str = "gemini";
/// Newer models refuse calls that are not signed. This is what they take for calls that were never theirs.
const UNSIGNED: &str = "skip_thought_signature_validator";

pub(super) fn ask(question: &Question, key: Option<&str>) -> (Ask, Box<dyn Reader>) {
    let wants_signatures = wants_signatures(&question.model);
    let of = |said| content(said, wants_signatures);
    let mut contents: Vec<Value> = question.said.iter().filter_map(of).collect();
    if contents.last().is_some_and(|last| text(last, "/role") == "model") {
        contents.push(json!({ "role": "user", "parts": [{ "text": "Go on." }] }));
    }
    let mut body = json!({ "contents": contents });
    if let Some(Said::System(system)) = question.said.first() {
        set(&mut body, "systemInstruction", json!({ "parts": [{ "text": system }] }));
    }
    if !question.tools.is_empty() {
        let tools = question.tools.iter().map(|tool| {
            let (name, description) = (&tool.name, &tool.description);
            json!({ "name": name, "description": description, "parametersJsonSchema": schema(tool) })
        });
        let tools: Vec<_> = tools.collect();
        set(&mut body, "tools", json!([{ "functionDeclarations": tools }]));
        if let Some(choice) = choice(&question.choice) {
            set(&mut body, "toolConfig", json!({ "functionCallingConfig": choice }));
        }
    }
    let mut config = json!({});
    let names = [
        ("temperature", "temperature"),
        ("top_p", "topP"),
        ("max_tokens", "maxOutputTokens"),
        ("seed", "seed"),
    ];
    question.settings(&mut config, &names);
    match question.setting("stop") {
        Some(Value::String(stop)) => set(&mut config, "stopSequences", json!([stop])),
        Some(stop) => set(&mut config, "stopSequences", stop.clone()),
        None => (),
    }
    set(&mut body, "generationConfig", config);
    let model = escaped(question.model.strip_prefix("models/").unwrap_or(&question.model));
    let verb =
        if question.is_streamed { "streamGenerateContent?alt=sse" } else { "generateContent" };
    let headers = key.map(|key| ("x-goog-api-key", key.to_owned())).into_iter().collect();
    (Ask { path: format!("/models/{model}:{verb}"), headers, body }, Box::new(Parts::default()))
}

/// A name as a part of a path.
fn escaped(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let escape = |byte: u8| {
        if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    name.bytes().map(escape).collect()
}

/// From the third generation on.
fn wants_signatures(model: &str) -> bool {
    let Some((_, after)) = model.split_once("gemini-") else { return false };
    let digits = after.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse::<u32>().is_ok_and(|generation| generation >= 3)
}

fn choice(choice: &Choice) -> Option<Value> {
    match choice {
        Choice::Auto => None,
        Choice::None => Some(json!({ "mode": "NONE" })),
        Choice::Any => Some(json!({ "mode": "ANY" })),
        Choice::One(name) => Some(json!({ "mode": "ANY", "allowedFunctionNames": [name] })),
    }
}

fn content(said: &Said, wants_signatures: bool) -> Option<Value> {
    match said {
        // It stands beside the contents.
        Said::System(_) => None,
        Said::User(text) => Some(json!({ "role": "user", "parts": [{ "text": text }] })),
        Said::Assistant { text, reasoning, calls } => {
            let mut parts = Vec::with_capacity(calls.len().saturating_add(1));
            if !text.trim().is_empty() {
                parts.push(json!({ "text": text }));
            }
            let signatures = signed::split(reasoning.as_deref().unwrap_or_default(), BY).1;
            let signature = |place: usize| {
                let entries = signatures.as_ref().and_then(Value::as_array)?;
                let of = |entry: &&Value| entry.get("call") == Some(&place.into());
                entries.iter().find(of)?.get("signature").cloned()
            };
            for (place, call) in calls.iter().enumerate() {
                let mut part =
                    json!({ "functionCall": { "name": call.name, "args": call.arguments } });
                // Of calls that were made at once only the first is signed.
                let instead = (place == 0 && wants_signatures).then(|| json!(UNSIGNED));
                if let Some(signature) = signature(place).or(instead) {
                    set(&mut part, "thoughtSignature", signature);
                }
                parts.push(part);
            }
            Some(json!({ "role": "model", "parts": parts }))
        }
        Said::Results(results) => {
            let parts: Vec<_> = results.iter().map(result).collect();
            Some(json!({ "role": "user", "parts": parts }))
        }
    }
}

/// A result is an object.
fn result(result: &CallResult) -> Value {
    let response = match serde_json::from_str(&result.text) {
        Ok(Value::Object(object)) => Value::Object(object),
        _ => json!({ "result": result.text }),
    };
    json!({ "functionResponse": { "name": result.name, "response": response } })
}

/// Reads answers: many that each hold a piece, or one.
#[derive(Default)]
struct Parts {
    signed: Vec<Value>,
}

impl Reader for Parts {
    fn take(&mut self, piece: Value, draft: &mut Draft) -> Result<(), Failure> {
        if let Some(error) = piece.get("error").filter(|error| !error.is_null()) {
            return Err(failure::of_event(error));
        }
        if let Some(usage) = piece.get("usageMetadata") {
            let [asked, of_tools, written, thought] = [
                "promptTokenCount",
                "toolUsePromptTokenCount",
                "candidatesTokenCount",
                "thoughtsTokenCount",
            ]
            .map(|name| tokens(usage, name));
            // A count of zero is left out.
            let written = sum([written, thought, asked.map(|_| 0)]);
            draft.used(sum([asked, of_tools, None]), written);
        }
        let parts = piece.pointer("/candidates/0/content/parts").and_then(Value::as_array);
        for part in parts.into_iter().flatten() {
            self.part(part, draft)?;
        }
        let blocked = text(&piece, "/promptFeedback/blockReason");
        if !blocked.is_empty() {
            return Err(Failure::Refused(format!("the question is refused: {blocked}")));
        }
        self.ended(text(&piece, "/candidates/0/finishReason"), draft)
    }
}

impl Parts {
    fn part(&mut self, part: &Value, draft: &mut Draft) -> Result<(), Failure> {
        match part.get("thought") {
            Some(Value::Bool(true)) => draft.think(text(part, "/text")),
            _ => draft.say(text(part, "/text")),
        }
        if let Some(call) = part.get("functionCall") {
            let place = draft.call(text(call, "/id"), text(call, "/name"))?;
            if let Some(arguments) = call.get("args").filter(|arguments| !arguments.is_null()) {
                draft.arguments(place, &arguments.to_string());
            }
            let signature = text(part, "/thoughtSignature");
            if !signature.is_empty() {
                self.signed.push(json!({ "call": place, "signature": signature }));
            }
        }
        Ok(())
    }

    /// Why it stopped. What it used comes with that or before.
    fn ended(&mut self, reason: &str, draft: &mut Draft) -> Result<(), Failure> {
        let says_nothing = draft.text.is_empty() && draft.calls().is_empty();
        match reason {
            "" => return Ok(()),
            // Chance: the same question is mostly answered when it is asked again.
            "MALFORMED_FUNCTION_CALL" | "OTHER" if says_nothing => {
                let message = format!("the model could not say what it wanted: {reason}");
                return Err(Failure::Busy { message, retry_after_ms: None, cost_unknown: true });
            }
            "STOP" | "MAX_TOKENS" => (),
            _ if says_nothing => {
                return Err(Failure::Refused(format!("the answer is withheld: {reason}")));
            }
            _ => (),
        }
        draft.is_finished = true;
        if !self.signed.is_empty() {
            draft.signed = Some((BY, Value::Array(std::mem::take(&mut self.signed))));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_models_want_signatures() {
        for model in ["gemini-3-pro-preview", "gemini-3.1-flash", "tuned/gemini-10"] {
            assert!(wants_signatures(model), "{model}");
        }
        for model in ["gemini-2.5-pro", "gemma-3", "gemini-pro", "x"] {
            assert!(!wants_signatures(model), "{model}");
        }
    }

    #[test]
    fn a_name_stays_in_its_place() {
        assert_eq!(escaped("gemini-2.5_x"), "gemini-2.5_x");
        assert_eq!(escaped("a?b#c d:é"), "a%3Fb%23c%20d%3A%C3%A9");
    }
}
