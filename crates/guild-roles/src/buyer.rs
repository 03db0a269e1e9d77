//! Somebody who hires others.
//!
//! ```text
//! hire ─▶ budget held, row `posted`, request ─▶ result: row `delivered` ─▶ verdict ─▶ row `released`, paid, receipt
//!            │  open to all: a result that the verdict does not accept is rejected, and the row stays `posted`
//!            ├─▶ nothing in time: row `expired`       └─▶ late, repeated, contradicting: kept, changes nothing
//!            └─▶ error, or more than the budget: row `failed`            └─▶ row `withheld`, receipt that says so
//! ```
//!
//! What commands gave is judged by running them again, beside everything else: it may take minutes. Where several
//! processes share one database, each order is judged by the one that has claimed it.
//!
//! Every step is one transaction: the row, the money, and whatever is published because of it. What is to be done is
//! found by reading rows, so it does not matter who dies when.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::{join3, select};
use guild_bus::Bus;
use guild_ledger::policy::Bundle;
use guild_market::claim::{self, Claimant};
use guild_market::delegation;
use guild_market::order;
use guild_market::review;
use guild_market::routing::chosen;
use guild_market::verify::Verdict;
use guild_market::{TOPIC, bid, routing, verify};
use guild_network::archive::{self, Verified};
use guild_network::index::{self, Answer};
use guild_network::publish::{self, Destinations};
use guild_protocol::amount::Msat;
use guild_protocol::env::{Clock, Random, Shutdown, Signer, UnixMs};
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::nostr::job::{Feedback, Status};
use guild_protocol::nostr::{Draft, EventId, Limits, kind, tag, unix_s};
use guild_protocol::schema::{Registry, SchemaId};
use guild_store::{Rx, Store, Tx};
use serde_json::Value;

use crate::budget::Budgets;
use crate::discovery::Discovery;
use crate::later::Later;
use crate::reference::Refer;
use crate::router::{Copies, Policy, Router};
use crate::workshop::Workshop;
use crate::{Counts, Error, Result};

mod answer;
mod choose;
mod council;
mod delegate;
mod hire;
mod judge;
mod probe;
mod propose;
mod rerun;
mod routed;

pub use choose::{Candidate, best};
pub use delegate::{Course, Wanted};
pub use guild_market::delegation::judge::{Ask, Prompt};
pub use guild_market::delegation::{Criticality, Delegation, DelegationId};
pub use guild_market::order::{Order, OrderId, State};
pub use guild_market::routing::chosen::Why;
pub use propose::{Enquiry, Proposed};
pub(crate) use rerun::run_again;

/// How many answers to one order are shown: anybody may send any number.
const ANSWERS_MAX: usize = 60;
/// How many parts of a result that came ahead are shown, and how much of each.
const PARTIALS_MAX: usize = 10;
const PARTIAL_MAX_CHARS: usize = 4_000;

/// How a buyer works.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Where everything is published.
    pub relays: Vec<String>,
    /// How many of the relays that a provider names are used too.
    pub max_hints: usize,
    /// Our own keys: nobody hires itself, unless it is named.
    pub ours: Vec<PublicKey>,
    /// Who has been silent for longer is not hired, unless it is named.
    pub live_ms: i64,
    /// How strict verdicts are.
    pub verify: verify::Options,
    /// How many events are read at once.
    pub page_max: usize,
    /// How often it looks without a bell.
    pub sweep_ms: i64,
    /// How one is chosen among those whom the routing matrix knows, unless a wish says otherwise.
    pub policy: Policy,
    /// Whether what is significant in the matrix is copied to the relays, as private messages to ourselves.
    pub copies: bool,
    /// How many do work that matters, and when they say the same.
    pub delegation: delegation::Options,
    /// How what became of orders is reviewed.
    pub reviews: review::Options,
    /// How long what a process that died was judging waits for another one that shares the database.
    pub claim_ms: i64,
    /// What is offered where nobody says how much.
    pub bid: bid::Options,
    /// With so many ordinary orders, in ten-thousandths, their provider is tested too, without knowing it.
    pub hidden_rate_bp: u32,
    /// How much later at most.
    pub hidden_delay_ms: i64,
    /// The most that is paid for such a test.
    pub hidden_max: Msat,
    /// An input of more bytes is referred to: not less than an event holds, because not every provider can read it
    /// elsewhere.
    pub inline_max_bytes: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            relays: Vec::new(),
            max_hints: 2,
            ours: Vec::new(),
            live_ms: 15 * 60_000,
            verify: verify::Options::default(),
            page_max: 256,
            sweep_ms: 1_000,
            policy: Policy::Tiered,
            copies: false,
            delegation: delegation::Options::default(),
            reviews: review::Options::default(),
            claim_ms: claim::TTL_MS,
            bid: bid::Options::default(),
            hidden_rate_bp: 0,
            hidden_delay_ms: 3_600_000,
            hidden_max: Msat(100_000),
            inline_max_bytes: Limits::DEFAULT.max_tag_item_bytes,
        }
    }
}

/// Who is to do the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// This one.
    Chosen(PublicKey),
    /// Whoever is known, alive, within the budget, and chosen by the routing matrix; where that knows nobody, who
    /// stands best in the registry of providers, then the cheapest, then the fastest by its own word.
    Best,
    /// Whoever delivers first, of those who are known and announce the work. Others may work in vain.
    Any,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub struct Wish {
    /// What kind of work.
    pub schema_id: SchemaId,
    /// Its input.
    pub input: Value,
    /// The most that is paid.
    pub budget: Msat,
    /// How long to wait for the result.
    pub time_limit_ms: i64,
    /// By whom.
    pub provider: Choice,
    /// Whether input and result travel encrypted.
    pub private: bool,
    /// How the best is chosen; as the options say if nothing is named.
    pub policy: Option<Policy>,
    /// The kind of the request's event; 5050 if none is named.
    pub kind: Option<u16>,
    /// The caller's name for it: hiring again under one key is the same order. One that is not named is made up.
    pub idempotency_key: Option<String>,
}

/// What a buyer needs of its node.
#[derive(Clone)]
pub struct Node {
    /// Where its rows are.
    pub store: Store,
    /// Where bells ring.
    pub bus: Arc<dyn Bus>,
    /// Its time.
    pub clock: Arc<dyn Clock>,
    /// For names, and for what travels encrypted.
    pub random: Arc<dyn Random>,
    /// The schemas that are known.
    pub registry: Arc<Registry>,
    /// What may be spent without asking.
    pub policy: Arc<Bundle>,
    /// Where commands are run again; none if nothing of that kind is ordered here.
    pub workshop: Option<Workshop>,
    /// Who chooses among answers that nobody agrees on and nobody can check; none if such work stays undecided.
    pub judge: Option<Ask>,
    /// Keeps what requests only refer to; without it every input travels in its request.
    pub refer: Option<Refer>,
    /// The registry of providers, which says who is not hired as a stranger; none where none is kept.
    pub discovery: Option<Discovery>,
}

/// The handle of a buyer: cheap to clone.
#[derive(Clone)]
pub struct Buyer(Arc<Shared>);

/// What all parts of a buyer share.
struct Shared {
    options: Options,
    key: SecretKey,
    node: Node,
    counts: Counts,
    /// Who we are among the processes that share the rows.
    claimant: Claimant,
    /// Orders that could not be settled or ended when it was tried, with the verdict if there is one.
    later: Later<OrderId, Verdict>,
    /// Who is hired for which work.
    router: Router,
}

/// An order that could not be settled is tried again after so many sweeps, and then later each time.
const AGAIN_SWEEPS: i64 = 15;

/// The service of a buyer.
pub struct Service(Arc<Shared>);

/// An order, and what everybody can see that was answered to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Where it stands.
    pub order: Order,
    /// Why it went to whom it went, if that was decided here.
    pub why: Option<Why>,
    /// Feedback and results that its provider has sent, in the order in which they came; of an open order those of all.
    pub answers: Vec<Answer>,
    /// What parts of the result said that came ahead, by their events; as much of it as is shown.
    pub partials: BTreeMap<EventId, String>,
}

impl Buyer {
    /// A buyer under this key, and the service that must run for it.
    pub fn new(options: Options, key: SecretKey, node: Node) -> (Buyer, Service) {
        let later = Later::new(options.sweep_ms.saturating_mul(AGAIN_SWEEPS));
        let counts = Counts::of_role("buyer");
        let at_once = u64::try_from(rerun::AT_ONCE).unwrap_or(u64::MAX);
        let claimant = Claimant::new(&*node.random, options.claim_ms, at_once);
        let router = router(&options, &key, &node);
        let shared = Arc::new(Shared { options, key, node, counts, claimant, later, router });
        (Buyer(shared.clone()), Service(shared))
    }

    /// Under which key.
    pub fn public_key(&self) -> PublicKey {
        self.0.key.public_key()
    }

    /// Who is hired for which work.
    pub fn router(&self) -> Router {
        self.0.router.clone()
    }

    /// How much may be spent on which kind of work.
    pub fn budgets(&self) -> Budgets {
        Budgets::new(self.0.node.store.clone(), self.0.node.clock.clone())
    }

    /// What it has done and met since it started.
    pub fn counts(&self) -> Counts {
        self.0.counts.clone()
    }

    /// Orders work: the budget is held and the request on its way when this answers.
    pub async fn hire(&self, wish: Wish) -> Result<Order> {
        self.0.hire(wish).await
    }

    /// An order.
    pub async fn order(&self, order_id: OrderId) -> Result<Order> {
        self.0.node.store.read(move |rx| Ok(order::get(rx, &order_id)?)).await
    }

    /// An order and what was answered to it.
    pub async fn progress(&self, order_id: OrderId) -> Result<Progress> {
        let shared = self.0.clone();
        let read = self.0.node.store.read(move |rx| {
            let order = order::get(rx, &order_id)?;
            shared.progress(rx, order)
        });
        read.await
    }

    /// Waits until an order has ended.
    pub async fn wait(&self, order_id: &OrderId) -> Result<Order> {
        let shared = &self.0;
        // Listening begins before the first read, so nothing falls between the two.
        let mut bell = shared.node.bus.listen(TOPIC);
        loop {
            let order = self.order(order_id.clone()).await?;
            if order.state.is_closed() {
                return Ok(order);
            }
            select(bell.hear(), shared.node.clock.sleep(shared.options.sweep_ms)).await;
        }
    }

    /// Gives an order up, as long as nothing has come; its request is to be deleted. The budget goes back.
    pub async fn cancel(&self, order_id: OrderId) -> Result<Order> {
        let shared = self.0.clone();
        let called = self.0.node.store.write(move |tx| {
            let now_ms = shared.node.clock.now_ms();
            delegation::not_alone(tx, &order_id)?;
            let order = order::cancel(tx, &order_id, now_ms)?;
            shared.ended(tx, &order, now_ms)?;
            shared.take_back(tx, &order, now_ms)?;
            Ok::<_, Error>(order)
        });
        called.await
    }
}

/// The matrix of this buyer. Copies of it go to its own relays, if it has some.
fn router(options: &Options, key: &SecretKey, node: &Node) -> Router {
    let to = Destinations::own(&options.relays);
    let copied = options.copies && !options.relays.is_empty();
    let own = SecretKey::from_bytes(key.to_bytes()).ok().filter(|_| copied);
    let copies = own.map(|key| Copies { key: Arc::new(key), to });
    let (store, clock) = (node.store.clone(), node.clock.clone());
    Router::new(routing::Options::default(), store, clock, node.random.clone(), copies)
}

impl Service {
    /// Takes results, judges and pays until the shutdown. What is being judged then is given back.
    pub async fn run(self, shutdown: Shutdown) {
        let judging = rerun::judge(self.0.clone(), shutdown.clone());
        let deciding = council::decide(self.0.clone(), shutdown.clone());
        let following = answer::follow(self.0.clone(), shutdown);
        join3(Box::pin(following), Box::pin(judging), Box::pin(deciding)).await;
        let claimant = self.0.claimant.clone();
        let released = self.0.node.store.write(move |tx| order::release(tx, &claimant)).await;
        if let Err(error) = released {
            tracing::debug!(%error, "orders are not given back; others wait until their claims are over");
        }
    }
}

impl Shared {
    fn now_ms(&self) -> UnixMs {
        self.node.clock.now_ms()
    }

    /// Asks everybody to forget the request of an order that ended without a result. The same each time it is asked, so
    /// that it is published once.
    fn take_back(&self, tx: &mut Tx<'_>, order: &Order, now_ms: UnixMs) -> Result<()> {
        let request = order.request()?;
        let mut tags =
            vec![tag::tag(["e", &request.id.hex()]), tag::tag(["k", &request.kind.to_string()])];
        tags.extend(order.provider.map(|provider| tag::tag(["p", &provider.hex()])));
        let draft = Draft {
            kind: kind::DELETION,
            created_at: unix_s(order.changed_ms).max(request.created_at),
            tags,
            content: order.words.clone().unwrap_or_default(),
        };
        let event = Verified::check(draft.sign(&self.key)?)?;
        Ok(publish::enqueue(tx, &event, &self.destinations(order), now_ms)?)
    }

    /// Where what concerns an order goes: our relays, and those that its provider reads.
    fn destinations(&self, order: &Order) -> Destinations {
        let named_by = order.provider.unwrap_or_else(|| self.key.public_key());
        let named = order.relays.iter().map(String::as_str);
        Destinations::own(&self.options.relays).and_of(&named_by, named, order.relays.len())
    }

    /// An order, and what was answered to it.
    fn progress(&self, rx: &mut Rx<'_>, order: Order) -> Result<Progress> {
        let authors: Vec<PublicKey> = order.provider.into_iter().collect();
        let mut answers = index::answers_within(rx, &order.request_id, &authors, ANSWERS_MAX)?;
        answers.retain(|answer| order.is_open || Some(answer.author) == order.provider);
        let mut partials = BTreeMap::new();
        let feedback = answers.iter().filter(|answer| answer.kind == kind::FEEDBACK);
        for answer in feedback.rev().take(PARTIALS_MAX) {
            let Some(event) = archive::event(rx, &answer.event_id)? else { continue };
            // What cannot be read is shown as what it is: somebody said something.
            let Ok(said) = Feedback::parse(&event, Some(&self.key)) else { continue };
            if said.status == Status::Partial {
                let shown = said.content.chars().take(PARTIAL_MAX_CHARS).collect();
                partials.insert(answer.event_id, shown);
            }
        }
        let why = chosen::find(rx, &order.order_id)?;
        Ok(Progress { order, why, answers, partials })
    }

    fn shrug(&self, word: &'static str, id: &EventId, error: &Error) {
        self.counts.add(word);
        tracing::debug!(%error, code = error.code().name, %id, "{word}");
    }
}
