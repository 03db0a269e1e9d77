//! Schemas that users bring.

use guild_protocol::error::Kind;
use guild_protocol::schema::{Level, Registry, Schema};
use serde_json::{Value, json};

use super::{PAGE, id, lines};

/// Only what the documented structure has.
fn review() -> Value {
    json!({
        "schema_id": "oa.code.review.v1",
        "inputs": {"diff": {"type": "string", "required": true, "description": "What changed."},
            "context": {"type": "object", "required": false}},
        "outputs": {"verdict": {"type": "string", "description": "What to do with it."}},
        "verification_mode": "subjective",
        "hash_rules": {"algorithm": "sha256", "canonicalization": "json_canonical", "scope": "full_output"},
        "provenance": {"model": "required", "token_counts": "recommended"}
    })
}

fn problems(schema: &Value) -> String {
    lines(&Schema::parse(schema.to_string().as_bytes()).unwrap_err())
}

#[test]
fn a_documented_structure_is_a_schema() {
    let mut registry = Registry::builtin();
    let added = registry.add_json(review().to_string().as_bytes()).unwrap();
    assert_eq!(added, id("oa.code.review.v1"));
    assert!(!Registry::is_builtin(&added));
    let schema = registry.get(&added).unwrap();
    assert_eq!((schema.schema_version, schema.provenance.len()), (1, 2));
    assert!(schema.provenance.values().any(|level| *level == Level::Recommended));
    let job = registry
        .validate_input(&added, &json!({"diff": "", "context": {"a": [null, 1.0]}}))
        .unwrap();
    assert_eq!(job.payload(), &json!({"diff": "", "context": {"a": [null, 1]}}));
    // An output field is required unless it says otherwise.
    let e = registry.validate_output(&added, &json!({"provenance": {"model": "m"}})).unwrap_err();
    insta::assert_snapshot!(lines(&e), @"schema.field_missing  verdict: is missing; it must be a string");
}

#[test]
fn the_example_in_the_documentation_is_a_schema() {
    let (_, rest) = PAGE.split_once("```json\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let mut registry = Registry::builtin();
    let added = registry.add_json(example.as_bytes()).unwrap();
    let job = registry.validate_input(&added, &json!({"text": "Guten Tag"})).unwrap();
    assert_eq!(job.payload(), &json!({"text": "Guten Tag", "to": "en"}));
}

#[test]
fn one_payload_under_two_schemas_is_two_jobs() {
    let mut registry = Registry::builtin();
    let mut other = review();
    other["schema_id"] = json!("oa.code.review.v2");
    let jobs = [review(), other].map(|schema| {
        let id = registry.add_json(schema.to_string().as_bytes()).unwrap();
        registry.validate_input(&id, &json!({"diff": "x"})).unwrap()
    });
    assert_eq!(jobs[0].payload_hash(), jobs[1].payload_hash());
    assert_ne!(jobs[0].job_hash(), jobs[1].job_hash());
}

#[test]
fn an_id_keeps_its_content() {
    let mut registry = Registry::builtin();
    registry.add_json(review().to_string().as_bytes()).unwrap();
    registry.add_json(review().to_string().as_bytes()).unwrap();
    assert_eq!(registry.iter().count(), 6);
    let mut changed = review();
    changed["inputs"]["diff"]["max_bytes"] = json!(10);
    let refused = registry.add_json(changed.to_string().as_bytes()).unwrap_err();
    assert_eq!(refused.kind(), Kind::Conflict);
    insta::assert_snapshot!(lines(&refused), @"schema.redefined  schema_id: oa.code.review.v1 is already registered with another content");
    changed["schema_id"] = json!("oa.embeddings.v1");
    let refused = registry.add_json(changed.to_string().as_bytes()).unwrap_err();
    insta::assert_snapshot!(lines(&refused), @"schema.redefined  schema_id: oa.embedding.v1 is already built in with another content");
    // What was there is unchanged.
    assert!(
        registry
            .validate_input(&id("oa.code.review.v1"), &json!({"diff": "longer than ten"}))
            .is_ok()
    );
    let mut schema = registry.get(&id("oa.embedding.v1")).unwrap().clone();
    assert!(registry.add(schema.clone()).is_ok());
    // A schema made in code is checked like one from a file.
    schema.schema_id = id("oa.other.v1");
    schema.inputs.get_mut("texts").unwrap().min_items = Some(3000);
    let refused = registry.add(schema).unwrap_err();
    insta::assert_snapshot!(lines(&refused), @"schema.malformed  inputs.texts: min_items is greater than max_items");
}

#[test]
fn a_wrong_shape_is_named_by_its_field() {
    let with = |pointer: &str, value: Value| {
        let mut schema = review();
        *schema.pointer_mut(pointer).unwrap() = value;
        problems(&schema)
    };
    insta::assert_snapshot!(with("/inputs/diff/type", json!("text")), @"json.shape  inputs.diff.type: unknown variant `text`, expected one of `string`, `integer`, `number`, `boolean`, `array`, `object`, `any`");
    insta::assert_snapshot!(with("/inputs/diff", json!({"type": "string", "maxBytes": 3})), @"json.shape  inputs.diff.maxBytes: unknown field `maxBytes`, expected one of `type`, `required`, `description`, `default`, `nullable`, `omit_empty`, `compared`, `enum`, `min`, `max`, `min_bytes`, `max_bytes`, `prefix`, `format`, `min_items`, `max_items`, `items`, `fields`, `values`");
    insta::assert_snapshot!(with("/schema_id", json!("review")), @r#"json.shape  schema_id: schema id "review" must be oa.<name>.v<n> or oa.<domain>.<operation>.v<n>"#);
    insta::assert_snapshot!(with("/verification_mode", json!("maybe")), @"json.shape  verification_mode: unknown variant `maybe`, expected `objective` or `subjective`");
    insta::assert_snapshot!(with("/hash_rules/scope", json!("partial")), @"json.shape  hash_rules.scope: unknown variant `partial`, expected `full_output`");
    insta::assert_snapshot!(with("/provenance", json!({"mood": "required"})), @r#"json.shape  provenance: "mood" is not one of: model, provider_id, token_counts, sampling_params, input_sha256, output_sha256, executed_at, duration_ms"#);
    insta::assert_snapshot!(with("/provenance", json!({"model": "required", "model_id": "optional"})), @"json.shape  provenance: model is given under two names");
    let mut newer = review();
    newer["schema_version"] = json!(2);
    newer["future"] = json!(true);
    insta::assert_snapshot!(problems(&newer), @"schema.version_unknown  schema_version: version 2 is not known here, only 1");
}

#[test]
fn bounds_are_those_of_the_written_form() {
    let hash = |bounds: Value| {
        let mut field = json!({"type": "string", "format": "sha256"});
        field.as_object_mut().unwrap().extend(bounds.as_object().unwrap().clone());
        let schema = json!({"schema_id": "acme.x.v1", "inputs": {"h": field}, "outputs": {},
            "verification_mode": "objective"});
        let mut registry = Registry::builtin();
        let id = registry.add_json(schema.to_string().as_bytes()).unwrap();
        let bare = registry.validate_input(&id, &json!({"h": "ab".repeat(32)}));
        let written =
            registry.validate_input(&id, &json!({"h": format!("sha256:{}", "ab".repeat(32))}));
        assert_eq!(bare, written);
        bare.is_ok()
    };
    assert!(hash(json!({"max_bytes": 71, "prefix": "sha256:"})));
    assert!(!hash(json!({"max_bytes": 70})));
    assert!(!hash(json!({"prefix": "ab"})));
    assert!(!hash(json!({"enum": ["ab".repeat(32)]})));
}

#[test]
fn all_contradictions_are_listed() {
    let mut schema = review();
    schema["inputs"] = json!({
        "a.b": {"type": "string", "min": 1},
        "both": {"type": "object", "fields": {}, "values": {"type": "string", "required": true}},
        "bytes": {"type": "string", "min_bytes": 2, "max_bytes": 1},
        "enum": {"type": "string", "enum": ["a", "a"]},
        "items": {"type": "integer", "items": {"type": "string"}, "min": 2, "max": 1},
        "needed": {"type": "array", "required": true, "default": [], "omit_empty": true},
    });
    schema["outputs"]["provenance"] = json!({"type": "object"});
    insta::assert_snapshot!(problems(&schema), @r#"
    schema.malformed  inputs."a.b": a name is 1 to 64 letters, digits, underscores and dashes
    schema.malformed  inputs."a.b".min: is only for numbers
    schema.malformed  inputs.both: fields and values exclude each other
    schema.malformed  inputs.both.values: items and values cannot be absent: no required, default, omit_empty
    schema.malformed  inputs.bytes: min_bytes is greater than max_bytes
    schema.malformed  inputs.enum.enum: must list at least one text, each once
    schema.malformed  inputs.items.items: is only for arrays
    schema.malformed  inputs.items: min is greater than max
    schema.malformed  inputs.needed: a required field cannot have a default
    schema.malformed  inputs.needed: omit_empty needs "required": false
    schema.malformed  inputs.needed: omit_empty and a default exclude each other
    schema.malformed  outputs.provenance: every result has it; list what it must say under `provenance` of the schema
    "#);
    let mut schema = review();
    schema["inputs"] = json!({
        "mode": {"type": "string", "enum": ["a"], "default": "b"},
        "null": {"type": "integer", "default": null},
        "nested": {"type": "array", "items": {"type": "object", "fields": {"n": {"type": "integer", "default": "1"}}}},
        "filled": {"type": "object", "default": {"n": 0}, "fields": {"n": {"type": "integer", "min": 1}}},
    });
    insta::assert_snapshot!(problems(&schema), @r#"
    schema.bounds  inputs.filled.default.n: 0 is less than 1
    schema.choice  inputs.mode.default: "b" is not one of: a
    schema.type  inputs.nested.items.fields.n.default: must be an integer, not a string
    schema.null  inputs.null.default: must not be null; leave the field out instead
    "#);
}

#[test]
fn documents_and_free_values_are_limited() {
    let mut schema = review();
    let mut field = json!({"type": "string"});
    for _ in 0..20 {
        field = json!({"type": "array", "items": field});
    }
    schema["inputs"]["deep"] = field;
    insta::assert_snapshot!(problems(&schema), @"schema.malformed  inputs.deep.items.items.items.items.items.items.items.items.items.items.items.items.items.items.items.items: nested deeper than 16 levels");
    let mut schema = review();
    let many = (0..600).map(|i| (format!("f{i}"), json!({"type": "any"}))).collect();
    schema["inputs"] = Value::Object(many);
    insta::assert_snapshot!(problems(&schema), @"schema.malformed  601 fields are more than the limit of 512");
    let mut schema = review();
    schema["purpose"] = json!("x".repeat(Schema::MAX_BYTES));
    insta::assert_snapshot!(problems(&schema), @"json.size  262583 bytes are more than the limit of 262144");

    let mut registry = Registry::builtin();
    let id = registry.add_json(review().to_string().as_bytes()).unwrap();
    let nested = |levels: usize| (1..levels).fold(json!({}), |inner, _| json!({"a": inner}));
    assert!(registry.validate_input(&id, &json!({"diff": "", "context": nested(32)})).is_ok());
    let e = registry.validate_input(&id, &json!({"diff": "", "context": nested(33)})).unwrap_err();
    assert_eq!(e.iter().next().unwrap().code().name, "schema.depth");
}
