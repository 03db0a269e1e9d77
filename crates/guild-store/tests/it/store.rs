use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use guild_protocol::env::{BoxFuture, Clock, UnixMs};
use guild_protocol::error::Kind;
use guild_store::event::{self, NewEvent};
use guild_store::{Error, Hooks, Migrations, Options, Rx, Service, Sql, Tx, args};

use crate::{Engine, Place, Scratch, block_on};

on_both! {
    what_was_answered_is_there_after_a_restart,
    parameters_are_bound_by_their_number_not_by_their_place,
    bytes_are_read_as_they_were_bound,
    a_failing_call_takes_no_other_down,
    a_refusal_of_the_caller_s_own_comes_back_and_nothing_is_kept,
    bells_ring_after_the_commit_and_only_for_what_was_committed,
    a_dropped_caller_does_not_stop_its_write,
    a_full_queue_refuses_and_a_closed_store_says_so,
    a_reader_beside_the_writer_sees_commits_and_cannot_write,
    a_bell_hook_that_panics_loses_no_answer_and_stops_nothing,
    a_store_whose_thread_died_says_so_to_all_who_wait,
    what_panics_when_it_is_dropped_stops_nobody,
    many_who_open_a_new_database_at_once_all_succeed,
}

fn put(tx: &mut Tx<'_>, id: &str) -> Result<(), Error> {
    let event = NewEvent { topic: "t", id, kind: "k", at_ms: 0, body: "{}" };
    event::append(tx, &event).map(|_| ())
}

fn ids(rx: &mut Rx<'_>) -> Result<Vec<String>, Error> {
    Ok(rx
        .all::<(String,)>("SELECT id FROM event ORDER BY seq", args![])?
        .into_iter()
        .map(|r| r.0)
        .collect())
}

fn what_was_answered_is_there_after_a_restart(engine: Engine) {
    let mut scratch = Scratch::on(engine);
    block_on(scratch.store().write(|tx| put(tx, "a"))).unwrap();
    scratch.reopen();
    assert_eq!(block_on(scratch.store().read(ids)).unwrap(), ["a"]);
}

fn parameters_are_bound_by_their_number_not_by_their_place(engine: Engine) {
    let scratch = Scratch::on(engine);
    let bound = scratch.store().read(|rx| {
        rx.first::<(String, i64, Option<String>)>(
            "SELECT CAST($2 AS TEXT), CAST($1 AS BIGINT), CAST($3 AS TEXT)",
            args![1, "two", None::<i64>],
        )
    });
    assert_eq!(block_on(bound).unwrap(), Some(("two".to_owned(), 1, None)));
    let missing = scratch.store().read(|rx| rx.all::<(i64,)>("SELECT CAST($1 AS BIGINT)", args![]));
    assert!(matches!(block_on(missing), Err(Error::Database(_))));
}

fn bytes_are_read_as_they_were_bound(engine: Engine) {
    const ECHO: Sql = Sql {
        lite: "SELECT CAST($1 AS BLOB), CAST($2 AS BLOB), CAST($3 AS TEXT)",
        pg: "SELECT CAST($1 AS BYTEA), CAST($2 AS BYTEA), CAST($3 AS TEXT)",
    };
    let scratch = Scratch::on(engine);
    let all: Vec<u8> = (0..=255).collect();
    let bound = all.clone();
    let read = scratch.store().read(move |rx| {
        let empty: &[u8] = &[];
        rx.first::<(Vec<u8>, Vec<u8>, Option<Vec<u8>>)>(ECHO, args![&bound[..], empty, None::<i64>])
    });
    assert_eq!(block_on(read).unwrap(), Some((all, Vec::new(), None)));
    let text =
        scratch.store().read(|rx| rx.all::<(Vec<u8>,)>("SELECT CAST($1 AS TEXT)", args!["a"]));
    assert!(matches!(block_on(text), Err(Error::Decode(_))));
}

fn a_failing_call_takes_no_other_down(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    // The first call holds the writer until all others wait: they then share one commit.
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let first = store.write(move |tx| {
        let _ = wait.lock().unwrap().recv();
        put(tx, "first")
    });
    let good = store.write(|tx| put(tx, "good"));
    let refused = store.write(|tx| {
        put(tx, "refused")?;
        Err::<(), _>(Error::Fenced)
    });
    let panicked = store.write(|tx| -> Result<(), Error> {
        put(tx, "panicked")?;
        panic!("planted")
    });
    let swallowed = store.write(|tx| {
        put(tx, "swallowed")?;
        let _ = tx.exec("INSERT INTO nowhere VALUES (1)", args![]);
        Ok(())
    });
    let last = store.write(|tx| put(tx, "last"));
    // Not sent: a call may run more than once.
    drop(go);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    block_on(async {
        first.await.unwrap();
        good.await.unwrap();
        assert_eq!(refused.await, Err(Error::Fenced));
        assert_eq!(panicked.await, Err(Error::Panicked));
        assert!(matches!(swallowed.await, Err(Error::Database(_))));
        last.await.unwrap();
        assert_eq!(store.read(ids).await.unwrap(), ["first", "good", "last"]);
    });
    std::panic::set_hook(hook);
}

/// An error of a higher crate.
#[derive(Debug, PartialEq)]
enum Own {
    No,
    Store(Error),
}

impl From<Error> for Own {
    fn from(error: Error) -> Own {
        Own::Store(error)
    }
}

fn a_refusal_of_the_caller_s_own_comes_back_and_nothing_is_kept(engine: Engine) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    let own = store.write(|tx| {
        put(tx, "a")?;
        Err::<(), _>(Own::No)
    });
    let failed = store.write(|tx| {
        tx.exec("INSERT INTO nowhere VALUES (1)", args![])?;
        Ok::<_, Own>(())
    });
    block_on(async {
        assert_eq!(own.await, Err(Own::No));
        assert!(matches!(failed.await, Err(Own::Store(Error::Database(_)))));
        assert_eq!(store.read(ids).await.unwrap(), Vec::<String>::new());
    });
}

fn bells_ring_after_the_commit_and_only_for_what_was_committed(engine: Engine) {
    let place = Place::on(engine);
    let (rung, bells) = mpsc::channel();
    let hooks = Hooks::on_ring(move |topic, after| {
        let _ = rung.send((topic.to_owned(), after));
    });
    let service = place.open(hooks);
    let store = service.handle();
    let failed = store.write(|tx| {
        tx.ring("never", 1);
        Err::<(), _>(Error::Fenced)
    });
    let worked = store.write(|tx| {
        tx.ring("once", 2);
        put(tx, "a")
    });
    block_on(async {
        assert!(failed.await.is_err());
        worked.await.unwrap();
    });
    service.close();
    assert_eq!(bells.iter().collect::<Vec<_>>(), [("once".to_owned(), 2)]);
}

fn a_dropped_caller_does_not_stop_its_write(engine: Engine) {
    let scratch = Scratch::on(engine);
    drop(scratch.store().write(|tx| put(tx, "orphan")));
    block_on(scratch.store().write(|tx| put(tx, "next"))).unwrap();
    assert_eq!(block_on(scratch.store().read(ids)).unwrap(), ["orphan", "next"]);
}

fn a_full_queue_refuses_and_a_closed_store_says_so(engine: Engine) {
    let place = Place::on(engine);
    let options = Options { queue_max_calls: 1, ..place.options() };
    let service = Service::open(&options, &Migrations::store(), Hooks::default(), 0).unwrap();
    let store = service.handle();
    let (started, has_started) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let running = store.write(move |_| {
        let _ = started.send(());
        let _ = wait.lock().unwrap().recv();
        Ok::<_, Error>(())
    });
    has_started.recv().unwrap();
    let waiting = store.write(|tx| put(tx, "waited"));
    let refused = block_on(store.write(|tx| put(tx, "too many"))).unwrap_err();
    assert_eq!(refused, Error::QueueFull(1));
    assert_eq!(refused.kind(), Kind::Unavailable);
    go.send(()).unwrap();
    block_on(async {
        running.await.unwrap();
        waiting.await.unwrap();
    });
    service.close();
    assert_eq!(block_on(store.write(|tx| put(tx, "late"))), Err(Error::Closed));
}

fn a_reader_beside_the_writer_sees_commits_and_cannot_write(engine: Engine) {
    let scratch = Scratch::on(engine);
    block_on(scratch.store().write(|tx| put(tx, "a"))).unwrap();
    let beside = Service::open_read_only(&scratch.options(), &Migrations::store()).unwrap();
    let reader = beside.handle();
    assert_eq!(block_on(reader.read(ids)).unwrap(), ["a"]);
    block_on(scratch.store().write(|tx| put(tx, "b"))).unwrap();
    assert_eq!(block_on(reader.read(ids)).unwrap(), ["a", "b"]);
    assert_eq!(block_on(reader.write(|tx| put(tx, "c"))), Err(Error::Closed));
    beside.close();
}

#[test]
fn an_unusable_url_file_or_setting_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = |options: &Options| {
        Service::open(options, &Migrations::store(), Hooks::default(), 0).map(Service::close)
    };
    let good = Options::file(&dir.path().join("node.db"));
    let url = |url: &str| Options { url: url.to_owned(), ..good.clone() };
    assert!(matches!(open(&url("postgres://x:port/")), Err(Error::BadUrl { .. })));
    assert!(matches!(open(&url("")), Err(Error::BadUrl { .. })));
    assert!(matches!(open(&url("sqlite://relative.db")), Err(Error::BadUrl { .. })));
    assert!(matches!(open(&url("sqlite://file:x?mode=memory")), Err(Error::BadUrl { .. })));
    assert!(matches!(open(&Options { readers: 0, ..good.clone() }), Err(Error::BadOptions(_))));
    let text = dir.path().join("text.db");
    std::fs::write(&text, "this is not a database, however long it may be, and it never was one")
        .unwrap();
    assert!(matches!(open(&Options::file(&text)), Err(Error::NotADatabase(_))));
    assert!(matches!(open(&Options::file(dir.path())), Err(Error::Database(_))));
    let missing =
        Service::open_read_only(&Options::file(&dir.path().join("no.db")), &Migrations::store());
    assert!(matches!(missing, Err(Error::Database(_))));
    assert!(!dir.path().join("no.db").exists(), "reading must not create");
}

fn a_bell_hook_that_panics_loses_no_answer_and_stops_nothing(engine: Engine) {
    let place = Place::on(engine);
    let service = place.open(Hooks::on_ring(|_, _| panic!("planted")));
    let store = service.handle();
    for id in ["a", "b"] {
        let written = store.write(move |tx| {
            tx.ring("topic", 0);
            put(tx, id)
        });
        assert_eq!(block_on(written), Ok(()));
    }
    assert_eq!(block_on(store.read(ids)).unwrap(), ["a", "b"]);
    service.close();
}

fn a_store_whose_thread_died_says_so_to_all_who_wait(engine: Engine) {
    /// Read on the writer's thread, outside every guard of the store.
    struct Broken(AtomicBool);
    impl Clock for Broken {
        fn now_ms(&self) -> UnixMs {
            assert!(!self.0.swap(true, Ordering::SeqCst), "planted");
            0
        }
        fn sleep(&self, _: i64) -> BoxFuture<()> {
            Box::pin(std::future::pending())
        }
    }
    let place = Place::on(engine);
    let clock = Arc::new(Broken(AtomicBool::new(false)));
    let service = place.open(Hooks::default().with_watch(clock, 1));
    let store = service.handle();
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    drop(store.write(move |_| {
        let _ = wait.lock().unwrap().recv();
        Ok::<_, Error>(())
    }));
    let waiting = store.write(|tx| put(tx, "waiting"));
    go.send(()).unwrap();
    assert_eq!(block_on(waiting), Err(Error::Closed));
    assert_eq!(block_on(store.write(|tx| put(tx, "late"))), Err(Error::Closed));
    service.close();
}

fn what_panics_when_it_is_dropped_stops_nobody(engine: Engine) {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("planted");
            }
        }
    }
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let first = store.write(move |_| {
        let _ = wait.lock().unwrap().recv();
        Ok::<_, Error>(())
    });
    // They share a commit. What nobody takes is dropped on the writer's thread; what is run again, in the middle.
    drop(store.write(|_| Ok::<_, Error>(Bomb)));
    let captured = Bomb;
    drop(store.write(move |_| {
        let _ = &captured;
        Ok::<_, Error>(())
    }));
    let refused = store.write(|_| Err::<(), _>(Error::Fenced));
    let written = store.write(|tx| put(tx, "written"));
    drop(go);
    block_on(async {
        first.await.unwrap();
        assert_eq!(refused.await, Err(Error::Fenced));
        assert_eq!(written.await, Ok(()), "committed, and told so");
        assert_eq!(store.write(|tx| put(tx, "next")).await, Ok(()));
        assert_eq!(store.read(ids).await.unwrap(), ["written", "next"]);
    });
}

#[test]
fn a_new_database_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::on(Engine::Sqlite);
    block_on(scratch.store().write(|tx| put(tx, "a"))).unwrap();
    let mut files = 0;
    for file in std::fs::read_dir(scratch.place.dir.path()).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", file.path());
        files += 1;
    }
    assert_eq!(files, 3, "the database, its log and its index");
}

#[test]
fn a_closed_store_is_one_file() {
    let mut scratch = Scratch::on(Engine::Sqlite);
    block_on(scratch.store().write(|tx| put(tx, "a"))).unwrap();
    scratch.close();
    let names =
        std::fs::read_dir(scratch.place.dir.path()).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["node.db"]);
}

#[test]
fn a_file_that_is_just_being_made_is_told_from_a_damaged_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("node.db");
    std::fs::write(&file, "").unwrap();
    let opened = Service::open_read_only(&Options::file(&file), &Migrations::store());
    assert_eq!(opened.err(), Some(Error::OlderSchema("store/0001_ground".to_owned())));
}

fn many_who_open_a_new_database_at_once_all_succeed(engine: Engine) {
    for _ in 0..5 {
        let place = Place::on(engine);
        let options = place.options();
        std::thread::scope(|scope| {
            let open = || {
                Service::open(&options, &Migrations::store(), Hooks::default(), 0)
                    .map(Service::close)
            };
            let opened: Vec<_> = (0..6).map(|_| scope.spawn(open)).collect();
            for one in opened {
                one.join().unwrap().unwrap();
            }
        });
    }
}

#[test]
fn a_simulated_file_has_the_log_of_a_real_one() {
    use guild_store::{Columns, Db, Sqlite, Val};
    let dir = tempfile::tempdir().unwrap();
    let mut db = Sqlite::open_simulated(&dir.path().join("node.db")).unwrap();
    let mut modes = Vec::new();
    let mut read = |row: &dyn Columns| {
        modes.push(row.val(0)? == Val::Text("wal"));
        Ok(())
    };
    db.query("PRAGMA journal_mode", &[], &mut read).unwrap();
    assert_eq!(modes, [true]);
}
