//! Runs of tools by workers. The call that a turn waits for is itself what is to be done: it has a lease of its own,
//! and whoever has that runs the tool, renews the lease and reports. It is run at least once, always under the same id.

use std::collections::BTreeMap;

use guild_bus::subject::WorkerTarget;
use guild_protocol::env::UnixMs;
use guild_store::{Rx, Tx};
use serde_json::Value;

use super::plan::Plan;
use super::report::{Report, Reported, report_some};
use super::wait::{self, Run, Wait};
use super::{check_count, end_of};
use crate::card::{self, Card};
use crate::roster::AfterExecution;
use crate::row::page;
use crate::{
    AgentKey, AgentTurnId, CardId, ChannelId, Error, LeaseToken, Result, StepId, ToolCallId, code,
};

/// What whoever runs a tool must show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFence {
    /// Which call.
    pub tool_call_id: ToolCallId,
    /// That it is its own.
    pub token: LeaseToken,
}

/// A run that was given to a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct PickedUp {
    /// What every write about it must show.
    pub fence: RunFence,
    /// How long it is given.
    pub until_ms: UnixMs,
    /// Who called.
    pub key: AgentKey,
    /// In which turn.
    pub agent_turn_id: AgentTurnId,
    /// In which step.
    pub step_id: StepId,
    /// Where.
    pub channel_id: ChannelId,
    /// How deep.
    pub recursion_depth: i64,
    /// What is called.
    pub tool_name: String,
    /// With what, as the call says.
    pub arguments: Value,
    /// What the result does to the turn.
    pub after_execution: AfterExecution,
    /// Until when somebody waits.
    pub deadline_ms: UnixMs,
}

/// Calls of these tools, by agents that these targets work for, that nobody runs: up to `limit` of each.
pub fn runs_due(
    rx: &mut Rx<'_>,
    tool_names: &[&str],
    targets: &[WorkerTarget],
    now_ms: UnixMs,
    limit: i64,
) -> Result<Vec<ToolCallId>> {
    let pairs: Vec<(&str, &str)> = tool_names
        .iter()
        .flat_map(|tool| targets.iter().map(|target| (*tool, target.as_str())))
        .collect();
    wait::runs(rx, &pairs, now_ms, page(limit))
}

/// Gives runs that nobody has to a worker. Nothing for one that is no longer there to be had.
pub fn pick_up(
    tx: &mut Tx<'_>,
    asked: &[RunFence],
    ttl_ms: i64,
    now_ms: UnixMs,
) -> Result<Vec<Option<PickedUp>>> {
    check_count(asked.len())?;
    let until_ms = end_of("a run", ttl_ms, now_ms)?;
    let mut plan = Plan::new(now_ms);
    plan.load_calls(tx, &asked.iter().map(|fence| &fence.tool_call_id).collect::<Vec<_>>())?;
    let free: Vec<Option<Wait>> =
        asked.iter().map(|fence| plan.take_run(fence, until_ms)).collect();
    let taken: Vec<&Wait> = free.iter().flatten().collect();
    let cards = call_cards(tx, &taken)?;
    wait::run_all(tx, &taken)?;
    let given = |wait: Option<Wait>| plan.picked_up(wait?, &cards);
    Ok(free.into_iter().map(given).collect())
}

/// The cards of calls, by their calls. Their names follow from the calls.
fn call_cards(rx: &mut Rx<'_>, waits: &[&Wait]) -> Result<BTreeMap<ToolCallId, Card>> {
    let ids: Vec<CardId> = waits
        .iter()
        .map(|wait| CardId::named(wait.created_ms, &[wait.tool_call_id.as_str(), "call"]))
        .collect();
    let found = card::find_all(rx, &ids.iter().collect::<Vec<_>>())?;
    Ok(found.into_iter().filter_map(|card| Some((card.tool_call_id.clone()?, card))).collect())
}

impl Plan {
    fn take_run(&mut self, fence: &RunFence, until_ms: UnixMs) -> Option<Wait> {
        let wait = self.waits.get(&fence.tool_call_id)?;
        let over = wait.run.as_ref().is_some_and(|run| run.until_ms <= self.now_ms);
        if !over || wait.deadline_ms <= self.now_ms || !self.is_awaited(wait) {
            return None;
        }
        let wait = self.waits.get_mut(&fence.tool_call_id)?;
        wait.run = Some(Run { token: fence.token.clone(), until_ms });
        Some(wait.clone())
    }

    fn picked_up(&self, wait: Wait, cards: &BTreeMap<ToolCallId, Card>) -> Option<PickedUp> {
        let active = self.active(&wait.key)?;
        let content = cards.get(&wait.tool_call_id).map(|card| card.content.as_str());
        let content: Value = serde_json::from_str(content.unwrap_or_default()).unwrap_or_default();
        let run = wait.run?;
        Some(PickedUp {
            fence: RunFence { tool_call_id: wait.tool_call_id, token: run.token },
            until_ms: run.until_ms,
            key: wait.key.clone(),
            agent_turn_id: wait.agent_turn_id,
            step_id: wait.step_id,
            channel_id: active.channel_id.clone(),
            recursion_depth: active.recursion_depth,
            tool_name: wait.tool_name,
            arguments: content.get("arguments").cloned().unwrap_or_default(),
            after_execution: wait.after_execution,
            deadline_ms: wait.deadline_ms,
        })
    }
}

/// Renews runs; for each until when, or that it is lost. `ttl_ms` of nothing gives them back.
pub fn renew_runs(
    tx: &mut Tx<'_>,
    fences: &[RunFence],
    ttl_ms: Option<i64>,
    now_ms: UnixMs,
) -> Result<Vec<Result<UnixMs>>> {
    check_count(fences.len())?;
    let until_ms = match ttl_ms {
        Some(ttl_ms) => end_of("a run", ttl_ms, now_ms)?,
        None => now_ms,
    };
    let calls: Vec<&ToolCallId> = fences.iter().map(|fence| &fence.tool_call_id).collect();
    let mut held: BTreeMap<ToolCallId, Wait> =
        wait::find_all(tx, &calls)?.into_iter().map(|w| (w.tool_call_id.clone(), w)).collect();
    let mut answers = Vec::with_capacity(fences.len());
    for fence in fences {
        let run = held.get_mut(&fence.tool_call_id).and_then(|wait| wait.run.as_mut());
        answers.push(match run.filter(|run| run.token == fence.token) {
            None => Err(run_lost(fence)),
            Some(run) => {
                run.until_ms = until_ms;
                Ok(until_ms)
            }
        });
    }
    let renewed = fences.iter().zip(&answers).filter(|(_, answer)| answer.is_ok());
    let renewed = renewed.filter_map(|(fence, _)| held.get(&fence.tool_call_id));
    wait::run_all(tx, &renewed.collect::<Vec<_>>())?;
    Ok(answers)
}

fn run_lost(fence: &RunFence) -> Error {
    let message = format!("{} is run by somebody else, or is over", fence.tool_call_id);
    Error::refused(&code::FENCED, message)
}

/// Takes the results of runs. One answer for each, in order; a run that was lost has none.
pub fn report_runs(
    tx: &mut Tx<'_>,
    reports: &[(LeaseToken, Report)],
    now_ms: UnixMs,
) -> Result<Vec<Result<Reported>>> {
    let checked: Vec<(&Report, Option<&LeaseToken>)> =
        reports.iter().map(|(token, report)| (report, Some(token))).collect();
    report_some(tx, &checked, now_ms)
}
