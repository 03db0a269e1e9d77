//! Reviews: what was read and may be sent is read again as the same, in every form.
#![no_main]

use guild_fuzz::fixed;
use guild_protocol::nostr::review::{Form, MOST_BP, Review};
use guild_protocol::nostr::{Event, Limits};
use libfuzzer_sys::fuzz_target;

const NOW: u64 = 1_763_190_000;

fuzz_target!(|data: &[u8]| {
    let Ok(event) = Event::parse(data, &Limits::DEFAULT) else { return };
    let Ok(review) = Review::parse(&event) else { return };
    assert!(review.trust_bp <= MOST_BP);
    for form in Form::ALL {
        let Ok(draft) = review.draft(form, NOW) else { return };
        let event = draft.sign(&fixed::provider()).expect("a draft of what was read can be signed");
        assert_eq!(Review::parse(&event).as_ref(), Ok(&review));
    }
    let text = review.content_text().expect("it was sent");
    assert_eq!(review.clone().with_content(&text), Ok(review));
});
