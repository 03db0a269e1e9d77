//! Databases that earlier releases wrote. See `tests/fixtures/schema/README.md`.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::fs;
use std::path::{Path, PathBuf};

use guild_store::{Db, Sqlite};
use serde_json::Value;

use crate::node::{ANY_PORT, Node};
use crate::support::Home;

const DATABASE: &str = ".local/share/guildhall/node.db";

fn fixtures() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/schema");
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|end| end == "db")).collect()
}

fn home_with(fixture: &Path) -> Home {
    let home = Home::new();
    home.write(DATABASE, fs::read(fixture).unwrap());
    home
}

fn actions(home: &Home) -> Vec<String> {
    let run = home.run(&["log", "tail", "--json", "-n", "1000"]);
    assert_eq!(run.code, 0, "{run:?}");
    let action =
        |line| serde_json::from_str::<Value>(line).unwrap()["action"].as_str().unwrap().to_owned();
    run.stdout.lines().map(action).collect()
}

#[test]
fn every_earlier_database_opens_migrates_and_is_sound() {
    let fixtures = fixtures();
    assert!(!fixtures.is_empty());
    for fixture in fixtures {
        let home = home_with(&fixture);
        let (code, pending) = home.json(&["store", "migrate", "--dry-run"]);
        let pending = pending["pending"].as_array().unwrap().clone();
        assert_eq!(code, 0, "{fixture:?}");
        assert_eq!(home.run(&["store", "backup", "before.db"]).code, 0, "it can be saved before");
        let (code, applied) = home.json(&["store", "migrate"]);
        assert_eq!((code, &applied["applied"]), (0, &Value::from(pending)), "{fixture:?}");
        for check in [&["store", "check"][..], &["ledger", "audit"]] {
            let run = home.run(check);
            assert_eq!(run.code, 0, "{fixture:?}: {run:?}");
        }
        let before = actions(&home);
        assert!(before.contains(&"fixture.entry1".to_owned()), "{fixture:?}: {before:?}");
        assert_eq!(Node::up(&home, &ANY_PORT).stop(), 0);
        let after = actions(&home);
        assert_eq!(after, [&before[..], &["node.started".into(), "node.stopped".into()]].concat());
        let run = home.run(&["store", "check"]);
        assert_eq!(run.code, 0, "{fixture:?}: {run:?}");
    }
}

#[test]
fn the_log_of_the_first_schema_is_whole_when_a_node_migrates_it() {
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/schema/0001-ground.db");
    let home = home_with(&fixture);
    assert_eq!(Node::up(&home, &ANY_PORT).stop(), 0);
    let written = [
        "node.started",
        "fixture.entry1",
        "fixture.entry2",
        "fixture.entry3",
        "node.stopped",
        "fixture.after",
    ];
    assert_eq!(actions(&home)[..6], written);
    let waiting = home.run(&["outbox", "ls"]).stdout;
    assert!(!waiting.contains("dead"), "{waiting}");
    assert_eq!(home.run(&["ledger", "audit"]).code, 0);
}

#[test]
fn a_database_of_a_later_program_is_refused_and_left_alone() {
    for fixture in fixtures() {
        let home = home_with(&fixture);
        let file = home.path().join(DATABASE);
        let later = "INSERT INTO schema_migration VALUES ('store', 99, 'later', 'sha256:0', 0)";
        Sqlite::open(&file).unwrap().batch(later).unwrap();
        let before = fs::read(&file).unwrap();
        for args in [
            &["up"][..],
            &["log", "append", "test.done"],
            &["store", "migrate"],
            &["store", "migrate", "--dry-run"],
            &["store", "check"],
            &["ledger", "audit"],
        ] {
            let (code, answer) = home.json(args);
            assert_eq!(
                (code, answer["error"]["code"].as_str()),
                (2, Some("store.newer_schema")),
                "{args:?}"
            );
        }
        assert_eq!(fs::read(&file).unwrap(), before);
    }
}
