//! A text as a vector. Texts that share words, or parts of words, point in similar directions.
//!
//! [`HashEmbedder`] needs no model, and everything up to the last decimal is computed in whole numbers, so every
//! machine gets the same vector and anybody can recompute it: `docs/formats/embedding.md` says how.
//!
//! ```
//! use guild_memory::embed::{HashEmbedder, cosine};
//! let embedder = HashEmbedder::default();
//! let [hello, world, other] =
//!     ["hello world", "Hello, World!", "seven green bottles"].map(|text| embedder.embed(text).unwrap());
//! assert_eq!(hello, world);
//! assert!(cosine(&hello, &other).unwrap() < 0.5);
//! ```

use std::collections::BTreeMap;

use guild_protocol::{Error, Result};

/// The codes of this module.
pub mod code {
    guild_protocol::codes! {
        DIMENSIONS = "embed.dimensions", Invalid,
            "The built-in embedder makes no vectors of this length.", "Ask for 1 to 4096 dimensions.";
        TEXT_SIZE = "embed.text_size", Invalid,
            "A text is longer than the built-in embedder takes.", "Split it into texts of at most 1 MiB.";
    }
}

/// What the built-in embedder is called in outputs.
pub const MODEL_ID: &str = "guild-hash-v1";
/// The length of a vector if nobody asks for another.
pub const DEFAULT_DIMENSIONS: usize = 256;
/// The longest vector.
pub const MAX_DIMENSIONS: usize = 4_096;
/// The longest text.
pub const MAX_TEXT_BYTES: usize = 1024 * 1024;

/// How much a whole word counts, beside its parts.
const WORD: i64 = 4;
/// How much two words in a row count.
const PAIR: i64 = 2;
/// How much three bytes in a row count.
const PART: i64 = 1;

/// The built-in embedder, with vectors of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashEmbedder {
    dimensions: usize,
}

impl Default for HashEmbedder {
    fn default() -> HashEmbedder {
        HashEmbedder { dimensions: DEFAULT_DIMENSIONS }
    }
}

impl HashEmbedder {
    /// Makes vectors of this length.
    pub fn new(dimensions: usize) -> Result<HashEmbedder> {
        if (1..=MAX_DIMENSIONS).contains(&dimensions) {
            return Ok(HashEmbedder { dimensions });
        }
        let message = format!("{dimensions} is not 1 to {MAX_DIMENSIONS}");
        Err(Error::new(&code::DIMENSIONS, message).at("dimensions"))
    }

    /// What it is called in outputs.
    pub fn model_id(&self) -> &'static str {
        MODEL_ID
    }

    /// The length of its vectors.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// The vector of a text: of length one, each number rounded to six decimals.
    pub fn embed(&self, text: &str) -> Result<Vec<f64>> {
        if text.len() > MAX_TEXT_BYTES {
            let message = format!("{} bytes are more than {MAX_TEXT_BYTES}", text.len());
            return Err(Error::new(&code::TEXT_SIZE, message));
        }
        Ok(normalise(&self.sums(text)))
    }

    /// The features of the text, each added to or taken from one place of the vector.
    fn sums(&self, text: &str) -> Vec<i64> {
        let mut sums = vec![0i64; self.dimensions];
        let length = u64::try_from(self.dimensions).unwrap_or(u64::MAX);
        for (feature, Counted { weight, count }) in features(text) {
            // The place and the sign come from different bits, so they do not depend on each other.
            let place = usize::try_from((feature >> 1).checked_rem(length).unwrap_or(0));
            let strength = weight.saturating_mul(damped(count));
            if let Some(sum) = place.ok().and_then(|place| sums.get_mut(place)) {
                *sum = if feature & 1 == 0 {
                    sum.saturating_add(strength)
                } else {
                    sum.saturating_sub(strength)
                };
            }
        }
        if let (true, Some(first)) = (sums.iter().all(|sum| *sum == 0), sums.first_mut()) {
            // No words, or words that cancel out: the vector must still have a direction.
            *first = 1;
        }
        sums
    }
}

#[derive(Debug, Clone, Copy)]
struct Counted {
    weight: i64,
    count: u64,
}

/// The hash of every feature of a text, and how often it is there.
fn features(text: &str) -> BTreeMap<u64, Counted> {
    let mut found = BTreeMap::new();
    let mut take = |weight: i64, parts: &[&[u8]]| {
        let counted = found.entry(hash(parts)).or_insert(Counted { weight, count: 0 });
        counted.count = counted.count.saturating_add(1);
    };
    let lower = text.to_ascii_lowercase();
    // Bytes of other scripts are letters: to know better would take tables that change every year.
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || !byte.is_ascii();
    let words = lower.as_bytes().split(|byte| !is_letter(byte)).filter(|word| !word.is_empty());
    let mut former: Option<&[u8]> = None;
    for word in words {
        take(WORD, &[b"w", word]);
        if let Some(former) = former {
            take(PAIR, &[b"p", former, b" ", word]);
        }
        let framed = [b"<", word, b">"].concat();
        for part in framed.windows(3) {
            take(PART, &[b"t", part]);
        }
        former = Some(word);
    }
    found
}

/// FNV-1a over the bytes, and then the last step of MurmurHash3: FNV alone leaves the high bits of short texts alike.
fn hash(parts: &[&[u8]]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in parts.iter().copied().flatten() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// 256 times the root of a count, rounded down: the tenth time says less than the first.
fn damped(count: u64) -> i64 {
    let scaled = count.saturating_mul(1 << 16);
    i64::try_from(scaled.isqrt()).unwrap_or(i64::MAX)
}

/// A number of millionths that a component has is `sum * 10^6 / sqrt(sum of all squares)`, rounded half away from zero.
/// The root of whole numbers, rounded down, gives exactly that, without any float.
fn normalise(sums: &[i64]) -> Vec<f64> {
    let square = |sum: &i64| u128::from(sum.unsigned_abs()).pow(2);
    let total: u128 = sums.iter().map(square).sum();
    let component = |sum: &i64| {
        // At most 2^36 for the longest text, so the product stays below 2^114.
        let doubled = (square(sum) * 4_000_000_000_000).checked_div(total).unwrap_or(0).isqrt();
        let millionths = u32::try_from(doubled.div_ceil(2)).unwrap_or(u32::MAX);
        // One division of two exact numbers: IEEE 754 leaves no choice.
        let length = f64::from(millionths) / 1_000_000.0;
        if *sum < 0 && millionths > 0 { -length } else { length }
    };
    sums.iter().map(component).collect()
}

/// How far two vectors point in one direction: 1 if they do, 0 if they have nothing in common. None if they differ in
/// length, or if one of them has no direction.
///
/// Sums are taken from the first component to the last, so every machine gets the same number.
pub fn cosine(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.len() != b.len() {
        return None;
    }
    let dot: f64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
    let cosine = dot / (length(a)? * length(b)?);
    cosine.is_finite().then_some(cosine)
}

/// The length of a vector; none if it is zero or beyond all numbers.
pub fn length(a: &[f64]) -> Option<f64> {
    let length = a.iter().map(|x| x * x).sum::<f64>().sqrt();
    (length.is_finite() && length > 0.0).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_documented_one() {
        assert_eq!(hash(&[b""]), 0xefd0_1f60_ba99_2926);
        assert_eq!(hash(&[b"w", b"hello"]), hash(&[b"whello"]));
        assert_eq!(hash(&[b"whello"]), 0xb360_67ce_26af_da4f);
    }

    #[test]
    fn a_count_is_damped() {
        assert_eq!(
            [damped(0), damped(1), damped(2), damped(4), damped(100)],
            [0, 256, 362, 512, 2_560]
        );
    }

    #[test]
    fn a_half_is_rounded_away_from_zero() {
        // 3, 4 and a root of 25: six and eight tenths, exactly.
        assert_eq!(normalise(&[3, -4]), [0.6, -0.8]);
        assert_eq!(normalise(&[1, 0]), [1.0, 0.0]);
        assert_eq!(normalise(&[1, 2]), [0.447214, 0.894427]);
    }

    #[test]
    fn cosine_knows_what_has_no_direction() {
        assert_eq!(cosine(&[1.0, 0.0], &[2.0, 0.0]), Some(1.0));
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 3.0]), Some(0.0));
        assert_eq!(cosine(&[1.0], &[1.0, 0.0]), None);
        assert_eq!(cosine(&[0.0], &[1.0]), None);
        assert_eq!(cosine(&[f64::MAX], &[f64::MAX]), None);
        assert_eq!(cosine(&[f64::NAN], &[1.0]), None);
    }
}
