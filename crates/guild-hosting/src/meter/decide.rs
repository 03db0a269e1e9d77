//! Whether the next minute of a sandbox is bought: pure.

use guild_protocol::env::UnixMs;

use super::{GRACE_MS, LAST_MS, LEAD_MS};
use crate::sandbox::{Reason, run_until};

/// All that counts for one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The present.
    pub now_ms: UnixMs,
    /// When the next minute would begin.
    pub paid_until_ms: UnixMs,
    /// When the sandbox ends at the latest.
    pub expires_ms: UnixMs,
    /// When it counts as idle, unless it is used before.
    pub idle_ms: Option<UnixMs>,
    /// When its job ends at the latest.
    pub job_expires_ms: UnixMs,
    /// When its job counts as idle, unless it is used before.
    pub job_idle_ms: Option<UnixMs>,
    /// What the next minute costs.
    pub price: i64,
    /// What its cap leaves.
    pub cap_left: i64,
    /// What the budget of its job leaves.
    pub job_left: i64,
    /// What is free in the account.
    pub free: i64,
}

/// What becomes of a sandbox now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It is not due.
    Early,
    /// The next minute is bought.
    Pay,
    /// The next minute cannot be bought, for this reason; something may still change.
    Wait(Reason),
    /// It ends when what is paid is over.
    End(Reason),
}

/// Decides. The first reason in the fixed order counts; what only came too late ends as a gap of the meter.
pub fn decide(facts: &Facts) -> Decision {
    let Facts { now_ms, paid_until_ms, .. } = *facts;
    let ends_ms = run_until(paid_until_ms, facts.expires_ms, facts.job_expires_ms);
    if ends_ms.saturating_sub(now_ms) > LEAD_MS {
        return Decision::Early;
    }
    match blocked(facts) {
        None if now_ms < ends_ms.saturating_sub(LAST_MS) => Decision::Pay,
        None => Decision::End(Reason::MeterGap),
        Some(reason) if now_ms < ends_ms.saturating_sub(GRACE_MS) => Decision::Wait(reason),
        Some(reason) => Decision::End(reason),
    }
}

/// Why the next minute cannot be bought. A time that is reached before the minute begins counts: whoever is idle by
/// then does not pay for it.
fn blocked(facts: &Facts) -> Option<Reason> {
    let reached = |at_ms: Option<UnixMs>| at_ms.is_some_and(|at_ms| at_ms <= facts.paid_until_ms);
    let checks = [
        (reached(Some(facts.expires_ms)), Reason::SandboxTtl),
        (reached(facts.idle_ms), Reason::SandboxIdle),
        (reached(Some(facts.job_expires_ms)), Reason::JobTtl),
        (reached(facts.job_idle_ms), Reason::JobIdle),
        (facts.price > facts.cap_left, Reason::SandboxCap),
        (facts.price > facts.job_left, Reason::JobCap),
        (facts.price > facts.free, Reason::Account),
    ];
    checks.into_iter().find_map(|(stops, reason)| stops.then_some(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(now_ms: UnixMs) -> Facts {
        Facts {
            now_ms,
            paid_until_ms: 60_000,
            expires_ms: 1_000_000,
            idle_ms: None,
            job_expires_ms: 1_000_000,
            job_idle_ms: Some(60_001),
            price: 10,
            cap_left: 10,
            job_left: 10,
            free: 10,
        }
    }

    #[test]
    fn a_minute_is_bought_while_its_lease_can_be_renewed() {
        assert_eq!(decide(&facts(39_999)), Decision::Early);
        assert_eq!(decide(&facts(40_000)), Decision::Pay);
        assert_eq!(decide(&facts(57_999)), Decision::Pay);
        assert_eq!(decide(&facts(58_000)), Decision::End(Reason::MeterGap));
        assert_eq!(decide(&facts(9_000_000)), Decision::End(Reason::MeterGap));
    }

    #[test]
    fn the_first_reason_counts() {
        let mut facts = Facts {
            expires_ms: 60_000,
            idle_ms: Some(60_000),
            job_expires_ms: 60_000,
            job_idle_ms: Some(60_000),
            cap_left: 9,
            job_left: 9,
            free: 9,
            ..facts(56_999)
        };
        let mut reasons = Vec::new();
        while let Decision::Wait(reason) = decide(&facts) {
            assert_eq!(decide(&Facts { now_ms: 57_000, ..facts }), Decision::End(reason));
            assert_eq!(decide(&Facts { now_ms: 70_000, ..facts }), Decision::End(reason));
            reasons.push(reason.as_str());
            match reason {
                Reason::SandboxTtl => facts.expires_ms += 1,
                Reason::SandboxIdle => facts.idle_ms = Some(60_001),
                Reason::JobTtl => facts.job_expires_ms += 1,
                Reason::JobIdle => facts.job_idle_ms = None,
                Reason::SandboxCap => facts.cap_left += 1,
                Reason::JobCap => facts.job_left += 1,
                _ => facts.free += 1,
            }
        }
        assert_eq!(decide(&facts), Decision::Pay);
        let order = "sandbox_ttl sandbox_idle job_ttl job_idle sandbox_cap job_cap account";
        assert_eq!(reasons.join(" "), order);
    }

    #[test]
    fn what_expires_within_a_minute_is_looked_at_then() {
        let facts = |now_ms| Facts { expires_ms: 30_000, ..facts(now_ms) };
        assert_eq!(decide(&facts(9_999)), Decision::Early);
        assert_eq!(decide(&facts(10_000)), Decision::Wait(Reason::SandboxTtl));
        assert_eq!(decide(&facts(27_000)), Decision::End(Reason::SandboxTtl));
    }
}
