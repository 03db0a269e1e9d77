//! The open world: what comes in from relays, what is kept of it, and what is published to them.
//!
//! | module | what it settles |
//! |---|---|
//! | [`archive`] | the events that are kept, and finding them again |
//! | [`client`] | the relays of others: connections, what is fetched and followed, what is published |
//! | [`content`] | blocks by their hash: kept, pinned, collected, and fetched from others |
//! | [`delivery`] | what became of requests to a provider at a relay |
//! | [`index`] | what the events say about providers, requests and answers, as rows |
//! | [`intake`] | from an event that somebody brings to one that is stored |
//! | [`keeper`] | keeping the archive within its bounds |
//! | [`marks`] | how far each relay has been read |
//! | [`publish`] | our own events: kept, queued for relays, and what those said |
//! | [`relay`] | the embedded relay, for strangers |
//! | [`roster`] | the relays that are known, how closely each is followed, and why |
//! | [`ways`] | by which relays a provider is reached |

pub mod archive;
pub mod client;
pub mod content;
pub mod delivery;
mod error;
pub mod index;
pub mod intake;
pub mod keeper;
pub mod marks;
pub mod publish;
pub mod relay;
pub mod roster;
mod sync;
pub mod ways;

pub use error::{Error, Result, code};

/// The tables of this crate.
pub fn migrations() -> Vec<guild_store::Migration> {
    vec![
        archive::migration(),
        index::migration(),
        marks::migration(),
        content::migration(),
        roster::migration(),
        index::said_migration(),
        index::offers_migration(),
        archive::kept_migration(),
    ]
}
