//! Connections that are counted. One that brings nothing the controller has signed ends soon; one on which nothing
//! moves ends later.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use guild_protocol::env::{BoxFuture, Clock};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many connections are open at once; further ones wait.
const MAX_CONNECTIONS: usize = 512;
/// How long a connection has to bring its first signed request.
const KNOCK_MS: i64 = 10_000;
/// How long nothing may move. Streams say something more often.
const IDLE_MS: i64 = 120_000;

/// Accepts.
pub(super) struct Door {
    listener: TcpListener,
    clock: Arc<dyn Clock>,
    room: Arc<Semaphore>,
}

impl Door {
    pub(super) fn new(listener: TcpListener, clock: Arc<dyn Clock>) -> Door {
        Door { listener, clock, room: Arc::new(Semaphore::new(MAX_CONNECTIONS)) }
    }
}

impl Listener for Door {
    type Io = Guest;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Guest, SocketAddr) {
        // The semaphore is never closed, so there is always a permit in the end.
        let permit = self.room.clone().acquire_owned().await.ok();
        let (io, address) = Listener::accept(&mut self.listener).await;
        // Small frames shall not wait for more of them. A socket that is already dead need not.
        let _ = io.set_nodelay(true);
        let (clock, known) = (self.clock.clone(), Known::default());
        let knock = Some(clock.sleep(KNOCK_MS));
        (Guest { io, clock, known, knock, idle: None, _permit: permit }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Whether a connection has brought something that the controller has signed.
#[derive(Debug, Clone, Default)]
pub(super) struct Known(Arc<AtomicBool>);

impl Known {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Connected<IncomingStream<'_, Door>> for Known {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Known {
        stream.io().known.clone()
    }
}

/// A connection.
pub(super) struct Guest {
    io: TcpStream,
    clock: Arc<dyn Clock>,
    known: Known,
    knock: Option<BoxFuture<()>>,
    idle: Option<BoxFuture<()>>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Guest {
    /// Fails if the connection must end.
    fn in_time(&mut self, cx: &mut Context<'_>, moved: bool) -> io::Result<()> {
        if self.known.get() {
            self.knock = None;
        }
        if let Some(knock) = &mut self.knock
            && knock.as_mut().poll(cx).is_ready()
            && !self.known.get()
        {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if moved {
            self.idle = None;
            return Ok(());
        }
        let idle = self.idle.get_or_insert_with(|| self.clock.sleep(IDLE_MS));
        match idle.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Guest {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        self.in_time(cx, read.is_ready())?;
        read
    }
}

impl AsyncWrite for Guest {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.in_time(cx, written.is_ready())?;
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, pieces);
        self.in_time(cx, written.is_ready())?;
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
