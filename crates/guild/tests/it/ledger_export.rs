//! From commands that move money, over an export, to a stranger who checks it.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use insta::assert_snapshot;
use serde_json::Value;

use crate::node::{ANY_PORT, Node};
use crate::support::Home;

/// A home in which money has moved in every way.
fn busy_home() -> Home {
    let home = Home::new();
    let did = |args: &[&str]| {
        let (code, answer) = home.json(&[&["ledger"], args].concat());
        assert_eq!(code, 0, "{args:?}: {answer}");
        answer
    };
    did(&["open", "outside", "main", "--asset", "USD_MICRO", "--limit", "none"]);
    did(&["open", "ann", "main", "--asset", "USD_MICRO"]);
    did(&["open", "bob", "main", "--asset", "USD_MICRO"]);
    did(&["transfer", "--from", "outside/main", "--to", "ann/main", "--units", "1000"]);
    did(&["rule", "ann/main", "--reserve", "300", "--lets-through", "fees"]);
    let pay = ["transfer", "--from", "ann/main", "--to", "bob/main", "--units", "100"];
    let hold = did(&[&pay[..], &["--hold-until", "1h"]].concat());
    did(&["settle", hold["transfer_id"].as_str().unwrap(), "--units", "60"]);
    let hold = did(&[&pay[..], &["--hold-until", "1h"]].concat());
    did(&["void", hold["transfer_id"].as_str().unwrap()]);
    home
}

fn audit(home: &Home, directory: &str) -> (i32, Value) {
    home.json(&["audit", "--evidence", directory])
}

#[test]
fn what_is_exported_is_believed_and_one_changed_byte_is_not() {
    let home = busy_home();
    let node = Node::up(&home, &ANY_PORT);
    let run = home.run(&["ledger", "export", "--evidence", "proof"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(
        run.stdout.contains(" bytes, 11 records, 1 events, 0 receipts\nhead sha256:"),
        "{run:?}"
    );
    assert_eq!(node.stop(), 0);
    let directory = home.path().join("proof");
    let files = ["ledger.jsonl", "events.jsonl", "keys.json"];
    for (file, mode) in files.map(|file| (file, 0o600)).into_iter().chain([("", 0o700)]) {
        let metadata = directory.join(file).metadata().unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, mode, "{file}");
    }
    assert_eq!(fs::read_dir(&directory).unwrap().count(), files.len(), "no draft is left");
    let (code, answer) = audit(&home, "proof");
    assert_eq!(code, 0, "{answer}");
    let counts = ["records", "accounts", "transfers", "events"].map(|name| answer[name].as_i64());
    assert_eq!(counts, [Some(11), Some(5), Some(5), Some(1)]);
    // One byte of every line, in turn: no line can be changed unseen.
    let file = directory.join("ledger.jsonl");
    let honest = fs::read(&file).unwrap();
    let mut start = 0;
    for (number, line) in honest.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let mut bent = honest.clone();
        let at = start + line.len() / 2;
        bent[at] = if bent[at] == b'1' { b'2' } else { b'1' };
        fs::write(&file, &bent).unwrap();
        let (code, answer) = audit(&home, "proof");
        assert_eq!(code, 1, "line {}: {answer}", number + 1);
        let problem = &answer["problems"][0];
        assert_eq!(problem["file"], "ledger.jsonl");
        let named = problem["line"].as_u64();
        assert!(named.is_some_and(|named| named >= u64::try_from(number).unwrap()), "{answer}");
        start += line.len();
    }
    fs::write(&file, &honest[..honest.len() / 2]).unwrap();
    assert_eq!(audit(&home, "proof").0, 1, "a cut file");
}

#[test]
fn an_export_goes_to_standard_output_or_to_a_file_that_is_whole_or_not_there() {
    let home = busy_home();
    let piped = home.run(&["ledger", "export"]);
    assert_eq!((piped.code, piped.stderr.as_str()), (0, ""));
    let (code, told) = home.json(&["ledger", "export", "out.jsonl"]);
    let file = home.path().join("out.jsonl");
    let written = fs::read_to_string(&file).unwrap();
    assert_eq!(written, piped.stdout);
    let size = u64::try_from(written.len()).unwrap();
    assert_eq!((code, told["bytes"].as_u64(), told["last_seq"].as_i64()), (0, Some(size), Some(9)));
    assert!(written.lines().last().unwrap().contains(told["head"].as_str().unwrap()));
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    fs::write(&file, "mine").unwrap();
    assert_snapshot!(home.run(&["ledger", "export", "out.jsonl"]).shown(&home), @"
    exit 2
    --- stderr
    error[io.exists]: entity already exists
      --> out.jsonl
    help: Name another place, or add --force to replace what is there.
    ");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    assert_eq!(home.run(&["ledger", "export", "out.jsonl", "--force"]).code, 0);
    assert_eq!(fs::read_to_string(&file).unwrap(), written);
    assert_eq!(home.run(&["ledger", "export", "."]).code, 2);
    let refused = home.run(&["ledger", "export", "--evidence", "."]);
    assert!(refused.code == 2 && refused.stderr.contains("error[io.exists]"), "{refused:?}");
    assert_eq!(home.run(&["ledger", "export", "--evidence", "proof"]).code, 0);
    assert_eq!(home.run(&["ledger", "export", "--evidence", "proof"]).code, 2);
    assert_eq!(home.run(&["ledger", "export", "--evidence", "proof", "--force"]).code, 0);
    assert_eq!(audit(&home, "proof").0, 0);
}

#[test]
fn an_entry_that_is_too_long_for_a_line_is_named_by_its_hash() {
    let home = busy_home();
    let detail = format!(r#"{{"text":"{}"}}"#, "x".repeat(65_430));
    assert_eq!(home.run(&["log", "append", "long.entry", "--detail", &detail]).code, 0);
    assert_eq!(home.run(&["ledger", "export", "--evidence", "proof"]).code, 0);
    let events = fs::read_to_string(home.path().join("proof/events.jsonl")).unwrap();
    assert!(events.contains("\"detail_hash\":\"sha256:"), "{}", events.len());
    let (code, answer) = audit(&home, "proof");
    assert_eq!((code, answer["events"].as_i64()), (0, Some(1)), "{answer}");
}
