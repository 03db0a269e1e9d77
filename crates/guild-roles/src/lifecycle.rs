//! Whoever is hired is looked at now and then, tested without knowing it, and tried again after it was suspended.
//!
//! ```text
//! row of the watch is due ─▶ look, one transaction ─▶ a test: row `due` ─▶ an ordinary order, judged by what is known
//!                              ├─▶ a row of the routing log                     └─▶ matrix, as any other order
//!                              └─▶ a meeting, from nothing
//! ```
//!
//! What is to be done is in rows, so any number of processes may do it, and whoever dies is replaced.

use std::sync::Arc;

use futures_util::future::{Either, select};
use guild_market::benchmark::Benchmark;
use guild_market::code::{MEETING_COOLING, MEETING_NO_BENCHMARK, ROUTE_CHANGE};
use guild_market::evaluation::Pace;
use guild_market::health::probe;
use guild_market::health::watch::{self, Looked};
use guild_market::routing::{Change, Mutation};
use guild_protocol::env::{Clock, Random, Shutdown, UnixMs};
use guild_protocol::identity::PublicKey;
use guild_store::Store;

use crate::buyer::Buyer;
use crate::error::code::UNHEARD;
use crate::meeting::{Meetings, Wish};
use crate::router::{Router, Status, TaskType};
use crate::{Counts, Result, alone};

pub use guild_market::health::watch::Times;

/// How many entries are looked at, and tests posted, in one go.
const AT_ONCE: i64 = 50;
/// How often rows that are of no use any more are looked for.
const FORGET_MS: i64 = 3_600_000;

/// How everybody is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How often what is looked for.
    pub times: Times,
    /// How often it looks for rows that are due.
    pub sweep_ms: i64,
}

impl Default for Options {
    fn default() -> Options {
        Options { times: Times::default(), sweep_ms: 30_000 }
    }
}

/// What this role needs of its node.
#[derive(Clone)]
pub struct Node {
    /// Where its rows are.
    pub store: Store,
    /// Its time.
    pub clock: Arc<dyn Clock>,
    /// For keys that nobody can guess.
    pub random: Arc<dyn Random>,
    /// Who orders tests.
    pub buyer: Buyer,
    /// Who meets those again that were suspended; none if that is not done here.
    pub meetings: Option<Meetings>,
}

/// The service, and its handle: cheap to clone.
#[derive(Clone)]
pub struct Lifecycle {
    options: Options,
    node: Node,
    router: Router,
    counts: Counts,
}

impl Lifecycle {
    /// One for this node.
    pub fn new(options: Options, node: Node) -> Lifecycle {
        let router = node.buyer.router();
        Lifecycle { options, node, router, counts: Counts::of_role("lifecycle") }
    }

    /// What it has done since it started.
    pub fn counts(&self) -> Counts {
        self.counts.clone()
    }

    /// Looks until the shutdown. A store that is out of reach is tried again.
    pub async fn run(self, shutdown: Shutdown) {
        let (mut failing, mut forget_ms) = (false, i64::MIN);
        while !shutdown.is_triggered() {
            match self.round(&mut forget_ms).await {
                Ok(()) => failing = false,
                Err(error) if error.is_closed() => return,
                // Once, not every time for as long as it lasts.
                Err(error) if !std::mem::replace(&mut failing, true) => {
                    tracing::warn!(%error, "nobody is looked at; trying again");
                }
                Err(_) => {}
            }
            let sleep = self.node.clock.sleep(self.options.sweep_ms);
            if let Either::Left(_) = select(shutdown.triggered(), sleep).await {
                return;
            }
        }
    }

    /// Looks at whoever is due, and posts the tests that are.
    async fn round(&self, forget_ms: &mut UnixMs) -> Result<()> {
        let now_ms = self.now_ms();
        let (times, chance) = (self.options.times.clone(), self.node.random.next_u64());
        let store = &self.node.store;
        store.write(move |tx| watch::track(tx, &times, (now_ms, chance))).await?;
        for one in store.read(move |rx| watch::due(rx, now_ms, AT_ONCE)).await? {
            self.look(&one.provider, &one.task).await?;
        }
        for one in store.read(move |rx| probe::due(rx, now_ms, AT_ONCE)).await? {
            self.node.buyer.probe(one).await?;
        }
        if now_ms >= *forget_ms {
            store.write(move |tx| probe::forget(tx, now_ms)).await?;
            *forget_ms = now_ms.saturating_add(FORGET_MS);
        }
        Ok(())
    }

    fn now_ms(&self) -> UnixMs {
        self.node.clock.now_ms()
    }

    /// Looks at one entry. Only a store that cannot be used is an error.
    async fn look(&self, provider: &PublicKey, task: &TaskType) -> Result<()> {
        let (this, provider, task) = (self.clone(), *provider, task.clone());
        let mut made_up = [0; 16];
        self.node.random.fill(&mut made_up);
        let about = task.clone();
        let called = alone::write(&self.node.store, move |tx| {
            let (now_ms, options) = (this.now_ms(), this.router.options());
            let of = (&provider, &about);
            let looked = watch::look(tx, (options, &this.options.times), of, &made_up, now_ms)?;
            if let Some(looked) = &looked {
                this.router.copy(tx, &looked.rows, now_ms)?;
            }
            Ok(looked)
        });
        let looked = match called.await? {
            Ok(looked) => looked.unwrap_or_default(),
            Err(error) => {
                self.counts.add("not_looked_at");
                tracing::warn!(%error, %provider, %task, "a provider cannot be looked at");
                return Ok(());
            }
        };
        let Looked { rows, meet, test } = looked;
        if let Some(reason) = test {
            self.counts.add("test_due");
            tracing::debug!(%provider, %task, reason = reason.name(), "a provider is tested");
        }
        for row in rows.iter().filter(|row| row.is_new) {
            let stage = row.effect.entry.health.stage.name();
            tracing::info!(%provider, task = %row.effect.task, stage, "a provider came to a stage");
        }
        match meet {
            Some(key) => self.try_again(provider, task, key).await,
            None => Ok(()),
        }
    }

    /// Meets somebody again, from nothing. Where no benchmark says anything about the work, the next order does.
    async fn try_again(&self, provider: PublicKey, task: TaskType, key: String) -> Result<()> {
        let Ok(benchmark) = Benchmark::of_task(&task) else {
            return self.take_anew(provider, task, key).await;
        };
        let Some(meetings) = &self.node.meetings else { return Ok(()) };
        let wish = Wish {
            provider,
            task: Some(task.clone()),
            benchmark,
            modules: Default::default(),
            encrypted: false,
            bid: None,
            idempotency_key: Some(key),
        };
        match meetings.meet(wish).await {
            Ok(_) => self.counts.add("met_again"),
            Err(error) if error.concerns_all() => return Err(error),
            Err(error) => {
                // It announces nothing now, or was met lately by hand: it is looked at again.
                let expected = [&MEETING_COOLING, &UNHEARD, &MEETING_NO_BENCHMARK];
                self.counts.add("not_met_again");
                if !expected.contains(&error.code()) {
                    tracing::warn!(%error, %provider, %task, "a provider is not met again");
                }
            }
        }
        Ok(())
    }

    /// Takes somebody as whoever is met for the first time: under conditions, with little trust.
    async fn take_anew(&self, provider: PublicKey, task: TaskType, key: String) -> Result<()> {
        let matrix = self.router.current().await?;
        let Some(entry) = matrix.entry(&task, &provider) else { return Ok(()) };
        let mutation = Mutation::Admitted {
            d: entry.d.clone(),
            status: Status::Conditional,
            trust_bp: self.router.options().met_badly_bp,
            pace: Pace::Standard,
            notes: Default::default(),
        };
        match self.router.record(vec![Change { key, task, provider, mutation }]).await {
            Ok(_) => self.counts.add("taken_anew"),
            // It was shut out meanwhile.
            Err(error) if error.code() == &ROUTE_CHANGE => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
