//! Counts what happens.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Verdict;

/// How many events had which verdict, since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Stored.
    pub stored: u64,
    /// Seen before.
    pub known: u64,
    /// Good, and not kept.
    pub not_kept: u64,
    /// Refused, the forged ones aside.
    pub refused: u64,
    /// With a forged id or signature.
    pub hostile: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    stored: AtomicU64,
    known: AtomicU64,
    not_kept: AtomicU64,
    refused: AtomicU64,
    hostile: AtomicU64,
}

impl Counters {
    pub(super) fn count(&self, verdict: &Verdict) {
        let counter = match verdict {
            Verdict::Stored { .. } => &self.stored,
            Verdict::Known => &self.known,
            Verdict::NotKept(_) => &self.not_kept,
            Verdict::Refused(refusal) if refusal.is_hostile() => &self.hostile,
            Verdict::Refused(_) => &self.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            stored: of(&self.stored),
            known: of(&self.known),
            not_kept: of(&self.not_kept),
            refused: of(&self.refused),
            hostile: of(&self.hostile),
        }
    }
}
