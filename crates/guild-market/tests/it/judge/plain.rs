//! Honest submissions, good and bad.

use guild_market::judge::{Class, Measure, Mode, Salt, Suite};
use serde_json::json;

use super::{HONEST, doubled, doubling, error, is, judge, statuses};

#[test]
fn a_good_one_succeeds() {
    let verdict = is(Class::Success, HONEST);
    assert_eq!((verdict.passed, verdict.total, verdict.mode), (5, 5, Mode::Trusted));
    assert_eq!(verdict.metrics.coverage_bp, Measure::Absent("not asked for".into()));
    assert_eq!(verdict.metrics.pylint_milli, Measure::Absent("not asked for".into()));
    assert!(verdict.metrics.wall_us > 0 && verdict.metrics.cpu_us > 0);
    assert!(verdict.metrics.memory_peak_bytes > 100_000);
    assert!(!verdict.full && verdict.flags.is_empty() && verdict.findings.is_empty());
    assert!(verdict.tests.iter().all(|test| test.wall_us.is_some()));
}

#[test]
fn a_wrong_value_fails_one_test() {
    let verdict = is(Class::Partial, "def double(x):\n    return 21 if x == 10 else x + x\n");
    assert_eq!(statuses(&verdict), ["passed", "passed", "failed", "passed", "passed"]);
    assert_eq!(verdict.tests[2].why.as_deref(), Some("it gave another value"));
}

#[test]
fn many_wrong_values_are_a_failure() {
    is(Class::Failure, "def double(x):\n    return 4\n");
}

#[test]
fn what_is_expected_is_never_said() {
    let verdict = doubled("def double(x):\n    return 4\n");
    let told = serde_json::to_string(&verdict).unwrap();
    assert!(!told.contains(&(super::SECRET - 1).to_string()));
}

#[test]
fn the_first_smoke_test_that_fails_is_the_end() {
    let verdict = is(Class::Failure, "def double(x):\n    return x\n");
    assert_eq!(statuses(&verdict), ["failed", "not_run", "not_run", "not_run", "not_run"]);
}

#[test]
fn a_missing_function_fails() {
    let verdict = is(Class::Failure, "def other(x): return x\n");
    assert!(
        verdict.tests[0].why.as_deref().unwrap().starts_with("it gave an error: AttributeError")
    );
}

#[test]
fn what_cannot_be_loaded_is_an_error() {
    let verdict = is(Class::Error, "def double(x: return\n");
    assert!(error(&verdict).1.starts_with("it could not be loaded: SyntaxError"));
    let verdict = is(Class::Error, "import no_such_module\n");
    assert!(error(&verdict).1.starts_with("it could not be loaded: ModuleNotFoundError"));
}

#[test]
fn an_honest_print_is_no_answer() {
    let verdict =
        is(Class::Success, "print('hello')\ndef double(x):\n    print(x)\n    return x + x\n");
    assert!(verdict.printed.starts_with("hello\n2\n"), "{}", verdict.printed);
}

#[test]
fn every_test_can_have_its_own_process() {
    let mut suite = doubling();
    suite["isolation"] = json!("per_test");
    let counts = "seen = []\ndef double(x):\n    seen.append(x)\n    return x + x if len(seen) == 1 else None\n";
    assert_eq!(judge(&suite, &[("solution.py", counts)]).class, Class::Success);
    assert_eq!(doubled(counts).class, Class::Failure, "otherwise one sees them all");
}

#[test]
fn a_package_is_loaded_by_its_path() {
    let mut suite = doubling();
    suite["entry"] = json!("pkg/inner.py");
    let files = [
        ("pkg/__init__.py", ""),
        ("pkg/inner.py", "from pkg.other import double\n"),
        ("pkg/other.py", HONEST),
    ];
    assert_eq!(judge(&suite, &files).class, Class::Success);
}

#[test]
fn a_program_speaks_the_protocol_by_itself() {
    let mut suite = doubling();
    suite["language"] = json!("executable");
    suite["entry"] = json!("bin/run");
    suite["profile"] = json!("python");
    let program = r#"#!/usr/bin/python3 -S
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    answer = {"id": request["id"]}
    try:
        answer["ok"] = None if "ready" in request else request["args"][0] + request["args"][0]
    except TypeError:
        answer["error"] = {"type": "TypeError"}
    print(json.dumps(answer), flush=True)
"#;
    let verdict = judge(&suite, &[("bin/run", program)]);
    assert_eq!(verdict.class, Class::Success, "{verdict:#?}");
    // It has no threads and no children, so the strictest profile is enough.
    suite["profile"] = json!("strict");
    let verdict = judge(&suite, &[("bin/run", program)]);
    assert_eq!(verdict.class, Class::Success, "{verdict:#?}");
    let verdict = judge(&suite, &[("bin/run", "no program")]);
    assert!(error(&verdict).1.starts_with("it could not be started: "), "{verdict:#?}");
    assert_eq!(verdict.class, Class::Error);
}

#[test]
fn a_commitment_is_to_this_suite_and_salt() {
    let parse =
        |value: &serde_json::Value| Suite::parse(&serde_json::to_vec(value).unwrap()).unwrap();
    let salt = Salt::new([7; 32]);
    let suite = doubling();
    let pretty = Suite::parse(&serde_json::to_vec_pretty(&suite).unwrap()).unwrap();
    assert_eq!(parse(&suite).commitment(&salt), pretty.commitment(&salt), "layout does not matter");
    assert_ne!(parse(&suite).commitment(&salt), parse(&suite).commitment(&Salt::new([8; 32])));
    let mut other = suite.clone();
    other["tests"][2]["expect"]["value"] = json!(21);
    assert_ne!(parse(&suite).commitment(&salt), parse(&other).commitment(&salt));
    assert_eq!(Salt::parse(&salt.hex()).unwrap(), salt);
    for bad in ["", "07", &"7".repeat(63), &"G".repeat(64)] {
        assert_eq!(Salt::parse(bad).unwrap_err().code().name, "judge.bad_salt");
    }
}

#[test]
fn hashes_are_the_same_in_every_run() {
    let mut suite = doubling();
    suite["tests"] = json!([{"id": "a", "layer": "smoke", "call": "order", "args": [],
        "expect": {"anything": true}}]);
    suite["layers"] = json!({"smoke": 1});
    let code = "import sys, os\ndef order(): return list({'a', 'b', 'c', 'd'})\nprint(order(), hash('x'))\n";
    let first = judge(&suite, &[("solution.py", code)]);
    assert_eq!(first.printed, judge(&suite, &[("solution.py", code)]).printed);
    assert_eq!(first.class, Class::Success);
}
