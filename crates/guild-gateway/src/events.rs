//! The audit log as a server-sent stream.
//!
//! Every event has the number of its entry as its id. A client that reconnects sends the last one it saw in
//! `Last-Event-ID`, as browsers do by themselves, and goes on from there without a gap or a repeat.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderName};
use axum::response::Sse;
use axum::response::sse::Event;
use futures_util::future::{Either, select};
use futures_util::stream::{Stream, unfold};
use guild_roles::audit_log::{Entry, Follower};
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;

use crate::log::{bad_query, number};
use crate::{Error, Result, Shared, guard};

static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

#[derive(Deserialize)]
pub(crate) struct StreamQuery {
    after: Option<String>,
    last: Option<String>,
}

pub(crate) async fn events(
    State(shared): State<Shared>,
    query: Result<Query<StreamQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let Query(query) = query.map_err(bad_query)?;
    let after = first_number(&shared, &query, &headers).await?;
    let permit = shared.streams.clone().try_acquire_owned();
    let permit = permit.map_err(|_| Error::TooManyStreams(shared.options.streams_max))?;
    let follower = shared.log.follow(after);
    let feed = Feed { shared, follower, ready: VecDeque::new(), _permit: permit };
    Ok(Sse::new(unfold(feed, Feed::next)))
}

/// Where the stream begins: behind what the client saw, behind what it names, or before the last so many entries.
async fn first_number(shared: &Shared, query: &StreamQuery, headers: &HeaderMap) -> Result<i64> {
    if let Some(seen) = guard::header(headers, &LAST_EVENT_ID) {
        return number("Last-Event-ID", Some(seen), 0);
    }
    match &query.last {
        Some(last) => Ok(shared.log.before_last(number("last", Some(last), 0)?).await?),
        None => number("after", query.after.as_deref(), 0),
    }
}

/// One open stream.
struct Feed {
    shared: Shared,
    follower: Follower,
    ready: VecDeque<Entry>,
    /// Given back when the client is gone.
    _permit: OwnedSemaphorePermit,
}

impl Feed {
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Feed)> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Some((Ok(event(&entry)), self));
            }
            let quiet = self.shared.clock.sleep(self.shared.options.keep_alive_ms);
            let ended = select(self.shared.shutdown.triggered(), quiet);
            let waited = {
                let entries = std::pin::pin!(self.follower.next());
                match select(ended, entries).await {
                    Either::Left((Either::Left(_), _)) => return None,
                    Either::Left((Either::Right(_), _)) => None,
                    Either::Right((entries, _)) => Some(entries),
                }
            };
            match waited {
                None => return Some((Ok(Event::default().comment("still here")), self)),
                Some(Ok(entries)) => self.ready.extend(entries),
                Some(Err(error)) => {
                    // The client reconnects with the last number it saw, so nothing is lost by ending here.
                    tracing::warn!(%error, "a stream ends");
                    return None;
                }
            }
        }
    }
}

fn event(entry: &Entry) -> Event {
    let data = serde_json::to_string(entry).unwrap_or_default();
    Event::default().id(entry.seq.to_string()).event("audit").data(data)
}
