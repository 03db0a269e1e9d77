//! One integration binary for the crate: hosting on real databases.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod access;
mod audit;
mod job;
mod machine;
mod meter;
mod model;
mod money;
mod page;
mod races;
mod sandbox;
mod world;
