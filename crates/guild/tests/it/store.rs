use std::os::unix::fs::PermissionsExt;

use guild_store::{Db, Sqlite};
use insta::assert_snapshot;
use serde_json::json;

use crate::key::KEYSTORE;
use crate::node::{ANY_PORT, Node};
use crate::relays::until;
use crate::support::Home;

const DATABASE: &str = ".local/share/guildhall/node.db";

fn home_with_entries(count: usize) -> Home {
    let home = Home::new();
    for entry in 0..count {
        assert_eq!(home.run(&["log", "append", &format!("test.entry{entry}")]).code, 0);
    }
    home
}

#[test]
fn a_backup_beside_a_running_node_can_be_checked_and_used() {
    let home = home_with_entries(2);
    let node = Node::up(&home, &ANY_PORT);
    let (code, made) = home.json(&["store", "backup", "copy.db"]);
    let file = home.path().join("copy.db");
    let metadata = file.metadata().unwrap();
    assert_eq!((code, made["bytes"].as_u64()), (0, Some(metadata.len())));
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_snapshot!(home.run(&["store", "check"]).shown(&home), @"
    exit 0
    --- stdout
    the store is sound, 0 transfers audited
    ");
    assert_snapshot!(home.run(&["store", "backup", "copy.db"]).shown(&home), @"
    exit 2
    --- stderr
    error[store.backup_exists]: copy.db exists already
    help: Name another file, or add --force.
    ");
    assert_eq!(home.run(&["store", "backup", "copy.db", "--force"]).code, 0);
    assert_eq!(node.stop(), 0);
    // The copy in the place of the original is a data directory like any other, with the keystore of its node.
    let other = Home::new();
    other.write(DATABASE, std::fs::read(&file).unwrap());
    let run = other.run(&["up"]);
    assert!(run.code == 2 && run.stderr.contains("error[node.other_identity]"), "{run:?}");
    other.copy_private(&home, KEYSTORE);
    let (code, answer) = home.json(&["store", "check", "--backup", "copy.db"]);
    assert_eq!((code, answer), (0, json!({ "ok": true, "problems": [], "transfers": 0 })));
    let node = Node::up(&other, &ANY_PORT);
    assert_eq!(node.stop(), 0);
    let tail = other.run(&["log", "tail"]).stdout;
    assert!(tail.contains("test.entry0") && tail.contains("test.entry1"), "{tail}");
}

#[test]
fn what_is_wrong_is_named_and_the_answer_is_no() {
    let home = home_with_entries(3);
    let file = home.path().join(DATABASE);
    Sqlite::open(&file).unwrap().batch("DELETE FROM event WHERE seq = 2").unwrap();
    assert_snapshot!(home.run(&["store", "check"]).shown(&home), @"
    exit 1
    --- stdout
    FAILED  store.inconsistent: events 2 to 2 are missing
    the store is NOT sound, 0 transfers audited
    ");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let (code, answer) = home.json(&["store", "check"]);
    assert_eq!((code, &answer["problems"][0]["code"]), (1, &json!("store.damaged")));
    let (code, answer) = home.json(&["store", "backup", "copy.db"]);
    assert_eq!((code, &answer["error"]["code"]), (3, &json!("store.damaged")));
    std::fs::write(&file, "rubbish ".repeat(2_000)).unwrap();
    let (code, answer) = home.json(&["store", "check"]);
    assert_eq!((code, &answer["problems"][0]["code"]), (1, &json!("store.not_a_database")));
}

#[test]
fn what_cannot_be_found_out_is_not_answered() {
    let home = Home::new();
    for args in
        [&["store", "check"][..], &["store", "backup", "x"], &["store", "migrate", "--dry-run"]]
    {
        let (code, answer) = home.json(args);
        assert_eq!((code, &answer["error"]["code"]), (2, &json!("node.no_database")), "{args:?}");
    }
    let (code, answer) = home.json(&["store", "check", "--backup", "nothing.db"]);
    assert_eq!((code, &answer["error"]["code"]), (2, &json!("io.not_found")));
    let (code, answer) = home.json(&["store", "check", "--backup", "."]);
    assert_eq!((code, answer["ok"].as_bool()), (3, Some(false)));
    assert_eq!(home.run(&["store", "backup"]).code, 2);
    assert!(!home.path().join(DATABASE).exists(), "looking makes nothing");
    assert_eq!(home.run(&["log", "append", "test.done"]).code, 0);
    let (code, answer) = home.json(&["store", "backup", "no/such/place.db"]);
    assert_eq!((code, &answer["error"]["code"]), (3, &json!("store.backup_failed")));
}

#[test]
fn the_index_is_made_again_from_the_events() {
    let home = Home::new();
    assert_eq!(home.json(&["store", "reindex"]).1["error"]["code"], "node.no_database");
    let node = Node::up(&home, &ANY_PORT);
    let offers = || home.json(&["providers", "ls"]).1["providers"].as_array().map(Vec::len);
    until("announced", || offers() == Some(1));
    let (code, answer) = home.json(&["store", "reindex"]);
    assert_eq!((code, &answer["error"]["code"]), (2, &json!("node.running")));
    assert_eq!(node.stop(), 0);
    let mut database = Sqlite::open(&home.path().join(DATABASE)).unwrap();
    database.batch("DELETE FROM index_provider").unwrap();
    drop(database);
    assert_eq!(offers(), Some(0));
    let (code, answer) = home.json(&["store", "reindex"]);
    assert!(code == 0 && answer["events"].as_u64() > Some(0), "{answer}");
    assert_eq!(offers(), Some(1));
}

#[test]
fn the_schema_is_migrated_without_a_node_and_never_beside_one() {
    let home = Home::new();
    let (code, answer) = home.json(&["store", "migrate"]);
    let first = answer["applied"][0].clone();
    assert_eq!((code, first), (0, json!("store/0001_ground")));
    assert_snapshot!(home.run(&["store", "migrate"]).shown(&home), @"
    exit 0
    --- stdout
    the schema is up to date
    ");
    assert_eq!(
        home.json(&["store", "migrate", "--dry-run"]),
        (0, json!({ "ok": true, "pending": [] }))
    );
    let node = Node::up(&home, &ANY_PORT);
    let (code, answer) = home.json(&["store", "migrate"]);
    assert_eq!((code, &answer["error"]["code"]), (2, &json!("node.running")));
    assert_eq!(node.stop(), 0);
}

#[test]
fn a_node_whose_database_is_deleted_does_not_pretend_to_write() {
    let home = home_with_entries(1);
    let node = Node::up(&home, &ANY_PORT);
    let file = home.path().join(DATABASE);
    std::fs::rename(&file, home.path().join("away.db")).unwrap();
    assert_eq!(node.ended(), 3);
}

#[test]
fn old_entries_are_forgotten_if_the_owner_wants_it() {
    let home = home_with_entries(3);
    let file = home.path().join(DATABASE);
    Sqlite::open(&file).unwrap().batch("UPDATE event SET at_ms = 1000 WHERE seq <= 2").unwrap();
    let shown = || home.run(&["log", "tail", "-n", "100"]).stdout;
    assert_eq!(Node::up(&home, &ANY_PORT).stop(), 0);
    assert!(shown().contains("test.entry0"), "by default everything is kept");
    let keep = [&ANY_PORT[..], &["--set", "store.keep_events_days=30"]].concat();
    let node = Node::up(&home, &keep);
    while shown().contains("test.entry1") {}
    assert_eq!(node.stop(), 0);
    assert!(!shown().contains("test.entry0") && shown().contains("test.entry2"), "{}", shown());
    assert_eq!(home.run(&["store", "check"]).code, 0);
}
