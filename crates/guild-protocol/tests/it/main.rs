//! One integration binary for the crate.

mod blueprint;
mod json;
#[cfg(test)]
mod nostr;
mod schema;
