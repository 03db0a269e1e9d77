//! The open world: what takes events in, keeps them within bounds, and serves them to strangers.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use guild_network::archive::Bounds;
use guild_network::client::{
    Options as PoolOptions, Pool, Scout, ScoutOptions, market_wants, relay_url,
};
use guild_network::intake::{Intake, Options as IntakeOptions};
use guild_network::keeper::Keeper;
use guild_network::publish::{AckState, acknowledge, addressed};
use guild_network::relay::{Options as RelayOptions, Relay};
use guild_network::roster;
use guild_protocol::env::Shutdown;
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_store::outbox::{Deliver, Failure, Message};

use super::identity::Identity;
use super::{Parts, Supervisor, hosts};
use crate::config::Loaded;
use crate::error::Result;

/// The handles of what was started.
pub(super) struct Started {
    /// What takes events in.
    pub(super) intake: Intake,
    /// For strangers, if the settings want one.
    pub(super) relay: Option<Relay>,
    /// The relays of others.
    pub(super) pool: Pool,
}

/// Starts the services.
pub(super) fn start(
    loaded: &Loaded,
    identity: &Identity,
    address: SocketAddr,
    parts: &Parts,
    supervisor: &mut Supervisor,
    shutdown: &Shutdown,
) -> Result<Started> {
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
    let signer = Arc::new(SecretKey::from_bytes(identity.node.to_bytes())?);
    let (pool, service) = Pool::new(
        pool_options(loaded, identity.public_keys()),
        signer,
        intake.clone(),
        store.clone(),
        clock.clone(),
        parts.random.clone(),
    )?;
    let stop = shutdown.clone();
    supervisor.start("relays", async move {
        service.run(stop).await;
        Ok(())
    });
    // A node that knows no relay of others has nothing to look after.
    let network = &loaded.config.network;
    if !(network.relays.0.is_empty() && network.polled_relays.0.is_empty()) {
        let scout = Scout::new(scout_options(loaded, address), pool.clone());
        let stop = shutdown.clone();
        supervisor.start("scout", async move {
            scout.run(stop).await;
            Ok(())
        });
    }
    if !loaded.config.relay.enabled {
        return Ok(Started { intake, relay: None, pool });
    }
    let options = relay_options(loaded, address);
    let (relay, service) = Relay::new(options, intake.clone(), store, clock, parts.random.clone());
    let stop = shutdown.clone();
    supervisor.start("relay", async move {
        service.run(stop).await;
        Ok(())
    });
    Ok(Started { intake, relay: Some(relay), pool })
}

fn pool_options(loaded: &Loaded, keys: BTreeSet<PublicKey>) -> PoolOptions {
    let network = &loaded.config.network;
    let lookback_s = u64::from(network.jobs_lookback_hours).saturating_mul(3_600);
    let defaults = PoolOptions::default();
    // Within the lease: otherwise a slow relay is a lost lease, and everything is sent twice.
    let lease_ms = i64::from(loaded.config.outbox.lease_ms);
    PoolOptions {
        relays: network.relays.0.clone(),
        wants: market_wants(&keys, &network.request_kinds.0, lookback_s),
        publish_ms: defaults.publish_ms.min(lease_ms.saturating_mul(8) / 10),
        private_guests: network.private_hints,
        ..defaults
    }
}

fn scout_options(loaded: &Loaded, address: SocketAddr) -> ScoutOptions {
    let network = &loaded.config.network;
    let bounds = roster::Bounds { private: network.private_hints, ..roster::Bounds::default() };
    ScoutOptions {
        polled: network.polled_relays.0.clone(),
        own: super::own_relays(loaded, address),
        discovers: network.discover_relays,
        bounds,
        ..ScoutOptions::default()
    }
}

/// A sink for relays that does not dial this node itself: what is queued for its own relay is in its archive already,
/// and a stranger who names that relay must not make the node knock at its own door.
pub(super) fn at_home(own: &[String], abroad: Deliver, parts: &Parts) -> Deliver {
    let own: BTreeSet<String> = own.iter().filter_map(|url| relay_url(url).ok()).collect();
    let (store, clock) = (parts.store.clone(), parts.clock.clone());
    Arc::new(move |message: Message| {
        let here = addressed(&message.idempotency_key).filter(|(relay, _)| own.contains(*relay));
        let Some((relay, id)) = here else { return abroad(message) };
        let (relay, store, now_ms) = (relay.to_owned(), store.clone(), clock.now_ms());
        Box::pin(async move {
            let said = (AckState::Acked, "it is here");
            let written = store.write(move |tx| acknowledge(tx, &id, &relay, said, now_ms)).await;
            written.map_err(|e: guild_network::Error| Failure::Retry(e.to_string()))
        })
    })
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
