//! The open world: what comes in from relays, what is kept of it, and what is published to them.
//!
//! | module | what it settles |
//! |---|---|

mod error;

pub use error::{Error, Result, code};
