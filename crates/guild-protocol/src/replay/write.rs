//! Writing a replay. Pure: the caller gives the time and keeps the bytes.

use serde_json::{Map, Value, json};

use super::check::parse;
use super::fields::{self, SessionStatus};
use super::rules::Rules;
use super::{
    Event, MAX_BYTES, MAX_LINE_BYTES, MAX_LINES, REPLAY_VERSION, TRAJECTORY_HASH_ALG, chain_next,
    chain_start, code, into_members, stamped,
};
use crate::hash::Hash;
use crate::json;
use crate::timestamp::Timestamp;
use crate::wire::Reading;
use crate::{Error, Result};

/// What is known when a session starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The program that writes, as `name@version`.
    pub producer: String,
    /// When.
    pub t: Timestamp,
    /// The session.
    pub session_id: String,
    /// The issue it works on, if it does.
    pub issue_number: Option<i64>,
    /// The policy under which it runs.
    pub policy_bundle_id: String,
}

/// The end of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// The last line.
    pub line: Vec<u8>,
    /// What a receipt repeats.
    pub trajectory_hash: Hash,
}

/// Turns events into lines. Each line is to be made durable before the next is pushed: a file that ends anywhere can
/// then be [repaired](super::repair()).
///
/// ```
/// use guild_protocol::replay::{self, SessionStatus, Start, Writer};
/// use guild_protocol::timestamp::Timestamp;
/// let t = Timestamp::from_ms(0).unwrap();
/// let start = Start {
///     producer: "example@1.0.0".into(), t, session_id: "s".into(), issue_number: None, policy_bundle_id: "p".into(),
/// };
/// let (mut writer, mut file) = Writer::start(&start).unwrap();
/// file.extend(writer.finish(t, SessionStatus::Success, 1.0).unwrap().line);
/// assert_eq!(replay::verify(&file, None).unwrap().standing, replay::Standing::Sealed);
/// ```
#[derive(Debug)]
pub struct Writer {
    rules: Rules,
    chain: Hash,
    lines: u64,
    bytes: usize,
}

impl Writer {
    /// Starts a session: its first two lines.
    pub fn start(start: &Start) -> Result<(Writer, Vec<u8>)> {
        Writer::start_marked(start, Map::new())
    }

    /// As [`Writer::start`], with further members in the header.
    pub(super) fn start_marked(
        start: &Start,
        marks: Map<String, Value>,
    ) -> Result<(Writer, Vec<u8>)> {
        let mut writer =
            Writer { rules: Rules::default(), chain: chain_start(), lines: 0, bytes: 0 };
        let mut header = into_members(json!({
            "event": "ReplayHeader", "replay_version": REPLAY_VERSION, "producer": start.producer,
            "created_at": start.t,
        }));
        header.extend(marks);
        let session = into_members(json!({
            "event": "SessionStart", "session_id": start.session_id,
            "issue_number": start.issue_number, "policy_bundle_id": start.policy_bundle_id,
        }));
        let mut lines = writer.emit(header)?;
        lines.extend(writer.emit(stamped(session, start.t))?);
        Ok((writer, lines))
    }

    /// The line of an event. An event that breaks a rule is refused, and the writer stays as it was.
    pub fn push(&mut self, t: Timestamp, event: &Event) -> Result<Vec<u8>> {
        let session_id = self.rules.session_id.as_deref().unwrap_or_default();
        let members = event.members(session_id)?;
        self.emit(stamped(members, t))
    }

    /// The last line, with the totals and the seal. Nothing can be pushed after it.
    pub fn finish(
        &mut self,
        t: Timestamp,
        status: SessionStatus,
        confidence: f64,
    ) -> Result<Finished> {
        let members = end_members(&self.rules, t, status, confidence);
        let line = self.emit(members)?;
        Ok(Finished { line, trajectory_hash: self.chain })
    }

    fn emit(&mut self, mut members: Map<String, Value>) -> Result<Vec<u8>> {
        let ends = members.get("event") == Some(&Value::from("SessionEnd"));
        if ends {
            members.insert("trajectory_hash_alg".to_owned(), TRAJECTORY_HASH_ALG.into());
        }
        let doc = json::to_doc(&members)?;
        let mut problems = fields::problems(&doc, Reading::Strict);
        problems.extend(self.rules.check(&doc, Reading::Strict));
        if let Some(problem) = problems.into_iter().next() {
            return Err(problem.into());
        }
        let chain = chain_next(&self.chain, &doc.to_canonical());
        members.insert("chain".to_owned(), chain.to_string().into());
        if ends {
            members.insert("trajectory_hash".to_owned(), chain.to_string().into());
        }
        let mut line = json::to_canonical(&members)?;
        // Nothing is written that would not be read: a value may be nested too deeply, or a double such as 1e20,
        // whose canonical text is an integer beyond all readers.
        parse(&line)?;
        line.push(b'\n');
        let bytes = self.bytes.saturating_add(line.len());
        // Room for the last line is kept, so that every session can end.
        let (lines_kept, bytes_kept) = if ends { (0, 0) } else { (1, 4096) };
        if line.len() > MAX_LINE_BYTES
            || self.lines >= MAX_LINES.saturating_sub(lines_kept)
            || bytes > MAX_BYTES.saturating_sub(bytes_kept)
        {
            return Err(Error::new(&code::LIMIT, "the line is beyond the limits of a replay"));
        }
        self.rules.apply(&doc, Reading::Strict);
        self.chain = chain;
        self.lines = self.lines.saturating_add(1);
        self.bytes = bytes;
        Ok(line)
    }
}

/// The members of `SessionEnd`.
pub(super) fn end_members(
    rules: &Rules,
    t: Timestamp,
    status: SessionStatus,
    confidence: f64,
) -> Map<String, Value> {
    let members = json!({
        "event": "SessionEnd", "status": status.as_str(), "confidence": confidence,
        "total_tool_calls": rules.tool_calls, "total_latency_ms": rules.total_latency_ms,
    });
    stamped(into_members(members), t)
}
