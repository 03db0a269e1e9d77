//! Counts what happens.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

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
    /// How many announcements were refused, by the code of the reason: few codes, and off the path of good events.
    announcements: Mutex<BTreeMap<&'static str, u64>>,
}

impl Counters {
    pub(super) fn refuse_announcement(&self, verdict: &Verdict) {
        let Verdict::Refused(refusal) = verdict else { return };
        let mut refused = self.announcements.lock().unwrap_or_else(PoisonError::into_inner);
        let count = refused.entry(refusal.code.name).or_default();
        *count = count.saturating_add(1);
    }

    pub(super) fn refused_announcements(&self) -> BTreeMap<&'static str, u64> {
        self.announcements.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

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
