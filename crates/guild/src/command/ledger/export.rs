//! `guild ledger export`

use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use guild_ledger::evidence::{MAX_LINE_BYTES, Part};
use guild_ledger::export::export;
use guild_ledger::head::Head;
use guild_market::receipts;
use guild_protocol::hash::Hash;
use guild_protocol::json;
use guild_roles::treasury::code;
use guild_store::audit::{self, Entry};
use guild_store::{Error as StoreError, Rx};

use super::read_long;
use crate::command::Context;
use crate::config::Loaded;
use crate::error::{self, Error, Result};
use crate::input::{Draft, Existing};
use crate::keystore::{OWNER_ONLY, make_private_directory};
use crate::output::Answer;

const BUFFER_BYTES: usize = 256 * 1024;
const EVENTS_PER_PAGE: i64 = 500;
const RECEIPTS_PER_PAGE: i64 = 500;

/// Write the whole history of the money, so that strangers can check it
///
/// One JSON object a line, in the form that `guild audit --evidence` reads; docs/formats/evidence.md describes it. It
/// is one moment of the database, also beside a running node. A file gets its name when it is whole, and only its owner
/// can read it.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("place").args(["file", "evidence"]))]
pub(crate) struct Args {
    /// The file to write [default: standard output]
    file: Option<PathBuf>,
    /// Make a directory that `guild audit --evidence` checks, with the audit log, the receipts given and taken and
    /// the keys of the node beside the ledger
    #[arg(long, value_name = "DIR")]
    evidence: Option<PathBuf>,
    /// Replace what is there
    #[arg(long, requires = "place")]
    force: bool,
}

pub(super) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let existing = if args.force { Existing::Replace } else { Existing::Keep };
    match (&args.file, &args.evidence) {
        (None, None) => to_stdout(&loaded, cx)?,
        (Some(file), _) => to_file(file, existing, &loaded, cx)?,
        (None, Some(directory)) => to_directory(directory, existing, &loaded, cx)?,
    }
    Ok(Answer::Yes)
}

/// Counts what goes through, for whoever waits.
struct Counted<W> {
    to: W,
    bytes: Arc<AtomicU64>,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        let more = u64::try_from(written).unwrap_or(u64::MAX);
        self.bytes.fetch_add(more, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn failed(error: impl std::fmt::Display) -> guild_ledger::Error {
    guild_ledger::Error::refused(&code::EXPORT, error.to_string())
}

fn far(bytes: &AtomicU64) -> String {
    format!("exported {} MiB", bytes.load(Ordering::Relaxed) / (1024 * 1024))
}

/// What was written cannot be taken back: if the database goes away in the middle, the output is cut, and says so by
/// the end line that it lacks.
fn to_stdout(loaded: &Loaded, cx: &mut Context<'_>) -> Result<()> {
    let (bytes, gone) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counter, nobody_reads) = (bytes.clone(), gone.clone());
    let written = read_long(
        loaded,
        cx,
        || far(&bytes),
        move |rx| {
            if counter.load(Ordering::Relaxed) > 0 {
                return Err(failed(
                    "the database went away in the middle; what was written is cut",
                ));
            }
            let stdout = Counted { to: Pipe(&nobody_reads), bytes: counter.clone() };
            export(rx, &mut BufWriter::with_capacity(BUFFER_BYTES, stdout))
        },
    );
    match written {
        // The reader has seen enough (`guild ledger export | head`): nothing wrong.
        Err(_) if gone.load(Ordering::Relaxed) => Ok(()),
        written => written.map(|_| ()),
    }
}

/// Standard output, which remembers that nobody reads any more.
struct Pipe<'a>(&'a AtomicBool);

impl Pipe<'_> {
    fn settle<T>(&self, done: io::Result<T>) -> io::Result<T> {
        let broken = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
        if done.as_ref().is_err_and(broken) {
            self.0.store(true, Ordering::Relaxed);
        }
        done
    }
}

impl Write for Pipe<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.settle(io::stdout().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.settle(io::stdout().flush())
    }
}

/// A file that a reading closure writes: from its beginning each time, because the closure may run again.
struct Sheet {
    file: File,
    bytes: Arc<AtomicU64>,
}

impl Sheet {
    fn of(draft: &Draft, bytes: &Arc<AtomicU64>) -> Result<Sheet> {
        Ok(Sheet { file: draft.handle()?, bytes: bytes.clone() })
    }

    fn writer(&self) -> guild_ledger::Result<BufWriter<Counted<&File>>> {
        (&self.file).rewind().and_then(|()| self.file.set_len(0)).map_err(failed)?;
        let counted = Counted { to: &self.file, bytes: self.bytes.clone() };
        Ok(BufWriter::with_capacity(BUFFER_BYTES, counted))
    }
}

fn begin(path: &Path, existing: Existing) -> Result<Draft> {
    Draft::begin(path, OWNER_ONLY, existing).map_err(|error| match error.code() {
        exists if exists == &error::code::IO_EXISTS => {
            error.help("Name another place, or add --force to replace what is there.")
        }
        _ => error,
    })
}

fn to_file(path: &Path, existing: Existing, loaded: &Loaded, cx: &mut Context<'_>) -> Result<()> {
    let draft = begin(path, existing)?;
    let bytes = Arc::new(AtomicU64::new(0));
    let sheet = Sheet::of(&draft, &bytes)?;
    let head = read_long(
        loaded,
        cx,
        || far(&bytes),
        move |rx| {
            sheet.bytes.store(0, Ordering::Relaxed);
            export(rx, &mut sheet.writer()?)
        },
    )?;
    draft.keep()?;
    let bytes = bytes.load(Ordering::Relaxed);
    if cx.out.json() {
        return cx.out.object(
            true,
            serde_json::json!({
                "file": path.display().to_string(),
                "bytes": bytes,
                "last_seq": head.last_seq,
                "head": head.hash.to_string(),
            }),
        );
    }
    cx.out.line(&format!("{}  {bytes} bytes, {} records", path.display(), head.last_seq))?;
    cx.out.line(&format!("head {}", head.hash))
}

fn to_directory(
    path: &Path,
    existing: Existing,
    loaded: &Loaded,
    cx: &mut Context<'_>,
) -> Result<()> {
    let made = prepare(path, existing)?;
    let done = fill(path, existing, loaded, cx);
    if made && done.is_err() {
        // Nothing lies in it; if something does by now, it stays.
        let _ = std::fs::remove_dir(path);
    }
    let Filled { bytes, events, receipts, head } = done?;
    if cx.out.json() {
        return cx.out.object(
            true,
            serde_json::json!({
                "directory": path.display().to_string(),
                "bytes": bytes,
                "events": events,
                "receipts": receipts,
                "last_seq": head.last_seq,
                "head": head.hash.to_string(),
            }),
        );
    }
    let records = head.last_seq;
    cx.out.line(&format!(
        "{}  {bytes} bytes, {records} records, {events} events, {receipts} receipts",
        path.display()
    ))?;
    cx.out.line(&format!("head {}", head.hash))
}

/// Writes the evidence of a node into a directory that is not there yet.
pub(in crate::command) fn write_evidence(
    path: &Path,
    loaded: &Loaded,
    cx: &mut Context<'_>,
) -> Result<()> {
    prepare(path, Existing::Keep)?;
    fill(path, Existing::Keep, loaded, cx).map(|_| ())
}

/// Makes the directory if need be; whether it did. One with something in it is left alone unless it may be replaced.
fn prepare(path: &Path, existing: Existing) -> Result<bool> {
    match std::fs::read_dir(path) {
        Ok(mut inside) => {
            if existing == Existing::Keep && inside.next().is_some() {
                let message = "there is something in this directory already";
                let error = Error::new(&error::code::IO_EXISTS, message).in_file(path);
                return Err(
                    error.help("Name another place, or add --force to replace what is there.")
                );
            }
            Ok(false)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            make_private_directory(path)?;
            Ok(true)
        }
        Err(e) => Err(Error::io(path, &e)),
    }
}

struct Filled {
    bytes: u64,
    events: u64,
    receipts: u64,
    head: Head,
}

/// Everything is of one moment: it is read in one transaction.
fn fill(path: &Path, existing: Existing, loaded: &Loaded, cx: &mut Context<'_>) -> Result<Filled> {
    let draft = |part: Part| begin(&path.join(part.file_name()), existing);
    let (ledger, events) = (draft(Part::Ledger)?, draft(Part::Events)?);
    let bytes = Arc::new(AtomicU64::new(0));
    let (money, log) = (Sheet::of(&ledger, &bytes)?, Sheet::of(&events, &bytes)?);
    let drawer = Drawer::begin(path, existing)?;
    let receipts_at = drawer.temporary.clone();
    let (head, count, receipts, keys) = read_long(
        loaded,
        cx,
        || far(&bytes),
        move |rx| {
            money.bytes.store(0, Ordering::Relaxed);
            let head = export(rx, &mut money.writer()?)?;
            let events = write_events(rx, &mut log.writer()?)?;
            let receipts = write_receipts(rx, &receipts_at)?;
            Ok((head, events, receipts, receipts::keys(rx).map_err(failed)?))
        },
    )?;
    ledger.keep()?;
    events.keep()?;
    drawer.keep(receipts)?;
    // Also without a key: that nobody has dealt yet is something else than not saying who has.
    let draft = draft(Part::Keys)?;
    let written = draft.handle()?.write_all(&keys_document(&keys)?);
    written.map_err(|e| Error::io(path, &e))?;
    draft.keep()?;
    Ok(Filled { bytes: bytes.load(Ordering::Relaxed), events: count, receipts, head })
}

/// The directory of the receipts, under another name until it is whole.
struct Drawer {
    temporary: PathBuf,
    path: PathBuf,
    existing: Existing,
}

impl Drawer {
    fn begin(directory: &Path, existing: Existing) -> Result<Drawer> {
        let name = Part::Receipts.file_name();
        let temporary = directory.join(format!(".{name}.{}.tmp", std::process::id()));
        // Left by a killed process that had our number.
        let _ = std::fs::remove_dir_all(&temporary);
        make_private_directory(&temporary)?;
        Ok(Drawer { temporary, path: directory.join(name), existing })
    }

    /// It is whole and gets its name; without a receipt there is no such directory.
    fn keep(self, receipts: u64) -> Result<()> {
        if self.existing == Existing::Replace
            && self.path.symlink_metadata().is_ok_and(|m| m.is_dir())
        {
            std::fs::remove_dir_all(&self.path).map_err(|e| Error::io(&self.path, &e))?;
        }
        if receipts == 0 {
            return Ok(());
        }
        std::fs::rename(&self.temporary, &self.path).map_err(|e| Error::io(&self.path, &e))
    }
}

impl Drop for Drawer {
    fn drop(&mut self) {
        // Usually it has got its name by now.
        let _ = std::fs::remove_dir_all(&self.temporary);
    }
}

/// Each receipt as a file of its own, named by its id. Written again, should the closure run again.
fn write_receipts(rx: &mut Rx<'_>, directory: &Path) -> guild_ledger::Result<u64> {
    use std::os::unix::fs::OpenOptionsExt;
    let (mut last, mut count): (Option<receipts::Kept>, u64) = (None, 0);
    loop {
        let before = last.as_ref().map(|kept| (kept.at_ms, &kept.receipt_id));
        let page = receipts::page_before(rx, before, RECEIPTS_PER_PAGE).map_err(failed)?;
        for kept in &page {
            let path = directory.join(format!("{}.json", kept.receipt_id));
            let mut options = File::options();
            let file = options.write(true).create(true).truncate(true).mode(OWNER_ONLY).open(path);
            file.and_then(|mut file| file.write_all(kept.text.as_bytes())).map_err(failed)?;
            count += 1;
        }
        match page.into_iter().next_back() {
            Some(kept) => last = Some(kept),
            None => return Ok(count),
        }
    }
}

fn keys_document(keys: &[(String, String)]) -> Result<Vec<u8>> {
    let keys: Vec<_> =
        keys.iter().map(|(role, npub)| serde_json::json!({ "role": role, "npub": npub })).collect();
    let document = serde_json::json!({ "schema_version": "guild.evidence_keys.v1", "keys": keys });
    Ok(json::to_canonical(&document)?)
}

fn write_events(rx: &mut Rx<'_>, out: &mut dyn Write) -> guild_ledger::Result<u64> {
    let (mut after, mut count) = (0, 0);
    loop {
        let page = audit::after(rx, after, EVENTS_PER_PAGE)?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for entry in &page {
            out.write_all(&event_line(entry)?).map_err(failed)?;
            count += 1;
        }
    }
    out.flush().map_err(failed)?;
    Ok(count)
}

/// An entry as a line. Of one that is too long for a line the detail is replaced by its hash.
fn event_line(entry: &Entry) -> guild_ledger::Result<Vec<u8>> {
    let unreadable =
        |e: guild_protocol::Error| StoreError::Decode(format!("audit entry {}: {e}", entry.seq));
    let mut line = json::to_canonical(entry).map_err(unreadable)?;
    if line.len() >= MAX_LINE_BYTES {
        let detail = json::to_canonical(&entry.detail).map_err(unreadable)?;
        let short = serde_json::json!({
            "seq": entry.seq,
            "entry_id": entry.entry_id,
            "at_ms": entry.at_ms,
            "actor": entry.actor,
            "action": entry.action,
            "subject": entry.subject,
            "detail_hash": Hash::of(&detail).to_string(),
        });
        line = json::to_canonical(&short).map_err(unreadable)?;
    }
    line.push(b'\n');
    Ok(line)
}
