use guild_protocol::blueprint::{Blueprint, Measured, Measurements, Verdict, documented_code};
use guild_protocol::problems::Problems;
use proptest::prelude::*;
use serde_json::{Value, json};

fn example() -> Value {
    json!({"invariants": [
        {"id": "QUAL-001", "type": "FLOOR", "metric": "content_quality_score", "min": 70,
            "assessment": "Rate 0-100 based on originality and depth"},
        {"id": "COST-001", "type": "CEILING", "metric": "compute_cost_usd", "max": 20,
            "assessment": "Sum API costs from telemetry"},
        {"id": "FREQ-001", "type": "RANGE", "metric": "posts_per_week", "min": 3, "max": 7,
            "assessment": "Count posts published in last 7 days"},
        {"id": "BUILD-001", "type": "BOOLEAN", "condition": "Build passes without errors",
            "assessment": "Run yarn build and verify exit code is 0",
            "examples": {"do": ["yarn build"], "dont": ["skip it"]}}
    ]})
}

/// Both names of each problem's code, and its text.
fn lines(problems: &Problems) -> String {
    let line = |e: &guild_protocol::Error| {
        format!("{} {}  {e}", e.code().name, documented_code(e.code()).unwrap_or("-"))
    };
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn refused(blueprint: &Value) -> String {
    lines(&Blueprint::from_value(blueprint).unwrap_err())
}

#[test]
fn the_documented_example_is_read_in_every_wrapping() {
    let plain = Blueprint::parse(example().to_string().as_bytes()).unwrap();
    assert_eq!(plain.invariants().len(), 4);
    // As it travels: a JSON string inside JSON.
    let text = Value::from(example().to_string());
    assert_eq!(Blueprint::from_value(&text).unwrap(), plain);
    assert_eq!(Blueprint::parse(text.to_string().as_bytes()).unwrap(), plain);
    // But only once: what unwraps without end is an attack or a mistake.
    insta::assert_snapshot!(refused(&Value::from(text.to_string())), @"blueprint.structure INVALID_BLUEPRINT_STRUCTURE  must be an object with an `invariants` array");
    assert_eq!(serde_json::to_value(&plain).unwrap()["invariants"][3], example()["invariants"][3]);
}

#[test]
fn the_hash_is_over_the_invariants_alone() {
    let hash = |v: &Value| Blueprint::from_value(v).unwrap().hash().unwrap();
    let plain = example();
    insta::assert_snapshot!(hash(&plain), @"sha256:5b90b706a053c671970e254ec8386797d9d6e3553f77a59384980128f35be55c");
    assert_eq!(hash(&plain), guild_protocol::json::hash(&plain).unwrap());
    let mut beside = example();
    beside["title"] = json!("anything");
    beside["invariants"][0]["min"] = json!(70.0);
    assert_eq!(hash(&plain), hash(&beside));
    for (pointer, value) in [
        ("/invariants/0/min", json!(71)),
        ("/invariants/0/assessment", json!("Rate it differently")),
        ("/invariants/3/examples/do/0", json!("cargo build")),
    ] {
        let mut changed = example();
        *changed.pointer_mut(pointer).unwrap() = value;
        assert_ne!(hash(&plain), hash(&changed), "{pointer}");
    }
}

#[test]
fn the_example_in_the_documentation_has_the_hash_that_it_says() {
    let page = include_str!("../../../../docs/formats/blueprints.md");
    let (_, rest) = page.split_once("```json\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    let blueprint = Blueprint::parse(text.as_bytes()).unwrap();
    assert!(page.contains(&blueprint.hash().unwrap().to_string()));
}

#[test]
fn all_problems_are_listed_under_both_names() {
    insta::assert_snapshot!(refused(&json!({"invariants": [
        {"id": "A", "type": "FLOOR", "metric": "m", "min": "70", "assessment": "too short"},
        {"id": "A", "type": "RANGE", "metric": " ", "min": 7, "max": 7, "assessment": "Count the posts"},
        {"id": "", "type": "MINIMUM", "assessment": "Count the posts"},
        {"id": "B", "type": "CEILING", "metric": "m", "min": 1, "assessment": "Count the posts"},
        {"id": "C", "type": "BOOLEAN", "metric": "m", "assessment": 7},
        {"type": "RANGE", "metric": "m", "min": 8, "max": 7, "assessment": "Count the posts"},
        {"id": "D", "type": "BOOLEAN", "condition": "It works", "assessment": "Look whether it works",
            "examples": {"do": [], "maybe": ["x"], "dont": [""]}},
        "E"
    ]})), @r#"
    blueprint.structure INVALID_BLUEPRINT_STRUCTURE  invariants[0].assessment: must have at least 10 characters
    blueprint.structure INVALID_BLUEPRINT_STRUCTURE  invariants[0].min: must be a number
    blueprint.structure INVALID_BLUEPRINT_STRUCTURE  invariants[1].metric: must not be empty
    blueprint.semantics INVALID_INVARIANT_SEMANTICS  invariants[1]: min 7 must be below max 7
    blueprint.structure INVALID_BLUEPRINT_STRUCTURE  invariants[2].id: must not be empty
    blueprint.structure INVALID_BLUEPRINT_STRUCTURE  invariants[2].type: "MINIMUM" is not one of: FLOOR, CEILING, RANGE, BOOLEAN
    blueprint.structure INVALID_BLUEPRINT_STRUCTURE  invariants[3].min: is not a field of CEILING
    blueprint.structure INVALID_BLUEPRINT_STRUCTURE  invariants[3].max: is missing
    blueprint.structure INVALID_BLUEPRINT_STRUCTURE  invariants[4].assessment: must be a string
    blueprint.structure INVALID_BLUEPRINT_STRUCTURE  invariants[4].metric: is not a field of BOOLEAN
    blueprint.structure INVALID_BLUEPRINT_STRUCTURE  invariants[4].condition: is missing
    blueprint.structure INVALID_BLUEPRINT_STRUCTURE  invariants[5].id: is missing
    blueprint.semantics INVALID_INVARIANT_SEMANTICS  invariants[5]: min 8 must be below max 7
    blueprint.structure INVALID_BLUEPRINT_STRUCTURE  invariants[6].examples.do: must be an array of at least one text, none empty or too long
    blueprint.structure INVALID_BLUEPRINT_STRUCTURE  invariants[6].examples.dont: must be an array of at least one text, none empty or too long
    blueprint.structure INVALID_BLUEPRINT_STRUCTURE  invariants[6].examples.maybe: is not a field of examples
    blueprint.structure INVALID_BLUEPRINT_STRUCTURE  invariants[7]: must be an object
    blueprint.semantics INVALID_INVARIANT_SEMANTICS  invariants[1].id: "A" is already the id of [0]
    "#);
}

#[test]
fn what_is_no_blueprint_is_refused() {
    let parse = |text: &[u8]| lines(&Blueprint::parse(text).unwrap_err());
    insta::assert_snapshot!(parse(b"{\"invariants\": ["), @"blueprint.not_json INVALID_BLUEPRINT  byte 16: not JSON: expected a value, but the text ends");
    insta::assert_snapshot!(parse(b"{\"invariants\": [], \"invariants\": []}"), @r#"blueprint.not_json INVALID_BLUEPRINT  byte 36: not JSON: the key "invariants" stands twice"#);
    insta::assert_snapshot!(parse(br#"{"invariants":[{"min":1e400}]}"#), @"blueprint.not_json INVALID_BLUEPRINT  byte 27: not JSON: 1e400 is too large for a double");
    insta::assert_snapshot!(parse(br#""make it nice""#), @"blueprint.not_json INVALID_BLUEPRINT  byte 0: not JSON: expected a value, but found 'm'");
    insta::assert_snapshot!(refused(&json!({"invariants": []})), @"blueprint.structure INVALID_BLUEPRINT_STRUCTURE  invariants: must hold at least one invariant");
    insta::assert_snapshot!(refused(&json!({"invariants": {}})), @"blueprint.structure INVALID_BLUEPRINT_STRUCTURE  invariants: must be an array");
    insta::assert_snapshot!(refused(&json!({})), @"blueprint.structure INVALID_BLUEPRINT_STRUCTURE  invariants: is missing");
    insta::assert_snapshot!(refused(&json!([])), @"blueprint.structure INVALID_BLUEPRINT_STRUCTURE  must be an object with an `invariants` array");
    insta::assert_snapshot!(refused(&json!({"assertions": [{"id": "A"}]})), @"blueprint.structure INVALID_BLUEPRINT_STRUCTURE  assertions: the older form has no thresholds to measure; write `invariants` with a type each");
    let one = example()["invariants"][0].clone();
    insta::assert_snapshot!(refused(&json!({"invariants": vec![one; 1001]})), @"blueprint.structure INVALID_BLUEPRINT_STRUCTURE  invariants: 1001 are more than the limit of 1000");
    let mut large = example();
    large["invariants"][0]["min"] = json!(9_007_199_254_740_993_u64);
    large["invariants"][1]["id"] = json!("x".repeat(257));
    insta::assert_snapshot!(refused(&large), @"
    blueprint.semantics INVALID_INVARIANT_SEMANTICS  invariants[0].min: 9007199254740993 is beyond ±(2^53−1)
    blueprint.structure INVALID_BLUEPRINT_STRUCTURE  invariants[1].id: 257 bytes are more than the limit of 256
    ");
}

fn measure(text: &str) -> Result<Measurements, Problems> {
    Measurements::parse(text.as_bytes())
}

#[test]
fn measured_values_are_compared_with_their_thresholds() {
    let blueprint = Blueprint::from_value(&example()).unwrap();
    let verdict = |text: &str| blueprint.evaluate(&measure(text).unwrap()).unwrap().verdict;
    let all = r#"{"QUAL-001": 70, "COST-001": 20, "FREQ-001": 3, "BUILD-001": true}"#;
    assert_eq!(verdict(all), Verdict::Pass, "bounds are included");
    assert_eq!(verdict(&all.replace("70", "69.999")), Verdict::Fail);
    assert_eq!(verdict(&all.replace("20", "20.001")), Verdict::Fail);
    assert_eq!(verdict(&all.replace(": 3", ": 2.9")), Verdict::Fail);
    assert_eq!(verdict(&all.replace(": 3", ": 7")), Verdict::Pass);
    assert_eq!(verdict(&all.replace(": 3", ": 7.1")), Verdict::Fail);
    assert_eq!(verdict(&all.replace("true", "false")), Verdict::Fail);
    assert_eq!(verdict("{}"), Verdict::NotMeasured);
    assert_eq!(verdict(r#"{"QUAL-001": 1}"#), Verdict::Fail, "a failure is enough");

    let partly =
        blueprint.evaluate(&measure(r#"{"QUAL-001": 91.5, "BUILD-001": true}"#).unwrap()).unwrap();
    assert_eq!(partly.count(Verdict::Pass), 2);
    insta::assert_json_snapshot!(partly, @r#"
    {
      "verdict": "not_measured",
      "outcomes": [
        {
          "id": "QUAL-001",
          "type": "FLOOR",
          "metric": "content_quality_score",
          "min": 70,
          "assessment": "Rate 0-100 based on originality and depth",
          "measured_value": 91.5,
          "verdict": "pass"
        },
        {
          "id": "COST-001",
          "type": "CEILING",
          "metric": "compute_cost_usd",
          "max": 20,
          "assessment": "Sum API costs from telemetry",
          "measured_value": null,
          "verdict": "not_measured"
        },
        {
          "id": "FREQ-001",
          "type": "RANGE",
          "metric": "posts_per_week",
          "min": 3,
          "max": 7,
          "assessment": "Count posts published in last 7 days",
          "measured_value": null,
          "verdict": "not_measured"
        },
        {
          "id": "BUILD-001",
          "type": "BOOLEAN",
          "condition": "Build passes without errors",
          "assessment": "Run yarn build and verify exit code is 0",
          "examples": {
            "do": [
              "yarn build"
            ],
            "dont": [
              "skip it"
            ]
          },
          "measured_value": true,
          "verdict": "pass"
        }
      ]
    }
    "#);
}

#[test]
fn measurements_of_another_blueprint_are_refused() {
    let blueprint = Blueprint::from_value(&example()).unwrap();
    let measured = measure(r#"{"QUAL-001": true, "BUILD-001": 1, "OTHER": 3}"#).unwrap();
    insta::assert_snapshot!(lines(&blueprint.evaluate(&measured).unwrap_err()), @r#"
    blueprint.measurement -  QUAL-001: FLOOR is measured with a number
    blueprint.measurement -  BUILD-001: BOOLEAN is measured with true or false
    blueprint.measurement -  OTHER: the blueprint has no invariant "OTHER"
    "#);
    insta::assert_snapshot!(lines(&measure(r#"{"A": "70", "B": null}"#).unwrap_err()), @"
    blueprint.measurement -  A: must be a number, true or false
    blueprint.measurement -  B: must be a number, true or false
    ");
    let mut measured = Measurements::new();
    for bad in [f64::NAN, f64::INFINITY] {
        let error = measured.insert("QUAL-001", Measured::Number(bad)).unwrap_err();
        assert_eq!(error.code().name, "blueprint.measurement");
    }
    assert_eq!(measured.get("QUAL-001"), None, "nothing was changed");
    measured.insert("QUAL-001", Measured::Number(1.0)).unwrap();
    let twice = measured.insert("QUAL-001", Measured::Number(2.0)).unwrap_err();
    assert_eq!(twice.to_string(), "QUAL-001: is measured twice");
}

fn any_json() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        prop::sample::select(vec![
            "invariants",
            "id",
            "type",
            "metric",
            "min",
            "max",
            "assessment",
            "condition",
            "examples",
            "do",
            "dont",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ];
    let text = prop_oneof![
        prop::sample::select(vec!["FLOOR", "CEILING", "RANGE", "BOOLEAN", "Count the posts"])
            .prop_map(str::to_owned),
        any::<String>(),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 60, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn reading_never_panics(value in any_json(), bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = Blueprint::parse(&bytes);
        let _ = Blueprint::from_value(&value);
        let _ = Measurements::parse(value.to_string().as_bytes());
        let one = json!({"invariants": [value]});
        if let Ok(blueprint) = Blueprint::from_value(&one) {
            prop_assert_eq!(blueprint.invariants().len(), 1);
        }
    }

    /// One field of a good blueprint is replaced: it is refused, or it reads back as itself.
    #[test]
    fn what_is_accepted_stays(
        which in 0..4usize, field in prop::sample::select(vec!["id", "type", "metric", "min", "max", "assessment", "condition", "examples"]),
        value in any_json(), measured in any::<f64>(),
    ) {
        let mut document = example();
        document["invariants"][which][field] = value;
        if let Ok(blueprint) = Blueprint::from_value(&document) {
            let text = guild_protocol::json::to_canonical(&blueprint).unwrap();
            prop_assert_eq!(&Blueprint::parse(&text).unwrap(), &blueprint);
            if measured.is_finite() {
                let mut measurements = Measurements::new();
                measurements.insert("COST-001", Measured::Number(measured)).unwrap();
                let _ = blueprint.evaluate(&measurements);
            }
        }
    }
}
