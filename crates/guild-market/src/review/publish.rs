//! A draft becomes three events, signed and queued in one transaction.

use guild_network::archive::Verified;
use guild_network::publish::{self, Destinations};
use guild_protocol::env::{Signer, UnixMs};
use guild_protocol::nostr::review::Form;
use guild_protocol::nostr::unix_s;
use guild_store::{Rx, Tx, args};
use serde_json::json;

use super::read::last_of;
use super::{Disputed, Due, Facts, Reason, ReviewId, Row, get, when};
use crate::Result;
use crate::event::tell;
use crate::row::page;

/// A review that is held is looked at again after so long.
const HELD_MS: i64 = 600_000;
/// What is published later than it was due says when it was published: whoever asks relays for what is new, asks for
/// what was said since.
const LATE_MS: i64 = 3_600_000;

/// What became of a review that was to be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// It is on its way.
    New(Row),
    /// It was before.
    Known(Row),
    /// It is not due yet.
    Early(Row),
    /// What it is about is disputed.
    Held(Row),
}

impl Published {
    /// The review as it stands.
    pub fn row(self) -> Row {
        match self {
            Published::New(row)
            | Published::Known(row)
            | Published::Early(row)
            | Published::Held(row) => row,
        }
    }
}

/// Drafts that are due, the most urgent first.
pub fn due(rx: &mut Rx<'_>, now_ms: UnixMs, limit: i64) -> Result<Vec<ReviewId>> {
    let rows: Vec<(String,)> = rx.all(
        "SELECT review_id FROM market_review WHERE state IN ('due', 'held') AND due_ms <= $1
         ORDER BY due_ms, review_id LIMIT $2",
        args![now_ms, page(limit)],
    )?;
    rows.into_iter().map(|(id,)| Ok(id.parse()?)).collect()
}

/// Publishes a review that is due, or, if somebody wants it at once, whatever speaks against it. What its events say
/// follows from its row: a try that was not committed left nothing, and one that was is known.
pub fn publish(
    tx: &mut Tx<'_>,
    review_id: &ReviewId,
    (signer, to): (&dyn Signer, &Destinations),
    disputed: Disputed<'_>,
    (at_once, now_ms): (bool, UnixMs),
) -> Result<Published> {
    let row = get(tx, review_id)?;
    if !row.state.is_draft() {
        return Ok(Published::Known(row));
    }
    let at_ms = match at_once {
        true => now_ms,
        false => match look(tx, &row, disputed, now_ms)? {
            Due::Held => return Ok(Published::Held(hold(tx, &row, now_ms)?)),
            Due::At(due_ms, _) if due_ms > now_ms => return Ok(Published::Early(row)),
            Due::At(due_ms, _) if now_ms.saturating_sub(due_ms) > LATE_MS => now_ms,
            Due::At(due_ms, _) => due_ms,
        },
    };
    // A set is replaced only by one that is newer, and events know seconds.
    let (_, last) = last_of(tx, &row.review.subject, &row.task)?;
    let after_s = last.map_or(0, |last| unix_s(last.published_ms).saturating_add(1));
    let at_s = unix_s(at_ms).max(after_s);
    let mut ids = Vec::new();
    for form in Form::ALL {
        let event = Verified::check(row.review.draft(form, at_s)?.sign(signer)?)?;
        ids.push(event.event().id.hex());
        match form {
            Form::Review => publish::enqueue(tx, &event, to, now_ms)?,
            Form::Set | Form::Label => publish::enqueue_unpinned(tx, &event, to, now_ms)?,
        }
    }
    let published_ms = i64::try_from(at_s).unwrap_or(i64::MAX).saturating_mul(1_000);
    replace(tx, &row, (&ids, published_ms), now_ms)?;
    let row = get(tx, review_id)?;
    tell_of(tx, &row, now_ms)?;
    Ok(Published::New(row))
}

fn look(tx: &mut Tx<'_>, row: &Row, disputed: Disputed<'_>, now_ms: UnixMs) -> Result<Due> {
    let is_disputed = match &row.review.evidence.request_id {
        Some(request_id) => disputed(tx, request_id)?,
        None => false,
    };
    Ok(when(&Facts {
        reason: row.reason,
        trust_bp: row.review.trust_bp,
        is_disputed,
        drafted_due_ms: Some(row.due_ms),
        // That was looked at when it was drafted.
        last: None,
        delay_ms: 0,
        now_ms,
    }))
}

fn hold(tx: &mut Tx<'_>, row: &Row, now_ms: UnixMs) -> Result<Row> {
    tx.exec(
        "UPDATE market_review SET state = 'held', due_ms = $2 WHERE review_id = $1",
        args![row.review_id.as_str(), now_ms.saturating_add(HELD_MS)],
    )?;
    get(tx, &row.review_id)
}

fn replace(
    tx: &mut Tx<'_>,
    row: &Row,
    (ids, published_ms): (&[String], UnixMs),
    now_ms: UnixMs,
) -> Result<()> {
    tx.exec(
        "UPDATE market_review SET state = 'superseded'
         WHERE provider = $1 AND task_type = $2 AND state = 'published'",
        args![&row.review.subject.npub(), row.task.as_str()],
    )?;
    let [review, set, label] = ids else { return Err(guild_store::Error::Panicked.into()) };
    tx.cas(
        "UPDATE market_review SET state = 'published', published_ms = $2, event_id = $3, set_id = $4, label_id = $5,
           changed_ms = $6 WHERE review_id = $1 AND state IN ('due', 'held')",
        args![row.review_id.as_str(), published_ms, review, set, label, now_ms],
    )?;
    Ok(())
}

/// Tells everybody, and of what is forbidden with an alert.
fn tell_of(tx: &mut Tx<'_>, row: &Row, now_ms: UnixMs) -> Result<()> {
    let what = if row.reason == Reason::Violation { "alert" } else { "published" };
    let body = json!({
        "review_id": row.review_id, "provider": row.review.subject, "task": row.task,
        "rating": row.review.rating(), "reason": row.reason.name(), "events": row.event_ids,
    });
    tell(tx, &format!("{}:{what}", row.review_id), &format!("review.{what}"), &body, now_ms)
}
