//! Heartbeats: what was read and may be sent is read again as the same.
#![no_main]

use guild_fuzz::fixed;
use guild_protocol::nostr::heartbeat::Heartbeat;
use guild_protocol::nostr::{Event, Limits};
use libfuzzer_sys::fuzz_target;

const NOW: u64 = 1_763_190_000;

fuzz_target!(|data: &[u8]| {
    let Ok(event) = Event::parse(data, &Limits::DEFAULT) else { return };
    let Ok(beat) = Heartbeat::parse(&event) else { return };
    assert!(beat.is_live_at(event.created_at, event.created_at), "alive when it was sent");
    let Ok(draft) = beat.draft(NOW) else { return };
    let event = draft.sign(&fixed::provider()).expect("a draft of what was read can be signed");
    assert_eq!(Heartbeat::parse(&event), Ok(beat));
});
