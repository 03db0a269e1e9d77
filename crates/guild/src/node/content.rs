//! Content by its hash: where it is kept, who else is asked, and who removes what nobody needs.

use std::sync::Arc;

use guild_network::content::{Content, Keeper, Options, Peers, PeersOptions};
use guild_protocol::env::{Clock, Random, Shutdown};
use guild_store::Store;

use super::{Parts, Supervisor};
use crate::config::Loaded;
use crate::error::Result;
use crate::real::{SystemClock, SystemRandom};

const MINUTE_MS: i64 = 60_000;

/// The content in a store, as the settings say.
fn of(
    loaded: &Loaded,
    store: Store,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
) -> Result<Content> {
    let config = &loaded.config.content;
    let options = Options {
        max_bytes: u64::from(config.max_mb).saturating_mul(1_000_000),
        grace_ms: i64::from(config.grace_minutes).saturating_mul(MINUTE_MS),
        ..Options::default()
    };
    let content = Content::new(options, store, clock.clone(), random);
    if config.peers.0.is_empty() {
        return Ok(content);
    }
    let timeout_ms = i64::from(config.peer_timeout_ms);
    let options = PeersOptions { timeout_ms, ..PeersOptions::default() };
    Ok(content.with_peers(Peers::new(&config.peers.0, options, clock)?))
}

/// The same for a process that only reads, beside whoever writes.
pub(crate) fn read_only(loaded: &Loaded, store: Store) -> Result<Content> {
    of(loaded, store, Arc::new(SystemClock), Arc::new(SystemRandom))
}

impl Parts {
    /// The content of this node.
    pub(crate) fn content(&self, loaded: &Loaded) -> Result<Content> {
        of(loaded, self.store.clone(), self.clock.clone(), self.random.clone())
    }
}

/// Starts the service, if the settings want one.
pub(super) fn start(
    loaded: &Loaded,
    content: &Content,
    supervisor: &mut Supervisor,
    shutdown: &Shutdown,
) {
    let minutes = i64::from(loaded.config.content.collect_minutes);
    if minutes == 0 {
        return;
    }
    let keeper = Keeper::new(content.clone(), minutes.saturating_mul(MINUTE_MS));
    let stop = shutdown.clone();
    supervisor.start("content", async move {
        keeper.run(stop).await;
        Ok(())
    });
}
