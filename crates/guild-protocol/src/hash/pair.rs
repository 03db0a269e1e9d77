//! Two SHA-256 digests at once.
//!
//! Each round of SHA-256 waits for the one before, so the hash unit of a processor is idle half of the time. Two
//! messages that take turns fill it. Only the blocks of large content are hashed in this way; everything else, and
//! every processor without the unit, uses the common implementation.

use super::Hash;

/// The digests of two messages; faster than one after the other if they have the same length.
pub(crate) fn hash_pair(first: &[u8], second: &[u8]) -> [Hash; 2] {
    #[cfg(target_arch = "x86_64")]
    if first.len() == second.len()
        && let Some(digests) = x86::hash_pair(first, second)
    {
        return digests.map(Hash::from_bytes);
    }
    [Hash::of(first), Hash::of(second)]
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::is_x86_feature_detected as detected;
    use std::arch::x86_64::{
        __m128i, _mm_add_epi32, _mm_alignr_epi8, _mm_extract_epi32, _mm_set_epi32, _mm_set_epi64x,
        _mm_sha256msg1_epu32, _mm_sha256msg2_epu32, _mm_sha256rnds2_epu32, _mm_shuffle_epi8,
        _mm_shuffle_epi32,
    };

    /// FIPS 180-4 §5.3.3, as the instructions want it: A B E F and C D G H.
    const START: [[u32; 4]; 2] = [
        [0x6a09_e667, 0xbb67_ae85, 0x510e_527f, 0x9b05_688c],
        [0x3c6e_f372, 0xa54f_f53a, 0x1f83_d9ab, 0x5be0_cd19],
    ];

    /// FIPS 180-4 §4.2.2, sixteen rounds in a row.
    const ROUNDS: [[[u32; 4]; 4]; 4] = [
        [
            [0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5],
            [0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5],
            [0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3],
            [0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174],
        ],
        [
            [0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc],
            [0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da],
            [0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7],
            [0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967],
        ],
        [
            [0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13],
            [0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85],
            [0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3],
            [0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070],
        ],
        [
            [0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5],
            [0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3],
            [0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208],
            [0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2],
        ],
    ];

    pub(super) fn hash_pair(first: &[u8], second: &[u8]) -> Option<[[u8; 32]; 2]> {
        if !(detected!("sha") && detected!("sse2") && detected!("ssse3") && detected!("sse4.1")) {
            return None;
        }
        #[expect(
            unsafe_code,
            reason = "the processor was just asked whether it has the instructions"
        )]
        let digests = unsafe { with_hash_unit(first, second) };
        Some(digests)
    }

    /// The messages must have one length.
    #[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
    fn with_hash_unit(first: &[u8], second: &[u8]) -> [[u8; 32]; 2] {
        let mut lanes = [Lane::start(), Lane::start()];
        let (first_blocks, first_rest) = first.as_chunks::<64>();
        let (second_blocks, second_rest) = second.as_chunks::<64>();
        for (a, b) in first_blocks.iter().zip(second_blocks) {
            compress(&mut lanes, a, b);
        }
        let (first_end, blocks) = pad(first_rest, first.len());
        let (second_end, _) = pad(second_rest, second.len());
        for (a, b) in first_end.iter().zip(&second_end).take(blocks) {
            compress(&mut lanes, a, b);
        }
        lanes.map(|lane| lane.digest())
    }

    /// The last one or two blocks: what is left, a one bit, zeros, and the length in bits.
    fn pad(rest: &[u8], length: usize) -> ([[u8; 64]; 2], usize) {
        let blocks = if rest.len() < 56 { 1 } else { 2 };
        let bits = u64::try_from(length).unwrap_or(u64::MAX).wrapping_mul(8).to_be_bytes();
        let mut end = [[0; 64]; 2];
        let bytes = end.as_flattened_mut().iter_mut().zip(rest.iter().chain([&0x80]));
        bytes.for_each(|(to, from)| *to = *from);
        let last = end.iter_mut().take(blocks).next_back().into_iter().flatten();
        last.rev().zip(bits.iter().rev()).for_each(|(to, from)| *to = *from);
        (end, blocks)
    }

    #[derive(Clone, Copy)]
    struct Lane {
        abef: __m128i,
        cdgh: __m128i,
    }

    impl Lane {
        #[target_feature(enable = "sse2")]
        fn start() -> Lane {
            let [abef, cdgh] = START;
            let [a, b, e, f] = abef.map(u32::cast_signed);
            let [c, d, g, h] = cdgh.map(u32::cast_signed);
            Lane { abef: _mm_set_epi32(a, b, e, f), cdgh: _mm_set_epi32(c, d, g, h) }
        }

        #[target_feature(enable = "sse2,sse4.1")]
        fn digest(self) -> [u8; 32] {
            let Lane { abef, cdgh } = self;
            let words = [
                _mm_extract_epi32::<3>(abef),
                _mm_extract_epi32::<2>(abef),
                _mm_extract_epi32::<3>(cdgh),
                _mm_extract_epi32::<2>(cdgh),
                _mm_extract_epi32::<1>(abef),
                _mm_extract_epi32::<0>(abef),
                _mm_extract_epi32::<1>(cdgh),
                _mm_extract_epi32::<0>(cdgh),
            ];
            let mut digest = [0; 32];
            let bytes = words.iter().flat_map(|word| word.to_be_bytes());
            digest.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
            digest
        }

        /// Four rounds with four words of the message schedule.
        #[target_feature(enable = "sha,sse2")]
        fn rounds(&mut self, words: __m128i, constants: __m128i) {
            let sum = _mm_add_epi32(words, constants);
            self.cdgh = _mm_sha256rnds2_epu32(self.cdgh, self.abef, sum);
            let upper = _mm_shuffle_epi32::<0x0e>(sum);
            self.abef = _mm_sha256rnds2_epu32(self.abef, self.cdgh, upper);
        }

        #[target_feature(enable = "sse2")]
        fn add(&mut self, before: Lane) {
            self.abef = _mm_add_epi32(self.abef, before.abef);
            self.cdgh = _mm_add_epi32(self.cdgh, before.cdgh);
        }
    }

    #[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
    fn compress(lanes: &mut [Lane; 2], first: &[u8; 64], second: &[u8; 64]) {
        let [mut a, mut b] = *lanes;
        let (mut a_words, mut b_words) = (load(first), load(second));
        let [head, tail @ ..] = ROUNDS;
        for ((a_four, b_four), constants) in a_words.iter().zip(&b_words).zip(head) {
            let constants = vector(constants);
            a.rounds(*a_four, constants);
            b.rounds(*b_four, constants);
        }
        for [k0, k1, k2, k3] in tail {
            let [a0, a1, a2, a3] = &mut a_words;
            let [b0, b1, b2, b3] = &mut b_words;
            *a0 = schedule(*a0, *a1, *a2, *a3);
            *b0 = schedule(*b0, *b1, *b2, *b3);
            a.rounds(*a0, vector(k0));
            b.rounds(*b0, vector(k0));
            *a1 = schedule(*a1, *a2, *a3, *a0);
            *b1 = schedule(*b1, *b2, *b3, *b0);
            a.rounds(*a1, vector(k1));
            b.rounds(*b1, vector(k1));
            *a2 = schedule(*a2, *a3, *a0, *a1);
            *b2 = schedule(*b2, *b3, *b0, *b1);
            a.rounds(*a2, vector(k2));
            b.rounds(*b2, vector(k2));
            *a3 = schedule(*a3, *a0, *a1, *a2);
            *b3 = schedule(*b3, *b0, *b1, *b2);
            a.rounds(*a3, vector(k3));
            b.rounds(*b3, vector(k3));
        }
        let [a_before, b_before] = *lanes;
        a.add(a_before);
        b.add(b_before);
        *lanes = [a, b];
    }

    /// The next four words of the message schedule, from the sixteen before them.
    #[target_feature(enable = "sha,sse2,ssse3")]
    fn schedule(w0: __m128i, w1: __m128i, w2: __m128i, w3: __m128i) -> __m128i {
        let sum = _mm_add_epi32(_mm_sha256msg1_epu32(w0, w1), _mm_alignr_epi8::<4>(w3, w2));
        _mm_sha256msg2_epu32(sum, w3)
    }

    #[target_feature(enable = "sse2,ssse3")]
    fn load(block: &[u8; 64]) -> [__m128i; 4] {
        let swap = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
        let (sixteens, _) = block.as_chunks::<16>();
        let mut words = [_mm_set_epi64x(0, 0); 4];
        for (to, from) in words.iter_mut().zip(sixteens) {
            let both = u128::from_le_bytes(*from);
            let (low, high) = (both as u64, (both >> 64) as u64);
            let loaded = _mm_set_epi64x(high.cast_signed(), low.cast_signed());
            *to = _mm_shuffle_epi8(loaded, swap);
        }
        words
    }

    #[target_feature(enable = "sse2")]
    fn vector(words: [u32; 4]) -> __m128i {
        let [w0, w1, w2, w3] = words.map(u32::cast_signed);
        _mm_set_epi32(w3, w2, w1, w0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_at_once_are_the_two_one_by_one() {
        let bytes: Vec<u8> = (0..1000u32).map(|i| (i * 31 + (i >> 8) * 7) as u8).collect();
        // Every length around the ends of blocks, and lengths that differ.
        for length in 0..400 {
            let (first, second) = (&bytes[..length], &bytes[500..500 + length]);
            assert_eq!(hash_pair(first, second), [Hash::of(first), Hash::of(second)], "{length}");
        }
        assert_eq!(hash_pair(b"a", b""), [Hash::of(b"a"), Hash::of(b"")]);
    }
}
