//! One integration binary for the crate.

mod blueprint;
mod content;
mod json;
#[cfg(test)]
mod nostr;
mod receipt;
mod replay;
mod schema;
mod wire;
