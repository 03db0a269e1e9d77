//! Filters: what was read is written and read again as the same, and lets through what its list says.
#![no_main]

use guild_protocol::nostr::{Event, Filter, Limits};
use libfuzzer_sys::fuzz_target;

const EVENT: &[u8] = include_bytes!("../seeds/nostr_heartbeat/beat.json");

fuzz_target!(|data: &[u8]| {
    let Ok(filter) = Filter::parse(data) else { return };
    let text = filter.to_json();
    assert_eq!(Filter::parse(text.as_bytes()).as_ref(), Ok(&filter));
    let event = Event::parse(EVENT, &Limits::DEFAULT).expect("the seed is an event");
    if filter.is_empty() {
        assert!(!filter.matches(&event), "nothing passes an empty filter");
    }
    // One more condition never lets more through.
    let narrower = Filter { ids: Some([event.id].into()), ..filter.clone() };
    if narrower.matches(&event) && filter.ids.is_none() {
        assert!(filter.matches(&event));
    }
});
