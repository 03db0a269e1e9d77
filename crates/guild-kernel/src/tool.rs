//! What agents call in the process of their worker: one trait. How the kernel reaches everything beside itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use guild_protocol::env::{BoxFuture, UnixMs};
use serde_json::Value;

use crate::inbox::Outcome;
use crate::roster::AfterExecution;
use crate::{AgentKey, AgentTurnId, ChannelId, StepId, ToolCallId};

/// Whether running a tool twice matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It changes nothing. It runs inside the step that calls it, and again if the step is lost.
    Pure,
    /// It changes something. It runs after its call was written down, and again with the same id if its worker is
    /// lost: it must be idempotent by that id.
    Once,
}

/// A call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// Names the call, at every try.
    pub tool_call_id: ToolCallId,
    /// Who calls.
    pub key: AgentKey,
    /// In which turn.
    pub agent_turn_id: AgentTurnId,
    /// In which step.
    pub step_id: StepId,
    /// Where.
    pub channel_id: ChannelId,
    /// How deep.
    pub recursion_depth: i64,
    /// What is called: one implementation may stand behind several rows.
    pub tool_name: String,
    /// With what: defaults, fixed arguments and those of the environment are in it.
    pub arguments: Value,
    /// Until when somebody waits.
    pub deadline_ms: UnixMs,
}

/// What came out of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutcome {
    /// How it went.
    pub status: Outcome,
    /// What came out.
    pub result: Value,
    /// What went wrong: `{code, message, …}`; null if nothing did.
    pub error: Value,
    /// What it does to the turn, if that is not what the row of the tool says.
    pub after_execution: Option<AfterExecution>,
}

/// Something that agents can call in this process.
pub trait Tool: Send + Sync {
    /// Whether running it twice matters.
    fn effect(&self) -> Effect;

    /// Runs it. Whoever waits stops waiting at the deadline of the call.
    fn run(&self, call: ToolCall) -> BoxFuture<ToolOutcome>;
}

/// The tools of a process, by the names of their rows.
pub type Tools = BTreeMap<String, Arc<dyn Tool>>;

/// What a result itself says that it does to the turn.
pub(crate) fn after_of(result: &Value) -> Option<AfterExecution> {
    let word = result.get("__cg_control")?.get("after_execution")?.as_str()?;
    word.parse().ok()
}
