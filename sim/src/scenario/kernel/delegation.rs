//! Orchestration: what models ask of other agents by its tools, and how its commands are carried out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use guild_kernel::roster::Tool;
use guild_kernel::{Result, pmo};
use guild_protocol::env::Clock;
use guild_store::Store;
use guild_store::outbox::{Deliver, Failure, Message};
use serde_json::{Value, json};

use super::{GENTLE, PROJECT, Shared};
use crate::executor::Life;
use crate::fault::Kind;
use crate::world::World;

/// So many calls of orchestration are made in a world at most: each may lead to several turns.
const CALLS_MAX: u64 = 7;
/// Those who were asked by those who were asked ask nobody.
const DEPTH_MAX: u64 = 2;
/// How long whoever forks waits.
const FORK_WAIT_S: i64 = 3;

/// What is left to be asked for, and how much was.
#[derive(Clone, Default)]
pub(super) struct Delegation {
    left: Arc<AtomicU64>,
    asked: Arc<AtomicU64>,
}

impl Delegation {
    /// In one world of three nobody delegates.
    pub(super) fn for_world(world: &World) -> Delegation {
        let left = if world.below(3) == 0 { 0 } else { 1 + world.below(CALLS_MAX) };
        Delegation { left: Arc::new(AtomicU64::new(left)), asked: Arc::default() }
    }

    /// Whether a turn this deep may make one more call.
    pub(super) fn may_call(&self, depth: u64) -> bool {
        let less = |left: u64| left.checked_sub(1);
        depth < DEPTH_MAX
            && self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
    }

    /// A new wish of a turn this deep.
    fn wish(&self, depth: u64) -> String {
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        super::client::instruction(&format!("kid-{number}-{}", depth + 1))
    }
}

/// How deep a wish is: those of clients not at all.
pub(super) fn depth_of(wish: &str) -> u64 {
    let depth = wish.strip_prefix("kid-").and_then(|rest| rest.rsplit_once('-'));
    depth.and_then(|(_, depth)| depth.parse().ok()).unwrap_or(0)
}

/// Whether it is a tool of orchestration.
pub(super) fn is_tool(name: &str) -> bool {
    [
        pmo::DELEGATE_ASYNC,
        pmo::LAUNCH_PRINCIPAL,
        pmo::ASK_EXPERT,
        pmo::FORK_JOIN,
        pmo::PROVISION_AGENT,
    ]
    .contains(&name)
}

pub(super) fn tool_rows() -> Result<Vec<Tool>> {
    let mut rows = pmo::tool_rows(&PROJECT.parse()?);
    for row in rows.iter_mut().filter(|row| row.tool_name == pmo::FORK_JOIN) {
        row.options = json!({ "suspend_timeout_seconds": FORK_WAIT_S });
    }
    Ok(rows)
}

/// What a tool of orchestration is called with by a turn this deep.
pub(super) fn arguments(shared: &Shared, tool_name: &str, depth: u64) -> Value {
    let world = &shared.world;
    match tool_name {
        pmo::LAUNCH_PRINCIPAL => {
            json!({ "profile_name": profile(world), "instruction": shared.delegation.wish(depth) })
        }
        pmo::ASK_EXPERT => json!({
            "expert_profile": profile(world),
            "question": shared.delegation.wish(depth),
            "include_history": world.below(2) == 0,
        }),
        pmo::FORK_JOIN => {
            let tasks: Vec<Value> = (0..1 + world.below(3)).map(|_| task(shared, depth)).collect();
            let mut arguments = json!({ "tasks": tasks, "fail_fast": world.below(3) == 0 });
            if world.below(2) == 0 {
                arguments["deadline_seconds"] = json!(1 + world.below(2));
            }
            arguments
        }
        pmo::PROVISION_AGENT => provision(world),
        _ => task(shared, depth),
    }
}

/// Mostly one that may be asked.
fn profile(world: &World) -> &'static str {
    match world.below(12) {
        0 => "strict",
        1 => "nothing_of_this_name",
        _ => "basic",
    }
}

fn task(shared: &Shared, depth: u64) -> Value {
    let world = &shared.world;
    let (strategy, target) = match world.below(6) {
        // Some of them are not there, and one may be retired.
        0 => ("reuse", format!("a{}", world.below(4))),
        1 => ("reuse", "made0".to_owned()),
        2 => ("clone", format!("a{}", world.below(4))),
        _ => ("new", profile(world).to_owned()),
    };
    let instruction = shared.delegation.wish(depth);
    json!({ "target_strategy": strategy, "target_ref": target, "instruction": instruction })
}

fn provision(world: &World) -> Value {
    let agent_id = format!("made{}", world.below(2));
    match world.below(6) {
        0 => json!({ "action": "retire", "agent_id": agent_id }),
        1 => json!({ "action": "create", "agent_id": agent_id, "profile_name": "basic" }),
        2 => json!({ "action": "derive", "derived_from": "a0" }),
        _ => json!({ "action": "ensure", "agent_id": agent_id, "profile_name": "basic" }),
    }
}

/// What carries out the commands of a life. Now and then one comes again.
pub(super) fn sink(shared: &Shared, life: &Life, store: &Store, clock: &Arc<dyn Clock>) -> Deliver {
    let inner = pmo::sink(store.clone(), clock.clone());
    let (shared, life) = (shared.clone(), life.clone());
    Arc::new(move |message: Message| {
        let (shared, life, inner) = (shared.clone(), life.clone(), inner.clone());
        Box::pin(async move { deliver(&shared, &life, &inner, message).await })
    })
}

async fn deliver(
    shared: &Shared,
    life: &Life,
    inner: &Deliver,
    message: Message,
) -> Result<(), Failure> {
    let world = &shared.world;
    let meets = |kind| world.fault(Some(life.process()), kind, shared.rates.crash.div_ceil(GENTLE));
    if meets(Kind::CrashBeforeDelivery).is_some() {
        life.die();
        return Err(Failure::Retry("dead".to_owned()));
    }
    if life.meets(Kind::SinkFails).is_some() {
        return Err(Failure::Retry("nobody carries it out now and then".to_owned()));
    }
    inner(message.clone()).await?;
    world.count("command of orchestration");
    if world.below(6) == 0 {
        world.count("command of orchestration again");
        inner(message).await?;
    }
    if meets(Kind::CrashAfterDelivery).is_some() {
        life.die();
    }
    Ok(())
}
