//! Many callers, one batch per commit.
//!
//! Callers hand their chains to a [`Writer`]; its service takes whatever waits, books it in one transaction, answers,
//! and takes whatever waits by then. There is no timer: a lone caller waits for nobody, and a thousand share one
//! commit. What a batch costs hardly depends on its size, so the more callers there are, the less each pays.

use std::sync::Arc;

use guild_protocol::env::Clock;
use guild_store::{Error as StoreError, Store};
use tokio::sync::{mpsc, oneshot};

use crate::book::{Outcome, check_length};
use crate::error::code;
use crate::transfer::NewTransfer;
use crate::{Error, Result, ledger};

/// How a writer works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How many chains may wait; one more is refused with `ledger.busy`.
    pub queue_max_chains: usize,
    /// How many transfers share one commit. The last chain may go beyond it: a chain is never split.
    pub batch_max_transfers: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { queue_max_chains: 8_192, batch_max_transfers: 1_024 }
    }
}

type Answer = Result<Vec<Outcome>>;

/// A chain that waits, and whom to tell.
struct Ask {
    chain: Vec<NewTransfer>,
    caller: oneshot::Sender<Answer>,
}

/// The handle that callers use: cheap to clone, safe to share.
#[derive(Debug, Clone)]
pub struct Writer {
    queue: mpsc::Sender<Ask>,
}

impl Writer {
    /// A handle, and the service that must run for it: a future that ends when the last handle is gone and everything
    /// that waited is answered.
    pub fn new(
        options: &Options,
        store: Store,
        clock: Arc<dyn Clock>,
    ) -> Result<(Writer, impl Future<Output = ()> + Send + use<>)> {
        if options.queue_max_chains == 0 || options.batch_max_transfers == 0 {
            let message = "ledger: queue_max_chains and batch_max_transfers must be at least 1";
            return Err(Error::Store(StoreError::BadOptions(message.to_owned())));
        }
        let (queue, waiting) = mpsc::channel(options.queue_max_chains);
        let batcher =
            Batcher { store, clock, waiting, batch_max_transfers: options.batch_max_transfers };
        Ok((Writer { queue }, batcher.run()))
    }

    /// Books a chain: all of it or nothing, together with whatever others ask for. It is queued at once; dropping the
    /// future does not stop it.
    ///
    /// When the store cannot say whether the commit happened, or cannot be reached, the caller is told so. Its ids are
    /// its own: it asks again and learns what became of them.
    pub fn book(&self, chain: Vec<NewTransfer>) -> impl Future<Output = Answer> + Send + use<> {
        let (caller, answer) = oneshot::channel();
        let queued = self.queue(chain, caller);
        async move {
            queued?;
            // Dropped with the queue: nobody has taken it up.
            answer.await.unwrap_or_else(|_| Err(StoreError::Closed.into()))
        }
    }

    fn queue(&self, chain: Vec<NewTransfer>, caller: oneshot::Sender<Answer>) -> Result<()> {
        check_length(&chain)?;
        self.queue.try_send(Ask { chain, caller }).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => {
                Error::refused(&code::BUSY, "too many chains wait to be booked")
            }
            mpsc::error::TrySendError::Closed(_) => StoreError::Closed.into(),
        })
    }
}

/// Somebody whose chain has been taken up. The store may book it even if this writer is stopped before the answer, so
/// whoever is not answered is told that nobody knows.
struct Caller(Option<oneshot::Sender<Answer>>);

impl Caller {
    fn answer(mut self, answer: Answer) {
        if let Some(caller) = self.0.take() {
            // A caller that no longer waits is no reason to fail: its transfers are booked.
            let _ = caller.send(answer);
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if let Some(caller) = self.0.take() {
            let unknown = StoreError::CommitUnknown("the writer was stopped".to_owned());
            let _ = caller.send(Err(unknown.into()));
        }
    }
}

/// The one end of the queue.
struct Batcher {
    store: Store,
    clock: Arc<dyn Clock>,
    waiting: mpsc::Receiver<Ask>,
    batch_max_transfers: usize,
}

impl Batcher {
    async fn run(mut self) {
        while let Some(first) = self.waiting.recv().await {
            let (chains, callers) = self.batch(first);
            let answers = self.book(chains).await;
            for (caller, answer) in callers.into_iter().zip(answers) {
                caller.answer(answer);
            }
        }
    }

    /// The first chain and as many of those that wait as fit.
    fn batch(&mut self, first: Ask) -> (Vec<Vec<NewTransfer>>, Vec<Caller>) {
        let mut transfers = first.chain.len();
        let (mut chains, mut callers) = (vec![first.chain], vec![Caller(Some(first.caller))]);
        while transfers < self.batch_max_transfers {
            let Ok(Ask { chain, caller }) = self.waiting.try_recv() else { break };
            // A chain of nothing counts too, or they would never fill a batch.
            transfers = transfers.saturating_add(chain.len().max(1));
            chains.push(chain);
            callers.push(Caller(Some(caller)));
        }
        (chains, callers)
    }

    async fn book(&self, chains: Vec<Vec<NewTransfer>>) -> Vec<Answer> {
        let chains: Arc<[Vec<NewTransfer>]> = chains.into();
        match self.commit(chains.clone()).await {
            Ok(answers) => answers,
            Err(error) if chains.len() > 1 && may_be_one_chain(&error) => {
                let mut answers = Vec::with_capacity(chains.len());
                for chain in chains.iter() {
                    answers.push(self.book_alone(chain).await);
                }
                answers
            }
            Err(error) => chains.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn book_alone(&self, chain: &[NewTransfer]) -> Answer {
        let mut answers = self.commit(Arc::from([chain.to_owned()])).await?;
        answers.pop().unwrap_or_else(|| Err(StoreError::Panicked.into()))
    }

    async fn commit(&self, chains: Arc<[Vec<NewTransfer>]>) -> Result<Vec<Answer>> {
        let clock = self.clock.clone();
        self.store.write(move |tx| ledger::book(tx, &chains, clock.now_ms())).await
    }
}

/// Whether a failure of the whole batch may be the doing of one chain, so that each is tried on its own. A store that
/// is full, closed or out of reach would only fail as often as there are chains.
fn may_be_one_chain(error: &Error) -> bool {
    matches!(
        error,
        Error::Store(StoreError::Database(_) | StoreError::Decode(_) | StoreError::Panicked)
    )
}
