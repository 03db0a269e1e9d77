//! Keeps secrets out of what is printed and logged, in the forms in which programs print them by accident: as they are,
//! in hex, base64, percent-encoded, or inside JSON, also broken into lines.
//!
//! This guards against accidents. A program that wants to tell a secret can always write it in a form of its own.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// A value shorter than this could not be told from ordinary output.
pub(crate) const MIN_BYTES: usize = 6;
/// What stands in its place.
const MASK: &[u8] = b"[secret]";

/// One form of a secret.
#[derive(PartialEq, Eq)]
struct Form {
    bytes: Zeroizing<Vec<u8>>,
    /// Whether any byte of it may be percent-encoded: everybody encodes others of them.
    percent: bool,
}

impl Form {
    fn exact(bytes: impl Into<Vec<u8>>) -> Form {
        Form { bytes: Zeroizing::new(bytes.into()), percent: false }
    }

    /// The bytes with which a text may begin that has this form.
    fn firsts(&self) -> Vec<u8> {
        let mut firsts: Vec<u8> = self.bytes.first().copied().into_iter().collect();
        if self.percent {
            firsts.push(b'%');
            firsts.extend(firsts.contains(&b' ').then_some(b'+'));
        }
        firsts
    }
}

/// All forms of all secrets.
#[derive(Default)]
pub(crate) struct Forms {
    all: Vec<Form>,
    /// The forms that begin with each byte, the longest first.
    by_first: std::collections::BTreeMap<u8, Vec<usize>>,
}

impl Forms {
    /// Adds every form of a value.
    pub(crate) fn add(&mut self, value: &[u8]) {
        for form in forms(value) {
            if form.bytes.len() >= MIN_BYTES && !self.all.contains(&form) {
                self.all.push(form);
            }
        }
        self.all.sort_by_key(|form| std::cmp::Reverse(form.bytes.len()));
        self.by_first.clear();
        for (n, form) in self.all.iter().enumerate() {
            for first in form.firsts() {
                self.by_first.entry(first).or_default().push(n);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The length of the form that stands at the beginning of `text`, or that there could be one if more came.
    fn at(&self, text: &[u8]) -> Found {
        let Some(first) = text.first() else { return Found::Nothing };
        let mut longest = None;
        for n in self.by_first.get(first).into_iter().flatten() {
            match self.all.get(*n).map_or(Found::Nothing, |form| matches(form, text)) {
                // It must be waited for, even if something shorter is there already.
                Found::Begun => return Found::Begun,
                Found::Whole(length) => longest = longest.max(Some(length)),
                Found::Nothing => {}
            }
        }
        longest.map_or(Found::Nothing, Found::Whole)
    }

    /// As [`Forms::at`], if nothing more comes: most of a form counts as all of it.
    fn at_the_end(&self, text: &[u8]) -> Option<usize> {
        let forms = self.by_first.get(text.first()?).into_iter().flatten();
        let length = |form: &Form| match matches(form, text) {
            Found::Whole(length) => Some(length),
            Found::Begun if is_much(common(form, text).0, form) => Some(text.len()),
            Found::Begun | Found::Nothing => None,
        };
        forms.filter_map(|n| self.all.get(*n)).filter_map(length).max()
    }

    /// A text with every secret masked.
    pub(crate) fn mask(&self, text: &[u8]) -> Vec<u8> {
        let mut stream = Redactor::default();
        let mut out = stream.take(self, text);
        out.extend(stream.rest(self));
        out
    }

    /// A message with every secret masked, also one that was cut.
    pub(crate) fn mask_message(&self, message: &str) -> String {
        let (text, mut out, mut at) = (message.as_bytes(), Vec::new(), 0);
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let same = |form: &Form| {
                let (matched, length) = common(form, rest);
                if matched >= MIN_BYTES { length } else { 0 }
            };
            match self.all.iter().map(same).max() {
                Some(length) if length > 0 => {
                    out.extend_from_slice(MASK);
                    at += length;
                }
                _ => {
                    out.extend(rest.first());
                    at += 1;
                }
            }
        }
        String::from_utf8_lossy(&out).into_owned()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    Whole(usize),
    /// The text ends before it can be told.
    Begun,
    Nothing,
}

/// So many bytes of line breaks may stand between two bytes of a secret. Without a bound, whoever prints one byte of a
/// secret and then empty lines would make us hold back all of them.
const MAX_BREAK_BYTES: usize = 4;

/// The beginning of a secret that is longer than this is masked like all of it. Otherwise whoever prints the beginning
/// of a long one over and over would have it compared anew from each of its bytes.
const MUCH_BYTES: usize = 256;

/// Compares, skipping line breaks of the text.
fn matches(form: &Form, text: &[u8]) -> Found {
    let (matched, length) = common(form, text);
    if matched == form.bytes.len() {
        return Found::Whole(length);
    }
    let rest = text.get(length..).unwrap_or_default();
    // The text may end inside of an encoded byte.
    let cut = form.percent && matches!(rest, [b'%'] | [b'%', _]);
    match rest.is_empty() || cut {
        true => Found::Begun,
        false if matched >= MUCH_BYTES => Found::Whole(length),
        false => Found::Nothing,
    }
}

fn is_much(matched: usize, form: &Form) -> bool {
    matched * 2 > form.bytes.len() || matched >= MUCH_BYTES
}

/// How much of a form stands at the beginning of a text, and how long that is in the text.
fn common(form: &Form, text: &[u8]) -> (usize, usize) {
    let (mut matched, mut at, mut breaks) = (0, 0, 0);
    while let (Some(wanted), Some(rest)) = (form.bytes.get(matched), text.get(at..)) {
        let length = match rest {
            [byte, ..] if byte == wanted => 1,
            [b'\n' | b'\r', ..] if at > 0 && breaks < MAX_BREAK_BYTES => {
                (at, breaks) = (at + 1, breaks + 1);
                continue;
            }
            [b'%', high, low, ..] if form.percent && hex(*high, *low) == Some(*wanted) => 3,
            [b'+', ..] if form.percent && *wanted == b' ' => 1,
            _ => break,
        };
        (matched, at, breaks) = (matched + 1, at + length, 0);
    }
    (matched, at)
}

fn hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

/// Masks a stream that comes in pieces. It holds back only what could be the beginning of a secret, and of that not the
/// end of a line if it is only a few bytes: people wait for lines.
#[derive(Default)]
pub(crate) struct Redactor {
    held: Zeroizing<Vec<u8>>,
    /// How much of what is held has been given away already.
    given: usize,
}

/// So few bytes of a secret tell nothing.
const FEW_BYTES: usize = 4;

impl Redactor {
    /// Takes a piece and gives what can go on.
    pub(crate) fn take(&mut self, forms: &Forms, piece: &[u8]) -> Vec<u8> {
        if forms.is_empty() && self.held.is_empty() {
            return piece.to_vec();
        }
        let mut text = std::mem::take(&mut self.held);
        let given = std::mem::take(&mut self.given);
        text.extend_from_slice(piece);
        let mut out = Vec::with_capacity(text.len());
        let mut at = 0;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            match forms.at(rest) {
                Found::Whole(length) => {
                    out.extend_from_slice(MASK);
                    at += length.max(1);
                }
                Found::Begun => {
                    self.held.extend_from_slice(rest);
                    self.given = given.saturating_sub(at);
                    if rest.last() == Some(&b'\n') && rest.len() <= FEW_BYTES {
                        out.extend(rest.iter().skip(self.given));
                        self.given = rest.len();
                    }
                    break;
                }
                Found::Nothing => {
                    out.extend(rest.first().filter(|_| at >= given));
                    at += 1;
                }
            }
        }
        out
    }

    /// What was held back, at the end of the stream.
    pub(crate) fn rest(&mut self, forms: &Forms) -> Vec<u8> {
        let text = std::mem::take(&mut self.held);
        let given = std::mem::take(&mut self.given);
        let (mut out, mut at) = (Vec::new(), 0);
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            match forms.at_the_end(rest) {
                Some(length) => {
                    out.extend_from_slice(MASK);
                    at += length.max(1);
                }
                None => {
                    out.extend(rest.first().filter(|_| at >= given));
                    at += 1;
                }
            }
        }
        out
    }
}

/// The forms of a value.
fn forms(value: &[u8]) -> Vec<Form> {
    let mut all = vec![Form { percent: true, ..Form::exact(value) }];
    let hex = Zeroizing::new(guild_protocol::hash::to_hex(value));
    all.push(Form::exact(hex.to_ascii_uppercase()));
    all.push(Form::exact(hex.as_bytes()));
    all.extend(base64_forms(value));
    if let Ok(text) = std::str::from_utf8(value) {
        all.extend(json_forms(text));
    }
    all
}

/// Inside quotes, with letters of all languages as they are, or in ASCII alone.
fn json_forms(text: &str) -> Vec<Form> {
    let quoted = Zeroizing::new(serde_json::to_string(text).unwrap_or_default());
    let inner = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
    let mut ascii = Zeroizing::new(String::new());
    for letter in inner.chars() {
        match letter.is_ascii() {
            true => ascii.push(letter),
            false => {
                let mut units = [0; 2];
                let units = letter.encode_utf16(&mut units).iter();
                units.for_each(|unit| ascii.push_str(&format!("\\u{unit:04x}")));
            }
        }
    }
    [inner, &ascii].map(|form| Form::exact(form.as_bytes())).into()
}

/// The digits that the value alone decides, wherever it stands in what is encoded, in both alphabets.
fn base64_forms(value: &[u8]) -> Vec<Form> {
    let mut all = Vec::new();
    for before in 0..3 {
        let mut padded = Zeroizing::new(vec![0; before]);
        padded.extend_from_slice(value);
        let digits = Zeroizing::new(STANDARD.encode(&*padded).into_bytes());
        // The first digits hold bits of what stands before, the last ones of what follows.
        let from = (before * 8).div_ceil(6);
        let to = padded.len() * 8 / 6;
        let digits = digits.get(from..to).unwrap_or_default();
        let url = digits.iter().map(|digit| match digit {
            b'+' => b'-',
            b'/' => b'_',
            other => *other,
        });
        all.push(Form::exact(url.collect::<Vec<u8>>()));
        all.push(Form::exact(digits));
    }
    all
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use proptest::prelude::*;

    use super::*;

    const SECRET: &[u8] = b"s3cr/t? \"k\xc3\xa9y\"+of the house~";

    fn forms_of(value: &[u8]) -> Forms {
        let mut forms = Forms::default();
        forms.add(value);
        forms
    }

    fn masked(text: &[u8]) -> String {
        String::from_utf8_lossy(&forms_of(SECRET).mask(text)).into_owned()
    }

    #[test]
    fn every_form_is_masked_and_nothing_else() {
        let hex = guild_protocol::hash::to_hex(SECRET);
        let json = serde_json::to_string(std::str::from_utf8(SECRET).unwrap()).unwrap();
        let url = "s3cr%2Ft%3F%20%22k%C3%A9y%22%2Bof%20the%20house~";
        let form = "s3cr%2ft%3f+%22k%c3%a9y%22%2bof+the+house~";
        let path = "s3cr/t%3F%20%22k%C3%A9y%22+of%20the%20house%7E";
        assert_eq!(masked(path.as_bytes()), "[secret]");
        for text in
            [SECRET, hex.as_bytes(), hex.to_uppercase().as_bytes(), url.as_bytes(), form.as_bytes()]
        {
            assert_eq!(masked(&[b"a ", text, b" z"].concat()), "a [secret] z");
        }
        let ascii = json.replace('é', "\\u00e9");
        for json in [json, ascii] {
            assert_eq!(masked(json.as_bytes()), "\"[secret]\"");
        }
        assert_eq!(masked(b"s3cr/t? but not the rest, c2Vj"), "s3cr/t? but not the rest, c2Vj");
    }

    #[test]
    fn base64_is_masked_wherever_the_value_stands() {
        for before in ["", "x", "yz", "key="] {
            for after in ["", "a", "bc"] {
                let whole = [before.as_bytes(), SECRET, after.as_bytes()].concat();
                for text in [STANDARD.encode(&whole), URL_SAFE_NO_PAD.encode(&whole)] {
                    let masked = masked(text.as_bytes());
                    assert!(masked.contains("[secret]") && masked.len() < 24, "{text} → {masked}");
                }
            }
        }
    }

    #[test]
    fn line_breaks_do_not_hide_it() {
        let text = STANDARD.encode(SECRET);
        let broken: Vec<_> = text.as_bytes().chunks(7).flat_map(|line| [line, b"\r\n"]).collect();
        let masked = masked(&broken.concat());
        assert!(masked.starts_with("[secret]") && masked.len() < 16, "{masked}");
    }

    #[test]
    fn messages_that_were_cut_show_no_beginning() {
        let forms = forms_of(b"correct horse battery");
        assert_eq!(forms.mask_message("no \"correct horse ba…\""), "no \"[secret]…\"");
        assert_eq!(forms.mask_message("correct, höre"), "[secret], höre");
        assert_eq!(forms.mask_message("corre, höre"), "corre, höre");
        assert_eq!(forms.mask_message("/x/correct%20horse%20bat"), "/x/[secret]");
    }

    #[test]
    fn ordinary_output_is_not_held_back() {
        let forms = forms_of(SECRET);
        let mut stream = Redactor::default();
        assert_eq!(stream.take(&forms, b"password: "), b"password: ");
        assert_eq!(stream.take(&forms, b"is"), b"i", "this could be its beginning");
        assert_eq!(stream.take(&forms, b"h"), b"sh");
        assert_eq!(stream.take(&forms, b"this\n"), b"this\n", "lines are not held back");
        assert_eq!(stream.take(&forms, b"x"), b"x");
        assert_eq!(stream.take(&forms, b"s\n"), b"s\n");
        assert_eq!(stream.take(&forms, &SECRET[1..]), b"[secret]");
        assert_eq!(stream.take(&forms, b"s3"), b"");
        assert_eq!(stream.rest(&forms), b"s3");
        assert_eq!(stream.take(&forms, SECRET.split_last().unwrap().1), b"");
        assert_eq!(stream.rest(&forms), b"[secret]", "all but its last byte is told as little");
    }

    /// Whoever prints a byte of a secret and then empty lines for ever fills nobody's memory.
    #[test]
    fn endless_line_breaks_are_not_held_back() {
        let forms = forms_of(SECRET);
        let mut stream = Redactor::default();
        let mut came = stream.take(&forms, b"s").len();
        for _ in 0..640 {
            came += stream.take(&forms, &[b'\n'; 16 << 10]).len();
            assert!(stream.held.len() < 1 << 10, "{} bytes are held back", stream.held.len());
        }
        assert_eq!(came + stream.rest(&forms).len(), 1 + (640 << 14), "nothing is lost");
        assert_eq!(stream.take(&forms, b"s3cr\r\n\r\n"), b"");
        assert_eq!(stream.take(&forms, &SECRET[4..]), b"[secret]");
    }

    #[test]
    fn much_of_a_long_secret_is_masked_and_so_is_one_that_begins_alike() {
        let long: Vec<u8> = (0..4_000usize).map(|n| b"abcdefghijk"[n % 11]).collect();
        let short = [&long[..300], &b"and no more"[..]].concat();
        let mut forms = forms_of(&long);
        forms.add(&short);
        let masked = |parts: &[&[u8]]| String::from_utf8(forms.mask(&parts.concat())).unwrap();
        assert_eq!(masked(&[b"<", &long, b">"]), "<[secret]>");
        assert_eq!(masked(&[b"<", &short, b">"]), "<[secret]>");
        assert_eq!(masked(&[b"<", &long[..3_000], b">"]), "<[secret]>");
        assert_eq!(masked(&[b"<", &long[..MUCH_BYTES]]), "<[secret]");
        let little = [b"<", &long[..22], b">"].concat();
        assert_eq!(masked(&[&little]).as_bytes(), little);
    }

    #[test]
    fn line_breaks_are_not_most_of_a_secret() {
        assert_eq!(forms_of(b"secret").mask(b"s\n\n\n"), b"s\n\n\n");
        assert_eq!(forms_of(b"secret").mask(b"s\ne\nc\nr\n"), b"[secret]");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn it_does_not_matter_how_the_stream_is_cut(
            value in proptest::collection::vec(14u8.., MIN_BYTES..40),
            around in "[ab%=+]{0,9}",
            cuts in proptest::collection::vec(1usize..9, 0..60),
        ) {
            let forms = forms_of(&value);
            let hex = guild_protocol::hash::to_hex(&value);
            let text = [around.as_bytes(), &value, around.as_bytes(), hex.as_bytes()].concat();
            let mut stream = Redactor::default();
            let (mut out, mut rest) = (Vec::new(), text.as_slice());
            for cut in cuts {
                let (piece, later) = rest.split_at(cut.min(rest.len()));
                out.extend(stream.take(&forms, piece));
                rest = later;
            }
            out.extend(stream.take(&forms, rest));
            out.extend(stream.rest(&forms));
            prop_assert_eq!(&out, &forms.mask(&text));
            let there = |needle: &[u8]| out.windows(needle.len()).any(|window| window == needle);
            prop_assert!(!there(&value) && !there(hex.as_bytes()));
        }
    }
}
