//! The ids that were seen lately: a table of fixed size.
//!
//! Only ids of events whose signature held are remembered, and only ids that were computed are looked up. A set of a
//! few places belongs to each id; in a full set the oldest makes room. An id is a hash, so the sets fill evenly.

use std::sync::{Mutex, MutexGuard, PoisonError};

use guild_protocol::nostr::EventId;

use super::NotKept;

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Known,
    NotKept(NotKept),
    Unstorable,
}

/// Places of a set.
const WAYS: usize = 8;

type Place = Option<(EventId, Fate)>;

pub(super) struct Seen {
    sets: Mutex<Vec<[Place; WAYS]>>,
    mask: u64,
}

impl Seen {
    /// Room for at least so many ids.
    pub(super) fn new(max_ids: usize) -> Seen {
        let sets = max_ids.div_ceil(WAYS).max(1).next_power_of_two();
        let mask = u64::try_from(sets).unwrap_or(u64::MAX).saturating_sub(1);
        Seen { sets: Mutex::new(vec![[None; WAYS]; sets]), mask }
    }

    pub(super) fn fate(&self, id: &EventId) -> Option<Fate> {
        let sets = self.lock();
        let set = sets.get(self.set_of(id))?;
        set.iter().flatten().find(|(seen, _)| seen == id).map(|(_, fate)| *fate)
    }

    pub(super) fn remember(&self, seen: impl IntoIterator<Item = (EventId, Fate)>) {
        let mut sets = self.lock();
        for (id, fate) in seen {
            let Some(set) = sets.get_mut(self.set_of(&id)) else { continue };
            let place = set.iter().position(|place| place.is_some_and(|(seen, _)| seen == id));
            // Known or not, it is now the newest; whatever stood behind it moves up.
            if let Some(moved) = set.get_mut(..=place.unwrap_or(WAYS.saturating_sub(1))) {
                moved.rotate_right(1);
            }
            if let Some(first) = set.first_mut() {
                *first = Some((id, fate));
            }
        }
    }

    fn set_of(&self, id: &EventId) -> usize {
        let [.., a, b, c, d, e, f, g, h] = *id.as_bytes();
        let number = u64::from_be_bytes([a, b, c, d, e, f, g, h]) & self.mask;
        usize::try_from(number).unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<[Place; WAYS]>> {
        // Whatever is half written is only forgotten.
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u32) -> EventId {
        let hash = guild_protocol::hash::Hash::of(&n.to_be_bytes());
        EventId::from_bytes(*hash.as_bytes())
    }

    #[test]
    fn what_was_seen_lately_is_known_and_the_table_never_grows() {
        let seen = Seen::new(1_024);
        for n in 0..100_000 {
            seen.remember([(id(n), Fate::Known)]);
            assert_eq!(seen.fate(&id(n)), Some(Fate::Known));
        }
        assert_eq!(seen.lock().len() * WAYS, 1_024);
        let kept = (0..100_000).filter(|n| seen.fate(&id(*n)).is_some()).count();
        assert!(kept <= 1_024 && kept > 1_000, "{kept}");
        assert!((99_900..100_000).all(|n| seen.fate(&id(n)).is_some()));
    }

    #[test]
    fn a_later_fate_counts() {
        let seen = Seen::new(1);
        seen.remember([(id(1), Fate::Known), (id(1), Fate::NotKept(NotKept::Deleted))]);
        assert_eq!(seen.fate(&id(1)), Some(Fate::NotKept(NotKept::Deleted)));
        assert_eq!(seen.fate(&id(2)), None);
    }
}
