//! The files of an evidence directory. What a stranger put there may be anything: links and devices are not opened, no
//! line fills the memory, and nothing is passed over in silence.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use guild_ledger::evidence::{MAX_LINE_BYTES, Part};
use rustix::fs::{Mode, OFlags};

use super::dossier;
use crate::command::Context;
use crate::error::{Error, Result, code};

/// How many files that are not checked are named; the others are counted.
const MAX_NAMED: usize = 100;
/// How often the reader is told how far it is.
const LINES_PER_PROGRESS: u64 = 100_000;
const BUFFER_BYTES: usize = 256 * 1024;

/// What lies in the directory.
pub(super) struct Directory {
    path: PathBuf,
    parts: BTreeSet<Part>,
    receipts: BTreeSet<OsString>,
    not_checked: Vec<String>,
    not_checked_left_out: usize,
}

impl Directory {
    /// Looks what is there. With a dossier beside the ledger, what is the dossier's is left to it.
    pub(super) fn open(path: &Path, has_dossier: bool) -> Result<Directory> {
        let mut directory = Directory {
            path: path.to_owned(),
            parts: BTreeSet::new(),
            receipts: BTreeSet::new(),
            not_checked: Vec::new(),
            not_checked_left_out: 0,
        };
        for name in names(path)? {
            let known = [Part::Ledger, Part::Calls, Part::Receipts, Part::Keys, Part::Events];
            match known.into_iter().find(|part| name == part.file_name()) {
                Some(part) => {
                    directory.parts.insert(part);
                }
                None if has_dossier && name.to_str().is_some_and(dossier::is_place) => {}
                None => directory.leave_out(Path::new(&name)),
            }
        }
        if !directory.has(Part::Ledger) {
            let message = "there is neither a ledger.jsonl nor an evidence.json in this directory";
            return Err(Error::new(&code::AUDIT_NO_LEDGER, message).in_file(path));
        }
        if directory.has(Part::Receipts) {
            directory.find_receipts()?;
        }
        Ok(directory)
    }

    fn find_receipts(&mut self) -> Result<()> {
        let below = self.path.join(Part::Receipts.file_name());
        // Opening it as a directory would follow a link.
        let metadata = below.symlink_metadata().map_err(|e| unreadable(&below, &e))?;
        if !metadata.is_dir() {
            return Err(Error::new(&code::AUDIT_UNREADABLE, "this is no directory").in_file(&below));
        }
        for name in names(&below)? {
            if Path::new(&name).extension() == Some(OsStr::new("json")) {
                self.receipts.insert(name);
            } else {
                self.leave_out(&Path::new(Part::Receipts.file_name()).join(name));
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, name: &Path) {
        if self.not_checked.len() < MAX_NAMED {
            self.not_checked.push(name.display().to_string());
        } else {
            self.not_checked_left_out += 1;
        }
    }

    pub(super) fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    /// The names of the receipts, in order.
    pub(super) fn receipts(&self) -> &BTreeSet<OsString> {
        &self.receipts
    }

    /// The files of other names, in order.
    pub(super) fn not_checked(&self) -> &[String] {
        &self.not_checked
    }

    pub(super) fn not_checked_left_out(&self) -> usize {
        self.not_checked_left_out
    }

    /// The bytes of a receipt; of one that is too long, one byte more than it may have.
    pub(super) fn receipt(&self, name: &OsStr, max_bytes: usize) -> Result<Vec<u8>> {
        read_plain(&self.path.join(Part::Receipts.file_name()).join(name), max_bytes)
    }

    /// The bytes of the file of keys; of one that is too long, one byte more than a line may have.
    pub(super) fn keys(&self) -> Result<Vec<u8>> {
        read_plain(&self.path.join(Part::Keys.file_name()), MAX_LINE_BYTES)
    }

    /// Hands out every line of a part, with its line feed. Of a line that is too long, only the beginning.
    pub(super) fn each_line(
        &self,
        part: Part,
        cx: &mut Context<'_>,
        mut take: impl FnMut(&[u8]),
    ) -> Result<()> {
        if !self.has(part) {
            return Ok(());
        }
        let path = self.path.join(part.file_name());
        let (file, total_bytes) = open_plain(&path)?;
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);
        let (mut line, mut lines, mut done_bytes) = (Vec::new(), 0u64, 0u64);
        loop {
            let count = next_line(&mut reader, &mut line).map_err(|e| unreadable(&path, &e))?;
            if count == 0 {
                return Ok(());
            }
            take(&line);
            lines += 1;
            done_bytes = done_bytes.saturating_add(count);
            if lines.is_multiple_of(LINES_PER_PROGRESS) {
                let percent = done_bytes.saturating_mul(100).checked_div(total_bytes).unwrap_or(0);
                cx.out.progress(&format!("{}: {lines} lines, {percent} %", part.file_name()));
            }
        }
    }
}

/// Reads a line into the buffer, at most one byte more than a line may have, and skips the rest of it. How many bytes
/// it has in the file; none at the end.
fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<u64> {
    line.clear();
    let most = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let read = reader.by_ref().take(most).read_until(b'\n', line)?;
    let mut count = u64::try_from(read).unwrap_or(u64::MAX);
    if count < most || line.ends_with(b"\n") {
        return Ok(count);
    }
    let skipped = reader.skip_until(b'\n')?;
    count = count.saturating_add(u64::try_from(skipped).unwrap_or(u64::MAX));
    Ok(count)
}

/// The bytes of a small file, at most one more than it may have.
fn read_plain(path: &Path, max_bytes: usize) -> Result<Vec<u8>> {
    let (file, _) = open_plain(path)?;
    let mut bytes = Vec::new();
    let most = u64::try_from(max_bytes).unwrap_or(u64::MAX).saturating_add(1);
    file.take(most).read_to_end(&mut bytes).map_err(|e| unreadable(path, &e))?;
    Ok(bytes)
}

/// The names in a directory, sorted.
pub(super) fn names(path: &Path) -> Result<BTreeSet<OsString>> {
    let listed = std::fs::read_dir(path).map_err(|e| unreadable(path, &e))?;
    listed.map(|entry| entry.map(|e| e.file_name()).map_err(|e| unreadable(path, &e))).collect()
}

/// A plain file and its size. It is opened without following a link and without waiting for the other end of a pipe.
fn open_plain(path: &Path) -> Result<(File, u64)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty());
    let file = File::from(file.map_err(|errno| match errno {
        rustix::io::Errno::LOOP => {
            Error::new(&code::AUDIT_UNREADABLE, "this is a link").in_file(path)
        }
        errno => unreadable(path, &errno.into()),
    })?);
    let metadata = file.metadata().map_err(|e| unreadable(path, &e))?;
    if !metadata.is_file() {
        return Err(Error::new(&code::AUDIT_UNREADABLE, "this is no plain file").in_file(path));
    }
    Ok((file, metadata.len()))
}

/// Evidence that is not there is bad input; evidence that is there and cannot be read leaves the question open.
pub(super) fn unreadable(path: &Path, error: &io::Error) -> Error {
    let named = Error::io(path, error);
    if named.code() == &code::IO_NOT_FOUND {
        return named;
    }
    Error::new(&code::AUDIT_UNREADABLE, named.message()).in_file(path)
}
