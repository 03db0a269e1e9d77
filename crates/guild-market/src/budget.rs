//! How much may be spent on which kind of work: envelopes, by day and by month.
//!
//! | when | in the same transaction |
//! |---|---|
//! | an order is [posted](crate::order::post) | its budget is held in the envelope of its work, today and this month |
//! | it is [settled](crate::settle::settle) | what was paid is spent, the rest is free again |
//! | it expires, fails or is cancelled | all of it is free again |
//! | a dispute holds what was withheld | that is held anew, in the day and month of this moment |
//! | it is decided | what was paid is spent, or all of it is free again |
//!
//! An order counts for the day and the month in which it was posted, whenever it ends. What is held and spent in a
//! period is never more than its limit, with what was carried into it and what others lent, less what it lent: so all
//! envelopes together never spend more than all limits together allow. Where an order does not fit, others
//! [lend](lenders) what is missing, until the period ends; if they cannot, the order is refused. At the first use of a
//! month a part of what the last one had left is [carried](carried) into it.
//!
//! Work that has no envelope, where none is for all others either, is not limited.

use guild_protocol::amount::Msat;
use guild_protocol::env::UnixMs;
use guild_protocol::nostr::dispute::DisputeId;
use guild_store::{Migration, Rx, Sql, Tx};
use serde::Serialize;

use crate::error::code;
use crate::order::OrderId;
use crate::routing::TaskType;
use crate::{Error, Result};

pub mod audit;
mod calendar;
mod lend;
mod rows;

pub use calendar::{Layer, Today};
pub use lend::{Donor, carried, could_lend, lenders};
pub use rows::{
    Change, Charge, Envelope, Period, Terms, What, all, charge_of, charge_of_dispute, log, paying,
};

/// The envelope of all work that has none of its own.
pub const EVERY: &str = "*";
/// How many envelopes a node has at most.
pub const ENVELOPES_MAX: usize = 200;
/// The largest limit, in millisatoshi: ten thousand bitcoin. Sums of all that there are stay far from 64 bits.
pub const LIMIT_MAX: i64 = 1_000_000_000_000_000;
/// Priorities are between this and its negative.
pub const PRIORITY_MAX: i64 = 1_000;
/// The part of what it has left that an envelope lends, unless it is set otherwise, in ten-thousandths.
pub const LENDS_BP: i64 = 3_000;
/// The part of what a month has left that is carried into the next, unless it is set otherwise, in ten-thousandths.
pub const ROLLS_BP: i64 = 5_000;

pub(crate) fn migration() -> Migration {
    let sql = Sql {
        lite: include_str!("../migrations/sqlite/0009_budget.sql"),
        pg: include_str!("../migrations/postgres/0009_budget.sql"),
    };
    Migration { area: "market", number: 9, name: "budget", sql }
}

/// The charges of disputes.
pub(crate) fn migration_of_disputes() -> Migration {
    let sql = Sql {
        lite: include_str!("../migrations/sqlite/0018_disputes_in_envelopes.sql"),
        pg: include_str!("../migrations/postgres/0018_disputes_in_envelopes.sql"),
    };
    Migration { area: "market", number: 18, name: "disputes in envelopes", sql }
}

/// What is to change in an envelope. What is not named stays, or is as in a new one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked {
    /// The most of a day. Of a new one: as much as the month, if only that is named.
    pub daily: Option<Msat>,
    /// The most of a month. Of a new one: 31 times the day, if only that is named.
    pub monthly: Option<Msat>,
    /// How important its work is.
    pub priority: Option<i64>,
    /// What it lends, in ten-thousandths of what it has left.
    pub lends_bp: Option<i64>,
    /// What is carried into the next month, in ten-thousandths of what is left.
    pub rolls_bp: Option<i64>,
}

impl Asked {
    /// What an envelope allows after this.
    pub fn terms(&self, before: Option<&Terms>) -> Result<Terms> {
        let daily = self.daily.or(before.map(|terms| terms.daily));
        let monthly = self.monthly.or(before.map(|terms| terms.monthly));
        let (daily, monthly) = match (daily, monthly) {
            (Some(daily), Some(monthly)) => (daily, monthly),
            (None, Some(monthly)) => (monthly, monthly),
            (Some(daily), None) => (daily, Msat(daily.0.saturating_mul(31).min(LIMIT_MAX))),
            (None, None) => return Err(malformed("name what a day or a month may cost")),
        };
        let kept = |get: fn(&Terms) -> i64, new: i64| before.map_or(new, get);
        let terms = Terms {
            daily,
            monthly,
            priority: self.priority.unwrap_or_else(|| kept(|terms| terms.priority, 0)),
            lends_bp: self.lends_bp.unwrap_or_else(|| kept(|terms| terms.lends_bp, LENDS_BP)),
            rolls_bp: self.rolls_bp.unwrap_or_else(|| kept(|terms| terms.rolls_bp, ROLLS_BP)),
        };
        let limits = 0..=LIMIT_MAX;
        if !limits.contains(&terms.daily.0) || !limits.contains(&terms.monthly.0) {
            return Err(malformed(&format!("a limit is 0 to {LIMIT_MAX} msat")));
        }
        if terms.priority.saturating_abs() > PRIORITY_MAX {
            return Err(malformed(&format!("a priority is -{PRIORITY_MAX} to {PRIORITY_MAX}")));
        }
        let parts = 0..=10_000;
        if !parts.contains(&terms.lends_bp) || !parts.contains(&terms.rolls_bp) {
            return Err(malformed("what is lent or carried over is 0 to 100 percent"));
        }
        Ok(terms)
    }
}

fn malformed(why: &str) -> Error {
    Error::refused(&code::BUDGET_MALFORMED, why)
}

/// Sets an envelope; it, and whether something changed. It binds from now on: what is held and spent already stays, and
/// if that is more than the new limit, nothing more is until the period ends.
pub fn set(
    tx: &mut Tx<'_>,
    task: &TaskType,
    asked: &Asked,
    now_ms: UnixMs,
) -> Result<(Envelope, bool)> {
    let before = rows::any(tx, task)?;
    let known = before.as_ref().filter(|envelope| envelope.is_set);
    let terms = asked.terms(known.map(|envelope| &envelope.terms))?;
    if let Some(envelope) = known.filter(|envelope| envelope.terms == terms) {
        return Ok((envelope.clone(), false));
    }
    if known.is_none() && all(tx)?.len() >= ENVELOPES_MAX {
        return Err(malformed(&format!("there are {ENVELOPES_MAX} envelopes, which is the most")));
    }
    let today = Today::at(now_ms)?;
    if let Some(envelope) = known {
        // What is carried into this month is so by what was in force until now.
        open(tx, envelope, Layer::Month, &today, now_ms)?;
    }
    let version = before.as_ref().map_or(1, |envelope| envelope.version.saturating_add(1));
    let envelope =
        Envelope { task: task.clone(), terms, version, changed_ms: now_ms, is_set: true };
    rows::write(tx, &envelope)?;
    for layer in Layer::ALL {
        let period = today.period(layer);
        let at = rows::period(tx, task, layer, period)?.unwrap_or_else(|| fresh(period));
        rows::save(tx, task, layer, &bound(at, limit_of(&terms, layer)))?;
    }
    let log_id = format!("set:{task}:{version}");
    note(tx, log_id, task, What::Set(terms), now_ms)?;
    Ok((envelope, true))
}

/// Takes an envelope away; whether there was one. What was charged to it stays with it.
pub fn remove(tx: &mut Tx<'_>, task: &TaskType, now_ms: UnixMs) -> Result<bool> {
    let Some(envelope) = rows::any(tx, task)?.filter(|envelope| envelope.is_set) else {
        return Ok(false);
    };
    let version = envelope.version.saturating_add(1);
    rows::write(tx, &Envelope { version, is_set: false, changed_ms: now_ms, ..envelope })?;
    note(tx, format!("set:{task}:{version}"), task, What::Removed, now_ms)?;
    Ok(true)
}

fn note(tx: &mut Tx<'_>, log_id: String, task: &TaskType, what: What, at_ms: UnixMs) -> Result<()> {
    rows::note(tx, &Change { log_id, at_ms, task: task.clone(), what })
}

fn limit_of(terms: &Terms, layer: Layer) -> i64 {
    match layer {
        Layer::Day => terms.daily.0,
        Layer::Month => terms.monthly.0,
    }
}

fn fresh(period: &str) -> Period {
    Period { period: period.to_owned(), ..Period::default() }
}

/// A period under another limit. What was promised is kept: the limit is never below it.
fn bound(at: Period, limit: i64) -> Period {
    let rolled = at.rolled.min(limit);
    let used = at.held.saturating_add(at.spent).saturating_add(at.lent);
    let promised = used.saturating_sub(at.borrowed).saturating_sub(rolled);
    Period { limit: limit.max(promised), rolled, ..at }
}

/// What an envelope's period would be, if nothing has happened in it so far.
fn begun(rx: &mut Rx<'_>, envelope: &Envelope, layer: Layer, period: &str) -> Result<Period> {
    let mut at = Period { limit: limit_of(&envelope.terms, layer), ..fresh(period) };
    if layer == Layer::Month
        && let Some(last) = rows::month_before(rx, &envelope.task, period)?
        && let Some(months) = calendar::months_between(&last.period, period)
    {
        at.rolled = carried(last.room(), months, &envelope.terms);
    }
    Ok(at)
}

/// The period of an envelope, begun if this is the first that happens in it.
fn open(
    tx: &mut Tx<'_>,
    envelope: &Envelope,
    layer: Layer,
    today: &Today,
    now_ms: UnixMs,
) -> Result<Period> {
    let (task, period) = (&envelope.task, today.period(layer));
    if let Some(at) = rows::period(tx, task, layer, period)? {
        return Ok(at);
    }
    let at = begun(tx, envelope, layer, period)?;
    rows::save(tx, task, layer, &at)?;
    if at.rolled > 0 {
        let what = What::Rolled { period: period.to_owned(), msat: at.rolled };
        note(tx, format!("rolled:{task}:{period}"), task, what, now_ms)?;
    }
    Ok(at)
}

/// What an envelope is to be charged, and who lends for it: all of it is known before anything of it is written.
pub(crate) struct Planned {
    envelope: Envelope,
    today: Today,
    units: i64,
    layers: Vec<(Layer, Period, Vec<Loan>)>,
}

/// What one envelope lends to another, and its period as it was before.
struct Loan {
    task: TaskType,
    at: Period,
    msat: i64,
}

/// Whether the envelope of some work has so much left, or others lend it. None where nothing is limited.
pub(crate) fn plan(
    tx: &mut Tx<'_>,
    schema_id: &str,
    units: Msat,
    now_ms: UnixMs,
) -> Result<Option<Planned>> {
    if units.0 <= 0 {
        return Ok(None);
    }
    let Some(envelope) = paying(tx, schema_id)? else { return Ok(None) };
    let today = Today::at(now_ms)?;
    let mut layers = Vec::new();
    for layer in Layer::ALL {
        let at = open(tx, &envelope, layer, &today, now_ms)?;
        let short = units.0.saturating_sub(at.room());
        let loans = match short > 0 {
            true => loans(tx, &envelope, (layer, &today), (&at, short), now_ms)?,
            false => Vec::new(),
        };
        layers.push((layer, at, loans));
    }
    Ok(Some(Planned { envelope, today, units: units.0, layers }))
}

/// Charges what was planned in this transaction: to an order, or to a dispute about it.
pub(crate) fn apply(
    tx: &mut Tx<'_>,
    planned: Planned,
    (order_id, dispute_id): (&OrderId, Option<&DisputeId>),
    now_ms: UnixMs,
) -> Result<()> {
    let Planned { envelope, today, units, layers } = planned;
    let name = dispute_id.map_or(order_id.as_str(), DisputeId::as_str);
    for (layer, mut at, loans) in layers {
        for Loan { task, at: mut from, msat } in loans {
            at.borrowed = at.borrowed.saturating_add(msat);
            from.lent = from.lent.saturating_add(msat);
            rows::save(tx, &task, layer, &from)?;
            let log_id = format!("lent:{name}:{}:{task}", layer.as_str());
            let what = What::Lent {
                borrower: envelope.task.clone(),
                layer,
                period: from.period.clone(),
                order_id: order_id.clone(),
                msat,
            };
            note(tx, log_id, &task, what, now_ms)?;
        }
        at.held = at.held.saturating_add(units);
        rows::save(tx, &envelope.task, layer, &at)?;
    }
    let charge = Charge {
        order_id: order_id.clone(),
        task: envelope.task,
        day: today.day,
        month: today.month,
        held: units,
        spent: 0,
        charged_ms: now_ms,
        closed_ms: None,
    };
    rows::insert(tx, &charge, dispute_id)
}

/// Holds the budget of an order in the envelope of its work, today and this month. Once: what was charged is not
/// charged again. Refused if neither it nor others have so much left.
pub fn charge(
    tx: &mut Tx<'_>,
    order_id: &OrderId,
    schema_id: &str,
    budget: Msat,
    now_ms: UnixMs,
) -> Result<()> {
    if charge_of(tx, order_id)?.is_some() {
        return Ok(());
    }
    match plan(tx, schema_id, budget, now_ms)? {
        Some(planned) => apply(tx, planned, (order_id, None), now_ms),
        None => Ok(()),
    }
}

/// Who lends what is missing; refused if they cannot.
fn loans(
    tx: &mut Tx<'_>,
    envelope: &Envelope,
    (layer, today): (Layer, &Today),
    (at, short): (&Period, i64),
    now_ms: UnixMs,
) -> Result<Vec<Loan>> {
    let (mut donors, mut periods) = (Vec::new(), Vec::new());
    for other in all(tx)?.into_iter().filter(|other| other.task != envelope.task) {
        let at = open(tx, &other, layer, today, now_ms)?;
        donors.push(Donor::of(&other.task, &other.terms, &at));
        periods.push((other.task, at));
    }
    let priority = envelope.terms.priority;
    let Some(lent) = lenders(short, priority, &donors) else {
        let lendable = could_lend(priority, &donors);
        return Err(empty(&envelope.task, (layer, at), (short, lendable), now_ms));
    };
    let loan = |(task, msat): (TaskType, i64)| {
        let (_, at) = periods.iter().find(|(other, _)| *other == task)?;
        Some(Loan { task, at: at.clone(), msat })
    };
    Ok(lent.into_iter().filter_map(loan).collect())
}

/// The refusal names the envelope, what is left, and when there is more.
fn empty(
    task: &TaskType,
    (layer, at): (Layer, &Period),
    (short, lendable): (i64, i64),
    now_ms: UnixMs,
) -> Error {
    let renews = calendar::renews(layer, now_ms).unwrap_or_else(|_| "its end".to_owned());
    let (left, most, layer) = (at.room(), at.most(), layer.as_str());
    let message = format!(
        "the envelope {task} has {left} of {most} msat left for the {layer} {}, {short} fewer than the order needs, \
         and others can lend {lendable}; the {layer} ends at {renews}",
        at.period
    );
    Error::refused(&code::BUDGET_ENVELOPE, message)
}

/// An order has ended, and this was paid for it: the rest of what was held is free again. Once.
pub fn close(tx: &mut Tx<'_>, order_id: &OrderId, paid: Msat, now_ms: UnixMs) -> Result<()> {
    let charge = charge_of(tx, order_id)?;
    finish(tx, (charge, None), paid, now_ms)
}

/// A dispute has ended, and this was paid because of it: as with an order.
pub(crate) fn close_dispute(
    tx: &mut Tx<'_>,
    dispute_id: &DisputeId,
    paid: Msat,
    now_ms: UnixMs,
) -> Result<()> {
    let charge = charge_of_dispute(tx, dispute_id)?;
    finish(tx, (charge, Some(dispute_id)), paid, now_ms)
}

fn finish(
    tx: &mut Tx<'_>,
    (charge, dispute_id): (Option<Charge>, Option<&DisputeId>),
    paid: Msat,
    now_ms: UnixMs,
) -> Result<()> {
    let Some(charge) = charge.filter(|charge| charge.closed_ms.is_none()) else {
        return Ok(());
    };
    // Nothing is paid beyond what was charged: the budget of an order, or what a dispute is about.
    let spent = paid.0.clamp(0, charge.held);
    rows::end(tx, (&charge, dispute_id), spent, now_ms)?;
    let terms = rows::any(tx, &charge.task)?.filter(|one| one.is_set).map(|one| one.terms);
    for layer in Layer::ALL {
        let period = charge.period(layer);
        let Some(mut at) = rows::period(tx, &charge.task, layer, period)? else { continue };
        at.held = at.held.saturating_sub(charge.held);
        at.spent = at.spent.saturating_add(spent);
        // Where the limit was lowered below what was promised, a promise that ends is not given anew.
        let limit = at.limit;
        let at = match &terms {
            Some(terms) => bound(at, limit.min(limit_of(terms, layer))),
            None => at,
        };
        rows::save(tx, &charge.task, layer, &at)?;
    }
    Ok(())
}

/// An envelope and where it stands now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// The envelope.
    #[serde(flatten)]
    pub envelope: Envelope,
    /// Today.
    pub today: Period,
    /// This month.
    pub month: Period,
}

/// Where every envelope that is in force stands at this moment.
pub fn standings(rx: &mut Rx<'_>, now_ms: UnixMs) -> Result<Vec<Standing>> {
    let today = Today::at(now_ms)?;
    let mut standings = Vec::new();
    for envelope in all(rx)? {
        let mut at = |layer: Layer| {
            let period = today.period(layer);
            match rows::period(rx, &envelope.task, layer, period)? {
                Some(at) => Ok(at),
                None => begun(rx, &envelope, layer, period),
            }
        };
        let (day, month) = (at(Layer::Day)?, at(Layer::Month)?);
        standings.push(Standing { envelope, today: day, month });
    }
    Ok(standings)
}
