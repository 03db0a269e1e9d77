//! Holding on to a claim while the work is done: several processes may share one database.

use guild_market::claim::{Claim, Claimant};
use guild_market::code::CLAIM_LOST;
use guild_protocol::env::{BoxFuture, Clock};

use crate::{Error, Result};

/// A database that fails is asked again after a part of a claim's life.
const TRIES: i64 = 8;

/// Renews a claim at half of its life, until it is lost: then what it was for must stop. A database that cannot be
/// asked takes nothing away before the claim is over, and then everything.
pub(crate) async fn until_lost(
    clock: &dyn Clock,
    who: &Claimant,
    mut claim: Claim,
    renew: impl Fn(Claim) -> BoxFuture<Result<Claim>>,
) {
    let half_ms = who.ttl_ms / 2;
    let mut pause_ms = claim.until_ms.saturating_sub(clock.now_ms()).saturating_sub(half_ms);
    loop {
        // Nobody sleeps longer because a clock was set back.
        clock.sleep(pause_ms.clamp(0, half_ms)).await;
        match renew(claim.clone()).await {
            Ok(renewed) => {
                claim = renewed;
                pause_ms = half_ms;
            }
            Err(error) if is_lost(&error) || clock.now_ms() >= claim.until_ms => return,
            Err(_) => pause_ms = (who.ttl_ms / TRIES).max(1),
        }
    }
}

/// Whether it says that another process has the claim.
pub(crate) fn is_lost(error: &Error) -> bool {
    error.code() == &CLAIM_LOST
}
