//! Who does benchmarks: a program of the operator, or what is built in for trying things out.

use std::collections::BTreeMap;

use guild_market::benchmark::{self, SCHEMA_ID};
use guild_market::job::Refusal;
use guild_market::sandbox_run::{Command, Plan, Status};
use guild_protocol::env::BoxFuture;
use guild_protocol::json;
use guild_protocol::schema::{Job, SchemaId};
use guild_sandbox::{File, Image, Limits};
use serde_json::{Value, json};

use super::worker::{Task, Worker};
use crate::error::code;
use crate::workshop::Workshop;

/// Where a solver and its task are.
const PLACE: &str = "/workspace";
/// How long a solver may take.
const WALL_MS: u64 = 120_000;
/// A solver prints at most so much: what is behind it is not kept.
const PRINTED_MAX_BYTES: usize = 16 * 1_024;

/// Does `guild.benchmark.v1`.
#[derive(Clone)]
pub enum Solver {
    /// By the answer that is built in, which is right: it shows how a provider is met, and nothing of what it can do.
    Reference,
    /// By a program of the operator: it reads the task as JSON from its input and prints the answer. It runs in a
    /// sandbox, because a stranger writes what it reads.
    Program {
        /// Where it runs.
        workshop: Workshop,
        /// The program, a file that can be executed.
        bytes: Vec<u8>,
    },
}

impl Solver {
    fn plan(&self, bytes: &[u8], payload: &Value, limits: &Limits) -> Result<Plan, Refusal> {
        let text = json::to_canonical(payload)
            .map_err(|error| Refusal::new(error.code(), error.to_string()))?;
        let file = |name: &str, executable, bytes| File {
            at: format!("{PLACE}/{name}"),
            executable,
            bytes,
        };
        let variables =
            [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/tmp"), ("LANG", "C.UTF-8")];
        let env: BTreeMap<String, String> = variables
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Ok(Plan {
            image_digest: String::new(),
            image: Image::Host,
            limits: Limits { wall_ms: limits.wall_ms.min(WALL_MS), ..*limits },
            env,
            mount: PLACE.to_owned(),
            files: vec![file("solver", true, bytes.to_vec()), file("task.json", false, text)],
            commands: vec![Command {
                cmd: "./solver < task.json".to_owned(),
                cwd: PLACE.to_owned(),
                continue_on_fail: false,
            }],
        })
    }
}

fn failed(why: &str) -> Refusal {
    Refusal::new(&code::WORK_FAILED, why)
}

/// The files of an answer, from what a solver printed.
fn files(printed: &[u8]) -> Result<Value, Refusal> {
    if printed.len() >= PRINTED_MAX_BYTES {
        return Err(failed("the solver printed more than can be taken"));
    }
    let text = std::str::from_utf8(printed).map_err(|_| failed("the solver printed no text"))?;
    let answer = benchmark::read_answer(text)
        .map_err(|error| Refusal::new(error.code(), error.to_string()))?;
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    Ok(answer
        .files()
        .iter()
        .map(|(path, bytes)| (path.clone(), Value::from(text(bytes))))
        .collect())
}

impl Worker for Solver {
    fn schema_ids(&self) -> Vec<SchemaId> {
        SCHEMA_ID.parse().into_iter().collect()
    }

    fn models(&self) -> Vec<String> {
        match self {
            Solver::Reference => vec!["guild-reference".to_owned()],
            Solver::Program { .. } => Vec::new(),
        }
    }

    fn check(&self, job: &Job, _max_output_bytes: usize) -> Result<(), Refusal> {
        let asked = job.payload()["functions"].as_array().is_some_and(|asked| !asked.is_empty());
        if asked {
            return Ok(());
        }
        let why = "the task does not say which functions are wanted";
        Err(Refusal::new(&guild_market::code::BENCHMARK_UNKNOWN, why))
    }

    fn work(&self, task: Task) -> BoxFuture<Result<Value, Refusal>> {
        let this = self.clone();
        Box::pin(async move {
            let payload = task.job.payload();
            let (files, model) = match &this {
                Solver::Reference => {
                    let answer = benchmark::reference(payload)
                        .map_err(|error| Refusal::new(error.code(), error.to_string()))?;
                    (answer["files"].clone(), "guild-reference")
                }
                Solver::Program { workshop, bytes } => {
                    let plan = this.plan(bytes, payload, &workshop.bounds.limits)?;
                    let ran = (workshop.run)(plan).await?;
                    let printed = ran.runs.first().map(|run| run.stdout.head.clone());
                    match ran.status {
                        Status::Success => (files(&printed.unwrap_or_default())?, "solver"),
                        _ => return Err(failed("the solver failed")),
                    }
                }
            };
            Ok(json!({
                "files": files,
                "provenance": {
                    "model": model, "provider_id": task.provider.npub(), "input_sha256": task.job.job_hash(),
                },
            }))
        })
    }
}

#[cfg(test)]
mod tests {
    use guild_protocol::env::Signer;
    use guild_protocol::identity::SecretKey;
    use guild_protocol::schema::Registry;

    use super::*;

    #[test]
    fn the_answer_that_is_built_in_fits_its_schema() {
        let benchmark = benchmark::Benchmark::StdV3;
        let task = benchmark.task(&[3; 32], &benchmark.modules()).unwrap();
        let registry = Registry::builtin();
        let id: SchemaId = SCHEMA_ID.parse().unwrap();
        let job = registry.validate_input(&id, task.spec()).unwrap();
        Solver::Reference.check(&job, usize::MAX).unwrap();
        let provider = SecretKey::from_bytes([2; 32]).unwrap().public_key();
        let done = Solver::Reference.work(Task { job, provider });
        let output = futures_util::FutureExt::now_or_never(done).unwrap().unwrap();
        registry.validate_output(&id, &output).unwrap();
        let empty = registry.validate_input(&id, &json!({"benchmark_id": "std-v3"})).unwrap();
        let refusal = Solver::Reference.check(&empty, usize::MAX).unwrap_err();
        assert_eq!(refusal.code.name, "benchmark.unknown");
    }

    #[test]
    fn what_a_solver_prints_is_read_as_an_answer() {
        assert_eq!(files(b"x = 1\n").unwrap(), json!({"solution.py": "x = 1\n"}));
        for bad in [&b""[..], b"{}", b"\xff", &[b'x'; PRINTED_MAX_BYTES]] {
            assert!(files(bad).is_err());
        }
    }
}
