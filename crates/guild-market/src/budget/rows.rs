//! Envelopes, their periods and what changed them, as they are stored.

use guild_protocol::amount::Msat;
use guild_protocol::env::UnixMs;
use guild_protocol::nostr::dispute::DisputeId;
use guild_store::{Columns, Decode, Rx, Tx, Val, args};
use serde::Serialize;

use super::Layer;
use crate::Result;
use crate::order::OrderId;
use crate::routing::TaskType;
use crate::row::{Cells, page, unreadable};

/// What an envelope allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Terms {
    /// The most of a day, in millisatoshi.
    #[serde(rename = "daily_msat")]
    pub daily: Msat,
    /// The most of a month, in millisatoshi, beside what is carried into it.
    #[serde(rename = "monthly_msat")]
    pub monthly: Msat,
    /// How important its work is: more is more important.
    pub priority: i64,
    /// The part of what it has left that it may lend, in ten-thousandths.
    pub lends_bp: i64,
    /// The part of what a month has left that is carried into the next, in ten-thousandths.
    pub rolls_bp: i64,
}

/// An envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Envelope {
    /// The kind of work that it is for; `*` is for all that have none of their own.
    pub task: TaskType,
    /// What it allows.
    #[serde(flatten)]
    pub terms: Terms,
    /// How often it was changed.
    pub version: i64,
    /// When it was changed last.
    pub changed_ms: UnixMs,
    /// Whether it is in force. One that was taken away is not.
    #[serde(skip)]
    pub is_set: bool,
}

impl Decode for Envelope {
    fn decode(row: &dyn Columns) -> guild_store::Result<Envelope> {
        let mut cells = Cells::of(row);
        Ok(Envelope {
            task: cells.parsed()?,
            is_set: cells.next::<i64>()? != 0,
            version: cells.next()?,
            terms: Terms {
                daily: cells.msat()?,
                monthly: cells.msat()?,
                priority: cells.next()?,
                lends_bp: cells.next()?,
                rolls_bp: cells.next()?,
            },
            changed_ms: cells.next()?,
        })
    }
}

macro_rules! envelopes {
    ($rest:literal) => {
        concat!(
            "SELECT task, is_set, version, daily_units, monthly_units, priority, lends_bp, rolls_bp, changed_ms
             FROM market_envelope ",
            $rest
        )
    };
}

/// The envelope of this name, in force or not.
pub(super) fn any(rx: &mut Rx<'_>, task: &TaskType) -> Result<Option<Envelope>> {
    Ok(rx.first(envelopes!("WHERE task = $1"), args![task.as_str()])?)
}

/// The envelopes that are in force, by name. There are never many.
pub fn all(rx: &mut Rx<'_>) -> Result<Vec<Envelope>> {
    Ok(rx.all(envelopes!("WHERE is_set = 1 ORDER BY task"), args![])?)
}

/// The envelope that pays for a kind of work: its own, or the one for all others, or none.
pub fn paying(rx: &mut Rx<'_>, schema_id: &str) -> Result<Option<Envelope>> {
    let sql = envelopes!("WHERE is_set = 1 AND task = $1");
    match rx.first(sql, args![schema_id])? {
        Some(own) => Ok(Some(own)),
        None => Ok(rx.first(sql, args![super::EVERY])?),
    }
}

pub(super) fn write(tx: &mut Tx<'_>, envelope: &Envelope) -> Result<()> {
    let Envelope { task, terms, version, changed_ms, is_set } = envelope;
    tx.exec(
        "INSERT INTO market_envelope
           (task, is_set, version, daily_units, monthly_units, priority, lends_bp, rolls_bp, changed_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT (task) DO UPDATE SET is_set = $2, version = $3, daily_units = $4, monthly_units = $5,
           priority = $6, lends_bp = $7, rolls_bp = $8, changed_ms = $9",
        args![
            task.as_str(),
            i64::from(*is_set),
            *version,
            terms.daily.0,
            terms.monthly.0,
            terms.priority,
            terms.lends_bp,
            terms.rolls_bp,
            *changed_ms
        ],
    )?;
    Ok(())
}

/// What became of an envelope in one day or month, in millisatoshi.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Period {
    /// `2026-01-15` or `2026-01`.
    pub period: String,
    /// The limit.
    pub limit: i64,
    /// What was carried into it.
    pub rolled: i64,
    /// What others lent to it.
    pub borrowed: i64,
    /// What it lent to others.
    pub lent: i64,
    /// What is held for orders that are open.
    pub held: i64,
    /// What was paid.
    pub spent: i64,
}

impl Period {
    /// What is left of it.
    pub fn room(&self) -> i64 {
        let most = self.most();
        most.saturating_sub(self.held).saturating_sub(self.spent)
    }

    /// The most that may be held and spent.
    pub fn most(&self) -> i64 {
        let given = self.limit.saturating_add(self.rolled).saturating_add(self.borrowed);
        given.saturating_sub(self.lent)
    }
}

impl Decode for Period {
    fn decode(row: &dyn Columns) -> guild_store::Result<Period> {
        let mut cells = Cells::of(row);
        Ok(Period {
            period: cells.next()?,
            limit: cells.next()?,
            rolled: cells.next()?,
            borrowed: cells.next()?,
            lent: cells.next()?,
            held: cells.next()?,
            spent: cells.next()?,
        })
    }
}

macro_rules! periods {
    ($rest:literal) => {
        concat!(
            "SELECT period, limit_units, rolled_units, borrowed_units, lent_units, held_units, spent_units
             FROM market_envelope_period ",
            $rest
        )
    };
}

/// A period of an envelope, if anything has happened in it.
pub(super) fn period(
    rx: &mut Rx<'_>,
    task: &TaskType,
    layer: Layer,
    period: &str,
) -> Result<Option<Period>> {
    let sql = periods!("WHERE task = $1 AND layer = $2 AND period = $3");
    Ok(rx.first(sql, args![task.as_str(), layer.as_str(), period])?)
}

/// The last month before this one in which anything has happened to an envelope.
pub(super) fn month_before(
    rx: &mut Rx<'_>,
    task: &TaskType,
    month: &str,
) -> Result<Option<Period>> {
    let sql = periods!(
        "WHERE task = $1 AND layer = 'month' AND period < $2 ORDER BY period DESC LIMIT 1"
    );
    Ok(rx.first(sql, args![task.as_str(), month])?)
}

pub(super) fn save(tx: &mut Tx<'_>, task: &TaskType, layer: Layer, at: &Period) -> Result<()> {
    tx.exec(
        "INSERT INTO market_envelope_period
           (task, layer, period, limit_units, rolled_units, borrowed_units, lent_units, held_units, spent_units)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT (task, layer, period) DO UPDATE SET limit_units = $4, rolled_units = $5,
           borrowed_units = $6, lent_units = $7, held_units = $8, spent_units = $9",
        args![
            task.as_str(),
            layer.as_str(),
            &at.period,
            at.limit,
            at.rolled,
            at.borrowed,
            at.lent,
            at.held,
            at.spent
        ],
    )?;
    Ok(())
}

/// An order that was charged to an envelope, or a dispute about one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    /// Which order.
    pub order_id: OrderId,
    /// To which envelope.
    pub task: TaskType,
    /// On which day it was charged: that on which the order was posted, or the dispute was filed or paid.
    pub day: String,
    /// In which month.
    pub month: String,
    /// What is held for it, in millisatoshi.
    pub held: i64,
    /// What was paid.
    pub spent: i64,
    /// When it was charged.
    pub charged_ms: UnixMs,
    /// When it ended.
    pub closed_ms: Option<UnixMs>,
}

impl Charge {
    /// Its period of a layer.
    pub(super) fn period(&self, layer: Layer) -> &str {
        match layer {
            Layer::Day => &self.day,
            Layer::Month => &self.month,
        }
    }
}

impl Decode for Charge {
    fn decode(row: &dyn Columns) -> guild_store::Result<Charge> {
        let mut cells = Cells::of(row);
        Ok(Charge {
            order_id: cells.parsed()?,
            task: cells.parsed()?,
            day: cells.next()?,
            month: cells.next()?,
            held: cells.next()?,
            spent: cells.next()?,
            charged_ms: cells.next()?,
            closed_ms: cells.next()?,
        })
    }
}

/// What an order was charged, if it was.
pub fn charge_of(rx: &mut Rx<'_>, order_id: &OrderId) -> Result<Option<Charge>> {
    let sql = "SELECT order_id, task, day, month, held_units, spent_units, charged_ms, closed_ms
               FROM market_envelope_use WHERE order_id = $1";
    Ok(rx.first(sql, args![order_id.as_str()])?)
}

/// What a dispute was charged after the charge of its order had ended, if it was.
pub fn charge_of_dispute(rx: &mut Rx<'_>, dispute_id: &DisputeId) -> Result<Option<Charge>> {
    let sql = "SELECT order_id, task, day, month, held_units, spent_units, charged_ms, closed_ms
               FROM market_envelope_dispute WHERE dispute_id = $1";
    Ok(rx.first(sql, args![dispute_id.as_str()])?)
}

/// Writes down a charge: of its order, or of a dispute about it.
pub(super) fn insert(
    tx: &mut Tx<'_>,
    charge: &Charge,
    dispute_id: Option<&DisputeId>,
) -> Result<()> {
    let sql = match dispute_id {
        None => {
            "INSERT INTO market_envelope_use
               (order_id, task, day, month, held_units, spent_units, charged_ms, closed_ms)
             VALUES ($1, $2, $3, $4, $5, 0, $6, NULL)"
        }
        Some(_) => {
            "INSERT INTO market_envelope_dispute
               (order_id, task, day, month, held_units, spent_units, charged_ms, closed_ms, dispute_id)
             VALUES ($1, $2, $3, $4, $5, 0, $6, NULL, $7)"
        }
    };
    let mut values = args![
        charge.order_id.as_str(),
        charge.task.as_str(),
        &charge.day,
        &charge.month,
        charge.held,
        charge.charged_ms
    ]
    .to_vec();
    values.extend(dispute_id.map(|id| Val::from(id.as_str())));
    tx.exec(sql, &values)?;
    Ok(())
}

/// Ends a charge: this was paid.
pub(super) fn end(
    tx: &mut Tx<'_>,
    (charge, dispute_id): (&Charge, Option<&DisputeId>),
    spent: i64,
    now_ms: UnixMs,
) -> Result<()> {
    match dispute_id {
        None => tx.cas(
            "UPDATE market_envelope_use SET held_units = 0, spent_units = $2, closed_ms = $3
             WHERE order_id = $1 AND closed_ms IS NULL",
            args![charge.order_id.as_str(), spent, now_ms],
        )?,
        Some(dispute_id) => tx.cas(
            "UPDATE market_envelope_dispute SET held_units = 0, spent_units = $2, closed_ms = $3
             WHERE dispute_id = $1 AND closed_ms IS NULL",
            args![dispute_id.as_str(), spent, now_ms],
        )?,
    };
    Ok(())
}

/// What changed an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum What {
    /// It was set.
    Set(Terms),
    /// It was taken away.
    Removed,
    /// It lent to another one.
    Lent {
        /// To which.
        borrower: TaskType,
        /// For a day or a month.
        layer: Layer,
        /// Which one.
        period: String,
        /// For which order.
        order_id: OrderId,
        /// How much.
        msat: i64,
    },
    /// Something was carried into a month.
    Rolled {
        /// Into which.
        period: String,
        /// How much.
        msat: i64,
    },
}

/// A change of an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Names it by what it is.
    pub log_id: String,
    /// When.
    pub at_ms: UnixMs,
    /// Which envelope.
    pub task: TaskType,
    /// What it was.
    #[serde(flatten)]
    pub what: What,
}

impl Decode for Change {
    fn decode(row: &dyn Columns) -> guild_store::Result<Change> {
        let mut cells = Cells::of(row);
        let (log_id, at_ms) = (cells.next()?, cells.next()?);
        let word: String = cells.next()?;
        let task = cells.parsed()?;
        let missing = || unreadable("a change of an envelope is not whole");
        let borrower: Option<TaskType> = cells.parsed_or_none()?;
        let layer: Option<String> = cells.next()?;
        let period: Option<String> = cells.next()?;
        let order_id: Option<OrderId> = cells.parsed_or_none()?;
        let msat: Option<i64> = cells.next()?;
        let mut number = || cells.next::<Option<i64>>()?.ok_or_else(missing);
        let what = match word.as_str() {
            "set" => What::Set(Terms {
                daily: Msat(number()?),
                monthly: Msat(number()?),
                priority: number()?,
                lends_bp: number()?,
                rolls_bp: number()?,
            }),
            "removed" => What::Removed,
            "lent" => What::Lent {
                borrower: borrower.ok_or_else(missing)?,
                layer: layer.as_deref().and_then(Layer::parse).ok_or_else(missing)?,
                period: period.ok_or_else(missing)?,
                order_id: order_id.ok_or_else(missing)?,
                msat: msat.ok_or_else(missing)?,
            },
            "rolled" => What::Rolled {
                period: period.ok_or_else(missing)?,
                msat: msat.ok_or_else(missing)?,
            },
            _ => return Err(missing()),
        };
        Ok(Change { log_id, at_ms, task, what })
    }
}

/// What changed envelopes, the newest first: before this change, or the newest of all.
pub fn log(
    rx: &mut Rx<'_>,
    task: Option<&TaskType>,
    before: Option<(UnixMs, &str)>,
    limit: i64,
) -> Result<Vec<Change>> {
    let (at_ms, id) = before.unwrap_or((i64::MAX, ""));
    Ok(rx.all(
        "SELECT log_id, at_ms, what, task, borrower, layer, period, order_id, units, daily_units, monthly_units,
           priority, lends_bp, rolls_bp FROM market_envelope_log
         WHERE at_ms <= $1 AND (at_ms < $1 OR log_id < $2)
           AND ($3 = '' OR task = $3 OR borrower = $3)
         ORDER BY at_ms DESC, log_id DESC LIMIT $4",
        args![at_ms, id, task.map_or("", TaskType::as_str), page(limit)],
    )?)
}

/// Writes down what changed an envelope; what is written already stays.
pub(super) fn note(tx: &mut Tx<'_>, change: &Change) -> Result<()> {
    let (mut terms, mut lent) = (None, None);
    let (mut rolled, mut word) = (None, "removed");
    match &change.what {
        What::Set(set) => (terms, word) = (Some(*set), "set"),
        What::Removed => {}
        What::Lent { borrower, layer, period, order_id, msat } => {
            (lent, word) = (Some((borrower, order_id)), "lent");
            rolled = Some((layer.as_str(), period, *msat));
        }
        What::Rolled { period, msat } => {
            (rolled, word) = (Some((Layer::Month.as_str(), period, *msat)), "rolled");
        }
    }
    tx.exec(
        "INSERT INTO market_envelope_log (log_id, at_ms, what, task, borrower, layer, period, order_id, units,
           daily_units, monthly_units, priority, lends_bp, rolls_bp)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ON CONFLICT (log_id) DO NOTHING",
        args![
            &change.log_id,
            change.at_ms,
            word,
            change.task.as_str(),
            lent.map(|(borrower, _)| borrower.as_str()),
            rolled.map(|(layer, _, _)| layer),
            rolled.map(|(_, period, _)| period.as_str()),
            lent.map(|(_, order_id)| order_id.as_str()),
            rolled.map(|(_, _, msat)| msat),
            terms.map(|terms| terms.daily.0),
            terms.map(|terms| terms.monthly.0),
            terms.map(|terms| terms.priority),
            terms.map(|terms| terms.lends_bp),
            terms.map(|terms| terms.rolls_bp)
        ],
    )?;
    Ok(())
}
