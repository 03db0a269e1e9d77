//! What a request carries: small JSON that is read whole, or a stream that is written while it comes. In both cases it
//! must be what was signed.

use std::io::{self, Read};
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use futures_util::StreamExt;
use guild_protocol::hash::{Hash, Hasher};
use guild_protocol::json;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::super::error::{Error, Result, code};
use super::super::{Shared, lock};
use super::Admitted;

const MAX_JSON_BYTES: usize = 4 << 20;
/// How many pieces of a stream wait to be written.
pub(super) const PIECES_AHEAD: usize = 4;

/// JSON, read strictly. `hash` is that of its bytes.
pub(super) struct Sent<T> {
    pub(super) value: T,
    pub(super) hash: Hash,
}

impl<T: DeserializeOwned> FromRequest<Arc<Shared>> for Sent<T> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &Arc<Shared>) -> Result<Sent<T>> {
        let admitted = request.extensions().get::<Admitted>().copied();
        let signed =
            admitted.ok_or_else(|| Error::new(&code::NOT_SIGNED, "it is not signed"))?.body;
        let too_large = || {
            Error::new(&code::TOO_LARGE, format!("the body is larger than {MAX_JSON_BYTES} bytes"))
        };
        let body = axum::body::to_bytes(request.into_body(), MAX_JSON_BYTES);
        let body = body.await.map_err(|_| too_large())?;
        let hash = Hash::of(&body);
        if hash != signed {
            return Err(changed());
        }
        Ok(Sent { value: json::decode(&body)?, hash })
    }
}

fn changed() -> Error {
    Error::new(&code::BODY_CHANGED, "the body is not the one that was signed")
}

impl FromRequestParts<Arc<Shared>> for Admitted {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Shared>) -> Result<Admitted> {
        let admitted = parts.extensions.get::<Admitted>().copied();
        admitted.ok_or_else(|| Error::new(&code::NOT_SIGNED, "it is not signed"))
    }
}

/// Gives a body to `write`, which blocks, while it comes. Whatever `write` makes of it must be undone if its reader
/// fails at the end: only then is it known whether the body is what was signed.
pub(super) async fn pour<T: Send + 'static>(
    body: Body,
    signed: Hash,
    write: impl FnOnce(&mut Poured) -> crate::Result<T> + Send + 'static,
) -> Result<T> {
    let (sender, pieces) = mpsc::channel(PIECES_AHEAD);
    let why = Arc::new(Mutex::new(None));
    let mut poured = Poured {
        pieces,
        piece: Bytes::new(),
        hasher: Hasher::new(),
        signed,
        end: End::NotYet,
        why: why.clone(),
    };
    let writing = tokio::task::spawn_blocking(move || write(&mut poured));
    let mut body = body.into_data_stream();
    let mut whole = true;
    while let Some(piece) = body.next().await {
        whole = piece.is_ok();
        let Ok(piece) = piece else { break };
        if sender.send(Piece::More(piece)).await.is_err() {
            break;
        }
    }
    if whole {
        // If nobody reads any more, the writer has an answer already.
        let _ = sender.send(Piece::Last).await;
    }
    drop(sender);
    let gone = |e: tokio::task::JoinError| Error::from(crate::Error::failed("write", e));
    let written = writing.await.map_err(gone)?;
    if let Some(error) = lock(&why).take() {
        return Err(error);
    }
    Ok(written?)
}

enum Piece {
    More(Bytes),
    /// The body was whole.
    Last,
}

#[derive(PartialEq, Eq)]
enum End {
    NotYet,
    Good,
}

/// A body as it comes, for whoever reads by blocking.
pub(super) struct Poured {
    pieces: mpsc::Receiver<Piece>,
    piece: Bytes,
    hasher: Hasher,
    signed: Hash,
    end: End,
    /// Why it failed, if it did: errors of the system would carry only words.
    why: Arc<Mutex<Option<Error>>>,
}

impl Poured {
    fn fail(&self, error: Error) -> io::Error {
        let words = error.to_string();
        *lock(&self.why) = Some(error);
        io::Error::other(words)
    }
}

impl Read for Poured {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && self.end == End::NotYet {
            match self.pieces.blocking_recv() {
                Some(Piece::More(piece)) => {
                    self.hasher.update(&piece);
                    self.piece = piece;
                }
                Some(Piece::Last) if self.hasher.clone().finish() == self.signed => {
                    self.end = End::Good;
                }
                Some(Piece::Last) => return Err(self.fail(changed())),
                None => {
                    let error = Error::new(&code::BODY_CHANGED, "the body ended too early");
                    return Err(self.fail(error));
                }
            }
        }
        let length = buffer.len().min(self.piece.len());
        let piece = self.piece.split_to(length);
        if let Some(place) = buffer.get_mut(..length) {
            place.copy_from_slice(&piece);
        }
        Ok(length)
    }
}
