//! What real hosts do to a database: no room, no rights, no file, rubbish in it, somebody who does not let go.

use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc;

use guild_protocol::env::{BoxFuture, Clock, Shutdown, UnixMs};
use guild_protocol::error::Kind;
use guild_store::{Error, Hooks, Migrations, Options, Service, Store, Tx, Watch, args, check};

use crate::{Engine, Scratch, block_on};

fn put(tx: &mut Tx<'_>, id: &str, bytes: usize) -> Result<(), Error> {
    let sql = "INSERT INTO event (topic, id, kind, at_ms, body) VALUES ('t', $1, 'k', 0, $2)";
    tx.exec(sql, args![id, &"x".repeat(bytes)]).map(|_| ())
}

fn ids(store: &Store) -> Vec<String> {
    let rows = store.read(|rx| rx.all::<(String,)>("SELECT id FROM event ORDER BY seq", args![]));
    block_on(rows).unwrap().into_iter().map(|(id,)| id).collect()
}

/// How many pages the database may have from now on; SQLite then says that the disk is full.
fn set_room(store: &Store, pages: &'static str) {
    let set = store.write(move |tx| tx.all::<(i64,)>(pages, args![]));
    block_on(set).unwrap();
}

#[test]
fn a_full_disk_in_the_middle_of_a_commit_stops_only_what_did_not_fit() {
    let scratch = Scratch::on(Engine::Sqlite);
    let store = scratch.store();
    set_room(&store, "PRAGMA max_page_count = 60");
    // The first call holds the writer until all others wait: they then share one commit. It may run more than once.
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let first = store.write(move |tx| {
        let _ = wait.lock().unwrap().recv();
        put(tx, "first", 10)
    });
    let small = store.write(|tx| put(tx, "small", 10));
    let large = store.write(|tx| {
        tx.ring("never", 0);
        put(tx, "half", 10)?;
        put(tx, "large", 2_000_000)
    });
    let last = store.write(|tx| put(tx, "last", 10));
    drop(go);
    block_on(async {
        first.await.unwrap();
        small.await.unwrap();
        let refused = large.await.unwrap_err();
        assert_eq!(refused.kind(), Kind::Unavailable, "{refused:?}");
        assert!(refused.to_string().contains("full"), "{refused}");
        last.await.unwrap();
    });
    assert_eq!(ids(&store), ["first", "small", "last"], "nothing is half done");
    // There is room again: it goes on as if nothing had been.
    set_room(&store, "PRAGMA max_page_count = 100000");
    block_on(store.write(|tx| put(tx, "large", 2_000_000))).unwrap();
    assert_eq!(ids(&store), ["first", "small", "last", "large"]);
    assert_eq!(block_on(store.read(check::tables)).unwrap(), []);
}

#[test]
fn a_database_without_any_room_refuses_every_write_and_can_still_be_read() {
    let scratch = Scratch::on(Engine::Sqlite);
    let store = scratch.store();
    block_on(store.write(|tx| put(tx, "before", 10))).unwrap();
    set_room(&store, "PRAGMA max_page_count = 1");
    for _ in 0..3 {
        let refused = block_on(store.write(|tx| put(tx, "no", 100_000))).unwrap_err();
        assert_eq!(refused.kind(), Kind::Unavailable, "{refused:?}");
    }
    assert_eq!(ids(&store), ["before"]);
}

fn open(options: &Options) -> Result<(), Error> {
    Service::open(options, &Migrations::store(), Hooks::default(), 0).map(Service::close)
}

#[test]
fn a_damaged_file_is_refused_when_it_is_opened_and_not_changed() {
    let mut scratch = Scratch::on(Engine::Sqlite);
    block_on(scratch.store().write(|tx| put(tx, "a", 100_000))).unwrap();
    scratch.close();
    let file = scratch.place.dir.path().join("node.db");
    let whole = std::fs::read(&file).unwrap();
    let mut schema_gone = whole.clone();
    schema_gone[100..4_096].fill(0xA5);
    for damaged in
        [&schema_gone[..], &whole[..8_192], b"rubbish that is no database at all, and long enough"]
    {
        std::fs::write(&file, damaged).unwrap();
        let refused = open(&scratch.options()).unwrap_err();
        assert!([Kind::Unavailable, Kind::Corrupt].contains(&refused.kind()), "{refused:?}");
        assert_eq!(std::fs::read(&file).unwrap(), damaged);
    }
    std::fs::write(&file, &whole).unwrap();
    open(&scratch.options()).unwrap();
}

#[test]
fn a_directory_that_cannot_be_written_is_a_typed_error() {
    // Nobody, not even root, makes files here.
    let refused = open(&Options::file(std::path::Path::new("/proc/node.db"))).unwrap_err();
    assert_eq!(refused.kind(), Kind::Unavailable);
    assert!(refused.to_string().contains("/proc/node.db"), "{refused}");
    let mut scratch = Scratch::on(Engine::Sqlite);
    block_on(scratch.store().write(|tx| put(tx, "a", 10))).unwrap();
    scratch.close();
    let set = |mode| {
        std::fs::set_permissions(scratch.place.dir.path(), std::fs::Permissions::from_mode(mode))
            .unwrap();
    };
    set(0o500);
    // Root may write in spite of it; everybody else is told.
    let opened = open(&scratch.options());
    set(0o700);
    assert!(opened.as_ref().is_ok() || opened.unwrap_err().kind() == Kind::Unavailable);
    open(&scratch.options()).unwrap();
}

/// A clock whose waits are over at once.
struct Hasty;
impl Clock for Hasty {
    fn now_ms(&self) -> UnixMs {
        0
    }
    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

#[test]
fn a_file_that_is_taken_away_under_a_running_store_is_noticed() {
    let scratch = Scratch::on(Engine::Sqlite);
    let file = scratch.place.dir.path().join("node.db");
    let watch = Watch::new(&file).unwrap();
    block_on(scratch.store().write(|tx| put(tx, "a", 10))).unwrap();
    assert_eq!(watch.look(), Ok(()));
    let kept = scratch.place.dir.path().join("kept.db");
    std::fs::rename(&file, &kept).unwrap();
    let gone = Err(Error::Gone(file.display().to_string()));
    assert_eq!(watch.look(), gone, "moved");
    std::fs::copy(&kept, &file).unwrap();
    assert_eq!(watch.look(), gone, "replaced by a copy");
    std::fs::remove_file(&file).unwrap();
    let lost = block_on(scratch.store().write(|tx| put(tx, "b", 10)));
    assert_eq!(lost, gone, "nothing is answered that would be lost");
    assert_eq!(block_on(watch.clone().run(&Hasty, Shutdown::new())), gone, "deleted");
    std::fs::rename(&kept, &file).unwrap();
    assert_eq!(watch.look(), Ok(()), "put back");
    block_on(scratch.store().write(|tx| put(tx, "c", 10))).unwrap();
    assert_eq!(ids(&scratch.store()), ["a", "c"]);
    let ended = Shutdown::new();
    ended.trigger();
    assert_eq!(block_on(watch.run(&Hasty, ended)), Ok(()));
    assert!(Watch::new(&scratch.place.dir.path().join("none")).is_err());
}

#[test]
fn whoever_holds_the_lock_for_too_long_makes_the_others_busy_and_no_more() {
    let scratch = Scratch::on(Engine::Sqlite);
    let store = scratch.store();
    let other = rusqlite::Connection::open(scratch.place.dir.path().join("node.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    // Two at once: both are told, and neither is tried for ever.
    let (one, two) = (store.write(|tx| put(tx, "one", 10)), store.write(|tx| put(tx, "two", 10)));
    let refused = block_on(async { [one.await, two.await] });
    for refused in refused {
        let refused = refused.unwrap_err();
        assert_eq!((&refused, refused.code().name), (&Error::Locked, "store.busy"));
    }
    assert_eq!(ids(&store), [""; 0], "reading goes on meanwhile");
    other.execute_batch("ROLLBACK").unwrap();
    block_on(store.write(|tx| put(tx, "three", 10))).unwrap();
    assert_eq!(ids(&store), ["three"]);
}
