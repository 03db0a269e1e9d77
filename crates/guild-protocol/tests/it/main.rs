//! One integration binary for the crate.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod blueprint;
mod content;
mod json;
mod nostr;
mod receipt;
mod replay;
mod schema;
mod wire;
