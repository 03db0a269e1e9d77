//! The open world: what comes in from relays, what is kept of it, and what is published to them.
//!
//! | module | what it settles |
//! |---|---|
//! | [`archive`] | the events that are kept, and finding them again |
//! | [`index`] | what the events say about providers, requests and answers, as rows |
//! | [`intake`] | from an event that somebody brings to one that is stored |

pub mod archive;
mod error;
pub mod index;
pub mod intake;

pub use error::{Error, Result, code};

/// The tables of this crate.
pub fn migrations() -> Vec<guild_store::Migration> {
    vec![archive::migration(), index::migration()]
}
