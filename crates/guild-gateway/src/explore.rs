//! The market for readers: the same things as pages and as JSON.
//!
//! A path below `/api` answers in JSON. The same path without it is a page, unless JSON alone is asked for.

mod answer;
mod query;

use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_DISPOSITION;
use axum::response::Response;
use guild_protocol::id::ReceiptId;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::EventId;
use guild_protocol::receipt;
use guild_roles::explorer::{Kept, Listed};
use serde::Serialize;
use serde_json::{Value, json};

use self::answer::{Asked, Form};
use self::query::{ListQuery, Named, Params};
use crate::{Error, Result, Shared, web};

pub(crate) use self::answer::wants_page;

/// How a list is sent: its lines under their name, and where the next page begins.
fn list<T: Serialize>(name: &str, listed: &Listed<T>) -> Value {
    json!({ name: listed.items, "next": listed.next })
}

pub(crate) async fn home(State(shared): State<Shared>, asked: Asked) -> Result<Response> {
    let summary = shared.explorer.summary().await?;
    asked.answer(|| json!(summary), || web::home(&summary, shared.clock.now_ms()))
}

pub(crate) async fn providers(
    State(shared): State<Shared>,
    asked: Asked,
    query: Params,
) -> Result<Response> {
    let query = ListQuery::read(query)?;
    let (page, wanted) = (query.page()?, query.wanted()?);
    let listed = shared.explorer.providers(page, wanted.clone()).await?;
    let next = query.next(asked.path(), listed.next.as_ref());
    let filter = web::Filter { schema_id: wanted.schema_id, live: wanted.live };
    asked.answer(
        || list("providers", &listed),
        || web::providers(&listed.items, &filter, next.as_deref(), shared.clock.now_ms()),
    )
}

pub(crate) async fn provider(
    State(shared): State<Shared>,
    asked: Asked,
    Named(key): Named,
) -> Result<Response> {
    let key: PublicKey =
        key.parse().map_err(|e: guild_protocol::Error| Error::bad("key", e.message()))?;
    let found = shared.explorer.provider(key).await?;
    let provider = found.ok_or_else(|| Error::Unknown { what: "provider", id: key.npub() })?;
    asked.answer(|| json!(provider), || web::provider(&provider, shared.clock.now_ms()))
}

pub(crate) async fn requests(
    State(shared): State<Shared>,
    asked: Asked,
    query: Params,
) -> Result<Response> {
    let query = ListQuery::read(query)?;
    query.refuse_filter()?;
    let listed = shared.explorer.requests(query.page()?).await?;
    let next = query.next(asked.path(), listed.next.as_ref());
    asked.answer(
        || list("requests", &listed),
        || web::requests(&listed.items, next.as_deref(), shared.clock.now_ms()),
    )
}

pub(crate) async fn request(
    State(shared): State<Shared>,
    asked: Asked,
    Named(id): Named,
) -> Result<Response> {
    let id: EventId =
        id.parse().map_err(|e: guild_protocol::Error| Error::bad("request_id", e.message()))?;
    let found = shared.explorer.request(id).await?;
    let detail = found.ok_or_else(|| Error::Unknown { what: "request", id: id.hex() })?;
    asked.answer(|| json!(detail), || web::request(&detail, shared.clock.now_ms()))
}

pub(crate) async fn receipts(
    State(shared): State<Shared>,
    asked: Asked,
    query: Params,
) -> Result<Response> {
    let query = ListQuery::read(query)?;
    query.refuse_filter()?;
    let listed = shared.explorer.receipts(query.page()?).await?;
    let next = query.next(asked.path(), listed.next.as_ref());
    asked.answer(
        || list("receipts", &listed),
        || web::receipts(&listed.items, next.as_deref(), shared.clock.now_ms()),
    )
}

pub(crate) async fn receipt(
    State(shared): State<Shared>,
    asked: Asked,
    Named(id): Named,
) -> Result<Response> {
    let id = receipt_id(&id)?;
    let found = shared.explorer.receipt(id.clone()).await?;
    let kept = found.ok_or_else(|| unknown_receipt(&id))?;
    match asked.form() {
        Form::Json => Ok(file(&asked, "application/json", &format!("{id}.json"), kept.bytes)),
        Form::Page => Ok(asked.page(receipt_page(&kept, shared.clock.now_ms())?)),
    }
}

/// The page shows what a check of the bytes finds now, not what was once found.
fn receipt_page(kept: &Kept, now_ms: i64) -> Result<String> {
    let corrupt = |e: guild_protocol::Error| Error::Corrupt(e.message().to_owned());
    let verification = receipt::explain(&kept.bytes).map_err(corrupt)?;
    let proven = receipt::Receipt::from_bytes(&kept.bytes).ok();
    let shown = web::Shown {
        receipt: &kept.receipt,
        verification: &verification,
        proven: proven.as_ref(),
        has_replay: kept.has_replay,
    };
    Ok(web::receipt(&shown, now_ms))
}

pub(crate) async fn replay(
    State(shared): State<Shared>,
    asked: Asked,
    Named(id): Named,
) -> Result<Response> {
    let id = receipt_id(&id)?;
    let found = shared.explorer.replay(id.clone()).await?;
    let bytes = found.ok_or_else(|| Error::Unknown { what: "replay", id: id.to_string() })?;
    Ok(file(&asked, "application/jsonl", "REPLAY.jsonl", bytes))
}

fn receipt_id(text: &str) -> Result<ReceiptId> {
    text.parse().map_err(|e: guild_protocol::Error| Error::bad("receipt_id", e.message()))
}

fn unknown_receipt(id: &ReceiptId) -> Error {
    Error::Unknown { what: "receipt", id: id.to_string() }
}

/// Bytes that never change, as a file of that name.
fn file(asked: &Asked, content_type: &'static str, name: &str, bytes: Vec<u8>) -> Response {
    let mut response = asked.bytes(content_type, bytes);
    if let Ok(disposition) = HeaderValue::from_str(&format!("inline; filename=\"{name}\"")) {
        response.headers_mut().insert(CONTENT_DISPOSITION, disposition);
    }
    response
}
