//! The `ReplayBundle` of earlier systems (version 1.0): one JSON file with a timeline, without call ids or hashes.
//!
//! [`import`] makes a replay of it. What the bundle lacks is made up by fixed rules, so the replay is marked
//! `imported` and never counts as evidence. [`export`] makes a bundle of any valid replay, for old viewers.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::check::{Checker, parse};
use super::fields::{SessionStatus, count};
use super::{Event, MAX_BYTES, Output, Standing, Start, Writer, code};
use crate::hash::shorten;
use crate::json::{self, Doc, Limits};
use crate::timestamp::Timestamp;
use crate::wire::text_at;
use crate::{Error, Result};

/// The only version.
pub const BUNDLE_VERSION: &str = "1.0";

/// What stands for the policy, which a bundle does not name.
pub const UNKNOWN_POLICY: &str = "unknown";

const MAX_BUNDLE_BYTES: usize = 64 * 1024 * 1024;
const ID_PREFIX: &str = "replay_";
const TYPE_PREFIX: &str = "bundle.";
/// The runtime event in which an import keeps what has no other place. Without the dot, so that it is no entry's type.
const METADATA: &str = "bundle";

#[derive(Serialize, Deserialize)]
struct Bundle {
    version: String,
    id: String,
    created_at: String,
    #[serde(default)]
    metadata: Value,
    timeline: Vec<Entry>,
    #[serde(default)]
    receipts: Value,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    /// Milliseconds since the session started.
    t: i64,
    r#type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    #[serde(default)]
    data: Value,
}

fn malformed(message: impl Into<String>, place: impl Into<String>) -> Error {
    Error::new(&code::BUNDLE, message).at(place)
}

/// The replay of a bundle.
pub fn import(bytes: &[u8]) -> Result<Vec<u8>> {
    let limits = Limits { max_bytes: MAX_BUNDLE_BYTES, ..Limits::default() };
    let bundle: Bundle = json::decode_within(bytes, limits)?;
    if bundle.version != BUNDLE_VERSION {
        let message = format!("{:?} is not {BUNDLE_VERSION}", shorten(&bundle.version));
        return Err(malformed(message, "version"));
    }
    let created_at = Timestamp::parse_liberal(&bundle.created_at)
        .map_err(|e| malformed(e.message(), "created_at"))?;
    let session_id = bundle.id.strip_prefix(ID_PREFIX).unwrap_or(&bundle.id);
    let start = Start {
        producer: "guild-import@1".to_owned(),
        t: created_at,
        session_id: session_id.to_owned(),
        issue_number: None,
        policy_bundle_id: UNKNOWN_POLICY.to_owned(),
    };
    let mut marks = Map::new();
    marks.insert("imported".to_owned(), true.into());
    marks.insert("imported_from".to_owned(), "ReplayBundle 1.0".into());
    let (writer, file) = Writer::start_marked(&start, marks)?;
    let mut import =
        Import { writer, file, created_at, t: created_at, open: VecDeque::new(), calls: 0, seq: 0 };
    for (number, entry) in bundle.timeline.iter().enumerate() {
        import.entry(entry).map_err(|e| e.within(&format!("timeline[{number}]")))?;
    }
    import.finish(&bundle)
}

struct Import {
    writer: Writer,
    file: Vec<u8>,
    created_at: Timestamp,
    t: Timestamp,
    /// Calls not answered yet, the oldest first.
    open: VecDeque<OpenCall>,
    calls: u32,
    seq: u32,
}

struct OpenCall {
    id: String,
    tool: String,
    t: Timestamp,
}

impl Import {
    fn push(&mut self, event: &Event) -> Result<()> {
        self.file.extend(self.writer.push(self.t, event)?);
        Ok(())
    }

    fn entry(&mut self, entry: &Entry) -> Result<()> {
        let ms = self.created_at.as_ms().checked_add(entry.t);
        let ms = ms.ok_or_else(|| malformed("is out of range", "t"))?;
        self.t = Timestamp::from_ms(ms).map_err(|e| malformed(e.message(), "t"))?;
        match entry.r#type.as_str() {
            "tool_call" => self.call(entry),
            "tool_result" => match self.answered_call(entry.tool.as_deref()) {
                Some(call) => self.result(&call, entry),
                None => self.other(entry),
            },
            _ => self.other(entry),
        }
    }

    fn call(&mut self, entry: &Entry) -> Result<()> {
        self.calls = self.calls.saturating_add(1);
        let id = format!("call_{:06}", self.calls);
        let tool = entry.tool.clone().unwrap_or_else(|| "unknown".to_owned());
        let params = entry.data.clone();
        let event =
            Event::ToolCall { id: id.clone(), tool: tool.clone(), params, step_id: id.clone() };
        self.push(&event)?;
        self.open.push_back(OpenCall { id, tool, t: self.t });
        Ok(())
    }

    /// A result answers the oldest open call of its tool; if it names no tool, the oldest open call.
    fn answered_call(&mut self, tool: Option<&str>) -> Option<OpenCall> {
        let place = match tool {
            Some(tool) => self.open.iter().position(|call| call.tool == tool)?,
            None => 0,
        };
        self.open.remove(place)
    }

    fn result(&mut self, call: &OpenCall, entry: &Entry) -> Result<()> {
        let output = match &entry.data {
            Value::String(text) => Output::Raw(text.clone().into_bytes()),
            other => Output::Json(other.clone()),
        };
        let latency_ms = self.t.as_ms().saturating_sub(call.t.as_ms());
        self.push(&Event::ToolResult {
            id: call.id.clone(),
            output,
            exit_code: None,
            step_utility: 0.0,
            latency_ms: u32::try_from(latency_ms).unwrap_or(u32::MAX),
        })
    }

    fn other(&mut self, entry: &Entry) -> Result<()> {
        let payload = json!({ "tool": entry.tool, "data": entry.data });
        self.runtime_event(format!("{TYPE_PREFIX}{}", entry.r#type), payload)
    }

    fn runtime_event(&mut self, runtime_event_type: String, payload: Value) -> Result<()> {
        self.seq = self.seq.saturating_add(1);
        let seq = self.seq;
        self.push(&Event::RuntimeEvent { seq, runtime_event_type, payload, idempotency_key: None })
    }

    /// A bundle does not say how its session ended: it counts as a success only if its CI passed.
    fn finish(mut self, bundle: &Bundle) -> Result<Vec<u8>> {
        let payload = json!({ "metadata": bundle.metadata, "receipts": bundle.receipts });
        self.runtime_event(METADATA.to_owned(), payload)?;
        let ci_status = bundle.receipts.get("ci_status").and_then(Value::as_str);
        let passed = matches!(ci_status, Some("success" | "passed"));
        let status = if passed && self.open.is_empty() {
            SessionStatus::Success
        } else {
            SessionStatus::Failed
        };
        let end = self.writer.finish(self.t, status, 0.0)?;
        self.file.extend(end.line);
        Ok(self.file)
    }
}

/// The bundle of a replay. Refused if the replay breaks a rule. What a bundle has no place for is left out.
pub fn export(replay: &[u8]) -> Result<Vec<u8>> {
    if replay.len() > MAX_BYTES {
        return Err(Error::new(&code::LIMIT, "the file is longer than 1 GiB"));
    }
    let lines = || replay.split_inclusive(|byte| *byte == b'\n');
    let mut checker = Checker::new();
    lines().try_for_each(|line| checker.line(line))?;
    let report = checker.finish(None)?;
    if report.standing == Standing::Refused
        && let Some(problem) = report.checks.problems().next()
    {
        return Err(problem.clone().into());
    }
    let mut export = Export::default();
    for line in lines().filter(|line| !line.trim_ascii().is_empty()) {
        export.line(&parse(line)?)?;
    }
    let session_id = report.session_id.unwrap_or_default();
    json::to_canonical(&export.bundle(&session_id))
}

#[derive(Default)]
struct Export {
    created_at: String,
    start_ms: Option<i64>,
    last_ms: i64,
    timeline: Vec<Entry>,
    /// The tool of every call, by id.
    tools: std::collections::BTreeMap<String, String>,
    files_changed: u64,
    tests_run: u64,
    tests_passed: u64,
    kept: Value,
}

impl Export {
    fn line(&mut self, doc: &Doc<'_>) -> Result<()> {
        if let Some(t) = text_at(doc, "t") {
            let ms = Timestamp::parse_liberal(t)?.as_ms();
            let start_ms = *self.start_ms.get_or_insert(ms);
            self.last_ms = ms.saturating_sub(start_ms);
        }
        let text = |key| text_at(doc, key).unwrap_or_default().to_owned();
        match text_at(doc, "event").unwrap_or_default() {
            "ReplayHeader" => self.created_at = text("created_at"),
            "PlanStart" => self.add("phase_start", None, json!({ "plan_hash": text("plan_hash") })),
            "StepComplete" => {
                let data = json!({ "step_id": text("step_id"), "status": text("status") });
                self.add("phase_end", None, data);
            }
            "ToolCall" => {
                self.tools.insert(text("id"), text("tool"));
                let params = member(doc, "params")?;
                self.add("tool_call", Some(text("tool")), params);
            }
            "ToolResult" => self.result(doc)?,
            "Verification" => self.verification(doc),
            "RuntimeEvent" => self.runtime_event(doc)?,
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, r#type: &str, tool: Option<String>, data: Value) {
        let entry = Entry { t: self.last_ms, r#type: r#type.to_owned(), tool, data };
        self.timeline.push(entry);
    }

    fn result(&mut self, doc: &Doc<'_>) -> Result<()> {
        let tool = text_at(doc, "id").and_then(|id| self.tools.get(id)).cloned();
        if tool.as_deref().is_some_and(|tool| tool == "Edit" || tool == "Write") {
            self.files_changed = self.files_changed.saturating_add(1);
        }
        let data = json!({
            "output_hash": text_at(doc, "output_hash"), "exit_code": member(doc, "exit_code")?,
            "latency_ms": count(doc, "latency_ms"),
        });
        self.add("tool_result", tool, data);
        Ok(())
    }

    fn verification(&mut self, doc: &Doc<'_>) {
        let Some(Doc::Array(exit_codes)) = doc.get("exit_codes") else { return };
        for exit_code in exit_codes {
            self.tests_run = self.tests_run.saturating_add(1);
            if *exit_code == Doc::Number("0".into()) {
                self.tests_passed = self.tests_passed.saturating_add(1);
            }
        }
    }

    /// What an import kept goes back to where it was.
    fn runtime_event(&mut self, doc: &Doc<'_>) -> Result<()> {
        let event_type = text_at(doc, "runtime_event_type").unwrap_or_default();
        let payload = member(doc, "payload")?;
        if event_type == METADATA {
            self.kept = payload;
        } else if let Some(event_type) = event_type.strip_prefix(TYPE_PREFIX) {
            let tool = payload.get("tool").and_then(Value::as_str).map(str::to_owned);
            let data = payload.get("data").cloned().unwrap_or_default();
            self.add(event_type, tool, data);
        }
        Ok(())
    }

    fn bundle(mut self, session_id: &str) -> Bundle {
        let seconds = self.last_ms.checked_div(1000).unwrap_or(0);
        let mut kept = |key: &str, made: Value| match self.kept.get_mut(key).map(Value::take) {
            Some(value) if !value.is_null() => value,
            _ => made,
        };
        let metadata = kept(
            "metadata",
            json!({
                "duration_seconds": seconds, "playback_speed": 2.0,
                "demo_duration_seconds": seconds.checked_div(2).unwrap_or(0), "model": "unknown",
            }),
        );
        let receipts = kept(
            "receipts",
            json!({
                "tests_run": self.tests_run, "tests_passed": self.tests_passed,
                "files_changed": self.files_changed, "lines_added": 0, "lines_removed": 0,
            }),
        );
        Bundle {
            version: BUNDLE_VERSION.to_owned(),
            id: format!("{ID_PREFIX}{session_id}"),
            created_at: self.created_at,
            metadata,
            timeline: self.timeline,
            receipts,
        }
    }
}

/// A member as a value; null if it is not there.
fn member(doc: &Doc<'_>, key: &str) -> Result<Value> {
    match doc.get(key) {
        Some(value) => json::decode(&value.to_canonical()),
        None => Ok(Value::Null),
    }
}
