//! The audit log as its users see it: append, read, follow.

use std::sync::Arc;

use futures_util::future::select;
use guild_bus::subject::Topic;
use guild_bus::{Bus, Listener};
use guild_protocol::env::{Clock, Random};
use guild_protocol::id::EntryId;
use guild_store::audit::{self, NewEntry};
use guild_store::event;
use guild_store::outbox::{Deliver, Failure, Message};
use serde_json::{Map, Value};

use crate::Result;
use crate::turn::Turns;

pub use guild_store::audit::Entry;

/// How the log is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How many entries are read at once.
    pub page_max: i64,
    /// How often a follower looks without a bell.
    pub sweep_ms: i64,
}

impl Default for Options {
    fn default() -> Options {
        Options { page_max: 500, sweep_ms: 1_000 }
    }
}

/// The handle of the audit log.
#[derive(Clone)]
pub struct AuditLog {
    options: Options,
    turns: Turns,
    bus: Arc<dyn Bus>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

/// What somebody wants to have written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Given by a caller that may repeat itself; otherwise made here.
    pub entry_id: Option<EntryId>,
    /// Who did it.
    pub actor: String,
    /// What was done: `area.verb`.
    pub action: String,
    /// What it was done to.
    pub subject: Option<String>,
    /// Whatever else a reader needs.
    pub detail: Map<String, Value>,
}

impl AuditLog {
    /// The log of the store with these turns, with bells from this bus. Anybody may read it, so it is read in turn.
    pub fn new(
        options: Options,
        turns: Turns,
        bus: Arc<dyn Bus>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> AuditLog {
        AuditLog { options, turns, bus, clock, random }
    }

    /// Writes a note down, once. Answers after the commit, with its id and number.
    pub async fn append(&self, note: Note) -> Result<(EntryId, i64)> {
        let made = || EntryId::make(&*self.clock, &*self.random);
        let entry = NewEntry {
            entry_id: note.entry_id.unwrap_or_else(made),
            actor: note.actor,
            action: note.action,
            subject: note.subject,
            detail: note.detail,
        };
        let (entry_id, now_ms) = (entry.entry_id.clone(), self.clock.now_ms());
        let appended =
            self.turns.store().write(move |tx| audit::append(tx, &entry, now_ms)).await?;
        Ok((entry_id, appended.seq()))
    }

    /// Up to `limit` entries after number `after`, never more than a page.
    pub async fn page(&self, after: i64, limit: i64) -> Result<Vec<Entry>> {
        let limit = limit.clamp(0, self.options.page_max);
        Ok(self.turns.read(move |rx| audit::after(rx, after, limit)).await?)
    }

    /// The number before the last `count` entries.
    pub async fn before_last(&self, count: i64) -> Result<i64> {
        Ok(self.turns.read(move |rx| event::before_last(rx, audit::TOPIC, count)).await?)
    }

    /// Every entry after number `after`, in order, as they come.
    pub fn follow(&self, after: i64) -> Follower {
        // Listening begins before the first read, so nothing falls between the two.
        Follower { listener: self.bus.listen(audit::TOPIC), log: self.clone(), after }
    }
}

/// Follows the log from a number on. Each entry comes once, in order.
pub struct Follower {
    log: AuditLog,
    listener: Listener,
    after: i64,
}

impl Follower {
    /// The next entries; waits until there are any. A bell only shortens the wait.
    pub async fn next(&mut self) -> Result<Vec<Entry>> {
        loop {
            let entries = self.log.page(self.after, self.log.options.page_max).await?;
            if let Some(last) = entries.last() {
                self.after = last.seq;
                return Ok(entries);
            }
            let sleep = self.log.clock.sleep(self.log.options.sweep_ms);
            select(self.listener.hear(), sleep).await;
        }
    }
}

/// The sink behind [`audit::BELL_SINK`]: a message of the outbox becomes a bell on the bus.
pub fn bell_sink(bus: Arc<dyn Bus>) -> Deliver {
    Arc::new(move |message: Message| {
        let rung = ring(&*bus, &message);
        Box::pin(std::future::ready(rung))
    })
}

fn ring(bus: &dyn Bus, message: &Message) -> Result<(), Failure> {
    let body: Value = serde_json::from_str(&message.body)
        .map_err(|e| Failure::Never(format!("the message is not a bell: {e}")))?;
    match (body["topic"].as_str(), body["after"].as_i64()) {
        (Some(topic), Some(after)) => {
            let topic = Topic::parse(topic).map_err(|e| Failure::Never(e.to_string()))?;
            bus.ring(topic.as_str(), after);
            Ok(())
        }
        _ => Err(Failure::Never("a bell has a topic and a number".to_owned())),
    }
}
