//! Whether a relay passes on what it is given: now and then we send an event to ourselves, and expect it back through
//! the very subscription that everything else comes by. A relay may answer pings, take events, and yet deliver nothing.

use guild_protocol::env::{Signer, UnixMs};
use guild_protocol::hash::to_hex;
use guild_protocol::nostr::{Draft, Event, EventId, Filter, kind, unix_s};

use super::super::status::{EchoState, words};

/// The probe.
#[derive(Debug)]
pub(super) struct Echo {
    pub(super) state: EchoState,
    pub(super) took_ms: Option<i64>,
    sent: Option<(Event, UnixMs)>,
    /// The last one: its echo may overtake the answer to it.
    last: Option<EventId>,
    next_ms: Option<UnixMs>,
}

impl Echo {
    pub(super) fn new() -> Echo {
        Echo { state: EchoState::Unknown, took_ms: None, sent: None, last: None, next_ms: None }
    }

    /// What brings it back.
    pub(super) fn filter(signer: &dyn Signer) -> Filter {
        let authors = Some([signer.public_key()].into());
        Filter { authors, ..Filter::kinds([kind::ECHO]) }
    }

    /// The subscription stands: the first one goes out.
    pub(super) fn begin(&mut self, now_ms: UnixMs) {
        if !matches!(self.state, EchoState::Refused(_)) {
            (self.sent, self.next_ms) = (None, Some(now_ms));
        }
    }

    /// There is no subscription that it could come by.
    pub(super) fn pause(&mut self) {
        (self.sent, self.next_ms) = (None, None);
    }

    /// The relay will not send it to us.
    pub(super) fn refused(&mut self, message: &str) {
        self.state = EchoState::Refused(words(message));
        self.pause();
    }

    /// What the relay did not take from a stranger it may take now.
    pub(super) fn forgive(&mut self) {
        if matches!(self.state, EchoState::Refused(_)) {
            self.state = EchoState::Unknown;
        }
    }

    /// Whether it is time for the next one.
    pub(super) fn is_due(&self, now_ms: UnixMs) -> bool {
        self.sent.is_none() && self.next_ms.is_some_and(|next_ms| now_ms >= next_ms)
    }

    /// The next one.
    pub(super) fn send(
        &mut self,
        signer: &dyn Signer,
        drawn: u64,
        every_ms: i64,
        now_ms: UnixMs,
    ) -> Option<Event> {
        // First: whatever comes of it, the next one is later.
        self.next_ms = Some(now_ms.saturating_add(every_ms));
        let draft = Draft {
            kind: kind::ECHO,
            created_at: unix_s(now_ms),
            tags: vec![vec!["p".to_owned(), signer.public_key().hex()]],
            content: to_hex(&drawn.to_be_bytes()),
        };
        let event = draft.sign(signer).ok()?;
        (self.sent, self.last) = (Some((event.clone(), now_ms)), Some(event.id));
        Some(event)
    }

    /// If this is what we sent: when that was. All of it is compared, so nobody can answer for the relay.
    pub(super) fn hear(&mut self, event: &Event, now_ms: UnixMs) -> Option<UnixMs> {
        let (_, sent_ms) = self.sent.take_if(|(sent, _)| sent == event)?;
        self.state = EchoState::Heard;
        self.took_ms = Some(now_ms.saturating_sub(sent_ms).max(0));
        Some(sent_ms)
    }

    /// Whether this is about our probe; a relay that does not take it is not deaf.
    pub(super) fn answered(&mut self, id: &EventId, accepted: bool, message: &str) -> bool {
        let ours = self.last.as_ref() == Some(id);
        if ours && !accepted && self.sent.is_some() {
            self.refused(message);
        }
        ours
    }

    /// Whether what we sent should have come back by now. It is told once.
    pub(super) fn is_deaf(&mut self, patience_ms: i64, now_ms: UnixMs) -> bool {
        let late =
            |(_, sent_ms): &mut (Event, UnixMs)| now_ms >= sent_ms.saturating_add(patience_ms);
        let deaf = self.sent.take_if(late).is_some();
        if deaf {
            self.state = EchoState::Deaf;
        }
        deaf
    }

    /// When there is something to do.
    pub(super) fn due_ms(&self, patience_ms: i64) -> Option<UnixMs> {
        match &self.sent {
            Some((_, sent_ms)) => Some(sent_ms.saturating_add(patience_ms)),
            None => self.next_ms,
        }
    }
}
