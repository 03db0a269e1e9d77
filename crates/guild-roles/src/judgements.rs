//! Verdicts of the judge over time, as their operator sees them.

use std::sync::Arc;

use guild_market::judge::record;
use guild_protocol::env::{Clock, UnixMs};
use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_store::Store;

use crate::Result;

pub use guild_market::judge::Verdict;
pub use guild_market::judge::record::Point;

/// A verdict about what somebody delivered. Who asks names the moment, so that asking again keeps nothing twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// Who delivered.
    pub provider: PublicKey,
    /// When it was judged; now, if it is not said.
    pub at_ms: Option<UnixMs>,
    /// What came out.
    pub verdict: Verdict,
}

/// The handle of kept verdicts.
#[derive(Clone)]
pub struct Judgements {
    store: Store,
    clock: Arc<dyn Clock>,
}

impl Judgements {
    /// Those of this store.
    pub fn new(store: Store, clock: Arc<dyn Clock>) -> Judgements {
        Judgements { store, clock }
    }

    /// The latest points of a provider, or of all, the newest first.
    pub async fn series(&self, provider: Option<PublicKey>, limit: i64) -> Result<Vec<Point>> {
        Ok(self.store.read(move |rx| record::series(rx, provider.as_ref(), limit)).await?)
    }

    /// Keeps a verdict, once; the id under which it is kept.
    pub async fn keep(&self, judged: Judged) -> Result<Hash> {
        let at_ms = judged.at_ms.unwrap_or_else(|| self.clock.now_ms());
        let kept = self
            .store
            .write(move |tx| record::record(tx, &judged.provider, &judged.verdict, at_ms));
        Ok(kept.await?)
    }
}
