//! The canonical writer. A [`Doc`] has passed every check, so writing cannot fail.

use super::Doc;

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

/// RFC 8785 §3.2.2.2: only what must be escaped is.
pub(super) fn string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(stop) = rest.iter().position(|b| matches!(b, b'"' | b'\\' | 0..=0x1f)) {
        let (plain, tail) = rest.split_at(stop);
        out.extend_from_slice(plain);
        let Some((special, tail)) = tail.split_first() else { break };
        escape(*special, out);
        rest = tail;
    }
    out.extend_from_slice(rest);
    out.push(b'"');
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
