#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test fails the test by panicking"
)]

use std::collections::BTreeMap;

use guild_protocol::hash::{Hash, from_hex};
use guild_protocol::json;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    input: Option<String>,
    input_hex: Option<String>,
    canonical: Option<String>,
    sha256: Option<String>,
    error: Option<String>,
    legacy: Option<String>,
    legacy_sha256: Option<String>,
    legacy_error: Option<String>,
}

impl Row {
    fn bytes(&self) -> Vec<u8> {
        match (&self.input, &self.input_hex) {
            (Some(text), None) => text.clone().into_bytes(),
            (None, Some(hex)) => from_hex(hex).unwrap(),
            _ => panic!("{}: one input, please", self.name),
        }
    }

    /// Says how this implementation differs from the row; nothing if it does not.
    fn differences(&self) -> Vec<String> {
        let bytes = self.bytes();
        let canonical = json::Doc::parse(&bytes).map(|doc| doc.to_canonical());
        let found = outcome(canonical, json::hash_text(&bytes));
        let expected = (self.canonical.clone(), self.sha256.clone(), self.error.clone());
        let legacy = outcome(json::legacy::to_legacy(&bytes), json::legacy::hash_text(&bytes));
        let expected_legacy =
            (self.legacy.clone(), self.legacy_sha256.clone(), self.legacy_error.clone());
        let mut differences = Vec::new();
        if found != expected {
            differences.push(format!("{}: {found:?}, not {expected:?}", self.name));
        }
        if legacy != expected_legacy {
            differences.push(format!("{}: legacy {legacy:?}, not {expected_legacy:?}", self.name));
        }
        differences
    }
}

type Outcome = (Option<String>, Option<String>, Option<String>);

fn outcome(text: guild_protocol::Result<Vec<u8>>, hash: guild_protocol::Result<Hash>) -> Outcome {
    let error = hash.as_ref().err().map(|e| e.code().name.to_owned());
    let text = text.ok().map(|bytes| String::from_utf8(bytes).unwrap());
    (text, hash.ok().map(|hash| hash.to_string()), error)
}

fn rows() -> Vec<Row> {
    serde_json::from_str(include_str!("../../vectors/canonical_json.json")).unwrap()
}

#[test]
fn every_row_of_the_vectors_holds() {
    let rows = rows();
    assert!(rows.len() >= 199, "rows are only ever added");
    let differences: Vec<_> = rows.iter().flat_map(Row::differences).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    for row in &rows {
        assert_ne!(row.canonical.is_some(), row.error.is_some(), "{}", row.name);
        assert_ne!(row.legacy.is_some(), row.legacy_error.is_some(), "{}", row.name);
    }
}

#[test]
fn the_documentation_shows_a_row() {
    let page = include_str!("../../../../docs/formats/canonical-json.md");
    let row = rows().into_iter().find(|row| row.name == "RFC 8785 section 3.2.2").unwrap();
    for shown in [row.input, row.canonical, row.sha256] {
        let shown = shown.unwrap();
        assert!(page.contains(&shown), "the page lacks {shown}");
    }
}

#[test]
fn a_wrong_row_is_noticed() {
    let mut row = rows().swap_remove(0);
    assert!(row.differences().is_empty());
    row.sha256 = Some(Hash::of(b"").to_string());
    assert_eq!(row.differences().len(), 1);
    row.legacy_error = None;
    assert_eq!(row.differences().len(), 2);
}

/// Hashes published elsewhere, so that the vectors cannot drift together with the code.
#[test]
fn well_known_hashes_stand_in_the_vectors() {
    let rows: BTreeMap<_, _> = rows().into_iter().map(|row| (row.name.clone(), row)).collect();
    for (name, prefix) in [
        ("01 a quote in a key", "bf7eee3c"),
        ("02 a key that imitates two members", "7655e2b5"),
        ("02 the two members that it imitates", "43258cff"),
        ("04 keys in the order of UTF-16 units", "2aa3f508"),
        ("05 one as a double", "6b86b273"),
        ("06 negative zero as an integer", "5feceb66"),
        ("11 2^53+1 as a double", "c681da39"),
        ("an empty object", "44136fa3"),
        ("an empty array", "4f53cda1"),
        ("a nested object", "470d3a7d"),
        ("three members", "fec3c900"),
        ("one member", "dc60e632"),
    ] {
        let hash = rows[name].sha256.as_deref().unwrap();
        assert!(hash.starts_with(&format!("sha256:{prefix}")), "{name} {hash}");
    }
    for (name, prefix) in [
        ("02 the two members that it imitates", "43258cff"),
        ("04 keys in the order of code points", "96c4e1b2"),
        ("05 one as a double", "d0ff5974"),
        ("06 negative zero as a double", "c26617c7"),
        ("11 2^53+1 as an integer", "a1c367c2"),
    ] {
        let hash = rows[name].legacy_sha256.as_deref().unwrap();
        assert!(hash.starts_with(&format!("sha256:{prefix}")), "legacy {name} {hash}");
    }
    // Nothing at all is not the empty text.
    assert!(Hash::of(b"").to_string().starts_with("sha256:e3b0c442"));
    assert_ne!(rows["an empty text"].sha256.as_deref(), Some(&*Hash::of(b"").to_string()));
}

#[test]
fn numbers_of_structs_become_doubles_or_are_refused() {
    #[derive(Serialize)]
    struct Score<T> {
        score: T,
    }
    let canonical = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let single = json::to_canonical(&Score { score: 0.8_f32 }).unwrap();
    assert_eq!(canonical(single), r#"{"score":0.800000011920929}"#);
    let double = json::to_canonical(&Score { score: 1e20 }).unwrap();
    assert_eq!(canonical(double), r#"{"score":100000000000000000000}"#);
    let refusal = |e: guild_protocol::Error| format!("{} {e}", e.code().name);
    let refused = [
        json::hash(&Score { score: f64::NAN }).map_err(refusal).unwrap_err(),
        json::hash(&Score { score: f64::INFINITY }).map_err(refusal).unwrap_err(),
        json::hash(&Score { score: [f32::NEG_INFINITY] }).map_err(refusal).unwrap_err(),
        json::hash(&Score { score: u64::MAX }).map_err(refusal).unwrap_err(),
        json::hash(&Score { score: -9_007_199_254_740_992_i64 }).map_err(refusal).unwrap_err(),
    ];
    insta::assert_snapshot!(refused.join("\n"), @r"
    json.not_finite score: NaN is not finite
    json.not_finite score: inf is not finite
    json.not_finite score[0]: -inf is not finite
    json.integer_range score: 18446744073709551615 is beyond ±(2^53−1)
    json.integer_range score: -9007199254740992 is beyond ±(2^53−1)
    ");
}

/// Any JSON value, with keys and texts that try to break out of their quotes.
fn hostile_value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        "[a-c\"\\\\:,{}\u{1}\u{e000}\u{1f600}\u{fb33}é]{0,6}",
        Just("a\":1,\"b".to_owned()),
        Just("\u{1f600}".to_owned()),
        any::<String>(),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-9_007_199_254_740_991i64..=9_007_199_254_740_991).prop_map(Value::from),
        any::<f64>().prop_filter_map("finite", |f| f.is_finite().then(|| Value::from(f))),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(text.clone(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Equal as JSON: numbers by their double, so that 1 and 1.0 are one thing.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| same(v, w)))
        }
        _ => a == b,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn two_different_values_never_share_a_canonical_text(a in hostile_value(), b in hostile_value()) {
        let (x, y) = (json::to_canonical(&a).unwrap(), json::to_canonical(&b).unwrap());
        prop_assert_eq!(same(&a, &b), x == y);
    }

    #[test]
    fn the_canonical_text_means_what_it_was_made_from(a in hostile_value()) {
        let text = json::to_canonical(&a).unwrap();
        let back: Value = serde_json::from_slice(&text).unwrap();
        prop_assert!(same(&a, &back), "{} became {}", a, back);
        // Read again it stays, unless a double has become an integer that is out of range; and that is known before.
        let known = json::to_doc(&a).unwrap().check_reads_back(128).map_err(|e| e.code());
        match json::Doc::parse(&text) {
            Ok(doc) => {
                prop_assert_eq!(doc.to_canonical(), text);
                prop_assert_eq!(known, Ok(()));
            }
            Err(e) => {
                prop_assert_eq!(e.code().name, "json.integer_range");
                prop_assert_eq!(known, Err(e.code()));
            }
        }
    }

    #[test]
    fn any_layout_of_a_value_has_its_hash(a in hostile_value()) {
        let pretty = serde_json::to_vec_pretty(&a).unwrap();
        match json::hash_text(&pretty) {
            Ok(hash) => prop_assert_eq!(hash, json::hash(&a).unwrap()),
            Err(e) => prop_assert_eq!(e.code().name, "json.integer_range"),
        }
    }

    #[test]
    fn rubbish_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = json::hash_text(&bytes);
        let _ = json::legacy::hash_text(&bytes);
    }
}

/// Where doubles begin to look like integers that nobody takes, and where they look like doubles again.
#[test]
fn what_would_not_be_read_again_is_known_before_it_is_written() {
    for number in [
        9_007_199_254_740_991.0,
        9_007_199_254_740_992.0,
        1e16,
        -1e16,
        1e20,
        1e21,
        0.1,
        -0.0,
        f64::MAX,
    ] {
        let doc = json::to_doc(&number).unwrap();
        let back = json::Doc::parse(&doc.to_canonical()).map(|_| ()).map_err(|e| e.code());
        assert_eq!(doc.check_reads_back(0).map_err(|e| e.code()), back, "{number}");
    }
    let deep = (0..128).fold(Value::from(1), |inner, _| serde_json::json!({ "a": inner }));
    let doc = json::to_doc(&deep).unwrap();
    assert_eq!(doc.check_reads_back(128), Ok(()));
    assert_eq!(doc.check_reads_back(127).unwrap_err().code().name, "json.depth");
}

/// What a format calls an object is one: a list of the values in the order of some program's fields is not.
#[test]
fn a_list_is_never_taken_for_an_object() {
    use guild_protocol::amount::Amount;
    let read = |text: &[u8]| json::decode::<Amount>(text);
    assert_eq!(read(br#"{"asset_id":"BTC_LN","units":5}"#).unwrap().units, 5);
    let refused = read(br#"["BTC_LN",5]"#).unwrap_err();
    assert_eq!(refused.code().name, "json.shape");
    assert_eq!(refused.to_string(), "invalid type: sequence, expected struct Amount");
    let nested = json::decode::<Vec<Amount>>(br#"[["BTC_LN",5]]"#).unwrap_err();
    assert_eq!(nested.place(), Some("[0]"));
}

#[test]
fn a_decoded_value_is_what_the_common_reader_reads() {
    let text = br#"{"a":[1,-1,1.5,-0.0,1e300,9007199254740991,null,true,"\u00e9\ud83d\ude00"],"b":{"c":{}}}"#;
    let common: Value = serde_json::from_slice(text).unwrap();
    assert_eq!(json::decode::<Value>(text).unwrap(), common);
    let refused = |text: &[u8]| json::decode::<Vec<u8>>(text).unwrap_err().to_string();
    assert_eq!(refused(b"[1,-1]"), "[1]: invalid value: integer `-1`, expected u8");
    assert_eq!(refused(b"[1,1.0]"), "[1]: invalid type: floating point `1.0`, expected u8");
    assert_eq!(refused(b"[null]"), "[0]: invalid type: unit value, expected u8");
    assert_eq!(json::decode::<Option<u8>>(b"null").unwrap(), None);
    assert_eq!(json::decode::<(u8, u8)>(b"[1,2,3]").unwrap_err().code().name, "json.shape");
}
