//! One integration binary for the crate: turns on real databases.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod audit;
mod bad;
mod lease;
mod life;
mod model;
mod stop;
mod sweep;
mod wait;
mod world;
