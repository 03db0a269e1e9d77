//! What is to be added: files and directories, and a body that carries them to a node.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, code};

/// The most that is added at once.
const ITEMS_MAX: usize = 100_000;
/// The most directories in each other.
const DEPTH_MAX: usize = 32;

/// One thing to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    /// Its path below what is added, from the name of that on.
    pub(super) names: Vec<String>,
    /// The file; none for a directory.
    pub(super) file: Option<PathBuf>,
    pub(super) bytes: u64,
}

/// Finds all files and directories below these paths, in the order of their names.
pub(super) fn gather(paths: &[PathBuf], hidden: bool) -> Result<Vec<Item>> {
    let mut items = Vec::new();
    for path in paths {
        let whole = std::fs::canonicalize(path).map_err(|e| Error::io(path, &e))?;
        let name = name_of(&whole)?;
        let about = std::fs::metadata(&whole).map_err(|e| Error::io(path, &e))?;
        visit(&whole, vec![name], &about, hidden, &mut items)?;
    }
    Ok(items)
}

fn visit(
    path: &Path,
    names: Vec<String>,
    about: &Metadata,
    hidden: bool,
    items: &mut Vec<Item>,
) -> Result<()> {
    if items.len() >= ITEMS_MAX || names.len() > DEPTH_MAX {
        let message = format!(
            "more than {ITEMS_MAX} files and directories, or {DEPTH_MAX} directories in each other"
        );
        return Err(Error::new(&code::USAGE, message).in_file(path));
    }
    if about.is_file() {
        let (file, bytes) = (Some(path.to_owned()), about.len());
        items.push(Item { names, file, bytes });
        return Ok(());
    }
    if !about.is_dir() {
        let message = "only files and directories can be added, no links and nothing else";
        return Err(Error::new(&code::IO_NOT_A_FILE, message).in_file(path));
    }
    items.push(Item { names: names.clone(), file: None, bytes: 0 });
    let failed = |e: io::Error| Error::io(path, &e);
    let mut below = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        below.push(entry.map_err(failed)?.path());
    }
    below.sort();
    for path in below {
        let name = name_of(&path)?;
        if name.starts_with('.') && !hidden {
            continue;
        }
        let about = std::fs::symlink_metadata(&path).map_err(|e| Error::io(&path, &e))?;
        visit(&path, [names.as_slice(), &[name]].concat(), &about, hidden, items)?;
    }
    Ok(())
}

fn name_of(path: &Path) -> Result<String> {
    let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let nameless = || {
        let message = "it has no name, or one that is not UTF-8";
        Error::new(&code::USAGE, message).in_file(path)
    };
    name.ok_or_else(nameless)
}

/// The items as the parts of a body. Files are opened when it is their turn, so a body may be of any size.
pub(super) struct Parts<'a, T> {
    items: VecDeque<&'a Item>,
    /// What stands between the files.
    between: VecDeque<u8>,
    open: Option<File>,
    boundary: &'a str,
    ended: bool,
    /// Hears how many bytes of files were read.
    told: T,
}

impl<'a, T: FnMut(usize)> Parts<'a, T> {
    pub(super) fn new(items: &'a [Item], boundary: &'a str, told: T) -> Parts<'a, T> {
        let (items, between) = (items.iter().collect(), VecDeque::new());
        Parts { items, between, open: None, boundary, ended: false, told }
    }

    /// Goes on to the next file; whether there is still something to read.
    fn turn(&mut self) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        let Some(item) = self.items.pop_front() else {
            self.ended = true;
            self.between.extend(format!("--{}--\r\n", self.boundary).bytes());
            return Ok(true);
        };
        let name = super::encoded(&item.names.join("/"));
        let what = match item.file {
            Some(_) => "application/octet-stream",
            None => "application/x-directory",
        };
        let head = format!(
            "--{}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
             Content-Type: {what}\r\n\r\n",
            self.boundary
        );
        self.between.extend(head.bytes());
        match &item.file {
            Some(path) => self.open = Some(File::open(path)?),
            None => self.between.extend(b"\r\n"),
        }
        Ok(true)
    }
}

impl<T: FnMut(usize)> Read for Parts<'_, T> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.between.is_empty() {
                return self.between.read(into);
            }
            if let Some(file) = &mut self.open {
                let read = file.read(into)?;
                if read > 0 || into.is_empty() {
                    (self.told)(read);
                    return Ok(read);
                }
                self.open = None;
                self.between.extend(b"\r\n");
                continue;
            }
            if !self.turn()? {
                return Ok(0);
            }
        }
    }
}
