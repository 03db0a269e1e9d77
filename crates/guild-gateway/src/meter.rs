//! Numbers about the gateway itself, and all numbers as Prometheus reads them.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, Method};
use axum::middleware::Next;
use axum::response::Response;

use crate::{Error, Result, Shared};

/// Writes all numbers of the process as text. The recorder behind it is the binary's.
pub type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// How long answers took to begin, in milliseconds.
pub const REQUEST_MS: &str = "http_request_ms";
const REQUESTS: &str = "http_requests_total";
const STREAMS: &str = "http_streams_open";
const CONNECTIONS: &str = "http_connections_open";
const DROPPED: &str = "http_connections_dropped_total";

/// Counts requests by route, never by path: there are as many paths as strangers like.
pub(crate) async fn count(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.map_or_else(|| "none".to_owned(), |path| path.as_str().to_owned());
    let method = known(request.method());
    let began_ms = shared.clock.now_ms();
    let response = next.run(request).await;
    // A clock that was set back meanwhile took no time.
    let took_ms = shared.clock.now_ms().saturating_sub(began_ms).max(0);
    let took_ms = i32::try_from(took_ms).unwrap_or(i32::MAX);
    let status = response.status().as_str().to_owned();
    metrics::counter!(REQUESTS, "route" => route.clone(), "method" => method, "status" => status)
        .increment(1);
    metrics::histogram!(REQUEST_MS, "route" => route).record(f64::from(took_ms));
    response
}

fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "other",
    }
}

/// So many connections are open now.
pub(crate) fn connections(count: usize) {
    metrics::gauge!(CONNECTIONS).set(count as f64);
}

/// A connection was ended from this side: its address has too many (`connections_of_address`), no whole request came
/// (`no_request`), or nothing moved on it any more (`idle`).
pub(crate) fn dropped(why: &'static str) {
    metrics::counter!(DROPPED, "why" => why).increment(1);
}

/// One open stream, counted for as long as it lives.
pub(crate) struct OpenStream;

impl OpenStream {
    pub(crate) fn new() -> OpenStream {
        metrics::gauge!(STREAMS).increment(1.0);
        OpenStream
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        metrics::gauge!(STREAMS).decrement(1.0);
    }
}

pub(crate) async fn metrics(
    State(shared): State<Shared>,
) -> Result<([(HeaderName, &'static str); 1], String)> {
    let render = shared.metrics.as_ref().ok_or_else(|| Error::NoSuchPath("/metrics".to_owned()))?;
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], render()))
}
