#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use guild_store::{Db, Sqlite};
use insta::assert_snapshot;
use serde_json::json;

use crate::node::{ANY_PORT, Node};
use crate::support::Home;

/// A data directory with two dead letters and a message that waits.
fn home_with_messages() -> Home {
    let home = Home::new();
    for entry in 1..=3 {
        let id = format!("entry_{entry:032x}");
        assert_eq!(home.run(&["log", "append", "test.done", "--id", &id]).code, 0);
    }
    let file = home.path().join(".local/share/guildhall/node.db");
    let die = "UPDATE outbox SET state = 'dead', closed_ms = created_ms, attempts = 12, last_error = 'nobody there'
               WHERE seq <= 2; UPDATE outbox SET due_ms = 5; UPDATE outbox_lane SET due_ms = 5";
    Sqlite::open(&file).unwrap().batch(die).unwrap();
    home
}

#[test]
fn messages_are_listed_and_dead_ones_retried_without_a_node() {
    let home = home_with_messages();
    assert_snapshot!(home.run(&["outbox", "ls"]).shown(&home), @"
    exit 0
    --- stdout
         1  dead    bus audit  entry_00000000000000000000000000000001  tried 12: nobody there
         2  dead    bus audit  entry_00000000000000000000000000000002  tried 12: nobody there
         3  queued  bus audit  entry_00000000000000000000000000000003  tried 0
    ");
    let count = |args: &[&str]| {
        let (code, answer) = home.json(&[&["outbox", "ls"], args].concat());
        assert_eq!(code, 0);
        answer["messages"].as_array().unwrap().len()
    };
    assert_eq!([count(&["--dead"]), count(&["--queued"]), count(&["--all"])], [2, 1, 3]);
    assert_eq!([count(&["--limit", "2"]), count(&["--sink", "relay"])], [2, 0]);
    let (code, answer) = home.json(&["outbox", "retry", "1", "3", "77"]);
    assert_eq!((code, answer), (1, json!({ "ok": false, "retried": [1], "not_dead": [3, 77] })));
    assert_snapshot!(home.run(&["outbox", "retry", "--all-dead"]).shown(&home), @"
    exit 0
    --- stdout
    1 queued again
    ");
    assert_eq!(count(&["--dead"]), 0);
    assert_eq!(home.run(&["store", "check"]).code, 0);
}

#[test]
fn a_running_node_retries_and_delivers() {
    let home = home_with_messages();
    let node = Node::up(&home, &ANY_PORT);
    let (code, answer) = home.json(&["outbox", "retry", "--all-dead", "--sink", "bus"]);
    assert_eq!((code, &answer["retried"]), (0, &json!([1, 2])));
    while home.run(&["outbox", "ls"]).stdout != "no message\n" {}
    let (_, all) = home.json(&["outbox", "ls", "--all"]);
    assert_eq!(all["messages"][0]["state"], "done");
    assert_eq!(node.stop(), 0);
}

#[test]
fn rubbish_is_refused_and_makes_nothing() {
    let home = Home::new();
    let cases: [&[&str]; 10] = [
        &["outbox", "retry"],
        &["outbox", "retry", "x"],
        &["outbox", "retry", "0"],
        &["outbox", "retry", "99999999999999999999"],
        &["outbox", "retry", "1", "--all-dead"],
        &["outbox", "retry", "1", "--sink", "bus"],
        &["outbox", "retry", "--all-dead", "--sink", ""],
        &["outbox", "ls", "--dead", "--all"],
        &["outbox", "ls", "--limit", "0"],
        &["outbox", "ls", "--limit", "-1"],
    ];
    for args in cases {
        let (code, answer) = home.json(args);
        assert_eq!((code, &answer["error"]["code"]), (2, &json!("cli.usage")), "{args:?}");
    }
    for args in [&["outbox", "ls"][..], &["outbox", "retry", "1"]] {
        let (code, answer) = home.json(args);
        assert_eq!((code, &answer["error"]["code"]), (2, &json!("node.no_database")), "{args:?}");
    }
    assert!(!home.path().join(".local").exists());
}
