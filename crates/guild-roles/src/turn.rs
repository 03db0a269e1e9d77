//! Readers take turns.
//!
//! Anybody may ask for pages, and the roles of the node read the same store: whoever asks often must not keep them from
//! their work. So one read for strangers is with the store at once, whatever it is about; further ones wait here, and
//! one whose reader has gone meanwhile is never made.

use std::sync::Arc;

use guild_store::{Rx, Store};
use tokio::sync::Semaphore;

/// With the questions that the relay asks at once fewer than a store has readers: the roles need one too.
const READS_AT_ONCE: usize = 1;

/// A store that is read in turn. All clones share the turns.
#[derive(Clone)]
pub struct Turns {
    store: Store,
    free: Arc<Semaphore>,
}

impl Turns {
    /// The turns at this store. A node has one set of them, for all that strangers may read.
    pub fn new(store: Store) -> Turns {
        Turns { store, free: Arc::new(Semaphore::new(READS_AT_ONCE)) }
    }

    /// The store itself, for what needs no turn.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Reads when there is a turn. It lasts as long as the read does, also if nobody waits for the answer any more.
    pub async fn read<T, E, F>(&self, closure: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<guild_store::Error> + Send + 'static,
        F: Fn(&mut Rx<'_>) -> Result<T, E> + Send + 'static,
    {
        // Nobody closes the semaphore, so there is a turn in the end.
        let turn = self.free.clone().acquire_owned().await.ok();
        let taken = move |rx: &mut Rx<'_>| {
            let _turn = &turn;
            closure(rx)
        };
        self.store.read(taken).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::sync::{Mutex, PoisonError};

    use futures_util::FutureExt;
    use guild_store::{Error, Hooks, Migrations, Options, Service};

    use super::*;

    #[test]
    fn strangers_together_never_hold_all_readers() {
        let relay = guild_network::relay::Options::default();
        let store = Options::at("sqlite:///node.db");
        assert!(relay.queries_at_once + READS_AT_ONCE < store.readers);
    }

    #[tokio::test]
    async fn the_node_still_reads_while_strangers_wait_and_whoever_left_is_not_served() {
        let dir = tempfile::tempdir().unwrap();
        let file = Options::file(&dir.path().join("node.db"));
        let service = Service::open(&file, &Migrations::store(), Hooks::default(), 0).unwrap();
        let turns = Turns::new(service.handle());
        let made = Arc::new(AtomicUsize::new(0));
        let count = |made: &Arc<AtomicUsize>| {
            let made = made.clone();
            move |_: &mut Rx<'_>| {
                made.fetch_add(1, Ordering::SeqCst);
                Ok::<_, Error>(())
            }
        };
        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        // A long read, whose reader leaves at once.
        let long = move |_: &mut Rx<'_>| {
            let _ = wait.lock().unwrap_or_else(PoisonError::into_inner).recv();
            Ok::<_, Error>(())
        };
        assert!(Box::pin(turns.read(long)).now_or_never().is_none());
        // Strangers who come now wait, and most of them leave.
        for _ in 0..50 {
            assert!(Box::pin(turns.read(count(&made))).now_or_never().is_none());
        }
        let mut patient = Box::pin(turns.read(count(&made)));
        assert!(patient.as_mut().now_or_never().is_none());
        // The node itself is not held up by any of them.
        service.handle().read(|_| Ok::<_, Error>(())).await.unwrap();
        assert_eq!(made.load(Ordering::SeqCst), 0);
        go.send(()).unwrap();
        patient.await.unwrap();
        assert_eq!(made.load(Ordering::SeqCst), 1, "only for the one who stayed");
        service.close();
    }
}
