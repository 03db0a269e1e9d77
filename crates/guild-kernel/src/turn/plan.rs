//! A plan: what was read of the rows, as it is decided to be, and what has to be written for that. Deciding touches
//! nothing else, so it is pure; [`settle`](super::settle) reads what is missing and writes what was decided.

use std::collections::{BTreeMap, BTreeSet};

use guild_protocol::env::UnixMs;
use guild_store::Rx;

use super::answer::Answer;
use super::head::{self, Active, Head, State};
use super::join::Joins;
use super::step::{Step, StepEnd};
use super::wait::{self, Wait};
use crate::boxes::{self, CardBox, Entry};
use crate::card::{self, Card};
use crate::edge::Edge;
use crate::event::{About, Told};
use crate::inbox::{self, Change, InboxRow};
use crate::roster::{self, Agent};
use crate::{
    AgentKey, AgentTurnId, BoxId, CardId, Error, ProjectId, Result, StepId, ToolCallId, code,
};

/// A turn that is over, as far as it concerns those that it has asked.
pub(super) struct Over {
    pub(super) agent_turn_id: AgentTurnId,
    /// Whether also those end that it does not wait for.
    pub(super) all: bool,
}

/// A command that must leave the node.
pub(super) struct Command {
    /// Which sink of the outbox takes it.
    pub(super) sink: &'static str,
    /// Commands of one lane leave in order.
    pub(super) lane: String,
    pub(super) idempotency_key: String,
    pub(super) body: String,
}

/// What is to be written.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) heads: BTreeSet<AgentKey>,
    pub(super) boxes: BTreeSet<BoxId>,
    pub(super) cards: Vec<Card>,
    pub(super) entries: Vec<Entry>,
    /// By their places.
    pub(super) new_rows: BTreeMap<i64, InboxRow>,
    pub(super) rows: Vec<Change>,
    pub(super) new_steps: Vec<Step>,
    pub(super) steps: Vec<StepEnd>,
    pub(super) new_waits: BTreeSet<ToolCallId>,
    pub(super) waits: BTreeSet<ToolCallId>,
    pub(super) dropped_waits: Vec<StepId>,
    pub(super) edges: Vec<Edge>,
    pub(super) events: Vec<Told>,
    pub(super) commands: Vec<Command>,
    /// Turns for which nothing may be pending any more.
    pub(super) closed: Vec<AgentTurnId>,
    /// Whose workers have something to do.
    pub(super) targets: BTreeSet<String>,
    /// Whether something is to be swept now.
    pub(super) stops: bool,
}

/// What was read, as it is decided to be.
pub(super) struct Plan {
    pub(super) now_ms: UnixMs,
    pub(super) heads: BTreeMap<AgentKey, Head>,
    pub(super) boxes: BTreeMap<BoxId, CardBox>,
    pub(super) waits: BTreeMap<ToolCallId, Wait>,
    pub(super) results: BTreeMap<ToolCallId, Card>,
    pub(super) agents: BTreeMap<AgentKey, Agent>,
    pub(super) profiles: BTreeSet<(String, String)>,
    last_seq: Option<i64>,
    pub(super) changes: Changes,
    /// Calls that the end of a turn answers.
    pub(super) answers: Vec<Answer>,
    /// Turns whose end concerns others.
    pub(super) over: Vec<Over>,
    /// Batches that something happens to.
    pub(super) joins: Joins,
    /// Agents that may have a turn to begin.
    pub(super) freed: BTreeSet<AgentKey>,
    /// The places of turns in the inbox whose rows cannot be read, and that are in the way.
    pub(super) unreadable: Vec<i64>,
}

impl Plan {
    pub(super) fn new(now_ms: UnixMs) -> Plan {
        Plan {
            now_ms,
            heads: BTreeMap::new(),
            boxes: BTreeMap::new(),
            waits: BTreeMap::new(),
            results: BTreeMap::new(),
            agents: BTreeMap::new(),
            profiles: BTreeSet::new(),
            last_seq: None,
            changes: Changes::default(),
            answers: Vec::new(),
            over: Vec::new(),
            joins: Joins::default(),
            freed: BTreeSet::new(),
            unreadable: Vec::new(),
        }
    }

    /// Reads anew what was read: everything decided is written, and somebody else has written beside it.
    pub(super) fn reload(&mut self, rx: &mut Rx<'_>) -> Result<()> {
        let heads = std::mem::take(&mut self.heads);
        self.load_heads(rx, heads.keys())?;
        let waits: Vec<ToolCallId> = std::mem::take(&mut self.waits).into_keys().collect();
        let waits: Vec<&ToolCallId> = waits.iter().collect();
        for wait in wait::find_all(rx, &waits)? {
            self.waits.insert(wait.tool_call_id.clone(), wait);
        }
        for card in card::results(rx, &waits)? {
            if let Some(tool_call_id) = card.tool_call_id.clone() {
                self.results.insert(tool_call_id, card);
            }
        }
        if self.last_seq.take().is_some() {
            self.load_seq(rx)?;
        }
        Ok(())
    }

    /// Reads the heads of these agents. What is decided already stays as it is: that is so of all that is read.
    pub(super) fn load_heads<'k>(
        &mut self,
        rx: &mut Rx<'_>,
        keys: impl IntoIterator<Item = &'k AgentKey>,
    ) -> Result<()> {
        let keys: BTreeSet<&AgentKey> = keys.into_iter().collect();
        let keys: Vec<&AgentKey> =
            keys.into_iter().filter(|key| !self.heads.contains_key(key)).collect();
        for head in head::find_all(rx, &keys)? {
            self.heads.insert(head.key.clone(), head);
        }
        Ok(())
    }

    /// Reads boxes.
    pub(super) fn load_boxes<'k>(
        &mut self,
        rx: &mut Rx<'_>,
        ids: impl IntoIterator<Item = &'k BoxId>,
    ) -> Result<()> {
        let ids: BTreeSet<&BoxId> = ids.into_iter().collect();
        let ids: Vec<&BoxId> = ids.into_iter().filter(|id| !self.boxes.contains_key(id)).collect();
        for found in boxes::find_all(rx, ids)? {
            self.boxes.insert(found.box_id.clone(), found);
        }
        Ok(())
    }

    /// Reads the boxes that the open turns of these agents write to.
    pub(super) fn load_output_boxes(&mut self, rx: &mut Rx<'_>) -> Result<()> {
        let active = self.heads.values().filter_map(|head| head.active.as_ref());
        let ids: Vec<BoxId> = active.map(|active| active.output_box_id.clone()).collect();
        self.load_boxes(rx, &ids)
    }

    /// Reads these calls, the turns that wait for them, all other calls of the same steps, and results that are there.
    pub(super) fn load_calls(&mut self, rx: &mut Rx<'_>, calls: &[&ToolCallId]) -> Result<()> {
        let asked: BTreeSet<&ToolCallId> =
            calls.iter().copied().filter(|id| !self.waits.contains_key(id)).collect();
        let asked: Vec<&ToolCallId> = asked.into_iter().collect();
        let found = wait::find_all(rx, &asked)?;
        let keys: Vec<AgentKey> = found.iter().map(|wait| wait.key.clone()).collect();
        self.load_heads(rx, &keys)?;
        let steps: BTreeSet<StepId> = found.iter().map(|wait| wait.step_id.clone()).collect();
        self.load_waits_of(rx, &steps.iter().collect::<Vec<_>>())?;
        for card in card::results(rx, &asked)? {
            if let Some(tool_call_id) = card.tool_call_id.clone() {
                self.results.insert(tool_call_id, card);
            }
        }
        self.load_output_boxes(rx)
    }

    /// Reads all calls of these steps.
    pub(super) fn load_waits_of(&mut self, rx: &mut Rx<'_>, steps: &[&StepId]) -> Result<()> {
        for wait in wait::of_steps(rx, steps)? {
            self.waits.entry(wait.tool_call_id.clone()).or_insert(wait);
        }
        Ok(())
    }

    /// Reads agents.
    pub(super) fn load_agents(&mut self, rx: &mut Rx<'_>, keys: &[&AgentKey]) -> Result<()> {
        let keys: BTreeSet<&AgentKey> =
            keys.iter().copied().filter(|key| !self.agents.contains_key(key)).collect();
        for agent in roster::find_agents(rx, &keys.into_iter().collect::<Vec<_>>())? {
            self.agents.insert(agent.key.clone(), agent);
        }
        Ok(())
    }

    /// Reads which of these profiles are there.
    pub(super) fn load_profiles(
        &mut self,
        rx: &mut Rx<'_>,
        asked: &BTreeSet<(&ProjectId, &str)>,
    ) -> Result<()> {
        let asked: Vec<(&ProjectId, &str)> = asked
            .iter()
            .copied()
            .filter(|(project_id, name)| !self.has_profile(project_id, name))
            .collect();
        self.profiles.extend(roster::known_profiles(rx, &asked)?);
        Ok(())
    }

    pub(super) fn has_profile(&self, project_id: &ProjectId, name: &str) -> bool {
        self.profiles.contains(&(project_id.as_str().to_owned(), name.to_owned()))
    }

    /// Whether the project has this box.
    pub(super) fn has_box(&self, project_id: &ProjectId, box_id: &BoxId) -> bool {
        self.boxes.get(box_id).is_some_and(|found| found.project_id == *project_id)
    }

    /// From now on rows can be added to the inbox.
    pub(super) fn load_seq(&mut self, rx: &mut Rx<'_>) -> Result<()> {
        if self.last_seq.is_none() {
            self.last_seq = Some(inbox::last_seq(rx)?);
        }
        Ok(())
    }

    /// The place of the next row of the inbox.
    pub(super) fn next_seq(&mut self) -> i64 {
        let next = self.last_seq.unwrap_or(0).saturating_add(1);
        self.last_seq = Some(next);
        next
    }

    /// The open turn of an agent.
    pub(super) fn active(&self, key: &AgentKey) -> Option<&Active> {
        self.heads.get(key)?.active.as_ref()
    }

    /// The head of an agent, to be changed.
    pub(super) fn head_mut(&mut self, key: &AgentKey) -> Result<&mut Head> {
        let now_ms = self.now_ms;
        let Some(head) = self.heads.get_mut(key) else {
            return Err(Error::refused(&code::UNKNOWN_AGENT, format!("{key} has no head")));
        };
        self.changes.heads.insert(key.clone());
        head.updated_ms = now_ms;
        Ok(head)
    }

    /// Changes how far the open turn of an agent is, and tells it.
    pub(super) fn set_state(&mut self, key: &AgentKey, state: State) -> Result<()> {
        let head = self.head_mut(key)?;
        let turn_epoch = head.turn_epoch;
        let target = head.worker_target.clone();
        let Some(active) = &mut head.active else { return Ok(()) };
        active.state = state;
        let waiting = match active.state {
            State::Suspended { waiting, .. } => Some(waiting),
            _ => None,
        };
        let (channel_id, agent_turn_id) = (&active.channel_id, &active.agent_turn_id);
        let trace_id = active.trace_id.as_deref();
        let about = About { key, channel_id, agent_turn_id, turn_epoch, trace_id };
        let told = about.state(active.state.as_str(), waiting)?;
        if matches!(active.state, State::Dispatched { .. }) {
            self.changes.targets.insert(target);
        }
        self.changes.events.push(told);
        Ok(())
    }

    /// Writes a card, and puts it into a box if that is there.
    pub(super) fn put_card(&mut self, card: Card, box_id: Option<&BoxId>) {
        self.put_entry(&card.project_id, &card.card_id, box_id);
        self.changes.cards.push(card);
    }

    /// Puts a card that is there into a box, if that is there and of the same project.
    pub(super) fn put_entry(
        &mut self,
        project_id: &ProjectId,
        card_id: &CardId,
        box_id: Option<&BoxId>,
    ) {
        let Some(found) = box_id.and_then(|box_id| self.boxes.get_mut(box_id)) else { return };
        if found.project_id == *project_id {
            let (box_id, card_id) = (found.box_id.clone(), card_id.clone());
            self.changes.boxes.insert(box_id.clone());
            self.changes.entries.push(Entry { box_id, place: found.next_place, card_id });
            found.next_place = found.next_place.saturating_add(1);
        }
    }

    /// Changes how far a row of the inbox is, be it new or old.
    pub(super) fn change_row(&mut self, change: Change) {
        match self.changes.new_rows.get_mut(&change.seq) {
            None => self.changes.rows.push(change),
            Some(row) => {
                row.status = change.status;
                row.outcome = change.outcome;
                row.error_code = change.error_code;
                row.turn_epoch = change.turn_epoch;
                row.closed_ms = change.closed_ms;
                row.next_retry_ms = None;
            }
        }
    }
}

/// Every statement that turns run again and again.
#[cfg(test)]
pub(crate) fn statements() -> Vec<&'static crate::row::Statement> {
    let mut all: Vec<&'static std::sync::LazyLock<crate::row::Statement>> = Vec::new();
    all.extend(head::statements());
    all.extend(super::step::statements());
    all.extend(wait::statements());
    all.extend(card::statements());
    all.extend(boxes::statements());
    all.extend(inbox::statements());
    all.extend(roster::statements());
    all.extend(crate::pmo::batch::statements());
    all.into_iter().map(|statement| &**statement).collect()
}
