//! Work that several do: who they are, what each says, and who is paid.

use guild_market::delegation::{self, Delegation, DelegationId, Replica};
use guild_market::order::Order;
use guild_protocol::identity::PublicKey;
use guild_store::Rx;
use serde::Serialize;

use super::Reader;
use super::page::{Cursor, Listed, Page, cut};
use super::people::People;
use super::view::Party;
use super::words::{SAID_MAX_CHARS, clipped};
use crate::{Error, Result};

/// A delegation, as a line of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Delegated {
    /// Names it.
    pub delegation_id: String,
    /// The schema of the job; none if it is private and the reader has no part in it.
    pub schema_id: Option<String>,
    /// How much it matters.
    pub criticality: &'static str,
    /// By what it is decided.
    pub consensus: &'static str,
    /// How many were to do it.
    pub replicas: u32,
    /// How many must say the same.
    pub needed: u32,
    /// `open`, `decided`, `undecided` or `cancelled`.
    pub state: &'static str,
    /// How it ended, in words.
    pub why: Option<String>,
    /// By whom it was decided: `votes` or `judge`.
    pub decided_by: Option<&'static str>,
    /// The hash of the answer.
    pub winner: Option<String>,
    /// The most that is paid, to all of them together.
    pub budget_msat: i64,
    /// Whether input and results travel encrypted.
    pub private: bool,
    /// When it was posted.
    pub posted_ms: i64,
    /// Until when results must be here.
    pub deadline_ms: i64,
}

/// One of those who do it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplicaView {
    /// Which one, from 1.
    pub number: i64,
    /// Who.
    pub provider: Party,
    /// Of which operator it was taken to be.
    pub cluster: String,
    /// Why it was asked: `first`, `hedge` or `replacement`.
    pub reason: &'static str,
    /// The event of its request.
    pub request_id: String,
    /// Where its order stands.
    pub order_state: &'static str,
    /// Where it stands itself.
    pub standing: &'static str,
    /// Whether its result passed its own check.
    pub passed: Option<bool>,
    /// The hash of what its result says.
    pub says: Option<String>,
    /// The hash of the answer that it is counted for.
    pub vote: Option<String>,
    /// How long its result took.
    pub took_ms: Option<i64>,
    /// What was set aside for it.
    pub budget_msat: i64,
    /// What it was paid.
    pub paid_msat: Option<i64>,
    /// Its receipt.
    pub receipt_id: Option<String>,
    /// The hash of the document of its verdict.
    pub verdict_hash: Option<String>,
    /// Why it ended without a result. Of private work only its owner gets this.
    pub words: Option<String>,
}

/// A delegation with all who do it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DelegatedDetail {
    /// The delegation.
    pub delegation: Delegated,
    /// Those who do it, side by side.
    pub replicas: Vec<ReplicaView>,
    /// What was paid in all.
    pub paid_msat: i64,
    /// What is still set aside.
    pub held_msat: i64,
}

/// A page of delegations, the newest first.
pub(super) fn page(rx: &mut Rx<'_>, page: &Page, reader: Reader) -> Result<Listed<Delegated>> {
    let after = match &page.after {
        Some(cursor) => {
            Some((cursor.at, cursor.id.parse::<DelegationId>().map_err(|_| Error::Cursor)?))
        }
        None => None,
    };
    let lines = page.lines();
    let limit = i64::try_from(lines.saturating_add(1)).unwrap_or(i64::MAX);
    let before = after.as_ref().map(|(at_ms, id)| (*at_ms, id));
    let rows = delegation::page_before(rx, before, limit)?;
    let cursor = |row: &Delegation| Cursor { at: row.posted_ms, id: row.delegation_id.to_string() };
    let (rows, next) = cut(rows, lines, cursor);
    Ok(Listed { items: rows.iter().map(|row| line(row, reader)).collect(), next })
}

fn line(row: &Delegation, reader: Reader) -> Delegated {
    let may_tell = reader.may_see(row.private);
    Delegated {
        delegation_id: row.delegation_id.to_string(),
        schema_id: may_tell.then(|| row.schema_id.to_string()),
        criticality: row.criticality.as_str(),
        consensus: row.consensus.as_str(),
        replicas: row.replicas,
        needed: row.needed,
        state: row.state.as_str(),
        why: row.why.as_deref().filter(|_| may_tell).map(|why| clipped(why, SAID_MAX_CHARS)),
        decided_by: row.decided_by.map(delegation::DecidedBy::as_str),
        winner: row.winner.map(|winner| winner.to_string()),
        budget_msat: row.budget.0,
        private: row.private,
        posted_ms: row.posted_ms,
        deadline_ms: row.deadline_ms,
    }
}

/// One delegation with all who do it.
pub(super) fn detail(
    rx: &mut Rx<'_>,
    id: &DelegationId,
    reader: Reader,
) -> Result<Option<DelegatedDetail>> {
    let Some(row) = delegation::find(rx, id)? else { return Ok(None) };
    let seated = delegation::with_orders(rx, id)?;
    let keys: Vec<PublicKey> = seated.iter().map(|(replica, _)| replica.provider).collect();
    let people = People::of(rx, keys)?;
    let may_tell = reader.may_see(row.private);
    let sum = |of: &dyn Fn(&Order) -> i64| {
        seated.iter().fold(0_i64, |sum, (_, order)| sum.saturating_add(of(order)))
    };
    Ok(Some(DelegatedDetail {
        delegation: line(&row, reader),
        replicas: seated.iter().map(|(one, order)| view(one, order, &people, may_tell)).collect(),
        paid_msat: sum(&|order| order.paid.map_or(0, |paid| paid.0)),
        held_msat: sum(&|order| if order.state.is_closed() { 0 } else { order.budget.0 }),
    }))
}

fn view(replica: &Replica, order: &Order, people: &People, may_tell: bool) -> ReplicaView {
    let words = order.words.as_deref().filter(|_| may_tell);
    let verdict = order.verdict.as_deref();
    ReplicaView {
        number: replica.number,
        provider: people.party(&replica.provider),
        cluster: replica.cluster.clone(),
        reason: replica.reason.as_str(),
        request_id: order.request_id.hex(),
        order_state: order.state.as_str(),
        standing: replica.standing.as_str(),
        passed: replica.passed,
        says: replica.says.map(|says| says.to_string()),
        vote: replica.vote.map(|vote| vote.to_string()),
        took_ms: order.delivered_ms.map(|at_ms| at_ms.saturating_sub(order.posted_ms)),
        budget_msat: order.budget.0,
        paid_msat: order.paid.map(|paid| paid.0),
        receipt_id: order.receipt_id.as_ref().map(ToString::to_string),
        verdict_hash: verdict
            .map(|text| guild_protocol::hash::Hash::of(text.as_bytes()).to_string()),
        words: words.map(|words| clipped(words, SAID_MAX_CHARS)),
    }
}
