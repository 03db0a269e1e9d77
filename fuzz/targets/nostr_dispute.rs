//! Disputes: what was read is written again as the same bytes, and only by whoever may say it.
#![no_main]

use guild_fuzz::fixed;
use guild_protocol::env::Signer;
use guild_protocol::nostr::dispute::Message;
use guild_protocol::nostr::{Event, Limits};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(event) = Event::parse(data, &Limits::DEFAULT) else { return };
    let Ok(message) = Message::parse(&event, Some(&fixed::provider())) else { return };
    assert!(message.parties.side_of(&event.pubkey).is_some());
    let draft = message.draft(&event.pubkey, event.created_at).expect("what was read may be said");
    if event.content == draft.content {
        assert_eq!(draft.tags, event.tags);
    }
    if message.parties.side_of(&fixed::provider().public_key()).is_some()
        && event.pubkey == fixed::provider().public_key()
    {
        let again = draft.sign(&fixed::provider()).expect("it is within the limits");
        assert_eq!(Message::parse(&again, None).as_ref(), Ok(&message));
    }
});
