//! Whole roles made of the lower layers, and the use cases they share.
//!
//! | module | what it does |
//! |---|---|
//! | [`provider`] | announces itself, takes requests, works, delivers, takes receipts |
//! | [`budget`] | how much may be spent on which kind of work |
//! | [`buyer`] | hires: posts orders, takes results, has them judged, pays |
//! | [`lifecycle`] | looks at everybody now and then: heartbeat benchmarks, hidden tests, cooldowns and what follows |
//! | [`meeting`] | gets to know providers: benchmarks them, and tells the routing matrix |
//! | [`workshop`] | runs commands in sandboxes, for both |
//! | [`agents`] | agents and their turns, as the operator sees them |
//! | [`tools`] | what the agents of a node can call |
//! | [`live`] | what their models are saying right now |
//! | [`explorer`] | reads the market, for people and programs |
//! | [`turn`] | lets strangers read without keeping the node from its work |
//! | [`judge_model`] | a model as the judge of what nobody agrees on |
//! | [`judgements`] | verdicts of the judge over time |
//! | [`discovery`] | who is there: the registry of providers, kept up to date and compared with the matrix |
//! | [`router`] | who is hired for which work: the routing matrix, its log and its snapshots |
//! | [`disputes`] | disputes about results: files them, hears them, decides what time and rules decide |
//! | [`reviews`] | says in public what became of providers, and listens to what others say |
//! | [`relays`] | the relays of others, as the operator sees them |
//! | [`audit_log`], [`treasury`], [`outbox`], [`sweeper`] | the node's log, money, outgoing messages, what runs out |

pub mod agents;
mod alone;
pub mod audit_log;
pub mod budget;
pub mod buyer;
mod counts;
mod cursor;
pub mod discovery;
pub mod disputes;
mod error;
pub mod explorer;
mod feed;
mod holding;
pub mod judge_model;
pub mod judgements;
mod later;
pub mod lifecycle;
pub mod live;
pub mod meeting;
pub mod outbox;
pub mod provider;
pub mod reference;
pub mod relays;
pub mod reviews;
pub mod router;
pub mod sweeper;
pub mod tools;
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
