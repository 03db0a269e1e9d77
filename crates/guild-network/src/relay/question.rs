//! What the database is asked for a client: one question of a connection at a time, and few of all.

use std::collections::BTreeSet;
use std::sync::Arc;

use guild_protocol::env::BoxFuture;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Event, EventId, Filter, Limits, unix_s};
use guild_store::Rx;

use super::session::{Answer, refused};
use super::{Options, Shared, auth};
use crate::archive::{self, Stored};

/// A question.
#[derive(Debug)]
pub(super) enum Question {
    /// What is stored, for a subscription.
    Stored { number: u64, filters: Vec<Filter>, passed_on: i64, proven: BTreeSet<PublicKey> },
    /// How many there are.
    Count { sub: String, filters: Vec<Filter> },
    /// What there is, to reconcile.
    Sync { sub: String, filter: Box<Filter>, message: String },
}

/// Its answer.
pub(super) enum Reply {
    Stored(u64, Result<Answer, String>),
    Count(String, Result<u64, String>),
    Sync { sub: String, message: String, events: Result<Vec<(u64, EventId)>, String> },
}

impl Question {
    /// Whether it is about this subscription.
    pub(super) fn is_of(&self, subscription: u64) -> bool {
        matches!(self, Question::Stored { number, .. } if *number == subscription)
    }

    /// Asks, when it is its turn.
    pub(super) fn ask(self, shared: &Arc<Shared>) -> BoxFuture<Reply> {
        let shared = shared.clone();
        Box::pin(async move {
            // The semaphore is never closed.
            let _turn = shared.turns.acquire().await;
            let (options, now_s) = (shared.options.clone(), unix_s(shared.clock.now_ms()));
            match self {
                Question::Stored { number, filters, passed_on, proven } => {
                    let read = move |rx: &mut Rx<'_>| stored(rx, &filters, &proven, &options, now_s);
                    let stored = ask(&shared, read).await;
                    Reply::Stored(number, stored.map(|stored| Answer { stored, passed_on }))
                }
                Question::Count { sub, filters } => {
                    let read = move |rx: &mut Rx<'_>| count(rx, &filters, &options, now_s);
                    Reply::Count(sub, ask(&shared, read).await)
                }
                Question::Sync { sub, filter, message } => {
                    let read = move |rx: &mut Rx<'_>| to_sync(rx, &filter, &options, now_s);
                    let events = ask(&shared, read).await;
                    Reply::Sync { sub, message, events }
                }
            }
        })
    }
}

async fn ask<T: Send + 'static>(
    shared: &Shared,
    read: impl Fn(&mut Rx<'_>) -> crate::Result<T> + Send + 'static,
) -> Result<T, String> {
    shared.store.read(read).await.map_err(|error| {
        refused("database");
        tracing::warn!(%error, "a client's question was not answered");
        format!("error: {} happened; try again later", error.code().name)
    })
}

/// The stored events that this client may see, no more of them than it is allowed at once.
fn stored(
    rx: &mut Rx<'_>,
    filters: &[Filter],
    proven: &BTreeSet<PublicKey>,
    options: &Options,
    now_s: u64,
) -> crate::Result<Vec<Stored>> {
    let mut stored =
        archive::query(rx, filters, options.limit_max, options.answer_max_bytes, now_s)?;
    if filters.iter().any(|filter| auth::touches(filter, &options.private_kinds)) {
        stored.retain(|stored| {
            // What is stored has been read within limits once; what cannot be read is not shown.
            Event::parse(stored.json.as_bytes(), &Limits::DEFAULT)
                .is_ok_and(|event| auth::may_see(&event, proven, &options.private_kinds))
        });
    }
    Ok(stored)
}

/// How many there are, without those that are private.
fn count(rx: &mut Rx<'_>, filters: &[Filter], options: &Options, now_s: u64) -> crate::Result<u64> {
    let all = archive::count(rx, filters, now_s)?;
    let part = |filter| auth::private_part(filter, &options.private_kinds);
    let private: Vec<Filter> =
        filters.iter().map(part).filter(|filter| !filter.is_empty()).collect();
    if private.is_empty() {
        return Ok(all);
    }
    Ok(all.saturating_sub(archive::count(rx, &private, now_s)?))
}

/// Time and id of what there is, without what is private; one more than may be, if there are too many.
fn to_sync(
    rx: &mut Rx<'_>,
    filter: &Filter,
    options: &Options,
    now_s: u64,
) -> crate::Result<Vec<(u64, EventId)>> {
    let found = archive::ids(rx, filter, options.sync_max_events.saturating_add(1), now_s)?;
    let public = found.into_iter().filter(|(_, _, kind)| !options.private_kinds.contains(kind));
    Ok(public.map(|(created_at, id, _)| (created_at, id)).collect())
}
