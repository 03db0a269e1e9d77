//! Which field was changed? A hash only says *that* something was. If it was a single byte, the byte can be found:
//! try every other byte at every place until the hash fits again.

use std::ops::Range;

use crate::hash::{Hash, Hasher};

/// Texts longer than this are not searched.
pub const MAX_SEARCH_BYTES: usize = 4096;

/// Deeper texts are not JSON to any reader of ours.
const MAX_DEPTH: usize = 128;

/// A value inside a JSON text that is neither an array nor an object, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// Its path: `amount.units`, `commands[2]`.
    pub path: String,
    /// Its bytes, quotes included.
    pub span: Range<usize>,
}

/// Every leaf of a JSON text, in the order of the text. Of a damaged text those before the damage.
pub fn leaves(text: &[u8]) -> Vec<Leaf> {
    let mut walk = Walk::new(text);
    let mut leaves = Vec::new();
    walk.run(&mut |leaf| leaves.push(leaf));
    leaves
}

/// The path of the field at a byte of a JSON text, which may be damaged from there on.
pub fn path_at(text: &[u8], offset: usize) -> Option<String> {
    let mut walk = Walk::new(text.get(..offset).unwrap_or(text));
    walk.run(&mut |_| ());
    Some(walk.path()).filter(|path| !path.is_empty())
}

/// The single byte that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The path of the value that holds it.
    pub path: String,
    /// Where it stands in the text.
    pub offset: usize,
    /// What stood there before.
    pub original: u8,
}

/// Looks for the single byte in a leaf of `text` whose change back makes the hash of `before ‖ text` be `expected`.
/// `None` if there is none, or if the text is too long to search.
///
/// ```
/// use guild_protocol::{hash::Hash, tamper};
/// let signed = Hash::of(br#"{"to":"ann","units":100}"#);
/// let found = tamper::search(b"", br#"{"to":"ann","units":900}"#, &signed).unwrap();
/// assert_eq!((found.path.as_str(), found.original), ("units", b'1'));
/// ```
pub fn search(before: &[u8], text: &[u8], expected: &Hash) -> Option<Found> {
    if text.len() > MAX_SEARCH_BYTES {
        return None;
    }
    let leaves = leaves(text);
    // A digit was most likely a digit, and so on: the likely bytes are tried at all places before the others.
    [true, false].iter().find_map(|likely| {
        let mut prefix = Hasher::new();
        prefix.update(before);
        let mut done = 0;
        leaves.iter().find_map(|leaf| {
            leaf.span.clone().find_map(|offset| {
                prefix.update(text.get(done..offset)?);
                done = offset;
                let original = substitute(&prefix, text, offset, *likely, expected)?;
                Some(Found { path: leaf.path.clone(), offset, original })
            })
        })
    })
}

/// The byte that makes the hash fit when put at `offset`; `prefix` has taken all bytes before it.
fn substitute(
    prefix: &Hasher,
    text: &[u8],
    offset: usize,
    likely: bool,
    expected: &Hash,
) -> Option<u8> {
    let present = *text.get(offset)?;
    let rest = text.get(offset.checked_add(1)?..)?;
    let fits = |byte: &u8| {
        let mut hasher = prefix.clone();
        hasher.update(&[*byte]);
        hasher.update(rest);
        hasher.finish() == *expected
    };
    // Canonical texts hold no control characters; half a UTF-8 sequence was half of another.
    let all = if present < 0x80 { 0x20..=0x7e } else { 0x80..=0xffu8 };
    all.filter(|byte| *byte != present && (class(*byte) == class(present)) == likely).find(fits)
}

fn class(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => 0,
        b'a'..=b'z' => 1,
        b'A'..=b'Z' => 2,
        0x80..=0xff => 3,
        _ => 4,
    }
}

/// A reader that keeps only its place. It does not check the text: that is the business of [`crate::json`].
struct Walk<'a> {
    text: &'a [u8],
    at: usize,
    steps: Vec<Step>,
}

enum Step {
    Member(String),
    Item(usize),
}

impl<'a> Walk<'a> {
    fn new(text: &'a [u8]) -> Walk<'a> {
        Walk { text, at: 0, steps: Vec::new() }
    }

    fn path(&self) -> String {
        let mut path = String::new();
        for step in &self.steps {
            match step {
                Step::Item(number) => path.push_str(&format!("[{number}]")),
                Step::Member(key) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(key);
                }
            }
        }
        path
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn advance(&mut self) {
        self.at = self.at.saturating_add(1);
    }

    /// Reads token by token, as deep as the strict reader does.
    fn run(&mut self, found: &mut dyn FnMut(Leaf)) {
        while let Some(byte) = self.peek().filter(|_| self.steps.len() <= MAX_DEPTH) {
            match byte {
                b'{' => {
                    self.advance();
                    self.steps.push(Step::Member(String::new()));
                    self.key();
                }
                b'[' => {
                    self.advance();
                    self.steps.push(Step::Item(0));
                }
                b'}' | b']' => {
                    self.advance();
                    self.steps.pop();
                }
                b',' => {
                    self.advance();
                    self.next_step();
                }
                b' ' | b'\t' | b'\n' | b'\r' | b':' => self.advance(),
                _ => {
                    let span = self.leaf();
                    found(Leaf { path: self.path(), span });
                }
            }
        }
    }

    fn next_step(&mut self) {
        match self.steps.last_mut() {
            Some(Step::Item(number)) => *number = number.saturating_add(1),
            Some(Step::Member(_)) => self.key(),
            None => {}
        }
    }

    /// Reads a key, if one stands here, into the innermost step. A key that breaks off keeps the name so far.
    fn key(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.advance();
        }
        if self.peek() != Some(b'"') {
            return;
        }
        let start = self.at.saturating_add(1);
        let whole = self.string();
        let end = if whole { self.at.saturating_sub(1) } else { self.at };
        let name = self.text.get(start..end).unwrap_or_default();
        if let Some(Step::Member(key)) = self.steps.last_mut() {
            *key = shown(name);
        }
    }

    /// At a quote; ends behind the closing one. False if there is none.
    fn string(&mut self) -> bool {
        self.advance();
        while let Some(byte) = self.peek() {
            self.advance();
            match byte {
                b'"' => return true,
                b'\\' => self.advance(),
                _ => {}
            }
        }
        self.at = self.at.min(self.text.len());
        false
    }

    fn leaf(&mut self) -> Range<usize> {
        let start = self.at;
        if self.peek() == Some(b'"') {
            self.string();
        } else {
            while let Some(byte) = self.peek()
                && !matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r')
            {
                self.advance();
            }
        }
        start..self.at
    }
}

/// A key as it may stand in a message: a stranger's key must not end its line or speak to a terminal.
fn shown(key: &[u8]) -> String {
    const MAX_CHARS: usize = 80;
    let mut shown = String::new();
    for c in String::from_utf8_lossy(key).chars().take(MAX_CHARS) {
        match c {
            '\\' | '"' | '\'' => shown.push(c),
            other => shown.extend(other.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = br#"{"a":{"b":[1,{"c":"x\"y"}],"d":null},"e":true}"#;

    #[test]
    fn leaves_have_their_paths_and_bytes() {
        let found: Vec<_> = leaves(TEXT)
            .into_iter()
            .map(|leaf| (leaf.path, std::str::from_utf8(&TEXT[leaf.span]).unwrap()))
            .collect();
        let expected = [("a.b[0]", "1"), ("a.b[1].c", r#""x\"y""#), ("a.d", "null"), ("e", "true")];
        assert_eq!(found, expected.map(|(path, text)| (path.to_owned(), text)));
    }

    #[test]
    fn a_place_in_a_damaged_text_is_named() {
        assert_eq!(path_at(TEXT, 20).as_deref(), Some("a.b[1].c"));
        assert_eq!(path_at(br#"{"a":1,"bc":xyz"#, 13).as_deref(), Some("bc"));
        assert_eq!(path_at(b"nonsense", 3), None);
        assert_eq!(path_at(b"{", 99), None);
    }

    #[test]
    fn a_path_is_one_plain_line_whatever_its_keys() {
        let text = "{\"a\nb\":{\"\u{1b}[2J\u{202e}\":{\"x\\\"é'\":1}}}";
        assert_eq!(leaves(text.as_bytes())[0].path, r#"a\nb.\u{1b}[2J\u{202e}.x\"é'"#);
        let long = format!("{{\"{}\":1}}", "k".repeat(1_000));
        assert_eq!(leaves(long.as_bytes())[0].path.len(), 80);
    }

    #[test]
    fn every_changed_byte_of_a_value_is_found() {
        let expected = Hash::of(TEXT);
        for leaf in leaves(TEXT) {
            for offset in leaf.span.start.saturating_add(1)..leaf.span.end.saturating_sub(1) {
                let mut changed = TEXT.to_vec();
                changed[offset] = if changed[offset] == b'z' { b'w' } else { b'z' };
                // Some changes move the borders of the values; the path is then that of the text as it stands.
                if leaves(&changed).len() == leaves(TEXT).len() {
                    let found = search(b"", &changed, &expected).unwrap();
                    assert_eq!((found.path, found.offset), (leaf.path.clone(), offset));
                }
            }
        }
        assert_eq!(search(b"", TEXT, &Hash::of(b"something else")), None);
        assert_eq!(search(b"x", &[b'1'; 5000], &expected), None);
    }

    #[test]
    fn rubbish_ends() {
        for text in [&b"\"\\"[..], b"[[[[{{{{", b"]]}},,,::", b"\xff\xfe{\"", b"{\"a\\"] {
            let _ = leaves(text);
            for offset in 0..10 {
                let _ = path_at(text, offset);
            }
        }
        let deep = vec![b'['; 100_000];
        assert!(path_at(&deep, deep.len()).unwrap().len() < 1_000);
        assert_eq!(leaves(b"7"), [Leaf { path: String::new(), span: 0..1 }]);
    }
}
