//! SHA-256 digests, written `sha256:<64 lower-case hex digits>`.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// The codes of this module.
pub mod code {
    crate::codes! {
        BAD_HASH = "hash.malformed", Invalid,
            "A hash is not written as sha256: and 64 lower-case hex digits.",
            "Write it as sha256:<hex>; `guild hash FILE` prints this form.";
    }
}

/// A SHA-256 digest.
///
/// ```
/// use guild_protocol::hash::Hash;
/// let empty = Hash::of(b"");
/// assert!(empty.to_string().starts_with("sha256:e3b0c442"));
/// assert_eq!(empty.to_string().parse::<Hash>().unwrap(), empty);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Hash {
        Hash(Sha256::digest(bytes).into())
    }

    /// A digest computed elsewhere.
    pub const fn from_bytes(digest: [u8; 32]) -> Hash {
        Hash(digest)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The 64 hex digits without the prefix.
    pub fn hex(&self) -> String {
        to_hex(&self.0)
    }

    /// Reads `sha256:<hex>`, and the bare hex digits that other systems write.
    pub fn parse_liberal(text: &str) -> Result<Hash> {
        let hex = text.strip_prefix("sha256:").unwrap_or(text);
        match from_hex(hex).and_then(|bytes| bytes.try_into().ok()) {
            Some(digest) => Ok(Hash(digest)),
            None => Err(Error::new(
                &code::BAD_HASH,
                format!("{:?} is not sha256: and 64 lower-case hex digits", shorten(text)),
            )),
        }
    }
}

impl FromStr for Hash {
    type Err = Error;
    fn from_str(text: &str) -> Result<Hash> {
        if !text.starts_with("sha256:") {
            return Err(Error::new(
                &code::BAD_HASH,
                format!("{:?} does not begin with sha256:", shorten(text)),
            ));
        }
        Hash::parse_liberal(text)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl serde::Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Hash, D::Error> {
        <String as serde::Deserialize>::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A digest of bytes that arrive in pieces.
#[derive(Clone, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Nothing hashed yet.
    pub fn new() -> Hasher {
        Hasher::default()
    }

    /// Takes the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all pieces.
    pub fn finish(self) -> Hash {
        Hash(self.0.finalize().into())
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher")
    }
}

/// Lower-case hex digits.
pub fn to_hex(bytes: &[u8]) -> String {
    let mut hex = Vec::new();
    write_hex(bytes, &mut hex);
    // Digits are ASCII.
    String::from_utf8(hex).unwrap_or_default()
}

/// As [`to_hex`], behind what is there.
pub(crate) fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start.saturating_add(bytes.len().saturating_mul(2)), 0);
    let hex = out.get_mut(start..).unwrap_or_default();
    for (pair, byte) in hex.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 0x0f)]);
    }
}

fn digit(nibble: u8) -> u8 {
    match nibble {
        0..=9 => b'0'.saturating_add(nibble),
        _ => b'a'.saturating_add(nibble.saturating_sub(10)),
    }
}

/// The bytes of lower-case hex digits; `None` for anything else.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(byte).collect()
}

/// The bytes of exactly so many lower-case hex digits: as [`from_hex`], where the length is known.
pub fn from_hex_exact<const N: usize>(text: &str) -> Option<[u8; N]> {
    let pairs = text.as_bytes().chunks_exact(2);
    if text.len() != N.checked_mul(2)? {
        return None;
    }
    let (mut bytes, mut seen) = ([0; N], 0);
    for (place, pair) in bytes.iter_mut().zip(pairs) {
        if let [high, low] = pair {
            let (high, low) = (nibble(*high), nibble(*low));
            seen |= high | low;
            *place = (high << 4) | (low & 0x0f);
        }
    }
    // Looked at once, not for every digit.
    (seen < NO_DIGIT).then_some(bytes)
}

/// Has a bit that no nibble has.
const NO_DIGIT: u8 = 0x10;

/// The value of a digit. Chosen without a jump: digits are as good as random, and no processor guesses them.
fn nibble(digit: u8) -> u8 {
    let (number, letter) = (digit.wrapping_sub(b'0'), digit.wrapping_sub(b'a'));
    let of_letter = if letter < 6 { letter.saturating_add(10) } else { NO_DIGIT };
    if number < 10 { number } else { of_letter }
}

fn byte(pair: &[u8]) -> Option<u8> {
    match pair {
        [high, low] => {
            let (high, low) = (nibble(*high), nibble(*low));
            ((high | low) < NO_DIGIT).then_some((high << 4) | low)
        }
        _ => None,
    }
}

/// Enough of a hostile text to recognise it in a message.
pub(crate) fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_prefixed_lower_case_form_is_read() {
        let text = Hash::of(b"x").to_string();
        assert_eq!(text.parse::<Hash>().unwrap(), Hash::of(b"x"));
        for bad in [&text[7..], &text[..70], &text.to_uppercase(), "", "sha256:", "sha256:unknown"]
        {
            assert_eq!(bad.parse::<Hash>().unwrap_err().code(), &code::BAD_HASH, "{bad}");
        }
        assert_eq!(Hash::parse_liberal(&text[7..]).unwrap(), Hash::of(b"x"));
        assert!(Hash::parse_liberal("SHA256:00").is_err());
    }

    #[test]
    fn only_lower_case_digits_are_hex() {
        for byte in 0..=u8::MAX {
            assert_eq!(from_hex_exact(&to_hex(&[byte, !byte])), Some([byte, !byte]));
            let (first, second) = ([byte, b'7'], [b'7', byte]);
            let is_digit = byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            for pair in [first, second] {
                let Ok(text) = std::str::from_utf8(&pair) else { continue };
                assert_eq!(from_hex(text).is_some(), is_digit, "{text:?}");
                assert_eq!(from_hex_exact::<1>(text).is_some(), is_digit, "{text:?}");
            }
        }
        assert_eq!(from_hex_exact::<1>("0a0"), None);
        assert_eq!(from_hex("0a0"), None);
    }

    #[test]
    fn pieces_hash_as_the_whole() {
        let mut pieces = Hasher::new();
        pieces.update(b"ab");
        pieces.update(b"c");
        assert_eq!(pieces.finish(), Hash::of(b"abc"));
    }
}
