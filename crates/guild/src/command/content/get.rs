//! `guild content get`

use std::io::Write;
use std::path::{Path as FilePath, PathBuf};

use guild_network::content::{Content, Found, FoundNode, Path, Reach};
use guild_protocol::content::Cid;
use serde_json::json;
use tokio::runtime::Runtime;

use super::super::Context;
use crate::error::{Error, Result, code};
use crate::input::{Draft, Existing};
use crate::output::{Answer, Output};

/// The most files and directories that are written.
const WRITTEN_MAX: u64 = 100_000;
/// The most directories in each other.
const DEPTH_MAX: usize = 64;
/// How often a person who waits is told how far it is.
const PROGRESS_EVERY_BYTES: u64 = 16 << 20;

/// Write a file or a directory to the disk
///
/// What is not here is fetched from the peers in content.peers. Every block is checked against its hash.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to get, as CID or CID/PATH
    #[arg(value_name = "CID/PATH")]
    path: Path,
    /// Where to write it; - writes a file to standard output [default: the last name of the path, or the CID]
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Use only what is kept here
    #[arg(long)]
    local: bool,
}

/// What is written, and where to.
struct Getting<'a> {
    content: &'a Content,
    runtime: &'a Runtime,
    reach: Reach,
    out: &'a mut Output,
    written: u64,
    bytes: u64,
    told_bytes: u64,
}

pub(crate) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let own_name = || args.path.names.last().cloned().unwrap_or_else(|| args.path.root.to_string());
    let target = args.output.clone().unwrap_or_else(|| PathBuf::from(own_name()));
    let to_stdout = target.as_os_str() == "-";
    if to_stdout && cx.out.json() {
        let message = "the file and the answer cannot both go to standard output";
        return Err(Error::new(&code::USAGE, message).help("Name a file with --output."));
    }
    let reach = if args.local { Reach::Local } else { Reach::Peers };
    let out = &mut *cx.out;
    let (cid, written, bytes) = super::read(&loaded, |content, runtime| {
        let found = runtime.block_on(content.resolve(&args.path, reach))?;
        let mut getting =
            Getting { content, runtime, reach, out, written: 0, bytes: 0, told_bytes: 0 };
        match (&found.node, to_stdout) {
            (FoundNode::File(bytes), true) => getting.print((&found.cid, *bytes))?,
            (_, true) => {
                let message = "only a file can be written to standard output";
                return Err(Error::new(&code::USAGE, message));
            }
            _ => getting.write(&found, &target, 0)?,
        }
        Ok((found.cid, getting.written, getting.bytes))
    })?;
    cx.out.progress("");
    if to_stdout {
        return Ok(Answer::Yes);
    }
    if cx.out.json() {
        let output = target.to_string_lossy();
        let body = json!({ "cid": cid, "output": output, "files": written, "bytes": bytes });
        cx.out.object(true, body)?;
    } else {
        cx.out.line(&format!("{cid}  {bytes} bytes in {}", target.display()))?;
    }
    Ok(Answer::Yes)
}

impl Getting<'_> {
    fn write(&mut self, found: &Found, target: &FilePath, depth: usize) -> Result<()> {
        self.written = self.written.saturating_add(1);
        if self.written > WRITTEN_MAX || depth > DEPTH_MAX {
            let message = format!(
                "more than {WRITTEN_MAX} files and directories, or {DEPTH_MAX} directories in each other"
            );
            return Err(Error::new(&guild_network::code::CONTENT_TOO_WIDE, message));
        }
        match &found.node {
            FoundNode::File(bytes) => {
                let draft = Draft::begin(target, 0o644, Existing::Keep)?;
                let mut file = draft.handle()?;
                self.pieces((&found.cid, *bytes), |piece, _| {
                    file.write_all(piece).map_err(|e| Error::io(target, &e))
                })?;
                draft.keep()
            }
            FoundNode::Directory(entries) => {
                std::fs::create_dir(target).map_err(|e| Error::io(target, &e))?;
                for entry in entries {
                    let path = Path::new(entry.cid, "")?;
                    let below = self.runtime.block_on(self.content.resolve(&path, self.reach))?;
                    // A name has no slash in it and is no dots: the reader of directories refuses others.
                    self.write(&below, &target.join(&entry.name), depth.saturating_add(1))?;
                }
                Ok(())
            }
            FoundNode::Symlink(_) => {
                let message = format!("{} is a symbolic link and is left out", target.display());
                self.out.remark(&message);
                Ok(())
            }
        }
    }

    fn print(&mut self, file: (&Cid, u64)) -> Result<()> {
        self.pieces(file, |piece, out| out.raw(piece))
    }

    fn pieces(
        &mut self,
        (cid, bytes): (&Cid, u64),
        mut take: impl FnMut(&[u8], &mut Output) -> Result<()>,
    ) -> Result<()> {
        let mut reader = self.content.read_file(cid, bytes, (0, bytes), self.reach);
        while let Some(piece) = self.runtime.block_on(reader.next())? {
            take(&piece, self.out)?;
            self.bytes = self.bytes.saturating_add(u64::try_from(piece.len()).unwrap_or(0));
            if self.bytes.saturating_sub(self.told_bytes) >= PROGRESS_EVERY_BYTES {
                self.told_bytes = self.bytes;
                self.out.progress(&format!("{} MiB", self.bytes >> 20));
            }
        }
        Ok(())
    }
}
