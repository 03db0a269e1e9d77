//! The way to a relay: TCP, TLS, and the two things that are asked there.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::address::{Address, is_private};
use super::information::{Information, MAX_BYTES};
use super::trust::{Trust, client_of_host};

/// A longer frame is of no use: an event is never longer, and a little around it.
pub(super) const FRAME_MAX_BYTES: usize =
    guild_protocol::nostr::Limits::DEFAULT.max_bytes + 4 * 1024;
/// A longer one is not even read to its end, and ends the connection. Others may keep larger events than we do: one of
/// them must not keep us from what comes behind it.
const READ_MAX_BYTES: usize = 4 * FRAME_MAX_BYTES;
/// What waits in a socket to be sent, at most.
const SEND_MAX_BYTES: usize = 4 * FRAME_MAX_BYTES;

/// A connection to a relay.
pub(super) type Socket = WebSocketStream<Wire>;

/// Bytes to and from a relay.
pub enum Wire {
    /// As they are.
    Plain(TcpStream),
    /// By TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Connects to whoever is at `ws://host[:port]` or `wss://…` and is no relay: a web socket for another use. Without a
/// trust of its own whom the host trusts is believed.
pub async fn reach(url: &str, own: Option<&Trust>) -> io::Result<Wire> {
    let address = Address::parse(url).map_err(io::Error::other)?;
    connect(&address, true, || own.map_or_else(client_of_host, Trust::client)).await
}

/// Connects to a relay. A stranger's relay is refused if it is in a private network, unless that is allowed.
pub(super) async fn dial(address: &Address, private: bool) -> io::Result<Wire> {
    connect(address, private, client_of_host).await
}

async fn connect(
    address: &Address,
    private: bool,
    tls: impl FnOnce() -> io::Result<Arc<ClientConfig>>,
) -> io::Result<Wire> {
    let found = tokio::net::lookup_host((address.host.as_str(), address.port)).await?;
    let (near, far): (Vec<SocketAddr>, Vec<SocketAddr>) =
        found.partition(|found| is_private(found.ip()));
    let allowed = if private { near.into_iter().chain(far).collect() } else { far };
    if allowed.is_empty() {
        let why = "a relay that a stranger named is in a private network";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let stream = TcpStream::connect(&allowed[..]).await?;
    stream.set_nodelay(true)?;
    if !address.is_secure {
        return Ok(Wire::Plain(stream));
    }
    let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
    let stream = TlsConnector::from(tls()?).connect(name, stream).await?;
    Ok(Wire::Tls(Box::new(stream)))
}

/// Opens a web socket on the wire.
pub(super) async fn open(address: &Address, wire: Wire) -> io::Result<Socket> {
    let config = WebSocketConfig::default()
        .max_message_size(Some(READ_MAX_BYTES))
        .max_frame_size(Some(READ_MAX_BYTES))
        .read_buffer_size(32 * 1024)
        .write_buffer_size(0)
        .max_write_buffer_size(SEND_MAX_BYTES);
    let url = address.to_string();
    let opened = tokio_tungstenite::client_async_with_config(url, wire, Some(config)).await;
    opened.map(|(socket, _)| socket).map_err(io::Error::other)
}

/// What the relay says of itself. One request, one answer, and the connection is done: HTTP/1.0 is enough.
pub(super) async fn information(address: &Address, mut wire: Wire) -> io::Result<Information> {
    let Address { path, authority, .. } = address;
    let ask = format!(
        "GET {path} HTTP/1.0\r\nHost: {authority}\r\nAccept: application/nostr+json\r\nConnection: close\r\n\r\n"
    );
    wire.write_all(ask.as_bytes()).await?;
    wire.flush().await?;
    let mut answer = Vec::new();
    let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
    // Some end the connection without the farewell that TLS wants; what came is judged by itself.
    if let Err(error) = wire.take(most).read_to_end(&mut answer).await
        && answer.is_empty()
    {
        return Err(error);
    }
    Ok(body(&answer).map(Information::parse).unwrap_or_default())
}

/// The body of an answer that says yes.
fn body(answer: &[u8]) -> Option<&[u8]> {
    let status = answer.split(|byte| *byte == b' ').nth(1)?;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    if status != b"200" { None } else { answer.get(end.saturating_add(4)..) }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Plain(stream) => Pin::new(stream).poll_read(cx, into),
            Wire::Tls(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Wire::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Wire::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_good_answer_has_a_body() {
        assert_eq!(body(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}"), Some(&b"{}"[..]));
        for bad in [&b""[..], b"HTTP/1.1 404 No\r\n\r\n{}", b"HTTP/1.1 200 OK\r\n", b"\r\n\r\n"] {
            assert_eq!(body(bad), None);
        }
    }
}
