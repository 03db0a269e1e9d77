use guild_market::verify::{Options, Subject, Verdict, can_verify, verify};
use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::identity::SecretKey;
use guild_protocol::schema::Registry;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::world::{cheap, embedding, judge, key, output, provider, work};

fn honest() -> Value {
    output(&work("some text"), &provider().public_key())
}

fn verdict_of(output: &Value) -> Verdict {
    judge(&work("some text"), &output.to_string())
}

/// The codes of all problems, each once.
fn codes(verdict: &Verdict) -> Vec<&'static str> {
    let mut codes: Vec<_> = verdict.checks.problems().map(|problem| problem.code.name).collect();
    codes.dedup();
    codes
}

#[test]
fn the_recomputed_output_passes_at_once() {
    let verdict = verdict_of(&honest());
    assert!(verdict.passed, "{}", verdict.checks);
    assert_eq!(verdict.score, Some(1.0));
    assert_eq!(verdict.verdict_hash, Hash::of(verdict.document.as_bytes()));
    let again = verdict_of(&honest());
    assert_eq!(again, verdict);
    let document: Value = serde_json::from_str(&verdict.document).unwrap();
    assert_eq!(document["schema_version"], "guild.verdict.v1");
    assert_eq!(document["job_hash"], work("some text").job_hash().to_string());
    assert_eq!(document["checks"].as_array().unwrap().len(), 6);
    let names: Vec<&str> = verdict.checks.checks().iter().map(|check| check.name).collect();
    assert_eq!(names, ["output", "provenance", "method", "model", "shape", "recomputed"]);
}

#[test]
fn a_float_that_differs_on_other_hardware_passes() {
    let mut near = honest();
    let first = near["embeddings"][0][0].as_f64().unwrap();
    near["embeddings"][0][0] = json!(first + 0.000_001);
    let verdict = verdict_of(&near);
    assert!(verdict.passed, "{}", verdict.checks);
    let score = verdict.score.unwrap();
    assert!((0.999..1.0).contains(&score), "{score}");
    assert_ne!(verdict.verdict_hash, verdict_of(&honest()).verdict_hash);
}

#[test]
fn the_documented_example_is_what_we_write() {
    let job = json!({"texts": ["", "?"], "dimensions": 2});
    let job = Registry::builtin().validate_input(&embedding(), &job).unwrap();
    let provider = "11".repeat(32).parse::<SecretKey>().unwrap().public_key();
    let text = output(&job, &provider).to_string();
    let subject = Subject { job: &job, provider: &provider, output_text: &text };
    let verdict = verify(&Registry::builtin(), &Options::default(), &subject).unwrap();
    let root = env!("CARGO_MANIFEST_DIR");
    let page = std::fs::read_to_string(format!("{root}/../../docs/formats/verdict.md")).unwrap();
    let Verdict { document, verdict_hash, .. } = verdict;
    assert!(page.contains(&text), "the page shows {text}");
    assert!(page.contains(&document), "the page shows {document}");
    assert!(page.contains(&verdict_hash.to_string()), "the page shows {verdict_hash}");
}

type Lie = (&'static str, fn(&mut Value));

#[test]
fn every_lie_has_its_reason() {
    let cases: &[Lie] = &[
        ("market.output_differs", |o| *o = cheap(&work("some text"), &provider().public_key())),
        ("market.output_differs", |o| o["embeddings"].as_array_mut().unwrap().reverse()),
        ("market.output_differs", |o| {
            // As long as two are: the direction alone is not enough.
            for x in o["embeddings"][0].as_array_mut().unwrap() {
                *x = json!(x.as_f64().unwrap() * 2.0);
            }
        }),
        ("market.output_differs", |o| o["embeddings"][1] = json!([0, 0, 0, 0, 0, 0, 0, 0])),
        ("market.output_shape", |o| {
            o["embeddings"].as_array_mut().unwrap().pop();
        }),
        ("market.output_shape", |o| {
            o["embeddings"][0].as_array_mut().unwrap().pop();
        }),
        ("market.output_shape", |o| o["dimensions"] = json!(7)),
        ("market.unverifiable", |o| o["model_id"] = json!("better-model")),
        ("market.provenance_wrong", |o| {
            o["provenance"]["provider_id"] = json!(key(3).public_key().npub());
        }),
        ("market.provenance_wrong", |o| {
            o["provenance"]["output_sha256"] = json!(Hash::of(b"x").to_string());
        }),
        ("market.provenance_wrong", |o| {
            o["provenance"]["input_sha256"] = json!(Hash::of(b"x").to_string());
        }),
        ("schema.field_missing", |o| {
            o.as_object_mut().unwrap().remove("embeddings");
        }),
        ("schema.field_missing", |o| {
            o["provenance"].as_object_mut().unwrap().remove("model");
        }),
        ("schema.field_unknown", |o| o["note"] = json!("please pay")),
        ("schema.type", |o| o["embeddings"][0][0] = json!("0.5")),
        ("schema.null", |o| o["embeddings"][0][0] = json!(null)),
        ("schema.type", |o| *o = json!([])),
    ];
    for (code, lie) in cases {
        let mut output = honest();
        lie(&mut output);
        let verdict = verdict_of(&output);
        assert!(!verdict.passed);
        assert_eq!(codes(&verdict), [*code], "{}", verdict.checks);
    }
}

#[test]
fn what_is_no_json_is_refused() {
    for (code, text) in [
        ("json.syntax", "".to_owned()),
        ("json.syntax", "a chatty answer".to_owned()),
        ("json.syntax", honest().to_string().replacen('0', "NaN", 1)),
        ("json.not_finite", honest().to_string().replacen(":[[", ":[[1e999,", 1)),
        ("json.syntax", format!("{}\u{1}", honest())),
        ("json.duplicate_key", honest().to_string().replacen('{', "{\"model_id\":\"x\",", 1)),
        ("json.depth", "[".repeat(200_000)),
    ] {
        let verdict = judge(&work("some text"), &text);
        assert!(!verdict.passed);
        assert_eq!(codes(&verdict), [code]);
        assert_eq!(verdict.score, None);
    }
}

/// Nobody can choose an easier question than was asked.
#[test]
fn work_that_nobody_can_check_is_not_passed() {
    let registry = Registry::builtin();
    let subject = |payload: Value, output: Value| {
        let job = registry.validate_input(&embedding(), &payload).unwrap();
        judge(&job, &output.to_string())
    };
    let subjective = json!({"texts": ["some text", "another text"], "dimensions": 8,
        "verification": {"mode": "subjective"}});
    assert_eq!(codes(&subject(subjective, honest())), ["market.unverifiable"]);
    // Without a wish the model's own length is owed, not the shortest one.
    let short = json!({"embeddings": [[1]], "model_id": "guild-hash-v1", "dimensions": 1,
        "provenance": honest()["provenance"]});
    assert_eq!(codes(&subject(json!({"texts": [""]}), short)), ["market.output_shape"]);
    // A length that the model does not have.
    let texts = json!({"texts": [""], "dimensions": 4_097});
    let mut long = honest();
    long["embeddings"] = json!([vec![0.5; 4_097]]);
    long["dimensions"] = json!(4_097);
    assert_eq!(codes(&subject(texts, long)), ["market.unverifiable"]);
    // Another schema.
    let id = "oa.sandbox_run.v1".parse().unwrap();
    let examples = registry.get(&id).unwrap();
    assert_eq!(examples.schema_id, id);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_number_that_is_off_by_more_than_the_tolerance_fails(
        vector in 0usize..2, place in 0usize..8, by in 0.1f64..10.0, up in any::<bool>(),
    ) {
        let mut output = honest();
        let number = output["embeddings"][vector][place].as_f64().unwrap();
        // Away from zero on the same side, so that it cannot become its own mirror image.
        let by = if up { by } else { -by };
        let changed = if number == 0.0 { by } else { number + by.abs() * number.signum() };
        output["embeddings"][vector][place] = json!(changed);
        prop_assert_eq!(codes(&verdict_of(&output)), ["market.output_differs"]);
    }

    #[test]
    fn any_text_gets_a_verdict_and_only_the_right_one_passes(text in ".{0,200}") {
        prop_assert!(!judge(&work("some text"), &text).passed);
    }

    #[test]
    fn a_stricter_buyer_accepts_less(strict in 0.0f64..1.0, noise in 0.0f64..0.3) {
        let job = work("some text");
        let mut output = honest();
        let first = output["embeddings"][0][0].as_f64().unwrap();
        output["embeddings"][0][0] = json!(first + noise);
        let text = output.to_string();
        let provider = provider().public_key();
        let subject = Subject { job: &job, provider: &provider, output_text: &text };
        let verdict = verify(&Registry::builtin(), &Options { min_likeness: strict }, &subject).unwrap();
        let score = verdict.score.unwrap();
        prop_assert!(verdict.passed == (score >= strict) || (score - strict).abs() < 1e-5);
    }
}

/// What could never be accepted is known before anybody works for it.
#[test]
fn work_that_nobody_here_can_judge_is_told_before() {
    let told = |input: Value| {
        let job = Registry::builtin().validate_input(&embedding(), &input).unwrap();
        can_verify(&job, None).map_err(|refused| (refused.code().name, refused.to_string()))
    };
    assert_eq!(told(json!({"texts": ["a"]})), Ok(()));
    assert_eq!(told(json!({"texts": ["a"], "model_hint": "guild-hash-v1"})), Ok(()));
    let refused = |input: Value| {
        let (code, words) = told(input).unwrap_err();
        assert_eq!(code, "market.unverifiable");
        words
    };
    let words = [
        refused(json!({"texts": ["a"], "dimensions": 4_097})),
        refused(json!({"texts": ["a"], "model_hint": "better-model"})),
        refused(json!({"texts": ["a"], "verification": {"mode": "subjective"}})),
    ];
    assert_eq!(
        words,
        [
            "dimensions: 4097 is not 1 to 4096",
            "only guild-hash-v1 can be recomputed here, not better-model",
            "there is no judge for subjective work",
        ]
    );
}
