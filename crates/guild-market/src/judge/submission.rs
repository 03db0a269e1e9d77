//! What somebody delivered: a directory, taken as it stands and within limits.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use guild_protocol::hash::Hash;
use guild_protocol::json;
use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::code;
use crate::{Error, Result};

const MAX_FILES: usize = 2_000;
const MAX_BYTES: usize = 16 << 20;
const MAX_DEPTH: usize = 16;

/// The files of a submission, in memory: nobody can change them any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    files: BTreeMap<String, Vec<u8>>,
}

impl Submission {
    /// These files, by their paths.
    pub fn new(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Submission {
        Submission { files: files.into_iter().collect() }
    }

    /// Reads a directory. Links are refused, never followed; so is everything that is neither a file nor a directory.
    pub fn read(directory: &Path) -> Result<Submission> {
        let mut reader = Reader { top: directory, files: BTreeMap::new(), bytes: 0 };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let top = rustix::fs::open(directory, flags, Mode::empty());
        let top = top.map_err(|errno| reader.failed("", errno))?;
        reader.walk(top, "", 0)?;
        Ok(Submission { files: reader.files })
    }

    /// The files, by their paths.
    pub fn files(&self) -> &BTreeMap<String, Vec<u8>> {
        &self.files
    }

    /// Names it by its content.
    pub fn hash(&self) -> Hash {
        let hashes: BTreeMap<&str, Hash> =
            self.files.iter().map(|(path, bytes)| (path.as_str(), Hash::of(bytes))).collect();
        // Texts and hashes always have a canonical form.
        json::hash(&hashes).unwrap_or_else(|_| Hash::of(b""))
    }

    /// Whether the file is there that the suite starts with.
    pub(super) fn require(&self, entry: &str) -> Result<()> {
        match self.files.contains_key(entry) {
            true => Ok(()),
            false => {
                let why = format!("there is no {entry}, which is the entry of the suite");
                Err(Error::refused(&code::JUDGE_SUBMISSION, why))
            }
        }
    }
}

struct Reader<'a> {
    top: &'a Path,
    files: BTreeMap<String, Vec<u8>>,
    bytes: usize,
}

impl Reader<'_> {
    fn refused(&self, path: &str, why: &str) -> Error {
        let path: PathBuf = if path.is_empty() { self.top.to_owned() } else { self.top.join(path) };
        Error::refused(&code::JUDGE_SUBMISSION, format!("{}: {why}", path.display()))
    }

    fn failed(&self, path: &str, errno: Errno) -> Error {
        match errno {
            // A link that is not followed says so by either.
            Errno::LOOP | Errno::NOTDIR => self.refused(path, "is a link, or no directory"),
            errno => self.refused(path, &std::io::Error::from(errno).to_string()),
        }
    }

    fn walk(&mut self, directory: OwnedFd, above: &str, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(self.refused(above, &format!("is deeper than {MAX_DEPTH} directories")));
        }
        let entries = Dir::read_from(&directory).map_err(|errno| self.failed(above, errno))?;
        for entry in entries {
            let entry = entry.map_err(|errno| self.failed(above, errno))?;
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            let Ok(name) = name.to_str() else {
                return Err(self.refused(above, "holds a name that is not UTF-8"));
            };
            let path = if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") };
            self.take(&directory, name, &path, depth)?;
        }
        Ok(())
    }

    /// Opens without following and without waiting, then looks at what was opened: what is swapped meanwhile is
    /// either refused or read as what it is.
    fn take(&mut self, directory: &OwnedFd, name: &str, path: &str, depth: usize) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(directory, name, flags, Mode::empty());
        let opened = match opened {
            Err(Errno::LOOP) => return Err(self.refused(path, "is a link, which is not followed")),
            opened => opened.map_err(|errno| self.failed(path, errno))?,
        };
        let stat = rustix::fs::fstat(&opened).map_err(|errno| self.failed(path, errno))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.walk(opened, path, depth.saturating_add(1)),
            FileType::RegularFile => self.keep(opened, path),
            _ => Err(self.refused(path, "is neither a file nor a directory")),
        }
    }

    fn keep(&mut self, file: OwnedFd, path: &str) -> Result<()> {
        if self.files.len() >= MAX_FILES {
            return Err(self.refused("", &format!("holds more than {MAX_FILES} files")));
        }
        let left = MAX_BYTES.saturating_sub(self.bytes);
        let mut bytes = Vec::new();
        let one_more = u64::try_from(left).unwrap_or(u64::MAX).saturating_add(1);
        let read = std::fs::File::from(file).take(one_more).read_to_end(&mut bytes);
        read.map_err(|error| self.refused(path, &error.to_string()))?;
        if bytes.len() > left {
            return Err(self.refused("", &format!("holds more than {MAX_BYTES} bytes")));
        }
        self.bytes = self.bytes.saturating_add(bytes.len());
        self.files.insert(path.to_owned(), bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn refusal(directory: &Path) -> String {
        let error = Submission::read(directory).unwrap_err();
        assert_eq!(error.code().name, "judge.bad_submission");
        error.to_string().replace(&directory.display().to_string(), "DIR")
    }

    #[test]
    fn a_directory_is_read_and_named_by_its_content() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("pkg")).unwrap();
        fs::write(top.path().join("pkg/a.py"), "x").unwrap();
        fs::write(top.path().join("b.py"), "y").unwrap();
        let read = Submission::read(top.path()).unwrap();
        assert!(read.files().keys().eq(["b.py", "pkg/a.py"]));
        let same = Submission::new([
            ("pkg/a.py".to_owned(), b"x".to_vec()),
            ("b.py".to_owned(), b"y".to_vec()),
        ]);
        assert_eq!(read.hash(), same.hash());
        fs::write(top.path().join("b.py"), "z").unwrap();
        assert_ne!(Submission::read(top.path()).unwrap().hash(), same.hash());
        assert!(read.require("b.py").is_ok());
        assert!(read.require("c.py").unwrap_err().to_string().contains("no c.py"));
    }

    #[test]
    fn links_lead_nowhere() {
        let top = tempfile::tempdir().unwrap();
        let real = top.path().join("real");
        fs::create_dir(&real).unwrap();
        let link = top.path().join("link");
        symlink("/etc", &link).unwrap();
        assert_eq!(refusal(&link), "DIR: is a link, or no directory");
        symlink("/etc/passwd", real.join("passwd")).unwrap();
        assert_eq!(refusal(&real), "DIR/passwd: is a link, which is not followed");
        fs::remove_file(real.join("passwd")).unwrap();
        symlink("/etc", real.join("etc")).unwrap();
        assert_eq!(refusal(&real), "DIR/etc: is a link, which is not followed");
    }

    #[test]
    fn what_is_no_file_or_too_much_is_refused() {
        let top = tempfile::tempdir().unwrap();
        assert!(refusal(&top.path().join("none")).contains("No such file"));
        let fifo = top.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o644), 0)
            .unwrap();
        assert_eq!(refusal(top.path()), "DIR/fifo: is neither a file nor a directory");
        fs::remove_file(fifo).unwrap();
        let mut deep = top.path().to_owned();
        (0..=MAX_DEPTH).for_each(|_| deep.push("d"));
        fs::create_dir_all(&deep).unwrap();
        assert!(refusal(top.path()).ends_with("is deeper than 16 directories"));
        fs::remove_dir_all(top.path().join("d")).unwrap();
        fs::File::create(top.path().join("large")).unwrap().set_len(MAX_BYTES as u64 + 1).unwrap();
        assert!(refusal(top.path()).ends_with("bytes"));
        fs::remove_file(top.path().join("large")).unwrap();
        (0..=MAX_FILES).for_each(|n| fs::write(top.path().join(n.to_string()), "").unwrap());
        assert!(refusal(top.path()).ends_with("files"));
    }
}
