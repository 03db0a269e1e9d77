//! What happens outside of all nodes and is begun while others run: tools that answer later, agents that are asked.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use guild_protocol::env::BoxFuture;

use super::{Shared, lock};

#[derive(Default)]
struct Waiting {
    new: Vec<BoxFuture<()>>,
    waker: Option<Waker>,
}

/// Everything of this kind.
#[derive(Clone, Default)]
pub(super) struct Errands(Arc<Mutex<Waiting>>);

impl Errands {
    fn add(&self, errand: BoxFuture<()>) {
        let waker = {
            let mut waiting = lock(&self.0);
            waiting.new.push(errand);
            waiting.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Runs what there is and what comes.
    pub(super) async fn run(self) {
        let mut under_way: FuturesUnordered<BoxFuture<()>> = FuturesUnordered::new();
        poll_fn(|cx| {
            loop {
                let new = {
                    let mut waiting = lock(&self.0);
                    waiting.waker = Some(cx.waker().clone());
                    std::mem::take(&mut waiting.new)
                };
                let more = !new.is_empty();
                under_way.extend(new);
                let done = matches!(under_way.poll_next_unpin(cx), Poll::Ready(Some(())));
                if !more && !done {
                    return Poll::<()>::Pending;
                }
            }
        })
        .await;
    }

    /// Forgets what has not begun.
    pub(super) fn clear(&self) {
        let new = std::mem::take(&mut lock(&self.0).new);
        // Outside the lock: it may hold what adds to it.
        drop(new);
    }
}

impl Shared {
    /// Begins something that outlives every node.
    pub(super) fn outside(&self, errand: impl Future<Output = ()> + Send + 'static) {
        self.errands.add(Box::pin(errand));
    }
}
