//! The registry of providers of a node: brought up to the archive as it grows, and compared with the routing matrix.
//!
//! Any number of processes may share one database: each has a registry of its own, made of the same rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{Either, select};
use guild_bus::{Bus, Listener};
use guild_market::discovery::{self, Follower};
use guild_market::routing::{self, Matrix, snapshot};
use guild_network::archive;
use guild_network::intake::{Announcements, Intake, Next};
use guild_protocol::env::{Clock, Shutdown, UnixMs};
use guild_protocol::identity::PublicKey;
use guild_store::Store;

use crate::Result;
use crate::router::{Router, TaskType};

pub use guild_market::discovery::{
    ANSWER, Card, Claim, Claims, Counted, Entry, Footing, Health, How, Logged, Match, Options,
    Registry, Standing, State, Summary, Wanted, discrepancies, health,
};

/// How often it is asked who was heard, who is gone and who may come in now.
const SIGNS_MS: i64 = 30_000;
/// How often the matrix is compared with who is there.
const REVALIDATE_MS: i64 = 300_000;
/// How long a store that is out of reach is left alone.
const RETRY_MS: i64 = 5_000;
/// So many announcements are taken before what follows from them is written: what was not is read again after a crash.
const SAVE_MAX: usize = 8_000;
/// How often rows that are of no use any more are looked for.
const SWEEP_MS: i64 = 3_600_000;

/// The registry, for whoever asks. Cheap to clone.
#[derive(Clone)]
pub struct Discovery {
    clock: Arc<dyn Clock>,
    /// None until the archive was read.
    follower: Arc<Mutex<Option<Follower>>>,
}

/// What a registry is made with.
pub struct Node {
    /// Where archive and marks are.
    pub store: Store,
    /// Rings when something came.
    pub bus: Arc<dyn Bus>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The matrix that is compared with who is there.
    pub router: Router,
    /// What takes events in, if this process does.
    pub intake: Option<Intake>,
}

/// Keeps a registry up to date.
pub struct Service {
    options: Options,
    node: Node,
    listener: Listener,
    /// What this process stores need not be read again.
    announcements: Option<Announcements>,
    handle: Discovery,
}

/// Reads a registry that nobody keeps here, up to the end of the archive. Nothing is written.
pub async fn read(store: &Store, options: Options, now_ms: UnixMs) -> Result<Follower> {
    let opened = store.read(move |rx| {
        let known = match snapshot::recover(rx, &routing::Options::default()) {
            Ok(recovered) => members(&recovered.matrix),
            // `guild route verify` says what is wrong with the log; who is there can be told without it.
            Err(guild_market::Error::Refused { .. }) => BTreeSet::new(),
            Err(error) => return Err(error),
        };
        let mut follower = discovery::open(rx, options.clone(), &known, now_ms)?;
        while !follower.is_caught_up() {
            let page = discovery::look(rx, follower.seq())?;
            follower.apply(&page, now_ms);
        }
        Ok::<_, guild_market::Error>(follower)
    });
    let mut follower = opened.await?;
    refresh(store, &mut follower, now_ms).await?;
    Ok(follower)
}

/// Brings a registry that [`read`] gave up to the end of the archive. Nothing is written.
pub async fn refresh(store: &Store, follower: &mut Follower, now_ms: UnixMs) -> Result<()> {
    loop {
        let seq = follower.seq();
        let page = store.read(move |rx| discovery::look(rx, seq)).await?;
        follower.apply(&page, now_ms);
        if page.is_last {
            break;
        }
    }
    let place = follower.place();
    let signs = store.read(move |rx| discovery::signs(rx, &place, now_ms)).await?;
    follower.tick(&signs, now_ms);
    Ok(())
}

/// Whom the matrix knows for any work, and has not shut out.
fn members(matrix: &Matrix) -> BTreeSet<PublicKey> {
    let tasks = matrix.task_types().flat_map(|task| matrix.providers_of(task));
    let keys: BTreeSet<PublicKey> = tasks.map(|(key, _)| *key).collect();
    let shut_out = matrix.shut_out();
    keys.difference(&shut_out).copied().collect()
}

impl Discovery {
    /// A handle, and the service that must run for it.
    pub fn new(options: Options, node: Node) -> (Discovery, Service) {
        let handle = Discovery::unread(node.clock.clone());
        let service = handle.kept(options, node);
        (handle, service)
    }

    /// A handle of a registry that is read as soon as [its service](Discovery::kept) runs. Whoever is made before that
    /// service can be, as who hires is, asks it from then on.
    pub fn unread(clock: Arc<dyn Clock>) -> Discovery {
        Discovery { clock, follower: Arc::default() }
    }

    /// The service that must run for this handle.
    pub fn kept(&self, options: Options, node: Node) -> Service {
        // Listening begins before the first read, so nothing falls between the two.
        let listener = node.bus.listen(archive::TOPIC);
        let announcements = node.intake.as_ref().map(Intake::announcements);
        Service { options, node, listener, announcements, handle: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Follower>> {
        // Whoever panicked while holding it left a registry that is at worst behind.
        self.follower.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the registry; nothing until the archive was read.
    pub fn ask<T>(&self, question: impl FnOnce(&Registry, UnixMs) -> T) -> Option<T> {
        let now_ms = self.clock.now_ms();
        self.lock().as_ref().map(|follower| question(follower.registry(), now_ms))
    }

    /// Who can do some work, the best first; nobody until the archive was read.
    pub fn find(&self, wanted: &Wanted<'_>) -> Vec<Match> {
        self.ask(|registry, now_ms| registry.find(wanted, now_ms)).unwrap_or_default()
    }

    /// How many there are of what; nothing until the archive was read.
    pub fn summary(&self) -> Option<Summary> {
        self.ask(Registry::summary)
    }

    /// Whether everything that had come at the last look is in the registry.
    pub fn is_caught_up(&self) -> bool {
        self.lock().as_ref().is_some_and(Follower::is_caught_up)
    }
}

/// What is to be done next, and when.
#[derive(Default)]
struct Due {
    /// How many announcements were taken since what follows from them was written.
    unsaved: usize,
    signs_ms: UnixMs,
    revalidate_ms: UnixMs,
    sweep_ms: UnixMs,
}

/// Waits for ever if nothing is stored here.
async fn changed(announcements: Option<&Announcements>) {
    match announcements {
        Some(announcements) => announcements.changed().await,
        None => std::future::pending().await,
    }
}

impl Service {
    /// Runs until the shutdown. A store that is out of reach is tried again.
    pub async fn run(mut self, shutdown: Shutdown) {
        let mut due = Due::default();
        while !shutdown.is_triggered() {
            let wait_ms = match self.round(&mut due).await {
                Ok(()) => SIGNS_MS,
                Err(error) if error.is_closed() => return,
                Err(error) => {
                    tracing::warn!(%error, "the registry of providers cannot be kept; trying again");
                    RETRY_MS
                }
            };
            let stored = std::pin::pin!(changed(self.announcements.as_ref()));
            let came = select(self.listener.hear(), stored);
            let more = select(came, self.node.clock.sleep(wait_ms));
            if let Either::Left(_) = select(shutdown.triggered(), more).await {
                return;
            }
        }
    }

    /// Takes what came, and does what is due.
    async fn round(&self, due: &mut Due) -> Result<()> {
        self.open().await?;
        self.follow(due).await?;
        let now_ms = self.node.clock.now_ms();
        if now_ms >= due.signs_ms {
            self.signs(now_ms).await?;
            due.signs_ms = now_ms.saturating_add(SIGNS_MS);
            self.show();
        }
        if now_ms >= due.revalidate_ms {
            self.revalidate().await?;
            due.revalidate_ms = now_ms.saturating_add(REVALIDATE_MS);
        }
        if now_ms >= due.sweep_ms {
            self.node.store.write(move |tx| discovery::sweep(tx, now_ms)).await?;
            due.sweep_ms = now_ms.saturating_add(SWEEP_MS);
        }
        Ok(())
    }

    /// Whom the matrix knows, if it can be read: who is there is told without it, too.
    async fn members(&self) -> Option<BTreeSet<PublicKey>> {
        let matrix = self.node.router.current().await;
        matrix
            .map(|matrix| members(&matrix))
            .inspect_err(|error| {
                tracing::debug!(%error, "it cannot be told whom the routing matrix knows");
            })
            .ok()
    }

    async fn open(&self) -> Result<()> {
        if self.handle.lock().is_some() {
            return Ok(());
        }
        let (options, now_ms) = (self.options.clone(), self.node.clock.now_ms());
        let members = self.members().await.unwrap_or_default();
        let opened =
            self.node.store.read(move |rx| discovery::open(rx, options.clone(), &members, now_ms));
        let opened = opened.await?;
        *self.handle.lock() = Some(opened);
        Ok(())
    }

    /// Brings the registry to the end of the archive, a page at a time.
    async fn follow(&self, due: &mut Due) -> Result<()> {
        loop {
            let Some(seq) = self.handle.lock().as_ref().map(Follower::seq) else { return Ok(()) };
            let next = self.announcements.as_ref().map_or(Next::Read, |news| news.after(seq));
            let page = match next {
                Next::Page(page) => page,
                // It would be read a moment before it is handed out.
                Next::Soon => return Ok(()),
                Next::Read => self.node.store.read(move |rx| discovery::look(rx, seq)).await?,
            };
            let now_ms = self.node.clock.now_ms();
            if let Some(follower) = self.handle.lock().as_mut() {
                follower.apply(&page, now_ms);
            }
            // Other events move the end of the archive too: that alone is written with the next look at signs.
            due.unsaved = due.unsaved.saturating_add(page.announced.len());
            if due.unsaved >= SAVE_MAX || (page.is_last && due.unsaved > 0) {
                self.save(now_ms).await?;
                due.unsaved = 0;
            }
            if page.is_last {
                return Ok(());
            }
        }
    }

    /// Tells the archive whom this node knows: the members of the matrix, whom it meets, and with whom it has an order.
    async fn know(&self, members: &BTreeSet<PublicKey>) -> Result<()> {
        let read = self.node.store.read(|rx| {
            Ok::<_, guild_market::Error>((discovery::engaged(rx)?, archive::known(rx)?))
        });
        let (mut keys, known) = read.await?;
        keys.extend(members);
        if keys != known {
            self.node.store.write(move |tx| archive::set_known(tx, &keys)).await?;
        }
        Ok(())
    }

    async fn signs(&self, now_ms: UnixMs) -> Result<()> {
        let members = self.members().await;
        // Whoever cannot read the matrix knows no less than before.
        if let Some(members) = &members {
            self.know(members).await?;
        }
        let place = self.handle.lock().as_mut().map(|follower| {
            if let Some(members) = members {
                follower.set_members(members);
            }
            follower.place()
        });
        let Some(place) = place else { return Ok(()) };
        let signs = self.node.store.read(move |rx| discovery::signs(rx, &place, now_ms)).await?;
        if let Some(follower) = self.handle.lock().as_mut() {
            follower.tick(&signs, now_ms);
            if let Some(intake) = &self.node.intake {
                follower.refused(&intake.refused_announcements());
            }
        }
        self.save(now_ms).await
    }

    async fn save(&self, now_ms: UnixMs) -> Result<()> {
        let saved = self.handle.lock().as_mut().map(Follower::take_saved);
        let Some(saved) = saved.filter(|saved| !saved.is_nothing()) else { return Ok(()) };
        let saved = Arc::new(saved);
        let written = self.node.store.write(move |tx| discovery::save(tx, &saved, now_ms)).await;
        if written.is_err() {
            // What could not be written is read again: rows are what it was before.
            *self.handle.lock() = None;
        }
        Ok(written?)
    }

    /// Compares the matrix with who is there. Whoever has not read the whole archive, or has nobody in it, concludes
    /// nothing.
    async fn revalidate(&self) -> Result<usize> {
        let router = &self.node.router;
        let matrix = router.current().await?;
        let mut known: BTreeMap<PublicKey, BTreeSet<TaskType>> = BTreeMap::new();
        for task in matrix.task_types() {
            for (provider, _) in matrix.providers_of(task) {
                known.entry(*provider).or_default().insert(task.clone());
            }
        }
        let live = self.handle.lock().as_ref().and_then(|follower| {
            let registry = follower.registry();
            let can_tell = follower.is_caught_up() && !registry.is_empty();
            can_tell.then(|| registry.live(&known))
        });
        let changed = router.revalidate(live.as_deref()).await?;
        if changed > 0 {
            tracing::info!(
                changed,
                "entries of the routing matrix were compared with who is there"
            );
            metrics::counter!("discovery_revalidated_total").increment(changed as u64);
        }
        Ok(changed)
    }

    fn show(&self) {
        let Some(sum) = self.handle.summary() else { return };
        let count = |number: usize| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
        for (state, number) in [
            ("live", sum.live),
            ("listed", sum.listed),
            ("quarantined", sum.quarantined),
            ("archived", sum.archived),
            ("flapping", sum.flapping),
            ("disputed", sum.disputed),
        ] {
            metrics::gauge!("discovery_offers", "state" => state).set(count(number));
        }
        metrics::gauge!("discovery_collisions").set(count(sum.collisions));
        metrics::gauge!("discovery_bytes").set(count(sum.bytes));
    }
}
