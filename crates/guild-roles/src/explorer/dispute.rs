//! Disputes for readers: who says what about which result, and what became of the money.

use guild_market::dispute::{self, By, Dispute, DisputeId, Outcome, Statement, Wait};
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::EventId;
use guild_store::Rx;
use serde::Serialize;
use serde_json::Value;

use super::Reader;
use super::page::{Cursor, Listed, Page, cut};
use super::people::People;
use super::view::Party;
use super::words::clipped;
use crate::{Error, Result};

/// The longest statement that is shown.
const TEXT_MAX_CHARS: usize = 2_000;

/// A dispute as one side of it sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DisputeView {
    /// Names it.
    pub dispute_id: DisputeId,
    /// What this node is in it: buyer, provider or arbiter.
    pub side: &'static str,
    /// The request whose result is disputed.
    pub request_id: EventId,
    /// Who asked for the work.
    pub buyer: Party,
    /// Who did it.
    pub provider: Party,
    /// Who may decide, if somebody is accepted here.
    pub arbiter: Option<Party>,
    /// Who filed it: buyer or provider.
    pub filed_by: &'static str,
    /// Why; only for those who may know, if the work is private.
    pub reason: Option<&'static str>,
    /// Whether the work is private.
    pub private: bool,
    /// open, answered, decided or expired.
    pub state: &'static str,
    /// When it began.
    pub opened_ms: i64,
    /// Until when somebody may decide.
    pub deadline_ms: i64,
    /// When it changed last.
    pub changed_ms: i64,
    /// By what it was decided: rule, arbiter, concession, deadline or record.
    pub by: Option<&'static str>,
    /// release or withhold.
    pub outcome: Option<&'static str>,
    /// What is held for it, beside what its order holds.
    pub held_msat: i64,
    /// Whether the money has not followed yet.
    pub pending: bool,
    /// What it waits for then: wallet, envelope, receipt or repair.
    pub waits_for: Option<&'static str>,
    /// The same in words.
    #[serde(skip)]
    pub waits_words: Option<&'static str>,
    /// Whether it is not tried any more, until somebody says the decision again.
    pub given_up: bool,
    /// How much moved because of it.
    pub moved_msat: i64,
    /// The receipt of that.
    pub receipt_id: Option<String>,
}

/// A dispute, and what both sides say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DisputeDetail {
    /// The dispute.
    #[serde(flatten)]
    pub dispute: DisputeView,
    /// What was said, the first first.
    pub said: Vec<SaidView>,
}

/// Something that was said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SaidView {
    /// The event, as it was signed.
    pub event_id: EventId,
    /// Who.
    pub author: Party,
    /// filed, answered or decided.
    pub step: String,
    /// When it came.
    pub at_ms: i64,
    /// In words.
    pub statement: Option<String>,
    /// What it can be checked by, as it was named.
    pub evidence: Vec<Value>,
}

fn view(dispute: &Dispute, people: &People, reader: Reader) -> DisputeView {
    let hidden = dispute.private && reader == Reader::Stranger;
    DisputeView {
        dispute_id: dispute.dispute_id.clone(),
        side: dispute.side.as_str(),
        request_id: dispute.request_id,
        buyer: people.party(&dispute.buyer),
        provider: people.party(&dispute.provider),
        arbiter: dispute.arbiter.map(|key| people.party(&key)),
        filed_by: dispute.filed_by.as_str(),
        reason: (!hidden).then(|| dispute.reason.as_str()),
        private: dispute.private,
        state: dispute.state.as_str(),
        opened_ms: dispute.opened_ms,
        deadline_ms: dispute.deadline_ms,
        changed_ms: dispute.changed_ms,
        by: dispute.by.map(By::as_str),
        outcome: dispute.outcome.map(Outcome::as_str),
        held_msat: dispute.held.0,
        pending: dispute.pending,
        waits_for: dispute.waits_for.map(Wait::as_str),
        waits_words: dispute.waits_for.map(Wait::words),
        given_up: dispute.given_up,
        moved_msat: dispute.moved.0,
        receipt_id: dispute.receipt_id.as_ref().map(ToString::to_string),
    }
}

fn said(statement: &Statement, people: &People) -> SaidView {
    let content: Value = serde_json::from_str(&statement.content).unwrap_or_default();
    let text = content.get("statement").and_then(Value::as_str);
    SaidView {
        event_id: statement.event_id,
        author: people.party(&statement.author),
        step: statement.step.clone(),
        at_ms: statement.at_ms,
        statement: text.map(|text| clipped(text, TEXT_MAX_CHARS)),
        evidence: content.get("evidence").and_then(Value::as_array).cloned().unwrap_or_default(),
    }
}

fn keys(dispute: &Dispute) -> impl Iterator<Item = PublicKey> {
    [dispute.buyer, dispute.provider].into_iter().chain(dispute.arbiter)
}

/// A page of disputes, those that changed last first.
pub(super) fn page(rx: &mut Rx<'_>, page: &Page, reader: Reader) -> Result<Listed<DisputeView>> {
    let after = match &page.after {
        None => None,
        Some(cursor) => {
            let id: DisputeId = cursor.id.parse().map_err(|_| Error::Cursor)?;
            Some((cursor.at, id))
        }
    };
    let before = after.as_ref().map(|(at_ms, id)| (*at_ms, id));
    let lines = page.lines();
    let wanted = i64::try_from(lines.saturating_add(1)).unwrap_or(i64::MAX);
    let rows = dispute::page_before(rx, before, wanted)?;
    let cursor = |row: &Dispute| Cursor { at: row.changed_ms, id: row.dispute_id.to_string() };
    let (rows, next) = cut(rows, lines, cursor);
    let people = People::of(rx, rows.iter().flat_map(keys))?;
    Ok(Listed { items: rows.iter().map(|row| view(row, &people, reader)).collect(), next })
}

/// A dispute as each side of it sees it that is here.
pub(super) fn get(rx: &mut Rx<'_>, id: &DisputeId, reader: Reader) -> Result<Vec<DisputeDetail>> {
    let mut all = Vec::new();
    for row in dispute::all_of(rx, id)? {
        let heard = match row.private && reader == Reader::Stranger {
            true => Vec::new(),
            false => dispute::said_in(rx, id, row.side)?,
        };
        let people = People::of(rx, keys(&row).chain(heard.iter().map(|one| one.author)))?;
        let said = heard.iter().map(|one| said(one, &people)).collect();
        all.push(DisputeDetail { dispute: view(&row, &people, reader), said });
    }
    Ok(all)
}

/// The dispute about a request, if there is one: its id and where it stands.
pub(super) fn of_request(rx: &mut Rx<'_>, id: &EventId) -> Result<Option<(String, &'static str)>> {
    let all = dispute::all_of(rx, &DisputeId::of_request(id))?;
    Ok(all.first().map(|one| (one.dispute_id.to_string(), one.state.as_str())))
}
