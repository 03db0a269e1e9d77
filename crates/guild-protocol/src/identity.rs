//! An identity: one secp256k1 secret, which gives a Nostr key (BIP-340) and an EVM address.
//!
//! Every role of a node has its own key, derived from the node's by a hardened path: whoever learns a role's
//! secret learns nothing of the node's or of another role's.

use std::fmt;
use std::str::FromStr;

use ::nostr::nips::nip19::{FromBech32, ToBech32};
use hmac::{Hmac, KeyInit, Mac};
use secp256k1::{Keypair, SECP256K1, schnorr};
use sha2::Sha256;

use crate::env::{Random, Signer};
use crate::evm::{self, Address};
use crate::hash::{from_hex_exact, shorten, to_hex};
use crate::{Error, Result};

pub mod nip49;
mod points;

/// The codes of this module.
pub mod code {
    crate::codes! {
        BAD_PUBLIC_KEY = "key.public_malformed", Invalid,
            "A public key is neither an npub nor 64 hex digits of a point on the curve.",
            "Copy the key whole: `guild key show` prints both forms.";
        BAD_SECRET_KEY = "key.secret_malformed", Invalid,
            "A secret key is neither an nsec nor 64 hex digits of a valid scalar.",
            "Copy the key whole, or make a new one with `guild key new`.";
        BAD_SIGNATURE_FORM = "key.signature_malformed", Invalid,
            "A signature is not 128 lower-case hex digits.", "Copy the signature whole.";
        WRONG_SIGNATURE = "key.signature_wrong", Invalid,
            "A signature does not belong to this key and these bytes.",
            "Do not trust the content: it was changed, or signed by somebody else.";
        BAD_ROLE = "key.role_malformed", Invalid,
            "A role's name is not 1 to 64 lower-case letters, digits and dashes.",
            "Use a name like provider or buyer-2.";
        WRONG_PASSPHRASE = "key.passphrase_wrong", Denied,
            "The passphrase does not open the key.", "Try again; a lost passphrase cannot be recovered.";
    }
}

/// An x-only public key (BIP-340), as Nostr uses it: known to be a point on the curve.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Checks that the bytes are a point on the curve.
    pub fn from_bytes(bytes: [u8; 32]) -> Result<PublicKey> {
        match points::point(&bytes) {
            Some(_) => Ok(PublicKey(bytes)),
            None => Err(Error::new(&code::BAD_PUBLIC_KEY, "the key is not a point on the curve")),
        }
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The 64 hex digits that events carry.
    pub fn hex(&self) -> String {
        to_hex(&self.0)
    }

    /// The `npub1…` form that people exchange.
    pub fn npub(&self) -> String {
        // Encoding 32 bytes cannot fail: the error type is uninhabited.
        match ::nostr::key::PublicKey::from_byte_array(self.0).to_bech32() {
            Ok(npub) => npub,
            Err(never) => match never {},
        }
    }

    /// Whether `signature` is this key's over `digest`.
    pub fn verify(&self, digest: &[u8; 32], signature: &Signature) -> Result<()> {
        let wrong = || Error::new(&code::WRONG_SIGNATURE, "the signature does not match");
        let key = points::point(&self.0).ok_or_else(wrong)?;
        let signature = schnorr::Signature::from_slice(&signature.0).map_err(|_| wrong())?;
        SECP256K1.verify_schnorr(&signature, digest, &key).map_err(|_| wrong())
    }
}

impl FromStr for PublicKey {
    type Err = Error;
    /// Reads an npub or 64 hex digits.
    fn from_str(text: &str) -> Result<PublicKey> {
        let bytes = if text.starts_with("npub1") {
            ::nostr::key::PublicKey::from_bech32(text).ok().map(|key| *key.as_bytes())
        } else {
            from_hex_exact(text)
        };
        let malformed = || {
            Error::new(
                &code::BAD_PUBLIC_KEY,
                format!("{:?} is neither an npub nor 64 lower-case hex digits", shorten(text)),
            )
        };
        PublicKey::from_bytes(bytes.ok_or_else(malformed)?)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.npub())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.npub())
    }
}

/// A BIP-340 signature.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signature([u8; 64]);

impl Signature {
    /// A signature made elsewhere; whether it fits anything only [`PublicKey::verify`] knows.
    pub const fn from_bytes(bytes: [u8; 64]) -> Signature {
        Signature(bytes)
    }

    /// The 64 bytes.
    pub const fn as_bytes(&self) -> &[u8; 64] {
        &self.0
    }

    /// The 128 hex digits.
    pub fn hex(&self) -> String {
        to_hex(&self.0)
    }
}

impl FromStr for Signature {
    type Err = Error;
    fn from_str(text: &str) -> Result<Signature> {
        let bytes = from_hex_exact(text);
        bytes.map(Signature).ok_or_else(|| {
            Error::new(&code::BAD_SIGNATURE_FORM, "a signature is 128 lower-case hex digits")
        })
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

/// A secret key. Its `Debug` shows only the public half; it is wiped when dropped.
pub struct SecretKey(Keypair);

impl SecretKey {
    /// A new key from the injected randomness.
    pub fn make(random: &dyn Random) -> SecretKey {
        loop {
            let mut bytes = [0; 32];
            random.fill(&mut bytes);
            // Fails with probability 2^-128: the number is not below the curve's order.
            if let Ok(key) = SecretKey::from_bytes(bytes) {
                return key;
            }
        }
    }

    /// The key with these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Result<SecretKey> {
        Keypair::from_seckey_slice(SECP256K1, &bytes)
            .map(SecretKey)
            .map_err(|_| Error::new(&code::BAD_SECRET_KEY, "the number is not a valid secret key"))
    }

    /// The secret bytes, for a keystore.
    pub fn to_bytes(&self) -> [u8; 32] {
        self.0.secret_bytes()
    }

    /// The `nsec1…` form, for a person who asked to see it.
    pub fn nsec(&self) -> Result<String> {
        let malformed = |_| Error::new(&code::BAD_SECRET_KEY, "the key has no nsec form");
        let key = ::nostr::key::SecretKey::from_slice(&self.to_bytes()).map_err(malformed)?;
        match key.to_bech32() {
            Ok(nsec) => Ok(nsec),
            Err(never) => match never {},
        }
    }

    /// The key of a role: HMAC-SHA-256 under this secret of `guildhall/role/v1/<role>/<try>`, the first try that is
    /// a valid key.
    pub fn role(&self, role: &str) -> Result<SecretKey> {
        let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if role.is_empty() || role.len() > 64 || !role.bytes().all(word) {
            let message = format!("{:?} is not a role's name", shorten(role));
            return Err(Error::new(&code::BAD_ROLE, message));
        }
        for attempt in 0..=u8::MAX {
            let mut mac = Hmac::<Sha256>::new_from_slice(&self.to_bytes())
                .map_err(|_| Error::new(&code::BAD_SECRET_KEY, "the key cannot derive"))?;
            mac.update(format!("guildhall/role/v1/{role}/{attempt}").as_bytes());
            if let Ok(key) = SecretKey::from_bytes(mac.finalize().into_bytes().into()) {
                return Ok(key);
            }
        }
        Err(Error::new(&code::BAD_SECRET_KEY, "no key could be derived"))
    }

    /// The EVM account of the same secret.
    pub fn address(&self) -> Address {
        Address::of_key(&self.0.public_key())
    }

    /// The EVM address of the same secret, with the mixed-case checksum of EIP-55.
    pub fn evm_address(&self) -> String {
        self.address().to_string()
    }

    /// Signs a message as a wallet does for people (EIP-191). Signing twice gives the same bytes.
    pub fn sign_message(&self, message: &[u8]) -> evm::Signature {
        evm::Signature::make(message, &self.0.secret_key())
    }
}

impl FromStr for SecretKey {
    type Err = Error;
    /// Reads an nsec or 64 hex digits.
    fn from_str(text: &str) -> Result<SecretKey> {
        let bytes = if text.starts_with("nsec1") {
            ::nostr::key::SecretKey::from_bech32(text).ok().map(|key| key.to_secret_bytes())
        } else {
            from_hex_exact(text)
        };
        // The text is not repeated: it may be nearly a secret.
        let malformed =
            || Error::new(&code::BAD_SECRET_KEY, "neither an nsec nor 64 lower-case hex digits");
        SecretKey::from_bytes(bytes.ok_or_else(malformed)?)
    }
}

impl Signer for SecretKey {
    fn public_key(&self) -> PublicKey {
        PublicKey(self.0.x_only_public_key().0.serialize())
    }

    fn sign_digest(&self, digest: &[u8; 32]) -> Result<Signature> {
        Ok(Signature(SECP256K1.sign_schnorr_no_aux_rand(digest, &self.0).to_byte_array()))
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey(of {})", self.public_key())
    }
}

impl Drop for SecretKey {
    fn drop(&mut self) {
        self.0.non_secure_erase();
    }
}

macro_rules! as_text {
    ($($type:ty: $text:ident),+) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.$text())
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<$type, D::Error> {
                <String as serde::Deserialize>::deserialize(from)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}
as_text!(PublicKey: npub, Signature: hex);

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> SecretKey {
        format!("{:064x}", 1).parse().unwrap()
    }

    #[test]
    fn known_keys_have_their_known_names() {
        // The generator point: the best known key of all.
        assert_eq!(
            one().public_key().hex(),
            "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"
        );
        assert_eq!(one().evm_address(), "0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf");
        let npub = one().public_key().npub();
        assert_eq!(npub.parse::<PublicKey>().unwrap(), one().public_key());
        assert_eq!(
            one().nsec().unwrap().parse::<SecretKey>().unwrap().to_bytes(),
            one().to_bytes()
        );
    }

    #[test]
    fn a_signature_fits_only_its_key_and_digest() {
        let (key, other) = (one(), one().role("other").unwrap());
        let signature = key.sign_digest(&[7; 32]).unwrap();
        assert_eq!(signature, key.sign_digest(&[7; 32]).unwrap());
        key.public_key().verify(&[7; 32], &signature).unwrap();
        assert!(key.public_key().verify(&[8; 32], &signature).is_err());
        assert!(other.public_key().verify(&[7; 32], &signature).is_err());
    }

    #[test]
    fn roles_have_different_keys_and_sane_names() {
        let provider = one().role("provider").unwrap();
        assert_eq!(provider.to_bytes(), one().role("provider").unwrap().to_bytes());
        assert_ne!(provider.to_bytes(), one().role("buyer").unwrap().to_bytes());
        for bad in ["", "Provider", "a/b", &"x".repeat(65)] {
            assert_eq!(one().role(bad).unwrap_err().code(), &code::BAD_ROLE);
        }
    }

    #[test]
    fn rubbish_is_refused_and_secrets_are_not_shown() {
        for bad in ["", "npub1", "ff", &"f".repeat(64), &"0".repeat(64)] {
            assert_eq!(bad.parse::<PublicKey>().unwrap_err().code(), &code::BAD_PUBLIC_KEY);
            let error = bad.parse::<SecretKey>().unwrap_err();
            assert_eq!(error.code(), &code::BAD_SECRET_KEY);
        }
        assert!(!format!("{:?}", one()).contains("000001"));
    }
}
