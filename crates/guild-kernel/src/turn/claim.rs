//! Leases: who works on a turn, and that it still does.

use std::collections::BTreeSet;

use guild_bus::subject::WorkerTarget;
use guild_protocol::env::UnixMs;
use guild_store::{Tx, Val};

use super::head::{self, Active, Head, Readable, State};
use super::plan::Plan;
use super::step::{Step, StepEnd};
use super::{Fence, check_count, end_of, fenced, mark, renewed};
use crate::row::check_text;
use crate::{BoxId, ChannelId, Error, LeaseToken, Result, StepId, ToolCallId, code};

const HOLDER_MAX_BYTES: usize = 128;

/// A wish for work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Whose work.
    pub targets: Vec<WorkerTarget>,
    /// Who wants it.
    pub holder: String,
    /// For how long it is given, unless it is renewed.
    pub ttl_ms: i64,
    /// One for each turn that may be given, made at random.
    pub tokens: Vec<LeaseToken>,
}

/// A turn that was given to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// What every write about it must show.
    pub fence: Fence,
    /// The number of the step that begins.
    pub step_number: i64,
    /// How long it is given.
    pub until_ms: UnixMs,
    /// Where it was asked for.
    pub channel_id: ChannelId,
    /// How deep.
    pub recursion_depth: i64,
    /// What it belongs to.
    pub trace_id: Option<String>,
    /// The step that asked for it.
    pub parent_step_id: Option<StepId>,
    /// The call that its end answers.
    pub answers_tool_call_id: Option<ToolCallId>,
    /// How it thinks.
    pub profile_name: String,
    /// What it reads.
    pub context_box_id: BoxId,
    /// What it writes to.
    pub output_box_id: BoxId,
}

/// Gives turns to a worker: those that are due, in the order of their time and of their acceptance.
pub fn claim(tx: &mut Tx<'_>, claim: &Claim, now_ms: UnixMs) -> Result<Vec<Claimed>> {
    check_count(claim.tokens.len())?;
    check_text("holder", &claim.holder, HOLDER_MAX_BYTES)?;
    let until_ms = end_of("a lease", claim.ttl_ms, now_ms)?;
    if claim.tokens.iter().collect::<BTreeSet<_>>().len() != claim.tokens.len() {
        return Err(Error::refused(&code::MALFORMED, "a token is named twice"));
    }
    let mut plan = Plan::new(now_ms);
    let due = due(tx, claim, now_ms)?;
    let mut claimed = Vec::with_capacity(due.len());
    for (head, token) in due.into_iter().zip(&claim.tokens) {
        claimed.extend(plan.lease(head, token, &claim.holder, until_ms)?);
    }
    plan.settle(tx)?;
    Ok(claimed)
}

/// What is due for any of these targets, in its order.
fn due(tx: &mut Tx<'_>, claim: &Claim, now_ms: UnixMs) -> Result<Vec<Head>> {
    let limit = i64::try_from(claim.tokens.len()).unwrap_or(i64::MAX);
    let targets: BTreeSet<&str> = claim.targets.iter().map(WorkerTarget::as_str).collect();
    let keys: Vec<Vec<Val<'_>>> =
        targets.iter().map(|target| vec![(*target).into(), now_ms.into(), limit.into()]).collect();
    let mut due = read_due(tx, &keys, now_ms)?;
    due.sort_by_key(|head| match &head.active {
        Some(Active { state: State::Dispatched { due_ms }, seq, .. }) => (*due_ms, *seq),
        _ => (UnixMs::MAX, i64::MAX),
    });
    due.truncate(claim.tokens.len());
    Ok(due)
}

/// What can be read of it. What cannot is put aside: it would be the first one for ever.
fn read_due(tx: &mut Tx<'_>, keys: &[Vec<Val<'_>>], now_ms: UnixMs) -> Result<Vec<Head>> {
    loop {
        let found: Vec<Readable> = head::DUE.read(tx, keys)?;
        let mut due = Vec::with_capacity(found.len());
        let mut bad = false;
        for Readable(head) in found {
            match head {
                Ok(head) => due.push(head),
                Err([project_id, agent_id]) => {
                    let code = &code::MALFORMED_ROW;
                    bad |= mark::put_head_aside(tx, &project_id, &agent_id, code, now_ms)?;
                }
            }
        }
        // Each of them leaves room for another one.
        if !bad {
            return Ok(due);
        }
    }
}

impl Plan {
    fn lease(
        &mut self,
        head: Head,
        token: &LeaseToken,
        holder: &str,
        until_ms: UnixMs,
    ) -> Result<Option<Claimed>> {
        let (key, now_ms) = (head.key.clone(), self.now_ms);
        self.heads.insert(key.clone(), head);
        let head = self.head_mut(&key)?;
        head.turn_epoch = head.turn_epoch.saturating_add(1);
        let turn_epoch = head.turn_epoch;
        let Some(active) = head.active.clone() else { return Ok(None) };
        let number = active.steps_taken.saturating_add(1);
        let step = Step::begun(&key, &active.agent_turn_id, turn_epoch, number, now_ms);
        let (step_id, token, holder) = (step.step_id.clone(), token.clone(), holder.to_owned());
        let state =
            State::Running { step_id: step_id.clone(), token: token.clone(), holder, until_ms };
        self.changes.new_steps.push(step);
        self.set_state(&key, state)?;
        Ok(Some(Claimed {
            fence: Fence { key, agent_turn_id: active.agent_turn_id, turn_epoch, token, step_id },
            step_number: number,
            until_ms,
            channel_id: active.channel_id,
            recursion_depth: active.recursion_depth,
            trace_id: active.trace_id,
            parent_step_id: active.parent_step_id,
            answers_tool_call_id: active.answers_tool_call_id,
            profile_name: active.profile_name,
            context_box_id: active.context_box_id,
            output_box_id: active.output_box_id,
        }))
    }

    /// The open turn that this fence is about, if its holder still has it.
    pub(super) fn held(&self, fence: &Fence) -> Result<&Active> {
        let head = self.heads.get(&fence.key).filter(|head| head.turn_epoch == fence.turn_epoch);
        let active = head.and_then(|head| head.active.as_ref());
        let held = active.filter(|active| {
            active.agent_turn_id == fence.agent_turn_id
                && matches!(&active.state, State::Running { token, .. } if *token == fence.token)
        });
        held.ok_or_else(|| fenced(fence))
    }
}

/// Renews leases; for each until when, or that it is lost. A lease that is over but was not taken away is renewed too.
pub fn heartbeat_all(
    tx: &mut Tx<'_>,
    fences: &[Fence],
    ttl_ms: i64,
    now_ms: UnixMs,
) -> Result<Vec<Result<UnixMs>>> {
    check_count(fences.len())?;
    let renewed_ms = end_of("a lease", ttl_ms, now_ms)?;
    let mut plan = Plan::new(now_ms);
    plan.load_heads(tx, fences.iter().map(|fence| &fence.key))?;
    let mut answers = Vec::with_capacity(fences.len());
    for fence in fences {
        if let Err(error) = plan.held(fence) {
            answers.push(Err(error));
            continue;
        }
        let head = plan.head_mut(&fence.key)?;
        if let Some(State::Running { until_ms, .. }) =
            head.active.as_mut().map(|active| &mut active.state)
        {
            *until_ms = renewed(*until_ms, renewed_ms, now_ms);
            answers.push(Ok(*until_ms));
        }
    }
    plan.settle(tx)?;
    Ok(answers)
}

/// Gives turns back that are not worked on any more, so that nobody has to wait for the end of their leases. What was
/// lost already changes nothing.
pub fn give_back_all(tx: &mut Tx<'_>, fences: &[Fence], now_ms: UnixMs) -> Result<()> {
    check_count(fences.len())?;
    let mut plan = Plan::new(now_ms);
    plan.load_heads(tx, fences.iter().map(|fence| &fence.key))?;
    for fence in fences {
        let step_id = match plan.held(fence).map(|active| &active.state) {
            Ok(State::Running { step_id, .. }) => step_id.clone(),
            _ => continue,
        };
        plan.changes.steps.push(StepEnd::abandoned(&step_id, code::FENCED.name));
        plan.set_state(&fence.key, State::Dispatched { due_ms: now_ms })?;
    }
    plan.settle(tx)
}
