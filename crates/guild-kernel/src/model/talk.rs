//! What was said, in a form that every provider takes.
//!
//! Providers refuse calls without results, results without calls, results that do not stand behind their calls, empty
//! texts, ids that repeat. The kernel knows turns that were lost in the middle, and models that name no call at all. So
//! calls and results are paired here once, for all of them.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Message, ModelCall};

/// OpenAI takes no longer ones.
const ID_MAX_BYTES: usize = 40;
const EMPTY: &str = "(empty)";
const UNKNOWN: &str = "(no result is known)";

/// Something that was said.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Said {
    System(String),
    User(String),
    Assistant {
        text: String,
        reasoning: Option<String>,
        calls: Vec<Called>,
    },
    /// One for each call of what the assistant said just before, in the same order.
    Results(Vec<CallResult>),
}

/// A call that a model has made.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Called {
    /// Names it, and nothing else in the talk.
    pub(super) id: String,
    pub(super) name: String,
    /// Always an object.
    pub(super) arguments: Value,
}

/// What came out of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallResult {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) text: String,
}

/// Where the system may speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Systems {
    Anywhere,
    /// Once, before all others. What it says later is said by the user.
    First,
}

/// A call whose result has not been seen yet.
struct Open {
    /// Where its results are in the talk, and its own place among them.
    group: usize,
    place: usize,
    model_call_id: String,
    name: String,
}

/// Brings order into what was said.
pub(super) fn talk(messages: Vec<Message>, systems: Systems) -> Vec<Said> {
    let mut talk = Talk { systems, said: Vec::new(), open: Vec::new(), ids: BTreeSet::new() };
    for message in messages {
        match message {
            Message::System(text) => talk.system(text),
            Message::User(text) => talk.said.push(Said::User(or_empty(text))),
            Message::Assistant { text, reasoning, calls } => {
                talk.assistant(text, reasoning, calls);
            }
            Message::Tool { model_call_id, tool_name, text } => {
                talk.result(&model_call_id, tool_name, text);
            }
        }
    }
    talk.begin();
    talk.said
}

fn or_empty(text: String) -> String {
    if text.trim().is_empty() { EMPTY.to_owned() } else { text }
}

struct Talk {
    systems: Systems,
    said: Vec<Said>,
    open: Vec<Open>,
    ids: BTreeSet<String>,
}

impl Talk {
    /// Somebody has to ask first.
    fn begin(&mut self) {
        let first = self.said.iter().position(|said| !matches!(said, Said::System(_)));
        let place = first.unwrap_or(self.said.len());
        let by_user = matches!(self.said.get(place), Some(Said::User(_)));
        if first.is_none() || self.systems == Systems::First && !by_user {
            self.said.insert(place, Said::User("Begin.".to_owned()));
        }
    }

    fn system(&mut self, text: String) {
        if text.trim().is_empty() {
            return;
        }
        match (self.systems, self.said.last_mut()) {
            (Systems::Anywhere, _) | (_, None) => self.said.push(Said::System(text)),
            (_, Some(Said::System(before))) => {
                before.push_str("\n\n");
                before.push_str(&text);
            }
            _ => self.said.push(Said::User(format!("[system] {text}"))),
        }
    }

    fn assistant(&mut self, text: String, reasoning: Option<String>, calls: Vec<ModelCall>) {
        if text.trim().is_empty() && calls.is_empty() {
            return;
        }
        let group = self.said.len().saturating_add(1);
        let mut made = Vec::with_capacity(calls.len());
        let mut results = Vec::with_capacity(calls.len());
        for (place, call) in calls.into_iter().enumerate() {
            let (id, name) = (self.name(&call.id), call.tool_name);
            let arguments = object(&call.arguments);
            made.push(Called { id: id.clone(), name: name.clone(), arguments });
            results.push(CallResult { id, name: name.clone(), text: UNKNOWN.to_owned() });
            self.open.push(Open { group, place, model_call_id: call.id, name });
        }
        self.said.push(Said::Assistant { text, reasoning, calls: made });
        if !results.is_empty() {
            self.said.push(Said::Results(results));
        }
    }

    /// A name that is not in use yet: the model's own if it is one.
    fn name(&mut self, model_call_id: &str) -> String {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let is_name = (1..=ID_MAX_BYTES).contains(&model_call_id.len());
        if is_name && model_call_id.chars().all(fits) && self.ids.insert(model_call_id.to_owned()) {
            return model_call_id.to_owned();
        }
        // As many as are in use cannot all be taken.
        let mut number = self.ids.len();
        loop {
            let name = format!("call_{number}");
            if self.ids.insert(name.clone()) {
                return name;
            }
            number = number.saturating_add(1);
        }
    }

    /// Puts a result behind its call: that of its id and name, else that of its id, else, if it has none, of its name.
    fn result(&mut self, model_call_id: &str, tool_name: String, text: String) {
        let same_id = |open: &Open| open.model_call_id == model_call_id;
        let same_name = |open: &Open| open.name == tool_name;
        let found = self
            .open
            .iter()
            .position(|open| same_id(open) && same_name(open))
            .or_else(|| {
                self.open.iter().position(|open| !model_call_id.is_empty() && same_id(open))
            })
            .or_else(|| {
                self.open.iter().position(|open| model_call_id.is_empty() && same_name(open))
            });
        let text = or_empty(text);
        let Some(open) = found.map(|place| self.open.remove(place)) else {
            self.said.push(Said::User(format!("[result of {tool_name}] {text}")));
            return;
        };
        if let Some(Said::Results(results)) = self.said.get_mut(open.group)
            && let Some(result) = results.get_mut(open.place)
        {
            result.text = text;
        }
    }
}

/// Arguments as an object. A model sees again what it wrote, also if that was none.
fn object(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(object)) => Value::Object(object),
        _ if arguments.trim().is_empty() => Value::Object(Map::new()),
        _ => json!({ "unreadable_arguments": arguments }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str, name: &str, arguments: &str) -> ModelCall {
        ModelCall { id: id.into(), tool_name: name.into(), arguments: arguments.into() }
    }

    fn calls(calls: Vec<ModelCall>) -> Message {
        Message::Assistant { text: String::new(), reasoning: None, calls }
    }

    fn result(id: &str, name: &str, text: &str) -> Message {
        Message::Tool { model_call_id: id.into(), tool_name: name.into(), text: text.into() }
    }

    /// Each result as `id name text`.
    fn results(messages: Vec<Message>) -> Vec<String> {
        let shown = |result: CallResult| format!("{} {} {}", result.id, result.name, result.text);
        let of = |said| match said {
            Said::Results(results) => results.into_iter().map(shown).collect(),
            Said::User(text) => vec![format!("user {text}")],
            _ => vec![],
        };
        talk(messages, Systems::Anywhere).into_iter().flat_map(of).collect()
    }

    #[test]
    fn results_stand_behind_their_calls() {
        let messages = vec![
            calls(vec![call("a", "x", "{}"), call("b", "x", "{}"), call("c", "y", "{}")]),
            Message::User("wait".to_owned()),
            result("b", "x", "2"),
            result("a", "x", "1"),
        ];
        let expected = ["a x 1", "b x 2", "c y (no result is known)", "user wait"];
        assert_eq!(results(messages), expected);
    }

    #[test]
    fn ids_that_are_missing_or_repeat_are_made() {
        let same = || calls(vec![call("", "x", "{}"), call("", "x", "{}"), call("i d", "y", "")]);
        let messages = vec![
            same(),
            result("", "x", "1"),
            result("", "x", "2"),
            result("i d", "y", "3"),
            calls(vec![call("call_0", "x", "{}"), call("call_0", "y", "{}")]),
            result("call_0", "y", "5"),
            result("call_0", "x", "4"),
        ];
        assert_eq!(
            results(messages),
            ["call_0 x 1", "call_1 x 2", "call_2 y 3", "call_3 x 4", "call_4 y 5"]
        );
    }

    #[test]
    fn a_result_of_no_call_is_said_by_the_user() {
        let messages = vec![
            result("z", "x", "early"),
            calls(vec![call("a", "x", "{}")]),
            result("a", "other", ""),
            result("a", "x", "twice"),
        ];
        assert_eq!(
            results(messages),
            ["user [result of x] early", "a x (empty)", "user [result of x] twice"]
        );
    }

    #[test]
    fn the_system_speaks_where_it_may() {
        let messages = || {
            let system = |text: &str| Message::System(text.to_owned());
            let user = Message::User(" ".to_owned());
            vec![system("a"), system(""), system("b"), user, system("c"), calls(vec![])]
        };
        let system = |text: &str| Said::System(text.to_owned());
        let user = |text: &str| Said::User(text.to_owned());
        let anywhere = [system("a"), system("b"), user("(empty)"), system("c")];
        assert_eq!(talk(messages(), Systems::Anywhere), anywhere);
        let first = [system("a\n\nb"), user("(empty)"), user("[system] c")];
        assert_eq!(talk(messages(), Systems::First), first);
        let alone = talk(vec![Message::System("a".to_owned())], Systems::First);
        assert_eq!(alone, [system("a"), user("Begin.")]);
        let answer = || {
            let (text, reasoning, calls) = ("b".to_owned(), None, vec![]);
            vec![Message::System("a".to_owned()), Message::Assistant { text, reasoning, calls }]
        };
        assert_eq!(talk(answer(), Systems::First)[1], user("Begin."));
        assert_eq!(talk(answer(), Systems::Anywhere).len(), 2);
    }

    #[test]
    fn arguments_are_objects() {
        assert_eq!(object("{\"a\": [1]}"), json!({"a": [1]}));
        assert_eq!(object(" "), json!({}));
        for text in ["[1]", "{\"a\":", "x", "1"] {
            assert_eq!(object(text), json!({ "unreadable_arguments": text }));
        }
    }
}
