//! The routing matrix of a node: what was recovered at the start, what was logged since, and its snapshots.
//!
//! Any number of processes may share one database: each appends to one log, and reads what the others wrote before it
//! chooses.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::{Either, select};
use guild_market::code::ROUTE_BLACKLISTED;
use guild_market::review;
use guild_market::routing::log::{self, Appended};
use guild_market::routing::snapshot::{self, Snapshot};
use guild_market::routing::{
    self, Change, Hearsays, Mutation, Wanted, choose_with, copy, explain_with, over, revalidate,
};
use guild_market::settle::Keys;
use guild_network::archive;
use guild_network::publish::Destinations;
use guild_protocol::env::{Clock, Random, Shutdown, Signer, UnixMs};
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::nostr::{Event, Filter, Limits, kind, unix_s};
use guild_store::{Rx, Store, Tx};

use crate::error::code;
use crate::{Error, Result};

pub use guild_market::health::{Health, Options as HealthOptions, Stage};
pub use guild_market::routing::{
    Asked, Candidate, Cause, Checked, Choice, Entry, Explanation, Live, Logged, Matrix, Options,
    Policy, Status, TaskType, Tier,
};

/// How many copies are looked at.
const COPIES_MAX: usize = 1_000;
/// The longest reason of a quarantine, and name of one: both stand in the key of a change.
const REASON_MAX_BYTES: usize = 160;
const NAME_MAX_BYTES: usize = 40;

/// Where copies of what is significant go: as private messages to this key, on these relays.
#[derive(Clone)]
pub struct Copies {
    /// Whose matrix it is.
    pub key: Arc<SecretKey>,
    /// Which relays.
    pub to: Destinations,
}

/// Looks after the matrix until the shutdown: snapshots, and what time brings. A store that is out of reach is tried
/// again.
pub async fn look_after(router: Router, shutdown: Shutdown) {
    while !shutdown.is_triggered() {
        match router.current().await {
            Ok(_) => return router.run(shutdown).await,
            Err(error) if error.is_closed() => return,
            Err(error) => tracing::warn!(%error, "the routing matrix cannot be read; trying again"),
        }
        select(shutdown.triggered(), router.clock.sleep(snapshot::INTERVAL_MS)).await;
    }
}

/// The matrix as it was last read: whoever reads it again reads only what was logged since.
#[derive(Clone, Default)]
pub(crate) struct Known(Arc<Mutex<Option<Arc<Matrix>>>>);

impl Known {
    /// The matrix with everything that was logged: the newest good snapshot the first time, and what came after it.
    /// Snapshots that cannot be used are told of; they cost time, and nothing else.
    pub(crate) fn current(
        &self,
        rx: &mut Rx<'_>,
        options: &Options,
    ) -> guild_market::Result<Arc<Matrix>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let current = match known {
            Some(known) if log::head(rx)?.0 == known.seq() => return Ok(known),
            Some(known) => {
                let mut matrix = Matrix::clone(&known);
                log::catch_up(rx, &mut matrix)?;
                matrix
            }
            None => {
                let found = snapshot::recover(rx, options)?;
                for (seq, why) in &found.damaged {
                    tracing::warn!(seq, %why, "a snapshot of the routing matrix cannot be used");
                }
                found.matrix
            }
        };
        let current = Arc::new(current);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody else may have read further meanwhile.
        if known.as_ref().is_none_or(|known| current.seq() > known.seq()) {
            *known = Some(current.clone());
        }
        Ok(current)
    }
}

/// Whom not to hire, or to hire again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantine {
    /// Who.
    pub provider: PublicKey,
    /// For which work; for all that it is known for if none is named.
    pub task: Option<TaskType>,
    /// Until when; without an end if there is none.
    pub until_ms: Option<UnixMs>,
    /// Whether it ends now instead.
    pub lift: bool,
    /// Why, for people.
    pub reason: String,
    /// The caller's name for it: the same again changes nothing.
    pub idempotency_key: String,
}

/// What copies of the matrix there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopiesFound {
    /// Messages to this node that hold rows.
    pub messages: usize,
    /// Rows in them that are in the log just so.
    pub same: usize,
    /// Rows in them that the log does not have, by their number.
    pub other: Vec<i64>,
}

/// The handle of the matrix.
#[derive(Clone)]
pub struct Router {
    options: Options,
    store: Store,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    copies: Option<Copies>,
    known: Known,
}

impl Router {
    /// The matrix of a store, which is read when it is needed first.
    pub fn new(
        options: Options,
        store: Store,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        copies: Option<Copies>,
    ) -> Router {
        Router { options, store, clock, random, copies, known: Known::default() }
    }

    /// Recovers the matrix: the newest good snapshot, and what was logged after it.
    pub async fn open(
        options: Options,
        store: Store,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        copies: Option<Copies>,
    ) -> Result<Router> {
        let router = Router::new(options, store, clock, random, copies);
        router.current().await?;
        Ok(router)
    }

    /// The numbers of routing.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The matrix with everything that was logged.
    pub async fn current(&self) -> Result<Arc<Matrix>> {
        let (known, options) = (self.known.clone(), self.options.clone());
        Ok(self.store.read(move |rx| known.current(rx, &options)).await?)
    }

    /// Queues copies of what is significant in new rows, in the transaction that writes them.
    pub(crate) fn copy(
        &self,
        tx: &mut Tx<'_>,
        rows: &[Appended],
        now_ms: UnixMs,
    ) -> guild_market::Result<()> {
        if let Some(copies) = &self.copies {
            let keys = Keys { key: &copies.key, random: &*self.random };
            copy::enqueue(tx, rows, &keys, &copies.to, now_ms)?;
        }
        Ok(())
    }

    /// Logs changes, all or none; then they are in effect. Copies of what is significant leave with them.
    pub async fn record(&self, changes: Vec<Change>) -> Result<Vec<Appended>> {
        let (this, now_ms) = (self.clone(), self.clock.now_ms());
        let written = self.store.write(move |tx| {
            let rows = log::append(tx, &this.options, &changes, now_ms)?;
            this.copy(tx, &rows, now_ms)?;
            Ok::<_, guild_market::Error>(rows)
        });
        let rows = written.await?;
        self.current().await?;
        Ok(rows)
    }

    /// Refuses a key that has ever tried what is forbidden, whatever the work was.
    pub async fn refuse_blacklisted(&self, provider: &PublicKey) -> Result<()> {
        if self.current().await?.is_blacklisted(provider) {
            let why = format!("{provider} has tried what is forbidden");
            return Err(guild_market::Error::refused(&ROUTE_BLACKLISTED, why).into());
        }
        Ok(())
    }

    /// Compares the matrix with the announcements that are there, if somebody could look; how many entries changed.
    pub async fn revalidate(&self, live: Option<&[Live]>) -> Result<usize> {
        let matrix = self.current().await?;
        let changes = revalidate(&matrix, live, self.clock.now_ms());
        if changes.is_empty() {
            return Ok(0);
        }
        Ok(self.record(changes).await?.len())
    }

    /// Takes back who was not to be asked for a while, if that is over; how many entries changed.
    pub async fn take_back(&self) -> Result<usize> {
        let matrix = self.current().await?;
        let changes = over(&matrix, self.clock.now_ms());
        if changes.is_empty() {
            return Ok(0);
        }
        Ok(self.record(changes).await?.len())
    }

    /// Takes somebody out of the choice, or back into it under conditions; what its entries are then. The reason is a
    /// part of the key, so it stands in the log. Who is where it should be already stays as it is.
    pub async fn quarantine(&self, asked: &Quarantine) -> Result<Vec<(TaskType, Entry)>> {
        let matrix = self.current().await?;
        let changes = quarantining(&matrix, asked)?;
        if !changes.is_empty() {
            self.record(changes).await?;
        }
        let mut entries = self.entries(&asked.provider).await?;
        entries.retain(|(task, _)| asked.task.as_ref().is_none_or(|wanted| wanted == task));
        Ok(entries)
    }

    /// Rows of the log, the newest first.
    pub async fn log(&self, asked: Asked, limit: i64) -> Result<Vec<Logged>> {
        Ok(self.store.read(move |rx| routing::rows(rx, &asked, limit)).await?)
    }

    /// Looks at the whole log: every hash, and what it gives beside what a start would take.
    pub async fn check(&self) -> Result<Checked> {
        let options = self.options.clone();
        Ok(self.store.read(move |rx| routing::check(rx, &options)).await?)
    }

    /// The copies of rows that are here, opened with their key and compared with the log.
    pub async fn copies(&self, key: Arc<SecretKey>) -> Result<CopiesFound> {
        let (random, now_s) = (self.random.clone(), unix_s(self.clock.now_ms()));
        let found = self.store.read(move |rx| {
            let keys = Keys { key: &key, random: &*random };
            copies_of(rx, &keys, now_s)
        });
        Ok(found.await?)
    }

    /// Chooses somebody for some work. Nothing is changed by that: whoever hires the one chosen records it.
    pub async fn choose(
        &self,
        policy: Policy,
        task: &TaskType,
        except: &BTreeSet<PublicKey>,
        max_cost_msat: Option<i64>,
    ) -> Result<Choice> {
        let matrix = self.current().await?;
        let wanted = Wanted { task, except, max_cost_msat, now_ms: self.clock.now_ms() };
        let said = self.said(task).await?;
        Ok(choose_with(&matrix, policy, &wanted, &said, &*self.random))
    }

    /// Everybody for some work, and what either policy would choose now; nothing if nobody was ever admitted for it.
    pub async fn explain(&self, task: &TaskType, seed: Option<u64>) -> Result<Option<Explanation>> {
        let seed = seed.unwrap_or_else(|| self.random.next_u64());
        let matrix = self.current().await?;
        let said = self.said(task).await?;
        Ok(explain_with(&matrix, task, &said, self.clock.now_ms(), seed))
    }

    /// What others say of those who do some work.
    async fn said(&self, task: &TaskType) -> Result<Hearsays> {
        let task = task.clone();
        Ok(self.store.read(move |rx| review::hearsay(rx, &task)).await?)
    }

    /// What is believed of a provider, for each kind of work.
    pub async fn entries(&self, provider: &PublicKey) -> Result<Vec<(TaskType, Entry)>> {
        let matrix = self.current().await?;
        let tasks = matrix.tasks_of(provider);
        let entry = |task: &TaskType| Some((task.clone(), matrix.entry(task, provider)?.clone()));
        Ok(tasks.filter_map(entry).collect())
    }

    /// Writes a snapshot, if there is something new; whether there was.
    pub async fn save(&self) -> Result<bool> {
        let matrix = self.current().await?;
        let newest = self.store.read(snapshot::newest).await?;
        if matrix.seq() == newest.map_or(0, |(_, seq)| seq) {
            return Ok(false);
        }
        let (saved, now_ms) = (Snapshot::of(&matrix)?, self.clock.now_ms());
        Ok(self.store.write(move |tx| snapshot::write(tx, &saved, now_ms)).await?)
    }

    /// Writes snapshots now and then until the shutdown, and a last one then.
    pub async fn run(self, shutdown: Shutdown) {
        loop {
            let sleep = self.clock.sleep(snapshot::INTERVAL_MS);
            let stopping = matches!(select(shutdown.triggered(), sleep).await, Either::Left(_));
            let kept = match self.take_back().await {
                Ok(_) => self.save().await,
                Err(error) => Err(error),
            };
            match kept {
                Err(error) if error.is_closed() => return,
                Err(error) => {
                    tracing::warn!(%error, "no snapshot of the routing matrix was written");
                }
                Ok(_) => {}
            }
            if stopping {
                return;
            }
        }
    }
}

/// What a quarantine changes.
fn quarantining(matrix: &Matrix, asked: &Quarantine) -> Result<Vec<Change>> {
    let refused = |words: String| Err(Error::refused(&code::QUARANTINE, words));
    let (reason, name) = (asked.reason.trim(), &asked.idempotency_key);
    let plain = |text: &str, max: usize| {
        !text.is_empty() && text.len() <= max && !text.chars().any(char::is_control)
    };
    if !plain(reason, REASON_MAX_BYTES) {
        return refused(format!("a reason has 1 to {REASON_MAX_BYTES} bytes, on one line"));
    }
    if !plain(name, NAME_MAX_BYTES) {
        return refused(format!("a name has 1 to {NAME_MAX_BYTES} bytes, on one line"));
    }
    let entries = matrix.tasks_of(&asked.provider).filter_map(|task| {
        let wanted = asked.task.as_ref().is_none_or(|wanted| wanted == task);
        Some((task, matrix.entry(task, &asked.provider)?)).filter(|_| wanted)
    });
    let entries: Vec<(&TaskType, &Entry)> = entries.collect();
    if entries.is_empty() {
        let work = asked.task.as_ref().map(|task| format!(" for {task}")).unwrap_or_default();
        return refused(format!("the matrix does not know {}{work}", asked.provider));
    }
    if entries.iter().all(|(_, entry)| entry.status == Status::Blacklisted) {
        return refused(format!("{} is blacklisted, and stays so", asked.provider));
    }
    let mutation = match asked.lift {
        true => Mutation::Moved { status: Status::Conditional, cause: None, until_ms: None },
        false => Mutation::Moved {
            status: Status::Quarantined,
            cause: Some(Cause::Operator),
            until_ms: asked.until_ms,
        },
    };
    let concerned = entries.into_iter().filter(|(_, entry)| match asked.lift {
        true => !entry.status.is_hireable() && entry.status != Status::Blacklisted,
        false => entry.status != Status::Blacklisted,
    });
    let change = |(task, _): (&TaskType, &Entry)| Change {
        key: format!("operator:{name}:{task}:{}:{reason}", asked.provider),
        task: task.clone(),
        provider: asked.provider,
        mutation: mutation.clone(),
    };
    Ok(concerned.map(change).collect())
}

/// Messages of this key to itself that hold rows, beside what the log says.
fn copies_of(rx: &mut Rx<'_>, keys: &Keys<'_>, now_s: u64) -> guild_market::Result<CopiesFound> {
    let to = keys.key.public_key().hex();
    let wanted = Filter::kinds([kind::GIFT_WRAP]).tag('p', [to]);
    let mut found = CopiesFound::default();
    for stored in archive::query(rx, &[wanted], COPIES_MAX, now_s)? {
        let Ok(event) = Event::parse(stored.json.as_bytes(), &Limits::DEFAULT) else { continue };
        // Anybody may send us anything in such a wrap.
        let Ok(rows) = copy::read(&event, keys) else { continue };
        found.messages = found.messages.saturating_add(1);
        for row in rows {
            let before_seq = Some(row.seq.saturating_add(1));
            let there = routing::rows(rx, &Asked { before_seq, ..Asked::default() }, 1)?.pop();
            let same = there.is_some_and(|there| {
                let effect = there.effect;
                (effect.seq, &effect.entry, &effect.mutation)
                    == (row.seq, &row.entry, &row.mutation)
            });
            match same {
                true => found.same = found.same.saturating_add(1),
                false => found.other.push(row.seq),
            }
        }
    }
    Ok(found)
}
