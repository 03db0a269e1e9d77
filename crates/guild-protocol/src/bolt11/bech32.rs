//! The letters of invoices (BIP 173), without its limit of 90: invoices are longer.

const LETTERS: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
const CHECKSUM_WORDS: usize = 6;

fn checksum(human: &str, words: impl Iterator<Item = u8>) -> u32 {
    const GENERATOR: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    let high = human.bytes().map(|byte| byte >> 5);
    let low = human.bytes().map(|byte| byte & 31);
    let mut sum = 1_u32;
    for word in high.chain([0]).chain(low).chain(words) {
        let top = sum >> 25;
        sum = ((sum & 0x01ff_ffff) << 5) ^ u32::from(word);
        for (bit, generator) in (0_u32..).zip(GENERATOR) {
            if top.wrapping_shr(bit) & 1 == 1 {
                sum ^= generator;
            }
        }
    }
    sum
}

/// What stands before the last `1`, and the groups of five bits behind it; nothing if the checksum is wrong.
pub(super) fn decode(text: &str) -> Option<(String, Vec<u8>)> {
    let lower = text.to_ascii_lowercase();
    if (text != lower && text != text.to_ascii_uppercase()) || !text.is_ascii() {
        return None;
    }
    let (human, letters) = lower.rsplit_once('1')?;
    let place = |letter: u8| LETTERS.iter().position(|known| *known == letter);
    let word = |letter: u8| place(letter).and_then(|at| u8::try_from(at).ok());
    let mut words: Vec<u8> = letters.bytes().map(word).collect::<Option<_>>()?;
    let is_human = human.bytes().all(|byte| (33..=126).contains(&byte)) && !human.is_empty();
    if !is_human || checksum(human, words.iter().copied()) != 1 {
        return None;
    }
    words.truncate(words.len().checked_sub(CHECKSUM_WORDS)?);
    Some((human.to_owned(), words))
}

/// The text of these groups.
pub(super) fn encode(human: &str, words: &[u8]) -> String {
    let sum = checksum(human, words.iter().copied().chain([0; CHECKSUM_WORDS])) ^ 1;
    let ending = [25_u32, 20, 15, 10, 5, 0]
        .map(|bits| u8::try_from(sum.wrapping_shr(bits) & 31).unwrap_or(0));
    let letter =
        |word: u8| LETTERS.get(usize::from(word)).map_or('q', |letter| char::from(*letter));
    let data = words.iter().copied().chain(ending).map(letter);
    human.chars().chain(['1']).chain(data).collect()
}

/// A number, the highest bits first; bits beyond 64 are lost.
pub(super) fn number(words: &[u8]) -> u64 {
    words.iter().fold(0, |number, word| number << 5 | u64::from(*word))
}

/// A number in so many groups.
pub(super) fn words_of(number: u64, count: usize) -> Vec<u8> {
    let group = |at: usize| {
        let bits = u32::try_from(at.saturating_mul(5)).unwrap_or(u32::MAX);
        u8::try_from(number.checked_shr(bits).unwrap_or(0) & 31).unwrap_or(0)
    };
    (0..count).rev().map(group).collect()
}

/// Whole bytes; bits that are left over are dropped.
pub(super) fn to_bytes(words: &[u8]) -> Vec<u8> {
    regroup(words, 5, 8, false)
}

/// All bits as bytes, filled up with zeros.
pub(super) fn to_padded_bytes(words: &[u8]) -> Vec<u8> {
    regroup(words, 5, 8, true)
}

/// Bytes in groups of five bits, filled up with zeros.
pub(super) fn from_bytes(bytes: &[u8]) -> Vec<u8> {
    regroup(bytes, 8, 5, true)
}

fn regroup(parts: &[u8], from: u32, to: u32, padded: bool) -> Vec<u8> {
    let mask = 1_u32.wrapping_shl(to).saturating_sub(1);
    let (mut held, mut bits) = (0_u32, 0_u32);
    let mut out = Vec::new();
    for part in parts {
        held = (held.wrapping_shl(from) | u32::from(*part)) & 0xffff;
        bits = bits.saturating_add(from);
        while bits >= to {
            bits = bits.saturating_sub(to);
            out.push(u8::try_from(held.wrapping_shr(bits) & mask).unwrap_or(0));
        }
    }
    if padded && bits > 0 {
        let short = to.saturating_sub(bits);
        out.push(u8::try_from(held.wrapping_shl(short) & mask).unwrap_or(0));
    }
    out
}
