//! One integration binary for the crate: turns on real databases.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod aside;
mod audit;
mod audit_batches;
mod bad;
mod clock;
mod cost;
mod extreme;
mod foreign;
mod fork;
mod lease;
mod life;
mod model;
mod office;
mod online;
mod outside;
mod pmo;
mod pmo_bad;
mod post;
mod replay;
mod rig;
mod run;
mod stop;
mod sweep;
mod trace;
mod tree;
mod upgrade;
mod wait;
mod worker;
mod worker_bad;
mod worker_lost;
mod worker_submit;
mod worker_tools;
mod world;
