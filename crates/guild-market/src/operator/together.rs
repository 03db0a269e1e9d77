//! Which keys are counted together.

use std::collections::BTreeMap;

use guild_protocol::identity::PublicKey;

use super::{Clusters, Signs};

/// Which keys belong together; whoever is not named is alone. An operator is named by its lowest key.
pub fn clusters(all: &[Signs]) -> Clusters {
    heads(all).into_iter().map(|(key, head)| (key, head.npub())).collect()
}

/// The lowest of all that are one with each key; whoever is not named is alone. Each key is looked up by its signs, so
/// twice as many keys take little more than twice as long.
fn heads(all: &[Signs]) -> BTreeMap<PublicKey, PublicKey> {
    let mut keys: Vec<PublicKey> = all.iter().map(|signs| signs.provider).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut sets = Sets((0..keys.len()).collect());
    let mut first_with: BTreeMap<String, usize> = BTreeMap::new();
    for signs in all {
        let Ok(place) = keys.binary_search(&signs.provider) else { continue };
        for mark in signs.marks() {
            let first = *first_with.entry(mark).or_insert(place);
            sets.unite(first, place);
        }
    }
    let roots: Vec<usize> = (0..keys.len()).map(|place| sets.root(place)).collect();
    let mut sizes = vec![0_usize; keys.len()];
    for root in &roots {
        if let Some(size) = sizes.get_mut(*root) {
            *size = size.saturating_add(1);
        }
    }
    let together = keys.iter().zip(&roots);
    let together =
        together.filter(|(_, root)| sizes.get(**root).copied().is_some_and(|size| size > 1));
    together.filter_map(|(key, root)| Some((*key, *keys.get(*root)?))).collect()
}

/// Sets of places, each named by its lowest one (union-find).
struct Sets(Vec<usize>);

impl Sets {
    fn above(&self, place: usize) -> usize {
        self.0.get(place).copied().unwrap_or(place)
    }

    fn set(&mut self, place: usize, above: usize) {
        if let Some(known) = self.0.get_mut(place) {
            *known = above;
        }
    }

    fn root(&mut self, place: usize) -> usize {
        let mut at = place;
        loop {
            let above = self.above(at);
            if above == at {
                return at;
            }
            // Whoever comes this way again has half of it.
            let next = self.above(above);
            self.set(at, next);
            at = next;
        }
    }

    fn unite(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        self.set(one.max(other), one.min(other));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use guild_protocol::env::Signer;
    use guild_protocol::hash::Hash;
    use guild_protocol::identity::SecretKey;
    use proptest::prelude::*;

    use super::super::tests::{signs, who};
    use super::*;
    use crate::delegation::cluster_of;

    #[test]
    fn one_sign_is_not_enough_and_all_are() {
        let all = [
            signs(1, "same", "ws://a", 7, None),
            signs(2, "same", "ws://a", 7, None),
            // Two of three: others have the same.
            signs(3, "same", "ws://a", 8, None),
            signs(4, "same", "ws://b", 7, None),
            signs(5, "other", "ws://a", 7, None),
        ];
        let found = clusters(&all);
        assert_eq!(
            found.keys().copied().collect::<BTreeSet<_>>(),
            BTreeSet::from([who(1), who(2)])
        );
        assert_eq!(cluster_of(&found, &who(1)), cluster_of(&found, &who(2)));
        assert_eq!(cluster_of(&found, &who(3)), who(3).npub());
        assert!(clusters(&[]).is_empty());
    }

    #[test]
    fn whoever_is_paid_at_one_place_is_one_and_what_touches_becomes_one() {
        let all = [
            signs(1, "a", "ws://a", 1, Some("node")),
            signs(2, "b", "ws://b", 2, Some("node")),
            signs(3, "b", "ws://b", 2, None),
            signs(4, "d", "ws://d", 4, Some("elsewhere")),
            signs(5, "e", "ws://e", 5, Some("elsewhere")),
        ];
        let found = clusters(&all);
        let of = |n| cluster_of(&found, &who(n));
        assert_eq!((of(1), of(2)), (of(2), of(3)));
        assert_eq!(of(4), of(5));
        assert_ne!(of(1), of(4));
        // The order in which they are read decides nothing.
        let mut turned = all.to_vec();
        turned.reverse();
        assert_eq!(clusters(&turned), found);
    }

    /// The same, as it is said: whoever shares a mark is one, and so is whatever touches that.
    fn naive(all: &[Signs]) -> BTreeMap<PublicKey, PublicKey> {
        let mut heads: BTreeMap<PublicKey, PublicKey> =
            all.iter().map(|signs| (signs.provider, signs.provider)).collect();
        loop {
            let before = heads.clone();
            for (one, other) in all.iter().flat_map(|one| all.iter().map(move |other| (one, other)))
            {
                let marks = one.marks();
                let same = one.provider == other.provider;
                if same || other.marks().iter().any(|mark| marks.contains(mark)) {
                    let least = heads[&one.provider].min(heads[&other.provider]);
                    heads.insert(one.provider, least);
                    heads.insert(other.provider, least);
                }
            }
            if heads == before {
                break;
            }
        }
        let size = |of: &PublicKey| heads.values().filter(|head| *head == of).count();
        heads.iter().filter(|(_, head)| size(head) > 1).map(|(key, head)| (*key, *head)).collect()
    }

    fn any_signs() -> impl Strategy<Value = Signs> {
        let payee = prop::option::of(prop::sample::select(vec!["node", "elsewhere", "third"]));
        (1_u8..=12, prop::bool::ANY, 0_u8..3, 0_u8..2, payee).prop_map(
            |(n, has_text, text, beat_s, payee)| {
                let mut one = signs(n, &text.to_string(), "ws://a", beat_s, payee);
                one.text = one.text.filter(|_| has_text);
                one
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

        #[test]
        fn it_is_what_comparing_each_with_each_gives(all in prop::collection::vec(any_signs(), 0..24)) {
            prop_assert_eq!(heads(&all), naive(&all));
        }
    }

    #[test]
    fn very_many_are_compared_by_their_signs() {
        const MANY: usize = 20_000;
        let keys: Vec<PublicKey> = (0_u32..).map(numbered).take(MANY).collect();
        let chain = |at: usize| Signs {
            provider: keys[at],
            // Two by two they have a card, and two by two, one further, a payee: so all are one.
            text: Some(Hash::of(&(at / 2).to_be_bytes()).hex()),
            relays: BTreeSet::from(["ws://a".to_owned()]),
            beat_s: Some(7),
            payee: Some(at.div_ceil(2).to_string()),
            node: None,
        };
        let all: Vec<Signs> = (0..MANY).map(chain).collect();
        let found = heads(&all);
        let least = keys.iter().min().unwrap();
        assert_eq!(found.len(), MANY);
        assert!(found.values().all(|head| head == least));
        // By twos, without the payees: as many operators as half of them.
        let pairs: Vec<Signs> =
            all.into_iter().map(|signs| Signs { payee: None, ..signs }).collect();
        let heads: BTreeSet<PublicKey> = heads(&pairs).into_values().collect();
        assert_eq!(heads.len(), MANY / 2);
    }

    fn numbered(n: u32) -> PublicKey {
        let mut bytes = [7; 32];
        bytes[..4].copy_from_slice(&n.to_be_bytes());
        SecretKey::from_bytes(bytes).unwrap().public_key()
    }
}
