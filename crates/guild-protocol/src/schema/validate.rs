//! A value against its fields: every problem is found, and the normalised value is built on the way.

use serde_json::{Map, Number, Value};

use super::model::{Field, FieldType, Fields, Format};
use super::{MAX_FREE_DEPTH, code};
use crate::error::Code;
use crate::hash::{Hash, shorten};
use crate::identity::PublicKey;
use crate::json::MAX_SAFE_INTEGER;
use crate::problems::{Gathered, Place};
use crate::{Error, Result};

/// One walk through a value. What it returns means something only if no problem was found.
pub(super) struct Walk<'g> {
    gathered: &'g mut Gathered,
}

impl<'g> Walk<'g> {
    pub(super) fn new(gathered: &'g mut Gathered) -> Walk<'g> {
        Walk { gathered }
    }

    pub(super) fn refuse(
        &mut self,
        code: &'static Code,
        at: &Place<'_>,
        message: impl Into<String>,
    ) -> Value {
        self.gathered.push(at.of(Error::new(code, message)));
        Value::Null
    }

    /// The members of a closed object, with defaults filled in.
    pub(super) fn object(&mut self, fields: &Fields, value: &Value, at: &Place<'_>) -> Value {
        self.object_beside(fields, value, at, None)
    }

    /// The same, beside one member that somebody else looks at.
    pub(super) fn object_beside(
        &mut self,
        fields: &Fields,
        value: &Value,
        at: &Place<'_>,
        beside: Option<&str>,
    ) -> Value {
        let Value::Object(members) = value else {
            return self.refuse(&code::TYPE, at, format!("must be an object, not {}", noun(value)));
        };
        let mut normal = Map::new();
        for (name, field) in fields {
            if let Some(value) = self.member(field, members.get(name), &Place::Member(at, name)) {
                normal.insert(name.clone(), value);
            }
        }
        let unknown = |name: &&String| !fields.contains_key(*name) && beside != Some(name.as_str());
        for name in members.keys().filter(unknown) {
            let known: Vec<&str> = fields.keys().map(String::as_str).collect();
            let message = format!("is not known here; known are: {}", known.join(", "));
            self.refuse(&code::UNKNOWN_FIELD, &Place::Member(at, name), message);
        }
        Value::Object(normal)
    }

    fn member(&mut self, field: &Field, given: Option<&Value>, at: &Place<'_>) -> Option<Value> {
        let Some(value) = given.or(field.default.as_ref()) else {
            if field.is_required() {
                let message = format!("is missing; it must be {}", field.field_type.noun());
                self.refuse(&code::MISSING_FIELD, at, message);
            }
            return None;
        };
        let normal = self.value(field, value, at);
        let empty = match &normal {
            Value::Array(items) => items.is_empty(),
            Value::Object(members) => members.is_empty(),
            _ => false,
        };
        (!(field.omit_empty && empty)).then_some(normal)
    }

    /// The normalised value of a field.
    pub(super) fn value(&mut self, field: &Field, value: &Value, at: &Place<'_>) -> Value {
        if value.is_null() && field.field_type != FieldType::Any {
            if !field.nullable {
                self.refuse(&code::NULL, at, "must not be null; leave the field out instead");
            }
            return Value::Null;
        }
        match (field.field_type, value) {
            (FieldType::Any, _) => self.free(value, at, MAX_FREE_DEPTH),
            (FieldType::Boolean, Value::Bool(_)) => value.clone(),
            (FieldType::String, Value::String(text)) => self.text(field, text, at),
            (FieldType::Integer | FieldType::Number, Value::Number(number)) => {
                self.number(field, number, at)
            }
            (FieldType::Array, Value::Array(items)) => self.array(field, items, at),
            (FieldType::Object, Value::Object(members)) => match (&field.fields, &field.values) {
                (Some(fields), _) => self.object(fields, value, at),
                (None, Some(values)) => self.map(field, values, members, at),
                (None, None) => self.free(value, at, MAX_FREE_DEPTH),
            },
            (wanted, _) => {
                let message = format!("must be {}, not {}", wanted.noun(), noun(value));
                self.refuse(&code::TYPE, at, message)
            }
        }
    }

    /// What the field allows is said of the one written form, so that this form is allowed too.
    fn text(&mut self, field: &Field, text: &str, at: &Place<'_>) -> Value {
        let written = match field.format {
            None => Ok(text.to_owned()),
            Some(Format::Sha256) => Hash::parse_liberal(text).map(|hash| hash.to_string()),
            Some(Format::PublicKey) => text.parse::<PublicKey>().map(|key| key.npub()),
        };
        let text = match &written {
            Ok(written) => written.as_str(),
            Err(error) => return self.refuse(&code::FORMAT, at, error.message()),
        };
        if let Some(texts) = &field.one_of
            && !texts.iter().any(|one| one == text)
        {
            let message = format!("{:?} is not one of: {}", shorten(text), texts.join(", "));
            return self.refuse(&code::CHOICE, at, message);
        }
        self.length(text.len(), (field.min_bytes, field.max_bytes), "bytes", at);
        if let Some(prefix) = &field.prefix
            && !text.starts_with(prefix.as_str())
        {
            let message = format!("{:?} does not begin with {prefix}", shorten(text));
            return self.refuse(&code::FORMAT, at, message);
        }
        Value::from(text)
    }

    fn number(&mut self, field: &Field, number: &Number, at: &Place<'_>) -> Value {
        let normal = match normal_number(number) {
            Ok(normal) => normal,
            Err(error) => return self.refuse(error.code(), at, error.message()),
        };
        if field.field_type == FieldType::Integer && !normal.is_i64() {
            return self.refuse(&code::TYPE, at, format!("must be an integer, not {number}"));
        }
        let float = |n: &Number| n.as_f64().unwrap_or(f64::NAN);
        let given = float(&normal);
        if let Some(min) = field.min.as_ref().filter(|min| given < float(min)) {
            return self.refuse(&code::BOUNDS, at, format!("{number} is less than {min}"));
        }
        if let Some(max) = field.max.as_ref().filter(|max| given > float(max)) {
            return self.refuse(&code::BOUNDS, at, format!("{number} is greater than {max}"));
        }
        Value::Number(normal)
    }

    fn array(&mut self, field: &Field, items: &[Value], at: &Place<'_>) -> Value {
        if !self.length(items.len(), (field.min_items, field.max_items), "items", at) {
            return Value::Null;
        }
        let normal = items.iter().enumerate().map(|(number, item)| {
            let at = Place::Item(at, number);
            match &field.items {
                Some(field) => self.value(field, item, &at),
                None => self.free(item, &at, MAX_FREE_DEPTH),
            }
        });
        Value::Array(normal.collect())
    }

    fn map(
        &mut self,
        field: &Field,
        values: &Field,
        members: &Map<String, Value>,
        at: &Place<'_>,
    ) -> Value {
        if !self.length(members.len(), (field.min_items, field.max_items), "members", at) {
            return Value::Null;
        }
        let normal = members.iter().map(|(name, value)| {
            (name.clone(), self.value(values, value, &Place::Member(at, name)))
        });
        Value::Object(normal.collect())
    }

    /// Any JSON that has one canonical form and a bounded depth.
    fn free(&mut self, value: &Value, at: &Place<'_>, depth_left: usize) -> Value {
        let deeper = depth_left.checked_sub(1);
        match (value, deeper) {
            (Value::Array(_) | Value::Object(_), None) => {
                self.refuse(&code::DEPTH, at, format!("nested deeper than {MAX_FREE_DEPTH} levels"))
            }
            (Value::Array(items), Some(left)) => {
                let items = items.iter().enumerate();
                Value::Array(items.map(|(i, v)| self.free(v, &Place::Item(at, i), left)).collect())
            }
            (Value::Object(members), Some(left)) => {
                let normal = members
                    .iter()
                    .map(|(k, v)| (k.clone(), self.free(v, &Place::Member(at, k), left)));
                Value::Object(normal.collect())
            }
            (Value::Number(number), _) => match normal_number(number) {
                Ok(normal) => Value::Number(normal),
                Err(error) => self.refuse(error.code(), at, error.message()),
            },
            (Value::Null | Value::Bool(_) | Value::String(_), _) => value.clone(),
        }
    }

    fn length(
        &mut self,
        length: usize,
        (min, max): (Option<usize>, Option<usize>),
        unit: &str,
        at: &Place<'_>,
    ) -> bool {
        let wrong = match (min, max) {
            (Some(min), _) if length < min => format!("{length} {unit}, but at least {min} needed"),
            (_, Some(max)) if length > max => format!("{length} {unit}, but at most {max} allowed"),
            _ => return true,
        };
        self.refuse(&code::LENGTH, at, wrong);
        false
    }
}

/// One number has one form: whole numbers are integers, and none is so large that readers differ about it.
fn normal_number(number: &Number) -> Result<Number> {
    let out_of_range = || Error::new(&code::BOUNDS, format!("{number} is beyond ±(2^53−1)"));
    if let Some(whole) = number.as_i64() {
        let safe = whole.unsigned_abs() <= MAX_SAFE_INTEGER;
        return if safe { Ok(whole.into()) } else { Err(out_of_range()) };
    }
    let float = number.as_f64().ok_or_else(out_of_range)?;
    #[expect(clippy::cast_precision_loss, reason = "2^53−1 is exactly a double")]
    let limit = MAX_SAFE_INTEGER as f64;
    if float.is_nan() || float.abs() > limit {
        return Err(out_of_range());
    }
    if float.fract() == 0.0 {
        #[expect(clippy::cast_possible_truncation, reason = "whole and within ±(2^53−1)")]
        return Ok((float as i64).into());
    }
    Number::from_f64(float).ok_or_else(out_of_range)
}

fn noun(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => FieldType::Boolean.noun(),
        Value::Number(_) => FieldType::Number.noun(),
        Value::String(_) => FieldType::String.noun(),
        Value::Array(_) => FieldType::Array.noun(),
        Value::Object(_) => FieldType::Object.noun(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_form() {
        let normal = |text: &str| {
            let number: Number = serde_json::from_str(text).unwrap();
            normal_number(&number).map(|n| n.to_string()).map_err(|e| e.code().name)
        };
        for (text, form) in [
            ("1.0", "1"),
            ("-0.0", "0"),
            ("-0", "0"),
            ("1e3", "1000"),
            ("0.5", "0.5"),
            ("9007199254740991", "9007199254740991"),
            ("-9007199254740991.0", "-9007199254740991"),
        ] {
            assert_eq!(normal(text).as_deref(), Ok(form), "{text}");
        }
        for text in ["9007199254740992", "-9007199254740992", "18446744073709551615", "1e300"] {
            assert_eq!(normal(text), Err("schema.bounds"), "{text}");
        }
    }
}
