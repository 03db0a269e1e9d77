//! What changes on the first page of whoever looks, as it happens.

use futures_util::future::{Either, select};
use guild_bus::Listener;
use guild_protocol::env::UnixMs;
use guild_store::event::{self, Event};
use serde_json::Value;

use crate::event::TOPIC;
use crate::{Error, Result};

use super::{Desk, Overview, Viewer};

/// How many events are read at once.
const READ_MAX: i64 = 100;
/// So often it is looked without an event: minutes are paid, and sandboxes used, without any.
const SWEEP_MS: i64 = 15_000;
/// However much happens, the page is read no more often than this.
const PAUSE_MS: i64 = 500;

/// Follows the first page of somebody.
pub struct Follower {
    desk: Desk,
    viewer: Viewer,
    listener: Listener,
    /// The last event that was read.
    after: i64,
    /// The page as it was at the beginning, until it is told.
    first: Option<Overview>,
    /// Whose it is; everybody's, if there is no name.
    user_id: Option<String>,
    mark: String,
    /// Whether something has happened that is not told.
    due: bool,
    looked_ms: UnixMs,
}

impl Desk {
    /// Follows the first page. Whoever may not look at it is told so now.
    pub async fn follow(&self, viewer: Viewer) -> Result<Follower> {
        // Listening begins before the first read, so nothing falls between the two.
        let listener = self.0.bus.listen(TOPIC);
        let last = self.0.store.read::<i64, Error, _>(|rx| Ok(event::last(rx, TOPIC)?)).await?;
        let overview = self.overview(&viewer, None).await?;
        Ok(Follower {
            desk: self.clone(),
            viewer,
            listener,
            after: last,
            user_id: overview.user_id.clone(),
            mark: overview.mark(),
            first: Some(overview),
            due: false,
            looked_ms: self.now_ms(),
        })
    }
}

impl Follower {
    /// The page as it is, then again whenever something in it has changed. A bell only shortens the wait. Whoever stops
    /// waiting misses nothing.
    pub async fn next(&mut self) -> Result<Overview> {
        if let Some(first) = self.first.take() {
            return Ok(first);
        }
        loop {
            self.read_on().await?;
            let since_ms = self.desk.now_ms().saturating_sub(self.looked_ms).max(0);
            let every_ms = if self.due { PAUSE_MS } else { SWEEP_MS };
            if since_ms < every_ms {
                let wait = self.desk.0.clock.sleep(every_ms.saturating_sub(since_ms));
                if let Either::Left(_) = select(self.listener.hear(), wait).await {
                    continue;
                }
            }
            let overview = self.desk.overview(&self.viewer, None).await?;
            (self.due, self.looked_ms) = (false, self.desk.now_ms());
            let mark = overview.mark();
            if mark != self.mark {
                self.mark = mark;
                return Ok(overview);
            }
        }
    }

    /// Reads all events that are new, and notes whether one is about whoever looks.
    async fn read_on(&mut self) -> Result<()> {
        loop {
            let after = self.after;
            let read = self.desk.0.store.read::<Vec<Event>, Error, _>(move |rx| {
                Ok(event::after(rx, TOPIC, after, READ_MAX)?)
            });
            let events = read.await?;
            let Some(last) = events.last() else { return Ok(()) };
            self.after = last.seq;
            self.due |= events.iter().any(|event| is_about(event, self.user_id.as_deref()));
        }
    }
}

/// Whether an event is about this user; one that names nobody is about everybody.
fn is_about(event: &Event, user_id: Option<&str>) -> bool {
    let body: Option<Value> = serde_json::from_str(&event.body).ok();
    let named = body.as_ref().and_then(|body| body["user_id"].as_str());
    named.is_none() || user_id.is_none() || named == user_id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_about_whom_it_names() {
        let event = |body: &str| Event {
            seq: 1,
            id: "a".to_owned(),
            kind: "job.running".to_owned(),
            at_ms: 0,
            body: body.to_owned(),
        };
        let ours = event(r#"{"user_id":"nostr:1"}"#);
        assert!(is_about(&ours, Some("nostr:1")) && !is_about(&ours, Some("nostr:2")));
        assert!(is_about(&ours, None), "whoever sees everything");
        assert!(is_about(&event("{}"), Some("nostr:2")) && is_about(&event("?"), Some("nostr:2")));
    }
}
