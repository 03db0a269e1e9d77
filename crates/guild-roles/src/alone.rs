//! One thing among many: an event of a page, an order, a job.
//!
//! A store that cannot be used fails for all of them, and then all wait. But a thing that fails by itself, each time,
//! must not hold up the others for ever: anybody may have sent it.

use std::sync::Arc;

use guild_network::archive;
use guild_protocol::env::BoxFuture;
use guild_store::{Rx, Store, Tx};

use crate::{Error, Result};

/// So often a thing is tried again before it is taken for the cause: a database may fail once and not again.
const TRIES: u32 = 9;

/// What became of one thing. The outer error says that the store cannot be used now, whatever for: all of it is to be
/// done again later. The inner one is about this thing alone.
pub(crate) type Alone<T> = Result<Result<T>>;

/// Writes what concerns one thing. It is queued at once.
pub(crate) fn write<T: Send + 'static>(
    store: &Store,
    closure: impl Fn(&mut Tx<'_>) -> Result<T> + Send + Sync + 'static,
) -> BoxFuture<Alone<T>> {
    let (store, closure) = (store.clone(), Arc::new(closure));
    let call = move |store: &Store| -> BoxFuture<Result<T>> {
        let closure = closure.clone();
        Box::pin(store.write(move |tx| closure(tx)))
    };
    let can_write = |store: &Store| -> BoxFuture<Result<()>> {
        let touched = store.write(archive::touch);
        Box::pin(async move { Ok(touched.await?) })
    };
    let first = call(&store);
    Box::pin(again_and_again(store, first, call, can_write))
}

/// Reads what concerns one thing.
pub(crate) fn read<T: Send + 'static>(
    store: &Store,
    closure: impl Fn(&mut Rx<'_>) -> Result<T> + Send + Sync + 'static,
) -> BoxFuture<Alone<T>> {
    let (store, closure) = (store.clone(), Arc::new(closure));
    let call = move |store: &Store| -> BoxFuture<Result<T>> {
        let closure = closure.clone();
        Box::pin(store.read(move |rx| closure(rx)))
    };
    let can_read = |store: &Store| -> BoxFuture<Result<()>> {
        let head = store.read(archive::head);
        Box::pin(async move { Ok(head.await.map(|_| ())?) })
    };
    let first = call(&store);
    Box::pin(again_and_again(store, first, call, can_read))
}

async fn again_and_again<T>(
    store: Store,
    first: BoxFuture<Result<T>>,
    call: impl Fn(&Store) -> BoxFuture<Result<T>>,
    works_otherwise: impl Fn(&Store) -> BoxFuture<Result<()>>,
) -> Alone<T> {
    let mut tried = first.await;
    for _ in 0..TRIES {
        match tried {
            Err(error) if error.concerns_all() => return Err(error),
            Err(Error::Store(_)) => {}
            done => return Ok(done),
        }
        works_otherwise(&store).await?;
        tried = call(&store).await;
    }
    match tried {
        Err(error) if error.concerns_all() => Err(error),
        Err(error @ Error::Store(_)) => {
            tracing::error!(%error, code = error.code().name, "one thing always fails, and others do not");
            Ok(Err(error))
        }
        done => Ok(done),
    }
}
