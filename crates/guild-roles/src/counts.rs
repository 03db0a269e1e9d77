//! What a role has done and met since it started.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How often each thing has happened, by a word for it. Cheap to clone; clones count together. The same is counted in
/// `role_met_total{role, what}`, over all that are of one role in this process.
#[derive(Debug, Clone)]
pub struct Counts {
    role: &'static str,
    counts: Arc<Mutex<BTreeMap<&'static str, u64>>>,
}

impl Counts {
    pub(crate) fn of_role(role: &'static str) -> Counts {
        Counts { role, counts: Arc::default() }
    }

    /// One more.
    pub(crate) fn add(&self, word: &'static str) {
        metrics::counter!("role_met_total", "role" => self.role, "what" => word).increment(1);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(word).or_default();
        *count = count.saturating_add(1);
    }

    /// How often this has happened.
    pub fn of(&self, word: &str) -> u64 {
        self.all().get(word).copied().unwrap_or(0)
    }

    /// Everything that has happened, by its word.
    pub fn all(&self) -> BTreeMap<&'static str, u64> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
