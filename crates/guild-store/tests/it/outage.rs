//! PostgreSQL goes away: in the middle of a transaction, between COMMIT and its answer, for good and for a while.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::join_all;
use guild_store::event::{self, NewEvent};
use guild_store::{Error, Hooks, Migrations, Options, Rx, Service, Store, Tx};
use testbed::postgres::{Durability, Postgres};

use crate::{Engine, Place, block_on};

fn put(tx: &mut Tx<'_>, id: &str) -> Result<(), Error> {
    let event = NewEvent { topic: "t", id, kind: "k", at_ms: 0, body: "{}" };
    event::append(tx, &event).map(|_| ())
}

fn stored(rx: &mut Rx<'_>) -> Result<Vec<(i64, String)>, Error> {
    rx.all("SELECT seq, id FROM event ORDER BY seq", &[])
}

fn open(url: &str) -> Service {
    Service::open(&Options::at(url), &Migrations::store(), Hooks::default(), 0).unwrap()
}

#[test]
fn what_was_answered_survives_the_server_and_the_store_goes_on_when_it_is_back() {
    let mut server = Postgres::start(Durability::Full).unwrap();
    let database = server.database().unwrap();
    let service = open(&database.url());
    let store = service.handle();
    block_on(store.write(|tx| put(tx, "before"))).unwrap();
    server.stop();
    let gone = block_on(store.write(|tx| put(tx, "meanwhile"))).unwrap_err();
    assert_eq!(gone.code().name, "store.unreachable", "{gone}");
    let gone = block_on(store.read(stored)).unwrap_err();
    assert_eq!(gone.code().name, "store.unreachable", "{gone}");
    server.resume().unwrap();
    block_on(store.write(|tx| put(tx, "after"))).unwrap();
    let ids = [(1, "before".to_owned()), (2, "after".to_owned())];
    assert_eq!(block_on(store.read(stored)).unwrap(), ids);
    service.close();
}

/// Asks until it is told that the event is stored; whatever it is told in between.
async fn put_surely(store: &Store, id: String) {
    loop {
        let id = id.clone();
        match store.write(move |tx| put(tx, &id)).await {
            Ok(()) => return,
            Err(Error::Unreachable(_) | Error::CommitUnknown(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn callers_that_ask_again_lose_nothing_and_double_nothing() {
    let mut server = Postgres::start(Durability::Full).unwrap();
    let database = server.database().unwrap();
    let service = open(&database.url());
    let store = service.handle();
    let done = Arc::new(AtomicBool::new(false));
    let count = Arc::new(AtomicU64::new(0));
    let caller = |name: usize| {
        let (store, done, count) = (store.clone(), done.clone(), count.clone());
        async move {
            for n in 0.. {
                put_surely(&store, format!("{name}-{n}")).await;
                count.fetch_add(1, Ordering::SeqCst);
                if done.load(Ordering::SeqCst) {
                    return n + 1;
                }
            }
            0
        }
    };
    let asked: usize = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..8).map(caller).collect();
        let calling = scope.spawn(|| block_on(join_all(callers)));
        for _ in 0..3 {
            let before = count.load(Ordering::SeqCst);
            while count.load(Ordering::SeqCst) < before + 100 {
                std::thread::yield_now();
            }
            server.stop();
            server.resume().unwrap();
        }
        done.store(true, Ordering::SeqCst);
        calling.join().unwrap().into_iter().sum()
    });
    let rows = block_on(store.read(stored)).unwrap();
    let numbers: Vec<i64> = rows.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(numbers, (1..=i64::try_from(asked).unwrap()).collect::<Vec<_>>());
    let mut ids: Vec<&String> = rows.iter().map(|(_, id)| id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), asked);
    service.close();
}

#[test]
fn a_call_whose_connection_is_cut_in_the_middle_runs_again() {
    let place = Place::on(Engine::Postgres);
    let service = place.open(Hooks::default());
    let runs = Arc::new(AtomicU64::new(0));
    let counted = runs.clone();
    let written = service.handle().write(move |tx| {
        put(tx, "once")?;
        if counted.fetch_add(1, Ordering::SeqCst) == 0 {
            tx.all::<(i64,)>("SELECT pg_terminate_backend(pg_backend_pid())", &[])?;
        }
        Ok::<_, Error>(())
    });
    block_on(written).unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    assert_eq!(block_on(service.handle().read(stored)).unwrap(), [(1, "once".to_owned())]);
    service.close();
}

/// Where a proxy cuts the connection that carries the next COMMIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    BeforeTheServerSees,
    BeforeTheClientHears,
}

/// Passes everything on, except when armed.
struct Proxy {
    port: u16,
    armed: Arc<AtomicBool>,
}

impl Proxy {
    fn start(server: u16, cut: Cut) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let armed = Arc::new(AtomicBool::new(false));
        let arm = armed.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, arm) = (client.unwrap(), arm.clone());
                let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
                std::thread::spawn(move || Proxy::pass(client, server, cut, &arm));
            }
        });
        Proxy { port, armed }
    }

    fn pass(mut client: TcpStream, mut server: TcpStream, cut: Cut, armed: &AtomicBool) {
        let deaf = Arc::new(AtomicBool::new(false));
        let (mut from, mut to, is_deaf) =
            (server.try_clone().unwrap(), client.try_clone().unwrap(), deaf.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 65_536];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                if is_deaf.load(Ordering::SeqCst) || to.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        });
        let mut bytes = [0; 65_536];
        while let Ok(count @ 1..) = client.read(&mut bytes) {
            let is_commit = bytes[..count].windows(7).any(|word| word == b"COMMIT\0");
            if is_commit && armed.swap(false, Ordering::SeqCst) {
                if cut == Cut::BeforeTheServerSees {
                    break;
                }
                deaf.store(true, Ordering::SeqCst);
            }
            if server.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    }
}

fn a_lost_commit(cut: Cut) {
    let place = Place::on(Engine::Postgres);
    let url = place.options().url;
    let (server, name) = url.rsplit_once(':').unwrap().1.split_once('/').unwrap();
    let proxy = Proxy::start(server.parse().unwrap(), cut);
    let service = open(&format!("postgresql://guild@127.0.0.1:{}/{name}", proxy.port));
    let store = service.handle();
    block_on(store.write(|tx| put(tx, "before"))).unwrap();
    proxy.armed.store(true, Ordering::SeqCst);
    let runs = Arc::new(AtomicU64::new(0));
    let counted = runs.clone();
    let written = store.write(move |tx| {
        counted.fetch_add(1, Ordering::SeqCst);
        put(tx, "asked once")
    });
    assert_eq!(block_on(written), Ok(()), "the database knows what became of it");
    assert!(!proxy.armed.load(Ordering::SeqCst), "the commit was cut");
    let expected_runs = if cut == Cut::BeforeTheServerSees { 2 } else { 1 };
    assert_eq!(runs.load(Ordering::SeqCst), expected_runs);
    let rows = [(1, "before".to_owned()), (2, "asked once".to_owned())];
    assert_eq!(block_on(store.read(stored)).unwrap(), rows);
    service.close();
}

fn a_lost_end_of_a_read(cut: Cut) {
    let place = Place::on(Engine::Postgres);
    let url = place.options().url;
    let (server, name) = url.rsplit_once(':').unwrap().1.split_once('/').unwrap();
    let proxy = Proxy::start(server.parse().unwrap(), cut);
    let service = open(&format!("postgresql://guild@127.0.0.1:{}/{name}", proxy.port));
    let store = service.handle();
    block_on(store.write(|tx| put(tx, "a"))).unwrap();
    proxy.armed.store(true, Ordering::SeqCst);
    assert_eq!(block_on(store.read(stored)), Ok(vec![(1, "a".to_owned())]));
    assert!(!proxy.armed.load(Ordering::SeqCst), "the end was cut");
    service.close();
}

#[test]
fn a_read_whose_end_is_lost_is_made_again() {
    a_lost_end_of_a_read(Cut::BeforeTheServerSees);
    a_lost_end_of_a_read(Cut::BeforeTheClientHears);
}

#[test]
fn a_commit_that_never_arrived_is_made_again() {
    a_lost_commit(Cut::BeforeTheServerSees);
}

#[test]
fn a_commit_whose_answer_was_lost_is_not_made_twice() {
    a_lost_commit(Cut::BeforeTheClientHears);
}
