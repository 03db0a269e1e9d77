//! What cannot be judged is refused, by the name of what is wrong.

use guild_market::judge::{Options, Submission, Suite};
use guild_sandbox::{Ns, Sandbox, Standing};
use serde_json::{Value, json};

use super::{HONEST, doubling, judge_in, judge_with, sandbox};

fn refused(suite: &Value) -> String {
    let error = Suite::parse(&serde_json::to_vec(suite).unwrap()).unwrap_err();
    let place = match &error {
        guild_market::Error::Protocol(error) => error.place().unwrap_or_default().to_owned(),
        _ => String::new(),
    };
    format!("{} {place} {error}", error.code().name)
}

fn changed(change: impl Fn(&mut Value)) -> String {
    let mut suite = doubling();
    change(&mut suite);
    refused(&suite)
}

#[test]
fn a_suite_that_is_none() {
    assert!(refused(&json!([])).starts_with("json.shape"));
    let error = Suite::parse(b"{").unwrap_err();
    assert_eq!(error.code().name, "json.syntax");
    let error = Suite::parse(br#"{"name": "a", "name": "b"}"#).unwrap_err();
    assert_eq!(error.code().name, "json.duplicate_key");
}

#[test]
fn the_field_is_named() {
    let unset = |name: &'static str| {
        changed(move |suite| drop(suite.as_object_mut().unwrap().remove(name)))
    };
    assert!(unset("entry").contains("entry"), "{}", unset("entry"));
    assert!(unset("tests").contains("tests"));
    let set = |name: &str, value: Value| changed(|suite| suite[name] = value.clone());
    let cases = [
        (set("tests", json!([])), "tests is empty: a suite without tests decides nothing"),
        (set("schema_version", json!(2)), "schema_version is not 1"),
        (set("name", json!("")), "name has not between"),
        (set("entry", json!("../solution.py")), "entry is not a plain path"),
        (set("entry", json!("solution.txt")), "entry is not the file of a Python module"),
        (set("language", json!("perl")), "language"),
        (set("profile", json!("hosted")), "profile is strict or python"),
        (set("profile", json!("strict")), "profile is python for Python"),
        (set("call_timeout_ms", json!(0)), "call_timeout_ms is not between"),
        (
            set("layers", json!({"smoke": 2, "correctness": 3, "edge": 1})),
            "layers.smoke is 2, but there are 1",
        ),
        (set("layers", json!({"speed": 1})), "layers"),
        (set("files", json!({"a.py": ""})), "files is there exactly if"),
        (set("limits", json!({"walls": 1})), "limits.walls is no limit"),
        (
            set("limits", json!({"memory_hard_bytes": 1_u64 << 40})),
            "limits.memory_hard_bytes is 1099511627776; a judge enforces at most",
        ),
        (set("limits", json!({"pids": 0})), "limits.pids: 0 is not between"),
        (set("require", json!(["magic"])), "require"),
        (set("surprise", json!(1)), "surprise"),
    ];
    for (said, says) in cases {
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn the_test_is_named() {
    let set = |at: usize, name: &str, value: Value| {
        changed(|suite| suite["tests"][at][name] = value.clone())
    };
    let cases = [
        (set(1, "layer", json!("speed")), "tests[1].layer"),
        (set(1, "id", json!("first-smoke")), "tests[1].id is the id of an earlier test"),
        (set(1, "id", json!("")), "tests[1].id is empty"),
        (set(1, "call", json!("a b")), "tests[1].call is not the name of a function"),
        (
            set(1, "kernel", json!(true)),
            "tests[1].kernel does not belong into this test of correctness",
        ),
        (
            set(1, "expect", json!({"anything": false})),
            "tests[1].expect has not one of value, error",
        ),
        (set(1, "expect", json!({"value": {"$rage": 1}})), "tests[1].expect has the key \"$rage\""),
        (set(1, "compare", json!("unordered")), "tests[1].compare is for lists"),
        (set(1, "compare", json!({"tolerance": -1})), "tests[1].compare.tolerance is not between"),
        (set(1, "layer", json!("performance")), "tests[1].args does not belong"),
        (set(1, "layer", json!("security")), "tests[1].call does not belong"),
        (
            set(1, "args", json!([{"$range": {"count": 9_999_999}}])),
            "tests[1].args holds more than",
        ),
    ];
    for (said, says) in cases {
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn performance_tests_need_all_of_their_parts() {
    let side = |n: u64| json!({"args": [n], "expect": {"value": n}});
    let test = json!({"id": "p", "layer": "performance", "call": "f", "small": side(1), "large": side(2),
        "max_ratio_percent": 300});
    let with = |name: &str, value: Value| {
        let mut suite = doubling();
        let mut test = test.clone();
        test[name] = value;
        suite["tests"] = json!([test]);
        suite["layers"] = json!({"performance": 1});
        refused(&suite)
    };
    assert!(
        with("max_ratio_percent", json!(99)).contains("tests[0].max_ratio_percent is not between")
    );
    assert!(with("repetitions", json!(0)).contains("tests[0].repetitions is not between"));
    assert!(with("large", json!(null)).contains("tests[0].large is missing"));
    let anything = json!({"args": [1], "expect": {"anything": true}});
    assert!(with("small", anything).contains("tests[0].small.expect must be a value"));
}

#[test]
fn a_submission_without_its_entry() {
    let error = judge_with(&Options::default(), &doubling(), &[("other.py", HONEST)]).unwrap_err();
    assert_eq!(error.code().name, "judge.bad_submission");
    assert!(error.to_string().contains("no solution.py"), "{error}");
}

#[test]
fn a_submission_that_is_a_link_out() {
    let top = tempfile::tempdir().unwrap();
    let link = top.path().join("link");
    std::os::unix::fs::symlink("/etc", &link).unwrap();
    let error = Submission::read(&link).unwrap_err();
    assert_eq!(error.code().name, "judge.bad_submission");
    let inner = top.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", inner.join("solution.py")).unwrap();
    assert!(Submission::read(&inner).unwrap_err().to_string().contains("is a link"));
}

#[test]
fn a_layer_that_cannot_be_enforced() {
    let options = guild_sandbox::Options {
        cgroups: false,
        ..guild_sandbox::Options::new(env!("CARGO_BIN_EXE_market-launcher"))
    };
    let weaker = Ns::new(options).unwrap();
    let submission = Submission::new([("solution.py".to_owned(), HONEST.as_bytes().to_vec())]);
    let mut suite = doubling();
    suite["require"] = json!(["cgroup_memory"]);
    let error = judge_in(&weaker, &Options::default(), &suite, &submission).unwrap_err();
    assert_eq!(error.code().name, "sandbox.layer_missing");
    assert!(error.to_string().contains("cgroup_memory"), "{error}");
    // Without the demand it is judged, and the verdict says what was weaker.
    suite["require"] = json!([]);
    let verdict = judge_in(&weaker, &Options::default(), &suite, &submission).unwrap();
    assert_eq!(verdict.limits[&guild_sandbox::Limit::Memory].standing, Standing::Weaker);
    assert_eq!(sandbox().host().layers.len(), verdict.isolation.len());
}

#[test]
fn an_image_that_is_not_there() {
    let options =
        Options { image: guild_sandbox::Image::Directory("/no/such".into()), ..Options::default() };
    let error = judge_with(&options, &doubling(), &[("solution.py", HONEST)]).unwrap_err();
    assert_eq!(error.code().name, "sandbox.no_image");
}
