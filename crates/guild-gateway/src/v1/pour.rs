//! A file as it comes in. It may be large and its sender slow, so it has a pace instead of a deadline, and nothing of
//! it is kept here.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderName};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt;
use guild_protocol::env::{BoxFuture, Clock, UnixMs};
use guild_protocol::hash::Hash;
use tokio::io::{AsyncRead, ReadBuf};

use crate::socket::Patient;
use crate::{Error, Result};

/// A file up to here needs no hash ahead: it is held in memory until its hash is known.
pub(super) const HELD_MAX_BYTES: usize = 32 << 20;
/// The hash of a body (RFC 9530), as `sha-256=:<base64>:`.
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");
/// A sender that brings less than so many bytes in a millisecond, in all, is too slow.
const PACE: i64 = 16;
/// Such a pace is asked for after so long.
const BEGIN_MS: i64 = 30_000;

/// The hash that a request says its body has.
pub(super) fn digest(headers: &HeaderMap) -> Result<Option<Hash>> {
    let mut all = headers.get_all(CONTENT_DIGEST).iter();
    let Some(value) = all.next() else { return Ok(None) };
    let wrong = || Error::bad("content-digest", "must be sha-256=:<44 characters of base64>:");
    let text = value.to_str().ok().filter(|_| all.next().is_none()).ok_or_else(wrong)?;
    let coded = text.strip_prefix("sha-256=:").and_then(|rest| rest.strip_suffix(':'));
    let bytes = coded.and_then(|coded| STANDARD.decode(coded).ok());
    let bytes: Option<[u8; 32]> = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.map(Hash::from_bytes).map(Some).ok_or_else(wrong)
}

/// How long a body says that it is. One that comes in chunks does not say it.
pub(super) fn length(body: &Body) -> Option<u64> {
    body.size_hint().exact()
}

/// A body, read as it comes. Its connection is not idle meanwhile, though nothing is written to it.
pub(crate) struct Pour {
    body: BodyDataStream,
    piece: Bytes,
    clock: Arc<dyn Clock>,
    began_ms: UnixMs,
    bytes: i64,
    quiet: Option<BoxFuture<()>>,
    failed: Option<Error>,
    _patient: Option<Patient>,
}

impl Pour {
    pub(crate) fn new(body: Body, clock: Arc<dyn Clock>, patient: Option<Patient>) -> Pour {
        Pour {
            body: body.into_data_stream(),
            piece: Bytes::new(),
            began_ms: clock.now_ms(),
            clock,
            bytes: 0,
            quiet: None,
            failed: None,
            _patient: patient,
        }
    }

    /// Why it could not be read to its end, if so.
    pub(crate) fn failed(&mut self) -> Option<Error> {
        self.failed.take()
    }

    /// All of it, if it is not more than this.
    pub(crate) async fn whole(mut self, max_bytes: usize) -> Result<Vec<u8>> {
        use tokio::io::AsyncReadExt;
        let mut whole = Vec::new();
        let most = u64::try_from(max_bytes).unwrap_or(u64::MAX).saturating_add(1);
        let read = (&mut self).take(most).read_to_end(&mut whole).await;
        if let Some(error) = self.failed() {
            return Err(error);
        }
        read.map_err(|e| Error::bad("body", e.to_string()))?;
        if whole.len() > max_bytes { Err(Error::TooLarge(max_bytes)) } else { Ok(whole) }
    }

    /// Reads what is left, and keeps nothing of it.
    pub(super) async fn drain(&mut self) {
        // What cannot be read need not be.
        let _ = tokio::io::copy(self, &mut tokio::io::sink()).await;
    }

    fn too_slow(&mut self) -> io::Error {
        let took_ms = self.clock.now_ms().saturating_sub(self.began_ms);
        self.failed = Some(Error::TooSlow(took_ms));
        io::ErrorKind::TimedOut.into()
    }
}

/// Whether so many bytes are enough for this time.
fn keeps_pace(took_ms: i64, bytes: i64) -> bool {
    took_ms.saturating_sub(BEGIN_MS).saturating_mul(PACE) <= bytes
}

impl AsyncRead for Pour {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let pour = &mut *self;
        while pour.piece.is_empty() {
            let next = match pour.body.poll_next_unpin(cx) {
                Poll::Ready(next) => next,
                Poll::Pending => {
                    let quiet = pour.quiet.get_or_insert_with(|| pour.clock.sleep(BEGIN_MS));
                    ready!(quiet.as_mut().poll(cx));
                    return Poll::Ready(Err(pour.too_slow()));
                }
            };
            pour.quiet = None;
            match next {
                None => return Poll::Ready(Ok(())),
                Some(Ok(piece)) => pour.piece = piece,
                Some(Err(error)) => {
                    pour.failed = Some(Error::bad("body", error.to_string()));
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
            }
            pour.bytes = pour.bytes.saturating_add(i64::try_from(pour.piece.len()).unwrap_or(0));
            let took_ms = pour.clock.now_ms().saturating_sub(pour.began_ms);
            if !keeps_pace(took_ms, pour.bytes) {
                return Poll::Ready(Err(pour.too_slow()));
            }
        }
        let length = pour.piece.len().min(buf.remaining());
        buf.put_slice(&pour.piece.split_to(length));
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_strictly() {
        let read = |values: &[&str]| {
            let values = values.iter().map(|value| (CONTENT_DIGEST, value.parse().unwrap()));
            digest(&values.collect())
        };
        let hash = Hash::of(b"abc");
        let good = "sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:";
        assert_eq!(read(&[good]).unwrap(), Some(hash));
        assert_eq!(read(&[]).unwrap(), None);
        for bad in ["", "sha-256=::", "md5=:abcd:", "sha-256=ungW", "sha-512=:ungWv48B:"] {
            assert!(read(&[bad]).is_err(), "{bad}");
        }
        assert!(read(&[good, good]).is_err());
    }

    #[test]
    fn a_pace_is_asked_for_after_a_while() {
        assert!(keeps_pace(0, 0) && keeps_pace(BEGIN_MS, 0));
        assert!(!keeps_pace(BEGIN_MS + 1_000, 1_000));
        assert!(keeps_pace(BEGIN_MS + 1_000, 16_000));
    }
}
