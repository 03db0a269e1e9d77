//! The head of the ledger: a hash over everything booked so far, one for each commit. A receipt that names it says
//! which history it belongs to.
//!
//! `head = sha256(previous head, as 32 bytes ‖ one line per transfer)`, the first from 32 zero bytes. A line is the
//! transfer's fields, separated by tabs and ended by a line feed; none of them can hold either.

use guild_protocol::hash::{Hash, Hasher};

use crate::book::Booked;

/// The head of an empty ledger.
pub fn start() -> Hash {
    Hash::from_bytes([0; 32])
}

/// The head after these transfers.
pub fn next<'a>(previous: &Hash, booked: impl IntoIterator<Item = &'a Booked>) -> Hash {
    let mut hasher = Hasher::new();
    hasher.update(previous.as_bytes());
    for transfer in booked {
        hasher.update(line(transfer).as_bytes());
    }
    hasher.finish()
}

fn line(t: &Booked) -> String {
    let hold = t.hold.as_ref().map_or("-", |hold| hold.as_str());
    let expires = t.expires_ms.map_or("-".to_owned(), |at| at.to_string());
    format!(
        "{}\t{}\t{}\t{}\t{}\t{}\t{hold}\t{expires}\t{}\t{}\n",
        t.transfer_id,
        t.step,
        t.debit,
        t.credit,
        t.amount.asset_id,
        t.amount.units,
        t.memo,
        t.at_ms
    )
}
