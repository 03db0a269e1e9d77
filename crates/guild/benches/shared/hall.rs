//! The hosting interface of a node, in this process and over loopback, in front of a database: as `guild up` serves it,
//! but for how often one may ask.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use guild_bus::Local;
use guild_gateway::{Options, Roles, Service, Services};
use guild_hosting::access::rate::{self, Rate};
use guild_hosting::access::session::{self, NewSession, Via};
use guild_hosting::access::{nonce, siwe};
use guild_hosting::clamp::Policy;
use guild_hosting::desk::{Desk, Options as DeskOptions};
use guild_hosting::machine::Abilities;
use guild_hosting::machine::image::{Images, Source};
use guild_hosting::machine::link::Link;
use guild_hosting::machine::visit::{Door, Limits};
use guild_hosting::{UserId, money};
use guild_ledger::writer::{Options as WriterOptions, Writer};
use guild_protocol::env::{BoxFuture, Clock, Random, Shutdown, UnixMs};
use guild_protocol::identity::SecretKey;
use guild_roles::agents::Agents;
use guild_roles::audit_log::{AuditLog, Options as LogOptions};
use guild_roles::explorer::{Explorer, Options as ExplorerOptions};
use guild_roles::judgements::Judgements;
use guild_roles::outbox::Outbox;
use guild_roles::relays::Relays;
use guild_roles::treasury::Treasury;
use guild_roles::turn::Turns;
use guild_store::{Migrations, Store};
use testbed::bench::Watch;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// When everything begins.
pub(crate) const T0: UnixMs = 1_768_435_200_000;
/// So many users ask in turn.
const USERS: u64 = 64;
const DAY_MS: i64 = 86_400_000;
const FUNDS: i64 = 1_000_000_000;

/// A clock that has begun at a moment.
#[derive(Clone, Copy)]
pub(crate) struct Since(pub(crate) UnixMs, pub(crate) Watch);

impl Clock for Since {
    fn now_ms(&self) -> UnixMs {
        self.0 + i64::try_from(self.1.elapsed().as_millis()).unwrap_or(0)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock that is passed in")]
    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        let wait = std::time::Duration::from_millis(u64::try_from(duration_ms).unwrap_or(0));
        Box::pin(tokio::time::sleep(wait))
    }
}

/// Numbers that are never the same: nobody guesses here.
#[derive(Default)]
pub(crate) struct Dice(AtomicU64);

impl Random for Dice {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let drawn = self.0.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            chunk.iter_mut().zip(drawn.to_be_bytes()).for_each(|(byte, drawn)| *byte = drawn);
        }
    }
}

/// All tables of a node.
pub(crate) fn migrations() -> Migrations {
    Migrations::store()
        .and(guild_ledger::migrations())
        .and(guild_network::migrations())
        .and(guild_market::migrations())
        .and(guild_roles::migrations())
        .and(guild_hosting::migrations())
        .and(guild_kernel::migrations())
}

/// A gateway that answers.
pub(crate) struct Hall {
    pub(crate) address: SocketAddr,
    /// Of users who are signed in and have money.
    pub(crate) tokens: Vec<String>,
    runtime: Runtime,
    shutdown: Shutdown,
}

impl Hall {
    pub(crate) fn open(store: &Store) -> Result<Hall, String> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(said)?;
        let clock: Arc<dyn Clock> = Arc::new(Since(T0, Watch::start()));
        let random: Arc<dyn Random> = Arc::new(Dice::default());
        let tokens = runtime.block_on(sign_in(store, &*clock, &*random))?;
        let (writer, ledger) =
            Writer::new(&WriterOptions::default(), store.clone(), clock.clone()).map_err(said)?;
        runtime.spawn(ledger);
        let roles = roles(store, writer, &clock, &random)?;
        let shutdown = Shutdown::new();
        let gateway = Service::new(Options::default(), roles, clock, "token", shutdown.clone());
        let listener =
            runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).map_err(said)?;
        let address = listener.local_addr().map_err(said)?;
        runtime.spawn(gateway.run(listener));
        Ok(Hall { address, tokens, runtime, shutdown })
    }

    pub(crate) fn close(self) {
        self.shutdown.trigger();
        self.runtime.shutdown_background();
    }
}

async fn sign_in(
    store: &Store,
    clock: &dyn Clock,
    random: &dyn Random,
) -> Result<Vec<String>, String> {
    let mut tokens = Vec::new();
    for n in 0..USERS {
        let mut address = [0xbe; 20];
        address[..8].copy_from_slice(&n.to_be_bytes());
        let user_id = UserId::of_wallet(address);
        let new = NewSession::make(clock, random, DAY_MS);
        tokens.push(new.token.reveal().to_owned());
        let signed_in = store.write(move |tx| {
            money::credit(tx, &user_id, FUNDS, &format!("asker {n}"), T0)?;
            session::open(tx, &user_id, Via::Siwe, &new, T0).map(drop)
        });
        signed_in.await.map_err(|e: guild_hosting::Error| said(e))?;
    }
    Ok(tokens)
}

fn roles(
    store: &Store,
    writer: Writer,
    clock: &Arc<dyn Clock>,
    random: &Arc<dyn Random>,
) -> Result<Roles, String> {
    let (bus, turns) = (Arc::new(Local::new()), Turns::new(store.clone()));
    let log = LogOptions::default();
    let log = AuditLog::new(log, turns.clone(), bus.clone(), clock.clone(), random.clone());
    let explorer = Explorer::new(ExplorerOptions::default(), turns, bus, clock.clone());
    Ok(Roles {
        agents: Agents::new(store.clone(), clock.clone()),
        content: None,
        log,
        judgements: Judgements::new(store.clone(), clock.clone()),
        outbox: Outbox::new(store.clone(), clock.clone()),
        relay: None,
        relays: Relays::new(None, &[], store.clone(), clock.clone()),
        treasury: Treasury::new(store.clone(), writer, clock.clone()),
        buyer: None,
        meetings: None,
        disputes: None,
        reviews: None,
        desk: Some(desk(store, clock, random)?),
        explorer,
        services: Services::default(),
        metrics: None,
    })
}

fn desk(store: &Store, clock: &Arc<dyn Clock>, random: &Arc<dyn Random>) -> Result<Desk, String> {
    let always = Rate { per_minute: u32::MAX, burst: u32::MAX };
    let rate = rate::Options {
        per_token: always,
        per_place: always,
        sign_ins: always,
        ..rate::Options::default()
    };
    let options = DeskOptions {
        policy: Policy { jobs_max: i64::MAX, ..Policy::default() },
        siwe: siwe::Policy { origins: Vec::new(), chain_ids: [1].into(), skew_ms: siwe::SKEW_MS },
        session_ms: DAY_MS,
        rate,
        nonces: nonce::Limits::default(),
        machine: "local".to_owned(),
        abilities: Abilities { pause: true, resize: false },
        bypass: false,
    };
    let image = "sandbox-base:v1.0.0".parse().map_err(said)?;
    let images = Arc::new(Images::new().with(image, Source::Host));
    let key = Arc::new(SecretKey::make(&**random));
    let link = Link::new(key, clock.clone(), random.clone());
    let door = Door::new(store.clone(), link, Limits::default());
    let (store, bus) = (store.clone(), Arc::new(Local::new()));
    Ok(Desk::new(options, images, door, store, bus, clock.clone(), random.clone()))
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
