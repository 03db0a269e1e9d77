//! Disputes about results: who files one, what is held while it is open, who decides, and what the money does then.
//!
//! | how the money stands | while it is open | `release` | `withhold` |
//! |---|---|---|---|
//! | held: the order is `delivered` | stays held, nothing is settled | paid from it | given back |
//! | `withheld` | held anew, as much as is due | paid, with a receipt of its own | given back |
//! | `released` | what we owe for it is held | stays | given back, if the provider agrees |
//!
//! Of one request there is one dispute, and it is decided once. [`decide`] says what is to be done and is pure; what it
//! says and what the money does because of it is one transaction. What cannot be booked now stays pending, and is found
//! by its row; it is tried less and less often, and then given up, with what it waits for. Each of the two has a row of
//! its own, and its own book: between nodes a receipt is an IOU, so nobody takes back what somebody else has booked.
//!
//! A dispute is no weapon: work that can be checked again is checked at once, a counterparty has few open at a time,
//! each that it loses costs it trust or credit, and whoever has lost several in a row has nothing held any more.

use std::collections::BTreeSet;

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::Event;
use guild_store::{Migration, Sql, Tx};
use serde_json::json;

use crate::Result;
use crate::event::tell;
use crate::settle::Keys;

pub mod audit;
mod close;
mod decide;
mod file;
mod hear;
mod money;
mod read;
mod verdict;
mod wait;

pub use close::{advance, due, failed, put_off, retry};
pub use decide::{Facts, Fallback, State, Step, binds, decide};
pub use file::{Filing, answer, file, resolve};
pub use guild_protocol::nostr::dispute::{
    By, DisputeId, Message, Outcome, Parties, Reason, Reference, Said, Side, is_dispute,
};
pub use hear::{Heard, hear};
pub(crate) use money::take_payment;
pub use read::{
    Dispute, Statement, all_of, find, get, is_open, lost_in_row, of_request, page_before, said_in,
};
pub(crate) use verdict::{ruling, settled};
pub use wait::{TRIES_MAX, Wait};

/// The migration of this module.
pub(crate) fn migration() -> Migration {
    let sql = Sql {
        lite: include_str!("../migrations/sqlite/0014_disputes.sql"),
        pg: include_str!("../migrations/postgres/0014_disputes.sql"),
    };
    Migration { area: "market", number: 14, name: "disputes", sql }
}

/// The migration of what is not tried for ever.
pub(crate) fn migration_of_waits() -> Migration {
    let sql = Sql {
        lite: include_str!("../migrations/sqlite/0020_disputes_given_up.sql"),
        pg: include_str!("../migrations/postgres/0020_disputes_given_up.sql"),
    };
    Migration { area: "market", number: 20, name: "disputes_given_up", sql }
}

/// How disputes are made and taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// How long somebody may decide.
    pub window_ms: i64,
    /// What holds then.
    pub fallback: Fallback,
    /// Whose decisions bind us.
    pub arbiters: BTreeSet<PublicKey>,
    /// For how long after its delivery a result can be disputed.
    pub file_ms: i64,
    /// How many that one counterparty filed are open at a time,
    pub open_max_of_one: i64,
    /// and how many in all.
    pub open_max: i64,
    /// Whoever has lost so many in a row has nothing held any more.
    pub lost_max: u64,
    /// What was lost longer ago is forgotten.
    pub lost_ms: i64,
}

impl Default for Options {
    fn default() -> Options {
        const DAY_MS: i64 = 24 * 3_600_000;
        Options {
            window_ms: 3 * DAY_MS,
            fallback: Fallback::Stands,
            arbiters: BTreeSet::new(),
            file_ms: 30 * DAY_MS,
            open_max_of_one: 4,
            open_max: 64,
            lost_max: 3,
            lost_ms: LOST_MS,
        }
    }
}

/// A dispute that was lost longer ago is forgotten.
pub(crate) const LOST_MS: i64 = 90 * 24 * 3_600_000;

/// Under which key something is done about disputes, and how.
#[derive(Clone, Copy)]
pub struct Desk<'a> {
    /// Signs, and opens what is encrypted.
    pub keys: Keys<'a>,
    /// How.
    pub options: &'a Options,
}

/// What was done.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// The dispute as it stands.
    pub dispute: Dispute,
    /// What is to be published in this transaction.
    pub events: Vec<Event>,
    /// Whether the work is to be checked again before anything else.
    pub is_to_check: bool,
}

impl Done {
    fn of(dispute: Dispute) -> Done {
        Done { dispute, events: Vec::new(), is_to_check: false }
    }
}

/// Tells that a dispute has come to the state in which it is. Anybody may follow these events: what was said is not in
/// them.
fn tell_of(tx: &mut Tx<'_>, dispute: &Dispute, now_ms: UnixMs) -> Result<()> {
    let state = match dispute.given_up {
        true => "given_up",
        false => dispute.state.as_str(),
    };
    let mut body = json!({
        "dispute_id": dispute.dispute_id, "side": dispute.side.as_str(), "request_id": dispute.request_id,
        "filed_by": dispute.filed_by.as_str(), "state": state, "by": dispute.by.map(By::as_str),
        "outcome": dispute.outcome.map(Outcome::as_str),
    });
    let mut id = format!("{}:{}:{state}", dispute.dispute_id, dispute.side.as_str());
    if dispute.given_up {
        // Whoever has it tried again may have it given up again.
        id = format!("{id}:{now_ms}");
        if let (Some(body), Some(wait)) = (body.as_object_mut(), dispute.waits_for) {
            body.insert("waits_for".to_owned(), wait.as_str().into());
        }
    }
    tell(tx, &id, &format!("dispute.{state}"), &body, now_ms)
}
