//! The market as a reader sees it: who offers work, what is asked, what became of it, and what proves it.
//!
//! Three sorts of requests stand side by side: those that were only seen, those that this node bought, and those that
//! it was hired for. Nothing here changes anything.

mod follow;
mod page;
mod view;

use std::sync::Arc;

use guild_bus::Bus;
use guild_protocol::env::Clock;
use guild_protocol::id::ReceiptId;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::EventId;
use guild_store::Store;

use crate::Result;

pub use follow::{Follower, Happening};
pub use page::{Cursor, Listed, NoCursor, PAGE_MAX, Page};
pub use view::{
    Counts, Offer, Party, Provider, Receipt, Record, Request, RequestDetail, Side, Standing, Step, StepKind, Summary,
    Tone,
};

/// The topic of the event table on which orders and jobs tell what happens to them.
const TOPIC: &str = "market";

/// How the market is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long after its last sign of life a provider counts as live.
    pub live_ms: i64,
    /// How often a follower looks without a bell.
    pub sweep_ms: i64,
    /// How many lines of each list a summary has.
    pub summary_lines: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { live_ms: 900_000, sweep_ms: 1_000, summary_lines: 6 }
    }
}

/// The handle of the explorer.
#[derive(Clone)]
pub struct Explorer {
    options: Options,
    store: Store,
    bus: Arc<dyn Bus>,
    clock: Arc<dyn Clock>,
}

/// Which offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Those that claim this job schema.
    pub schema_id: Option<String>,
    /// Only those whose provider is live.
    pub live: bool,
}

/// A receipt as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// As a line of a list.
    pub receipt: Receipt,
    /// The file, byte for byte.
    pub bytes: Vec<u8>,
    /// Whether its replay is here too.
    pub has_replay: bool,
}

impl Explorer {
    /// Reads this store, with bells from this bus.
    pub fn new(options: Options, store: Store, bus: Arc<dyn Bus>, clock: Arc<dyn Clock>) -> Explorer {
        Explorer { options, store, bus, clock }
    }

    /// Whether the store answers.
    pub async fn ping(&self) -> Result<()> {
        let _: Option<(i64,)> = self.store.read(|rx| rx.first("SELECT 1", &[])).await?;
        Ok(())
    }

    /// What happens now.
    pub async fn summary(&self) -> Result<Summary> {
        Ok(Summary { counts: Counts::default(), offers: vec![], requests: vec![], receipts: vec![] })
    }
    /// A page of offers, the newest announcement first.
    pub async fn providers(&self, _page: Page, _wanted: Wanted) -> Result<Listed<Offer>> {
        Ok(Listed { items: vec![], next: None })
    }
    /// One provider; none if nothing of it was ever seen.
    pub async fn provider(&self, _key: PublicKey) -> Result<Option<Provider>> {
        Ok(None)
    }
    /// A page of requests, the newest first.
    pub async fn requests(&self, _page: Page) -> Result<Listed<Request>> {
        Ok(Listed { items: vec![], next: None })
    }
    /// One request with its story.
    pub async fn request(&self, _id: EventId) -> Result<Option<RequestDetail>> {
        Ok(None)
    }
    /// A page of receipts, the newest first.
    pub async fn receipts(&self, _page: Page) -> Result<Listed<Receipt>> {
        Ok(Listed { items: vec![], next: None })
    }
    /// One receipt.
    pub async fn receipt(&self, _id: ReceiptId) -> Result<Option<Kept>> {
        Ok(None)
    }
    /// The replay that a receipt's trajectory hash seals.
    pub async fn replay(&self, _id: ReceiptId) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
}
