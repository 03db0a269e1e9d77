//! Somebody who gets to know providers: asks them to do benchmarks, has the results judged, and tells the routing
//! matrix.
//!
//! ```text
//! meet ─▶ row `trying`, request ─▶ relays ─▶ feedback, result ─▶ judge ─▶ … ─▶ row `routing` ─▶ matrix ─▶ row `ended`
//! ```
//!
//! Every step is one transaction. When somebody must look is in the row, so a node that was down goes on where it was;
//! where several processes share one database, each meeting is looked at by the one that has claimed it.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::{join, select};
use guild_bus::Bus;
use guild_market::TOPIC;
use guild_market::benchmark::SEED_BYTES;
use guild_market::claim::{self, Claimant};
use guild_market::meeting::{self, Begun, NewMeeting, Terms};
use guild_market::meeting::{kind_for, kind_of_work};
use guild_market::review;
use guild_network::archive::Verified;
use guild_network::index;
use guild_network::publish::{self, Destinations};
use guild_network::ways;
use guild_protocol::amount::Msat;
use guild_protocol::env::{BoxFuture, Clock, Random, Shutdown, UnixMs};
use guild_protocol::hash::to_hex;
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::nostr::{Event, Filter};
use guild_store::{Store, Tx};

use crate::error::code;
use crate::later::Later;
use crate::reference::Refer;
use crate::router::{Router, TaskType};
use crate::{Counts, Error, Result};

mod answer;
mod examine;
mod step;

pub use examine::{Examine, examiner};
pub use guild_market::benchmark::{Benchmark, Module};
pub use guild_market::meeting::{Meeting, MeetingId, Outcome, State, Trial, Word};

/// Offers an event to these relays once more, without a promise.
pub type Resend = Arc<dyn Fn(Event, Vec<String>) -> BoxFuture<()> + Send + Sync>;
/// What these relays have that passes a filter.
pub type Query = Arc<dyn Fn(Filter, Vec<String>) -> BoxFuture<Vec<Event>> + Send + Sync>;

/// How meetings are held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where everything is published, and answers are read.
    pub relays: Vec<String>,
    /// How many of the relays that a provider names are used too.
    pub max_hints: usize,
    /// The numbers of a meeting.
    pub market: meeting::Options,
    /// A specification of more bytes is referred to.
    pub inline_max_bytes: usize,
    /// How many meetings are looked at, and results judged, at once.
    pub at_once: usize,
    /// How many events are read at once.
    pub page_max: usize,
    /// How often it looks without a bell.
    pub sweep_ms: i64,
    /// How what came of meetings is reviewed.
    pub reviews: review::Options,
    /// How long the meeting of a process that died waits for another one that shares the database.
    pub claim_ms: i64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            relays: Vec::new(),
            max_hints: 2,
            market: meeting::Options::default(),
            inline_max_bytes: meeting::INLINE_MAX_BYTES,
            at_once: 2,
            page_max: 256,
            sweep_ms: 250,
            reviews: review::Options::default(),
            claim_ms: claim::TTL_MS,
        }
    }
}

/// Who is to be met, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// Whom.
    pub provider: PublicKey,
    /// For which work it is hired if it passes; that of benchmarks if none is named.
    pub task: Option<TaskType>,
    /// By which benchmark.
    pub benchmark: Benchmark,
    /// By which parts of it; all if none is named.
    pub modules: BTreeSet<Module>,
    /// Whether what is asked and answered travels encrypted.
    pub encrypted: bool,
    /// The most that is paid for a trial. None probes without a bid.
    pub bid: Option<Msat>,
    /// The caller's name for it: meeting again under one key is the same meeting.
    pub idempotency_key: Option<String>,
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
    /// For seeds, names, and what travels encrypted.
    pub random: Arc<dyn Random>,
    /// The matrix that is told, with whoever gets copies of it.
    pub router: Router,
    /// Who judges; none where there is no sandbox.
    pub examine: Option<Examine>,
    /// Where a specification is kept that is too large for a request; none if such a one is not asked for.
    pub refer: Option<Refer>,
    /// How a request is offered again.
    pub resend: Resend,
    /// How relays are asked.
    pub query: Query,
}

/// The handle of meetings: cheap to clone.
#[derive(Clone)]
pub struct Meetings(Arc<Shared>);

struct Shared {
    options: Options,
    key: SecretKey,
    node: Node,
    counts: Counts,
    claimant: Claimant,
    later: Later<MeetingId, ()>,
}

/// The service of meetings.
pub struct Service(Arc<Shared>);

/// A meeting, its trials, and what was said about each.
#[derive(Debug, Clone, PartialEq)]
pub struct Story {
    /// Where it stands.
    pub meeting: Meeting,
    /// Its trials, in order, each with what its provider said.
    pub trials: Vec<(Trial, Vec<Word>)>,
}

impl Meetings {
    /// Meetings under this key, and the service that must run for them.
    pub fn new(options: Options, key: SecretKey, node: Node) -> (Meetings, Service) {
        let later = Later::new(options.sweep_ms);
        let at_once = u64::try_from(options.at_once).unwrap_or(u64::MAX);
        let claimant = Claimant::new(&*node.random, options.claim_ms, at_once);
        let counts = Counts::of_role("meeting");
        let shared = Arc::new(Shared { options, key, node, counts, claimant, later });
        (Meetings(shared.clone()), Service(shared))
    }

    /// What it has done and met since it started.
    pub fn counts(&self) -> Counts {
        self.0.counts.clone()
    }

    /// Begins to meet a provider: the first request is on its way when this answers. One that is being met already is
    /// met once.
    pub async fn meet(&self, wish: Wish) -> Result<Meeting> {
        self.0.meet(wish).await
    }

    /// A meeting, with all that was said.
    pub async fn story(&self, meeting_id: MeetingId) -> Result<Story> {
        let read = self.0.node.store.read(move |rx| {
            let meeting = meeting::get(rx, &meeting_id)?;
            let mut trials = Vec::new();
            for trial in meeting::trials(rx, &meeting_id)? {
                let words = meeting::words(rx, &trial.request_id)?;
                trials.push((trial, words));
            }
            Ok::<_, Error>(Story { meeting, trials })
        });
        read.await
    }

    /// Waits until a meeting is over.
    pub async fn wait(&self, meeting_id: &MeetingId) -> Result<Story> {
        let shared = &self.0;
        // Listening begins before the first read, so nothing falls between the two.
        let mut bell = shared.node.bus.listen(TOPIC);
        loop {
            let story = self.story(meeting_id.clone()).await?;
            if story.meeting.state == State::Ended {
                return Ok(story);
            }
            select(bell.hear(), shared.node.clock.sleep(shared.options.sweep_ms)).await;
        }
    }
}

impl Service {
    /// Takes answers, looks and judges until the shutdown. What is being judged then is given back.
    pub async fn run(self, shutdown: Shutdown) {
        let shared = self.0;
        join(
            Box::pin(answer::follow(shared.clone(), shutdown.clone())),
            Box::pin(step::look_after(shared.clone(), shutdown)),
        )
        .await;
        let claimant = shared.claimant.clone();
        let released = shared.node.store.write(move |tx| meeting::release(tx, &claimant)).await;
        if let Err(error) = released {
            tracing::debug!(%error, "meetings are not given back; others wait until their claims are over");
        }
    }
}

impl Shared {
    fn now_ms(&self) -> UnixMs {
        self.node.clock.now_ms()
    }

    fn made_up<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.node.random.fill(&mut bytes);
        bytes
    }

    async fn meet(self: &Arc<Shared>, wish: Wish) -> Result<Meeting> {
        self.node.router.refuse_blacklisted(&wish.provider).await?;
        let new = self.plan(wish).await?;
        let trial = self.trial(&new.terms).await?;
        let request = Verified::check(trial.request.clone())?;
        let this = self.clone();
        let called = self.node.store.write(move |tx| {
            let now_ms = this.now_ms();
            let times = &this.options.market.times;
            let begun = meeting::begin(tx, &new, &trial, times, now_ms)?;
            if let Begun::New(meeting) = &begun {
                this.send(tx, meeting, &request, 0, now_ms)?;
            }
            Ok::<_, Error>(begun)
        });
        let begun = called.await?;
        if matches!(begun, Begun::New(_)) {
            self.counts.add("meeting_begun");
        }
        Ok(begun.meeting())
    }

    /// A trial of a task that nobody has seen.
    async fn trial(&self, terms: &Terms) -> Result<meeting::NewTrial> {
        let seed = self.made_up::<SEED_BYTES>();
        let large = terms.too_large(&seed, self.options.inline_max_bytes)?;
        let elsewhere = match (large, &self.node.refer) {
            (Some(bytes), Some(refer)) => Some(refer(bytes).await?),
            _ => None,
        };
        let hand = (&self.key, &*self.node.random);
        Ok(terms.trial(seed, elsewhere, hand, self.now_ms())?)
    }

    /// From a wish to terms: what the provider announces decides the kind, what is known of the ways to it the relays.
    async fn plan(&self, wish: Wish) -> Result<NewMeeting> {
        let provider = wish.provider;
        let now_ms = self.now_ms();
        let known = self.node.store.read(move |rx| {
            let ways = ways::ways(rx, &provider, now_ms)?;
            Ok::<_, Error>((index::provider(rx, &provider)?, ways))
        });
        let (cards, ways) = known.await?;
        if cards.is_empty() {
            let why = format!("{provider} announces nothing that was heard here");
            return Err(Error::refused(&code::UNHEARD, why));
        }
        let work = wish.benchmark.task_type();
        let serving = cards.iter().find(|one| {
            let card = &one.card;
            let mut names = card.topics.iter().chain(&card.kinds);
            names.any(|name| name == work) || card.schema_ids().contains(&work)
        });
        let card = serving.or(cards.first()).map(|one| &one.card);
        let kinds = card.map(|card| card.kinds.as_slice()).unwrap_or_default();
        let kinds = kinds.iter().map(String::as_str);
        let own = Destinations::own(&self.options.relays);
        let hints: Vec<String> = ways::open(&ways).map(str::to_owned).collect();
        let hinted = hints.iter().map(String::as_str);
        let all = own.clone().and_of(&provider, hinted, self.options.max_hints).urls();
        let modules = match wish.modules.is_empty() {
            true => wish.benchmark.modules(),
            false => wish.modules,
        };
        let key = wish.idempotency_key.unwrap_or_else(|| to_hex(&self.made_up::<16>()));
        Ok(NewMeeting {
            meeting_key: key,
            terms: Terms {
                provider,
                benchmark: wish.benchmark,
                modules,
                kind: match wish.benchmark {
                    Benchmark::StdV3 => kind_for(kinds),
                    Benchmark::EmbeddingV1 => kind_of_work(kinds),
                },
                encrypted: wish.encrypted,
                bid: wish.bid,
                relays: own.urls(),
            },
            d: card.map(|card| card.d.clone()).unwrap_or_default(),
            task: match wish.task {
                Some(task) => task,
                None => work.parse()?,
            },
            choices: choices(&self.options.relays, &provider, &hints, &all),
        })
    }

    /// Publishes a request at the n-th choice of relays.
    fn send(
        &self,
        tx: &mut Tx<'_>,
        meeting: &Meeting,
        request: &Verified,
        choice: usize,
        now_ms: UnixMs,
    ) -> Result<()> {
        let wanted = meeting.choices.get(choice).cloned().unwrap_or_default();
        let own = Destinations::own(&self.options.relays).urls();
        let (ours, theirs): (Vec<String>, Vec<String>) =
            wanted.into_iter().partition(|url| own.contains(url));
        let theirs = theirs.iter().map(String::as_str);
        let count = self.options.max_hints;
        let to = Destinations::own(&ours).and_of(&meeting.terms.provider, theirs, count);
        Ok(publish::enqueue(tx, request, &to, now_ms)?)
    }

    fn shrug(&self, word: &'static str, id: &impl std::fmt::Display, error: &Error) {
        self.counts.add(word);
        tracing::debug!(%error, code = error.code().name, %id, "{word}");
    }
}

/// Where a request goes: the best way to the provider; the next one, or ours; all of them.
fn choices(
    own: &[String],
    provider: &PublicKey,
    hints: &[String],
    all: &[String],
) -> [Vec<String>; 3] {
    let named = Destinations::default().and_of(provider, hints.iter().map(String::as_str), 2);
    let mut named = named.urls().into_iter();
    let ours = Destinations::own(own).urls().into_iter().next();
    let (first, second) = (named.next(), named.next());
    let first = first.filter(|url| all.contains(url)).or_else(|| ours.clone());
    let second = second.filter(|url| all.contains(url)).or(ours);
    [first.into_iter().collect(), second.into_iter().collect(), all.to_vec()]
}

#[cfg(test)]
mod tests {
    use guild_protocol::env::Signer;

    use super::*;

    #[test]
    fn what_a_provider_names_comes_first_and_everything_last() {
        let provider = SecretKey::from_bytes([2; 32]).unwrap().public_key();
        let list = |urls: &[&str]| urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>();
        let own = list(&["ws://own.example", "ws://other.example"]);
        let told = |hints: &[&str]| {
            let hints = list(hints);
            let to = Destinations::own(&own);
            let all = to.and_of(&provider, hints.iter().map(String::as_str), 2).urls();
            choices(&own, &provider, &hints, &all).map(|urls| urls.join(" "))
        };
        let both = "ws://own.example ws://other.example";
        assert_eq!(told(&[]), ["ws://own.example", "ws://own.example", both]);
        assert_eq!(
            told(&["wss://a.example", "wss://b.example", "wss://c.example"]),
            [
                "wss://a.example",
                "wss://b.example",
                &format!("{both} wss://a.example wss://b.example")
            ]
        );
        assert_eq!(told(&["ws://other.example"]), ["ws://other.example", "ws://own.example", both]);
        assert_eq!(choices(&[], &provider, &[], &[]), [vec![], vec![], vec![]] as [Vec<String>; 3]);
    }
}
