//! Steps: what a worker does between two writes.

use std::sync::LazyLock;

use guild_protocol::env::UnixMs;
use guild_store::{Columns, Decode, Rx, Tx, Val};

use crate::row::{Cells, Field, Int, Statement, Text, words};
use crate::{AgentKey, AgentTurnId, Result, StepId};

words! {
    /// How a step ended.
    pub StepStatus {
        /// It is being done.
        Started = "started",
        /// It is done.
        Completed = "completed",
        /// It made calls that the turn waits for.
        Suspended = "suspended",
        /// It went wrong, and its turn with it.
        Failed = "failed",
        /// Its worker was lost, or its turn was ended by somebody else: nothing of it was written.
        Abandoned = "abandoned",
    }
}

/// What a step has used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens that a model read.
    pub prompt_tokens: i64,
    /// Tokens that a model wrote.
    pub completion_tokens: i64,
    /// What that cost.
    pub cost_micro_usd: i64,
    /// Whether nobody knows what that cost: then the cost is zero.
    pub cost_unknown: bool,
    /// Which model.
    pub model: Option<String>,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its name.
    pub step_id: StepId,
    /// Who does it.
    pub key: AgentKey,
    /// In which turn.
    pub agent_turn_id: AgentTurnId,
    /// Under which lease.
    pub turn_epoch: i64,
    /// Its number in the turn, from 1. One that was abandoned is done again under the same number.
    pub number: i64,
    /// How it ended.
    pub status: StepStatus,
    /// The calls that it made: JSON.
    pub tool_call_ids: String,
    /// What went wrong, as a code.
    pub error_code: Option<String>,
    /// What it has used.
    pub usage: Usage,
    /// What else is known of it: JSON.
    pub metadata: String,
    /// When it began.
    pub started_ms: UnixMs,
    /// When it ended.
    pub ended_ms: Option<UnixMs>,
}

const FIELDS: [Field; 17] = [
    ("step_id", Text),
    ("project_id", Text),
    ("agent_id", Text),
    ("agent_turn_id", Text),
    ("turn_epoch", Int),
    ("number", Int),
    ("status", Text),
    ("tool_call_ids", Text),
    ("error_code", Text),
    ("prompt_tokens", Int),
    ("completion_tokens", Int),
    ("cost_micro_usd", Int),
    ("cost_unknown", Int),
    ("model", Text),
    ("metadata", Text),
    ("started_ms", Int),
    ("ended_ms", Int),
];

static INSERT: LazyLock<Statement> = LazyLock::new(|| Statement::insert("agent_steps", &FIELDS));
static END: LazyLock<Statement> = LazyLock::new(|| {
    let set = [
        ("status", Text),
        ("tool_call_ids", Text),
        ("error_code", Text),
        ("prompt_tokens", Int),
        ("completion_tokens", Int),
        ("cost_micro_usd", Int),
        ("cost_unknown", Int),
        ("model", Text),
        ("metadata", Text),
        ("ended_ms", Int),
    ];
    Statement::update("agent_steps", &[("step_id", Text)], &set, "")
});
static OF_TURN: LazyLock<Statement> = LazyLock::new(|| {
    let also = " ORDER BY t.number, t.turn_epoch";
    Statement::select("agent_steps", &FIELDS, &[("agent_turn_id", Text)], also)
});

/// What turns ask of this table again and again.
#[cfg(test)]
pub(super) fn statements() -> [&'static LazyLock<Statement>; 2] {
    [&END, &OF_TURN]
}

impl Decode for Step {
    fn decode(row: &dyn Columns) -> guild_store::Result<Step> {
        let mut cells = Cells::of(row);
        Ok(Step {
            step_id: cells.parsed()?,
            key: AgentKey { project_id: cells.parsed()?, agent_id: cells.parsed()? },
            agent_turn_id: cells.parsed()?,
            turn_epoch: cells.next()?,
            number: cells.next()?,
            status: cells.parsed()?,
            tool_call_ids: cells.next()?,
            error_code: cells.next()?,
            usage: Usage {
                prompt_tokens: cells.next()?,
                completion_tokens: cells.next()?,
                cost_micro_usd: cells.next()?,
                cost_unknown: cells.next::<i64>()? != 0,
                model: cells.next()?,
            },
            metadata: cells.next()?,
            started_ms: cells.next()?,
            ended_ms: cells.next()?,
        })
    }
}

impl Step {
    /// A step that begins.
    pub(super) fn begun(
        key: &AgentKey,
        agent_turn_id: &AgentTurnId,
        turn_epoch: i64,
        number: i64,
        now_ms: UnixMs,
    ) -> Step {
        let words = [agent_turn_id.as_str(), &turn_epoch.to_string(), &number.to_string()];
        Step {
            step_id: StepId::named(now_ms, &words),
            key: key.clone(),
            agent_turn_id: agent_turn_id.clone(),
            turn_epoch,
            number,
            status: StepStatus::Started,
            tool_call_ids: "[]".to_owned(),
            error_code: None,
            usage: Usage::default(),
            metadata: "{}".to_owned(),
            started_ms: now_ms,
            ended_ms: None,
        }
    }

    fn values(&self) -> Vec<Val<'_>> {
        vec![
            self.step_id.as_str().into(),
            self.key.project_id.as_str().into(),
            self.key.agent_id.as_str().into(),
            self.agent_turn_id.as_str().into(),
            self.turn_epoch.into(),
            self.number.into(),
            self.status.as_str().into(),
            (&self.tool_call_ids).into(),
            self.error_code.as_deref().into(),
            self.usage.prompt_tokens.into(),
            self.usage.completion_tokens.into(),
            self.usage.cost_micro_usd.into(),
            i64::from(self.usage.cost_unknown).into(),
            self.usage.model.as_deref().into(),
            (&self.metadata).into(),
            self.started_ms.into(),
            self.ended_ms.into(),
        ]
    }
}

/// How a step ends.
pub(super) struct StepEnd {
    pub(super) step_id: StepId,
    pub(super) status: StepStatus,
    pub(super) tool_call_ids: String,
    pub(super) error_code: Option<String>,
    pub(super) usage: Usage,
    pub(super) metadata: String,
}

impl StepEnd {
    /// Nothing of the step was written. Its worker may have asked a model: nobody knows what that cost.
    pub(super) fn abandoned(step_id: &StepId, error_code: &str) -> StepEnd {
        StepEnd {
            step_id: step_id.clone(),
            status: StepStatus::Abandoned,
            tool_call_ids: "[]".to_owned(),
            error_code: Some(error_code.to_owned()),
            usage: Usage { cost_unknown: true, ..Usage::default() },
            metadata: "{}".to_owned(),
        }
    }

    fn values(&self, now_ms: UnixMs) -> Vec<Val<'_>> {
        vec![
            self.step_id.as_str().into(),
            self.status.as_str().into(),
            (&self.tool_call_ids).into(),
            self.error_code.as_deref().into(),
            self.usage.prompt_tokens.into(),
            self.usage.completion_tokens.into(),
            self.usage.cost_micro_usd.into(),
            i64::from(self.usage.cost_unknown).into(),
            self.usage.model.as_deref().into(),
            (&self.metadata).into(),
            now_ms.into(),
        ]
    }
}

pub(super) fn insert_all(tx: &mut Tx<'_>, steps: &[Step]) -> Result<()> {
    let rows: Vec<_> = steps.iter().map(Step::values).collect();
    INSERT.write(tx, &rows)?;
    Ok(())
}

pub(super) fn end_all(tx: &mut Tx<'_>, ends: &[StepEnd], now_ms: UnixMs) -> Result<()> {
    let rows: Vec<_> = ends.iter().map(|end| end.values(now_ms)).collect();
    END.write(tx, &rows)?;
    Ok(())
}

/// The steps of a turn, in their order.
pub fn of_turn(rx: &mut Rx<'_>, agent_turn_id: &AgentTurnId) -> Result<Vec<Step>> {
    OF_TURN.read(rx, &[vec![agent_turn_id.as_str().into()]])
}
