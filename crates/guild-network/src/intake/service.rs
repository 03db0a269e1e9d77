//! Stores what was checked, in groups, and feeds whoever listens.

use std::sync::Arc;

use futures_util::future::FutureExt;
use futures_util::stream::{FuturesOrdered, StreamExt};
use guild_bus::Listener;
use guild_protocol::env::{BoxFuture, Shutdown};
use guild_store::Store;
use tokio::sync::mpsc;

use super::seen::Fate;
use super::work::{self, Ready};
use super::{LiveEvent, NotKept, Refusal, Shared, Verdict};
use crate::Result;
use crate::archive::{self, Put, Verified};

/// So many groups are on their way at once. While it is committed the next is collected: the busier the node, the larger
/// its groups, and the less an event costs; a lone event waits for nobody.
const GROUPS_ON_THEIR_WAY: usize = 1;
/// So many events of others are read at a time.
const GAP_STEP: usize = 500;

/// The work behind an [`Intake`](super::Intake).
pub struct Service {
    shared: Arc<Shared>,
    store: Store,
    waiting: mpsc::UnboundedReceiver<Vec<Ready>>,
    bell: Listener,
    /// The live feed has everything up to here.
    fed_seq: i64,
    groups: FuturesOrdered<BoxFuture<Group>>,
}

/// A group whose commit was tried.
struct Group {
    ready: Vec<Ready>,
    puts: Result<Vec<Put>>,
}

impl Service {
    pub(super) fn new(
        shared: Arc<Shared>,
        store: Store,
        waiting: mpsc::UnboundedReceiver<Vec<Ready>>,
        bell: Listener,
    ) -> Service {
        Service { shared, store, waiting, bell, fed_seq: 0, groups: FuturesOrdered::new() }
    }

    /// Works until the shutdown; what waits by then is finished.
    pub async fn run(mut self, shutdown: Shutdown) -> Result<()> {
        self.fed_seq = self.store.read(|rx| archive::head(rx)).await?.last_seq;
        let workers = Workers::start(&self.shared)?;
        let mut stop = shutdown.triggered().fuse();
        loop {
            let may_collect = self.groups.len() < GROUPS_ON_THEIR_WAY;
            let idle = self.groups.is_empty();
            futures_util::select_biased! {
                () = stop => break,
                group = next_of(&mut self.groups).fuse() => self.settle(group).await?,
                ready = receive(&mut self.waiting, may_collect).fuse() => self.collect(ready),
                _ = hear(&mut self.bell, idle).fuse() => self.feed_others(i64::MAX).await?,
            }
        }
        self.shared.queue.close();
        workers.join();
        self.waiting.close();
        while let Ok(ready) = self.waiting.try_recv() {
            self.collect(ready);
            let group = next_of(&mut self.groups).await;
            self.settle(group).await?;
        }
        while let Some(group) = self.groups.next().await {
            self.settle(group).await?;
        }
        Ok(())
    }

    /// Whatever waits by now becomes a group.
    fn collect(&mut self, mut ready: Vec<Ready>) {
        while ready.len() < self.shared.options.group_max_events {
            let Ok(mut more) = self.waiting.try_recv() else { break };
            ready.append(&mut more);
        }
        let events: Vec<(Verified, Arc<str>)> =
            ready.iter().map(|ready| (ready.event.clone(), ready.origin.clone())).collect();
        let clock = self.shared.clock.clone();
        let write = self.store.write(move |tx| {
            let events: Vec<(Verified, &str)> =
                events.iter().map(|(event, origin)| (event.clone(), &**origin)).collect();
            archive::put_from(tx, &events, clock.now_ms())
        });
        self.groups.push_back(Box::pin(async move { Group { ready, puts: write.await } }));
    }

    async fn settle(&mut self, group: Group) -> Result<()> {
        let Group { ready, puts } = group;
        let puts = match puts {
            Ok(puts) => puts,
            Err(error) => {
                let refusal = Refusal::failed(&error);
                for ready in ready {
                    self.shared.answer(ready.answer, refusal.clone().into());
                }
                return Ok(());
            }
        };
        let seqs = || {
            puts.iter().filter_map(|put| if let Put::New { seq } = put { Some(*seq) } else { None })
        };
        if let (Some(first), Some(last)) = (seqs().min(), seqs().max()) {
            self.feed_others(first).await?;
            self.fed_seq = self.fed_seq.max(last);
        }
        let fates =
            ready.iter().zip(&puts).map(|(ready, put)| (ready.event.event().id, fate(*put)));
        self.shared.seen.remember(fates);
        for (ready, put) in ready.into_iter().zip(puts) {
            let verdict = match put {
                Put::New { seq } => {
                    self.feed(Some(seq), ready.event);
                    Verdict::Stored { seq }
                }
                Put::Ephemeral => {
                    self.feed(None, ready.event);
                    Verdict::NotKept(NotKept::Ephemeral)
                }
                put => fate(put).into(),
            };
            drop(ready.held);
            self.shared.answer(ready.answer, verdict);
        }
        Ok(())
    }

    fn feed(&self, seq: Option<i64>, event: Verified) {
        if self.shared.live.receiver_count() > 0 {
            // Fails only if the last of them has just gone.
            let _ = self.shared.live.send(Arc::new(LiveEvent { seq, event }));
        }
    }

    /// Feeds what others stored, this node's own roles among them, up to the number before `before_seq`.
    async fn feed_others(&mut self, before_seq: i64) -> Result<()> {
        while self.fed_seq.saturating_add(1) < before_seq {
            let after = self.fed_seq;
            let events =
                self.store.read(move |rx| archive::after(rx, after, &[], GAP_STEP)).await?;
            let Some((last, _)) = events.last() else { break };
            self.fed_seq = (*last).min(before_seq.saturating_sub(1));
            for (seq, event) in events.into_iter().take_while(|(seq, _)| *seq < before_seq) {
                self.feed(Some(seq), Verified::of_checked(event));
            }
        }
        Ok(())
    }
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

async fn receive(waiting: &mut mpsc::UnboundedReceiver<Vec<Ready>>, may: bool) -> Vec<Ready> {
    let received = if may { waiting.recv().await } else { None };
    match received {
        Some(ready) => ready,
        None => std::future::pending().await,
    }
}

/// While groups of our own are on their way, their numbers show what others stored in between.
async fn hear(bell: &mut Listener, idle: bool) {
    if idle {
        bell.hear().await;
    } else {
        std::future::pending().await
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
