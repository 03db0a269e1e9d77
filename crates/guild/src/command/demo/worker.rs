//! Providers as they are in real life: one works slowly, one cheats.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use guild_market::benchmark;
use guild_market::job::Refusal;
use guild_market::sandbox_run::{self, Artifact, Bounds, CommandRun, Plan, Printed, Ran, Status};
use guild_protocol::env::{BoxFuture, Clock};
use guild_protocol::hash::Hash;
use guild_protocol::schema::SchemaId;
use guild_roles::provider::{CommandRunner, Embedder, Solver, Task, Together, Worker};
use guild_roles::workshop::Workshop;
use serde_json::{Value, json};

use crate::real::SystemClock;

/// Does good work of every kind that this host can do.
pub(super) fn honest(workshop: Option<&Workshop>) -> Together {
    let mut workers: Vec<Arc<dyn Worker>> = vec![Arc::new(Embedder)];
    if let Some(workshop) = workshop {
        workers.push(Arc::new(CommandRunner(workshop.clone())));
        workers.push(Arc::new(Solver::Reference));
    }
    Together(workers)
}

/// Does good work, after a while.
pub(super) struct Slow {
    pub(super) pause_ms: i64,
    /// The same for a benchmark. It is as slow as it must be beside the others, however slow this host is.
    pub(super) trial_pause_ms: Arc<AtomicI64>,
    /// Whether it does benchmarks.
    pub(super) benchmarks: bool,
}

impl Worker for Slow {
    fn schema_ids(&self) -> Vec<SchemaId> {
        let solved = if self.benchmarks { Solver::Reference.schema_ids() } else { Vec::new() };
        Embedder.schema_ids().into_iter().chain(solved).collect()
    }

    fn models(&self) -> Vec<String> {
        Embedder.models()
    }

    fn work(&self, task: Task) -> BoxFuture<Result<Value, Refusal>> {
        let is_trial = task.job.schema_id().as_str() == benchmark::SCHEMA_ID;
        let trial_pause_ms = self.trial_pause_ms.load(Ordering::Relaxed);
        let pause = SystemClock.sleep(if is_trial { trial_pause_ms } else { self.pause_ms });
        Box::pin(async move {
            pause.await;
            if is_trial { Solver::Reference.work(task).await } else { Embedder.work(task).await }
        })
    }
}

/// Sells vectors of the right form that belong to no text, says of tests that it never ran that they pass, and of
/// programs that do nothing that they solve a task.
pub(super) struct Cheat {
    /// What commands could use, if it ran them.
    pub(super) bounds: Option<Bounds>,
}

impl Worker for Cheat {
    fn schema_ids(&self) -> Vec<SchemaId> {
        let runs = self.bounds.as_ref().and_then(|_| sandbox_run::SCHEMA_ID.parse().ok());
        let solved = self.bounds.as_ref().map(|_| Solver::Reference.schema_ids());
        Embedder.schema_ids().into_iter().chain(runs).chain(solved.into_iter().flatten()).collect()
    }

    fn models(&self) -> Vec<String> {
        Embedder.models()
    }

    fn work(&self, task: Task) -> BoxFuture<Result<Value, Refusal>> {
        if task.job.schema_id().as_str() == sandbox_run::SCHEMA_ID {
            let forged = self.bounds.as_ref().map_or_else(
                || Err(Refusal::new(&guild_market::code::SCHEMA_NOT_SERVED, "there is no sandbox")),
                |bounds| forge(&task, bounds),
            );
            return Box::pin(std::future::ready(forged));
        }
        if task.job.schema_id().as_str() == benchmark::SCHEMA_ID {
            return Box::pin(async move {
                let empty = do_nothing(task.job.payload());
                let mut output = Solver::Reference.work(task).await?;
                output["files"] = json!({ benchmark::ENTRY: empty });
                Ok(output)
            });
        }
        Box::pin(async move {
            let mut output = Embedder.work(task).await?;
            let vectors = output.get_mut("embeddings").and_then(Value::as_array_mut);
            for vector in vectors.into_iter().flatten().filter_map(Value::as_array_mut) {
                vector.reverse();
            }
            Ok(output)
        })
    }
}

/// Every function that is asked for, and nothing in it.
fn do_nothing(task: &Value) -> String {
    let asked = task["functions"].as_array().into_iter().flatten();
    let names = asked.filter_map(|function| function["name"].as_str());
    names.map(|name| format!("def {name}(*given):\n    return 0\n\n\n")).collect()
}

/// All green, and a report that nobody wrote.
fn forge(task: &Task, bounds: &Bounds) -> Result<Value, Refusal> {
    let plan = Plan::of(&task.job, bounds)?;
    let printed = |text: &str| Printed { sha256: Hash::of(text.as_bytes()), head: text.into() };
    let run = |cmd: &sandbox_run::Command| CommandRun {
        cmd: cmd.cmd.clone(),
        exit_code: 0,
        duration_ms: 7,
        stdout: printed("all tests pass\n"),
        stderr: printed(""),
    };
    let report = Artifact {
        path: format!("{}/report.txt", plan.mount),
        sha256: Hash::of(b"all tests pass\n"),
        size_bytes: 15,
    };
    let ran = Ran {
        runs: plan.commands.iter().map(run).collect(),
        artifacts: vec![report],
        status: Status::Success,
        error: None,
    };
    Ok(sandbox_run::output(&task.job, &plan, &ran, &task.provider))
}
