//! Whether a schema document makes sense: a schema that contradicts itself would refuse every job, or none.

use serde_json::Number;

use super::model::{Field, FieldType, Fields, Schema};
use super::validate::Walk;
use super::{MAX_FIELD_DEPTH, MAX_FIELDS, PROVENANCE, code};
use crate::problems::{Gathered, Place, Problems};
use crate::{Error, Result};

/// All contradictions in a schema.
pub(super) fn schema(schema: &Schema) -> Result<(), Problems> {
    let mut check = Check { gathered: Gathered::default(), seen: 0 };
    let top = Place::Top;
    if schema.schema_version != Schema::VERSION {
        check.refuse(&Place::Member(&top, "schema_version"), "must be 1");
    }
    check.fields(&schema.inputs, &Place::Member(&top, "inputs"), MAX_FIELD_DEPTH);
    let outputs = Place::Member(&top, "outputs");
    check.fields(&schema.outputs, &outputs, MAX_FIELD_DEPTH);
    if schema.outputs.contains_key(PROVENANCE) {
        check.refuse(
            &Place::Member(&outputs, PROVENANCE),
            "every result has it; list what it must say under `provenance` of the schema",
        );
    }
    if check.seen > MAX_FIELDS {
        let message = format!("{} fields are more than the limit of {MAX_FIELDS}", check.seen);
        check.refuse(&top, message);
    }
    // A default is checked by the same walk as a job, which a broken field could lead astray.
    if check.gathered.is_empty() {
        check.defaults(&schema.inputs, &Place::Member(&top, "inputs"));
        check.defaults(&schema.outputs, &outputs);
    }
    check.gathered.unless_any(())
}

struct Check {
    gathered: Gathered,
    seen: usize,
}

impl Check {
    fn refuse(&mut self, at: &Place<'_>, message: impl Into<String>) {
        self.gathered.push(at.of(Error::new(&code::MALFORMED, message)));
    }

    fn fields(&mut self, fields: &Fields, at: &Place<'_>, depth_left: usize) {
        for (name, field) in fields {
            let at = Place::Member(at, name);
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
            if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
                self.refuse(&at, "a name is 1 to 64 letters, digits, underscores and dashes");
            }
            self.field(field, &at, depth_left);
        }
    }

    fn field(&mut self, field: &Field, at: &Place<'_>, depth_left: usize) {
        self.seen = self.seen.saturating_add(1);
        let Some(depth_left) = depth_left.checked_sub(1) else {
            self.refuse(at, format!("nested deeper than {MAX_FIELD_DEPTH} levels"));
            return;
        };
        self.misplaced(field, at);
        self.bounds(field, at);
        if field.required == Some(true) && field.default.is_some() {
            self.refuse(at, "a required field cannot have a default");
        }
        if field.omit_empty && field.is_required() {
            self.refuse(at, "omit_empty needs \"required\": false");
        }
        if field.omit_empty && field.default.is_some() {
            self.refuse(at, "omit_empty and a default exclude each other");
        }
        if let Some(items) = &field.items {
            self.nested(items, &Place::Member(at, "items"), depth_left);
        }
        if let Some(values) = &field.values {
            self.nested(values, &Place::Member(at, "values"), depth_left);
        }
        if let Some(fields) = &field.fields {
            self.fields(fields, &Place::Member(at, "fields"), depth_left);
        }
    }

    /// An item has no name that could be absent.
    fn nested(&mut self, field: &Field, at: &Place<'_>, depth_left: usize) {
        if field.required.is_some() || field.default.is_some() || field.omit_empty {
            self.refuse(at, "items and values cannot be absent: no required, default, omit_empty");
        }
        self.field(field, at, depth_left);
    }

    fn misplaced(&mut self, field: &Field, at: &Place<'_>) {
        let (text, array) = (FieldType::String, FieldType::Array);
        let number = matches!(field.field_type, FieldType::Integer | FieldType::Number);
        let is_text = field.field_type == text;
        let is_array = field.field_type == array;
        let is_object = field.field_type == FieldType::Object;
        let is_map = is_object && field.values.is_some();
        for (there, allowed, name, owner) in [
            (field.one_of.is_some(), is_text, "enum", "strings"),
            (field.min.is_some(), number, "min", "numbers"),
            (field.max.is_some(), number, "max", "numbers"),
            (field.min_bytes.is_some(), is_text, "min_bytes", "strings"),
            (field.max_bytes.is_some(), is_text, "max_bytes", "strings"),
            (field.prefix.is_some(), is_text, "prefix", "strings"),
            (field.format.is_some(), is_text, "format", "strings"),
            (field.min_items.is_some(), is_array || is_map, "min_items", "arrays and values"),
            (field.max_items.is_some(), is_array || is_map, "max_items", "arrays and values"),
            (field.items.is_some(), is_array, "items", "arrays"),
            (field.fields.is_some(), is_object, "fields", "objects"),
            (field.values.is_some(), is_object, "values", "objects"),
            (field.omit_empty, is_array || is_object, "omit_empty", "arrays and objects"),
        ] {
            if there && !allowed {
                self.refuse(&Place::Member(at, name), format!("is only for {owner}"));
            }
        }
        if field.fields.is_some() && field.values.is_some() {
            self.refuse(at, "fields and values exclude each other");
        }
    }

    fn bounds(&mut self, field: &Field, at: &Place<'_>) {
        let float = |n: &Option<Number>| n.as_ref().and_then(Number::as_f64);
        if let (Some(min), Some(max)) = (float(&field.min), float(&field.max))
            && min > max
        {
            self.refuse(at, "min is greater than max");
        }
        let reversed =
            |min: Option<usize>, max: Option<usize>| min.zip(max).is_some_and(|(a, b)| a > b);
        if reversed(field.min_bytes, field.max_bytes) {
            self.refuse(at, "min_bytes is greater than max_bytes");
        }
        if reversed(field.min_items, field.max_items) {
            self.refuse(at, "min_items is greater than max_items");
        }
        if let Some(texts) = &field.one_of {
            let distinct: std::collections::BTreeSet<_> = texts.iter().collect();
            if texts.is_empty() || distinct.len() < texts.len() {
                self.refuse(&Place::Member(at, "enum"), "must list at least one text, each once");
            }
        }
    }

    fn defaults(&mut self, fields: &Fields, at: &Place<'_>) {
        for (name, field) in fields {
            self.default_of(field, &Place::Member(at, name));
        }
    }

    fn default_of(&mut self, field: &Field, at: &Place<'_>) {
        if let Some(value) = &field.default {
            Walk::new(&mut self.gathered).value(field, value, &Place::Member(at, "default"));
        }
        if let Some(fields) = &field.fields {
            self.defaults(fields, &Place::Member(at, "fields"));
        }
        for (inner, name) in [(&field.items, "items"), (&field.values, "values")] {
            if let Some(inner) = inner {
                self.default_of(inner, &Place::Member(at, name));
            }
        }
    }
}
