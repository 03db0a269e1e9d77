//! The audit log and the market as server-sent streams.
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
use guild_roles::{audit_log, explorer, live};
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;

use crate::log::{bad_query, number};
use crate::meter::OpenStream;
use crate::{Error, Result, Shared, guard};

static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

#[derive(Deserialize)]
pub(crate) struct StreamQuery {
    after: Option<String>,
    last: Option<String>,
}

/// The audit log.
pub(crate) async fn events(
    State(shared): State<Shared>,
    query: Result<Query<StreamQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let after = match begin(query, &headers)? {
        Begin::After(after) => after,
        Begin::BeforeLast(count) => shared.log.before_last(count).await?,
    };
    stream(shared.clone(), shared.log.follow(after))
}

/// The market.
pub(crate) async fn market(
    State(shared): State<Shared>,
    query: Result<Query<StreamQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let after = match begin(query, &headers)? {
        Begin::After(after) => after,
        Begin::BeforeLast(count) => shared.explorer.before_last(count).await?,
    };
    stream(shared.clone(), shared.explorer.follow(after))
}

/// Where a stream begins: behind what the client saw, behind what it names, or before the last so many entries.
enum Begin {
    After(i64),
    BeforeLast(i64),
}

fn begin(query: Result<Query<StreamQuery>, QueryRejection>, headers: &HeaderMap) -> Result<Begin> {
    let Query(query) = query.map_err(bad_query)?;
    if let Some(seen) = guard::header(headers, &LAST_EVENT_ID) {
        return number("Last-Event-ID", Some(seen), 0).map(Begin::After);
    }
    match &query.last {
        Some(last) => number("last", Some(last), 0).map(Begin::BeforeLast),
        None => number("after", query.after.as_deref(), 0).map(Begin::After),
    }
}

/// Something that is followed.
pub(crate) trait Follow: Send + 'static {
    /// The next events; waits until there are any.
    fn next(&mut self) -> impl Future<Output = Result<Vec<Event>>> + Send;
}

impl Follow for audit_log::Follower {
    async fn next(&mut self) -> Result<Vec<Event>> {
        let entries = audit_log::Follower::next(self).await?;
        Ok(entries.iter().map(|entry| event("audit", entry.seq, entry)).collect())
    }
}

impl Follow for explorer::Follower {
    async fn next(&mut self) -> Result<Vec<Event>> {
        let happenings = explorer::Follower::next(self).await?;
        Ok(happenings.iter().map(|happening| event("market", happening.seq, happening)).collect())
    }
}

impl Follow for live::Listening {
    async fn next(&mut self) -> Result<Vec<Event>> {
        // Without a number: nobody keeps them, so nobody can go on behind one.
        let event = |heard: &live::Heard| {
            let data = serde_json::to_string(heard).unwrap_or_default();
            Event::default().event("chunk").data(data)
        };
        Ok(live::Listening::next(self).await.iter().map(event).collect())
    }
}

fn event(name: &str, seq: i64, entry: &impl Serialize) -> Event {
    let data = serde_json::to_string(entry).unwrap_or_default();
    Event::default().id(seq.to_string()).event(name).data(data)
}

pub(crate) fn stream<F: Follow>(
    shared: Shared,
    follower: F,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let permit = shared.streams.clone().try_acquire_owned();
    let permit = permit.map_err(|_| Error::TooManyStreams(shared.options.streams_max))?;
    let feed = Feed {
        shared,
        follower,
        ready: VecDeque::new(),
        _permit: permit,
        _open: OpenStream::new(),
    };
    Ok(Sse::new(unfold(feed, Feed::next)))
}

/// One open stream.
struct Feed<F> {
    shared: Shared,
    follower: F,
    ready: VecDeque<Event>,
    /// Given back when the client is gone.
    _permit: OwnedSemaphorePermit,
    _open: OpenStream,
}

impl<F: Follow> Feed<F> {
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Feed<F>)> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some((Ok(event), self));
            }
            let quiet = self.shared.clock.sleep(self.shared.options.keep_alive_ms);
            let ended = select(self.shared.shutdown.triggered(), quiet);
            let waited = {
                let events = std::pin::pin!(self.follower.next());
                match select(ended, events).await {
                    Either::Left((Either::Left(_), _)) => return None,
                    Either::Left((Either::Right(_), _)) => None,
                    Either::Right((events, _)) => Some(events),
                }
            };
            match waited {
                None => return Some((Ok(Event::default().comment("still here")), self)),
                Some(Ok(events)) => self.ready.extend(events),
                Some(Err(error)) => {
                    // The client reconnects with the last number it saw, so nothing is lost by ending here.
                    tracing::warn!(%error, "a stream ends");
                    return None;
                }
            }
        }
    }
}
