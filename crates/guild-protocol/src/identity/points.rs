//! The points that keys name, remembered: whoever reads a market reads the same keys again and again, and to find the
//! point of a key costs a tenth of checking a signature.

use std::cell::RefCell;

use secp256k1::XOnlyPublicKey;

/// As many as are remembered in each thread that needs any.
const PLACES: usize = 4_096;

/// A key, and its point.
type Known = ([u8; 32], XOnlyPublicKey);

thread_local! {
    /// Each key has one place; the last that needed it keeps it. What is forgotten is computed again, so nobody can
    /// see the difference.
    static POINTS: RefCell<Vec<Option<Known>>> = const { RefCell::new(Vec::new()) };
}

/// The point with this x coordinate; none if there is none.
pub(super) fn point(key: &[u8; 32]) -> Option<XOnlyPublicKey> {
    POINTS.with_borrow_mut(|points| {
        if points.is_empty() {
            points.resize(PLACES, None);
        }
        let place = points.get_mut(place_of(key))?;
        if let Some((known, point)) = place
            && known == key
        {
            return Some(*point);
        }
        let point = XOnlyPublicKey::from_slice(key).ok()?;
        *place = Some((*key, point));
        Some(point)
    })
}

/// A key is as good as random; whoever makes keys that share a place only makes them slower.
fn place_of(key: &[u8; 32]) -> usize {
    let [.., high, low] = *key;
    usize::from(u16::from_be_bytes([high, low])) % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_share_a_place_keep_their_own_points() {
        let generator = secp256k1::constants::GENERATOR_X;
        let secret = secp256k1::Keypair::from_seckey_slice(secp256k1::SECP256K1, &[7; 32]).unwrap();
        let other = secret.x_only_public_key().0.serialize();
        for _ in 0..3 {
            for key in [generator, other] {
                assert_eq!(point(&key), XOnlyPublicKey::from_slice(&key).ok());
            }
        }
        // The same place as the generator, and no point: x is beyond the field.
        let mut none = [0xff; 32];
        none[30..].copy_from_slice(&generator[30..]);
        assert_eq!(place_of(&none), place_of(&generator));
        assert_eq!((point(&none), point(&generator).is_some()), (None, true));
    }
}
