//! Tools. Some stand in the worker's own process, some elsewhere and are told by the outbox. They answer early, late,
//! twice, never, and for calls that are not theirs. What they do is written down, beside whether the call was known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use guild_kernel::inbox::Outcome;
use guild_kernel::tool::{Effect, Tool, ToolCall, ToolOutcome, Tools};
use guild_kernel::turn::{self, Parent, Report, Reported};
use guild_kernel::{AgentKey, AgentTurnId, Error, Result, StepId, ToolCallId, code};
use guild_protocol::env::{BoxFuture, Clock};
use guild_store::args;
use guild_store::outbox::{Deliver, Failure, Message};
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{self, Wish};
use super::{Bug, GENTLE, LEASE_MS, Shared, WAIT_MS, key, lock};
use crate::executor::Life;
use crate::fault::Kind;

/// How often a report is tried again.
const TRIES_MAX: u32 = 200;

/// What tools have done.
#[derive(Default)]
pub(super) struct Deeds {
    /// How often each call of a tool that changes something was carried out.
    pub(super) effects: BTreeMap<String, u64>,
    /// The commands that were taken.
    pub(super) taken: BTreeSet<String>,
}

pub(super) type Shop = Arc<Mutex<Deeds>>;

/// Whether a call is written down.
fn is_known(shared: &Shared, call: &str) -> bool {
    let sql = "SELECT count(*) FROM execution_edges WHERE primitive = 'tool_call'
                 AND edge_phase = 'request' AND correlation_id = $1";
    let known: Option<i64> = shared.database.one(sql, args![call]).ok().flatten();
    known.is_some_and(|count| count > 0)
}

fn answer_of(call: &ToolCallId) -> Value {
    json!({ "of": call.as_str() })
}

/// The tools of a process.
pub(super) fn tools(shared: &Shared, life: &Life) -> Tools {
    let look: Arc<dyn Tool> = Arc::new(Look { shared: shared.clone() });
    let strike: Arc<dyn Tool> = Arc::new(Strike { shared: shared.clone(), life: life.clone() });
    [("look".to_owned(), look), ("strike".to_owned(), strike)].into()
}

/// Changes nothing. Now and then somebody answers another call of its step before that is even made.
struct Look {
    shared: Shared,
}

impl Tool for Look {
    fn effect(&self) -> Effect {
        Effect::Pure
    }

    fn run(&self, call: ToolCall) -> BoxFuture<ToolOutcome> {
        let shared = self.shared.clone();
        Box::pin(async move {
            client::pause(&shared, 30).await;
            if shared.world.below(4) == 0 {
                let place = usize::try_from(shared.world.below(4)).unwrap_or(0);
                let early = report(
                    (&call.key, &call.agent_turn_id),
                    &ToolCallId::of(&call.step_id, place),
                    Outcome::Success,
                );
                if let Some(Ok(Reported::Early)) = send_once(&shared, &early).await {
                    shared.world.count("early result");
                }
            }
            outcome(&call.tool_call_id, Outcome::Success)
        })
    }
}

/// Changes something, once for each call however often it is run.
struct Strike {
    shared: Shared,
    life: Life,
}

impl Tool for Strike {
    fn effect(&self) -> Effect {
        // A worker that is told so carries it out before the call is written down.
        match self.shared.bug {
            Some(Bug::PublishBeforeCommit) => Effect::Pure,
            _ => Effect::Once,
        }
    }

    fn run(&self, call: ToolCall) -> BoxFuture<ToolOutcome> {
        let (shared, life) = (self.shared.clone(), self.life.clone());
        Box::pin(async move {
            let world = &shared.world;
            let slow = world.below(12) == 0;
            client::pause(&shared, if slow { 2 * WAIT_MS.unsigned_abs() } else { 120 }).await;
            // It is done by hand here, so each is as dangerous as elsewhere.
            let meets =
                |kind| world.fault(Some(life.process()), kind, shared.rates.crash.div_ceil(GENTLE));
            if meets(Kind::CrashBeforeDelivery).is_some() {
                life.die();
                return std::future::pending().await;
            }
            if !is_known(&shared, call.tool_call_id.as_str()) {
                world.violate(format!("[unknown call] {} is carried out", call.tool_call_id));
            }
            let name = call.tool_call_id.as_str().to_owned();
            let times = {
                let mut deeds = lock(&shared.shop);
                let times = deeds.effects.entry(name).or_default();
                *times += 1;
                *times
            };
            world.count(if times > 1 { "effect again" } else { "effect" });
            if meets(Kind::CrashAfterDelivery).is_some() {
                life.die();
                return std::future::pending().await;
            }
            let status = if world.below(10) == 0 { Outcome::Failed } else { Outcome::Success };
            outcome(&call.tool_call_id, status)
        })
    }
}

fn outcome(call: &ToolCallId, status: Outcome) -> ToolOutcome {
    let error = match status {
        Outcome::Success => Value::Null,
        _ => json!({ "code": "shop.broken", "message": "it broke" }),
    };
    ToolOutcome { status, result: answer_of(call), error, after_execution: None }
}

/// A command, as it leaves the node.
#[derive(Deserialize)]
struct Command {
    subject: String,
    headers: Headers,
}

#[derive(Deserialize)]
struct Headers {
    project_id: guild_kernel::ProjectId,
    agent_id: guild_kernel::AgentId,
    agent_turn_id: AgentTurnId,
    step_id: StepId,
    tool_call_id: ToolCallId,
}

/// What carries the commands of a life to the shop.
pub(super) fn sink(shared: &Shared, life: &Life) -> Deliver {
    let (shared, life) = (shared.clone(), life.clone());
    Arc::new(move |message: Message| {
        let (shared, life) = (shared.clone(), life.clone());
        Box::pin(async move { deliver(&shared, &life, &message).await })
    })
}

async fn deliver(shared: &Shared, life: &Life, message: &Message) -> Result<(), Failure> {
    let world = &shared.world;
    let command: Command = match serde_json::from_str(&message.body) {
        Ok(command) => command,
        Err(error) => {
            world.violate(format!("[command] it cannot be read: {error}"));
            return Err(Failure::Never("no command".to_owned()));
        }
    };
    world.sleep(world.below_ms(15)).await;
    let meets = |kind| world.fault(Some(life.process()), kind, shared.rates.crash.div_ceil(GENTLE));
    if meets(Kind::CrashBeforeDelivery).is_some() {
        life.die();
        return Err(Failure::Retry("dead".to_owned()));
    }
    if life.meets(Kind::SinkFails).is_some() {
        return Err(Failure::Retry("the shop is closed now and then".to_owned()));
    }
    if life.meets(Kind::SinkStalls).is_some() {
        world.sleep(2 * LEASE_MS).await;
    }
    order(shared, command);
    if life.meets(Kind::SinkAnswersLate).is_some() {
        world.sleep(2 * LEASE_MS).await;
    }
    if meets(Kind::CrashAfterDelivery).is_some() {
        life.die();
    }
    Ok(())
}

/// A command has come, by whatever way: its call is written down.
fn order(shared: &Shared, command: Command) {
    let call = command.headers.tool_call_id.as_str().to_owned();
    if !is_known(shared, &call) {
        shared.world.violate(format!("[unknown call] {call} is ordered"));
    }
    lock(&shared.shop).taken.insert(call);
    take(shared, command);
}

/// A command that somebody else brings.
pub(super) fn overhear(shared: &Shared, body: &str) {
    match serde_json::from_str(body) {
        Ok(command) => order(shared, command),
        Err(error) => shared.world.violate(format!("[command] it cannot be read: {error}")),
    }
}

/// What the shop does with a command, each time that it gets it. It outlives the nodes.
fn take(shared: &Shared, command: Command) {
    let Headers { project_id, agent_id, agent_turn_id, step_id, tool_call_id } = command.headers;
    let caller = AgentKey { project_id, agent_id };
    if command.subject.ends_with("delegate") {
        let parent = Parent {
            agent_id: caller.agent_id,
            agent_turn_id,
            step_id: Some(step_id),
            answers: Some(tool_call_id),
        };
        let wish = Wish::of_parent(parent, key(shared.world.below(shared.agents)));
        return shared.outside(delegate(shared.clone(), wish));
    }
    let world = &shared.world;
    let report = |status, call: &ToolCallId| self::report((&caller, &agent_turn_id), call, status);
    let mut answers = Vec::new();
    match world.below(10) {
        0 => world.count("tool never answers"),
        1 => answers.push((WAIT_MS + world.below_ms(500), report(Outcome::Success, &tool_call_id))),
        2 => {
            answers.push((world.below_ms(200), report(Outcome::Success, &tool_call_id)));
            answers.push((world.below_ms(900), report(Outcome::Success, &tool_call_id)));
            answers.push((world.below_ms(900), report(Outcome::Partial, &tool_call_id)));
        }
        3 => answers.push((world.below_ms(200), report(Outcome::Failed, &tool_call_id))),
        _ => answers.push((world.below_ms(200), report(Outcome::Success, &tool_call_id))),
    }
    if world.below(6) == 0 {
        // Somebody who was never asked.
        let stranger = ToolCallId::of(&step_id, 40);
        answers.push((world.below_ms(300), report(Outcome::Success, &stranger)));
    }
    for (pause_ms, report) in answers {
        shared.outside(answer(shared.clone(), pause_ms, report));
    }
}

fn report(
    (caller, agent_turn_id): (&AgentKey, &AgentTurnId),
    call: &ToolCallId,
    status: Outcome,
) -> Report {
    Report {
        key: caller.clone(),
        agent_turn_id: agent_turn_id.clone(),
        tool_call_id: call.clone(),
        source: "tool.shop".to_owned(),
        status,
        after_execution: None,
        result: answer_of(call),
        error: outcome(call, status).error,
    }
}

/// Reports until somebody has heard it.
async fn answer(shared: Shared, pause_ms: i64, report: Report) {
    shared.world.sleep(pause_ms).await;
    for _ in 0..TRIES_MAX {
        match send_once(&shared, &report).await {
            Some(Ok(reported)) => {
                return shared.world.count(match reported {
                    Reported::Applied { resumed: true } => "result that resumes",
                    Reported::Applied { resumed: false } => "result beside others",
                    Reported::Early => "early result",
                    Reported::Known => "result told again",
                    Reported::Skipped(code) => code.name,
                });
            }
            Some(Err(Error::Store(_))) | None => client::pause(&shared, 60).await,
            Some(Err(error)) => return shared.world.violate(format!("[report] {error}")),
        }
    }
}

/// Reports once, if a node answers at all.
async fn send_once(shared: &Shared, report: &Report) -> Option<Result<Reported>> {
    let node = shared.node()?;
    let (report, clock) = (report.clone(), node.clock.clone());
    let write = node.store.write(move |tx| {
        let reports = std::slice::from_ref(&report);
        turn::report_all(tx, reports, clock.now_ms())?.pop().transpose()
    });
    client::asked(shared, &node, write).await.transpose()
}

/// Has another agent answer the call.
async fn delegate(shared: Shared, wish: Wish) {
    for _ in 0..TRIES_MAX {
        client::pause(&shared, 60).await;
        let Some(node) = shared.node() else { continue };
        match client::ask_once(&shared, &node, &wish).await {
            Ok(accepted) => {
                client::write_down(&shared, &wish, accepted);
                return shared.world.count("child");
            }
            Err(Error::Store(_)) => {}
            Err(error) if error.code() == &code::PARENT_CLOSED => {
                return shared.world.count("child that nobody wants any more");
            }
            Err(error) if error.code() == &code::TOO_DEEP => return shared.world.count("too deep"),
            Err(error) if error.code() == &code::CONFLICT => {
                // It was asked for before with another agent: the shop forgets what it has ordered.
                return shared.world.count("child that is there already");
            }
            Err(error) => return shared.world.violate(format!("[delegate] {error}")),
        }
    }
}
