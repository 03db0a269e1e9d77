//! Work that waits in rows: several pieces at once, and each is found again by its row if it could not be finished.

use std::collections::BTreeSet;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use guild_bus::Bus;
use guild_market::TOPIC;
use guild_protocol::env::{BoxFuture, Clock, Shutdown};

use crate::Result;

/// Where so many pieces of work lie at once.
pub(crate) struct Workbench<'a> {
    /// What lies on it, for the log.
    pub(crate) what: &'static str,
    pub(crate) bus: &'a dyn Bus,
    pub(crate) clock: &'a dyn Clock,
    /// How often rows are looked for of which no bell has told.
    pub(crate) sweep_ms: i64,
    pub(crate) at_once: usize,
}

/// What lies on it now, by its ids.
struct Pieces<I> {
    ids: BTreeSet<I>,
    tasks: FuturesUnordered<BoxFuture<I>>,
}

impl Workbench<'_> {
    /// Works until the shutdown. `waiting` gives at most so many rows, those included that are being worked on.
    pub(crate) async fn work<I, R>(
        &self,
        shutdown: &Shutdown,
        waiting: impl Fn(i64) -> BoxFuture<Result<Vec<R>>>,
        id: impl Fn(&R) -> I,
        finish: impl Fn(R) -> BoxFuture<()>,
    ) where
        I: Ord + Clone + Send + 'static,
    {
        let mut bell = self.bus.listen(TOPIC);
        let mut pieces = Pieces { ids: BTreeSet::new(), tasks: FuturesUnordered::new() };
        while !shutdown.is_triggered() {
            match self.fill(&mut pieces, &waiting, &id, &finish).await {
                Err(error) if error.is_closed() => return,
                Err(error) => tracing::debug!(%error, "{} cannot be read; trying again", self.what),
                Ok(()) => {}
            }
            let look = select(bell.hear(), self.clock.sleep(self.sweep_ms));
            let waits = select(shutdown.triggered(), look);
            if pieces.tasks.is_empty() {
                waits.await;
                continue;
            }
            if let Either::Left((Some(done), _)) = select(pieces.tasks.next(), waits).await {
                pieces.ids.remove(&done);
            }
        }
    }

    /// Takes up rows while there is room.
    async fn fill<I, R>(
        &self,
        pieces: &mut Pieces<I>,
        waiting: &impl Fn(i64) -> BoxFuture<Result<Vec<R>>>,
        id: &impl Fn(&R) -> I,
        finish: &impl Fn(R) -> BoxFuture<()>,
    ) -> Result<()>
    where
        I: Ord + Clone + Send + 'static,
    {
        let room = self.at_once.saturating_sub(pieces.ids.len());
        if room == 0 {
            return Ok(());
        }
        let rows = waiting(i64::try_from(self.at_once).unwrap_or(i64::MAX)).await?;
        let rows = rows.into_iter().map(|row| (id(&row), row));
        let new: Vec<_> = rows.filter(|(id, _)| !pieces.ids.contains(id)).take(room).collect();
        for (id, row) in new {
            pieces.ids.insert(id.clone());
            let task = finish(row);
            pieces.tasks.push(Box::pin(async move {
                task.await;
                id
            }));
        }
        Ok(())
    }
}
