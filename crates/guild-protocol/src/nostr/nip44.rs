//! Encryption between two keys (NIP-44, version 2).
//!
//! The nonce comes from the injected randomness. There is no forward secrecy: whoever learns one of the two secrets
//! reads everything. Check the signature of an event before opening its content.

use ::nostr::nips::nip44::{self, Nonce};

use super::code::CONTENT_SIZE;
use crate::env::Random;
use crate::identity::{PublicKey, SecretKey};
use crate::{Error, Result};

/// The codes of this module.
pub mod code {
    crate::codes! {
        PLAINTEXT_SIZE = "nip44.plaintext_size", Invalid,
            "A text to encrypt is empty or longer than 65,535 bytes.",
            "Refer to large content by its CID or URL instead of carrying it.";
        VERSION = "nip44.version", Invalid,
            "A ciphertext is not of NIP-44 version 2.",
            "Ask the sender to use NIP-44 version 2; NIP-04 is not read.";
        NOT_OPENED = "nip44.not_opened", Invalid,
            "A ciphertext is damaged or was not made for these two keys.",
            "Check that it was addressed to this key.";
    }
}

/// The longest text that every implementation takes.
pub const MAX_PLAINTEXT_BYTES: usize = 65_535;
/// The longest ciphertext (base64) that is opened: the default limit of an event's content.
pub const MAX_PAYLOAD_BYTES: usize = super::Limits::DEFAULT.max_content_bytes;

/// Encrypts `plaintext` so that `own` and the owner of `other` can open it.
///
/// ```
/// use guild_protocol::{env::{Random, Signer}, identity::SecretKey, nostr::nip44};
/// struct Dice;
/// impl Random for Dice {
///     fn fill(&self, bytes: &mut [u8]) { bytes.fill(4) }
/// }
/// let key = |n: u8| format!("{n:064x}").parse::<SecretKey>().unwrap();
/// let sealed = nip44::encrypt(&key(1), &key(2).public_key(), "psst", &Dice).unwrap();
/// assert_eq!(nip44::decrypt(&key(2), &key(1).public_key(), &sealed).unwrap(), "psst");
/// assert!(nip44::decrypt(&key(3), &key(1).public_key(), &sealed).is_err());
/// ```
pub fn encrypt(
    own: &SecretKey,
    other: &PublicKey,
    plaintext: &str,
    random: &dyn Random,
) -> Result<String> {
    if plaintext.is_empty() || plaintext.len() > MAX_PLAINTEXT_BYTES {
        let message = format!("{} bytes cannot be encrypted, only 1 to 65,535", plaintext.len());
        return Err(Error::new(&code::PLAINTEXT_SIZE, message));
    }
    let mut nonce = [0; 32];
    random.fill(&mut nonce);
    let (own, other) = keys(own, other)?;
    nip44::encrypt_with_nonce(&own, &other, plaintext, Nonce::V2(nonce)).map_err(|_| not_opened())
}

/// Opens what was encrypted between the owner of `other` and `own`, in either direction.
pub fn decrypt(own: &SecretKey, other: &PublicKey, payload: &str) -> Result<String> {
    if payload.len() > MAX_PAYLOAD_BYTES {
        let message = format!("{} bytes are more than {MAX_PAYLOAD_BYTES}", payload.len());
        return Err(Error::new(&CONTENT_SIZE, message));
    }
    // The first byte, 2, makes the first base64 digit A and the second one of g…v.
    if !matches!(payload.as_bytes(), [b'A', b'g'..=b'v', ..]) {
        return Err(Error::new(&code::VERSION, "the content is not a NIP-44 version 2 ciphertext"));
    }
    let (own, other) = keys(own, other)?;
    nip44::decrypt(&own, &other, payload).map_err(|_| not_opened())
}

fn not_opened() -> Error {
    Error::new(&code::NOT_OPENED, "damaged, or not made for these two keys")
}

fn keys(
    own: &SecretKey,
    other: &PublicKey,
) -> Result<(::nostr::key::SecretKey, ::nostr::key::PublicKey)> {
    let own = ::nostr::key::SecretKey::from_slice(&own.to_bytes()).map_err(|_| not_opened())?;
    Ok((own, ::nostr::key::PublicKey::from_byte_array(*other.as_bytes())))
}
