//! Announcements: reading and writing one settles at once, and loses nothing the second time.
#![no_main]

use guild_fuzz::fixed;
use guild_protocol::nostr::announcement::{Announcement, Content};
use guild_protocol::nostr::{Event, Limits};
use libfuzzer_sys::fuzz_target;

const NOW: u64 = 1_763_190_000;

fuzz_target!(|data: &[u8]| {
    if let Ok(content) = std::str::from_utf8(data).map(Content::parse) {
        content.ok().as_ref().map(check_content);
    }
    if let Ok(event) = Event::parse(data, &Limits::DEFAULT)
        && let Ok(card) = Announcement::parse(&event)
    {
        check_content(&card.content);
        check_card(&card);
    }
});

fn check_content(content: &Content) {
    // Some numbers can be read and not sent; that is an error, not another number.
    let Ok(text) = content.to_json() else { return };
    let again = Content::parse(&text).expect("what is sent can be read");
    assert_eq!(again.supported_jobs(), content.supported_jobs());
    assert_eq!(again.to_json().as_deref(), Ok(text.as_str()), "one content has one text");
    assert_eq!(again.name, content.name);
    assert_eq!(again.description, content.description);
    assert_eq!(again.pricing.is_some(), content.pricing.is_some());
}

fn check_card(card: &Announcement) {
    let Ok(draft) = card.draft(NOW) else { return };
    let event = draft.clone().sign(&fixed::provider()).expect("a draft can be signed");
    let again = Announcement::parse(&event).expect("what is sent can be read");
    assert_eq!((&again.d, &again.kinds, &again.relays), (&card.d, &card.kinds, &card.relays));
    assert_eq!(again.other_tags, card.other_tags);
    assert_eq!(again.draft(NOW), Ok(draft), "sending it again is sending the same");
    let ids = again.schema_ids();
    assert!(card.schema_ids().iter().all(|id| ids.contains(id)), "no schema is lost");
}
