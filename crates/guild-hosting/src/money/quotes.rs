//! What is missing for what somebody wanted.

use guild_protocol::env::UnixMs;
use guild_store::{Columns, Decode, Rx, Tx, args};
use serde::{Deserialize, Serialize};

use super::{HostingQuoteId, balance};
use crate::price::{self, Shape};
use crate::row::{Cells, page, unreadable};
use crate::{Result, UserId};

/// For how long a quote stands.
pub const QUOTE_LIFETIME_MS: i64 = 900_000;
/// For how long one that ran out is kept: anybody without money can make them.
pub const QUOTE_KEPT_MS: i64 = 86_400_000;

/// What is bought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buys {
    /// A sandbox of this size,
    pub shape: Shape,
    /// at this price, in micro-USD,
    pub price: i64,
    /// for so many minutes.
    pub minutes: i64,
}

/// What somebody would have to pay in, and what that would buy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quote {
    /// Names it.
    pub quote_id: HostingQuoteId,
    /// For whom.
    pub user_id: UserId,
    /// What is missing, in micro-USD.
    pub units: i64,
    /// What it buys, with what is in the account.
    pub buys: Buys,
    /// When it was made.
    pub created_ms: UnixMs,
    /// Until when it stands.
    pub expires_ms: UnixMs,
}

impl Decode for Quote {
    fn decode(row: &dyn Columns) -> guild_store::Result<Quote> {
        let mut cells = Cells::of(row);
        Ok(Quote {
            quote_id: cells.parsed()?,
            user_id: cells.parsed()?,
            units: cells.next()?,
            buys: cells.json()?,
            created_ms: cells.next()?,
            expires_ms: cells.next()?,
        })
    }
}

/// Writes down what is missing. The same quote again is the same.
pub(crate) fn quote(
    tx: &mut Tx<'_>,
    quote_id: &HostingQuoteId,
    user_id: &UserId,
    buys: &Buys,
    now_ms: UnixMs,
) -> Result<Quote> {
    if let Some(known) = find_quote(tx, quote_id)?.filter(|known| known.user_id == *user_id) {
        return Ok(known);
    }
    let free = balance(tx, user_id)?.free;
    let units = price::of_minutes(buys.price, buys.minutes)?.saturating_sub(free).max(1);
    let quote = Quote {
        quote_id: quote_id.clone(),
        user_id: user_id.clone(),
        units,
        buys: *buys,
        created_ms: now_ms,
        expires_ms: now_ms.saturating_add(QUOTE_LIFETIME_MS),
    };
    tx.exec(
        "INSERT INTO hosting_quote (quote_id, user_id, units, buys, created_ms, expires_ms)
         VALUES ($1, $2, $3, $4, $5, $6)",
        args![
            quote_id.as_str(),
            user_id.as_str(),
            units,
            &serde_json::to_string(buys).map_err(unreadable)?,
            now_ms,
            quote.expires_ms
        ],
    )?;
    Ok(quote)
}

/// The quote with this id.
pub fn find_quote(rx: &mut Rx<'_>, quote_id: &HostingQuoteId) -> Result<Option<Quote>> {
    Ok(rx.first(
        "SELECT quote_id, user_id, units, buys, created_ms, expires_ms FROM hosting_quote WHERE quote_id = $1",
        args![quote_id.as_str()],
    )?)
}

/// Forgets quotes that ran out by `before_ms`, at most `limit`. How many.
pub fn forget_quotes(tx: &mut Tx<'_>, before_ms: UnixMs, limit: i64) -> Result<u64> {
    Ok(tx.exec(
        "DELETE FROM hosting_quote WHERE quote_id IN (SELECT quote_id FROM hosting_quote
           WHERE expires_ms <= $1 ORDER BY expires_ms LIMIT $2)",
        args![before_ms, page(limit)],
    )?)
}
