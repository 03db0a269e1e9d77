//! Reviews: the role, and what it needs of this node.

use std::collections::BTreeSet;

use guild_market::review;
use guild_protocol::env::Shutdown;
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_roles::disputes::is_disputed;
use guild_roles::reviews::{Node, Options, Reviews};

use super::identity::{Identity, Origin};
use super::market::Means;
use super::{Parts, Supervisor};
use crate::config::{Environment, Loaded};
use crate::error::Result;

/// Starts it, under the key that hires: what it signed is the evidence.
pub(super) fn start(
    means: &Means<'_>,
    key: SecretKey,
    parts: &Parts,
    supervisor: &mut Supervisor,
    shutdown: &Shutdown,
) -> Reviews {
    let market = options(means.loaded, &means.ours);
    let options = Options { relays: means.pool.relays(), market, ..Options::default() };
    let (reviews, service) = Reviews::new(options, key, node(parts));
    let stop = shutdown.clone();
    supervisor.start("reviews", async move {
        service.run(stop).await;
        Ok(())
    });
    reviews
}

/// How reviews are made and taken, by these settings.
pub(super) fn options(loaded: &Loaded, ours: &BTreeSet<PublicKey>) -> review::Options {
    let market = &loaded.config.market;
    review::Options {
        delay_ms: i64::from(market.review_delay_s).saturating_mul(1_000),
        ours: ours.clone(),
        trusted: market.trusted_reviewers.0.clone(),
    }
}

fn node(parts: &Parts) -> Node {
    Node {
        store: parts.store.clone(),
        bus: parts.bus.handle.clone(),
        clock: parts.clock.clone(),
        is_disputed: Some(is_disputed()),
    }
}

impl Parts {
    /// Reviews, for a process that is there to publish one: it leaves with the next node that runs.
    pub(crate) async fn reviews(
        &self,
        loaded: &Loaded,
        environment: &Environment,
    ) -> Result<Reviews> {
        let identity = Identity::claim(Origin::Keystore(environment), loaded, self).await?;
        let market = options(loaded, &identity.public_keys());
        let relays = loaded.config.network.relays.0.clone();
        let options = Options { relays, market, ..Options::default() };
        Ok(Reviews::new(options, identity.buyer, node(self)).0)
    }
}
