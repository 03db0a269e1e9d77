//! Steps in a directory that strangers change meanwhile, each from a descriptor, as the user that owns it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, openat2};
use rustix::io::Errno;

use super::{MAX_DEPTH, too_many};
use crate::error::{Error, Result, Step};
use crate::sys;

const MAX_PATH_BYTES: usize = 4_000;
const MAX_NAME_BYTES: usize = 255;
/// How much of a path is worth repeating.
const MAX_SHOWN: usize = 200;
/// How many names are tried for something new.
const MAX_NAMES: usize = 100_000;
/// How often an open is tried that something disturbs.
const MAX_TRIES: usize = 8;

/// Opening so waits for nobody.
const READING: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW).union(OFlags::NOCTTY);

/// Never above, through a link, into another file system.
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

pub(super) fn cut(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}

pub(super) fn bad(path: &str, why: &str) -> Error {
    Error::BadPath { path: cut(path), why: why.to_owned() }
}

/// What is wrong with a path, if it is not a plain one.
pub(super) fn wrong(path: &str) -> Option<&'static str> {
    let part = |part: &str| match part {
        "" => Some("a part of it is empty"),
        "." | ".." => Some("it has a part that is no name"),
        name if name.len() > MAX_NAME_BYTES => Some("a name in it is too long"),
        _ => None,
    };
    if path.starts_with('/') {
        return Some("it is not relative");
    }
    if path.contains('\0') {
        return Some("there is a zero byte in it");
    }
    if path.len() > MAX_PATH_BYTES {
        return Some("it is too long");
    }
    if path.split('/').count() > MAX_DEPTH {
        return Some("it is too deep");
    }
    path.split('/').find_map(part)
}

/// A path to something in the workspace.
pub(super) fn check(path: &str) -> Result<()> {
    wrong(path).map_or(Ok(()), |why| Err(bad(path, why)))
}

/// A path to a directory, which may be the workspace itself.
pub(super) fn check_directory(path: &str) -> Result<()> {
    if path.is_empty() { Ok(()) } else { check(path) }
}

/// The directory above, empty if it is the top, and the name.
pub(super) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// What the kernel said about a path.
pub(super) fn fail(path: &str, errno: Errno) -> Error {
    let shown = || cut(path);
    let kind = |why: &str| Error::NotAFile { path: shown(), why: why.to_owned() };
    match errno {
        Errno::NOENT => Error::NoFile { path: shown() },
        Errno::LOOP => bad(path, "it leads through a link"),
        Errno::XDEV => bad(path, "it leads out of the workspace"),
        Errno::NAMETOOLONG => bad(path, "it is too long"),
        Errno::NOTDIR => kind("something that is no directory is in the way"),
        Errno::ISDIR | Errno::EXIST | Errno::NOTEMPTY => kind("a directory is there"),
        Errno::NXIO => kind("it is no regular file"),
        Errno::AGAIN => kind("a program in the sandbox keeps it busy"),
        Errno::ACCESS | Errno::PERM => kind("the sandbox's own user may not"),
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => {
            let why = "the disk of the sandbox is full".to_owned();
            Error::TooLarge { path: shown(), why }
        }
        errno => Error::failed(format!("reach {:?}", shown()), std::io::Error::from(errno)),
    }
}

/// Who does it: the sandbox's own user. Root has no number in a sandbox's file system, and should have no say in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Actor {
    /// If we are somebody else.
    other: Option<(u32, u32)>,
}

/// While it lives, this thread is the actor for the file system. It stays on its thread.
pub(super) struct Acting {
    back: Option<(u32, u32)>,
    _stays: PhantomData<*const ()>,
}

impl Actor {
    pub(super) fn owner_of(directory: &OwnedFd) -> rustix::io::Result<Actor> {
        let stat = rustix::fs::fstat(directory)?;
        let own = rustix::process::geteuid();
        let other = own.is_root() && stat.st_uid != own.as_raw();
        Ok(Actor { other: other.then_some((stat.st_uid, stat.st_gid)) })
    }

    pub(super) fn act(&self) -> Result<Acting> {
        let back = match self.other {
            Some(ids) => Some(sys::act_as(ids).step("act as the sandbox's user")?),
            None => None,
        };
        Ok(Acting { back, _stays: PhantomData })
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        if let Some(ids) = self.back {
            // Coming back to what one may be anyway does not fail.
            let _ = sys::act_as(ids);
        }
    }
}

/// A directory that is open.
pub(super) enum Directory<'a> {
    Top(&'a OwnedFd),
    Below(OwnedFd),
}

impl<'a> Directory<'a> {
    pub(super) fn top(top: &'a OwnedFd) -> Directory<'a> {
        Directory::Top(top)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Directory::Top(fd) => fd.as_fd(),
            Directory::Below(fd) => fd.as_fd(),
        }
    }

    fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        let mut tries = 0;
        loop {
            tries += 1;
            match openat2(self.fd(), path, flags, Mode::empty(), RESOLVE) {
                Ok(fd) => return Ok(fd),
                Err(Errno::AGAIN | Errno::INTR) if tries < MAX_TRIES => {}
                Err(errno) => return Err(fail(path, errno)),
            }
        }
    }

    /// Opens a regular file. Opening waits for nobody: not for the other end of a pipe, not for whoever has a lease.
    pub(super) fn open_file(&self, path: &str) -> Result<(File, Stat)> {
        let fd = self.open(path, READING)?;
        let stat = rustix::fs::fstat(&fd).map_err(|errno| fail(path, errno))?;
        let why = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => return Ok((File::from(fd), stat)),
            FileType::Directory => "it is a directory",
            FileType::Fifo => "it is a pipe",
            _ => "it is no regular file",
        };
        Err(Error::NotAFile { path: cut(path), why: why.to_owned() })
    }

    /// Opens a directory below; the same one if the path is empty.
    pub(super) fn open_directory(&self, path: &str) -> Result<Directory<'static>> {
        let path = if path.is_empty() { "." } else { path };
        let fd = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Directory::Below(fd))
    }

    /// Opens a directory below, and makes it and those above it if they are not there.
    pub(super) fn make(&self, path: &str) -> Result<Directory<'static>> {
        let mut at = self.open_directory("")?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            match rustix::fs::mkdirat(at.fd(), name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(fail(path, errno)),
            }
            at = at.open_directory(name)?;
        }
        Ok(at)
    }

    /// A new empty file that only its owner can read, with a name that nobody else has.
    pub(super) fn make_temporary(&self) -> Result<(File, String)> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let open = |name: &str| rustix::fs::openat(self.fd(), name, flags | OFlags::NOFOLLOW, mode);
        with_new_name(|name| open(name)).map(|(fd, name)| (File::from(fd), name))
    }

    /// A new directory with a name that nobody else has.
    pub(super) fn make_temporary_directory(&self) -> Result<(Directory<'static>, String)> {
        let mode = Mode::from_raw_mode(0o700);
        let ((), name) = with_new_name(|name| rustix::fs::mkdirat(self.fd(), name, mode))?;
        Ok((self.open_directory(&name)?, name))
    }

    /// The names in it, in their order.
    pub(super) fn names(&self, most: usize) -> Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(self.fd()).step("read a directory")? {
            let name = entry.step("read a directory")?.file_name().to_owned().into_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if names.len() == most {
                return Err(too_many(""));
            }
            names.push(OsString::from_vec(name));
        }
        names.sort();
        Ok(names)
    }

    /// Removes what has this name, with everything in it.
    pub(super) fn remove(&self, name: &OsStr, path: &str, depth: usize) -> Result<()> {
        match rustix::fs::unlinkat(self.fd(), name, AtFlags::empty()) {
            Ok(()) => return Ok(()),
            Err(Errno::ISDIR) => {}
            Err(errno) => return Err(fail(path, errno)),
        }
        if depth > MAX_DEPTH {
            return Err(too_many(path));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let inside = openat2(self.fd(), name, flags, Mode::empty(), RESOLVE);
        let inside = Directory::Below(inside.map_err(|errno| fail(path, errno))?);
        for name in inside.names(super::MAX_ENTRIES)? {
            inside.remove(&name, path, depth + 1)?;
        }
        rustix::fs::unlinkat(self.fd(), name, AtFlags::REMOVEDIR).map_err(|errno| fail(path, errno))
    }
}

/// Makes something under a name that is not taken.
fn with_new_name<T>(make: impl Fn(&str) -> rustix::io::Result<T>) -> Result<(T, String)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    for _ in 0..MAX_NAMES {
        // Whoever guesses the next names can have them, but not all of them.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".guild-{}-{number}", std::process::id());
        match make(&name) {
            Ok(made) => return Ok((made, name)),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(fail(&name, errno)),
        }
    }
    Err(Error::Busy { why: "a program in it takes every name".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_paths_are_taken() {
        for good in ["a", "a/b", "a b", "..a", "a..", "...", "%2e%2e/x", "..\\..\\x", "ä"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        let long = "x/".repeat(70) + "x";
        let name = "n".repeat(256);
        let endless = "abc/".repeat(2_000);
        let wrong = ["", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", "a\0b"];
        for bad in wrong.into_iter().chain([long.as_str(), name.as_str(), endless.as_str()]) {
            let error = check(bad).unwrap_err();
            assert_eq!(error.code().name, "sandbox.bad_path", "{bad}");
            assert!(error.to_string().len() < 300);
        }
        assert_eq!(check_directory(""), Ok(()));
    }
}
