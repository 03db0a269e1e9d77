//! What readers need to know of many orders, jobs and receipts at once, without their contents.

use std::collections::BTreeMap;

use guild_protocol::amount::AssetId;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::EventId;
use guild_protocol::receipt::Status;
use guild_store::{Column, Rx, Sql, args};

use crate::receipts::{self, Direction, Kept};
use crate::row::{page, unreadable};
use crate::{Result, job, order};

/// How a request that concerns us stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Concern {
    /// We bought it.
    Order {
        /// Where it stands.
        state: order::State,
        /// From whom. Of an order that is open to all: who delivered, once somebody has.
        provider: Option<PublicKey>,
        /// What kind of work.
        schema_id: String,
    },
    /// We were hired for it, or refused it.
    Job {
        /// Where it stands.
        state: job::State,
        /// What kind of work, if that was understood.
        schema_id: Option<String>,
    },
}

const ORDERS: Sql = Sql {
    lite: "SELECT request_id, state, coalesce(provider, delivered_by), schema_id FROM market_order
           WHERE request_id = $1",
    pg: "SELECT request_id, state, coalesce(provider, delivered_by), schema_id FROM market_order
         WHERE request_id = ANY ($1::text[])",
};
const JOBS: Sql = Sql {
    lite: "SELECT request_id, state, schema_id FROM market_job WHERE request_id = $1",
    pg: "SELECT request_id, state, schema_id FROM market_job WHERE request_id = ANY ($1::text[])",
};

/// How those of these requests stand that concern us. Of one that we ordered from ourselves, the order.
pub fn concerns(rx: &mut Rx<'_>, request_ids: &[EventId]) -> Result<BTreeMap<EventId, Concern>> {
    let ids: Vec<String> = request_ids.iter().map(EventId::hex).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let mut all = BTreeMap::new();
    let jobs: Vec<(String, String, Option<String>)> = rx.all_set(JOBS, &[Column::Texts(&ids)])?;
    for (id, state, schema_id) in jobs {
        let state =
            job::State::parse(&state).ok_or_else(|| unreadable("a job has an unknown state"))?;
        all.insert(id.parse()?, Concern::Job { state, schema_id });
    }
    let orders: Vec<(String, String, Option<String>, String)> =
        rx.all_set(ORDERS, &[Column::Texts(&ids)])?;
    for (id, state, provider, schema_id) in orders {
        let state = order::State::parse(&state)
            .ok_or_else(|| unreadable("an order has an unknown state"))?;
        let provider = provider.map(|key| key.parse()).transpose()?;
        all.insert(id.parse()?, Concern::Order { state, provider, schema_id });
    }
    Ok(all)
}

/// What went through our hands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Receipts given and taken.
    pub receipts: i64,
    /// Paid by those we gave.
    pub paid: i64,
    /// Paid by those we took.
    pub earned: i64,
}

const TOTALS: &str =
    "SELECT direction, status, asset_id, receipts, units FROM market_total WHERE other = ''";

/// What went through our hands, in millisatoshi.
pub fn totals(rx: &mut Rx<'_>) -> Result<Totals> {
    let rows: Vec<(String, String, String, i64, i64)> = rx.all(TOTALS, args![])?;
    let mut totals = Totals::default();
    for (direction, status, asset_id, receipts, units) in rows {
        totals.receipts = totals.receipts.saturating_add(receipts);
        if status == Status::Released.as_str() && asset_id == AssetId::BTC_LN {
            match direction == Direction::Given.as_str() {
                true => totals.paid = units,
                false => totals.earned = units,
            }
        }
    }
    Ok(totals)
}

/// How somebody has worked for us.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Record {
    /// How often we accepted its work.
    pub released: i64,
    /// How often we did not.
    pub withheld: i64,
    /// What we paid.
    pub paid: i64,
}

const RECORD: &str = "SELECT status, receipts, units FROM market_total
    WHERE other = $1 AND direction = 'given' AND asset_id = $2";

/// How a provider has worked for us, by the receipts that we gave it; in millisatoshi.
pub fn record(rx: &mut Rx<'_>, provider: &PublicKey) -> Result<Record> {
    let rows: Vec<(String, i64, i64)> = rx.all(RECORD, args![&provider.npub(), AssetId::BTC_LN])?;
    let mut record = Record::default();
    for (status, receipts, units) in rows {
        match Status::from_word(&status) {
            Some(Status::Released) => (record.released, record.paid) = (receipts, units),
            Some(Status::Withheld) => record.withheld = receipts,
            _ => {}
        }
    }
    Ok(record)
}

/// Both halves are found by an index, and neither is larger than the page.
const RECEIPTS_OF: &str = "SELECT receipt_id FROM (
    SELECT receipt_id, at_ms FROM (SELECT receipt_id, at_ms FROM market_receipt WHERE provider = $1
        ORDER BY at_ms DESC, receipt_id DESC LIMIT $2) AS sold
    UNION
    SELECT receipt_id, at_ms FROM (SELECT receipt_id, at_ms FROM market_receipt WHERE buyer = $1
        ORDER BY at_ms DESC, receipt_id DESC LIMIT $2) AS bought
  ) AS found ORDER BY at_ms DESC, receipt_id DESC LIMIT $2";

/// The latest receipts in which a key pays or is paid.
pub fn receipts_of(rx: &mut Rx<'_>, key: &PublicKey, limit: i64) -> Result<Vec<Kept>> {
    let ids: Vec<(String,)> = rx.all(RECEIPTS_OF, args![&key.npub(), page(limit)])?;
    let mut all = Vec::new();
    for (id,) in ids {
        all.extend(receipts::get(rx, &id.parse()?)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
