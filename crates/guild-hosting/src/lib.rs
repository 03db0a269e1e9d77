//! Sandboxes that agents buy by the minute, where an unpaid minute never runs.
//!
//! | module | what it settles |
//! |---|---|
//! | [`access`] | who may ask, and that asking twice is asking once |
//! | [`user`] | who buys: a wallet or a Nostr key |
//! | [`price`] | what a minute of a shape costs |
//! | [`clamp`] | what is granted of what is asked for, and what decided |
//! | [`job`] | bounded spending windows that own sandboxes |
//! | [`sandbox`] | what is bought, from the first minute that is held to the last that is paid |
//! | [`meter`] | each minute is paid before it begins, or the sandbox ends |
//! | [`upkeep`] | the loop of the meter |
//! | [`money`] | deposits, balance and burn, statements, withdrawals behind a reserve, quotes |
//! | [`port`] | which ports of a sandbox have an address |
//! | [`machine`] | what sandboxes run on, and who looks after them there |
//! | [`audit`] | recomputes all of it from rows and ledger |
//! | [`desk`] | where all of it is asked for: who asks, whether again, and then the change, in one transaction |
//! | [`api`] | what is said over the wire |
//!
//! Every change of state is one function that is called inside a transaction, together with its transfers: a crash
//! finds either all of it or nothing. The money is in micro-USD. Work is found by reading rows; the bell [`TOPIC`] only
//! hints at it.
// Whoever computes with money must get an error, never a panic or a wrapped number.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing, clippy::panic, clippy::float_arithmetic)]

pub mod access;
pub mod api;
pub mod audit;
pub mod clamp;
pub mod desk;
mod error;
mod event;
pub mod job;
pub mod machine;
pub mod meter;
pub mod money;
mod pace;
#[cfg(test)]
mod plans;
pub mod port;
pub mod price;
mod row;
pub mod sandbox;
pub mod upkeep;
pub mod user;

pub use error::{Error, Result, code};
pub use event::TOPIC;
pub use job::HostingJobId;
pub use money::{HostingQuoteId, WithdrawalId};
pub use sandbox::SandboxId;
pub use user::UserId;

use guild_store::{Migration, Sql};

/// The tables of this crate.
pub fn migrations() -> Vec<Migration> {
    let mut all = access::migrations();
    all.push(Migration {
        area: "hosting",
        number: 1,
        name: "hosting",
        sql: Sql {
            lite: include_str!("../migrations/sqlite/0001_hosting.sql"),
            pg: include_str!("../migrations/postgres/0001_hosting.sql"),
        },
    });
    all.push(Migration {
        area: "hosting",
        number: 2,
        name: "port",
        sql: Sql {
            lite: include_str!("../migrations/sqlite/0002_port.sql"),
            pg: include_str!("../migrations/postgres/0002_port.sql"),
        },
    });
    all.push(Migration {
        area: "hosting",
        number: 3,
        name: "running",
        sql: Sql {
            lite: include_str!("../migrations/sqlite/0003_running.sql"),
            pg: include_str!("../migrations/postgres/0003_running.sql"),
        },
    });
    all
}
