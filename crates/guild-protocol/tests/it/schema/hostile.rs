//! Nothing that arrives from outside makes the checks panic, and what they accept stays what it is.

use guild_protocol::json::Doc;
use guild_protocol::schema::{Registry, Schema, verification_hash};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::examples;

/// Any JSON value, with many of the names and texts that the schemas know.
fn value() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        prop::sample::select(vec![
            "texts",
            "chunk",
            "verification",
            "mode",
            "redundancy",
            "k",
            "sandbox",
            "commands",
            "cmd",
            "env",
            "provenance",
            "model",
            "model_id",
            "tokens",
            "schema_id",
            "inputs",
            "outputs",
            "type",
            "items",
            "fields",
            "values",
            "default",
            "required",
            "min",
            "max",
            "enum",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ];
    let text = prop_oneof![
        prop::sample::select(vec![
            "objective",
            "none",
            "string",
            "array",
            "object",
            "integer",
            "sha256:",
            "oa.x.v1",
            "required",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-3..300i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Every place in a document.
fn pointers(value: &Value, here: &str, all: &mut Vec<String>) {
    all.push(here.to_owned());
    match value {
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                pointers(item, &format!("{here}/{i}"), all);
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                pointers(member, &format!("{here}/{key}"), all);
            }
        }
        _ => {}
    }
}

/// A good document with one place replaced by anything.
fn damaged(good: &Value, place: prop::sample::Index, by: Value) -> Value {
    let mut all = Vec::new();
    pointers(good, "", &mut all);
    let mut document = good.clone();
    *document.pointer_mut(place.get(&all).as_str()).unwrap() = by;
    document
}

fn a_schema() -> Value {
    json!({
        "schema_id": "oa.code.review.v1", "schema_version": 1, "purpose": "p",
        "inputs": {
            "a": {"type": "string", "required": true, "enum": ["x"], "max_bytes": 3},
            "b": {"type": "array", "default": [1], "items": {"type": "integer", "min": 0, "max": 9}, "max_items": 3},
            "c": {"type": "object", "default": {}, "fields": {"d": {"type": "any", "default": null}}},
            "e": {"type": "object", "required": false, "omit_empty": true, "values": {"type": "number"}}
        },
        "outputs": {"f": {"type": "boolean", "nullable": true, "compared": false}},
        "verification_mode": "objective",
        "hash_rules": {"algorithm": "sha256", "canonicalization": "json_canonical", "scope": "full_output"},
        "provenance": {"model": "required"}
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    #[test]
    fn checking_never_panics_and_accepts_only_what_stays(
        which in 0..4usize, place in any::<prop::sample::Index>(), by in value(),
    ) {
        let registry = Registry::builtin();
        let (id, request, result) = examples::all().swap_remove(which);
        let _ = registry.validate_input(&id, &by);
        let _ = registry.validate_output(&id, &by);
        if let Ok(job) = registry.validate_input(&id, &damaged(&request, place, by.clone())) {
            let text = guild_protocol::json::to_canonical(job.payload()).unwrap();
            prop_assert_eq!(Doc::parse(&text).unwrap().hash(), job.payload_hash());
            prop_assert_eq!(registry.validate_input_text(&id, &text).unwrap(), job);
        }
        if let Ok(output) = registry.validate_output(&id, &damaged(&result, place, by)) {
            let text = guild_protocol::json::to_canonical(output.value()).unwrap();
            let again = registry.validate_output_text(&id, &text).unwrap();
            let schema = registry.get(&id).unwrap();
            prop_assert_eq!(
                verification_hash(schema, &again).unwrap(),
                verification_hash(schema, &output).unwrap()
            );
            prop_assert_eq!(again, output);
        }
    }

    #[test]
    fn a_damaged_schema_is_refused_or_fully_usable(place in any::<prop::sample::Index>(), by in value()) {
        let document = damaged(&a_schema(), place, by.clone());
        let mut registry = Registry::builtin();
        if let Ok(id) = registry.add_json(document.to_string().as_bytes()) {
            let schema = registry.get(&id).unwrap();
            let shown = schema.to_json_pretty().unwrap();
            prop_assert_eq!(&Schema::parse(shown.as_bytes()).unwrap(), schema);
            if let Ok(job) = registry.validate_input(&id, &json!({"a": "x", "c": {"d": by}})) {
                prop_assert_eq!(&registry.validate_input(&id, job.payload()).unwrap(), &job);
            }
        }
    }

    #[test]
    fn rubbish_is_not_a_schema(bytes in prop::collection::vec(any::<u8>(), 0..200), any_json in value()) {
        prop_assert!(Schema::parse(&bytes).is_err());
        let _ = Schema::parse(any_json.to_string().as_bytes());
    }
}
