//! What is simulated, and what must hold.

pub mod audit_log;

use std::collections::BTreeMap;

/// What one seed led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// A hash of all that happened: equal when the seed is run again.
    pub trace: u64,
    /// Steps of tasks.
    pub polls: u64,
    /// Crashes, by the point at which they happened.
    pub crashes: BTreeMap<&'static str, u64>,
    /// What must never happen and did. Empty when all is well.
    pub violations: Vec<String>,
}
