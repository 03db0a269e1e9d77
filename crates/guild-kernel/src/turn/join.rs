//! Batches in a plan: the end of a turn reaches its batch, and the end of a batch its call, in the transaction that
//! ends the turn. A batch that nobody waits for any more is over, and what is left of it is stopped.

use std::collections::{BTreeMap, BTreeSet};

use guild_store::{Rx, Tx};
use serde::Serialize;
use serde_json::{Value, json};

use super::answer::Answer;
use super::plan::Plan;
use crate::edge::{Edge, End, Phase, Primitive};
use crate::inbox::{self, InboxRow, Outcome, ReportContent};
use crate::pmo::batch::{self, Batch, Task};
use crate::pmo::{AUTHOR, FORK_JOIN};
use crate::{AgentId, AgentTurnId, BatchId, BoxId, CardId, Result, StepId, ToolCallId, card, code};

/// A deliverable of more than this is named in the result of a batch, and not repeated there.
const SUMMARY_MAX_BYTES: usize = 64 * 1024;
/// Nor is one that is nested more deeply: the result puts levels around it.
const SUMMARY_DEPTH_MAX: usize = 80;

/// Why a batch is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All tasks have ended, or one that must not fail has.
    Done,
    /// Its time is over.
    Late,
    /// Nobody waits for it.
    Unwanted,
}

/// A batch and its tasks, in their order.
struct Joined {
    batch: Batch,
    tasks: Vec<Task>,
}

/// What is known and decided of batches.
#[derive(Default)]
pub(super) struct Joins {
    batches: BTreeMap<BatchId, Joined>,
    of_calls: BTreeMap<ToolCallId, BatchId>,
    decided: BTreeMap<BatchId, Verdict>,
    /// Calls that might have a batch and were answered.
    answered: BTreeSet<ToolCallId>,
    /// Steps whose calls nobody waits for any more.
    dropped: BTreeSet<StepId>,
    /// What is to be written.
    closed: BTreeSet<BatchId>,
    ended: BTreeSet<(BatchId, i64)>,
}

impl Joins {
    pub(super) fn is_settled(&self) -> bool {
        self.decided.is_empty() && self.answered.is_empty() && self.dropped.is_empty()
    }

    fn of_call(&self, tool_call_id: &ToolCallId) -> Option<&Joined> {
        self.batches.get(self.of_calls.get(tool_call_id)?)
    }

    /// A call has its result. If that is not its batch's, the batch is not needed any more.
    pub(super) fn call_answered(&mut self, tool_call_id: &ToolCallId, tool_name: &str) {
        let by_batch =
            self.of_call(tool_call_id).is_some_and(|joined| joined.batch.outcome.is_some());
        if tool_name == FORK_JOIN && !by_batch {
            self.answered.insert(tool_call_id.clone());
        }
    }

    /// Nobody waits any more for the calls of this step.
    pub(super) fn step_dropped(&mut self, step_id: &StepId) {
        self.dropped.insert(step_id.clone());
    }

    fn decide(&mut self, batch_id: &BatchId, verdict: Verdict) -> bool {
        let runs = self.batches.get(batch_id).is_some_and(|joined| joined.batch.outcome.is_none());
        if runs {
            self.decided.entry(batch_id.clone()).or_insert(verdict);
        }
        runs
    }
}

impl Joined {
    /// Whether it is over now that a task has ended.
    fn is_done(&self) -> bool {
        let open = self.tasks.iter().any(|task| task.outcome.is_none());
        let failed = || self.tasks.iter().filter_map(|t| t.outcome).any(batch::is_failure);
        !open || (self.batch.fail_fast && failed())
    }

    /// Why it is over when its time is.
    fn verdict(&self) -> Verdict {
        if self.is_done() { Verdict::Done } else { Verdict::Late }
    }

    fn open_turns(&self) -> impl Iterator<Item = &AgentTurnId> {
        self.tasks.iter().filter(|task| task.outcome.is_none()).map(|task| &task.agent_turn_id)
    }

    /// What whoever waits is told.
    fn content(&self, delivered: &BTreeMap<CardId, String>) -> ReportContent {
        let results: Vec<TaskResult<'_>> =
            self.tasks.iter().map(|task| TaskResult::of(task, delivered)).collect();
        let well = self.tasks.iter().filter(|task| task.outcome == Some(Outcome::Success)).count();
        let error = match self.batch.outcome {
            Some(Outcome::Success) => Value::Null,
            _ => json!({
                "code": code::BATCH_FAILED.name,
                "message": format!("{well} of {} tasks ended well", self.tasks.len()),
                "source": AUTHOR,
            }),
        };
        let result = json!({
            "batch_id": self.batch.batch_id,
            "status": self.batch.status(),
            "results": results,
        });
        ReportContent { result, error }
    }

    fn response(&self) -> Edge {
        let batch = &self.batch;
        Edge {
            project_id: batch.project_id.clone(),
            channel_id: batch.channel_id.clone(),
            primitive: Primitive::Join,
            phase: Phase::Response,
            source: End::default(),
            source_step_id: None,
            target: End {
                agent_id: Some(batch.parent_agent_id.clone()),
                agent_turn_id: Some(batch.parent_agent_turn_id.clone()),
            },
            correlation_id: batch.batch_id.as_str().to_owned(),
            recursion_depth: batch.recursion_depth,
            trace_id: batch.trace_id.clone(),
        }
    }
}

/// One task, as whoever waits is told.
#[derive(Serialize)]
struct TaskResult<'a> {
    task_index: i64,
    status: &'static str,
    agent_id: &'a AgentId,
    agent_turn_id: &'a AgentTurnId,
    output_box_id: &'a BoxId,
    #[serde(skip_serializing_if = "Option::is_none")]
    deliverable_card_id: Option<&'a CardId>,
    /// What was delivered,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<Value>,
    /// or how large it is, if it is too large to be repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    summary_bytes: Option<usize>,
    /// or why it cannot be repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

impl<'a> TaskResult<'a> {
    fn of(task: &'a Task, delivered: &BTreeMap<CardId, String>) -> TaskResult<'a> {
        let content = task.deliverable_card_id.as_ref().and_then(|id| delivered.get(id));
        let (small, large) = match content {
            Some(content) if content.len() > SUMMARY_MAX_BYTES => (None, Some(content.len())),
            content => (content, None),
        };
        let (summary, warning) = match small.map(|content| summary(content.as_str())) {
            None => (None, None),
            Some(Ok(summary)) => (Some(summary), None),
            Some(Err(why)) => (None, Some(why)),
        };
        TaskResult {
            task_index: task.task_index,
            status: task.status(),
            agent_id: &task.agent_id,
            agent_turn_id: &task.agent_turn_id,
            output_box_id: &task.output_box_id,
            deliverable_card_id: task.deliverable_card_id.as_ref(),
            summary,
            summary_bytes: large,
            warning,
            error: task.error_code.as_ref().map(|code| json!({ "code": code })),
        }
    }
}

/// What was delivered, or why it cannot be repeated. What one turn delivers never keeps another one from ending.
fn summary(content: &str) -> Result<Value, String> {
    let why = |error: &dyn std::fmt::Display| {
        format!("what was delivered is in the card, and cannot be repeated here: {error}")
    };
    let value: Value = serde_json::from_str(content).map_err(|error| why(&error))?;
    let doc = guild_protocol::json::to_doc(&value);
    let checked = doc.and_then(|doc| doc.check_reads_back(SUMMARY_DEPTH_MAX));
    checked.map_err(|error| why(&error))?;
    Ok(value)
}

impl Plan {
    fn load_joined(&mut self, rx: &mut Rx<'_>, found: Vec<Batch>) -> Result<()> {
        let new: Vec<Batch> = found
            .into_iter()
            .filter(|batch| !self.joins.batches.contains_key(&batch.batch_id))
            .collect();
        let ids: Vec<&BatchId> = new.iter().map(|batch| &batch.batch_id).collect();
        let mut tasks: BTreeMap<BatchId, Vec<Task>> = BTreeMap::new();
        for task in batch::tasks_of(rx, &ids)? {
            tasks.entry(task.batch_id.clone()).or_default().push(task);
        }
        for batch in new {
            let mut tasks = tasks.remove(&batch.batch_id).unwrap_or_default();
            tasks.sort_by_key(|task| task.task_index);
            let (call, batch_id) = (batch.parent_tool_call_id.clone(), batch.batch_id.clone());
            self.joins.of_calls.insert(call, batch_id.clone());
            self.joins.batches.insert(batch_id, Joined { batch, tasks });
        }
        Ok(())
    }

    /// Reads the batches of these calls.
    pub(super) fn load_batches_of(&mut self, rx: &mut Rx<'_>, calls: &[&ToolCallId]) -> Result<()> {
        let asked: BTreeSet<&ToolCallId> =
            calls.iter().copied().filter(|call| !self.joins.of_calls.contains_key(call)).collect();
        let found = batch::of_calls(rx, &asked.into_iter().collect::<Vec<_>>())?;
        self.load_joined(rx, found)
    }

    /// Reads batches.
    pub(super) fn load_batches(&mut self, rx: &mut Rx<'_>, ids: &[&BatchId]) -> Result<()> {
        let found = batch::find_all(rx, ids)?;
        self.load_joined(rx, found)
    }

    /// The end of a turn that is a task of a batch counts there; whether it is one.
    pub(super) fn count_end(&mut self, answer: &Answer) -> bool {
        let now_ms = self.now_ms;
        let Some(batch_id) = self.joins.of_calls.get(&answer.tool_call_id).cloned() else {
            return false;
        };
        let Some(joined) = self.joins.batches.get_mut(&batch_id) else { return false };
        let turn = answer.source.agent_turn_id.as_ref();
        let of_turn = |task: &&mut Task| Some(&task.agent_turn_id) == turn;
        let Some(task) = joined.tasks.iter_mut().find(of_turn) else { return false };
        if task.outcome.is_some() {
            return true;
        }
        let said = |value: &Value, name: &str| Some(value.get(name)?.as_str()?.to_owned());
        task.outcome = Some(answer.outcome);
        task.error_code = said(&answer.content.error, "code");
        task.deliverable_card_id = said(&answer.content.result, "deliverable_card_id")
            .and_then(|card_id| card_id.parse().ok());
        task.closed_ms = Some(now_ms);
        self.joins.ended.insert((batch_id.clone(), task.task_index));
        if joined.is_done() {
            self.joins.decide(&batch_id, Verdict::Done);
        }
        true
    }

    /// The time of a batch is over; whether it was still running. One whose task was put aside may be decided already.
    pub(super) fn expire(&mut self, batch_id: &BatchId) -> bool {
        let now_ms = self.now_ms;
        let due = |joined: &&Joined| joined.batch.deadline_ms <= now_ms;
        let Some(joined) = self.joins.batches.get(batch_id).filter(due) else { return false };
        let verdict = joined.verdict();
        self.joins.decide(batch_id, verdict)
    }

    /// The wait for a call is over: if it has a batch, that says what there is; whether it does.
    pub(super) fn expire_call(&mut self, tool_call_id: &ToolCallId) -> bool {
        let Some(joined) = self.joins.of_call(tool_call_id) else { return false };
        let (batch_id, verdict) = (joined.batch.batch_id.clone(), joined.verdict());
        self.joins.decide(&batch_id, verdict)
    }

    /// Ends the batches that are over.
    pub(super) fn settle_batches(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        self.find_unwanted(tx)?;
        let decided = std::mem::take(&mut self.joins.decided);
        if decided.is_empty() {
            return Ok(());
        }
        self.load_seq(tx)?;
        let calls: Vec<ToolCallId> = decided
            .keys()
            .filter_map(|id| Some(self.joins.batches.get(id)?.batch.parent_tool_call_id.clone()))
            .collect();
        self.load_calls(tx, &calls.iter().collect::<Vec<_>>())?;
        let delivered = self.delivered(tx, &decided)?;
        let children = self.unfinished(tx, &decided)?;
        self.stop_children(tx, &children)?;
        for (batch_id, verdict) in decided {
            self.close_batch(&batch_id, verdict, &delivered)?;
        }
        Ok(())
    }

    /// Finds batches whose calls were answered by somebody else, or are not awaited any more.
    fn find_unwanted(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        let answered = std::mem::take(&mut self.joins.answered);
        self.load_batches_of(tx, &answered.iter().collect::<Vec<_>>())?;
        let mut unwanted: Vec<BatchId> =
            answered.iter().filter_map(|call| self.joins.of_calls.get(call).cloned()).collect();
        let dropped = std::mem::take(&mut self.joins.dropped);
        let found = batch::of_steps(tx, &dropped.iter().collect::<Vec<_>>())?;
        unwanted.extend(found.iter().map(|batch| batch.batch_id.clone()));
        self.load_joined(tx, found)?;
        for batch_id in unwanted {
            self.joins.decide(&batch_id, Verdict::Unwanted);
        }
        Ok(())
    }

    /// What the tasks of these batches have delivered.
    fn delivered(
        &self,
        rx: &mut Rx<'_>,
        decided: &BTreeMap<BatchId, Verdict>,
    ) -> Result<BTreeMap<CardId, String>> {
        let tasks = decided.keys().filter_map(|id| self.joins.batches.get(id));
        let tasks = tasks.flat_map(|joined| &joined.tasks);
        let asked: BTreeSet<&CardId> =
            tasks.filter_map(|task| task.deliverable_card_id.as_ref()).collect();
        let mut delivered: BTreeMap<CardId, String> = BTreeMap::new();
        for card in self.changes.cards.iter().filter(|card| asked.contains(&card.card_id)) {
            delivered.insert(card.card_id.clone(), card.content.clone());
        }
        let stored: Vec<&CardId> =
            asked.into_iter().filter(|id| !delivered.contains_key(id)).collect();
        for card in card::find_all(rx, &stored)? {
            delivered.insert(card.card_id, card.content);
        }
        Ok(delivered)
    }

    /// The turns of these batches that go on although nobody waits for them.
    fn unfinished(
        &self,
        rx: &mut Rx<'_>,
        decided: &BTreeMap<BatchId, Verdict>,
    ) -> Result<Vec<InboxRow>> {
        let joined = decided.keys().filter_map(|id| self.joins.batches.get(id));
        let turns: Vec<&AgentTurnId> = joined.flat_map(Joined::open_turns).collect();
        let open = |row: &InboxRow| row.closed_ms.is_none();
        Ok(inbox::turns(rx, &turns)?.into_iter().filter(open).collect())
    }

    fn close_batch(
        &mut self,
        batch_id: &BatchId,
        verdict: Verdict,
        delivered: &BTreeMap<CardId, String>,
    ) -> Result<()> {
        let now_ms = self.now_ms;
        let Some(joined) = self.joins.batches.get(batch_id) else { return Ok(()) };
        let call = joined.batch.parent_tool_call_id.clone();
        let awaited = self.waits.get(&call).is_some_and(|wait| self.is_awaited(wait));
        let Some(joined) = self.joins.batches.get_mut(batch_id) else { return Ok(()) };
        let left = if verdict == Verdict::Late { Outcome::Timeout } else { Outcome::Canceled };
        for task in joined.tasks.iter_mut().filter(|task| task.outcome.is_none()) {
            task.outcome = Some(left);
            task.error_code = Some(code::BATCH_OVER.name.to_owned());
            task.closed_ms = Some(now_ms);
            self.joins.ended.insert((batch_id.clone(), task.task_index));
        }
        let ends: Vec<Outcome> = joined.tasks.iter().filter_map(|task| task.outcome).collect();
        let outcome = if awaited && verdict != Verdict::Unwanted {
            batch::outcome_of(joined.batch.fail_fast, &ends)
        } else {
            Outcome::Canceled
        };
        joined.batch.outcome = Some(outcome);
        joined.batch.closed_ms = Some(now_ms);
        self.joins.closed.insert(batch_id.clone());
        self.changes.edges.push(joined.response());
        if outcome != Outcome::Canceled {
            let answer = Answer::new(call, AUTHOR, outcome, joined.content(delivered))?;
            self.answer(&answer)?;
        }
        Ok(())
    }

    /// Writes what was decided about batches.
    pub(super) fn save_batches(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        let closed = std::mem::take(&mut self.joins.closed);
        let ended = std::mem::take(&mut self.joins.ended);
        let batches = closed.iter().filter_map(|id| Some(&self.joins.batches.get(id)?.batch));
        let tasks = ended.iter().filter_map(|(id, task_index)| {
            let joined = self.joins.batches.get(id)?;
            joined.tasks.iter().find(|task| task.task_index == *task_index)
        });
        batch::close_all(tx, &batches.collect::<Vec<_>>(), &tasks.collect::<Vec<_>>())
    }
}
