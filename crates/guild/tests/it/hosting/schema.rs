//! Calls that schemathesis makes up from the node's own description of its API: no answer is a failure of the server,
//! and none is of another form than described.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::shop::Shop;

/// How many calls, at least: `cargo xtask soak api` and the full tests ask for more.
const CALLS: &str = "GUILD_TEST_API_CALLS";

#[test]
fn made_up_calls_get_answers_of_their_form() {
    #[expect(clippy::disallowed_methods, reason = "how long it runs is asked from outside")]
    let calls: u64 = std::env::var(CALLS).map_or(400, |calls| calls.parse().unwrap());
    // Requests are not counted here, or most of them would only be told to wait.
    let shop = Shop::open(&["--set", "hosting.requests_per_minute=1000000"]);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("schemathesis.toml"), config(&shop)).unwrap();
    // The tests make the same calls each time; whoever asks for more wants others.
    let seed = if calls <= 2_000 { 1 } else { testbed::Dice::new(6).below(1 << 31) };
    println!("seed {seed}");
    let report = run(dir.path(), &shop.url, calls, seed);
    let made = report["test_cases"]["generated"].as_u64().unwrap();
    println!("{made} calls");
    assert!(made >= calls, "{made} calls, {calls} were asked for");
    assert_eq!((&report["failures"], &report["errors"]), (&json!([]), &json!([])));
    assert_eq!((&report["complete"], &report["exit_code"]), (&json!(true), &json!(0)));
    // All but the one that would end the session; with a token that was good to the end.
    let operations = &report["operations"];
    let (total, tested) =
        (operations["total"].as_u64().unwrap(), operations["tested"].as_u64().unwrap());
    assert_eq!(tested, total - 1, "{operations}");
    assert_eq!(report["warnings"]["missing_auth"], json!([]));
    // The node is as well as before, and has failed at nothing.
    assert_eq!(shop.get("/v1/auth/me").0, 200);
    let (said, _) = shop.close();
    assert!(!said.contains("a request failed") && !said.contains("panicked"), "{said}");
}

/// How to call it: with tokens that are good, and names of what is there.
fn config(shop: &Shop) -> String {
    let name = |path: &str| path.rsplit('/').next().unwrap().to_owned();
    let ((job, sandbox), (spare_job, spare_sandbox)) = (shop.sandbox(), shop.sandbox());
    // One that has ended: what a running one prints would never end.
    let exec = shop.exec(&sandbox, &json!({"argv": ["echo", "hello"]}));
    assert_eq!(shop.frames(&exec).last().unwrap()["exit_code"], 0);
    include_str!("schemathesis.toml")
        .replace("<TOKEN>", &shop.token)
        .replace("<NODE>", &shop.node_token())
        .replace("<JOB>", &name(&job))
        .replace("<SANDBOX>", &name(&sandbox))
        .replace("<EXEC>", &name(&exec))
        .replace("<SPARE_JOB>", &name(&spare_job))
        .replace("<SPARE_SANDBOX>", &name(&spare_sandbox))
}

/// Its report.
fn run(dir: &Path, url: &str, calls: u64, seed: u64) -> Value {
    let mut command = Command::new(testbed::schemathesis::program().unwrap());
    command.current_dir(dir).args(["run", &format!("{url}/v1/openapi.json"), "--no-color"]);
    command.args(["--seed", &seed.to_string(), "--request-timeout", "60", "--continue-on-failure"]);
    command.args(["--report", "json", "--report-json-path", "report.json"]);
    // What covers each bound of the schema once is more than a thousand calls already. The rest is chance: so many more
    // for each operation, of which some take few inputs.
    let examples = (calls / if calls <= 2_000 { 100 } else { 40 }).to_string();
    match calls <= 1_000 {
        true => command.args(["--phases", "coverage"]),
        false => command.args(["--max-examples", &examples]),
    };
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&std::fs::read(dir.join("report.json")).unwrap()).unwrap()
}
