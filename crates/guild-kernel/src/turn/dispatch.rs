//! Beginning turns: an agent that is idle gets the oldest turn that waits for it and can begin.

use std::collections::{BTreeMap, BTreeSet};

use guild_store::Tx;

use super::close::{By, Ending};
use super::head::{Active, State};
use super::plan::Plan;
use crate::inbox::{
    self, Change, InboxRow, InboxStatus, Outcome, QUEUED_AT_ONCE, Readable, TurnHeaders,
    TurnPayload,
};
use crate::{AgentKey, ProjectId, Result, code};

/// A turn that may begin, and what its row says; nothing if that cannot be read.
struct Candidate {
    row: InboxRow,
    said: Option<(TurnHeaders, TurnPayload)>,
}

impl Candidate {
    fn of(row: InboxRow) -> Candidate {
        let said = row.turn_headers().zip(row.turn_payload());
        Candidate { row, said }
    }
}

/// The turns that wait for agents, each by its place.
type Queues = BTreeMap<AgentKey, BTreeMap<i64, Candidate>>;

impl Plan {
    /// Begins turns of the agents that may have one to begin. Those that have more unfit ones than are read at once are
    /// looked at again.
    pub(super) fn dispatch(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        let freed = std::mem::take(&mut self.freed);
        self.load_heads(tx, &freed)?;
        let idle: Vec<&AgentKey> = freed
            .iter()
            .filter(|key| self.heads.get(key).is_some_and(|head| head.active.is_none()))
            .collect();
        if idle.is_empty() {
            return Ok(());
        }
        let mut queued = Queues::new();
        let (mut readable, before) = (Vec::new(), self.unreadable.len());
        for Readable(row) in inbox::queued(tx, &idle)? {
            match row {
                Ok(row) => readable.push(row),
                // Whose turn has just ended is not to blame: it is put aside alone.
                Err(seq) => self.unreadable.push(seq),
            }
        }
        if self.unreadable.len() > before {
            // Once they are out of the way there may be more behind them.
            self.freed.extend(idle.iter().map(|key| (*key).clone()));
            return Ok(());
        }
        for row in readable {
            // What is decided about already is no longer queued.
            if !self.changes.rows.iter().any(|change| change.seq == row.seq) {
                queued.entry(row.key.clone()).or_default().insert(row.seq, Candidate::of(row));
            }
        }
        let full: BTreeSet<AgentKey> = queued
            .iter()
            .filter(|(_, rows)| rows.len() >= QUEUED_AT_ONCE)
            .map(|(key, _)| key.clone())
            .collect();
        let idle: BTreeSet<&AgentKey> = idle.into_iter().collect();
        for row in self.changes.new_rows.values() {
            if row.status == InboxStatus::Queued && idle.contains(&row.key) {
                let candidate = Candidate::of(row.clone());
                queued.entry(row.key.clone()).or_default().insert(row.seq, candidate);
            }
        }
        self.load_for_dispatch(tx, &queued)?;
        for (key, rows) in queued {
            let begun = self.begin_first(&key, rows.into_values())?;
            if !begun && full.contains(&key) {
                self.freed.insert(key);
            }
        }
        Ok(())
    }

    fn load_for_dispatch(&mut self, tx: &mut Tx<'_>, queued: &Queues) -> Result<()> {
        let keys: Vec<&AgentKey> = queued.keys().collect();
        self.load_agents(tx, &keys)?;
        let payloads: Vec<(&ProjectId, &TurnPayload)> = queued
            .values()
            .flat_map(BTreeMap::values)
            .filter_map(|one| Some((&one.row.key.project_id, &one.said.as_ref()?.1)))
            .collect();
        let profiles =
            payloads.iter().map(|(project_id, p)| (*project_id, p.profile_name.as_str())).collect();
        self.load_profiles(tx, &profiles)?;
        let boxes = payloads.iter().flat_map(|(_, p)| [&p.context_box_id, &p.output_box_id]);
        self.load_boxes(tx, boxes)
    }

    /// Begins the first of these turns that can begin, and closes those before it; whether one has begun.
    fn begin_first(
        &mut self,
        key: &AgentKey,
        candidates: impl Iterator<Item = Candidate>,
    ) -> Result<bool> {
        for Candidate { row, said } in candidates {
            let (code, message) = match said {
                None => (&code::MALFORMED_ROW, "its row cannot be read".to_owned()),
                Some((headers, payload)) => {
                    match self.unfit(key, &payload, headers.recursion_depth) {
                        Some(unfit) => unfit,
                        None => {
                            self.begin(key, &row, headers, payload)?;
                            return Ok(true);
                        }
                    }
                }
            };
            let ending = Ending {
                outcome: Outcome::Failed,
                error_code: Some(code.name.to_owned()),
                deliverable: None,
                words: format!("The turn could not begin: {message}."),
                by: By::Force,
            };
            self.close_queued(&row, InboxStatus::Error, &ending)?;
        }
        Ok(false)
    }

    fn begin(
        &mut self,
        key: &AgentKey,
        row: &InboxRow,
        headers: TurnHeaders,
        payload: TurnPayload,
    ) -> Result<()> {
        let (now_ms, is_new) = (self.now_ms, self.changes.new_rows.contains_key(&row.seq));
        let target = self.agents.get(key).map(|agent| agent.worker_target.clone());
        let head = self.head_mut(key)?;
        if let Some(target) = target {
            head.worker_target = target;
        }
        let (turn_epoch, target) = (head.turn_epoch, head.worker_target.clone());
        let state = State::Dispatched { due_ms: now_ms };
        head.active = Some(Active {
            agent_turn_id: row.agent_turn_id.clone(),
            inbox_id: row.inbox_id.clone(),
            seq: row.seq,
            channel_id: row.channel_id.clone(),
            recursion_depth: headers.recursion_depth,
            trace_id: headers.trace_id,
            parent_step_id: headers.parent_step_id,
            answers_tool_call_id: headers.answers_tool_call_id,
            profile_name: payload.profile_name,
            context_box_id: payload.context_box_id,
            output_box_id: payload.output_box_id,
            steps_taken: 0,
            lost_leases: 0,
            state: state.clone(),
        });
        self.change_row(Change {
            seq: row.seq,
            status: InboxStatus::Processing,
            outcome: None,
            error_code: None,
            turn_epoch,
            closed_ms: None,
        });
        self.changes.targets.insert(target);
        // Who is told of a turn that is accepted knows that it begins when it can.
        if is_new { Ok(()) } else { self.set_state(key, state) }
    }
}
