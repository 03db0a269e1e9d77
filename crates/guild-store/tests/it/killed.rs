//! Real processes, killed at random: what they had queued still leaves, in order, with the same key every time.
//!
//! The process that is killed is this test binary, started again with only the test `as_a_drainer`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use guild_protocol::env::{BoxFuture, Clock, Random, Shutdown, UnixMs};
use guild_store::outbox::{self, Deliver, Drainer, Failure, NewMessage};
use guild_store::{Error, Hooks, Migrations, Options, Service, Store};
use testbed::{Dice, Victim, wait_ms};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};

use crate::{Engine, Scratch, block_on};

const STORE_URL: &str = "GUILD_TEST_DRAINER_STORE";
const SINK_PORT: &str = "GUILD_TEST_DRAINER_SINK";

const MESSAGES: usize = 10_000;
const KEYS: usize = 40;
const LEASE_MS: i64 = 150;

/// One in so many messages is one that the sink never takes.
const NEVER: usize = 1_000;

struct Real;

impl Clock for Real {
    fn now_ms(&self) -> UnixMs {
        testbed::now_ms()
    }

    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        let duration = Duration::from_millis(u64::try_from(duration_ms).unwrap_or(0));
        #[expect(clippy::disallowed_methods, reason = "real processes wait in real time")]
        Box::pin(tokio::time::sleep(duration))
    }
}

struct Tokens(Dice);

impl Random for Tokens {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill_with(|| self.0.roll().to_be_bytes()[0]);
    }
}

/// Not a test of its own: what the killed process runs.
#[test]
fn as_a_drainer() {
    #[expect(clippy::disallowed_methods, reason = "how the parent tells its child what to do")]
    let (url, port) = match (std::env::var(STORE_URL), std::env::var(SINK_PORT)) {
        (Ok(url), Ok(port)) => (url, port.parse::<u16>().unwrap()),
        _ => return,
    };
    let service = Service::open(&Options::at(&url), &Migrations::store(), Hooks::default(), 0);
    let store = service.unwrap().handle();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let deliver: Deliver = Arc::new(move |message| {
        Box::pin(async move {
            let asked = format!("{} {}\n", message.key, message.idempotency_key);
            match ask(port, &asked).await.as_deref() {
                Ok("ok") => Ok(()),
                Ok("never") => Err(Failure::Never("the sink never takes it".to_owned())),
                Ok(other) => Err(Failure::Retry(format!("the sink says {other:?}"))),
                Err(error) => Err(Failure::Retry(error.to_string())),
            }
        })
    });
    let options = outbox::Options {
        lease_ms: LEASE_MS,
        batch_max: 8,
        sweep_ms: 20,
        max_attempts: 1_000_000,
        backoff_min_ms: 1,
        backoff_max_ms: 20,
        ..outbox::Options::default()
    };
    let drainer =
        Drainer::new(options, store, Arc::new(Real), Arc::new(Tokens(Dice::new(1)))).unwrap();
    let wake = Box::new(|| Box::pin(std::future::pending()) as BoxFuture<()>);
    runtime.block_on(drainer.sink("s", deliver, wake).run(Shutdown::new()));
}

async fn ask(port: u16, line: &str) -> std::io::Result<String> {
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(line.as_bytes()).await?;
    let mut answer = String::new();
    tokio::io::BufReader::new(stream).read_line(&mut answer).await?;
    Ok(answer.trim().to_owned())
}

/// A sink that fails, stalls and answers late; and remembers what it took, in order.
struct Sink {
    port: u16,
    taken: Arc<Mutex<Vec<(String, String)>>>,
}

impl Sink {
    fn start() -> Sink {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let taken = Arc::new(Mutex::new(Vec::new()));
        let log = taken.clone();
        std::thread::spawn(move || {
            let dice = Arc::new(Dice::new(2));
            for stream in listener.incoming().flatten() {
                let (log, dice) = (log.clone(), dice.clone());
                std::thread::spawn(move || Sink::serve(stream, &log, &dice));
            }
        });
        Sink { port, taken }
    }

    fn serve(mut stream: TcpStream, log: &Mutex<Vec<(String, String)>>, dice: &Dice) -> Option<()> {
        let mut line = String::new();
        BufReader::new(stream.try_clone().ok()?).read_line(&mut line).ok()?;
        let (key, id) = line.trim().split_once(' ')?;
        if id.ends_with("-never") {
            return stream.write_all(b"never\n").ok();
        }
        let beyond_the_lease_ms = u64::try_from(LEASE_MS).ok()? * 2;
        match dice.below(400) {
            0..4 => return stream.write_all(b"not now\n").ok(),
            // It is not taken, and the asker waits in vain.
            4 => wait_ms(beyond_the_lease_ms),
            5 => {
                log.lock().unwrap().push((key.to_owned(), id.to_owned()));
                wait_ms(beyond_the_lease_ms);
                return stream.write_all(b"ok\n").ok();
            }
            // Taken, but the asker never learns it.
            6 => log.lock().unwrap().push((key.to_owned(), id.to_owned())),
            _ => {
                log.lock().unwrap().push((key.to_owned(), id.to_owned()));
                return stream.write_all(b"ok\n").ok();
            }
        }
        None
    }
}

fn start(url: &str, sink: &Sink) -> Victim {
    let port = sink.port.to_string();
    let environment = [(STORE_URL, url), (SINK_PORT, port.as_str())];
    Victim::start("killed::as_a_drainer", &environment).unwrap()
}

fn message_id(n: usize) -> String {
    let what = if n % NEVER == NEVER - 1 { "never" } else { "good" };
    format!("{n:05}-{what}")
}

fn enqueue_all(store: &Store) {
    for start in (0..MESSAGES).step_by(500) {
        let written = store.write(move |tx| {
            for n in start..start + 500 {
                let (key, id) = (format!("key-{}", n % KEYS), message_id(n));
                let message = NewMessage { sink: "s", key: &key, idempotency_key: &id, body: "{}" };
                outbox::enqueue(tx, &message, 0)?;
            }
            Ok::<_, Error>(())
        });
        block_on(written).unwrap();
    }
}

fn queued(store: &Store) -> i64 {
    let sql = "SELECT count(*) FROM outbox WHERE state = 'queued'";
    let count = store.read(move |rx| rx.first::<(i64,)>(sql, &[]));
    block_on::<Result<_, Error>>(count).unwrap().unwrap().0
}

/// Every good message was taken, and none before all earlier ones of its key.
fn check_order(taken: &[(String, String)]) {
    let mut next: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for n in (0..MESSAGES).rev() {
        if !message_id(n).ends_with("never") {
            next.entry(format!("key-{}", n % KEYS)).or_default().push(message_id(n));
        }
    }
    let mut seen = BTreeSet::new();
    for (key, id) in taken {
        if seen.insert((key, id)) {
            assert_eq!(next.get_mut(key).and_then(Vec::pop).as_ref(), Some(id), "{key}");
        }
    }
    let missing: usize = next.values().map(Vec::len).sum();
    assert_eq!(missing, 0, "messages were lost");
}

fn drain_through_kills(engine: Engine, drainers: usize) {
    let scratch = Scratch::on(engine);
    let store = scratch.store();
    enqueue_all(&store);
    let sink = Sink::start();
    let dice = Dice::new(3);
    let url = scratch.options().url;
    let mut running: Vec<Victim> = (0..drainers).map(|_| start(&url, &sink)).collect();
    let mut kills = 0;
    let mut taken = 0;
    while queued(&store) > 0 {
        // On a slow machine a drainer may not live long enough to begin: nobody is killed before somebody delivers.
        let mut patience = 6_000;
        while sink.taken.lock().unwrap().len() == taken && queued(&store) > 0 {
            assert!(patience > 0, "nobody delivers any more");
            patience -= 1;
            wait_ms(10);
        }
        wait_ms(100 + dice.below(500));
        taken = sink.taken.lock().unwrap().len();
        let victim = usize::try_from(dice.below(drainers as u64)).unwrap();
        running[victim] = start(&url, &sink);
        kills += 1;
    }
    drop(running);
    assert!(kills >= 3, "it was over before anybody was killed");
    let taken = sink.taken.lock().unwrap().clone();
    check_order(&taken);
    assert!(taken.len() > MESSAGES, "somebody was told twice, or the faults did not happen");
    let dead = block_on(store.read(|rx| outbox::dead_letters(rx, 100))).unwrap();
    let dead: Vec<String> = dead.into_iter().map(|letter| letter.message.idempotency_key).collect();
    let never: Vec<String> =
        (0..MESSAGES).map(message_id).filter(|id| id.ends_with("never")).collect();
    assert_eq!(dead, never);
}

#[test]
fn ten_thousand_messages_leave_through_killed_drainers_on_postgres() {
    drain_through_kills(Engine::Postgres, 3);
}

#[test]
fn ten_thousand_messages_leave_through_killed_drainers_on_sqlite() {
    drain_through_kills(Engine::Sqlite, 1);
}

#[test]
#[should_panic(expected = "assertion")]
fn a_message_that_overtakes_is_noticed() {
    let taken = |n: usize| (format!("key-{}", n % KEYS), message_id(n));
    check_order(&[taken(0), taken(2 * KEYS)]);
}

#[test]
#[should_panic(expected = "messages were lost")]
fn a_lost_message_is_noticed() {
    check_order(&[]);
}
