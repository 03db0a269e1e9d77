//! What surrounds a component and is passed into it: time, randomness, a signing key, the wish to stop.
//!
//! Nothing below the binary touches the real ones, so the simulation can decide all of them.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
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
    wakers: Vec<Waker>,
}

impl Shutdown {
    /// A wish not yet made.
    pub fn new() -> Shutdown {
        Shutdown::default()
    }

    /// Makes the wish. Once made it stays.
    pub fn trigger(&self) {
        let wakers = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.triggered = true;
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether the wish has been made.
    pub fn is_triggered(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).triggered
    }

    /// Ready once the wish has been made.
    pub fn triggered(&self) -> impl Future<Output = ()> + Send + Unpin + use<> {
        let this = self.clone();
        poll_fn(move |cx| this.poll_triggered(cx))
    }

    fn poll_triggered(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.triggered {
            return Poll::Ready(());
        }
        // A task that polls often must not pile up wakers.
        if !state.wakers.iter().any(|w| w.will_wake(cx.waker())) {
            state.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl std::fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Shutdown").field(&self.is_triggered()).finish()
    }
}
