//! Asking several agents at once, and waiting for all of them.

use std::collections::BTreeSet;

use guild_protocol::env::UnixMs;
use guild_store::{Rx, Tx};
use serde::Deserialize;

use super::batch::{self, Batch, TASKS_MAX, Task};
use super::call::Call;
use super::delegate::Wish;
use super::pack::{self, Packed};
use super::target::{self, Strategy};
use super::{FORK_JOIN, FORK_JOIN_DEADLINE_MS};
use crate::edge::{self, Edge, End, Phase, Primitive};
use crate::turn::{self, DEPTH_MAX, LONGEST_MS};
use crate::{AgentId, AgentTurnId, BatchId, Error, Result, code, inbox};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wishes {
    tasks: Vec<Wish>,
    #[serde(default)]
    fail_fast: bool,
    #[serde(default)]
    deadline_seconds: Option<i64>,
}

impl Wishes {
    fn check(&self, call: &Call) -> Result<()> {
        let malformed = |message: String| Err(Error::refused(&code::MALFORMED, message));
        // Whoever answers such a call must be seen to have done so by its name alone.
        if call.tool_name != FORK_JOIN {
            return malformed(format!("the tool must be called {FORK_JOIN}"));
        }
        if !(1..=TASKS_MAX).contains(&self.tasks.len()) {
            let count = self.tasks.len();
            return malformed(format!("a batch has from 1 to {TASKS_MAX} tasks, not {count}"));
        }
        let mut reused = BTreeSet::new();
        let reuse = self.tasks.iter().filter(|task| task.target_strategy == Strategy::Reuse);
        for task in reuse {
            if !reused.insert(&task.target_ref) {
                let start: String = task.target_ref.chars().take(80).collect();
                return malformed(format!("{start:?} cannot do two tasks of one batch"));
            }
        }
        Ok(())
    }

    /// When the batch ends in any case: when it should, and never after whoever waits has stopped waiting.
    fn deadline_ms(&self, call: &Call, now_ms: UnixMs) -> Result<UnixMs> {
        let lasts_ms = match self.deadline_seconds {
            None => FORK_JOIN_DEADLINE_MS,
            Some(seconds) if (1..=LONGEST_MS / 1_000).contains(&seconds) => {
                seconds.saturating_mul(1_000)
            }
            Some(seconds) => {
                let message = format!("a batch cannot last {seconds} s");
                return Err(Error::refused(&code::MALFORMED, message));
            }
        };
        Ok(now_ms.saturating_add(lasts_ms).min(call.deadline_ms))
    }
}

pub(super) fn fork_join(tx: &mut Tx<'_>, call: &Call, now_ms: UnixMs) -> Result<()> {
    let wishes: Wishes = call.arguments(tx)?;
    wishes.check(call)?;
    let deadline_ms = wishes.deadline_ms(call, now_ms)?;
    let packed = pack_all(tx, call, &wishes.tasks, now_ms)?;
    let new = pack::store(tx, call, &packed, Some(&call.tool_call_id), now_ms)?;
    let batch = Batch {
        batch_id: BatchId::named(now_ms, &[call.tool_call_id.as_str(), "batch"]),
        project_id: call.key.project_id.clone(),
        channel_id: call.active.channel_id.clone(),
        parent_agent_id: call.key.agent_id.clone(),
        parent_agent_turn_id: call.agent_turn_id.clone(),
        parent_step_id: call.step_id.clone(),
        parent_tool_call_id: call.tool_call_id.clone(),
        recursion_depth: call.active.recursion_depth,
        trace_id: call.active.trace_id.clone(),
        task_count: i64::try_from(packed.len()).unwrap_or(0),
        fail_fast: wishes.fail_fast,
        outcome: None,
        deadline_ms,
        created_ms: now_ms,
        closed_ms: None,
    };
    edge::insert_all(tx, &[request(call, &batch)], now_ms)?;
    let mut tasks = Vec::with_capacity(packed.len());
    let accepted = turn::enqueue_all(tx, &new, now_ms)?;
    for ((task_index, packed), accepted) in (0..).zip(&packed).zip(accepted) {
        tasks.push(Task {
            batch_id: batch.batch_id.clone(),
            task_index,
            agent_id: packed.target.agent.key.agent_id.clone(),
            agent_turn_id: accepted?.agent_turn_id,
            context_box_id: packed.context_box_id.clone(),
            output_box_id: packed.output_box_id.clone(),
            outcome: None,
            error_code: None,
            deliverable_card_id: None,
            closed_ms: None,
        });
    }
    batch::insert(tx, &batch, &tasks)
}

fn pack_all(rx: &mut Rx<'_>, call: &Call, wishes: &[Wish], now_ms: UnixMs) -> Result<Vec<Packed>> {
    let policy = call.policy(rx)?;
    let reuses = wishes.iter().any(|wish| wish.target_strategy == Strategy::Reuse);
    let waiting = if reuses { waiting_agents(rx, call)? } else { BTreeSet::new() };
    let mut packed = Vec::with_capacity(wishes.len());
    for (index, wish) in wishes.iter().enumerate() {
        let strategy = (wish.target_strategy, wish.target_ref.as_str());
        let target = target::find(rx, call, &policy, strategy, index)?;
        if !target.is_new && waiting.contains(&target.agent.key.agent_id) {
            let message = format!("{} waits for what it would have to do", target.agent.key);
            return Err(Error::refused(&code::WAITS_FOR_ITSELF, message));
        }
        let given = (wish.instruction.as_str(), wish.context_box_id.as_ref());
        packed.push(pack::pack(rx, call, target, given, (index, now_ms))?);
    }
    Ok(packed)
}

/// The agent that asks, and those above it: as long as it waits they do, as far as they were asked to answer.
fn waiting_agents(rx: &mut Rx<'_>, call: &Call) -> Result<BTreeSet<AgentId>> {
    let mut agents = BTreeSet::from([call.key.agent_id.clone()]);
    let mut above: Option<AgentTurnId> = Some(call.agent_turn_id.clone());
    for _ in 0..DEPTH_MAX {
        let Some(turn_id) = above else { break };
        let Some(row) = inbox::turn(rx, &turn_id)? else { break };
        agents.insert(row.key.agent_id.clone());
        let answers = row.turn_headers().is_some_and(|h| h.answers_tool_call_id.is_some());
        above = row.parent_agent_turn_id.filter(|_| answers);
    }
    Ok(agents)
}

fn request(call: &Call, batch: &Batch) -> Edge {
    Edge {
        project_id: batch.project_id.clone(),
        channel_id: batch.channel_id.clone(),
        primitive: Primitive::Join,
        phase: Phase::Request,
        source: End {
            agent_id: Some(call.key.agent_id.clone()),
            agent_turn_id: Some(call.agent_turn_id.clone()),
        },
        source_step_id: Some(call.step_id.clone()),
        target: End::default(),
        correlation_id: batch.batch_id.as_str().to_owned(),
        recursion_depth: batch.recursion_depth,
        trace_id: batch.trace_id.clone(),
    }
}
