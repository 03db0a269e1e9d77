//! Messages to sign in with: what is read is written as it was, byte by byte, and its nonce is shown nowhere else.
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
            let mut other = message.clone();
            other.nonce = "00000000".parse().expect("eight digits are a nonce");
            assert_eq!(format!("{message:?}"), format!("{other:?}"), "the nonce is not shown");
        }
        Err(malformed) => assert!(!malformed.reason.is_empty()),
    }
});
