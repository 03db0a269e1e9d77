//! Buses as their users see them.

mod conformance;
mod nats;
mod support;
