//! Which process judges an order.

use guild_protocol::env::UnixMs;
use guild_store::{Tx, args};

use super::{OrderId, State, get};
use crate::Result;
use crate::claim::{Claim, Claimant, fenced};

/// Claims an order that waits for its verdict; none if another process has it, or if it waits for none.
pub fn claim(
    tx: &mut Tx<'_>,
    order_id: &OrderId,
    who: &Claimant,
    now_ms: UnixMs,
) -> Result<Option<Claim>> {
    let order = get(tx, order_id)?;
    let claim = order.claimed.claim_by(who, now_ms).filter(|_| order.state == State::Delivered);
    if let Some(claim) = &claim {
        tx.cas(
            "UPDATE market_order SET claim_token = $2, claim_until_ms = $3, claim_epoch = $4
             WHERE order_id = $1 AND state = 'delivered'",
            args![order_id.as_str(), &claim.token, claim.until_ms, claim.epoch],
        )?;
    }
    Ok(claim)
}

/// Makes a claim last longer. Refused if another process has taken the order over, or if it is over.
pub fn renew(
    tx: &mut Tx<'_>,
    order_id: &OrderId,
    claim: &Claim,
    until_ms: UnixMs,
) -> Result<Claim> {
    let renewed = tx.exec(
        "UPDATE market_order SET claim_until_ms = $4
         WHERE order_id = $1 AND state = 'delivered' AND claim_token = $2 AND claim_epoch = $3",
        args![order_id.as_str(), &claim.token, claim.epoch, until_ms],
    )?;
    fenced(renewed)?;
    Ok(Claim { until_ms, ..claim.clone() })
}

/// Gives back all that this one has claimed, so that nobody has to wait for it; how many orders.
pub fn release(tx: &mut Tx<'_>, who: &Claimant) -> Result<u64> {
    Ok(tx.exec(
        "UPDATE market_order SET claim_token = NULL, claim_until_ms = NULL
         WHERE state = 'delivered' AND claim_token = $1",
        args![&who.token],
    )?)
}
