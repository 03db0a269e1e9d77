//! Which subscriptions want an event: found by what their filters name, not by asking each of them.

use std::collections::{BTreeMap, BTreeSet};

use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Event, EventId, Filter};

/// Names a subscription: its connection, and a number there.
pub(crate) type Number = (u64, u64);

type Numbers = BTreeSet<Number>;

/// All open subscriptions.
///
/// Each filter stands under the condition that lets least through: the ids it names, else the authors, else the values
/// of one tag, else the kinds; a filter without any of these stands under nothing and is asked for every event.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    filters: BTreeMap<Number, Vec<Filter>>,
    ids: BTreeMap<EventId, Numbers>,
    authors: BTreeMap<PublicKey, Numbers>,
    tags: BTreeMap<char, BTreeMap<String, Numbers>>,
    kinds: BTreeMap<u16, Numbers>,
    any: Numbers,
}

impl Subscriptions {
    /// Adds one. A number is used once.
    pub(crate) fn insert(&mut self, number: Number, filters: Vec<Filter>) {
        for filter in filters.iter().filter(|filter| !filter.is_empty()) {
            self.place(number, filter, true);
        }
        self.filters.insert(number, filters);
    }

    /// Takes one out.
    pub(crate) fn remove(&mut self, number: Number) {
        for filter in self.filters.remove(&number).unwrap_or_default() {
            self.place(number, &filter, false);
        }
    }

    /// Takes out all of a connection.
    pub(crate) fn remove_all(&mut self, connection: u64) {
        let of_it = (connection, u64::MIN)..=(connection, u64::MAX);
        let numbers: Vec<Number> = self.filters.range(of_it).map(|(number, _)| *number).collect();
        numbers.into_iter().for_each(|number| self.remove(number));
    }

    pub(crate) fn len(&self) -> usize {
        self.filters.len()
    }

    /// All that want this event, and how many filters had to be asked.
    pub(crate) fn wanting(&self, event: &Event) -> (Numbers, usize) {
        let (mut wanting, mut asked) = (Numbers::new(), 0);
        for number in self.candidates(event) {
            let filters = self.filters.get(&number).map(Vec::as_slice).unwrap_or_default();
            asked += filters.len();
            if filters.iter().any(|filter| filter.matches(event)) {
                wanting.insert(number);
            }
        }
        (wanting, asked)
    }

    fn candidates(&self, event: &Event) -> Numbers {
        let mut found = self.any.clone();
        found.extend(self.ids.get(&event.id).into_iter().flatten());
        found.extend(self.authors.get(&event.pubkey).into_iter().flatten());
        found.extend(self.kinds.get(&event.kind).into_iter().flatten());
        for tag in &event.tags {
            let [name, value, ..] = tag.as_slice() else { continue };
            let mut letters = name.chars();
            if let (Some(letter), None) = (letters.next(), letters.next()) {
                let values = self.tags.get(&letter);
                found.extend(values.and_then(|values| values.get(value)).into_iter().flatten());
            }
        }
        found
    }

    fn place(&mut self, number: Number, filter: &Filter, there: bool) {
        if let Some(ids) = &filter.ids {
            ids.iter().for_each(|id| set(&mut self.ids, id, number, there));
        } else if let Some(authors) = &filter.authors {
            authors.iter().for_each(|author| set(&mut self.authors, author, number, there));
        } else if let Some((letter, values)) = filter.tags.iter().min_by_key(|(_, v)| v.len()) {
            let of_letter = self.tags.entry(*letter).or_default();
            values.iter().for_each(|value| set(of_letter, value, number, there));
            if of_letter.is_empty() {
                self.tags.remove(letter);
            }
        } else if let Some(kinds) = &filter.kinds {
            kinds.iter().for_each(|kind| set(&mut self.kinds, kind, number, there));
        } else if there {
            self.any.insert(number);
        } else {
            self.any.remove(&number);
        }
    }
}

fn set<K: Ord + Clone>(places: &mut BTreeMap<K, Numbers>, key: &K, number: Number, there: bool) {
    if there {
        places.entry(key.clone()).or_default().insert(number);
    } else if let Some(numbers) = places.get_mut(key) {
        numbers.remove(&number);
        if numbers.is_empty() {
            places.remove(key);
        }
    }
}

/// How many values the filters name: what a subscription costs to keep.
pub(crate) fn weight(filters: &[Filter]) -> usize {
    let of = |filter: &Filter| {
        1 + filter.ids.as_ref().map_or(0, BTreeSet::len)
            + filter.authors.as_ref().map_or(0, BTreeSet::len)
            + filter.kinds.as_ref().map_or(0, BTreeSet::len)
            + filter.tags.values().map(BTreeSet::len).sum::<usize>()
    };
    filters.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use guild_protocol::env::Signer;
    use guild_protocol::identity::SecretKey;
    use guild_protocol::nostr::{Draft, tag};

    fn key(number: u64) -> SecretKey {
        format!("{:064x}", number + 1).parse().unwrap()
    }

    fn event(author: u64, kind: u16, value: &str) -> Event {
        let tags = vec![tag::tag(["t", value]), tag::tag(["tt", "0"]), tag::tag(["t"])];
        let draft = Draft { kind, created_at: 100, tags, content: String::new() };
        draft.sign(&key(author)).unwrap()
    }

    #[test]
    fn a_thousand_subscriptions_do_not_cost_a_thousand_questions() {
        let mut all = Subscriptions::default();
        for n in 0..1_000 {
            let author = BTreeSet::from([key(n % 500).public_key()]);
            let by_author = Filter { authors: Some(author), ..Filter::kinds([1]) };
            let by_tag = Filter::kinds([1]).tag('t', [n.to_string()]);
            all.insert((n, 0), vec![if n < 500 { by_author } else { by_tag }]);
        }
        let (wanting, asked) = all.wanting(&event(7, 1, "700"));
        assert_eq!((wanting, asked), (Numbers::from([(7, 0), (700, 0)]), 2));
        all.remove((7, 0));
        all.remove_all(700);
        assert_eq!(all.wanting(&event(7, 1, "700")), (Numbers::new(), 0));
        (0..1_000).for_each(|n| all.remove_all(n));
        let left = (all.len(), all.authors.len(), all.tags.len(), all.kinds.len(), all.any.len());
        assert_eq!(left, (0, 0, 0, 0, 0));
    }

    fn some_filter() -> impl Strategy<Value = Filter> {
        let few = |most: u64| proptest::option::of(proptest::collection::btree_set(0..most, 0..3));
        (few(3), few(3), few(3), 99_u64..102).prop_map(|(authors, kinds, values, since)| Filter {
            authors: authors.map(|set| set.into_iter().map(|n| key(n).public_key()).collect()),
            kinds: kinds.map(|set| set.into_iter().map(|n| n as u16).collect()),
            tags: values
                .map(|set| ('t', set.iter().map(u64::to_string).collect()))
                .into_iter()
                .collect(),
            since: Some(since),
            ..Filter::default()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn the_index_finds_what_asking_everybody_would(
            filters in proptest::collection::vec(proptest::collection::vec(some_filter(), 1..3), 0..12),
            gone in proptest::collection::vec(0_u64..12, 0..4),
            (author, kind, value) in (0_u64..3, 0_u16..3, 0_u64..3),
        ) {
            let event = event(author, kind, &value.to_string());
            let mut all = Subscriptions::default();
            for (n, filters) in filters.iter().enumerate() {
                all.insert((n as u64, 1), filters.clone());
            }
            gone.iter().for_each(|n| all.remove((*n, 1)));
            let wanted: Numbers = filters.iter().enumerate()
                .filter(|(n, filters)| !gone.contains(&(*n as u64)) && filters.iter().any(|f| f.matches(&event)))
                .map(|(n, _)| (n as u64, 1)).collect();
            prop_assert_eq!(all.wanting(&event).0, wanted);
        }
    }
}
