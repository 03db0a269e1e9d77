//! Disputes: the role, and what it needs of this node.

use std::sync::Arc;

use guild_protocol::env::Shutdown;
use guild_protocol::identity::SecretKey;
use guild_protocol::schema::Registry;
use guild_roles::disputes::{Disputes, Node, Options, Rules};
use guild_roles::workshop::Workshop;

use super::identity::{Identity, Origin};
use super::market::Means;
use super::{Parts, Supervisor};
use crate::config::{Environment, Loaded};
use crate::error::Result;

/// Starts it, under the keys that hire and work.
pub(super) fn start(
    means: &Means<'_>,
    (buyer, provider): (&SecretKey, &SecretKey),
    parts: &Parts,
    supervisor: &mut Supervisor,
    shutdown: &Shutdown,
) -> Result<Disputes> {
    let options = options(means.loaded, means.pool.relays());
    let keys =
        (SecretKey::from_bytes(buyer.to_bytes())?, SecretKey::from_bytes(provider.to_bytes())?);
    let workshop = means.workshops.buyer.clone();
    let (disputes, service) = Disputes::new(options, keys, node(parts, workshop));
    let stop = shutdown.clone();
    supervisor.start("disputes", async move {
        service.run(stop).await;
        Ok(())
    });
    Ok(disputes)
}

/// How disputes are made and taken, by these settings.
fn options(loaded: &Loaded, relays: Vec<String>) -> Options {
    let market = &loaded.config.market;
    let rules = Rules {
        window_ms: i64::from(market.dispute_s).saturating_mul(1_000),
        fallback: market.dispute_default.into(),
        arbiters: market.arbiters.0.clone(),
        ..Rules::default()
    };
    Options { relays, rules, ..Options::default() }
}

fn node(parts: &Parts, workshop: Option<Workshop>) -> Node {
    Node {
        store: parts.store.clone(),
        bus: parts.bus.handle.clone(),
        clock: parts.clock.clone(),
        random: parts.random.clone(),
        registry: Arc::new(Registry::builtin()),
        workshop,
    }
}

impl Parts {
    /// Disputes, for a process that is there to say one thing: it leaves with the next node that runs.
    pub(crate) async fn disputes(
        &self,
        loaded: &Loaded,
        environment: &Environment,
    ) -> Result<Disputes> {
        let identity = Identity::claim(Origin::Keystore(environment), loaded, self).await?;
        let options = options(loaded, loaded.config.network.relays.0.clone());
        let keys = (identity.buyer, identity.provider);
        Ok(Disputes::new(options, keys, node(self, None)).0)
    }
}
