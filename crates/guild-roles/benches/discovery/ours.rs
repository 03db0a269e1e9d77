//! The intake, the archive and the index, and behind them the registry.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::join;
use guild_bus::{Bus, Local};
use guild_network::intake::{Intake, Options as IntakeOptions, Origin, Pending, Source, Verdict};
use guild_protocol::env::{BoxFuture, Clock, Random, Shutdown, UnixMs};
use guild_protocol::nostr::Limits;
use guild_protocol::nostr::message::RelayMessage;
use guild_roles::discovery::{Discovery, Node, Options};
use guild_roles::router::{Options as RouterOptions, Router};
use guild_store::{Hooks, Migrations, Service};
use testbed::bench::Watch;

use crate::{cards, said};

struct Still;

impl Clock for Still {
    fn now_ms(&self) -> UnixMs {
        cards::NOW_S as i64 * 1000
    }

    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }
}

struct Dice;

impl Random for Dice {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(1);
    }
}

/// All of them are let in: what is measured is how fast they are read.
fn without_bounds() -> Options {
    Options {
        entries_max: usize::MAX,
        offers_per_key: usize::MAX,
        new_per_hour: u32::MAX,
        ..Options::default()
    }
}

/// How many in a second, how many offers are known then, and how much memory they take.
pub(crate) fn run(
    options: &guild_store::Options,
    frames: Vec<String>,
) -> Result<(f64, u64, u64), String> {
    let migrations = Migrations::store()
        .and(guild_ledger::migrations())
        .and(guild_network::migrations())
        .and(guild_market::migrations());
    let bus = Arc::new(Local::new());
    let bells = bus.clone();
    let hooks = Hooks::on_ring(move |topic, after| bells.ring(topic, after));
    let database = Service::open(options, &migrations, hooks, 0).map_err(said)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().map_err(said)?;
    let (store, clock) = (database.handle(), Arc::new(Still));
    let (intake, taking) =
        Intake::new(IntakeOptions::default(), store.clone(), &*bus, clock.clone());
    let random = Arc::new(Dice);
    let router = Router::new(RouterOptions::default(), store.clone(), clock.clone(), random, None);
    let node = Node { store, bus: bus.clone(), clock, router, intake: Some(intake.clone()) };
    let (discovery, keeping) = Discovery::new(without_bounds(), node);
    let shutdown = Shutdown::new();
    let stop = shutdown.clone();
    let bring = async move {
        let source = intake.source(&Origin::Relay("wss://relay.example".to_owned()));
        let watch = Watch::start();
        let stored = bring(&source, &frames).await;
        let known = known(&discovery, &*bus, stored.as_ref().copied().unwrap_or(0));
        let per_s = watch.per_s(known);
        let bytes = discovery.summary().map_or(0, |sum| sum.bytes as u64);
        stop.trigger();
        stored.map(|_| (per_s, known, bytes))
    };
    let keeping = runtime.spawn(keeping.run(shutdown.clone()));
    let (ended, brought) = runtime.block_on(join(taking.run(shutdown), bring));
    ended.map_err(said)?;
    runtime.block_on(keeping).map_err(said)?;
    database.close();
    brought
}

/// So long it is waited for what was stored to be known.
const WAIT_MAX_MS: u32 = 60_000;

/// Waits until all that were stored are known; how many are.
fn known(discovery: &Discovery, bus: &dyn Bus, stored: u64) -> u64 {
    let mut waited_ms = 0;
    loop {
        let known = discovery.ask(|registry, _| registry.len() as u64).unwrap_or(0);
        if known >= stored || waited_ms >= WAIT_MAX_MS {
            return known;
        }
        if waited_ms % 100 == 99 {
            // Whoever missed a bell looks again.
            bus.ring(guild_network::archive::TOPIC, 0);
        }
        waited_ms += 1;
        testbed::wait_ms(1);
    }
}

/// Reads frames and offers their events, many at a time; how many were stored.
async fn bring(source: &Source, frames: &[String]) -> Result<u64, String> {
    let is_stored = |verdict: Verdict| u64::from(matches!(verdict, Verdict::Stored { .. }));
    let mut count = 0;
    let mut pending: VecDeque<Pending> = VecDeque::new();
    for frame in frames {
        let message = RelayMessage::parse(frame.as_bytes(), &Limits::DEFAULT).map_err(said)?;
        let RelayMessage::Event { event, .. } = message else { return Err("no event".to_owned()) };
        pending.push_back(source.submit(*event).await);
        if pending.len() >= 16_384
            && let Some(first) = pending.pop_front()
        {
            count += is_stored(first.await);
        }
    }
    for verdict in pending {
        count += is_stored(verdict.await);
    }
    Ok(count)
}
