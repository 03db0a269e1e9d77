//! Which process works on a job.

use guild_protocol::env::UnixMs;
use guild_protocol::nostr::EventId;
use guild_store::{Tx, args};

use super::{State, get};
use crate::Result;
use crate::claim::{Claim, Claimant, fenced};

/// Claims a job that is to be done; none if another process has it, or if it is over.
pub fn claim(
    tx: &mut Tx<'_>,
    request_id: &EventId,
    who: &Claimant,
    now_ms: UnixMs,
) -> Result<Option<Claim>> {
    let job = get(tx, request_id)?;
    let claim = job.claimed.claim_by(who, now_ms).filter(|_| job.state == State::Accepted);
    if let Some(claim) = &claim {
        tx.cas(
            "UPDATE market_job SET claim_token = $2, claim_until_ms = $3, claim_epoch = $4
             WHERE request_id = $1 AND state = 'accepted'",
            args![&request_id.hex(), &claim.token, claim.until_ms, claim.epoch],
        )?;
    }
    Ok(claim)
}

/// Makes a claim last longer. Refused if another process has taken the job over, or if it is over.
pub fn renew(
    tx: &mut Tx<'_>,
    request_id: &EventId,
    claim: &Claim,
    until_ms: UnixMs,
) -> Result<Claim> {
    let renewed = tx.exec(
        "UPDATE market_job SET claim_until_ms = $4
         WHERE request_id = $1 AND state = 'accepted' AND claim_token = $2 AND claim_epoch = $3",
        args![&request_id.hex(), &claim.token, claim.epoch, until_ms],
    )?;
    fenced(renewed)?;
    Ok(Claim { until_ms, ..claim.clone() })
}

/// Gives back all that this one has claimed, so that nobody has to wait for it; how many jobs.
pub fn release(tx: &mut Tx<'_>, who: &Claimant) -> Result<u64> {
    Ok(tx.exec(
        "UPDATE market_job SET claim_token = NULL, claim_until_ms = NULL
         WHERE state = 'accepted' AND claim_token = $1",
        args![&who.token],
    )?)
}
