//! One question and its answer over HTTP, with an end to every wait and to every answer.
//!
//! The connection is part of the future that asks, so that nothing runs beside it, and nothing is left when it is
//! dropped. It is used once: a model thinks longer than a connection takes.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;

use futures_util::future::{Either, select};
use guild_protocol::env::Clock;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, Connection};
use hyper::header::{ACCEPT, CONNECTION, CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;

use super::Failure;
use super::dial::{Address, Line};
use super::endpoint::Limits;
use super::wire::Ask;

/// What is read of an answer that says no.
const REFUSAL_MAX_BYTES: usize = 64 * 1024;

/// How questions are sent.
#[derive(Clone)]
pub(super) struct Exchange {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) limits: Limits,
}

/// An answer that has begun.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Incoming,
    line: Driven,
    exchange: Exchange,
    bytes: usize,
}

impl Exchange {
    /// Sends a question, and waits until the answer begins.
    pub(super) async fn send(&self, address: &Address, ask: Ask) -> Result<Answer, Failure> {
        let request = request(address, ask)?;
        let Limits { connect_timeout_ms, first_timeout_ms, .. } = self.limits;
        let connecting = |error: &dyn std::error::Error| unasked(lost("connecting failed", error));
        let line = self.within(connect_timeout_ms, "connect", address.dial()).await;
        let line = line.map_err(unasked)?.map_err(|error| connecting(&error))?;
        let handshake = http1::handshake::<_, Full<Bytes>>(TokioIo::new(line)).await;
        let (mut sender, connection) = handshake.map_err(|error| connecting(&error))?;
        let mut line = Driven(Some(Box::pin(connection)));
        let response = line.with(sender.send_request(request));
        let response = self.within(first_timeout_ms, "begin to answer", response).await?;
        let response = response.map_err(|error| lost("the question was not answered", &error))?;
        let (head, body) = response.into_parts();
        let (status, headers) = (head.status, head.headers);
        Ok(Answer { status, headers, body, line, exchange: self.clone(), bytes: 0 })
    }

    async fn within<T>(
        &self,
        timeout_ms: i64,
        what: &str,
        future: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        match select(pin!(future), self.clock.sleep(timeout_ms)).await {
            Either::Left((value, _)) => Ok(value),
            Either::Right(_) => {
                let message = format!("it did not {what} within {timeout_ms} ms");
                Err(Failure::Busy { message, retry_after_ms: None, cost_unknown: true })
            }
        }
    }
}

impl Answer {
    /// The next bytes, or none if that was all.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let idle_ms = self.exchange.limits.idle_timeout_ms;
            let frame = self.line.with(self.body.frame());
            let frame = self.exchange.within(idle_ms, "go on", frame).await?;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|error| lost("the answer was cut off", &error))?;
            let Ok(bytes) = frame.into_data() else { continue };
            self.bytes = self.bytes.saturating_add(bytes.len());
            let max = self.exchange.limits.answer_max_bytes;
            if self.bytes > max {
                return Err(Failure::Garbled(format!("the answer is longer than {max} bytes")));
            }
            return Ok(Some(bytes));
        }
    }

    /// What an answer that says no says: as much of it as comes.
    pub(super) async fn refusal(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        while let Ok(Some(bytes)) = self.next().await {
            body.extend_from_slice(&bytes);
            if body.len() > REFUSAL_MAX_BYTES {
                body.truncate(REFUSAL_MAX_BYTES);
                break;
            }
        }
        body
    }
}

fn request(address: &Address, ask: Ask) -> Result<Request<Full<Bytes>>, Failure> {
    let mut request = Request::post(format!("{}{}", address.path, ask.path))
        .header(HOST, &address.authority)
        .header(USER_AGENT, concat!("guild/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, "text/event-stream, application/x-ndjson, application/json")
        .header(CONTENT_TYPE, "application/json")
        .header(CONNECTION, "close");
    for (name, value) in ask.headers {
        request = request.header(name, value);
    }
    // Whatever does not fit into a line was refused when the endpoint was set up.
    let request = request.body(Full::new(Bytes::from(ask.body.to_string())));
    request.map_err(|error| Failure::Refused(format!("the question cannot be sent: {error}")))
}

/// Nothing was asked yet: nothing was paid.
fn unasked(failure: Failure) -> Failure {
    match failure {
        Failure::Busy { message, retry_after_ms, .. } => {
            Failure::Busy { message, retry_after_ms, cost_unknown: false }
        }
        other => other,
    }
}

/// A broken line may be whole the next time.
fn lost(what: &str, error: &dyn std::error::Error) -> Failure {
    let mut message = format!("{what}: {error}");
    if let Some(source) = error.source() {
        message.push_str(&format!(": {source}"));
    }
    Failure::Busy { message, retry_after_ms: None, cost_unknown: true }
}

/// A connection that goes on while something is awaited.
struct Driven(Option<Pin<Box<Wire>>>);

type Wire = Connection<TokioIo<Line>, Full<Bytes>>;

impl Driven {
    async fn with<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        std::future::poll_fn(|cx| {
            // How it ends is told to whoever waits for the answer.
            if self.0.as_mut().is_some_and(|line| line.as_mut().poll(cx).is_ready()) {
                self.0 = None;
            }
            future.as_mut().poll(cx)
        })
        .await
    }
}
