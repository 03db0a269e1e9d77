//! Sandboxes, bought by the minute.

use guild_protocol::env::UnixMs;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{GrantsView, amount, cents, left_ms, malformed, seconds, within};
use crate::clamp::{Granted, NUMBER_MAX};
use crate::money::HostingQuoteId;
use crate::pace::{Lasts, Pace};
use crate::price::{Rates, Shape, per_minute};
use crate::sandbox::{NewSandbox, Sandbox, SecurityMode};
use crate::{HostingJobId, Result, SandboxId, UserId};

/// More than any machine has; what is sold is less, and says so.
const CPU_MILLI_MAX: i64 = 1_000_000;
const RAM_MIB_MAX: i64 = 16_777_216;

/// A sandbox that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSandboxBody {
    /// Its image, by version: `sandbox-base:v1.0.0`.
    #[schema(min_length = 1, max_length = 200, example = "sandbox-base:v1.0.0")]
    pub image: String,
    /// Thousandths of a virtual processor; one if not said.
    #[schema(minimum = 1, maximum = 1000000)]
    pub cpu_milli: Option<i64>,
    /// Memory; 512 if not said.
    #[schema(minimum = 1, maximum = 16777216)]
    pub ram_mib: Option<i64>,
    /// Disk; 256 if not said.
    #[schema(minimum = 1, maximum = 1073741824)]
    pub disk_mib: Option<i64>,
    /// What it may spend in all; what its job has left, if not said.
    #[schema(minimum = 1, maximum = 9007199254740991_i64)]
    pub max_spend_micro_usd: Option<i64>,
    /// The same in cents.
    #[schema(minimum = 1, maximum = 900719925474_i64)]
    pub max_spend_cents: Option<i64>,
    /// For how long; as long as its job, if not said.
    #[schema(minimum = 1, maximum = 31622400)]
    pub ttl_s: Option<i64>,
    /// After how long without use it ends; never, if not said.
    #[schema(minimum = 1, maximum = 31622400)]
    pub idle_timeout_s: Option<i64>,
    /// `standard`. `confidential` is not enabled.
    pub security_mode: Option<String>,
}

/// What is chosen for a sandbox, beside what its body says.
pub(crate) struct Chosen {
    pub(crate) sandbox_id: SandboxId,
    pub(crate) quote_id: HostingQuoteId,
    pub(crate) job_id: HostingJobId,
    pub(crate) user_id: UserId,
    pub(crate) image_digest: String,
    pub(crate) machine: String,
    pub(crate) ttl_max_ms: i64,
}

impl NewSandboxBody {
    pub(crate) fn security_mode(&self) -> Result<SecurityMode> {
        let word = self.security_mode.as_deref().unwrap_or("standard");
        match SecurityMode::parse(word) {
            Some(mode) => Ok(mode),
            None => malformed("security_mode: must be standard or confidential".to_owned()),
        }
    }

    pub(crate) fn asked(&self, chosen: Chosen) -> Result<NewSandbox> {
        let idle = self.idle_timeout_s.map(|idle| seconds("idle_timeout_s", idle)).transpose()?;
        let ttl_ms = self.ttl_s.map(|ttl| seconds("ttl_s", ttl)).transpose()?;
        let cap = amount("max_spend", self.max_spend_micro_usd, self.max_spend_cents)?;
        Ok(NewSandbox {
            sandbox_id: chosen.sandbox_id,
            quote_id: chosen.quote_id,
            job_id: chosen.job_id,
            user_id: chosen.user_id,
            shape: shape(self.cpu_milli, self.ram_mib, self.disk_mib),
            cap: cap.unwrap_or(NUMBER_MAX),
            ttl_ms: ttl_ms.unwrap_or(chosen.ttl_max_ms),
            idle_timeout_ms: idle,
            image: self.image.clone(),
            image_digest: chosen.image_digest,
            security_mode: self.security_mode()?,
            machine: chosen.machine,
        })
    }
}

/// What is meant if something is not said.
fn shape(cpu_milli: Option<i64>, ram_mib: Option<i64>, disk_mib: Option<i64>) -> Shape {
    Shape {
        cpu_milli: cpu_milli.unwrap_or(1_000),
        ram_mib: ram_mib.unwrap_or(512),
        disk_mib: disk_mib.unwrap_or(256),
    }
}

/// Another shape. What is not said stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeBody {
    /// The `version` that was read.
    #[schema(minimum = 0, maximum = 9007199254740991_i64)]
    pub version: i64,
    /// Thousandths of a virtual processor.
    #[schema(minimum = 1, maximum = 1000000)]
    pub cpu_milli: Option<i64>,
    /// Memory.
    #[schema(minimum = 1, maximum = 16777216)]
    pub ram_mib: Option<i64>,
}

/// What a shape would cost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PriceQuery {
    /// Thousandths of a virtual processor; 1000 if not said.
    #[param(minimum = 1, maximum = 1000000)]
    pub cpu_milli: Option<i64>,
    /// Memory; 512 if not said.
    #[param(minimum = 1, maximum = 16777216)]
    pub ram_mib: Option<i64>,
}

/// What a minute costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct PriceView {
    /// Thousandths of a virtual processor.
    pub cpu_milli: i64,
    /// Memory.
    pub ram_mib: i64,
    /// A minute of it.
    pub price_micro_usd_per_minute: i64,
    /// The same in cents.
    pub price_cents_per_minute: String,
    /// What each virtual processor adds.
    pub vcpu_micro_usd_per_minute: i64,
    /// What each GiB of memory adds.
    pub ram_gib_micro_usd_per_minute: i64,
    /// The images that are offered.
    pub images: Vec<String>,
}

impl PriceQuery {
    pub(crate) fn answer(&self, rates: &Rates, images: Vec<String>) -> Result<PriceView> {
        let shape = shape(self.cpu_milli, self.ram_mib, None);
        within("cpu_milli", shape.cpu_milli, CPU_MILLI_MAX)?;
        within("ram_mib", shape.ram_mib, RAM_MIB_MAX)?;
        let price = per_minute(rates, &shape)?;
        Ok(PriceView {
            cpu_milli: shape.cpu_milli,
            ram_mib: shape.ram_mib,
            price_micro_usd_per_minute: price,
            price_cents_per_minute: cents(price),
            vcpu_micro_usd_per_minute: rates.vcpu,
            ram_gib_micro_usd_per_minute: rates.ram_gib,
            images,
        })
    }
}

/// A sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SandboxView {
    /// Names it.
    pub sandbox_id: String,
    /// The job that pays for it.
    pub job_id: String,
    /// `starting`, `running`, `ending`, `stopped`, `destroying`, `destroyed` or `failed`.
    pub status: String,
    /// Why it ended: `sandbox_ttl`, `sandbox_idle`, `job_ttl`, `job_idle`, `sandbox_cap`, `job_cap`, `account`,
    /// `meter_gap`, `user`, `job_stopped`, `not_started` or `machine`.
    pub stop_reason: Option<String>,
    /// The same in words, if there are any.
    pub words: Option<String>,
    /// Thousandths of a virtual processor, now.
    pub cpu_milli: i64,
    /// Memory, now.
    pub ram_mib: i64,
    /// Disk.
    pub disk_mib: i64,
    /// What the next minute costs.
    pub price_micro_usd_per_minute: i64,
    /// The same in cents.
    pub price_cents_per_minute: String,
    /// What it may spend.
    pub max_spend_micro_usd: i64,
    /// What it has spent.
    pub spent_micro_usd: i64,
    /// The same in cents.
    pub spent_cents: String,
    /// How many minutes are paid.
    pub paid_minutes: i64,
    /// When it was ordered.
    pub created_ms: UnixMs,
    /// When its first minute began.
    pub started_ms: Option<UnixMs>,
    /// Until when it is paid, and runs if nothing more is paid.
    pub ends_ms: Option<UnixMs>,
    /// When it ends at the latest.
    pub expires_ms: UnixMs,
    /// How long that is from now; nothing once it has ended.
    pub left_ms: i64,
    /// What the next minute costs while it starts or runs, and nothing afterwards.
    pub burn_micro_usd_per_minute: i64,
    /// How long it goes on at least if nothing changes: its time and its job's, what its cap, the job's budget and the
    /// account still pay.
    pub lasts_ms: i64,
    /// After how long without use it ends.
    pub idle_timeout_ms: Option<i64>,
    /// When it was used last.
    pub last_activity_ms: UnixMs,
    /// Its image, by version.
    pub image: String,
    /// What that version was when it was bought.
    pub image_digest: String,
    /// Always `standard`.
    pub security_mode: String,
    /// Whether its secrets were released to it.
    pub secrets_released: bool,
    /// Whether its owner paused it. It stays paid for.
    pub paused: bool,
    /// Goes into an extension or a resize.
    pub version: i64,
    /// What was granted of what was asked for, in the answer to that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granted: Option<GrantsView>,
}

impl SandboxView {
    pub(crate) fn of(sandbox: &Sandbox, pace: &Pace, now_ms: UnixMs) -> SandboxView {
        let Lasts { burn, lasts_ms } = pace.sandbox(sandbox, now_ms);
        let shape = sandbox.shape_at(now_ms);
        let lives = sandbox.status.is_live();
        SandboxView {
            sandbox_id: sandbox.sandbox_id.to_string(),
            job_id: sandbox.job_id.to_string(),
            status: sandbox.status.as_str().to_owned(),
            stop_reason: sandbox.stop_reason.map(|reason| reason.as_str().to_owned()),
            words: sandbox.words.clone(),
            cpu_milli: shape.cpu_milli,
            ram_mib: shape.ram_mib,
            disk_mib: shape.disk_mib,
            price_micro_usd_per_minute: sandbox.next_price(),
            price_cents_per_minute: cents(sandbox.next_price()),
            max_spend_micro_usd: sandbox.cap,
            spent_micro_usd: sandbox.spent,
            spent_cents: cents(sandbox.spent),
            paid_minutes: sandbox.paid_minutes,
            created_ms: sandbox.created_ms,
            started_ms: sandbox.started_ms,
            ends_ms: sandbox.ends_ms,
            expires_ms: sandbox.expires_ms,
            left_ms: left_ms(lives.then_some(sandbox.expires_ms), now_ms).unwrap_or(0),
            burn_micro_usd_per_minute: burn,
            lasts_ms,
            idle_timeout_ms: sandbox.idle_timeout_ms,
            last_activity_ms: sandbox.last_activity_ms,
            image: sandbox.image.clone(),
            image_digest: sandbox.image_digest.clone(),
            security_mode: "standard".to_owned(),
            secrets_released: sandbox.secrets_ms.is_some(),
            paused: sandbox.paused,
            version: sandbox.version,
            granted: None,
        }
    }

    pub(crate) fn granted(
        sandbox: &Sandbox,
        granted: Granted,
        pace: &Pace,
        now_ms: UnixMs,
    ) -> SandboxView {
        SandboxView { granted: Some(granted.into()), ..SandboxView::of(sandbox, pace, now_ms) }
    }
}

/// A page of sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Sandboxes {
    /// The newest first.
    pub sandboxes: Vec<SandboxView>,
    /// Where the next page begins, if there may be one.
    pub next: Option<String>,
}
