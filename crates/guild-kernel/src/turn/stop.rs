//! Ending turns from outside: a turn that has begun is stopped, one that has not is taken back.

use std::collections::BTreeMap;

use guild_protocol::env::UnixMs;
use guild_store::Tx;

use super::close::Ending;
use super::plan::Plan;
use super::{check_count, unknown_turn};
use crate::inbox::{self, InboxRow, InboxStatus, Outcome};
use crate::row::check_text;
use crate::{AgentKey, AgentTurnId, Error, Result, code};

const REASON_MAX_BYTES: usize = 1_024;

/// A wish that a turn ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// Which one.
    pub agent_turn_id: AgentTurnId,
    /// Why, in words.
    pub reason: String,
}

/// What became of that wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// It was stopped.
    Stopped,
    /// It had not begun, and does not.
    Canceled,
    /// It was over before.
    Over,
}

impl Stopped {
    /// As a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Stopped::Stopped => "stopped",
            Stopped::Canceled => "canceled",
            Stopped::Over => "over",
        }
    }

    /// The other way round.
    pub fn parse(word: &str) -> Option<Stopped> {
        let all = [Stopped::Stopped, Stopped::Canceled, Stopped::Over];
        all.into_iter().find(|stopped| stopped.as_str() == word)
    }
}

/// Ends turns, in whatever state they are. One answer for each, in order.
pub fn stop_all(tx: &mut Tx<'_>, stops: &[Stop], now_ms: UnixMs) -> Result<Vec<Result<Stopped>>> {
    check_count(stops.len())?;
    let mut plan = Plan::new(now_ms);
    let ids: Vec<&AgentTurnId> = stops.iter().map(|stop| &stop.agent_turn_id).collect();
    let turns = plan.load_turns(tx, &ids)?;
    let mut answers = Vec::with_capacity(stops.len());
    for stop in stops {
        let checked = check_text("reason", &stop.reason, REASON_MAX_BYTES);
        answers.push(match (checked, turns.get(&stop.agent_turn_id)) {
            (Err(error), _) => Err(error),
            (_, None) => Err(unknown_turn(&stop.agent_turn_id)),
            (_, Some(row)) => Ok(plan.stop(row, &stop.reason)?),
        });
    }
    plan.settle(tx)?;
    Ok(answers)
}

/// Takes a turn back that has not begun.
pub fn cancel(tx: &mut Tx<'_>, agent_turn_id: &AgentTurnId, now_ms: UnixMs) -> Result<()> {
    let mut plan = Plan::new(now_ms);
    let turns = plan.load_turns(tx, &[agent_turn_id])?;
    let Some(row) = turns.get(agent_turn_id) else { return Err(unknown_turn(agent_turn_id)) };
    if row.status != InboxStatus::Queued {
        let message = format!("{agent_turn_id} is {}", row.status);
        return Err(Error::refused(&code::NOT_QUEUED, message));
    }
    plan.stop(row, "It was taken back before it began.")?;
    plan.settle(tx)
}

impl Plan {
    /// Reads turns, and all that their end changes.
    pub(super) fn load_turns(
        &mut self,
        tx: &mut Tx<'_>,
        ids: &[&AgentTurnId],
    ) -> Result<BTreeMap<AgentTurnId, InboxRow>> {
        let mut asked = ids.to_vec();
        asked.sort_unstable();
        asked.dedup();
        let rows = inbox::turns(tx, &asked)?;
        let keys: Vec<AgentKey> = rows.iter().map(|row| row.key.clone()).collect();
        self.load_heads(tx, &keys)?;
        self.load_output_boxes(tx)?;
        let queued = rows.iter().filter(|row| row.status == InboxStatus::Queued);
        let boxes: Vec<_> =
            queued.filter_map(|row| Some(row.turn_payload()?.output_box_id)).collect();
        self.load_boxes(tx, &boxes)?;
        Ok(rows.into_iter().map(|row| (row.agent_turn_id.clone(), row)).collect())
    }

    /// Ends a turn, unless it is over.
    pub(super) fn stop(&mut self, row: &InboxRow, reason: &str) -> Result<Stopped> {
        if self.changes.closed.contains(&row.agent_turn_id) {
            return Ok(Stopped::Over);
        }
        match row.status {
            InboxStatus::Queued => {
                let ending = Ending::forced(Outcome::Canceled, &code::CANCELED, reason);
                self.close_queued(row, InboxStatus::Consumed, &ending)?;
                Ok(Stopped::Canceled)
            }
            InboxStatus::Processing => {
                let active = self.active(&row.key);
                if active.is_none_or(|active| active.agent_turn_id != row.agent_turn_id) {
                    return Ok(Stopped::Over);
                }
                let ending = Ending::forced(Outcome::Canceled, &code::STOPPED, reason);
                self.close(&row.key, &ending)?;
                Ok(Stopped::Stopped)
            }
            _ => Ok(Stopped::Over),
        }
    }
}
