//! One integration binary for the crate.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod audit_log;
mod sweeper;
mod treasury;
