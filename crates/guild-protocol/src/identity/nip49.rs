//! A secret key under a passphrase: `ncryptsec1…` (NIP-49: scrypt, then XChaCha20-Poly1305).

use ::nostr::nips::nip19::{FromBech32, ToBech32};
use ::nostr::nips::nip49::{EncryptedSecretKey, KeySecurity};

use super::SecretKey;
use super::code::WRONG_PASSPHRASE;
use crate::env::Random;
use crate::{Error, Result};

/// The codes of this module.
pub mod code {
    crate::codes! {
        MALFORMED = "key.encrypted_malformed", Invalid,
            "An encrypted key is not an ncryptsec of a version that is known.",
            "Copy the text whole, from ncryptsec1 on.";
        COST = "key.encryption_cost", Invalid,
            "The cost of the passphrase's derivation is out of bounds.",
            "Use a log_n of 1 to 18; 16 is the default.";
    }
}

/// The cost used when nothing else is said: 2^16 rounds, 64 MiB.
pub const DEFAULT_LOG_N: u8 = 16;
/// The highest cost that is accepted: 2^18 rounds, 256 MiB. A foreign text could ask for all memory otherwise.
pub const MAX_LOG_N: u8 = 18;
/// Longer than any such text.
const MAX_TEXT_BYTES: usize = 256;

/// Encrypts a key under a passphrase.
pub fn encrypt(
    key: &SecretKey,
    passphrase: &str,
    random: &dyn Random,
    log_n: u8,
) -> Result<String> {
    check_cost(log_n)?;
    let (mut salt, mut nonce) = ([0; 16], [0; 24]);
    random.fill(&mut salt);
    random.fill(&mut nonce);
    let secret = ::nostr::key::SecretKey::from_slice(&key.to_bytes()).map_err(|_| malformed())?;
    let security = KeySecurity::Unknown;
    EncryptedSecretKey::new_with_salt_and_nonce(&secret, passphrase, log_n, security, salt, nonce)
        .and_then(|encrypted| encrypted.to_bech32())
        .map_err(|_| malformed())
}

/// Opens an encrypted key.
pub fn decrypt(text: &str, passphrase: &str) -> Result<SecretKey> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(malformed());
    }
    let encrypted = EncryptedSecretKey::from_bech32(text).map_err(|_| malformed())?;
    check_cost(encrypted.log_n())?;
    let wrong = |_| Error::new(&WRONG_PASSPHRASE, "the passphrase does not open the key");
    let secret = encrypted.decrypt_with_max_log_n(passphrase, MAX_LOG_N).map_err(wrong)?;
    SecretKey::from_bytes(secret.to_secret_bytes())
}

fn check_cost(log_n: u8) -> Result<()> {
    if (1..=MAX_LOG_N).contains(&log_n) {
        return Ok(());
    }
    Err(Error::new(&code::COST, format!("a log_n of {log_n} is not within 1 to {MAX_LOG_N}")))
}

fn malformed() -> Error {
    Error::new(&code::MALFORMED, "not an ncryptsec1 text of version 2")
}
