//! What was paid: by a receipt that the buyer signed, for what was bid and asked, and in the ledger that it names.

use guild_ledger::evidence::{Moved, Slice};
use guild_protocol::amount::{AssetId, Msat};
use guild_protocol::hash::{Hash, to_hex};
use guild_protocol::nostr::tag;
use guild_protocol::receipt::{Proof, Rail, Receipt, Status};

use super::Desk;
use super::work::{Asked, Seat};
use crate::dossier::{Problem, code, receipt_at, slice_at};

/// The receipt, if it holds and is about this work.
pub(super) fn receipt(desk: &mut Desk<'_>, seat: &Seat, asked: &Asked) -> Option<Receipt> {
    let Some(receipt_id) = &seat.work.receipt_id else {
        let outcome = none_was_due(seat, asked);
        if outcome.is_err() {
            desk.report.record("receipt", seat.of(), outcome);
        } else if matches!(seat.work.state.as_str(), "released" | "withheld") {
            desk.report.note("nothing was due, so there is no receipt, and nobody has signed for verdict and replay");
        }
        return None;
    };
    let bytes = desk.bytes(&receipt_at(receipt_id))?;
    let receipt = match Receipt::from_bytes(bytes) {
        Ok(receipt) => receipt,
        Err(error) => {
            let outcome = Err(Problem::new(&code::RECEIPT, error.to_string()));
            desk.report.record("receipt", seat.of(), outcome);
            return None;
        }
    };
    let outcome = match receipt.receipt_id() == receipt_id {
        true => is_of(desk, seat, &receipt),
        false => Err(other(&format!("it is {}", receipt.receipt_id()))),
    };
    desk.report.record("receipt", seat.of(), outcome).then_some(receipt)
}

fn other(why: &str) -> Problem {
    Problem::new(&code::RECEIPT_OTHER, why)
}

fn is_of(desk: &Desk<'_>, seat: &Seat, receipt: &Receipt) -> Result<(), Problem> {
    let stated = receipt.stated();
    if stated.buyer_id != desk.manifest.buyer {
        return Err(other("it is of another buyer"));
    }
    if Some(stated.provider_id) != seat.work.provider {
        return Err(other("it is to another provider"));
    }
    if stated.request_id.as_deref() != Some(seat.of().as_str()) {
        return Err(other("it is about another request"));
    }
    let job_hash = match (&seat.job, &seat.verdict) {
        (Some(job), _) => Some(job.job_hash()),
        (None, Some(verdict)) => Some(verdict.job_hash),
        (None, None) => None,
    };
    if job_hash.is_some_and(|hash| stated.job_hash != Some(hash)) {
        return Err(other("it is about another job"));
    }
    if stated.verdict_hash != seat.work.verdict_hash {
        let message = match stated.verdict_hash {
            Some(hash) => format!("the receipt names the verdict {hash}"),
            None => "the receipt names no verdict".to_owned(),
        };
        return Err(Problem::new(&code::VERDICT_HASH, message));
    }
    let says = stated.status.as_str();
    if says != seat.work.state {
        let message =
            format!("the order is said to be {}, the receipt says {says}", seat.work.state);
        return Err(Problem::new(&code::STATUS, message));
    }
    Ok(())
}

/// What the request bids.
fn bid(asked: &Asked) -> Option<i64> {
    tag::value(&asked.request.tags, "bid").and_then(|bid| bid.parse().ok())
}

/// What the result asks for.
pub(super) fn price(asked: &Asked) -> Option<i64> {
    let result = asked.result.as_ref()?;
    tag::value(&result.tags, "amount").and_then(|amount| amount.parse().ok())
}

/// Work that costs nothing has no receipt. Whatever was bid and asked for has one.
fn none_was_due(seat: &Seat, asked: &Asked) -> Result<(), Problem> {
    let (bid, price) = (bid(asked).unwrap_or(0), price(asked));
    let due = match seat.work.state.as_str() {
        "released" => price.unwrap_or(0).min(bid),
        "withheld" => bid,
        _ => 0,
    };
    match due > 0 {
        false => Ok(()),
        true => {
            let message = format!("{due} msat were due or held, and there is no receipt");
            Err(Problem::new(&code::RECEIPT, message))
        }
    }
}

/// Whether what the receipt says was paid is what was agreed on, and was paid.
pub(super) fn check(desk: &mut Desk<'_>, seat: &Seat, asked: &Asked) {
    let Some(receipt) = &seat.receipt else { return };
    desk.report.record("amount", seat.of(), amount(receipt, asked));
    let stated = receipt.stated();
    match (&stated.payment_proof, stated.rail) {
        (Some(Proof::LedgerTransfer { transfer_id, ledger_head }), Rail::Ledger) => {
            let Some(bytes) = desk.bytes(&slice_at(&seat.work.request_id)) else { return };
            let outcome = paid(bytes, receipt, (transfer_id, ledger_head));
            desk.report.record("payment", seat.of(), outcome);
        }
        (None, _) if stated.status == Status::Withheld => {}
        (_, rail) => {
            let words =
                format!("whether the rail {} moved the money is not checked", rail.as_str());
            desk.report.note(words);
        }
    }
}

fn amount(receipt: &Receipt, asked: &Asked) -> Result<(), Problem> {
    let wrong = |message: String| Err(Problem::new(&code::AMOUNT, message));
    let stated = receipt.stated();
    let units = stated.amount.units;
    if stated.amount.asset_id != AssetId::btc_ln() {
        return wrong(format!(
            "bids are in millisatoshi, the receipt is in {}",
            stated.amount.asset_id
        ));
    }
    if stated.status == Status::Withheld {
        return Ok(());
    }
    let Some(bid) = bid(asked) else { return wrong("the request bids nothing".to_owned()) };
    let due = price(asked).map_or(bid, |price| price.min(bid));
    match units == due {
        true => Ok(()),
        false => wrong(format!("{} were due, the receipt says {}", shown(due), shown(units))),
    }
}

fn shown(units: i64) -> String {
    format!("{} msat", Msat(units).0)
}

/// Whether the transfer is in the history that the receipt names.
fn paid(
    bytes: &[u8],
    receipt: &Receipt,
    (transfer_id, head): (&str, &Hash),
) -> Result<(), Problem> {
    let slice = Slice::read(bytes).map_err(|why| Problem::new(&code::LEDGER, why))?;
    if slice.head != *head {
        let message = format!("it leads to {}, the receipt names {head}", slice.head);
        return Err(Problem::new(&code::LEDGER, message));
    }
    let wrong = |message: String| Err(Problem::new(&code::PAYMENT, message));
    let stated = receipt.stated();
    let Some(Moved { credit, units, moved, .. }) = slice.transfers.get(transfer_id) else {
        return wrong(format!("{transfer_id:?} is not in the commit"));
    };
    if !moved {
        return wrong("the transfer moved nothing".to_owned());
    }
    if *units != i128::from(stated.amount.units) {
        return wrong(format!("{units} were moved, the receipt says {}", stated.amount));
    }
    match *credit == payable(&stated.provider_id.npub(), &stated.amount.asset_id) {
        true => Ok(()),
        false => wrong("it was paid to somebody else".to_owned()),
    }
}

/// The account in which a buyer keeps what it owes somebody, as `docs/formats/evidence.md` has it.
fn payable(npub: &str, asset_id: &AssetId) -> String {
    let name = format!("guild.account.v1\n{npub}\npayable\n{asset_id}");
    format!("acct_{}", to_hex(Hash::of(name.as_bytes()).as_bytes()))
}
