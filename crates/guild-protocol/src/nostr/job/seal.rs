//! The encrypted form: `["encrypted"]`, one `p`, and a NIP-44 ciphertext as content.

use super::code;
use crate::env::{Random, Signer};
use crate::identity::{PublicKey, SecretKey};
use crate::json::{self, Doc};
use crate::nostr::event::{doc_text, tags_doc, tags_of};
use crate::nostr::{Event, Limits, Tag, nip44, tag};
use crate::{Error, Result};

/// The name of the tag that marks an encrypted event.
pub(super) const ENCRYPTED: &str = "encrypted";

/// The plain content of an encrypted event; `None` if it is not encrypted.
pub(super) fn open(event: &Event, key: Option<&SecretKey>) -> Result<Option<String>> {
    if !tag::has(&event.tags, ENCRYPTED) {
        return Ok(None);
    }
    let Some(key) = key else {
        let message = "the content is encrypted and no key was given";
        return Err(Error::new(&code::ENCRYPTED, message).at("content"));
    };
    let other = counterpart(event, &key.public_key())?;
    nip44::decrypt(key, &other, &event.content).map(Some).map_err(|e| e.at("content"))
}

/// The other of the two keys: the author, or for the author itself the one that is addressed.
fn counterpart(event: &Event, own: &PublicKey) -> Result<PublicKey> {
    if *own != event.pubkey {
        return Ok(event.pubkey);
    }
    match tag::value(&event.tags, "p") {
        Some(key) => key.parse(),
        None => Err(no_recipient()),
    }
}

pub(super) fn no_recipient() -> Error {
    Error::new(&code::NO_RECIPIENT, "an encrypted event is addressed to exactly one key").at("p")
}

/// Refuses to send in the open what came, or is meant to go, encrypted.
pub(super) fn require_open(encrypted: bool) -> Result<()> {
    if encrypted {
        let message = "this is marked as encrypted and may not be sent in the open";
        return Err(Error::new(&code::ENCRYPTED, message).at(ENCRYPTED));
    }
    Ok(())
}

/// Tags as a ciphertext.
pub(super) fn seal_tags(
    own: &SecretKey,
    other: &PublicKey,
    tags: &[Tag],
    random: &dyn Random,
) -> Result<String> {
    nip44::encrypt(own, other, &doc_text(&tags_doc(tags)), random)
}

/// The tags that a plaintext holds.
pub(super) fn read_tags(plaintext: &str) -> Result<Vec<Tag>> {
    let limits = Limits::DEFAULT;
    let json = json::Limits { max_bytes: limits.max_content_bytes, max_depth: 4 };
    let doc = Doc::parse_within(plaintext.as_bytes(), json).map_err(|e| e.within("content"))?;
    tags_of(doc, &limits).map_err(|e| e.within("content"))
}
