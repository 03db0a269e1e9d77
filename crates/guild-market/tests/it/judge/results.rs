//! Results that look like others. The runner compares plain JSON, and nothing that Python thinks of as equal.

use guild_market::judge::Class;
use serde_json::{Value, json};

use super::{is, judge};

/// A suite of one smoke test of `f`, and its class for this result.
fn gives(expect: Value, compare: Value, expression: &str) -> Class {
    let mut test = json!({"id": "t", "layer": "smoke", "call": "f", "args": [], "expect": expect});
    if !compare.is_null() {
        test["compare"] = compare;
    }
    let suite = json!({
        "schema_version": 1, "name": "one", "language": "python", "entry": "solution.py",
        "layers": {"smoke": 1}, "tests": [test],
    });
    judge(&suite, &[("solution.py", &format!("def f():\n    return {expression}\n"))]).class
}

fn value(expected: Value, expression: &str) -> Class {
    gives(json!({"value": expected}), Value::Null, expression)
}

#[test]
fn an_object_that_is_equal_to_everything() {
    let code = "class Any:\n    def __eq__(self, other): return True\n    def __hash__(self): return 0\n\
                def double(x):\n    return Any()\n";
    let verdict = is(Class::Failure, code);
    assert!(
        verdict.tests[0].why.as_deref().unwrap().contains("TypeError: a result of the type Any")
    );
    let code = "class Any(int):\n    def __eq__(self, other): return True\n    def __hash__(self): return 0\n\
                def double(x):\n    return Any(7)\n";
    is(Class::Failure, code);
    let code = "class Any(str):\n    def __eq__(self, other): return True\n    __hash__ = str.__hash__\n\
                def double(x):\n    return Any('')\n";
    is(Class::Failure, code);
}

#[test]
fn truth_is_no_number() {
    assert_eq!(value(json!(1), "True"), Class::Failure);
    assert_eq!(value(json!(true), "1"), Class::Failure);
    assert_eq!(value(json!(0), "False"), Class::Failure);
    assert_eq!(value(json!([1, 0]), "[True, False]"), Class::Failure);
    assert_eq!(value(json!(true), "True"), Class::Success);
}

#[test]
fn numbers_are_equal_by_value() {
    assert_eq!(value(json!(1), "1.0"), Class::Success);
    assert_eq!(value(json!(1), "'1'"), Class::Failure);
    assert_eq!(value(json!(0), "-0.0"), Class::Success);
    assert_eq!(value(json!(0.3), "0.1 + 0.2"), Class::Failure);
    assert_eq!(
        gives(json!({"value": 0.3}), json!({"tolerance": 1e-9}), "0.1 + 0.2"),
        Class::Success
    );
    assert_eq!(gives(json!({"value": [1, 2]}), json!("unordered"), "[2, 1]"), Class::Success);
}

#[test]
fn numbers_that_json_lacks() {
    assert_eq!(value(json!({"$int": "9007199254740993"}), "2**53 + 1"), Class::Success);
    assert_eq!(value(json!({"$int": "9007199254740992"}), "2**53 + 1"), Class::Failure);
    assert_eq!(value(json!({"$float": "nan"}), "float('nan')"), Class::Success);
    assert_eq!(value(json!({"$float": "inf"}), "-float('inf')"), Class::Failure);
    // What a submission writes itself is not taken for one.
    assert_eq!(value(json!({"$int": "5"}), "{'$int': '5'}"), Class::Failure);
    assert_eq!(value(json!({"$$int": "5"}), "{'$int': '5'}"), Class::Success);
}

#[test]
fn not_a_number_is_near_nothing() {
    assert_eq!(
        gives(json!({"value": 1.0}), json!({"tolerance": 1e9}), "float('nan')"),
        Class::Failure
    );
    assert_eq!(
        gives(json!({"value": 1.0}), json!({"tolerance": 1.0}), "float('inf')"),
        Class::Failure
    );
}

#[test]
fn keys_that_are_no_texts_are_refused() {
    assert_eq!(value(json!({"1": 2}), "{1: 2}"), Class::Failure);
    assert_eq!(value(json!({"1": 2}), "{'1': 2}"), Class::Success);
}

/// Says its answer itself, in any words it likes: it is the submission's own process.
fn says(text: &str) -> Class {
    let code = format!(
        "import os, sys, time\ndef f():\n    frame = sys._getframe(1)\n    \
         while 'request' not in frame.f_locals: frame = frame.f_back\n    \
         id = frame.f_locals['request']['id'].encode()\n    \
         os.write(4, b'{{\"id\":\"' + id + b'\",\"ok\":{text}}}\\n')\n    time.sleep(60)\n"
    );
    let suite = json!({
        "schema_version": 1, "name": "one", "language": "python", "entry": "solution.py",
        "layers": {"smoke": 1}, "call_timeout_ms": 60_000,
        "tests": [{"id": "t", "layer": "smoke", "call": "f", "args": [], "expect": {"value": 1}}],
    });
    judge(&suite, &[("solution.py", &code)]).class
}

#[test]
fn what_is_no_plain_json_is_no_answer() {
    assert_eq!(says("1"), Class::Success, "whoever answers itself is taken at its word");
    assert_eq!(says("2"), Class::Failure);
    for text in [
        "NaN",
        "Infinity",
        "1e999",
        "9007199254740993",
        "{\"a\":1,\"a\":1}",
        "1,\"ok\":1",
        "01",
        "",
    ] {
        assert_eq!(says(text), Class::Error, "{text}");
    }
}
