//! Retention: old events are forgotten, a few at a time, and never those that a receipt needs.
//!
//! Nothing is forgotten unless a [`Policy`] names its topic. A pinned event stays for ever: there is no way to unpin,
//! and the schema itself refuses to delete what is pinned. Whoever follows a topic is not disturbed: numbers only grow
//! and are never used again, so a cursor that stands before or among what was forgotten goes on with what is there.
//! Whether it missed something it can see from [`forgotten_up_to`].

use std::sync::Arc;

use futures_util::future::select;
use guild_protocol::env::{Clock, Shutdown, UnixMs};

use crate::pump::Store;
use crate::tx::{Rx, Tx};
use crate::{Column, Error, Result, Sql, args};

/// How long the events of a topic are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The topic.
    pub topic: String,
    /// How old an event may become.
    pub keep_ms: i64,
}

/// Keeps an event for ever, since a receipt names it. Doing it again changes nothing; an event that is not there is
/// refused.
pub fn pin(tx: &mut Tx<'_>, topic: &str, id: &str, pinned_by: &str) -> Result<()> {
    let there: Option<(i64,)> =
        tx.first("SELECT seq FROM event WHERE topic = $1 AND id = $2", args![topic, id])?;
    if there.is_none() {
        return Err(Error::NoSuchEvent(id.to_owned()));
    }
    tx.exec(
        "INSERT INTO event_pin (topic, id, pinned_by) VALUES ($1, $2, $3)
         ON CONFLICT (topic, id, pinned_by) DO NOTHING",
        args![topic, id, pinned_by],
    )?;
    Ok(())
}

/// Events of this topic up to this number may have been forgotten; zero if none ever was. A cursor below it may have
/// missed some.
pub fn forgotten_up_to(rx: &mut Rx<'_>, topic: &str) -> Result<i64> {
    let up_to: Option<(i64,)> =
        rx.first("SELECT up_to_seq FROM event_forgotten WHERE topic = $1", args![topic])?;
    Ok(up_to.map_or(0, |(seq,)| seq))
}

/// How many events one transaction looks at, so that no other write waits long for it.
pub const STEP_MAX: i64 = 500;

/// What one step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// How many events it forgot.
    pub forgotten: u64,
    /// Where the next step begins; nothing, if there is nothing old behind.
    pub next_after: Option<i64>,
}

const FORGET: Sql = Sql {
    lite: "DELETE FROM event WHERE seq = $1",
    pg: "DELETE FROM event WHERE seq = ANY ($1::bigint[])",
};

/// Looks at the next events of a topic behind number `after` and forgets those from before `before_ms` that nobody has
/// pinned. Numbers follow time closely but not exactly, since clocks are set; so it goes on until a whole step finds
/// nothing that is old.
pub fn forget(tx: &mut Tx<'_>, topic: &str, before_ms: UnixMs, after: i64) -> Result<Step> {
    let page: Vec<(i64, i64, i64)> = tx.all(
        "SELECT seq, at_ms, (SELECT count(*) FROM event_pin
           WHERE event_pin.topic = event.topic AND event_pin.id = event.id)
         FROM event WHERE topic = $1 AND seq > $2 ORDER BY seq LIMIT $3",
        args![topic, after, STEP_MAX],
    )?;
    let old = |at_ms: UnixMs| at_ms < before_ms;
    let next_after = page.last().map(|(seq, ..)| *seq);
    let next_after = next_after.filter(|_| page.iter().any(|(_, at_ms, _)| old(*at_ms)));
    let forgotten: Vec<i64> = page
        .into_iter()
        .filter(|(_, at_ms, pins)| old(*at_ms) && *pins == 0)
        .map(|(seq, ..)| seq)
        .collect();
    let Some(last) = forgotten.last() else { return Ok(Step { forgotten: 0, next_after }) };
    let count = tx.exec_set(FORGET, &[Column::Ints(&forgotten)])?;
    tx.exec(
        "INSERT INTO event_forgotten (topic, up_to_seq) VALUES ($1, $2)
         ON CONFLICT (topic) DO UPDATE SET up_to_seq = excluded.up_to_seq
         WHERE event_forgotten.up_to_seq < excluded.up_to_seq",
        args![topic, *last],
    )?;
    Ok(Step { forgotten: count, next_after })
}

/// How often the policies are applied.
const EVERY_MS: i64 = 3_600 * 1_000;

/// The service that applies the policies.
pub struct Keeper {
    policies: Vec<Policy>,
    store: Store,
    clock: Arc<dyn Clock>,
}

impl Keeper {
    /// A keeper of these topics and no others.
    pub fn new(policies: Vec<Policy>, store: Store, clock: Arc<dyn Clock>) -> Result<Keeper> {
        match policies.iter().find(|policy| policy.topic.is_empty() || policy.keep_ms < 1) {
            None => Ok(Keeper { policies, store, clock }),
            Some(policy) => {
                let message = format!("{policy:?}: a policy needs a topic and at least 1 ms");
                Err(Error::BadOptions(message))
            }
        }
    }

    /// Forgets what is old, at once and then every hour, until the shutdown.
    pub async fn run(self, shutdown: Shutdown) {
        let rounds = std::pin::pin!(async {
            loop {
                for policy in &self.policies {
                    self.apply(policy).await;
                }
                self.clock.sleep(EVERY_MS).await;
            }
        });
        select(shutdown.triggered(), rounds).await;
    }

    async fn apply(&self, policy: &Policy) {
        let before_ms = self.clock.now_ms().saturating_sub(policy.keep_ms);
        let (mut after, mut forgotten) = (Some(0), 0);
        while let Some(from) = after {
            let topic = policy.topic.clone();
            match self.store.write(move |tx| forget(tx, &topic, before_ms, from)).await {
                Ok(step) => {
                    (after, forgotten) = (step.next_after, forgotten + step.forgotten);
                }
                Err(error) => {
                    tracing::warn!(topic = policy.topic, %error, "old events could not be forgotten");
                    return;
                }
            }
        }
        if forgotten > 0 {
            tracing::info!(topic = policy.topic, forgotten, "old events are forgotten");
        }
    }
}
