//! A command line in a sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;

use guild_kernel::ProjectId;
use guild_kernel::inbox::Outcome;
use guild_kernel::roster::Tool as Row;
use guild_kernel::tool::{Effect, Tool, ToolCall, ToolOutcome};
use guild_market::job::Refusal;
use guild_market::sandbox_run::{self, Bounds, Plan, Printed, Ran, Status, pack};
use guild_protocol::env::BoxFuture;
use guild_protocol::error::Code;
use guild_protocol::hash::{Hash, from_hex};
use guild_protocol::schema::Registry;
use guild_sandbox::Image;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{NodeTool, arguments, failure, refusal, row, success};
use crate::error::code;
use crate::workshop::Workshop;
use crate::{Error, Result};

/// A sandbox is made and taken away in this time, and others may have to be waited for, beside the time of the command.
const EXTRA_S: u32 = 60;
/// What a command has if it does not say how long it needs.
const USUAL_S: u32 = 60;
const MIB: u64 = 1 << 20;
/// What it has of memory and disk, if the node gives as much.
const MEMORY_MB: u64 = 512;
const DISK_MB: u64 = 100;

pub(super) fn row_of(project_id: &ProjectId, run_max_s: u32) -> Row {
    let words = format!(
        "Run a command line with /bin/sh in a new sandbox that reaches no network, on the files that are handed over, \
         in /workspace. The answer has its exit code, the beginning of what it printed, and the files that it made. \
         Nothing of the sandbox is left afterwards. A command may run for {run_max_s} s at most."
    );
    let file = json!({
        "anyOf": [
            { "type": "string", "description": "The text of the file." },
            {
                "type": "object",
                "properties": {
                    "text": { "type": "string" },
                    "hex": { "type": "string", "description": "The bytes, if they are no text." },
                    "executable": { "type": "boolean" },
                },
                "additionalProperties": false,
            },
        ],
    });
    let parameters = json!({
        "type": "object",
        "properties": {
            "command": { "type": "string", "minLength": 1, "description": "For /bin/sh -c." },
            "files": {
                "type": "object",
                "additionalProperties": file,
                "description": "Files by their paths below /workspace, each of 32 KiB at most.",
            },
            "timeout_s": {
                "type": "integer",
                "minimum": 1,
                "maximum": run_max_s,
                "description": format!("Seconds that it may run: {}.", USUAL_S.min(run_max_s)),
            },
        },
        "required": ["command"],
        "additionalProperties": false,
    });
    let wait_s = run_max_s.saturating_add(EXTRA_S);
    row(project_id, NodeTool::SandboxRun, words, parameters, wait_s)
}

/// Runs commands where the node runs those of its market: with the same bounds, and nowhere else.
pub(super) struct SandboxRun {
    pub(super) workshop: Result<Workshop, String>,
    pub(super) registry: Arc<Registry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    command: String,
    #[serde(default)]
    files: BTreeMap<String, File>,
    timeout_s: Option<u32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum File {
    Text(String),
    Told(Told),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    text: Option<String>,
    hex: Option<String>,
    #[serde(default)]
    executable: bool,
}

impl Tool for SandboxRun {
    /// A command can take minutes, so its turn waits in the database. If the worker is lost with it, it is run again:
    /// a sandbox reaches nobody and leaves nothing.
    fn effect(&self) -> Effect {
        Effect::Once
    }

    fn run(&self, call: ToolCall) -> BoxFuture<ToolOutcome> {
        let (workshop, registry) = (self.workshop.clone(), self.registry.clone());
        Box::pin(async move {
            let ran = match workshop {
                Ok(workshop) => run(&workshop, &registry, call.arguments).await,
                Err(why) => Err(Error::refused(&code::TOOL_NO_SANDBOX, why)),
            };
            ran.map_or_else(|error| refusal(&error), |ran| told(&ran))
        })
    }
}

async fn run(workshop: &Workshop, registry: &Registry, asked: Value) -> Result<Ran> {
    let plan = plan(arguments(asked)?, &workshop.bounds, registry)?;
    (workshop.run)(plan).await.map_err(refused)
}

fn refused(refusal: Refusal) -> Error {
    Error::refused(refusal.code, refusal.words)
}

/// What is run, as a job of the market would be: the same checks, the same limits.
fn plan(wish: Wish, bounds: &Bounds, registry: &Registry) -> Result<Plan> {
    let host = bounds.images.iter().find(|(_, image)| **image == Image::Host);
    let Some((image_digest, _)) = host.or(bounds.images.iter().next()) else {
        let message = "there is no image that a sandbox could be made of";
        return Err(Error::refused(&code::TOOL_NO_SANDBOX, message));
    };
    let malformed = |words: &str| Error::refused(&code::TOOL_ARGUMENTS, words);
    let files: Vec<_> = wish
        .files
        .into_iter()
        .map(|(path, file)| bytes_of(file).map(|(executable, bytes)| (path, executable, bytes)))
        .collect::<Option<_>>()
        .ok_or_else(|| malformed("a file is a text, or {\"text\" or \"hex\", \"executable\"}"))?;
    let (source, env) =
        pack(files).ok_or_else(|| malformed("the files are too large or too many"))?;
    let most_s = u32::try_from(bounds.limits.wall_ms / 1_000).unwrap_or(u32::MAX);
    let input = json!({
        "sandbox": {
            "image_digest": image_digest,
            "resources": {
                "memory_mb": MEMORY_MB.min(bounds.limits.memory_hard_bytes / MIB),
                "disk_mb": DISK_MB.min(bounds.limits.disk_bytes / MIB),
                "timeout_secs": wish.timeout_s.unwrap_or(USUAL_S.min(most_s)),
                "cpus": 1,
            },
        },
        "repo": { "source": source },
        "env": env,
        "commands": [{ "cmd": wish.command }],
    });
    let job = registry.validate_input(&sandbox_run::SCHEMA_ID.parse()?, &input)?;
    Plan::of(&job, bounds).map_err(refused)
}

fn bytes_of(file: File) -> Option<(bool, Vec<u8>)> {
    match file {
        File::Text(text) => Some((false, text.into_bytes())),
        File::Told(Told { text: Some(text), hex: None, executable }) => {
            Some((executable, text.into_bytes()))
        }
        File::Told(Told { text: None, hex: Some(hex), executable }) => {
            Some((executable, from_hex(&hex)?))
        }
        File::Told(_) => None,
    }
}

/// What came out. A command that fails has been run: the model reads its exit code.
fn told(ran: &Ran) -> ToolOutcome {
    let run = ran.runs.first();
    let printed = |stream: Option<&Printed>| match stream {
        Some(Printed { sha256, head }) => {
            let text = String::from_utf8_lossy(head).into_owned();
            json!({ "text": text, "is_cut": Hash::of(head) != *sha256 })
        }
        None => json!({ "text": "", "is_cut": false }),
    };
    let files: Vec<Value> = ran
        .artifacts
        .iter()
        .map(|file| json!({ "path": file.path, "sha256": file.sha256, "bytes": file.size_bytes }))
        .collect();
    let result = json!({
        "status": ran.status.as_str(),
        "exit_code": run.map(|run| run.exit_code),
        "stdout": printed(run.map(|run| &run.stdout)),
        "stderr": printed(run.map(|run| &run.stderr)),
        "files": files,
    });
    let words = |usual: &str| ran.error.clone().unwrap_or_else(|| usual.to_owned());
    let limit: &Code = &code::TOOL_LIMIT;
    match ran.status {
        Status::Success | Status::Failed => success(result),
        Status::Timeout => {
            failure(Outcome::Timeout, limit, &words("the command took too long"), result)
        }
        Status::Error => failure(Outcome::Failed, limit, &words("the command was ended"), result),
    }
}

#[cfg(test)]
mod tests {
    use guild_market::sandbox_run::{Artifact, CommandRun};
    use guild_sandbox::Limits;

    use super::*;

    fn bounds() -> Bounds {
        let images = [(format!("sha256:{}", "a".repeat(64)), Image::Host)];
        Bounds { limits: Limits::job(), images: images.into() }
    }

    fn planned(asked: Value) -> Result<Plan> {
        plan(arguments(asked)?, &bounds(), &Registry::builtin())
    }

    #[test]
    fn a_call_is_planned_as_a_job_of_the_market_is() {
        let plan = planned(json!({
            "command": "sh run.sh",
            "files": {
                "run.sh": "echo hi",
                "bin/tool": { "hex": "7f45", "executable": true },
            },
            "timeout_s": 5,
        }))
        .unwrap();
        assert_eq!(plan.commands[0].cmd, "sh run.sh");
        let files: Vec<_> =
            plan.files.iter().map(|file| (file.at.as_str(), file.executable)).collect();
        assert_eq!(files, [("/workspace/bin/tool", true), ("/workspace/run.sh", false)]);
        assert_eq!((plan.limits.wall_ms, plan.env.get("TREE")), (5_000, None));
    }

    #[test]
    fn what_cannot_be_run_is_refused_with_a_code() {
        let code_of = |asked: Value| planned(asked).unwrap_err().code().name;
        let long = "x".repeat(40_000);
        for (asked, name) in [
            (json!({}), "tool.arguments_malformed"),
            (json!([]), "tool.arguments_malformed"),
            (json!({ "command": "a", "shell": true }), "tool.arguments_malformed"),
            (json!({ "command": "a", "files": { "x": {} } }), "tool.arguments_malformed"),
            (
                json!({ "command": "a", "files": { "x": { "hex": "7" } } }),
                "tool.arguments_malformed",
            ),
            (json!({ "command": "a", "files": { "x": long } }), "tool.arguments_malformed"),
            (json!({ "command": "a", "files": { "../x": "" } }), "market.run_malformed"),
            (json!({ "command": "a\u{0}" }), "market.run_malformed"),
            (json!({ "command": "a", "timeout_s": 4_000_000 }), "market.limits_exceeded"),
        ] {
            assert_eq!(code_of(asked.clone()), name, "{asked}");
        }
        let none = Bounds { images: [].into(), ..bounds() };
        let wish = arguments(json!({ "command": "true" })).unwrap();
        let refused = plan(wish, &none, &Registry::builtin()).unwrap_err();
        assert_eq!(refused.code(), &code::TOOL_NO_SANDBOX);
    }

    #[test]
    fn what_was_printed_says_whether_it_is_all() {
        let head = b"beginning".to_vec();
        let whole = Printed { sha256: Hash::of(&head), head: head.clone() };
        let part = Printed { sha256: Hash::of(b"beginning and end"), head };
        let run = CommandRun {
            cmd: "x".to_owned(),
            exit_code: 3,
            duration_ms: 1,
            stdout: whole,
            stderr: part,
        };
        let file =
            Artifact { path: "/workspace/a".to_owned(), sha256: Hash::of(b""), size_bytes: 0 };
        let ran =
            Ran { runs: vec![run], artifacts: vec![file], status: Status::Failed, error: None };
        let outcome = told(&ran);
        assert_eq!(outcome.status, Outcome::Success, "it was run");
        assert_eq!(outcome.result["exit_code"], 3);
        assert_eq!(outcome.result["stdout"], json!({ "text": "beginning", "is_cut": false }));
        assert_eq!(outcome.result["stderr"]["is_cut"], true);
        assert_eq!(outcome.result["files"][0]["path"], "/workspace/a");
        let late =
            Ran { runs: Vec::new(), artifacts: Vec::new(), status: Status::Timeout, error: None };
        let outcome = told(&late);
        assert_eq!(
            (outcome.status, &outcome.error["code"]),
            (Outcome::Timeout, &"tool.limit_reached".into())
        );
        assert_eq!(outcome.result["exit_code"], Value::Null);
    }
}
