//! The audit log as pages.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use guild_protocol::id::EntryId;
use guild_roles::audit_log::Note;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::body::Sent;
use crate::guard::Owner;
use crate::{Error, Result, Shared};

/// The parameters of a page. Read as text, so that a wrong one gets our own message.
#[derive(Deserialize)]
pub(crate) struct PageQuery {
    after: Option<String>,
    limit: Option<String>,
}

pub(crate) async fn page(
    State(shared): State<Shared>,
    query: Result<Query<PageQuery>, QueryRejection>,
) -> Result<Json<Value>> {
    let Query(query) = query.map_err(bad_query)?;
    let after = number("after", query.after.as_deref(), 0)?;
    let limit = number("limit", query.limit.as_deref(), 100)?;
    let entries = shared.log.page(after, limit).await?;
    let next = entries.last().map_or(after, |entry| entry.seq);
    Ok(Json(json!({ "entries": entries, "next_after": next })))
}

/// What a caller may write down.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewNote {
    entry_id: Option<EntryId>,
    actor: String,
    action: String,
    subject: Option<String>,
    #[serde(default)]
    detail: Map<String, Value>,
}

pub(crate) async fn append(
    State(shared): State<Shared>,
    _: Owner,
    Sent(note): Sent<NewNote>,
) -> Result<(StatusCode, Json<Value>)> {
    let note = Note {
        entry_id: note.entry_id,
        actor: note.actor,
        action: note.action,
        subject: note.subject,
        detail: note.detail,
    };
    let (entry_id, seq) = shared.log.append(note).await?;
    Ok((StatusCode::CREATED, Json(json!({ "entry_id": entry_id, "seq": seq }))))
}

/// A query that is no query: the same parameter twice, or bytes that are no text.
#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
pub(crate) fn bad_query(rejected: QueryRejection) -> Error {
    Error::bad("query", rejected.body_text())
}

/// A parameter that counts: a whole number, not negative.
pub(crate) fn number(name: &str, text: Option<&str>, default: i64) -> Result<i64> {
    match text {
        None => Ok(default),
        Some(text) => match text.parse::<i64>() {
            Ok(number) if number >= 0 => Ok(number),
            _ => Err(Error::bad(name, "must be a whole number, zero or more")),
        },
    }
}
