//! The outbox as its operator sees it: what was given up can be tried again.

use std::sync::Arc;

use guild_protocol::env::Clock;
use guild_store::{Store, outbox};

use crate::Result;

/// How many messages may be named at once.
pub const NAMED_MAX: usize = 1_000;

/// The handle of the outbox.
#[derive(Clone)]
pub struct Outbox {
    store: Store,
    clock: Arc<dyn Clock>,
}

/// Which dead letters to try again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// Those with these numbers.
    Named(Vec<i64>),
    /// All, or all of one sink.
    AllDead {
        /// The sink, if it is about one.
        sink: Option<String>,
    },
}

/// What became of a retry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retried {
    /// The numbers that are queued again.
    pub retried: Vec<i64>,
    /// The numbers that were asked for and are no dead letters.
    pub not_dead: Vec<i64>,
}

impl Outbox {
    /// The outbox of this store.
    pub fn new(store: Store, clock: Arc<dyn Clock>) -> Outbox {
        Outbox { store, clock }
    }

    /// Queues dead letters again. Repeating it changes nothing more: what is queued is no dead letter.
    pub async fn retry(&self, which: &Which) -> Result<Retried> {
        match which {
            Which::Named(seqs) => self.retry_named(seqs.clone()).await,
            Which::AllDead { sink } => self.retry_all(sink.clone()).await,
        }
    }

    async fn retry_named(&self, mut seqs: Vec<i64>) -> Result<Retried> {
        seqs.sort_unstable();
        seqs.dedup();
        let clock = self.clock.clone();
        let retried = self.store.write(move |tx| {
            let mut answer = Retried::default();
            for seq in &seqs {
                let list = match outbox::retry(tx, *seq, clock.now_ms())? {
                    true => &mut answer.retried,
                    false => &mut answer.not_dead,
                };
                list.push(*seq);
            }
            Ok::<_, guild_store::Error>(answer)
        });
        Ok(retried.await?)
    }

    /// Upwards by number, so that each is tried once even if it is given up again meanwhile.
    async fn retry_all(&self, sink: Option<String>) -> Result<Retried> {
        let mut answer = Retried::default();
        loop {
            let (sink, clock) = (sink.clone(), self.clock.clone());
            let after = answer.retried.last().copied().unwrap_or(0);
            let page = self
                .store
                .write(move |tx| outbox::retry_dead(tx, sink.as_deref(), after, clock.now_ms()));
            let page = page.await?;
            if page.is_empty() {
                return Ok(answer);
            }
            answer.retried.extend(page);
        }
    }
}
