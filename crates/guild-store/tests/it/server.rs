//! What a PostgreSQL server and its administrator do to a connection, short of going away.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use guild_store::event::{self, NewEvent};
use guild_store::{Access, Db, Error, Hooks, Migrations, Postgres, Rx, Tx, args};
use postgres::{Client, NoTls};
use testbed::postgres::Durability;

use crate::{Engine, Place, Scratch, block_on};

/// The lock that writers take turns by.
const TURN: &str = "SELECT pg_advisory_xact_lock(7452681103923456)";

fn put(tx: &mut Tx<'_>, id: &str) -> Result<(), Error> {
    let event = NewEvent { topic: "t", id, kind: "k", at_ms: 0, body: "{}" };
    event::append(tx, &event).map(|_| ())
}

fn ids(rx: &mut Rx<'_>) -> Result<Vec<(String,)>, Error> {
    rx.all("SELECT id FROM event ORDER BY seq", &[])
}

#[test]
fn a_wait_for_other_writers_that_is_cut_short_does_not_spoil_the_connection() {
    let scratch = Scratch::on(Engine::Postgres);
    let store = scratch.store();
    let mut other = Client::connect(&scratch.options().url, NoTls).unwrap();
    other.batch_execute(&format!("BEGIN; {TURN}")).unwrap();
    let waiting = store.write(|tx| put(tx, "cut short"));
    // As a statement_timeout or the end of our own patience would.
    let cancel = "SELECT pg_cancel_backend(pid) FROM pg_locks
                  WHERE locktype = 'advisory' AND NOT granted
                    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    while other.query(cancel, &[]).unwrap().is_empty() {}
    assert!(matches!(block_on(waiting), Err(Error::Database(_))));
    other.batch_execute("ROLLBACK").unwrap();
    assert_eq!(block_on(store.write(|tx| put(tx, "next"))), Ok(()));
    assert_eq!(block_on(store.read(ids)).unwrap(), [("next".to_owned(),)]);
}

#[test]
fn a_commit_lost_in_a_crash_is_not_taken_for_another_with_its_number() {
    let mut server = testbed::Postgres::start(Durability::Full).unwrap();
    let database = server.database().unwrap();
    let mut db = Postgres::new(&database.url()).unwrap();
    Migrations::store().apply(&mut db, 0).unwrap();
    db.begin(Access::Write).unwrap();
    db.exec("INSERT INTO counter (name, last) VALUES ('lost', 0)", &[]).unwrap();
    let mut number = 0;
    db.query("SELECT pg_current_xact_id()::text::bigint", &[], &mut |row| {
        let guild_store::Val::Int(int) = row.val(0)? else { panic!("no number") };
        number = int;
        Ok(())
    })
    .unwrap();
    // Nothing of it has reached the disk, so the server does not remember the number.
    server.crash();
    server.resume().unwrap();
    let mut other = Client::connect(&database.url(), NoTls).unwrap();
    let mut given: i64 = 0;
    while given < number {
        let row = other.query_one("SELECT pg_current_xact_id()::text::bigint", &[]).unwrap();
        given = row.get(0);
    }
    assert_eq!(given, number, "given once more");
    let answer = db.commit();
    let lost = "SELECT count(*) FROM counter WHERE name = 'lost'";
    assert_eq!(other.query_one(lost, &[]).unwrap().get::<_, i64>(0), 0);
    assert!(matches!(answer, Err(Error::CommitUnknown(_))), "{answer:?}");
}

#[test]
fn a_commit_before_an_orderly_restart_is_known_after_it() {
    let mut server = testbed::Postgres::start(Durability::Full).unwrap();
    let database = server.database().unwrap();
    let mut db = Postgres::new(&database.url()).unwrap();
    Migrations::store().apply(&mut db, 0).unwrap();
    db.begin(Access::Write).unwrap();
    db.exec("INSERT INTO counter (name, last) VALUES ('lost', 0)", &[]).unwrap();
    server.stop();
    server.resume().unwrap();
    let answer = db.commit();
    assert!(matches!(answer, Err(Error::Unreachable(_))), "rolled back for sure: {answer:?}");
    db.begin(Access::Write).unwrap();
    assert_eq!(db.exec("DELETE FROM counter WHERE name = 'lost'", &[]), Ok(0));
    db.rollback();
}

#[test]
fn a_session_that_the_server_ends_while_it_is_idle_is_made_again() {
    let scratch = Scratch::on(Engine::Postgres);
    let store = scratch.store();
    let set = store.write(|tx| tx.exec("SET idle_session_timeout = '20ms'", args![]));
    block_on(set).unwrap();
    let mut admin = Client::connect(&scratch.options().url, NoTls).unwrap();
    let others = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()
                  AND pid <> pg_backend_pid() AND query LIKE '%COMMIT%'";
    while !admin.query(others, &[]).unwrap().is_empty() {}
    assert_eq!(block_on(store.write(|tx| put(tx, "a"))), Ok(()));
}

#[test]
fn an_answer_waits_for_the_disk_whatever_the_server_s_default_is() {
    let scratch = Scratch::on(Engine::Postgres);
    let mut admin = Client::connect(&scratch.options().url, NoTls).unwrap();
    let setting = |row: postgres::Row| row.get::<_, String>(0);
    let default = admin.query_one("SHOW synchronous_commit", &[]).map(setting).unwrap();
    assert_eq!(default, "off", "otherwise this test shows nothing");
    let ours = scratch
        .store()
        .write(|tx| tx.first::<(String,)>("SELECT current_setting('synchronous_commit')", args![]));
    assert_eq!(block_on(ours).unwrap(), Some(("on".to_owned(),)));
}

#[test]
fn a_server_without_room_is_told_from_one_that_refuses() {
    let scratch = Scratch::on(Engine::Postgres);
    let full = scratch.store().write(|tx| {
        let sql = "DO $do$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END $do$";
        tx.exec(sql, args![])
    });
    assert_eq!(block_on(full).unwrap_err().code().name, "store.full");
}

#[test]
fn a_migration_that_was_only_unlucky_says_so() {
    let place = Place::on(Engine::Postgres);
    place.open(Hooks::default()).close();
    let sql = "DO $do$ BEGIN RAISE EXCEPTION 'met another' USING ERRCODE = '40P01'; END $do$";
    let unlucky = guild_store::Migration { area: "x", number: 1, name: "y", sql: sql.into() };
    let mut db = Postgres::new(&place.options().url).unwrap();
    let refused = Migrations::store().and([unlucky]).apply(&mut db, 0).unwrap_err();
    assert_eq!(refused.code().name, "store.busy", "{refused}");
}

#[test]
fn a_writer_does_not_stay_with_a_server_that_only_reads() {
    let scratch = Scratch::on(Engine::Postgres);
    let store = scratch.store();
    let mut admin = Client::connect(&scratch.options().url, NoTls).unwrap();
    admin.batch_execute("SET default_transaction_read_only = off").unwrap();
    // As if the name led to a standby now, and later to its successor.
    let mut reads_only = |setting: &str| {
        let alter = format!(
            "DO $do$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = {setting}',
             current_database()); END $do$"
        );
        admin.batch_execute(&alter).unwrap();
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
        if setting == "on" {
            admin.batch_execute(end).unwrap();
        }
    };
    reads_only("on");
    let refused = block_on(store.write(|tx| put(tx, "no"))).unwrap_err();
    assert_eq!(refused.code().name, "store.unreachable", "{refused}");
    assert_eq!(block_on(store.read(ids)), Ok(Vec::new()));
    reads_only("off");
    assert_eq!(block_on(store.write(|tx| put(tx, "yes"))), Ok(()));
}

#[test]
fn a_lock_that_was_waited_for_in_vain_is_not_waited_for_again_and_again() {
    let scratch = Scratch::on(Engine::Postgres);
    let store = scratch.store();
    let runs = Arc::new(AtomicU64::new(0));
    let counted = runs.clone();
    let locked = store.write(move |tx| {
        counted.fetch_add(1, Ordering::SeqCst);
        let sql = "DO $do$ BEGIN RAISE EXCEPTION 'locked' USING ERRCODE = '55P03'; END $do$";
        tx.exec(sql, args![])
    });
    assert_eq!(block_on(locked), Err(Error::Locked));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(block_on(store.write(|tx| put(tx, "next"))), Ok(()));
}
