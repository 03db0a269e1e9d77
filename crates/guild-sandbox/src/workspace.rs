//! The files of a sandbox, seen from outside, while strangers may change them at any moment.
//!
//! No path is ever walked twice: every step goes from a descriptor to the next one ([`place`]), never through a link,
//! to another file system, or above the workspace. What is opened is looked at before it is read.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use guild_protocol::hash::{Hash, Hasher};
use rustix::fs::{AtFlags, FileType, Mode};

use crate::error::{Error, Result, Step};

mod archive;
mod place;
mod tar;

pub use archive::{UnpackLimits, Unpacked};
use place::{Actor, Directory, fail};

/// How deep directories may be nested.
const MAX_DEPTH: usize = 64;
/// How many files and directories are listed, walked or packed at once.
const MAX_ENTRIES: usize = 100_000;
const PIECE_BYTES: usize = 64 << 10;

/// The directory `/workspace` of a sandbox, from outside: while it runs, and after its end, as long as this or a clone
/// of it is kept.
///
/// Paths are relative to it, as `dir/file`: without `.`, `..`, empty parts or zero bytes; the top itself is `""`.
/// Everything is done as the sandbox's own user, within the sandbox's disk.
#[derive(Debug, Clone)]
pub struct Workspace {
    top: Arc<OwnedFd>,
    actor: Actor,
}

/// What is at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, which is never followed.
    Link,
    /// A pipe or a socket.
    Other,
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name; what is not UTF-8 in it is replaced.
    pub name: String,
    /// What is there.
    pub kind: EntryKind,
    /// Its length.
    pub size: u64,
    /// Whether its owner may execute it.
    pub executable: bool,
}

/// A regular file, by its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Where it is.
    pub path: String,
    /// Its length.
    pub size: u64,
    /// Whether its owner may execute it.
    pub executable: bool,
    /// The hash of its bytes.
    pub sha256: Hash,
}

/// A file that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Its length.
    pub size: u64,
    /// The hash of its bytes.
    pub sha256: Hash,
}

impl Workspace {
    pub(crate) fn new(top: OwnedFd) -> Result<Workspace> {
        let actor = Actor::owner_of(&top).step("look at the workspace")?;
        Ok(Workspace { top: Arc::new(top), actor })
    }

    fn top(&self) -> Directory<'_> {
        Directory::top(&self.top)
    }

    /// Opens a regular file to read it. Nothing else is ever waited for.
    pub fn open_read(&self, path: &str) -> Result<File> {
        place::check(path)?;
        let _acting = self.actor.act()?;
        let (file, _) = self.top().open_file(path)?;
        Ok(file)
    }

    /// Reads a regular file that has at most so many bytes.
    pub fn read(&self, path: &str, max_bytes: u64) -> Result<Vec<u8>> {
        let file = self.open_read(path)?;
        let mut bytes = Vec::new();
        let read = file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes);
        read.step("read a file of the workspace")?;
        match u64::try_from(bytes.len()) {
            Ok(size) if size <= max_bytes => Ok(bytes),
            _ => Err(too_large(path, max_bytes)),
        }
    }

    /// Writes a file as a whole: whoever looks sees the old one or the new one. Directories above it are made.
    ///
    /// The mode is that of the file, as `0o644`; more than `0o777` is refused.
    pub fn write(
        &self,
        path: &str,
        mode: u32,
        mut from: impl Read,
        max_bytes: u64,
    ) -> Result<Written> {
        place::check(path)?;
        if mode & !0o777 != 0 {
            return Err(Error::spec("mode", format!("{mode:o} is more than 777")));
        }
        let (above, name) = place::split(path);
        let acting = self.actor.act()?;
        let above = self.top().make(above)?;
        let (file, temporary) = above.make_temporary()?;
        drop(acting);
        // What is given is read by whoever asked, not by the sandbox's user.
        let copied = copy(&mut from, &file, path, max_bytes);
        let _acting = self.actor.act()?;
        let written = copied.and_then(|written| {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)).map_err(|e| fail(path, e))?;
            rustix::fs::renameat(above.fd(), &temporary, above.fd(), name)
                .map_err(|e| fail(path, e))?;
            Ok(written)
        });
        if written.is_err() {
            // The sandbox may have removed it.
            let _ = rustix::fs::unlinkat(above.fd(), &temporary, AtFlags::empty());
        }
        written
    }

    /// The names in a directory, in their order; an error if there are very many.
    pub fn list(&self, path: &str) -> Result<Vec<Entry>> {
        place::check_directory(path)?;
        let _acting = self.actor.act()?;
        let directory = self.top().open_directory(path)?;
        let mut entries = Vec::new();
        for name in directory.names(MAX_ENTRIES)? {
            // Whoever is gone since is not there.
            let Ok(stat) = rustix::fs::statat(directory.fd(), &name, AtFlags::SYMLINK_NOFOLLOW)
            else {
                continue;
            };
            let kind = match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => EntryKind::File,
                FileType::Directory => EntryKind::Directory,
                FileType::Symlink => EntryKind::Link,
                _ => EntryKind::Other,
            };
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            let executable = kind == EntryKind::File && stat.st_mode & 0o100 != 0;
            let name = name.to_string_lossy().into_owned();
            entries.push(Entry { name, kind, size, executable });
        }
        Ok(entries)
    }

    /// Removes what is at a path: a directory with everything in it, a link itself and never what it leads to.
    pub fn remove(&self, path: &str) -> Result<()> {
        place::check(path)?;
        let _acting = self.actor.act()?;
        let (above, name) = place::split(path);
        let above = self.top().open_directory(above)?;
        above.remove(std::ffi::OsStr::new(name), path, 0)
    }

    /// All regular files by their content, in the order of their paths. Links, pipes and sockets are passed over; a
    /// name that is not UTF-8, files that claim to be larger than the disk, and too many or too deep ones are errors.
    pub fn walk(&self) -> Result<Vec<Artifact>> {
        let mut artifacts = Vec::new();
        self.visit(&self.top(), &mut |path, item| {
            if let Item::File { file, size, executable } = item {
                let mut hasher = Hasher::new();
                let size = pieces(&mut file.take(size), |piece| {
                    hasher.update(piece);
                    Ok(())
                })?;
                let (path, sha256) = (path.to_owned(), hasher.finish());
                artifacts.push(Artifact { path, size, executable, sha256 });
            }
            Ok(())
        })?;
        artifacts.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(artifacts)
    }

    /// Shows all directories and regular files below one. What they claim to hold is never more than the disk.
    fn visit(
        &self,
        directory: &Directory<'_>,
        show: &mut dyn FnMut(&str, Item) -> Result<()>,
    ) -> Result<()> {
        let disk = rustix::fs::fstatfs(&*self.top).step("look at the disk")?;
        let block = u64::try_from(disk.f_bsize).unwrap_or(0);
        let left_bytes = disk.f_blocks.saturating_mul(block);
        let mut visit = Visit { actor: &self.actor, show, left_bytes, left_entries: MAX_ENTRIES };
        visit.directory(directory, "", 0)
    }
}

/// Something that is visited.
enum Item {
    Directory,
    File { file: File, size: u64, executable: bool },
}

struct Visit<'a> {
    actor: &'a Actor,
    show: &'a mut dyn FnMut(&str, Item) -> Result<()>,
    left_bytes: u64,
    left_entries: usize,
}

impl Visit<'_> {
    fn directory(&mut self, directory: &Directory<'_>, prefix: &str, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(too_many(prefix));
        }
        let names = {
            let _acting = self.actor.act()?;
            directory.names(self.left_entries)?
        };
        self.left_entries = self.left_entries.saturating_sub(names.len());
        for name in names {
            let Some(name) = name.to_str() else {
                let path = format!("{prefix}{}", name.to_string_lossy());
                return Err(place::bad(&path, "the name is not UTF-8"));
            };
            self.name(directory, name, &format!("{prefix}{name}"), depth)?;
        }
        Ok(())
    }

    fn name(&mut self, above: &Directory<'_>, name: &str, path: &str, depth: usize) -> Result<()> {
        let acting = self.actor.act()?;
        let Ok(stat) = rustix::fs::statat(above.fd(), name, AtFlags::SYMLINK_NOFOLLOW) else {
            return Ok(());
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let (file, stat) = above.open_file(name)?;
                drop(acting);
                let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
                // A file with holes can claim any length.
                self.left_bytes = self.left_bytes.checked_sub(size).ok_or_else(|| {
                    let why = "the files claim to hold more than the disk".to_owned();
                    Error::TooLarge { path: path.to_owned(), why }
                })?;
                let executable = stat.st_mode & 0o100 != 0;
                (self.show)(path, Item::File { file, size, executable })
            }
            FileType::Directory => {
                let directory = above.open_directory(name)?;
                drop(acting);
                (self.show)(path, Item::Directory)?;
                self.directory(&directory, &format!("{path}/"), depth + 1)
            }
            _ => Ok(()),
        }
    }
}

/// Copies until the end, at most so many bytes.
fn copy(from: &mut impl Read, mut to: &File, path: &str, max_bytes: u64) -> Result<Written> {
    let mut hasher = Hasher::new();
    let mut left = max_bytes;
    let size = pieces(from, |piece| {
        let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
        left = left.checked_sub(length).ok_or_else(|| too_large(path, max_bytes))?;
        hasher.update(piece);
        to.write_all(piece).map_err(|error| match error.raw_os_error() {
            Some(errno) => fail(path, rustix::io::Errno::from_raw_os_error(errno)),
            None => Error::failed("write a file of the workspace", error),
        })
    })?;
    Ok(Written { size, sha256: hasher.finish() })
}

/// Reads to the end, piece by piece, and says how much that was.
fn pieces(from: &mut impl Read, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<u64> {
    let mut room = vec![0; PIECE_BYTES];
    let mut all = 0u64;
    loop {
        match from.read(&mut room) {
            Ok(0) => return Ok(all),
            Ok(count) => {
                each(room.get(..count).unwrap_or_default())?;
                all = all.saturating_add(u64::try_from(count).unwrap_or(0));
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::failed("read", error)),
        }
    }
}

fn too_large(path: &str, max_bytes: u64) -> Error {
    Error::TooLarge { path: path.to_owned(), why: format!("it has more than {max_bytes} bytes") }
}

fn too_many(path: &str) -> Error {
    let why = format!("there are more than {MAX_ENTRIES} files, or directories {MAX_DEPTH} deep");
    Error::TooLarge { path: place::cut(path), why }
}
