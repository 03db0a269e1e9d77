//! The log for readers: its rows with what they changed, and whether all of it is what was written.

use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_store::Rx;

use super::log::{self, replay};
use super::snapshot::recover;
use super::{Effect, Entry, Options, TaskType};
use crate::Result;

/// A row of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// Names the change by what it is.
    pub key: String,
    /// What happened, and what the entry is since.
    pub effect: Effect,
    /// What the entry was before; nothing if there was none.
    pub before: Option<Entry>,
    /// The hash of the row, which covers the one before it.
    pub hash: Hash,
    /// Whether the row is what its hash says.
    pub is_whole: bool,
}

/// Which rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// Those of this work.
    pub task: Option<TaskType>,
    /// Those of this provider.
    pub provider: Option<PublicKey>,
    /// Those with a smaller number than this.
    pub before_seq: Option<i64>,
}

/// Rows of the log, the newest first.
pub fn rows(rx: &mut Rx<'_>, asked: &Asked, limit: i64) -> Result<Vec<Logged>> {
    log::rows_before(rx, asked, limit)
}

/// What came of looking at everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Rows that are what was written, from the first on.
    pub rows: i64,
    /// The hash of the last row.
    pub head: Hash,
    /// What is wrong: nothing.
    pub problems: Vec<String>,
    /// Snapshots that cannot be used, by their row, and why: a start takes longer, and that is all.
    pub damaged: Vec<(i64, String)>,
}

/// Replays the log from its first row, checking every hash, and compares what it gives with what a start would take
/// from the newest snapshot.
pub fn check(rx: &mut Rx<'_>, options: &Options) -> Result<Checked> {
    let (rows, head) = log::head(rx)?;
    let mut checked = Checked { rows, head, problems: Vec::new(), damaged: Vec::new() };
    let whole = match replay(rx, options) {
        Ok(matrix) => matrix,
        // Only what the log itself says wrong: a store that cannot be read is no answer.
        Err(error @ (crate::Error::Refused { .. } | crate::Error::Protocol(_))) => {
            checked.problems.push(error.to_string());
            return Ok(checked);
        }
        Err(error) => return Err(error),
    };
    checked.problems.extend(whole.problems());
    let recovered = recover(rx, options)?;
    if recovered.matrix != whole {
        let seq = recovered.snapshot_seq.unwrap_or(0);
        checked.problems.push(format!("the snapshot of row {seq} is not what the log gives"));
    }
    checked.damaged = recovered.damaged;
    Ok(checked)
}
