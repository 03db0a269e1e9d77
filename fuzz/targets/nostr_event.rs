//! Nostr events: what is read is written as the same event, and only what its author signed is verified.
#![no_main]

use guild_fuzz::fixed;
use guild_protocol::nostr::{Draft, Event, Limits};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(event) = Event::parse(data, &Limits::DEFAULT) else { return };
    let again = Event::parse(event.to_json().as_bytes(), &Limits::DEFAULT);
    assert_eq!(again.as_ref(), Ok(&event), "an event that was read can be written");

    let verified = Event::parse_verified(data, &Limits::DEFAULT).is_ok();
    assert_eq!(verified, event.id == event.compute_id() && event.verify_signature().is_ok());
    check_signed(&event);
});

/// The same content, signed here, is verified; under another id it is not.
fn check_signed(event: &Event) {
    let Event { kind, created_at, tags, content, .. } = event.clone();
    let draft = Draft { kind, created_at, tags, content };
    let signed = draft.sign(&fixed::buyer()).expect("what was read within limits can be signed");
    assert_eq!(signed.verify(), Ok(()));
    let claims_id = Event { id: event.id, ..signed.clone() };
    assert_eq!(claims_id.verify().is_ok(), event.id == signed.id);
    let claims_author = Event { pubkey: event.pubkey, ..signed.clone() };
    assert_eq!(claims_author.verify().is_ok(), event.pubkey == signed.pubkey);
}
