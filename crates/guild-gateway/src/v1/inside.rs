//! What is done inside of a sandbox: commands, files, secrets.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures_util::future::{Either, ready, select};
use futures_util::stream;
use guild_hosting::api::{
    Directory, DirectoryQuery, ExecBody, ExecView, FileQuery, FileView, FromQuery, Problem,
    SecretsBody, SecretsView, SignalBody, StdinBody,
};
use guild_hosting::desk::Output;
use guild_protocol::env::{BoxFuture, Clock};
use guild_protocol::hash::Hash;

use super::asked::{Answered, Asked, Caller, Id, Ids, Nothing, Unread, Write};
use super::document::{ExecPath, Idempotent, SandboxPath};
use super::pour::{self, Pour};
use crate::relay::Remote;
use crate::{Error, Result, Shared};

/// So long a reader waits for the first frame before it hears that the command is there.
const QUIET_MS: i64 = 1_000;
/// So often a sandbox is said to be in use while somebody reads a command that prints nothing. An idle limit is at
/// least a minute.
const USED_MS: i64 = 20_000;

/// Starts a command.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox_id}/exec", tag = "inside", request_body(content = ExecBody),
    params(SandboxPath, Idempotent), responses(
    (status = 201, description = "It runs; what it prints is read at `…/exec/{exec_id}`.", body = ExecView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn exec(Id(sandbox_id): Id, write: Write<ExecBody>) -> Result<Answered> {
    Ok(Answered(write.desk.exec(write.sent, &sandbox_id, write.body).await?))
}

/// What a command prints, as it comes: one JSON object a line (`seq`, `stream`, `data_b64`), the last with `exit`. A
/// reader that was cut off asks again from the next number on.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox_id}/exec/{exec_id}", tag = "inside",
    params(ExecPath, FromQuery), responses(
    (status = 200, description = "Its frames.", body = String, content_type = "application/x-ndjson"),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn output(
    State(shared): State<Shared>,
    Caller { desk, token }: Caller,
    Ids(sandbox_id, exec_id): Ids,
    Asked(query): Asked<FromQuery>,
) -> Result<Response> {
    let output = desk.output(token, &sandbox_id, &exec_id, &query).await?;
    let reading = read(output, shared.clock.clone());
    // The first frame before the answer begins: an unknown command is an error, not an empty stream. But a command may
    // print nothing for long, and its reader hears at once that there is one.
    let reading = match select(reading, shared.clock.sleep(QUIET_MS)).await {
        Either::Left(((output, frame), _)) => {
            let frame = frame.map_err(guild_hosting::Error::from)?;
            Box::pin(ready((output, Ok(frame)))) as Reading
        }
        Either::Right((_, reading)) => reading,
    };
    let clock = shared.clock.clone();
    let lines = stream::unfold(Some((reading, clock)), |reading| async move {
        // If it cannot be read any more, the stream breaks off, and its reader asks again.
        let (reading, clock) = reading?;
        let (output, frame) = reading.await;
        let line = serde_json::to_vec(&frame.ok().flatten()?).ok()?;
        // Whoever reads uses the sandbox. It may have ended meanwhile; what it printed is still to be had.
        let _ = output.visit.touch().await;
        let line = [line.as_slice(), b"\n"].concat();
        let next = (read(output, clock.clone()), clock);
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(line)), Some(next)))
    });
    let kind = [(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"))];
    Ok((kind, Body::from_stream(lines)).into_response())
}

/// A frame that is waited for. Never dropped before it has come, so none is lost.
type Reading = BoxFuture<(Output, guild_hosting::api::FrameRead)>;

fn read(mut output: Output, clock: Arc<dyn Clock>) -> Reading {
    Box::pin(async move {
        let Output { frames, visit } = &mut output;
        let mut next = Box::pin(frames.next());
        let frame = loop {
            match select(next, clock.sleep(USED_MS)).await {
                Either::Left((frame, _)) => break frame,
                Either::Right((_, still)) => {
                    let _ = visit.touch().await;
                    next = still;
                }
            }
        };
        (output, frame)
    })
}

/// Writes to a command, and ends its input.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox_id}/exec/{exec_id}/stdin", tag = "inside",
    params(ExecPath, Idempotent), request_body(content = StdinBody), responses(
    (status = 204, description = "It was taken."),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn stdin(
    Ids(sandbox_id, exec_id): Ids,
    write: Write<StdinBody>,
) -> Result<Answered> {
    Ok(Answered(write.desk.stdin(write.sent, &sandbox_id, &exec_id, write.body).await?))
}

/// Sends a command a signal.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox_id}/exec/{exec_id}/signal", tag = "inside",
    params(ExecPath, Idempotent), request_body(content = SignalBody), responses(
    (status = 204, description = "It was sent."),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn signal(
    Ids(sandbox_id, exec_id): Ids,
    write: Write<SignalBody>,
) -> Result<Answered> {
    Ok(Answered(write.desk.signal(write.sent, &sandbox_id, &exec_id, write.body).await?))
}

/// Writes a file, as large as the disk of the sandbox. One of more than 32 MiB says its length and its hash ahead, as
/// `content-digest: sha-256=:<base64>:` (RFC 9530); what is not as it says is not written.
#[utoipa::path(put, path = "/v1/sandboxes/{sandbox_id}/files", tag = "inside",
    params(SandboxPath, FileQuery, Idempotent),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses(
    (status = 200, description = "The file.", body = FileView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn upload(
    State(shared): State<Shared>,
    Unread { desk, mut sent }: Unread,
    Id(sandbox_id): Id,
    Asked(query): Asked<FileQuery>,
    request: Request,
) -> Result<Answered> {
    let remote = request.extensions().get::<ConnectInfo<Remote>>();
    let patient = remote.map(|ConnectInfo(remote)| remote.be_patient());
    let said = pour::digest(request.headers())?;
    let body = request.into_body();
    let length = pour::length(&body);
    let file = (query.path.as_str(), query.executable);
    let mut pour = Pour::new(body, shared.clock.clone(), patient);
    let writer = desk.enter_to_write(sent.token.clone(), &sandbox_id).await?;
    let (Some(hash), Some(length)) = (said, length) else {
        // Refused before it is read, if it says how long it is.
        let held = pour::HELD_MAX_BYTES;
        if length.is_some_and(|length| length > held as u64) {
            return Err(Error::TooLarge(held));
        }
        let bytes = pour.whole(held).await?;
        sent.body_hash = Hash::of(&bytes);
        if said.is_some_and(|said| said != sent.body_hash) {
            return Err(Error::bad("content-digest", "is not that of the body"));
        }
        let (length, mut bytes) = (bytes.len() as u64, bytes.as_slice());
        return Ok(Answered(desk.upload(&writer, &sent, file, &mut bytes, length).await?));
    };
    sent.body_hash = hash;
    let written = desk.upload(&writer, &sent, file, &mut pour, length).await;
    if written.as_ref().is_ok_and(|reply| reply.repeated) {
        // Whoever still sends does not listen yet.
        pour.drain().await;
    }
    match (written, pour.failed()) {
        (Err(_), Some(error)) => Err(error),
        (written, _) => Ok(Answered(written?)),
    }
}

/// A file as it is; also of a sandbox that has stopped, for as long as its files are kept.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox_id}/files", tag = "inside",
    params(SandboxPath, FileQuery), responses(
    (status = 200, description = "The file.", body = Vec<u8>, content_type = "application/octet-stream"),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn download(
    Caller { desk, token }: Caller,
    Id(sandbox_id): Id,
    Asked(query): Asked<FileQuery>,
) -> Result<Response> {
    let file = desk.download(token, &sandbox_id, &query.path).await?;
    let bytes = file.bytes;
    let pieces = stream::unfold(Some(file), |file| async move {
        let mut file = file?;
        match file.piece().await {
            Ok(Some(piece)) => Some((Ok(Bytes::from(piece)), Some(file))),
            Ok(None) => None,
            // An error ends the answer before its end, so nobody takes a part for the whole.
            Err(error) => Some((Err(std::io::Error::other(error.to_string())), None)),
        }
    });
    let kind = [(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))];
    let mut response = (kind, Body::from_stream(pieces)).into_response();
    if let Some(bytes) = bytes {
        response.headers_mut().insert(CONTENT_LENGTH, bytes.into());
    }
    Ok(response)
}

/// Removes a file, or a directory with all that is in it.
#[utoipa::path(delete, path = "/v1/sandboxes/{sandbox_id}/files", tag = "inside",
    params(SandboxPath, FileQuery, Idempotent), responses(
    (status = 204, description = "It is gone."),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn delete(
    Id(sandbox_id): Id,
    Asked(query): Asked<FileQuery>,
    write: Write<Nothing>,
) -> Result<Answered> {
    Ok(Answered(write.desk.delete_file(write.sent, &sandbox_id, &query.path).await?))
}

/// What is in a directory.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox_id}/directory", tag = "inside",
    params(SandboxPath, DirectoryQuery), responses(
    (status = 200, description = "Its entries.", body = Directory),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn directory(
    Caller { desk, token }: Caller,
    Id(sandbox_id): Id,
    Asked(query): Asked<DirectoryQuery>,
) -> Result<Json<Directory>> {
    Ok(Json(desk.directory(token, &sandbox_id, &query.path).await?))
}

/// Releases secrets to a sandbox, once its agent has said that it runs what was bought. Another release replaces them.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox_id}/secrets", tag = "inside",
    params(SandboxPath, Idempotent), request_body(content = SecretsBody),
    responses(
    (status = 200, description = "Their names.", body = SecretsView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn secrets(Id(sandbox_id): Id, write: Write<SecretsBody>) -> Result<Answered> {
    Ok(Answered(write.desk.release_secrets(write.sent, &sandbox_id, write.body).await?))
}
