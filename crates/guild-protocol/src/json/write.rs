//! The canonical writer. A [`Doc`] has passed every check, so writing cannot fail.

use super::{Doc, MAX_SAFE_INTEGER, code};
use crate::{Error, Result};

pub(super) fn canonical(doc: &Doc<'_>, out: &mut Vec<u8>) {
    match doc {
        Doc::Null => out.extend_from_slice(b"null"),
        Doc::Bool(true) => out.extend_from_slice(b"true"),
        Doc::Bool(false) => out.extend_from_slice(b"false"),
        Doc::Number(written) => number(written, out),
        Doc::Text(text) => string(text, out),
        Doc::Array(items) => {
            out.push(b'[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                canonical(item, out);
            }
            out.push(b']');
        }
        Doc::Object(members) => {
            out.push(b'{');
            for (i, (key, value)) in members.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                string(key, out);
                out.push(b':');
                canonical(value, out);
            }
            out.push(b'}');
        }
    }
}

fn number(written: &str, out: &mut Vec<u8>) {
    let integer = !written.bytes().any(|b| matches!(b, b'.' | b'e' | b'E'));
    if integer && written != "-0" {
        out.extend_from_slice(written.as_bytes());
        return;
    }
    // Checked when it was read; the text of a double that is not there would be a bug, not a hash.
    let number = written.parse::<f64>().unwrap_or(f64::NAN);
    debug_assert!(number.is_finite(), "{written} passed the checks");
    out.extend_from_slice(ryu_js::Buffer::new().format(number).as_bytes());
}

/// Refuses a double that is written as an integer which no strict reader takes.
pub(super) fn check_number(written: &str) -> Result<()> {
    // What is written like this has passed the checks as an integer, and is copied.
    if written.len() < 16 && !written.bytes().any(|b| matches!(b, b'e' | b'E')) {
        return Ok(());
    }
    let mut text = Vec::with_capacity(24);
    number(written, &mut text);
    let is_integer = text.iter().all(|b| b.is_ascii_digit() || *b == b'-');
    let digits: String =
        text.iter().filter(|b| b.is_ascii_digit()).map(|b| char::from(*b)).collect();
    if is_integer && digits.parse::<u64>().map_or(true, |value| value > MAX_SAFE_INTEGER) {
        let message = format!("{written} would be written as an integer beyond ±(2^53−1)");
        return Err(Error::new(&code::INTEGER_RANGE, message));
    }
    Ok(())
}

/// RFC 8785 §3.2.2.2: only what must be escaped is.
pub(super) fn string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (plain, tail) = rest.split_at(plain_prefix(rest));
        out.extend_from_slice(plain);
        let Some((special, tail)) = tail.split_first() else { break };
        escape(*special, out);
        rest = tail;
    }
    out.push(b'"');
}

/// How many bytes from the start on stand in a string as they are.
pub(super) fn plain_prefix(bytes: &[u8]) -> usize {
    // Without a jump, and every byte of a block whatever the others are: so the processor looks at them at once.
    let is_special = |b: u8| (b < 0x20) | (b == b'"') | (b == b'\\');
    let is_plain = |block: &&[u8; 16]| !block.iter().fold(false, |any, b| any | is_special(*b));
    let (blocks, _) = bytes.as_chunks();
    let plain = blocks.iter().take_while(is_plain).count().saturating_mul(16);
    let rest = bytes.get(plain..).unwrap_or_default();
    plain.saturating_add(rest.iter().position(|b| is_special(*b)).unwrap_or(rest.len()))
}

fn escape(byte: u8, out: &mut Vec<u8>) {
    let short = match byte {
        b'"' => b'"',
        b'\\' => b'\\',
        0x08 => b'b',
        0x09 => b't',
        0x0a => b'n',
        0x0c => b'f',
        0x0d => b'r',
        _ => {
            out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

#[cfg(test)]
mod tests {
    use super::plain_prefix;

    #[test]
    fn what_must_be_escaped_is_found_wherever_it_stands() {
        for byte in 0..=u8::MAX {
            let is_plain = byte >= 0x20 && byte != b'"' && byte != b'\\';
            for length in [0, 1, 15, 16, 17, 32, 50] {
                for place in 0..length {
                    let mut bytes = vec![b'a'; length];
                    bytes[place] = byte;
                    let expected = if is_plain { length } else { place };
                    assert_eq!(plain_prefix(&bytes), expected, "{byte} at {place} of {length}");
                }
            }
        }
        assert_eq!(plain_prefix(b""), 0);
    }
}
