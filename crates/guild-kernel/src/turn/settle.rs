//! What follows from what was decided, and writing all of it.

use std::collections::BTreeSet;

use guild_bus::ANYTHING;
use guild_bus::subject::{Subject, WorkerTarget};
use guild_store::Tx;
use guild_store::outbox::{self, NewMessage};

use super::plan::{Changes, Command, Over, Plan};
use super::wait::Wait;
use super::{head, mark, step, sweep, wait};
use crate::inbox::{self, InboxRow, InboxStatus, MessageType, Readable};
use crate::{AgentTurnId, InboxId, Result, ToolCallId, boxes, card, code, edge, event};

/// Which sink of the outbox takes the commands that call tools elsewhere.
pub const COMMAND_SINK: &str = "tool";

/// So many rounds begin turns. What is still queued for an idle agent after them is found by a sweep.
const ROUNDS_MAX: usize = 24;

impl Plan {
    /// Decides what follows, and writes everything. Each round reads rows that the one before it did not know of. It
    /// ends: answers only go up, and nothing is deeper than [`super::DEPTH_MAX`].
    pub(super) fn settle(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        for round in 0.. {
            if round >= ROUNDS_MAX {
                self.freed.clear();
            }
            let decided = self.answers.is_empty() && self.over.is_empty() && self.freed.is_empty();
            if decided && self.joins.is_settled() && self.unreadable.is_empty() {
                break;
            }
            self.settle_answers(tx)?;
            self.settle_batches(tx)?;
            self.settle_children(tx)?;
            if round < ROUNDS_MAX {
                self.dispatch(tx)?;
            }
            if !self.freed.is_empty() || !self.unreadable.is_empty() {
                // The next turns of these agents are read from rows: they must say what was decided.
                self.save(tx)?;
                self.put_unreadable_aside(tx)?;
            }
        }
        self.save(tx)
    }

    /// Closes turns whose rows cannot be read, each by its place alone, so that nobody else fails with them.
    fn put_unreadable_aside(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        let unreadable: BTreeSet<i64> = std::mem::take(&mut self.unreadable).into_iter().collect();
        if unreadable.is_empty() {
            return Ok(());
        }
        for seq in unreadable {
            self.freed.extend(mark::put_row_aside(tx, seq, &code::MALFORMED_ROW, self.now_ms)?);
        }
        self.reload(tx)
    }

    /// The ends of turns answer the calls that they were asked for by, or count for their batches.
    fn settle_answers(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        let answers = std::mem::take(&mut self.answers);
        if answers.is_empty() {
            return Ok(());
        }
        self.load_seq(tx)?;
        let calls: Vec<&ToolCallId> = answers.iter().map(|answer| &answer.tool_call_id).collect();
        self.load_calls(tx, &calls)?;
        self.load_batches_of(tx, &calls)?;
        for answer in &answers {
            if !self.count_end(answer) {
                self.answer(answer)?;
            }
        }
        Ok(())
    }

    /// What a turn has asked others for is not wanted any more when it is over: all of it if it was ended by somebody
    /// else; otherwise what it would have waited for.
    fn settle_children(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        let over = std::mem::take(&mut self.over);
        if over.is_empty() {
            return Ok(());
        }
        let parents: Vec<&AgentTurnId> = over.iter().map(|over| &over.agent_turn_id).collect();
        let mut children = Vec::new();
        for Readable(child) in inbox::open_children(tx, &parents)? {
            match child {
                Ok(child) => children.push(child),
                // Nobody can say whether it is still wanted; it cannot be done as it should either way.
                Err(seq) => self.unreadable.push(seq),
            }
        }
        if children.is_empty() {
            return Ok(());
        }
        let children = unwanted(children, &over);
        self.stop_children(tx, &children)
    }

    /// Asks turns to stop that go on, each once.
    pub(super) fn stop_children(&mut self, tx: &mut Tx<'_>, children: &[InboxRow]) -> Result<()> {
        let names: Vec<_> = children
            .iter()
            .map(|row| (&row.key, MessageType::Stop, row.agent_turn_id.as_str()))
            .collect();
        let mut stopped: BTreeSet<String> =
            inbox::by_correlation(tx, &names)?.into_iter().map(|row| row.correlation_id).collect();
        let new = self.changes.new_rows.values();
        let new = new.filter(|row| row.message_type == MessageType::Stop);
        stopped.extend(new.map(|row| row.correlation_id.clone()));
        stopped.extend(self.changes.closed.iter().map(|id| id.as_str().to_owned()));
        self.load_seq(tx)?;
        for child in children {
            if stopped.insert(child.agent_turn_id.as_str().to_owned()) {
                self.ask_to_stop(child);
            }
        }
        Ok(())
    }

    fn ask_to_stop(&mut self, child: &InboxRow) {
        let correlation_id = child.agent_turn_id.as_str().to_owned();
        let words = [child.key.project_id.as_str(), MessageType::Stop.as_str(), &correlation_id];
        let row = InboxRow {
            seq: self.next_seq(),
            inbox_id: InboxId::named(self.now_ms, &words),
            key: child.key.clone(),
            channel_id: child.channel_id.clone(),
            message_type: MessageType::Stop,
            agent_turn_id: child.agent_turn_id.clone(),
            turn_epoch: child.turn_epoch,
            parent_agent_turn_id: None,
            context_headers: "{}".to_owned(),
            payload: "{}".to_owned(),
            correlation_id,
            status: InboxStatus::Pending,
            outcome: None,
            error_code: None,
            retry_count: 0,
            next_retry_ms: Some(self.now_ms),
            created_ms: self.now_ms,
            closed_ms: None,
        };
        self.changes.new_rows.insert(row.seq, row);
        self.changes.stops = true;
    }

    /// Writes what was decided so far.
    fn save(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        let changes = std::mem::take(&mut self.changes);
        let now_ms = self.now_ms;
        card::insert_all(tx, &changes.cards)?;
        boxes::insert_entries(tx, &changes.entries)?;
        let places: Vec<_> = changes
            .boxes
            .iter()
            .filter_map(|id| Some((id, self.boxes.get(id)?.next_place)))
            .collect();
        boxes::grow(tx, &places)?;
        let heads: Vec<_> = changes.heads.iter().filter_map(|key| self.heads.get(key)).collect();
        head::update_all(tx, &heads)?;
        inbox::insert_all(tx, &changes.new_rows.values().collect::<Vec<_>>())?;
        inbox::change_all(tx, &changes.rows)?;
        inbox::skip_pending(tx, &changes.closed, code::TURN_CLOSED.name, now_ms)?;
        step::insert_all(tx, &changes.new_steps)?;
        step::end_all(tx, &changes.steps, now_ms)?;
        let of = |ids: &BTreeSet<ToolCallId>| -> Vec<&Wait> {
            ids.iter().filter_map(|id| self.waits.get(id)).collect()
        };
        wait::insert_all(tx, &of(&changes.new_waits))?;
        wait::close_all(tx, &of(&changes.waits))?;
        wait::drop_all(tx, &changes.dropped_waits, now_ms)?;
        self.save_batches(tx)?;
        edge::insert_all(tx, &changes.edges, now_ms)?;
        event::tell(tx, &changes.events, now_ms)?;
        send(tx, &changes.commands, now_ms)?;
        ring(tx, &changes)
    }
}

fn unwanted(children: Vec<InboxRow>, over: &[Over]) -> Vec<InboxRow> {
    let wanted_gone = |child: &InboxRow| {
        let by =
            over.iter().find(|o| Some(&o.agent_turn_id) == child.parent_agent_turn_id.as_ref());
        let awaited = || child.turn_headers().is_some_and(|h| h.answers_tool_call_id.is_some());
        by.is_some_and(|by| by.all || awaited())
    };
    children.into_iter().filter(wanted_gone).collect()
}

fn send(tx: &mut Tx<'_>, commands: &[Command], now_ms: i64) -> Result<()> {
    let mut messages = Vec::with_capacity(commands.len());
    for Command { sink, lane, idempotency_key, body } in commands {
        messages.push(NewMessage { sink, key: lane, idempotency_key, body });
    }
    Ok(outbox::enqueue_all(tx, &messages, now_ms)?)
}

fn ring(tx: &mut Tx<'_>, changes: &Changes) -> Result<()> {
    for target in &changes.targets {
        let subject = Subject::Wakeup(WorkerTarget::parse(target)?);
        tx.ring(subject.topic()?.as_str(), ANYTHING);
    }
    if changes.stops {
        tx.ring(sweep::TOPIC, ANYTHING);
    }
    Ok(())
}
