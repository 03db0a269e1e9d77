//! From an event that somebody brings to one that is stored.
//!
//! The order of work is that of cost: what is too large or of the wrong shape was refused when it was read; here the
//! id is computed, what was seen under the *computed* id is dropped, what policy does not want is refused, and only
//! then a signature is paid for, on all cores. What holds is stored in groups.
//!
//! ```
//! # use guild_network::intake::{Options, Prefix};
//! let options = Options::default();
//! assert!(options.max_future_s == 900 && options.group_max_events > 0);
//! assert_eq!(Prefix::RateLimited.to_string(), "rate-limited");
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use guild_bus::Bus;
use guild_protocol::env::Clock;
use guild_protocol::nostr::{Event, EventText, Limits, kind, unix_s};
use guild_store::Store;
use tokio::sync::{broadcast, mpsc, oneshot};

use crate::archive::Verified;

mod counts;
mod gather;
mod live;
mod news;
mod seen;
mod service;
mod source;
mod verdict;
mod work;

pub use counts::Counts;
pub use live::{Lagged, Live, LiveEvent};
pub use news::{Announcements, Next};
pub use service::Service;
pub use source::{Pending, Source};
pub use verdict::{NotKept, Prefix, Refusal, Verdict};

use counts::Counters;
use seen::{Fate, Seen};
use source::Room;
use work::{Job, Queue, Ready};

/// Who brings an event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A relay, by its URL.
    Relay(String),
    /// A client of our own relay, by the number of its connection.
    Client(u64),
    /// This node.
    Own,
}

impl Origin {
    /// As it is written beside the event.
    fn name(&self) -> Arc<str> {
        match self {
            Origin::Relay(url) => url.as_str().into(),
            Origin::Client(_) => "client".into(),
            Origin::Own => "own".into(),
        }
    }
}

/// How the intake works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How many threads check signatures. Zero: whoever offers an event checks it itself, as a simulation must.
    pub workers: usize,
    /// How many events share one commit at most.
    pub group_max_events: usize,
    /// How many bytes of one origin may wait to be checked and stored.
    pub origin_max_bytes: usize,
    /// How many bytes of all origins together.
    pub total_max_bytes: usize,
    /// How many ids are remembered, so that a copy costs next to nothing.
    pub seen_max_ids: usize,
    /// How many events a slow reader of the live feed may be behind.
    pub live_max_events: usize,
    /// How far in the future an event may say it was made.
    pub max_future_s: u64,
    /// What an event may have at most.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            group_max_events: 8_000,
            origin_max_bytes: 48 << 20,
            total_max_bytes: 96 << 20,
            seen_max_ids: 65_536,
            live_max_events: 4_096,
            max_future_s: 900,
            limits: Limits::DEFAULT,
        }
    }
}

/// The handle that everybody uses: cheap to clone, safe to share.
#[derive(Clone)]
pub struct Intake(Arc<Shared>);

struct Shared {
    options: Options,
    clock: Arc<dyn Clock>,
    seen: Seen,
    room: Room,
    queue: Queue,
    ready: mpsc::UnboundedSender<Vec<Ready>>,
    live: broadcast::Sender<Arc<LiveEvent>>,
    news: Arc<news::Desk>,
    counters: Counters,
}

impl Intake {
    /// A handle, and the service that must run for it.
    pub fn new(
        options: Options,
        store: Store,
        bus: &dyn Bus,
        clock: Arc<dyn Clock>,
    ) -> (Intake, Service) {
        let (ready, waiting) = mpsc::unbounded_channel();
        let (live, _) = broadcast::channel(options.live_max_events.max(1));
        let shared = Arc::new(Shared {
            seen: Seen::new(options.seen_max_ids),
            room: Room::new(options.total_max_bytes),
            queue: Queue::default(),
            ready,
            live,
            news: Arc::default(),
            counters: Counters::default(),
            options,
            clock,
        });
        let service =
            Service::new(shared.clone(), store, waiting, bus.listen(crate::archive::TOPIC));
        (Intake(shared), service)
    }

    /// Somebody who brings events from now on. What it may have waiting is bounded, by itself and with all others.
    pub fn source(&self, origin: &Origin) -> Source {
        Source::new(self.0.clone(), origin)
    }

    /// Offers one event; ready once it is stored or refused. Whoever brings many has a [`Source`].
    pub async fn offer(&self, origin: &Origin, event: Event) -> Verdict {
        self.source(origin).offer(event).await
    }

    /// What is stored from now on, and what is only passed on.
    pub fn live(&self) -> Live {
        Live(self.0.live.subscribe())
    }

    /// The announcements that are stored from now on, for one who follows the archive.
    pub fn announcements(&self) -> Announcements {
        self.0.news.follow()
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        self.0.counters.counts()
    }

    /// How many announcements were refused so far, by the code of the reason.
    pub fn refused_announcements(&self) -> BTreeMap<&'static str, u64> {
        self.0.counters.refused_announcements()
    }
}

impl Shared {
    /// All that can be known without the signature; the text from which the id was computed.
    fn look(&self, event: &Event) -> Result<EventText, Verdict> {
        self.options.limits.check(&event.tags, &event.content).map_err(Refusal::of)?;
        let text = event.verified_text().map_err(Refusal::hostile)?;
        if let Some(fate) = self.seen.fate(&event.id) {
            return Err(fate.into());
        }
        let latest = unix_s(self.clock.now_ms()).saturating_add(self.options.max_future_s);
        if event.created_at > latest {
            return Err(Refusal::from_the_future(event.created_at, latest).into());
        }
        Ok(text)
    }

    fn check(&self, job: Job) -> Option<Ready> {
        let Job { event, text, origin, held, answer } = job;
        let is_announcement = event.kind == kind::ANNOUNCEMENT;
        match Verified::check_signature(event, text) {
            Ok(event) => Some(Ready { event, origin, held, answer }),
            Err(error) => {
                let verdict = Refusal::hostile(error).into();
                if is_announcement {
                    self.counters.refuse_announcement(&verdict);
                }
                self.answer(answer, verdict);
                None
            }
        }
    }

    fn answer(&self, answer: oneshot::Sender<Verdict>, verdict: Verdict) {
        self.counters.count(&verdict);
        // Whoever offered it may not wait.
        let _ = answer.send(verdict);
    }
}

impl From<Fate> for Verdict {
    fn from(fate: Fate) -> Verdict {
        match fate {
            Fate::Known => Verdict::Known,
            Fate::NotKept(reason) => Verdict::NotKept(reason),
            Fate::Unstorable => Refusal::unstorable().into(),
        }
    }
}
