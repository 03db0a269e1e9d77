//! The small values that are read from text: what is accepted prints as it was written.
#![no_main]

use guild_protocol::amount::{Amount, AssetId};
use guild_protocol::env::Signer;
use guild_protocol::hash::{Hash, from_hex, to_hex};
use guild_protocol::id::{EntryId, ReceiptId};
use guild_protocol::identity::{PublicKey, SecretKey, Signature};
use guild_protocol::json;
use guild_protocol::nostr::EventId;
use guild_protocol::schema::SchemaId;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    check_amount(data);
    if let Ok(text) = std::str::from_utf8(data) {
        check_names(text);
        check_keys(text);
    }
});

fn check_names(text: &str) {
    if let Ok(id) = text.parse::<EntryId>() {
        assert_eq!(id.as_str(), text);
    }
    if let Ok(id) = text.parse::<ReceiptId>() {
        assert_eq!(id.as_str(), text);
    }
    if let Ok(id) = text.parse::<EventId>() {
        assert_eq!(id.hex(), text);
    }
    if let Ok(id) = text.parse::<SchemaId>() {
        assert_eq!(id.to_string().parse(), Ok(id));
    }
    if let Ok(hash) = text.parse::<Hash>() {
        assert_eq!(hash.to_string(), text);
    }
    if let Ok(hash) = Hash::parse_liberal(text) {
        assert!(text.ends_with(&hash.hex()));
    }
    if let Some(bytes) = from_hex(text) {
        assert_eq!(to_hex(&bytes), text);
    }
    if let Ok(asset) = AssetId::new(text) {
        assert_eq!(asset.as_str(), text);
    }
}

fn check_keys(text: &str) {
    if let Ok(key) = text.parse::<PublicKey>() {
        assert_eq!(key.npub().parse(), Ok(key));
        assert_eq!(key.hex().parse(), Ok(key));
    }
    if let Ok(secret) = text.parse::<SecretKey>() {
        let nsec = secret.nsec().expect("a key has an nsec form");
        let again = nsec.parse::<SecretKey>().expect("an nsec is a key");
        assert_eq!(again.to_bytes(), secret.to_bytes());
        assert_eq!(again.public_key(), secret.public_key());
        assert!(!format!("{secret:?}").contains(&to_hex(&secret.to_bytes())));
    }
    if let Ok(signature) = text.parse::<Signature>() {
        assert_eq!(signature.hex(), text);
    }
}

fn check_amount(data: &[u8]) {
    if let Ok(amount) = json::decode::<Amount>(data) {
        let canonical =
            json::to_canonical(&amount).expect("an amount that was read can be written");
        assert_eq!(json::decode::<Amount>(&canonical), Ok(amount));
    }
}
