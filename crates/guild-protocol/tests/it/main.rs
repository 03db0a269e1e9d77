//! One integration binary for the crate.

mod content;
mod json;
mod receipt;
mod wire;
#[cfg(test)]
mod nostr;
mod blueprint;
mod json;
mod schema;
