//! What is asked, and how it stands.

use guild_market::delegation;
use guild_market::job::{self, TakenJob};
use guild_market::order::{self, Order};
use guild_market::overview::{self, Concern};
use guild_market::receipts;
use guild_market::routing::chosen;
use guild_network::archive;
use guild_network::index::{self, Progress};
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::job::Feedback;
use guild_protocol::nostr::{Event, EventId, kind, tag};
use guild_store::Rx;

use super::Reader;
use super::page::{Cursor, Listed, Page, cut};
use super::people::People;
use super::story::{Heard, Story};
use super::view::{Request, RequestDetail, Side, Standing};
use super::words::{LISTED_MAX, NAME_MAX_CHARS, SAID_MAX_CHARS, clipped};
use crate::Result;

/// How many answers to one request are shown: anybody may send any number.
const ANSWERS_MAX: usize = 60;

/// A page of requests, those that came last first.
pub(super) fn page(rx: &mut Rx<'_>, page: &Page, reader: Reader) -> Result<Listed<Request>> {
    let lines = page.lines();
    let before_seq = page.after.as_ref().map(|cursor| cursor.at);
    let rows = index::requests(rx, &index::Page { before_seq, limit: lines.saturating_add(1) });
    let cursor = |row: &index::Request| Cursor { at: row.seq, id: "seq".to_owned() };
    let (rows, next) = cut(rows?, lines, cursor);
    Ok(Listed { items: views(rx, &rows, reader)?, next })
}

fn views(rx: &mut Rx<'_>, rows: &[index::Request], reader: Reader) -> Result<Vec<Request>> {
    let ids: Vec<EventId> = rows.iter().map(|row| row.request_id).collect();
    let concerns = overview::concerns(rx, &ids)?;
    let progress = index::progress(rx, rows)?;
    let hired = concerns.values().filter_map(hired).copied();
    let keys = rows.iter().flat_map(|row| listed(row).chain([&row.buyer])).copied().chain(hired);
    let people = People::of(rx, keys)?;
    let line = |row: &index::Request| {
        let progress = progress.get(&row.request_id).copied().unwrap_or_default();
        let line = view(row, concerns.get(&row.request_id), progress, &people);
        match reader.may_see(row.is_private) {
            true => line,
            // What stands in the request itself, for everybody to read.
            false => Request { schema_id: claimed(row), ..line },
        }
    };
    Ok(rows.iter().map(line).collect())
}

fn view(
    row: &index::Request,
    concern: Option<&Concern>,
    progress: Progress,
    people: &People,
) -> Request {
    let (side, standing, schema_id) = match concern {
        Some(Concern::Order { state, schema_id, .. }) => {
            (Side::Bought, of_order(*state, progress), Some(schema_id.clone()))
        }
        Some(Concern::Job { state, schema_id }) => (Side::Hired, of_job(*state), schema_id.clone()),
        None if row.is_taken_back => (Side::Seen, Standing::Cancelled, None),
        None => (Side::Seen, of_progress(progress), None),
    };
    // One that was open to all, and that somebody has done.
    let done_by = concern.and_then(hired).filter(|_| row.providers.is_empty());
    let addressed = listed(row).chain(done_by);
    Request {
        request_id: row.request_id.hex(),
        side,
        standing,
        buyer: people.party(&row.buyer),
        providers: addressed.map(|key| people.party(key)).collect(),
        more_providers: row.providers.len().saturating_sub(LISTED_MAX),
        kind: row.kind,
        schema_id: schema_id.or_else(|| claimed(row)),
        bid_msat: row.bid.map(|bid| bid.0),
        private: row.is_private,
        created_ms: i64::try_from(row.created_at).unwrap_or(i64::MAX).saturating_mul(1_000),
        received_ms: row.received_ms,
    }
}

/// The first of those whom it addresses: there may be any number.
fn listed(row: &index::Request) -> impl Iterator<Item = &PublicKey> {
    row.providers.iter().take(LISTED_MAX)
}

/// The schema as the request names it.
fn claimed(row: &index::Request) -> Option<String> {
    row.schema_id.as_deref().map(|text| clipped(text, NAME_MAX_CHARS))
}

/// Who works for us, or did.
fn hired(concern: &Concern) -> Option<&PublicKey> {
    match concern {
        Concern::Order { provider, .. } => provider.as_ref(),
        Concern::Job { .. } => None,
    }
}

fn of_order(state: order::State, progress: Progress) -> Standing {
    match state {
        order::State::Posted if progress.is_worked_on => Standing::Working,
        order::State::Posted => Standing::Open,
        order::State::Delivered => Standing::Delivered,
        order::State::Released => Standing::Paid,
        order::State::Withheld => Standing::Withheld,
        order::State::Expired => Standing::Expired,
        order::State::Cancelled => Standing::Cancelled,
        order::State::Failed => Standing::Failed,
    }
}

fn of_job(state: job::State) -> Standing {
    match state {
        job::State::Accepted => Standing::Working,
        job::State::Delivered => Standing::Delivered,
        job::State::Paid | job::State::Underpaid => Standing::Paid,
        job::State::Withheld => Standing::Withheld,
        job::State::Failed => Standing::Failed,
        job::State::Refused => Standing::Refused,
        job::State::Cancelled => Standing::Cancelled,
    }
}

/// What can be told from outside: whether it was accepted and paid, only the two know.
fn of_progress(progress: Progress) -> Standing {
    match progress {
        Progress { has_result: true, .. } => Standing::Delivered,
        Progress { is_worked_on: true, .. } => Standing::Working,
        Progress { is_refused: true, .. } => Standing::Refused,
        _ => Standing::Open,
    }
}

/// One request with its story.
pub(super) fn detail(
    rx: &mut Rx<'_>,
    id: &EventId,
    reader: Reader,
) -> Result<Option<RequestDetail>> {
    let order = order::of_request(rx, id)?;
    let job = job::find(rx, id)?;
    let Some(row) = row_of(rx, id, order.as_ref(), job.as_ref())? else { return Ok(None) };
    let Some(request) = views(rx, std::slice::from_ref(&row), reader)?.pop() else {
        return Ok(None);
    };
    let heard = heard(rx, &row)?;
    let kept = receipts::of_request(rx, &id.hex())?;
    let standings = match &order {
        Some(order) => order::answers(rx, &order.request_id)?,
        None => Vec::new(),
    };
    let why = match &order {
        Some(order) => chosen::find(rx, &order.order_id)?,
        None => None,
    };
    let replica = match &order {
        Some(order) => delegation::replica_of(rx, &order.order_id)?,
        None => None,
    };
    let keys = heard.iter().map(|heard| heard.answer.author).chain(listed(&row).copied());
    let people = People::of(rx, keys.chain([row.buyer]))?;
    let may_tell = reader.may_see(row.is_private);
    let story = Story {
        may_tell,
        row: &row,
        schema_id: request.schema_id.as_deref(),
        heard: &heard,
        order: order.as_ref(),
        why: why.as_ref(),
        standings: &standings,
        job: job.as_ref(),
        receipts: &kept,
        people: &people,
    };
    let words = order.as_ref().and_then(|order| order.words.clone());
    let receipt_id = order.as_ref().and_then(|order| order.receipt_id.as_ref());
    let receipt_id = receipt_id.or_else(|| job.as_ref().and_then(|job| job.receipt_id.as_ref()));
    Ok(Some(RequestDetail {
        price_msat: price(order.as_ref(), job.as_ref(), &row, &heard),
        reason: words
            .or_else(|| job.as_ref().and_then(|job| job.words.clone()))
            .filter(|_| may_tell)
            .map(|words| clipped(&words, SAID_MAX_CHARS)),
        receipt_id: receipt_id.map(ToString::to_string),
        dispute: super::dispute::of_request(rx, id)?,
        delegation_id: replica.map(|replica| replica.delegation_id.to_string()),
        timeline: story.steps(),
        request,
    }))
}

/// The request as the index has it, or as our own order or job keeps it when the archive has forgotten it.
fn row_of(
    rx: &mut Rx<'_>,
    id: &EventId,
    order: Option<&Order>,
    job: Option<&TakenJob>,
) -> Result<Option<index::Request>> {
    if let Some(row) = index::request(rx, id)? {
        return Ok(Some(row));
    }
    let kept = match (order, job) {
        (Some(order), _) => Some((order.request()?, order.posted_ms)),
        // Of one that was refused there is nothing left to show.
        (None, Some(job)) if job.request_json.is_none() => None,
        (None, Some(job)) => Some((job.request()?, job.taken_ms)),
        (None, None) => None,
    };
    Ok(kept.map(|(event, received_ms)| forgotten(&event, received_ms)))
}

fn forgotten(event: &Event, received_ms: i64) -> index::Request {
    let bid = tag::value(&event.tags, "bid").and_then(|bid| bid.parse().ok());
    index::Request {
        seq: 0,
        request_id: event.id,
        buyer: event.pubkey,
        kind: event.kind,
        schema_id: None,
        bid: bid.map(guild_protocol::amount::Msat),
        providers: tag::values(&event.tags, "p").filter_map(|key| key.parse().ok()).collect(),
        is_private: tag::has(&event.tags, "encrypted"),
        is_taken_back: false,
        created_at: event.created_at,
        received_ms,
    }
}

/// What was answered, with the words in it that everybody can read.
fn heard(rx: &mut Rx<'_>, row: &index::Request) -> Result<Vec<Heard>> {
    let answers = index::answers_within(rx, &row.request_id, &row.providers, ANSWERS_MAX)?;
    let mut all = Vec::new();
    for answer in answers {
        let words = match answer.kind {
            kind::FEEDBACK => {
                archive::event(rx, &answer.event_id)?.and_then(|event| words_of(&event))
            }
            _ => None,
        };
        all.push(Heard { answer, words });
    }
    Ok(all)
}

fn words_of(feedback: &Event) -> Option<String> {
    Feedback::parse(feedback, None).ok()?.info.filter(|words| !words.trim().is_empty())
}

/// What was agreed or paid; from outside, what an addressed provider last asked for.
fn price(
    order: Option<&Order>,
    job: Option<&TakenJob>,
    row: &index::Request,
    heard: &[Heard],
) -> Option<i64> {
    if let Some(order) = order {
        return order.paid.or(order.price).map(|price| price.0);
    }
    if let Some(job) = job.filter(|job| job.state != job::State::Refused) {
        return Some(job.price.0);
    }
    let asked = heard.iter().filter(|heard| row.providers.contains(&heard.answer.author));
    asked.filter_map(|heard| heard.answer.price).next_back().map(|price| price.0)
}
