//! Buses as their users see them.

mod conformance;
mod mail;
mod nats;
mod support;
