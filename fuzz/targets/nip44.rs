//! Encryption between two keys: what opens, opens for both; what was changed does not open to another text.
#![no_main]

use guild_fuzz::{edits, fixed};
use guild_protocol::env::Signer;
use guild_protocol::nostr::nip44;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (own, other) = (fixed::buyer(), fixed::provider());
    if let Ok(payload) = std::str::from_utf8(data) {
        let here = nip44::decrypt(&own, &other.public_key(), payload);
        assert_eq!(here, nip44::decrypt(&other, &own.public_key(), payload), "both read the same");
    }

    let (changes, text) = data.split_at_checked(8).unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let Ok(payload) = nip44::encrypt(&own, &other.public_key(), &text, &fixed::Bytes(changes))
    else {
        assert!(text.is_empty(), "any text that is not empty can be encrypted");
        return;
    };
    assert_eq!(nip44::decrypt(&other, &own.public_key(), &payload).as_deref(), Ok(&*text));
    assert!(nip44::decrypt(&other, &other.public_key(), &payload).is_err(), "others cannot");
    let changed = edits::edited(payload.as_bytes(), changes);
    if let Ok(changed) = std::str::from_utf8(&changed)
        && let Ok(opened) = nip44::decrypt(&other, &own.public_key(), changed)
    {
        assert_eq!(opened, text, "a changed ciphertext opens to another text");
    }
});
