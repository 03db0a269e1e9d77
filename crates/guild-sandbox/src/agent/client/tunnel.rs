//! A connection to a port inside a sandbox.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::{SinkExt, StreamExt};
use guild_protocol::env::BoxFuture;
use guild_protocol::hash::Hash;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, Response};
use tokio_tungstenite::tungstenite::{self, Message};

use super::super::auth::{ANSWER_HEADER, Seal};
use super::super::error::{Error, Result, code};
use super::{ANSWER_MS, Client};

/// How much goes in by one message.
const PIECE_BYTES: usize = 64 << 10;

/// Bytes to and from a port inside. Dropping it ends the connection. It can be read from and written to like any other
/// connection, and either side can say all before the other: a message without bytes tells of it.
pub struct Tunnel {
    socket: WebSocketStream<TcpStream>,
    client: Client,
    /// What has come and nobody has read yet.
    rest: tungstenite::Bytes,
    /// Whether all has come.
    heard_all: bool,
    /// Whether all was said.
    said_all: bool,
    /// Until when the agent must say something, or take something.
    hears: Option<BoxFuture<()>>,
    takes: Option<BoxFuture<()>>,
}

fn broken(error: impl ToString) -> Error {
    Error::new(&code::UNREACHABLE, error.to_string())
}

impl Tunnel {
    pub(super) async fn open(client: &Client, port: u16) -> Result<Tunnel> {
        let target = format!("/v1/ports/{port}");
        let pass = client.pass("GET", &target, Hash::of(b""))?;
        let url = format!("ws://{}{target}", client.address);
        let mut request = url.into_client_request().map_err(broken)?;
        let authorization = HeaderValue::from_str(&pass.to_string()).map_err(broken)?;
        request.headers_mut().insert("authorization", authorization);
        let opened = client.within(async {
            let stream = TcpStream::connect(&*client.address).await.map_err(broken)?;
            let _ = stream.set_nodelay(true);
            Ok(tokio_tungstenite::client_async(request, stream).await)
        });
        let check = |seal: Option<&HeaderValue>, status: u16| {
            let unsigned = || Error::new(&code::WRONG_AGENT, "the answer is not signed");
            let seal = seal.and_then(|seal| seal.to_str().ok()).ok_or_else(unsigned)?;
            let seal = Seal::parse(seal)?;
            seal.check(&client.party, pass.nonce, status)?;
            Ok::<Seal, Error>(seal)
        };
        match opened.await? {
            Ok((socket, answer)) => {
                check(answer.headers().get(ANSWER_HEADER), answer.status().as_u16())?;
                Ok(Tunnel {
                    socket,
                    client: client.clone(),
                    rest: tungstenite::Bytes::new(),
                    heard_all: false,
                    said_all: false,
                    hears: None,
                    takes: None,
                })
            }
            Err(tungstenite::Error::Http(answer)) => {
                let seal = check(answer.headers().get(ANSWER_HEADER), answer.status().as_u16())?;
                Err(refusal(&answer, &seal))
            }
            Err(error) => Err(broken(error)),
        }
    }

    /// Sends bytes inside.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let sent = self.socket.send(Message::Binary(bytes.to_vec().into()));
        self.client.within(async { sent.await.map_err(broken) }).await
    }

    /// The next bytes from inside; `None` at their end.
    pub async fn receive(&mut self) -> Result<Option<Vec<u8>>> {
        if !self.rest.is_empty() {
            return Ok(Some(std::mem::take(&mut self.rest).to_vec()));
        }
        while !self.heard_all {
            // The agent says something more often, also if nothing comes from inside.
            let next = self.client.within(async { Ok(self.socket.next().await) }).await?;
            match next {
                Some(Ok(Message::Binary(bytes))) if bytes.is_empty() => self.heard_all = true,
                Some(Ok(Message::Binary(bytes))) => return Ok(Some(bytes.to_vec())),
                Some(Ok(Message::Close(_))) | None => self.heard_all = true,
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(broken(error)),
            }
        }
        Ok(None)
    }
}

/// Fails if there was nothing for too long.
fn in_time(
    wait: &mut Option<BoxFuture<()>>,
    client: &Client,
    cx: &mut Context<'_>,
) -> io::Result<()> {
    match wait.get_or_insert_with(|| client.clock.sleep(ANSWER_MS)).as_mut().poll(cx) {
        Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
        Poll::Pending => Ok(()),
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let tunnel = &mut *self;
        while tunnel.rest.is_empty() {
            if tunnel.heard_all {
                return Poll::Ready(Ok(()));
            }
            let Poll::Ready(next) = tunnel.socket.poll_next_unpin(cx) else {
                // The agent says something more often, also if nothing comes from inside.
                in_time(&mut tunnel.hears, &tunnel.client, cx)?;
                return Poll::Pending;
            };
            tunnel.hears = None;
            match next {
                Some(Ok(Message::Binary(bytes))) if bytes.is_empty() => tunnel.heard_all = true,
                Some(Ok(Message::Binary(bytes))) => tunnel.rest = bytes,
                Some(Ok(Message::Close(_))) | None => tunnel.heard_all = true,
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
            }
        }
        let length = tunnel.rest.len().min(buf.remaining());
        buf.put_slice(&tunnel.rest.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl Tunnel {
    /// Passes on what became of a write, unless nothing was taken for too long.
    fn taken(
        &mut self,
        cx: &mut Context<'_>,
        moved: Poll<Result<(), tungstenite::Error>>,
    ) -> Poll<io::Result<()>> {
        let Poll::Ready(moved) = moved else {
            in_time(&mut self.takes, &self.client, cx)?;
            return Poll::Pending;
        };
        self.takes = None;
        Poll::Ready(moved.map_err(io::Error::other))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.said_all {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let is_ready = self.socket.poll_ready_unpin(cx);
        ready!(self.taken(cx, is_ready))?;
        let piece = bytes.get(..bytes.len().min(PIECE_BYTES)).unwrap_or_default();
        let message = Message::Binary(piece.to_vec().into());
        self.socket.start_send_unpin(message).map_err(io::Error::other)?;
        Poll::Ready(Ok(piece.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.socket.poll_flush_unpin(cx);
        self.taken(cx, flushed)
    }

    /// Says that all was said. What comes from inside still comes.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.said_all {
            let is_ready = self.socket.poll_ready_unpin(cx);
            ready!(self.taken(cx, is_ready))?;
            let nothing = Message::Binary(tungstenite::Bytes::new());
            self.socket.start_send_unpin(nothing).map_err(io::Error::other)?;
            self.said_all = true;
        }
        self.poll_flush(cx)
    }
}

/// What the agent said. The library reads only what has come with the head, so the words may be missing.
fn refusal(answer: &Response<Option<Vec<u8>>>, seal: &Seal) -> Error {
    let body = answer.body().as_deref().unwrap_or_default();
    match seal.body == Some(Hash::of(body)) {
        true => Error::told(body, answer.status().as_u16()),
        false => {
            Error::new(&code::BAD_ANSWER, format!("an answer with status {}", answer.status()))
        }
    }
}
