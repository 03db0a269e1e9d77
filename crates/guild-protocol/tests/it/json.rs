use guild_protocol::json;
use proptest::prelude::*;
use serde_json::Value;

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
        // Read again it stays, unless a double has become an integer that is out of range.
        match json::Doc::parse(&text) {
            Ok(doc) => prop_assert_eq!(doc.to_canonical(), text),
            Err(e) => prop_assert_eq!(e.code().name, "json.integer_range"),
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
