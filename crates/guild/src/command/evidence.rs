//! `guild evidence`

use std::path::{Path, PathBuf};

use guild_market::dossier::{self, About, Gathered, MANIFEST};
use serde::Serialize;

use super::{Context, ledger};
use crate::config::Loaded;
use crate::error::{self, Error, Result};
use crate::input::{Existing, write_whole};
use crate::keystore::{OWNER_ONLY, make_private_directory};
use crate::node;
use crate::output::{Answer, lossy};
use crate::real::runtime;

/// Show strangers what became of some work
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Export(ExportArgs),
}

/// Write everything about some work into a directory that anybody can check, offline
///
/// The signed request, what was answered, the verdict, the receipt, the commit of the ledger in which was paid, the
/// replay and the reviews that cite it; of a delegation all replicas with their votes, and of a trial the tests that it
/// was judged by. `guild audit --evidence DIR` checks it, without a node, a key or a network. Works beside a running
/// node. Of an order that is a part of a delegation the whole delegation is written.
///
/// Of private work it tells what was asked and answered, so it wants --reveal-private. It never holds a secret key, and
/// of the ledger nothing but that commit, unless --with-ledger is given.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// The id of a request, an order (`order_…`) or a delegation (`delegation_…`)
    #[arg(value_name = "REQUEST")]
    about: About,
    /// The directory to write into; it may be there, and empty [default: evidence- and the id]
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Write it although the work is private: what was asked and answered is then told to whoever gets the directory
    #[arg(long)]
    reveal_private: bool,
    /// Put the whole ledger beside it, with the audit log, all receipts and the keys, as `guild ledger export
    /// --evidence` does
    #[arg(long)]
    with_ledger: bool,
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(serialize_with = "lossy")]
    directory: &'a Path,
    about: &'a str,
    requests: usize,
    reviews: usize,
    private: bool,
    files: usize,
    bytes: usize,
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    let Command::Export(args) = command;
    let loaded = cx.config()?;
    let gathered = gather(&loaded, &args.about, args.reveal_private)?;
    let directory = args.to.clone().unwrap_or_else(|| default_directory(&gathered));
    refuse_filled(&directory)?;
    if args.with_ledger {
        ledger::write_evidence(&directory, &loaded, cx)?;
    }
    write(&directory, &gathered)?;
    told(&directory, &gathered, cx)?;
    Ok(Answer::Yes)
}

/// The evidence of some work, read beside whoever writes.
pub(super) fn gather(loaded: &Loaded, about: &About, reveal_private: bool) -> Result<Gathered> {
    let service = node::open_read_only(loaded)?;
    let about = about.clone();
    let read = service.handle().read(move |rx| dossier::gather(rx, &about, reveal_private));
    let gathered = runtime().map(|runtime| runtime.block_on(read));
    service.close();
    Ok(gathered??)
}

fn default_directory(gathered: &Gathered) -> PathBuf {
    PathBuf::from(format!("evidence-{}", gathered.manifest.about))
}

/// What lies there already must not pass for evidence.
fn refuse_filled(directory: &Path) -> Result<()> {
    let is_filled = match std::fs::read_dir(directory) {
        Ok(mut inside) => inside.next().is_some(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => false,
        Err(e) => return Err(Error::io(directory, &e)),
    };
    if !is_filled {
        return Ok(());
    }
    let message = "there is something in this directory already";
    let error = Error::new(&error::code::IO_EXISTS, message).in_file(directory);
    Err(error.help("Name another place with --to."))
}

/// The file that names the others comes last: a directory without it was not written to its end.
fn write(directory: &Path, gathered: &Gathered) -> Result<()> {
    make_private_directory(directory)?;
    let last = gathered.files.get_key_value(MANIFEST);
    let others = gathered.files.iter().filter(|(path, _)| *path != MANIFEST);
    for (path, bytes) in others.chain(last) {
        let path = directory.join(path);
        if let Some(parent) = path.parent() {
            make_private_directory(parent)?;
        }
        // A receipt may lie there with the whole ledger: it is the same.
        write_whole(&path, bytes, OWNER_ONLY, Existing::Replace)?;
    }
    Ok(())
}

fn told(directory: &Path, gathered: &Gathered, cx: &mut Context<'_>) -> Result<()> {
    let manifest = &gathered.manifest;
    let body = Body {
        directory,
        about: &manifest.about,
        requests: manifest.works.len(),
        reviews: manifest.reviews.len(),
        private: manifest.private,
        files: gathered.files.len(),
        bytes: gathered.files.values().map(Vec::len).sum(),
    };
    if cx.out.json() {
        return cx.out.object(true, body);
    }
    let Body { requests, reviews, files, bytes, .. } = body;
    cx.out.line(&format!(
        "{}  {files} files, {bytes} bytes, {requests} requests, {reviews} reviews",
        directory.display()
    ))?;
    if manifest.private {
        cx.out.remark(
            "it was private work: the directory tells what was asked and what was answered",
        );
    }
    cx.out.remark(&format!("guild audit --evidence {} checks it", directory.display()));
    Ok(())
}
