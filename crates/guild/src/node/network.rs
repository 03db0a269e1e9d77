//! The open world: what takes events in, keeps them within bounds, and serves them to strangers.

use std::net::SocketAddr;

use guild_network::archive::Bounds;
use guild_network::intake::{Intake, Options as IntakeOptions};
use guild_network::keeper::Keeper;
use guild_network::relay::{Options as RelayOptions, Relay};
use guild_protocol::env::Shutdown;

use super::{Parts, Supervisor, hosts};
use crate::config::Loaded;

/// Starts the services; the relay, if the settings want one.
pub(super) fn start(
    loaded: &Loaded,
    address: SocketAddr,
    parts: &Parts,
    supervisor: &mut Supervisor,
    shutdown: &Shutdown,
) -> Option<Relay> {
    let (store, clock) = (parts.store.clone(), parts.clock.clone());
    let (intake, service) =
        Intake::new(IntakeOptions::default(), store.clone(), &*parts.bus.handle, clock.clone());
    let stop = shutdown.clone();
    supervisor.start("intake", async move { Ok(service.run(stop).await?) });
    let keeper = Keeper::new(bounds(loaded), store.clone(), clock.clone());
    let stop = shutdown.clone();
    supervisor.start("archive", async move {
        keeper.run(stop).await;
        Ok(())
    });
    if !loaded.config.relay.enabled {
        return None;
    }
    let options = relay_options(loaded, address);
    let (relay, service) = Relay::new(options, intake, store, clock, parts.random.clone());
    let stop = shutdown.clone();
    supervisor.start("relay", async move {
        service.run(stop).await;
        Ok(())
    });
    Some(relay)
}

fn bounds(loaded: &Loaded) -> Bounds {
    let relay = &loaded.config.relay;
    Bounds {
        max_events: i64::from(relay.max_events),
        max_bytes: i64::from(relay.max_mb).saturating_mul(1_000_000),
    }
}

fn relay_options(loaded: &Loaded, address: SocketAddr) -> RelayOptions {
    let relay = &loaded.config.relay;
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    RelayOptions {
        hosts: hosts(loaded, address),
        connections_max: count(relay.connections_max),
        connections_per_address: count(relay.connections_per_address),
        frames_per_minute: relay.frames_per_minute,
        events_per_minute: relay.events_per_minute,
        key_events_per_minute: relay.key_events_per_minute,
        auth_to_read: relay.auth_to_read,
        auth_to_write: relay.auth_to_write,
        ..RelayOptions::default()
    }
}
