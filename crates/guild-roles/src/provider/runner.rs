//! Who runs commands, and several workers as one.

use std::sync::Arc;

use guild_market::code::{OUTPUT_TOO_LARGE, SCHEMA_NOT_SERVED};
use guild_market::job::Refusal;
use guild_market::sandbox_run::{self, MODEL_ID, Plan};
use guild_protocol::env::BoxFuture;
use guild_protocol::schema::{Job, SchemaId};
use serde_json::Value;

use super::worker::{Task, Worker};
use crate::workshop::Workshop;

/// Does `oa.sandbox_run.v1` in sandboxes of this host.
#[derive(Clone)]
pub struct CommandRunner(pub Workshop);

impl Worker for CommandRunner {
    fn schema_ids(&self) -> Vec<SchemaId> {
        sandbox_run::SCHEMA_ID.parse().into_iter().collect()
    }

    fn models(&self) -> Vec<String> {
        vec![MODEL_ID.to_owned()]
    }

    fn check(&self, job: &Job, max_output_bytes: usize) -> Result<(), Refusal> {
        let bytes = sandbox_run::frame_bytes(job);
        if bytes > max_output_bytes {
            let words = format!("a result of {bytes} bytes does not fit into {max_output_bytes}");
            return Err(Refusal::new(&OUTPUT_TOO_LARGE, words));
        }
        Plan::of(job, &self.0.bounds).map(|_| ())
    }

    fn work(&self, task: Task) -> BoxFuture<Result<Value, Refusal>> {
        let Workshop { bounds, run } = self.0.clone();
        Box::pin(async move {
            let plan = Plan::of(&task.job, &bounds)?;
            let ran = run(plan.clone()).await?;
            Ok(sandbox_run::output(&task.job, &plan, &ran, &task.provider))
        })
    }
}

/// Several workers as one: each does what it can.
#[derive(Clone)]
pub struct Together(pub Vec<Arc<dyn Worker>>);

impl Together {
    fn of(&self, schema_id: &SchemaId) -> Result<&Arc<dyn Worker>, Refusal> {
        let found = self.0.iter().find(|worker| worker.schema_ids().contains(schema_id));
        let nobody = || format!("{schema_id} is not served here");
        found.ok_or_else(|| Refusal::new(&SCHEMA_NOT_SERVED, nobody()))
    }
}

impl Worker for Together {
    fn schema_ids(&self) -> Vec<SchemaId> {
        self.0.iter().flat_map(|worker| worker.schema_ids()).collect()
    }

    fn models(&self) -> Vec<String> {
        self.0.iter().flat_map(|worker| worker.models()).collect()
    }

    fn check(&self, job: &Job, max_output_bytes: usize) -> Result<(), Refusal> {
        self.of(job.schema_id())?.check(job, max_output_bytes)
    }

    fn work(&self, task: Task) -> BoxFuture<Result<Value, Refusal>> {
        match self.of(task.job.schema_id()) {
            Ok(worker) => worker.work(task),
            Err(refusal) => Box::pin(std::future::ready(Err(refusal))),
        }
    }
}
