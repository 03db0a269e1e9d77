use guild_protocol::error::Kind;
use guild_protocol::problems::Problems;
use guild_protocol::schema::{
    Registry, Schema, SchemaId, VerificationMode, payload_hash, verification_hash,
    verification_projection,
};
use serde_json::{Value, json};

mod corruption;
mod examples;
mod hostile;
mod user_defined;

/// What others implement from.
const PAGE: &str = include_str!("../../../../docs/formats/job-schemas.md");

fn id(text: &str) -> SchemaId {
    text.parse().unwrap()
}

/// Code and text of each problem, one a line.
fn lines(problems: &Problems) -> String {
    let line = |e: &guild_protocol::Error| format!("{}  {e}", e.code().name);
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn input_problems(schema: &str, payload: &Value) -> String {
    lines(&Registry::builtin().validate_input(&id(schema), payload).unwrap_err())
}

#[test]
fn the_schemas_have_their_documented_modes() {
    let registry = Registry::builtin();
    let modes: Vec<_> =
        registry.iter().map(|s| (s.schema_id.as_str(), s.verification_mode)).collect();
    assert_eq!(
        modes,
        [
            ("guild.benchmark.v1", VerificationMode::Objective),
            ("oa.code_chunk_analysis.v1", VerificationMode::Subjective),
            ("oa.embedding.v1", VerificationMode::Objective),
            ("oa.retrieval_rerank.v1", VerificationMode::Subjective),
            ("oa.sandbox_run.v1", VerificationMode::Objective),
        ]
    );
    for schema in registry.iter() {
        let shown = schema.to_json_pretty().unwrap();
        assert_eq!(&Schema::parse(shown.as_bytes()).unwrap(), schema, "shown as it is");
    }
}

/// Jobs were agreed on under these ids: whoever changes what one demands must give it a new version.
#[test]
fn the_published_schemas_stay_as_they_are() {
    let registry = Registry::builtin();
    let hashes = registry.iter().map(|s| format!("{} {}", s.schema_id, s.hash().unwrap()));
    insta::assert_snapshot!(hashes.collect::<Vec<_>>().join("\n"), @"
    guild.benchmark.v1 sha256:68ba6adee7d8eccc87c74d277366c3438084d0cc0a68ad9dc492e0bd2d10857c
    oa.code_chunk_analysis.v1 sha256:543d72cf438415879cbadbf7cc37224c1ec47904e0efc3b56de1e7f2db2e86e6
    oa.embedding.v1 sha256:7b41845c6fad82abd2e5c933a03f39ca5c2b595c399fc7f0d082cbd525c2cc9f
    oa.retrieval_rerank.v1 sha256:302a1028042bb46f110073a61e90798c2027327e789a1ea2443b5b7e1949f7b6
    oa.sandbox_run.v1 sha256:32f2f782a3f3df1f61d6b65445b96f364c3a6408410374512bfa56360dc8f6de
    ");
}

/// Hashes of the payload alone, as other implementations compute them.
#[test]
fn payload_hashes_equal_those_of_other_implementations() {
    let registry = Registry::builtin();
    for (schema, payload, hash) in [
        (
            "oa.code_chunk_analysis.v1",
            json!({"task": "Analyze this code", "chunk": {"path": "src/lib.rs", "start_line": 1,
                "end_line": 10, "content": "fn main() {}"}}),
            "sha256:d3b2de648bb38dfdd25a9f184dc9029b868e257cbb0d3238a6ab90e78a8a5765",
        ),
        (
            "oa.retrieval_rerank.v1",
            json!({"user_task": "Find auth code", "k": 5, "candidates": [
                {"id": "1", "content": "content1"}, {"id": "2", "content": "content2"}]}),
            "sha256:61947fbd5528bfe8561cfc16b112b25d81775ca531363be1a20164e04a86ce38",
        ),
        (
            // Other systems fill in subjective/majority_vote here; our default is the schema's own mode.
            "oa.embeddings.v1",
            json!({"texts": ["Hello", "World"],
                "verification": {"mode": "subjective", "adjudication": "majority_vote"}}),
            "sha256:e1c58059a24c81d574d6d55d33fb86bad582dcc22c57fc7c4c36ac815a6cd856",
        ),
        (
            "oa.sandbox_run.v1",
            json!({"sandbox": {"image_digest": "sha256:test"}, "commands": [{"cmd": "echo hi"}]}),
            "sha256:09da1bfdd5ea12d9ab1843960cec2c3d2a7177fff297d164d02cda19709dd39b",
        ),
    ] {
        let job = registry.validate_input(&id(schema), &payload).unwrap();
        assert_eq!(job.payload_hash().to_string(), hash, "{schema}");
        assert_eq!(payload_hash(job.payload()).unwrap(), job.payload_hash());
        assert_ne!(job.job_hash(), job.payload_hash());
        assert!(PAGE.contains(hash), "the documentation lists {hash}");
    }
}

#[test]
fn the_job_hash_covers_schema_id_and_payload() {
    let registry = Registry::builtin();
    let job =
        registry.validate_input(&id("oa.embedding.v1"), &json!({"texts": ["Hello"]})).unwrap();
    insta::assert_snapshot!(job.payload().to_string(), @r#"{"texts":["Hello"],"verification":{"adjudication":"none","mode":"objective","redundancy":1}}"#);
    let whole = json!({"payload": job.payload(), "schema_id": "oa.embedding.v1"});
    assert_eq!(job.job_hash(), guild_protocol::json::hash(&whole).unwrap());
    insta::assert_snapshot!(job.job_hash(), @"sha256:95a4da67200f24eb56af350f8f92a0a9bb285c4af6f133d9c081b24c0f206ae7");
    assert!(PAGE.contains(&job.job_hash().to_string()));
    assert!(PAGE.contains(&job.payload_hash().to_string()));
    insta::assert_snapshot!(job.payload_hash(), @"sha256:4ed6483849dfa094b95bdd53a777d2489930ba33380a2b1b2e679263708a0cdb");
}

#[test]
fn a_sparse_request_and_its_filled_twin_are_one_job() {
    let registry = Registry::builtin();
    for (schema, sparse, _) in examples::all() {
        let job = registry.validate_input(&schema, &sparse).unwrap();
        let twin = registry.validate_input(&schema, job.payload()).unwrap();
        assert_eq!(job, twin);
        let sparse_output = examples::output(&schema);
        let output = registry.validate_output(&schema, &sparse_output).unwrap();
        assert_eq!(registry.validate_output(&schema, output.value()).unwrap(), output);
    }
    let sandbox = id("oa.sandbox_run.v1");
    let hash = |payload: Value| registry.validate_input(&sandbox, &payload).unwrap().job_hash();
    let with = |extra: Value| {
        let mut payload =
            json!({"sandbox": {"image_digest": "sha256:x"}, "commands": [{"cmd": "true"}]});
        payload.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        payload
    };
    // An empty map that is omitted, numbers in another spelling, defaults written out in part.
    let bare = hash(with(json!({})));
    assert_eq!(bare, hash(with(json!({"env": {}}))));
    assert_eq!(bare, hash(with(json!({"verification": {"redundancy": 1.0}}))));
    assert_eq!(bare, hash(with(json!({"repo": {"mount_path": "/workspace"}}))));
    assert_ne!(bare, hash(with(json!({"env": {"A": ""}}))));
    assert_ne!(bare, hash(with(json!({"verification": {"redundancy": 2}}))));
}

#[test]
fn all_problems_are_listed_with_their_places() {
    insta::assert_snapshot!(input_problems("oa.sandbox_run.v1", &json!({
        "sandbox": {"image_digest": "rust:latest", "network_policy": "open",
            "resources": {"memory_mb": -1, "cpus": "2", "timeout_secs": 1.5, "disk_mb": 9_007_199_254_740_993_u64}},
        "commands": [{"cmd": "true"}, {"command": "false"}, "ls"],
        "env": {"PATH=\n": 1},
        "repo": null,
        "verification": [],
        "a.b": 1
    })), @r#"
    schema.field_missing  commands[1].cmd: is missing; it must be a string
    schema.field_unknown  commands[1].command: is not known here; known are: cmd, continue_on_fail, workdir
    schema.type  commands[2]: must be an object, not a string
    schema.type  env."PATH=\n": must be a string, not a number
    schema.null  repo: must not be null; leave the field out instead
    schema.format  sandbox.image_digest: "rust:latest" does not begin with sha256:
    schema.choice  sandbox.network_policy: "open" is not one of: none, localhost, full
    schema.type  sandbox.resources.cpus: must be a number, not a string
    schema.bounds  sandbox.resources.disk_mb: 9007199254740993 is beyond ±(2^53−1)
    schema.bounds  sandbox.resources.memory_mb: -1 is less than 1
    schema.type  sandbox.resources.timeout_secs: must be an integer, not 1.5
    schema.type  verification: must be an object, not an array
    schema.field_unknown  "a.b": is not known here; known are: commands, env, repo, sandbox, verification
    "#);
    insta::assert_snapshot!(input_problems("oa.embedding.v1", &json!(["Hello"])), @"schema.type  must be an object, not an array");
    insta::assert_snapshot!(input_problems("oa.embedding.v1", &json!({"texts": []})), @"schema.length  texts: 0 items, but at least 1 needed");
    insta::assert_snapshot!(input_problems("oa.nothing.v1", &json!({})), @"schema.unknown  no schema oa.nothing.v1 is registered");
    let text = br#"{"texts": ["a"], "texts": ["b"]}"#;
    let problems =
        Registry::builtin().validate_input_text(&id("oa.embedding.v1"), text).unwrap_err();
    insta::assert_snapshot!(lines(&problems), @r#"json.duplicate_key  byte 32: the key "texts" stands twice"#);
}

#[test]
fn sizes_are_limited() {
    let registry = Registry::builtin();
    let text = "x".repeat(65_536);
    let good = json!({"texts": vec![text.clone(); 60]});
    assert!(registry.validate_input(&id("oa.embedding.v1"), &good).is_ok());
    let large = json!({"texts": vec![text; 70]});
    let problems = registry.validate_input(&id("oa.embedding.v1"), &large).unwrap_err();
    insta::assert_snapshot!(lines(&problems), @"schema.size  4587814 bytes are more than the limit of 4194304");
    let problems = registry
        .validate_input_text(&id("oa.embedding.v1"), large.to_string().as_bytes())
        .unwrap_err();
    insta::assert_snapshot!(lines(&problems), @"json.size  4587741 bytes are more than the limit of 4194304");
}

const NPUB: &str = "npub10xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqpkge6d";
const HEX: &str = "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798";

fn embedding_output(provenance: &Value) -> Value {
    json!({"embeddings": [[0.5, 1]], "model_id": "m", "dimensions": 2, "provenance": provenance})
}

#[test]
fn provenance_is_read_under_both_names_and_written_under_one() {
    let registry = Registry::builtin();
    let read = |provenance: Value| {
        registry.validate_output(&id("oa.embedding.v1"), &embedding_output(&provenance))
    };
    let theirs = read(json!({"model_id": "m", "provider_pubkey": HEX, "tokens": {"input": 1, "output": 2},
        "sampling": {"stop": []}, "input_sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}))
    .unwrap();
    insta::assert_json_snapshot!(theirs.value()["provenance"], @r#"
    {
      "input_sha256": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
      "model": "m",
      "provider_id": "npub10xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqpkge6d",
      "sampling_params": {
        "temperature": 0
      },
      "token_counts": {
        "input": 1,
        "output": 2
      }
    }
    "#);
    let ours = read(json!({"model": "m", "provider_id": NPUB, "token_counts": {"input": 1, "output": 2},
        "sampling_params": {"temperature": 0.0}, "input_sha256": theirs.value()["provenance"]["input_sha256"]}))
    .unwrap();
    assert_eq!(ours, theirs);
    assert_eq!(ours.lacking(), []);

    let sparse = read(json!({"model": "m", "provider_id": NPUB})).unwrap();
    assert_eq!(sparse.lacking().iter().map(|d| d.as_str()).collect::<Vec<_>>(), ["token_counts"]);
    assert_eq!(sparse.output_hash(), ours.output_hash(), "provenance is not in the output hash");

    let bad = json!({"model": "m", "model_id": "m", "token_counts": {"input": 1}, "seed": 1});
    insta::assert_snapshot!(lines(&read(bad).unwrap_err()), @"
    schema.field_twice  provenance.model_id: says the same as model; give one of them
    schema.field_missing  provenance.provider_id: is missing; this schema requires it
    schema.field_missing  provenance.token_counts.output: is missing; it must be an integer
    schema.field_unknown  provenance.seed: is not known here; known are: duration_ms, executed_at, input_sha256, model, output_sha256, provider_id, sampling_params, token_counts
    ");
    insta::assert_snapshot!(lines(&read(json!("me")).unwrap_err()), @"schema.type  provenance: must be an object, not a string");
    insta::assert_snapshot!(lines(&read(json!({"model": "m", "provider_id": "bob"})).unwrap_err()), @r#"schema.format  provenance.provider_id: "bob" is neither an npub nor 64 lower-case hex digits"#);
    let without = json!({"embeddings": [], "model_id": "m", "dimensions": 2});
    let problems = registry.validate_output(&id("oa.embedding.v1"), &without).unwrap_err();
    insta::assert_snapshot!(lines(&problems), @"
    schema.field_missing  provenance.model: is missing; this schema requires it
    schema.field_missing  provenance.provider_id: is missing; this schema requires it
    ");
}

#[test]
fn honest_providers_agree_on_the_projection() {
    let registry = Registry::builtin();
    let sandbox = id("oa.sandbox_run.v1");
    let schema = registry.get(&sandbox).unwrap();
    let first = examples::output(&sandbox);
    let mut second = first.clone();
    second["provenance"] = json!({"model": "other", "provider_id": HEX});
    second["runs"][0]["duration_ms"] = json!(77);
    second["env_info"]["hostname"] = json!("elsewhere");
    let mut third = second.clone();
    third["runs"][0]["exit_code"] = json!(1);
    let [first, second, third] =
        [first, second, third].map(|o| registry.validate_output(&sandbox, &o).unwrap());
    assert_ne!(first.output_hash(), second.output_hash());
    let hash = |output| verification_hash(schema, output).unwrap();
    assert_eq!(hash(&first), hash(&second));
    assert_ne!(hash(&first), hash(&third));
    insta::assert_json_snapshot!(verification_projection(schema, &first), @r#"
    {
      "artifacts": [
        {
          "path": "target/app",
          "sha256": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
          "size_bytes": 0
        }
      ],
      "env_info": {
        "image_digest": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
      },
      "runs": [
        {
          "cmd": "cargo test",
          "exit_code": 0
        }
      ],
      "status": "success"
    }
    "#);
}

#[test]
fn an_unknown_schema_is_not_found() {
    let error = Registry::builtin().get(&id("oa.nothing.v1")).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
}
