//! Takes turns, asks the model, runs tools, and writes down what came out.
//!
//! | part | what it does |
//! |---|---|
//! | `claimer` | takes turns for the targets it serves, and reads all that they need in the same transaction |
//! | `task` | one turn: asks the model, lets `react` decide, runs tools |
//! | `scribe` | writes the steps of all tasks together, one write at a time |
//! | `heart` | renews leases; whoever has lost one is dropped |
//! | `sweeper` | does what time brings, and marks rows that cannot be dealt with |
//!
//! A worker is one future. It spawns nothing and has no clock of its own, so it can be dropped at any moment: whatever
//! was not written by then was not done, and another worker goes on at the step where the turn was.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{join, join5, select};
use guild_bus::Bus;
use guild_bus::subject::WorkerTarget;
use guild_protocol::env::{Clock, Random, Shutdown};
use guild_store::Store;

use crate::model::{Chunk, Model};
use crate::row::check_text;
use crate::tool::Tools;
use crate::turn::step::Usage;
use crate::turn::{LONGEST_MS, SET_MAX};
use crate::{AgentKey, AgentTurnId, ChannelId, Error, Result, StepId, code};

mod ask;
mod claimer;
mod heart;
mod hydrate;
mod profile;
mod prompt;
mod queue;
mod react;
mod runs;
mod scribe;
mod submit;
mod sweeper;
mod task;
mod toolbox;

use heart::{Held, Hold};
use queue::Queue;
use scribe::Job;
use task::Arrival;
pub(crate) use toolbox::{OptionsOf, options_of};

/// How a worker works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Whose work it does. One that begins with `svc1_` is served by one worker at a time.
    pub targets: Vec<WorkerTarget>,
    /// Who it is, for people to read.
    pub holder: String,
    /// How many turns it works on at once.
    pub tasks: usize,
    /// How long a turn, a run of a tool or a target is its own without a heartbeat.
    pub lease_ms: i64,
    /// How often it looks for work and for what is due without a bell.
    pub sweep_ms: i64,
    /// How many turns are claimed, and how many steps are written, by one transaction.
    pub batch_max: usize,
    /// How many steps a turn has, unless its profile says otherwise.
    pub max_steps: i64,
    /// How long a call is awaited, unless its tool says otherwise.
    pub suspend_timeout_ms: i64,
    /// How often a model is asked that is busy or out of reach.
    pub model_attempts: u32,
    /// How long one answer of a model may take.
    pub model_timeout_ms: i64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            targets: Vec::new(),
            holder: "worker".to_owned(),
            tasks: 64,
            lease_ms: 30_000,
            sweep_ms: 1_000,
            batch_max: 256,
            max_steps: 8,
            suspend_timeout_ms: 30_000,
            model_attempts: 3,
            model_timeout_ms: 600_000,
        }
    }
}

impl Options {
    fn check(&self) -> Result<()> {
        check_text("holder", &self.holder, 128)?;
        let sizes = [("tasks", self.tasks, 4_096), ("batch_max", self.batch_max, SET_MAX)];
        for (name, size, most) in sizes {
            if !(1..=most).contains(&size) {
                let message = format!("{name} is from 1 to {most}, not {size}");
                return Err(Error::refused(&code::MALFORMED, message));
            }
        }
        let numbers = [
            ("lease_ms", self.lease_ms, 24 * 3_600_000),
            ("sweep_ms", self.sweep_ms, 3_600_000),
            ("max_steps", self.max_steps, 1_000),
            ("suspend_timeout_ms", self.suspend_timeout_ms, LONGEST_MS),
            ("model_timeout_ms", self.model_timeout_ms, LONGEST_MS),
            ("model_attempts", i64::from(self.model_attempts), 100),
        ];
        for (name, number, most) in numbers {
            if !(1..=most).contains(&number) {
                let message = format!("{name} is from 1 to {most}, not {number}");
                return Err(Error::refused(&code::MALFORMED, message));
            }
        }
        if self.targets.is_empty() {
            return Err(Error::refused(&code::MALFORMED, "a worker serves at least one target"));
        }
        Ok(())
    }
}

/// What a model says while it says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Saying {
    /// It is asked.
    Start,
    /// A piece of its answer.
    Chunk(Chunk),
    /// It has answered, or failed.
    End(Usage),
}

/// A piece of an answer, and whose it is. Pieces are hints: only what is written down counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Who speaks.
    pub key: AgentKey,
    /// Where.
    pub channel_id: ChannelId,
    /// In which turn.
    pub agent_turn_id: AgentTurnId,
    /// In which step.
    pub step_id: StepId,
    /// Its place among the pieces of the step, from 0.
    pub index: u64,
    /// What it is.
    pub saying: Saying,
}

/// Takes pieces of answers while they come. It never waits.
pub type ChunkSink = Arc<dyn Fn(Piece) + Send + Sync>;

/// What a worker works with.
pub struct Parts {
    /// Where turns are.
    pub store: Store,
    /// Where bells ring.
    pub bus: Arc<dyn Bus>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// For tokens, and for the spread of waits.
    pub random: Arc<dyn Random>,
    /// What thinks.
    pub model: Arc<dyn Model>,
    /// What runs in this process.
    pub tools: Tools,
    /// What `envs` in the options of a tool may name.
    pub environment: BTreeMap<String, String>,
    /// Who hears answers while they come.
    pub chunks: Option<ChunkSink>,
}

/// What a worker has done and met, for whoever watches it.
#[derive(Clone, Default)]
pub struct Counts(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Counts {
    fn add(&self, word: &'static str, more: usize) {
        if more > 0 {
            let mut counts = lock(&self.0);
            let count = counts.entry(word).or_default();
            *count = count.saturating_add(u64::try_from(more).unwrap_or(u64::MAX));
        }
    }

    /// How often this has happened:
    ///
    /// | word | what |
    /// |---|---|
    /// | `claimed` | a turn was taken |
    /// | `step` | a step was written after which the turn goes on |
    /// | `suspended` | a step was written after which the turn waits |
    /// | `finished` | a turn was ended |
    /// | `failed` | a turn was ended because something went wrong |
    /// | `fenced` | a write came too late: somebody else had the turn |
    /// | `dropped` | a lease could not be renewed |
    /// | `unwritten` | a step could not be written |
    /// | `model_retry` | a model was asked again |
    /// | `tool_run` | a tool was run |
    /// | `picked_up` | a run was taken over from a worker that was lost |
    /// | `recalled` | something waited for a time that a wrong clock gave |
    /// | `swept` | something that time brought was done |
    /// | `marked` | a row that could not be dealt with was put aside |
    /// | `target_held` | a target is served by somebody else |
    /// | `error` | the store could not be used |
    pub fn of(&self, word: &str) -> u64 {
        lock(&self.0).get(word).copied().unwrap_or(0)
    }

    /// Everything that has happened.
    pub fn all(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.0).clone()
    }
}

/// The service that does turns.
pub struct Worker {
    options: Options,
    parts: Parts,
    counts: Counts,
    /// What is to be written.
    desk: Queue<Job>,
    /// What was taken and is not worked on yet.
    arrivals: Queue<(Hold, Arrival)>,
    /// A task has ended.
    freed: Queue<()>,
    held: Mutex<Held>,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while holding one of these.
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Worker {
    /// A worker that does nothing yet.
    pub fn new(options: Options, parts: Parts) -> Result<Worker> {
        options.check()?;
        Ok(Worker {
            options,
            parts,
            counts: Counts::default(),
            desk: Queue::default(),
            arrivals: Queue::default(),
            freed: Queue::default(),
            held: Mutex::default(),
        })
    }

    /// What it does and meets.
    pub fn counts(&self) -> Counts {
        self.counts.clone()
    }

    /// Works until the shutdown, and gives back what it holds then. To be dropped is to be lost: others take over when
    /// its leases are over.
    pub async fn run(self, shutdown: Shutdown) {
        let parts = join5(
            Box::pin(self.claimer()),
            Box::pin(self.runner()),
            Box::pin(self.scribe()),
            Box::pin(self.heart()),
            Box::pin(self.sweeper()),
        );
        // They live until everything is given back: a task that is dropped forgets what it held.
        let mut all = pin!(join(parts, Box::pin(self.doorman())));
        select(shutdown.triggered(), all.as_mut()).await;
        self.leave().await;
    }

    fn warn(&self, error: &Error, what: &'static str) {
        self.counts.add("error", 1);
        tracing::warn!(holder = self.options.holder, %error, code = error.code().name, "{what}");
    }
}

/// Whether the store is gone for good.
fn is_closed(error: &Error) -> bool {
    matches!(error, Error::Store(guild_store::Error::Closed))
}

/// Every statement that workers run again and again.
#[cfg(test)]
pub(crate) fn statements() -> Vec<&'static crate::row::Statement> {
    let mut all: Vec<&'static std::sync::LazyLock<crate::row::Statement>> = Vec::new();
    all.extend(hydrate::statements());
    all.extend(toolbox::statements());
    all.into_iter().map(|statement| &**statement).collect()
}
