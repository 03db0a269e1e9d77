//! Whoever does beside a worker what none may do.

use std::collections::BTreeMap;
use std::sync::Arc;

use guild_kernel::Result;
use guild_kernel::turn::sweep::{self, Due};
use guild_protocol::env::{BoxFuture, Clock};
use guild_store::{Store, Tx, args};

use super::{Bug, SWEEP_MS, Shared, shop};
use crate::executor::Life;

/// The one that this bug is done by.
pub(super) fn of(
    shared: &Shared,
    life: &Life,
    store: &Store,
    clock: &Arc<dyn Clock>,
) -> Option<BoxFuture<()>> {
    let (shared, store, clock) = (shared.clone(), store.clone(), clock.clone());
    let holder = format!("node-{}", life.process());
    match shared.bug? {
        Bug::AskedAgain => Some(Box::pin(again(shared, store, clock, ask_again))),
        Bug::TwoTransactions => Some(Box::pin(again(shared, store, clock, resume))),
        Bug::JoinedAgain => Some(Box::pin(again(shared, store, clock, join_again))),
        Bug::AnsweredAfterStop => Some(Box::pin(again(shared, store, clock, answer_the_dead))),
        Bug::TimeoutBesideResult => Some(Box::pin(again(shared, store, clock, time_out))),
        Bug::CommandBeforeCommit => Some(Box::pin(send_early(shared))),
        Bug::UnfencedAppend => Some(Box::pin(haunt(shared, store, holder, write_card))),
        Bug::UnfencedEntry => Some(Box::pin(haunt(shared, store, holder, put_entry))),
        Bug::HeartbeatRevives => Some(Box::pin(revive(shared, store, holder))),
        _ => None,
    }
}

type Deed = fn(&mut Tx<'_>, i64) -> Result<()>;

/// Does it now and then.
async fn again(shared: Shared, store: Store, clock: Arc<dyn Clock>, deed: Deed) {
    loop {
        shared.world.sleep(SWEEP_MS / 2 + shared.world.below_ms(50)).await;
        let clock = clock.clone();
        // What cannot be done now is done the next time.
        let done: Result<()> = store.write(move |tx| deed(tx, clock.now_ms())).await;
        drop(done);
    }
}

/// Sends commands as they are queued, and does not wait for their commit.
async fn send_early(shared: Shared) {
    loop {
        shared.world.sleep(1).await;
        for body in shared.database.overheard() {
            shop::overhear(&shared, &body);
        }
    }
}

/// A watchdog that asks for a turn again which no worker has taken for a while.
fn ask_again(tx: &mut Tx<'_>, now_ms: i64) -> Result<()> {
    tx.exec(
        "INSERT INTO agent_inbox (seq, inbox_id, project_id, agent_id, channel_id, message_type, correlation_id,
           agent_turn_id, turn_epoch, context_headers, payload, status, retry_count, created_ms)
         SELECT (SELECT max(seq) + 1 FROM agent_inbox), substr(i.inbox_id, 1, 30) || '0000000a', i.project_id,
           i.agent_id, i.channel_id, i.message_type, i.correlation_id || ' again', i.agent_turn_id,
           i.turn_epoch, i.context_headers, i.payload, 'queued', 0, $1
         FROM agent_inbox AS i JOIN agent_state_head AS h ON h.seq = i.seq
         WHERE h.status = 'dispatched' AND h.due_ms < $1 - 100 AND i.correlation_id NOT LIKE '% again'
         LIMIT 1",
        args![now_ms],
    )?;
    Ok(())
}

/// The second of two transactions.
fn resume(tx: &mut Tx<'_>, now_ms: i64) -> Result<()> {
    tx.exec(
        "UPDATE agent_state_head SET status = 'dispatched', due_ms = $1, active_step_id = NULL,
           waiting_tool_count = 0, resume_deadline_ms = NULL
         WHERE status = 'suspended' AND NOT EXISTS
           (SELECT 1 FROM turn_waiting_tools AS w
            WHERE w.step_id = active_step_id AND w.wait_status = 'waiting')",
        args![now_ms],
    )?;
    Ok(())
}

/// A watchdog that does not look whether there is a result.
fn time_out(tx: &mut Tx<'_>, now_ms: i64) -> Result<()> {
    tx.exec(
        "INSERT INTO cards (card_id, project_id, type, role, author_id, agent_turn_id, step_id, tool_call_id,
           content, metadata, created_ms)
         SELECT substr(c.card_id, 1, 29) || '0000000b', c.project_id, c.type, c.role, 'sys.clock',
           c.agent_turn_id, c.step_id, c.tool_call_id, '{\"status\":\"timeout\"}', c.metadata, $1
         FROM cards AS c JOIN agent_state_head AS h ON h.active_agent_turn_id = c.agent_turn_id
         WHERE c.type = 'tool.result' AND c.created_ms < $1 - 200 AND c.author_id <> 'sys.clock'
         LIMIT 1",
        args![now_ms],
    )?;
    Ok(())
}

/// A sweep that does not look whether a batch runs.
fn join_again(tx: &mut Tx<'_>, now_ms: i64) -> Result<()> {
    let over: Option<(String,)> = tx.first(
        "SELECT batch_id FROM pmo_batches WHERE status <> 'running' AND deadline_ms <= $1 LIMIT 1",
        args![now_ms],
    )?;
    if let Some((batch_id,)) = over {
        sweep::settle(tx, &[Due::Batch(batch_id.parse()?)], now_ms)?;
    }
    Ok(())
}

/// A watchdog that hands over what a child has delivered, whoever waits for it.
fn answer_the_dead(tx: &mut Tx<'_>, now_ms: i64) -> Result<()> {
    tx.exec(
        "UPDATE turn_waiting_tools SET wait_status = 'applied', result_status = 'success', closed_ms = $1,
           result_card_id = (SELECT c.card_id FROM pmo_batches AS b
             JOIN pmo_batch_tasks AS t ON t.batch_id = b.batch_id
             JOIN cards AS c ON c.agent_turn_id = t.agent_turn_id AND c.type = 'task.deliverable'
             WHERE b.parent_tool_call_id = turn_waiting_tools.tool_call_id LIMIT 1)
         WHERE wait_status = 'dropped' AND closed_ms < $1 AND EXISTS
           (SELECT 1 FROM pmo_batches AS b JOIN pmo_batch_tasks AS t ON t.batch_id = b.batch_id
            JOIN cards AS c ON c.agent_turn_id = t.agent_turn_id AND c.type = 'task.deliverable'
            WHERE b.parent_tool_call_id = turn_waiting_tools.tool_call_id)",
        args![now_ms],
    )?;
    Ok(())
}

/// The turns that a process has: step, token.
type Mine = BTreeMap<String, String>;

async fn look(store: &Store, holder: &str, mine: &mut Mine) {
    let holder = holder.to_owned();
    let read = store.read(move |rx| {
        rx.all::<(String, String)>(
            "SELECT active_step_id, lease_token FROM agent_state_head
             WHERE status = 'running' AND lease_holder = $1",
            args![&holder],
        )
    });
    mine.extend(read.await.unwrap_or_default());
}

/// What is done about a step that its worker has lost.
type Haunting = fn(&mut Tx<'_>, &str) -> Result<()>;

/// Goes on with steps that somebody else does again.
async fn haunt(shared: Shared, store: Store, holder: String, deed: Haunting) {
    let mut mine = Mine::new();
    loop {
        shared.world.sleep(SWEEP_MS / 2).await;
        look(&store, &holder, &mut mine).await;
        for step in mine.keys().cloned().collect::<Vec<_>>() {
            let haunted: Result<()> = store.write(move |tx| deed(tx, &step)).await;
            drop(haunted);
        }
    }
}

/// Writes down what came out of it.
fn write_card(tx: &mut Tx<'_>, step: &str) -> Result<()> {
    tx.exec(
        "INSERT INTO cards (card_id, project_id, type, role, author_id, agent_turn_id, step_id, content,
           metadata, created_ms)
         SELECT 'card_' || substr(s.step_id, 6), s.project_id, 'agent.thought', 'assistant', s.agent_id,
           s.agent_turn_id, s.step_id, '{}', '{}', s.ended_ms
         FROM agent_steps AS s JOIN agent_state_head AS h ON h.active_agent_turn_id = s.agent_turn_id
         WHERE s.step_id = $1 AND s.status = 'abandoned' ON CONFLICT DO NOTHING",
        args![step],
    )?;
    Ok(())
}

/// Puts what the turn has read beside what it writes.
fn put_entry(tx: &mut Tx<'_>, step: &str) -> Result<()> {
    let put = tx.exec(
        "INSERT INTO card_box_entries (box_id, place, card_id)
         SELECT b.box_id, b.next_place, e.card_id
         FROM agent_steps AS s JOIN agent_state_head AS h ON h.active_agent_turn_id = s.agent_turn_id
         JOIN card_boxes AS b ON b.box_id = h.output_box_id
         JOIN card_box_entries AS e ON e.box_id = h.context_box_id AND e.place = 0
         WHERE s.step_id = $1 AND s.status = 'abandoned' ON CONFLICT DO NOTHING",
        args![step],
    )?;
    if put > 0 {
        tx.exec(
            "UPDATE card_boxes SET next_place = next_place + 1 WHERE box_id =
               (SELECT h.output_box_id FROM agent_steps AS s
                JOIN agent_state_head AS h ON h.active_agent_turn_id = s.agent_turn_id
                WHERE s.step_id = $1)",
            args![step],
        )?;
    }
    Ok(())
}

/// Renews leases by the turn alone.
async fn revive(shared: Shared, store: Store, holder: String) {
    let mut mine = Mine::new();
    loop {
        shared.world.sleep(SWEEP_MS / 2).await;
        look(&store, &holder, &mut mine).await;
        for (step, token) in mine.clone() {
            let revived = store.write(move |tx| {
                tx.exec(
                    "UPDATE agent_state_head SET lease_token = $2
                     WHERE status = 'running' AND active_agent_turn_id =
                       (SELECT s.agent_turn_id FROM agent_steps AS s WHERE s.step_id = $1 AND s.status = 'abandoned')",
                    args![&step, &token],
                )
            });
            drop(revived.await);
        }
    }
}
