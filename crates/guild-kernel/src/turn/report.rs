//! Results that tools report. Whoever is first counts; late, foreign and unknown results change nothing.

use std::collections::BTreeMap;

use guild_protocol::env::UnixMs;
use guild_protocol::error::Code;
use guild_store::Tx;
use serde_json::Value;

use super::answer::Answer;
use super::head::State;
use super::plan::Plan;
use super::{CALLS_MAX, check_count};
use crate::card::{AUTHOR_MAX_BYTES, CARD_MAX_BYTES};
use crate::inbox::{self, InboxRow, InboxStatus, MessageType, Outcome, ReportContent};
use crate::roster::AfterExecution;
use crate::row::{check_text, said_json};
use crate::{AgentKey, AgentTurnId, Error, InboxId, LeaseToken, Result, ToolCallId, code, tool};

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Who called.
    pub key: AgentKey,
    /// In which turn.
    pub agent_turn_id: AgentTurnId,
    /// Which call.
    pub tool_call_id: ToolCallId,
    /// Who answers.
    pub source: String,
    /// How it went.
    pub status: Outcome,
    /// What it does to the turn, if that is not what was agreed.
    pub after_execution: Option<AfterExecution>,
    /// What came out.
    pub result: Value,
    /// What went wrong; null if nothing did.
    pub error: Value,
}

/// What became of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reported {
    /// The result is in the output box.
    Applied {
        /// Whether it was the last that the turn waited for.
        resumed: bool,
    },
    /// The turn does not wait for it yet; it is kept until it does.
    Early,
    /// It was reported before, word for word.
    Known,
    /// Nothing was changed, for this reason.
    Skipped(&'static Code),
}

/// Takes results. One answer for each, in order.
pub fn report_all(
    tx: &mut Tx<'_>,
    reports: &[Report],
    now_ms: UnixMs,
) -> Result<Vec<Result<Reported>>> {
    let reports: Vec<_> = reports.iter().map(|report| (report, None)).collect();
    report_some(tx, &reports, now_ms)
}

/// The same; whoever shows a token must have the run of the call.
pub(super) fn report_some(
    tx: &mut Tx<'_>,
    reports: &[(&Report, Option<&LeaseToken>)],
    now_ms: UnixMs,
) -> Result<Vec<Result<Reported>>> {
    check_count(reports.len())?;
    if reports.is_empty() {
        return Ok(Vec::new());
    }
    let mut plan = Plan::new(now_ms);
    plan.load_seq(tx)?;
    let calls: Vec<&ToolCallId> = reports.iter().map(|(report, _)| &report.tool_call_id).collect();
    plan.load_heads(tx, reports.iter().map(|(report, _)| &report.key))?;
    plan.load_calls(tx, &calls)?;
    let mut known = load_known(tx, reports)?;
    let mut answers = Vec::with_capacity(reports.len());
    for (report, token) in reports {
        let checked = plan.check_run(report, *token).and_then(|()| report.checked());
        answers.push(match checked {
            Err(error) => Err(error),
            Ok(answer) => Ok(plan.report(report, &answer, &mut known)?),
        });
    }
    plan.settle(tx)?;
    Ok(answers)
}

type Names = BTreeMap<(String, String), InboxRow>;

fn name(key: &AgentKey, tool_call_id: &str) -> (String, String) {
    (key.project_id.as_str().to_owned(), tool_call_id.to_owned())
}

fn load_known(tx: &mut Tx<'_>, reports: &[(&Report, Option<&LeaseToken>)]) -> Result<Names> {
    let asked: BTreeMap<(&str, &str), &AgentKey> = reports
        .iter()
        .map(|(report, _)| {
            ((report.key.project_id.as_str(), report.tool_call_id.as_str()), &report.key)
        })
        .collect();
    let asked: Vec<(&AgentKey, MessageType, &str)> =
        asked.into_iter().map(|((_, call), key)| (key, MessageType::ToolResult, call)).collect();
    let rows = inbox::by_correlation(tx, &asked)?;
    Ok(rows.into_iter().map(|row| (name(&row.key, &row.correlation_id), row)).collect())
}

impl Report {
    fn checked(&self) -> Result<Answer> {
        check_text("source", &self.source, AUTHOR_MAX_BYTES)?;
        let content = ReportContent { result: self.result.clone(), error: self.error.clone() };
        said_json("result", &content, CARD_MAX_BYTES)?;
        let mut answer =
            Answer::new(self.tool_call_id.clone(), &self.source, self.status, content)?;
        answer.after = tool::after_of(&self.result).or(self.after_execution);
        Ok(answer)
    }
}

impl Plan {
    /// A run that somebody else has is not reported. What was answered meanwhile is told as such.
    fn check_run(&self, report: &Report, token: Option<&LeaseToken>) -> Result<()> {
        let run = self.waits.get(&report.tool_call_id).and_then(|wait| wait.run.as_ref());
        match (run, token) {
            (Some(run), Some(token)) if run.token != *token => {
                let message = format!("{} is run by somebody else", report.tool_call_id);
                Err(Error::refused(&code::FENCED, message))
            }
            _ => Ok(()),
        }
    }

    fn report(&mut self, report: &Report, answer: &Answer, known: &mut Names) -> Result<Reported> {
        let name = name(&report.key, report.tool_call_id.as_str());
        if let Some(row) = known.get(&name) {
            let same = row.key == report.key
                && row.agent_turn_id == report.agent_turn_id
                && answer.is_said_by(row);
            return Ok(if same { Reported::Known } else { Reported::Skipped(&code::ANSWERED) });
        }
        let Some(wait) = self.waits.get(&report.tool_call_id) else {
            return self.keep_early(report, answer, known);
        };
        if wait.key != report.key || wait.agent_turn_id != report.agent_turn_id {
            return Ok(Reported::Skipped(&code::FOREIGN_CALL));
        }
        let Some(resumed) = self.answer(answer)? else {
            return Ok(Reported::Skipped(&code::ANSWERED));
        };
        if let Some((_, row)) = self.changes.new_rows.last_key_value() {
            known.insert(name, row.clone());
        }
        Ok(Reported::Applied { resumed })
    }

    /// A result for a call of the step that is being done now is kept. The ids of calls follow from their step, so
    /// nobody can leave anything else here.
    fn keep_early(
        &mut self,
        report: &Report,
        answer: &Answer,
        known: &mut Names,
    ) -> Result<Reported> {
        let active = self.active(&report.key);
        let Some(active) = active.filter(|a| a.agent_turn_id == report.agent_turn_id) else {
            return Ok(Reported::Skipped(&code::UNKNOWN_CALL));
        };
        let of_step = match &active.state {
            State::Running { step_id, .. } => {
                (0..CALLS_MAX).any(|place| ToolCallId::of(step_id, place) == report.tool_call_id)
            }
            _ => false,
        };
        if !of_step {
            return Ok(Reported::Skipped(&code::UNKNOWN_CALL));
        }
        let channel_id = active.channel_id.clone();
        let turn_epoch = self.heads.get(&report.key).map_or(0, |head| head.turn_epoch);
        let call = report.tool_call_id.as_str();
        let words = [report.key.project_id.as_str(), MessageType::ToolResult.as_str(), call];
        let row = InboxRow {
            seq: self.next_seq(),
            inbox_id: InboxId::named(self.now_ms, &words),
            key: report.key.clone(),
            channel_id,
            message_type: MessageType::ToolResult,
            correlation_id: call.to_owned(),
            agent_turn_id: report.agent_turn_id.clone(),
            turn_epoch,
            parent_agent_turn_id: None,
            context_headers: "{}".to_owned(),
            payload: answer.payload(true)?,
            status: InboxStatus::Pending,
            outcome: None,
            error_code: None,
            retry_count: 0,
            next_retry_ms: None,
            created_ms: self.now_ms,
            closed_ms: None,
        };
        known.insert(name(&report.key, call), row.clone());
        self.changes.new_rows.insert(row.seq, row);
        Ok(Reported::Early)
    }
}
