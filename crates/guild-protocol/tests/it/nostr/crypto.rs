use guild_protocol::env::{Random, Signer};
use guild_protocol::hash::{from_hex, to_hex};
use guild_protocol::identity::{SecretKey, nip49};
use guild_protocol::nostr::nip44;
use proptest::prelude::*;
use serde_json::Value;

use super::{Fixed, cases, secret, vectors};

/// Gives a known nonce, as the published vectors demand.
struct Known(Vec<u8>);

impl Random for Known {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.0);
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[test]
fn published_ciphertexts_are_made_and_opened() {
    let vectors = vectors();
    let list = vectors["nip44"].as_array().unwrap();
    assert_eq!(list.len(), 6);
    for vector in list {
        let key = |name: &str| text(&vector[name]).parse::<SecretKey>().unwrap();
        let (one, two) = (key("sec1"), key("sec2"));
        let (plaintext, payload) = (text(&vector["plaintext"]), text(&vector["payload"]));
        let nonce = Known(from_hex(text(&vector["nonce"])).unwrap());
        let made = nip44::encrypt(&one, &two.public_key(), plaintext, &nonce).unwrap();
        assert_eq!(made, payload);
        assert_eq!(nip44::decrypt(&two, &one.public_key(), payload).unwrap(), plaintext);
        assert_eq!(nip44::decrypt(&one, &two.public_key(), payload).unwrap(), plaintext);
    }
}

#[test]
fn damaged_foreign_and_oversized_ciphertexts_are_refused() {
    let (buyer, provider) = (secret("buyer"), secret("provider"));
    let sealed = nip44::encrypt(&buyer, &provider.public_key(), "psst", &Fixed(7)).unwrap();
    let open = |payload: &str| {
        nip44::decrypt(&provider, &buyer.public_key(), payload).map_err(|e| e.code().name)
    };
    assert_eq!(open(&sealed).unwrap(), "psst");
    for at in 2..sealed.len() {
        let mut forged = sealed.clone().into_bytes();
        forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
        assert_eq!(open(&String::from_utf8(forged).unwrap()), Err("nip44.not_opened"), "{at}");
    }
    for foreign in ["", "A", "#", "AwAA", "dGV4dA==?iv=AAAAAAAAAAAAAAAAAAAAAA=="] {
        assert_eq!(open(foreign), Err("nip44.version"), "{foreign}");
    }
    assert_eq!(open(&"Ag".repeat(131_073)), Err("nostr.content_size"));
    let encrypt = |plaintext: &str| {
        nip44::encrypt(&buyer, &provider.public_key(), plaintext, &Fixed(7))
            .map_err(|e| e.code().name)
    };
    assert_eq!(encrypt(""), Err("nip44.plaintext_size"));
    assert_eq!(encrypt(&"x".repeat(65_536)), Err("nip44.plaintext_size"));
    assert!(encrypt(&"x".repeat(65_535)).is_ok());
}

#[test]
fn keys_encrypted_elsewhere_are_opened() {
    let vectors = vectors();
    for vector in vectors["nip49"].as_array().unwrap() {
        let opened = nip49::decrypt(text(&vector["text"]), text(&vector["passphrase"])).unwrap();
        assert_eq!(to_hex(&opened.to_bytes()), text(&vector["secret"]));
    }
}

#[test]
fn a_passphrase_opens_only_its_own_key() {
    let key = secret("buyer");
    let made = nip49::encrypt(&key, "pass ｗｏｒｄ", &Fixed(3), 4).unwrap();
    assert!(made.starts_with("ncryptsec1"));
    // The same passphrase, typed with other characters of the same meaning (NFKC).
    assert_eq!(nip49::decrypt(&made, "pass word").unwrap().to_bytes(), key.to_bytes());
    let error = nip49::decrypt(&made, "pass work").unwrap_err();
    assert_eq!(error.code().name, "key.passphrase_wrong");
}

#[test]
fn the_cost_of_a_passphrase_is_bounded() {
    let key = secret("buyer");
    for log_n in [0, 19, 255] {
        let error = nip49::encrypt(&key, "x", &Fixed(3), log_n).unwrap_err();
        assert_eq!(error.code().name, "key.encryption_cost");
    }
    // As another program would write it, asking for 4 GiB: refused before any work is done.
    let greedy = "ncryptsec1qgtqzqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqsyqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyxekrps";
    assert_eq!(nip49::decrypt(greedy, "x").unwrap_err().code().name, "key.encryption_cost");
}

#[test]
fn what_is_no_encrypted_key_is_refused() {
    let nsec = secret("buyer").nsec().unwrap();
    for bad in ["", "ncryptsec1", &nsec, &"ncryptsec1q".repeat(40)] {
        assert_eq!(nip49::decrypt(bad, "x").unwrap_err().code().name, "key.encrypted_malformed");
    }
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn every_text_survives_encryption(plaintext in "\\PC{1,200}", nonce in any::<u8>()) {
        let (buyer, provider) = (secret("buyer"), secret("provider"));
        let sealed = nip44::encrypt(&buyer, &provider.public_key(), &plaintext, &Fixed(nonce)).unwrap();
        prop_assert_eq!(nip44::decrypt(&provider, &buyer.public_key(), &sealed).unwrap(), plaintext);
    }

    #[test]
    fn rubbish_never_opens(payload in "A[g-v][A-Za-z0-9+/=]{0,300}", key in any::<String>()) {
        prop_assert!(nip44::decrypt(&secret("buyer"), &secret("provider").public_key(), &payload).is_err());
        prop_assert!(nip49::decrypt(&key, "x").is_err());
    }
}
