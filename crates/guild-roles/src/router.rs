//! The routing matrix of a node: what was recovered at the start, what was logged since, and its snapshots.
//!
//! Any number of processes may share one database: each appends to one log, and reads what the others wrote before it
//! chooses.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::{Either, select};
use guild_market::routing::log::{self, Appended};
use guild_market::routing::snapshot::{self, Snapshot};
use guild_market::routing::{Change, Matrix, Wanted, choose, copy, explain, revalidate};
use guild_market::settle::Keys;
use guild_network::publish::Destinations;
use guild_protocol::env::{Clock, Random, Shutdown};
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_store::Store;

use crate::Result;

pub use guild_market::routing::{
    Candidate, Choice, Entry, Explanation, Live, Options, Policy, TaskType,
};

/// Where copies of what is significant go: as private messages to this key, on these relays.
#[derive(Clone)]
pub struct Copies {
    /// Whose matrix it is.
    pub key: Arc<SecretKey>,
    /// Which relays.
    pub to: Destinations,
}

/// Writes snapshots of the matrix of this store until the shutdown. A store that is out of reach is tried again.
pub async fn keep_snapshots(
    options: Options,
    store: Store,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    shutdown: Shutdown,
) {
    while !shutdown.is_triggered() {
        let opened =
            Router::open(options.clone(), store.clone(), clock.clone(), random.clone(), None);
        match opened.await {
            Ok(router) => return router.run(shutdown).await,
            Err(error) if error.is_closed() => return,
            Err(error) => tracing::warn!(%error, "the routing matrix cannot be read; trying again"),
        }
        select(shutdown.triggered(), clock.sleep(snapshot::INTERVAL_MS)).await;
    }
}

/// The handle of the matrix.
#[derive(Clone)]
pub struct Router {
    store: Store,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    copies: Option<Copies>,
    matrix: Arc<Mutex<Matrix>>,
}

impl Router {
    /// Recovers the matrix: the newest good snapshot, and what was logged after it. Snapshots that cannot be used are
    /// told of; they cost time, and nothing else.
    pub async fn open(
        options: Options,
        store: Store,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        copies: Option<Copies>,
    ) -> Result<Router> {
        let found = store.read(move |rx| snapshot::recover(rx, &options)).await?;
        for (seq, why) in &found.damaged {
            tracing::warn!(seq, %why, "a snapshot of the routing matrix cannot be used");
        }
        let matrix = Arc::new(Mutex::new(found.matrix));
        Ok(Router { store, clock, random, copies, matrix })
    }

    /// The matrix as it is known here.
    fn known(&self) -> Matrix {
        self.matrix.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The matrix with everything that was logged.
    pub async fn current(&self) -> Result<Matrix> {
        let known = self.known();
        let current = self.store.read(move |rx| {
            let mut matrix = known.clone();
            log::catch_up(rx, &mut matrix)?;
            Ok::<_, guild_market::Error>(matrix)
        });
        let current = current.await?;
        let mut matrix = self.matrix.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody else may have read further meanwhile.
        if current.seq() > matrix.seq() {
            *matrix = current.clone();
        }
        Ok(current)
    }

    /// Logs changes, all or none; then they are in effect. Copies of what is significant leave with them.
    pub async fn record(&self, changes: Vec<Change>) -> Result<Vec<Appended>> {
        let options = self.known().options().clone();
        let (now_ms, random, copies) =
            (self.clock.now_ms(), self.random.clone(), self.copies.clone());
        let written = self.store.write(move |tx| {
            let rows = log::append(tx, &options, &changes, now_ms)?;
            if let Some(copies) = &copies {
                let keys = Keys { key: &copies.key, random: &*random };
                copy::enqueue(tx, &rows, &keys, &copies.to, now_ms)?;
            }
            Ok::<_, guild_market::Error>(rows)
        });
        let rows = written.await?;
        self.current().await?;
        Ok(rows)
    }

    /// Compares the matrix with the announcements that are there, if somebody could look; how many entries changed.
    pub async fn revalidate(&self, live: Option<&[Live]>) -> Result<usize> {
        let changes = revalidate(&self.current().await?, live, self.clock.now_ms());
        if changes.is_empty() {
            return Ok(0);
        }
        Ok(self.record(changes).await?.len())
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
        Ok(choose(&matrix, policy, &wanted, &*self.random))
    }

    /// Everybody for some work, and what either policy would choose now; nothing if nobody was ever admitted for it.
    pub async fn explain(&self, task: &TaskType, seed: Option<u64>) -> Result<Option<Explanation>> {
        let seed = seed.unwrap_or_else(|| self.random.next_u64());
        Ok(explain(&self.current().await?, task, self.clock.now_ms(), seed))
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
            match self.save().await {
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
