//! A private message of which nobody but its reader sees who wrote it, to whom, or when (NIP-17, NIP-59).
//!
//! The message itself, the *rumor*, is not signed: whoever shows it around proves nothing. It lies in a *seal*, signed
//! by its author and readable by its reader alone, and that in a *wrap*, signed by a key that is used once.

use super::{Draft, Event, Limits, kind, nip44, unix_s};
use crate::env::{Random, UnixMs};
use crate::identity::{PublicKey, SecretKey};
use crate::json::{self, Doc};
use crate::{Error, Result};

/// The codes of this module.
pub mod code {
    crate::codes! {
        MALFORMED = "nostr.gift_malformed", Invalid,
            "What is in a gift wrap is not a seal with a message by the same author.",
            "Do not trust it: somebody may write in the name of another.";
    }
}

/// Wraps and seals say a time of up to two days ago, so that theirs says nothing.
const EARLIER_S: u64 = 172_800;
/// Deeper than an event ever is.
const MAX_DEPTH: usize = 8;

/// What was in a wrap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rumor {
    /// Who wrote it: whoever sealed it.
    pub author: PublicKey,
    /// What it says.
    pub draft: Draft,
}

/// Wraps a message for one reader.
///
/// ```
/// use guild_protocol::{env::{Random, Signer}, identity::SecretKey, nostr::{Draft, gift, kind}};
/// struct Dice;
/// impl Random for Dice {
///     fn fill(&self, bytes: &mut [u8]) { bytes.fill(4) }
/// }
/// let key = |n: u8| SecretKey::from_bytes([n; 32]).unwrap();
/// let said = Draft { kind: kind::PRIVATE_MESSAGE, created_at: 1_700_000_000, tags: vec![], content: "psst".into() };
/// let wrapped = gift::wrap(said.clone(), &key(1), &key(2).public_key(), 1_700_000_000_000, &Dice).unwrap();
/// assert!(wrapped.pubkey != key(1).public_key() && wrapped.created_at <= 1_700_000_000);
/// let read = gift::unwrap(&wrapped, &key(2)).unwrap();
/// assert_eq!((read.author, read.draft), (key(1).public_key(), said));
/// assert!(gift::unwrap(&wrapped, &key(3)).is_err());
/// ```
pub fn wrap(
    rumor: Draft,
    author: &SecretKey,
    reader: &PublicKey,
    now_ms: UnixMs,
    random: &dyn Random,
) -> Result<Event> {
    let rumor = unsigned(&rumor.sign(author)?);
    let earlier = || unix_s(now_ms).saturating_sub(random.next_u64() % EARLIER_S);
    let seal = Draft {
        kind: kind::SEAL,
        created_at: earlier(),
        tags: Vec::new(),
        content: nip44::encrypt(author, reader, &rumor, random)?,
    };
    let seal = seal.sign(author)?.to_json();
    let once = SecretKey::make(random);
    let wrap = Draft {
        kind: kind::GIFT_WRAP,
        created_at: earlier(),
        tags: vec![vec!["p".to_owned(), reader.hex()]],
        content: nip44::encrypt(&once, reader, &seal, random)?,
    };
    wrap.sign(&once)
}

/// The text of an event without its signature.
fn unsigned(event: &Event) -> String {
    let mut doc = event.to_doc();
    if let Doc::Object(members) = &mut doc {
        members.retain(|(name, _)| name != "sig");
    }
    String::from_utf8_lossy(&doc.to_canonical()).into_owned()
}

/// Opens a wrap: its own signature, that of the seal, and that both layers name one author.
pub fn unwrap(wrapped: &Event, own: &SecretKey) -> Result<Rumor> {
    if wrapped.kind != kind::GIFT_WRAP {
        return Err(malformed("the event is no gift wrap"));
    }
    wrapped.verify()?;
    let seal = nip44::decrypt(own, &wrapped.pubkey, &wrapped.content)?;
    let seal = Event::parse_verified(seal.as_bytes(), &Limits::DEFAULT)?;
    if seal.kind != kind::SEAL || !seal.tags.is_empty() {
        return Err(malformed("what is wrapped is no seal"));
    }
    let text = nip44::decrypt(own, &seal.pubkey, &seal.content)?;
    let limits = json::Limits { max_bytes: Limits::DEFAULT.max_bytes, max_depth: MAX_DEPTH };
    let Doc::Object(mut members) = Doc::parse_within(text.as_bytes(), limits)? else {
        return Err(malformed("what is sealed is no message"));
    };
    members.retain(|(name, _)| name != "sig");
    // Nobody signed it; the seal's author is who says it.
    members.push(("sig".into(), Doc::Text("0".repeat(128).into())));
    let rumor = Event::from_doc(Doc::Object(members), &Limits::DEFAULT)?;
    rumor.verify_id()?;
    if rumor.pubkey != seal.pubkey {
        return Err(malformed("the message is said to be by somebody else than who sealed it"));
    }
    let Event { created_at, kind, tags, content, .. } = rumor;
    Ok(Rumor { author: seal.pubkey, draft: Draft { kind, created_at, tags, content } })
}

fn malformed(why: &str) -> Error {
    Error::new(&code::MALFORMED, why)
}

#[cfg(test)]
mod tests {
    use ::nostr::nips::nip59::UnwrappedGift;

    use super::*;
    use crate::env::Signer;

    struct Count(std::sync::atomic::AtomicU8);

    impl Random for Count {
        fn fill(&self, bytes: &mut [u8]) {
            let next = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            bytes.fill(next.wrapping_add(1));
        }
    }

    /// The other implementation, with a key of ours: its own needs randomness of the system.
    #[derive(Debug)]
    struct Reader(SecretKey);

    impl ::nostr::nips::nip44::Nip44 for Reader {
        type Error = ::nostr::error::Error;

        fn nip44_encrypt(
            &self,
            _: &::nostr::key::PublicKey,
            _: &str,
        ) -> std::result::Result<String, Self::Error> {
            unreachable!("it only reads")
        }

        fn nip44_decrypt(
            &self,
            author: &::nostr::key::PublicKey,
            payload: &str,
        ) -> std::result::Result<String, Self::Error> {
            let secret = ::nostr::key::SecretKey::from_slice(&self.0.to_bytes()).unwrap();
            ::nostr::nips::nip44::decrypt(&secret, author, payload)
        }
    }

    fn random() -> Count {
        Count(0.into())
    }

    fn key(n: u8) -> SecretKey {
        SecretKey::from_bytes([n; 32]).unwrap()
    }

    const NOW_MS: UnixMs = 1_768_465_800_000;

    fn message() -> Draft {
        Draft {
            kind: kind::PRIVATE_MESSAGE,
            created_at: unix_s(NOW_MS),
            tags: vec![vec!["p".to_owned(), key(2).public_key().hex()]],
            content: "an \"entry\" has changed \u{1F600}".to_owned(),
        }
    }

    #[test]
    fn another_implementation_reads_it() {
        let wrapped = wrap(message(), &key(1), &key(2).public_key(), NOW_MS, &random()).unwrap();
        wrapped.verify().unwrap();
        assert_eq!(wrapped.tag("p"), Some(key(2).public_key().hex().as_str()));
        assert!(wrapped.created_at <= unix_s(NOW_MS));
        assert!(wrapped.created_at > unix_s(NOW_MS) - EARLIER_S);
        let theirs = ::nostr::event::Event::from_json(wrapped.to_json()).unwrap();
        let read = UnwrappedGift::from_gift_wrap(&Reader(key(2)), &theirs).unwrap();
        assert_eq!(read.sender.to_hex(), key(1).public_key().hex());
        assert_eq!(read.rumor.content, message().content);
    }

    #[test]
    fn only_its_reader_opens_it_and_a_forged_author_is_seen() {
        let wrapped = wrap(message(), &key(1), &key(2).public_key(), NOW_MS, &random()).unwrap();
        assert_eq!(unwrap(&wrapped, &key(2)).unwrap().draft, message());
        assert!(unwrap(&wrapped, &key(1)).is_err());
        let mut changed = wrapped;
        changed.created_at += 1;
        assert!(unwrap(&changed, &key(2)).is_err());
        // Somebody seals what another is said to have written.
        let said = unsigned(&message().sign(&key(1)).unwrap());
        let seal = |by: &SecretKey, tags| Draft {
            kind: kind::SEAL,
            created_at: 1,
            tags,
            content: nip44::encrypt(by, &key(2).public_key(), &said, &random()).unwrap(),
        };
        let outside = |inside: Draft, by: &SecretKey| {
            let text = inside.sign(by).unwrap().to_json();
            let content = nip44::encrypt(&key(9), &key(2).public_key(), &text, &random()).unwrap();
            let wrap = Draft { kind: kind::GIFT_WRAP, created_at: 1, tags: vec![], content };
            wrap.sign(&key(9)).unwrap()
        };
        let forged = outside(seal(&key(3), vec![]), &key(3));
        assert_eq!(unwrap(&forged, &key(2)).unwrap_err().code(), &code::MALFORMED);
        let tagged = outside(seal(&key(1), vec![vec!["p".to_owned()]]), &key(1));
        assert_eq!(unwrap(&tagged, &key(2)).unwrap_err().code(), &code::MALFORMED);
        let no_seal = outside(message(), &key(1));
        assert_eq!(unwrap(&no_seal, &key(2)).unwrap_err().code(), &code::MALFORMED);
        let plain = message().sign(&key(1)).unwrap();
        assert_eq!(unwrap(&plain, &key(2)).unwrap_err().code(), &code::MALFORMED);
    }
}
