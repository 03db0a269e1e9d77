//! Work whose answer is known: a pool that grows with what was bought, and within bounds.
//!
//! An order enters it when it is paid, if nothing of it is private, and its result was checked by doing the work again,
//! or several agreed on it. What a judge model chose does not, and neither do tests of the pool itself.

use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::json;
use guild_protocol::schema::{Job, Registry, VerificationMode};
use guild_protocol::verification::Problem;
use guild_store::{Rx, Tx, args};
use serde_json::{Value, json};

use super::probe;
use crate::Result;
use crate::delegation::vote::{Says, group};
use crate::delegation::{self, DecidedBy, Standing};
use crate::error::code;
use crate::order::{self, Order, OrderId, State};
use crate::routing::TaskType;
use crate::row::unreadable;
use crate::verify::{self, Subject, Verdict, mode_of, verify_form};

/// So many pieces of work of one kind are kept.
const KIND_MAX: i64 = 200;
/// Larger ones are not: input and answer together.
const BYTES_MAX: usize = 64 * 1_024;
/// Among so many that were used least one is drawn.
const DRAWN_FROM: i64 = 32;
/// The name of the check of an answer that is known.
const CHECK: &str = "known_answer";

/// Takes what was paid into the pool, if its answer is known now; whether it was taken.
pub fn learn(tx: &mut Tx<'_>, registry: &Registry, order: &Order, now_ms: UnixMs) -> Result<bool> {
    let output = order.output_text.as_deref().unwrap_or_default();
    let bytes = order.payload.len().saturating_add(output.len());
    let fits = order.state == State::Released && !order.private && bytes <= BYTES_MAX;
    if !fits || probe::of_order(tx, &order.order_id)?.is_some() {
        return Ok(false);
    }
    let Some(source) = source_of(tx, registry, order)? else { return Ok(false) };
    let schema_id = order.schema_id.as_str();
    let added = tx.exec(
        "INSERT INTO market_known (order_id, schema_id, job_hash, source, added_ms, uses)
         VALUES ($1, $2, $3, $4, $5, 0) ON CONFLICT DO NOTHING",
        args![order.order_id.as_str(), schema_id, &order.job_hash.to_string(), source, now_ms],
    )?;
    // The more often it was used, the more have seen it.
    tx.exec(
        "DELETE FROM market_known WHERE schema_id = $1 AND order_id IN
           (SELECT order_id FROM market_known WHERE schema_id = $1
            ORDER BY uses, added_ms DESC, order_id LIMIT 1000 OFFSET $2)",
        args![schema_id, KIND_MAX],
    )?;
    Ok(added > 0)
}

/// How it is known that a result is right; nothing if it is not.
fn source_of(rx: &mut Rx<'_>, registry: &Registry, order: &Order) -> Result<Option<&'static str>> {
    if let Some(replica) = delegation::replica_of(rx, &order.order_id)? {
        let all = delegation::get(rx, &replica.delegation_id)?;
        let agreed = replica.standing == Standing::Agrees
            && all.decided_by == Some(DecidedBy::Votes)
            && (all.objective || all.needed > 1);
        return Ok(agreed.then_some("agreed"));
    }
    let Ok(job) = order.job(registry) else { return Ok(None) };
    Ok((mode_of(&job) == VerificationMode::Objective).then_some("checked"))
}

/// How many pieces of work of a kind there are.
pub fn count(rx: &mut Rx<'_>, task: &TaskType) -> Result<i64> {
    let sql = "SELECT count(*) FROM market_known WHERE schema_id = $1";
    let found: Option<(i64,)> = rx.first(sql, args![task.as_str()])?;
    Ok(found.unwrap_or_default().0)
}

/// Work of this kind that a provider has never been given; `chance` is any number. None if there is none.
pub fn pick(
    rx: &mut Rx<'_>,
    task: &TaskType,
    provider: &PublicKey,
    chance: u64,
) -> Result<Option<Order>> {
    let ids: Vec<(String,)> = rx.all(
        "SELECT k.order_id FROM market_known k WHERE k.schema_id = $1 AND NOT EXISTS
           (SELECT 1 FROM market_order o WHERE o.job_hash = k.job_hash
              AND (o.provider = $2 OR o.delivered_by = $2))
         ORDER BY k.uses, k.added_ms, k.order_id LIMIT $3",
        args![task.as_str(), &provider.npub(), DRAWN_FROM],
    )?;
    let count = u64::try_from(ids.len()).unwrap_or(0);
    let at = chance.checked_rem(count).and_then(|at| usize::try_from(at).ok());
    let Some((id,)) = at.and_then(|at| ids.get(at)) else { return Ok(None) };
    order::get(rx, &id.parse::<OrderId>()?).map(Some)
}

/// The latest work of this kind that is known: what work of this kind looks like here.
pub fn latest(rx: &mut Rx<'_>, task: &TaskType) -> Result<Vec<Order>> {
    let ids: Vec<(String,)> = rx.all(
        "SELECT order_id FROM market_known WHERE schema_id = $1 ORDER BY added_ms DESC, order_id LIMIT $2",
        args![task.as_str(), DRAWN_FROM],
    )?;
    let read = |(id,): (String,)| order::get(rx, &id.parse::<OrderId>()?);
    ids.into_iter().map(read).collect()
}

/// Counts a use.
pub(super) fn used(tx: &mut Tx<'_>, order_id: &OrderId) -> Result<()> {
    let sql = "UPDATE market_known SET uses = uses + 1 WHERE order_id = $1";
    tx.exec(sql, args![order_id.as_str()])?;
    Ok(())
}

/// Takes an answer out of the pool that turned out not to be the only right one.
pub fn forget(tx: &mut Tx<'_>, order_id: &OrderId) -> Result<()> {
    tx.exec("DELETE FROM market_known WHERE order_id = $1", args![order_id.as_str()])?;
    Ok(())
}

/// What a result is worth beside the answer that is known: whether its form is right, and it says the same, as the
/// schema compares. None if the known answer itself says nothing any more.
pub fn verdict(
    registry: &Registry,
    (verifying, voting): (&verify::Options, &delegation::Options),
    order: &Order,
    known: &Order,
) -> Result<Option<Verdict>> {
    let job: Job = order.job(registry)?;
    let output_text = order.output_text.as_deref().unwrap_or_default();
    let known_text = known.output_text.as_deref().unwrap_or_default();
    let provider = order.deliverer()?;
    let subject = Subject { job: &job, provider: &provider, output_text };
    let form = verify_form(registry, verifying, &subject)?;
    let said = [Says { number: 1, output_text: known_text }, Says { number: 2, output_text }];
    let votes = group(registry, voting, &job, &said);
    let Some(answer) = votes.get(&1) else { return Ok(None) };
    let same = votes.get(&2) == Some(answer);
    let passed = form.passed && same;
    let problem = (!same).then(|| Problem::new(&code::KNOWN_DIFFERS, "another answer is known"));
    let mut document: Value = serde_json::from_str(&form.document).map_err(unreadable)?;
    let check = json!({
        "code": problem.as_ref().map(|problem| problem.code.name), "field": null, "name": CHECK, "ok": same,
    });
    if let Some(checks) = document.get_mut("checks").and_then(Value::as_array_mut) {
        checks.push(check);
    }
    if let Some(members) = document.as_object_mut() {
        members.insert("passed".to_owned(), json!(passed));
        members.insert(CHECK.to_owned(), json!({"hash": answer, "order_id": known.order_id}));
    }
    let mut checks = form.checks;
    checks.record(CHECK, "it is the answer that is known", problem);
    let document = String::from_utf8_lossy(&json::to_canonical(&document)?).into_owned();
    let verdict_hash = Hash::of(document.as_bytes());
    Ok(Some(Verdict { passed, mode: form.mode, checks, score: None, document, verdict_hash }))
}
