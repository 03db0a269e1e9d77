//! Files that a command reads or writes, within limits.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, code};

/// The largest document a command reads whole: as much as the JSON reader takes.
pub(crate) const MAX_DOCUMENT_BYTES: usize = 256 * 1024 * 1024;

/// A file to read; `-` is standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Input(PathBuf);

impl From<std::ffi::OsString> for Input {
    fn from(path: std::ffi::OsString) -> Input {
        Input(path.into())
    }
}

impl Input {
    /// How messages and JSON answers call it.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Whether it is standard input.
    pub(crate) fn is_stdin(&self) -> bool {
        self.0.as_os_str() == "-"
    }

    /// A reader of its bytes. A directory is refused here, not at the first read.
    pub(crate) fn open(&self) -> Result<Box<dyn Read>> {
        if self.is_stdin() {
            return Ok(Box::new(io::stdin().lock()));
        }
        let failed = |e: io::Error| Error::io(&self.0, &e);
        let file = File::open(&self.0).map_err(failed).map_err(|error| match error.code() {
            code if code == &code::IO_NOT_FOUND => {
                error.help("Check the path; - reads from standard input.")
            }
            _ => error,
        })?;
        if file.metadata().map_err(failed)?.is_dir() {
            return Err(Error::new(&code::IO_NOT_A_FILE, "this is a directory").in_file(&self.0));
        }
        Ok(Box::new(file))
    }

    /// All its bytes, at most `max_bytes` of them.
    pub(crate) fn read(&self, max_bytes: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let one_more = u64::try_from(max_bytes).unwrap_or(u64::MAX).saturating_add(1);
        let mut reader = self.open()?.take(one_more);
        reader.read_to_end(&mut bytes).map_err(|e| Error::io(&self.0, &e))?;
        if bytes.len() > max_bytes {
            let message = format!("larger than the limit of {max_bytes} bytes");
            return Err(Error::new(&code::IO_TOO_LARGE, message).in_file(&self.0));
        }
        Ok(bytes)
    }
}

/// What to do when the file to write is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    Keep,
    Replace,
}

/// Writes a file whole or not at all. A file that is replaced passes its mode on; a link stays a link.
pub(crate) fn write_whole(path: &Path, bytes: &[u8], mode: u32, existing: Existing) -> Result<()> {
    let mut draft = Draft::begin(path, mode, existing)?;
    let old = match existing {
        Existing::Keep => None,
        Existing::Replace => draft.path.metadata().ok().map(|m| m.permissions()),
    };
    let written = old
        .map_or(Ok(()), |permissions| draft.file.set_permissions(permissions))
        .and_then(|()| draft.file.write_all(bytes));
    written.map_err(|e| Error::io(path, &e))?;
    draft.keep()
}

/// A file in the making: a temporary neighbour that gets its name when it is whole and on the disk. Dropped before
/// that, nothing is left of it.
pub(crate) struct Draft {
    file: File,
    temporary: PathBuf,
    /// Where it goes: behind a link, if that is replaced.
    path: PathBuf,
    existing: Existing,
}

impl Draft {
    /// Begins one. A file that is there and must stay is refused now, not when all the work is done.
    pub(crate) fn begin(path: &Path, mode: u32, existing: Existing) -> Result<Draft> {
        use std::os::unix::fs::OpenOptionsExt;
        let replaced = match existing {
            Existing::Keep if path.symlink_metadata().is_ok() => {
                let exists = io::Error::from(io::ErrorKind::AlreadyExists);
                return Err(Error::io(path, &exists));
            }
            Existing::Keep => None,
            Existing::Replace => std::fs::canonicalize(path).ok(),
        };
        let path = replaced.unwrap_or_else(|| path.to_owned());
        let name = match path.file_name() {
            Some(name) if !path.is_dir() => name.to_string_lossy().into_owned(),
            _ => {
                let message = "this is a directory, not a file to write";
                return Err(Error::new(&code::IO_NOT_A_FILE, message).in_file(&path));
            }
        };
        let temporary = directory_of(&path).join(format!(".{name}.{}.tmp", std::process::id()));
        // Left by a killed process that had our number; in a container that is every start's number.
        let _ = std::fs::remove_file(&temporary);
        let made = File::options().write(true).create_new(true).mode(mode).open(&temporary);
        let file = made.map_err(|e| Error::io(&path, &e))?;
        Ok(Draft { file, temporary, path, existing })
    }

    /// Where it goes.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Another handle of the file, for whoever writes it.
    pub(crate) fn handle(&self) -> Result<File> {
        self.file.try_clone().map_err(|e| Error::io(&self.path, &e))
    }

    /// It is whole: it goes to the disk and gets its name.
    pub(crate) fn keep(self) -> Result<()> {
        let kept = self
            .file
            .sync_all()
            .and_then(|()| put_in_place(&self.temporary, &self.path, self.existing))
            .and_then(|()| File::open(directory_of(&self.path))?.sync_all());
        kept.map_err(|e| Error::io(&self.path, &e))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Usually it has got its name by now.
        let _ = std::fs::remove_file(&self.temporary);
    }
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

fn put_in_place(from: &Path, to: &Path, existing: Existing) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    if existing == Existing::Replace {
        return std::fs::rename(from, to);
    }
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems cannot rename without replacing; a hard link never replaces either.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            std::fs::hard_link(from, to)?;
            std::fs::remove_file(from)
        }
        renamed => Ok(renamed?),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_only_on_demand_and_keeps_its_mode_and_links() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        write_whole(&file, b"one", 0o600, Existing::Keep).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        for kept in [&file, &link] {
            let refused = write_whole(kept, b"two", 0o600, Existing::Keep).unwrap_err();
            assert_eq!(refused.code(), &code::IO_EXISTS);
            assert_eq!(fs::read(&file).unwrap(), b"one");
        }
        fs::set_permissions(&file, Permissions::from_mode(0o664)).unwrap();
        write_whole(&link, b"two", 0o600, Existing::Replace).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o664);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no temporary file is left");
    }

    #[test]
    fn what_a_killed_process_left_is_in_nobodys_way() {
        let dir = tempfile::tempdir().unwrap();
        let left = dir.path().join(format!(".file.{}.tmp", std::process::id()));
        fs::write(&left, "half").unwrap();
        write_whole(&dir.path().join("file"), b"whole", 0o600, Existing::Keep).unwrap();
        assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"whole");
        assert!(!left.exists());
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let refused = write_whole(Path::new("/nowhere/x"), b"", 0o600, Existing::Keep).unwrap_err();
        assert_eq!((refused.code(), refused.file()), (&code::IO_NOT_FOUND, Some("/nowhere/x")));
    }
}
