//! `guild log`

use std::io::{BufRead, BufReader};

use guild_protocol::env::Clock;
use guild_protocol::id::EntryId;
use guild_protocol::json as strict_json;
use guild_roles::audit_log::{Entry, Note};
use guild_store::{Store, audit, event};
use serde::Serialize;
use serde_json::{Map, Value};

use super::Context;
use crate::client::{Client, write_through};
use crate::config::Loaded;
use crate::error::{Error, Result, code};
use crate::node::{self, NodeFile};
use crate::output::{Answer, Output};
use crate::real::{SystemClock, SystemRandom, runtime};

/// How many entries are read at once.
const PAGE_MAX: i64 = 500;

/// Read and write the audit log
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Tail(TailArgs),
    Append(AppendArgs),
}

/// Show the newest entries
///
/// With --follow, go on showing entries as they come: from the running node's stream, also across its restarts.
#[derive(Debug, clap::Args)]
pub(crate) struct TailArgs {
    /// Go on until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// How many entries to begin with
    #[arg(short = 'n', long, default_value_t = 10, value_name = "COUNT")]
    lines: u32,
    /// Begin after this number instead
    #[arg(long, value_name = "SEQ", conflicts_with = "lines")]
    after: Option<u32>,
}

/// Write an entry
///
/// Through the running node, or directly when none runs. With --id, repeating the command writes nothing twice.
#[derive(Debug, clap::Args)]
pub(crate) struct AppendArgs {
    /// What was done, as in `backup.made`
    action: String,
    /// What it was done to
    #[arg(long)]
    subject: Option<String>,
    /// Who did it
    #[arg(long, default_value = "owner")]
    actor: String,
    /// More about it, as a JSON object
    #[arg(long, value_name = "JSON")]
    detail: Option<String>,
    /// The entry's id, if the command may be repeated
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::Tail(args) => tail(args, cx),
        Command::Append(args) => append(args, cx),
    }
}

fn tail(args: &TailArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let last = show_stored(args, &loaded, cx.out)?;
    if args.follow { follow(&loaded, last, cx.out) } else { Ok(Answer::Yes) }
}

/// Shows what is in the database, beside whoever writes it; the number of the last entry.
fn show_stored(args: &TailArgs, loaded: &Loaded, out: &mut Output) -> Result<i64> {
    let service = match node::open_read_only(loaded) {
        // Before the first start there is nothing to show, and nothing wrong in waiting for it.
        Err(error) if args.follow && is_not_there_yet(&error) => {
            return Ok(args.after.map_or(0, i64::from));
        }
        service => service?,
    };
    let shown = show_pages(args, &service.handle(), out);
    service.close();
    let last = shown?;
    out.flush()?;
    Ok(last)
}

fn is_not_there_yet(error: &Error) -> bool {
    [&code::NODE_NO_DATABASE, &guild_store::code::OLDER_SCHEMA].contains(&error.code())
}

/// One page after the other: a log of any length takes the memory of a page.
fn show_pages(args: &TailArgs, store: &Store, out: &mut Output) -> Result<i64> {
    let runtime = runtime()?;
    let (mut last, newest) = runtime.block_on(first_and_newest(args, store))?;
    // Up to what was there at the beginning: a busy node must not keep a command busy that does not follow.
    while last < newest && !out.is_closed() {
        let after = last;
        let page = runtime.block_on(store.read(move |rx| audit::after(rx, after, PAGE_MAX)))?;
        let Some(end) = page.last() else { break };
        last = end.seq;
        page.iter().try_for_each(|entry| show(entry, out))?;
    }
    Ok(last)
}

/// The number behind which to begin, and that of the newest entry.
async fn first_and_newest(args: &TailArgs, store: &Store) -> Result<(i64, i64)> {
    let (after, lines) = (args.after.map(i64::from), i64::from(args.lines));
    let read = store.read(move |rx| {
        let first = match after {
            Some(after) => after,
            None => event::before_last(rx, audit::TOPIC, lines)?,
        };
        Ok::<_, guild_store::Error>((first, event::last(rx, audit::TOPIC)?))
    });
    Ok(read.await?)
}

/// Follows the stream of the node; when it breaks, waits for the node and goes on behind the last entry seen.
fn follow(loaded: &Loaded, mut last: i64, out: &mut Output) -> Result<Answer> {
    let runtime = runtime()?;
    let mut waiting = false;
    loop {
        match NodeFile::of_running(&loaded.config.data_dir)? {
            Some(node) => {
                waiting = false;
                if let Err(error) = stream(&Client::new(&node), &mut last, out) {
                    tracing::debug!(%error, "the stream broke");
                }
            }
            None if !waiting => {
                waiting = true;
                out.remark("no node runs on this data directory; waiting for `guild up`");
            }
            None => {}
        }
        if out.is_closed() {
            return Ok(Answer::Yes);
        }
        runtime.block_on(SystemClock.sleep(500));
    }
}

fn stream(client: &Client, last: &mut i64, out: &mut Output) -> Result<()> {
    let reader = BufReader::new(client.events(*last)?);
    for line in reader.lines() {
        let line = line.map_err(|e| Error::new(&code::NODE_UNREACHABLE, e.to_string()))?;
        let Some(data) = line.strip_prefix("data:") else { continue };
        let entry: Entry = serde_json::from_str(data.trim())
            .map_err(|e| Error::new(&code::NODE_UNREACHABLE, format!("the node's answer: {e}")))?;
        *last = entry.seq;
        show(&entry, out)?;
        out.flush()?;
        if out.is_closed() {
            return Ok(());
        }
    }
    Ok(())
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(flatten)]
    entry: &'a Entry,
}

fn show(entry: &Entry, out: &mut Output) -> Result<()> {
    if out.json() {
        return out.object(true, Body { entry });
    }
    let at = jiff::Timestamp::from_millisecond(entry.at_ms)
        .map_or_else(|_| entry.at_ms.to_string(), |at| format!("{at:.3}"));
    let subject = entry.subject.as_deref().map(|s| format!(" {s}")).unwrap_or_default();
    let detail = match entry.detail.is_empty() {
        true => String::new(),
        false => format!("  {}", Value::Object(entry.detail.clone())),
    };
    out.line(&format!("{:>6}  {at}  {} {}{subject}{detail}", entry.seq, entry.actor, entry.action))
}

fn append(args: &AppendArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let entry_id = match &args.id {
        Some(id) => id.parse::<EntryId>()?,
        // Made here and not by the node, so that trying again writes nothing twice.
        None => EntryId::make(&SystemClock, &SystemRandom),
    };
    let detail: Map<String, Value> = match &args.detail {
        None => Map::new(),
        Some(text) => {
            strict_json::decode(text.as_bytes()).map_err(|e| Error::from(e.within("--detail")))?
        }
    };
    let note = Note {
        entry_id: Some(entry_id),
        actor: args.actor.clone(),
        action: args.action.clone(),
        subject: args.subject.clone(),
        detail,
    };
    let (entry_id, seq) = write(&loaded, &note)?;
    if cx.out.json() {
        cx.out.object(true, serde_json::json!({ "entry_id": entry_id, "seq": seq }))?;
    } else {
        cx.out.line(&format!("{entry_id}  number {seq}"))?;
    }
    Ok(Answer::Yes)
}

/// The bell rings at the next start if nobody runs now.
fn write(loaded: &Loaded, note: &Note) -> Result<(EntryId, i64)> {
    write_through(
        loaded,
        |client| client.append(note),
        |parts, runtime| Ok(runtime.block_on(parts.log.append(note.clone()))?),
    )
}
