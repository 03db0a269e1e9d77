//! One integration binary for the crate: archive, intake and index on real databases.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod archive;
mod client;
mod content;
mod index;
mod intake;
mod publish;
mod relay;
mod roster;
mod support;
