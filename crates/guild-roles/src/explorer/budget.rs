//! Envelopes, for readers.

use guild_market::budget::{self, Change, Standing};
use guild_protocol::env::UnixMs;
use guild_store::Rx;
use serde::Serialize;

use crate::Result;

/// So many changes are told beside the envelopes.
const CHANGES_MAX: i64 = 50;

/// Every envelope, and what changed them lately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Budgets {
    /// By name.
    pub envelopes: Vec<Standing>,
    /// The newest first.
    pub changes: Vec<Change>,
}

pub(super) fn read(rx: &mut Rx<'_>, now_ms: UnixMs) -> Result<Budgets> {
    let envelopes = budget::standings(rx, now_ms)?;
    Ok(Budgets { envelopes, changes: budget::log(rx, None, None, CHANGES_MAX)? })
}
