//! What stands inside the ciphertext of a job event. The fuzzer writes the plaintext.
#![no_main]

use guild_fuzz::fixed;
use guild_protocol::env::Signer;
use guild_protocol::nostr::job::{Feedback, JobResult, Request};
use guild_protocol::nostr::{Draft, Event, kind, nip44, tag::tag};
use libfuzzer_sys::fuzz_target;

const NOW: u64 = 1_763_190_000;
const NONCE: fixed::Bytes<'static> = fixed::Bytes(&[7]);
const REQUEST: &str = "83587e473a1109857312b0b5bac5ee184bf7500fa5814a421120ce430e268097";

fuzz_target!(|data: &[u8]| {
    let Ok(plaintext) = std::str::from_utf8(data) else { return };
    let (own, other) = (fixed::buyer(), fixed::provider());
    let Ok(content) = nip44::encrypt(&own, &other.public_key(), plaintext, &NONCE) else { return };
    check_request(&sealed(kind::DEFAULT_REQUEST, &content));
    check_feedback(&sealed(kind::FEEDBACK, &content), plaintext);

    let result = JobResult::parse(&sealed(kind::DEFAULT_RESULT, &content), Some(&other));
    assert_eq!(result.map(|result| result.content).as_deref(), Ok(plaintext));
});

fn sealed(kind: u16, content: &str) -> Event {
    let recipient = fixed::provider().public_key().hex();
    let tags = vec![tag(["e", REQUEST]), tag(["p", &recipient]), tag(["encrypted"])];
    let draft = Draft { kind, created_at: NOW, tags, content: content.to_owned() };
    draft.sign(&fixed::buyer()).expect("a small event can be signed")
}

fn check_request(event: &Event) {
    let ours = Request::parse(event, Some(&fixed::buyer()));
    assert_eq!(ours, Request::parse(event, Some(&fixed::provider())), "both read the same");
    assert!(Request::parse(event, None).is_err(), "it is closed without a key");
    let Ok(request) = ours else { return };
    assert!(request.encrypted);
    assert_eq!(request.providers, [fixed::provider().public_key()], "what is inside adds nobody");
    assert!(request.draft(NOW).is_err(), "what came encrypted is not sent in the open");
}

fn check_feedback(event: &Event, plaintext: &str) {
    let ours = Feedback::parse(event, Some(&fixed::buyer()));
    assert_eq!(ours, Feedback::parse(event, Some(&fixed::provider())), "both read the same");
    let Ok(feedback) = ours else { return };
    assert!(plaintext.contains("status"), "the status can only come from inside");
    assert_eq!(feedback.request.id.hex(), REQUEST, "what is inside names no other request");
    assert_eq!(feedback.customer, Some(fixed::provider().public_key()));
    assert!(feedback.draft(NOW).is_err(), "what came encrypted is not sent in the open");
}
