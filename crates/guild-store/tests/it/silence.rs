//! A PostgreSQL server that accepts connections and says nothing.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use futures_util::future::join_all;
use guild_store::{
    Access, Db, Error, Hooks, Migration, Migrations, Options, Postgres, Rx, Service, Store, args,
};
use testbed::postgres::{Database, Durability};
use testbed::wait_ms;

use crate::{Engine, Place, block_on};

/// Whoever waits for longer than this waits for ever.
const FOR_EVER: Duration = Duration::from_secs(600);

/// Fails instead of hanging.
fn ends<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || done.send(run()).unwrap());
    match ended.recv_timeout(FOR_EVER) {
        Ok(answer) => answer,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it does not end"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().unwrap_err())
        }
    }
}

/// So long a server may be silent here: not longer than a test needs, and longer than a loaded machine does.
const SILENCE_S: u64 = 3;

/// With little patience.
fn hasty(url: &str) -> String {
    format!("{url}?connect_timeout={SILENCE_S}&tcp_user_timeout={SILENCE_S}")
}

/// A table in which a row that is written twice stands twice.
fn migrations() -> Migrations {
    let sql = "CREATE TABLE mark (id TEXT NOT NULL)".into();
    Migrations::store().and([Migration { area: "test", number: 1, name: "mark", sql }])
}

fn open(url: &str) -> Result<Service, Error> {
    Service::open(&Options::at(url), &migrations(), Hooks::default(), 0)
}

fn marks(rx: &mut Rx<'_>) -> Result<Vec<(String, i64)>, Error> {
    rx.all("SELECT id, count(*) FROM mark GROUP BY id", &[])
}

#[test]
fn a_port_behind_which_nobody_answers_is_a_typed_error() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = silent.local_addr().unwrap().port();
    let url = hasty(&format!("postgresql://guild@127.0.0.1:{port}/guild"));
    let refused = ends(move || {
        let options = Options::at(&url);
        [open(&url).err(), Service::open_read_only(&options, &migrations()).err()]
    });
    for refused in refused {
        let said = format!(
            "127.0.0.1:{port} accepted the connection but did not answer within {SILENCE_S} s"
        );
        assert_eq!(refused, Some(Error::Unreachable(said)));
    }
}

#[test]
fn many_callers_of_a_silent_server_do_not_wait_for_it_one_after_the_other() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = silent.local_addr().unwrap().port();
    let url = hasty(&format!("postgresql://guild@127.0.0.1:{port}/guild"));
    ends(move || {
        let mut db = Postgres::new(&url).unwrap();
        let mut tries = 0;
        loop {
            let refused = db.begin(Access::Read).unwrap_err();
            if !db.try_again(&refused, tries) {
                break;
            }
            tries += 1;
        }
        for _ in 0..1_000 {
            assert!(matches!(db.begin(Access::Read), Err(Error::Unreachable(_))));
        }
    });
    silent.set_nonblocking(true).unwrap();
    let connections = std::iter::from_fn(|| silent.accept().ok()).count();
    assert!((2..100).contains(&connections), "{connections}");
}

#[test]
fn a_silent_server_does_not_keep_us_from_the_next() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = silent.local_addr().unwrap().port();
    let place = Place::on(Engine::Postgres);
    let url = hasty(&place.options().url).replace('@', &format!("@127.0.0.1:{port},"));
    let stored = ends(move || {
        let service = open(&url).unwrap();
        let stored = block_on(service.handle().read(marks));
        service.close();
        stored
    });
    assert_eq!(stored, Ok(Vec::new()));
}

#[test]
fn a_long_statement_is_not_taken_for_silence() {
    let place = Place::on(Engine::Postgres);
    let url = hasty(&place.options().url);
    let runs = Arc::new(AtomicU64::new(0));
    let counted = runs.clone();
    let (written, read) = ends(move || {
        let service = open(&url).unwrap();
        let store = service.handle();
        let written = store.write(move |tx| {
            counted.fetch_add(1, Ordering::SeqCst);
            tx.exec("SELECT pg_sleep(12)", args![])
        });
        let read = store.read(|rx| rx.all::<(i64,)>("SELECT count(*) FROM pg_sleep(12)", &[]));
        let answers = block_on(async { futures_util::join!(written, read) });
        service.close();
        answers
    });
    assert_eq!((written, read), (Ok(1), Ok(vec![(1,)])));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// What callers were told of each id; each is asked for once.
#[derive(Default)]
struct Told {
    writes: Mutex<BTreeMap<String, Result<(), Error>>>,
    written: AtomicU64,
    refused_writes: AtomicU64,
    refused_reads: AtomicU64,
    enough: AtomicBool,
}

impl Told {
    async fn write_on(&self, store: Store, name: usize) {
        for n in 0.. {
            let id = format!("{name}-{n}");
            let mark = id.clone();
            let write = store.write(move |tx| {
                tx.exec("INSERT INTO mark (id) VALUES ($1)", args![&mark]).map(|_| ())
            });
            let told: Result<(), Error> = write.await;
            let counter = if told.is_ok() { &self.written } else { &self.refused_writes };
            self.writes.lock().unwrap().insert(id, told);
            counter.fetch_add(1, Ordering::SeqCst);
            if self.enough.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    async fn read_on(&self, store: Store) {
        while !self.enough.load(Ordering::SeqCst) {
            if let Err(refused) = store.read(marks).await {
                assert_eq!(refused.code().name, "store.unreachable", "{refused}");
                self.refused_reads.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    fn wait_for(&self, more: u64, counter: &AtomicU64) {
        let wanted = counter.load(Ordering::SeqCst) + more;
        while counter.load(Ordering::SeqCst) < wanted {
            wait_ms(5);
        }
    }

    /// Whoever was told that it is written finds it, once; whoever was told that nothing happened does not.
    fn compare(&self, stored: &BTreeMap<String, i64>) {
        for (id, told) in self.writes.lock().unwrap().iter() {
            let count = stored.get(id).copied().unwrap_or(0);
            match told {
                Ok(()) => assert_eq!(count, 1, "{id}"),
                Err(Error::Unreachable(_)) => assert_eq!(count, 0, "{id}"),
                Err(Error::CommitUnknown(_)) => assert!(count <= 1, "{id}: {count}"),
                Err(other) => panic!("{id}: {other}"),
            }
        }
    }
}

#[test]
fn a_server_that_freezes_under_load_is_missed_and_nothing_is_lost_or_doubled() {
    let server = testbed::Postgres::start(Durability::Full).unwrap();
    let database = server.database().unwrap();
    let url = hasty(&database.url());
    ends(move || {
        let told = Told::default();
        let service = open(&url).unwrap();
        let store = service.handle();
        std::thread::scope(|scope| {
            let writes = (0..8).map(|name| told.write_on(store.clone(), name));
            let writing = scope.spawn(|| block_on(join_all(writes)));
            let reading = scope.spawn(|| block_on(told.read_on(store.clone())));
            for _ in 0..2 {
                told.wait_for(100, &told.written);
                let frozen = server.freeze().unwrap();
                told.wait_for(1, &told.refused_writes);
                told.wait_for(1, &told.refused_reads);
                frozen.thaw();
            }
            told.wait_for(100, &told.written);
            told.enough.store(true, Ordering::SeqCst);
            writing.join().unwrap();
            reading.join().unwrap();
        });
        // A reader that nobody used meanwhile may still have to learn that the server is back.
        let stored = (0..20).find_map(|_| block_on(store.read(marks)).ok()).unwrap();
        told.compare(&stored.into_iter().collect());
        service.close();
        drop((database, server));
    });
}

/// A transaction with one mark in it, before its COMMIT.
fn begun(database: &Database) -> Postgres {
    let mut db = Postgres::new(&hasty(&database.url())).unwrap();
    migrations().apply(&mut db, 0).unwrap();
    db.begin(Access::Write).unwrap();
    db.exec("INSERT INTO mark (id) VALUES ('a')", &[]).unwrap();
    db
}

fn count(db: &mut Postgres) -> i64 {
    let mut count = -1;
    db.query("SELECT count(*) FROM mark", &[], &mut |row| {
        let guild_store::Val::Int(int) = row.val(0)? else { panic!("no number") };
        count = int;
        Ok(())
    })
    .unwrap();
    count
}

#[test]
fn a_commit_in_a_frozen_server_is_unknown_and_one_that_thaws_is_asked_about() {
    let server = testbed::Postgres::start(Durability::Full).unwrap();
    let (never, late) = (server.database().unwrap(), server.database().unwrap());
    ends(move || {
        let mut db = begun(&never);
        let frozen = server.freeze().unwrap();
        let answer = db.commit();
        assert!(matches!(answer, Err(Error::CommitUnknown(_))), "{answer:?}");
        frozen.thaw();
        drop(db);

        let mut db = begun(&late);
        let frozen = server.freeze().unwrap();
        let answer = std::thread::scope(|scope| {
            // Given up after twice the silence, and asked about for six times more.
            scope.spawn(|| {
                wait_ms(SILENCE_S * 3_500);
                frozen.thaw();
            });
            db.commit()
        });
        match answer {
            Ok(()) => assert_eq!(count(&mut db), 1),
            Err(Error::Unreachable(_)) => assert_eq!(count(&mut db), 0),
            other => panic!("it can be known: {other:?}"),
        }
        drop((db, never, late, server));
    });
}

#[test]
fn migrations_in_a_frozen_server_are_refused_and_whole_when_it_is_back() {
    let server = testbed::Postgres::start(Durability::Full).unwrap();
    let database = server.database().unwrap();
    ends(move || {
        let mut db = Postgres::new(&hasty(&database.url())).unwrap();
        db.batch("SELECT 1").unwrap();
        let frozen = server.freeze().unwrap();
        let refused = migrations().apply(&mut db, 0).unwrap_err();
        let said = format!("silent for {SILENCE_S} s, also on another");
        assert!(refused.to_string().contains(&said), "{refused}");
        frozen.thaw();
        assert_eq!(migrations().apply(&mut db, 0), Ok(()));
        assert_eq!(count(&mut db), 0);
        drop((db, database, server));
    });
}
