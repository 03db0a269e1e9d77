//! The market for readers: the same things as pages and as JSON.
//!
//! A path below `/api` answers in JSON. The same path without it is a page, unless JSON alone is asked for. With the
//! node's token both tell also what is private.

mod answer;
mod query;
mod tar;

use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_DISPOSITION;
use axum::response::Response;
use guild_protocol::id::ReceiptId;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::EventId;
use guild_protocol::{receipt, replay};
use guild_roles::buyer::DelegationId;
use guild_roles::disputes::DisputeId;
use guild_roles::explorer::{About, Kept, Listed, Page};
use guild_roles::router::TaskType;
use serde::Serialize;
use serde_json::json;

use self::answer::{Asked, Form};
use self::query::{ListQuery, Named, parsed};
use crate::guard::Market;
use crate::{Error, Result, Shared, web};

/// So many reviews of others stand beside ours.
const OTHERS_MAX: usize = 50;

pub(crate) use self::answer::{names, wants_page};
pub use self::query::encoded;

pub(crate) async fn home(
    State(shared): State<Shared>,
    Market(market): Market,
    asked: Asked,
) -> Result<Response> {
    let summary = market.summary().await?;
    Ok(asked.answer(|| json!(summary), || web::home(&summary, shared.clock.now_ms())))
}

pub(crate) async fn providers(
    State(shared): State<Shared>,
    Market(market): Market,
    asked: Asked,
    query: ListQuery,
) -> Result<Response> {
    let (page, wanted) = (query.page()?, query.wanted()?);
    let listed = market.providers(page, wanted.clone()).await?;
    let filter = web::Filter {
        schema_id: wanted.schema_id,
        live: wanted.live,
        status: wanted.status,
        tier: wanted.tier,
    };
    Ok(list(&asked, &query, "providers", &listed, |offers, next| {
        web::providers(offers, &filter, next, shared.clock.now_ms())
    }))
}

pub(crate) async fn provider(
    State(shared): State<Shared>,
    Market(market): Market,
    asked: Asked,
    Named(key): Named,
) -> Result<Response> {
    let key: PublicKey = parsed("key", &key)?;
    let provider = known("provider", &key.npub(), market.provider(key).await?)?;
    Ok(asked.answer(|| json!(provider), || web::provider(&provider, shared.clock.now_ms())))
}

pub(crate) async fn matrix(
    Market(market): Market,
    asked: Asked,
    query: ListQuery,
) -> Result<Response> {
    let sheet = market.matrix(query.unfiltered()?).await?;
    let sheet = sheet.ok_or_else(|| Error::NoSuchPath(asked.path().to_owned()))?;
    let json = || {
        json!({
            "log_seq": sheet.log_seq,
            "works": sheet.works,
            "more_works": sheet.more_works,
            "rows": sheet.rows.items,
            "next": sheet.rows.next,
        })
    };
    let next = query.next(asked.path(), sheet.rows.next.as_ref());
    Ok(asked.answer(json, || web::matrix(&sheet, next.as_deref())))
}

pub(crate) async fn budgets(
    State(shared): State<Shared>,
    Market(market): Market,
    asked: Asked,
) -> Result<Response> {
    let budgets = market.budgets().await?;
    let budgets = budgets.ok_or_else(|| Error::NoSuchPath(asked.path().to_owned()))?;
    Ok(asked.answer(|| json!(budgets), || web::budgets(&budgets, shared.clock.now_ms())))
}

pub(crate) async fn explained(
    Market(market): Market,
    asked: Asked,
    Named(task): Named,
) -> Result<Response> {
    let task = task.parse::<TaskType>().map_err(|e| Error::bad("task", e.to_string()))?;
    let told = known("task type", task.as_str(), market.explained(task.clone()).await?)?;
    Ok(asked.answer(|| json!(told.explanation), || web::explained(&told)))
}

pub(crate) async fn requests(
    State(shared): State<Shared>,
    Market(market): Market,
    asked: Asked,
    query: ListQuery,
) -> Result<Response> {
    let listed = market.requests(query.unfiltered()?).await?;
    Ok(list(&asked, &query, "requests", &listed, |requests, next| {
        web::requests(requests, next, shared.clock.now_ms())
    }))
}

pub(crate) async fn request(
    State(shared): State<Shared>,
    Market(market): Market,
    asked: Asked,
    Named(id): Named,
) -> Result<Response> {
    let id: EventId = parsed("request_id", &id)?;
    let detail = known("request", &id.hex(), market.request(id).await?)?;
    Ok(asked.answer(|| json!(detail), || web::request(&detail, shared.clock.now_ms())))
}

pub(crate) async fn delegations(
    State(shared): State<Shared>,
    Market(market): Market,
    asked: Asked,
    query: ListQuery,
) -> Result<Response> {
    let listed = market.delegations(query.unfiltered()?).await?;
    Ok(list(&asked, &query, "delegations", &listed, |delegations, next| {
        web::delegations(delegations, next, shared.clock.now_ms())
    }))
}

pub(crate) async fn delegation(
    State(shared): State<Shared>,
    Market(market): Market,
    asked: Asked,
    Named(id): Named,
) -> Result<Response> {
    let id: DelegationId = parsed("delegation_id", &id)?;
    let detail = known("delegation", id.as_str(), market.delegation(id.clone()).await?)?;
    Ok(asked.answer(|| json!(detail), || web::delegation(&detail, shared.clock.now_ms())))
}

pub(crate) async fn disputes(
    State(shared): State<Shared>,
    Market(market): Market,
    asked: Asked,
    query: ListQuery,
) -> Result<Response> {
    let listed = market.disputes(query.unfiltered()?).await?;
    Ok(list(&asked, &query, "disputes", &listed, |disputes, next| {
        web::disputes(disputes, next, shared.clock.now_ms())
    }))
}

pub(crate) async fn dispute(
    State(shared): State<Shared>,
    Market(market): Market,
    asked: Asked,
    Named(id): Named,
) -> Result<Response> {
    let id: DisputeId = parsed("dispute_id", &id)?;
    let sides = Some(market.dispute(id.clone()).await?).filter(|sides| !sides.is_empty());
    let sides = known("dispute", id.as_str(), sides)?;
    Ok(asked.answer(
        || json!({ "dispute_id": id, "sides": sides }),
        || web::dispute(&sides, shared.clock.now_ms()),
    ))
}

pub(crate) async fn receipts(
    State(shared): State<Shared>,
    Market(market): Market,
    asked: Asked,
    query: ListQuery,
) -> Result<Response> {
    let listed = market.receipts(query.unfiltered()?).await?;
    Ok(list(&asked, &query, "receipts", &listed, |receipts, next| {
        web::receipts(receipts, next, shared.clock.now_ms())
    }))
}

pub(crate) async fn receipt(
    State(shared): State<Shared>,
    Market(market): Market,
    asked: Asked,
    Named(id): Named,
) -> Result<Response> {
    let id: ReceiptId = parsed("receipt_id", &id)?;
    let kept = known("receipt", id.as_str(), market.receipt(id.clone()).await?)?;
    match asked.form() {
        Form::Json => Ok(file(&asked, "application/json", receipt::FILE_NAME, kept.bytes)),
        Form::Page => Ok(asked.page(receipt_page(&kept, shared.clock.now_ms())?)),
    }
}

/// What this node says of providers, and the newest of what others say.
pub(crate) async fn reviews(
    State(shared): State<Shared>,
    Market(market): Market,
    asked: Asked,
    query: ListQuery,
) -> Result<Response> {
    let listed = market.reviews(query.unfiltered()?).await?;
    let others = market.reviews_of_others(Page::first(OTHERS_MAX)).await?.items;
    let next = query.next(asked.path(), listed.next.as_ref());
    Ok(asked.answer(
        || json!({ "reviews": listed.items, "next": listed.next, "others": others }),
        || web::reviews(&listed.items, &others, next.as_deref(), shared.clock.now_ms()),
    ))
}

/// The relays of others: the connections that there are, and all that are known.
pub(crate) async fn relays(State(shared): State<Shared>, asked: Asked) -> Result<Response> {
    let (status, known) = (shared.relays.status(), shared.relays.known().await?);
    Ok(asked.answer(
        || json!({ "relays": status, "known": known }),
        || web::relays(&status, &known, shared.clock.now_ms()),
    ))
}

/// A page of a list in the form that was asked for: its lines, and where the next page begins.
fn list<T: Serialize>(
    asked: &Asked,
    query: &ListQuery,
    name: &str,
    listed: &Listed<T>,
    page: impl FnOnce(&[T], Option<&str>) -> String,
) -> Response {
    asked.answer(
        || json!({ name: listed.items, "next": listed.next }),
        || page(&listed.items, query.next(asked.path(), listed.next.as_ref()).as_deref()),
    )
}

/// What was found under an id, or the error that says that there is nothing.
fn known<T>(what: &'static str, id: &str, found: Option<T>) -> Result<T> {
    found.ok_or_else(|| Error::Unknown { what, id: id.to_owned() })
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
    Market(market): Market,
    asked: Asked,
    Named(id): Named,
) -> Result<Response> {
    let id: ReceiptId = parsed("receipt_id", &id)?;
    let bytes = known("replay", id.as_str(), market.replay(id.clone()).await?)?;
    Ok(file(&asked, "application/jsonl", replay::FILE_NAME, bytes))
}

/// All that strangers can check of a request, or of a delegation, as one file.
pub(crate) async fn evidence(
    Market(market): Market,
    asked: Asked,
    Named(id): Named,
) -> Result<Response> {
    let about: About = parsed("id", &id)?;
    let gathered = known("evidence", &id, market.evidence(about).await?)?;
    let name = format!("evidence-{}", gathered.manifest.about);
    let bytes = tar::tar(&name, &gathered.files)
        .ok_or_else(|| Error::Corrupt("the evidence does not fit into an archive".to_owned()))?;
    Ok(file(&asked, "application/x-tar", &format!("{name}.tar"), bytes))
}

/// Bytes that never change, as a file of that name.
fn file(asked: &Asked, content_type: &'static str, name: &str, bytes: Vec<u8>) -> Response {
    let mut response = asked.bytes(content_type, bytes);
    if let Ok(disposition) = HeaderValue::from_str(&format!("inline; filename=\"{name}\"")) {
        response.headers_mut().insert(CONTENT_DISPOSITION, disposition);
    }
    response
}
