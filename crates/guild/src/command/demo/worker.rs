//! Providers as they are in real life: one works slowly, one cheats.

use std::sync::Arc;

use guild_market::job::Refusal;
use guild_market::sandbox_run::{self, Artifact, Bounds, CommandRun, Plan, Printed, Ran, Status};
use guild_protocol::env::{BoxFuture, Clock};
use guild_protocol::hash::Hash;
use guild_protocol::schema::SchemaId;
use guild_roles::provider::{CommandRunner, Embedder, Task, Together, Worker};
use guild_roles::workshop::Workshop;
use serde_json::Value;

use crate::real::SystemClock;

/// Does good work of every kind that this host can do.
pub(super) fn honest(workshop: Option<&Workshop>) -> Together {
    let mut workers: Vec<Arc<dyn Worker>> = vec![Arc::new(Embedder)];
    if let Some(workshop) = workshop {
        workers.push(Arc::new(CommandRunner(workshop.clone())));
    }
    Together(workers)
}

/// Does good work, after a while.
pub(super) struct Slow {
    pub(super) pause_ms: i64,
}

impl Worker for Slow {
    fn schema_ids(&self) -> Vec<SchemaId> {
        Embedder.schema_ids()
    }

    fn models(&self) -> Vec<String> {
        Embedder.models()
    }

    fn work(&self, task: Task) -> BoxFuture<Result<Value, Refusal>> {
        let pause = SystemClock.sleep(self.pause_ms);
        Box::pin(async move {
            pause.await;
            Embedder.work(task).await
        })
    }
}

/// Sells vectors of the right form that belong to no text, and says of tests that it never ran that they pass.
pub(super) struct Cheat {
    /// What commands could use, if it ran them.
    pub(super) bounds: Option<Bounds>,
}

impl Worker for Cheat {
    fn schema_ids(&self) -> Vec<SchemaId> {
        let runs = self.bounds.as_ref().and_then(|_| sandbox_run::SCHEMA_ID.parse().ok());
        Embedder.schema_ids().into_iter().chain(runs).collect()
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
