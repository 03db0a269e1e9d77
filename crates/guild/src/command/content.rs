//! `guild content`

use guild_network::content::{
    Content, FoundNode, Listed, OPERATOR, Path, Pin, Pinned, Reach, Walked,
};
use guild_protocol::content::Cid;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::Context;
use super::table::{self, Column};
use crate::client::write_through;
use crate::config::Loaded;
use crate::error::{Error, Result, code};
use crate::node;
use crate::output::Answer;
use crate::real::runtime;

mod add;
mod get;
mod items;
mod push;
mod verify;

/// Keep files and directories by the hash of their content, and get them from others
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Add(add::Args),
    Get(get::Args),
    Ls(LsArgs),
    Pin(PinArgs),
    Unpin(UnpinArgs),
    Gc(GcArgs),
    Push(push::Args),
    Verify(verify::Args),
}

/// List a directory, or what is pinned
#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    /// The directory, as CID or CID/PATH; without it the pins of this node are listed
    #[arg(value_name = "CID/PATH")]
    path: Option<Path>,
}

/// Keep content with everything below it
///
/// What is not here is fetched from the peers in content.peers. Pinned content stays until it is unpinned.
#[derive(Debug, clap::Args)]
pub(crate) struct PinArgs {
    /// The root
    #[arg(value_name = "CID")]
    cid: Cid,
    /// Why it is kept
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

/// Let go of content
///
/// It is removed when nobody else has pinned it and it has not been added lately. The exit code is 1 if it was not
/// pinned.
#[derive(Debug, clap::Args)]
pub(crate) struct UnpinArgs {
    /// The root
    #[arg(value_name = "CID")]
    cid: Cid,
}

/// Remove content that nobody has pinned
///
/// What was added within content.grace_minutes stays. A running node does this by itself every content.collect_minutes.
#[derive(Debug, clap::Args)]
pub(crate) struct GcArgs {}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::Add(args) => add::run(args, cx),
        Command::Get(args) => get::run(args, cx),
        Command::Ls(args) => ls(args, cx),
        Command::Pin(args) => pin(args, cx),
        Command::Unpin(args) => unpin(args, cx),
        Command::Gc(GcArgs {}) => gc(cx),
        Command::Push(args) => push::run(args, cx),
        Command::Verify(args) => verify::run(args, cx),
    }
}

/// Reads content beside whoever writes it.
fn read<T>(loaded: &Loaded, ask: impl FnOnce(&Content, &Runtime) -> Result<T>) -> Result<T> {
    let service = node::open_read_only(loaded)?;
    let answer = runtime().and_then(|runtime| {
        let content = node::content::read_only(loaded, service.handle())?;
        ask(&content, &runtime)
    });
    service.close();
    answer
}

/// A value in the address of a call.
fn encoded(text: &str) -> String {
    guild_gateway::encoded(text)
}

fn not_understood() -> Error {
    Error::new(&code::NODE_UNREACHABLE, "the node's answer is not understood")
}

fn ls(args: &LsArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    match &args.path {
        Some(path) => {
            let found = read(&loaded, |content, runtime| {
                Ok(runtime.block_on(content.resolve(path, Reach::Peers))?)
            })?;
            match found.node {
                FoundNode::Directory(entries) => directory(&found.cid, &entries, cx),
                FoundNode::File(bytes) => {
                    one(&found.cid, "file", &json!({ "bytes": bytes }), &bytes.to_string(), cx)
                }
                FoundNode::Symlink(target) => {
                    one(&found.cid, "symlink", &json!({ "target": target }), &target, cx)
                }
            }
        }
        None => pins(&read(&loaded, all_pins)?, cx),
    }
}

fn one(cid: &Cid, kind: &str, more: &Value, shown: &str, cx: &mut Context<'_>) -> Result<Answer> {
    if cx.out.json() {
        cx.out.object(true, json!({ "cid": cid, "kind": kind, kind: more }))?;
    } else {
        cx.out.line(&format!("{cid}  {kind}  {shown}"))?;
    }
    Ok(Answer::Yes)
}

fn directory(cid: &Cid, entries: &[Listed], cx: &mut Context<'_>) -> Result<Answer> {
    if cx.out.json() {
        let entry = |entry: &Listed| {
            let Listed { name, cid, tree_bytes } = entry;
            json!({ "name": name, "cid": cid, "tree_bytes": tree_bytes })
        };
        let all: Vec<Value> = entries.iter().map(entry).collect();
        cx.out.object(true, json!({ "cid": cid, "kind": "directory", "entries": all }))?;
        return Ok(Answer::Yes);
    }
    let columns = [Column::Left("CID"), Column::Right("BYTES"), Column::Left("NAME")];
    let row =
        |entry: &Listed| [entry.cid.to_string(), entry.tree_bytes.to_string(), entry.name.clone()];
    table::print(columns, &entries.iter().map(row).collect::<Vec<_>>(), cx.out)?;
    Ok(Answer::Yes)
}

/// Every pin.
fn all_pins(content: &Content, runtime: &Runtime) -> Result<Vec<Pinned>> {
    let mut all: Vec<Pinned> = Vec::new();
    loop {
        let page = runtime.block_on(content.pins(all.last()))?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

fn pins(pins: &[Pinned], cx: &mut Context<'_>) -> Result<Answer> {
    if cx.out.json() {
        cx.out.object(true, json!({ "pins": pins }))?;
        return Ok(Answer::Yes);
    }
    if pins.is_empty() {
        cx.out.remark("nothing is pinned");
        return Ok(Answer::Yes);
    }
    let columns = [Column::Left("CID"), Column::Left("OWNER"), Column::Left("REASON")];
    let row = |pin: &Pinned| [pin.cid.to_string(), pin.owner.clone(), pin.reason.clone()];
    table::print(columns, &pins.iter().map(row).collect::<Vec<_>>(), cx.out)?;
    Ok(Answer::Yes)
}

fn pin(args: &PinArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let pin = Pin::new(OPERATOR, &args.reason)?;
    let loaded = cx.config()?;
    cx.out.progress("looking for all of it");
    let walked: Option<Walked> = write_through(
        &loaded,
        |client| {
            let call = format!("pin/add?arg={}&name={}", args.cid, encoded(&args.reason));
            client.content_call(&call).map(|_| None)
        },
        |parts, runtime| {
            let content = parts.content(&loaded)?;
            Ok(Some(runtime.block_on(content.pin(&args.cid, &pin, Reach::Peers))?))
        },
    )?;
    cx.out.progress("");
    if cx.out.json() {
        let blocks = walked.map(|walked| walked.blocks);
        let bytes = walked.map(|walked| walked.bytes);
        cx.out.object(true, json!({ "cid": args.cid, "blocks": blocks, "bytes": bytes }))?;
    } else {
        cx.out.line(&format!("{} is pinned", args.cid))?;
    }
    Ok(Answer::Yes)
}

fn unpin(args: &UnpinArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let unpinned = write_through(
        &loaded,
        |client| match client.content_call(&format!("pin/rm?arg={}", args.cid)) {
            Ok(_) => Ok(true),
            Err(error) if error.code() == &guild_gateway::code::UNKNOWN => Ok(false),
            Err(error) => Err(error),
        },
        |parts, runtime| {
            let content = parts.content(&loaded)?;
            Ok(runtime.block_on(content.unpin(&args.cid, OPERATOR))?)
        },
    )?;
    if cx.out.json() {
        cx.out.object(unpinned, json!({ "cid": args.cid }))?;
    } else {
        let state = if unpinned { "is no longer pinned" } else { "was not pinned" };
        cx.out.line(&format!("{} {state}", args.cid))?;
    }
    Ok(Answer::of(unpinned))
}

fn gc(cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    cx.out.progress("looking for what nobody needs");
    let (removed, bytes) = write_through(
        &loaded,
        |client| {
            let told = client.content_call("repo/gc")?;
            let number = |name: &str| told[name].as_u64().ok_or_else(not_understood);
            Ok((number("Removed")?, number("RemovedBytes")?))
        },
        |parts, runtime| {
            let collected = runtime.block_on(parts.content(&loaded)?.collect())?;
            Ok((collected.removed, collected.removed_bytes))
        },
    )?;
    cx.out.progress("");
    if cx.out.json() {
        cx.out.object(true, json!({ "removed": removed, "removed_bytes": bytes }))?;
    } else {
        cx.out.line(&format!("{removed} blocks removed, {bytes} bytes"))?;
    }
    Ok(Answer::Yes)
}
