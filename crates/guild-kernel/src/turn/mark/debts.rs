//! What something that is put aside owes to others. All of it is written without reading more than their names: an
//! answer stands ready as a card, and its call is due at once, so that a sweep gives it; a task has its end, and a
//! batch that is decided by it is due; whoever works for nobody any more is asked to stop.

use guild_protocol::env::UnixMs;
use guild_protocol::error::Code;
use guild_store::{Rx, Tx, args};
use serde_json::{Value, json};

use super::Turn;
use crate::card::{self, CARD_MAX_BYTES, Card, CardType, Role};
use crate::inbox::{self, MessageType, Outcome};
use crate::pmo::AUTHOR;
use crate::pmo::batch;
use crate::row::to_json;
use crate::{CardId, EdgeId, InboxId, Result};

/// Whoever waits for the turn is told that it failed: its batch, or the call that it answers.
pub(super) fn answer_parent(
    tx: &mut Tx<'_>,
    turn: &Turn,
    deliverable: Option<&CardId>,
    code: &'static Code,
    now_ms: UnixMs,
) -> Result<()> {
    let delivered = deliverable.map(CardId::as_str);
    let batch: Option<(String,)> = tx.first(
        "SELECT batch_id FROM pmo_batch_tasks WHERE agent_turn_id = $1 AND status = 'dispatched'",
        args![&turn.agent_turn_id],
    )?;
    if let Some((batch_id,)) = batch {
        tx.exec(
            "UPDATE pmo_batch_tasks SET status = 'failed', error_code = $2, deliverable_card_id = $3,
               closed_ms = $4 WHERE agent_turn_id = $1 AND status = 'dispatched'",
            args![&turn.agent_turn_id, code.name, delivered, now_ms],
        )?;
        return join_soon(tx, &batch_id, now_ms);
    }
    let (Some(call), Some(parent)) = (&turn.answers, &turn.parent_agent_turn_id) else {
        return Ok(());
    };
    let result = json!({
        "agent_id": turn.agent_id,
        "agent_turn_id": turn.agent_turn_id,
        "deliverable_card_id": delivered,
        "output_box_id": null,
    });
    let error = json!({ "code": code.name, "message": code.meaning });
    let told = Told { author: &turn.agent_id, outcome: Outcome::Failed, result, error };
    answer_soon(tx, call, parent, told, now_ms)
}

/// A batch that is decided is due.
fn join_soon(tx: &mut Tx<'_>, batch_id: &str, now_ms: UnixMs) -> Result<()> {
    tx.exec(
        "UPDATE pmo_batches SET deadline_ms = $2
         WHERE batch_id = $1 AND status = 'running' AND deadline_ms > $2 AND (fail_fast = 1 OR NOT EXISTS
           (SELECT 1 FROM pmo_batch_tasks AS t WHERE t.batch_id = $1 AND t.status = 'dispatched'))",
        args![batch_id, now_ms],
    )?;
    Ok(())
}

/// What whoever waits is told.
struct Told<'a> {
    author: &'a str,
    outcome: Outcome,
    result: Value,
    error: Value,
}

/// A call of this turn that is still awaited has its answer, and is due: whoever sweeps it finds the card.
fn answer_soon(
    tx: &mut Tx<'_>,
    call: &str,
    agent_turn_id: &str,
    told: Told<'_>,
    now_ms: UnixMs,
) -> Result<()> {
    type Row = (String, String, String, String, String);
    let wait: Option<Row> = tx.first(
        "SELECT project_id, agent_id, step_id, after_execution, tool_name FROM turn_waiting_tools
         WHERE tool_call_id = $1 AND agent_turn_id = $2 AND wait_status = 'waiting'",
        args![call, agent_turn_id],
    )?;
    let Some((project_id, agent_id, step_id, after, tool_name)) = wait else { return Ok(()) };
    tx.exec(
        "UPDATE turn_waiting_tools SET deadline_ms = $2
         WHERE tool_call_id = $1 AND wait_status = 'waiting' AND deadline_ms > $2",
        args![call, now_ms],
    )?;
    tx.exec(
        "UPDATE agent_state_head SET resume_deadline_ms = $4
         WHERE project_id = $1 AND agent_id = $2 AND status = 'suspended' AND active_step_id = $3
           AND resume_deadline_ms > $4",
        args![&project_id, &agent_id, &step_id, now_ms],
    )?;
    let names = project_id.parse().ok().zip(agent_turn_id.parse().ok());
    let names = names.zip(step_id.parse().ok().zip(call.parse().ok()));
    let Some(((project_id, agent_turn_id), (step_id, tool_call_id))) = names else {
        return Ok(());
    };
    if has_result(tx, call)? {
        return Ok(());
    }
    let content = json!({
        "status": told.outcome.as_str(),
        "after_execution": after,
        "result": told.result,
        "error": told.error,
    });
    let metadata = json!({ "function_name": tool_name });
    let card = Card {
        card_id: CardId::named(now_ms, &[call, "result"]),
        project_id,
        card_type: CardType::ToolResult,
        role: Role::Tool,
        author_id: told.author.to_owned(),
        agent_turn_id: Some(agent_turn_id),
        step_id: Some(step_id),
        tool_call_id: Some(tool_call_id),
        content: to_json("result", &content, CARD_MAX_BYTES)?,
        metadata: to_json("metadata", &metadata, CARD_MAX_BYTES)?,
        created_ms: now_ms,
    };
    card::insert_all(tx, &[card])
}

fn has_result(rx: &mut Rx<'_>, call: &str) -> Result<bool> {
    let found: Option<(i64,)> = rx.first(
        "SELECT count(*) FROM cards WHERE tool_call_id = $1 AND type = 'tool.result'",
        args![call],
    )?;
    Ok(found.is_some_and(|(count,)| count > 0))
}

/// A turn that goes on: project, agent, channel, turn, epoch.
type Open = (String, String, String, String, i64);

/// Whatever a turn has asked others for is not wanted any more.
pub(super) fn stop_children(tx: &mut Tx<'_>, agent_turn_id: &str, now_ms: UnixMs) -> Result<()> {
    let open: Vec<Open> = tx.all(
        "SELECT c.project_id, c.agent_id, c.channel_id, c.agent_turn_id, c.turn_epoch
         FROM agent_inbox AS c
         WHERE c.parent_agent_turn_id = $1 AND c.parent_agent_turn_id IS NOT NULL
           AND c.status IN ('queued', 'processing') ORDER BY c.seq",
        args![agent_turn_id],
    )?;
    ask_to_stop(tx, &open, now_ms)
}

/// Asks each of these to stop, once.
fn ask_to_stop(tx: &mut Tx<'_>, open: &[Open], now_ms: UnixMs) -> Result<()> {
    let stop = MessageType::Stop.as_str();
    for (project_id, agent_id, channel_id, turn, epoch) in open {
        let asked: Option<(i64,)> = tx.first(
            "SELECT seq FROM agent_inbox
             WHERE project_id = $1 AND message_type = 'stop' AND correlation_id = $2",
            args![project_id, turn],
        )?;
        if asked.is_some() {
            continue;
        }
        let inbox_id = InboxId::named(now_ms, &[project_id, stop, turn]);
        let seq = inbox::last_seq(tx)?.saturating_add(1);
        tx.exec(
            "INSERT INTO agent_inbox (seq, inbox_id, project_id, agent_id, channel_id, message_type,
               correlation_id, agent_turn_id, turn_epoch, context_headers, payload, status, retry_count,
               next_retry_ms, created_ms)
             VALUES ($1, $2, $3, $4, $5, 'stop', $6, $6, $7, '{}', '{}', 'pending', 0, $8, $8)",
            args![seq, inbox_id.as_str(), project_id, agent_id, channel_id, turn, *epoch, now_ms],
        )?;
    }
    Ok(())
}

/// Nobody waits for the batches of this step.
pub(super) fn cancel_batches(
    tx: &mut Tx<'_>,
    step_id: &str,
    code: &Code,
    now_ms: UnixMs,
) -> Result<()> {
    let running: Vec<(String, String)> = tx.all(
        "SELECT batch_id, project_id FROM pmo_batches
         WHERE parent_step_id = $1 AND status = 'running'",
        args![step_id],
    )?;
    for (batch_id, project_id) in running {
        let ends = Ends { batch: Outcome::Canceled, open_tasks: Outcome::Canceled };
        close_batch(tx, (&batch_id, &project_id), ends, code, now_ms)?;
    }
    Ok(())
}

/// A batch whose time is over, and that cannot be joined, ends as its tasks have so far. Whoever waits is told.
pub(super) fn put_batch_aside(
    tx: &mut Tx<'_>,
    batch_id: &str,
    code: &'static Code,
    now_ms: UnixMs,
) -> Result<()> {
    let row: Option<(String, String, String, i64)> = tx.first(
        "SELECT project_id, parent_agent_turn_id, parent_tool_call_id, fail_fast FROM pmo_batches
         WHERE batch_id = $1 AND status = 'running'",
        args![batch_id],
    )?;
    let Some((project_id, parent, call, fail_fast)) = row else { return Ok(()) };
    let open: Vec<Open> = tx.all(
        "SELECT c.project_id, c.agent_id, c.channel_id, c.agent_turn_id, c.turn_epoch
         FROM pmo_batch_tasks AS t JOIN agent_inbox AS c
           ON c.message_type = 'turn' AND c.agent_turn_id = t.agent_turn_id
         WHERE t.batch_id = $1 AND t.status = 'dispatched' AND c.status IN ('queued', 'processing')
         ORDER BY c.seq",
        args![batch_id],
    )?;
    ask_to_stop(tx, &open, now_ms)?;
    let tasks: Vec<(i64, String, String)> = tx.all(
        "SELECT task_index, agent_turn_id, status FROM pmo_batch_tasks WHERE batch_id = $1
         ORDER BY task_index",
        args![batch_id],
    )?;
    let ended = |(index, turn, status): (i64, String, String)| {
        let end: Outcome = status.parse().unwrap_or(Outcome::Timeout);
        let told = json!({ "task_index": index, "agent_turn_id": turn, "status": end.as_str() });
        (end, told)
    };
    let (ends, results): (Vec<Outcome>, Vec<Value>) = tasks.into_iter().map(ended).unzip();
    let outcome = batch::outcome_of(fail_fast == 1, &ends);
    let ends = Ends { batch: outcome, open_tasks: Outcome::Timeout };
    close_batch(tx, (batch_id, &project_id), ends, code, now_ms)?;
    let error = match outcome {
        Outcome::Success => Value::Null,
        _ => json!({ "code": code.name, "message": code.meaning, "source": AUTHOR }),
    };
    let result = json!({ "batch_id": batch_id, "status": outcome.as_str(), "results": results });
    let told = Told { author: AUTHOR, outcome, result, error };
    answer_soon(tx, &call, &parent, told, now_ms)
}

/// How a batch ends, and those of its tasks that have no end.
struct Ends {
    batch: Outcome,
    open_tasks: Outcome,
}

/// Closes a batch, its open tasks and its edge.
fn close_batch(
    tx: &mut Tx<'_>,
    (batch_id, project_id): (&str, &str),
    ends: Ends,
    code: &Code,
    now_ms: UnixMs,
) -> Result<()> {
    tx.exec(
        "UPDATE pmo_batch_tasks SET status = $2, error_code = $3, closed_ms = $4
         WHERE batch_id = $1 AND status = 'dispatched'",
        args![batch_id, ends.open_tasks.as_str(), code.name, now_ms],
    )?;
    tx.exec(
        "UPDATE pmo_batches SET status = $2, closed_ms = $3 WHERE batch_id = $1 AND status = 'running'",
        args![batch_id, ends.batch.as_str(), now_ms],
    )?;
    let edge_id = EdgeId::named(now_ms, &[project_id, batch_id, "join", "response"]);
    tx.exec(
        "INSERT INTO execution_edges (edge_id, project_id, channel_id, primitive, edge_phase,
           target_agent_id, target_agent_turn_id, correlation_id, recursion_depth, trace_id, metadata,
           created_ms)
         SELECT CAST($2 AS TEXT), b.project_id, b.channel_id, 'join', 'response', b.parent_agent_id,
           b.parent_agent_turn_id, b.batch_id, b.recursion_depth, b.trace_id, '{}', CAST($3 AS BIGINT)
         FROM pmo_batches AS b WHERE b.batch_id = $1 ON CONFLICT DO NOTHING",
        args![batch_id, edge_id.as_str(), now_ms],
    )?;
    Ok(())
}
