//! The text of an event, written once: what is stored and sent holds all that is signed.

use super::{Event, EventId, write_number, write_tags};
use crate::hash::{Hasher, write_hex};
use crate::json;

/// The canonical JSON of an event, and where its parts stand in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventText {
    json: String,
    /// Where the content ends, with its quotation marks.
    content_end: usize,
    created_at_end: usize,
    kind_end: usize,
}

/// The names of the fields in canonical order, with all that stands around them. Between them: the content, the time,
/// the id, the kind, the author, the signature and the tags.
const CONTENT: &str = "{\"content\":";
const CREATED_AT: &str = ",\"created_at\":";
const ID: &str = ",\"id\":\"";
const KIND: &str = "\",\"kind\":";
const PUBKEY: &str = ",\"pubkey\":\"";
const SIG: &str = "\",\"sig\":\"";
const TAGS: &str = "\",\"tags\":";

/// The digits of an id or a key.
const HEX: usize = 64;
/// From the end of the time to the kind, from its end to the signature, and from there to the tags.
const CREATED_AT_TO_KIND: usize = ID.len() + HEX + KIND.len();
const KIND_TO_SIG: usize = PUBKEY.len() + HEX + SIG.len();
const SIG_TO_TAGS: usize = 2 * HEX + TAGS.len();

/// How many bytes the text has if nothing in it is escaped, and a few more: a text that must grow when it is nearly
/// complete is copied, and holds twice what it needs for as long as it waits.
fn about(event: &Event) -> usize {
    let item = |sum: usize, item: &String| sum.saturating_add(item.len()).saturating_add(3);
    let tag = |sum: usize, tag: &Vec<String>| tag.iter().fold(sum.saturating_add(3), item);
    event.tags.iter().fold(event.content.len().saturating_add(FIXED_BYTES), tag)
}

/// As many bytes as the text has beside content and tags, and 48 that escapes may take.
const FIXED_BYTES: usize = 4 * HEX + 144;

impl EventText {
    pub(super) fn of(event: &Event) -> EventText {
        let mut out = Vec::with_capacity(about(event));
        out.extend_from_slice(CONTENT.as_bytes());
        json::write_text(&event.content, &mut out);
        let content_end = out.len();
        out.extend_from_slice(CREATED_AT.as_bytes());
        write_number(event.created_at, &mut out);
        let created_at_end = out.len();
        out.extend_from_slice(ID.as_bytes());
        write_hex(event.id.as_bytes(), &mut out);
        out.extend_from_slice(KIND.as_bytes());
        write_number(u64::from(event.kind), &mut out);
        let kind_end = out.len();
        out.extend_from_slice(PUBKEY.as_bytes());
        write_hex(event.pubkey.as_bytes(), &mut out);
        out.extend_from_slice(SIG.as_bytes());
        write_hex(event.sig.as_bytes(), &mut out);
        out.extend_from_slice(TAGS.as_bytes());
        write_tags(&event.tags, &mut out);
        out.push(b'}');
        // Made of texts only, so it is UTF-8 and nothing is lost.
        let json = String::from_utf8(out).unwrap_or_default();
        EventText { json, content_end, created_at_end, kind_end }
    }

    /// The whole: equal events have equal texts.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The whole, and nothing else.
    pub fn into_json(self) -> String {
        self.json
    }

    /// The content as JSON, with its quotation marks.
    pub fn content(&self) -> &str {
        self.part(CONTENT.len(), self.content_end)
    }

    /// The digits of the id.
    pub fn id(&self) -> &str {
        let start = self.created_at_end.saturating_add(ID.len());
        self.part(start, start.saturating_add(HEX))
    }

    /// The digits of the author's key.
    pub fn pubkey(&self) -> &str {
        let start = self.kind_end.saturating_add(PUBKEY.len());
        self.part(start, start.saturating_add(HEX))
    }

    /// All from the first digit of the signature on.
    pub fn from_sig(&self) -> &str {
        self.part(self.sig_start(), self.json.len())
    }

    fn sig_start(&self) -> usize {
        self.kind_end.saturating_add(KIND_TO_SIG)
    }

    /// The id of what the text says, whatever it claims: its parts in the order in which they are signed.
    pub(super) fn compute_id(&self) -> EventId {
        let created_at = self.content_end.saturating_add(CREATED_AT.len());
        let kind = self.created_at_end.saturating_add(CREATED_AT_TO_KIND);
        let tags = self.sig_start().saturating_add(SIG_TO_TAGS);
        let mut hasher = Hasher::new();
        for part in [
            "[0,\"",
            self.pubkey(),
            "\",",
            self.part(created_at, self.created_at_end),
            ",",
            self.part(kind, self.kind_end),
            ",",
            self.part(tags, self.json.len().saturating_sub(1)),
            ",",
            self.content(),
            "]",
        ] {
            hasher.update(part.as_bytes());
        }
        EventId(*hasher.finish().as_bytes())
    }

    fn part(&self, start: usize, end: usize) -> &str {
        self.json.get(start..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::identity::SecretKey;
    use crate::nostr::Draft;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_text_has_the_parts_of_its_event(
            content in any::<String>(),
            tags in proptest::collection::vec(proptest::collection::vec(any::<String>(), 0..4), 0..4),
            kind in any::<u16>(),
            created_at in 0..=crate::json::MAX_SAFE_INTEGER,
        ) {
            let key: SecretKey = format!("{:064x}", 1).parse().unwrap();
            let event = Draft { kind, created_at, tags, content }.sign(&key).unwrap();
            let text = event.text();
            prop_assert_eq!(text.json().as_bytes(), event.to_doc().to_canonical());
            prop_assert_eq!(text.id(), event.id.hex());
            prop_assert_eq!(text.pubkey(), event.pubkey.hex());
            let rest = text.from_sig().strip_prefix(&event.sig.hex());
            prop_assert!(rest.is_some_and(|rest| rest.starts_with("\",\"tags\":[")));
            let content: String = serde_json::from_str(text.content()).unwrap();
            prop_assert_eq!(&content, &event.content);
            prop_assert_eq!(text.compute_id(), event.compute_id());
            prop_assert!(event.verified_text().is_ok());
            let forged = Event { kind: kind ^ 1, ..event };
            prop_assert_eq!(forged.text().compute_id(), forged.compute_id());
            prop_assert!(forged.verified_text().is_err());
        }
    }
}
