//! Archives as `tar` writes them, so far as plain files and directories need: the header of POSIX.1-1988, longer names
//! by pax headers or in the GNU way. Everything that could lead elsewhere, or mean two things, is refused.

use std::io::{self, Read};

use super::place::{cut, wrong};
use crate::error::{Error, Result};

pub(super) const BLOCK_BYTES: usize = 512;
/// What a header that only carries words may hold.
const MAX_WORDS_BYTES: u64 = 64 << 10;
/// What fits into the octal digits of a size.
const MAX_SIZE: u64 = 0o77_777_777_777;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
}

/// What an archive says about an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) path: String,
    pub(super) kind: Kind,
    pub(super) size: u64,
    pub(super) executable: bool,
}

pub(super) fn refused(entry: &str, why: impl Into<String>) -> Error {
    Error::BadArchive { entry: cut(entry), why: why.into() }
}

/// Reads the entries of an archive. The bytes of each must be taken before the next.
pub(super) struct Reader<R> {
    from: R,
    /// Headers of any kind that may still come.
    left_headers: usize,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(from: R, max_entries: usize) -> Reader<R> {
        // An entry may have two headers of words before it, and there may be some for all.
        Reader { from, left_headers: max_entries.saturating_mul(3).saturating_add(16) }
    }

    /// The next entry; none after the last.
    pub(super) fn next(&mut self) -> Result<Option<Header>> {
        let mut name = None;
        loop {
            let Some(raw) = self.block()? else { return Ok(None) };
            self.left_headers = self
                .left_headers
                .checked_sub(1)
                .ok_or_else(|| refused("", "there are too many headers"))?;
            let own = raw.name();
            let shown = name.clone().unwrap_or_else(|| own.clone());
            let size = raw.number(124, 12).ok_or_else(|| refused(&shown, "its size is unclear"))?;
            match raw.kind() {
                b'x' => set(&mut name, self.pax(&shown, size, false)?)?,
                b'g' => set(&mut name, self.pax(&shown, size, true)?)?,
                b'L' => {
                    let words = self.words(&shown, size)?;
                    // In the GNU way a name ends with a zero byte.
                    let words = words.strip_suffix(b"\0").unwrap_or(&words);
                    set(&mut name, Some(text(words)?))?;
                }
                kind => {
                    let header = raw.entry(kind, shown, size)?;
                    if let Some(header) = header {
                        return Ok(Some(header));
                    }
                    name = None;
                }
            }
        }
    }

    /// A header; none at the end of the archive.
    fn block(&mut self) -> Result<Option<Raw>> {
        let mut block = [0; BLOCK_BYTES];
        self.fill(&mut block, "")?;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let raw = Raw(block);
        match raw.number(148, 8) == Some(raw.sum()) {
            true => Ok(Some(raw)),
            false => Err(refused("", "it is no archive, or damaged")),
        }
    }

    fn fill(&mut self, room: &mut [u8], entry: &str) -> Result<()> {
        self.from.read_exact(room).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => refused(entry, "the archive is cut off"),
            _ => Error::failed("read the archive", error),
        })
    }

    /// Hands on the bytes of an entry, all of them.
    pub(super) fn data(
        &mut self,
        entry: &str,
        size: u64,
        mut each: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut room = vec![0; super::PIECE_BYTES];
        let mut left = size;
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(room.len());
            let piece = room.get_mut(..want).unwrap_or_default();
            self.fill(piece, entry)?;
            each(piece)?;
            left = left.saturating_sub(u64::try_from(want).unwrap_or(u64::MAX));
        }
        let mut padding = vec![0; padding(size)];
        self.fill(&mut padding, entry)
    }

    fn words(&mut self, entry: &str, size: u64) -> Result<Vec<u8>> {
        if size > MAX_WORDS_BYTES {
            return Err(refused(entry, "a header is too long"));
        }
        let mut words = Vec::new();
        self.data(entry, size, |piece| {
            words.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(words)
    }

    /// The path that a pax header gives, if any. Times and names of users are passed over.
    fn pax(&mut self, entry: &str, size: u64, for_all: bool) -> Result<Option<String>> {
        let words = self.words(entry, size)?;
        let mut path = None;
        let mut rest = words.as_slice();
        while !rest.is_empty() {
            let (key, value, after) =
                record(rest).ok_or_else(|| refused(entry, "a pax header is damaged"))?;
            rest = after;
            match key {
                "path" if !for_all => set(&mut path, Some(text(value)?))?,
                "path" | "size" | "linkpath" => {
                    return Err(refused(entry, format!("a pax header overrides {key}")));
                }
                key if key.starts_with("GNU.sparse") => {
                    return Err(refused(entry, "files with holes are not taken"));
                }
                _ => {}
            }
        }
        Ok(path)
    }
}

/// One record: its own length, a key and a value, and a newline.
fn record(bytes: &[u8]) -> Option<(&str, &[u8], &[u8])> {
    let space = bytes.iter().position(|byte| *byte == b' ')?;
    let length: usize = str::from_utf8(bytes.get(..space)?).ok()?.parse().ok()?;
    let (record, after) = bytes.split_at_checked(length)?;
    let body = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = body.iter().position(|byte| *byte == b'=')?;
    Some((str::from_utf8(body.get(..equals)?).ok()?, body.get(equals + 1..)?, after))
}

/// Sets a longer name. Two of them would mean two things.
fn set(name: &mut Option<String>, new: Option<String>) -> Result<()> {
    match (name.as_ref(), &new) {
        (Some(old), Some(_)) => Err(refused(old, "it is named twice")),
        (None, Some(_)) => {
            *name = new;
            Ok(())
        }
        (_, None) => Ok(()),
    }
}

fn text(bytes: &[u8]) -> Result<String> {
    let text = str::from_utf8(bytes).map(str::to_owned);
    text.map_err(|_| refused(&String::from_utf8_lossy(bytes), "the name is not UTF-8"))
}

/// One block, as it stands in an archive.
struct Raw([u8; BLOCK_BYTES]);

impl Raw {
    fn field(&self, at: usize, length: usize) -> &[u8] {
        self.0.get(at..at + length).unwrap_or_default()
    }

    fn words(&self, at: usize, length: usize) -> &[u8] {
        let field = self.field(at, length);
        field.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    fn kind(&self) -> u8 {
        self.field(156, 1).first().copied().unwrap_or_default()
    }

    /// What a name that is not UTF-8 is replaced by is refused later, for the sign that stands in it.
    fn name(&self) -> String {
        let is_posix = self.field(257, 6) == b"ustar\0";
        let prefix = if is_posix { self.words(345, 155) } else { &[] };
        let mut bytes = prefix.to_vec();
        if !prefix.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(self.words(0, 100));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Octal digits between spaces; none if it is written in any other way.
    fn number(&self, at: usize, length: usize) -> Option<u64> {
        let field = str::from_utf8(self.words(at, length)).ok()?;
        match field.trim_matches(' ') {
            "" => Some(0),
            digits if digits.starts_with('+') => None,
            digits => u64::from_str_radix(digits, 8).ok(),
        }
    }

    /// The sum of all bytes, those of the sum itself counted as spaces.
    fn sum(&self) -> u64 {
        let of = |bytes: &[u8]| bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        of(&self.0) - of(self.field(148, 8)) + 8 * u64::from(b' ')
    }

    /// The entry, if it is one that is taken; none for the top itself.
    fn entry(&self, kind: u8, name: String, size: u64) -> Result<Option<Header>> {
        let kind = match kind {
            b'0' | 0 if name.ends_with('/') => Kind::Directory,
            b'0' | 0 => Kind::File,
            b'5' => Kind::Directory,
            b'1' => return Err(refused(&name, "hard links are not taken")),
            b'2' => return Err(refused(&name, "symbolic links are not taken")),
            b'3' | b'4' => return Err(refused(&name, "devices are not taken")),
            b'6' => return Err(refused(&name, "pipes are not taken")),
            b'S' => return Err(refused(&name, "files with holes are not taken")),
            _ => return Err(refused(&name, "entries of this kind are not taken")),
        };
        let mode = self.number(100, 8).ok_or_else(|| refused(&name, "its mode is unclear"))?;
        if mode & 0o7000 != 0 {
            return Err(refused(&name, "a setuid, setgid or sticky bit is not taken"));
        }
        if kind == Kind::Directory && size != 0 {
            return Err(refused(&name, "a directory has no size"));
        }
        let mut path = name.as_str();
        while let Some(rest) = path.strip_prefix("./") {
            path = rest;
        }
        if kind == Kind::Directory {
            path = path.strip_suffix('/').unwrap_or(path);
            if path.is_empty() && name.starts_with("./") || path == "." {
                return Ok(None);
            }
        }
        if name.contains('\u{fffd}') {
            return Err(refused(&name, "the name is not UTF-8"));
        }
        if let Some(why) = wrong(path) {
            return Err(refused(&name, why));
        }
        let (path, executable) = (path.to_owned(), mode & 0o100 != 0);
        Ok(Some(Header { path, kind, size, executable }))
    }
}

/// What fills the last block of so many bytes.
pub(super) fn padding(size: u64) -> usize {
    let over = usize::try_from(size % BLOCK_BYTES as u64).unwrap_or(0);
    if over == 0 { 0 } else { BLOCK_BYTES - over }
}

/// The blocks before the bytes of an entry. The same entry always has the same ones.
pub(super) fn write(header: &Header) -> Result<Vec<u8>> {
    if header.size > MAX_SIZE {
        let why = format!("it has more than {MAX_SIZE} bytes");
        return Err(Error::TooLarge { path: header.path.clone(), why });
    }
    let mut path = header.path.clone();
    let kind = match header.kind {
        Kind::File => b'0',
        Kind::Directory => {
            path.push('/');
            b'5'
        }
    };
    let is_executable = header.executable || header.kind == Kind::Directory;
    let mode = if is_executable { 0o755 } else { 0o644 };
    if let Some((prefix, name)) = fit(&path) {
        return Ok(block(prefix, name, kind, mode, header.size));
    }
    let record = pax_record("path", &path);
    let size = u64::try_from(record.len()).unwrap_or(0);
    let mut blocks = block("", "pax", b'x', 0o644, size);
    blocks.extend_from_slice(&record);
    blocks.resize(blocks.len() + padding(size), 0);
    // Whoever does not know pax headers sees a name that is cut.
    let name: String = path.chars().take(24).filter(|c| c.is_ascii()).collect();
    blocks.extend(block("", name.trim_end_matches('/'), kind, mode, header.size));
    Ok(blocks)
}

/// The two parts that a path is kept in, if it fits.
fn fit(path: &str) -> Option<(&str, &str)> {
    if path.len() <= 100 {
        return Some(("", path));
    }
    let cut = |(at, _): (usize, &str)| (path.get(..at), path.get(at + 1..));
    path.match_indices('/').map(cut).find_map(|(prefix, name)| match (prefix, name) {
        (Some(prefix), Some(name)) if prefix.len() <= 155 && (1..=100).contains(&name.len()) => {
            Some((prefix, name))
        }
        _ => None,
    })
}

fn pax_record(key: &str, value: &str) -> Vec<u8> {
    let body = format!(" {key}={value}\n");
    // The length counts its own digits.
    let mut length = body.len();
    while length != body.len() + length.to_string().len() {
        length = body.len() + length.to_string().len();
    }
    format!("{length}{body}").into_bytes()
}

fn block(prefix: &str, name: &str, kind: u8, mode: u32, size: u64) -> Vec<u8> {
    let mut block = [0; BLOCK_BYTES];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(room) = block.get_mut(at..at + bytes.len()) {
            room.copy_from_slice(bytes);
        }
    };
    put(0, name.as_bytes());
    put(100, format!("{mode:07o}").as_bytes());
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{size:011o}").as_bytes());
    put(136, b"00000000000");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    put(345, prefix.as_bytes());
    let sum = Raw(block).sum();
    if let Some(room) = block.get_mut(148..156) {
        room.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    block.to_vec()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(path: &str, size: u64) -> Header {
        Header { path: path.to_owned(), kind: Kind::File, size, executable: false }
    }

    #[test]
    fn what_is_written_is_read() {
        let deep = format!("{}/{}", "d".repeat(150), "n".repeat(90));
        let far = format!("{}/{}", "d".repeat(200), "ä".repeat(90));
        for path in ["a", "a/b", &"x".repeat(100), &"x".repeat(101), &deep, &far] {
            for kind in [Kind::File, Kind::Directory] {
                let header = Header { kind, executable: kind == Kind::Directory, ..file(path, 0) };
                let bytes = write(&header).unwrap();
                assert_eq!(bytes.len() % BLOCK_BYTES, 0);
                let mut reader = Reader::new(bytes.as_slice(), 1);
                assert_eq!(reader.next().unwrap(), Some(header));
                assert!(reader.next().unwrap_err().to_string().contains("cut off"));
            }
        }
        assert!(write(&file("a", MAX_SIZE + 1)).is_err());
        assert_eq!((padding(0), padding(1), padding(512)), (0, 511, 0));
        assert_eq!(pax_record("a", "b"), b"6 a=b\n");
        let long = pax_record("path", &"x".repeat(91));
        assert_eq!(long, format!("101 path={}\n", "x".repeat(91)).into_bytes());
    }

    #[test]
    fn records_that_lie_about_their_length_are_refused() {
        assert_eq!(record(b"6 a=b\nrest"), Some(("a", &b"b"[..], &b"rest"[..])));
        for bad in ["", "6", "6 a=b", "99 a=b\n", "x a=b\n", "2 a=b\n", "6 ab=\n\n", "-6 a=b\n"] {
            let parsed = record(bad.as_bytes());
            assert!(parsed.is_none() || parsed.unwrap().0 == "ab", "{bad:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nothing_makes_the_reader_panic_or_leave(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
            let mut reader = Reader::new(bytes.as_slice(), 10);
            while let Ok(Some(header)) = reader.next() {
                prop_assert!(wrong(&header.path).is_none());
            }
        }

        /// One byte of a good header is changed, and the sum made right again.
        #[test]
        fn a_header_that_was_changed_never_leads_out(at in 0usize..512, byte in any::<u8>()) {
            let mut bytes = write(&file("dir/name", 0)).unwrap();
            bytes[at] = byte;
            let sum = Raw(bytes[..BLOCK_BYTES].try_into().unwrap()).sum();
            bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            bytes.extend([0; 1_024]);
            let mut reader = Reader::new(bytes.as_slice(), 10);
            if let Ok(Some(header)) = reader.next() {
                prop_assert!(wrong(&header.path).is_none());
            }
        }
    }
}
