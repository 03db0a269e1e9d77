//! What a role has done and met since it started.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How often each thing has happened, by a word for it. Cheap to clone; clones count together.
#[derive(Debug, Clone, Default)]
pub struct Counts(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Counts {
    /// One more.
    pub(crate) fn add(&self, word: &'static str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(word).or_default();
        *count = count.saturating_add(1);
    }

    /// How often this has happened.
    pub fn of(&self, word: &str) -> u64 {
        self.all().get(word).copied().unwrap_or(0)
    }

    /// Everything that has happened, by its word.
    pub fn all(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
