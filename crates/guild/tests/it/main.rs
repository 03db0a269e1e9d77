//! One integration binary for the crate: the real program, in a directory of its own, in an empty environment.

mod answers;
mod audit;
mod audit_together;
mod bad_input;
mod bus;
mod checks;
mod cluster;
mod config;
mod demo;
mod docs;
mod doctor;
mod explorer;
mod foreign;
mod hire;
mod key;
mod ledger;
mod ledger_export;
mod node;
mod outbox;
mod policy;
mod relay;
mod relays;
mod replay;
mod store;
mod support;
mod upgrade;
