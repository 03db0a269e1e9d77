//! Messages to sign in with: what is read is written as it was, byte by byte.
#![no_main]

use guild_hosting::access::siwe::Message;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Message::parse(text) {
        Ok(message) => {
            assert_eq!(message.text(), text, "nothing is put right");
            assert!(text.is_ascii() && !text.contains('\r'));
            assert_eq!(text.matches("\nNonce: ").count(), 1, "no field is there twice");
            assert!(!format!("{message:?}").contains(message.nonce.reveal()) || hidden(&message));
        }
        Err(malformed) => assert!(!malformed.reason.is_empty()),
    }
});

/// Whether the nonce is a part of something else that the message says.
fn hidden(message: &Message) -> bool {
    let mut without = message.clone();
    without.nonce = "00000000".parse().expect("eight digits are a nonce");
    without.text().contains(message.nonce.reveal())
}
