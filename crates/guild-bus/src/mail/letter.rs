//! A letter and what it may carry.

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::subject::Topic;

/// The header by which a server that keeps letters knows one that it has already.
pub const MESSAGE_ID: &str = "Nats-Msg-Id";

/// What a payload never says: who acts, where, in which turn and on whose behalf. Only headers do.
pub const CONTROL_FIELDS: [&str; 17] = [
    "agent_id",
    "agent_turn_id",
    "channel",
    "channel_id",
    "parent_agent_id",
    "parent_agent_turn_id",
    "parent_step_id",
    "parent_traceparent",
    "project_id",
    "recursion_depth",
    "source_agent_id",
    "step_id",
    "tool_call_id",
    "trace_id",
    "traceparent",
    "tracestate",
    "turn_epoch",
];

const HEADERS_MAX: usize = 64;
const HEADERS_MAX_BYTES: usize = 16 * 1024;

/// What a letter says about itself. Names are told apart without regard to case, as they are on the way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// None.
    pub fn new() -> Headers {
        Headers::default()
    }

    /// Sets a header. A name has letters, digits and `-`; a value has no control characters.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let good = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if name.is_empty() || !name.bytes().all(good) || value.chars().any(char::is_control) {
            let start: String = name.chars().take(80).collect();
            return Err(Error::BadLetter(format!("{start:?} cannot be a header like this")));
        }
        self.0.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        let bytes = self.len_bytes().saturating_add(name.len()).saturating_add(value.len());
        if self.0.len() >= HEADERS_MAX || bytes > HEADERS_MAX_BYTES {
            return Err(Error::BadLetter(format!(
                "there are more than {HEADERS_MAX} headers, or too large ones"
            )));
        }
        self.0.push((name.to_owned(), value.to_owned()));
        Ok(())
    }

    /// The value of a header.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// All of them, in the order in which they were set.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// How many bytes they take, about.
    pub(crate) fn len_bytes(&self) -> usize {
        self.0
            .iter()
            .map(|(name, value)| name.len().saturating_add(value.len()).saturating_add(4))
            .sum()
    }
}

/// A message that carries something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// Where it is sent to.
    pub subject: Topic,
    /// What it says about itself.
    pub headers: Headers,
    /// What it carries: mostly a JSON object.
    pub payload: Vec<u8>,
    /// Where the answer is waited for.
    pub reply_to: Option<Topic>,
}

impl Letter {
    /// A letter without headers.
    pub fn new(subject: Topic, payload: Vec<u8>) -> Letter {
        Letter { subject, headers: Headers::new(), payload, reply_to: None }
    }

    /// A letter that carries a JSON object; refused if that says who acts.
    pub fn json(subject: Topic, headers: Headers, payload: &Value) -> Result<Letter> {
        let Value::Object(fields) = payload else {
            return Err(Error::BadLetter("the payload is no JSON object".to_owned()));
        };
        check_fields(fields)?;
        let payload = payload.to_string().into_bytes();
        Ok(Letter { subject, headers, payload, reply_to: None })
    }

    /// The JSON object that it carries; refused if it carries something else, or if that says who acts.
    pub fn body(&self) -> Result<Map<String, Value>> {
        let bad = |error: &dyn std::fmt::Display| {
            Error::BadLetter(format!("the payload is no JSON object: {error}"))
        };
        let value: Value =
            guild_protocol::json::decode(&self.payload).map_err(|error| bad(&error))?;
        match value {
            Value::Object(fields) => {
                check_fields(&fields)?;
                Ok(fields)
            }
            _ => Err(bad(&"it is something else")),
        }
    }

    /// How many bytes it takes, about.
    pub fn len_bytes(&self) -> usize {
        self.payload
            .len()
            .saturating_add(self.headers.len_bytes())
            .saturating_add(self.subject.as_str().len())
    }

    pub(crate) fn check_size(&self, max_bytes: usize) -> Result<()> {
        let bytes = self.len_bytes();
        if bytes > max_bytes {
            return Err(Error::TooLarge { bytes, max_bytes });
        }
        Ok(())
    }
}

fn check_fields(fields: &Map<String, Value>) -> Result<()> {
    match CONTROL_FIELDS.into_iter().find(|field| fields.contains_key(*field)) {
        Some(field) => Err(Error::ControlField(field.to_owned())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn topic() -> Topic {
        Topic::parse("a.b").unwrap()
    }

    #[test]
    fn payloads_never_say_who_acts() {
        for field in CONTROL_FIELDS {
            let said = json!({ "result": 1, field: "x" });
            let refused = Letter::json(topic(), Headers::new(), &said).unwrap_err();
            assert_eq!(refused.code().name, "bus.control_field", "{field}");
            let came = Letter::new(topic(), said.to_string().into_bytes());
            assert_eq!(came.body(), Err(Error::ControlField(field.to_owned())));
        }
        let inner = json!({ "result": { "agent_id": "what a tool found" } });
        let letter = Letter::json(topic(), Headers::new(), &inner).unwrap();
        assert_eq!(Value::Object(letter.body().unwrap()), inner);
    }

    #[test]
    fn payloads_that_are_no_objects_are_refused() {
        for payload in ["", "1", "[]", "null", "{\"a\":1,\"a\":2}", "{", "\u{0}"] {
            let letter = Letter::new(topic(), payload.as_bytes().to_vec());
            assert_eq!(letter.body().unwrap_err().code().name, "bus.bad_letter", "{payload:?}");
        }
        assert!(Letter::new(topic(), vec![0xff, 0xfe]).body().is_err());
        assert!(Letter::json(topic(), Headers::new(), &json!([])).is_err());
    }

    #[test]
    fn headers_are_found_in_any_case_and_bounded() {
        let mut headers = Headers::new();
        headers.set("Guild-Turn-Id", "one").unwrap();
        headers.set("guild-turn-id", "two").unwrap();
        assert_eq!((headers.get("GUILD-TURN-ID"), headers.iter().count()), (Some("two"), 1));
        for (name, value) in
            [("", "x"), ("a b", "x"), ("a:", "x"), ("a\r\n", "x"), ("a", "x\r\nb: c"), ("ä", "x")]
        {
            assert_eq!(headers.set(name, value).unwrap_err().code().name, "bus.bad_letter");
        }
        assert!(headers.set("large", &"x".repeat(HEADERS_MAX_BYTES)).is_err());
        for n in 1..HEADERS_MAX {
            headers.set(&format!("h{n}"), "x").unwrap();
        }
        assert!(headers.set("one-more", "x").is_err());
    }
}
