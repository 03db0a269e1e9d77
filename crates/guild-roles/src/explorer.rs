//! The market as a reader sees it: who offers work, what is asked, what became of it, and what proves it.
//!
//! Three sorts of requests stand side by side: those that were only seen, those that this node bought, and those that
//! it was hired for. Nothing here changes anything.

mod budget;
mod delegation;
mod dispute;
mod follow;
mod health;
mod matrix;
mod offer;
mod page;
mod people;
mod receipt;
mod request;
mod review;
mod story;
mod view;
mod words;

use std::collections::BTreeSet;
use std::sync::Arc;

use guild_bus::Bus;
use guild_market::delegation::DelegationId;
use guild_market::dispute::DisputeId;
use guild_market::dossier;
use guild_market::overview;
use guild_market::review::{Options as Reviewing, ReviewId};
use guild_market::routing::{Matrix, Options as Routing, Status, TaskType, Tier};
use guild_network::index;
use guild_protocol::env::{Clock, UnixMs};
use guild_protocol::id::ReceiptId;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::EventId;
use guild_store::Rx;
use tokio::sync::Mutex;

use crate::router::Known;
use crate::turn::Turns;
use crate::{Error, Result};

pub use guild_market::dossier::{About, Gathered};
pub use guild_network::index::COUNT_MAX;

pub use budget::Budgets;
pub use delegation::{Delegated, DelegatedDetail, ReplicaView};
pub use dispute::{DisputeDetail, DisputeView, SaidView};
pub use follow::{Follower, Happening};
pub use health::{Condition, Test};
pub use matrix::{
    Belief, COLUMNS_MAX, Curve, Explained, Point, Row as MatrixRow, Sheet, Stance, Work,
};
pub use page::{Cursor, Listed, NoCursor, PAGE_MAX, Page};
pub use review::{OtherReview, OwnReview, ProviderReviews, Weighing, Words};
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
    /// For how long a summary is given to others who ask: it counts everything that there is.
    pub summary_ms: i64,
    /// Whether strangers may see what this node believes of providers.
    pub matrix_public: bool,
    /// Keys whose reviews weigh something although nothing is known of them.
    pub trusted_reviewers: BTreeSet<PublicKey>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            live_ms: 900_000,
            sweep_ms: 1_000,
            summary_lines: 6,
            summary_ms: 1_000,
            matrix_public: false,
            trusted_reviewers: BTreeSet::new(),
        }
    }
}

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// Anybody. What travels encrypted is told only as far as everybody can see it.
    Stranger,
    /// Whoever this node works for.
    Owner,
}

impl Reader {
    fn may_see(self, is_private: bool) -> bool {
        !is_private || self == Reader::Owner
    }
}

/// The handle of the explorer.
#[derive(Clone)]
pub struct Explorer {
    reader: Reader,
    options: Options,
    turns: Turns,
    /// The last summary for strangers. Held while it is made, so that it is made once for all who ask meanwhile.
    recent: Arc<Mutex<Option<(UnixMs, Summary)>>>,
    /// The matrix as it was last read.
    known: Known,
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
    /// Those whose provider the matrix has with this status, for some work.
    pub status: Option<Status>,
    /// Those whose provider is in this tier, for some work.
    pub tier: Option<Tier>,
}

/// A receipt as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// As a line of a list.
    pub receipt: Receipt,
    /// The file, byte for byte.
    pub bytes: Vec<u8>,
    /// Whether its replay is here too, and the reader may have it.
    pub has_replay: bool,
}

impl Explorer {
    /// Reads in these turns, with bells from this bus. Of private work it tells what anybody may know: that it is asked
    /// for, by whom, of whom, and how it stands; not what it is, and not what the two wrote each other.
    pub fn new(
        options: Options,
        turns: Turns,
        bus: Arc<dyn Bus>,
        clock: Arc<dyn Clock>,
    ) -> Explorer {
        let recent = Arc::default();
        let known = Known::default();
        Explorer { reader: Reader::Stranger, options, turns, recent, known, bus, clock }
    }

    /// The same for whoever this node works for: nothing is left out.
    #[must_use]
    pub fn for_owner(&self) -> Explorer {
        Explorer { reader: Reader::Owner, ..self.clone() }
    }

    /// Whether the store answers. Without a turn: it must be known also while many read.
    pub async fn ping(&self) -> Result<()> {
        let _: Option<(i64,)> = self.turns.store().read(|rx| rx.first("SELECT 1", &[])).await?;
        Ok(())
    }

    /// What happens now, or did a moment ago.
    pub async fn summary(&self) -> Result<Summary> {
        if self.reader == Reader::Owner {
            return self.make_summary().await;
        }
        let mut recent = self.recent.lock().await;
        let now_ms = self.clock.now_ms();
        if let Some((at_ms, summary)) = &*recent
            && (0..self.options.summary_ms).contains(&now_ms.saturating_sub(*at_ms))
        {
            return Ok(summary.clone());
        }
        let summary = self.make_summary().await?;
        *recent = Some((now_ms, summary.clone()));
        Ok(summary)
    }

    async fn make_summary(&self) -> Result<Summary> {
        let (reader, lines) = (self.reader, self.options.summary_lines);
        let since_ms = self.live_since_ms();
        let mind = self.mind();
        let summary = self.turns.read(move |rx| {
            let matrix = mind.read(rx)?;
            let (known, dealt) = (index::counts(rx, since_ms)?, overview::totals(rx)?);
            let first = Page::first(lines);
            let live = Wanted { live: true, ..Wanted::default() };
            Ok::<_, Error>(Summary {
                counts: Counts {
                    offers: known.providers,
                    offers_live: known.providers_live,
                    requests: known.requests,
                    receipts: dealt.receipts,
                    paid_msat: dealt.paid,
                    earned_msat: dealt.earned,
                },
                offers: offer::page(rx, &first, &live, (since_ms, &matrix))?.items,
                requests: request::page(rx, &first, reader)?.items,
                receipts: receipt::page(rx, &first)?.items,
            })
        });
        summary.await
    }

    /// A page of offers, those whose provider was heard last first. One that is heard meanwhile moves to the front.
    pub async fn providers(&self, page: Page, wanted: Wanted) -> Result<Listed<Offer>> {
        let since_ms = self.live_since_ms();
        let mind = self.mind();
        self.turns
            .read(move |rx| {
                let matrix = mind.read(rx)?;
                offer::page(rx, &page, &wanted, (since_ms, &matrix))
            })
            .await
    }

    /// One provider; none if it never offered anything, no receipt names it, and the matrix does not know it.
    pub async fn provider(&self, key: PublicKey) -> Result<Option<Provider>> {
        let since_ms = self.live_since_ms();
        let (mind, now_ms) = (self.mind(), self.clock.now_ms());
        self.turns
            .read(move |rx| {
                let matrix = mind.read(rx)?;
                let Some(mut found) = offer::provider(rx, &key, since_ms, (&matrix, now_ms))?
                else {
                    return Ok(None);
                };
                let may = mind.is_open.then_some((&mind.reviewing, now_ms));
                found.reviews = review::of_provider(rx, &key, may)?;
                Ok(Some(found))
            })
            .await
    }

    /// How a provider does in all work that it is known for, or how all do, the worst first. For the operator of this
    /// node alone.
    pub async fn conditions(&self, key: Option<PublicKey>) -> Result<Vec<Condition>> {
        let (mind, now_ms) = (self.mind(), self.clock.now_ms());
        let read = self.turns.read(move |rx| {
            let matrix = mind.read(rx)?;
            health::conditions(rx, &matrix, key.as_ref(), now_ms)
        });
        read.await
    }

    /// A page of what this node says of providers, the newest first. Drafts are for those who may see the matrix.
    pub async fn reviews(&self, page: Page) -> Result<Listed<OwnReview>> {
        let with_drafts = self.mind().is_open;
        self.turns.read(move |rx| review::page(rx, &page, with_drafts)).await
    }

    /// One review of this node.
    pub async fn review(&self, id: ReviewId) -> Result<Option<OwnReview>> {
        let with_drafts = self.mind().is_open;
        self.turns.read(move |rx| review::get(rx, &id, with_drafts)).await
    }

    /// A page of what others say of providers, the newest first.
    pub async fn reviews_of_others(&self, page: Page) -> Result<Listed<OtherReview>> {
        self.turns.read(move |rx| review::others(rx, &page)).await
    }

    /// What all that others say of a provider weighs, for some work or for all; nothing for strangers, unless they may
    /// see the matrix.
    pub async fn weighed(
        &self,
        key: PublicKey,
        task: Option<TaskType>,
    ) -> Result<Option<Vec<Weighing>>> {
        let (mind, now_ms) = (self.mind(), self.clock.now_ms());
        if !mind.is_open {
            return Ok(None);
        }
        let read = self.turns.read(move |rx| {
            review::weighings(rx, (&key, task.clone()), &mind.reviewing, (true, now_ms)).map(Some)
        });
        read.await
    }

    /// A page of requests, the newest first.
    pub async fn requests(&self, page: Page) -> Result<Listed<Request>> {
        let reader = self.reader;
        self.turns.read(move |rx| request::page(rx, &page, reader)).await
    }

    /// One request with its story.
    pub async fn request(&self, id: EventId) -> Result<Option<RequestDetail>> {
        let reader = self.reader;
        self.turns.read(move |rx| request::detail(rx, &id, reader)).await
    }

    /// A page of work that several do, the newest first.
    pub async fn delegations(&self, page: Page) -> Result<Listed<Delegated>> {
        let reader = self.reader;
        self.turns.read(move |rx| delegation::page(rx, &page, reader)).await
    }

    /// Work that several do, with all of them.
    pub async fn delegation(&self, id: DelegationId) -> Result<Option<DelegatedDetail>> {
        let reader = self.reader;
        self.turns.read(move |rx| delegation::detail(rx, &id, reader)).await
    }

    /// What somebody who has nothing but files can check of some work that this node bought. Nothing of private work:
    /// that is shown by a command, which says what it reveals. How a trial is judged is for the owner of the node.
    pub async fn evidence(&self, about: About) -> Result<Option<Gathered>> {
        let reader = self.reader;
        let read = self.turns.read(move |rx| match dossier::gather(rx, &about, false) {
            Err(error) if error.code() == &dossier::code::UNKNOWN => Ok(None),
            gathered => Ok::<_, Error>(Some(gathered?)),
        });
        let is_trial =
            |one: &Gathered| one.manifest.works.iter().any(|work| work.revealed.is_some());
        Ok(read.await?.filter(|one| reader == Reader::Owner || !is_trial(one)))
    }

    /// A page of disputes, those that changed last first.
    pub async fn disputes(&self, page: Page) -> Result<Listed<DisputeView>> {
        let reader = self.reader;
        self.turns.read(move |rx| dispute::page(rx, &page, reader)).await
    }

    /// A dispute as each side of it sees it that is here; none if there is none.
    pub async fn dispute(&self, id: DisputeId) -> Result<Vec<DisputeDetail>> {
        let reader = self.reader;
        self.turns.read(move |rx| dispute::get(rx, &id, reader)).await
    }

    /// A page of receipts, the newest first.
    pub async fn receipts(&self, page: Page) -> Result<Listed<Receipt>> {
        self.turns.read(move |rx| receipt::page(rx, &page)).await
    }

    /// One receipt.
    pub async fn receipt(&self, id: ReceiptId) -> Result<Option<Kept>> {
        let reader = self.reader;
        self.turns.read(move |rx| receipt::get(rx, &id, reader)).await
    }

    /// The replay that a receipt's trajectory hash seals. Only the buyer's node has it, and that of private work is for
    /// its owner: it tells what was wanted, and what the verdict found.
    pub async fn replay(&self, id: ReceiptId) -> Result<Option<Vec<u8>>> {
        let reader = self.reader;
        let replay = self.turns.read(move |rx| receipt::replay(rx, &id, reader)).await?;
        Ok(replay.map(String::into_bytes))
    }

    /// The matrix: providers beside kinds of work. Nothing for strangers, unless they may see it.
    pub async fn matrix(&self, page: Page) -> Result<Option<Sheet>> {
        let mind = self.mind();
        if !mind.is_open {
            return Ok(None);
        }
        let read = self.turns.read(move |rx| {
            let matrix = mind.read(rx)?;
            matrix::sheet(rx, &matrix, &page).map(Some)
        });
        read.await
    }

    /// How much may be spent on which kind of work, and how much of it is. Nothing for strangers, unless they may see
    /// the matrix.
    pub async fn budgets(&self) -> Result<Option<Budgets>> {
        if !self.mind().is_open {
            return Ok(None);
        }
        let now_ms = self.clock.now_ms();
        self.turns.read(move |rx| budget::read(rx, now_ms).map(Some)).await
    }

    /// Everybody for some work, and whom either policy would choose; nothing if nobody was ever admitted for it.
    pub async fn explained(&self, task: TaskType) -> Result<Option<Explained>> {
        let (mind, now_ms) = (self.mind(), self.clock.now_ms());
        let read = self.turns.read(move |rx| {
            let matrix = mind.read(rx)?;
            matrix::explained(rx, &matrix, &task, now_ms)
        });
        read.await
    }

    /// What is believed here, as far as whoever reads may know.
    fn mind(&self) -> Mind {
        let is_open = self.reader == Reader::Owner || self.options.matrix_public;
        let trusted = self.options.trusted_reviewers.clone();
        let reviewing = Reviewing { trusted, ..Reviewing::default() };
        Mind { known: self.known.clone(), is_open, reviewing }
    }

    fn live_since_ms(&self) -> i64 {
        self.clock.now_ms().saturating_sub(self.options.live_ms)
    }
}

/// The matrix, for one reader.
struct Mind {
    known: Known,
    is_open: bool,
    reviewing: Reviewing,
}

impl Mind {
    /// All of it, or nothing.
    fn read(&self, rx: &mut Rx<'_>) -> Result<Arc<Matrix>> {
        let options = Routing::default();
        match self.is_open {
            true => Ok(self.known.current(rx, &options)?),
            false => Ok(Arc::new(Matrix::new(options))),
        }
    }
}
