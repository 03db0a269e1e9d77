#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::fs;
use std::path::Path;

use insta::assert_snapshot;
use serde_json::Value;

use crate::support::Home;

pub(crate) const BLUEPRINT: &str = r#"{"invariants": [
  {"id": "TEST-001", "type": "FLOOR", "metric": "test_coverage", "min": 80, "assessment": "Run the coverage report"},
  {"id": "SIZE-001", "type": "CEILING", "metric": "binary_mib", "max": 50, "assessment": "Measure the release binary"},
  {"id": "LOAD-001", "type": "RANGE", "metric": "load", "min": 0.2, "max": 0.8, "assessment": "Average over an hour"},
  {"id": "BUILD-001", "type": "BOOLEAN", "condition": "the build succeeds", "assessment": "Run cargo build"}
]}"#;

/// The receipt that the protocol's own tests pin.
fn receipt() -> String {
    let file: Value = serde_json::from_str(&vector("receipt.json")).unwrap();
    file["bytes"].as_str().unwrap().to_owned()
}

/// A file that the protocol's own tests pin.
pub(crate) fn vector(name: &str) -> String {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guild-protocol/vectors");
    fs::read_to_string(vectors.join(name)).unwrap()
}

#[test]
fn a_receipt_is_verified_check_by_check() {
    let home = Home::new();
    home.write("receipt.json", receipt());
    assert_snapshot!(home.run(&["receipts", "verify", "receipt.json"]).shown(&home), @"
    exit 0
    --- stdout
    receipt.json: the receipt holds
      ok      form        every field has its form
      ok      amount      the stated amounts agree
      ok      rail        rail, asset and proof belong together
      ok      status      the status fits verdict and proof
      ok      receipt_id  the id is that of the content
      ok      digest      the digest is that of the content
      ok      signer      the signer is the buyer
      ok      signature   the signature fits digest and key

      receipt  rcpt_2a7c88c0c42fe3a401a655447c719c01f1879e628984a8319101a1a9415721cf
      from     npub1fu64hh9hes90w2808n8tjc2ajp5yhddjef0ctx4s7zmsgp6cwx4qgy4eg9
      to       npub1gekhljh9v0jukzdq6xrshdvqx3yqgctc0xs5jjw0yg597xaw8uns47vduw
      amount   2500 BTC_LN (released)
    ");
}

#[test]
fn a_changed_receipt_is_a_no_that_names_the_field() {
    let home = Home::new();
    let changed = receipt().replace("\"session-7\"", "\"session-8\"");
    home.write("receipt.json", &changed);
    let (code, answer) = home.json(&["receipts", "verify", "receipt.json"]);
    assert_eq!(code, 1);
    let checks = answer["checks"].as_array().unwrap();
    let digest = checks.iter().find(|check| check["name"] == "digest").unwrap();
    assert_eq!((&digest["ok"], &digest["field"]), (&false.into(), &"session_id".into()));
    insta::with_settings!({filters => vec![(r"rcpt_[0-9a-f]{64}", "[ID]")]}, {
        assert_snapshot!(home.run(&["receipts", "verify", "receipt.json"]).shown(&home), @"
        exit 1
        --- stdout
        receipt.json: the receipt does NOT hold
          ok      form        every field has its form
          ok      amount      the stated amounts agree
          ok      rail        rail, asset and proof belong together
          ok      status      the status fits verdict and proof
          FAILED  receipt_id  receipt_id: the content has the id [ID]
                              [receipt.id_mismatch]
          FAILED  digest      session_id was changed after signing
                              [receipt.digest_mismatch]
          ok      signer      the signer is the buyer
          ok      signature   the signature fits digest and key
        ");
    });
}

#[test]
fn of_several_receipts_each_is_answered_and_the_worst_counts() {
    let home = Home::new();
    home.write("good.json", receipt());
    home.write("changed.json", receipt().replace("\"session-7\"", "\"session-8\""));
    home.write("newer.json", receipt().replace("guild.receipt.v1", "guild.receipt.v2"));
    let run =
        home.run(&["receipts", "verify", "--json", "newer.json", "changed.json", "good.json"]);
    assert_eq!(run.code, 2);
    let lines: Vec<Value> = run.stdout.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["error"]["code"], "receipt.unknown_version");
    assert_eq!((&lines[1]["file"], &lines[1]["ok"]), (&"changed.json".into(), &false.into()));
    assert_eq!((&lines[2]["file"], &lines[2]["ok"]), (&"good.json".into(), &true.into()));
    assert_eq!(home.run(&["receipts", "verify", "changed.json", "good.json"]).code, 1);
}

#[test]
fn what_is_nearly_a_receipt_is_refused() {
    let home = Home::new();
    let good = receipt();
    let cases = [
        (format!("{good}\n"), "json.not_canonical"),
        (good[..good.len() - 1].to_owned(), "json.syntax"),
        (good.replacen('{', "{\"extra\":1,", 1), "json.shape"),
        (good.replace("2500", "\"2500\""), "json.shape"),
        (good.replace("2500", "99999999999999999999"), "json.integer_range"),
        (" ".repeat(70_000) + &good, "io.too_large"),
    ];
    for (text, code) in cases {
        home.write("receipt.json", &text);
        let (exit, answer) = home.json(&["receipts", "verify", "receipt.json"]);
        assert_eq!((exit, answer["error"]["code"].as_str()), (2, Some(code)), "{answer}");
    }
}

#[test]
fn the_schemas_are_listed_and_shown() {
    let home = Home::new();
    assert_snapshot!(home.run(&["schema", "ls"]).shown(&home), @"
    exit 0
    --- stdout
    guild.benchmark.v1         objective   A program that tests which its author does not see will call.
    oa.code_chunk_analysis.v1  subjective  Parallel analysis of files or chunks of code; generates hypotheses.
    oa.embedding.v1            objective   Generation of text embeddings.
    oa.retrieval_rerank.v1     subjective  Reranking of retrieved candidates by a language model.
    oa.sandbox_run.v1          objective   Build, test or lint in an isolated sandbox.
    ");
    let shown = home.run(&["schema", "show", "oa.sandbox_run.v1"]).stdout;
    let value: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(value["schema_id"], "oa.sandbox_run.v1");
    assert_snapshot!(home.run(&["schema", "show", "oa.sandboxrun.v1"]).shown(&home), @"
    exit 2
    --- stderr
    error[schema.unknown]: no schema oa.sandboxrun.v1 is registered
    help: Did you mean oa.sandbox_run.v1?
    ");
}

#[test]
fn a_document_is_checked_against_its_schema() {
    let home = Home::new();
    home.write("job.json", r#"{"texts": ["Hello"]}"#);
    assert_snapshot!(home.run(&["schema", "check", "oa.embedding.v1", "job.json"]).shown(&home), @"
    exit 0
    --- stdout
    job.json: fits oa.embedding.v1
      job      sha256:95a4da67200f24eb56af350f8f92a0a9bb285c4af6f133d9c081b24c0f206ae7
      payload  sha256:4ed6483849dfa094b95bdd53a777d2489930ba33380a2b1b2e679263708a0cdb
    ");
    let (_, answer) = home.json(&["schema", "check", "oa.embedding.v1", "job.json"]);
    assert_eq!(answer["payload"]["verification"]["mode"], "objective");
    // Its fully written twin is the same job.
    home.write("twin.json", answer["payload"].to_string());
    let (_, twin) = home.json(&["schema", "check", "oa.embedding.v1", "twin.json"]);
    assert_eq!(twin["job_hash"], answer["job_hash"]);

    home.write("bad.json", r#"{"text": ["Hello"], "verification": 5}"#);
    assert_snapshot!(home.run(&["schema", "check", "oa.embedding.v1", "bad.json"]).shown(&home), @"
    exit 2
    --- stderr
    error[schema.field_missing]: texts is missing; it must be an array
      --> bad.json, texts
    help: Add the field named.
    error[schema.type]: verification must be an object, not a number
      --> bad.json, verification
    help: Change the value to the type named.
    error[schema.field_unknown]: text is not known here; known are: dimensions, model_hint, texts, verification
      --> bad.json, text
    help: Remove it, or correct its spelling.
    ");
    let (_, refused) = home.json(&["schema", "check", "oa.embedding.v1", "bad.json"]);
    assert_eq!(refused["error"]["problems"].as_array().unwrap().len(), 3);
}

#[test]
fn an_output_is_checked_too() {
    let home = Home::new();
    home.write(
        "out.json",
        r#"{"embeddings": [[1, 0]], "dimensions": 2, "model_id": "m",
            "provenance": {"model": "m",
             "provider_id": "npub10xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqpkge6d"}}"#,
    );
    let (code, answer) = home.json(&["schema", "check", "--output", "oa.embedding.v1", "out.json"]);
    assert_eq!((code, &answer["kind"]), (0, &"output".into()), "{answer}");
    assert!(answer["output_hash"].as_str().unwrap().starts_with("sha256:"));
    assert_eq!(home.run(&["schema", "check", "oa.embedding.v1", "out.json"]).code, 2);
}

#[test]
fn schemas_of_a_directory_are_known_beside_the_built_in_ones() {
    let home = Home::new();
    let mut schema: Value =
        serde_json::from_str(&home.run(&["schema", "show", "oa.embedding.v1"]).stdout).unwrap();
    schema["schema_id"] = "oa.my_embedding.v1".into();
    home.write("mine/my.json", schema.to_string());
    home.write("mine/readme.txt", "not a schema");
    let run = home.run(&["schema", "ls", "--schemas", "mine"]);
    assert!(run.code == 0 && run.stdout.contains("oa.my_embedding.v1"), "{run:?}");
    home.write("job.json", r#"{"texts": ["Hello"]}"#);
    let check = ["schema", "check", "--schemas", "mine", "oa.my_embedding.v1", "job.json"];
    assert_eq!(home.run(&check).code, 0);

    // A built-in one cannot be replaced; a newer or broken document is refused.
    let refused = |content: &str| {
        home.write("mine/my.json", content);
        let (exit, answer) = home.json(&check);
        assert_eq!(exit, 2, "{answer}");
        answer["error"]["code"].as_str().unwrap().to_owned()
    };
    schema["schema_id"] = "oa.embedding.v1".into();
    schema["purpose"] = "Something else.".into();
    assert_eq!(refused(&schema.to_string()), "schema.redefined");
    schema["schema_version"] = 2.into();
    assert_eq!(refused(&schema.to_string()), "schema.version_unknown");
    assert_eq!(refused("{"), "json.syntax");
    let (exit, answer) = home.json(&["schema", "ls", "--schemas", "nowhere"]);
    assert_eq!((exit, answer["error"]["code"].as_str()), (2, Some("io.not_found")));
}

#[test]
fn a_blueprint_is_met_or_not_or_open() {
    let home = Home::new();
    home.write("b.json", BLUEPRINT);
    assert_snapshot!(home.run(&["blueprint", "check", "b.json"]).shown(&home), @"
    exit 0
    --- stdout
    b.json: a good blueprint with 4 invariants
      sha256:74c778de5dd2d22824b90f7d1e598de9b0ab2e1177670f05793977cdcc41c39c
    ");
    let check = ["blueprint", "check", "b.json", "--measurements", "m.json"];
    home.write("m.json", r#"{"TEST-001": 80, "SIZE-001": 50, "LOAD-001": 0.8, "BUILD-001": true}"#);
    assert_snapshot!(home.run(&check).shown(&home), @"
    exit 0
    --- stdout
    b.json: the blueprint is met
      ok      TEST-001   80; wanted: test_coverage of at least 80
      ok      SIZE-001   50; wanted: binary_mib of at most 50
      ok      LOAD-001   0.8; wanted: load from 0.2 to 0.8
      ok      BUILD-001  true; wanted: the build succeeds
    ");
    home.write("m.json", r#"{"TEST-001": 79.9, "BUILD-001": false}"#);
    assert_snapshot!(home.run(&check).shown(&home), @"
    exit 1
    --- stdout
    b.json: the blueprint is NOT met
      FAILED  TEST-001   79.9; wanted: test_coverage of at least 80
      open    SIZE-001   not measured; wanted: binary_mib of at most 50
      open    LOAD-001   not measured; wanted: load from 0.2 to 0.8
      FAILED  BUILD-001  false; wanted: the build succeeds
    ");
    home.write("m.json", r#"{"TEST-001": 80}"#);
    let (code, open) = home.json(&check);
    assert_eq!((code, &open["verdict"]), (3, &"not_measured".into()));
    home.write("m.json", r#"{"TEST-002": 80, "BUILD-001": 1}"#);
    assert_snapshot!(home.run(&check).shown(&home), @r#"
    exit 2
    --- stderr
    error[blueprint.measurement]: BOOLEAN is measured with true or false
      --> m.json, BUILD-001
    error[blueprint.measurement]: the blueprint has no invariant "TEST-002"
      --> m.json, TEST-002
    help: Measure BOOLEAN invariants with true or false, all others with a finite number.
    "#);
}

#[test]
fn a_bad_blueprint_is_refused() {
    let home = Home::new();
    let cases = [
        ("[]", "blueprint.structure"),
        ("{}", "blueprint.structure"),
        (r#"{"invariants": []}"#, "blueprint.structure"),
        (r#"{"invariants": [{"id": "A", "type": "WISH"}]}"#, "blueprint.structure"),
        (&BLUEPRINT.replace("SIZE-001", "TEST-001"), "blueprint.semantics"),
        (&BLUEPRINT.replace("\"min\": 0.2", "\"min\": 0.9"), "blueprint.semantics"),
        (&BLUEPRINT.replace("80", "\"80\""), "blueprint.structure"),
    ];
    for (text, code) in cases {
        home.write("b.json", text);
        let (exit, answer) = home.json(&["blueprint", "check", "b.json"]);
        assert_eq!((exit, answer["error"]["code"].as_str()), (2, Some(code)), "{text}");
    }
}
