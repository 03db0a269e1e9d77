//! What is to be done with a sandbox next. Pure: it follows from its row, what is known of its agent, and the time.

use guild_protocol::env::UnixMs;

use super::Options;
use crate::price::Shape;
use crate::sandbox::{Sandbox, Status};

/// What is known of an agent, and of what was tried. Nothing of it must be kept: whoever starts anew finds it out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Note {
    /// Until when its lease goes, as it said itself.
    pub leased_ms: Option<UnixMs>,
    /// Whether everything in it stands still, as it said itself.
    pub frozen: Option<bool>,
    /// The shape that its machine has given it; not known if the machine cannot give another.
    pub shape: Option<Shape>,
    /// When it last said how it is.
    pub seen_ms: Option<UnixMs>,
    /// How often in a row something failed, and when it is tried again.
    pub tries: u32,
    /// Nothing is tried before.
    pub not_before_ms: UnixMs,
}

impl Note {
    /// Something failed: the next try waits, twice as long each time.
    pub(super) fn failed(&mut self, options: &Options, now_ms: UnixMs) {
        let factor = 1_i64.checked_shl(self.tries.min(20)).unwrap_or(i64::MAX);
        let pause_ms = options.backoff_min_ms.saturating_mul(factor).min(options.backoff_max_ms);
        self.tries = self.tries.saturating_add(1);
        self.not_before_ms = now_ms.saturating_add(pause_ms);
    }

    /// Something was done.
    pub(super) fn done(&mut self) {
        (self.tries, self.not_before_ms) = (0, UnixMs::MIN);
    }
}

/// The next thing to do. The order is that of urgency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    /// Its time is over: end everything inside.
    Stop,
    /// It is paid for longer than its agent knows: say so.
    Lease {
        /// Until then.
        until_ms: UnixMs,
    },
    /// Let everything stand still.
    Freeze,
    /// Let everything go on.
    Thaw,
    /// Give it the shape that is paid.
    Resize(Resized),
    /// It was removed, or never ran: let nothing be left.
    Remove,
    /// Ask its agent how it is.
    Look,
    /// Have it made, checked and begun.
    Start,
    /// Nothing now.
    Nothing,
}

/// A shape to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resized {
    /// In thousandths of a core.
    pub cpu_milli: i64,
    /// Memory.
    pub ram_mib: i64,
}

/// What to do with a sandbox now.
pub fn next_act(sandbox: &Sandbox, note: &Note, options: &Options, now_ms: UnixMs) -> Act {
    // A clock that was set back must not make anybody wait for long.
    let latest_ms = now_ms.saturating_add(options.backoff_max_ms);
    if note.not_before_ms > now_ms && note.not_before_ms <= latest_ms {
        return Act::Nothing;
    }
    match sandbox.status {
        Status::Starting => Act::Start,
        Status::Running => while_it_runs(sandbox, note, options, now_ms),
        Status::Ending if sandbox.started_ms.is_none() => Act::Remove,
        Status::Ending => {
            let until_ms = may_run_until(sandbox, options);
            // At its end the agent stops by itself; it only has to be asked how long it ran.
            let is_over = until_ms <= now_ms;
            if is_over { Act::Stop } else { lease(note, until_ms, now_ms).unwrap_or(Act::Nothing) }
        }
        Status::Destroying => Act::Remove,
        Status::Stopped | Status::Destroyed | Status::Failed => Act::Nothing,
    }
}

fn while_it_runs(sandbox: &Sandbox, note: &Note, options: &Options, now_ms: UnixMs) -> Act {
    let lease = lease(note, may_run_until(sandbox, options), now_ms);
    let pause = match (sandbox.paused, note.frozen) {
        (true, Some(false)) => Some(Act::Freeze),
        (false, Some(true)) => Some(Act::Thaw),
        _ => None,
    };
    let shape = sandbox.shape_at(now_ms);
    let resize = note.shape.filter(|known| *known != shape).map(|_| {
        let Shape { cpu_milli, ram_mib, .. } = shape;
        Act::Resize(Resized { cpu_milli, ram_mib })
    });
    let seen_since = now_ms.saturating_sub(options.look_ms);
    let look = note.seen_ms.is_none_or(|seen_ms| seen_ms <= seen_since || seen_ms > now_ms);
    let look = look.then_some(Act::Look);
    lease.or(pause).or(resize).or(look).unwrap_or(Act::Nothing)
}

/// Until when its lease may go: before what is paid is over, by as much as its agent may take to end it. So it never
/// runs longer than it is paid for.
pub(super) fn may_run_until(sandbox: &Sandbox, options: &Options) -> UnixMs {
    let ends_ms = sandbox.ends_ms.unwrap_or(UnixMs::MIN);
    ends_ms.saturating_sub(options.margin_ms)
}

/// A lease that says more than the last, if it is not over already.
fn lease(note: &Note, until_ms: UnixMs, now_ms: UnixMs) -> Option<Act> {
    let says_more = note.leased_ms.is_none_or(|leased_ms| leased_ms < until_ms);
    (says_more && until_ms > now_ms).then_some(Act::Lease { until_ms })
}
