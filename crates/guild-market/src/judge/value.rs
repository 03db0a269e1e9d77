//! Values of arguments and results, and how an answer is compared with what is expected.
//!
//! All of this happens in the runner, on plain JSON: nothing that a submission can redefine takes part in it.

use guild_protocol::json::{self, Doc};
use serde_json::{Map, Value};

use super::suite::Compare;

/// What all values of one call may hold when written out.
const MAX_ELEMENTS: u64 = 1_000_000;
const MAX_TEXT_BYTES: usize = 4 << 20;

/// Short forms that stand for large values.
const FORMS: [&str; 4] = ["$range", "$shuffled", "$repeat", "$text"];
/// What JSON has no form for.
const TAGS: [&str; 2] = ["$int", "$float"];

/// The values with every short form written out.
pub(super) fn expand_all(values: &[Value]) -> Result<Vec<Value>, String> {
    let mut left = MAX_ELEMENTS;
    values.iter().map(|value| expanded(value, &mut left)).collect()
}

/// The value with every short form written out.
pub(super) fn expand(value: &Value) -> Result<Value, String> {
    expanded(value, &mut { MAX_ELEMENTS })
}

fn take(left: &mut u64, count: u64) -> Result<(), String> {
    *left = left
        .checked_sub(count)
        .ok_or_else(|| format!("holds more than {MAX_ELEMENTS} elements"))?;
    Ok(())
}

fn expanded(value: &Value, left: &mut u64) -> Result<Value, String> {
    take(left, 1)?;
    match value {
        Value::Array(items) => {
            let items = items.iter().map(|item| expanded(item, left));
            Ok(Value::Array(items.collect::<Result<_, _>>()?))
        }
        Value::Object(members) => {
            if let Some((name, detail)) = members.iter().next()
                && members.len() == 1
                && FORMS.contains(&name.as_str())
            {
                return form(name, detail, left);
            }
            let mut all = Map::new();
            for (name, member) in members {
                let reserved = name.starts_with('$') && !name.starts_with("$$");
                if reserved && (members.len() != 1 || !TAGS.contains(&name.as_str())) {
                    return Err(format!(
                        "has the key {name:?}; a key with one $ has a meaning of its own"
                    ));
                }
                all.insert(name.clone(), expanded(member, left)?);
            }
            Ok(Value::Object(all))
        }
        plain => Ok(plain.clone()),
    }
}

fn form(name: &str, detail: &Value, left: &mut u64) -> Result<Value, String> {
    let number = |key: &str| {
        let value = detail.get(key).and_then(Value::as_u64);
        value.ok_or_else(|| format!("has a {name} whose {key} is no number"))
    };
    let known: &[&str] = match name {
        "$range" => &["count"],
        "$shuffled" => &["count", "seed"],
        "$repeat" => &["value", "count"],
        _ => &["of", "count"],
    };
    let keys = detail.as_object().map(|members| members.keys().map(String::as_str));
    if keys.is_none_or(|mut keys| keys.any(|key| !known.contains(&key))) {
        return Err(format!("has a {name} that is not an object with {}", known.join(" and ")));
    }
    let count = number("count")?;
    take(left, count)?;
    let length = usize::try_from(count).unwrap_or(usize::MAX);
    match name {
        "$range" => Ok((0..count).map(Value::from).collect()),
        "$shuffled" => Ok(shuffled(count, number("seed")?).into_iter().map(Value::from).collect()),
        "$repeat" => {
            let item =
                detail.get("value").ok_or_else(|| format!("has a {name} without a value"))?;
            let item = expanded(item, left)?;
            // What is repeated may itself be large.
            let inside = u64::try_from(serde_json::to_string(&item).map_or(0, |text| text.len()));
            take(left, count.saturating_mul(inside.unwrap_or(u64::MAX) / 8))?;
            Ok(Value::Array(vec![item; length]))
        }
        _ => {
            let of = detail.get("of").and_then(Value::as_str);
            let of = of.ok_or_else(|| format!("has a {name} whose of is no text"))?;
            match of.len().checked_mul(length) {
                Some(bytes) if bytes <= MAX_TEXT_BYTES => Ok(Value::from(of.repeat(length))),
                _ => Err(format!("has a {name} of more than {MAX_TEXT_BYTES} bytes")),
            }
        }
    }
}

/// The numbers below `count` in an order that follows from the seed alone.
fn shuffled(count: u64, seed: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    let mut state = seed;
    let mut draw = |below: u64| {
        // SplitMix64: a few lines that any language can repeat.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).checked_rem(below).unwrap_or(0)
    };
    for at in (1..numbers.len()).rev() {
        let below = u64::try_from(at).unwrap_or(u64::MAX).saturating_add(1);
        numbers.swap(at, usize::try_from(draw(below)).unwrap_or(0));
    }
    numbers
}

/// Whether an answer is what was expected. Both are plain JSON.
pub(super) fn is_equal(expected: &Value, answer: &Doc<'_>, compare: Compare) -> bool {
    let Ok(expected) = json::to_doc(expected) else { return false };
    match compare {
        // The canonical form knows no types of any language: 1 and 1.0 are one number, true is none.
        Compare::Exact => expected.to_canonical() == answer.to_canonical(),
        Compare::Unordered => match (&expected, answer) {
            (Doc::Array(expected), Doc::Array(answer)) => sorted(expected) == sorted(answer),
            _ => false,
        },
        Compare::Tolerance(by) => is_near(&expected, answer, by),
    }
}

fn sorted(items: &[Doc<'_>]) -> Vec<Vec<u8>> {
    let mut all: Vec<_> = items.iter().map(Doc::to_canonical).collect();
    all.sort_unstable();
    all
}

fn is_near(expected: &Doc<'_>, answer: &Doc<'_>, by: f64) -> bool {
    match (expected, answer) {
        (Doc::Number(a), Doc::Number(b)) => match (a.parse::<f64>(), b.parse::<f64>()) {
            (Ok(a), Ok(b)) => (a - b).abs() <= by * a.abs().max(b.abs()).max(1.0),
            _ => false,
        },
        (Doc::Array(a), Doc::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_near(a, b, by))
        }
        (Doc::Object(a), Doc::Object(b)) => {
            a.len() == b.len()
                && a.iter().zip(b).all(|((name, a), (other, b))| name == other && is_near(a, b, by))
        }
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn equal(expected: Value, answer: &str, compare: Compare) -> bool {
        is_equal(&expected, &Doc::parse(answer.as_bytes()).unwrap(), compare)
    }

    #[test]
    fn exact_is_by_value_and_kind() {
        let same =
            [(json!(1), "1"), (json!(1), "1.0"), (json!([1, {"a": null}]), r#"[1,{"a":null}]"#)];
        for (expected, answer) in same {
            assert!(equal(expected, answer, Compare::Exact), "{answer}");
        }
        let other = [
            (json!(1), "true"),
            (json!(true), "1"),
            (json!(0), "false"),
            (json!(0), "null"),
            (json!(1), "\"1\""),
            (json!([]), "{}"),
            (json!([1, 2]), "[2,1]"),
            (json!(0.3), "0.30000000000000004"),
            (json!({"a": 1}), r#"{"a":1,"b":2}"#),
        ];
        for (expected, answer) in other {
            assert!(!equal(expected, answer, Compare::Exact), "{answer}");
        }
    }

    #[test]
    fn numbers_may_be_near() {
        let near = Compare::Tolerance(1e-9);
        assert!(equal(json!({"a": [0.3, 1]}), r#"{"a":[0.30000000000000004,1.0]}"#, near));
        assert!(equal(json!(1e12), "1000000000000.5", near));
        for (expected, answer) in [(json!(0.3), "0.31"), (json!(1), "true"), (json!([1]), "[1,1]")]
        {
            assert!(!equal(expected, answer, near), "{answer}");
        }
    }

    #[test]
    fn lists_may_be_in_any_order() {
        let any = Compare::Unordered;
        assert!(equal(json!([1, [2, 3], 1]), "[[2,3],1.0,1]", any));
        for answer in ["[1,[2,3]]", "[1,[3,2],1]", "[1,[2,3],1,1]", "{}"] {
            assert!(!equal(json!([1, [2, 3], 1]), answer, any), "{answer}");
        }
    }

    #[test]
    fn short_forms_are_written_out() {
        let all =
            expand(&json!([{"$range": {"count": 3}}, {"$repeat": {"value": [0], "count": 2}},
            {"$text": {"of": "ab", "count": 2}}, {"$int": "123"}, {"$$x": 1}]));
        let expected = json!([[0, 1, 2], [[0], [0]], "abab", {"$int": "123"}, {"$$x": 1}]);
        assert_eq!(all, Ok(expected));
        let shuffled = expand(&json!({"$shuffled": {"count": 100, "seed": 7}})).unwrap();
        let mut numbers: Vec<u64> =
            shuffled.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
        // Written down once, so that the order never changes.
        assert_eq!(numbers[..8], [14, 62, 24, 42, 17, 5, 4, 64]);
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..100));
    }

    #[test]
    fn short_forms_that_are_none_or_too_large_are_refused() {
        let wrong = [
            (json!({"$ranger": {"count": 1}}), "has the key \"$ranger\""),
            (json!({"$int": "1", "a": 2}), "has the key \"$int\""),
            (json!({"$range": 7}), "has a $range that is not an object"),
            (json!({"$range": {"count": -1}}), "has a $range whose count is no number"),
            (json!({"$range": {"count": 1_000_001}}), "holds more than"),
            (
                json!({"$repeat": {"value": {"$range": {"count": 900_000}}, "count": 90_000}}),
                "holds more than",
            ),
            (json!({"$text": {"of": "abcdefgh", "count": 999_999}}), "has a $text of more than"),
            (json!({"$shuffled": {"count": 3}}), "has a $shuffled whose seed"),
        ];
        for (value, says) in wrong {
            let why = expand(&value).unwrap_err();
            assert!(why.starts_with(says), "{why}");
        }
    }
}
