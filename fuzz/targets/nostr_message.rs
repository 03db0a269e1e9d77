//! What clients and relays say: what was read is written and read again as the same.
#![no_main]

use guild_protocol::nostr::Limits;
use guild_protocol::nostr::message::{ClientMessage, RelayMessage};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let limits = Limits::DEFAULT;
    if let Ok(message) = ClientMessage::parse(data, &limits) {
        let text = message.to_json();
        assert_eq!(ClientMessage::parse(text.as_bytes(), &limits).as_ref(), Ok(&message));
    }
    if let Ok(message) = RelayMessage::parse(data, &limits) {
        let text = message.to_json();
        assert_eq!(RelayMessage::parse(text.as_bytes(), &limits).as_ref(), Ok(&message));
    }
});
