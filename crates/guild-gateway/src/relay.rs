//! The relay's door: a WebSocket, and what the relay says about itself (NIP-11), on one path.

use std::error::Error as _;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::Json;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::{
    ACCEPT, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_TYPE, HOST, UPGRADE,
};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::serve::IncomingStream;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use guild_network::relay::{Frame, Full, Peer, Relay};
use tokio_tungstenite::tungstenite;

use crate::socket::{Limited, Patience, Patient};
use crate::{Error, Result, Shared, guard};

const NOSTR_JSON: &str = "application/nostr+json";

/// Few bytes wait on either side of a socket: there may be many.
const BUFFER_BYTES: usize = 16 * 1024;

/// The address of a client.
#[derive(Debug, Clone)]
pub(crate) struct Remote {
    address: IpAddr,
    patience: Patience,
}

impl Remote {
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// Lets its connection read for long without a word from here.
    pub(crate) fn be_patient(&self) -> Patient {
        self.patience.begin()
    }
}

impl Connected<IncomingStream<'_, Limited>> for Remote {
    fn connect_info(stream: IncomingStream<'_, Limited>) -> Remote {
        Remote { address: stream.remote_addr().ip(), patience: stream.io().patience() }
    }
}

/// `/relay`.
pub(crate) async fn relay(State(shared): State<Shared>, request: Request) -> Result<Response> {
    answer(&shared, request).await
}

/// The same at `/`, for those who know only the host; whoever wants a page goes on.
pub(crate) async fn at_root(
    State(shared): State<Shared>,
    request: Request,
    next: Next,
) -> Result<Response> {
    let headers = request.headers();
    let meant = request.uri().path() == "/" && (is_upgrade(headers) || wants_information(headers));
    if meant && shared.relay.is_some() {
        return answer(&shared, request).await;
    }
    Ok(next.run(request).await)
}

async fn answer(shared: &Shared, request: Request) -> Result<Response> {
    let Some(relay) = &shared.relay else {
        return Err(Error::NoSuchPath(request.uri().path().to_owned()));
    };
    if is_upgrade(request.headers()) {
        return upgrade(relay, request).await;
    }
    if request.method() == Method::OPTIONS {
        return Ok((StatusCode::NO_CONTENT, open_to_all()).into_response());
    }
    if wants_information(request.headers()) {
        let headers = [(CONTENT_TYPE, NOSTR_JSON)];
        return Ok((open_to_all(), headers, Json(relay.information())).into_response());
    }
    Err(Error::NeedsWebSocket)
}

pub(crate) fn is_upgrade(headers: &HeaderMap) -> bool {
    guard::header(headers, &UPGRADE).is_some_and(|to| to.eq_ignore_ascii_case("websocket"))
}

fn wants_information(headers: &HeaderMap) -> bool {
    guard::header(headers, &ACCEPT).is_some_and(|accepted| accepted.contains(NOSTR_JSON))
}

/// Clients in browsers are pages of other sites, and are meant.
fn open_to_all() -> impl IntoResponse + axum::response::IntoResponseParts {
    [
        (ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (ACCESS_CONTROL_ALLOW_HEADERS, "*"),
        (ACCESS_CONTROL_ALLOW_METHODS, "GET, OPTIONS"),
    ]
}

async fn upgrade(relay: &Relay, request: Request) -> Result<Response> {
    let address = request.extensions().get::<ConnectInfo<Remote>>();
    let address = address.map_or(IpAddr::from(Ipv4Addr::LOCALHOST), |info| info.0.address);
    // The guard has seen that there is one, and that it is ours.
    let host = guard::header(request.headers(), &HOST).unwrap_or_default().to_owned();
    let (mut parts, _) = request.into_parts();
    let socket = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
    let socket = socket.map_err(|error| Error::bad("upgrade", error.body_text()))?;
    let admission = relay.admit(Peer { address, host }).map_err(|full| match full {
        Full::InAll => Error::TooManyStreams(relay.options().connections_max),
        Full::OfAddress => Error::TooManyStreams(relay.options().connections_per_address),
    })?;
    let max_bytes = relay.options().frame_max_bytes;
    let socket = socket
        .max_message_size(max_bytes)
        .max_frame_size(max_bytes)
        .read_buffer_size(BUFFER_BYTES)
        .write_buffer_size(BUFFER_BYTES);
    Ok(socket.on_upgrade(|socket| admission.serve(Socket(socket))))
}

/// A WebSocket as the relay sees it.
struct Socket(WebSocket);

impl Stream for Socket {
    type Item = Result<Frame, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let read = ready!(self.0.poll_next_unpin(cx));
        Poll::Ready(read.map(|message| {
            Ok(match message {
                Err(error) if is_too_large(&error) => Frame::TooLarge,
                Err(error) => return Err(error),
                Ok(message) => frame(message),
            })
        }))
    }
}

fn frame(message: Message) -> Frame {
    match message {
        Message::Text(text) => Frame::Text(text.to_string()),
        // Not one of ours; the relay will say so if it is no message.
        Message::Binary(bytes) => Frame::Text(String::from_utf8_lossy(&bytes).into_owned()),
        Message::Ping(_) => Frame::Ping,
        Message::Pong(_) => Frame::Pong,
        Message::Close(_) => Frame::Close,
    }
}

/// Whether what came is more than may be read.
fn is_too_large(error: &axum::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref());
    matches!(cause, Some(tungstenite::Error::Capacity(_)))
}

impl Sink<Frame> for Socket {
    type Error = axum::Error;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), axum::Error>> {
        self.0.poll_ready_unpin(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, frame: Frame) -> Result<(), axum::Error> {
        self.0.start_send_unpin(match frame {
            Frame::Text(text) => Message::Text(text.into()),
            Frame::Ping => Message::Ping(Default::default()),
            Frame::Pong => Message::Pong(Default::default()),
            Frame::Close | Frame::TooLarge => Message::Close(None),
        })
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), axum::Error>> {
        self.0.poll_flush_unpin(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), axum::Error>> {
        self.0.poll_close_unpin(cx)
    }
}
