//! Who may ask, on both databases: a node with a wallet, a Nostr key, and whoever attacks it.

mod idempotency;
mod interop;
mod key;
mod nip98;
mod nonce;
mod secrets;
mod siwe;
mod siwe_text;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use guild_hosting::access::key::{Key, NewKey};
use guild_hosting::access::nonce::Limits;
use guild_hosting::access::session::{NewSession, Session};
use guild_hosting::access::siwe::{Message, Policy, Time};
use guild_hosting::access::{Caller, Nonce, Place, Scopes, Token, siwe as sign_in};
use guild_hosting::{Error, Result, access};
use guild_protocol::env::{BoxFuture, Clock, Random};
use guild_protocol::identity::SecretKey;
use guild_store::{Hooks, Migrations, Options, Rx, Service, Store, Tx};

/// When everything happens.
const NOW: i64 = 1_768_465_800_000;
const DAY_MS: i64 = 24 * 3_600 * 1_000;
const ORIGIN: &str = "https://guild.example";
const BASE: u64 = 8453;

/// Never the same twice.
struct Dice;

impl Random for Dice {
    fn fill(&self, bytes: &mut [u8]) {
        static THROWN: AtomicU64 = AtomicU64::new(1);
        let thrown = THROWN.fetch_add(1, Ordering::Relaxed);
        let hash = guild_protocol::hash::Hash::of(&thrown.to_le_bytes());
        for (place, byte) in bytes.iter_mut().zip(hash.as_bytes().iter().cycle()) {
            *place = *byte;
        }
    }
}

impl Clock for Dice {
    fn now_ms(&self) -> i64 {
        NOW
    }

    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

fn wallet(n: u8) -> SecretKey {
    SecretKey::from_bytes([n; 32]).unwrap()
}

fn policy() -> Policy {
    Policy {
        origins: vec![ORIGIN.parse().unwrap(), "http://127.0.0.1:4848".parse().unwrap()],
        chain_ids: BTreeSet::from([1, BASE]),
        skew_ms: sign_in::SKEW_MS,
    }
}

fn message(by: &SecretKey, nonce: &Nonce) -> Message {
    Message {
        scheme: None,
        domain: "guild.example".to_owned(),
        address: by.address(),
        statement: Some("Sign in to Guildhall.".to_owned()),
        uri: "https://guild.example/login".to_owned(),
        chain_id: BASE,
        nonce: nonce.clone(),
        issued_at: Time::at(NOW).unwrap(),
        expiration_time: None,
        not_before: None,
        request_id: None,
        resources: None,
    }
}

fn new_session() -> NewSession {
    NewSession::make(&Dice, &Dice, DAY_MS)
}

fn place(address: &str) -> Place {
    Place::of(address.parse().unwrap())
}

struct Node {
    store: Store,
    service: Option<Service>,
    _place: Kept,
}

#[expect(dead_code, reason = "held only so that it is removed at the end")]
enum Kept {
    Directory(tempfile::TempDir),
    Database(testbed::Database),
    Nothing,
}

fn tables() -> Migrations {
    Migrations::store().and(access::migrations())
}

/// Runs a test on every kind of database.
fn both(test: impl Fn(&Node)) {
    test(&Node::sqlite(Hooks::default()));
    test(&Node::postgres());
}

impl Node {
    fn sqlite(hooks: Hooks) -> Node {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::file(&dir.path().join("node.db"));
        Node::open(&options, hooks, Kept::Directory(dir))
    }

    fn postgres() -> Node {
        let database = testbed::Database::copy_of("access", |url| {
            Service::open(&Options::at(url), &tables(), Hooks::default(), 0).unwrap().close();
        })
        .unwrap();
        let options = Options::at(&database.url());
        Node::open(&options, Hooks::default(), Kept::Database(database))
    }

    /// Two processes on one database.
    fn two() -> (Node, Node) {
        let database = testbed::Database::new().unwrap();
        let options = Options::at(&database.url());
        let other = Node::open(&options, Hooks::default(), Kept::Nothing);
        (Node::open(&options, Hooks::default(), Kept::Database(database)), other)
    }

    fn open(options: &Options, hooks: Hooks, kept: Kept) -> Node {
        let service = Service::open(options, &tables(), hooks, 0).unwrap();
        Node { store: service.handle(), service: Some(service), _place: kept }
    }

    fn write<T: Send + 'static>(
        &self,
        run: impl Fn(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        block_on(self.store.write(run))
    }

    fn read<T: Send + 'static>(
        &self,
        run: impl Fn(&mut Rx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        block_on(self.store.read(run))
    }

    /// As many writes at once as there are closures.
    fn write_all<T: Send + 'static, F>(&self, runs: Vec<F>) -> Vec<Result<T>>
    where
        F: Fn(&mut Tx<'_>) -> Result<T> + Send + 'static,
    {
        // Each is queued when it is called.
        let waiting: Vec<_> = runs.into_iter().map(|run| self.store.write(run)).collect();
        waiting.into_iter().map(block_on).collect()
    }

    fn nonce(&self) -> Nonce {
        let nonce = Nonce::make(&Dice);
        let issued = nonce.clone();
        self.write(move |tx| {
            access::nonce::issue(tx, &issued, place("192.0.2.1"), &Limits::default(), NOW)
        })
        .unwrap();
        nonce
    }

    /// A try to sign in with this message and signature.
    fn try_in(&self, message: &str, signature: &str, now_ms: i64) -> Result<(Session, Token)> {
        let new = new_session();
        let token = new.token.clone();
        let checked = sign_in::check(message, signature, &policy(), now_ms);
        let signed = self.write(move |tx| sign_in::sign_in(tx, &checked, &new, now_ms))?;
        Ok((signed.session()?, token))
    }

    /// Somebody who is signed in.
    fn signed_in(&self, by: &SecretKey) -> (Session, Token) {
        let text = message(by, &self.nonce()).text();
        self.try_in(&text, &by.sign_message(text.as_bytes()).hex(), NOW).unwrap()
    }

    fn who(&self, token: &Token, now_ms: i64) -> Result<Caller> {
        let token = token.clone();
        self.read(move |rx| access::who(rx, &token, now_ms))
    }

    fn caller(&self, by: &SecretKey) -> Caller {
        self.who(&self.signed_in(by).1, NOW).unwrap()
    }

    fn make_key(&self, caller: &Caller, scopes: &str, expires_ms: i64) -> Result<(Key, Token)> {
        let scopes: Scopes = scopes.parse()?;
        let new = NewKey::make(&Dice, &Dice, "a key", scopes, expires_ms);
        let (caller, token) = (caller.clone(), new.token.clone());
        let key = self.write(move |tx| access::key::make(tx, &caller, &new, NOW))?;
        Ok((key, token))
    }

    fn rows(&self, table: &'static str) -> i64 {
        let sql = match table {
            "access_nonce" => "SELECT count(*) FROM access_nonce",
            "access_seen" => "SELECT count(*) FROM access_seen",
            "access_session" => "SELECT count(*) FROM access_session",
            "access_key" => "SELECT count(*) FROM access_key",
            _ => "SELECT count(*) FROM access_idempotency",
        };
        let count = self.read(move |rx| Ok(rx.first::<(i64,)>(sql, &[])?)).unwrap();
        count.unwrap().0
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            service.close();
        }
    }
}

/// The name of the code of a refusal.
fn why<T>(result: Result<T>) -> &'static str {
    result.err().map_or("nothing", |error| error.code().name)
}

fn said(error: Error) -> String {
    format!("{} {error}", error.code().name)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}
