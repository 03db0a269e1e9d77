//! Stores what was checked, in groups, and feeds whoever listens.

use std::sync::Arc;

use futures_util::future::FutureExt;
use futures_util::stream::{FuturesOrdered, StreamExt};
use guild_bus::Listener;
use guild_protocol::env::{BoxFuture, Clock, Shutdown};
use guild_store::Store;
use tokio::sync::mpsc;

use super::seen::Fate;
use super::work::{self, Ready};
use super::{LiveEvent, NotKept, Refusal, Shared, Verdict};
use crate::archive::{self, Put, Verified};
use crate::{Error, Result};

/// So many groups are on their way at once. While one is committed the next is collected, for as long as signatures
/// are being checked: the busier the node, the larger its groups, and the less an event costs; a lone event waits for
/// nobody.
const GROUPS_ON_THEIR_WAY: usize = 1;
/// So many events of others are read at a time.
const GAP_STEP: usize = 64;

/// The work behind an [`Intake`](super::Intake).
pub struct Service {
    shared: Arc<Shared>,
    store: Store,
    waiting: mpsc::UnboundedReceiver<Vec<Ready>>,
    bell: Listener,
    /// The live feed has everything up to here.
    fed_seq: i64,
    groups: FuturesOrdered<BoxFuture<Group>>,
    /// The next group, as far as it has come.
    gathered: Vec<Ready>,
}

/// A group whose commit was tried.
struct Group {
    ready: Vec<Ready>,
    puts: Vec<Result<Put>>,
}

impl Service {
    pub(super) fn new(
        shared: Arc<Shared>,
        store: Store,
        waiting: mpsc::UnboundedReceiver<Vec<Ready>>,
        bell: Listener,
    ) -> Service {
        let (groups, gathered) = (FuturesOrdered::new(), Vec::new());
        Service { shared, store, waiting, bell, fed_seq: 0, groups, gathered }
    }

    /// Works until the shutdown; what waits by then is finished.
    pub async fn run(mut self, shutdown: Shutdown) -> Result<()> {
        self.fed_seq = self.store.read(archive::head).await?.last_seq;
        let workers = Workers::start(&self.shared)?;
        let mut stop = shutdown.triggered().fuse();
        loop {
            let may_collect = self.groups.len() < GROUPS_ON_THEIR_WAY;
            let idle = self.groups.is_empty();
            futures_util::select_biased! {
                () = stop => break,
                group = next_of(&mut self.groups).fuse() => self.settle(group).await,
                () = gather(&mut self.gathered, &mut self.waiting, &self.shared, may_collect).fuse() => {
                    self.collect();
                }
                () = hear(&mut self.bell, idle).fuse() => drop(self.feed_others(i64::MAX).await),
            }
        }
        self.shared.queue.close();
        workers.join();
        self.waiting.close();
        while let Ok(mut more) = self.waiting.try_recv() {
            self.gathered.append(&mut more);
        }
        self.collect();
        while let Some(group) = self.groups.next().await {
            self.settle(group).await;
        }
        Ok(())
    }

    /// What was gathered becomes a group.
    fn collect(&mut self) {
        let ready = std::mem::take(&mut self.gathered);
        let events: Arc<[(Verified, Arc<str>)]> =
            ready.iter().map(|ready| (ready.event.clone(), ready.origin.clone())).collect();
        let (store, clock) = (self.store.clone(), self.shared.clock.clone());
        self.groups.push_back(Box::pin(async move {
            Group { ready, puts: put_all(&store, &clock, events).await }
        }));
    }

    async fn settle(&mut self, group: Group) {
        let Group { ready, puts } = group;
        let seqs = || puts.iter().filter_map(|put| put.as_ref().ok()?.seq());
        // Whatever cannot be read now is fed from the archive later, these among it.
        let mut may_feed = true;
        if let (Some(first), Some(last)) = (seqs().min(), seqs().max()) {
            may_feed = self.feed_others(first).await;
            if may_feed {
                self.fed_seq = self.fed_seq.max(last);
            }
        }
        let fates = ready.iter().zip(&puts);
        let fates = fates
            .filter_map(|(ready, put)| Some((ready.event.event().id, fate(*put.as_ref().ok()?))));
        self.shared.seen.remember(fates);
        for (ready, put) in ready.into_iter().zip(puts) {
            let verdict = match put {
                Err(error) => Refusal::failed(&error).into(),
                Ok(Put::New { seq }) => {
                    if may_feed {
                        self.feed(Some(seq), ready.event);
                    }
                    Verdict::Stored { seq }
                }
                Ok(Put::Ephemeral) => {
                    self.feed(None, ready.event);
                    Verdict::NotKept(NotKept::Ephemeral)
                }
                Ok(put) => fate(put).into(),
            };
            drop(ready.held);
            self.shared.answer(ready.answer, verdict);
        }
    }

    fn feed(&self, seq: Option<i64>, event: Verified) {
        if self.shared.live.receiver_count() > 0 {
            // Fails only if the last of them has just gone.
            let _ = self.shared.live.send(Arc::new(LiveEvent { seq, event }));
        }
    }

    /// Feeds what others stored, this node's own roles among them, up to the number before `before_seq`. False if the
    /// archive could not be read.
    async fn feed_others(&mut self, before_seq: i64) -> bool {
        while self.fed_seq.saturating_add(1) < before_seq {
            let after = self.fed_seq;
            let read = self.store.read(move |rx| archive::after(rx, after, &[], GAP_STEP)).await;
            let events = match read {
                Ok(events) => events,
                Err(error) => {
                    tracing::warn!(%error, "what others stored could not be read");
                    return false;
                }
            };
            let Some((last, _)) = events.last() else { break };
            self.fed_seq = (*last).min(before_seq.saturating_sub(1));
            for (seq, event) in events.into_iter().take_while(|(seq, _)| *seq < before_seq) {
                self.feed(Some(seq), Verified::of_checked(event));
            }
        }
        true
    }
}

/// Stores a group; if one of its events cannot be stored at all, each alone, so that it takes no other down with it.
async fn put_all(
    store: &Store,
    clock: &Arc<dyn Clock>,
    events: Arc<[(Verified, Arc<str>)]>,
) -> Vec<Result<Put>> {
    match put(store, clock, events.clone()).await {
        Ok(puts) => puts.into_iter().map(Ok).collect(),
        Err(error) if events.len() > 1 && may_be_one_event(&error) => {
            let mut puts = Vec::with_capacity(events.len());
            for event in events.iter() {
                let alone = put(store, clock, Arc::from([event.clone()])).await;
                puts.push(alone.map(|puts| puts.first().copied().unwrap_or(Put::Known)));
            }
            puts
        }
        Err(error) => events.iter().map(|_| Err(error.clone())).collect(),
    }
}

async fn put(
    store: &Store,
    clock: &Arc<dyn Clock>,
    events: Arc<[(Verified, Arc<str>)]>,
) -> Result<Vec<Put>> {
    let clock = clock.clone();
    let write = store.write(move |tx| {
        let events: Vec<(Verified, &str)> =
            events.iter().map(|(event, origin)| (event.clone(), &**origin)).collect();
        archive::put_from(tx, &events, clock.now_ms())
    });
    write.await
}

/// A store that is full, closed or out of reach would only fail as often as there are events.
fn may_be_one_event(error: &Error) -> bool {
    use guild_store::Error as Store;
    matches!(error, Error::Store(Store::Database(_) | Store::Decode(_) | Store::Panicked))
}

fn fate(put: Put) -> Fate {
    match put {
        Put::New { .. } | Put::Known => Fate::Known,
        Put::Older => Fate::NotKept(NotKept::Older),
        Put::Deleted => Fate::NotKept(NotKept::Deleted),
        Put::Expired => Fate::NotKept(NotKept::Expired),
        Put::Ephemeral => Fate::NotKept(NotKept::Ephemeral),
    }
}

/// The next group; waits for ever if there is none.
async fn next_of(groups: &mut FuturesOrdered<BoxFuture<Group>>) -> Group {
    match groups.next().await {
        Some(group) => group,
        None => std::future::pending().await,
    }
}

/// Ready once there is a group worth a commit: a full one, or all that is there while no signature is being checked.
/// May be dropped at any time: what came stays in `gathered`.
async fn gather(
    gathered: &mut Vec<Ready>,
    waiting: &mut mpsc::UnboundedReceiver<Vec<Ready>>,
    shared: &Shared,
    may: bool,
) {
    let full = shared.options.group_max_events;
    while may {
        // Looked at before what came is taken: whoever is counted no more has sent.
        let is_idle = shared.queue.is_idle();
        while gathered.len() < full
            && let Ok(mut more) = waiting.try_recv()
        {
            gathered.append(&mut more);
        }
        if gathered.len() >= full || (is_idle && !gathered.is_empty()) {
            return;
        }
        match waiting.recv().await {
            Some(mut more) => gathered.append(&mut more),
            None => break,
        }
    }
    std::future::pending().await
}

/// While groups of our own are on their way, their numbers show what others stored in between.
async fn hear(bell: &mut Listener, idle: bool) {
    if idle {
        bell.hear().await;
    } else {
        std::future::pending::<()>().await;
    }
}

/// The threads that check signatures.
struct Workers(Vec<std::thread::JoinHandle<()>>);

impl Workers {
    fn start(shared: &Arc<Shared>) -> Result<Workers> {
        let start = |n: usize| {
            let shared = shared.clone();
            let name = format!("intake-{n}");
            std::thread::Builder::new()
                .name(name)
                .spawn(move || work::run(&shared))
                .map_err(|e| guild_store::Error::Database(format!("no thread: {e}")).into())
        };
        (0..shared.options.workers).map(start).collect::<Result<_>>().map(Workers)
    }

    fn join(self) {
        for thread in self.0 {
            // A panic has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}
