//! `guild content add`

use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use guild_network::content::{Content, Folder, OPERATOR, Pin};
use guild_protocol::content::{Options as Layout, Version};
use guild_protocol::env::Random;
use guild_protocol::hash::to_hex;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use super::super::Context;
use super::items::{self, Item};
use super::{encoded, not_understood};
use crate::client::{Client, write_through};
use crate::error::{Error, Result};
use crate::output::{Answer, Output};
use crate::real::SystemRandom;

const PIECE_BYTES: usize = 1 << 20;
/// How often a person who waits is told how far it is.
const PROGRESS_EVERY_BYTES: u64 = 16 << 20;

/// Add files and directories, and pin them
///
/// They get the content ids that `ipfs add --cid-version=1` gives them, and are served at /ipfs/CID.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files, and directories with all that is in them
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Put a directory around all of it
    #[arg(long)]
    wrap: bool,
    /// Add also files whose names begin with a dot
    #[arg(long)]
    hidden: bool,
    /// Do not pin: what nobody has pinned is removed after content.grace_minutes
    #[arg(long)]
    no_pin: bool,
    /// Why it is kept
    #[arg(long, value_name = "TEXT", default_value = "", conflicts_with = "no_pin")]
    reason: String,
    /// Whether leaves are raw blocks [default: true for CID version 1, false for 0]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    raw_leaves: Option<bool>,
    /// The version of the CIDs
    #[arg(long, value_name = "VERSION", default_value = "1", value_parser = clap::value_parser!(u8).range(0..=1))]
    cid_version: u8,
    /// The bytes of content in one block
    #[arg(long, value_name = "BYTES", default_value_t = Layout::default().chunk_bytes)]
    chunk_bytes: usize,
}

impl Args {
    fn layout(&self) -> Layout {
        let version = if self.cid_version == 0 { Version::V0 } else { Version::V1 };
        let raw_leaves = self.raw_leaves.unwrap_or(version == Version::V1);
        Layout { chunk_bytes: self.chunk_bytes, raw_leaves, version, ..Layout::default() }
    }
}

/// Something that has been added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Added {
    path: String,
    cid: String,
    tree_bytes: u64,
}

/// What a person who waits sees.
struct Progress<'a> {
    out: &'a mut Output,
    done_bytes: u64,
    told_bytes: u64,
    all_bytes: u64,
}

impl Progress<'_> {
    fn add(&mut self, bytes: usize) {
        self.done_bytes = self.done_bytes.saturating_add(u64::try_from(bytes).unwrap_or(0));
        if self.done_bytes.saturating_sub(self.told_bytes) >= PROGRESS_EVERY_BYTES {
            self.told_bytes = self.done_bytes;
            let (done, all) = (self.done_bytes >> 20, self.all_bytes >> 20);
            self.out.progress(&format!("{done} of {all} MiB added"));
        }
    }
}

pub(crate) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    let pin = Pin::new(OPERATOR, &args.reason)?;
    let items = items::gather(&args.paths, args.hidden)?;
    let loaded = cx.config()?;
    let all_bytes = items.iter().fold(0u64, |sum, item| sum.saturating_add(item.bytes));
    let progress =
        RefCell::new(Progress { out: &mut *cx.out, done_bytes: 0, told_bytes: 0, all_bytes });
    let added = write_through(
        &loaded,
        |client| by_node(client, args, &items, &progress),
        |parts, runtime| {
            let content = parts.content(&loaded)?;
            here((&content, runtime), args, &items, &pin, &progress)
        },
    )?;
    cx.out.progress("");
    let is_root = |added: &&Added| match args.wrap {
        true => added.path.is_empty(),
        false => !added.path.contains('/'),
    };
    if cx.out.json() {
        let roots: Vec<&str> =
            added.iter().filter(is_root).map(|added| added.cid.as_str()).collect();
        cx.out.object(true, json!({ "added": added, "roots": roots, "pinned": !args.no_pin }))?;
        return Ok(Answer::Yes);
    }
    for Added { path, cid, .. } in &added {
        cx.out.line(format!("{cid}  {path}").trim_end())?;
    }
    Ok(Answer::Yes)
}

fn by_node(
    client: &Client,
    args: &Args,
    items: &[Item],
    progress: &RefCell<Progress<'_>>,
) -> Result<Vec<Added>> {
    let mut random = [0; 16];
    SystemRandom.fill(&mut random);
    let boundary = format!("guild-{}", to_hex(&random));
    let query = format!(
        "cid-version={}&raw-leaves={}&chunker=size-{}&wrap-with-directory={}&pin={}&pin-name={}",
        args.cid_version,
        args.layout().raw_leaves,
        args.chunk_bytes,
        args.wrap,
        !args.no_pin,
        encoded(&args.reason),
    );
    let content_type = format!("multipart/form-data; boundary={boundary}");
    let told = |bytes| progress.borrow_mut().add(bytes);
    let mut body = items::Parts::new(items, &boundary, told);
    let lines = client.content_add(&query, &content_type, &mut body)?;
    lines.iter().map(|line| read_line(line).ok_or_else(not_understood)).collect()
}

fn read_line(line: &Map<String, Value>) -> Option<Added> {
    let text = |name: &str| line.get(name).and_then(Value::as_str);
    Some(Added {
        path: text("Name")?.to_owned(),
        cid: text("Hash")?.to_owned(),
        tree_bytes: text("Size")?.parse().ok()?,
    })
}

fn here(
    (content, runtime): (&Content, &Runtime),
    args: &Args,
    items: &[Item],
    pin: &Pin,
    progress: &RefCell<Progress<'_>>,
) -> Result<Vec<Added>> {
    let layout = args.layout();
    let mut adding = runtime.block_on(content.begin())?;
    let (mut folder, mut added) = (Folder::default(), Vec::new());
    let mut piece = vec![0; PIECE_BYTES];
    for item in items {
        let Some(path) = &item.file else {
            folder.make(&item.names)?;
            continue;
        };
        let failed = |e: std::io::Error| Error::io(path, &e);
        let mut source = File::open(path).map_err(failed)?;
        let mut file = adding.file(layout)?;
        loop {
            let read = source.read(&mut piece).map_err(failed)?;
            let Some(bytes) = piece.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
            runtime.block_on(file.push(bytes))?;
            progress.borrow_mut().add(read);
        }
        let tree = runtime.block_on(file.finish())?;
        let path = folder.insert(&item.names, tree)?;
        added.push(Added { path, cid: tree.cid.to_string(), tree_bytes: tree.tree_bytes });
    }
    let packed = runtime.block_on(folder.pack(&mut adding, layout.version, args.wrap))?;
    for (path, tree) in packed.directories {
        added.push(Added { path, cid: tree.cid.to_string(), tree_bytes: tree.tree_bytes });
    }
    match args.no_pin {
        true => runtime.block_on(adding.end())?,
        false => runtime.block_on(adding.keep(&packed.roots, pin))?,
    }
    Ok(added)
}
