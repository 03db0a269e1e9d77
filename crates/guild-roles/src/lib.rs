//! Whole roles made of the lower layers, and the use cases they share.
//!
//! | module | what it does |
//! |---|---|
//! | [`provider`] | announces itself, takes requests, works, delivers, takes receipts |
//! | [`buyer`] | hires: posts orders, takes results, has them judged, pays |
//! | [`workshop`] | runs commands in sandboxes, for both |
//! | [`agents`] | agents and their turns, as the operator sees them |
//! | [`explorer`] | reads the market, for people and programs |
//! | [`turn`] | lets strangers read without keeping the node from its work |
//! | [`judgements`] | verdicts of the judge over time |
//! | [`relays`] | the relays of others, as the operator sees them |
//! | [`audit_log`], [`treasury`], [`outbox`], [`sweeper`] | the node's log, money, outgoing messages, what runs out |

pub mod agents;
mod alone;
pub mod audit_log;
pub mod buyer;
mod counts;
mod cursor;
mod error;
pub mod explorer;
mod feed;
mod holding;
pub mod judgements;
mod later;
pub mod outbox;
pub mod provider;
pub mod relays;
pub mod sweeper;
pub mod treasury;
pub mod turn;
mod workbench;
pub mod workshop;

pub use counts::Counts;
pub use error::{Error, Result, code};

/// The tables of this crate.
pub fn migrations() -> Vec<guild_store::Migration> {
    vec![cursor::migration()]
}
