//! The services that look after the store and the money, beside those that serve.

use guild_hosting::access;
use guild_protocol::env::Shutdown;
use guild_roles::router::{self, Router};
use guild_roles::sweeper::{Options as SweeperOptions, Sweeper};
use guild_store::retention::{Keeper, Policy};
use guild_store::{Watch, audit};

use super::{Parts, Supervisor, meter, store_options};
use crate::config::Loaded;
use crate::error::Result;

const DAY_MS: i64 = 24 * 3_600 * 1_000;

/// Starts them.
pub(super) fn start(
    loaded: &Loaded,
    (parts, router): (&Parts, Router),
    supervisor: &mut Supervisor,
    shutdown: &Shutdown,
) -> Result<()> {
    if let Some(keeper) = keeper(loaded, parts)? {
        let stop = shutdown.clone();
        supervisor.start("retention", async move {
            keeper.run(stop).await;
            Ok(())
        });
    }
    // A database that is not a file cannot be taken away like one.
    if let Some(path) = store_options(loaded).sqlite_file() {
        let (watch, clock, stop) = (Watch::new(&path)?, parts.clock.clone(), shutdown.clone());
        supervisor.start("store", async move { Ok(watch.run(&*clock, stop).await?) });
    }
    if let Some(clock) = parts.database_clock.clone() {
        let (store, stop) = (parts.store.clone(), shutdown.clone());
        supervisor.start("clock", async move {
            clock.run(store, stop).await;
            Ok(())
        });
    }
    let (clock, stop) = (parts.clock.clone(), shutdown.clone());
    supervisor.start("metrics", async move {
        meter::keep(clock, stop).await;
        Ok(())
    });
    let sweeper = Sweeper::new(SweeperOptions::default(), parts.store.clone(), parts.clock.clone());
    let stop = shutdown.clone();
    supervisor.start("sweeper", async move {
        sweeper.run(stop).await;
        Ok(())
    });
    let stop = shutdown.clone();
    supervisor.start("routing", async move {
        router::look_after(router, stop).await;
        Ok(())
    });
    Ok(())
}

/// What forgets old events, if the settings ask for it: entries of the audit log, and who signed in.
fn keeper(loaded: &Loaded, parts: &Parts) -> Result<Option<Keeper>> {
    let config = &loaded.config;
    let kept = [
        (audit::TOPIC, config.store.keep_events_days),
        (access::TOPIC, config.hosting.keep_sign_ins_days),
    ];
    let policy = |(topic, days): (&str, u32)| Policy {
        topic: topic.to_owned(),
        keep_ms: i64::from(days).saturating_mul(DAY_MS),
    };
    let policies: Vec<Policy> =
        kept.into_iter().filter(|(_, days)| *days > 0).map(policy).collect();
    if policies.is_empty() {
        return Ok(None);
    }
    Ok(Some(Keeper::new(policies, parts.store.clone(), parts.clock.clone())?))
}
