//! The real servers that tests and benches talk to. Each runs on a free port of 127.0.0.1, in a temporary directory,
//! and is stopped when its handle is dropped or its test dies, by whatever cause.
//!
//! `cargo xtask test` starts one of each for the whole run and says where they are in the environment; without it,
//! the first test of a process that asks starts its own.

pub mod bench;
pub mod browser;
mod in_time;
pub mod javascript;
pub mod judge_tools;
pub mod nats;
pub mod nats_py;
pub mod nostr_dvm;
pub mod nostr_relay;
mod port;
pub mod postgres;
mod process;
pub mod schemathesis;
mod victim;

pub use browser::{Browser, Look};
pub use in_time::in_time;
pub use nats::Nats;
pub use nostr_dvm::NostrDvm;
pub use nostr_relay::NostrRelay;
pub use port::free_port;
pub use postgres::{Database, Postgres};
pub use victim::{Dice, Victim, now_ms, wait_ms};
