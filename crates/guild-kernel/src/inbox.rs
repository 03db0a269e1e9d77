//! The inbox: what was asked of agents, in the order in which it came. A turn is its row of type `turn`.

use std::sync::LazyLock;

use guild_protocol::env::UnixMs;
use guild_store::{Columns, Decode, Rx, Tx, Val, args};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::roster::AfterExecution;
use crate::row::{Cells, Field, Int, Statement, Text, words};
use crate::{
    AgentId, AgentKey, AgentTurnId, BoxId, ChannelId, InboxId, Result, StepId, ToolCallId,
};

words! {
    /// What a row asks for.
    pub MessageType {
        /// A turn.
        Turn = "turn",
        /// A result of a call is there.
        ToolResult = "tool_result",
        /// A call has no result in time.
        Timeout = "timeout",
        /// A turn is to be stopped.
        Stop = "stop",
    }
}

words! {
    /// How far a row is.
    pub InboxStatus {
        /// A turn that waits for its agent.
        Queued = "queued",
        /// Something that waits to be looked at.
        Pending = "pending",
        /// A turn that its agent has begun.
        Processing = "processing",
        /// Something that is looked at later.
        Deferred = "deferred",
        /// Done.
        Consumed = "consumed",
        /// It could not be done.
        Error = "error",
        /// It was not needed any more.
        Skipped = "skipped",
    }
}

words! {
    /// How a turn or a call ended.
    pub Outcome {
        /// As it should.
        Success = "success",
        /// Without what was wanted.
        Failed = "failed",
        /// Because somebody wanted it to end.
        Canceled = "canceled",
        /// Not in time.
        Timeout = "timeout",
        /// With a part of what was wanted.
        Partial = "partial",
    }
}

/// A row of the inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxRow {
    /// Its place in the order in which rows came.
    pub seq: i64,
    /// Its name.
    pub inbox_id: InboxId,
    /// Of whom it is asked.
    pub key: AgentKey,
    /// Where.
    pub channel_id: ChannelId,
    /// What.
    pub message_type: MessageType,
    /// Under this name whoever asks knows it.
    pub correlation_id: String,
    /// The turn that it is, or is about.
    pub agent_turn_id: AgentTurnId,
    /// The agent's epoch when it was last written.
    pub turn_epoch: i64,
    /// The turn that asks.
    pub parent_agent_turn_id: Option<AgentTurnId>,
    /// Who asks, and how deep: JSON.
    pub context_headers: String,
    /// What is asked: JSON.
    pub payload: String,
    /// How far it is.
    pub status: InboxStatus,
    /// How the turn ended: of every turn that is closed, and of nothing else.
    pub outcome: Option<Outcome>,
    /// Why it ended so, as a code.
    pub error_code: Option<String>,
    /// How often it was put off.
    pub retry_count: i64,
    /// When a stop is looked at.
    pub next_retry_ms: Option<UnixMs>,
    /// When it came.
    pub created_ms: UnixMs,
    /// When it was closed.
    pub closed_ms: Option<UnixMs>,
}

/// Who asks for a turn, and how deep.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TurnHeaders {
    pub(crate) recursion_depth: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace_id: Option<String>,
    /// The span under which it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent_traceparent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent_agent_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent_agent_turn_id: Option<AgentTurnId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent_step_id: Option<StepId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answers_tool_call_id: Option<ToolCallId>,
}

/// What a turn works with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TurnPayload {
    pub(crate) profile_name: String,
    pub(crate) context_box_id: BoxId,
    pub(crate) output_box_id: BoxId,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(crate) metadata: Value,
}

/// What a report says. The content is kept only until its card is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportPayload {
    pub(crate) source: String,
    pub(crate) status: String,
    pub(crate) content_hash: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after_execution: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<ReportContent>,
}

impl ReportPayload {
    pub(crate) fn after(&self) -> Option<AfterExecution> {
        self.after_execution.as_deref().and_then(|word| word.parse().ok())
    }
}

/// What a tool answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportContent {
    pub(crate) result: Value,
    pub(crate) error: Value,
}

const FIELDS: [Field; 19] = [
    ("seq", Int),
    ("inbox_id", Text),
    ("project_id", Text),
    ("agent_id", Text),
    ("channel_id", Text),
    ("message_type", Text),
    ("correlation_id", Text),
    ("agent_turn_id", Text),
    ("turn_epoch", Int),
    ("parent_agent_turn_id", Text),
    ("context_headers", Text),
    ("payload", Text),
    ("status", Text),
    ("outcome", Text),
    ("error_code", Text),
    ("retry_count", Int),
    ("next_retry_ms", Int),
    ("created_ms", Int),
    ("closed_ms", Int),
];

/// How many queued turns of an agent are read at once: the first is nearly always fit.
pub(crate) const QUEUED_AT_ONCE: usize = 4;

static INSERT: LazyLock<Statement> = LazyLock::new(|| Statement::insert("agent_inbox", &FIELDS));
static CHANGE: LazyLock<Statement> = LazyLock::new(|| {
    let set = [
        ("status", Text),
        ("outcome", Text),
        ("error_code", Text),
        ("turn_epoch", Int),
        ("next_retry_ms", Int),
        ("closed_ms", Int),
    ];
    Statement::update("agent_inbox", &[("seq", Int)], &set, "")
});
static SKIP: LazyLock<Statement> = LazyLock::new(|| {
    let set = [("error_code", Text), ("closed_ms", Int), ("next_retry_ms", Int), ("status", Text)];
    let also = " AND t.status = 'pending'";
    Statement::update("agent_inbox", &[("agent_turn_id", Text)], &set, also)
});
static BY_CORRELATION: LazyLock<Statement> = LazyLock::new(|| {
    let keys = [("project_id", Text), ("message_type", Text), ("correlation_id", Text)];
    Statement::select("agent_inbox", &FIELDS, &keys, "")
});
static TURNS: LazyLock<Statement> = LazyLock::new(|| {
    let also = " AND t.message_type = 'turn'";
    Statement::select("agent_inbox", &FIELDS, &[("agent_turn_id", Text)], also)
});
static PENDING: LazyLock<Statement> = LazyLock::new(|| {
    let also = " AND t.status = 'pending'";
    Statement::select("agent_inbox", &FIELDS, &[("agent_turn_id", Text)], also)
});
static CHILDREN: LazyLock<Statement> = LazyLock::new(|| {
    let also = " AND t.parent_agent_turn_id IS NOT NULL AND t.status IN ('queued', 'processing')";
    Statement::select("agent_inbox", &FIELDS, &[("parent_agent_turn_id", Text)], also)
});
static BY_SEQ: LazyLock<Statement> =
    LazyLock::new(|| Statement::select("agent_inbox", &FIELDS, &[("seq", Int)], ""));
static QUEUED: LazyLock<Statement> = LazyLock::new(|| {
    let columns = FIELDS.map(|(name, _)| format!("t.{name}")).join(", ");
    let rest = format!("AND t.status = 'queued' ORDER BY t.seq LIMIT {QUEUED_AT_ONCE}");
    Statement::pair(
        &[Text, Text],
        format!(
            "SELECT {columns} FROM agent_inbox AS t WHERE t.project_id = $1 AND t.agent_id = $2 {rest}"
        ),
        format!(
            "SELECT q.* FROM unnest($1::text[], $2::text[]) AS v (project_id, agent_id),
             LATERAL (SELECT {columns} FROM agent_inbox AS t
               WHERE t.project_id = v.project_id AND t.agent_id = v.agent_id {rest}) AS q"
        ),
    )
});

/// What turns ask of this table again and again.
#[cfg(test)]
pub(crate) fn statements() -> [&'static LazyLock<Statement>; 8] {
    [&CHANGE, &SKIP, &BY_CORRELATION, &TURNS, &PENDING, &CHILDREN, &BY_SEQ, &QUEUED]
}

impl Decode for InboxRow {
    fn decode(row: &dyn Columns) -> guild_store::Result<InboxRow> {
        let mut cells = Cells::of(row);
        Ok(InboxRow {
            seq: cells.next()?,
            inbox_id: cells.parsed()?,
            key: AgentKey { project_id: cells.parsed()?, agent_id: cells.parsed()? },
            channel_id: cells.parsed()?,
            message_type: cells.parsed()?,
            correlation_id: cells.next()?,
            agent_turn_id: cells.parsed()?,
            turn_epoch: cells.next()?,
            parent_agent_turn_id: cells.maybe()?,
            context_headers: cells.next()?,
            payload: cells.next()?,
            status: cells.parsed()?,
            outcome: cells.maybe()?,
            error_code: cells.next()?,
            retry_count: cells.next()?,
            next_retry_ms: cells.next()?,
            created_ms: cells.next()?,
            closed_ms: cells.next()?,
        })
    }
}

/// A row, or the place of one that cannot be read.
pub(crate) struct Readable(pub(crate) std::result::Result<InboxRow, i64>);

impl Decode for Readable {
    fn decode(row: &dyn Columns) -> guild_store::Result<Readable> {
        match InboxRow::decode(row) {
            Ok(row) => Ok(Readable(Ok(row))),
            Err(error) => match row.val(0) {
                Ok(Val::Int(seq)) => Ok(Readable(Err(seq))),
                _ => Err(error),
            },
        }
    }
}

impl InboxRow {
    fn values(&self) -> Vec<Val<'_>> {
        vec![
            self.seq.into(),
            self.inbox_id.as_str().into(),
            self.key.project_id.as_str().into(),
            self.key.agent_id.as_str().into(),
            self.channel_id.as_str().into(),
            self.message_type.as_str().into(),
            (&self.correlation_id).into(),
            self.agent_turn_id.as_str().into(),
            self.turn_epoch.into(),
            self.parent_agent_turn_id.as_ref().map(AgentTurnId::as_str).into(),
            (&self.context_headers).into(),
            (&self.payload).into(),
            self.status.as_str().into(),
            self.outcome.map(Outcome::as_str).into(),
            self.error_code.as_deref().into(),
            self.retry_count.into(),
            self.next_retry_ms.into(),
            self.created_ms.into(),
            self.closed_ms.into(),
        ]
    }

    /// Who asks for the turn; nothing if the row cannot be read.
    pub(crate) fn turn_headers(&self) -> Option<TurnHeaders> {
        serde_json::from_str(&self.context_headers).ok()
    }

    /// What the turn works with; nothing if the row cannot be read.
    pub(crate) fn turn_payload(&self) -> Option<TurnPayload> {
        serde_json::from_str(&self.payload).ok()
    }
}

pub(crate) fn insert_all(tx: &mut Tx<'_>, rows: &[&InboxRow]) -> Result<()> {
    let rows: Vec<_> = rows.iter().map(|row| row.values()).collect();
    INSERT.write(tx, &rows)?;
    Ok(())
}

/// How far a row is now. It is nothing that waits for a time.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) seq: i64,
    pub(crate) status: InboxStatus,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) error_code: Option<String>,
    pub(crate) turn_epoch: i64,
    pub(crate) closed_ms: Option<UnixMs>,
}

impl Change {
    fn values(&self) -> Vec<Val<'_>> {
        vec![
            self.seq.into(),
            self.status.as_str().into(),
            self.outcome.map(Outcome::as_str).into(),
            self.error_code.as_deref().into(),
            self.turn_epoch.into(),
            Val::Null,
            self.closed_ms.into(),
        ]
    }
}

/// Writes how far these rows are.
pub(crate) fn change_all(tx: &mut Tx<'_>, changes: &[Change]) -> Result<()> {
    let rows: Vec<_> = changes.iter().map(Change::values).collect();
    CHANGE.write(tx, &rows)?;
    Ok(())
}

/// What is still pending for turns that are over is not needed any more.
pub(crate) fn skip_pending(
    tx: &mut Tx<'_>,
    turns: &[AgentTurnId],
    error_code: &str,
    now_ms: UnixMs,
) -> Result<()> {
    let skipped = InboxStatus::Skipped.as_str();
    let rows: Vec<Vec<Val<'_>>> = turns
        .iter()
        .map(|turn| {
            vec![turn.as_str().into(), error_code.into(), now_ms.into(), Val::Null, skipped.into()]
        })
        .collect();
    SKIP.write(tx, &rows)?;
    Ok(())
}

/// Rows by what whoever asked calls them.
pub(crate) fn by_correlation(
    rx: &mut Rx<'_>,
    asked: &[(&AgentKey, MessageType, &str)],
) -> Result<Vec<InboxRow>> {
    let keys: Vec<Vec<Val<'_>>> = asked
        .iter()
        .map(|(key, of, name)| {
            vec![key.project_id.as_str().into(), of.as_str().into(), (*name).into()]
        })
        .collect();
    BY_CORRELATION.read(rx, &keys)
}

fn of_turns<T: Decode>(
    rx: &mut Rx<'_>,
    statement: &'static Statement,
    turns: &[&AgentTurnId],
) -> Result<Vec<T>> {
    let keys: Vec<Vec<Val<'_>>> = turns.iter().map(|id| vec![id.as_str().into()]).collect();
    statement.read(rx, &keys)
}

/// The rows that these turns are, as far as they are there.
pub(crate) fn turns(rx: &mut Rx<'_>, turns: &[&AgentTurnId]) -> Result<Vec<InboxRow>> {
    of_turns(rx, &TURNS, turns)
}

/// What is pending for these turns.
pub(crate) fn pending(rx: &mut Rx<'_>, turns: &[&AgentTurnId]) -> Result<Vec<InboxRow>> {
    of_turns(rx, &PENDING, turns)
}

/// The turns that these turns have asked for and that are not over.
pub(crate) fn open_children(rx: &mut Rx<'_>, turns: &[&AgentTurnId]) -> Result<Vec<Readable>> {
    of_turns(rx, &CHILDREN, turns)
}

/// Rows by their places.
pub(crate) fn by_seq(rx: &mut Rx<'_>, seqs: &[i64]) -> Result<Vec<InboxRow>> {
    let keys: Vec<Vec<Val<'_>>> = seqs.iter().map(|seq| vec![(*seq).into()]).collect();
    BY_SEQ.read(rx, &keys)
}

/// The first turns that wait for each of these agents, up to [`QUEUED_AT_ONCE`].
pub(crate) fn queued(rx: &mut Rx<'_>, keys: &[&AgentKey]) -> Result<Vec<Readable>> {
    let keys: Vec<Vec<Val<'_>>> = keys
        .iter()
        .map(|key| vec![key.project_id.as_str().into(), key.agent_id.as_str().into()])
        .collect();
    QUEUED.read(rx, &keys)
}

/// The number of the newest row; zero if there is none.
pub(crate) fn last_seq(rx: &mut Rx<'_>) -> Result<i64> {
    let newest: Option<(Option<i64>,)> = rx.first("SELECT max(seq) FROM agent_inbox", args![])?;
    Ok(newest.and_then(|(seq,)| seq).unwrap_or(0))
}

/// The row that a turn is.
pub fn turn(rx: &mut Rx<'_>, agent_turn_id: &AgentTurnId) -> Result<Option<InboxRow>> {
    Ok(turns(rx, &[agent_turn_id])?.into_iter().next())
}
