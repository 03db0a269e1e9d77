//! Hands things from one part of the worker to another.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use super::lock;

/// A queue with one taker.
pub(super) struct Queue<T>(Mutex<Waiting<T>>);

struct Waiting<T> {
    items: VecDeque<T>,
    taker: Option<Waker>,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue(Mutex::new(Waiting { items: VecDeque::new(), taker: None }))
    }
}

impl<T> Queue<T> {
    pub(super) fn push(&self, item: T) {
        let taker = {
            let mut waiting = lock(&self.0);
            waiting.items.push_back(item);
            waiting.taker.take()
        };
        if let Some(waker) = taker {
            waker.wake();
        }
    }

    /// The oldest items, at most so many, once there are any.
    pub(super) fn poll_take(&self, cx: &mut Context<'_>, most: usize) -> Poll<Vec<T>> {
        let mut waiting = lock(&self.0);
        if waiting.items.is_empty() {
            waiting.taker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = waiting.items.len().min(most);
        Poll::Ready(waiting.items.drain(..count).collect())
    }

    pub(super) async fn take(&self, most: usize) -> Vec<T> {
        poll_fn(|cx| self.poll_take(cx, most)).await
    }
}
