//! The points that keys name, remembered: whoever reads a market reads the same keys again and again, and to find the
//! point of a key costs a tenth of checking a signature.

use std::cell::RefCell;

use secp256k1::XOnlyPublicKey;

/// So many sets of places are kept in each thread that needs any.
const SETS: usize = 1_024;
/// The places of a set: keys that fall together do not drive each other out at once.
const WAYS: usize = 4;

/// A key, and its point.
type Known = ([u8; 32], XOnlyPublicKey);

thread_local! {
    /// Each key has one set; in a full one the oldest makes room. What is forgotten is computed again, so nobody can
    /// see the difference.
    static POINTS: RefCell<Vec<[Option<Known>; WAYS]>> = const { RefCell::new(Vec::new()) };
}

/// The point with this x coordinate; none if there is none.
pub(super) fn point(key: &[u8; 32]) -> Option<XOnlyPublicKey> {
    POINTS.with_borrow_mut(|points| {
        if points.is_empty() {
            points.resize(SETS, [None; WAYS]);
        }
        let set = points.get_mut(set_of(key))?;
        if let Some((_, point)) = set.iter().flatten().find(|(known, _)| known == key) {
            return Some(*point);
        }
        let point = XOnlyPublicKey::from_slice(key).ok()?;
        set.rotate_right(1);
        if let Some(first) = set.first_mut() {
            *first = Some((*key, point));
        }
        Some(point)
    })
}

/// A key is as good as random; whoever makes keys that share a set only makes them slower.
fn set_of(key: &[u8; 32]) -> usize {
    let [.., high, low] = *key;
    usize::from(u16::from_be_bytes([high, low])) % SETS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_share_a_set_keep_their_own_points() {
        let generator = secp256k1::constants::GENERATOR_X;
        let secret = secp256k1::Keypair::from_seckey_slice(secp256k1::SECP256K1, &[7; 32]).unwrap();
        let other = secret.x_only_public_key().0.serialize();
        // Of the keys that end as the generator does, enough to drive each other out; half of them are no points.
        let like_generator = (0..40_u8).map(|n| {
            let mut key = [n; 32];
            key[30..].copy_from_slice(&generator[30..]);
            key
        });
        let keys: Vec<[u8; 32]> = like_generator.chain([generator, other]).collect();
        assert!(keys[..40].iter().all(|key| set_of(key) == set_of(&generator)));
        let points: Vec<_> = keys.iter().map(|key| XOnlyPublicKey::from_slice(key).ok()).collect();
        assert!(points[..40].iter().flatten().count() > WAYS && points.contains(&None));
        for _ in 0..3 {
            for (key, expected) in keys.iter().zip(&points) {
                assert_eq!((point(key), point(key)), (*expected, *expected));
            }
        }
    }
}
