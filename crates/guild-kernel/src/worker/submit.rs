//! The result that ends a turn: its fields are checked as far as the task says what they are, and never lost.

use serde_json::{Map, Value, json};

use super::prompt::Seen;
use crate::card::CardType;

/// What a task wants as its result.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Wanted {
    /// Names, and what is said about them.
    pub(super) fields: Vec<(String, String)>,
    /// Whether something was said that cannot be read.
    pub(super) unreadable: bool,
}

/// What the last card says that can be read.
pub(super) fn wanted(context: &[Seen]) -> Wanted {
    let mut unreadable = false;
    for card in context.iter().rev().filter(|card| card.card_type == CardType::ResultFields) {
        match read_wanted(&card.content) {
            Some(fields) => return Wanted { fields, unreadable },
            None => unreadable = true,
        }
    }
    Wanted { fields: Vec::new(), unreadable }
}

fn read_wanted(content: &Value) -> Option<Vec<(String, String)>> {
    let fields = content.get("fields")?.as_array()?;
    let text =
        |field: &Value, name: &str| field.get(name).and_then(Value::as_str).map(str::to_owned);
    fields
        .iter()
        .map(|field| {
            let name = text(field, "name").filter(|name| !name.is_empty())?;
            Some((name, text(field, "description").unwrap_or_default()))
        })
        .collect()
}

/// What became of a result.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Submitted {
    /// It is what was wanted.
    Whole(Value),
    /// It is not, and is delivered all the same.
    Part(Value, String),
    /// It is not, and may be sent again.
    Again(String),
}

/// Looks at what was submitted. In the last step nothing is sent back.
pub(super) fn submitted(
    arguments: &Map<String, Value>,
    wanted: &Wanted,
    is_last: bool,
) -> Submitted {
    let Some(fields) = read_fields(arguments) else {
        let what = "the result has no fields that can be read";
        if !wanted.fields.is_empty() && !is_last {
            return Submitted::Again(what.to_owned());
        }
        let whole = arguments.get("result").cloned().unwrap_or_else(|| json!(arguments));
        return Submitted::Part(
            json!({ "fields": [{ "name": "result", "value": whole }] }),
            what.to_owned(),
        );
    };
    let fault = fault(&fields, wanted);
    let listed: Vec<Value> =
        fields.into_iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    let delivered = json!({ "fields": listed });
    match fault {
        None => Submitted::Whole(delivered),
        Some(fault) if is_last => Submitted::Part(delivered, fault),
        Some(fault) => Submitted::Again(fault),
    }
}

fn fault(fields: &[(String, Value)], wanted: &Wanted) -> Option<String> {
    let times = |name: &str| fields.iter().filter(|(one, _)| one == name).count();
    let missing: Vec<&str> = wanted
        .fields
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| times(name) == 0)
        .collect();
    if !missing.is_empty() {
        return Some(format!("the result lacks {}", missing.join(", ")));
    }
    let twice = fields.iter().find(|(name, _)| times(name) > 1);
    twice.map(|(name, _)| format!("the result has {name} more than once"))
}

/// The fields of a result: a list of names and values, an object, or a list of either.
fn read_fields(arguments: &Map<String, Value>) -> Option<Vec<(String, Value)>> {
    let result = arguments.get("result").or_else(|| arguments.get("fields"))?;
    let result = match result {
        Value::Object(object) if is_list(object) => object.get("fields")?,
        other => other,
    };
    let mut fields = Vec::new();
    match result {
        Value::Object(object) => fields.extend(of_object(object)),
        Value::Array(items) => {
            for item in items {
                fields.extend(of_object(item.as_object()?));
            }
        }
        _ => return None,
    }
    (!fields.is_empty()).then_some(fields)
}

fn is_list(object: &Map<String, Value>) -> bool {
    object.len() == 1
        && object.get("fields").is_some_and(|fields| fields.is_array() || fields.is_object())
}

/// One field with its name and value, or one for each key.
fn of_object(object: &Map<String, Value>) -> Vec<(String, Value)> {
    match (object.get("name"), object.get("value")) {
        (Some(Value::String(name)), Some(value)) if object.len() == 2 => {
            vec![(name.clone(), value.clone())]
        }
        _ => object.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
    }
}
