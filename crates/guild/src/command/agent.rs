//! `guild agent`

use std::collections::BTreeMap;
use std::path::PathBuf;

use guild_kernel::{AgentId, AgentKey, AgentTurnId, ProjectId};
use guild_protocol::env::Shutdown;
use guild_roles::agents::{Agents, Task};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::hire::desk::{Desk, now_ms};
use super::turn::ears::Ears;
use super::turn::follow;
use super::{Context, up};
use crate::error::{Error, InFile as _, Result, code};
use crate::input::Input;
use crate::models;
use crate::output::Answer;
use crate::real::SystemRandom;

/// The largest profile.
const PROFILE_MAX_BYTES: usize = 256 * 1024;
/// Whose workers do what nobody else is named for.
const TARGET: &str = "worker_generic";
/// How long a node that is away for a moment is waited for.
const ASK_MS: i64 = 10_000;
/// The largest task.
const TASK_MAX_BYTES: usize = 512 * 1024;

/// Give work to an agent of your own
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Run(RunArgs),
}

/// Give an agent a task, and follow it until it is done
///
/// The agent thinks with the model that its profile names; `models.toml` in the data directory says where models are.
/// Through the running node, or as a worker of its own for as long as it takes when none runs. Every step is stored
/// before the next one: a task that is interrupted goes on where it was when a node runs again.
///
/// The profile is a TOML file:
///
///     name = "writer"
///     system_prompt = "You write short, plain English."
///     model = "local/qwen3"          # endpoint/model
///     tools = ["sandbox_run"]        # of those in docs/tools.md; leave out for all
///     must_end_with = "submit_result"
///     max_steps = 8
///     [result_fields]
///     text = "What was written"
///
/// The exit code is 0 if the agent ended well, 1 if it did not, 2 if the task is wrong, 3 if nobody knows yet.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// How the agent thinks
    #[arg(long, value_name = "FILE")]
    profile: PathBuf,
    /// What is to be done, or @FILE with it, or - for standard input
    #[arg(long, value_name = "TEXT|@FILE|-")]
    task: String,
    /// The agent [default: the name of the profile]
    #[arg(long, value_name = "AGENT")]
    agent: Option<AgentId>,
    /// The project it works in
    #[arg(long, value_name = "PROJECT", default_value = "default")]
    project: ProjectId,
    /// A name of your own for the task: repeating the command with it asks for nothing twice
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    key: Option<String>,
    /// Do not wait for the end
    #[arg(long)]
    no_wait: bool,
    /// With --json: tell what is said and done while it happens, each event on a line, before the answer
    #[arg(long)]
    events: bool,
}

/// A profile as people write it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    name: String,
    system_prompt: String,
    #[serde(default)]
    description: String,
    model: Option<String>,
    tools: Option<Vec<String>>,
    #[serde(default)]
    tags: Vec<String>,
    must_end_with: Option<Names>,
    max_steps: Option<u32>,
    worker_target: Option<String>,
    /// Whom it may ask; without it nobody.
    delegation: Option<Map<String, Value>>,
    /// What else the model is told: temperature, max_tokens, …
    #[serde(default)]
    llm: Map<String, Value>,
    #[serde(default)]
    result_fields: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize, serde::Serialize)]
#[serde(untagged)]
enum Names {
    One(String),
    Many(Vec<String>),
}

impl ProfileFile {
    fn read(path: &std::path::Path) -> Result<ProfileFile> {
        let bytes = Input::from(path.as_os_str().to_owned()).read(PROFILE_MAX_BYTES)?;
        let malformed = |words: &str| Error::new(&code::AGENT_PROFILE, words);
        let text = String::from_utf8(bytes).map_err(|_| malformed("it is not UTF-8"));
        let parsed =
            text.and_then(|text| toml::from_str(&text).map_err(|error| malformed(error.message())));
        parsed.in_file(path)
    }

    /// As the kernel keeps it.
    fn body(&self) -> Value {
        let mut llm = self.llm.clone();
        if let Some(model) = &self.model {
            llm.insert("model".to_owned(), Value::from(model.clone()));
        }
        json!({
            "description": self.description,
            "tags": self.tags,
            "system_prompt_template": self.system_prompt,
            "allowed_tools": self.tools,
            "must_end_with": self.must_end_with,
            "max_steps": self.max_steps,
            "delegation_policy": self.delegation,
            "llm_config": llm,
        })
    }
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::Run(args) => run_task(args, cx),
    }
}

fn run_task(args: &RunArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let task = task(args)?;
    let loaded = cx.config_in_peace()?;
    models::require(&loaded)?;
    let runtime = up::node_runtime()?;
    let interrupted = Shutdown::new();
    runtime.block_on(async { up::stop_on_signal(&interrupted) })?;
    let mut desk = Desk::open(&loaded, cx.environment, &runtime)?;
    // Before anything is asked, so that the first words are heard too.
    let key = AgentKey { project_id: task.project_id.clone(), agent_id: task.agent_id.clone() };
    let hears = !args.no_wait && (!cx.out.json() || args.events);
    let ears = hears.then(|| Ears::open(&loaded, &key));
    let view = follow::View { ears, events: args.events };
    let until_ms = now_ms().saturating_add(ASK_MS);
    let asked = desk.ask(until_ms, &interrupted, |client| client.ask_turn(&task));
    let told = asked.and_then(|id| match args.no_wait {
        true => asked_only(&id, cx),
        false => {
            cx.out.remark(&format!("turn {id}"));
            follow::until_over(&loaded, &id, view, &interrupted, cx.out)
        }
    });
    let closed = desk.close();
    told.and_then(|answer| closed.map(|()| answer))
}

fn task(args: &RunArgs) -> Result<Task> {
    let profile = ProfileFile::read(&args.profile)?;
    let agent_id = match &args.agent {
        Some(agent_id) => agent_id.clone(),
        None => profile.name.parse()?,
    };
    let correlation_id = match &args.key {
        Some(key) => key.clone(),
        None => Agents::correlation(&SystemRandom),
    };
    Ok(Task {
        project_id: args.project.clone(),
        agent_id,
        channel_id: "public".parse()?,
        worker_target: profile.worker_target.clone().unwrap_or_else(|| TARGET.to_owned()),
        profile_name: profile.name.clone(),
        profile: Some(profile.body()),
        instruction: instruction(&args.task)?,
        result_fields: profile.result_fields,
        correlation_id,
    })
}

/// The words themselves, or those of a file.
fn instruction(text: &str) -> Result<String> {
    let file = match text.strip_prefix('@') {
        Some(path) => Some(std::ffi::OsString::from(path)),
        None => (text == "-").then(|| std::ffi::OsString::from("-")),
    };
    let Some(file) = file else { return Ok(text.to_owned()) };
    let input = Input::from(file);
    let bytes = input.read(TASK_MAX_BYTES)?;
    String::from_utf8(bytes).map_err(|_| Error::new(&code::USAGE, "the task is not UTF-8"))
}

fn asked_only(id: &AgentTurnId, cx: &mut Context<'_>) -> Result<Answer> {
    if cx.out.json() {
        cx.out.object(true, json!({ "agent_turn_id": id }))?;
    } else {
        cx.out.line(id.as_str())?;
        cx.out.remark(&format!("`guild turn watch {id}` follows it"));
    }
    Ok(Answer::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_what_the_kernel_keeps() {
        let text = r#"
            name = "writer"
            system_prompt = "Write."
            model = "local/m"
            tools = ["a"]
            must_end_with = "submit_result"
            max_steps = 3
            [llm]
            temperature = 0.5
        "#;
        let profile: ProfileFile = toml::from_str(text).unwrap();
        let body = profile.body();
        assert_eq!(body["llm_config"], json!({ "model": "local/m", "temperature": 0.5 }));
        assert_eq!(body["allowed_tools"], json!(["a"]));
        assert_eq!(body["must_end_with"], "submit_result");
        assert_eq!(body["max_steps"], 3);
        assert!(toml::from_str::<ProfileFile>("name = 1").is_err());
        assert!(toml::from_str::<ProfileFile>("name=\"a\"\nsystem_prompt=\"\"\nbad=1").is_err());
    }
}
