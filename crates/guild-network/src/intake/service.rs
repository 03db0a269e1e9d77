//! Stores what was checked, in groups, and feeds whoever listens.

use std::ops::Range;
use std::sync::Arc;

use futures_util::future::FutureExt;
use futures_util::stream::{FuturesOrdered, StreamExt};
use guild_bus::Listener;
use guild_protocol::env::{BoxFuture, Clock, Shutdown};
use guild_store::Store;
use tokio::sync::mpsc;

use super::gather::Gathered;
use super::news::Storing;
use super::seen::Fate;
use super::work::{self, Ready};
use super::{LiveEvent, NotKept, Refusal, Shared, Verdict};
use crate::archive::{self, Done, Put, Verified};
use crate::{Error, Result, code};

/// So many groups are on their way at once. While one is committed the next is collected, for as long as signatures
/// are being checked: the busier the node, the larger its groups, and the less an event costs; a lone event waits for
/// nobody.
const GROUPS_ON_THEIR_WAY: usize = 1;
/// So many events of others are read at a time.
const GAP_STEP: usize = 64;
/// So often an event is tried again alone before it is taken for the cause.
const TRIES_ALONE: u32 = 9;
/// When events of others could not be read, so long it takes until the next try.
const RETRY_MS: i64 = 1_000;

/// The work behind an [`Intake`](super::Intake).
pub struct Service {
    shared: Arc<Shared>,
    store: Store,
    waiting: mpsc::UnboundedReceiver<Vec<Ready>>,
    bell: Listener,
    /// The live feed has everything up to here.
    fed_seq: i64,
    /// When to read again what could not be read.
    retry: Option<BoxFuture<()>>,
    groups: FuturesOrdered<BoxFuture<Group>>,
    /// The next group, as far as it has come.
    gathered: Gathered,
}

/// A group whose commit was tried.
struct Group {
    ready: Vec<Ready>,
    puts: Vec<Result<Put>>,
    /// Until those who follow have it, they wait for it.
    storing: Storing,
}

impl Service {
    pub(super) fn new(
        shared: Arc<Shared>,
        store: Store,
        waiting: mpsc::UnboundedReceiver<Vec<Ready>>,
        bell: Listener,
    ) -> Service {
        let (groups, gathered) = (FuturesOrdered::new(), Gathered::default());
        Service { shared, store, waiting, bell, fed_seq: 0, retry: None, groups, gathered }
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
                group = next_of(&mut self.groups).fuse() => {
                    // The database has the next group before anybody hears of this one.
                    self.collect_ready();
                    self.settle(group).await;
                }
                () = gather(&mut self.gathered, &mut self.waiting, &self.shared, may_collect).fuse() => {
                    self.collect();
                }
                () = hear(&mut self.bell, idle).fuse() => self.feed_others(i64::MAX).await,
                () = due(&mut self.retry).fuse() => self.feed_others(i64::MAX).await,
            }
        }
        self.shared.queue.close();
        workers.join();
        self.waiting.close();
        while let Ok(more) = self.waiting.try_recv() {
            self.gathered.add(more);
        }
        self.collect();
        while let Some(group) = self.groups.next().await {
            self.settle(group).await;
        }
        Ok(())
    }

    /// Collects the next group if there is one by now.
    fn collect_ready(&mut self) {
        let gathered = gather(&mut self.gathered, &mut self.waiting, &self.shared, true);
        if gathered.now_or_never().is_some() {
            self.collect();
        }
    }

    /// What was gathered becomes a group, and the database has it at once.
    fn collect(&mut self) {
        let ready = std::mem::take(&mut self.gathered).into_events();
        let events: Arc<[(Verified, Arc<str>)]> =
            ready.iter().map(|ready| (ready.event.clone(), ready.origin.clone())).collect();
        let (store, clock) = (self.store.clone(), self.shared.clock.clone());
        let (storing, news) = (self.shared.news.store(), self.shared.news.clone());
        let whole = put(&store, &clock, events.clone(), 0..events.len());
        self.groups.push_back(Box::pin(async move {
            let stored = |done: &Done| news.hand_out(done);
            let puts = put_all(&store, &clock, &events, whole, &stored).await;
            Group { ready, puts, storing }
        }));
    }

    async fn settle(&mut self, group: Group) {
        let Group { ready, puts, storing } = group;
        drop(storing);
        let fates = ready.iter().zip(&puts);
        let fates = fates.filter_map(|(ready, put)| Some((ready.event.event().id, lasting(put)?)));
        self.shared.seen.remember(fates);
        for (ready, put) in ready.into_iter().zip(puts) {
            let verdict = match put {
                Err(error) => Refusal::failed(&error).into(),
                Ok(Put::New { seq }) => {
                    self.feed_stored(seq, ready.event).await;
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

    /// Feeds an event that was stored, after all that others stored before it. What cannot be read now is fed from the
    /// archive later, and whatever comes after it too.
    async fn feed_stored(&mut self, seq: i64, event: Verified) {
        if self.retry.is_none() {
            self.feed_others(seq).await;
        }
        if self.retry.is_none() && self.fed_seq < seq {
            self.fed_seq = seq;
            self.feed(Some(seq), event);
        }
    }

    fn feed(&self, seq: Option<i64>, event: Verified) {
        if self.shared.live.receiver_count() > 0 {
            // Fails only if the last of them has just gone.
            let _ = self.shared.live.send(Arc::new(LiveEvent { seq, event }));
        }
    }

    /// Feeds what others stored, this node's own roles among them, up to the number before `before_seq`; if the archive
    /// cannot be read, in a moment.
    async fn feed_others(&mut self, before_seq: i64) {
        self.retry = None;
        while self.fed_seq.saturating_add(1) < before_seq {
            let after = self.fed_seq;
            let read = self.store.read(move |rx| archive::after(rx, after, &[], GAP_STEP)).await;
            let events = match read {
                Ok(events) => events,
                Err(error) => {
                    tracing::warn!(%error, "what others stored could not be read");
                    self.retry = Some(self.shared.clock.sleep(RETRY_MS));
                    return;
                }
            };
            let Some((last, _)) = events.last() else { return };
            self.fed_seq = (*last).min(before_seq.saturating_sub(1));
            for (seq, event) in events.into_iter().take_while(|(seq, _)| *seq < before_seq) {
                self.feed(Some(seq), Verified::of_checked(event));
            }
        }
    }
}

type Events = Arc<[(Verified, Arc<str>)]>;

/// Waits for a group to be stored as a whole. If it cannot be, its halves are, down to the one event that is the cause:
/// it takes no other down with it.
async fn put_all(
    store: &Store,
    clock: &Arc<dyn Clock>,
    events: &Events,
    whole: impl Future<Output = Result<Done>>,
    stored: &(dyn Fn(&Done) + Sync),
) -> Vec<Result<Put>> {
    let mut puts = Vec::with_capacity(events.len());
    // What is still to be stored, the next part last.
    let mut parts: Vec<Range<usize>> = std::iter::once(0..events.len()).collect();
    let mut done = Some(whole.await);
    while let Some(part) = parts.pop() {
        let done = match done.take() {
            Some(done) => done,
            None => put(store, clock, events.clone(), part.clone()).await,
        };
        match done {
            Ok(done) => {
                stored(&done);
                puts.extend(done.puts.into_iter().map(Ok));
            }
            Err(error) if !may_be_one_event(&error) => {
                puts.extend(part.map(|_| Err(error.clone())));
            }
            Err(_) if part.len() > 1 => {
                let middle = part.start.midpoint(part.end);
                parts.extend([middle..part.end, part.start..middle]);
            }
            Err(error) => match put_alone(store, clock, events, part.clone(), error).await {
                Ok(put) => puts.push(put),
                // It was not the event, and the others would fare no better.
                Err(error) => puts.resize(events.len(), Err(error)),
            },
        }
        if puts.len() == events.len() {
            break;
        }
    }
    puts
}

/// Tries an event that has failed alone again and again while the archive can be written otherwise: only then it is its
/// own fault. To call it that is to lose it, and a database may fail once and not again. An error if the archive cannot
/// be written at all.
async fn put_alone(
    store: &Store,
    clock: &Arc<dyn Clock>,
    events: &Events,
    part: Range<usize>,
    mut error: Error,
) -> Result<Result<Put>> {
    for _ in 0..TRIES_ALONE {
        store.write(archive::touch).await?;
        match put(store, clock, events.clone(), part.clone()).await {
            Ok(done) => return Ok(done.puts.into_iter().next().ok_or(error)),
            Err(again) if may_be_one_event(&again) => error = again,
            Err(other) => return Err(other),
        }
    }
    Ok(Err(unstorable(events.get(part.start), &error)))
}

fn unstorable(event: Option<&(Verified, Arc<str>)>, error: &Error) -> Error {
    let id = event.map(|(event, _)| event.event().id.hex());
    tracing::error!(%error, id, "an event cannot be stored, and others can");
    Error::refused(&code::UNSTORABLE, "this event cannot be stored here")
}

/// Stores a part of a group. It is queued at once, and ready once it is stored.
fn put(
    store: &Store,
    clock: &Arc<dyn Clock>,
    events: Events,
    part: Range<usize>,
) -> impl Future<Output = Result<Done>> + Send + use<> {
    let clock = clock.clone();
    store.write(move |tx| {
        let part = events.get(part.clone()).unwrap_or_default();
        let part: Vec<(&Verified, &str)> =
            part.iter().map(|(event, origin)| (event, &**origin)).collect();
        archive::put_from(tx, &part, clock.now_ms())
    })
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

/// What is remembered of an event; nothing if it may fare better another time.
fn lasting(put: &Result<Put>) -> Option<Fate> {
    match put {
        Ok(put) => Some(fate(*put)),
        Err(error) => (*error.code() == code::UNSTORABLE).then_some(Fate::Unstorable),
    }
}

/// The next group; waits for ever if there is none.
async fn next_of(groups: &mut FuturesOrdered<BoxFuture<Group>>) -> Group {
    match groups.next().await {
        Some(group) => group,
        None => std::future::pending().await,
    }
}

/// The next group; waits for ever while it may not be collected.
async fn gather(
    gathered: &mut Gathered,
    waiting: &mut mpsc::UnboundedReceiver<Vec<Ready>>,
    shared: &Shared,
    may_collect: bool,
) {
    if !may_collect {
        std::future::pending::<()>().await;
    }
    gathered.gather(waiting, shared.options.group_max_events, || shared.queue.ahead()).await;
}

/// Waits for ever if nothing is due.
async fn due(retry: &mut Option<BoxFuture<()>>) {
    match retry {
        Some(retry) => retry.await,
        None => std::future::pending().await,
    }
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
