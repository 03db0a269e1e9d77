//! The head of an agent: what it is doing. At most one turn, in one of three states.

use std::sync::LazyLock;

use guild_protocol::env::UnixMs;
use guild_store::{Columns, Decode, Rx, Tx, Val};

use crate::row::{Cells, Field, Int, Statement, Text, unreadable};
use crate::{
    AgentKey, AgentTurnId, BoxId, ChannelId, InboxId, LeaseToken, Result, StepId, ToolCallId,
};

/// What an agent is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Who.
    pub key: AgentKey,
    /// Whose workers do its work.
    pub worker_target: String,
    /// Counts leases and forced ends, and never goes back.
    pub turn_epoch: i64,
    /// The turn that it has begun.
    pub active: Option<Active>,
    /// What its last turn that is over wrote to: its memory.
    pub last_output_box_id: Option<BoxId>,
    /// When it was last changed.
    pub updated_ms: UnixMs,
}

/// A turn that was begun and is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Active {
    /// Which one.
    pub agent_turn_id: AgentTurnId,
    /// Its row in the inbox.
    pub inbox_id: InboxId,
    /// The place of that row: turns that are due at the same time are taken in this order.
    pub seq: i64,
    /// Where it was asked for.
    pub channel_id: ChannelId,
    /// How deep.
    pub recursion_depth: i64,
    /// What it belongs to.
    pub trace_id: Option<String>,
    /// The step that asked for it.
    pub parent_step_id: Option<StepId>,
    /// The call that its end answers.
    pub answers_tool_call_id: Option<ToolCallId>,
    /// How it thinks.
    pub profile_name: String,
    /// What it reads.
    pub context_box_id: BoxId,
    /// What it writes to.
    pub output_box_id: BoxId,
    /// How many steps are done.
    pub steps_taken: i64,
    /// How many leases were lost since the last step that was done.
    pub lost_leases: i64,
    /// How far it is.
    pub state: State,
}

/// How far a turn is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It waits for a worker, from this time on.
    Dispatched {
        /// When it may be taken.
        due_ms: UnixMs,
    },
    /// A worker has it.
    Running {
        /// The step that is being done.
        step_id: StepId,
        /// The right to write.
        token: LeaseToken,
        /// Who has it.
        holder: String,
        /// When it may be taken away.
        until_ms: UnixMs,
    },
    /// It waits for results.
    Suspended {
        /// The step that made the calls.
        step_id: StepId,
        /// How many calls have no result.
        waiting: i64,
        /// When the first of them is given up.
        deadline_ms: UnixMs,
    },
}

impl State {
    /// The word that stands in rows and events.
    pub fn as_str(&self) -> &'static str {
        match self {
            State::Dispatched { .. } => "dispatched",
            State::Running { .. } => "running",
            State::Suspended { .. } => "suspended",
        }
    }
}

const KEYS: [Field; 2] = [("project_id", Text), ("agent_id", Text)];
const REST: [Field; 25] = [
    ("status", Text),
    ("worker_target", Text),
    ("turn_epoch", Int),
    ("active_agent_turn_id", Text),
    ("active_inbox_id", Text),
    ("seq", Int),
    ("channel_id", Text),
    ("recursion_depth", Int),
    ("trace_id", Text),
    ("parent_step_id", Text),
    ("answers_tool_call_id", Text),
    ("profile_name", Text),
    ("context_box_id", Text),
    ("output_box_id", Text),
    ("steps_taken", Int),
    ("lost_leases", Int),
    ("due_ms", Int),
    ("active_step_id", Text),
    ("lease_token", Text),
    ("lease_holder", Text),
    ("lease_until_ms", Int),
    ("waiting_tool_count", Int),
    ("resume_deadline_ms", Int),
    ("last_output_box_id", Text),
    ("updated_ms", Int),
];

const TABLE: &str = "agent_state_head";

fn fields() -> Vec<Field> {
    [KEYS.as_slice(), REST.as_slice()].concat()
}

static BY_KEY: LazyLock<Statement> =
    LazyLock::new(|| Statement::select(TABLE, &fields(), &KEYS, ""));
static UPDATE: LazyLock<Statement> = LazyLock::new(|| Statement::update(TABLE, &KEYS, &REST, ""));
pub(super) static DUE: LazyLock<Statement> = LazyLock::new(|| {
    let columns = fields().iter().map(|(name, _)| format!("t.{name}")).collect::<Vec<_>>();
    let columns = columns.join(", ");
    let rest = "ORDER BY t.due_ms, t.seq LIMIT";
    Statement::pair(
        &[Text, Int, Int],
        format!(
            "SELECT {columns} FROM agent_state_head AS t
             WHERE t.status = 'dispatched' AND t.worker_target = $1 AND t.due_ms <= $2 {rest} $3"
        ),
        format!(
            "SELECT q.* FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS v (target, now_ms, count),
             LATERAL (SELECT {columns} FROM agent_state_head AS t
               WHERE t.status = 'dispatched' AND t.worker_target = v.target AND t.due_ms <= v.now_ms
               {rest} v.count) AS q"
        ),
    )
});

/// What turns ask of this table again and again.
#[cfg(test)]
pub(super) fn statements() -> [&'static LazyLock<Statement>; 3] {
    [&BY_KEY, &UPDATE, &DUE]
}

impl Decode for Head {
    fn decode(row: &dyn Columns) -> guild_store::Result<Head> {
        let mut cells = Cells::of(row);
        let key = AgentKey { project_id: cells.parsed()?, agent_id: cells.parsed()? };
        let status: String = cells.next()?;
        let (worker_target, turn_epoch) = (cells.next()?, cells.next()?);
        let active = if status == "idle" { None } else { Some(active(&mut cells, &status)?) };
        if active.is_none() {
            // Behind the columns of a turn that is not there.
            cells.skip(20);
        }
        let (last_output_box_id, updated_ms) = (cells.maybe()?, cells.next()?);
        Ok(Head { key, worker_target, turn_epoch, active, last_output_box_id, updated_ms })
    }
}

/// A head, or whose head it is that cannot be read.
pub(super) struct Readable(pub(super) std::result::Result<Head, [String; 2]>);

impl Decode for Readable {
    fn decode(row: &dyn Columns) -> guild_store::Result<Readable> {
        let text = |at: usize| match row.val(at) {
            Ok(Val::Text(text)) => text.to_owned(),
            _ => String::new(),
        };
        Ok(Readable(Head::decode(row).map_err(|_| [text(0), text(1)])))
    }
}

fn active(cells: &mut Cells<'_>, status: &str) -> guild_store::Result<Active> {
    Ok(Active {
        agent_turn_id: cells.parsed()?,
        inbox_id: cells.parsed()?,
        seq: cells.next()?,
        channel_id: cells.parsed()?,
        recursion_depth: cells.next()?,
        trace_id: cells.next()?,
        parent_step_id: cells.maybe()?,
        answers_tool_call_id: cells.maybe()?,
        profile_name: cells.next()?,
        context_box_id: cells.parsed()?,
        output_box_id: cells.parsed()?,
        steps_taken: cells.next()?,
        lost_leases: cells.next()?,
        state: state(cells, status)?,
    })
}

fn state(cells: &mut Cells<'_>, status: &str) -> guild_store::Result<State> {
    let due_ms: Option<i64> = cells.next()?;
    let step_id: Option<StepId> = cells.maybe()?;
    let token: Option<LeaseToken> = cells.maybe()?;
    let holder: Option<String> = cells.next()?;
    let until_ms: Option<i64> = cells.next()?;
    let waiting: i64 = cells.next()?;
    let deadline_ms: Option<i64> = cells.next()?;
    let state = match status {
        "dispatched" => due_ms.map(|due_ms| State::Dispatched { due_ms }),
        "running" => match (step_id, token, holder, until_ms) {
            (Some(step_id), Some(token), Some(holder), Some(until_ms)) => {
                Some(State::Running { step_id, token, holder, until_ms })
            }
            _ => None,
        },
        _ => step_id.zip(deadline_ms).map(|(step_id, deadline_ms)| State::Suspended {
            step_id,
            waiting,
            deadline_ms,
        }),
    };
    state.ok_or_else(|| unreadable(format!("a head is {status} without what belongs to it")))
}

impl Head {
    /// The word that stands in rows.
    pub fn status(&self) -> &'static str {
        self.active.as_ref().map_or("idle", |active| active.state.as_str())
    }

    fn values(&self) -> Vec<Val<'_>> {
        let mut values: Vec<Val<'_>> = vec![
            self.key.project_id.as_str().into(),
            self.key.agent_id.as_str().into(),
            self.status().into(),
            (&self.worker_target).into(),
            self.turn_epoch.into(),
        ];
        match &self.active {
            None => values.extend([Val::Null; 11]),
            Some(active) => values.extend([
                active.agent_turn_id.as_str().into(),
                active.inbox_id.as_str().into(),
                active.seq.into(),
                active.channel_id.as_str().into(),
                active.recursion_depth.into(),
                active.trace_id.as_deref().into(),
                active.parent_step_id.as_ref().map(StepId::as_str).into(),
                active.answers_tool_call_id.as_ref().map(ToolCallId::as_str).into(),
                Val::Text(&active.profile_name),
                active.context_box_id.as_str().into(),
                active.output_box_id.as_str().into(),
            ]),
        }
        let (steps, lost) =
            self.active.as_ref().map_or((0, 0), |active| (active.steps_taken, active.lost_leases));
        values.extend([Val::Int(steps), Val::Int(lost)]);
        values.extend(state_values(self.active.as_ref().map(|active| &active.state)));
        values.push(self.last_output_box_id.as_ref().map(BoxId::as_str).into());
        values.push(self.updated_ms.into());
        values
    }
}

/// Due, step, token, holder, lease, waiting, deadline.
fn state_values(state: Option<&State>) -> [Val<'_>; 7] {
    const NO: Val<'_> = Val::Null;
    match state {
        None => [NO, NO, NO, NO, NO, Val::Int(0), NO],
        Some(State::Dispatched { due_ms }) => [(*due_ms).into(), NO, NO, NO, NO, Val::Int(0), NO],
        Some(State::Running { step_id, token, holder, until_ms }) => [
            NO,
            step_id.as_str().into(),
            token.as_str().into(),
            holder.into(),
            (*until_ms).into(),
            Val::Int(0),
            NO,
        ],
        Some(State::Suspended { step_id, waiting, deadline_ms }) => {
            [NO, step_id.as_str().into(), NO, NO, NO, (*waiting).into(), (*deadline_ms).into()]
        }
    }
}

/// The heads of these agents, as far as they are there, in any order.
pub(super) fn find_all(rx: &mut Rx<'_>, keys: &[&AgentKey]) -> Result<Vec<Head>> {
    let keys: Vec<Vec<Val<'_>>> = keys
        .iter()
        .map(|key| vec![key.project_id.as_str().into(), key.agent_id.as_str().into()])
        .collect();
    BY_KEY.read(rx, &keys)
}

/// What an agent is doing.
pub fn find(rx: &mut Rx<'_>, key: &AgentKey) -> Result<Option<Head>> {
    Ok(find_all(rx, &[key])?.into_iter().next())
}

pub(super) fn update_all(tx: &mut Tx<'_>, heads: &[&Head]) -> Result<()> {
    let rows: Vec<_> = heads.iter().map(|head| head.values()).collect();
    UPDATE.write(tx, &rows)?;
    Ok(())
}
