//! `guild turn`

use std::path::PathBuf;

use guild_kernel::story::{Filter, Story, Summary};
use guild_kernel::turn::Stopped;
use guild_kernel::{AgentId, AgentTurnId, ProjectId};
use guild_protocol::env::Shutdown;
use guild_roles::agents::Agents;
use serde_json::json;

use super::table::{self, Column};
use super::{Context, reading, up};
use crate::client::write_through;
use crate::config::Loaded;
use crate::error::{Error, Result, code};
use crate::input::{self, Existing};
use crate::node;
use crate::output::Answer;
use crate::real::{SystemClock, runtime};

pub(super) mod ears;
pub(super) mod follow;
mod speech;
pub(super) mod told;

/// Look at the turns of agents; stop one, export one
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Ls(LsArgs),
    Show(ShowArgs),
    Watch(WatchArgs),
    Stop(StopArgs),
    Replay(ReplayArgs),
}

/// List turns, the newest first
#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    /// Only those of this project
    #[arg(long, value_name = "PROJECT")]
    project: Option<ProjectId>,
    /// Only those of agents with this name
    #[arg(long, value_name = "AGENT")]
    agent: Option<AgentId>,
    /// Only those that are not over
    #[arg(long)]
    open: bool,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: u16,
    /// Only those that were asked for before the one with this number, which the page before named
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(i64).range(1..))]
    before: Option<i64>,
}

/// Tell what a turn was asked, what it did step by step, and what came out
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// The id of the turn
    id: AgentTurnId,
}

/// Follow a turn until it is over
///
/// What its model says is shown while it says it, if a node runs here. The answer is yes if the turn ended well.
#[derive(Debug, clap::Args)]
pub(crate) struct WatchArgs {
    /// The id of the turn
    id: AgentTurnId,
    /// With --json: tell what is said and done while it happens, each event on a line, before the answer
    #[arg(long)]
    events: bool,
}

/// End a turn, and what it has asked others for
///
/// Through the running node, or directly when none runs. What it has written stays; it delivers why it ended. A turn
/// that was over already stays as it was, and makes the answer no.
#[derive(Debug, clap::Args)]
pub(crate) struct StopArgs {
    /// The id of the turn
    id: AgentTurnId,
    /// Why, in words
    #[arg(long, value_name = "TEXT", default_value = "stopped by the operator",
        value_parser = clap::builder::NonEmptyStringValueParser::new())]
    reason: String,
}

/// Export a turn that is over as a sealed REPLAY.jsonl
///
/// Made from what is stored alone: exporting it again gives the same bytes. `guild replay verify` checks it.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// The id of the turn
    id: AgentTurnId,
    /// Write it there instead of printing it
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::Ls(args) => ls(args, cx),
        Command::Show(args) => show(args, cx),
        Command::Watch(args) => watch(args, cx),
        Command::Stop(args) => stop(args, cx),
        Command::Replay(args) => replay(args, cx),
    }
}

/// Reads beside whoever writes.
pub(super) fn read<T, F>(loaded: &Loaded, ask: impl FnOnce(Agents) -> F) -> Result<T>
where
    F: Future<Output = guild_roles::Result<T>>,
{
    let service = node::open_read_only(loaded).map_err(none_yet)?;
    let agents = Agents::new(service.handle(), std::sync::Arc::new(SystemClock));
    let answer = runtime().map(|runtime| runtime.block_on(ask(agents)));
    service.close();
    Ok(answer??)
}

/// Agents need no node that runs, and a newcomer may not know.
fn none_yet(error: Error) -> Error {
    match error.code() == &code::NODE_NO_DATABASE {
        true => error.help(
            "The first `guild agent run` makes one, with or without a node; so does `guild up`.",
        ),
        false => error,
    }
}

fn ls(args: &LsArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let filter = Filter {
        project_id: args.project.clone(),
        agent_id: args.agent.clone(),
        open: args.open,
        before_seq: args.before,
    };
    let limit = i64::from(args.limit);
    let turns = read(&cx.config()?, |agents| async move { agents.turns(filter, limit).await })?;
    let next = turns.last().filter(|_| turns.len() == usize::from(args.limit)).map(|t| t.seq);
    if cx.out.json() {
        let turns: Vec<_> = turns.iter().map(told::summary).collect();
        cx.out.object(true, json!({ "turns": turns, "next": next }))?;
        return Ok(Answer::Yes);
    }
    if turns.is_empty() {
        cx.out.remark("there are no turns");
        return Ok(Answer::Yes);
    }
    let columns = [
        Column::Left("turn"),
        Column::Left("when"),
        Column::Left("agent"),
        Column::Left("profile"),
        Column::Left("state"),
        Column::Right("steps"),
        Column::Right("tokens"),
        Column::Right("cost"),
    ];
    let rows: Vec<_> = turns.iter().map(row).collect();
    table::print(columns, &rows, cx.out)?;
    if let Some(next) = next {
        cx.out.remark(&format!("more with --before {next}"));
    }
    Ok(Answer::Yes)
}

fn row(turn: &Summary) -> [String; 8] {
    let tokens = turn.usage.prompt_tokens.saturating_add(turn.usage.completion_tokens);
    [
        turn.agent_turn_id.to_string(),
        reading::time(turn.created_ms),
        turn.key.to_string(),
        turn.profile_name.clone(),
        told::state(turn),
        turn.steps.to_string(),
        tokens.to_string(),
        told::usd(turn.usage.cost_micro_usd),
    ]
}

fn find(id: &AgentTurnId, cx: &mut Context<'_>) -> Result<Story> {
    let wanted = id.clone();
    let found = read(&cx.config()?, |agents| async move { agents.turn(wanted).await })?;
    found.ok_or_else(|| reading::unknown("turn", id, "turn"))
}

fn show(args: &ShowArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let story = find(&args.id, cx)?;
    if cx.out.json() {
        cx.out.object(true, told::story(&story))?;
        return Ok(Answer::Yes);
    }
    told::print(&story, cx.out)?;
    Ok(Answer::Yes)
}

fn watch(args: &WatchArgs, cx: &mut Context<'_>) -> Result<Answer> {
    // First, so that a wrong id is told as such.
    let story = find(&args.id, cx)?;
    let interrupted = Shutdown::new();
    let runtime = up::node_runtime()?;
    runtime.block_on(async { up::stop_on_signal(&interrupted) })?;
    let loaded = cx.config_in_peace()?;
    let hears = !cx.out.json() || args.events;
    let ears = hears.then(|| ears::Ears::open(&loaded, &story.summary.key));
    let view = follow::View { ears, events: args.events };
    follow::until_over(&loaded, &args.id, view, &interrupted, cx.out)
}

fn stop(args: &StopArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    node::require_database(&node::store_options(&loaded)).map_err(none_yet)?;
    let (id, reason) = (&args.id, &args.reason);
    let stopped = write_through(
        &loaded,
        |client| client.stop_turn(id, reason),
        |parts, runtime| Ok(runtime.block_on(parts.agents().stop(id.clone(), reason.clone()))?),
    )?;
    let (word, ended) = (stopped.as_str(), stopped != Stopped::Over);
    if cx.out.json() {
        cx.out.object(ended, json!({ "agent_turn_id": id, "outcome": word }))?;
    } else {
        let words = if ended { word } else { "it was over already" };
        cx.out.line(&format!("{id}: {words}"))?;
    }
    Ok(Answer::of(ended))
}

fn replay(args: &ReplayArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let policy = node::own_bundle(&loaded)?.policy_bundle_id().to_string();
    let id = args.id.clone();
    let sealed = read(&loaded, |agents| async move { agents.replay(id, policy).await })?;
    let Some(path) = &args.output else {
        cx.out.raw(sealed.text.as_bytes())?;
        return Ok(Answer::Yes);
    };
    input::write_whole(path, sealed.text.as_bytes(), 0o644, Existing::Keep)?;
    let hash = sealed.trajectory_hash.to_string();
    if cx.out.json() {
        let file = path.to_string_lossy();
        cx.out.object(true, json!({ "file": file, "trajectory_hash": hash }))?;
    } else {
        cx.out.line(&format!("{} written, trajectory {hash}", path.display()))?;
    }
    Ok(Answer::Yes)
}

/// A turn that should be there is not.
pub(super) fn lost(id: &AgentTurnId) -> Error {
    Error::new(&code::MARKET_UNKNOWN, format!("this node knows no turn {id}"))
}
