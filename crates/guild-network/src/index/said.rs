//! What an event says about work, as it stands in a row. It follows from the event alone, so whoever has just read or
//! checked the event finds it out, and the one writer does not.

use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::job::{Feedback, JobResult, Request};
use guild_protocol::nostr::{Event, EventId, kind, tag};

use super::write::word;

/// What an event says about work.
pub(crate) enum Said {
    /// Nothing, or nothing that can be read.
    Nothing,
    /// That work is wanted.
    Request(RequestSaid),
    /// What became of it.
    Answer(AnswerSaid),
}

pub(crate) struct RequestSaid {
    pub(super) schema_id: Option<String>,
    pub(super) bid_msat: Option<i64>,
    /// A list of keys, as JSON.
    pub(super) providers: String,
    pub(super) is_private: bool,
}

pub(crate) struct AnswerSaid {
    pub(super) request_id: String,
    pub(super) status: Option<String>,
    pub(super) price_msat: Option<i64>,
}

impl Said {
    pub(crate) fn of(event: &Event) -> Said {
        if kind::is_request(event.kind) {
            return request(event).map_or(Said::Nothing, Said::Request);
        }
        if is_answer(event) {
            return answer(event).map_or(Said::Nothing, Said::Answer);
        }
        Said::Nothing
    }
}

fn request(event: &Event) -> Option<RequestSaid> {
    let is_private = tag::has(&event.tags, "encrypted");
    // Of a private one only what everybody sees.
    let (schema_id, bid_msat, providers) = if is_private {
        let bid = tag::value(&event.tags, "bid").and_then(|bid| bid.parse().ok());
        let keys = tag::values(&event.tags, "p").filter_map(|key| key.parse().ok());
        (None, bid, keys.collect::<Vec<PublicKey>>())
    } else {
        let request = Request::parse(event, None).ok()?;
        let bid = request.bid.map(|bid| bid.0);
        (request.schema_id, bid, request.providers)
    };
    Some(RequestSaid {
        schema_id: schema_id.as_deref().and_then(word).map(str::to_owned),
        bid_msat,
        providers: list_of(&providers),
        is_private,
    })
}

/// Keys as a list, as JSON.
pub(super) fn list_of(keys: &[PublicKey]) -> String {
    let mut list = String::with_capacity(keys.len().saturating_mul(67).saturating_add(2));
    list.push('[');
    for (i, key) in keys.iter().enumerate() {
        list.push_str(if i > 0 { ",\"" } else { "\"" });
        list.push_str(&key.hex());
        list.push('"');
    }
    list.push(']');
    list
}

pub(super) fn is_answer(event: &Event) -> bool {
    kind::is_result(event.kind) || event.kind == kind::FEEDBACK
}

fn answer(event: &Event) -> Option<AnswerSaid> {
    let (request, status, price_msat) = answer_parts(event)?;
    let status = status.as_deref().and_then(word).map(str::to_owned);
    Some(AnswerSaid { request_id: request.hex(), status, price_msat })
}

/// The request, the status and the price that an answer names; of an encrypted one what everybody sees.
fn answer_parts(event: &Event) -> Option<(EventId, Option<String>, Option<i64>)> {
    if tag::has(&event.tags, "encrypted") {
        let request = tag::value(&event.tags, "e")?.parse().ok()?;
        let price = tag::value(&event.tags, "amount").and_then(|price| price.parse().ok());
        return Some((request, tag::value(&event.tags, "status").map(str::to_owned), price));
    }
    if event.kind == kind::FEEDBACK {
        let feedback = Feedback::parse(event, None).ok()?;
        let price = feedback.price.map(|price| price.msat.0);
        return Some((feedback.request.id, Some(feedback.status.to_string()), price));
    }
    let result = JobResult::parse(event, None).ok()?;
    Some((result.request.id, None, result.price.map(|price| price.msat.0)))
}
