//! Who works in a project, how they think, and what they may call.

use std::sync::LazyLock;

use guild_bus::subject::{Subject, Token, WorkerTarget};
use guild_protocol::env::UnixMs;
use guild_store::{Columns, Decode, Rx, Tx, Val, args};
use serde_json::Value;

use crate::row::{Cells, Field, Int, Statement, Text, check_text, page, to_json, words};
use crate::{AgentId, AgentKey, Error, ProjectId, Result, code};

/// The largest profile, tool or metadata.
pub const BODY_MAX_BYTES: usize = 256 * 1024;
const NAME_MAX_BYTES: usize = 256;
const WORDS_MAX_BYTES: usize = 4 * 1024;

words! {
    /// Whether an agent takes work.
    pub AgentStatus {
        /// It does.
        Active = "active",
        /// It does no longer.
        Retired = "retired",
    }
}

words! {
    /// What a result does to the turn that waited for it.
    pub AfterExecution {
        /// The turn goes on with it.
        Suspend = "suspend",
        /// The turn ends with it.
        Terminate = "terminate",
    }
}

/// An agent of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Which one.
    pub key: AgentKey,
    /// How it thinks, unless a turn says otherwise.
    pub profile_name: String,
    /// Whose workers do its work.
    pub worker_target: String,
    /// What it is found by.
    pub tags: Vec<String>,
    /// What people call it.
    pub display_name: String,
    /// The agent that it belongs to.
    pub owner_agent_id: Option<AgentId>,
    /// Whether it takes work.
    pub status: AgentStatus,
}

const AGENT: [Field; 10] = [
    ("project_id", Text),
    ("agent_id", Text),
    ("profile_name", Text),
    ("worker_target", Text),
    ("tags", Text),
    ("display_name", Text),
    ("owner_agent_id", Text),
    ("status", Text),
    ("metadata", Text),
    ("created_ms", Int),
];

static AGENTS: LazyLock<Statement> = LazyLock::new(|| {
    Statement::select("project_agents", &AGENT, &[("project_id", Text), ("agent_id", Text)], "")
});
static PROFILES: LazyLock<Statement> = LazyLock::new(|| {
    let keys = [("project_id", Text), ("name", Text)];
    Statement::select("profiles", &keys, &keys, "")
});

/// What turns ask of these tables again and again.
#[cfg(test)]
pub(crate) fn statements() -> [&'static LazyLock<Statement>; 2] {
    [&AGENTS, &PROFILES]
}

impl Decode for Agent {
    fn decode(row: &dyn Columns) -> guild_store::Result<Agent> {
        let mut cells = Cells::of(row);
        Ok(Agent {
            key: AgentKey { project_id: cells.parsed()?, agent_id: cells.parsed()? },
            profile_name: cells.next()?,
            worker_target: cells.next()?,
            tags: serde_json::from_str(&cells.next::<String>()?).map_err(crate::row::unreadable)?,
            display_name: cells.next()?,
            owner_agent_id: cells.maybe()?,
            status: cells.parsed()?,
        })
    }
}

/// Adds an agent, idle. The same again changes nothing; what an agent is cannot be changed.
pub fn put_agent(tx: &mut Tx<'_>, new: &Agent, metadata: &Value, now_ms: UnixMs) -> Result<()> {
    check_text("profile_name", &new.profile_name, NAME_MAX_BYTES)?;
    check_text("display_name", &new.display_name, NAME_MAX_BYTES)?;
    WorkerTarget::parse(&new.worker_target)?;
    let key = &new.key;
    let (project_id, agent_id) = (key.project_id.as_str(), key.agent_id.as_str());
    if let Some(there) = find_agents(tx, &[key])?.into_iter().next() {
        if there == (Agent { status: there.status, ..new.clone() }) {
            return Ok(());
        }
        let message = format!("{key} is there already, and is another one");
        return Err(Error::refused(&code::CONFLICT, message));
    }
    let tags = to_json("tags", &new.tags, WORDS_MAX_BYTES)?;
    let metadata = to_json("metadata", metadata, BODY_MAX_BYTES)?;
    let owner = new.owner_agent_id.as_ref().map(AgentId::as_str);
    tx.exec(
        "INSERT INTO project_agents (project_id, agent_id, profile_name, worker_target, tags,
           display_name, owner_agent_id, status, metadata, created_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        args![
            project_id,
            agent_id,
            &new.profile_name,
            &new.worker_target,
            &tags,
            &new.display_name,
            owner,
            new.status.as_str(),
            &metadata,
            now_ms
        ],
    )?;
    tx.exec(
        "INSERT INTO agent_state_head (project_id, agent_id, status, worker_target, turn_epoch,
           steps_taken, lost_leases, waiting_tool_count, updated_ms)
         VALUES ($1, $2, 'idle', $3, 0, 0, 0, 0, $4)",
        args![project_id, agent_id, &new.worker_target, now_ms],
    )?;
    Ok(())
}

/// Lets an agent take no more work. A turn that it has begun goes on; what is queued is closed when it would begin.
pub fn retire(tx: &mut Tx<'_>, key: &AgentKey) -> Result<()> {
    let changed = tx.exec(
        "UPDATE project_agents SET status = 'retired' WHERE project_id = $1 AND agent_id = $2",
        args![key.project_id.as_str(), key.agent_id.as_str()],
    )?;
    if changed == 1 {
        return Ok(());
    }
    Err(Error::refused(&code::UNKNOWN_AGENT, format!("there is no agent {key}")))
}

/// The agents with these names, as far as they are there, in any order.
pub(crate) fn find_agents(rx: &mut Rx<'_>, keys: &[&AgentKey]) -> Result<Vec<Agent>> {
    let keys: Vec<Vec<Val<'_>>> = keys
        .iter()
        .map(|key| vec![key.project_id.as_str().into(), key.agent_id.as_str().into()])
        .collect();
    AGENTS.read(rx, &keys)
}

/// The agent with this name.
pub fn agent(rx: &mut Rx<'_>, key: &AgentKey) -> Result<Option<Agent>> {
    Ok(find_agents(rx, &[key])?.into_iter().next())
}

/// How agents think.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Whose it is.
    pub project_id: ProjectId,
    /// Its name.
    pub name: String,
    /// Whose workers can think like this.
    pub worker_target: String,
    /// The prompt, what may be called, the model, the budget.
    pub body: Value,
}

/// Stores a profile, in place of one with the same name.
pub fn put_profile(tx: &mut Tx<'_>, profile: &Profile, now_ms: UnixMs) -> Result<()> {
    check_text("name", &profile.name, NAME_MAX_BYTES)?;
    WorkerTarget::parse(&profile.worker_target)?;
    let body = to_json("body", &profile.body, BODY_MAX_BYTES)?;
    let (project_id, name) = (profile.project_id.as_str(), &profile.name);
    tx.exec(
        "INSERT INTO profiles (project_id, name, worker_target, body, updated_ms)
         VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (project_id, name) DO UPDATE SET worker_target = excluded.worker_target,
           body = excluded.body, updated_ms = excluded.updated_ms",
        args![project_id, name, &profile.worker_target, &body, now_ms],
    )?;
    Ok(())
}

/// The profile with this name.
pub fn profile(rx: &mut Rx<'_>, project_id: &ProjectId, name: &str) -> Result<Option<Profile>> {
    let found: Option<(String, String)> = rx.first(
        "SELECT worker_target, body FROM profiles WHERE project_id = $1 AND name = $2",
        args![project_id.as_str(), name],
    )?;
    let profile = |(worker_target, body): (String, String)| {
        let body = serde_json::from_str(&body).map_err(crate::row::unreadable)?;
        Ok(Profile { project_id: project_id.clone(), name: name.to_owned(), worker_target, body })
    };
    found.map(profile).transpose()
}

/// Those of these profiles that are there, as project and name.
pub(crate) fn known_profiles(
    rx: &mut Rx<'_>,
    asked: &[(&ProjectId, &str)],
) -> Result<Vec<(String, String)>> {
    let keys: Vec<Vec<Val<'_>>> = asked
        .iter()
        .map(|(project_id, name)| vec![project_id.as_str().into(), (*name).into()])
        .collect();
    PROFILES.read(rx, &keys)
}

/// What agents may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Whose it is.
    pub project_id: ProjectId,
    /// Its name, as models call it.
    pub tool_name: String,
    /// What it is good for.
    pub description: String,
    /// A JSON Schema.
    pub parameters: Value,
    /// Where calls go; without one the worker runs it.
    pub target_subject: Option<String>,
    /// What its result does to the turn.
    pub after_execution: AfterExecution,
    /// Defaults, fixed arguments, arguments from the environment, how long a turn waits.
    pub options: Value,
}

/// Whether calls may be sent there: `cmd.tool.…` or `cmd.sys.pmo.internal.…`, nothing else.
pub(crate) fn check_subject(text: &str) -> Result<()> {
    let internal = |rest: &str| rest.starts_with("pmo.internal.");
    match Subject::parse(text)? {
        Subject::Tool(_) => Ok(()),
        Subject::System(rest) if internal(rest.as_str()) => Ok(()),
        _ => {
            let start: String = text.chars().take(80).collect();
            let message = format!("{start:?} is no subject that tools are called at");
            Err(Error::refused(&code::MALFORMED, message))
        }
    }
}

/// Stores a tool, in place of one with the same name.
pub fn put_tool(tx: &mut Tx<'_>, tool: &Tool, now_ms: UnixMs) -> Result<()> {
    Token::parse(&tool.tool_name)?;
    check_text("description", &tool.description, WORDS_MAX_BYTES)?;
    tool.target_subject.as_deref().map(check_subject).transpose()?;
    let parameters = to_json("parameters", &tool.parameters, BODY_MAX_BYTES)?;
    let options = to_json("options", &tool.options, BODY_MAX_BYTES)?;
    tx.exec(
        "INSERT INTO tools (project_id, tool_name, description, parameters, target_subject,
           after_execution, options, updated_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT (project_id, tool_name) DO UPDATE SET description = excluded.description,
           parameters = excluded.parameters, target_subject = excluded.target_subject,
           after_execution = excluded.after_execution, options = excluded.options,
           updated_ms = excluded.updated_ms",
        args![
            tool.project_id.as_str(),
            &tool.tool_name,
            &tool.description,
            &parameters,
            tool.target_subject.as_ref(),
            tool.after_execution.as_str(),
            &options,
            now_ms
        ],
    )?;
    Ok(())
}

/// Marks, in its options, a row that a node keeps as it wants it. Whoever changes such a row takes the mark away.
pub const KEPT_BY_NODE: &str = "kept_by_node";

/// A row as it is stored.
type StoredTool = (String, String, Option<String>, String, String);

/// Stores the tools that a node offers to a project: those that are not there yet, and those that a node has stored. A
/// row without the [mark](KEPT_BY_NODE) is somebody's own, and is left as it is, whatever it says.
pub fn offer_tools(tx: &mut Tx<'_>, tools: &[Tool], now_ms: UnixMs) -> Result<()> {
    for tool in tools {
        let mut options = tool.options.clone();
        if let Some(options) = options.as_object_mut() {
            options.insert(KEPT_BY_NODE.to_owned(), Value::Bool(true));
        }
        let tool = Tool { options, ..tool.clone() };
        let there: Option<StoredTool> = tx.first(
            "SELECT description, parameters, target_subject, after_execution, options FROM tools
             WHERE project_id = $1 AND tool_name = $2",
            args![tool.project_id.as_str(), &tool.tool_name],
        )?;
        let wanted = there.is_none_or(|there| is_kept(&there) && there != stored(&tool));
        if wanted {
            put_tool(tx, &tool, now_ms)?;
        }
    }
    Ok(())
}

fn is_kept((.., options): &StoredTool) -> bool {
    let options: Value = serde_json::from_str(options).unwrap_or_default();
    options.get(KEPT_BY_NODE).and_then(Value::as_bool).unwrap_or(false)
}

/// As it would stand there. What cannot be written is none that is there.
fn stored(tool: &Tool) -> StoredTool {
    (
        tool.description.clone(),
        to_json("parameters", &tool.parameters, BODY_MAX_BYTES).unwrap_or_default(),
        tool.target_subject.clone(),
        tool.after_execution.as_str().to_owned(),
        to_json("options", &tool.options, BODY_MAX_BYTES).unwrap_or_default(),
    )
}

/// Up to `limit` projects that have profiles, by name, after this one.
pub fn projects(rx: &mut Rx<'_>, after: &str, limit: i64) -> Result<Vec<ProjectId>> {
    let names: Vec<(String,)> = rx.all(
        "SELECT DISTINCT project_id FROM profiles WHERE project_id > $1 ORDER BY project_id LIMIT $2",
        args![after, page(limit)],
    )?;
    // A name that cannot be read is nobody's project.
    Ok(names.into_iter().filter_map(|(name,)| name.parse().ok()).collect())
}

/// Up to `limit` tools of a project, by name.
pub fn tools(rx: &mut Rx<'_>, project_id: &ProjectId, limit: i64) -> Result<Vec<Tool>> {
    type Row = (String, String, String, Option<String>, String, String);
    let rows: Vec<Row> = rx.all(
        "SELECT tool_name, description, parameters, target_subject, after_execution, options
         FROM tools WHERE project_id = $1 ORDER BY tool_name LIMIT $2",
        args![project_id.as_str(), page(limit)],
    )?;
    let tool = |(tool_name, description, parameters, target_subject, after, options): Row| {
        Ok(Tool {
            project_id: project_id.clone(),
            tool_name,
            description,
            parameters: serde_json::from_str(&parameters).map_err(crate::row::unreadable)?,
            target_subject,
            after_execution: after.parse()?,
            options: serde_json::from_str(&options).map_err(crate::row::unreadable)?,
        })
    };
    rows.into_iter().map(tool).collect()
}
