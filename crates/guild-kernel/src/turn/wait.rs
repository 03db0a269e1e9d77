//! Calls that a suspended turn waits for. Each has at most one result.

use std::sync::LazyLock;

use guild_protocol::env::UnixMs;
use guild_store::{Columns, Decode, Rx, Tx, Val};

use crate::inbox::Outcome;
use crate::roster::AfterExecution;
use crate::row::{Cells, Field, Int, Statement, Text, words};
use crate::{AgentKey, AgentTurnId, CardId, LeaseToken, Result, StepId, ToolCallId};

words! {
    /// How far a call is.
    pub WaitStatus {
        /// It has no result.
        Waiting = "waiting",
        /// Its result is in the output box.
        Applied = "applied",
        /// Its turn was ended without it.
        Dropped = "dropped",
    }
}

/// A call that a turn waits for, or has waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// Which call.
    pub tool_call_id: ToolCallId,
    /// Who called.
    pub key: AgentKey,
    /// In which turn.
    pub agent_turn_id: AgentTurnId,
    /// Under which lease.
    pub turn_epoch: i64,
    /// In which step.
    pub step_id: StepId,
    /// What was called.
    pub tool_name: String,
    /// What the result does to the turn.
    pub after_execution: AfterExecution,
    /// Where it was called; without one a worker runs it.
    pub target_subject: Option<String>,
    /// Who runs it.
    pub run: Option<Run>,
    /// How far it is.
    pub status: WaitStatus,
    /// How the call ended, and the card that says so.
    pub result: Option<(Outcome, CardId)>,
    /// When it is given up.
    pub deadline_ms: UnixMs,
    /// How long it is awaited, whatever the clock showed when it was made.
    pub timeout_ms: i64,
    /// When it was made.
    pub created_ms: UnixMs,
    /// When it had its result, or was dropped.
    pub closed_ms: Option<UnixMs>,
}

/// A run of a tool by a worker: the right to it, and until when it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The right to run it.
    pub token: LeaseToken,
    /// When somebody else may run it.
    pub until_ms: UnixMs,
}

const FIELDS: [Field; 18] = [
    ("tool_call_id", Text),
    ("project_id", Text),
    ("agent_id", Text),
    ("agent_turn_id", Text),
    ("turn_epoch", Int),
    ("step_id", Text),
    ("tool_name", Text),
    ("after_execution", Text),
    ("target_subject", Text),
    ("run_token", Text),
    ("run_until_ms", Int),
    ("wait_status", Text),
    ("result_status", Text),
    ("result_card_id", Text),
    ("deadline_ms", Int),
    ("timeout_ms", Int),
    ("created_ms", Int),
    ("closed_ms", Int),
];
const TABLE: &str = "turn_waiting_tools";

static INSERT: LazyLock<Statement> = LazyLock::new(|| Statement::insert(TABLE, &FIELDS));
/// The single winner: a call that has its result keeps it.
static CLOSE: LazyLock<Statement> = LazyLock::new(|| {
    let set = [
        ("after_execution", Text),
        ("run_token", Text),
        ("run_until_ms", Int),
        ("wait_status", Text),
        ("result_status", Text),
        ("result_card_id", Text),
        ("closed_ms", Int),
    ];
    Statement::update(TABLE, &[("tool_call_id", Text)], &set, " AND t.wait_status = 'waiting'")
});
static DROP: LazyLock<Statement> = LazyLock::new(|| {
    let set =
        [("wait_status", Text), ("run_token", Text), ("run_until_ms", Int), ("closed_ms", Int)];
    Statement::update(TABLE, &[("step_id", Text)], &set, " AND t.wait_status = 'waiting'")
});
static RUN: LazyLock<Statement> = LazyLock::new(|| {
    let set = [("run_token", Text), ("run_until_ms", Int)];
    Statement::update(TABLE, &[("tool_call_id", Text)], &set, " AND t.wait_status = 'waiting'")
});
/// Runs that nobody has, of a tool, for the workers of a target.
static RUNS: LazyLock<Statement> = LazyLock::new(|| {
    let join = "turn_waiting_tools AS t JOIN agent_state_head AS h
               ON h.project_id = t.project_id AND h.agent_id = t.agent_id";
    let rest = "ORDER BY t.run_until_ms LIMIT";
    Statement::pair(
        &[Text, Int, Text, Int],
        format!(
            "SELECT t.tool_call_id FROM {join}
             WHERE t.tool_name = $1 AND t.run_until_ms <= $2 AND t.deadline_ms > $2
               AND h.worker_target = $3 {rest} $4"
        ),
        format!(
            "SELECT q.* FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[])
               AS v (tool_name, now_ms, target, count),
             LATERAL (SELECT t.tool_call_id FROM {join}
               WHERE t.tool_name = v.tool_name AND t.run_until_ms <= v.now_ms
                 AND t.deadline_ms > v.now_ms AND h.worker_target = v.target {rest} v.count) AS q"
        ),
    )
});
static BY_CALL: LazyLock<Statement> =
    LazyLock::new(|| Statement::select(TABLE, &FIELDS, &[("tool_call_id", Text)], ""));
static BY_STEP: LazyLock<Statement> =
    LazyLock::new(|| Statement::select(TABLE, &FIELDS, &[("step_id", Text)], ""));

/// What turns ask of this table again and again.
#[cfg(test)]
pub(super) fn statements() -> [&'static LazyLock<Statement>; 6] {
    [&CLOSE, &DROP, &RUN, &RUNS, &BY_CALL, &BY_STEP]
}

impl Decode for Wait {
    fn decode(row: &dyn Columns) -> guild_store::Result<Wait> {
        let mut cells = Cells::of(row);
        Ok(Wait {
            tool_call_id: cells.parsed()?,
            key: AgentKey { project_id: cells.parsed()?, agent_id: cells.parsed()? },
            agent_turn_id: cells.parsed()?,
            turn_epoch: cells.next()?,
            step_id: cells.parsed()?,
            tool_name: cells.next()?,
            after_execution: cells.parsed()?,
            target_subject: cells.next()?,
            run: {
                let token: Option<LeaseToken> = cells.maybe()?;
                let until_ms: Option<i64> = cells.next()?;
                token.zip(until_ms).map(|(token, until_ms)| Run { token, until_ms })
            },
            status: cells.parsed()?,
            result: {
                let outcome: Option<Outcome> = cells.maybe()?;
                outcome.zip(cells.maybe()?)
            },
            deadline_ms: cells.next()?,
            timeout_ms: cells.next()?,
            created_ms: cells.next()?,
            closed_ms: cells.next()?,
        })
    }
}

impl Wait {
    /// The card that says what is called, and with what.
    pub fn call_card_id(&self) -> CardId {
        CardId::of_call(&self.tool_call_id, self.created_ms)
    }

    fn result_values(&self) -> [Val<'_>; 2] {
        let outcome = self.result.as_ref().map(|(outcome, _)| outcome.as_str());
        let card_id = self.result.as_ref().map(|(_, card_id)| card_id.as_str());
        [outcome.into(), card_id.into()]
    }

    /// Whoever runs it: nobody once it is closed.
    fn run_values(&self) -> [Val<'_>; 2] {
        let run = self.run.as_ref().filter(|_| self.status == WaitStatus::Waiting);
        [run.map(|run| run.token.as_str()).into(), run.map(|run| run.until_ms).into()]
    }

    fn values(&self) -> Vec<Val<'_>> {
        let [outcome, card_id] = self.result_values();
        let [run_token, run_until_ms] = self.run_values();
        vec![
            self.tool_call_id.as_str().into(),
            self.key.project_id.as_str().into(),
            self.key.agent_id.as_str().into(),
            self.agent_turn_id.as_str().into(),
            self.turn_epoch.into(),
            self.step_id.as_str().into(),
            (&self.tool_name).into(),
            self.after_execution.as_str().into(),
            self.target_subject.as_deref().into(),
            run_token,
            run_until_ms,
            self.status.as_str().into(),
            outcome,
            card_id,
            self.deadline_ms.into(),
            self.timeout_ms.into(),
            self.created_ms.into(),
            self.closed_ms.into(),
        ]
    }

    fn closed_values(&self) -> Vec<Val<'_>> {
        let [outcome, card_id] = self.result_values();
        vec![
            self.tool_call_id.as_str().into(),
            self.after_execution.as_str().into(),
            Val::Null,
            Val::Null,
            self.status.as_str().into(),
            outcome,
            card_id,
            self.closed_ms.into(),
        ]
    }
}

pub(super) fn insert_all(tx: &mut Tx<'_>, waits: &[&Wait]) -> Result<()> {
    let rows: Vec<_> = waits.iter().map(|wait| wait.values()).collect();
    INSERT.write(tx, &rows)?;
    Ok(())
}

/// Writes the results of calls that had none. Whoever comes second changes nothing, and all of its call is undone.
pub(super) fn close_all(tx: &mut Tx<'_>, waits: &[&Wait]) -> Result<()> {
    let rows: Vec<_> = waits.iter().map(|wait| wait.closed_values()).collect();
    if CLOSE.write(tx, &rows)? != u64::try_from(rows.len()).unwrap_or(u64::MAX) {
        return Err(guild_store::Error::Fenced.into());
    }
    Ok(())
}

/// Nobody waits any more for the calls of these steps.
pub(super) fn drop_all(tx: &mut Tx<'_>, steps: &[StepId], now_ms: UnixMs) -> Result<()> {
    let dropped = WaitStatus::Dropped.as_str();
    let rows: Vec<Vec<Val<'_>>> = steps
        .iter()
        .map(|step_id| {
            vec![step_id.as_str().into(), dropped.into(), Val::Null, Val::Null, now_ms.into()]
        })
        .collect();
    DROP.write(tx, &rows)?;
    Ok(())
}

/// Writes down who runs calls.
pub(super) fn run_all(tx: &mut Tx<'_>, waits: &[&Wait]) -> Result<()> {
    let mut rows = Vec::with_capacity(waits.len());
    for wait in waits {
        let [token, until_ms] = wait.run_values();
        rows.push(vec![wait.tool_call_id.as_str().into(), token, until_ms]);
    }
    RUN.write(tx, &rows)?;
    Ok(())
}

/// Calls of these tools by agents of these targets that nobody runs, up to `limit` of each. What cannot be read is not
/// among them.
pub(super) fn runs(
    rx: &mut Rx<'_>,
    tools_and_targets: &[(&str, &str)],
    now_ms: UnixMs,
    limit: i64,
) -> Result<Vec<ToolCallId>> {
    let keys: Vec<Vec<Val<'_>>> = tools_and_targets
        .iter()
        .map(|(tool, target)| vec![(*tool).into(), now_ms.into(), (*target).into(), limit.into()])
        .collect();
    let found: Vec<(String,)> = RUNS.read(rx, &keys)?;
    Ok(found.into_iter().filter_map(|(call,)| call.parse().ok()).collect())
}

/// These calls, as far as somebody waits or has waited for them.
pub fn find_all(rx: &mut Rx<'_>, calls: &[&ToolCallId]) -> Result<Vec<Wait>> {
    let keys: Vec<Vec<Val<'_>>> = calls.iter().map(|id| vec![id.as_str().into()]).collect();
    BY_CALL.read(rx, &keys)
}

/// All calls of these steps.
pub fn of_steps(rx: &mut Rx<'_>, steps: &[&StepId]) -> Result<Vec<Wait>> {
    let keys: Vec<Vec<Val<'_>>> = steps.iter().map(|id| vec![id.as_str().into()]).collect();
    BY_STEP.read(rx, &keys)
}
