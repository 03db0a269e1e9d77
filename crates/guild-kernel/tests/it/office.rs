//! A node whose agents ask each other, by the tools of orchestration.

use std::collections::BTreeMap;
use std::sync::Arc;

use guild_kernel::inbox::Outcome;
use guild_kernel::pmo::batch::{self, Batch, Task};
use guild_kernel::pmo::{self, Handled};
use guild_kernel::roster::{self, Profile};
use guild_kernel::turn::{Committed, Fence, Finish, NewTurn, Then};
use guild_kernel::{AgentTurnId, BoxId, ToolCallId, boxes, card};
use guild_protocol::env::{BoxFuture, Clock};
use guild_store::args;
use guild_store::outbox::{Failure, Message};
use serde_json::{Value, json};

use crate::world::{Node, T0, TARGET, block_on, new_turn};

/// How long a call of orchestration is awaited.
pub(crate) const WAIT_MS: i64 = 60_000;

/// A clock that stands.
pub(crate) struct At(pub(crate) i64);

impl Clock for At {
    fn now_ms(&self) -> i64 {
        self.0
    }
    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }
}

/// Stores how agents think: `lead` may ask everybody; `coder` and `judge` nobody; `basic`, `none`, `named` and `tagged`
/// have other policies.
pub(crate) fn furnish(node: &Node) {
    let bodies = [
        ("lead", json!({ "delegation_policy": { "target_profiles": null } })),
        ("coder", json!({ "tags": ["code", "work"] })),
        ("judge", json!({ "tags": ["court"] })),
        ("none", json!({ "delegation_policy": { "target_profiles": [] } })),
        ("named", json!({ "delegation_policy": { "target_profiles": ["coder", "lead"] } })),
        ("tagged", json!({ "delegation_policy": { "target_tags": ["court"] } })),
    ];
    node.write(move |tx| {
        for (name, body) in &bodies {
            let profile = Profile {
                project_id: "p".parse()?,
                name: (*name).to_owned(),
                worker_target: TARGET.to_owned(),
                body: body.clone(),
            };
            roster::put_profile(tx, &profile, T0)?;
        }
        for tool in pmo::tool_rows(&"p".parse()?) {
            roster::put_tool(tx, &tool, T0)?;
        }
        Ok(())
    })
    .unwrap();
}

/// Runs a test in an office on every kind of database. All is well at the end.
pub(crate) fn both(test: impl Fn(&Node)) {
    crate::world::both(|node| {
        furnish(node);
        test(node);
        node.assert_well();
    });
}

/// All is well. In between it is looked at only where that costs little.
pub(crate) fn look(node: &Node) {
    if node.read(|rx| Ok(rx.engine())) == guild_store::Engine::Sqlite {
        node.assert_well();
    }
}

/// A turn that has made a call of orchestration.
pub(crate) struct Asked {
    pub(crate) fence: Fence,
    pub(crate) call: ToolCallId,
}

pub(crate) fn call(tool: &str, arguments: Value, timeout_ms: i64) -> guild_kernel::turn::Call {
    guild_kernel::turn::Call {
        tool_name: tool.to_owned(),
        arguments,
        target_subject: Some(format!("{}{tool}", pmo::SUBJECT)),
        timeout_ms,
        ..crate::world::call(0)
    }
}

/// Everybody whose turn is due, by turn.
pub(crate) fn take_all(node: &Node, from: u32, now_ms: i64) -> BTreeMap<AgentTurnId, Fence> {
    let tokens: Vec<u32> = (from..from + 50).collect();
    let claimed = node.claim(&tokens, now_ms);
    claimed.into_iter().map(|one| (one.fence.agent_turn_id.clone(), one.fence)).collect()
}

/// Makes a call in a turn that runs.
pub(crate) fn make(node: &Node, fence: &Fence, tool: &str, arguments: Value, now_ms: i64) -> Asked {
    let then = Then::Suspend(vec![call(tool, arguments, WAIT_MS)]);
    match node.commit(fence, then, now_ms).unwrap() {
        Committed::Suspended { mut calls, .. } => {
            Asked { fence: fence.clone(), call: calls.remove(0) }
        }
        other => panic!("{other:?}"),
    }
}

/// Turn `n` of an agent, thinking with a profile, calls a tool of orchestration.
pub(crate) fn ask_as(
    node: &Node,
    (n, agent, profile): (u32, u32, &str),
    tool: &str,
    arguments: Value,
) -> Asked {
    node.pack([n]);
    let new = NewTurn { profile_name: Some(profile.to_owned()), ..new_turn(n, agent) };
    // Before all that was asked for by others, so that nothing else is taken with it.
    let id = node.enqueue(&new, T0 - 1_000).unwrap();
    let fence = take_all(node, 1_000 * n, T0 - 1_000).remove(&id).unwrap();
    make(node, &fence, tool, arguments, T0)
}

pub(crate) fn ask(node: &Node, n: u32, tool: &str, arguments: Value) -> Asked {
    ask_as(node, (n, n, "lead"), tool, arguments)
}

/// The command of a call.
pub(crate) fn command(node: &Node, call: &ToolCallId) -> Message {
    let call = call.to_string();
    let row: (i64, String, String) = node.read(move |rx| {
        let sql = "SELECT seq, key, body FROM outbox WHERE sink = 'pmo' AND idempotency_key = $1";
        Ok(rx.first(sql, args![&call])?.unwrap())
    });
    let (seq, key, body) = row;
    Message { seq, sink: "pmo".to_owned(), idempotency_key: key.clone(), key, body, attempts: 0 }
}

/// Delivers a message as the drainer does.
pub(crate) fn deliver(node: &Node, message: Message, now_ms: i64) -> Result<(), Failure> {
    let sink = pmo::sink(node.store.clone(), Arc::new(At(now_ms)));
    block_on(sink(message))
}

/// Has a command carried out, or refused.
pub(crate) fn carry_out(node: &Node, asked: &Asked, now_ms: i64) {
    deliver(node, command(node, &asked.call), now_ms).unwrap();
    look(node);
}

pub(crate) fn handle(node: &Node, asked: &Asked, now_ms: i64) -> guild_kernel::Result<Handled> {
    let message = command(node, &asked.call);
    node.write(move |tx| pmo::handle(tx, &message, now_ms))
}

/// What the call was answered with.
pub(crate) fn answer(node: &Node, asked: &Asked) -> Option<Value> {
    let call = asked.call.clone();
    let card = node.read(move |rx| Ok(card::results(rx, &[&call])?.pop()));
    card.map(|card| serde_json::from_str(&card.content).unwrap())
}

/// The code that the call was refused with; the turn goes on.
pub(crate) fn refused(node: &Node, asked: &Asked) -> String {
    let answer = answer(node, asked).unwrap();
    assert_eq!(answer["status"], "failed");
    assert_eq!(answer["result"], Value::Null);
    let head = node.read({
        let key = asked.fence.key.clone();
        move |rx| Ok(guild_kernel::turn::head::find(rx, &key)?.unwrap())
    });
    assert_eq!(head.status(), "dispatched");
    look(node);
    answer["error"]["code"].as_str().unwrap().to_owned()
}

pub(crate) fn batch_of(node: &Node, asked: &Asked) -> Option<(Batch, Vec<Task>)> {
    let call = asked.call.clone();
    node.read(move |rx| {
        let Some(batch) = batch::of_call(rx, &call)? else { return Ok(None) };
        let tasks = batch::tasks(rx, &batch.batch_id)?;
        Ok(Some((batch, tasks)))
    })
}

/// Texts of the cards of a box, with their types.
pub(crate) fn cards_in(node: &Node, box_id: &str) -> Vec<(String, Value)> {
    let box_id: BoxId = box_id.parse().unwrap();
    let cards = node.read(move |rx| boxes::cards(rx, &box_id, 0, 100));
    let card = |card: guild_kernel::card::Card| {
        (card.card_type.as_str().to_owned(), serde_json::from_str(&card.content).unwrap())
    };
    cards.into_iter().map(card).collect()
}

pub(crate) fn ends(outcome: Outcome, said: &str) -> Then {
    Then::Finish(Finish {
        outcome,
        deliverable: Some(json!({ "text": said })),
        error_code: (outcome != Outcome::Success).then(|| "test.broken".to_owned()),
    })
}

pub(crate) fn tasks(count: usize) -> Vec<Value> {
    let task = |n| json!({ "target_strategy": "new", "target_ref": "coder", "instruction": format!("do {n}") });
    (0..count).map(task).collect()
}

/// A batch that runs, and who works for it.
pub(crate) struct Forked {
    pub(crate) asked: Asked,
    pub(crate) turns: Vec<AgentTurnId>,
    pub(crate) fences: BTreeMap<AgentTurnId, Fence>,
}

pub(crate) fn fork(node: &Node, n: u32, count: usize, more: Value) -> Forked {
    let mut arguments = json!({ "tasks": tasks(count) });
    for (name, value) in more.as_object().unwrap() {
        arguments[name] = value.clone();
    }
    let asked = ask(node, n, pmo::FORK_JOIN, arguments);
    carry_out(node, &asked, T0 + 1);
    let (batch, tasks) = batch_of(node, &asked).unwrap();
    assert_eq!((batch.status(), batch.task_count), ("running", i64::try_from(count).unwrap()));
    let turns: Vec<AgentTurnId> = tasks.into_iter().map(|task| task.agent_turn_id).collect();
    let fences = take_all(node, 1_000 * n + 100, T0 + 2);
    assert_eq!(fences.len(), count);
    Forked { asked, turns, fences }
}

impl Forked {
    pub(crate) fn end(&self, node: &Node, task: usize, outcome: Outcome, now_ms: i64) {
        let fence = &self.fences[&self.turns[task]];
        node.commit(fence, ends(outcome, &format!("{task} is done")), now_ms).unwrap();
        look(node);
    }

    /// How the batch ended, and its tasks.
    pub(crate) fn ended(&self, node: &Node) -> (Option<Outcome>, Vec<Option<Outcome>>) {
        let (batch, tasks) = batch_of(node, &self.asked).unwrap();
        (batch.outcome, tasks.into_iter().map(|task| task.outcome).collect())
    }

    pub(crate) fn status(&self, node: &Node) -> &'static str {
        let key = self.asked.fence.key.clone();
        node.read(move |rx| Ok(guild_kernel::turn::head::find(rx, &key)?.unwrap())).status()
    }
}
