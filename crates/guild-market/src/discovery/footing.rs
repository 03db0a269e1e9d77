//! Whether somebody whom nobody knows yet is hired, as far as the registry can tell.

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;

use super::claim::Standing;
use super::entry::{Entry, State};
use super::registry::Registry;

/// How an offer stands, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Footing {
    /// It is listed and live, and offers the work.
    Sound,
    /// The same, but its announcement contradicts itself about the work.
    Disputed,
    /// It is not in the registry, not live there, or came too lately to tell.
    Unlisted,
    /// It is quarantined or archived, or its key flaps.
    Unfit,
}

impl Registry {
    /// How an offer of some work stands. Only what is known of its key is looked at. Whoever flaps with one offer does
    /// not get rid of that by another.
    pub fn footing(&self, provider: &PublicKey, d: &str, task: &str, now_ms: UnixMs) -> Footing {
        let is_flapping = |entry: &Entry| entry.is_flapping(self.options(), now_ms);
        if self.of(provider).any(is_flapping) {
            return Footing::Unfit;
        }
        let Some(entry) = self.get(provider, d) else { return Footing::Unlisted };
        if entry.state != State::Listed {
            return Footing::Unfit;
        }
        match self.matches(entry, task) {
            _ if !entry.life.is_live => Footing::Unlisted,
            None => Footing::Unlisted,
            Some((_, Standing::Disputed)) => Footing::Disputed,
            Some(_) => Footing::Sound,
        }
    }
}
