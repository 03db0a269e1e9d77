//! `guild cid`

use std::io::Read;
use std::num::NonZeroUsize;
use std::path::Path;

use guild_protocol::content::{Directory, Importer, Options, Tree, Version};
use serde::Serialize;

use super::Context;
use crate::error::{Error, InFile, Result, code};
use crate::input::Input;
use crate::output::{Answer, Output, lossy};

const PIECE_BYTES: u64 = 8 * 1024 * 1024;
/// How often a person who waits is told how far it is.
const PROGRESS_EVERY_BYTES: u64 = 64 * 1024 * 1024;

/// Print the content id that IPFS gives a file
///
/// The same as `ipfs add --only-hash --cid-version=1`. The file is read in pieces, so it may be of any size.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file; - reads from standard input
    file: Input,
    /// Put the file into a directory, under its own name or NAME, and print the directory's CID
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true)]
    wrap: Option<Option<String>>,
    /// Whether leaves are raw blocks [default: true for CID version 1, false for 0]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    raw_leaves: Option<bool>,
    /// The version of the CID
    #[arg(long, value_name = "VERSION", default_value = "1", value_parser = clap::value_parser!(u8).range(0..=1))]
    cid_version: u8,
    /// The bytes of content in one block
    #[arg(long, value_name = "BYTES", default_value_t = Options::default().chunk_bytes)]
    chunk_bytes: usize,
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(serialize_with = "lossy")]
    file: &'a Path,
    cid: String,
    content_bytes: u64,
    tree_bytes: u64,
    blocks: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    wrapped_as: Option<String>,
}

pub(crate) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    let version = if args.cid_version == 0 { Version::V0 } else { Version::V1 };
    let options = Options {
        chunk_bytes: args.chunk_bytes,
        raw_leaves: args.raw_leaves.unwrap_or(version == Version::V1),
        version,
        ..Options::default()
    };
    let wrapped_as = wrapped_as(args)?;
    let mut blocks = 0;
    let mut tree = import(&args.file, options, &mut blocks, cx.out)?;
    if let Some(name) = &wrapped_as {
        let mut directory = Directory::new(version);
        directory.insert(name, tree)?;
        blocks += 1;
        tree = directory.finish(|_| Ok(()))?;
    }
    let cid = tree.cid.to_string();
    if !cx.out.json() {
        cx.out.line(&cid)?;
        return Ok(Answer::Yes);
    }
    let Tree { content_bytes, tree_bytes, .. } = tree;
    let file = args.file.path();
    cx.out.object(true, Body { file, cid, content_bytes, tree_bytes, blocks, wrapped_as })?;
    Ok(Answer::Yes)
}

/// The name of the file in its directory, if there is to be one.
fn wrapped_as(args: &Args) -> Result<Option<String>> {
    let own_name = || args.file.path().file_name().filter(|_| !args.file.is_stdin());
    match &args.wrap {
        None => Ok(None),
        Some(Some(name)) => Ok(Some(name.clone())),
        Some(None) => match own_name().and_then(|name| name.to_str()) {
            Some(name) => Ok(Some(name.to_owned())),
            None => Err(Error::new(&code::USAGE, "the input has no name that an entry could have")
                .in_file(args.file.path())
                .help("Name the entry with --wrap=NAME.")),
        },
    }
}

fn import(input: &Input, options: Options, blocks: &mut u64, out: &mut Output) -> Result<Tree> {
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let mut importer = Importer::new(options, |_| {
        *blocks += 1;
        Ok(())
    })?
    .with_threads(threads);
    let mut reader = input.open()?;
    let mut piece = Vec::new();
    let (mut read_bytes, mut told_bytes) = (0u64, 0u64);
    loop {
        piece.clear();
        // Whole pieces, also from a pipe that gives little at a time: all threads then have something to hash.
        let read = reader.by_ref().take(PIECE_BYTES).read_to_end(&mut piece);
        read.map_err(|e| Error::io(input.path(), &e))?;
        if piece.is_empty() {
            break;
        }
        importer.push(&piece).in_file(input.path())?;
        read_bytes = read_bytes.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
        if read_bytes - told_bytes >= PROGRESS_EVERY_BYTES {
            told_bytes = read_bytes;
            out.progress(&format!("{} MiB read", read_bytes / (1024 * 1024)));
        }
    }
    out.progress("");
    importer.finish().in_file(input.path())
}
