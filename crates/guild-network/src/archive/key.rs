//! Numbers that stand for longer things in an index.

use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Event, EventId, kind};

/// The term of every event.
pub(crate) const EVERYTHING: i64 = i64::MIN;

/// The first eight bytes of an id. Keys have the order of their ids.
pub(crate) fn id_key(id: &EventId) -> i64 {
    first_eight(id.as_bytes())
}

/// Flips the highest bit, so that the order of the signed numbers is that of the bytes.
fn first_eight(bytes: &[u8; 32]) -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = *bytes;
    (u64::from_be_bytes([a, b, c, d, e, f, g, h]) ^ (1 << 63)).cast_signed()
}

/// The first sixty bits of a key: so many digits of it SQL can make a number of.
pub(crate) fn pubkey_key(key: &PublicKey) -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = *key.as_bytes();
    (u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 4).cast_signed()
}

/// Where the announcement of an offer stands among the addresses.
pub(crate) fn offer_key(author: &PublicKey, d: &str) -> i64 {
    Address::of(kind::ANNOUNCEMENT, author, d).map_or(0, |address| address.key)
}

fn hashed(parts: &[&[u8]]) -> i64 {
    let mut hasher = guild_protocol::hash::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    first_eight(hasher.finish().as_bytes())
}

/// The term of a kind: its number.
pub(crate) fn kind_term(kind: u16) -> i64 {
    i64::from(kind)
}

/// What an event may have beside its kind: an author, or a tag with a one-letter name. Its terms, one for each kind,
/// are neighbours: whoever asks for some kinds of what points at somebody need not pass by all the rest, and whoever
/// asks for all kinds finds them side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stem(i64);

/// The bits of a term that say the kind.
const KIND_BITS: i64 = 0xffff;

impl Stem {
    fn new(parts: &[&[u8]]) -> Stem {
        Stem(hashed(parts) & !KIND_BITS)
    }

    /// The stem of an author.
    pub(crate) fn author(author: &PublicKey) -> Stem {
        Stem::new(&[b"author:", author.as_bytes()])
    }

    /// The stem of a tag with a one-letter name.
    pub(crate) fn tag(letter: char, value: &str) -> Stem {
        let mut name = [0; 4];
        Stem::new(&[letter.encode_utf8(&mut name).as_bytes(), b":", value.as_bytes()])
    }

    /// Its term with a kind.
    pub(crate) fn term(self, kind: u16) -> i64 {
        self.0 | i64::from(kind)
    }
}

/// The kind of a term that has a stem.
pub(crate) fn kind_of(term: i64) -> u16 {
    u16::try_from(term & KIND_BITS).unwrap_or(u16::MAX)
}

/// The first and the last term under which an answer to a request stands: the kind of feedback follows those of
/// results.
pub(crate) fn answer_terms(request: &EventId) -> (i64, i64) {
    let stem = Stem::tag('e', &request.hex());
    (stem.term(*kind::RESULTS.start()), stem.term(kind::FEEDBACK))
}

/// All terms of an event, each once.
pub(crate) fn terms(event: &Event) -> Vec<i64> {
    let mut terms = Vec::with_capacity(event.tags.len().saturating_add(3));
    terms.extend([EVERYTHING, kind_term(event.kind), Stem::author(&event.pubkey).term(event.kind)]);
    for tag in &event.tags {
        if let [name, value, ..] = tag.as_slice()
            && let Some(letter) = letter(name)
        {
            terms.push(Stem::tag(letter, value).term(event.kind));
        }
    }
    terms.sort_unstable();
    terms.dedup();
    terms
}

/// The bits of a place that are of the id.
const PLACE_ID_BITS: u32 = 28;
/// All times from here on have one place; the year is 3058.
const PLACE_MAX_S: i64 = (1 << (63 - PLACE_ID_BITS)) - 1;

/// Where an event stands among those with the same term: the newer first, of one second that with the lower id, as far
/// as the first bits of the id tell. Whoever reads does not stop between events of one place, and sorts them.
pub(crate) fn place(created_at: i64, id_key: i64) -> i64 {
    let id_bits = (id_key.cast_unsigned() ^ (1 << 63)) >> (64 - PLACE_ID_BITS);
    first_place(created_at) | id_bits.cast_signed()
}

/// The first place of a second.
pub(crate) fn first_place(created_at: i64) -> i64 {
    created_at.clamp(0, PLACE_MAX_S).saturating_neg() << PLACE_ID_BITS
}

/// The last place of a second.
pub(crate) fn last_place(created_at: i64) -> i64 {
    first_place(created_at) | ((1 << PLACE_ID_BITS) - 1)
}

/// The letter, if the name is one that a filter can ask for.
fn letter(name: &str) -> Option<char> {
    let mut letters = name.chars();
    match (letters.next(), letters.next()) {
        (Some(letter @ ('a'..='z' | 'A'..='Z')), None) => Some(letter),
        _ => None,
    }
}

/// Where the versions of a replaceable or addressable event stand: the hash of `kind:author:d`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    pub(crate) key: i64,
    pub(crate) hex: String,
}

impl Address {
    /// The address of these; none for a kind whose events do not replace each other. A `d` counts only where it must.
    pub(crate) fn of(kind: u16, author: &PublicKey, d: &str) -> Option<Address> {
        let d = match (kind::is_addressable(kind), kind::is_replaceable(kind)) {
            (true, _) => d,
            (_, true) => "",
            _ => return None,
        };
        let hash = Hash::of(format!("{kind}:{}:{d}", author.hex()).as_bytes());
        Some(Address { key: first_eight(hash.as_bytes()), hex: hash.hex() })
    }

    pub(crate) fn of_event(event: &Event) -> Option<Address> {
        if kind::is_regular(event.kind) || kind::is_ephemeral(event.kind) {
            return None;
        }
        Address::of(event.kind, &event.pubkey, event.tag("d").unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_order_of_their_ids() {
        let id = |byte: u8| EventId::from_bytes([byte; 32]);
        let keys: Vec<i64> = [0x00, 0x01, 0x7f, 0x80, 0xff].map(id).iter().map(id_key).collect();
        assert!(keys.is_sorted());
        assert_eq!((keys[0], keys[4]), (i64::MIN, i64::MAX));
    }

    #[test]
    fn terms_do_not_mix() {
        let tag = Stem::tag;
        assert_ne!(tag('e', "x"), tag('E', "x"));
        assert_ne!(tag('e', "p:x"), tag('p', "x"));
        assert_ne!(tag('e', "x").term(1), tag('e', "x").term(2));
        assert_eq!(letter("é"), None);
        assert_eq!(letter("ee"), None);
    }

    #[test]
    fn the_terms_of_a_stem_are_neighbours() {
        for stem in [Stem::tag('e', "x"), Stem::tag('p', "y"), Stem::tag('t', "z")] {
            assert_eq!(stem.term(u16::MAX) - stem.term(0), 65_535);
            for kind in [0, 1, 7_000, u16::MAX] {
                let term = stem.term(kind);
                assert_eq!((term & !KIND_BITS, kind_of(term)), (stem.term(0), kind));
            }
        }
    }

    #[test]
    fn places_have_the_order_of_answers() {
        let place_of = |s, first: u8| place(s, id_key(&EventId::from_bytes([first; 32])));
        let times = [i64::MAX, PLACE_MAX_S, PLACE_MAX_S - 1, 1_800_000_000, 1, 0];
        let places = times.map(|s| [0x00, 0x7f, 0x80, 0xff].map(|first| place_of(s, first)));
        assert_eq!(places[0], places[1], "beyond the year 3058");
        assert!(places[1..].as_flattened().is_sorted_by(|a, b| a < b));
        for (time, places) in times.iter().zip(&places) {
            let (first, last) = (first_place(*time), last_place(*time));
            assert!(places.iter().all(|place| (first..=last).contains(place)));
        }
        assert_eq!((place_of(0, 0x00), place_of(0, 0xff)), (first_place(0), last_place(0)));
    }
}
