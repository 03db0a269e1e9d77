//! Edges: who asked whom, and who answered.

use std::sync::LazyLock;

use guild_protocol::env::UnixMs;
use guild_store::{Tx, Val};

use crate::row::{Field, Int, Statement, Text, words};
use crate::{AgentId, AgentTurnId, ChannelId, EdgeId, ProjectId, Result, StepId};

words! {
    /// What joins two turns.
    pub Primitive {
        /// A turn is asked for.
        Enqueue = "enqueue",
        /// A call is answered.
        Report = "report",
        /// Several turns are waited for.
        Join = "join",
        /// A tool is called.
        ToolCall = "tool_call",
    }
}

words! {
    /// Which way.
    pub Phase {
        /// Somebody asks.
        Request = "request",
        /// Somebody answers.
        Response = "response",
    }
}

/// One end of an edge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct End {
    /// Who.
    pub agent_id: Option<AgentId>,
    /// In which turn.
    pub agent_turn_id: Option<AgentTurnId>,
}

/// An edge. There is one for each correlation, primitive and phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// In which project.
    pub project_id: ProjectId,
    /// Where.
    pub channel_id: ChannelId,
    /// What joins.
    pub primitive: Primitive,
    /// Which way.
    pub phase: Phase,
    /// Who asks or answers.
    pub source: End,
    /// In which step.
    pub source_step_id: Option<StepId>,
    /// Who is asked or answered.
    pub target: End,
    /// What joins request and response.
    pub correlation_id: String,
    /// How deep. A response is as deep as its request.
    pub recursion_depth: i64,
    /// What all of it belongs to.
    pub trace_id: Option<String>,
}

const FIELDS: [Field; 15] = [
    ("edge_id", Text),
    ("project_id", Text),
    ("channel_id", Text),
    ("primitive", Text),
    ("edge_phase", Text),
    ("source_agent_id", Text),
    ("source_agent_turn_id", Text),
    ("source_step_id", Text),
    ("target_agent_id", Text),
    ("target_agent_turn_id", Text),
    ("correlation_id", Text),
    ("recursion_depth", Int),
    ("trace_id", Text),
    ("metadata", Text),
    ("created_ms", Int),
];

static INSERT: LazyLock<Statement> =
    LazyLock::new(|| Statement::insert("execution_edges", &FIELDS));

impl Edge {
    fn values<'a>(&'a self, edge_id: &'a EdgeId, now_ms: UnixMs) -> Vec<Val<'a>> {
        vec![
            edge_id.as_str().into(),
            self.project_id.as_str().into(),
            self.channel_id.as_str().into(),
            self.primitive.as_str().into(),
            self.phase.as_str().into(),
            self.source.agent_id.as_ref().map(AgentId::as_str).into(),
            self.source.agent_turn_id.as_ref().map(AgentTurnId::as_str).into(),
            self.source_step_id.as_ref().map(StepId::as_str).into(),
            self.target.agent_id.as_ref().map(AgentId::as_str).into(),
            self.target.agent_turn_id.as_ref().map(AgentTurnId::as_str).into(),
            (&self.correlation_id).into(),
            self.recursion_depth.into(),
            self.trace_id.as_deref().into(),
            "{}".into(),
            now_ms.into(),
        ]
    }

    fn edge_id(&self, now_ms: UnixMs) -> EdgeId {
        let (primitive, phase) = (self.primitive.as_str(), self.phase.as_str());
        EdgeId::named(now_ms, &[self.project_id.as_str(), &self.correlation_id, primitive, phase])
    }
}

pub(crate) fn insert_all(tx: &mut Tx<'_>, edges: &[Edge], now_ms: UnixMs) -> Result<()> {
    let ids: Vec<EdgeId> = edges.iter().map(|edge| edge.edge_id(now_ms)).collect();
    let rows: Vec<_> = edges.iter().zip(&ids).map(|(edge, id)| edge.values(id, now_ms)).collect();
    INSERT.write(tx, &rows)?;
    Ok(())
}
