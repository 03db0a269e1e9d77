//! Whole roles made of the lower layers, and the use cases they share.

pub mod audit_log;
mod error;
pub mod outbox;
pub mod relays;
pub mod sweeper;
pub mod treasury;

pub use error::{Error, Result};
