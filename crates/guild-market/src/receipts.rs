//! Receipts given and taken, in the bytes in which they were signed; and the keys under which this node deals, with the
//! one to which the database belongs.

use guild_protocol::amount::{Amount, AssetId};
use guild_protocol::env::UnixMs;
use guild_protocol::id::ReceiptId;
use guild_protocol::identity::PublicKey;
use guild_protocol::receipt::{Receipt, Status};
use guild_store::{Columns, Decode, Rx, Tx, args};

use crate::Result;
use crate::row::{Cells, page, unreadable};

/// Who signed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// We did, as the buyer.
    Given,
    /// The buyer did, and we are its provider.
    Taken,
}

impl Direction {
    /// The word in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Direction::Given => "given",
            Direction::Taken => "taken",
        }
    }
}

/// A receipt as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Names it by its content.
    pub receipt_id: ReceiptId,
    /// Who signed it.
    pub direction: Direction,
    /// The request it is about.
    pub request_id: String,
    /// Who pays.
    pub buyer: PublicKey,
    /// Who is paid.
    pub provider: PublicKey,
    /// How it was settled.
    pub status: Status,
    /// How much of what.
    pub amount: Amount,
    /// Its canonical bytes.
    pub text: String,
    /// When we gave or took it.
    pub at_ms: UnixMs,
}

impl Decode for Kept {
    fn decode(row: &dyn Columns) -> guild_store::Result<Kept> {
        let mut cells = Cells::of(row);
        Ok(Kept {
            receipt_id: cells.parsed()?,
            direction: match cells.next::<String>()?.as_str() {
                "given" => Direction::Given,
                "taken" => Direction::Taken,
                other => return Err(unreadable(format!("a receipt is {other}"))),
            },
            request_id: cells.next()?,
            buyer: cells.parsed()?,
            provider: cells.parsed()?,
            status: Status::from_word(&cells.next::<String>()?)
                .ok_or_else(|| unreadable("a receipt has an unknown status"))?,
            amount: Amount {
                asset_id: AssetId::new(&cells.next::<String>()?).map_err(unreadable)?,
                units: cells.next()?,
            },
            text: cells.next()?,
            at_ms: cells.next()?,
        })
    }
}

impl Direction {
    /// Whom the node deals with, of the two that a receipt names.
    fn other(self, receipt: &Receipt) -> String {
        let stated = receipt.stated();
        match self {
            Direction::Given => stated.provider_id.npub(),
            Direction::Taken => stated.buyer_id.npub(),
        }
    }
}

/// Keeps a receipt; one that is there stays as it is.
pub(crate) fn keep(
    tx: &mut Tx<'_>,
    receipt: &Receipt,
    direction: Direction,
    now_ms: UnixMs,
) -> Result<()> {
    let stated = receipt.stated();
    let kept = tx.exec(
        "INSERT INTO market_receipt
           (receipt_id, direction, request_id, buyer, provider, status, asset_id, units, text, at_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (receipt_id) DO NOTHING",
        args![
            receipt.receipt_id().as_str(),
            direction.as_str(),
            stated.request_id.as_deref().unwrap_or_default(),
            &stated.buyer_id.npub(),
            &stated.provider_id.npub(),
            stated.status.as_str(),
            stated.amount.asset_id.as_str(),
            stated.amount.units,
            &String::from_utf8_lossy(receipt.as_bytes()).into_owned(),
            now_ms
        ],
    )?;
    if kept > 0 {
        // All of them, and those of this one.
        for other in ["", &direction.other(receipt)] {
            add_up(tx, other, direction, receipt)?;
        }
    }
    Ok(())
}

/// Counts a new receipt. What strangers state may be large: a total that would be too large stays at its end.
fn add_up(tx: &mut Tx<'_>, other: &str, direction: Direction, receipt: &Receipt) -> Result<()> {
    let stated = receipt.stated();
    let (direction, status) = (direction.as_str(), stated.status.as_str());
    let asset_id = stated.amount.asset_id.as_str();
    let before: Option<(i64,)> = tx.first(
        "SELECT units FROM market_total
         WHERE other = $1 AND direction = $2 AND status = $3 AND asset_id = $4",
        args![other, direction, status, asset_id],
    )?;
    let units = before.unwrap_or_default().0.saturating_add(stated.amount.units);
    tx.exec(
        "INSERT INTO market_total (other, direction, status, asset_id, receipts, units)
         VALUES ($1, $2, $3, $4, 1, $5)
         ON CONFLICT (other, direction, status, asset_id)
         DO UPDATE SET receipts = market_total.receipts + 1, units = $5",
        args![other, direction, status, asset_id, units],
    )?;
    Ok(())
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT receipt_id, direction, request_id, buyer, provider, status, asset_id, units, text, at_ms
             FROM market_receipt ",
            $rest
        )
    };
}

const OF_ID: &str = select!("WHERE receipt_id = $1");
const OF_REQUEST: &str = select!("WHERE request_id = $1 ORDER BY at_ms, receipt_id");
/// The first condition is what the index is asked for; the second tells apart what came at one moment.
const BEFORE: &str = select!(
    "WHERE at_ms <= $1 AND (at_ms < $1 OR receipt_id < $2)
     ORDER BY at_ms DESC, receipt_id DESC LIMIT $3"
);

/// What is asked of all receipts, and how many values are bound.
#[cfg(test)]
pub(crate) const STATEMENTS: [(&str, usize); 3] = [(OF_ID, 1), (OF_REQUEST, 1), (BEFORE, 3)];

/// The receipt with this id.
pub fn get(rx: &mut Rx<'_>, receipt_id: &ReceiptId) -> Result<Option<Kept>> {
    Ok(rx.first(OF_ID, args![receipt_id.as_str()])?)
}

/// Every receipt about a request, the oldest first.
pub fn of_request(rx: &mut Rx<'_>, request_id: &str) -> Result<Vec<Kept>> {
    Ok(rx.all(OF_REQUEST, args![request_id])?)
}

/// A page of receipts, the newest first: those before this one, or the newest of all.
pub fn page_before(
    rx: &mut Rx<'_>,
    before: Option<(UnixMs, &ReceiptId)>,
    limit: i64,
) -> Result<Vec<Kept>> {
    let (at_ms, id) = before.map_or((i64::MAX, ""), |(at_ms, id)| (at_ms, id.as_str()));
    Ok(rx.all(BEFORE, args![at_ms, id, page(limit)])?)
}

/// The replay of what a receipt we gave is about: an order, or the dispute that had it paid after all.
pub fn replay_of(rx: &mut Rx<'_>, receipt_id: &ReceiptId) -> Result<Option<String>> {
    let sql = "SELECT replay FROM market_order WHERE receipt_id = $1
               UNION ALL SELECT replay FROM market_dispute WHERE receipt_id = $1 AND side = 'buyer'";
    let row: Option<(Option<String>,)> = rx.first(sql, args![receipt_id.as_str()])?;
    Ok(row.and_then(|(replay,)| replay))
}

/// What a key is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It is the node: all others come of it.
    Node,
    /// It buys.
    Buyer,
    /// It provides.
    Provider,
}

impl Role {
    /// The word in the database and in exports.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Node => "node",
            Role::Buyer => "buyer",
            Role::Provider => "provider",
        }
    }
}

/// Remembers that this node deals under a key.
pub(crate) fn deal_under(
    tx: &mut Tx<'_>,
    role: Role,
    key: &PublicKey,
    now_ms: UnixMs,
) -> Result<()> {
    tx.exec(
        "INSERT INTO market_key (role, npub, first_used_ms) VALUES ($1, $2, $3)
         ON CONFLICT (role, npub) DO NOTHING",
        args![role.as_str(), &key.npub(), now_ms],
    )?;
    Ok(())
}

/// The node to which this database belongs; none if no node has been started on it yet.
pub fn owner(rx: &mut Rx<'_>) -> Result<Option<PublicKey>> {
    let sql = "SELECT npub FROM market_key WHERE role = 'node'";
    let row: Option<(String,)> = rx.first(sql, args![])?;
    Ok(row.map(|(npub,)| npub.parse().map_err(unreadable)).transpose()?)
}

/// Makes this database belong to a node, unless it belongs to one already. To whom it belongs then.
pub fn claim(tx: &mut Tx<'_>, node: &PublicKey, now_ms: UnixMs) -> Result<PublicKey> {
    if let Some(owner) = owner(tx)? {
        return Ok(owner);
    }
    deal_under(tx, Role::Node, node, now_ms)?;
    Ok(*node)
}

/// The keys under which this node has dealt: role and npub, in order.
pub fn keys(rx: &mut Rx<'_>) -> Result<Vec<(String, String)>> {
    Ok(rx.all("SELECT role, npub FROM market_key ORDER BY role, npub", args![])?)
}
