//! What is bought by the minute.
//!
//! | from | to | when |
//! |---|---|---|
//! | | `starting` | [`create`]: the first minute is held |
//! | `starting` | `running` | [`started`]: the first minute is paid and begins |
//! | `running` | `running` | [`crate::meter::tick`]: the next minute is paid; [`extend`], [`resize`], [`pause`] |
//! | `starting`, `running` | `ending` | [`stop`], [`crate::job::stop`], or the meter: it runs until `ends_ms` at most |
//! | `running`, `ending` | `stopped` | [`stopped`]: its files are kept |
//! | `starting`, `running`, `ending` | `failed` | [`failed`]: it never ran, or its machine is lost |
//! | any but `destroyed` | `destroying` | [`destroy`], or the meter when its files were kept long enough |
//! | `destroying`, `stopped`, `failed` | `destroyed` | [`destroyed`] |
//!
//! Minute 0 is held by the order, and paid when it starts. Minute *k* begins *k* minutes after the start and is paid
//! before. `ends_ms` is the smallest of what is paid and the ends of sandbox and job: it is what a lease says, so it
//! never lies beyond what is paid. Whatever the owner does with it counts as use; minutes do not change its version.

use guild_ledger::TransferId;
use guild_protocol::env::UnixMs;
use guild_protocol::typed_id;
use serde_json::json;

use crate::event::Told;
use crate::meter::LEAD_MS;

mod change;
mod create;
mod end;
mod life;
mod read;
mod state;

pub use change::{destroy, extend, pause, resize, resume, stop, touch};
pub(crate) use change::{forget, run_until_job_ends, short_for};
pub use create::{NewSandbox, Placed, SecurityMode, create};
pub(crate) use end::{Ends, end_all, give_back, set_run};
pub(crate) use life::shown;
pub use life::{KEEP_MS, destroyed, failed, placed, reported, secrets_released, started, stopped};
pub use read::{NextShape, Sandbox, find, get, open_after, page_before, page_of_all, page_of_job};
pub(crate) use read::{
    Opened, all_after, burn_of_all, burns, count_live, known, live_of_job, open_of_user,
    opened_after, with_ids,
};
pub use state::{Reason, Status};

#[cfg(test)]
pub(crate) use read::{BURN_OF_ALL, OPEN, OPEN_OF_ALL};

typed_id! {
    /// Names a sandbox.
    SandboxId = "sbx", made;
}

/// What is bought: a minute.
pub const MINUTE_MS: i64 = 60_000;
/// What has not started by then never does.
pub const START_MAX_MS: i64 = 600_000;

/// Until when a sandbox may run.
pub fn run_until(paid_until_ms: UnixMs, expires_ms: UnixMs, job_expires_ms: UnixMs) -> UnixMs {
    paid_until_ms.min(expires_ms).min(job_expires_ms)
}

/// When the meter begins to look at a sandbox that ends then.
pub(crate) fn due_before(ends_ms: UnixMs) -> UnixMs {
    ends_ms.saturating_sub(LEAD_MS)
}

/// The transfer that holds the first minute.
pub(crate) fn hold_id(sandbox_id: &SandboxId, created_ms: UnixMs) -> TransferId {
    TransferId::named(created_ms, &["sandbox.hold", sandbox_id.as_str()])
}

/// The transfer that pays the first minute.
pub(crate) fn start_id(sandbox_id: &SandboxId, created_ms: UnixMs) -> TransferId {
    TransferId::named(created_ms, &["sandbox.start", sandbox_id.as_str()])
}

/// The words of the transfer that pays a later minute.
pub(crate) fn minute_words<'a>(sandbox_id: &'a str, number: &'a str) -> [&'a str; 3] {
    ["sandbox.minute", sandbox_id, number]
}

/// Tells how a sandbox stands. The version names the happening.
pub(crate) fn told(sandbox: &Sandbox) -> Told {
    let status = sandbox.status.as_str();
    Told {
        id: format!("{}:{}", sandbox.sandbox_id, sandbox.version),
        kind: format!("sandbox.{status}"),
        body: json!({
            "sandbox_id": sandbox.sandbox_id, "job_id": sandbox.job_id, "user_id": sandbox.user_id.as_str(),
            "status": status, "reason": sandbox.stop_reason, "price": sandbox.next_price(), "spent": sandbox.spent,
            "cap": sandbox.cap, "ends_ms": sandbox.ends_ms, "expires_ms": sandbox.expires_ms,
            "paused": sandbox.paused, "version": sandbox.version,
        }),
    }
}
