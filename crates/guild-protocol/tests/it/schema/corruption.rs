//! Every field of every built-in schema, corrupted in every way that its declaration forbids: each corruption must
//! be the one problem found, at its place and with its code.

use guild_protocol::schema::{Field, FieldType, Fields, Format, Level, Registry};
use serde_json::{Map, Value, json};

use super::{examples, lines};

/// A corrupted document, where the problem must be found, and its code.
struct Corruption {
    document: Value,
    place: String,
    code: &'static str,
}

struct Corruptor<'a> {
    document: &'a Value,
    found: Vec<Corruption>,
}

impl Corruptor<'_> {
    fn replace(&mut self, pointer: &str, place: &str, code: &'static str, value: Value) {
        let mut document = self.document.clone();
        *document.pointer_mut(pointer).unwrap() = value;
        self.found.push(Corruption { document, place: place.to_owned(), code });
    }

    fn change_object(
        &mut self,
        pointer: &str,
        (place, code): (&str, &'static str),
        change: impl FnOnce(&mut Map<String, Value>),
    ) {
        let mut document = self.document.clone();
        change(document.pointer_mut(pointer).unwrap().as_object_mut().unwrap());
        self.found.push(Corruption { document, place: place.to_owned(), code });
    }

    fn fields(&mut self, fields: &Fields, pointer: &str, place: &str) {
        let join =
            |name: &str| if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") };
        self.change_object(pointer, (&join("zzz"), "schema.field_unknown"), |object| {
            object.insert("zzz".to_owned(), json!(1));
        });
        for (name, field) in fields {
            let (inner, place) = (format!("{pointer}/{name}"), join(name));
            assert!(self.document.pointer(&inner).is_some(), "the example lacks {place}");
            if field.is_required() {
                self.change_object(pointer, (&place, "schema.field_missing"), |object| {
                    object.remove(name);
                });
            }
            self.field(field, &inner, &place);
        }
    }

    fn field(&mut self, field: &Field, pointer: &str, place: &str) {
        if field.field_type == FieldType::Any {
            // Nothing that stands there is wrong.
            return;
        }
        let wrong =
            if field.field_type == FieldType::Boolean { json!("true") } else { json!(true) };
        self.replace(pointer, place, "schema.type", wrong);
        self.replace(pointer, place, "schema.null", Value::Null);
        if let Some(min) = field.min.as_ref().and_then(|n| n.as_f64()) {
            self.replace(pointer, place, "schema.bounds", json!(min - 1.0));
        }
        if let Some(max) = field.max.as_ref().and_then(|n| n.as_f64()) {
            self.replace(pointer, place, "schema.bounds", json!(max + 1.0));
        }
        match field.field_type {
            FieldType::Integer => self.replace(pointer, place, "schema.type", json!(1.5)),
            FieldType::Number => self.replace(pointer, place, "schema.bounds", json!(1e300)),
            _ => {}
        }
        if let Some(max) = field.max_bytes {
            let long = format!("{}{}", field.prefix.as_deref().unwrap_or(""), "x".repeat(max));
            self.replace(pointer, place, "schema.length", json!(long + "x"));
        }
        if field.min_bytes == Some(1) {
            self.replace(pointer, place, "schema.length", json!(""));
        }
        if field.prefix.is_some() || field.format == Some(Format::Sha256) {
            self.replace(pointer, place, "schema.format", json!("sha512:0000000"));
        }
        if field.format == Some(Format::PublicKey) {
            self.replace(pointer, place, "schema.format", json!("00".repeat(32)));
        }
        if field.one_of.is_some() {
            self.replace(pointer, place, "schema.choice", json!("Objective"));
        }
        self.inside(field, pointer, place);
    }

    fn inside(&mut self, field: &Field, pointer: &str, place: &str) {
        if let Some(min) = field.min_items.filter(|_| field.field_type == FieldType::Array) {
            self.replace(pointer, place, "schema.length", json!(vec![0; min - 1]));
        }
        if let (Some(max), FieldType::Array) = (field.max_items, field.field_type) {
            self.replace(pointer, place, "schema.length", json!(vec![0; max + 1]));
        }
        if let (Some(max), Some(_)) = (field.max_items, &field.values) {
            let many: Map<_, _> = (0..=max).map(|i| (i.to_string(), json!(""))).collect();
            self.replace(pointer, place, "schema.length", Value::Object(many));
        }
        if let Some(items) = &field.items {
            self.field(items, &format!("{pointer}/0"), &format!("{place}[0]"));
        }
        if let Some(values) = &field.values {
            let key = self.document.pointer(pointer).unwrap().as_object().unwrap().keys().next();
            let key = key.unwrap().clone();
            let is_plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            let shown = if is_plain { key.clone() } else { format!("{key:?}") };
            self.field(values, &format!("{pointer}/{key}"), &format!("{place}.{shown}"));
        }
        if let Some(fields) = &field.fields {
            self.fields(fields, pointer, place);
        }
    }
}

#[test]
fn good_requests_and_results_are_accepted_and_every_corruption_is_refused_at_its_place() {
    let registry = Registry::builtin();
    let shape: Fields =
        serde_json::from_str(include_str!("../../../schemas/provenance.json")).unwrap();
    let mut seen = 0;
    for (id, request, result) in examples::all() {
        let schema = registry.get(&id).unwrap();
        let job = registry.validate_input(&id, &request).unwrap_or_else(|e| panic!("{id}: {e}"));
        assert_eq!(job.payload(), &request, "nothing to fill in");
        registry.validate_output(&id, &result).unwrap_or_else(|e| panic!("{id}: {e}"));

        let mut requests = Corruptor { document: &request, found: Vec::new() };
        requests.fields(&schema.inputs, "", "");
        for Corruption { document, place, code } in requests.found {
            seen += 1;
            let problems = registry.validate_input(&id, &document).expect_err(&place);
            only(&problems, &place, code);
        }
        let mut results = Corruptor { document: &result, found: Vec::new() };
        results.fields(&schema.outputs, "", "");
        results.fields(&shape, "/provenance", "provenance");
        let is_required = |level: &Level| *level == Level::Required;
        let required = schema.provenance.iter().filter(|(_, level)| is_required(level));
        for required in required.map(|(detail, _)| detail.as_str()) {
            let at = format!("provenance.{required}");
            results.change_object("/provenance", (&at, "schema.field_missing"), |object| {
                object.remove(required);
            });
        }
        for Corruption { document, place, code } in results.found {
            seen += 1;
            let problems = registry.validate_output(&id, &document).expect_err(&place);
            only(&problems, &place, code);
        }
    }
    assert!(seen > 700, "only {seen} corruptions were tried");
}

fn only(problems: &guild_protocol::problems::Problems, place: &str, code: &str) {
    let found: Vec<_> = problems.iter().map(|e| (e.place(), e.code().name)).collect();
    assert_eq!(found, [(Some(place), code)], "{}", lines(problems));
}
