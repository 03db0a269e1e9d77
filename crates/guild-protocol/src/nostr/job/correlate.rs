//! Which result may be believed to answer which request.

use super::{Feedback, RequestRef, code, wrong_kind};
use crate::identity::PublicKey;
use crate::nostr::{Event, EventId, kind, tag};
use crate::{Error, Result};

/// Whether `result` answers `request` and comes from one of the `addressed` providers: the kind is the request's
/// + 1000, its first `e` is the request's id, its author was addressed, and the author signed it.
///
/// The id of a request is public, so anybody can write a result that names it. Nothing weaker than these four may
/// count for or against a provider.
pub fn correlates(request: &Event, addressed: &[PublicKey], result: &Event) -> Result<()> {
    if kind::result_of(request.kind) != Some(result.kind) {
        return Err(wrong_kind(result.kind, &format!("the result of a {}", request.kind)));
    }
    let named = tag::all(&result.tags, "e").next().map(RequestRef::of).transpose();
    let named = named.map_err(|e| e.at("e"))?.ok_or_else(super::result::no_request)?;
    belongs(request, &named.id, addressed, result)
}

/// As [`correlates`], for feedback, whose request may be named inside the ciphertext.
pub fn feedback_correlates(
    request: &Event,
    addressed: &[PublicKey],
    event: &Event,
    feedback: &Feedback,
) -> Result<()> {
    if event.kind != kind::FEEDBACK {
        return Err(wrong_kind(event.kind, "feedback"));
    }
    belongs(request, &feedback.request.id, addressed, event)
}

fn belongs(request: &Event, named: &EventId, addressed: &[PublicKey], event: &Event) -> Result<()> {
    if *named != request.id {
        let message = format!("the event belongs to {named}, not to {}", request.id);
        return Err(Error::new(&code::WRONG_REQUEST, message).at("e"));
    }
    if !addressed.contains(&event.pubkey) {
        let message = format!("{} was not addressed by the request", event.pubkey);
        return Err(Error::new(&code::WRONG_AUTHOR, message).at("pubkey"));
    }
    // Last, because it is by far the most expensive.
    event.verify()
}
