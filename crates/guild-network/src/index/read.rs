//! Reads the index.

use guild_protocol::amount::Msat;
use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::EventId;
use guild_protocol::nostr::announcement::Announcement;
use guild_store::{Rx, args};

use crate::Result;
use crate::archive::{id_key, json, parse, pubkey_key, unreadable};

/// A provider, as it announces itself and as it was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Provider {
    /// The number of its announcement.
    pub seq: i64,
    /// Its key.
    pub pubkey: PublicKey,
    /// Its announcement's event.
    pub event_id: EventId,
    /// When the announcement was made, in Unix seconds, as it says.
    pub created_at: u64,
    /// What it announces.
    pub card: Announcement,
    /// Its `d` for searching: others may share it.
    pub canonical_d: String,
    /// When its first announcement came.
    pub first_ms: UnixMs,
    /// When this announcement came.
    pub last_ms: UnixMs,
    /// When it last gave a sign of life.
    pub heard_ms: Option<UnixMs>,
}

/// Which providers are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Only who claims this schema.
    pub schema_id: Option<String>,
    /// Only who was heard since.
    pub live_since_ms: Option<UnixMs>,
    /// Only those behind this one, by when it was heard and its number.
    pub after: Option<(UnixMs, i64)>,
    /// At most so many, those heard last.
    pub limit: usize,
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted { schema_id: None, live_since_ms: None, after: None, limit: 1_000 }
    }
}

/// A page of a list, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Only what came before this number; none for the first page.
    pub before_seq: Option<i64>,
    /// At most so many.
    pub limit: usize,
}

impl Default for Page {
    fn default() -> Page {
        Page { before_seq: None, limit: 100 }
    }
}

/// A request, as everybody sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The number of its event.
    pub seq: i64,
    /// Its event's id.
    pub request_id: EventId,
    /// Who asks.
    pub buyer: PublicKey,
    /// Its event's kind.
    pub kind: u16,
    /// What is asked; hidden if it is private.
    pub schema_id: Option<String>,
    /// The most that is paid.
    pub bid: Option<Msat>,
    /// Whom it addresses.
    pub providers: Vec<PublicKey>,
    /// Whether input and settings are encrypted.
    pub is_private: bool,
    /// Whether its author has taken it back. Then it is here only because it is pinned.
    pub is_taken_back: bool,
    /// Unix seconds, as it says.
    pub created_at: u64,
    /// When it came.
    pub received_ms: UnixMs,
}

/// A result or feedback, as everybody sees it. Whether the author was addressed is for the reader to check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The number of its event.
    pub seq: i64,
    /// Its event's id.
    pub event_id: EventId,
    /// Which request it answers.
    pub request_id: EventId,
    /// Who answers.
    pub author: PublicKey,
    /// Its event's kind: 7000, or the request's and 1000.
    pub kind: u16,
    /// What feedback says; hidden if it is private.
    pub status: Option<String>,
    /// What is asked for it.
    pub price: Option<Msat>,
    /// Unix seconds, as it says.
    pub created_at: u64,
    /// When it came.
    pub received_ms: UnixMs,
}

pub(super) type ProviderRow = (i64, String, i64, i64, Option<i64>, String);

macro_rules! providers {
    ($from:literal) => {
        concat!(
            "SELECT found.seq, found.canonical_d, found.first_ms, found.last_ms, found.heard_ms, ",
            json!("e."),
            " FROM (SELECT * FROM (
               SELECT p.seq, p.canonical_d, p.first_ms, p.last_ms,
                 (SELECT CASE WHEN max(h.last_ms) > p.said_ms THEN max(h.last_ms) ELSE p.said_ms END
                  FROM index_heartbeat h
                  WHERE h.pubkey = p.pubkey AND h.d IN (p.d, '')) AS heard_ms
               FROM ",
            $from,
            ") AS heard WHERE coalesce(heard_ms, 0) >= $2
             AND (coalesce(heard_ms, 0) < $3 OR (coalesce(heard_ms, 0) = $3 AND seq > $4))
             ORDER BY coalesce(heard_ms, 0) DESC, seq LIMIT $5) AS found
             JOIN nostr_event e ON e.seq = found.seq
             ORDER BY coalesce(found.heard_ms, 0) DESC, found.seq"
        )
    };
}

const PROVIDERS_BY_SCHEMA: &str =
    providers!("index_schema s JOIN index_provider p ON p.seq = s.seq WHERE s.schema_id = $1");
const PROVIDERS_BY_KEY: &str = providers!(
    "(SELECT * FROM index_provider WHERE pubkey_key = $6 AND pubkey = $1
      ORDER BY seq DESC LIMIT $5) AS p"
);

/// Who announces itself, those heard last first.
pub fn providers(rx: &mut Rx<'_>, wanted: &Wanted) -> Result<Vec<Provider>> {
    let live_since_ms = wanted.live_since_ms.unwrap_or(i64::MIN);
    let (heard_ms, seq) = wanted.after.unwrap_or((i64::MAX, 0));
    let limit = i64::try_from(wanted.limit).unwrap_or(i64::MAX);
    let rows: Vec<ProviderRow> = match &wanted.schema_id {
        Some(schema_id) => {
            rx.all(PROVIDERS_BY_SCHEMA, args![schema_id, live_since_ms, heard_ms, seq, limit])?
        }
        None => rx.all(
            providers!("index_provider p WHERE p.seq > $1"),
            args![0, live_since_ms, heard_ms, seq, limit],
        )?,
    };
    rows.into_iter().map(provider_of).collect()
}

/// Of what one key announces no more than this is read: a key may announce as much as it likes.
pub(crate) const OFFERS_MAX: i64 = 64;

/// What one key announces, the 64 announcements that came last, those heard last first.
pub fn provider(rx: &mut Rx<'_>, pubkey: &PublicKey) -> Result<Vec<Provider>> {
    let (hex, key) = (pubkey.hex(), pubkey_key(pubkey));
    let rows: Vec<ProviderRow> =
        rx.all(PROVIDERS_BY_KEY, args![&hex, i64::MIN, i64::MAX, 0, OFFERS_MAX, key])?;
    rows.into_iter().map(provider_of).collect()
}

pub(super) fn provider_of(row: ProviderRow) -> Result<Provider> {
    let (seq, canonical_d, first_ms, last_ms, heard_ms, json) = row;
    let event = parse(&json)?;
    Ok(Provider {
        seq,
        pubkey: event.pubkey,
        event_id: event.id,
        created_at: event.created_at,
        card: Announcement::parse(&event)?,
        canonical_d,
        first_ms,
        last_ms,
        heard_ms,
    })
}

type RequestRow = (i64, String, String, i64, i64, i64, Option<String>, Option<i64>, String, i64);

macro_rules! requests {
    ($rest:literal) => {
        concat!(
            "SELECT r.seq, e.event_id, e.pubkey, e.kind, e.created_at, e.received_ms, r.schema_id,
               r.bid_msat, r.providers, r.private + 2 * e.hidden
             FROM index_request r JOIN nostr_event e ON e.seq = r.seq WHERE ",
            $rest
        )
    };
}

/// Requests, those that came last first.
pub fn requests(rx: &mut Rx<'_>, page: &Page) -> Result<Vec<Request>> {
    let rows: Vec<RequestRow> = rx.all(
        REQUESTS,
        args![page.before_seq.unwrap_or(i64::MAX), i64::try_from(page.limit).unwrap_or(i64::MAX)],
    )?;
    rows.into_iter().map(request_of).collect()
}

/// One request.
pub fn request(rx: &mut Rx<'_>, id: &EventId) -> Result<Option<Request>> {
    let row: Option<RequestRow> = rx.first(REQUEST, args![id_key(id), &id.hex()])?;
    row.map(request_of).transpose()
}

fn request_of(row: RequestRow) -> Result<Request> {
    let (seq, event_id, pubkey, kind, created_at, received_ms, schema_id, bid, providers, marks) =
        row;
    let providers: Vec<String> =
        serde_json::from_str(&providers).map_err(|e| unreadable(&e.to_string()))?;
    Ok(Request {
        seq,
        request_id: event_id.parse()?,
        buyer: pubkey.parse()?,
        kind: u16::try_from(kind).map_err(|_| unreadable("a kind"))?,
        schema_id,
        bid: bid.map(Msat),
        providers: providers.iter().map(|key| Ok(key.parse()?)).collect::<Result<_>>()?,
        is_private: marks & 1 != 0,
        is_taken_back: marks & 2 != 0,
        created_at: u64::try_from(created_at).unwrap_or(0),
        received_ms,
    })
}

pub(super) type AnswerRow = (i64, String, String, i64, i64, i64, Option<String>, Option<i64>);

/// The answers `a` to a request, and their events `e`: those under a term of an `e` tag with its id, from the first to
/// the last with a kind of answers, that name it as the request.
macro_rules! of_answers {
    ($select:literal, $rest:literal) => {
        concat!(
            $select,
            " FROM nostr_term t JOIN index_answer a ON a.seq = t.seq JOIN nostr_event e ON e.seq = t.seq
             WHERE t.term >= $1 AND t.term <= $2 AND a.request_id = $3 ",
            $rest
        )
    };
    ($rest:literal) => {
        of_answers!(
            "SELECT a.seq, e.event_id, e.pubkey, e.kind, e.created_at, e.received_ms, a.status, a.price_msat",
            $rest
        )
    };
}
pub(super) use of_answers;

const REQUEST: &str = requests!("e.id_key = $1 AND e.event_id = $2");
const REQUESTS: &str = requests!("r.seq < $1 ORDER BY r.seq DESC LIMIT $2");

/// What is asked of large tables, and how many values are bound.
#[cfg(test)]
pub(crate) const STATEMENTS: [(&str, usize); 9] = [
    (REQUEST, 2),
    (REQUESTS, 2),
    (PROVIDERS_BY_SCHEMA, 5),
    (PROVIDERS_BY_KEY, 6),
    (super::recommendation::OF_PROVIDER, 2),
    (super::glance::NAME_KEYS, 1),
    (super::announced::BETWEEN, 3),
    (super::announced::INDEXED, 3),
    (super::announced::CAME, 1),
];

/// An answer to this request.
pub(super) fn answer_of(request_id: &EventId, row: AnswerRow) -> Result<Answer> {
    let (seq, event_id, pubkey, kind, created_at, received_ms, status, price_msat) = row;
    Ok(Answer {
        seq,
        event_id: event_id.parse()?,
        request_id: *request_id,
        author: pubkey.parse()?,
        kind: u16::try_from(kind).map_err(|_| unreadable("a kind"))?,
        status,
        price: price_msat.map(Msat),
        created_at: u64::try_from(created_at).unwrap_or(0),
        received_ms,
    })
}
