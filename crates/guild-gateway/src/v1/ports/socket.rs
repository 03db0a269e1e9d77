//! WebSockets to a port, and tunnels. A WebSocket ends here and another begins: both sides are checked, and neither
//! gets more at once than the other side takes.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts, Request};
use axum::http::header::SEC_WEBSOCKET_PROTOCOL;
use axum::response::Response;
use futures_util::future::{Either, select};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use guild_hosting::desk::{Pass, Way};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message as Inner};

use super::headers;
use crate::meter::OpenStream;
use crate::{Error, Result, Shared};

const MESSAGE_MAX_BYTES: usize = 4 << 20;
const BUFFER_BYTES: usize = 16 << 10;
/// How often a socket of which nothing comes says that it is there.
const KEEP_ALIVE_MS: i64 = 15_000;
/// How long nothing may move in a tunnel of which one side has said all.
const HALF_QUIET_MS: i64 = 60_000;

/// The wish for a WebSocket.
pub(super) async fn upgrade(request: Request) -> Result<WebSocketUpgrade> {
    let (mut parts, _) = request.into_parts();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
    let upgrade = upgrade.map_err(|error| Error::bad("upgrade", error.body_text()))?;
    Ok(upgrade
        .max_message_size(MESSAGE_MAX_BYTES)
        .max_frame_size(MESSAGE_MAX_BYTES)
        .read_buffer_size(BUFFER_BYTES)
        .write_buffer_size(BUFFER_BYTES))
}

/// Opens a WebSocket inside, then the one here.
pub(super) async fn pass(
    shared: Shared,
    Way { tunnel, pass }: Way,
    port: u16,
    target: &str,
    request: Request,
) -> Result<Response> {
    let wrong = |e: tungstenite::Error| Error::PortAnswer(e.to_string());
    let mut inner =
        format!("ws://localhost:{port}{target}").into_client_request().map_err(wrong)?;
    inner.headers_mut().extend(headers::inward(request.headers()));
    let upgrade = upgrade(request).await?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_MAX_BYTES))
        .max_frame_size(Some(MESSAGE_MAX_BYTES))
        .read_buffer_size(BUFFER_BYTES)
        .write_buffer_size(BUFFER_BYTES);
    let opened = tokio_tungstenite::client_async_with_config(inner, tunnel, Some(config)).await;
    let (inside, answer) = opened.map_err(wrong)?;
    let chosen = answer.headers().get(SEC_WEBSOCKET_PROTOCOL);
    let chosen = chosen.and_then(|value| value.to_str().ok()).map(str::to_owned);
    let upgrade = upgrade.protocols(chosen);
    Ok(upgrade.on_upgrade(move |outside| async move {
        let _open = OpenStream::new();
        let carried = std::pin::pin!(carry(&shared, &pass, outside, inside));
        select(carried, shared.shutdown.triggered()).await;
    }))
}

/// Carries messages both ways until one side has said all, or may not any more.
async fn carry<S: AsyncRead + AsyncWrite + Unpin>(
    shared: &Shared,
    pass: &Pass,
    outside: WebSocket,
    inside: WebSocketStream<S>,
) {
    let (mut to_outside, mut from_outside) = outside.split();
    let (mut to_inside, mut from_inside) = inside.split();
    let inwards = std::pin::pin!(async {
        while let Some(Ok(message)) = from_outside.next().await {
            let message = match message {
                Message::Text(text) => Inner::Text(text.as_str().into()),
                Message::Binary(bytes) => Inner::Binary(bytes),
                Message::Close(_) => break,
                Message::Ping(_) | Message::Pong(_) => continue,
            };
            if to_inside.send(message).await.is_err() || pass.used().await.is_err() {
                break;
            }
        }
        // Whoever does not hear this hears that the connection ends.
        let _ = to_inside.send(Inner::Close(None)).await;
    });
    let outwards = std::pin::pin!(async {
        loop {
            let quiet = shared.clock.sleep(KEEP_ALIVE_MS);
            let message = match select(from_inside.next(), quiet).await {
                Either::Left((Some(Ok(Inner::Text(text))), _)) => {
                    Message::Text(text.as_str().into())
                }
                Either::Left((Some(Ok(Inner::Binary(bytes))), _)) => Message::Binary(bytes),
                Either::Left((Some(Ok(Inner::Ping(_) | Inner::Pong(_) | Inner::Frame(_))), _)) => {
                    continue;
                }
                Either::Left(_) => break,
                Either::Right(_) if pass.stands().await.is_err() => break,
                Either::Right(_) => Message::Ping(Default::default()),
            };
            let is_use = !matches!(message, Message::Ping(_));
            if to_outside.send(message).await.is_err() {
                return;
            }
            if is_use && pass.used().await.is_err() {
                break;
            }
        }
        let _ = to_outside.send(Message::Close(None)).await;
    });
    select(inwards, outwards).await;
}

/// A WebSocket whose binary messages are the bytes of a connection.
pub(super) fn tunnel(shared: Shared, way: Way, upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(move |outside| async move {
        let _open = OpenStream::new();
        let carried = std::pin::pin!(carry_bytes(&shared, way, outside));
        select(carried, shared.shutdown.triggered()).await;
    })
}

/// Carries bytes both ways. A message without bytes says that its side has said all: the other may go on, and the
/// tunnel ends when both have, or when nothing moves any more after one has.
async fn carry_bytes(shared: &Shared, Way { tunnel, pass }: Way, outside: WebSocket) {
    let (to_outside, from_outside) = outside.split();
    let (from_inside, to_inside) = tokio::io::split(tunnel);
    let (said_all, outside_said_all) = oneshot::channel();
    let state =
        Half { shared, pass: &pass, moved_ms: AtomicI64::new(0), is_half: AtomicBool::new(false) };
    let inwards = std::pin::pin!(state.inwards(from_outside, to_inside, said_all));
    let outwards = std::pin::pin!(state.outwards(from_inside, to_outside, outside_said_all));
    select(inwards, outwards).await;
}

/// What both ways of a tunnel know of each other.
struct Half<'a> {
    shared: &'a Shared,
    pass: &'a Pass,
    /// When something moved last, either way.
    moved_ms: AtomicI64,
    /// Whether one side has said all.
    is_half: AtomicBool,
}

impl Half<'_> {
    /// Something has moved; whether more may.
    async fn moved(&self) -> bool {
        self.moved_ms.store(self.shared.clock.now_ms(), Ordering::Relaxed);
        self.pass.used().await.is_ok()
    }

    fn end_one(&self) {
        self.moved_ms.store(self.shared.clock.now_ms(), Ordering::Relaxed);
        self.is_half.store(true, Ordering::Relaxed);
    }

    /// Nothing came for a while; whether it goes on. Whoever is gone often looks like somebody who has said all.
    async fn goes_on(&self) -> bool {
        let quiet_ms =
            self.shared.clock.now_ms().saturating_sub(self.moved_ms.load(Ordering::Relaxed));
        let is_over = self.is_half.load(Ordering::Relaxed) && quiet_ms >= HALF_QUIET_MS;
        !is_over && self.pass.stands().await.is_ok()
    }

    async fn inwards(
        &self,
        mut from_outside: SplitStream<WebSocket>,
        mut to_inside: impl AsyncWrite + Unpin,
        said_all: oneshot::Sender<()>,
    ) {
        let mut said_all = Some(said_all);
        while let Some(Ok(message)) = from_outside.next().await {
            match message {
                Message::Binary(bytes) if bytes.is_empty() => {
                    self.end_one();
                    // If nobody waits for it, the tunnel is over anyway.
                    let _ = said_all.take().map(|said| said.send(()));
                    if to_inside.shutdown().await.is_err() {
                        break;
                    }
                }
                // Whoever has said all says no more.
                Message::Binary(_) if said_all.is_none() => break,
                Message::Binary(bytes) => {
                    let sent = to_inside.write_all(&bytes).await;
                    let sent = if sent.is_ok() { to_inside.flush().await } else { sent };
                    if sent.is_err() || !self.moved().await {
                        break;
                    }
                }
                Message::Close(_) | Message::Text(_) => break,
                Message::Ping(_) | Message::Pong(_) => {}
            }
        }
    }

    async fn outwards(
        &self,
        mut from_inside: impl AsyncRead + Unpin,
        mut to_outside: SplitSink<WebSocket, Message>,
        mut outside_said_all: oneshot::Receiver<()>,
    ) {
        let mut piece = vec![0; BUFFER_BYTES];
        let ended = loop {
            let quiet = self.shared.clock.sleep(KEEP_ALIVE_MS);
            let message = match select(std::pin::pin!(from_inside.read(&mut piece)), quiet).await {
                Either::Left((Ok(length), _)) if length > 0 => {
                    Message::Binary(piece.get(..length).unwrap_or_default().to_vec().into())
                }
                Either::Left((ended, _)) => break ended.is_ok(),
                Either::Right(_) if !self.goes_on().await => break false,
                Either::Right(_) => Message::Ping(Default::default()),
            };
            let is_use = !matches!(message, Message::Ping(_));
            if to_outside.send(message).await.is_err() {
                return;
            }
            if is_use && !self.moved().await {
                break false;
            }
        };
        // What broke, or may not go on, ends both ways.
        if ended && to_outside.send(Message::Binary(Default::default())).await.is_ok() {
            self.end_one();
            while let Either::Right((_, waiting)) =
                select(outside_said_all, self.shared.clock.sleep(KEEP_ALIVE_MS)).await
            {
                outside_said_all = waiting;
                let ping = Message::Ping(Default::default());
                if !self.goes_on().await || to_outside.send(ping).await.is_err() {
                    break;
                }
            }
        }
        let _ = to_outside.send(Message::Close(None)).await;
    }
}
