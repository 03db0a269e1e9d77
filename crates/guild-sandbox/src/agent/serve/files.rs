//! Files of the workspace. What a path may be is the workspace's to say; nothing outside of it can be named.

use std::io::{self, Read, Write};
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream::unfold;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::super::Shared;
use super::super::error::{Error, Result};
use super::super::wire::{Entry, FileWritten, Listing};
use super::body::{PIECES_AHEAD, pour};
use super::exec::blocking;
use super::{Admitted, Streamed};
use crate::workspace::{EntryKind, UnpackLimits};

const PIECE_BYTES: usize = 256 << 10;
/// How many files and directories an archive may have.
const MAX_ENTRIES: usize = 100_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Place {
    #[serde(default)]
    path: String,
    #[serde(default)]
    executable: bool,
}

type At = Result<Query<Place>, QueryRejection>;
type Agent = State<Arc<Shared>>;

fn place(at: At) -> Result<Place> {
    at.map(|Query(place)| place).map_err(|e| Error::bad("query", e.body_text()))
}

pub(super) async fn write(
    State(shared): Agent,
    admitted: Admitted,
    at: At,
    request: Request,
) -> Result<Json<FileWritten>> {
    let Place { path, executable } = place(at)?;
    shared.require_running()?;
    let (workspace, max_bytes) = (shared.workspace.clone(), shared.options.file_max_bytes);
    let mode = if executable { 0o755 } else { 0o644 };
    let write = move |body: &mut _| workspace.write(&path, mode, body, max_bytes);
    let written = pour(request.into_body(), admitted.body, write).await?;
    Ok(Json(FileWritten { bytes: written.size, sha256: written.sha256 }))
}

pub(super) async fn read(State(shared): Agent, at: At) -> Result<Response> {
    let Place { path, .. } = place(at)?;
    let workspace = shared.workspace.clone();
    let (file, size) = blocking(move || {
        let file = workspace.open_read(&path)?;
        let failed = |e| Error::from(crate::Error::failed("look at a file", e));
        let size = file.metadata().map_err(failed)?.len();
        Ok((file, size))
    })
    .await?;
    // A file that shrinks meanwhile breaks the answer off; of one that grows only the beginning is sent.
    let body = Body::from_stream(unfold(file.take(size), next_piece));
    let headers =
        [(CONTENT_TYPE, "application/octet-stream".to_owned()), (CONTENT_LENGTH, size.to_string())];
    Ok((headers, Extension(Streamed), body).into_response())
}

/// The next piece of a file.
async fn next_piece<R: Read + Send + 'static>(mut file: R) -> Option<(io::Result<Bytes>, R)> {
    let reading = tokio::task::spawn_blocking(move || {
        let mut piece = vec![0; PIECE_BYTES];
        let read = file.read(&mut piece).map(|length| {
            piece.truncate(length);
            Bytes::from(piece)
        });
        (read, file)
    });
    let (read, file) = reading.await.ok()?;
    match &read {
        Ok(piece) if piece.is_empty() => None,
        _ => Some((read, file)),
    }
}

pub(super) async fn remove(State(shared): Agent, at: At) -> Result<StatusCode> {
    let Place { path, .. } = place(at)?;
    shared.require_running()?;
    let workspace = shared.workspace.clone();
    blocking(move || Ok(workspace.remove(&path)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn list(State(shared): Agent, at: At) -> Result<Json<Listing>> {
    let Place { path, .. } = place(at)?;
    let workspace = shared.workspace.clone();
    let found = blocking(move || Ok(workspace.list(&path)?)).await?;
    let entries = found.into_iter().map(|entry| Entry {
        kind: match entry.kind {
            EntryKind::File => "file",
            EntryKind::Directory => "directory",
            EntryKind::Link => "link",
            EntryKind::Other => "other",
        }
        .to_owned(),
        name: entry.name,
        size: entry.size,
        executable: entry.executable,
    });
    Ok(Json(Listing { entries: entries.collect() }))
}

pub(super) async fn unpack(
    State(shared): Agent,
    admitted: Admitted,
    at: At,
    request: Request,
) -> Result<StatusCode> {
    let Place { path, .. } = place(at)?;
    shared.require_running()?;
    let workspace = shared.workspace.clone();
    let limits = UnpackLimits { bytes: shared.options.file_max_bytes, entries: MAX_ENTRIES };
    let unpack = move |body: &mut _| workspace.unpack(body, &path, limits);
    pour(request.into_body(), admitted.body, unpack).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn pack(State(shared): Agent, at: At) -> Result<Response> {
    let Place { path, .. } = place(at)?;
    let workspace = shared.workspace.clone();
    // What is wrong with the path is told as an answer; what goes wrong later breaks it off.
    let (workspace, path) = blocking(move || {
        workspace.list(&path)?;
        Ok((workspace, path))
    })
    .await?;
    let (sender, pieces) = mpsc::channel(PIECES_AHEAD);
    let packing = tokio::task::spawn_blocking(move || {
        let mut to = Outflow { sender, piece: Vec::with_capacity(PIECE_BYTES) };
        let packed = workspace.pack(&path, &mut to).map_err(|e| io::Error::other(e.to_string()));
        if let Err(error) = packed.and_then(|_| to.flush()) {
            // Nobody listens any more, or somebody must be told that this is not all.
            let _ = to.sender.blocking_send(Err(error));
        }
    });
    let body = unfold((pieces, packing), |(mut pieces, packing)| async move {
        let piece = pieces.recv().await?;
        Some((piece, (pieces, packing)))
    });
    let headers = [(CONTENT_TYPE, "application/x-tar")];
    Ok((headers, Extension(Streamed), Body::from_stream(body)).into_response())
}

/// Sends what is written, in pieces.
struct Outflow {
    sender: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

impl Write for Outflow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::take(&mut self.piece);
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.sender.blocking_send(Ok(piece.into())).map_err(gone)
    }
}
