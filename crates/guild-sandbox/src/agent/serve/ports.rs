//! Tunnels to ports inside. By WebSocket, because every language has a client for it and every proxy lets it through;
//! a bare upgrade or CONNECT has neither, and its path could not be signed as all others are.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, State};
use axum::response::Response;
use futures_util::future::{Either, select};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::super::Shared;
use super::super::error::{Error, Result, code};
use super::exec::blocking;

/// How many tunnels there are at once.
pub(in super::super) const MAX_TUNNELS: usize = 128;
const MAX_MESSAGE_BYTES: usize = 1 << 20;
const PIECE_BYTES: usize = 16 << 10;
/// How often a tunnel of which nothing comes says that it is there.
const KEEP_ALIVE_MS: i64 = 15_000;

pub(super) async fn tunnel(
    State(shared): State<Arc<Shared>>,
    port: Result<Path<u16>, PathRejection>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response> {
    let Path(port) = port.map_err(|e| Error::bad("port", e.body_text()))?;
    let upgrade = upgrade.map_err(|e| Error::bad("upgrade", e.body_text()))?;
    shared.require_running()?;
    let full = |_| Error::new(&code::TOO_MANY, format!("{MAX_TUNNELS} tunnels are open"));
    let permit = shared.tunnels.clone().try_acquire_owned().map_err(full)?;
    let handle = shared.handle.clone();
    let stream = blocking(move || match handle.connect(port) {
        Ok(stream) => Ok(stream),
        Err(crate::Error::Refused { port, why }) => {
            Err(Error::new(&code::PORT_REFUSED, format!("port {port}: {why}")))
        }
        Err(error) => Err(error.into()),
    });
    let stream = stream.await?;
    let ready = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
    let stream = ready.map_err(|e| Error::from(crate::Error::failed("use a connection", e)))?;
    Ok(upgrade.max_message_size(MAX_MESSAGE_BYTES).on_upgrade(move |socket| async move {
        let over = shared.shutdown.triggered();
        let carried = std::pin::pin!(carry(socket, stream, &shared));
        // Either way the tunnel is over.
        select(carried, over).await;
        drop(permit);
    }))
}

/// Carries bytes both ways. A message without bytes says that its side has said all: the other may go on, and the
/// tunnel ends when both have. A client that is gone has nobody to go on for.
async fn carry(socket: WebSocket, stream: TcpStream, shared: &Shared) {
    let (mut to_client, mut from_client) = socket.split();
    let (mut from_inside, mut to_inside) = stream.into_split();
    let (said_all, client_said_all) = oneshot::channel();
    let inwards = std::pin::pin!(async {
        let mut said_all = Some(said_all);
        while let Some(Ok(message)) = from_client.next().await {
            match message {
                Message::Binary(bytes) if bytes.is_empty() => {
                    // If nobody waits for it, the tunnel is over anyway.
                    let _ = said_all.take().map(|said| said.send(()));
                    let _ = to_inside.shutdown().await;
                }
                // Whoever has said all says no more.
                Message::Binary(_) if said_all.is_none() => break,
                Message::Binary(bytes) if to_inside.write_all(&bytes).await.is_err() => break,
                Message::Close(_) | Message::Text(_) => break,
                _ => {}
            }
        }
    });
    let outwards = std::pin::pin!(async {
        let mut piece = vec![0; PIECE_BYTES];
        let ended = loop {
            let quiet = shared.clock.sleep(KEEP_ALIVE_MS);
            let message = match select(std::pin::pin!(from_inside.read(&mut piece)), quiet).await {
                Either::Left((Ok(length), _)) if length > 0 => {
                    let piece = piece.get(..length).unwrap_or_default();
                    Message::Binary(piece.to_vec().into())
                }
                Either::Left((ended, _)) => break ended.is_ok(),
                Either::Right(_) => Message::Ping(Vec::new().into()),
            };
            if to_client.send(message).await.is_err() {
                return;
            }
        };
        // A connection that broke ends both ways.
        if ended && to_client.send(Message::Binary(Vec::new().into())).await.is_ok() {
            let mut client_said_all = client_said_all;
            while let Either::Right((_, waiting)) =
                select(client_said_all, shared.clock.sleep(KEEP_ALIVE_MS)).await
            {
                client_said_all = waiting;
                if to_client.send(Message::Ping(Vec::new().into())).await.is_err() {
                    return;
                }
            }
        }
        // Whoever does not hear this hears that the connection ends.
        let _ = to_client.send(Message::Close(None)).await;
    });
    select(inwards, outwards).await;
}
