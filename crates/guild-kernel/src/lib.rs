//! Durable agent turns that end exactly once, whatever dies.
//!
//! | module | what it settles |
//! |---|---|
//! | [`roster`] | who works in a project, how they think, what they may call |
//! | [`card`], [`boxes`] | what was said and delivered, and the lists that turns read and write |
//! | [`inbox`] | what was asked of agents, in the order in which it came |
//! | [`turn`] | the life of a turn: accept, dispatch, claim, commit, report, stop, sweep |
//! | [`pmo`] | turns that ask turns: delegation, fork and join, agents made by agents |
//! | [`edge`] | who asked whom, and who answered |
//! | [`model`], [`tool`] | what thinks, and what is called in the worker's own process |
//! | [`story`], [`replay`] | turns as people read them, and as a sealed replay |
//! | [`worker`] | takes turns, asks the model, runs tools, and writes what came out |
//! | [`outside`] | commands to other processes and their results, and what happens told over the bus |
//! | [`audit`] | recomputes from rows what must hold |
//!
//! A turn's whole life is rows. Every change loads rows, decides purely, and writes the rows, the event, what must
//! leave the node and the bells in one transaction. Whatever a transaction learns it applies itself: a report resumes
//! the turn that waited for it, and the end of a turn begins the next one of its agent. So there is no state in which
//! only a message could help, and a worker only thinks between two writes that its lease fences.
// Whoever counts leases and places must get an error, never a panic or a wrapped number.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing, clippy::panic, clippy::float_arithmetic)]

pub mod audit;
pub mod boxes;
pub mod card;
pub mod edge;
mod error;
mod event;
mod id;
pub mod inbox;
pub mod model;
pub mod outside;
#[cfg(test)]
mod plans;
pub mod pmo;
pub mod replay;
pub mod roster;
mod row;
pub mod story;
pub mod tool;
mod trace;
pub mod turn;
pub mod worker;

pub use error::{Error, Result, code};
pub use event::{QUEUED, STATE, STEP, TASK, TOPIC};
pub use id::{
    AgentId, AgentKey, AgentTurnId, BatchId, BoxId, CardId, ChannelId, EdgeId, InboxId, LeaseToken,
    ProjectId, StepId, ToolCallId,
};

use guild_store::{Migration, Sql};

/// The tables of this crate.
pub fn migrations() -> Vec<Migration> {
    let migration =
        |number, name, lite, pg| Migration { area: "kernel", number, name, sql: Sql { lite, pg } };
    vec![
        migration(
            1,
            "kernel",
            include_str!("../migrations/sqlite/0001_kernel.sql"),
            include_str!("../migrations/postgres/0001_kernel.sql"),
        ),
        migration(
            2,
            "pmo",
            include_str!("../migrations/sqlite/0002_pmo.sql"),
            include_str!("../migrations/postgres/0002_pmo.sql"),
        ),
        migration(
            3,
            "ends",
            include_str!("../migrations/sqlite/0003_ends.sql"),
            include_str!("../migrations/postgres/0003_ends.sql"),
        ),
        migration(
            4,
            "cards",
            include_str!("../migrations/sqlite/0004_cards.sql"),
            include_str!("../migrations/postgres/0004_cards.sql"),
        ),
        migration(
            5,
            "timeouts",
            include_str!("../migrations/sqlite/0005_timeouts.sql"),
            include_str!("../migrations/postgres/0005_timeouts.sql"),
        ),
    ]
}
