//! Somebody who says in public what became of providers, and listens to what others say.
//!
//! ```text
//! outcome ─▶ draft (buyer, meetings) ─▶ due ─▶ this role: signed, queued ─▶ relays
//! archive ─reviews of others, in order─▶ this role: rows, priors ─▶ buyer
//! ```
//!
//! What is due is found by reading rows, and what is published follows from them: any number of processes may look, and
//! each review is published once.

use std::sync::Arc;

use futures_util::future::join_all;
use guild_bus::Bus;
use guild_market::review::{self, Published, undisputed};
use guild_network::publish::Destinations;
use guild_protocol::env::{Clock, Shutdown, UnixMs};
use guild_protocol::identity::SecretKey;
use guild_protocol::nostr::review::is_review;
use guild_protocol::nostr::{Event, EventId, kind};
use guild_store::{Rx, Store};

use crate::alone;
use crate::feed::Feed;
use crate::{Counts, Error, Result};

pub use guild_market::review::{Grade, Line, Prior, Reason, ReviewId, Row, Seen, State, Weighed};

/// Whether a dispute about the result of a request is open.
pub type IsDisputed =
    Arc<dyn Fn(&mut Rx<'_>, &EventId) -> guild_market::Result<bool> + Send + Sync>;

/// So many are published in one go.
const DUE_MAX: i64 = 50;

/// How reviews are made and taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where they are published.
    pub relays: Vec<String>,
    /// The numbers of reviews.
    pub market: review::Options,
    /// How many events are read at once.
    pub page_max: usize,
    /// How often it looks without a bell.
    pub sweep_ms: i64,
    /// How often what time brings is looked for.
    pub upkeep_ms: i64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            relays: Vec::new(),
            market: review::Options::default(),
            page_max: 256,
            sweep_ms: 1_000,
            upkeep_ms: 60_000,
        }
    }
}

/// What this role needs of its node.
#[derive(Clone)]
pub struct Node {
    /// Where its rows are.
    pub store: Store,
    /// Where bells ring.
    pub bus: Arc<dyn Bus>,
    /// Its time.
    pub clock: Arc<dyn Clock>,
    /// What is disputed; nothing, if nobody says otherwise.
    pub is_disputed: Option<IsDisputed>,
}

/// The handle of reviews: cheap to clone.
#[derive(Clone)]
pub struct Reviews(Arc<Shared>);

struct Shared {
    options: Options,
    key: SecretKey,
    node: Node,
    counts: Counts,
}

/// The service of reviews.
pub struct Service(Arc<Shared>);

impl Reviews {
    /// Reviews under this key, which is the one that hires: only its own requests are evidence. And the service that
    /// must run for them.
    pub fn new(options: Options, key: SecretKey, node: Node) -> (Reviews, Service) {
        let shared = Arc::new(Shared { options, key, node, counts: Counts::of_role("reviews") });
        (Reviews(shared.clone()), Service(shared))
    }

    /// What it has done and met since it started.
    pub fn counts(&self) -> Counts {
        self.0.counts.clone()
    }

    /// Publishes a review that is due, or any if it is to be at once. Again it is the same. One that has to wait is
    /// refused, with the reason.
    pub async fn publish(&self, review_id: ReviewId, at_once: bool) -> Result<Row> {
        match self.0.publish(review_id, at_once).await? {
            Published::New(row) | Published::Known(row) => Ok(row),
            Published::Early(row) => Err(refused(&row, &guild_market::code::REVIEW_EARLY)),
            Published::Held(row) => Err(refused(&row, &guild_market::code::REVIEW_HELD)),
        }
    }
}

fn refused(row: &Row, code: &'static guild_protocol::error::Code) -> Error {
    let when = guild_protocol::timestamp::Timestamp::from_ms(row.due_ms);
    let when = when.map_or_else(|_| row.due_ms.to_string(), |when| when.to_string());
    let words = match row.state {
        State::Held => {
            format!("{} waits for a dispute, which is looked at again at {when}", row.review_id)
        }
        _ => format!("{} is due at {when}", row.review_id),
    };
    Error::refused(code, words)
}

/// What became of a draft that was to be written with something that matters more: a review that cannot be made holds
/// up neither money nor a meeting. Only a store that cannot be used is an error.
pub(crate) fn drafted(made: guild_market::Result<Option<ReviewId>>, counts: &Counts) -> Result<()> {
    let of_the_store = |error: &guild_market::Error| match error {
        guild_market::Error::Store(error) => !matches!(error, guild_store::Error::Decode(_)),
        guild_market::Error::Network(_) | guild_market::Error::Ledger(_) => true,
        _ => false,
    };
    match made {
        Err(error) if !of_the_store(&error) => {
            counts.add("review_not_drafted");
            tracing::warn!(%error, "no review of an outcome was drafted");
            Ok(())
        }
        made => Ok(made.map(drop)?),
    }
}

impl Service {
    /// Publishes what is due and takes what others say until the shutdown.
    pub async fn run(self, shutdown: Shutdown) {
        let shared = self.0;
        let node = &shared.node;
        let mut feed = Feed::new(
            "reviews".to_owned(),
            vec![kind::REVIEW, kind::REPLACEABLE_REVIEW, kind::LABEL, kind::DELETION],
            (shared.options.page_max, shared.options.sweep_ms),
            (&node.store, &*node.bus, &node.clock),
        );
        let (mut failing, mut upkeep_ms) = (false, UnixMs::MIN);
        loop {
            match shared.round(&mut feed, &mut upkeep_ms).await {
                // There may be more.
                Ok(false) if !shutdown.is_triggered() => continue,
                Ok(_) => failing = false,
                Err(error) if error.is_closed() => return,
                // Once, not every second for as long as it lasts.
                Err(error) if !std::mem::replace(&mut failing, true) => {
                    tracing::warn!(%error, "reviews cannot be looked after; trying again");
                }
                Err(_) => {}
            }
            if !feed.wait(&shutdown).await {
                return;
            }
        }
    }
}

impl Shared {
    /// Reads a page, publishes what is due, and does what time brings; whether the page was the last.
    async fn round(self: &Arc<Shared>, feed: &mut Feed, upkeep_ms: &mut UnixMs) -> Result<bool> {
        let page = feed.page().await?;
        let calls: Vec<_> = page.events.iter().cloned().map(|event| self.take(event)).collect();
        join_all(calls).await.into_iter().collect::<Result<()>>()?;
        feed.done(&page).await?;
        self.publish_due().await?;
        let now_ms = self.node.clock.now_ms();
        if now_ms >= *upkeep_ms {
            let options = self.options.market.clone();
            let done = self.node.store.write(move |tx| review::upkeep(tx, &options, now_ms));
            let more = done.await?;
            let pause_ms = if more { self.options.sweep_ms } else { self.options.upkeep_ms };
            *upkeep_ms = now_ms.saturating_add(pause_ms);
        }
        Ok(page.is_last)
    }

    /// Takes one event. Only a store that cannot be used is an error: whatever else is wrong, is so with this one
    /// alone.
    fn take(self: &Arc<Shared>, event: Event) -> impl Future<Output = Result<()>> + use<> {
        let (this, id) = (self.clone(), event.id);
        let called = alone::write(&self.node.store, move |tx| {
            let (options, now_ms) = (&this.options.market, this.node.clock.now_ms());
            if event.kind == kind::DELETION {
                let withdrawn = review::withdraw(tx, options, &event, now_ms)?;
                return Ok(if withdrawn > 0 { "review_withdrawn" } else { "deletion" });
            }
            if !is_review(&event) {
                return Ok("label");
            }
            Ok(review::take(tx, options, &event, now_ms)?.word())
        });
        let this = self.clone();
        async move {
            match called.await? {
                Ok(word) => this.counts.add(word),
                Err(error) => {
                    this.counts.add("review_refused");
                    tracing::debug!(%error, code = error.code().name, %id, "a review is not taken");
                }
            }
            Ok(())
        }
    }

    async fn publish_due(self: &Arc<Shared>) -> Result<()> {
        let now_ms = self.node.clock.now_ms();
        let due = self.node.store.read(move |rx| review::due(rx, now_ms, DUE_MAX)).await?;
        for review_id in due {
            match self.publish(review_id.clone(), false).await {
                Ok(Published::New(row)) if row.reason == Reason::Violation => {
                    self.counts.add("review_alert");
                    let (provider, task) = (row.review.subject, &row.task);
                    tracing::warn!(%provider, %task, "an alert is published: it tried what is forbidden");
                }
                Ok(Published::New(_)) => self.counts.add("review_published"),
                Ok(Published::Held(_)) => self.counts.add("review_held"),
                Ok(_) => {}
                Err(error) if error.concerns_all() => return Err(error),
                Err(error) => {
                    self.counts.add("review_not_published");
                    tracing::warn!(%error, %review_id, "a review is not published");
                }
            }
        }
        Ok(())
    }

    async fn publish(self: &Arc<Shared>, review_id: ReviewId, at_once: bool) -> Result<Published> {
        let this = self.clone();
        let called = alone::write(&self.node.store, move |tx| {
            let now_ms = this.node.clock.now_ms();
            let row = review::get(tx, &review_id)?;
            let hints = row.review.relay.as_deref();
            let to = Destinations::own(&this.options.relays).and_of(&row.review.subject, hints, 1);
            let disputed = this.node.is_disputed.as_deref();
            let published = match disputed {
                Some(disputed) => {
                    review::publish(tx, &review_id, (&this.key, &to), &disputed, (at_once, now_ms))
                }
                None => review::publish(
                    tx,
                    &review_id,
                    (&this.key, &to),
                    &undisputed,
                    (at_once, now_ms),
                ),
            };
            Ok(published?)
        });
        called.await?
    }
}
