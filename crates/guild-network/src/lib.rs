//! The open world: what comes in from relays, what is kept of it, and what is published to them.
//!
//! | module | what it settles |
//! |---|---|
//! | [`client`] | the relays of others: connections, what is fetched and followed, what is published |
//! | [`marks`] | how far each relay has been read |

pub mod client;
mod error;
pub mod marks;
mod sync;

pub use error::{Error, Result, code};
