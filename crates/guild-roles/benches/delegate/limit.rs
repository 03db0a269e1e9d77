//! The intake alone: how fast events are read, checked and stored, whatever they are about.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::join;
use guild_bus::Local;
use guild_network::intake::{Intake, Options as IntakeOptions, Origin, Pending, Verdict};
use guild_protocol::env::Shutdown;
use guild_protocol::nostr::{Event, Limits};
use guild_store::{Hooks, Migrations, Service};
use testbed::bench::Watch;

use crate::hall::Wall;
use crate::said;

/// How many of these events in a second.
pub(crate) fn run(options: &guild_store::Options, frames: &[String]) -> Result<f64, String> {
    let migrations = Migrations::store().and(guild_network::migrations());
    let database = Service::open(options, &migrations, Hooks::default(), 0).map_err(said)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(said)?;
    let bus = Local::new();
    let (intake, taking) =
        Intake::new(IntakeOptions::default(), database.handle(), &bus, Arc::new(Wall));
    let shutdown = Shutdown::new();
    let stop = shutdown.clone();
    let bring = async move {
        let source = intake.source(&Origin::Relay("wss://relay.example".to_owned()));
        let watch = Watch::start();
        let mut pending: VecDeque<Pending> = VecDeque::new();
        let mut stored = 0_u64;
        let count = |verdict: Verdict| u64::from(matches!(verdict, Verdict::Stored { .. }));
        for frame in frames {
            let event = Event::parse(frame.as_bytes(), &Limits::DEFAULT).map_err(said)?;
            pending.push_back(source.submit(event).await);
            if pending.len() >= 16_384
                && let Some(first) = pending.pop_front()
            {
                stored += count(first.await);
            }
        }
        for verdict in pending {
            stored += count(verdict.await);
        }
        let per_s = watch.per_s(frames.len() as u64);
        stop.trigger();
        if stored == 0 { Err("nothing was stored".to_owned()) } else { Ok(per_s) }
    };
    let (ended, brought) = runtime.block_on(join(taking.run(shutdown), bring));
    ended.map_err(said)?;
    database.close();
    brought
}
