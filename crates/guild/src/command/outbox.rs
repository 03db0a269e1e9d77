//! `guild outbox`

use guild_roles::outbox::{NAMED_MAX, Retried, Which};
use guild_store::outbox::{self, Filter, Listed, State};
use serde::Serialize;

use super::Context;
use crate::client::write_through;
use crate::error::{Error, Result, code};
use crate::node;
use crate::output::{Answer, Output};
use crate::real::runtime;

/// How many messages are read at once.
const PAGE_MAX: i64 = 500;

/// Look at what must still leave this node, and try again what was given up
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Ls(LsArgs),
    Retry(RetryArgs),
}

/// List messages, oldest first
///
/// Shows those that were given up or still wait, unless told otherwise. Works beside a running node.
#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    /// Only those that were given up
    #[arg(long, conflicts_with_all = ["queued", "all"])]
    dead: bool,
    /// Only those that wait
    #[arg(long, conflicts_with = "all")]
    queued: bool,
    /// Also those that were delivered
    #[arg(long)]
    all: bool,
    /// Only those of this sink
    #[arg(long, value_name = "SINK", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    sink: Option<String>,
    /// How many at most
    #[arg(long, default_value_t = 100, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

/// Try dead letters again
///
/// Through the running node, or directly when none runs; then they leave when the next node starts. A number that is
/// no dead letter changes nothing and makes the answer no.
#[derive(Debug, clap::Args)]
pub(crate) struct RetryArgs {
    /// The numbers of the messages, as `guild outbox ls` shows them
    #[arg(value_name = "SEQ", required_unless_present = "all_dead", value_parser = clap::value_parser!(i64).range(1..))]
    seqs: Vec<i64>,
    /// All that were given up
    #[arg(long, conflicts_with = "seqs")]
    all_dead: bool,
    /// Only those of this sink
    #[arg(long, value_name = "SINK", requires = "all_dead", conflicts_with = "seqs",
        value_parser = clap::builder::NonEmptyStringValueParser::new())]
    sink: Option<String>,
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::Ls(args) => ls(args, cx),
        Command::Retry(args) => retry(args, cx),
    }
}

#[derive(Serialize)]
struct Row<'a> {
    seq: i64,
    state: &'a str,
    sink: &'a str,
    key: &'a str,
    idempotency_key: &'a str,
    attempts: i64,
    due_ms: i64,
    last_error: Option<&'a str>,
}

fn ls(args: &LsArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let service = node::open_read_only(&loaded)?;
    let listed = collect(args, &service.handle());
    service.close();
    let listed = listed?;
    if cx.out.json() {
        let rows: Vec<Row<'_>> = listed.iter().map(row).collect();
        cx.out.object(true, serde_json::json!({ "messages": rows }))?;
        return Ok(Answer::Yes);
    }
    if listed.is_empty() {
        cx.out.line("no message")?;
    }
    listed.iter().try_for_each(|message| show(message, cx.out))?;
    Ok(Answer::Yes)
}

fn collect(args: &LsArgs, store: &guild_store::Store) -> Result<Vec<Listed>> {
    let runtime = runtime()?;
    let state = match (args.dead, args.queued) {
        (true, _) => Some(State::Dead),
        (_, true) => Some(State::Queued),
        _ => None,
    };
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let (mut listed, mut after) = (Vec::new(), 0);
    while listed.len() < limit {
        let filter = Filter { state, sink: args.sink.clone(), after };
        let page = runtime.block_on(store.read(move |rx| outbox::list(rx, &filter, PAGE_MAX)))?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        listed.extend(page.into_iter().filter(|m| args.all || m.state != State::Done));
    }
    listed.truncate(limit);
    Ok(listed)
}

fn row(message: &Listed) -> Row<'_> {
    Row {
        seq: message.seq,
        state: message.state.as_str(),
        sink: &message.sink,
        key: &message.key,
        idempotency_key: &message.idempotency_key,
        attempts: message.attempts,
        due_ms: message.due_ms,
        last_error: message.last_error.as_deref(),
    }
}

fn show(message: &Listed, out: &mut Output) -> Result<()> {
    let Row { seq, state, sink, key, idempotency_key, attempts, last_error, .. } = row(message);
    let why = last_error.map(|error| format!(": {error}")).unwrap_or_default();
    out.line(&format!(
        "{seq:>6}  {state:<6}  {sink} {key}  {idempotency_key}  tried {attempts}{why}"
    ))
}

fn retry(args: &RetryArgs, cx: &mut Context<'_>) -> Result<Answer> {
    if args.seqs.len() > NAMED_MAX {
        let message = format!("at most {NAMED_MAX} numbers at once");
        return Err(Error::new(&code::USAGE, message));
    }
    let which = match args.all_dead {
        true => Which::AllDead { sink: args.sink.clone() },
        false => Which::Named(args.seqs.clone()),
    };
    let loaded = cx.config()?;
    // Where there is no outbox there is nothing to retry, and nothing is made.
    node::require_database(&node::store_options(&loaded))?;
    let Retried { retried, not_dead } = write_through(
        &loaded,
        |client| client.retry(&which),
        |parts, runtime| Ok(runtime.block_on(parts.outbox.retry(&which))?),
    )?;
    if cx.out.json() {
        let body = serde_json::json!({ "retried": retried, "not_dead": not_dead });
        cx.out.object(not_dead.is_empty(), body)?;
        return Ok(Answer::of(not_dead.is_empty()));
    }
    cx.out.line(&format!("{} queued again", retried.len()))?;
    for seq in &not_dead {
        cx.out.line(&format!("{seq} is no dead letter"))?;
    }
    Ok(Answer::of(not_dead.is_empty()))
}
