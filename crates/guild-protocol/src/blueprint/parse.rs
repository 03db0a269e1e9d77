//! Reading a blueprint, with all that is wrong in it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    Blueprint, Check, Examples, Invariant, MAX_BYTES, MAX_INVARIANTS, MAX_NAME_BYTES,
    MAX_TEXT_BYTES, MIN_ASSESSMENT_CHARS, code,
};
use crate::error::Code;
use crate::hash::shorten;
use crate::json::{self, Limits, MAX_SAFE_INTEGER};
use crate::problems::{Gathered, Place, Problems};
use crate::{Error, Result};

#[expect(clippy::cast_precision_loss, reason = "2^53−1 is exactly a double")]
const MAX_SAFE_DOUBLE: f64 = MAX_SAFE_INTEGER as f64;

const TYPES: [&str; 4] = ["FLOOR", "CEILING", "RANGE", "BOOLEAN"];

impl Blueprint {
    /// Reads a blueprint from JSON text: an object, or a JSON string that holds such an object, as it travels in
    /// the metadata of a request.
    pub fn parse(text: &[u8]) -> Result<Blueprint, Problems> {
        let value = read(text)?;
        Blueprint::from_value(&value)
    }

    /// Reads a blueprint from a value. A string is read as JSON text, once.
    pub fn from_value(value: &Value) -> Result<Blueprint, Problems> {
        match value {
            Value::String(text) => Reader::default().blueprint(&read(text.as_bytes())?),
            _ => Reader::default().blueprint(value),
        }
    }
}

fn read(text: &[u8]) -> Result<Value> {
    let limits = Limits { max_bytes: MAX_BYTES, max_depth: 16 };
    json::decode_within(text, limits).map_err(|e| {
        let error = Error::new(&code::NOT_JSON, format!("not JSON: {}", e.message()));
        match e.place() {
            Some(place) => error.at(place),
            None => error,
        }
    })
}

#[derive(Default)]
struct Reader {
    gathered: Gathered,
}

impl Reader {
    fn refuse(&mut self, code: &'static Code, at: &Place<'_>, message: impl Into<String>) {
        self.gathered.push(at.of(Error::new(code, message)));
    }

    fn structure(&mut self, at: &Place<'_>, message: impl Into<String>) {
        self.refuse(&code::STRUCTURE, at, message);
    }

    fn blueprint(mut self, value: &Value) -> Result<Blueprint, Problems> {
        let top = Place::Top;
        let at = Place::Member(&top, "invariants");
        let mut invariants = Vec::new();
        match value.get("invariants") {
            Some(Value::Array(items)) if items.is_empty() => {
                self.structure(&at, "must hold at least one invariant");
            }
            Some(Value::Array(items)) if items.len() > MAX_INVARIANTS => {
                let message =
                    format!("{} are more than the limit of {MAX_INVARIANTS}", items.len());
                self.structure(&at, message);
            }
            Some(Value::Array(items)) => {
                let items = items.iter().enumerate();
                invariants = items
                    .filter_map(|(i, item)| self.invariant(item, &Place::Item(&at, i)))
                    .collect();
                self.unique_ids(value, &at);
            }
            Some(_) => self.structure(&at, "must be an array"),
            None if value.get("assertions").is_some() => self.structure(
                &Place::Member(&top, "assertions"),
                "the older form has no thresholds to measure; write `invariants` with a type each",
            ),
            None if value.is_object() => self.structure(&at, "is missing"),
            None => self.structure(&top, "must be an object with an `invariants` array"),
        }
        self.gathered.unless_any(Blueprint { invariants })
    }

    /// Looks at the text again, because an invariant with another problem still has its id.
    fn unique_ids(&mut self, blueprint: &Value, at: &Place<'_>) {
        let mut first: BTreeMap<&str, usize> = BTreeMap::new();
        let items = blueprint.get("invariants").and_then(Value::as_array).into_iter().flatten();
        for (number, item) in items.enumerate() {
            let Some(id) = item.get("id").and_then(Value::as_str) else { continue };
            match first.get(id) {
                Some(earlier) => {
                    let message = format!("{:?} is already the id of [{earlier}]", shorten(id));
                    let at = Place::Item(at, number);
                    self.refuse(&code::SEMANTICS, &Place::Member(&at, "id"), message);
                }
                None => {
                    first.insert(id, number);
                }
            }
        }
    }

    /// `None` only if a problem was found.
    fn invariant(&mut self, value: &Value, at: &Place<'_>) -> Option<Invariant> {
        let Value::Object(members) = value else {
            self.structure(at, "must be an object");
            return None;
        };
        let id = self.text(members, "id", at, MAX_NAME_BYTES);
        let assessment = self.text(members, "assessment", at, MAX_TEXT_BYTES);
        if let Some(text) = &assessment
            && text.trim().chars().count() < MIN_ASSESSMENT_CHARS
        {
            let message = format!("must have at least {MIN_ASSESSMENT_CHARS} characters");
            self.structure(&Place::Member(at, "assessment"), message);
        }
        let check = self.check(members, at);
        let examples = match members.get("examples") {
            Some(value) => Some(self.examples(value, &Place::Member(at, "examples"))?),
            None => None,
        };
        Some(Invariant { id: id?, check: check?, assessment: assessment?, examples })
    }

    fn check(&mut self, members: &Map<String, Value>, at: &Place<'_>) -> Option<Check> {
        let type_name = self.text(members, "type", at, MAX_NAME_BYTES)?;
        let own: &[&str] = match type_name.as_str() {
            "FLOOR" => &["metric", "min"],
            "CEILING" => &["metric", "max"],
            "RANGE" => &["metric", "min", "max"],
            "BOOLEAN" => &["condition"],
            other => {
                let message = format!("{:?} is not one of: {}", shorten(other), TYPES.join(", "));
                self.structure(&Place::Member(at, "type"), message);
                return None;
            }
        };
        let common = ["id", "type", "assessment", "examples"];
        for name in members.keys() {
            let name = name.as_str();
            if !common.contains(&name) && !own.contains(&name) {
                let message = format!("is not a field of {type_name}");
                self.structure(&Place::Member(at, name), message);
            }
        }
        if type_name == "BOOLEAN" {
            let condition = self.text(members, "condition", at, MAX_TEXT_BYTES)?;
            return Some(Check::Boolean { condition });
        }
        // Each is read before any is given up, so that all problems are found.
        let metric = self.text(members, "metric", at, MAX_NAME_BYTES);
        let mut bound =
            |name: &'static str| own.contains(&name).then(|| self.number(members, name, at));
        let (min, max) = (bound("min"), bound("max"));
        if let (Some(Some(min)), Some(Some(max))) = (min, max)
            && min >= max
        {
            let message = format!("min {min} must be below max {max}");
            self.refuse(&code::SEMANTICS, at, message);
        }
        let metric = metric?;
        match (min, max) {
            (Some(min), Some(max)) => Some(Check::Range { metric, min: min?, max: max? }),
            (Some(min), None) => Some(Check::Floor { metric, min: min? }),
            (None, Some(max)) => Some(Check::Ceiling { metric, max: max? }),
            (None, None) => None,
        }
    }

    fn text(
        &mut self,
        members: &Map<String, Value>,
        name: &str,
        at: &Place<'_>,
        max_bytes: usize,
    ) -> Option<String> {
        let at = Place::Member(at, name);
        let problem = match members.get(name) {
            None => "is missing".to_owned(),
            Some(Value::String(text)) if text.trim().is_empty() => "must not be empty".to_owned(),
            Some(Value::String(text)) if text.len() > max_bytes => {
                format!("{} bytes are more than the limit of {max_bytes}", text.len())
            }
            Some(Value::String(text)) => return Some(text.clone()),
            Some(_) => "must be a string".to_owned(),
        };
        self.structure(&at, problem);
        None
    }

    fn number(&mut self, members: &Map<String, Value>, name: &str, at: &Place<'_>) -> Option<f64> {
        let at = Place::Member(at, name);
        match members.get(name) {
            None => self.structure(&at, "is missing"),
            // Beyond that the canonical text would be an integer that strict readers refuse.
            Some(Value::Number(number)) => match number.as_f64() {
                Some(float) if float.abs() <= MAX_SAFE_DOUBLE => return Some(float),
                _ => {
                    let message = format!("{number} is beyond ±(2^53−1)");
                    self.refuse(&code::SEMANTICS, &at, message);
                }
            },
            Some(_) => self.structure(&at, "must be a number"),
        }
        None
    }

    fn examples(&mut self, value: &Value, at: &Place<'_>) -> Option<Examples> {
        let Value::Object(members) = value else {
            self.structure(at, "must be an object with `do` or `dont`");
            return None;
        };
        if members.is_empty() {
            self.structure(at, "must hold `do` or `dont`");
        }
        let mut examples = Examples::default();
        for (name, value) in members {
            let at = Place::Member(at, name);
            match name.as_str() {
                "do" => examples.good = self.texts(value, &at),
                "dont" => examples.bad = self.texts(value, &at),
                _ => self.structure(&at, "is not a field of examples"),
            }
        }
        Some(examples)
    }

    fn texts(&mut self, value: &Value, at: &Place<'_>) -> Vec<String> {
        let texts: Option<Vec<String>> = value.as_array().and_then(|items| {
            let good = |text: &&str| !text.trim().is_empty() && text.len() <= MAX_TEXT_BYTES;
            items.iter().map(|v| v.as_str().filter(good).map(str::to_owned)).collect()
        });
        let texts = texts.unwrap_or_default();
        if texts.is_empty() {
            self.structure(at, "must be an array of at least one text, none empty or too long");
        }
        texts
    }
}
