//! What proves a payment.

use guild_market::order;
use guild_market::receipts::{self, Direction};
use guild_protocol::id::ReceiptId;
use guild_protocol::nostr::EventId;
use guild_store::Rx;

use super::page::{Cursor, Listed, Page, cut};
use super::people::People;
use super::view::{Receipt, Side};
use super::{Kept, Reader};
use crate::{Error, Result};

/// A page of receipts, those given or taken last first.
pub(super) fn page(rx: &mut Rx<'_>, page: &Page) -> Result<Listed<Receipt>> {
    let after = match &page.after {
        Some(cursor) => {
            Some((cursor.at, cursor.id.parse::<ReceiptId>().map_err(|_| Error::Cursor)?))
        }
        None => None,
    };
    let lines_max = page.lines();
    let limit = i64::try_from(lines_max.saturating_add(1)).unwrap_or(i64::MAX);
    let before = after.as_ref().map(|(at_ms, id)| (*at_ms, id));
    let rows = receipts::page_before(rx, before, limit)?;
    let cursor = |row: &receipts::Kept| Cursor { at: row.at_ms, id: row.receipt_id.to_string() };
    let (rows, next) = cut(rows, lines_max, cursor);
    Ok(Listed { items: lines(rx, &rows)?, next })
}

/// Receipts as lines.
pub(super) fn lines(rx: &mut Rx<'_>, rows: &[receipts::Kept]) -> Result<Vec<Receipt>> {
    let people = People::of(rx, rows.iter().flat_map(|row| [row.buyer, row.provider]))?;
    let line = |row: &receipts::Kept| Receipt {
        receipt_id: row.receipt_id.to_string(),
        request_id: Some(row.request_id.clone()).filter(|id| !id.is_empty()),
        side: match row.direction {
            Direction::Given => Side::Bought,
            Direction::Taken => Side::Hired,
        },
        buyer: people.party(&row.buyer),
        provider: people.party(&row.provider),
        amount: row.amount.clone(),
        status: row.status,
        at_ms: row.at_ms,
    };
    Ok(rows.iter().map(line).collect())
}

/// One receipt, with its bytes.
pub(super) fn get(rx: &mut Rx<'_>, id: &ReceiptId, reader: Reader) -> Result<Option<Kept>> {
    let Some(row) = receipts::get(rx, id)? else { return Ok(None) };
    let Some(receipt) = lines(rx, std::slice::from_ref(&row))?.pop() else { return Ok(None) };
    let has_replay = replay(rx, id, reader)?.is_some();
    Ok(Some(Kept { receipt, bytes: row.text.into_bytes(), has_replay }))
}

/// The replay behind a receipt that we gave, if the reader may have it.
pub(super) fn replay(rx: &mut Rx<'_>, id: &ReceiptId, reader: Reader) -> Result<Option<String>> {
    let Some(row) = receipts::get(rx, id)? else { return Ok(None) };
    let request_id: Option<EventId> = row.request_id.parse().ok();
    let order = match request_id {
        Some(request_id) => order::of_request(rx, &request_id)?,
        None => None,
    };
    match order {
        Some(order) if reader.may_see(order.private) => Ok(receipts::replay_of(rx, id)?),
        _ => Ok(None),
    }
}
