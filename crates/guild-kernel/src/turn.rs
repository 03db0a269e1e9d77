//! The life of a turn.
//!
//! | from | to | by |
//! |---|---|---|
//! | – | queued | [`enqueue_all`]: accepted once for each correlation |
//! | queued | dispatched | whatever leaves its agent idle: the oldest first; what is unfit is closed with a code |
//! | dispatched | running | [`claim`]: in the order of time and acceptance, under a lease |
//! | running | running | [`commit_all`] with [`Then::Continue`] |
//! | running | suspended | [`commit_all`] with [`Then::Suspend`]: calls, deadlines and commands |
//! | suspended | dispatched | [`report_all`]: the last result that was missing |
//! | running, lease over or given back | dispatched | [`sweep`], [`give_back_all`] |
//! | suspended, deadline over | dispatched | [`sweep`]: a result that says so |
//! | suspended, batch over | dispatched | the end of the last task, or [`sweep`] |
//! | any open | closed | [`commit_all`] with [`Then::Finish`], [`stop_all`], a result that ends the turn, too many lost leases |
//! | queued | closed | [`cancel`] |
//!
//! All of these take sets and answer one by one: what is refused or fenced changes nothing, and takes nobody down.
//! Every end writes the one deliverable and the one terminal event of its turn, answers the call that the turn was
//! asked for by, has what it asked others for stopped, and begins the next turn of its agent.

use guild_protocol::env::UnixMs;

use crate::{AgentKey, AgentTurnId, Error, LeaseToken, Result, StepId, code};

mod answer;
mod claim;
mod close;
mod commit;
mod dispatch;
mod enqueue;
pub mod head;
mod join;
mod mark;
mod plan;
pub mod recall;
mod report;
mod run;
mod settle;
pub mod step;
mod stop;
pub mod sweep;
pub mod wait;

pub use claim::{Claim, Claimed, claim, give_back_all, heartbeat_all};
pub use commit::{Call, Commit, Committed, Finish, StepCard, Then, commit_all};
pub use enqueue::{Accepted, NewTurn, Parent, enqueue_all};
pub use mark::put_aside;
pub use report::{Report, Reported, report_all};
pub use run::{PickedUp, RunFence, pick_up, renew_runs, report_runs, runs_due};
pub use settle::COMMAND_SINK;
pub use stop::{Stop, Stopped, cancel, stop_all};

#[cfg(test)]
pub(crate) use plan::statements;

/// Turns that ask turns are nested less deeply than this.
pub const DEPTH_MAX: i64 = 20;
/// So many leases of one step are lost before its turn is given up.
pub const LOST_LEASES_MAX: i64 = 5;
/// The most calls that one step makes.
pub const CALLS_MAX: usize = 64;
/// The most cards that one step writes.
pub const CARDS_MAX: usize = 256;
/// The longest lease, and the longest wait for a call.
pub const LONGEST_MS: i64 = 7 * 24 * 3_600_000;
/// The most items of one call.
pub const SET_MAX: usize = 1_024;

/// What a worker must show with every write: which turn it works on, and that it still has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// Whose turn.
    pub key: AgentKey,
    /// Which turn.
    pub agent_turn_id: AgentTurnId,
    /// Under which lease: its number,
    pub turn_epoch: i64,
    /// and its secret.
    pub token: LeaseToken,
    /// Which step: a step is written once.
    pub step_id: StepId,
}

fn fenced(fence: &Fence) -> Error {
    let Fence { agent_turn_id, turn_epoch, .. } = fence;
    Error::refused(&code::FENCED, format!("epoch {turn_epoch} of {agent_turn_id} is over"))
}

pub(crate) fn unknown_turn(agent_turn_id: &AgentTurnId) -> Error {
    Error::refused(&code::UNKNOWN_TURN, format!("there is no turn {agent_turn_id}"))
}

/// When something ends that begins now and lasts so long.
fn end_of(what: &str, duration_ms: i64, now_ms: UnixMs) -> Result<UnixMs> {
    if (1..=LONGEST_MS).contains(&duration_ms) {
        return Ok(now_ms.saturating_add(duration_ms));
    }
    let message = format!("{what} lasts from 1 to {LONGEST_MS} ms, not {duration_ms}");
    Err(Error::refused(&code::MALFORMED, message))
}

/// Until when a lease lasts that is renewed. A clock that went back a little takes nothing away. What would last twice
/// as long as is asked for now, a wrong clock has given: whoever takes over from a dead worker would wait for it.
fn renewed(held_ms: UnixMs, asked_ms: UnixMs, now_ms: UnixMs) -> UnixMs {
    let longest_ms = asked_ms.saturating_add(asked_ms.saturating_sub(now_ms));
    if held_ms <= longest_ms { held_ms.max(asked_ms) } else { asked_ms }
}

/// How long a run is given where turns are given for so long: somebody waits for it, and whoever takes it over needs
/// time too.
pub fn run_ttl_ms(ttl_ms: i64) -> i64 {
    (ttl_ms / 2).max(1)
}

/// A set is no larger than a transaction should be.
fn check_count(items: usize) -> Result<()> {
    if items <= SET_MAX {
        return Ok(());
    }
    let message = format!("one call takes at most {SET_MAX} items, not {items}");
    Err(Error::refused(&code::TOO_LARGE, message))
}
