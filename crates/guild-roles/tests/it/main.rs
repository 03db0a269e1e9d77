//! One integration binary for the crate.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod agents;
mod attacks;
mod attacks_of_work;
mod audit_log;
mod bazaar;
mod buyer;
mod delegation;
mod discovery;
mod disputes;
mod dossier;
mod explorer;
mod lifecycle;
mod market;
mod meeting;
mod poison;
mod provider;
mod referred;
mod reviews;
mod routed;
mod router;
mod runs;
mod sweeper;
mod town;
mod treasury;
