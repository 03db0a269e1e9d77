//! Putting aside what cannot be dealt with: rows that another program has changed, or that contradict each other. They
//! are closed as far as that can be done without reading them, so that nobody else waits behind them. What they owe to
//! others is written down beside, and paid by the next sweep (`debts`): whoever waits for them is answered, and whoever
//! works for them is stopped.

use guild_bus::ANYTHING;
use guild_protocol::env::UnixMs;
use guild_protocol::error::Code;
use guild_store::{Rx, Tx, args};
use serde_json::{Value, json};

use super::Fence;
use super::sweep::{self, Due};
use crate::card::{self, CARD_MAX_BYTES, Card, CardType, Role};
use crate::event::{self, About};
use crate::inbox::{self, Outcome};
use crate::row::to_json;
use crate::{AgentKey, AgentTurnId, CardId, ChannelId, Result};

mod debts;

/// Puts a turn aside that its holder cannot write about; whether it still had it.
pub fn put_aside(
    tx: &mut Tx<'_>,
    fence: &Fence,
    code: &'static Code,
    now_ms: UnixMs,
) -> Result<bool> {
    let (project_id, agent_id) = (fence.key.project_id.as_str(), fence.key.agent_id.as_str());
    let held: Option<(i64,)> = tx.first(
        "SELECT turn_epoch FROM agent_state_head
         WHERE project_id = $1 AND agent_id = $2 AND turn_epoch = $3 AND lease_token = $4",
        args![project_id, agent_id, fence.turn_epoch, fence.token.as_str()],
    )?;
    if held.is_some() {
        put_head_aside(tx, project_id, agent_id, code, now_ms)?;
    }
    Ok(held.is_some())
}

/// Puts aside what a sweep cannot do.
pub(super) fn put_due_aside(
    tx: &mut Tx<'_>,
    due: &Due,
    code: &'static Code,
    now_ms: UnixMs,
) -> Result<()> {
    match due {
        Due::Lease(key) | Due::Stuck(key) => {
            let (project_id, agent_id) = (key.project_id.as_str(), key.agent_id.as_str());
            put_head_aside(tx, project_id, agent_id, code, now_ms).map(drop)
        }
        Due::BadHead(project_id, agent_id) => {
            put_head_aside(tx, project_id, agent_id, code, now_ms).map(drop)
        }
        Due::Queue(key) => put_queue_aside(tx, key, code, now_ms),
        Due::Call(call) => drop_call(tx, call.as_str(), now_ms),
        Due::BadCall(call) => drop_call(tx, call, now_ms),
        Due::Batch(batch_id) => debts::put_batch_aside(tx, batch_id.as_str(), code, now_ms),
        Due::BadBatch(batch_id) => debts::put_batch_aside(tx, batch_id, code, now_ms),
        Due::Stop(seq) => {
            tx.exec(
                "UPDATE agent_inbox SET status = 'error', error_code = $2, closed_ms = $3,
                   next_retry_ms = NULL
                 WHERE seq = $1 AND message_type = 'stop' AND status = 'pending'",
                args![*seq, code.name, now_ms],
            )?;
            Ok(())
        }
    }
}

/// Nobody waits for this call any more. A turn that waited for it alone is found by a sweep.
fn drop_call(tx: &mut Tx<'_>, tool_call_id: &str, now_ms: UnixMs) -> Result<()> {
    tx.exec(
        "UPDATE turn_waiting_tools SET wait_status = 'dropped', closed_ms = $2, run_token = NULL,
           run_until_ms = NULL WHERE tool_call_id = $1 AND wait_status = 'waiting'",
        args![tool_call_id, now_ms],
    )?;
    Ok(())
}

/// A turn that is put aside, in the words of its rows: any of them may be no name at all.
#[derive(Default)]
struct Turn {
    project_id: String,
    agent_id: String,
    agent_turn_id: String,
    channel_id: String,
    turn_epoch: i64,
    trace_id: Option<String>,
    /// The turn that asked for it, and the call that its end answers.
    parent_agent_turn_id: Option<String>,
    answers: Option<String>,
}

impl Turn {
    /// What the row in the inbox says, whatever of it can be read.
    fn of_row(rx: &mut Rx<'_>, seq: i64) -> Result<Option<Turn>> {
        type Row = (String, String, String, String, i64, Option<String>, String);
        let row: Option<Row> = rx.first(
            "SELECT project_id, agent_id, agent_turn_id, channel_id, turn_epoch,
               parent_agent_turn_id, context_headers
             FROM agent_inbox WHERE seq = $1 AND message_type = 'turn'",
            args![seq],
        )?;
        let Some((project_id, agent_id, agent_turn_id, channel_id, turn_epoch, parent, headers)) =
            row
        else {
            return Ok(None);
        };
        let headers: Value = serde_json::from_str(&headers).unwrap_or_default();
        let said = |name: &str| Some(headers.get(name)?.as_str()?.to_owned());
        let (trace_id, answers) = (said("trace_id"), said("answers_tool_call_id"));
        let parent_agent_turn_id = parent;
        Ok(Some(Turn {
            project_id,
            agent_id,
            agent_turn_id,
            channel_id,
            turn_epoch,
            trace_id,
            parent_agent_turn_id,
            answers,
        }))
    }

    fn key(&self) -> Option<AgentKey> {
        let project_id = self.project_id.parse().ok()?;
        Some(AgentKey { project_id, agent_id: self.agent_id.parse().ok()? })
    }
}

/// The oldest turn that waits for an agent cannot begin, and holds up the others.
fn put_queue_aside(
    tx: &mut Tx<'_>,
    key: &AgentKey,
    code: &'static Code,
    now_ms: UnixMs,
) -> Result<()> {
    let oldest: Option<(i64,)> = tx.first(
        "SELECT seq FROM agent_inbox
         WHERE project_id = $1 AND agent_id = $2 AND status = 'queued' ORDER BY seq LIMIT 1",
        args![key.project_id.as_str(), key.agent_id.as_str()],
    )?;
    let Some((seq,)) = oldest else { return Ok(()) };
    let Some(turn) = Turn::of_row(tx, seq)? else { return Ok(()) };
    close_row(tx, seq, code, now_ms)?;
    end(tx, &turn, None, code, now_ms)
}

/// Puts aside a turn whose row cannot be read, whether it has begun or not. If it had, its agent has nothing to do now.
pub(super) fn put_row_aside(
    tx: &mut Tx<'_>,
    seq: i64,
    code: &'static Code,
    now_ms: UnixMs,
) -> Result<Option<AgentKey>> {
    let Some(turn) = Turn::of_row(tx, seq)? else { return Ok(None) };
    let (project_id, agent_id) = (turn.project_id.as_str(), turn.agent_id.as_str());
    let begun: Option<(i64,)> = tx.first(
        "SELECT turn_epoch FROM agent_state_head
         WHERE project_id = $1 AND agent_id = $2 AND status <> 'idle' AND seq = $3",
        args![project_id, agent_id, seq],
    )?;
    if begun.is_some() {
        put_head_aside(tx, project_id, agent_id, code, now_ms)?;
        return Ok(turn.key());
    }
    close_row(tx, seq, code, now_ms)?;
    end(tx, &turn, None, code, now_ms)?;
    Ok(None)
}

fn close_row(tx: &mut Tx<'_>, seq: i64, code: &Code, now_ms: UnixMs) -> Result<()> {
    tx.exec(
        "UPDATE agent_inbox SET status = 'error', outcome = 'failed', error_code = $2, closed_ms = $3
         WHERE seq = $1 AND message_type = 'turn' AND status IN ('queued', 'processing')",
        args![seq, code.name, now_ms],
    )?;
    Ok(())
}

/// An agent has nothing to do any more, whatever it was doing; whether it was doing anything.
pub(super) fn put_head_aside(
    tx: &mut Tx<'_>,
    project_id: &str,
    agent_id: &str,
    code: &'static Code,
    now_ms: UnixMs,
) -> Result<bool> {
    type Said = Option<String>;
    type Row = (Said, Option<i64>, i64, Said, Said, Said, Said);
    let row: Option<Row> = tx.first(
        "SELECT active_agent_turn_id, seq, turn_epoch, channel_id, active_step_id,
           answers_tool_call_id, trace_id
         FROM agent_state_head WHERE project_id = $1 AND agent_id = $2 AND status <> 'idle'",
        args![project_id, agent_id],
    )?;
    let Some((name, seq, epoch, channel, step, answers, trace_id)) = row else { return Ok(false) };
    let epoch = epoch.saturating_add(1);
    tx.exec(
        "UPDATE agent_state_head SET status = 'idle', turn_epoch = $3, active_agent_turn_id = NULL,
           active_inbox_id = NULL, seq = NULL, channel_id = NULL, recursion_depth = NULL,
           trace_id = NULL, parent_step_id = NULL, answers_tool_call_id = NULL, profile_name = NULL,
           context_box_id = NULL, output_box_id = NULL, steps_taken = 0, lost_leases = 0,
           due_ms = NULL, active_step_id = NULL, lease_token = NULL, lease_holder = NULL,
           lease_until_ms = NULL, waiting_tool_count = 0, resume_deadline_ms = NULL, updated_ms = $4
         WHERE project_id = $1 AND agent_id = $2",
        args![project_id, agent_id, epoch, now_ms],
    )?;
    if let Some(step) = &step {
        tx.exec(
            "UPDATE agent_steps SET status = 'abandoned', error_code = $2, ended_ms = $3, cost_unknown = 1
             WHERE step_id = $1 AND status = 'started'",
            args![step, code.name, now_ms],
        )?;
        tx.exec(
            "UPDATE turn_waiting_tools SET wait_status = 'dropped', closed_ms = $2, run_token = NULL,
               run_until_ms = NULL WHERE step_id = $1 AND wait_status = 'waiting'",
            args![step, now_ms],
        )?;
    }
    // The head and the row say the same, unless one of them was changed: then the one that can be read counts.
    let of_row = match seq {
        Some(seq) => Turn::of_row(tx, seq)?,
        None => None,
    };
    let mut turn = of_row.filter(|turn| Some(&turn.agent_turn_id) == name.as_ref());
    let turn = turn.get_or_insert_with(|| Turn {
        agent_turn_id: name.unwrap_or_default(),
        channel_id: channel.unwrap_or_default(),
        ..Turn::default()
    });
    if turn.key().is_none() {
        (turn.project_id, turn.agent_id) = (project_id.to_owned(), agent_id.to_owned());
    }
    turn.turn_epoch = epoch;
    turn.answers = turn.answers.take().or(answers);
    turn.trace_id = turn.trace_id.take().or(trace_id);
    if let Some(seq) = seq {
        close_row(tx, seq, code, now_ms)?;
    }
    end(tx, turn, step.as_deref(), code, now_ms)?;
    Ok(true)
}

/// All that the end of a turn means to others, once its own rows are closed.
fn end(
    tx: &mut Tx<'_>,
    turn: &Turn,
    step_id: Option<&str>,
    code: &'static Code,
    now_ms: UnixMs,
) -> Result<()> {
    let deliverable = tell_end(tx, turn, code, now_ms)?;
    debts::answer_parent(tx, turn, deliverable.as_ref(), code, now_ms)?;
    debts::stop_children(tx, &turn.agent_turn_id, now_ms)?;
    if let Some(step_id) = step_id {
        debts::cancel_batches(tx, step_id, code, now_ms)?;
    }
    tx.ring(sweep::TOPIC, ANYTHING);
    Ok(())
}

/// The one deliverable and the one event of a turn that was put aside, if it can be named. Its box is left alone.
fn tell_end(
    tx: &mut Tx<'_>,
    turn: &Turn,
    code: &'static Code,
    now_ms: UnixMs,
) -> Result<Option<CardId>> {
    let named = turn.key().zip(turn.agent_turn_id.parse().ok());
    let Some((key, agent_turn_id)): Option<(AgentKey, AgentTurnId)> = named else {
        return Ok(None);
    };
    let channel_id: ChannelId = match turn.channel_id.parse() {
        Ok(channel_id) => channel_id,
        Err(_) => "unknown".parse()?,
    };
    if has_delivered(tx, &agent_turn_id)? {
        return Ok(None);
    }
    let content = json!({
        "kind": "fallback_deliverable",
        "fields": [
            { "name": "summary", "value": code.meaning },
            { "name": "reason", "value": code.name },
        ],
    });
    let metadata = json!({ "partial": true, "terminal_reason": code.name });
    let deliverable = Card {
        card_id: CardId::named(now_ms, &[agent_turn_id.as_str(), "deliverable"]),
        project_id: key.project_id.clone(),
        card_type: CardType::Deliverable,
        role: Role::Assistant,
        author_id: key.agent_id.as_str().to_owned(),
        agent_turn_id: Some(agent_turn_id.clone()),
        step_id: None,
        tool_call_id: None,
        content: to_json("deliverable", &content, CARD_MAX_BYTES)?,
        metadata: to_json("metadata", &metadata, CARD_MAX_BYTES)?,
        created_ms: now_ms,
    };
    let about = About {
        key: &key,
        channel_id: &channel_id,
        agent_turn_id: &agent_turn_id,
        turn_epoch: turn.turn_epoch,
        trace_id: turn.trace_id.as_deref(),
    };
    let card_id = deliverable.card_id.clone();
    let told = about.task(Outcome::Failed, &card_id, None, Some(code.name))?;
    card::insert_all(tx, &[deliverable])?;
    event::tell(tx, &[told], now_ms)?;
    inbox::skip_pending(tx, &[agent_turn_id], code.name, now_ms)?;
    Ok(Some(card_id))
}

fn has_delivered(rx: &mut Rx<'_>, agent_turn_id: &AgentTurnId) -> Result<bool> {
    let found: Option<(i64,)> = rx.first(
        "SELECT count(*) FROM cards WHERE agent_turn_id = $1 AND type = 'task.deliverable'",
        args![agent_turn_id.as_str()],
    )?;
    Ok(found.is_some_and(|(count,)| count > 0))
}
