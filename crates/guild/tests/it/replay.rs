use std::fs;

use insta::assert_snapshot;
use serde_json::Value;

use crate::checks::vector;
use crate::support::Home;

fn home() -> Home {
    let home = Home::new();
    home.write("replay.jsonl", vector("replay.jsonl"));
    home.write("receipt.json", vector("replay.receipt.json"));
    home
}

const VERIFY: [&str; 5] = ["replay", "verify", "replay.jsonl", "--receipt", "receipt.json"];

/// The replay as it stands on the disk after a crash: the last whole line is lost, the one before is torn.
fn torn() -> String {
    let whole = vector("replay.jsonl");
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let kept = lines.len() - 2;
    let half = &lines[kept][..lines[kept].len() / 2];
    lines[..kept].concat() + half
}

#[test]
fn a_replay_is_verified_against_its_receipt() {
    let home = home();
    assert_snapshot!(home.run(&VERIFY).shown(&home), @"
    exit 0
    --- stdout
    replay.jsonl: verified: sealed, and signed for by its receipt
      ok      lines             every line is JSON of its form
      ok      fields            every event has its fields
      ok      order             calls, results and totals add up
      ok      hashes            the stated hashes are those of the content
      ok      chain             every line continues the chain up to the seal
      ok      receipt           the receipt holds
      ok      trajectory_hash   the seal is the one the receipt names
      ok      session_id        of one session
      ok      policy_bundle_id  under one policy
      ok      origin            not marked as repaired or imported

      session     session-7
      trajectory  sha256:081eb8785115aae96965db591f959bf74bd713ca5a210b7800661c750aba4293
      signed by   npub1fu64hh9hes90w2808n8tjc2ajp5yhddjef0ctx4s7zmsgp6cwx4qgy4eg9
      lines       10
      tool calls  1
    ");
    let (code, answer) = home.json(&VERIFY);
    assert_eq!((code, &answer["standing"]), (0, &"verified".into()));
    let (code, answer) = home.json(&["replay", "verify", "replay.jsonl"]);
    assert_eq!((code, &answer["standing"]), (0, &"sealed".into()));
    assert!(answer["signed_by"].is_null());
    let run = home.run_with_input(&["replay", "verify", "-"], vector("replay.jsonl").as_bytes());
    assert_eq!(run.code, 0);
}

#[test]
fn a_changed_line_is_a_no_that_names_line_and_field() {
    let home = home();
    home.write("replay.jsonl", vector("replay.jsonl").replace("src/lib.rs", "src/lob.rs"));
    let run = home.run(&VERIFY);
    assert_eq!(run.code, 1);
    assert!(run.stdout.starts_with("replay.jsonl: refused\n"), "{run:?}");
    let (_, answer) = home.json(&VERIFY);
    let checks = answer["checks"].as_array().unwrap();
    let failed: Vec<&Value> = checks.iter().filter(|check| check["ok"] == false).collect();
    assert!(failed.iter().any(|check| check["line"] == 4), "{failed:?}");
    assert!(failed.iter().any(|check| check["field"] == "params.path"), "{failed:?}");
}

#[test]
fn a_receipt_of_another_session_is_a_no_and_a_bad_one_is_refused() {
    let home = home();
    let other: Value = serde_json::from_str(&vector("receipt.json")).unwrap();
    home.write("receipt.json", other["bytes"].as_str().unwrap());
    assert_eq!(home.run(&VERIFY).code, 1);
    home.write("receipt.json", "{}");
    let (code, answer) = home.json(&VERIFY);
    assert_eq!((code, &answer["error"]["file"]), (2, &"receipt.json".into()), "{answer}");
}

#[test]
fn an_interrupted_replay_is_closed_but_is_no_evidence() {
    let home = home();
    let torn = torn();
    home.write("torn.jsonl", &torn);
    assert_eq!(home.run(&["replay", "verify", "torn.jsonl"]).code, 1);

    // To standard output: nothing on the disk changes.
    let before = home.contents();
    let run = home.run(&["replay", "repair", "torn.jsonl"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stderr.contains("the replay says that it was repaired"), "{run:?}");
    assert_eq!(home.contents(), before);

    // To a file of its own.
    let (code, answer) = home.json(&["replay", "repair", "torn.jsonl", "--out", "whole.jsonl"]);
    assert_eq!((code, &answer["out"]), (0, &"whole.jsonl".into()));
    assert_eq!(fs::read_to_string(home.path().join("whole.jsonl")).unwrap(), run.stdout);
    assert_eq!(fs::read_to_string(home.path().join("torn.jsonl")).unwrap(), torn);
    let (code, answer) = home.json(&["replay", "verify", "whole.jsonl"]);
    assert_eq!((code, &answer["standing"]), (1, &"repaired".into()));

    // Never over another file, and over itself only when told so.
    let before = home.contents();
    let (code, answer) = home.json(&["replay", "repair", "torn.jsonl", "--out", "receipt.json"]);
    assert_eq!((code, &answer["error"]["code"]), (2, &"io.exists".into()));
    assert_eq!(home.contents(), before);
    let in_place = ["replay", "repair", "torn.jsonl", "--in-place", "--status", "timeout"];
    assert_eq!(home.run(&in_place).code, 0);
    let repaired = fs::read_to_string(home.path().join("torn.jsonl")).unwrap();
    assert!(repaired.contains("\"Timeout\"") && repaired.starts_with(&torn[..100]));

    // What is whole is not repaired.
    let (code, answer) = home.json(&["replay", "repair", "replay.jsonl", "--in-place"]);
    assert_eq!((code, &answer["error"]["code"]), (2, &"replay.not_repairable".into()));
    let (code, answer) = home.json(&["replay", "repair", "-", "--in-place"]);
    assert_eq!((code, &answer["error"]["code"]), (2, &"cli.usage".into()));
}

#[test]
fn a_bundle_comes_in_and_goes_out_but_is_no_evidence() {
    let home = home();
    let run = home.run(&["replay", "export", "replay.jsonl", "--out", "bundle.json"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "bundle.json\n"), "{run:?}");
    let run = home.run(&["replay", "import", "bundle.json", "--out", "back.jsonl"]);
    assert_eq!(run.code, 0, "{run:?}");
    let (code, answer) = home.json(&["replay", "verify", "back.jsonl"]);
    assert_eq!((code, &answer["standing"]), (1, &"imported".into()));
    let (_, inside) = home.json(&["replay", "import", "bundle.json"]);
    let back = fs::read_to_string(home.path().join("back.jsonl")).unwrap();
    assert_eq!(inside["content"].as_str().unwrap(), back);
    let (code, answer) = home.json(&["replay", "import", "replay.jsonl"]);
    assert_eq!((code, &answer["ok"]), (2, &false.into()));
    home.write("bundle.json", r#"{"version": "9.0"}"#);
    assert_eq!(home.run(&["replay", "import", "bundle.json"]).code, 2);
}

#[test]
fn a_replay_of_an_unknown_version_is_refused() {
    let home = home();
    let newer = vector("replay.jsonl").replace("\"replay_version\":1", "\"replay_version\":2");
    home.write("replay.jsonl", newer);
    for command in ["verify", "repair", "export"] {
        let (code, answer) = home.json(&["replay", command, "replay.jsonl"]);
        assert_eq!((code, &answer["error"]["code"]), (2, &"replay.unknown_version".into()));
    }
}

#[test]
fn a_line_without_end_is_refused_at_the_limit() {
    let home = home();
    let file = fs::File::create(home.path().join("long.jsonl")).unwrap();
    file.set_len(100_000_000).unwrap();
    drop(file);
    let (code, answer) = home.json(&["replay", "verify", "long.jsonl"]);
    assert_eq!(code, 2, "{answer}");
}
