//! Runs tools in the worker's own process.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use futures_util::future::{Either, join_all, select};
use guild_protocol::env::UnixMs;
use guild_protocol::error::Code;
use guild_store::lease::{self, Lease};
use serde_json::{Map, Value, json};

use super::heart::Shown;
use super::react::{self, Planned, Scene, Way};
use super::task::Arrival;
use super::toolbox::{OptionsOf, ToolOptions, options_of};
use super::{Worker, is_closed, lock};
use crate::inbox::Outcome;
use crate::tool::{Effect, ToolCall, ToolOutcome};
use crate::turn::{self, Call, Claimed, Fence, PickedUp, Report, RunFence, SET_MAX, Then};
use crate::{Error, LeaseToken, Result, ToolCallId, code};

/// A call that is written down, and is run under a lease of its own.
pub(super) struct Run {
    fence: RunFence,
    until_ms: UnixMs,
    call: ToolCall,
    /// Why it cannot be run here.
    unfit: Option<Unfit>,
}

/// A code, and what is missing.
type Unfit = (&'static Code, String);

/// How many runs are picked up at once.
const AT_ONCE: i64 = 64;

impl Worker {
    /// The runs that a step leads to, once it is written.
    pub(super) fn runs_of(
        &self,
        claimed: &Claimed,
        fence: &Fence,
        scene: &Scene<'_>,
        then: &Then,
    ) -> Vec<Run> {
        let Then::Suspend(calls) = then else { return Vec::new() };
        let now_ms = self.parts.clock.now_ms();
        let later = calls.iter().filter(|call| call.target_subject.is_none());
        let run = |call: &Call| {
            let options = scene.toolbox.get(&call.tool_name).map(|entry| &entry.options);
            let (arguments, unfit) = self.with_secrets(&call.arguments, options);
            Run {
                unfit,
                fence: RunFence {
                    tool_call_id: ToolCallId::of(&fence.step_id, call.place),
                    token: fence.token.clone(),
                },
                until_ms: now_ms.saturating_add(turn::run_ttl_ms(self.options.lease_ms)),
                call: ToolCall {
                    tool_call_id: ToolCallId::of(&fence.step_id, call.place),
                    key: fence.key.clone(),
                    agent_turn_id: fence.agent_turn_id.clone(),
                    step_id: fence.step_id.clone(),
                    channel_id: claimed.channel_id.clone(),
                    recursion_depth: claimed.recursion_depth,
                    tool_name: call.tool_name.clone(),
                    arguments,
                    deadline_ms: now_ms.saturating_add(call.timeout_ms),
                },
            }
        };
        later.map(run).collect()
    }

    /// What a tool of this process is called with, and why it cannot be called. What comes from the environment is
    /// never written down. That it was there when the call was made says nothing about this worker.
    fn with_secrets(
        &self,
        arguments: &Value,
        options: Option<&ToolOptions>,
    ) -> (Value, Option<Unfit>) {
        let mut arguments = arguments.as_object().cloned().unwrap_or_default();
        let added = options.map_or(Ok(()), |options| {
            options.add_environment(&mut arguments, &self.parts.environment)
        });
        let missing = |name| (&code::NO_ENVIRONMENT, format!("the worker has no {name}"));
        (Value::Object(arguments), added.err().map(missing))
    }

    /// From now on these runs are kept and done.
    pub(super) fn begin_runs(&self, runs: Vec<Run>) {
        for run in runs {
            let hold = self.hold(Shown::Run(run.fence.clone()), run.until_ms);
            self.arrivals.push((hold, Arrival::Run(Box::new(run))));
        }
    }

    /// Runs a tool, and reports what came out.
    pub(super) async fn run_and_report(&self, run: Run, number: u64) {
        let Run { fence, call, unfit, .. } = run;
        let (key, agent_turn_id) = (call.key.clone(), call.agent_turn_id.clone());
        let source = format!("tool.{}", call.tool_name);
        let outcome = match unfit {
            None => self.run_tool(call).await,
            Some((code, why)) => failed(code, &why, Outcome::Failed),
        };
        let ToolOutcome { status, result, error, after_execution } = react::fit(outcome);
        let RunFence { tool_call_id, token } = fence;
        let report = Report {
            key,
            agent_turn_id,
            tool_call_id,
            source,
            status,
            after_execution,
            result,
            error,
        };
        if let Err(error) = self.report(number, token, report).await
            && error.code() != &code::FENCED
            && !is_closed(&error)
        {
            // The call is run again when its lease is over, until its deadline.
            self.warn(&error, "the result of a tool cannot be written");
        }
    }

    /// Takes over runs whose workers were lost.
    pub(super) async fn pick_up(&self) -> Result<()> {
        let (targets, leases) = self.targets();
        let names: Vec<String> = self
            .parts
            .tools
            .iter()
            .filter(|(_, tool)| tool.effect() == Effect::Once)
            .map(|(name, _)| name.clone())
            .collect();
        if names.is_empty() || targets.is_empty() {
            return Ok(());
        }
        let now_ms = self.parts.clock.now_ms();
        let due = self.parts.store.read(move |rx| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            turn::runs_due(rx, &names, &targets, now_ms, AT_ONCE)
        });
        let due = due.await?;
        let (clock, random) = (&self.parts.clock, &self.parts.random);
        let asked: Vec<RunFence> = due
            .into_iter()
            .take(SET_MAX)
            .map(|tool_call_id| {
                let token = LeaseToken::make(&**clock, &**random);
                RunFence { tool_call_id, token }
            })
            .collect();
        if asked.is_empty() {
            return Ok(());
        }
        let alone = match self.take_over(asked.clone(), &leases).await {
            Ok(()) => Vec::new(),
            // Somebody else serves a target now, and takes over what belongs to it.
            Err(Error::Store(guild_store::Error::Fenced)) => {
                lock(&self.held).forget_targets();
                Vec::new()
            }
            Err(_) => asked,
        };
        for one in alone {
            if let Err(error) = self.take_over(vec![one], &leases).await {
                self.warn(&error, "a run cannot be taken over");
            }
        }
        Ok(())
    }

    async fn take_over(&self, asked: Vec<RunFence>, leases: &[Lease]) -> Result<()> {
        let leases = leases.to_vec();
        let (clock, lease_ms) = (self.parts.clock.clone(), self.options.lease_ms);
        let ttl_ms = turn::run_ttl_ms(lease_ms);
        let taken = self.parts.store.write(move |tx| {
            // Of a target that was lost meanwhile nothing is taken.
            for lease in &leases {
                lease::check(tx, lease, clock.now_ms())?;
            }
            let picked: Vec<PickedUp> =
                turn::pick_up(tx, &asked, ttl_ms, clock.now_ms())?.into_iter().flatten().collect();
            let of = |one: &PickedUp| (one.key.project_id.to_string(), one.tool_name.clone());
            let names: BTreeSet<(String, String)> = picked.iter().map(of).collect();
            let names = names.iter().map(|(project, tool)| (project.as_str(), tool.as_str()));
            let options = options_of(tx, &names.collect())?;
            Ok((picked, options))
        });
        let (picked, options): (Vec<PickedUp>, OptionsOf) =
            taken.await.map_err(|error: Error| error)?;
        self.counts.add("picked_up", picked.len());
        let run = |one: PickedUp| {
            let name = (one.key.project_id.as_str().to_owned(), one.tool_name.clone());
            let said = options.get(&name);
            let (arguments, missing) =
                self.with_secrets(&one.arguments, said.and_then(|said| said.as_ref().ok()));
            // Without what the row says a tool would run with less than it was called with.
            let unfit = match said {
                None => Some((&code::UNKNOWN_TOOL, "its row is gone".to_owned())),
                Some(Err(why)) => Some((&code::MALFORMED_ROW, why.clone())),
                Some(Ok(_)) => missing,
            };
            Run {
                unfit,
                until_ms: one.until_ms,
                call: ToolCall {
                    tool_call_id: one.fence.tool_call_id.clone(),
                    key: one.key,
                    agent_turn_id: one.agent_turn_id,
                    step_id: one.step_id,
                    channel_id: one.channel_id,
                    recursion_depth: one.recursion_depth,
                    tool_name: one.tool_name,
                    arguments,
                    deadline_ms: one.deadline_ms,
                },
                fence: one.fence,
            }
        };
        self.begin_runs(picked.into_iter().map(run).collect());
        Ok(())
    }

    /// Runs the tools that run inside the step, all at once.
    pub(super) async fn run_here(
        &self,
        claimed: &Claimed,
        fence: &Fence,
        calls: &[Planned],
    ) -> BTreeMap<usize, ToolOutcome> {
        let now_ms = self.parts.clock.now_ms();
        let runs = calls.iter().filter_map(|planned| {
            let Way::Here { arguments, secrets, timeout_ms, .. } = &planned.way else {
                return None;
            };
            let call = ToolCall {
                tool_call_id: ToolCallId::of(&fence.step_id, planned.place),
                key: fence.key.clone(),
                agent_turn_id: fence.agent_turn_id.clone(),
                step_id: fence.step_id.clone(),
                channel_id: claimed.channel_id.clone(),
                recursion_depth: claimed.recursion_depth,
                tool_name: planned.tool_name.clone(),
                arguments: with(arguments, secrets),
                deadline_ms: now_ms.saturating_add(*timeout_ms),
            };
            Some(async move { (planned.place, self.run_tool(call).await) })
        });
        let runs: Vec<_> = runs.collect();
        if runs.is_empty() { BTreeMap::new() } else { join_all(runs).await.into_iter().collect() }
    }

    /// Runs a tool until its deadline. One that panics has failed.
    pub(super) async fn run_tool(&self, call: ToolCall) -> ToolOutcome {
        let Some(tool) = self.parts.tools.get(&call.tool_name).cloned() else {
            return failed(&code::UNKNOWN_TOOL, code::UNKNOWN_TOOL.meaning, Outcome::Failed);
        };
        self.counts.add("tool_run", 1);
        let left_ms = call.deadline_ms.saturating_sub(self.parts.clock.now_ms());
        let run = AssertUnwindSafe(async move { tool.run(call).await }).catch_unwind();
        match select(Box::pin(run), self.parts.clock.sleep(left_ms)).await {
            Either::Left((Ok(outcome), _)) => outcome,
            Either::Left((Err(_), _)) => {
                failed(&code::TOOL_FAILED, code::TOOL_FAILED.meaning, Outcome::Failed)
            }
            Either::Right(_) => failed(&code::TIMED_OUT, code::TIMED_OUT.meaning, Outcome::Timeout),
        }
    }
}

/// What a tool is called with.
fn with(arguments: &Map<String, Value>, secrets: &Map<String, Value>) -> Value {
    let mut all = arguments.clone();
    all.extend(secrets.clone());
    Value::Object(all)
}

fn failed(code: &Code, message: &str, status: Outcome) -> ToolOutcome {
    ToolOutcome {
        status,
        result: Value::Null,
        error: json!({ "code": code.name, "message": message, "source": "sys.worker" }),
        after_execution: None,
    }
}
