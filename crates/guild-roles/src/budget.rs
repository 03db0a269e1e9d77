//! How much may be spent on which kind of work, as whoever this node works for sees it and sets it.

use std::sync::Arc;

use guild_market::budget;
use guild_protocol::env::{Clock, UnixMs};
use guild_store::Store;

use crate::{Error, Result};

pub use guild_market::bid::{Bid, Urgency, Wanted};
pub use guild_market::budget::{Asked, Change, Envelope, Layer, Period, Standing, Terms, What};
pub use guild_market::routing::TaskType;

/// The handle of the envelopes: cheap to clone.
#[derive(Clone)]
pub struct Budgets {
    store: Store,
    clock: Arc<dyn Clock>,
}

impl Budgets {
    /// The envelopes in this store.
    pub fn new(store: Store, clock: Arc<dyn Clock>) -> Budgets {
        Budgets { store, clock }
    }

    /// Every envelope, and where it stands now.
    pub async fn standings(&self) -> Result<Vec<Standing>> {
        let now_ms = self.clock.now_ms();
        self.store.read(move |rx| Ok::<_, Error>(budget::standings(rx, now_ms)?)).await
    }

    /// Sets an envelope; it, and whether something changed.
    pub async fn set(&self, task: TaskType, asked: Asked) -> Result<(Envelope, bool)> {
        let clock = self.clock.clone();
        let set = self
            .store
            .write(move |tx| Ok::<_, Error>(budget::set(tx, &task, &asked, clock.now_ms())?));
        set.await
    }

    /// Takes an envelope away; whether there was one.
    pub async fn remove(&self, task: TaskType) -> Result<bool> {
        let clock = self.clock.clone();
        let removed =
            self.store.write(move |tx| Ok::<_, Error>(budget::remove(tx, &task, clock.now_ms())?));
        removed.await
    }

    /// What changed envelopes, the newest first: of one of them or of all, before a change or from the newest.
    pub async fn log(
        &self,
        task: Option<TaskType>,
        before: Option<(UnixMs, String)>,
        limit: i64,
    ) -> Result<Vec<Change>> {
        let read = self.store.read(move |rx| {
            let before = before.as_ref().map(|(at_ms, id)| (*at_ms, id.as_str()));
            Ok::<_, Error>(budget::log(rx, task.as_ref(), before, limit)?)
        });
        read.await
    }
}
