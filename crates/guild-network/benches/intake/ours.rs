//! The intake itself, with the archive and the index behind it.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::join;
use guild_bus::Local;
use guild_network::intake::{Intake, Options, Origin, Pending, Source, Verdict};
use guild_protocol::env::{BoxFuture, Clock, Shutdown, UnixMs};
use guild_protocol::nostr::Limits;
use guild_protocol::nostr::message::RelayMessage;
use guild_store::{Migrations, Service, Store};
use testbed::bench::{Measured, Watch};

use crate::{market, said};

struct Still;

impl Clock for Still {
    fn now_ms(&self) -> UnixMs {
        market::NOW_S as i64 * 1000
    }

    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }
}

/// Every frame is new.
pub(crate) fn new(options: &guild_store::Options, frames: Vec<String>) -> Result<Measured, String> {
    run(options, async |source| {
        let watch = Watch::start();
        let stored =
            bring(&source, &frames, |verdict| matches!(verdict, Verdict::Stored { .. })).await?;
        Ok((watch.per_s(stored), stored))
    })
}

/// Every frame was there before.
pub(crate) fn known(
    options: &guild_store::Options,
    mut frames: Vec<String>,
) -> Result<Measured, String> {
    let count = frames.len() as u64;
    // As many as are remembered.
    frames.truncate(Options::default().seen_max_ids / 4);
    run(options, async |source| {
        bring(&source, &frames, |verdict| matches!(verdict, Verdict::Stored { .. })).await?;
        let watch = Watch::start();
        let mut known = 0;
        while known < count {
            let rest = usize::try_from(count - known).map_err(said)?.min(frames.len());
            known += bring(&source, &frames[..rest], |verdict| *verdict == Verdict::Known).await?;
        }
        Ok((watch.per_s(known), known))
    })
}

fn run(
    options: &guild_store::Options,
    bring: impl AsyncFnOnce(Source) -> Result<(f64, u64), String>,
) -> Result<Measured, String> {
    let migrations = Migrations::store().and(guild_network::migrations());
    let database =
        Service::open(options, &migrations, guild_store::Hooks::default(), 0).map_err(said)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().map_err(said)?;
    let (intake, service) =
        Intake::new(Options::default(), database.handle(), &Local::new(), Arc::new(Still));
    let shutdown = Shutdown::new();
    let stop = shutdown.clone();
    let bring = async move {
        let brought = bring(intake.source(&Origin::Relay("wss://relay.example".to_owned()))).await;
        stop.trigger();
        brought
    };
    let (ended, brought) = runtime.block_on(join(service.run(shutdown), bring));
    ended.map_err(said)?;
    let (per_s, count) = brought?;
    let kept = runtime.block_on(kept(&database.handle()))?;
    database.close();
    if kept == 0 || (kept as u64) > count {
        return Err(format!("{kept} events are kept"));
    }
    Ok(Measured { name: "guild", per_s, result: count.to_string() })
}

async fn kept(store: &Store) -> Result<i64, String> {
    let head = store.read(guild_network::archive::head).await.map_err(said)?;
    Ok(head.events)
}

/// Reads frames and offers their events, many at a time; how many had the verdict that is expected.
async fn bring(
    source: &Source,
    frames: &[String],
    expected: impl Fn(&Verdict) -> bool,
) -> Result<u64, String> {
    let mut count = 0;
    let mut pending: VecDeque<Pending> = VecDeque::new();
    for frame in frames {
        let message = RelayMessage::parse(frame.as_bytes(), &Limits::DEFAULT).map_err(said)?;
        let RelayMessage::Event { event, .. } = message else { return Err("no event".to_owned()) };
        pending.push_back(source.submit(*event).await);
        if pending.len() >= 16_384
            && let Some(first) = pending.pop_front()
        {
            count += u64::from(expected(&first.await));
        }
    }
    for verdict in pending {
        count += u64::from(expected(&verdict.await));
    }
    Ok(count)
}
