//! The way to a model: an address, TCP, TLS.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use hyper::Uri;
use hyper::http::uri::Scheme;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Where an endpoint is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    is_secure: bool,
    host: String,
    port: u16,
    /// As it goes into `Host`.
    pub(super) authority: String,
    /// Without a slash at its end.
    pub(super) path: String,
}

impl Address {
    /// Reads `http[s]://host[:port][/path]`. A url with a name, a password or a query might hold a key that would be
    /// shown: keys have their own place.
    pub(super) fn parse(url: &str) -> Result<Address, &'static str> {
        let uri: Uri = url.parse().map_err(|_| "cannot be read")?;
        let is_secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err("begins with neither http:// nor https://"),
        };
        let authority = uri.authority().ok_or("names no host")?;
        if authority.as_str().contains('@') || uri.query().is_some() || url.contains('#') {
            return Err("holds more than a host, a port and a path");
        }
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || port == 0 {
            return Err("names no host or no port");
        }
        Ok(Address {
            is_secure,
            host: host.to_owned(),
            port,
            authority: authority.as_str().to_owned(),
            path: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// Connects.
    pub(super) async fn dial(&self) -> io::Result<Line> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        if !self.is_secure {
            return Ok(Line::Plain(stream));
        }
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        let stream = TlsConnector::from(tls()?).connect(name, stream).await?;
        Ok(Line::Tls(Box::new(stream)))
    }
}

/// Trusts whom the host trusts. Read once: it is many files.
fn tls() -> io::Result<Arc<ClientConfig>> {
    static TLS: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = TLS.get() {
        return Ok(config.clone());
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = "this host has no certificates to trust; install the package ca-certificates";
        return Err(io::Error::other(why));
    }
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TLS.get_or_init(|| Arc::new(config)).clone())
}

/// Bytes to and from an endpoint.
pub(super) enum Line {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Line {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Line::Plain(stream) => Pin::new(stream).poll_read(cx, into),
            Line::Tls(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Line::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Line::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Line::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Line::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Line::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Line::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read() {
        let address = Address::parse("https://[::1]:8443/v1/").unwrap();
        assert_eq!((address.host.as_str(), address.port, address.is_secure), ("::1", 8443, true));
        assert_eq!((address.authority.as_str(), address.path.as_str()), ("[::1]:8443", "/v1"));
        let address = Address::parse("http://models.example").unwrap();
        assert_eq!((address.port, address.path.as_str()), (80, ""));
        assert_eq!(address.authority, "models.example");
    }
}
