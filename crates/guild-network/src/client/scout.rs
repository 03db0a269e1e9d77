//! The service that looks after relays that are not simply connected: it polls, samples and probes them, learns of new
//! ones from what providers say, weighs what each has brought, and moves it between tiers.
//!
//! Everything that it goes by is in rows, so a restart goes on, and several nodes of one database share the work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use futures_util::future::select;
use futures_util::stream::FuturesUnordered;
use guild_protocol::env::{Shutdown, UnixMs};
use guild_store::{Rx, Tx, args};

use super::connection::Ended;
use super::link::Polled;
use super::pool::{Pool, Shared};
use super::status::{Counts, RelayStatus, State, words};
use super::tier::{Rules, Tier, draw};
use crate::roster::{self, Bounds, Known, Look, Source};
use crate::sync::lock;
use crate::{Result, archive};

mod learn;

/// How relays that are not simply connected are looked after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScoutOptions {
    /// The relays that are polled in any case.
    pub polled: Vec<String>,
    /// Our own relay, by all its addresses: nobody need name it.
    pub own: Vec<String>,
    /// Whether relays that strangers name are learnt.
    pub discovers: bool,
    /// How much strangers can make us know.
    pub bounds: Bounds,
    /// What moves a relay.
    pub rules: Rules,
    /// How often it looks whether something is due.
    pub round_ms: i64,
    /// How often a relay is polled, and how long a window of a live one is.
    pub poll_every_ms: i64,
    /// How often some of the others are drawn.
    pub sample_every_ms: i64,
    /// How many of a hundred are drawn, within the next two bounds.
    pub sample_percent: usize,
    /// At least so many are drawn, if there are so many.
    pub sample_min: usize,
    /// At most so many are drawn.
    pub sample_max: usize,
    /// How often some are drawn that nobody knows yet.
    pub probe_every_ms: i64,
    /// So many of them.
    pub probes_max: usize,
    /// How many relays are polled at once.
    pub polls_at_once: usize,
}

impl Default for ScoutOptions {
    fn default() -> ScoutOptions {
        ScoutOptions {
            polled: Vec::new(),
            own: Vec::new(),
            discovers: true,
            bounds: Bounds::default(),
            rules: Rules::default(),
            round_ms: 5_000,
            poll_every_ms: 5 * 60_000,
            sample_every_ms: 60 * 60_000,
            sample_percent: 10,
            sample_min: 4,
            sample_max: 24,
            probe_every_ms: 5 * 60_000,
            probes_max: 4,
            polls_at_once: 4,
        }
    }
}

/// A relay that has a connection for something else is polled after so long.
const BUSY_MS: i64 = 30_000;
/// In one round so many steps of the archive are learnt from.
const STEPS_MAX: usize = 20;

/// The service. Must run inside a runtime, beside that of the pool.
pub struct Scout {
    options: ScoutOptions,
    own: BTreeSet<String>,
    pool: Pool,
    shared: Arc<Shared>,
    /// What live relays had sent when they were last looked at, and when that was.
    looked: Mutex<(UnixMs, BTreeMap<String, Counts>)>,
}

/// What a round has to do.
struct Agenda {
    is_behind: bool,
    has_due: bool,
    samples: bool,
    probes: bool,
    live: Vec<Known>,
}

impl Scout {
    /// A scout for this pool.
    pub fn new(options: ScoutOptions, pool: Pool) -> Scout {
        let own = options.own.iter().filter_map(|url| super::relay_url(url).ok()).collect();
        let shared = pool.shared().clone();
        Scout { options, own, pool, shared, looked: Mutex::default() }
    }

    /// Looks until the shutdown.
    pub async fn run(self, shutdown: Shutdown) {
        let rounds = std::pin::pin!(async {
            let mut is_configured = false;
            let mut polls = FuturesUnordered::new();
            loop {
                if !is_configured {
                    is_configured = is_done(&self.configure().await, "the settings");
                }
                let due = self.round(polls.len()).await;
                let due = due.unwrap_or_else(|error| {
                    tracing::warn!(%error, "relays could not be looked after");
                    Vec::new()
                });
                polls.extend(due.into_iter().map(|known| self.poll(known)));
                let pause = self.shared.clock.sleep(self.options.round_ms);
                if polls.is_empty() {
                    pause.await;
                } else {
                    select(polls.next(), pause).await;
                }
            }
        });
        select(shutdown.triggered(), rounds).await;
    }

    async fn configure(&self) -> Result<()> {
        let (live, polled) = (self.shared.options.relays.clone(), self.options.polled.clone());
        let clock = self.shared.clock.clone();
        let write = move |tx: &mut Tx<'_>| roster::configure(tx, &live, &polled, clock.now_ms());
        self.shared.store.write(write).await
    }

    /// One look at everything; the relays that are to be polled.
    async fn round(&self, polling: usize) -> Result<Vec<Known>> {
        let agenda = self.agenda().await?;
        if agenda.is_behind {
            self.learn().await?;
        }
        self.look_at(&agenda.live).await?;
        let followed = agenda.live.iter().filter(|known| known.source != Source::Configured);
        let followed: BTreeSet<String> = followed
            .map(|known| {
                self.pool.follow(&known.relay, !known.source.is_strange());
                known.relay.clone()
            })
            .collect();
        self.pool.leave_others(&followed);
        if agenda.samples || agenda.probes {
            self.draw(agenda.samples, agenda.probes).await?;
        }
        let room = self.options.polls_at_once.saturating_sub(polling);
        if room == 0 || !(agenda.has_due || agenda.samples || agenda.probes) {
            return Ok(Vec::new());
        }
        let (clock, every_ms) = (self.shared.clock.clone(), self.options.poll_every_ms);
        let write = move |tx: &mut Tx<'_>| {
            let now_ms = clock.now_ms();
            roster::take_due(tx, room, (now_ms, now_ms.saturating_add(every_ms)))
        };
        self.shared.store.write(write).await
    }

    async fn agenda(&self) -> Result<Agenda> {
        let now_ms = self.shared.clock.now_ms();
        let (sample_ms, probe_ms) = (self.options.sample_every_ms, self.options.probe_every_ms);
        let read = move |rx: &mut Rx<'_>| {
            let is_behind = learn::place(rx)? < archive::head(rx)?.last_seq;
            let due: Option<(i64,)> = rx.first(
                "SELECT count(*) FROM relay_known WHERE tier IN (2, 3) AND due_ms <= $1",
                args![now_ms],
            )?;
            let drawn: Option<(i64, i64)> =
                rx.first("SELECT sampled_ms, probed_ms FROM relay_scout", &[])?;
            let (sampled_ms, probed_ms) = drawn.unwrap_or_default();
            // Also if the clock was set back.
            let is_over =
                |at_ms: i64, every_ms: i64| !(0..every_ms).contains(&now_ms.saturating_sub(at_ms));
            let live = roster::list(rx, Some(Tier::Live))?;
            Ok(Agenda {
                is_behind,
                has_due: due.is_some_and(|(due,)| due > 0),
                samples: is_over(sampled_ms, sample_ms),
                probes: is_over(probed_ms, probe_ms),
                live,
            })
        };
        self.shared.store.read(read).await
    }

    /// Reads on in the archive.
    async fn learn(&self) -> Result<()> {
        for _ in 0..STEPS_MAX {
            let Some(lesson) = self.shared.store.read(learn::read).await? else { return Ok(()) };
            let (clock, own) = (self.shared.clock.clone(), self.own.clone());
            let (bounds, discovers) = (self.options.bounds.clone(), self.options.discovers);
            let write = move |tx: &mut Tx<'_>| {
                let taught = learn::Taught { bounds: &bounds, own: &own, discovers };
                learn::write(tx, &lesson, &taught, clock.now_ms())
            };
            self.shared.store.write(write).await?;
        }
        Ok(())
    }

    /// Weighs what live relays did, once in a window.
    async fn look_at(&self, live: &[Known]) -> Result<()> {
        let now_ms = self.shared.clock.now_ms();
        let before = {
            let mut looked = lock(&self.looked);
            let since_ms = now_ms.saturating_sub(looked.0);
            if (0..self.options.poll_every_ms).contains(&since_ms) {
                return Ok(());
            }
            looked.0 = now_ms;
            std::mem::take(&mut looked.1)
        };
        let statuses = self.pool.status();
        let counts = statuses.iter().map(|status| (status.url.clone(), status.counts));
        lock(&self.looked).1 = counts.collect();
        for known in live {
            let Some(status) = statuses.iter().find(|status| status.url == known.relay) else {
                continue;
            };
            // One that is just being connected for the first time has done nothing yet.
            if status.state == State::Connecting && status.failures == 0 {
                continue;
            }
            let was = before.get(&known.relay).copied().unwrap_or_default();
            self.settle(&known.relay, look_of(status, &was)).await?;
        }
        Ok(())
    }

    /// Draws some of those that are only sampled, and some that nobody knows yet.
    async fn draw(&self, samples: bool, probes: bool) -> Result<()> {
        let (shared, options) = (self.shared.clone(), self.options.clone());
        let write = move |tx: &mut Tx<'_>| {
            let now_ms = shared.clock.now_ms();
            if samples {
                let all = roster::drawable(tx, false, now_ms)?;
                let share = all.len().saturating_mul(options.sample_percent) / 100;
                let count =
                    share.clamp(options.sample_min, options.sample_max.max(options.sample_min));
                for place in draw(all.len(), count, || shared.random.next_u64()) {
                    // Spread, so that nobody can tell when it is its turn.
                    let spread = options.sample_every_ms.clamp(1, 3_600_000).unsigned_abs();
                    let wait_ms = i64::try_from(shared.random.next_u64() % spread).unwrap_or(0);
                    let Some(relay) = all.get(place) else { continue };
                    roster::set_due(tx, relay, now_ms.saturating_add(wait_ms))?;
                }
                tx.exec("UPDATE relay_scout SET sampled_ms = $1", args![now_ms])?;
            }
            if probes {
                let all = roster::drawable(tx, true, now_ms)?;
                for place in draw(all.len(), options.probes_max, || shared.random.next_u64()) {
                    let Some(relay) = all.get(place) else { continue };
                    roster::set_due(tx, relay, now_ms)?;
                }
                tx.exec("UPDATE relay_scout SET probed_ms = $1", args![now_ms])?;
            }
            Ok::<_, crate::Error>(())
        };
        self.shared.store.write(write).await
    }

    /// Polls a relay and weighs it.
    async fn poll(&self, known: Known) {
        let relay = known.relay;
        let done = match self.pool.poll(&relay, !known.source.is_strange()).await {
            Ok(Some(polled)) => {
                metrics::counter!("relay_polls_total", "tier" => known.standing.tier.as_str())
                    .increment(1);
                self.weigh(&relay, look_after(&polled)).await
            }
            Ok(None) => self.later(&relay).await,
            Err(error) => {
                let error = Some(words(&error.to_string()));
                self.weigh(&relay, Look { error, ..Look::default() }).await
            }
        };
        is_done(&done, "what came of a poll");
    }

    /// What the poll has brought is learnt first: it is in the archive by now.
    async fn weigh(&self, relay: &str, look: Look) -> Result<()> {
        self.learn().await?;
        self.settle(relay, look).await
    }

    async fn later(&self, relay: &str) -> Result<()> {
        let (relay, clock) = (relay.to_owned(), self.shared.clock.clone());
        let write = move |tx: &mut Tx<'_>| {
            roster::set_due(tx, &relay, clock.now_ms().saturating_add(BUSY_MS))
        };
        self.shared.store.write(write).await
    }

    async fn settle(&self, relay: &str, look: Look) -> Result<()> {
        let (relay, clock) = (relay.to_owned(), self.shared.clock.clone());
        let (bounds, rules) = (self.options.bounds.clone(), self.options.rules.clone());
        // A tenth more or less, so that not all are asked at once for ever.
        let every_ms = self.options.poll_every_ms;
        let tenth = (every_ms / 10).max(1).unsigned_abs();
        let drawn_ms = i64::try_from(self.shared.random.next_u64() % tenth).unwrap_or(0);
        let write = move |tx: &mut Tx<'_>| {
            let now_ms = clock.now_ms();
            let again_ms = now_ms.saturating_add(every_ms).saturating_sub(drawn_ms);
            roster::settle(tx, &relay, &look, (&bounds, &rules), (now_ms, again_ms)).map(|_| ())
        };
        self.shared.store.write(write).await
    }
}

fn is_done(done: &Result<()>, what: &str) -> bool {
    if let Err(error) = done {
        tracing::warn!(%error, "{what} could not be written down");
    }
    done.is_ok()
}

fn counted(now: u64, before: u64) -> i64 {
    i64::try_from(now.saturating_sub(before)).unwrap_or(i64::MAX)
}

/// How a live relay was since the last look. One that was connected again more than once is not stable.
fn look_of(status: &RelayStatus, before: &Counts) -> Look {
    let counts = &status.counts;
    let again = counted(counts.connections, before.connections);
    Look {
        is_reached: status.state == State::Connected && again <= 1,
        is_fetched: status.fetched,
        is_cut: false,
        is_banned: counts.bans > before.bans,
        hostile: counted(counts.hostile, before.hostile),
        unasked: counted(counts.unasked, before.unasked),
        malformed: counted(counts.malformed, before.malformed)
            .saturating_add(counted(counts.oversized, before.oversized)),
        limits: counted(counts.limits, before.limits),
        connect_ms: status.connect_ms,
        error: status.last_error.clone(),
    }
}

/// How a poll went.
fn look_after(polled: &Polled) -> Look {
    let Polled { ended, counts, connect_ms, is_fetched } = polled;
    let error = match ended {
        Ended::Idle => None,
        Ended::Lost(why) | Ended::Banned(why) => Some(why.clone()),
        Ended::Cut(why) => Some((*why).to_owned()),
        Ended::Deaf => Some("it does not pass on what it is given".to_owned()),
    };
    Look {
        // Whoever has sent something before time was over is slow, and there.
        is_reached: match ended {
            Ended::Idle => true,
            Ended::Cut(_) => counts.eose > 0,
            _ => false,
        },
        is_fetched: *is_fetched,
        is_cut: matches!(ended, Ended::Cut(_)),
        is_banned: matches!(ended, Ended::Banned(_)),
        hostile: counted(counts.hostile, 0),
        unasked: counted(counts.unasked, 0),
        malformed: counted(counts.malformed, 0).saturating_add(counted(counts.oversized, 0)),
        limits: counted(counts.limits, 0),
        connect_ms: *connect_ms,
        error,
    }
}
