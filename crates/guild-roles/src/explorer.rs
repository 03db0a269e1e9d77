//! The market as a reader sees it: who offers work, what is asked, what became of it, and what proves it.
//!
//! Three sorts of requests stand side by side: those that were only seen, those that this node bought, and those that
//! it was hired for. Nothing here changes anything.

mod follow;
mod offer;
mod page;
mod people;
mod receipt;
mod request;
mod story;
mod view;
mod words;

use std::sync::Arc;

use guild_bus::Bus;
use guild_market::{overview, receipts};
use guild_network::index;
use guild_protocol::env::Clock;
use guild_protocol::id::ReceiptId;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::EventId;
use guild_store::Store;

use crate::{Error, Result};

pub use follow::{Follower, Happening};
pub use page::{Cursor, Listed, NoCursor, PAGE_MAX, Page};
pub use view::{
    Counts, Offer, Party, Provider, Receipt, Recommendations, Record, Request, RequestDetail, Side,
    Standing, Step, StepKind, Summary, Tone,
};
pub use words::{grouped, msat};

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
    pub fn new(
        options: Options,
        store: Store,
        bus: Arc<dyn Bus>,
        clock: Arc<dyn Clock>,
    ) -> Explorer {
        Explorer { options, store, bus, clock }
    }

    /// Whether the store answers.
    pub async fn ping(&self) -> Result<()> {
        let _: Option<(i64,)> = self.store.read(|rx| rx.first("SELECT 1", &[])).await?;
        Ok(())
    }

    /// What happens now.
    pub async fn summary(&self) -> Result<Summary> {
        let (lines, since_ms) = (self.options.summary_lines, self.live_since_ms());
        let summary = self.store.read(move |rx| {
            let (known, dealt) = (index::counts(rx, since_ms)?, overview::totals(rx)?);
            let first = Page::first(lines);
            Ok::<_, Error>(Summary {
                counts: Counts {
                    offers: known.providers,
                    offers_live: known.providers_live,
                    requests: known.requests,
                    receipts: dealt.receipts,
                    paid_msat: dealt.paid,
                    earned_msat: dealt.earned,
                },
                offers: offer::page(rx, &first, &Wanted { schema_id: None, live: true }, since_ms)?
                    .items,
                requests: request::page(rx, &first)?.items,
                receipts: receipt::page(rx, &first)?.items,
            })
        });
        summary.await
    }

    /// A page of offers, those whose provider was heard last first. One that is heard meanwhile moves to the front.
    pub async fn providers(&self, page: Page, wanted: Wanted) -> Result<Listed<Offer>> {
        let since_ms = self.live_since_ms();
        self.store.read(move |rx| offer::page(rx, &page, &wanted, since_ms)).await
    }

    /// One provider; none if it never offered anything and no receipt names it.
    pub async fn provider(&self, key: PublicKey) -> Result<Option<Provider>> {
        let since_ms = self.live_since_ms();
        self.store.read(move |rx| offer::provider(rx, &key, since_ms)).await
    }

    /// A page of requests, the newest first.
    pub async fn requests(&self, page: Page) -> Result<Listed<Request>> {
        self.store.read(move |rx| request::page(rx, &page)).await
    }

    /// One request with its story.
    pub async fn request(&self, id: EventId) -> Result<Option<RequestDetail>> {
        self.store.read(move |rx| request::detail(rx, &id)).await
    }

    /// A page of receipts, the newest first.
    pub async fn receipts(&self, page: Page) -> Result<Listed<Receipt>> {
        self.store.read(move |rx| receipt::page(rx, &page)).await
    }

    /// One receipt.
    pub async fn receipt(&self, id: ReceiptId) -> Result<Option<Kept>> {
        self.store.read(move |rx| receipt::get(rx, &id)).await
    }

    /// The replay that a receipt's trajectory hash seals. Only the buyer's node has it.
    pub async fn replay(&self, id: ReceiptId) -> Result<Option<Vec<u8>>> {
        let replay =
            self.store.read(move |rx| Ok::<_, Error>(receipts::replay_of(rx, &id)?)).await?;
        Ok(replay.map(String::into_bytes))
    }

    fn live_since_ms(&self) -> i64 {
        self.clock.now_ms().saturating_sub(self.options.live_ms)
    }
}
