//! Commands: each was queued with the call that it makes, and none without. And what is sent or asked never says in its
//! payload who acts: that stands in headers, where it is checked.

use guild_bus::mail::CONTROL_FIELDS;
use guild_store::{Rx, args};
use serde_json::{Map, Value};

use super::Report;
use crate::Result;

/// Calls without a message in the outbox whose cards may name somebody elsewhere. What a model wrote can look the same,
/// so the card itself is asked. A message that may have been forgotten is not missed.
const NOT_QUEUED: &str = "SELECT e.correlation_id, c.content FROM execution_edges AS e
    JOIN cards AS c ON c.tool_call_id = e.correlation_id AND c.type = 'tool.call'
    LEFT JOIN outbox AS o ON o.sink IN ('tool', 'pmo') AND o.idempotency_key = e.correlation_id
    WHERE e.primitive = 'tool_call' AND e.edge_phase = 'request' AND o.seq IS NULL
      AND c.content LIKE '%\"target_subject\":\"cmd.%' AND e.created_ms >= coalesce(
        (SELECT max(f.before_ms) FROM outbox_forgotten AS f WHERE f.sink IN ('tool', 'pmo')), 0)
    ORDER BY e.correlation_id LIMIT 1000";

/// Messages that make calls which were never written down.
const NOT_CALLED: &str = "SELECT o.idempotency_key FROM outbox AS o
    LEFT JOIN execution_edges AS e ON e.correlation_id = o.idempotency_key
      AND e.primitive = 'tool_call' AND e.edge_phase = 'request'
    WHERE o.sink IN ('tool', 'pmo') AND substr(o.idempotency_key, 1, 5) = 'call_'
      AND e.edge_id IS NULL LIMIT 50";

/// What leaves, by its place.
const COMMANDS: &str = "SELECT seq, idempotency_key, body FROM outbox
    WHERE sink IN ('tool', 'pmo') AND seq > $1 ORDER BY seq LIMIT 1000";
/// What was asked, by its place. What could not be read is in error already.
const MESSAGES: &str = "SELECT seq, inbox_id, payload FROM agent_inbox
    WHERE seq > $1 AND status <> 'error' ORDER BY seq LIMIT 1000";

/// A field of control at the top of a payload.
fn control_field(payload: &Map<String, Value>) -> Option<&'static str> {
    CONTROL_FIELDS.into_iter().find(|field| payload.contains_key(*field))
}

/// Goes through all payloads, a page at a time.
fn look_at_payloads(
    rx: &mut Rx<'_>,
    sql: &'static str,
    payload: impl Fn(Map<String, Value>) -> Option<Map<String, Value>>,
    report: &mut Report,
) -> Result<()> {
    let mut after = 0;
    loop {
        let page: Vec<(i64, String, String)> = rx.all(sql, args![after])?;
        let Some((last, ..)) = page.last() else { return Ok(()) };
        after = *last;
        for (_, name, text) in &page {
            // What cannot be read at all is put aside by whoever reads it.
            let said: Option<Map<String, Value>> = serde_json::from_str(text).ok();
            if let Some(field) = said.and_then(&payload).as_ref().and_then(control_field) {
                report.problem(format!("{name} says {field} in its payload"));
            }
        }
    }
}

pub(super) fn look(rx: &mut Rx<'_>, report: &mut Report) -> Result<()> {
    let calls: Vec<(String, String)> = rx.all(NOT_QUEUED, args![])?;
    for (call, content) in calls {
        let content: Value = serde_json::from_str(&content).unwrap_or_default();
        if content.get("target_subject").is_some_and(Value::is_string) {
            report.problem(format!("{call} is called, and its command was never queued"));
        }
    }
    let messages: Vec<(String,)> = rx.all(NOT_CALLED, args![])?;
    for (call,) in messages {
        report.problem(format!("{call} has a command, and was never called"));
    }
    let of_command = |mut body: Map<String, Value>| match body.remove("payload") {
        Some(Value::Object(payload)) => Some(payload),
        _ => None,
    };
    look_at_payloads(rx, COMMANDS, of_command, report)?;
    look_at_payloads(rx, MESSAGES, Some, report)
}
