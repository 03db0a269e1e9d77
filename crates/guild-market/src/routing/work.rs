//! What becomes of orders, as changes of the matrix. Called in the transaction that ends or posts the order, so both
//! are there or neither is; and named by the order, so each is there once.
//!
//! | an order | in the log | trust |
//! |---|---|---|
//! | is posted to somebody with an entry | `assigned` | |
//! | is released | `outcome` `SUCCESS` | +0.10 to +0.15, by the score of the verdict |
//! | is withheld | `outcome` `FAILURE` | −0.10 to −0.15, by the same |
//! | runs out | `outcome` `ERROR` | −0.20 |
//! | is given up by its provider | `outcome` `ERROR` | −0.05: it said so at once |
//! | is cancelled | `returned` | |
//! | is withheld because no answer of a delegation was agreed on | `returned` | nobody knows who was right |
//! | has a result of somebody known that is not what all could do | `outcome` `FAILURE` | −0.15 |
//! | is a test, and is not the answer that is known | `noticed` `mismatch` as well | |
//! | is a test that somebody passes who gets half as much work | `noticed` `verified` as well | |
//! | has two different results of one provider | `moved` to `QUARANTINED`, for a day | |
//! | was disputed by its provider, which was not right | `outcome` `FAILURE` | −0.10 |
//! | was settled the wrong way, as a dispute has shown | `outcome`, the opposite | +0.15, −0.15 |
//!
//! Whoever has no entry when its first outcome comes is admitted by it, under conditions: with more trust if it did
//! what was ordered than if it did not.

use std::collections::BTreeSet;

use guild_network::index;
use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_store::{Rx, Tx};
use serde_json::Value;

use super::entry::D_MAX_BYTES;
use super::log::{self, Appended};
use super::{Cause, Change, Mutation, Options, Status, TaskType};
use crate::Result;
use crate::error::code;
use crate::evaluation::Pace;
use crate::health::{self, Signal, probe};
use crate::judge::Class;
use crate::order::{Order, State};

/// How long whoever signed two results of one order is not asked.
pub(crate) const TWO_RESULTS_MS: i64 = 24 * 3_600_000;

/// How trust moves by a success, at least and at most; a failure moves it as far the other way.
const LEAST_BP: i64 = 1_000;
const MOST_BP: i64 = 1_500;
/// By nothing that came in time,
const SILENT_BP: i64 = -2_000;
/// and by a provider that says itself that it does not do it.
const GIVEN_UP_BP: i64 = -500;

/// Writes down that an order was posted to somebody with an entry. Who has none has nothing that could change.
pub fn given(
    tx: &mut Tx<'_>,
    options: &Options,
    order: &Order,
    now_ms: UnixMs,
) -> Result<Vec<Appended>> {
    let Some((task, provider)) = about(order) else { return Ok(Vec::new()) };
    if log::latest(tx, &task, &provider)?.is_none() {
        return Ok(Vec::new());
    }
    let change = Change { key: given_key(order), task, provider, mutation: Mutation::Assigned };
    log::append(tx, options, &[change], now_ms)
}

/// Writes down how an order ended; nothing if it has not, or nobody was to do it. Again it is the same.
pub fn ended(
    tx: &mut Tx<'_>,
    options: &Options,
    order: &Order,
    now_ms: UnixMs,
) -> Result<Vec<Appended>> {
    let Some((task, provider)) = about(order) else { return Ok(Vec::new()) };
    let Some(mutation) = end_of(order) else { return Ok(Vec::new()) };
    let change = |key, mutation| Change { key, task: task.clone(), provider, mutation };
    let was_given = log::is_known(tx, &given_key(order))?;
    let mut changes = Vec::new();
    if let Mutation::Outcome { class, .. } = &mutation {
        if log::latest(tx, &task, &provider)?.is_none() {
            let met = met(tx, options, &task, &provider, *class)?;
            changes.push(change(format!("order:{}:admitted", order.order_id), met));
        }
        // It was a stranger when it was hired. Every outcome is of a job that was given.
        if !was_given {
            changes.push(change(given_key(order), Mutation::Assigned));
        }
    } else if !was_given {
        return Ok(Vec::new());
    }
    changes.push(change(ended_key(order), mutation));
    let mut rows = log::append(tx, options, &changes, now_ms)?;
    if rows.last().is_some_and(|row| row.is_new) {
        rows.extend(probed(tx, options, (order, &task, &provider), now_ms)?);
    }
    Ok(rows)
}

/// Writes down what a test showed beside its outcome: that the answer was not the one that is known, or that somebody
/// who gets half as much work is well.
fn probed(
    tx: &mut Tx<'_>,
    options: &Options,
    (order, task, provider): (&Order, &TaskType, &PublicKey),
    now_ms: UnixMs,
) -> Result<Vec<Appended>> {
    if probe::of_order(tx, &order.order_id)?.is_none() {
        return Ok(Vec::new());
    }
    let signal = match order.state {
        State::Released => Signal::Verified,
        State::Withheld => Signal::Mismatch,
        _ => return Ok(Vec::new()),
    };
    let entry = log::latest(tx, task, provider)?;
    let leads = |entry: &super::Entry| {
        entry.status.is_hireable() && health::path(entry.health.stage, signal).is_some()
    };
    if !entry.as_ref().is_some_and(leads) {
        return Ok(Vec::new());
    }
    let mutation = Mutation::Noticed { signal };
    let key = format!("order:{}:probed", order.order_id);
    let change = Change { key, task: task.clone(), provider: *provider, mutation };
    log::append(tx, options, &[change], now_ms)
}

/// Writes down that somebody who is known sent rubbish for an order that is open to all. Of a stranger nothing is
/// written: anybody could fill the matrix.
pub fn rejected(
    tx: &mut Tx<'_>,
    options: &Options,
    (order, author): (&Order, &PublicKey),
    now_ms: UnixMs,
) -> Result<Vec<Appended>> {
    let task = task_of(order);
    let Some(task) = task else { return Ok(Vec::new()) };
    if log::latest(tx, &task, author)?.is_none() {
        return Ok(Vec::new());
    }
    let key = |what: &str| format!("order:{}:{what}:{author}", order.order_id);
    let outcome = Mutation::Outcome {
        class: Class::Failure,
        step_bp: MOST_BP.saturating_neg(),
        cost_msat: None,
        latency_ms: None,
    };
    let changes = [(key("tried"), Mutation::Assigned), (key("rejected"), outcome)];
    let changes = changes.map(|(key, mutation)| Change {
        key,
        task: task.clone(),
        provider: *author,
        mutation,
    });
    log::append(tx, options, &changes, now_ms)
}

/// Writes down that the provider of an order has signed two different results of it.
pub fn signed_twice(
    tx: &mut Tx<'_>,
    options: &Options,
    order: &Order,
    now_ms: UnixMs,
) -> Result<Vec<Appended>> {
    let Some((task, provider)) = about(order) else { return Ok(Vec::new()) };
    let key = format!("order:{}:signed_twice", order.order_id);
    let entry = log::latest(tx, &task, &provider)?;
    // Whoever is not asked anyway must not be let in again earlier by this.
    if !entry.is_some_and(|entry| entry.status.is_hireable()) || log::is_known(tx, &key)? {
        return Ok(Vec::new());
    }
    let mutation = Mutation::Moved {
        status: Status::Quarantined,
        cause: Some(Cause::Forbidden),
        until_ms: Some(now_ms.saturating_add(TWO_RESULTS_MS)),
    };
    log::append(tx, options, &[Change { key, task, provider, mutation }], now_ms)
}

/// Writes down that the provider of an order has filed a dispute about it and lost. Whoever disputes everything is
/// hired less and less.
pub fn lost_dispute(
    tx: &mut Tx<'_>,
    options: &Options,
    order: &Order,
    now_ms: UnixMs,
) -> Result<Vec<Appended>> {
    let step_bp = LEAST_BP.saturating_neg();
    after_dispute(tx, options, order, ("dispute_lost", Class::Failure, step_bp), now_ms)
}

/// Writes down that a dispute has shown the opposite of how an order was settled. What was learnt then stays
/// learnt; this weighs as much the other way.
pub fn overturned(
    tx: &mut Tx<'_>,
    options: &Options,
    (order, is_good): (&Order, bool),
    now_ms: UnixMs,
) -> Result<Vec<Appended>> {
    let outcome = match is_good {
        true => ("overturned", Class::Success, MOST_BP),
        false => ("overturned", Class::Failure, MOST_BP.saturating_neg()),
    };
    after_dispute(tx, options, order, outcome, now_ms)
}

fn after_dispute(
    tx: &mut Tx<'_>,
    options: &Options,
    order: &Order,
    (what, class, step_bp): (&str, Class, i64),
    now_ms: UnixMs,
) -> Result<Vec<Appended>> {
    let Some((task, provider)) = about(order) else { return Ok(Vec::new()) };
    if log::latest(tx, &task, &provider)?.is_none() {
        return Ok(Vec::new());
    }
    let key = |what: &str| format!("order:{}:{what}", order.order_id);
    let outcome = Mutation::Outcome { class, step_bp, cost_msat: None, latency_ms: None };
    let given = format!("{what}_given");
    let changes = [(key(&given), Mutation::Assigned), (key(what), outcome)];
    let changes =
        changes.map(|(key, mutation)| Change { key, task: task.clone(), provider, mutation });
    log::append(tx, options, &changes, now_ms)
}

/// Whether an outcome says that nothing came in time.
pub(super) fn is_silence(class: Class, step_bp: i64, latency_ms: Option<i64>) -> bool {
    class == Class::Error && step_bp <= SILENT_BP && latency_ms.is_none()
}

/// Which entry an order is about, if it is about one.
fn about(order: &Order) -> Option<(TaskType, PublicKey)> {
    Some((task_of(order)?, order.provider?))
}

fn task_of(order: &Order) -> Option<TaskType> {
    order.schema_id.as_str().parse().ok()
}

fn given_key(order: &Order) -> String {
    format!("order:{}:given", order.order_id)
}

/// The key of the row that says how an order ended.
pub fn ended_key(order: &Order) -> String {
    format!("order:{}:ended", order.order_id)
}

/// What the end of an order means for its provider. It follows from the closed order alone, so it is the same however
/// often it is asked for.
fn end_of(order: &Order) -> Option<Mutation> {
    let (class, step_bp) = match order.state {
        State::Posted | State::Delivered => return None,
        State::Cancelled => return Some(Mutation::Returned),
        State::Withheld if is_unjudged(order) => return Some(Mutation::Returned),
        State::Released => (Class::Success, between(order)),
        // The nearer to what was ordered, the less it counts.
        State::Withheld => {
            (Class::Failure, between(order).saturating_sub(LEAST_BP).saturating_sub(MOST_BP))
        }
        State::Expired => (Class::Error, SILENT_BP),
        State::Failed => (Class::Error, GIVEN_UP_BP),
    };
    let paid = order.paid.filter(|_| order.state == State::Released).map(|paid| paid.0);
    let latency_ms = order.delivered_ms.map(|at_ms| at_ms.saturating_sub(order.posted_ms));
    Some(Mutation::Outcome { class, step_bp, cost_msat: paid, latency_ms })
}

/// Whether nobody could tell if it was right.
fn is_unjudged(order: &Order) -> bool {
    let verdict = order.verdict.as_deref().map(serde_json::from_str::<Value>);
    let Some(Ok(verdict)) = verdict else { return false };
    let checks = verdict.get("checks").and_then(Value::as_array);
    let last = checks.and_then(|checks| checks.last()?.get("code")?.as_str());
    last == Some(code::DELEGATION_NO_CONSENSUS.name)
}

/// Where between the least and the most a verdict is: by its score, in the middle if it has none but was accepted.
fn between(order: &Order) -> i64 {
    let verdict =
        order.verdict.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let score = verdict.and_then(|verdict| verdict.get("score")?.as_f64());
    let unknown = if order.state == State::Released { 0.5 } else { 0.0 };
    let part_bp = (score.unwrap_or(unknown).clamp(0.0, 1.0) * 10_000.0).floor() as i64;
    let range = MOST_BP.saturating_sub(LEAST_BP);
    LEAST_BP.saturating_add(range.saturating_mul(part_bp).div_euclid(10_000))
}

/// How somebody is admitted whom nobody evaluated, by what its first outcome is.
fn met(
    rx: &mut Rx<'_>,
    options: &Options,
    task: &TaskType,
    provider: &PublicKey,
    class: Class,
) -> Result<Mutation> {
    let trust_bp = if class == Class::Success { options.met_well_bp } else { options.met_badly_bp };
    let offers = index::provider(rx, provider)?;
    let serving = offers.iter().find(|one| one.card.schema_ids().contains(&task.as_str()));
    let d = serving.or(offers.first()).map(|one| one.card.d.clone()).unwrap_or_default();
    Ok(Mutation::Admitted {
        // What cannot be named is not found among the announcements either: it is stale at the next look.
        d: Some(d).filter(|d| d.len() <= D_MAX_BYTES).unwrap_or_default(),
        status: Status::Conditional,
        trust_bp,
        pace: Pace::Standard,
        notes: BTreeSet::new(),
    })
}
