//! The evidence of one piece of work: its files, and what was found of them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use guild_ledger::evidence::Part;
use guild_market::dossier::{
    DIRECTORIES, FILE_MAX_BYTES, FILES_MAX, Folder, Found, MANIFEST, Options, Report,
    TOTAL_MAX_BYTES, check,
};
use guild_protocol::schema::Registry;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;

use super::directory::{names, unreadable};
use crate::command::Context;
use crate::error::Result;
use crate::output::lossy;

/// How many files that are not checked are named.
const MAX_NAMED: usize = 100;

/// A directory with an `evidence.json`.
pub(super) struct Dossier {
    path: PathBuf,
    report: Report,
}

/// Whether there is one in this directory, whatever it is.
pub(super) fn is_there(path: &Path) -> bool {
    path.join(MANIFEST).symlink_metadata().is_ok()
}

impl Dossier {
    /// Looks at one. `beside_ledger` says that what else lies there is checked as the evidence of a whole node.
    pub(super) fn check(path: &Path, beside_ledger: bool, rerun: bool) -> Result<Dossier> {
        let folder = read(path)?;
        let registry = Registry::builtin();
        let mut report = check(&folder, Options { registry: &registry, rerun });
        if beside_ledger {
            report.not_checked.retain(|path| !is_of_node(path));
        }
        Ok(Dossier { path: path.to_owned(), report })
    }

    pub(super) fn holds(&self) -> bool {
        self.report.holds()
    }
}

/// Whether a file belongs to the evidence of a node.
fn is_of_node(path: &str) -> bool {
    let parts = [Part::Ledger, Part::Calls, Part::Receipts, Part::Keys, Part::Events];
    let first = path.split('/').next().unwrap_or(path);
    parts.iter().any(|part| part.file_name() == first)
}

/// Whether a name at the root belongs to a dossier.
pub(super) fn is_place(name: &str) -> bool {
    name == MANIFEST || DIRECTORIES.contains(&name)
}

/// The files, as far as a dossier may have some. Links are not followed, and nothing fills the memory.
fn read(path: &Path) -> Result<Folder> {
    let mut reader = Reader { root: path, folder: Folder::new(), left_bytes: TOTAL_MAX_BYTES };
    for name in names(path)? {
        let shown = name.to_string_lossy().into_owned();
        let below = path.join(&name);
        let is_directory = below.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
        match (DIRECTORIES.contains(&shown.as_str()), is_directory) {
            (true, true) => reader.directory(&shown, names(&below)?)?,
            (true, false) => reader.folder.put(shown, Found::NotPlain),
            (false, _) if shown == MANIFEST => reader.file(&shown)?,
            // Named, and not opened.
            (false, _) => reader.folder.put(shown, Found::NotPlain),
        }
    }
    Ok(reader.folder)
}

struct Reader<'a> {
    root: &'a Path,
    folder: Folder,
    left_bytes: usize,
}

impl Reader<'_> {
    fn directory(&mut self, directory: &str, names: BTreeSet<OsString>) -> Result<()> {
        for (at, name) in names.into_iter().enumerate() {
            let path = format!("{directory}/{}", name.to_string_lossy());
            match at < FILES_MAX {
                true => self.file(&path)?,
                false => self.folder.put(path, Found::TooLarge),
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &str) -> Result<()> {
        let found = open(&self.root.join(path), FILE_MAX_BYTES.min(self.left_bytes))?;
        if let Found::Whole(bytes) = &found {
            self.left_bytes = self.left_bytes.saturating_sub(bytes.len());
        }
        self.folder.put(path, found);
        Ok(())
    }
}

/// A file as it is. It is opened without following a link and without waiting for the other end of a pipe.
fn open(path: &Path, max_bytes: usize) -> Result<Found> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::LOOP | Errno::NXIO) => return Ok(Found::NotPlain),
        // A name that was not written as it is shown.
        Err(Errno::NOENT) => return Ok(Found::NotPlain),
        Err(errno) => return Err(unreadable(path, &errno.into())),
    };
    let metadata = file.metadata().map_err(|e| unreadable(path, &e))?;
    if !metadata.is_file() {
        return Ok(Found::NotPlain);
    }
    let most = u64::try_from(max_bytes).unwrap_or(u64::MAX);
    if metadata.len() > most {
        return Ok(Found::TooLarge);
    }
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(|e| unreadable(path, &e))?;
    Ok(if bytes.len() > max_bytes { Found::TooLarge } else { Found::Whole(bytes) })
}

pub(super) fn text(one: &Dossier, cx: &mut Context<'_>) -> Result<()> {
    let Dossier { path, report } = one;
    let verdict = if report.holds() { "holds" } else { "does NOT hold" };
    let about = report.about.as_deref().unwrap_or("nobody knows what");
    cx.out.line(&format!("{}: the evidence of {about} {verdict}", path.display()))?;
    if let Some(buyer) = &report.buyer {
        cx.out.line(&format!("  buyer        {buyer}"))?;
    }
    let mut names: Vec<&str> = Vec::new();
    for check in &report.checks {
        if !names.contains(&check.name) {
            names.push(check.name);
        }
    }
    for name in names {
        let count = report.count(name);
        match count.problems {
            0 => cx.out.line(&format!("  ok           {name:<12}  {}", count.checked))?,
            problems => cx.out.line(&format!(
                "  FAILED       {name:<12}  {}, {problems} problems",
                count.checked
            ))?,
        }
    }
    for note in &report.notes {
        cx.out.line(&format!("  not shown    {note}"))?;
    }
    for name in report.not_checked.iter().take(MAX_NAMED) {
        cx.out.line(&format!("  not checked  {name}"))?;
    }
    let more = report.not_checked.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        cx.out.line(&format!("  not checked  (and {more} more)"))?;
    }
    if !report.holds() {
        cx.out.line("")?;
    }
    for (check, problem) in report.problems() {
        cx.out.line(&format!("  {} {}: {}", check.name, check.of, problem.message))?;
        cx.out.line(&format!("      [{}] {}", problem.code.name, problem.code.meaning))?;
    }
    if report.problems_left_out > 0 {
        cx.out.line(&format!("  (and {} more)", report.problems_left_out))?;
    }
    Ok(())
}

#[derive(Serialize)]
pub(super) struct Body<'a> {
    #[serde(serialize_with = "lossy")]
    directory: &'a Path,
    holds: bool,
    about: Option<&'a str>,
    buyer: Option<&'a str>,
    checks: Vec<CheckBody<'a>>,
    problems_left_out: u64,
    notes: &'a [String],
    not_checked: &'a [String],
    not_checked_left_out: usize,
}

#[derive(Serialize)]
struct CheckBody<'a> {
    check: &'static str,
    of: &'a str,
    ok: bool,
    code: Option<&'static str>,
    message: Option<&'a str>,
}

impl<'a> Body<'a> {
    pub(super) fn of(one: &'a Dossier) -> Body<'a> {
        let Dossier { path, report } = one;
        let named = report.not_checked.len().min(MAX_NAMED);
        let checks = report.checks.iter().map(|check| CheckBody {
            check: check.name,
            of: &check.of,
            ok: check.problem.is_none(),
            code: check.problem.as_ref().map(|problem| problem.code.name),
            message: check.problem.as_ref().map(|problem| problem.message.as_str()),
        });
        Body {
            directory: path,
            holds: report.holds(),
            about: report.about.as_deref(),
            buyer: report.buyer.as_deref(),
            checks: checks.collect(),
            problems_left_out: report.problems_left_out,
            notes: &report.notes,
            not_checked: report.not_checked.get(..named).unwrap_or_default(),
            not_checked_left_out: report.not_checked.len().saturating_sub(named),
        }
    }
}
