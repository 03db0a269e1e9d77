//! Jobs: bounded spending windows.

use guild_protocol::env::UnixMs;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{amount, amount_needed, cents, left_ms, seconds, version};
use crate::clamp::{Bound, Clamped, Extend, Granted, check_time};
use crate::job::{Job, NewJob};
use crate::pace::{Lasts, Pace};
use crate::{HostingJobId, Result, UserId};

/// A job that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewJobBody {
    /// What its owner calls it.
    #[schema(min_length = 1, max_length = 100, pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$")]
    pub name: Option<String>,
    /// What all its sandboxes may spend.
    #[schema(minimum = 1, maximum = 9007199254740991_i64)]
    pub max_spend_micro_usd: Option<i64>,
    /// The same in cents.
    #[schema(minimum = 1, maximum = 900719925474_i64)]
    pub max_spend_cents: Option<i64>,
    /// For how long.
    #[schema(minimum = 1, maximum = 31622400)]
    pub ttl_s: i64,
    /// After how long without use it ends; never, if not said.
    #[schema(minimum = 1, maximum = 31622400)]
    pub idle_timeout_s: Option<i64>,
}

impl NewJobBody {
    pub(crate) fn asked(&self, job_id: HostingJobId, user_id: UserId) -> Result<NewJob> {
        let idle = self.idle_timeout_s.map(|idle| seconds("idle_timeout_s", idle)).transpose()?;
        Ok(NewJob {
            job_id,
            user_id,
            name: self.name.clone().unwrap_or_else(|| "job".to_owned()),
            max_spend: amount_needed("max_spend", self.max_spend_micro_usd, self.max_spend_cents)?,
            ttl_ms: seconds("ttl_s", self.ttl_s)?,
            idle_timeout_ms: idle,
        })
    }
}

/// More money or time. All of it is absolute, so the same again changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendBody {
    /// The `version` that was read.
    #[schema(minimum = 0, maximum = 9007199254740991_i64)]
    pub version: i64,
    /// What may be spent in all; as it is, if not said.
    #[schema(minimum = 1, maximum = 9007199254740991_i64)]
    pub max_spend_micro_usd: Option<i64>,
    /// The same in cents.
    #[schema(minimum = 1, maximum = 900719925474_i64)]
    pub max_spend_cents: Option<i64>,
    /// When it ends; as it is, if not said.
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 9007199254740991_i64)]
    pub expires_ms: Option<UnixMs>,
    /// After how long without use it ends; as it is, if not said.
    #[schema(minimum = 1, maximum = 31622400)]
    pub idle_timeout_s: Option<i64>,
}

impl ExtendBody {
    pub(crate) fn asked(&self) -> Result<Extend> {
        let idle = self.idle_timeout_s.map(|idle| seconds("idle_timeout_s", idle)).transpose()?;
        self.expires_ms.map_or(Ok(()), |at_ms| check_time("expires_ms", at_ms))?;
        Ok(Extend {
            version: version(self.version)?,
            spend: amount("max_spend", self.max_spend_micro_usd, self.max_spend_cents)?,
            expires_ms: self.expires_ms,
            idle_timeout_ms: idle,
        })
    }
}

/// What was granted of what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct GrantView {
    /// Asked for.
    pub requested: i64,
    /// Granted.
    pub granted: i64,
    /// What decided: `requested`, `policy_cap` or `job_remaining`.
    #[schema(value_type = String)]
    pub bound_by: Bound,
}

impl From<Clamped> for GrantView {
    fn from(clamped: Clamped) -> GrantView {
        let Clamped { requested, granted, bound } = clamped;
        GrantView { requested, granted, bound_by: bound }
    }
}

/// What was granted, of money and of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct GrantsView {
    /// What may be spent in all, in micro-USD.
    pub max_spend_micro_usd: GrantView,
    /// When it ends.
    pub expires_ms: GrantView,
}

impl From<Granted> for GrantsView {
    fn from(granted: Granted) -> GrantsView {
        GrantsView {
            max_spend_micro_usd: granted.spend.into(),
            expires_ms: granted.expires_ms.into(),
        }
    }
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct JobView {
    /// Names it.
    pub job_id: String,
    /// What its owner calls it.
    pub name: String,
    /// `running`, `stopped`, `stopped_due_to_budget`, `stopped_due_to_balance`, `expired` or `idle`.
    pub status: String,
    /// What all its sandboxes may spend.
    pub max_spend_micro_usd: i64,
    /// The same in cents.
    pub max_spend_cents: String,
    /// What they have spent.
    pub spent_micro_usd: i64,
    /// The same in cents.
    pub spent_cents: String,
    /// What is held for the first minutes of those that start.
    pub held_micro_usd: i64,
    /// What may still be spent.
    pub left_micro_usd: i64,
    /// The same in cents.
    pub left_cents: String,
    /// When it was made.
    pub created_ms: UnixMs,
    /// When it ends.
    pub expires_ms: UnixMs,
    /// How long that is from now.
    pub left_ms: i64,
    /// What the next minute of all that starts or runs in it costs.
    pub burn_micro_usd_per_minute: i64,
    /// How long it goes on at least if nothing changes: its time, what its budget and the account still pay.
    pub lasts_ms: i64,
    /// After how long without use it ends.
    pub idle_timeout_ms: Option<i64>,
    /// When it was used last.
    pub last_activity_ms: UnixMs,
    /// When it ended.
    pub ended_ms: Option<UnixMs>,
    /// Goes into an extension.
    pub version: i64,
    /// What was granted of what was asked for, in the answer to that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granted: Option<GrantsView>,
}

impl JobView {
    pub(crate) fn of(job: &Job, pace: &Pace, now_ms: UnixMs) -> JobView {
        let runs = job.ended_ms.is_none();
        let Lasts { burn, lasts_ms } = pace.job(job, now_ms);
        JobView {
            job_id: job.job_id.to_string(),
            name: job.name.clone(),
            status: job.status.as_str().to_owned(),
            max_spend_micro_usd: job.max_spend,
            max_spend_cents: cents(job.max_spend),
            spent_micro_usd: job.spent,
            spent_cents: cents(job.spent),
            held_micro_usd: job.held,
            left_micro_usd: job.left(),
            left_cents: cents(job.left()),
            created_ms: job.created_ms,
            expires_ms: job.expires_ms,
            left_ms: left_ms(runs.then_some(job.expires_ms), now_ms).unwrap_or(0),
            burn_micro_usd_per_minute: burn,
            lasts_ms,
            idle_timeout_ms: job.idle_timeout_ms,
            last_activity_ms: job.last_activity_ms,
            ended_ms: job.ended_ms,
            version: job.version,
            granted: None,
        }
    }

    pub(crate) fn granted(job: &Job, granted: Granted, pace: &Pace, now_ms: UnixMs) -> JobView {
        JobView { granted: Some(granted.into()), ..JobView::of(job, pace, now_ms) }
    }
}

/// A page of jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Jobs {
    /// The newest first.
    pub jobs: Vec<JobView>,
    /// Where the next page begins, if there may be one.
    pub next: Option<String>,
}
