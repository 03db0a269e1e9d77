//! What surrounds a component and is passed into it: time, randomness, a signing key, the wish to stop.
//!
//! Nothing below the binary touches the real ones, so the simulation can decide all of them.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::identity::{PublicKey, Signature};

/// A future that owns all it needs.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Milliseconds since 1970-01-01T00:00:00Z.
pub type UnixMs = i64;

/// The only source of time.
pub trait Clock: Send + Sync {
    /// The present moment. May step backwards; whoever needs order must not take it from here.
    fn now_ms(&self) -> UnixMs;

    /// Ready after `duration_ms` milliseconds. Zero or less still yields once.
    fn sleep(&self, duration_ms: i64) -> BoxFuture<()>;
}

/// The only source of randomness.
pub trait Random: Send + Sync {
    /// Fills `bytes`. In production from the operating system, so fit for keys and tokens.
    fn fill(&self, bytes: &mut [u8]);

    /// A number drawn evenly from all of them.
    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// A key that signs; the secret may live elsewhere.
pub trait Signer: Send + Sync {
    /// The public half.
    fn public_key(&self) -> PublicKey;

    /// A BIP-340 signature of a 32-byte digest, without auxiliary randomness: signing twice gives the same bytes.
    fn sign_digest(&self, digest: &[u8; 32]) -> crate::Result<Signature>;
}

/// The wish that everything stops: one value, cloned into every service.
///
/// ```
/// let shutdown = guild_protocol::env::Shutdown::new();
/// let seen_by_a_service = shutdown.clone();
/// shutdown.trigger();
/// assert!(seen_by_a_service.is_triggered());
/// ```
#[derive(Clone, Default)]
pub struct Shutdown(Arc<Mutex<ShutdownState>>);

#[derive(Default)]
struct ShutdownState {
    triggered: bool,
    waits_made: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl Shutdown {
    /// A wish not yet made.
    pub fn new() -> Shutdown {
        Shutdown::default()
    }

    /// Makes the wish. Once made it stays.
    pub fn trigger(&self) {
        let wakers = {
            let mut state = self.lock();
            state.triggered = true;
            std::mem::take(&mut state.wakers)
        };
        wakers.into_values().for_each(Waker::wake);
    }

    /// Whether the wish has been made.
    pub fn is_triggered(&self) -> bool {
        self.lock().triggered
    }

    /// Ready once the wish has been made.
    pub fn triggered(&self) -> impl Future<Output = ()> + Send + Unpin + use<> {
        Triggered { shutdown: self.clone(), wait: None }
    }

    fn lock(&self) -> MutexGuard<'_, ShutdownState> {
        // Nothing panics while holding the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One wait. It takes its waker away when it is dropped: streams come and go while the wish lives as long as the
/// process.
struct Triggered {
    shutdown: Shutdown,
    wait: Option<u64>,
}

impl Future for Triggered {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let shutdown = self.shutdown.clone();
        let mut state = shutdown.lock();
        if state.triggered {
            return Poll::Ready(());
        }
        let wait = *self.wait.get_or_insert_with(|| {
            state.waits_made = state.waits_made.wrapping_add(1);
            state.waits_made
        });
        state.wakers.insert(wait, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Triggered {
    fn drop(&mut self) {
        if let Some(wait) = self.wait {
            let waker = self.shutdown.lock().wakers.remove(&wait);
            // Outside the lock: the last waker of a task may drop what the task held.
            drop(waker);
        }
    }
}

impl std::fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Shutdown").field(&self.is_triggered()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[test]
    fn a_wait_that_is_over_leaves_nothing_behind() {
        let shutdown = Shutdown::new();
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..10 {
            let mut wait = pin!(shutdown.triggered());
            assert_eq!(wait.as_mut().poll(&mut cx), Poll::Pending);
            assert_eq!(wait.as_mut().poll(&mut cx), Poll::Pending);
            assert_eq!(shutdown.lock().wakers.len(), 1);
        }
        assert!(shutdown.lock().wakers.is_empty());
    }

    #[test]
    fn every_wait_is_woken() {
        struct Count(std::sync::atomic::AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        }
        let shutdown = Shutdown::new();
        let woken = Arc::new(Count(0.into()));
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        let (mut a, mut b) = (pin!(shutdown.triggered()), pin!(shutdown.triggered()));
        assert!(a.as_mut().poll(&mut cx).is_pending() && b.as_mut().poll(&mut cx).is_pending());
        shutdown.trigger();
        assert_eq!(woken.0.load(std::sync::atomic::Ordering::SeqCst), 2);
        assert!(a.as_mut().poll(&mut cx).is_ready() && b.as_mut().poll(&mut cx).is_ready());
    }
}
