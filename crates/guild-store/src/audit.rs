//! The audit log: who did what, and when. An entry is written in the transaction of what it tells about, stored
//! once, and streamed to whoever follows.

use guild_protocol::env::UnixMs;
use guild_protocol::id::EntryId;
use guild_protocol::json;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::event::{self, Appended, NewEvent};
use crate::outbox::{self, NewMessage};
use crate::tx::{Rx, Tx};
use crate::{Error, Result};

/// The topic of the entries in the event table, and of the bell that tells of them.
pub const TOPIC: &str = "audit";

/// The sink that turns a message into a bell for other parts of the node.
pub const BELL_SINK: &str = "bus";

const SCHEMA_VERSION: &str = "guild.audit_entry.v1";
const NAME_MAX_BYTES: usize = 200;
const DETAIL_MAX_BYTES: usize = 64 * 1024;

/// An entry to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEntry {
    /// Chosen by the writer: writing it again is the same entry.
    pub entry_id: EntryId,
    /// Who did it: an npub, or the name of a part of the node.
    pub actor: String,
    /// What was done: `area.verb`, as `key.created`.
    pub action: String,
    /// What it was done to, if anything.
    pub subject: Option<String>,
    /// Whatever else a reader needs. Never a secret.
    pub detail: Map<String, Value>,
}

/// An entry as it was stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its place in the log.
    pub seq: i64,
    /// Chosen by the writer.
    pub entry_id: EntryId,
    /// When it was stored.
    pub at_ms: UnixMs,
    /// Who did it.
    pub actor: String,
    /// What was done.
    pub action: String,
    /// What it was done to.
    pub subject: Option<String>,
    /// Whatever else a reader needs.
    pub detail: Map<String, Value>,
}

/// The part of an entry that is the body of its event row.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    schema_version: String,
    actor: String,
    subject: Option<String>,
    detail: Map<String, Value>,
}

#[derive(Serialize)]
struct BellBody<'a> {
    topic: &'a str,
    after: i64,
}

/// Writes an entry: the event row, and the message that becomes the bell.
pub fn append(tx: &mut Tx<'_>, entry: &NewEntry, now_ms: UnixMs) -> Result<Appended> {
    let body = body_of(entry)?;
    let appended = event::append(
        tx,
        &NewEvent {
            topic: TOPIC,
            id: entry.entry_id.as_str(),
            kind: &entry.action,
            at_ms: now_ms,
            body: &body,
        },
    )?;
    if let Appended::New(seq) = appended {
        let bell = canonical(&BellBody { topic: TOPIC, after: seq.saturating_sub(1) })?;
        let message = NewMessage {
            sink: BELL_SINK,
            key: TOPIC,
            idempotency_key: entry.entry_id.as_str(),
            body: &bell,
        };
        outbox::enqueue(tx, &message, now_ms)?;
    }
    Ok(appended)
}

/// Up to `limit` entries after number `after`, in order.
pub fn after(rx: &mut Rx<'_>, after: i64, limit: i64) -> Result<Vec<Entry>> {
    event::after(rx, TOPIC, after, limit)?.into_iter().map(entry_of).collect()
}

fn entry_of(event: event::Event) -> Result<Entry> {
    let wrong = |e: guild_protocol::Error| Error::Decode(format!("audit entry {}: {e}", event.seq));
    let body: Body = json::decode(event.body.as_bytes()).map_err(wrong)?;
    if body.schema_version != SCHEMA_VERSION {
        let message = format!("audit entry {} has version {:?}", event.seq, body.schema_version);
        return Err(Error::Decode(message));
    }
    Ok(Entry {
        seq: event.seq,
        entry_id: event.id.parse().map_err(wrong)?,
        at_ms: event.at_ms,
        actor: body.actor,
        action: event.kind,
        subject: body.subject,
        detail: body.detail,
    })
}

fn body_of(entry: &NewEntry) -> Result<String> {
    check_name("actor", &entry.actor)?;
    check_action(&entry.action)?;
    if let Some(subject) = &entry.subject {
        check_name("subject", subject)?;
    }
    let body = canonical(&Body {
        schema_version: SCHEMA_VERSION.to_owned(),
        actor: entry.actor.clone(),
        subject: entry.subject.clone(),
        detail: entry.detail.clone(),
    })?;
    if body.len() > DETAIL_MAX_BYTES {
        return malformed("detail", format!("an entry has at most {DETAIL_MAX_BYTES} bytes"));
    }
    // What cannot be read back would stop every reader at this entry for ever: too deep a nesting, for one.
    match json::decode::<Body>(body.as_bytes()) {
        Ok(_) => Ok(body),
        Err(error) => malformed("detail", format!("could not be read back: {}", error.message())),
    }
}

fn check_name(field: &'static str, name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_MAX_BYTES || name.chars().any(char::is_control) {
        return malformed(
            field,
            format!("must be 1 to {NAME_MAX_BYTES} bytes without control characters"),
        );
    }
    Ok(())
}

fn check_action(action: &str) -> Result<()> {
    let word = |w: &str| {
        !w.is_empty()
            && w.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    match action.split_once('.') {
        Some((area, verb)) if word(area) && word(verb) && action.len() <= NAME_MAX_BYTES => Ok(()),
        _ => malformed("action", "must be area.verb in lower-case letters, digits and underscores"),
    }
}

fn malformed<T>(field: &'static str, message: impl Into<String>) -> Result<T> {
    Err(Error::EntryMalformed { field, message: message.into() })
}

fn canonical<T: Serialize>(value: &T) -> Result<String> {
    let wrong = |message: String| Error::EntryMalformed { field: "detail", message };
    let bytes = json::to_canonical(value).map_err(|e| wrong(e.to_string()))?;
    String::from_utf8(bytes).map_err(|e| wrong(e.to_string()))
}
