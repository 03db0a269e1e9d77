//! What is granted of what is asked for: the smallest of what is asked, what the policy allows and what the job has
//! left; and which of them it was.

use guild_protocol::env::UnixMs;
use serde::{Deserialize, Serialize};

use crate::error::code;
use crate::price::{Rates, Shape};
use crate::{Error, Result};

/// Numbers in JSON are exact up to here.
pub(crate) const NUMBER_MAX: i64 = (1 << 53) - 1;
const DAY_MS: i64 = 86_400_000;

/// What anybody may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// What a minute costs.
    pub rates: Rates,
    /// The smallest sandbox.
    pub shape_min: Shape,
    /// The largest sandbox.
    pub shape_max: Shape,
    /// What one job may spend, in micro-USD.
    pub job_spend_max: i64,
    /// How far ahead a job may end.
    pub job_ttl_max_ms: i64,
    /// What one sandbox may spend, in micro-USD.
    pub sandbox_cap_max: i64,
    /// How far ahead a sandbox may end.
    pub sandbox_ttl_max_ms: i64,
    /// How many running jobs a user may have.
    pub jobs_max: i64,
    /// How many sandboxes of a job may start and run at once.
    pub sandboxes_max: i64,
    /// For how long what stays in an account must last, at its typical burn, after a withdrawal.
    pub reserve_ms: i64,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            rates: Rates::default(),
            shape_min: Shape { cpu_milli: 100, ram_mib: 64, disk_mib: 16 },
            shape_max: Shape { cpu_milli: 16_000, ram_mib: 65_536, disk_mib: 524_288 },
            job_spend_max: 1_000_000_000,
            job_ttl_max_ms: 30 * DAY_MS,
            sandbox_cap_max: 1_000_000_000,
            sandbox_ttl_max_ms: 30 * DAY_MS,
            jobs_max: 100,
            sandboxes_max: 100,
            reserve_ms: 3 * DAY_MS,
        }
    }
}

impl Policy {
    /// Refuses a shape that is not sold.
    pub fn check_shape(&self, shape: &Shape) -> Result<()> {
        let (min, max) = (&self.shape_min, &self.shape_max);
        for (name, asked, min, max) in [
            ("cpu_milli", shape.cpu_milli, min.cpu_milli, max.cpu_milli),
            ("ram_mib", shape.ram_mib, min.ram_mib, max.ram_mib),
            ("disk_mib", shape.disk_mib, min.disk_mib, max.disk_mib),
        ] {
            if asked < min || asked > max {
                let message = format!("{name} is {asked}, not {min} to {max}");
                return Err(Error::refused(&code::BAD_SHAPE, message));
            }
        }
        Ok(())
    }
}

/// What decided how much is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// What was asked for.
    Requested,
    /// What anybody may have.
    PolicyCap,
    /// What the job has left.
    JobRemaining,
}

/// What is granted of what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clamped {
    /// Asked for.
    pub requested: i64,
    /// Granted.
    pub granted: i64,
    /// What decided.
    pub bound: Bound,
}

/// The smallest of the three. Where two are equal, the first named decides.
pub fn clamp(requested: i64, policy_cap: i64, job_remaining: Option<i64>) -> Clamped {
    let mut clamped = Clamped { requested, granted: requested, bound: Bound::Requested };
    let others = [(Some(policy_cap), Bound::PolicyCap), (job_remaining, Bound::JobRemaining)];
    for (other, bound) in others {
        if let Some(other) = other.filter(|other| *other < clamped.granted) {
            clamped = Clamped { granted: other, bound, ..clamped };
        }
    }
    clamped
}

/// A wish for more. All of it is absolute, and about the version that its author has read: the same wish again changes
/// nothing and gets the same answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extend {
    /// Which version of the job or sandbox it is about.
    pub version: i64,
    /// What may be spent in all, in micro-USD; as it is, if not said.
    pub spend: Option<i64>,
    /// When it ends; as it is, if not said.
    pub expires_ms: Option<UnixMs>,
    /// After how long without use it ends; as it is, if not said.
    pub idle_timeout_ms: Option<i64>,
}

/// What was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// What may be spent in all, in micro-USD.
    pub spend: Clamped,
    /// When it ends.
    pub expires_ms: Clamped,
}

/// A wish with its answer, as it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) asked: Extend,
    pub(crate) granted: Granted,
}

impl Answer {
    pub(crate) fn to_text(self) -> Result<String> {
        Ok(serde_json::to_string(&self).map_err(crate::row::unreadable)?)
    }
}

/// Between what an extension may move.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) now_ms: UnixMs,
    /// What is spent or held already.
    pub(crate) spent: i64,
    /// As it is.
    pub(crate) spend: i64,
    /// As it is.
    pub(crate) expires_ms: UnixMs,
    pub(crate) spend_cap: i64,
    pub(crate) ttl_max_ms: i64,
    /// What the job has left, if it is about a sandbox: for it in all, and until when.
    pub(crate) job: Option<(i64, UnixMs)>,
}

/// Decides about an extension. What was granted before stays, also beyond a policy that has become stricter.
pub(crate) fn extend(asked: &Extend, bounds: &Bounds) -> Result<Granted> {
    let as_it_is = |value| Clamped { requested: value, granted: value, bound: Bound::Requested };
    let mut spend = as_it_is(bounds.spend);
    if let Some(asked) = asked.spend {
        check_spend(asked)?;
        if asked < bounds.spent {
            let message = format!("{} is spent already, {asked} is less", bounds.spent);
            return Err(Error::refused(&code::SHRINKS, message));
        }
        spend = clamp(asked, bounds.spend_cap, bounds.job.map(|(spend, _)| spend));
        spend.granted = spend.granted.max(bounds.spend.min(asked));
    }
    let mut expires_ms = as_it_is(bounds.expires_ms);
    if let Some(asked) = asked.expires_ms {
        check_time("expires_ms", asked)?;
        if asked < bounds.expires_ms {
            let message = format!("it ends at {}, {asked} is earlier", bounds.expires_ms);
            return Err(Error::refused(&code::SHRINKS, message));
        }
        let cap = bounds.now_ms.saturating_add(bounds.ttl_max_ms);
        expires_ms = clamp(asked, cap, bounds.job.map(|(_, expires_ms)| expires_ms));
        expires_ms.granted = expires_ms.granted.max(bounds.expires_ms);
    }
    check_idle(asked.idle_timeout_ms)?;
    Ok(Granted { spend, expires_ms })
}

/// An amount that can be meant.
pub(crate) fn check_spend(units: i64) -> Result<()> {
    if (1..=NUMBER_MAX).contains(&units) {
        return Ok(());
    }
    let message = format!("{units} is not an amount of 1 to {NUMBER_MAX} micro-USD");
    Err(Error::refused(&code::MALFORMED, message))
}

/// A time that can be meant.
pub(crate) fn check_time(field: &str, at_ms: UnixMs) -> Result<()> {
    if (0..=NUMBER_MAX).contains(&at_ms) {
        return Ok(());
    }
    let message = format!("{field} must be 0 to {NUMBER_MAX} milliseconds since 1970");
    Err(Error::refused(&code::MALFORMED, message))
}

/// When something ends that begins now.
pub(crate) fn ends_after(now_ms: UnixMs, ttl_ms: i64) -> Result<UnixMs> {
    let end = now_ms.checked_add(ttl_ms).filter(|end| ttl_ms > 0 && *end <= NUMBER_MAX);
    end.ok_or_else(|| {
        let message = format!("ttl_ms is {ttl_ms}: it must be at least 1 and end in this epoch");
        Error::refused(&code::MALFORMED, message)
    })
}

/// A timeout that can be meant.
pub(crate) fn check_idle(timeout_ms: Option<i64>) -> Result<()> {
    const LEAST_MS: i64 = 1_000;
    match timeout_ms {
        Some(ms) if !(LEAST_MS..=NUMBER_MAX).contains(&ms) => {
            let message = format!("idle_timeout_ms is {ms}, not at least {LEAST_MS}");
            Err(Error::refused(&code::MALFORMED, message))
        }
        _ => Ok(()),
    }
}

/// A text that can be shown.
pub(crate) fn check_text(field: &str, text: &str, max_chars: usize) -> Result<()> {
    let chars = text.chars().count();
    if chars == 0 || chars > max_chars || text.chars().any(char::is_control) {
        let message = format!("{field} must be 1 to {max_chars} characters of plain text");
        return Err(Error::refused(&code::MALFORMED, message));
    }
    Ok(())
}
