//! One integration binary for the crate: turns on real databases.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod lease;
mod life;
mod stop;
mod wait;
mod world;
