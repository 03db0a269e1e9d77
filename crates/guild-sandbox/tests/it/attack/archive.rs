//! Archives that want to be more than files and directories. Each is refused by name, and nothing of it stays.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::io::{self, Read};

use guild_sandbox::{Error, UnpackLimits};

use super::super::workspace::{LIMITS, sh, staying, tree};

/// An entry as it stands in an archive, with whatever in it.
#[derive(Clone)]
pub(super) struct Raw {
    name: Vec<u8>,
    kind: u8,
    mode: &'static str,
    size: Option<&'static str>,
    data: Vec<u8>,
    link: &'static str,
}

fn raw(name: &[u8], kind: u8, data: &[u8]) -> Raw {
    let (name, data) = (name.to_vec(), data.to_vec());
    Raw { name, kind, mode: "0000644", size: None, data, link: "" }
}

pub(super) fn file(name: &str, text: &str) -> Raw {
    raw(name.as_bytes(), b'0', text.as_bytes())
}

fn link(name: &str, kind: u8, to: &'static str) -> Raw {
    Raw { link: to, ..raw(name.as_bytes(), kind, b"") }
}

fn pax(kind: u8, records: &[(&str, &str)]) -> Raw {
    let mut data = String::new();
    for (key, value) in records {
        let body = format!(" {key}={value}\n");
        let length = (1..).find(|length: &usize| *length == body.len() + length.to_string().len());
        data += &format!("{}{body}", length.unwrap_or_default());
    }
    raw(b"pax", kind, data.as_bytes())
}

fn entry(raw: &Raw) -> Vec<u8> {
    let mut block = vec![0; 512];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &raw.name);
    put(100, raw.mode.as_bytes());
    put(108, b"0001750\x000001750\0");
    let size = format!("{:011o}", raw.data.len());
    put(124, raw.size.unwrap_or(&size).as_bytes());
    put(136, b"00000000000");
    put(148, b"        ");
    put(156, &[raw.kind]);
    put(157, raw.link.as_bytes());
    put(257, b"ustar\x0000");
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block.extend_from_slice(&raw.data);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

pub(super) fn archive(entries: &[Raw]) -> Vec<u8> {
    let mut bytes: Vec<u8> = entries.iter().flat_map(entry).collect();
    bytes.resize(bytes.len() + 1_024, 0);
    bytes
}

/// The archive is refused with these words; good entries before it and what was there do not matter.
fn is_refused(entries: &[Raw], says: &str) {
    let entries: Vec<Raw> = [file("good", "x")].iter().chain(entries).cloned().collect();
    refuses(&archive(&entries), LIMITS, says);
}

fn refuses(bytes: &[u8], limits: UnpackLimits, says: &str) {
    let running = staying();
    let workspace = running.workspace();
    workspace.write("there", 0o644, &b"before"[..], 10).unwrap();
    for at in ["", "new/place"] {
        let error = workspace.unpack(bytes, at, limits).unwrap_err();
        assert_eq!(error.code().name, "sandbox.bad_archive", "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(tree(&workspace), [("there".to_owned(), "before".to_owned())]);
        assert_eq!(sh(&running, "ls -A"), "there\n", "something of it stayed");
    }
}

#[test]
fn names_that_lead_out() {
    for name in ["../evil", "a/../../evil", "..", "a/..", "x/./y", "a//b"] {
        is_refused(&[file(name, "x")], &format!("{name:?}"));
        is_refused(&[raw(name.as_bytes(), b'5', b"")], &format!("{name:?}"));
    }
    is_refused(&[raw(b"../", b'5', b"")], "it has a part that is no name");
    is_refused(&[raw(b"./../evil", b'0', b"")], "it has a part that is no name");
}

#[test]
fn absolute_names() {
    is_refused(&[file("/etc/evil", "x")], "it is not relative");
    is_refused(&[file("//evil", "x")], "it is not relative");
    is_refused(&[file(".//evil", "x")], "it is not relative");
    is_refused(&[raw(b"/", b'5', b"")], "");
}

#[test]
fn names_with_zero_bytes() {
    is_refused(&[pax(b'x', &[("path", "a\0b")]), file("a", "x")], "there is a zero byte in it");
    is_refused(&[raw(b"long", b'L', b"a\0/../b\0"), file("a", "x")], "there is a zero byte in it");
    is_refused(&[file("", "x")], "a part of it is empty");
}

#[test]
fn names_that_are_no_text() {
    is_refused(&[raw(b"\xff\xfe", b'0', b"x")], "the name is not UTF-8");
    is_refused(&[raw(b"long", b'L', b"\xff\0"), file("a", "x")], "the name is not UTF-8");
}

#[test]
fn symbolic_links() {
    is_refused(
        &[link("evil", b'2', "/etc"), file("evil/passwd", "x")],
        "symbolic links are not taken",
    );
    is_refused(&[link("evil", b'2', "good")], "symbolic links are not taken");
}

#[test]
fn hard_links() {
    is_refused(&[link("evil", b'1', "/etc/passwd")], "hard links are not taken");
    is_refused(&[link("evil", b'1', "good")], "hard links are not taken");
}

#[test]
fn devices_and_pipes() {
    is_refused(&[raw(b"disk", b'4', b"")], "devices are not taken");
    is_refused(&[raw(b"tty", b'3', b"")], "devices are not taken");
    is_refused(&[raw(b"pipe", b'6', b"")], "pipes are not taken");
    for kind in [b'7', b'S', b'D', b'M', b'V', b'K', b'?', 0xff] {
        is_refused(&[raw(b"odd", kind, b"")], "not taken");
    }
}

#[test]
fn special_bits() {
    for mode in ["0004755", "0002755", "0001777", "0006755"] {
        is_refused(
            &[Raw { mode, ..file("evil", "x") }],
            "a setuid, setgid or sticky bit is not taken",
        );
        is_refused(&[Raw { mode, ..raw(b"evil/", b'5', b"") }], "bit is not taken");
    }
    is_refused(&[Raw { mode: "999999", ..file("evil", "x") }], "its mode is unclear");
}

#[test]
fn the_same_name_twice() {
    is_refused(&[file("good", "other")], "it is there twice");
    is_refused(&[file("./good", "other")], "it is there twice");
    is_refused(&[raw(b"d/", b'5', b""), raw(b"d", b'5', b"")], "it is there twice");
    is_refused(&[file("d/x", "1"), file("d", "2")], "it is there twice");
    is_refused(&[file("good/x", "below")], "it is below a file");
}

#[test]
fn pax_headers_that_override() {
    is_refused(
        &[pax(b'x', &[("path", "../evil")]), file("a", "x")],
        "it has a part that is no name",
    );
    is_refused(&[pax(b'x', &[("path", "/etc/evil")]), file("a", "x")], "it is not relative");
    is_refused(&[pax(b'x', &[("size", "0")]), file("a", "x")], "a pax header overrides size");
    is_refused(
        &[pax(b'x', &[("linkpath", "/")]), file("a", "x")],
        "a pax header overrides linkpath",
    );
    is_refused(&[pax(b'g', &[("path", "evil")]), file("a", "x")], "a pax header overrides path");
    is_refused(&[pax(b'x', &[("path", "b"), ("path", "c")]), file("a", "x")], "it is named twice");
    is_refused(
        &[pax(b'x', &[("path", "b")]), raw(b"l", b'L', b"c\0"), file("a", "x")],
        "it is named twice",
    );
    is_refused(&[pax(b'x', &[("GNU.sparse.realsize", "9")]), file("a", "x")], "files with holes");
    is_refused(&[raw(b"pax", b'x', b"99999 path=b\n"), file("a", "x")], "a pax header is damaged");
    is_refused(&[raw(b"pax", b'x', &[b'x'; 70_000]), file("a", "x")], "a header is too long");
    // The last of two names is the same file.
    is_refused(&[pax(b'x', &[("path", "good")]), file("a", "x")], "it is there twice");
}

#[test]
fn sizes_that_lie() {
    let all: &str = "77777777777";
    is_refused(
        &[Raw { size: Some(all), ..file("huge", "x") }],
        "the files have more than 1048576 bytes",
    );
    is_refused(
        &[Raw { size: Some("00000010000"), ..file("short", "x") }],
        "the archive is cut off",
    );
    for size in ["-0000000001", "+0000000001", "0x000000010", "99999999999", "\u{7f}0000000001"] {
        is_refused(&[Raw { size: Some(size), ..file("odd", "x") }], "its size is unclear");
    }
    is_refused(
        &[Raw { size: Some("00000000001"), ..raw(b"d/", b'5', b"x") }],
        "a directory has no size",
    );
}

#[test]
fn too_many_entries() {
    let many: Vec<Raw> = (0..200).map(|number| file(&format!("f{number}"), "")).collect();
    is_refused(&many, "there are more than 100 entries");
    let headers: Vec<Raw> = (0..1_000).map(|_| pax(b'g', &[("comment", "x")])).collect();
    is_refused(&headers, "there are too many headers");
    let tops: Vec<Raw> = (0..1_000).map(|_| raw(b"./", b'5', b"")).collect();
    is_refused(&tops, "there are too many headers");
}

#[test]
fn too_many_bytes() {
    let limits = UnpackLimits { bytes: 10, entries: 10 };
    refuses(&archive(&[file("a", "123456"), file("b", "12345")]), limits, "more than 10 bytes");
    let running = staying();
    let exact = archive(&[file("a", "123456"), file("b", "1234")]);
    assert_eq!(running.workspace().unpack(exact.as_slice(), "", limits).unwrap().bytes, 10);
}

/// An archive that never ends is read only as far as its limits go.
#[test]
fn an_endless_archive() {
    struct Endless(Vec<u8>, usize);
    impl Read for Endless {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            let rest = &self.0[self.1 % self.0.len()..];
            let count = rest.len().min(room.len());
            room[..count].copy_from_slice(&rest[..count]);
            self.1 += count;
            assert!(self.1 < 64 << 20, "it is read without end");
            Ok(count)
        }
    }
    let running = staying();
    for first in [file("same", ""), pax(b'x', &[("mtime", "1")]), raw(b"./", b'5', b"")] {
        let error = running.workspace().unpack(Endless(entry(&first), 0), "", LIMITS).unwrap_err();
        assert!(matches!(error, Error::BadArchive { .. }), "{error}");
    }
    assert_eq!(sh(&running, "ls -A"), "");
}

#[test]
fn more_than_the_disk_holds() {
    let running = staying();
    let workspace = running.workspace();
    let big = "x".repeat(6 << 20);
    let archive = archive(&[file("a", &big), file("b", &big), file("c", &big)]);
    let limits = UnpackLimits { bytes: 1 << 40, entries: 10 };
    let error = workspace.unpack(archive.as_slice(), "", limits).unwrap_err();
    assert_eq!(error.to_string(), "c: the disk of the sandbox is full");
    assert_eq!(sh(&running, "ls -A"), "");
    let many: Vec<Raw> = (0..3_000).map(|number| file(&format!("f{number}"), "")).collect();
    let limits = UnpackLimits { bytes: 10, entries: 10_000 };
    let error = workspace.unpack(self::archive(&many).as_slice(), "", limits).unwrap_err();
    assert_eq!(error.code().name, "sandbox.too_large", "{error}");
    assert_eq!(sh(&running, "ls -A"), "");
}

#[test]
fn nonsense_and_pieces() {
    refuses(b"", LIMITS, "the archive is cut off");
    refuses(&[7; 4_096], LIMITS, "it is no archive, or damaged");
    let whole = archive(&[file("a", &"x".repeat(1_000)), file("b", "y")]);
    for length in [1, 511, 512, 513, 1_000, 2_047, whole.len() - 1_024] {
        refuses(&whole[..length], LIMITS, "the archive is cut off");
    }
    let mut damaged = whole;
    damaged[3] ^= 1;
    refuses(&damaged, LIMITS, "it is no archive, or damaged");
    // Compressed ones are not taken apart, so none unfolds to more than it is.
    refuses(b"\x1f\x8b\x08\0\0\0\0\0", LIMITS, "");
}

#[test]
fn an_archive_over_links_of_the_program() {
    let running = staying();
    let workspace = running.workspace();
    sh(&running, "ln -s /tmp dir; ln -s /tmp/out file; mkdir at; ln -s /tmp at/dir");
    for (entries, at) in [
        (vec![file("dir/x", "x")], ""),
        (vec![raw(b"dir/", b'5', b"")], ""),
        (vec![file("x", "x")], "dir"),
        (vec![file("x", "x")], "at/dir"),
    ] {
        let error = workspace.unpack(archive(&entries).as_slice(), at, LIMITS).unwrap_err();
        assert_eq!(error.code().name, "sandbox.bad_path", "{error}");
    }
    // A link at the very place of a file is replaced.
    workspace.unpack(archive(&[file("file", "mine")]).as_slice(), "", LIMITS).unwrap();
    assert_eq!(workspace.read("file", 100).unwrap(), b"mine");
    assert_eq!(sh(&running, "ls -A /tmp; ls -A"), "at\ndir\nfile\n");
}
