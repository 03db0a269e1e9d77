//! Files as one file: the plain form of tar (POSIX ustar) that everything unpacks.

use std::collections::BTreeMap;

const BLOCK_BYTES: usize = 512;
const NAME_MAX_BYTES: usize = 100;

/// These files below a directory of that name; none if a path is too long, or a file too large, for the form. The same
/// files give the same bytes: no time but that of the epoch stands in it.
pub(super) fn tar(directory: &str, files: &BTreeMap<String, Vec<u8>>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for (path, bytes) in files {
        out.extend(header(directory, path, bytes.len())?);
        out.extend(bytes);
        fill(&mut out);
    }
    // Two empty blocks are the end.
    out.resize(out.len().checked_add(BLOCK_BYTES.checked_mul(2)?)?, 0);
    Some(out)
}

fn fill(out: &mut Vec<u8>) {
    let blocks = out.len().div_ceil(BLOCK_BYTES);
    out.resize(blocks.saturating_mul(BLOCK_BYTES), 0);
}

/// The block before a file: the path below its directory, who may read it, and how long it is.
fn header(directory: &str, path: &str, size: usize) -> Option<Vec<u8>> {
    let fits = path.len() <= NAME_MAX_BYTES && directory.len() <= NAME_MAX_BYTES;
    if !fits || size > 0o777_7777_7777 {
        return None;
    }
    let fields = |sum: &str| -> Vec<u8> {
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        let size = format!("{size:011o}");
        let parts: [(&str, usize); 16] = [
            (path, NAME_MAX_BYTES),
            ("0000644", 8),
            ("0000000", 8),
            ("0000000", 8),
            (size.as_str(), 12),
            ("00000000000", 12),
            (sum, 8),
            ("0", 1),
            ("", 100),
            ("ustar", 6),
            ("00", 2),
            ("", 32),
            ("", 32),
            ("", 8),
            ("", 8),
            (directory, 155),
        ];
        for (text, width) in parts {
            let end = block.len().saturating_add(width);
            block.extend(text.bytes().take(width));
            block.resize(end, 0);
        }
        block.resize(BLOCK_BYTES, 0);
        block
    };
    // The sum is taken with blanks in its own place.
    let sum: u32 = fields("        ").iter().map(|byte| u32::from(*byte)).sum();
    Some(fields(&format!("{sum:06o}\0 ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_stands_behind_its_header() {
        let files = [("a".to_owned(), b"hello".to_vec()), ("b/c".to_owned(), vec![7; 512])];
        let bytes = tar("top", &files.into()).unwrap();
        assert_eq!(bytes.len(), 512 * (2 + 2 + 2));
        assert_eq!(&bytes[..2], b"a\0");
        assert_eq!(&bytes[124..136], b"00000000005\0");
        assert_eq!(&bytes[257..263], b"ustar\0");
        assert_eq!(&bytes[345..349], b"top\0");
        assert_eq!(&bytes[512..518], b"hello\0");
        assert_eq!(&bytes[1024..1028], b"b/c\0");
        let sum = |block: &[u8]| -> u32 {
            let blank = |(at, byte): (usize, &u8)| {
                if (148..156).contains(&at) { 32 } else { u32::from(*byte) }
            };
            block.iter().enumerate().map(blank).sum()
        };
        let written = std::str::from_utf8(&bytes[148..154]).unwrap();
        assert_eq!(u32::from_str_radix(written, 8).unwrap(), sum(&bytes[..512]));
        assert_eq!(tar("top", &[("x".repeat(101), Vec::new())].into()), None);
    }
}
