//! The roles that trade: who hires others, and who does work for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use guild_ledger::policy::Bundle;
use guild_market::order;
use guild_network::client::Pool;
use guild_protocol::amount::Msat;
use guild_protocol::env::{BoxFuture, Shutdown};
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::nostr::Event;
use guild_protocol::schema::Registry;
use guild_roles::buyer::{self, Buyer};
use guild_roles::provider::{self, Broadcast, Embedder, Provider, Worker};
use guild_roles::treasury::{Account, Limit, Treasury};

use super::{Parts, Supervisor};
use crate::config::Loaded;
use crate::error::Result;

/// Where the money of a node's own wallet comes from.
pub(crate) fn outside() -> Result<Account> {
    let asset_id = order::wallet()?.asset_id;
    Ok(Account::new("outside", "main", asset_id, Limit::None)?)
}

/// Opens the accounts that the first order and its funding need, so that a newcomer can move money at once.
pub(super) async fn open_accounts(treasury: &Treasury) -> Result<()> {
    treasury.open(outside()?).await?;
    treasury.open(order::wallet()?).await?;
    Ok(())
}

/// What the roles are made with, beside the parts.
pub(super) struct Means<'a> {
    pub(super) loaded: &'a Loaded,
    pub(super) registry: Arc<Registry>,
    pub(super) pool: Pool,
    /// All keys of this node.
    pub(super) ours: BTreeSet<PublicKey>,
}

/// Starts the role that hires.
pub(super) fn start_buyer(
    means: &Means<'_>,
    (key, policy): (SecretKey, Bundle),
    parts: &Parts,
    supervisor: &mut Supervisor,
    shutdown: &Shutdown,
) -> Buyer {
    let options = buyer::Options {
        relays: means.pool.relays(),
        ours: means.ours.iter().copied().collect(),
        live_ms: i64::from(means.loaded.config.buyer.live_s).saturating_mul(1_000),
        ..buyer::Options::default()
    };
    let node = buyer::Node {
        store: parts.store.clone(),
        bus: parts.bus.handle.clone(),
        clock: parts.clock.clone(),
        random: parts.random.clone(),
        registry: means.registry.clone(),
        policy: Arc::new(policy),
        workshop: None,
    };
    let (buyer, service) = Buyer::new(options, key, node);
    let stop = shutdown.clone();
    supervisor.start("buyer", async move {
        service.run(stop).await;
        Ok(())
    });
    buyer
}

/// Starts the role that works, if the settings want it.
pub(super) fn start_provider(
    means: &Means<'_>,
    (key, worker): (SecretKey, Option<Arc<dyn Worker>>),
    parts: &Parts,
    supervisor: &mut Supervisor,
    shutdown: &Shutdown,
) -> Result<Option<Provider>> {
    if !means.loaded.config.provider.enabled {
        return Ok(None);
    }
    let worker = worker.unwrap_or_else(|| Arc::new(Embedder));
    let node = provider::Node {
        store: parts.store.clone(),
        bus: parts.bus.handle.clone(),
        clock: parts.clock.clone(),
        random: parts.random.clone(),
        registry: means.registry.clone(),
    };
    let options = provider_options(means, &*worker);
    let (provider, service) =
        Provider::new(options, key, worker, broadcast(means.pool.clone()), node)?;
    let stop = shutdown.clone();
    supervisor.start("provider", async move {
        service.run(stop).await;
        Ok(())
    });
    Ok(Some(provider))
}

fn provider_options(means: &Means<'_>, worker: &dyn Worker) -> provider::Options {
    let settings = &means.loaded.config.provider;
    let defaults = provider::Options::default();
    let price = Msat(settings.price_msat.into());
    provider::Options {
        name: match settings.name.trim() {
            "" => defaults.name,
            name => name.to_owned(),
        },
        kinds: means.loaded.config.network.request_kinds.0.iter().copied().collect(),
        prices: worker.schema_ids().into_iter().map(|schema_id| (schema_id, price)).collect(),
        concurrency: usize::try_from(settings.concurrency).unwrap_or(usize::MAX),
        credit: Msat(settings.credit_msat.into()),
        relays: means.pool.relays(),
        ..defaults
    }
}

/// Offers an event to every configured relay at once, and forgets it.
fn broadcast(pool: Pool) -> Broadcast {
    Arc::new(move |event: Event| {
        let pool = pool.clone();
        Box::pin(async move {
            let relays = pool.relays();
            let sent = relays.iter().map(|relay| pool.publish(relay, &event));
            // Whoever did not take it hears the next one.
            let _ = futures_util::future::join_all(sent).await;
        }) as BoxFuture<()>
    })
}
