//! A Nostr key proves itself by an event about one request (NIP-98).
//!
//! [`check`] is pure; [`sign_in`] remembers the event in the transaction that opens the session, so that it opens none
//! a second time. What is remembered is of the last three minutes, and whoever comes takes away what is older.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Event, EventId, Limits, kind, tag};
use guild_store::{Tx, args};

use super::session::{self, NewSession, Session, Via};
use super::{Origin, SWEEP_MAX, code};
use crate::{Error, Result, UserId};

/// By how much the time of an event may differ from ours.
pub const WINDOW_MS: i64 = 60_000;
/// For how long an event is remembered after it could be shown: the clock may be set back by as much.
const SLACK_MS: i64 = 120_000;
/// The most bytes of a header.
const MAX_HEADER_BYTES: usize = 8 * 1024;

const LIMITS: Limits = Limits {
    max_bytes: MAX_HEADER_BYTES,
    max_content_bytes: 1024,
    max_tags: 16,
    max_tag_items: 8,
    max_tag_item_bytes: 4 * 1024,
};

/// The request that an event must be about. A body may hold anything, so there is no `Debug`.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// The public origins of this node.
    pub origins: &'a [Origin],
    /// In capital letters.
    pub method: &'a str,
    /// Path and query, as they came.
    pub path_and_query: &'a str,
    /// The body, as it came.
    pub body: &'a [u8],
}

/// A key that has signed an event about this request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    key: PublicKey,
    event_id: EventId,
    created_ms: UnixMs,
}

/// The header `Authorization` for a signed event: what a client sends.
pub fn header(event: &Event) -> String {
    format!("Nostr {}", STANDARD.encode(event.to_json()))
}

/// Looks at the header `Authorization`: form, request, time, signature. Pure.
pub fn check(header: &str, asked: &Asked<'_>, now_ms: UnixMs) -> Result<Proof> {
    let event = read(header)?;
    let created_ms = i64::try_from(event.created_at).unwrap_or(i64::MAX).saturating_mul(1_000);
    check_time(created_ms, now_ms)?;
    check_request(&event, asked)?;
    event.verify().map_err(|_| malformed("the event is not what its author signed"))?;
    Ok(Proof { key: event.pubkey, event_id: event.id, created_ms })
}

fn read(header: &str) -> Result<Event> {
    let encoded = header.strip_prefix("Nostr ").filter(|_| header.len() <= MAX_HEADER_BYTES);
    let encoded = encoded.ok_or_else(|| malformed("the header is Nostr, a space and base64"))?;
    let text =
        STANDARD.decode(encoded.trim_ascii()).map_err(|_| malformed("this is not base64"))?;
    // What is wrong with it is said without a word of it.
    let event = Event::parse(&text, &LIMITS).map_err(|_| malformed("this is not a Nostr event"))?;
    if event.kind != kind::HTTP_AUTH {
        return Err(malformed("the kind of the event is not 27235"));
    }
    Ok(event)
}

fn malformed(message: &str) -> Error {
    Error::refused(&code::NIP98_MALFORMED, message)
}

fn check_time(created_ms: UnixMs, now_ms: UnixMs) -> Result<()> {
    if created_ms.abs_diff(now_ms) <= WINDOW_MS.unsigned_abs() {
        return Ok(());
    }
    Err(Error::refused(&code::NIP98_TIME, "the event was made more than 60 s from now"))
}

fn check_request(event: &Event, asked: &Asked<'_>) -> Result<()> {
    let mismatch = |what: &str| {
        Error::refused(&code::NIP98_MISMATCH, format!("the tag {what} is of another request"))
    };
    let url = one(event, "u")?.ok_or_else(|| malformed("the tag u is missing"))?;
    let is_ours =
        |origin: &Origin| url.strip_prefix(&origin.to_string()) == Some(asked.path_and_query);
    if !asked.origins.iter().any(is_ours) {
        return Err(mismatch("u"));
    }
    let method = one(event, "method")?.ok_or_else(|| malformed("the tag method is missing"))?;
    if method != asked.method {
        return Err(mismatch("method"));
    }
    match one(event, "payload")? {
        None if asked.body.is_empty() => Ok(()),
        None => Err(malformed("the tag payload is missing, and there is a body")),
        Some(hash) if hash == Hash::of(asked.body).hex() => Ok(()),
        Some(_) => Err(mismatch("payload")),
    }
}

/// The value of the only tag with this name. Two would let two readers see two requests.
fn one<'a>(event: &'a Event, name: &str) -> Result<Option<&'a str>> {
    let mut all = tag::all(&event.tags, name);
    match (all.next(), all.next()) {
        (None, _) => Ok(None),
        (Some([value]), None) => Ok(Some(value)),
        _ => Err(malformed("a tag is there twice, or has not one value")),
    }
}

/// Remembers the event, and says whose it is. The second time it is refused.
fn once(tx: &mut Tx<'_>, proof: &Proof, now_ms: UnixMs) -> Result<UserId> {
    check_time(proof.created_ms, now_ms)?;
    sweep(tx, now_ms)?;
    let keep_ms = proof.created_ms.saturating_add(WINDOW_MS).saturating_add(SLACK_MS);
    let new = tx.exec(
        "INSERT INTO access_seen (event_id, expires_ms) VALUES ($1, $2) ON CONFLICT (event_id) DO NOTHING",
        args![&proof.event_id.hex(), keep_ms],
    )?;
    if new == 0 {
        return Err(Error::refused(&code::NIP98_REPLAYED, "the event was used before"));
    }
    Ok(UserId::of_key(&proof.key))
}

/// Opens a session for the key.
pub fn sign_in(
    tx: &mut Tx<'_>,
    proof: &Proof,
    new: &NewSession,
    now_ms: UnixMs,
) -> Result<Session> {
    let user_id = once(tx, proof, now_ms)?;
    session::open(tx, &user_id, Via::Nip98, new, now_ms)
}

/// Takes away a few that cannot be shown again.
pub(super) fn sweep(tx: &mut Tx<'_>, now_ms: UnixMs) -> Result<u64> {
    Ok(tx.exec(
        "DELETE FROM access_seen WHERE event_id IN (SELECT event_id FROM access_seen
           WHERE expires_ms <= $1 LIMIT $2)",
        args![now_ms, SWEEP_MAX],
    )?)
}
