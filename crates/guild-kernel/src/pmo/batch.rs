//! Batches: turns that one call waits for together. Each task has one end, and so has the batch.

use std::sync::LazyLock;

use guild_protocol::env::UnixMs;
use guild_store::{Columns, Decode, Rx, Tx, Val};

use crate::inbox::Outcome;
use crate::row::{Cells, Field, Int, Statement, Text};
use crate::{
    AgentId, AgentTurnId, BatchId, BoxId, CardId, ChannelId, ProjectId, Result, StepId, ToolCallId,
};

/// The most tasks of a batch.
pub const TASKS_MAX: usize = 8;

const RUNNING: &str = "running";
const DISPATCHED: &str = "dispatched";

/// A batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Its name.
    pub batch_id: BatchId,
    /// Whose it is.
    pub project_id: ProjectId,
    /// Where it was asked for.
    pub channel_id: ChannelId,
    /// Who waits,
    pub parent_agent_id: AgentId,
    /// in which turn,
    pub parent_agent_turn_id: AgentTurnId,
    /// since which step,
    pub parent_step_id: StepId,
    /// by which call. A call has one batch.
    pub parent_tool_call_id: ToolCallId,
    /// How deep whoever waits is.
    pub recursion_depth: i64,
    /// What all of it belongs to.
    pub trace_id: Option<String>,
    /// How many tasks it has.
    pub task_count: i64,
    /// Whether the first failure ends it.
    pub fail_fast: bool,
    /// How it ended; nothing while it runs.
    pub outcome: Option<Outcome>,
    /// When it ends in any case: not later than the wait for its call.
    pub deadline_ms: UnixMs,
    /// When it began.
    pub created_ms: UnixMs,
    /// When it ended.
    pub closed_ms: Option<UnixMs>,
}

/// A turn of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Whose it is.
    pub batch_id: BatchId,
    /// Its place in what was asked for, from 0.
    pub task_index: i64,
    /// Who does it.
    pub agent_id: AgentId,
    /// In which turn.
    pub agent_turn_id: AgentTurnId,
    /// What that reads.
    pub context_box_id: BoxId,
    /// What that writes to.
    pub output_box_id: BoxId,
    /// How it ended for the batch; nothing while it is awaited.
    pub outcome: Option<Outcome>,
    /// Why, as a code.
    pub error_code: Option<String>,
    /// What was delivered; nothing if the batch was over first.
    pub deliverable_card_id: Option<CardId>,
    /// When it ended for the batch.
    pub closed_ms: Option<UnixMs>,
}

/// How a batch ends whose tasks have ended like this: with the first failure in it if it must not have one; well if all
/// went well; in part if some did; otherwise as the worst of them.
pub fn outcome_of(fail_fast: bool, ends: &[Outcome]) -> Outcome {
    let any = |wanted: &[Outcome]| ends.iter().any(|end| wanted.contains(end));
    let broken = any(&[Outcome::Failed, Outcome::Canceled]);
    if fail_fast && (broken || any(&[Outcome::Timeout])) {
        return Outcome::Failed;
    }
    match (any(&[Outcome::Success]), broken, any(&[Outcome::Timeout])) {
        (true, false, false) if !any(&[Outcome::Partial]) => Outcome::Success,
        (true, ..) => Outcome::Partial,
        (false, true, _) => Outcome::Failed,
        (false, false, true) => Outcome::Timeout,
        (false, false, false) => Outcome::Partial,
    }
}

/// Whether this end of a task ends a batch that must not have a failure in it.
pub(crate) fn is_failure(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Failed | Outcome::Canceled | Outcome::Timeout)
}

const BATCH: [Field; 15] = [
    ("batch_id", Text),
    ("project_id", Text),
    ("channel_id", Text),
    ("parent_agent_id", Text),
    ("parent_agent_turn_id", Text),
    ("parent_step_id", Text),
    ("parent_tool_call_id", Text),
    ("recursion_depth", Int),
    ("trace_id", Text),
    ("task_count", Int),
    ("fail_fast", Int),
    ("status", Text),
    ("deadline_ms", Int),
    ("created_ms", Int),
    ("closed_ms", Int),
];
const TASK: [Field; 10] = [
    ("batch_id", Text),
    ("task_index", Int),
    ("agent_id", Text),
    ("agent_turn_id", Text),
    ("context_box_id", Text),
    ("output_box_id", Text),
    ("status", Text),
    ("error_code", Text),
    ("deliverable_card_id", Text),
    ("closed_ms", Int),
];
const BATCHES: &str = "pmo_batches";
const TASKS: &str = "pmo_batch_tasks";

static INSERT: LazyLock<Statement> = LazyLock::new(|| Statement::insert(BATCHES, &BATCH));
static INSERT_TASKS: LazyLock<Statement> = LazyLock::new(|| Statement::insert(TASKS, &TASK));
/// The single winner: a batch that is over stays as it is.
static CLOSE: LazyLock<Statement> = LazyLock::new(|| {
    let set = [("status", Text), ("closed_ms", Int)];
    Statement::update(BATCHES, &[("batch_id", Text)], &set, " AND t.status = 'running'")
});
static CLOSE_TASKS: LazyLock<Statement> = LazyLock::new(|| {
    let keys = [("batch_id", Text), ("task_index", Int)];
    let set =
        [("status", Text), ("error_code", Text), ("deliverable_card_id", Text), ("closed_ms", Int)];
    Statement::update(TASKS, &keys, &set, " AND t.status = 'dispatched'")
});
static BY_ID: LazyLock<Statement> =
    LazyLock::new(|| Statement::select(BATCHES, &BATCH, &[("batch_id", Text)], ""));
static BY_CALL: LazyLock<Statement> =
    LazyLock::new(|| Statement::select(BATCHES, &BATCH, &[("parent_tool_call_id", Text)], ""));
static OF_STEPS: LazyLock<Statement> = LazyLock::new(|| {
    let also = " AND t.status = 'running'";
    Statement::select(BATCHES, &BATCH, &[("parent_step_id", Text)], also)
});
static TASKS_OF: LazyLock<Statement> =
    LazyLock::new(|| Statement::select(TASKS, &TASK, &[("batch_id", Text)], ""));

/// What turns ask of these tables again and again.
#[cfg(test)]
pub(crate) fn statements() -> [&'static LazyLock<Statement>; 6] {
    [&CLOSE, &CLOSE_TASKS, &BY_ID, &BY_CALL, &OF_STEPS, &TASKS_OF]
}

/// An end, or the word for that there is none.
fn ended(cells: &mut Cells<'_>, open: &str) -> guild_store::Result<Option<Outcome>> {
    let word: String = cells.next()?;
    if word == open {
        return Ok(None);
    }
    word.parse().map(Some).map_err(crate::row::unreadable)
}

impl Decode for Batch {
    fn decode(row: &dyn Columns) -> guild_store::Result<Batch> {
        let mut cells = Cells::of(row);
        Ok(Batch {
            batch_id: cells.parsed()?,
            project_id: cells.parsed()?,
            channel_id: cells.parsed()?,
            parent_agent_id: cells.parsed()?,
            parent_agent_turn_id: cells.parsed()?,
            parent_step_id: cells.parsed()?,
            parent_tool_call_id: cells.parsed()?,
            recursion_depth: cells.next()?,
            trace_id: cells.next()?,
            task_count: cells.next()?,
            fail_fast: cells.next::<i64>()? == 1,
            outcome: ended(&mut cells, RUNNING)?,
            deadline_ms: cells.next()?,
            created_ms: cells.next()?,
            closed_ms: cells.next()?,
        })
    }
}

/// A batch, if its name can be read. One that has none is put aside by a sweep: nobody else may fail over it.
struct Named(Option<Batch>);

impl Decode for Named {
    fn decode(row: &dyn Columns) -> guild_store::Result<Named> {
        let name: String = Cells::of(row).next()?;
        match name.parse::<BatchId>() {
            Ok(_) => Batch::decode(row).map(|batch| Named(Some(batch))),
            Err(_) => Ok(Named(None)),
        }
    }
}

impl Decode for Task {
    fn decode(row: &dyn Columns) -> guild_store::Result<Task> {
        let mut cells = Cells::of(row);
        Ok(Task {
            batch_id: cells.parsed()?,
            task_index: cells.next()?,
            agent_id: cells.parsed()?,
            agent_turn_id: cells.parsed()?,
            context_box_id: cells.parsed()?,
            output_box_id: cells.parsed()?,
            outcome: ended(&mut cells, DISPATCHED)?,
            error_code: cells.next()?,
            deliverable_card_id: cells.maybe()?,
            closed_ms: cells.next()?,
        })
    }
}

impl Batch {
    /// The word that stands in rows and results.
    pub fn status(&self) -> &'static str {
        self.outcome.map_or(RUNNING, Outcome::as_str)
    }

    fn values(&self) -> Vec<Val<'_>> {
        vec![
            self.batch_id.as_str().into(),
            self.project_id.as_str().into(),
            self.channel_id.as_str().into(),
            self.parent_agent_id.as_str().into(),
            self.parent_agent_turn_id.as_str().into(),
            self.parent_step_id.as_str().into(),
            self.parent_tool_call_id.as_str().into(),
            self.recursion_depth.into(),
            self.trace_id.as_deref().into(),
            self.task_count.into(),
            i64::from(self.fail_fast).into(),
            self.status().into(),
            self.deadline_ms.into(),
            self.created_ms.into(),
            self.closed_ms.into(),
        ]
    }
}

impl Task {
    /// The word that stands in rows and results.
    pub fn status(&self) -> &'static str {
        self.outcome.map_or(DISPATCHED, Outcome::as_str)
    }

    fn values(&self) -> Vec<Val<'_>> {
        vec![
            self.batch_id.as_str().into(),
            self.task_index.into(),
            self.agent_id.as_str().into(),
            self.agent_turn_id.as_str().into(),
            self.context_box_id.as_str().into(),
            self.output_box_id.as_str().into(),
            self.status().into(),
            self.error_code.as_deref().into(),
            self.deliverable_card_id.as_ref().map(CardId::as_str).into(),
            self.closed_ms.into(),
        ]
    }

    fn closed_values(&self) -> Vec<Val<'_>> {
        vec![
            self.batch_id.as_str().into(),
            self.task_index.into(),
            self.status().into(),
            self.error_code.as_deref().into(),
            self.deliverable_card_id.as_ref().map(CardId::as_str).into(),
            self.closed_ms.into(),
        ]
    }
}

pub(super) fn insert(tx: &mut Tx<'_>, batch: &Batch, tasks: &[Task]) -> Result<()> {
    INSERT.write(tx, &[batch.values()])?;
    let rows: Vec<_> = tasks.iter().map(Task::values).collect();
    INSERT_TASKS.write(tx, &rows)?;
    Ok(())
}

/// Writes how batches and tasks have ended. Whoever comes second changes nothing, and all of its call is undone.
pub(crate) fn close_all(tx: &mut Tx<'_>, batches: &[&Batch], tasks: &[&Task]) -> Result<()> {
    let closed: Vec<Vec<Val<'_>>> = batches
        .iter()
        .map(|b| vec![b.batch_id.as_str().into(), b.status().into(), b.closed_ms.into()])
        .collect();
    let ended: Vec<_> = tasks.iter().map(|task| task.closed_values()).collect();
    let all = |rows: usize, changed: u64| u64::try_from(rows).is_ok_and(|rows| rows == changed);
    let won = all(closed.len(), CLOSE.write(tx, &closed)?)
        && all(ended.len(), CLOSE_TASKS.write(tx, &ended)?);
    if won { Ok(()) } else { Err(guild_store::Error::Fenced.into()) }
}

fn keys<'a>(ids: impl Iterator<Item = &'a str>) -> Vec<Vec<Val<'a>>> {
    ids.map(|id| vec![id.into()]).collect()
}

/// The batches with these names, as far as they are there.
pub(crate) fn find_all(rx: &mut Rx<'_>, ids: &[&BatchId]) -> Result<Vec<Batch>> {
    BY_ID.read(rx, &keys(ids.iter().map(|id| id.as_str())))
}

/// The batches of these calls.
pub(crate) fn of_calls(rx: &mut Rx<'_>, calls: &[&ToolCallId]) -> Result<Vec<Batch>> {
    let found: Vec<Named> = BY_CALL.read(rx, &keys(calls.iter().map(|id| id.as_str())))?;
    Ok(found.into_iter().filter_map(|named| named.0).collect())
}

/// The batches that run for these steps.
pub(crate) fn of_steps(rx: &mut Rx<'_>, steps: &[&StepId]) -> Result<Vec<Batch>> {
    let found: Vec<Named> = OF_STEPS.read(rx, &keys(steps.iter().map(|id| id.as_str())))?;
    Ok(found.into_iter().filter_map(|named| named.0).collect())
}

/// The tasks of these batches, in any order.
pub(crate) fn tasks_of(rx: &mut Rx<'_>, ids: &[&BatchId]) -> Result<Vec<Task>> {
    TASKS_OF.read(rx, &keys(ids.iter().map(|id| id.as_str())))
}

/// The batch of a call.
pub fn of_call(rx: &mut Rx<'_>, tool_call_id: &ToolCallId) -> Result<Option<Batch>> {
    Ok(of_calls(rx, &[tool_call_id])?.into_iter().next())
}

/// The tasks of a batch, in the order in which they were asked for.
pub fn tasks(rx: &mut Rx<'_>, batch_id: &BatchId) -> Result<Vec<Task>> {
    let mut tasks = tasks_of(rx, &[batch_id])?;
    tasks.sort_by_key(|task| task.task_index);
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Outcome::{Canceled, Failed, Partial, Success, Timeout};

    #[test]
    fn a_batch_ends_as_its_tasks_did() {
        let cases: [(&[Outcome], Outcome, Outcome); 10] = [
            (&[Success, Success], Success, Success),
            (&[Success, Failed], Partial, Failed),
            (&[Success, Timeout], Partial, Failed),
            (&[Success, Partial], Partial, Partial),
            (&[Success, Canceled], Partial, Failed),
            (&[Failed, Timeout, Partial], Failed, Failed),
            (&[Canceled, Partial], Failed, Failed),
            (&[Timeout, Partial], Timeout, Failed),
            (&[Timeout], Timeout, Failed),
            (&[Partial, Partial], Partial, Partial),
        ];
        for (ends, wanted, fast) in cases {
            assert_eq!(outcome_of(false, ends), wanted, "{ends:?}");
            assert_eq!(outcome_of(true, ends), fast, "{ends:?} at once");
        }
    }
}
