//! Connections that are counted, and that end when nothing moves on them.
//!
//! A client may be slow, or gone without a word, or mean harm: it sends half a request and waits, or a byte now and
//! then, or asks for a stream and never reads it. Such a connection must not be held for ever, and there must not be
//! any number of them. So only what we write counts as movement: a request is answered in time, a stream and a web
//! socket say something by themselves, and whoever only sends is not served. And one address has only so many
//! connections, so that others are still served. Every connection that is ended here is counted.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::serve::Listener;
use guild_network::relay::Places;
use guild_protocol::env::{BoxFuture, Clock};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Options, meter, proxy};

/// Whether what comes counts as movement too: for somebody known who sends something large, at a pace that is watched
/// elsewhere.
#[derive(Debug, Clone, Default)]
pub(crate) struct Patience(Arc<AtomicBool>);

/// Patience for as long as this lives.
pub(crate) struct Patient(Patience);

impl Patience {
    pub(crate) fn begin(&self) -> Patient {
        self.0.store(true, Ordering::Relaxed);
        Patient(self.clone())
    }

    fn has_it(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}

/// Accepts no more connections than there is room for; further ones wait to be accepted, except those of an address
/// that has too many: they are dropped at once.
pub(crate) struct Limited {
    listener: TcpListener,
    clock: Arc<dyn Clock>,
    room: Arc<Semaphore>,
    places: Arc<Mutex<Places>>,
    options: Arc<Options>,
}

impl Limited {
    pub(crate) fn new(
        listener: TcpListener,
        clock: Arc<dyn Clock>,
        options: Arc<Options>,
    ) -> Limited {
        let room = Arc::new(Semaphore::new(options.connections_max));
        Limited { listener, clock, room, places: Arc::default(), options }
    }
}

impl Listener for Limited {
    type Io = Timed<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        // The semaphore is never closed, so there is always a permit in the end.
        let permit = self.room.clone().acquire_owned().await.ok();
        let (io, address) = loop {
            let (io, address) = Listener::accept(&mut self.listener).await;
            // A proxy stands for many.
            let per_address = match proxy::is_trusted(&self.options.trusted_proxies, address.ip()) {
                true => usize::MAX,
                false => self.options.connections_per_address,
            };
            match lock(&self.places).enter(address.ip(), per_address, usize::MAX) {
                Ok(()) => break (io, address),
                Err(why) => meter::dropped(why),
            }
        };
        let seat = Seat::new(self.places.clone(), address.ip(), permit);
        // Small frames shall not wait for more of them. A socket that is already dead need not.
        let _ = io.set_nodelay(true);
        let (clock, idle_max_ms) = (self.clock.clone(), self.options.idle_max_ms);
        let timed = Timed { _seat: Some(seat), ..Timed::new(io, clock, idle_max_ms) };
        (timed, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

fn lock(places: &Mutex<Places>) -> MutexGuard<'_, Places> {
    // Nothing panics while holding the lock.
    places.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of a connection, given back when it ends.
struct Seat {
    places: Arc<Mutex<Places>>,
    address: IpAddr,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Seat {
    /// For one that has entered.
    fn new(
        places: Arc<Mutex<Places>>,
        address: IpAddr,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Seat {
        meter::connections(lock(&places).count());
        Seat { places, address, _permit: permit }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut places = lock(&self.places);
        places.leave(self.address);
        meter::connections(places.count());
    }
}

/// A connection that fails once nothing was written to it for a while.
pub(crate) struct Timed<S> {
    io: S,
    clock: Arc<dyn Clock>,
    idle_max_ms: i64,
    idle: Option<BoxFuture<()>>,
    /// Whether anything was ever written.
    is_answered: bool,
    patience: Patience,
    _seat: Option<Seat>,
}

impl<S> Timed<S> {
    fn new(io: S, clock: Arc<dyn Clock>, idle_max_ms: i64) -> Timed<S> {
        let patience = Patience::default();
        Timed { io, clock, idle_max_ms, idle: None, is_answered: false, patience, _seat: None }
    }

    pub(crate) fn patience(&self) -> Patience {
        self.patience.clone()
    }
}

impl<S: Unpin> Timed<S> {
    /// Passes on what became of a write; fails if nothing has moved for too long.
    fn or_idle<T>(
        &mut self,
        cx: &mut Context<'_>,
        moved: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if moved.is_ready() {
            self.idle = None;
            self.is_answered = true;
            return moved;
        }
        self.in_time(cx)?;
        Poll::Pending
    }

    /// Fails if nothing was written for too long.
    fn in_time(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let idle = self.idle.get_or_insert_with(|| self.clock.sleep(self.idle_max_ms));
        match idle.as_mut().poll(cx) {
            Poll::Ready(()) => {
                self.idle = None;
                meter::dropped(if self.is_answered { "idle" } else { "no_request" });
                Err(io::ErrorKind::TimedOut.into())
            }
            Poll::Pending => Ok(()),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Also while something comes: whoever sends a byte now and then would be served for ever.
        if self.patience.has_it() {
            self.idle = None;
        } else {
            self.in_time(cx)?;
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let moved = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.or_idle(cx, moved)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let moved = Pin::new(&mut self.io).poll_write_vectored(cx, pieces);
        self.or_idle(cx, moved)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Nothing is buffered here, so a flush says nothing about what moves.
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// Waits are over once somebody says so.
    #[derive(Clone, Default)]
    struct Bell(Arc<std::sync::atomic::AtomicBool>);

    impl Clock for Bell {
        fn now_ms(&self) -> i64 {
            0
        }
        fn sleep(&self, _: i64) -> BoxFuture<()> {
            let over = self.0.clone();
            Box::pin(std::future::poll_fn(move |_| {
                match over.load(std::sync::atomic::Ordering::SeqCst) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            }))
        }
    }

    #[tokio::test]
    async fn what_is_served_goes_on_and_what_only_sends_ends() {
        let (near, mut far) = duplex(4);
        let bell = Bell::default();
        let clock = Arc::new(bell.clone());
        let mut near = Timed::new(near, clock, 1);
        far.write_all(b"abc").await.unwrap();
        let mut read = [0; 1];
        near.read_exact(&mut read).await.unwrap();
        bell.0.store(true, std::sync::atomic::Ordering::SeqCst);
        // There is more to read, but nothing was written meanwhile.
        assert_eq!(near.read(&mut read).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        // Unless somebody known sends something large.
        let patient = near.patience().begin();
        near.read_exact(&mut read).await.unwrap();
        drop(patient);
        assert_eq!(near.read(&mut read).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        bell.0.store(false, std::sync::atomic::Ordering::SeqCst);
        near.read_exact(&mut read).await.unwrap();
        // What is written begins the time anew.
        assert_eq!(near.write(b"1234").await.unwrap(), 4);
        assert!(near.idle.is_none());
        bell.0.store(true, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(near.write(b"5").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
