//! One subscription at a relay, across the times that the relay ends it.

use guild_protocol::env::UnixMs;

use super::super::pace::pause_ms;
use super::super::status::{SubState, words};

/// What the first word of a refusal means (NIP-01, NIP-42).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefix {
    AuthRequired,
    /// It will not change its mind soon: the same question is no use.
    Final,
    Passing,
}

pub(super) fn prefix(message: &str) -> Prefix {
    match message.split(':').next().unwrap_or_default().trim() {
        "auth-required" => Prefix::AuthRequired,
        "restricted" | "blocked" | "invalid" | "unsupported" | "pow" => Prefix::Final,
        _ => Prefix::Passing,
    }
}

/// A subscription.
#[derive(Debug)]
pub(super) struct Sub {
    /// Its name at the relay: another for every time that it is asked for.
    pub(super) id: String,
    pub(super) state: SubState,
    /// Since when it is asked for or live, or until when it waits.
    at_ms: UnixMs,
    /// How often in a row it was ended.
    ended: u32,
}

/// A subscription that lived for so long was not ended by a storm.
const STABLE_MS: i64 = 10 * 60_000;
/// A relay that does not give it may change its mind in so long.
const REFUSED_MS: i64 = 60 * 60_000;

impl Sub {
    pub(super) fn new() -> Sub {
        Sub { id: String::new(), state: SubState::Idle, at_ms: 0, ended: 0 }
    }

    /// Whether this name is the one in use.
    pub(super) fn is(&self, id: &str) -> bool {
        self.id == id && self.is_open()
    }

    /// Whether it is asked for.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, SubState::Asked | SubState::Live)
    }

    /// Whether it was asked for before.
    pub(super) fn was_open(&self) -> bool {
        !self.id.is_empty()
    }

    pub(super) fn is_refused(&self) -> bool {
        matches!(self.state, SubState::Refused(_))
    }

    /// Whether it may be asked for now.
    pub(super) fn is_due(&self, now_ms: UnixMs) -> bool {
        self.state == SubState::Idle || self.again_ms().is_some_and(|again_ms| now_ms >= again_ms)
    }

    /// It is asked for, under a new name.
    pub(super) fn ask(&mut self, id: String, now_ms: UnixMs) {
        (self.id, self.state, self.at_ms) = (id, SubState::Asked, now_ms);
    }

    /// All that was stored has come.
    pub(super) fn eose(&mut self, now_ms: UnixMs) {
        (self.state, self.at_ms) = (SubState::Live, now_ms);
    }

    /// Nothing more is wanted of it for now.
    pub(super) fn rest(&mut self) {
        (self.state, self.ended) = (SubState::Idle, 0);
    }

    /// The relay ended it, or never answered.
    pub(super) fn ended(&mut self, message: &str, now_ms: UnixMs, drawn: u64) {
        let lived_ms = now_ms.saturating_sub(self.at_ms);
        if self.state == SubState::Live && lived_ms >= STABLE_MS {
            self.ended = 0;
        }
        self.ended = self.ended.saturating_add(1);
        self.at_ms = now_ms.saturating_add(pause_ms(self.ended, 1_000, 5 * 60_000, drawn));
        match prefix(message) {
            Prefix::AuthRequired => self.state = SubState::NeedsAuth,
            Prefix::Final => self.refused(message, now_ms),
            Prefix::Passing => self.state = SubState::Closed(words(message)),
        }
    }

    /// The relay does not give it to us.
    pub(super) fn refused(&mut self, message: &str, now_ms: UnixMs) {
        self.state = SubState::Refused(words(message));
        self.at_ms = now_ms.saturating_add(REFUSED_MS);
    }

    /// When it is to be asked for again. A relay that wants to know us and does not ask who we are may ask then.
    pub(super) fn again_ms(&self) -> Option<UnixMs> {
        let waits = !self.is_open() && self.state != SubState::Idle;
        waits.then_some(self.at_ms)
    }

    /// When the relay must have answered.
    pub(super) fn answer_by_ms(&self, patience_ms: i64) -> Option<UnixMs> {
        (self.state == SubState::Asked).then(|| self.at_ms.saturating_add(patience_ms))
    }

    /// An answer has begun: patience begins anew.
    pub(super) fn heard(&mut self, now_ms: UnixMs) {
        if self.state == SubState::Asked {
            self.at_ms = now_ms;
        }
    }
}
