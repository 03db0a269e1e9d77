//! What an event says about work, as it stands in a row. It follows from the event alone, so whoever has just read or
//! checked the event finds it out, and the one writer does not.

use std::sync::Arc;

use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::announcement::Announcement;
use guild_protocol::nostr::job::{Feedback, JobResult, Request};
use guild_protocol::nostr::{Event, EventId, kind, tag};

use super::write::{canonical_name, word};

/// What an event says about work.
pub(crate) enum Said {
    /// Nothing, or nothing that can be read.
    Nothing,
    /// That work is wanted.
    Request(RequestSaid),
    /// What became of it.
    Answer(AnswerSaid),
    /// That work is offered; or the code of the reason why nobody can be hired by it.
    Offer(Result<OfferSaid, &'static str>),
}

pub(crate) struct OfferSaid {
    /// All of it: whoever keeps a registry need not read it again.
    pub(crate) card: Arc<Announcement>,
    pub(super) canonical_d: String,
    pub(super) canonical_name: Option<String>,
    /// Each once, in order.
    pub(super) schemas: Vec<String>,
}

/// The reason if a name is too long, or cannot be kept.
pub(super) const BAD_NAME: &str = "announcement.d_unusable";

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
        if event.kind == kind::ANNOUNCEMENT {
            return Said::Offer(offer(event));
        }
        Said::Nothing
    }
}

/// One that cannot be read is still in the archive; nobody can be hired by it.
fn offer(event: &Event) -> Result<OfferSaid, &'static str> {
    let card = Announcement::parse(event).map_err(|error| error.code().name)?;
    word(&card.d).ok_or(BAD_NAME)?;
    let mut schemas: Vec<String> =
        card.schema_ids().into_iter().filter_map(word).map(str::to_owned).collect();
    schemas.sort();
    schemas.dedup();
    Ok(OfferSaid {
        canonical_d: card.canonical_d(),
        canonical_name: card.content.name.as_deref().and_then(canonical_name),
        schemas,
        card: Arc::new(card),
    })
}

impl OfferSaid {
    /// What it is called, if that can be kept.
    pub(super) fn name(&self) -> Option<&str> {
        self.card.content.name.as_deref().and_then(word)
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
