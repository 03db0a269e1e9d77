use std::path::{Path, PathBuf};

use guild_protocol::error::Kind;
use guild_store::event::{self, NewEvent};
use guild_store::outbox::{self, NewMessage};
use guild_store::{Error, Migrations, check};

use crate::{Engine, Scratch, block_on};

/// A closed store of some size, as one file.
fn filled() -> (Scratch, PathBuf) {
    let mut scratch = Scratch::on(Engine::Sqlite);
    let written = scratch.store().write(|tx| {
        for i in 0..200 {
            let id = format!("e{i}");
            let body = format!("{{\"text\":\"{}\"}}", "x".repeat(500));
            event::append(tx, &NewEvent { topic: "t", id: &id, kind: "k", at_ms: i, body: &body })?;
            let message = NewMessage { sink: "s", key: "a", idempotency_key: &id, body: "{}" };
            outbox::enqueue(tx, &message, i)?;
        }
        Ok::<_, Error>(())
    });
    block_on(written).unwrap();
    scratch.close();
    let file = scratch.place.dir.path().join("node.db");
    (scratch, file)
}

on_both! {
    contradictions_between_tables_are_found,
}

fn contradictions_between_tables_are_found(engine: Engine) {
    let cases = [
        ("DELETE FROM event WHERE seq BETWEEN 2 AND 3", "events 2 to 3 are missing"),
        (
            "UPDATE outbox_lane SET due_ms = 77",
            "lane s a is due at another time than its first message",
        ),
        (
            "UPDATE outbox_lane SET due_ms = NULL",
            "lane s a is due at another time than its first message",
        ),
        ("DELETE FROM outbox_lane", "messages of s a wait without a lane"),
        ("UPDATE outbox_lane SET until_ms = 5", "lane s a is held by nobody and by somebody"),
        (
            "INSERT INTO lease (name, epoch, until_ms) VALUES ('n', 1, 5)",
            "lease n is held by nobody and by somebody",
        ),
    ];
    for (change, said) in cases {
        let scratch = Scratch::on(engine);
        let found = scratch.store().write(move |tx| {
            for i in 0..5 {
                let id = format!("e{i}");
                event::append(
                    tx,
                    &NewEvent { topic: "t", id: &id, kind: "k", at_ms: i, body: "{}" },
                )?;
            }
            let message = NewMessage { sink: "s", key: "a", idempotency_key: "m", body: "{}" };
            outbox::enqueue(tx, &message, 0)?;
            assert_eq!(check::tables(tx)?, []);
            tx.exec(change, &[])?;
            check::tables(tx)
        });
        let found: Vec<String> = block_on(found).unwrap().into_iter().map(|p| p.message).collect();
        assert_eq!(found, [said], "{change}");
    }
}

fn codes(file: &Path) -> Vec<&'static str> {
    let found = check::file(file, &Migrations::store()).unwrap();
    found.into_iter().map(|problem| problem.code.name).collect()
}

#[test]
fn a_sound_store_has_no_problems_also_beside_its_writer() {
    let (mut scratch, file) = filled();
    assert_eq!(codes(&file), [""; 0]);
    scratch.reopen();
    assert_eq!(codes(&file), [""; 0]);
    assert_eq!(block_on(scratch.store().read(check::tables)).unwrap(), []);
}

#[test]
fn a_file_that_is_no_database_is_told_from_a_damaged_one() {
    let (scratch, file) = filled();
    let whole = std::fs::read(&file).unwrap();
    let copy = scratch.place.dir.path().join("copy.db");
    std::fs::write(&copy, "not a database, ".repeat(1_000)).unwrap();
    assert_eq!(codes(&copy), ["store.not_a_database"]);
    std::fs::write(&copy, &whole[..whole.len() / 2]).unwrap();
    assert_eq!(codes(&copy)[0], "store.damaged", "cut off in the middle");
    std::fs::write(&copy, &whole[..whole.len() / 2 + 100]).unwrap();
    assert_eq!(codes(&copy)[0], "store.damaged", "cut off inside a page");
    std::fs::write(&copy, &whole[..50]).unwrap();
    assert_eq!(codes(&copy), ["store.damaged"], "cut off inside the header");
    let missing = check::file(&scratch.place.dir.path().join("no.db"), &Migrations::store());
    assert_eq!(missing.unwrap_err().kind(), Kind::Unavailable);
    let directory = check::file(scratch.place.dir.path(), &Migrations::store());
    assert!(matches!(directory, Err(Error::NotADatabase(_))));
}

#[test]
fn a_page_of_rubbish_is_found_wherever_it_is() {
    let (scratch, file) = filled();
    let whole = std::fs::read(&file).unwrap();
    let copy = scratch.place.dir.path().join("copy.db");
    let page = 4_096;
    let pages = whole.len() / page;
    assert!(pages > 20, "{pages} pages");
    for number in 1..pages {
        let mut damaged = whole.clone();
        damaged[number * page..(number + 1) * page].fill(0xA5);
        std::fs::write(&copy, &damaged).unwrap();
        assert_eq!(codes(&copy).first(), Some(&"store.damaged"), "page {number} of {pages}");
    }
}

/// What is changed in the file, and what is said about it.
#[test]
fn every_kind_of_planted_contradiction_is_found() {
    let cases = [
        ("DELETE FROM event WHERE seq BETWEEN 5 AND 7", "events 5 to 7 are missing"),
        ("DELETE FROM event WHERE seq = 1", "events 1 to 1 are missing"),
        ("DELETE FROM event WHERE seq = 200", "the newest event is 199, but 200 was given"),
        ("DROP INDEX event_by_topic", "the index event_by_topic is missing"),
        ("CREATE TABLE other (x)", "the table other is not made by any migration"),
        (
            "DROP INDEX outbox_queued; CREATE INDEX outbox_queued ON outbox (seq)",
            "the index outbox_queued is not as the migrations make it",
        ),
        (
            "UPDATE outbox_lane SET due_ms = 77",
            "lane s a is due at another time than its first message",
        ),
        (
            "UPDATE outbox_lane SET due_ms = NULL",
            "lane s a is due at another time than its first message",
        ),
        ("DELETE FROM outbox_lane", "messages of s a wait without a lane"),
        ("UPDATE outbox_lane SET until_ms = 5", "lane s a is held by nobody and by somebody"),
        (
            "INSERT INTO lease VALUES ('n', NULL, NULL, 1, 5)",
            "lease n is held by nobody and by somebody",
        ),
        (
            "PRAGMA foreign_keys = OFF; INSERT INTO event_pin VALUES ('t', 'e999', 'r')",
            "a row of event_pin refers to nothing in event",
        ),
    ];
    for (change, said) in cases {
        let (mut scratch, file) = filled();
        rusqlite::Connection::open(&file).unwrap().execute_batch(change).unwrap();
        let mut found = check::file(&file, &Migrations::store()).unwrap();
        scratch.reopen();
        found.extend(block_on(scratch.store().read(check::tables)).unwrap());
        let texts: Vec<_> = found.iter().map(|problem| problem.message.as_str()).collect();
        assert!(texts.contains(&said), "{change}: {texts:?}");
    }
}

#[test]
fn a_schema_of_another_version_cannot_be_judged() {
    let (_scratch, file) = filled();
    let db = rusqlite::Connection::open(&file).unwrap();
    db.execute_batch("INSERT INTO schema_migration VALUES ('store', 99, 'later', 'x', 0)").unwrap();
    let refused = check::file(&file, &Migrations::store());
    assert_eq!(refused, Err(Error::NewerSchema("store/0099_later".to_owned())));
    db.execute_batch("DELETE FROM schema_migration WHERE number > 1").unwrap();
    let refused = check::file(&file, &Migrations::store());
    assert_eq!(refused, Err(Error::OlderSchema("store/0002_leases".to_owned())));
}
