//! Requests, results and feedback: what was read and may be sent is read again as the same.
#![no_main]

use guild_fuzz::fixed;
use guild_protocol::env::Signer;
use guild_protocol::nostr::job::{
    Feedback, JobResult, Request, RequestRef, correlates, feedback_correlates,
};
use guild_protocol::nostr::{Event, Limits, kind};
use libfuzzer_sys::fuzz_target;

const NOW: u64 = 1_763_190_000;
const NONCE: fixed::Bytes<'static> = fixed::Bytes(&[7]);

fuzz_target!(|data: &[u8]| {
    let Ok(event) = Event::parse(data, &Limits::DEFAULT) else { return };
    // One of the two opens what is sealed between them.
    for key in [fixed::buyer(), fixed::provider()] {
        if let Ok(request) = Request::parse(&event, Some(&key)) {
            check_request(request);
        }
        if let Ok(result) = JobResult::parse(&event, Some(&key)) {
            check_result(result);
        }
        if let Ok(feedback) = Feedback::parse(&event, Some(&key)) {
            check_feedback(feedback);
        }
    }
});

fn check_request(request: Request) {
    let own = fixed::buyer();
    if let Ok(draft) = request.draft(NOW) {
        assert!(!request.encrypted, "what came encrypted is not sent in the open");
        let event = draft.sign(&own).expect("a draft of what was read can be signed");
        assert_eq!(Request::parse(&event, None).as_ref(), Ok(&request));
    }
    if let Ok(draft) = request.sealed_draft(NOW, &own, &NONCE) {
        let event = draft.sign(&own).expect("a draft of what was read can be signed");
        assert!(Request::parse(&event, None).is_err(), "it is closed without a key");
        let sealed = Request { encrypted: true, ..request };
        let opened = Request::parse(&event, Some(&own)).expect("its author can open it");
        assert_eq!(in_one_order(opened), in_one_order(sealed));
    }
}

/// Inside and outside are read one after the other.
fn in_one_order(mut request: Request) -> Request {
    request.other_tags.sort();
    request
}

fn check_result(result: JobResult) {
    if let Ok(Some(carried)) = result.carried_request() {
        assert_eq!(carried.id, result.request.id);
        assert_eq!(carried.verify(), Ok(()));
    }
    let own = fixed::provider();
    if let Ok(draft) = result.draft(NOW) {
        assert!(!result.encrypted, "what came encrypted is not sent in the open");
        let event = draft.sign(&own).expect("a draft of what was read can be signed");
        assert_eq!(JobResult::parse(&event, None).as_ref(), Ok(&result));
        check_correlation(result, event);
    } else if let Ok(draft) = result.sealed_draft(NOW, &own, &NONCE) {
        let event = draft.sign(&own).expect("a draft of what was read can be signed");
        assert!(JobResult::parse(&event, None).is_err(), "it is closed without a key");
        let sealed = JobResult { encrypted: true, inputs: Vec::new(), ..result };
        assert_eq!(JobResult::parse(&event, Some(&own)), Ok(sealed));
    }
}

/// A result is believed only for its own request, and only from the one who was asked.
fn check_correlation(result: JobResult, stray: Event) {
    let (own, other) = (fixed::provider(), fixed::buyer());
    let asked = Request::new(kind::request_of(result.kind).expect("a result has a request"));
    let asked = asked.draft(NOW).and_then(|draft| draft.sign(&other)).expect("it can be asked");
    assert!(correlates(&asked, &[own.public_key()], &stray).is_err(), "it names another request");

    let answer = JobResult { request: RequestRef::to(&asked), ..result };
    let answer = answer.draft(NOW).and_then(|draft| draft.sign(&own)).expect("it can be sent");
    assert_eq!(correlates(&asked, &[own.public_key()], &answer), Ok(()));
    assert!(correlates(&asked, &[other.public_key()], &answer).is_err(), "nobody asked that one");
    let forged = Event { sig: asked.sig, ..answer };
    assert!(correlates(&asked, &[own.public_key()], &forged).is_err(), "nobody signed that");
}

fn check_feedback(feedback: Feedback) {
    let own = fixed::provider();
    if let Ok(draft) = feedback.draft(NOW) {
        assert!(!feedback.encrypted, "what came encrypted is not sent in the open");
        let event = draft.sign(&own).expect("a draft of what was read can be signed");
        assert_eq!(Feedback::parse(&event, None).as_ref(), Ok(&feedback));
    }
    if let Ok(draft) = feedback.sealed_draft(NOW, &own, &NONCE) {
        let event = draft.sign(&own).expect("a draft of what was read can be signed");
        let sealed = Feedback { encrypted: true, ..feedback };
        assert_eq!(Feedback::parse(&event, Some(&own)).as_ref(), Ok(&sealed));
        let unasked = Request::new(kind::DEFAULT_REQUEST).draft(NOW);
        let unasked = unasked.and_then(|draft| draft.sign(&own)).expect("it can be asked");
        let addressed = [own.public_key()];
        assert!(feedback_correlates(&unasked, &addressed, &event, &sealed).is_err());
    }
}
