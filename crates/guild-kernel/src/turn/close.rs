//! The end of a turn: one deliverable, one terminal event, and what follows from it, whatever ended it.

use guild_protocol::error::Code;
use serde_json::{Value, json};

use super::answer::Answer;
use super::head::State;
use super::plan::{Over, Plan};
use super::step::StepEnd;
use super::wait::WaitStatus;
use crate::card::{CARD_MAX_BYTES, Card, CardType, Role};
use crate::event::About;
use crate::inbox::{Change, InboxRow, InboxStatus, Outcome, ReportContent};
use crate::row::to_json;
use crate::{AgentKey, AgentTurnId, BoxId, CardId, ChannelId, Result, StepId, ToolCallId};

/// How a turn ends.
pub(super) struct Ending {
    pub(super) outcome: Outcome,
    pub(super) error_code: Option<String>,
    /// What is delivered, as canonical JSON; without it something that says why there is nothing.
    pub(super) deliverable: Option<String>,
    /// What people are told, if there is no deliverable.
    pub(super) words: String,
    pub(super) by: By,
}

/// What ends a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// Itself: its worker, or the result of a tool.
    Itself,
    /// Somebody else: a worker that still has it must lose it.
    Force,
}

impl Ending {
    /// Somebody else ends it, for this reason.
    pub(super) fn forced(outcome: Outcome, code: &'static Code, words: &str) -> Ending {
        Ending {
            outcome,
            error_code: Some(code.name.to_owned()),
            deliverable: None,
            words: words.to_owned(),
            by: By::Force,
        }
    }
}

/// The turn that ends.
struct Ended {
    key: AgentKey,
    channel_id: ChannelId,
    agent_turn_id: AgentTurnId,
    turn_epoch: i64,
    seq: i64,
    step_id: Option<StepId>,
    trace_id: Option<String>,
    answers: Option<ToolCallId>,
    output_box_id: Option<BoxId>,
    /// What becomes of its row.
    status: InboxStatus,
}

impl Plan {
    /// Ends the open turn of an agent. The step that a worker ends with it is written by the worker's commit.
    pub(super) fn close(&mut self, key: &AgentKey, ending: &Ending) -> Result<Option<CardId>> {
        let head = self.head_mut(key)?;
        let Some(active) = head.active.take() else { return Ok(None) };
        if ending.by == By::Force {
            head.turn_epoch = head.turn_epoch.saturating_add(1);
        }
        head.last_output_box_id = Some(active.output_box_id.clone());
        let turn_epoch = head.turn_epoch;
        let mut last_step = None;
        match &active.state {
            State::Running { step_id, .. } => {
                last_step = Some(step_id.clone());
                if ending.by == By::Force {
                    let code = ending.error_code.as_deref().unwrap_or_default();
                    self.changes.steps.push(StepEnd::abandoned(step_id, code));
                }
            }
            State::Suspended { step_id, .. } => {
                last_step = Some(step_id.clone());
                self.drop_waits(step_id);
                if ending.by == By::Force {
                    self.joins.step_dropped(step_id);
                }
            }
            State::Dispatched { .. } => {}
        }
        let ended = Ended {
            key: key.clone(),
            channel_id: active.channel_id,
            agent_turn_id: active.agent_turn_id,
            turn_epoch,
            seq: active.seq,
            // What a forced end delivers belongs to no step: its worker has written nothing.
            step_id: last_step.filter(|_| ending.by == By::Itself),
            trace_id: active.trace_id,
            answers: active.answers_tool_call_id,
            output_box_id: Some(active.output_box_id),
            status: InboxStatus::Consumed,
        };
        self.freed.insert(key.clone());
        self.finish(ended, ending).map(Some)
    }

    /// Ends a turn that has not begun.
    pub(super) fn close_queued(
        &mut self,
        row: &InboxRow,
        status: InboxStatus,
        ending: &Ending,
    ) -> Result<CardId> {
        let headers = row.turn_headers().unwrap_or_default();
        let ended = Ended {
            key: row.key.clone(),
            channel_id: row.channel_id.clone(),
            agent_turn_id: row.agent_turn_id.clone(),
            turn_epoch: row.turn_epoch,
            seq: row.seq,
            step_id: None,
            trace_id: headers.trace_id,
            answers: headers.answers_tool_call_id,
            output_box_id: row.turn_payload().map(|payload| payload.output_box_id),
            status,
        };
        self.finish(ended, ending)
    }

    /// Nobody waits any more for the calls of this step.
    pub(super) fn drop_waits(&mut self, step_id: &StepId) {
        self.changes.dropped_waits.push(step_id.clone());
        for wait in self.waits.values_mut() {
            if wait.step_id == *step_id && wait.status == WaitStatus::Waiting {
                wait.status = WaitStatus::Dropped;
                wait.closed_ms = Some(self.now_ms);
            }
        }
    }

    fn finish(&mut self, ended: Ended, ending: &Ending) -> Result<CardId> {
        let deliverable = ended.deliverable(ending, self.now_ms)?;
        let card_id = deliverable.card_id.clone();
        self.put_card(deliverable, ended.output_box_id.as_ref());
        let (key, channel_id) = (&ended.key, &ended.channel_id);
        let (agent_turn_id, turn_epoch) = (&ended.agent_turn_id, ended.turn_epoch);
        let trace_id = ended.trace_id.as_deref();
        let about = About { key, channel_id, agent_turn_id, turn_epoch, trace_id };
        let error_code = ending.error_code.as_deref();
        let output_box_id = ended.output_box_id.as_ref();
        let told = about.task(ending.outcome, &card_id, output_box_id, error_code)?;
        self.changes.events.push(told);
        self.change_row(Change {
            seq: ended.seq,
            status: ended.status,
            outcome: Some(ending.outcome),
            error_code: ending.error_code.clone(),
            turn_epoch,
            closed_ms: Some(self.now_ms),
        });
        self.changes.closed.push(ended.agent_turn_id.clone());
        let all = ending.by == By::Force;
        self.over.push(Over { agent_turn_id: ended.agent_turn_id.clone(), all });
        if let Some(tool_call_id) = ended.answers.clone() {
            self.answers.push(ended.answer(tool_call_id, ending, &card_id)?);
        }
        Ok(card_id)
    }
}

impl Ended {
    fn deliverable(&self, ending: &Ending, now_ms: i64) -> Result<Card> {
        let content = match &ending.deliverable {
            Some(content) => content.clone(),
            None => to_json("deliverable", &fallback(ending), CARD_MAX_BYTES)?,
        };
        let partial = ending.outcome != Outcome::Success;
        let metadata = match (&ending.error_code, partial) {
            (Some(code), _) => json!({ "partial": partial, "terminal_reason": code }),
            (None, true) => json!({ "partial": true }),
            (None, false) => json!({}),
        };
        Ok(Card {
            card_id: CardId::named(now_ms, &[self.agent_turn_id.as_str(), "deliverable"]),
            project_id: self.key.project_id.clone(),
            card_type: CardType::Deliverable,
            role: Role::Assistant,
            author_id: self.key.agent_id.as_str().to_owned(),
            agent_turn_id: Some(self.agent_turn_id.clone()),
            step_id: self.step_id.clone(),
            tool_call_id: None,
            content,
            metadata: to_json("metadata", &metadata, CARD_MAX_BYTES)?,
            created_ms: now_ms,
        })
    }

    /// What whoever asked for the turn by a call is told.
    fn answer(
        &self,
        tool_call_id: ToolCallId,
        ending: &Ending,
        card_id: &CardId,
    ) -> Result<Answer> {
        let error = match (&ending.error_code, ending.outcome) {
            (None, Outcome::Success) => Value::Null,
            (code, _) => json!({
                "code": code.as_deref().unwrap_or(ending.outcome.as_str()),
                "message": ending.words,
            }),
        };
        let result = json!({
            "agent_id": self.key.agent_id.as_str(),
            "agent_turn_id": self.agent_turn_id.as_str(),
            "deliverable_card_id": card_id.as_str(),
            "output_box_id": self.output_box_id.as_ref().map(BoxId::as_str),
        });
        let content = ReportContent { result, error };
        let mut answer =
            Answer::new(tool_call_id, self.key.agent_id.as_str(), ending.outcome, content)?;
        answer.source.agent_id = Some(self.key.agent_id.clone());
        answer.source.agent_turn_id = Some(self.agent_turn_id.clone());
        Ok(answer)
    }
}

/// What is delivered when there is nothing to deliver.
fn fallback(ending: &Ending) -> Value {
    json!({
        "kind": "fallback_deliverable",
        "fields": [
            { "name": "summary", "value": ending.words },
            { "name": "reason", "value": ending.error_code },
        ],
    })
}
