//! Commands.

use std::convert::Infallible;
use std::sync::{Arc, PoisonError};

use axum::Extension;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::future::{Either, select};
use futures_util::stream::unfold;
use serde::Deserialize;
use tokio::io::AsyncWriteExt;

use super::super::error::{Error, Result, code};
use super::super::execs::{Command, MAX_FIRST_INPUT_BYTES, Start};
use super::super::once::{self, Taken};
use super::super::output::Reader;
use super::super::wire::{
    ExecId, ExecRequest, ExecStarted, SignalRequest, StdinRequest, StdinTaken,
};
use super::super::{Shared, lock};
use super::Streamed;
use super::body::Sent;
use crate::host::Layer;

/// How many read one command's output.
const MAX_READERS: usize = 16;
/// How much of it is sent at once.
const PIECE_BYTES: usize = 256 << 10;
/// How often a stream of which nothing comes says that it is there.
const KEEP_ALIVE_MS: i64 = 15_000;
/// How long a command that does not read its input is waited for.
const STDIN_WAIT_MS: i64 = 5_000;

pub(super) async fn start(
    State(shared): State<Arc<Shared>>,
    Sent { value: request, hash }: Sent<ExecRequest>,
) -> Result<(StatusCode, Json<ExecStarted>)> {
    shared.require_running()?;
    let first = request.stdin_b64.as_ref().map_or(0, |bytes| bytes.0.len());
    if first > MAX_FIRST_INPUT_BYTES {
        let why =
            format!("{first} bytes are more than {MAX_FIRST_INPUT_BYTES}: send the rest later");
        return Err(Error::bad("stdin_b64", why));
    }
    keep_out_of_argv(&shared, &request)?;
    if !request.needs_secrets.is_empty() && !shared.keeps_apart {
        let why = "without it every command reads the secrets of others".to_owned();
        return Err(crate::Error::LayerMissing { layer: Layer::Landlock, why }.into());
    }
    let given = lock(&shared.vault).give(&request.needs_secrets)?;
    let made = || ExecId::make(&*shared.clock, &*shared.random);
    let id = request.id.clone().unwrap_or_else(made);
    let start = Start {
        id: id.clone(),
        asked: hash,
        request,
        given,
        forms: shared.forms.clone(),
        now_ms: shared.uptime_ms(),
    };
    // All of it or nothing, also if the client goes away meanwhile.
    blocking(move || shared.execs.start(&shared.handle, start)).await?;
    Ok((StatusCode::CREATED, Json(ExecStarted { id })))
}

/// Everybody in the sandbox can read the words of a command: no secret may stand there.
fn keep_out_of_argv(shared: &Shared, request: &ExecRequest) -> Result<()> {
    let forms = shared.forms.read().unwrap_or_else(PoisonError::into_inner);
    let shows = |word: &String| forms.mask(word.as_bytes()) != word.as_bytes();
    match request.argv.iter().any(shows) {
        true => Err(Error::bad("argv", "a secret stands there: ask for it by needs_secrets")),
        false => Ok(()),
    }
}

/// Runs what blocks elsewhere.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let gone = |e: tokio::task::JoinError| Error::from(crate::Error::failed("work", e));
    tokio::task::spawn_blocking(work).await.map_err(gone)?
}

fn command(shared: &Shared, id: Result<Path<String>, PathRejection>) -> Result<Arc<Command>> {
    let Path(id) = id.map_err(|e| Error::bad("id", e.body_text()))?;
    shared.execs.get(&id.parse::<ExecId>().map_err(|e| Error::bad("id", e.message()))?)
}

#[derive(Deserialize)]
pub(super) struct From {
    #[serde(default)]
    from: u64,
}

pub(super) async fn stream(
    State(shared): State<Arc<Shared>>,
    id: Result<Path<String>, PathRejection>,
    query: Result<Query<From>, QueryRejection>,
) -> Result<Response> {
    let command = command(&shared, id)?;
    let Query(From { from }) = query.map_err(|e| Error::bad("from", e.body_text()))?;
    if command.output.is_behind(from) {
        return Err(Error::bad("from", "the command ended before that frame"));
    }
    if Reader::count(&command.output) >= MAX_READERS {
        let why = format!("{MAX_READERS} read this output, which is the limit");
        return Err(Error::new(&code::TOO_MANY, why));
    }
    let reader = Reader::new(command.output.clone(), from, shared.uptime_ms());
    let body = Body::from_stream(unfold((shared, reader), next_lines));
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], Extension(Streamed), body).into_response())
}

type Reading = (Arc<Shared>, Reader);

/// The next lines of a stream; an empty one now and then, so that both ends notice a dead connection.
async fn next_lines((shared, mut reader): Reading) -> Option<(Result<Bytes, Infallible>, Reading)> {
    let mut frames = reader.take(PIECE_BYTES, shared.uptime_ms())?;
    if frames.is_empty() {
        let quiet = shared.clock.sleep(KEEP_ALIVE_MS);
        let over = select(shared.shutdown.triggered(), quiet);
        let has_news = {
            let news = std::pin::pin!(reader.news());
            match select(over, news).await {
                Either::Left((Either::Left(_), _)) => return None,
                Either::Left((Either::Right(_), _)) => false,
                Either::Right(_) => true,
            }
        };
        if has_news {
            frames = reader.take(PIECE_BYTES, shared.uptime_ms())?;
        }
    }
    let mut lines = Vec::new();
    for frame in &frames {
        serde_json::to_writer(&mut lines, frame).ok()?;
        lines.push(b'\n');
    }
    if lines.is_empty() {
        lines.push(b'\n');
    }
    Some((Ok(Bytes::from(lines)), (shared, reader)))
}

pub(super) async fn stdin(
    State(shared): State<Arc<Shared>>,
    id: Result<Path<String>, PathRejection>,
    Sent { value: request, .. }: Sent<StdinRequest>,
) -> Result<Json<StdinTaken>> {
    let command = command(&shared, id)?;
    let name = request.id.as_deref();
    name.map_or(Ok(()), once::check)?;
    let closed = || Error::new(&code::EXEC_ENDED, "the command reads no input");
    // Whoever writes holds it, so what has come under a name does not change meanwhile.
    let mut stdin = command.stdin.lock().await;
    let known = name.map_or_else(Taken::default, |name| *lock(&command.inputs).at(name));
    let data = request.data_b64.0.as_slice();
    let mut rest = match name {
        Some(_) => data.get(once::skip(known, request.from, data.len())?..).unwrap_or_default(),
        None => data,
    };
    if known.closed || (name.is_some() && rest.is_empty() && !request.close) {
        return Ok(Json(StdinTaken { written: data.len(), closed: known.closed }));
    }
    let pipe = stdin.as_mut().ok_or_else(closed)?;
    let waited = {
        let writing = std::pin::pin!(async {
            while !rest.is_empty() {
                let written = pipe.write(rest).await?;
                rest = rest.get(written..).unwrap_or_default();
                // At once: the client may go away while the rest is waited for.
                if let Some(name) = name {
                    let bytes = u64::try_from(data.len() - rest.len()).unwrap_or(u64::MAX);
                    lock(&command.inputs).at(name).bytes = request.from.saturating_add(bytes);
                }
            }
            std::io::Result::Ok(())
        });
        match select(writing, shared.clock.sleep(STDIN_WAIT_MS)).await {
            Either::Left((written, _)) => written,
            Either::Right(_) => Ok(()),
        }
    };
    if waited.is_err() {
        *stdin = None;
        return Err(closed());
    }
    let written = data.len() - rest.len();
    let closed = request.close && rest.is_empty();
    if closed {
        *stdin = None;
        name.into_iter().for_each(|name| lock(&command.inputs).at(name).closed = true);
    }
    Ok(Json(StdinTaken { written, closed }))
}

pub(super) async fn signal(
    State(shared): State<Arc<Shared>>,
    id: Result<Path<String>, PathRejection>,
    Sent { value: request, .. }: Sent<SignalRequest>,
) -> Result<StatusCode> {
    let command = command(&shared, id)?;
    if let Some(name) = &request.id {
        once::check(name)?;
        if std::mem::replace(lock(&command.signals).at(name), true) {
            return Ok(StatusCode::NO_CONTENT);
        }
    }
    let sent = send(&command, request.signal);
    if let (Err(_), Some(name)) = (&sent, &request.id) {
        lock(&command.signals).forget(name);
    }
    sent.map(|()| StatusCode::NO_CONTENT)
}

fn send(command: &Command, signal: i32) -> Result<()> {
    if command.output.is_ended() {
        return Err(Error::new(&code::EXEC_ENDED, "the command has ended"));
    }
    match signal {
        9 => command.handle.kill()?,
        signal => command.handle.signal(signal)?,
    }
    Ok(())
}
