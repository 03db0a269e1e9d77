//! What the database is asked for a client: one question of a connection at a time, and few of all.

use std::collections::BTreeSet;
use std::sync::Arc;

use guild_protocol::env::BoxFuture;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Event, EventId, Filter, unix_s};
use guild_store::Rx;

use super::session::{Answer, refused};
use super::{Options, Shared, auth};
use crate::archive::{self, Budget};
use crate::code;

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
                    let stored = ask(&shared, move |rx| {
                        let may_see =
                            |event: &Event| auth::may_see(event, &proven, &options.private_kinds);
                        archive::query_within(rx, &filters, options.budget(), now_s, &may_see)
                    });
                    let stored = stored.await;
                    Reply::Stored(number, stored.map(|stored| Answer { stored, passed_on }))
                }
                Question::Count { sub, filters } => {
                    let most = options.sync_max_events;
                    let found = ask(&shared, move |rx| {
                        let may_see = |event: &Event| is_public(&options, event);
                        archive::ids_within(rx, &filters, options.sync_budget(), now_s, &may_see)
                    });
                    let found = found.await.and_then(|found| {
                        if found.len() <= most {
                            return Ok(found.len() as u64);
                        }
                        refused("wide");
                        Err(format!("blocked: more than {most} events; ask for fewer at once"))
                    });
                    Reply::Count(sub, found)
                }
                Question::Sync { sub, filter, message } => {
                    let events = ask(&shared, move |rx| {
                        let (budget, filters) =
                            (options.sync_budget(), std::slice::from_ref(&*filter));
                        let may_see = |event: &Event| is_public(&options, event);
                        archive::ids_within(rx, filters, budget, now_s, &may_see)
                    });
                    Reply::Sync { sub, message, events: events.await }
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
        if error.code() == &code::TOO_WIDE {
            refused("wide");
            // Not for ever: what is stored changes, and so does the page that is asked for.
            return format!("error: {error}; name authors, kinds, tags or a time");
        }
        refused("database");
        tracing::warn!(%error, "a client's question was not answered");
        format!("error: {} happened; try again later", error.code().name)
    })
}

impl Options {
    fn budget(&self) -> Budget {
        Budget { events: self.limit_max, bytes: self.answer_max_bytes, visits: self.visits_max }
    }

    /// Every event that is reconciled or counted has to be read, and one more to see that there are too many.
    fn sync_budget(&self) -> Budget {
        let events = self.sync_max_events.saturating_add(1);
        Budget { events, bytes: self.sync_max_bytes, visits: self.visits_max }
    }
}

/// Whether everybody may see an event.
fn is_public(options: &Options, event: &Event) -> bool {
    !options.private_kinds.contains(&event.kind)
}
