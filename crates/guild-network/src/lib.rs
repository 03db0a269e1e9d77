//! The open world: what comes in from relays, what is kept of it, and what is published to them.
//!
//! | module | what it settles |
//! |---|---|
//! | [`archive`] | the events that are kept, and finding them again |
//! | [`client`] | the relays of others: connections, what is fetched and followed, what is published |
//! | [`content`] | blocks by their hash: kept, pinned, collected, and fetched from others |
//! | [`index`] | what the events say about providers, requests and answers, as rows |
//! | [`intake`] | from an event that somebody brings to one that is stored |
//! | [`keeper`] | keeping the archive within its bounds |
//! | [`marks`] | how far each relay has been read |
//! | [`publish`] | our own events: kept, queued for relays, and what those said |
//! | [`relay`] | the embedded relay, for strangers |

pub mod archive;
pub mod client;
pub mod content;
mod error;
pub mod index;
pub mod intake;
pub mod keeper;
pub mod marks;
pub mod publish;
pub mod relay;
mod sync;

pub use error::{Error, Result, code};

/// The tables of this crate.
pub fn migrations() -> Vec<guild_store::Migration> {
    vec![archive::migration(), index::migration(), marks::migration(), content::migration()]
}
