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

fn hashed(parts: &[&[u8]]) -> i64 {
    let mut hasher = guild_protocol::hash::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    first_eight(hasher.finish().as_bytes())
}

/// The term of a kind: its number.
pub(crate) fn kind_term(kind: u16) -> i64 {
    i64::from(kind)
}

/// The term of an author.
pub(crate) fn author_term(author: &PublicKey) -> i64 {
    hashed(&[b"author:", author.as_bytes()])
}

/// The term of a tag with a one-letter name.
pub(crate) fn tag_term(letter: char, value: &str) -> i64 {
    let mut name = [0; 4];
    hashed(&[letter.encode_utf8(&mut name).as_bytes(), b":", value.as_bytes()])
}

/// Whether tags of this letter have a term with the kind of their event too. By these, strangers point at others:
/// whoever asks for some kinds of what points at somebody need not pass by all the rest.
pub(crate) fn has_kind_terms(letter: char) -> bool {
    matches!(letter, 'e' | 'k' | 'p')
}

/// The term of such a tag of an event of this kind.
pub(crate) fn kind_tag_term(kind: u16, letter: char, value: &str) -> i64 {
    let mut name = [0; 4];
    let letter = letter.encode_utf8(&mut name).as_bytes();
    hashed(&[b"kind:", &kind.to_be_bytes(), letter, b":", value.as_bytes()])
}

/// All terms of an event, each once.
pub(crate) fn terms(event: &Event) -> Vec<i64> {
    let mut terms = vec![EVERYTHING, kind_term(event.kind), author_term(&event.pubkey)];
    for tag in &event.tags {
        if let [name, value, ..] = tag.as_slice()
            && let Some(letter) = letter(name)
        {
            terms.push(tag_term(letter, value));
            if has_kind_terms(letter) {
                terms.push(kind_tag_term(event.kind, letter, value));
            }
        }
    }
    terms.sort_unstable();
    terms.dedup();
    terms
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
        assert_ne!(tag_term('e', "x"), tag_term('E', "x"));
        assert_ne!(tag_term('e', "p:x"), tag_term('p', "x"));
        assert_ne!(kind_tag_term(1, 'e', "x"), kind_tag_term(2, 'e', "x"));
        assert_ne!(kind_tag_term(1, 'e', "x"), tag_term('e', "x"));
        assert_eq!(letter("é"), None);
        assert_eq!(letter("ee"), None);
    }
}
