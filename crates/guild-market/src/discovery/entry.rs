//! One offer in the registry: what is announced, whether it is there, and how it has come and gone.

use guild_protocol::env::UnixMs;
use serde::Serialize;

use super::Options;
use super::card::Card;

const DAY_MS: i64 = 24 * 3_600_000;
const HOUR_MS: i64 = 3_600_000;
/// Somebody who goes again and again must give no more signs than this to be live again.
const SIGNS_MAX: u32 = 12;

/// Where an offer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It can be found.
    Listed,
    /// It was not seen for long: it is not found until it is seen again.
    Quarantined,
    /// That has lasted long.
    Archived,
}

impl State {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            State::Listed => "listed",
            State::Quarantined => "quarantined",
            State::Archived => "archived",
        }
    }

    /// The state with this name; an unknown one is listed, as whoever is new.
    pub(super) fn of(name: &str) -> State {
        match name {
            "quarantined" => State::Quarantined,
            "archived" => State::Archived,
            _ => State::Listed,
        }
    }
}

/// Whether somebody is there, from the signs it gives.
///
/// Whoever is new is live with its first sign. Whoever has gone needs two in a row to be live again, and one more for
/// each time that it came or went within a day: so somebody who flickers stays dark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Life {
    /// Whether it is live.
    pub is_live: bool,
    /// When it last gave a sign.
    pub heard_ms: Option<UnixMs>,
    /// How many signs came in a row, none too late.
    signs: u32,
    /// How often it came back or went within a day from `flips_from_ms`.
    flips: u32,
    flips_from_ms: UnixMs,
}

impl Life {
    /// How often it came back or went within a day.
    pub fn flips(&self, now_ms: UnixMs) -> u32 {
        let is_over = now_ms.saturating_sub(self.flips_from_ms) > DAY_MS;
        if is_over { 0 } else { self.flips }
    }

    fn flip(&mut self, now_ms: UnixMs) {
        if self.flips(now_ms) == 0 {
            (self.flips, self.flips_from_ms) = (0, now_ms);
        }
        self.flips = self.flips.saturating_add(1);
    }

    /// How many signs in a row it needs.
    fn needs(&self, now_ms: UnixMs) -> u32 {
        match self.flips(now_ms) {
            // Whoever has never gone.
            0 => 1,
            flips => flips.saturating_add(1).min(SIGNS_MAX),
        }
    }

    /// It gave a sign at this time; whether it is live since.
    pub(super) fn hear(&mut self, at_ms: UnixMs, silent_ms: i64, now_ms: UnixMs) -> bool {
        if self.heard_ms.is_some_and(|heard| at_ms <= heard) {
            return false;
        }
        let in_a_row = self.heard_ms.is_some_and(|heard| at_ms.saturating_sub(heard) <= silent_ms);
        self.signs = if in_a_row { self.signs.saturating_add(1) } else { 1 };
        self.heard_ms = Some(at_ms);
        let is_fresh = now_ms.saturating_sub(at_ms) <= silent_ms;
        if self.is_live || !is_fresh || self.signs < self.needs(now_ms) {
            return false;
        }
        if self.flips(now_ms) > 0 {
            self.flip(now_ms);
        }
        self.is_live = true;
        true
    }

    /// Time has passed; whether it has gone since.
    pub(super) fn tick(&mut self, silent_ms: i64, now_ms: UnixMs) -> bool {
        let heard = self.heard_ms.unwrap_or(i64::MIN);
        if !self.is_live || now_ms.saturating_sub(heard) <= silent_ms {
            return false;
        }
        (self.is_live, self.signs) = (false, 0);
        self.flip(now_ms);
        true
    }
}

/// One offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it announces now.
    pub card: Card,
    /// How many versions of its announcement were seen.
    pub versions: u32,
    /// Where it stands.
    pub state: State,
    /// Since when.
    pub state_ms: UnixMs,
    /// When it was seen last: its announcement, a heartbeat, or an answer of its provider.
    pub seen_ms: UnixMs,
    /// Whether it is there.
    pub life: Life,
    /// Versions within an hour, and which hour.
    hour: (i64, u32),
    /// Whether it came in by another way than its turn, which a row must tell.
    pub(super) is_late: bool,
}

impl Entry {
    pub(super) fn new(card: Card, mark: Option<&Mark>) -> Entry {
        let (came_ms, first_ms) = (card.came_ms, card.first_ms);
        let mut entry = Entry {
            card,
            versions: 1,
            state: State::Listed,
            state_ms: first_ms,
            seen_ms: came_ms,
            life: Life::default(),
            hour: (0, 0),
            is_late: false,
        };
        let Some(mark) = mark else { return entry };
        // A version that the mark does not count came while nobody looked.
        let unseen = u32::from(mark.seq < entry.card.seq);
        entry.versions = mark.versions.saturating_add(unseen);
        (entry.state, entry.state_ms, entry.is_late) = (mark.state, mark.state_ms, mark.is_late);
        entry.seen_ms = came_ms.max(mark.seen_ms);
        entry.life.is_live = mark.is_live;
        entry.life.heard_ms = mark.heard_ms;
        (entry.life.flips, entry.life.flips_from_ms) = (mark.flips, mark.flips_from_ms);
        entry
    }

    /// A newer version takes the place of the one that is there; how many came within an hour.
    pub(super) fn renew(&mut self, card: Card, now_ms: UnixMs) -> u32 {
        self.seen_ms = self.seen_ms.max(card.came_ms);
        self.card = card;
        self.versions = self.versions.saturating_add(1);
        let hour = now_ms.div_euclid(HOUR_MS);
        self.hour =
            if self.hour.0 == hour { (hour, self.hour.1.saturating_add(1)) } else { (hour, 1) };
        self.hour.1
    }

    /// Where it stands now; whether that is new. While we hear nobody it stands no worse than it did.
    pub(super) fn move_on(&mut self, options: &Options, is_deaf: bool, now_ms: UnixMs) -> bool {
        let is_stale = now_ms.saturating_sub(self.seen_ms) > options.quarantine_ms;
        let waited = now_ms.saturating_sub(self.state_ms) > options.archive_ms;
        let state = match self.state {
            _ if !is_stale => State::Listed,
            state if is_deaf => state,
            State::Listed => State::Quarantined,
            State::Quarantined if waited => State::Archived,
            state => state,
        };
        let is_new = state != self.state;
        if is_new {
            (self.state, self.state_ms) = (state, now_ms);
        }
        is_new
    }

    /// Whether it has come and gone too often.
    pub fn is_flapping(&self, options: &Options, now_ms: UnixMs) -> bool {
        self.life.flips(now_ms) >= options.flips_per_day
    }

    /// What the archive cannot tell of it.
    pub(super) fn mark(&self) -> Mark {
        Mark {
            seq: self.card.seq,
            versions: self.versions,
            is_late: self.is_late,
            state: self.state,
            state_ms: self.state_ms,
            seen_ms: self.seen_ms,
            is_live: self.life.is_live,
            heard_ms: self.life.heard_ms,
            flips: self.life.flips,
            flips_from_ms: self.life.flips_from_ms,
        }
    }
}

/// What an archive cannot tell of an offer. Whoever has been seen once, and has neither come back nor gone, has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The announcement that was counted last.
    pub seq: i64,
    /// How many versions were seen.
    pub versions: u32,
    /// Whether it was let in later than its turn.
    pub is_late: bool,
    /// Where it stood.
    pub state: State,
    /// Since when.
    pub state_ms: UnixMs,
    /// When it was seen last.
    pub seen_ms: UnixMs,
    /// Whether it was live.
    pub is_live: bool,
    /// When it was heard last.
    pub heard_ms: Option<UnixMs>,
    /// How often it came back or went,
    pub flips: u32,
    /// within a day from this time.
    pub flips_from_ms: UnixMs,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENT_MS: i64 = 900_000;

    #[test]
    fn the_first_sign_is_enough_and_silence_ends_it() {
        let mut life = Life::default();
        assert!(!life.tick(SILENT_MS, 5_000_000));
        assert!(life.hear(1_000, SILENT_MS, 2_000) && life.is_live);
        assert!(!life.hear(1_000, SILENT_MS, 2_000), "the same sign again");
        assert!(!life.tick(SILENT_MS, 901_000) && life.is_live, "not yet");
        assert!(life.tick(SILENT_MS, 901_001) && !life.is_live);
        // One old sign that comes late makes nobody live.
        let mut late = Life::default();
        assert!(!late.hear(1_000, SILENT_MS, 2_000_000) && !late.is_live);
    }

    #[test]
    fn whoever_flickers_stays_dark() {
        let mut life = Life::default();
        let (mut now_ms, mut lit) = (0, 0);
        // A sign each 1,000 seconds: after each it would be live for 900 of them.
        for _ in 0..80 {
            lit += u32::from(life.hear(now_ms, SILENT_MS, now_ms));
            now_ms += 1_000_000;
            life.tick(SILENT_MS, now_ms);
        }
        assert_eq!(lit, 1, "only at the beginning");
        // Bursts need more signs each time.
        let mut life = Life::default();
        let mut needed = Vec::new();
        for burst in 0..5 {
            let start = burst * 10_000_000;
            let live = (0..20).find(|n| {
                let at = start + n * 60_000;
                life.hear(at, SILENT_MS, at)
            });
            needed.push(live.unwrap() + 1);
            life.tick(SILENT_MS, start + 9_000_000);
        }
        assert_eq!(needed, [1, 2, 4, 6, 8]);
        // A day of steady signs, and it is as before.
        let day = 200_000_000;
        assert!((0..3).any(|n| life.hear(day + n * 60_000, SILENT_MS, day + n * 60_000)));
    }
}
