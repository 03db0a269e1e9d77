//! The result of a call, whoever gives it: a tool, another turn, or the clock. The first one counts.

use guild_protocol::json;
use serde_json::{Value, json};

use super::close::{By, Ending};
use super::head::State;
use super::plan::Plan;
use super::wait::{Wait, WaitStatus};
use crate::card::{CARD_MAX_BYTES, Card, CardType, Role};
use crate::edge::{Edge, End, Phase, Primitive};
use crate::inbox::{
    Change, InboxRow, InboxStatus, MessageType, Outcome, ReportContent, ReportPayload,
};
use crate::roster::AfterExecution;
use crate::row::to_json;
use crate::{CardId, InboxId, Result, ToolCallId};

/// A result.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) tool_call_id: ToolCallId,
    pub(super) message_type: MessageType,
    /// Who answers, as a name,
    pub(super) author: String,
    /// and as an end of an edge.
    pub(super) source: End,
    pub(super) outcome: Outcome,
    pub(super) after: Option<AfterExecution>,
    pub(super) content: ReportContent,
    pub(super) content_hash: String,
    /// The row that it came in before its call was awaited.
    pub(super) early: Option<InboxRow>,
}

impl Answer {
    pub(super) fn new(
        tool_call_id: ToolCallId,
        author: &str,
        outcome: Outcome,
        content: ReportContent,
    ) -> Result<Answer> {
        let content_hash = json::hash(&content)?.to_string();
        Ok(Answer {
            tool_call_id,
            message_type: MessageType::ToolResult,
            author: author.to_owned(),
            source: End::default(),
            outcome,
            after: None,
            content,
            content_hash,
            early: None,
        })
    }

    /// A result that came early; nothing if its row cannot be read.
    pub(super) fn of_early(row: &InboxRow) -> Option<Answer> {
        let payload: ReportPayload = serde_json::from_str(&row.payload).ok()?;
        let after = payload.after();
        Some(Answer {
            tool_call_id: row.correlation_id.parse().ok()?,
            message_type: MessageType::ToolResult,
            author: payload.source,
            source: End::default(),
            outcome: payload.status.parse().ok()?,
            after,
            content: payload.content?,
            content_hash: payload.content_hash,
            early: Some(row.clone()),
        })
    }

    /// What its row says. The content is kept there only until its card is written.
    pub(super) fn payload(&self, with_content: bool) -> Result<String> {
        let payload = ReportPayload {
            source: self.author.clone(),
            status: self.outcome.as_str().to_owned(),
            content_hash: self.content_hash.clone(),
            after_execution: self.after.map(|after| after.as_str().to_owned()),
            content: with_content.then(|| self.content.clone()),
        };
        to_json("report", &payload, CARD_MAX_BYTES.saturating_mul(2))
    }

    /// Whether a row says the same.
    pub(super) fn is_said_by(&self, row: &InboxRow) -> bool {
        let said: Result<ReportPayload, _> = serde_json::from_str(&row.payload);
        said.is_ok_and(|said| {
            said.source == self.author
                && said.status == self.outcome.as_str()
                && said.content_hash == self.content_hash
                && said.after() == self.after
        })
    }

    fn card(&self, wait: &Wait, after: AfterExecution, now_ms: i64) -> Result<Card> {
        let content = json!({
            "status": self.outcome.as_str(),
            "after_execution": after.as_str(),
            "result": self.content.result,
            "error": self.content.error,
        });
        // A row that another version has stored may hold what cannot be written any more. The turn goes on.
        let text =
            to_json("result", &content, CARD_MAX_BYTES.saturating_mul(3)).or_else(|error| {
                let content = json!({
                    "status": self.outcome.as_str(),
                    "after_execution": after.as_str(),
                    "result": Value::Null,
                    "error": { "code": error.code().name, "message": error.to_string() },
                });
                to_json("result", &content, CARD_MAX_BYTES)
            })?;
        let metadata = json!({ "function_name": wait.tool_name });
        Ok(Card {
            card_id: CardId::named(now_ms, &[self.tool_call_id.as_str(), "result"]),
            project_id: wait.key.project_id.clone(),
            card_type: CardType::ToolResult,
            role: Role::Tool,
            author_id: self.author.clone(),
            agent_turn_id: Some(wait.agent_turn_id.clone()),
            step_id: Some(wait.step_id.clone()),
            tool_call_id: Some(self.tool_call_id.clone()),
            content: text,
            metadata: to_json("metadata", &metadata, CARD_MAX_BYTES)?,
            created_ms: now_ms,
        })
    }
}

/// How a result that somebody has stored says that the call ended.
pub(super) fn outcome_of(card: &Card) -> Outcome {
    let content: Value = serde_json::from_str(&card.content).unwrap_or_default();
    let status = content.get("status").and_then(Value::as_str).and_then(|word| word.parse().ok());
    status.unwrap_or(Outcome::Failed)
}

impl Plan {
    /// Whether a turn waits for this call now.
    pub(super) fn is_awaited(&self, wait: &Wait) -> bool {
        let Some(active) = self.active(&wait.key) else { return false };
        let suspended =
            matches!(&active.state, State::Suspended { step_id, .. } if *step_id == wait.step_id);
        suspended
            && active.agent_turn_id == wait.agent_turn_id
            && wait.status == WaitStatus::Waiting
    }

    /// Applies a result, if somebody waits for it: whether the turn goes on or ends with it. Nothing if nobody waits.
    pub(super) fn answer(&mut self, answer: &Answer) -> Result<Option<bool>> {
        let Some(wait) = self.waits.get(&answer.tool_call_id).cloned() else { return Ok(None) };
        if !self.is_awaited(&wait) {
            return Ok(None);
        }
        let after = answer.after.unwrap_or(wait.after_execution);
        self.write_result(answer, &wait, after)?;
        self.write_report(answer, &wait)?;
        self.joins.call_answered(&wait.tool_call_id, &wait.tool_name);
        self.count_down(&wait).map(Some)
    }

    /// Puts the card into the output box: the one that is there, or a new one.
    fn write_result(&mut self, answer: &Answer, wait: &Wait, after: AfterExecution) -> Result<()> {
        let output_box_id = self.active(&wait.key).map(|active| active.output_box_id.clone());
        let (card_id, outcome) = match self.results.get(&wait.tool_call_id) {
            Some(there) => {
                let (card_id, outcome) = (there.card_id.clone(), outcome_of(there));
                self.put_entry(&wait.key.project_id, &card_id, output_box_id.as_ref());
                (card_id, outcome)
            }
            None => {
                let card = answer.card(wait, after, self.now_ms)?;
                let card_id = card.card_id.clone();
                self.put_card(card, output_box_id.as_ref());
                (card_id, answer.outcome)
            }
        };
        if let Some(wait) = self.waits.get_mut(&wait.tool_call_id) {
            wait.status = WaitStatus::Applied;
            wait.after_execution = after;
            wait.result = Some((outcome, card_id));
            wait.closed_ms = Some(self.now_ms);
            if !self.changes.new_waits.contains(&wait.tool_call_id) {
                self.changes.waits.insert(wait.tool_call_id.clone());
            }
        }
        Ok(())
    }

    /// The row and the edge of a report.
    fn write_report(&mut self, answer: &Answer, wait: &Wait) -> Result<()> {
        let Some(active) = self.active(&wait.key) else { return Ok(()) };
        let (channel_id, depth) = (active.channel_id.clone(), active.recursion_depth);
        let trace_id = active.trace_id.clone();
        let turn_epoch = self.heads.get(&wait.key).map_or(0, |head| head.turn_epoch);
        match &answer.early {
            Some(row) => self.change_row(Change {
                seq: row.seq,
                status: InboxStatus::Consumed,
                outcome: None,
                error_code: None,
                turn_epoch,
                closed_ms: Some(self.now_ms),
            }),
            None => {
                let row = self.report_row(answer, wait, &channel_id, turn_epoch)?;
                self.changes.new_rows.insert(row.seq, row);
            }
        }
        self.changes.edges.push(Edge {
            project_id: wait.key.project_id.clone(),
            channel_id,
            primitive: Primitive::Report,
            phase: Phase::Response,
            source: answer.source.clone(),
            source_step_id: None,
            target: End {
                agent_id: Some(wait.key.agent_id.clone()),
                agent_turn_id: Some(wait.agent_turn_id.clone()),
            },
            correlation_id: answer.tool_call_id.as_str().to_owned(),
            recursion_depth: depth,
            trace_id,
        });
        Ok(())
    }

    fn report_row(
        &mut self,
        answer: &Answer,
        wait: &Wait,
        channel_id: &crate::ChannelId,
        turn_epoch: i64,
    ) -> Result<InboxRow> {
        let (project_id, call) = (wait.key.project_id.as_str(), answer.tool_call_id.as_str());
        let words = [project_id, answer.message_type.as_str(), call];
        Ok(InboxRow {
            seq: self.next_seq(),
            inbox_id: InboxId::named(self.now_ms, &words),
            key: wait.key.clone(),
            channel_id: channel_id.clone(),
            message_type: answer.message_type,
            correlation_id: call.to_owned(),
            agent_turn_id: wait.agent_turn_id.clone(),
            turn_epoch,
            parent_agent_turn_id: None,
            context_headers: "{}".to_owned(),
            payload: answer.payload(false)?,
            status: InboxStatus::Consumed,
            outcome: None,
            error_code: None,
            retry_count: 0,
            next_retry_ms: None,
            created_ms: self.now_ms,
            closed_ms: Some(self.now_ms),
        })
    }

    /// One call less to wait for. After the last the turn goes on, or ends; whether it does.
    fn count_down(&mut self, wait: &Wait) -> Result<bool> {
        let of_step = |other: &&Wait| other.step_id == wait.step_id;
        let left: Vec<i64> = self
            .waits
            .values()
            .filter(of_step)
            .filter(|other| other.status == WaitStatus::Waiting)
            .map(|other| other.deadline_ms)
            .collect();
        if let Some(deadline_ms) = left.iter().min().copied() {
            let waiting = i64::try_from(left.len()).unwrap_or(i64::MAX);
            let step_id = wait.step_id.clone();
            let head = self.head_mut(&wait.key)?;
            if let Some(active) = &mut head.active {
                active.state = State::Suspended { step_id, waiting, deadline_ms };
            }
            return Ok(false);
        }
        let ends: Vec<Outcome> = self
            .waits
            .values()
            .filter(of_step)
            .filter(|other| other.after_execution == AfterExecution::Terminate)
            .filter_map(|other| other.result.as_ref().map(|(outcome, _)| *outcome))
            .collect();
        if ends.is_empty() {
            let due_ms = self.now_ms;
            self.set_state(&wait.key, State::Dispatched { due_ms })?;
            return Ok(true);
        }
        let outcome = ends.into_iter().find(|one| *one != Outcome::Success);
        let ending = Ending {
            outcome: outcome.unwrap_or(Outcome::Success),
            error_code: None,
            deliverable: None,
            words: "The turn ended with the result of a tool, which is in the output box."
                .to_owned(),
            by: By::Itself,
        };
        self.close(&wait.key, &ending)?;
        Ok(true)
    }
}
