//! One integration binary for the crate: the market on real databases.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod budget;
mod budget_model;
mod claim;
mod consider;
mod delegation;
mod discovery;
mod dispute;
mod health;
mod job;
mod judge;
mod model;
mod order;
mod review;
mod routing;
mod sandbox_run;
mod settle;
mod verify;
mod world;
mod year;
