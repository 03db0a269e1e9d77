//! `guild judge`

use serde_json::{Value, json};

use crate::node::{ANY_PORT, Node};
use crate::support::Home;

const PROVIDER: &str = "npub1xtscya34g58tk0z605fvr788k263gsu6cy9x0mhnm87echrgufzsevkk5s";

/// The suite that the documentation shows.
#[expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]
fn documented() -> Value {
    let text = include_str!("../../../../docs/judge.md");
    let block = text.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    serde_json::from_str(block).unwrap()
}

const SOLUTION: &str = "
def sort(items): return sorted(items)
def unique(items): return list(reversed(sorted(set(items))))
def mean(items):
    if not items: raise ValueError('no numbers')
    return sum(items) / len(items)
";

fn place(home: &Home, solution: &str) -> (String, String) {
    let suite = home.write("suite.json", documented().to_string());
    let file = home.write("delivered/solution.py", solution);
    let directory = file.parent().map(|path| path.display().to_string()).unwrap_or_default();
    (suite.display().to_string(), directory)
}

fn judge(home: &Home, suite: &str, submission: &str, more: &[&str]) -> (i32, Value) {
    let words = ["judge", "--json", "--suite", suite, "--submission", submission];
    let run = home.run(&[words.as_slice(), more].concat());
    let answer = serde_json::from_str(run.stdout.trim()).unwrap_or_else(|e| panic!("{e} {run:?}"));
    (run.code, answer)
}

#[test]
fn the_documented_suite_judges() {
    let home = Home::new();
    let (suite, submission) = place(&home, SOLUTION);
    let run = home.run(&["judge", "--suite", &suite, "--submission", &submission]);
    assert_eq!(run.code, 0, "{run:?}");
    let first = run.stdout.lines().next().unwrap_or_default();
    assert_eq!(
        first.split_whitespace().collect::<Vec<_>>(),
        ["layer", "test", "result", "time", "why"]
    );
    assert!(run.stdout.contains("verdict     SUCCESS\n"), "{}", run.stdout);
    assert!(run.stdout.contains(
        "passed      7 of 7: smoke 1/1, correctness 2/2, edge 1/1, performance 1/1, security 2/2\n"
    ));
    assert!(run.stdout.contains("pylint      absent, not asked for\n"), "{}", run.stdout);
    let (code, answer) = judge(&home, &suite, &submission, &[]);
    assert_eq!((code, &answer["ok"], &answer["class"]), (0, &json!(true), &json!("SUCCESS")));
    assert_eq!(answer["mode"], "trusted");
    assert_eq!(answer["metrics"]["coverage_bp"]["absent"], "not asked for");
}

#[test]
fn other_verdicts_are_a_no() {
    let home = Home::new();
    let (suite, submission) = place(&home, "def sort(items): return items\n");
    let (code, answer) = judge(&home, &suite, &submission, &[]);
    assert_eq!((code, &answer["class"]), (1, &json!("FAILURE")));
    let (suite, submission) = place(&home, &format!("{SOLUTION}\ndef never(): eval('1')\n"));
    let (code, answer) = judge(&home, &suite, &submission, &[]);
    assert_eq!((code, &answer["class"]), (1, &json!("SECURITY_VIOLATION")));
    let run = home.run(&["judge", "--suite", &suite, "--submission", &submission]);
    assert!(run.stderr.contains("eval stands in solution.py, line 8"), "{run:?}");
}

#[test]
fn a_commitment_is_made_and_checked() {
    let home = Home::new();
    let (suite, submission) = place(&home, SOLUTION);
    let made = home.run(&["judge", "commit", "--json", "--suite", &suite]);
    let made: Value = serde_json::from_str(&made.stdout).unwrap_or_default();
    let text = |name: &str| made[name].as_str().unwrap_or_default().to_owned();
    let (salt, commitment) = (text("salt"), text("commitment"));
    let check = |salt: &str, commitment: &str| {
        home.run(&[
            "judge",
            "verify-commitment",
            "--suite",
            &suite,
            "--salt",
            salt,
            "--commitment",
            commitment,
        ])
    };
    assert_eq!(check(&salt, &commitment).code, 0);
    let other = check(&"0".repeat(64), &commitment);
    assert_eq!(other.code, 1);
    assert!(other.stdout.starts_with("NOT the same"), "{other:?}");
    assert_eq!(check("abc", &commitment).code, 2);
    let (_, judged) = judge(&home, &suite, &submission, &["--salt", &salt]);
    assert_eq!(judged["commitment"], commitment.as_str());
}

#[test]
fn mistakes_are_named() {
    let home = Home::new();
    let (suite, submission) = place(&home, SOLUTION);
    let changed = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut suite = documented();
        change(&mut suite);
        home.write(name, suite.to_string()).display().to_string()
    };
    let none = changed("none.json", &|suite| suite["tests"] = json!([]));
    let layer = changed("layer.json", &|suite| suite["tests"][0]["layer"] = json!("speed"));
    let limit = changed("limit.json", &|suite| suite["limits"] = json!({"pids": 1_000_000}));
    let entry = changed("entry.json", &|suite| suite["entry"] = json!("other.py"));
    let mac = changed("mac.json", &|suite| suite["require"] = json!(["mac"]));
    let cases = [
        ("/no/such/suite", submission.as_str(), "io.not_found", "suite"),
        (none.as_str(), &submission, "judge.bad_suite", "tests is empty"),
        (&layer, &submission, "json.shape", "tests[0].layer"),
        (&layer, &submission, "json.shape", "docs/judge.md lists all"),
        (&limit, &submission, "judge.bad_suite", "limits.pids"),
        (&entry, &submission, "judge.bad_submission", "other.py"),
        (&suite, "/no/such/submission", "judge.bad_submission", "/no/such/submission"),
        (&mac, &submission, "sandbox.layer_missing", "mac"),
    ];
    for (suite, submission, code, says) in cases {
        let run = home.run(&["judge", "--suite", suite, "--submission", submission]);
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.stderr.contains(&format!("error[{code}]")), "{run:?}");
        assert!(run.stderr.contains(says), "{says} {run:?}");
    }
    assert_eq!(home.run(&["judge"]).code, 2);
    assert_eq!(home.run(&["judge", "--suite", &suite]).code, 2);
}

#[test]
fn verdicts_are_kept_by_provider() {
    let home = Home::new();
    let (suite, submission) = place(&home, SOLUTION);
    let (code, _) = judge(&home, &suite, &submission, &["--provider", PROVIDER]);
    assert_eq!(code, 0);
    let run = home.run(&["judge", "history", "--provider", PROVIDER, "--json"]);
    let told: Value = serde_json::from_str(&run.stdout).unwrap_or_default();
    let points = told["judgements"].as_array().map_or(0, Vec::len);
    assert_eq!((points, &told["judgements"][0]["class"]), (1, &json!("SUCCESS")), "{run:?}");
    assert_eq!(told["judgements"][0]["pylint_milli"], Value::Null);
    // The same through a node that runs.
    let node = Node::up(&home, &ANY_PORT);
    let (code, _) = judge(&home, &suite, &submission, &["--provider", PROVIDER]);
    assert_eq!(code, 0);
    let run = home.run(&["judge", "history", "--json", "--limit", "5"]);
    let told: Value = serde_json::from_str(&run.stdout).unwrap_or_default();
    assert_eq!(told["judgements"].as_array().map(Vec::len), Some(2), "{run:?}");
    assert_eq!(node.stop(), 0);
    let run = home.run(&["judge", "history"]);
    assert!(run.stdout.contains("SUCCESS") && run.stdout.contains("7/7"), "{run:?}");
}
