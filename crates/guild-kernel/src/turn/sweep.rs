//! What time brings: leases and batches that are over, calls that nobody answered, turns that were overlooked, stops
//! that wait.
//!
//! [`due`] says what there is to do, [`settle`] does it, and looks at every row again first: whoever came between has
//! changed it. Each thing to do stands alone, so a caller that meets a failure does them one by one, and one bad row
//! holds up nobody else.

use std::collections::BTreeSet;

use guild_protocol::env::UnixMs;
use guild_store::{Rx, Tx, args};
use serde_json::{Value, json};

use super::answer::Answer;
use super::close::Ending;
use super::head::State;
use super::plan::Plan;
use super::step::StepEnd;
use super::stop::Stopped;
use super::wait::WaitStatus;
use super::{LOST_LEASES_MAX, check_count, mark};
use crate::inbox::{self, Change, InboxRow, InboxStatus, MessageType, Outcome, ReportContent};
use crate::row::page;
use crate::{AgentKey, AgentTurnId, BatchId, Result, StepId, ToolCallId, code};

/// The topic of the bell that rings when there is something to sweep at once.
pub const TOPIC: &str = "kernel.sweep";

/// Who answers when nobody does.
const CLOCK: &str = "sys.clock";

/// Something that is due.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    /// The lease of this agent's turn is over.
    Lease(AgentKey),
    /// Nobody has answered this call in time.
    Call(ToolCallId),
    /// This agent is idle, and a turn waits for it.
    Queue(AgentKey),
    /// A turn is to be stopped: the place of the row that says so.
    Stop(i64),
    /// The turn of this agent waits for nothing, which must not be.
    Stuck(AgentKey),
    /// One of these, of an agent whose name is none: project and agent.
    BadHead(String, String),
    /// A call whose name is none.
    BadCall(String),
    /// The time of this batch is over.
    Batch(BatchId),
    /// The same of a batch whose name is none.
    BadBatch(String),
}

impl Due {
    /// The agent that has nothing to do once this is put aside.
    pub fn agent(&self) -> Option<&AgentKey> {
        match self {
            Due::Lease(key) | Due::Stuck(key) | Due::Queue(key) => Some(key),
            Due::Call(_)
            | Due::Stop(_)
            | Due::BadHead(..)
            | Due::BadCall(_)
            | Due::Batch(_)
            | Due::BadBatch(_) => None,
        }
    }

    /// Whether its name is none, so that it can only be put aside.
    fn is_bad(&self) -> bool {
        matches!(self, Due::BadHead(..) | Due::BadCall(_) | Due::BadBatch(_))
    }
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swept {
    /// It was done.
    Done,
    /// Somebody else was faster, or it is not due any more.
    Gone,
}

pub(crate) const LEASES: &str = "SELECT project_id, agent_id FROM agent_state_head
    WHERE status = 'running' AND lease_until_ms <= $1 ORDER BY lease_until_ms LIMIT $2";
pub(crate) const CALLS: &str = "SELECT tool_call_id FROM turn_waiting_tools
    WHERE wait_status = 'waiting' AND deadline_ms <= $1 ORDER BY deadline_ms LIMIT $2";
pub(crate) const STOPS: &str = "SELECT seq FROM agent_inbox
    WHERE next_retry_ms IS NOT NULL AND next_retry_ms <= $1 ORDER BY next_retry_ms LIMIT $2";
pub(crate) const STUCK: &str = "SELECT h.project_id, h.agent_id FROM agent_state_head AS h
    WHERE h.status = 'suspended' AND h.resume_deadline_ms <= $1 AND NOT EXISTS
      (SELECT 1 FROM turn_waiting_tools AS w
       WHERE w.step_id = h.active_step_id AND w.wait_status = 'waiting')
    ORDER BY h.resume_deadline_ms LIMIT $2";
/// Agents for whom turns wait, from one name on, and whether they are idle: from each the index leads to the next one,
/// however many turns wait for it.
pub(crate) const QUEUES: &str = "WITH RECURSIVE awaited (project_id, agent_id, number) AS (
      SELECT i.project_id, i.agent_id, CAST(1 AS BIGINT) FROM agent_inbox AS i WHERE i.seq =
        (SELECT q.seq FROM agent_inbox AS q
         WHERE q.status = 'queued' AND (q.project_id, q.agent_id) > ($1, $2)
         ORDER BY q.project_id, q.agent_id, q.seq LIMIT 1)
    UNION ALL
      SELECT i.project_id, i.agent_id, a.number + 1 FROM awaited AS a JOIN agent_inbox AS i ON i.seq =
        (SELECT q.seq FROM agent_inbox AS q
         WHERE q.status = 'queued' AND (q.project_id, q.agent_id) > (a.project_id, a.agent_id)
         ORDER BY q.project_id, q.agent_id, q.seq LIMIT 1)
      WHERE a.number < $3
    )
    SELECT a.project_id, a.agent_id, coalesce(h.status, '') FROM awaited AS a
    LEFT JOIN agent_state_head AS h ON h.project_id = a.project_id AND h.agent_id = a.agent_id
    ORDER BY a.number";

pub(crate) const BATCHES: &str = "SELECT batch_id FROM pmo_batches
    WHERE status = 'running' AND deadline_ms <= $1 ORDER BY deadline_ms LIMIT $2";

/// Up to which agent the queues were looked at. The next look goes on from there, and begins anew after the last one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    project_id: String,
    agent_id: String,
}

/// What is due, up to `limit` of each kind; of the queues, those of the first `limit` agents.
pub fn due(rx: &mut Rx<'_>, now_ms: UnixMs, limit: i64) -> Result<Vec<Due>> {
    Ok(due_from(rx, &Place::default(), now_ms, limit)?.0)
}

/// The same, with the queues of the agents behind a place; and where the next look goes on.
pub fn due_from(
    rx: &mut Rx<'_>,
    place: &Place,
    now_ms: UnixMs,
    limit: i64,
) -> Result<(Vec<Due>, Place)> {
    let limit = page(limit);
    let mut due = Vec::new();
    let leases: Vec<(String, String)> = rx.all(LEASES, args![now_ms, limit])?;
    due.extend(leases.into_iter().map(|pair| of_agent(pair, Due::Lease)));
    let calls: Vec<(String,)> = rx.all(CALLS, args![now_ms, limit])?;
    due.extend(calls.into_iter().map(|(call,)| match call.parse() {
        Ok(tool_call_id) => Due::Call(tool_call_id),
        Err(_) => Due::BadCall(call),
    }));
    let from = args![&place.project_id, &place.agent_id, limit];
    let queues: Vec<(String, String, String)> = rx.all(QUEUES, from)?;
    let is_last = i64::try_from(queues.len()).is_ok_and(|count| count < limit);
    let next = match queues.last() {
        Some((project_id, agent_id, _)) if !is_last => {
            Place { project_id: project_id.clone(), agent_id: agent_id.clone() }
        }
        _ => Place::default(),
    };
    let idle = queues.into_iter().filter(|(.., status)| status == "idle");
    due.extend(idle.map(|(project_id, agent_id, _)| of_agent((project_id, agent_id), Due::Queue)));
    let stops: Vec<(i64,)> = rx.all(STOPS, args![now_ms, limit])?;
    due.extend(stops.into_iter().map(|(seq,)| Due::Stop(seq)));
    let stuck: Vec<(String, String)> = rx.all(STUCK, args![now_ms, limit])?;
    due.extend(stuck.into_iter().map(|pair| of_agent(pair, Due::Stuck)));
    let batches: Vec<(String,)> = rx.all(BATCHES, args![now_ms, limit])?;
    due.extend(batches.into_iter().map(|(batch,)| match batch.parse() {
        Ok(batch_id) => Due::Batch(batch_id),
        Err(_) => Due::BadBatch(batch),
    }));
    Ok((due, next))
}

fn of_agent((project_id, agent_id): (String, String), due: fn(AgentKey) -> Due) -> Due {
    match (project_id.parse(), agent_id.parse()) {
        (Ok(project_id), Ok(agent_id)) => due(AgentKey { project_id, agent_id }),
        _ => Due::BadHead(project_id, agent_id),
    }
}

/// An agent whose turn was put aside goes on with the next one. In the transaction that put it aside: nobody sees an
/// agent with nothing to do for whom turns wait.
pub fn begin_next(tx: &mut Tx<'_>, key: &AgentKey, now_ms: UnixMs) -> Result<()> {
    settle(tx, &[Due::Queue(key.clone())], now_ms).map(drop)
}

/// Puts aside what cannot be done, again and again: with this code, and never in the way any more. Whatever its agent
/// has to do next is not looked at.
pub fn put_aside(
    tx: &mut Tx<'_>,
    due: &Due,
    code: &'static guild_protocol::error::Code,
    now_ms: UnixMs,
) -> Result<()> {
    mark::put_due_aside(tx, due, code, now_ms)
}

/// Does what is due. One answer for each, in order.
pub fn settle(tx: &mut Tx<'_>, due: &[Due], now_ms: UnixMs) -> Result<Vec<Swept>> {
    check_count(due.len())?;
    // First: all that is read afterwards must say what this has written.
    for bad in due.iter().filter(|due| due.is_bad()) {
        mark::put_due_aside(tx, bad, &code::MALFORMED_ROW, now_ms)?;
    }
    let mut plan = Plan::new(now_ms);
    plan.load_seq(tx)?;
    let stops = plan.load_due(tx, due)?;
    let mut answers = Vec::with_capacity(due.len());
    for due in due {
        let done = match due {
            Due::Lease(key) => plan.reclaim(key)?,
            Due::Call(tool_call_id) => plan.time_out(tool_call_id)?,
            Due::Queue(key) => {
                let idle = plan.heads.get(key).is_some_and(|head| head.active.is_none());
                idle && plan.freed.insert(key.clone())
            }
            Due::Stop(seq) => plan.carry_out(stops.iter().find(|stop| stop.row.seq == *seq))?,
            Due::Stuck(key) => plan.free_stuck(key)?,
            Due::BadHead(..) | Due::BadCall(_) | Due::BadBatch(_) => true,
            Due::Batch(batch_id) => plan.expire(batch_id),
        };
        answers.push(if done { Swept::Done } else { Swept::Gone });
    }
    plan.settle(tx)?;
    Ok(answers)
}

/// A stop, and the turn that it is about.
struct PendingStop {
    row: InboxRow,
    turn: Option<InboxRow>,
}

impl Plan {
    fn load_due(&mut self, tx: &mut Tx<'_>, due: &[Due]) -> Result<Vec<PendingStop>> {
        let keys: Vec<&AgentKey> = due
            .iter()
            .filter_map(|due| match due {
                Due::Lease(key) | Due::Queue(key) | Due::Stuck(key) => Some(key),
                _ => None,
            })
            .collect();
        self.load_heads(tx, keys)?;
        let calls: Vec<&ToolCallId> = due
            .iter()
            .filter_map(|due| if let Due::Call(call) = due { Some(call) } else { None })
            .collect();
        self.load_calls(tx, &calls)?;
        self.load_batches_of(tx, &calls)?;
        let batches: Vec<&BatchId> = due
            .iter()
            .filter_map(|due| if let Due::Batch(batch) = due { Some(batch) } else { None })
            .collect();
        self.load_batches(tx, &batches)?;
        let stuck: BTreeSet<StepId> = due
            .iter()
            .filter_map(
                |due| if let Due::Stuck(key) = due { self.suspended_step(key) } else { None },
            )
            .collect();
        self.load_waits_of(tx, &stuck.iter().collect::<Vec<_>>())?;
        let seqs: Vec<i64> = due
            .iter()
            .filter_map(|due| if let Due::Stop(seq) = due { Some(*seq) } else { None })
            .collect();
        let rows: Vec<InboxRow> = inbox::by_seq(tx, &seqs)?
            .into_iter()
            .filter(|r| r.message_type == MessageType::Stop && r.status == InboxStatus::Pending)
            .collect();
        let ids: Vec<&AgentTurnId> = rows.iter().map(|row| &row.agent_turn_id).collect();
        let turns = self.load_turns(tx, &ids)?;
        let stop = |row: InboxRow| {
            let turn = turns.get(&row.agent_turn_id).cloned();
            PendingStop { row, turn }
        };
        Ok(rows.into_iter().map(stop).collect())
    }

    fn suspended_step(&self, key: &AgentKey) -> Option<StepId> {
        match &self.active(key)?.state {
            State::Suspended { step_id, .. } => Some(step_id.clone()),
            _ => None,
        }
    }

    /// A worker was lost: another one goes on with the step where it was, unless too many were lost.
    fn reclaim(&mut self, key: &AgentKey) -> Result<bool> {
        let now_ms = self.now_ms;
        let Some(active) = self.active(key) else { return Ok(false) };
        let step_id = match &active.state {
            State::Running { step_id, until_ms, .. } if *until_ms <= now_ms => step_id.clone(),
            _ => return Ok(false),
        };
        let lost = active.lost_leases.saturating_add(1);
        if lost >= LOST_LEASES_MAX {
            let words = "Worker after worker was lost in the same step.";
            let ending = Ending::forced(Outcome::Failed, &code::LOST_TOO_OFTEN, words);
            self.close(key, &ending)?;
            return Ok(true);
        }
        self.changes.steps.push(StepEnd::abandoned(&step_id, code::FENCED.name));
        if let Some(active) = &mut self.head_mut(key)?.active {
            active.lost_leases = lost;
        }
        self.set_state(key, State::Dispatched { due_ms: now_ms })?;
        Ok(true)
    }

    /// Nobody answered: a result that somebody has stored counts, or one that says so.
    fn time_out(&mut self, tool_call_id: &ToolCallId) -> Result<bool> {
        let now_ms = self.now_ms;
        let due = |deadline_ms: UnixMs| deadline_ms <= now_ms;
        let wait = self.waits.get(tool_call_id).filter(|wait| due(wait.deadline_ms));
        let Some(wait) = wait else { return Ok(false) };
        if wait.status == WaitStatus::Waiting && !self.is_awaited(wait) {
            // Its turn is elsewhere, which must not be: it would be due for ever, and enough of them would hide others.
            let step_id = wait.step_id.clone();
            self.drop_waits(&step_id);
            self.joins.step_dropped(&step_id);
            return Ok(true);
        }
        if self.expire_call(tool_call_id) {
            return Ok(true);
        }
        let code = &code::TIMED_OUT;
        let error = json!({ "code": code.name, "message": code.meaning, "source": CLOCK });
        let content = ReportContent { result: Value::Null, error };
        let mut answer = Answer::new(tool_call_id.clone(), CLOCK, Outcome::Timeout, content)?;
        answer.message_type = MessageType::Timeout;
        Ok(self.answer(&answer)?.is_some())
    }

    /// A stop that waits is carried out, or is not needed any more.
    fn carry_out(&mut self, stop: Option<&PendingStop>) -> Result<bool> {
        let Some(PendingStop { row, turn }) = stop else { return Ok(false) };
        let stopped = match turn {
            Some(turn) => self.stop(turn, "Whoever asked for it is over.")?,
            None => Stopped::Over,
        };
        let status = match stopped {
            Stopped::Over => InboxStatus::Skipped,
            Stopped::Stopped | Stopped::Canceled => InboxStatus::Consumed,
        };
        self.change_row(Change {
            seq: row.seq,
            status,
            outcome: None,
            error_code: None,
            turn_epoch: row.turn_epoch,
            closed_ms: Some(self.now_ms),
        });
        Ok(true)
    }

    /// A turn that waits for nothing would wait for ever.
    fn free_stuck(&mut self, key: &AgentKey) -> Result<bool> {
        let Some(step_id) = self.suspended_step(key) else { return Ok(false) };
        let awaited = |wait: &super::wait::Wait| {
            wait.step_id == step_id && wait.status == WaitStatus::Waiting
        };
        if self.waits.values().any(awaited) {
            return Ok(false);
        }
        let words = "The turn waited for nothing.";
        let ending = Ending::forced(Outcome::Failed, &code::NOTHING_AWAITED, words);
        self.close(key, &ending)?;
        Ok(true)
    }
}
