//! Where all of it is asked for.
//!
//! Every call begins with a token. A read asks whose it is and reads for that user alone. A write asks in its own
//! transaction, looks whether it was asked before, has its effect and keeps its answer, all in that transaction: a
//! token that was revoked a moment ago changes nothing, and a request that is repeated changes nothing twice.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use guild_bus::Bus;
use guild_protocol::env::{Clock, Random, UnixMs};
use guild_protocol::hash::Hash;
use guild_store::{Rx, Store, Tx};
use serde::Serialize;

use crate::access::idempotency::{self, Answer, Reply, Request};
use crate::access::{self, Caller, Credential, Scope, Token, key, rate, siwe};
use crate::clamp::Policy;
use crate::error::code;
use crate::machine::Abilities;
use crate::machine::image::Images;
use crate::machine::visit::Door;
use crate::{Error, Result, UserId};

mod billing;
mod follow;
mod inside;
mod jobs;
mod known;
mod once;
mod page;
mod ports;
mod sandboxes;
mod sign_in;
mod turns;

pub use billing::accept_clock;
pub use follow::Follower;
pub use inside::{Output, Writer};
pub use page::{
    Browser, House, JobCard, JobPage, Minute, Overview, SandboxCard, SandboxPage, StatementPage,
    Viewer,
};
pub use ports::{Pass, Way};

/// How the desk works.
#[derive(Debug, Clone)]
pub struct Options {
    /// What anybody may have, and what it costs.
    pub policy: Policy,
    /// Which messages to sign in are for us.
    pub siwe: siwe::Policy,
    /// How long a session lasts.
    pub session_ms: i64,
    /// How many requests pass.
    pub rate: rate::Options,
    /// How many nonces may be outstanding.
    pub nonces: access::nonce::Limits,
    /// What sandboxes run on.
    pub machine: String,
    /// What that machine can do with them.
    pub abilities: Abilities,
    /// Whether somebody may sign in without a proof. Only for a node that nobody else can reach.
    pub bypass: bool,
}

/// The handle that everybody uses: cheap to clone.
#[derive(Clone)]
pub struct Desk(Arc<Shared>);

struct Shared {
    options: Options,
    images: Arc<Images>,
    door: Door,
    store: Store,
    bus: Arc<dyn Bus>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    gate: Mutex<rate::Gate>,
    known: Mutex<known::Known>,
    ways: ports::Ways,
    resizes: turns::Turns,
}

/// A write as it came. Whoever sends it again sends the same.
#[derive(Debug, Clone)]
pub struct Sent {
    /// Who asks.
    pub token: Token,
    /// Names what is wanted: the same key again is the same wish.
    pub idempotency_key: String,
    /// The method of the request.
    pub method: String,
    /// Its path.
    pub path: String,
    /// Its query.
    pub query: String,
    /// The hash of its body, byte for byte.
    pub body_hash: Hash,
}

impl Sent {
    /// What is compared when it is sent again.
    fn request(&self, user_id: &UserId) -> Result<Request> {
        let Sent { idempotency_key, method, path, query, body_hash, .. } = self;
        Request::of_hash(user_id, method, path, idempotency_key, query, body_hash)
    }
}

impl Desk {
    /// A desk in front of this store, whose bells this bus carries, and of the sandboxes behind the door.
    pub fn new(
        options: Options,
        images: Arc<Images>,
        door: Door,
        store: Store,
        bus: Arc<dyn Bus>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Desk {
        let gate = Mutex::new(rate::Gate::new(&options.rate));
        let shared = Shared {
            options,
            images,
            door,
            store,
            bus,
            clock,
            random,
            gate,
            known: Mutex::default(),
            ways: ports::Ways::default(),
            resizes: turns::Turns::default(),
        };
        Desk(Arc::new(shared))
    }

    /// Counts a request from this address: before anything else is done for it.
    pub fn come(&self, address: IpAddr) -> Result<()> {
        let now_ms = self.now_ms();
        Ok(self.gate(|gate| gate.come(address, now_ms))?)
    }

    /// Counts a request for a nonce or to sign in, beside [`Desk::come`]: each leaves rows behind, and anybody can ask.
    pub fn knock(&self, address: IpAddr) -> Result<()> {
        let now_ms = self.now_ms();
        Ok(self.gate(|gate| gate.knock(address, now_ms))?)
    }

    /// Whose token this is; its request is counted.
    pub async fn who(&self, token: Token) -> Result<Caller> {
        let now_ms = self.now_ms();
        let read = move |rx: &mut Rx<'_>| access::who(rx, &token, now_ms);
        let caller = self.0.store.read(read).await?;
        self.gate(|gate| gate.pass(caller.rate_key(), now_ms))?;
        if let Credential::Key { key_id, use_due: true } = &caller.credential {
            let key_id = key_id.clone();
            self.0.store.write(move |tx| key::used(tx, &key_id, now_ms)).await?;
        }
        Ok(caller)
    }

    /// Whose token this is, or was a moment ago: for a write, which asks again in its transaction.
    async fn met(&self, token: &Token) -> Result<Caller> {
        let now_ms = self.now_ms();
        let known = || self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known().find(token, now_ms);
        if let Some(caller) = found {
            self.gate(|gate| gate.pass(caller.rate_key(), now_ms))?;
            return Ok(caller);
        }
        let caller = self.who(token.clone()).await?;
        known().keep(token, caller.clone(), now_ms);
        Ok(caller)
    }

    fn now_ms(&self) -> UnixMs {
        self.0.clock.now_ms()
    }

    fn gate<T>(&self, with: impl FnOnce(&mut rate::Gate) -> T) -> T {
        // A panic while holding the lock cannot leave the counts worse than wrong by one.
        with(&mut self.0.gate.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads for whoever has this token and scope.
    async fn read<T: Send + 'static>(
        &self,
        token: Token,
        scope: Scope,
        read: impl Fn(&mut Rx<'_>, &Caller, UnixMs) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let caller = self.who(token).await?;
        caller.require(scope)?;
        let now_ms = self.now_ms();
        self.0.store.read(move |rx| read(rx, &caller, now_ms)).await
    }

    /// Changes something for whoever has this token and scope, once for each idempotency key.
    async fn write(
        &self,
        sent: Sent,
        scope: Scope,
        effect: impl Fn(&mut Tx<'_>, &Caller, UnixMs) -> Result<Answer> + Send + 'static,
    ) -> Result<Reply> {
        let caller = self.met(&sent.token).await?;
        caller.require(scope)?;
        let now_ms = self.now_ms();
        let request = sent.request(&caller.user_id)?;
        let write = self.0.store.write(move |tx| {
            // Again, in this transaction: it may have been revoked since.
            let caller = access::who(tx, &sent.token, now_ms)?;
            caller.require(scope)?;
            idempotency::run(tx, &request, now_ms, |tx| effect(tx, &caller, now_ms))
        });
        write.await
    }
}

/// An answer with this body, kept for whoever asks again.
fn answer(status: u16, body: &impl Serialize) -> Result<Answer> {
    Answer::new(status, text(body)?)
}

fn text(body: &impl Serialize) -> Result<String> {
    serde_json::to_string(body).map_err(|e| guild_store::Error::Decode(e.to_string()).into())
}

/// An id of a path.
fn parse<T: std::str::FromStr>(field: &str, id: &str) -> Result<T> {
    id.parse().map_err(|_| {
        Error::refused(&code::MALFORMED, format!("{field}: is not an id of this form"))
    })
}
