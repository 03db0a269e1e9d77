//! Whole directories as archives, in and out.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};

use rustix::fs::{Mode, OFlags};

use super::place::{self, Directory, fail};
use super::tar::{self, Header, Kind, Reader, refused};
use super::{Item, MAX_ENTRIES, Workspace, pieces};
use crate::error::{Error, Result};

/// How much an archive may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnpackLimits {
    /// The bytes of all its files.
    pub bytes: u64,
    /// Its files and directories.
    pub entries: usize,
}

/// What was unpacked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// How many files.
    pub files: usize,
    /// How many bytes are in them.
    pub bytes: u64,
}

/// What an archive has at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    File,
    Directory,
    /// A directory that it does not name, but needs.
    Needed,
}

impl Workspace {
    /// Writes a file, or what is in a directory, as a tar archive: plain files and directories only, in the order of
    /// their names, without times and owners, so that the same files give the same bytes. Says how many entries.
    pub fn pack(&self, path: &str, mut to: impl Write) -> Result<usize> {
        place::check_directory(path)?;
        let mut count = 0;
        let mut pack = |path: &str, item: Item| {
            count += 1;
            pack_one(&mut to, path, item)
        };
        let directory = {
            let _acting = self.actor.act()?;
            self.top().open_directory(path)
        };
        match directory {
            Ok(directory) => self.visit(&directory, &mut pack)?,
            Err(Error::NotAFile { .. }) => {
                let file = self.open_read(path)?;
                let stat = rustix::fs::fstat(&file).map_err(|errno| fail(path, errno))?;
                let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
                let executable = stat.st_mode & 0o100 != 0;
                pack(place::split(path).1, Item::File { file, size, executable })?;
            }
            Err(error) => return Err(error),
        }
        put(&mut to, &[0; 2 * tar::BLOCK_BYTES])?;
        to.flush().map_err(|error| Error::failed("write the archive", error))?;
        Ok(count)
    }

    /// Takes a tar archive apart below a directory, which is made if it is not there. Files that are there are
    /// replaced.
    ///
    /// Only plain files and directories with plain names are taken, each once; links, devices, pipes, special bits,
    /// pax headers that change what an entry is, and more than the limits allow are refused. It is taken apart beside,
    /// and moved when all of it is good: of an archive that was refused, nothing stays.
    pub fn unpack(&self, from: impl Read, at: &str, limits: UnpackLimits) -> Result<Unpacked> {
        place::check_directory(at)?;
        let (beside, name) = {
            let _acting = self.actor.act()?;
            self.top().make_temporary_directory()?
        };
        let unpacked = Unpacking { workspace: self, beside: &beside, limits }.run(from);
        let _acting = self.actor.act()?;
        let moved = unpacked.and_then(|(places, unpacked)| {
            self.settle(&beside, at, &places)?;
            Ok(unpacked)
        });
        let removed = self.top().remove(std::ffi::OsStr::new(&name), &name, 0);
        moved.and_then(|unpacked| removed.map(|()| unpacked))
    }

    /// Moves what was taken apart to where it belongs. What stands in the way is found before anything is moved.
    fn settle(
        &self,
        beside: &Directory<'_>,
        at: &str,
        places: &BTreeMap<String, Place>,
    ) -> Result<()> {
        match self.top().open_directory(at) {
            Ok(there) => {
                places.iter().try_for_each(|(path, place)| in_the_way(&there, path, *place))?;
            }
            Err(Error::NoFile { .. }) => {}
            Err(error) => return Err(error),
        }
        let there = self.top().make(at)?;
        for (path, place) in places {
            if *place != Place::File {
                there.make(path)?;
                continue;
            }
            let (above, name) = place::split(path);
            let (from, to) = (beside.open_directory(above)?, there.open_directory(above)?);
            rustix::fs::renameat(from.fd(), name, to.fd(), name)
                .map_err(|errno| fail(path, errno))?;
        }
        Ok(())
    }
}

/// An archive that is being taken apart.
struct Unpacking<'a> {
    workspace: &'a Workspace,
    beside: &'a Directory<'a>,
    limits: UnpackLimits,
}

impl Unpacking<'_> {
    fn run(&self, from: impl Read) -> Result<(BTreeMap<String, Place>, Unpacked)> {
        let mut reader = Reader::new(from, self.limits.entries);
        let mut places = BTreeMap::new();
        let mut unpacked = Unpacked::default();
        let mut entries = 0;
        while let Some(header) = reader.next()? {
            entries += 1;
            let most = self.limits.entries.min(MAX_ENTRIES);
            if entries > most {
                return Err(refused(&header.path, format!("there are more than {most} entries")));
            }
            claim(&mut places, &header)?;
            unpacked.bytes = unpacked
                .bytes
                .checked_add(header.size)
                .filter(|bytes| *bytes <= self.limits.bytes)
                .ok_or_else(|| {
                    let why = format!("the files have more than {} bytes", self.limits.bytes);
                    refused(&header.path, why)
                })?;
            if places.len() > 4 * MAX_ENTRIES {
                return Err(refused(&header.path, "there are too many directories"));
            }
            match header.kind {
                Kind::Directory => {
                    let _acting = self.workspace.actor.act()?;
                    self.beside.make(&header.path)?;
                }
                Kind::File => {
                    self.file(&mut reader, &header)?;
                    unpacked.files += 1;
                }
            }
        }
        Ok((places, unpacked))
    }

    fn file<R: Read>(&self, reader: &mut Reader<R>, header: &Header) -> Result<()> {
        let path = header.path.as_str();
        let (above, name) = place::split(path);
        let mut file = {
            let _acting = self.workspace.actor.act()?;
            let above = self.beside.make(above)?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let mode = Mode::from_raw_mode(if header.executable { 0o755 } else { 0o644 });
            let file = rustix::fs::openat(above.fd(), name, flags | OFlags::NOFOLLOW, mode)
                .map_err(|errno| fail(path, errno))?;
            // Whatever the mask was.
            rustix::fs::fchmod(&file, mode).map_err(|errno| fail(path, errno))?;
            File::from(file)
        };
        reader.data(path, header.size, |piece| {
            file.write_all(piece).map_err(|error| match error.raw_os_error() {
                Some(errno) => fail(path, rustix::io::Errno::from_raw_os_error(errno)),
                None => Error::failed("write a file of the workspace", error),
            })
        })
    }
}

/// Gives an entry its place. No two entries have the same one, and none is below a file.
fn claim(places: &mut BTreeMap<String, Place>, header: &Header) -> Result<()> {
    let path = header.path.as_str();
    for (end, _) in path.match_indices('/') {
        let above = path.get(..end).unwrap_or_default();
        match places.get(above) {
            Some(Place::File) => return Err(refused(path, "it is below a file")),
            Some(_) => {}
            None => drop(places.insert(above.to_owned(), Place::Needed)),
        }
    }
    let new = match header.kind {
        Kind::File => Place::File,
        Kind::Directory => Place::Directory,
    };
    match places.insert(path.to_owned(), new) {
        None => Ok(()),
        Some(Place::Needed) if new == Place::Directory => Ok(()),
        Some(_) => Err(refused(path, "it is there twice")),
    }
}

/// Whether something at the place of an entry is of another kind.
fn in_the_way(there: &Directory<'_>, path: &str, place: Place) -> Result<()> {
    let found = there.open_directory(path);
    match (place, found) {
        (Place::File, Ok(_)) => Err(fail(path, rustix::io::Errno::ISDIR)),
        // A link or a file is replaced, but not walked through.
        (Place::File, Err(Error::NotAFile { .. } | Error::NoFile { .. })) => Ok(()),
        (Place::File, Err(Error::BadPath { .. })) => {
            let (above, _) = place::split(path);
            there.open_directory(above).map(drop).or_else(missing_is_fine)
        }
        (_, Ok(_)) => Ok(()),
        (_, Err(error)) => missing_is_fine(error),
    }
}

fn missing_is_fine(error: Error) -> Result<()> {
    if matches!(error, Error::NoFile { .. }) { Ok(()) } else { Err(error) }
}

fn pack_one(to: &mut impl Write, path: &str, item: Item) -> Result<()> {
    let path = path.to_owned();
    match item {
        Item::Directory => {
            let header = Header { path, kind: Kind::Directory, size: 0, executable: false };
            put(to, &tar::write(&header)?)
        }
        Item::File { file, size, executable } => {
            put(to, &tar::write(&Header { path, kind: Kind::File, size, executable })?)?;
            let written = pieces(&mut file.take(size), |piece| put(to, piece))?;
            // A file that was cut meanwhile is filled up: the header has been written.
            let mut missing = size.saturating_sub(written);
            let zeros = [0; tar::BLOCK_BYTES];
            while missing > 0 {
                let piece = usize::try_from(missing).unwrap_or(usize::MAX).min(zeros.len());
                put(to, zeros.get(..piece).unwrap_or_default())?;
                missing -= u64::try_from(piece).unwrap_or(missing);
            }
            put(to, zeros.get(..tar::padding(size)).unwrap_or_default())
        }
    }
}

fn put(to: &mut impl Write, bytes: &[u8]) -> Result<()> {
    to.write_all(bytes).map_err(|error| Error::failed("write the archive", error))
}
