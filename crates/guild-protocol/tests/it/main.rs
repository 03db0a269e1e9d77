//! One integration binary for the crate.

mod json;
#[cfg(test)]
mod nostr;
