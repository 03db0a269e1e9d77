//! Proving our key to a relay that asks for it (NIP-42). Told only when something needs it: a key that is shown to
//! everybody can be followed everywhere.

use guild_protocol::env::Signer;
use guild_protocol::nostr::{Draft, Event, EventId, kind};

use super::super::status::{AuthState, words};

/// A longer challenge is not one.
const CHALLENGE_MAX_BYTES: usize = 512;
/// A relay that asks more often on one connection plays a game.
const ANSWERS_MAX: u32 = 8;

/// Where the proof stands.
#[derive(Debug, Default)]
pub(super) struct Auth {
    pub(super) state: AuthState,
    challenge: Option<String>,
    sent: Option<EventId>,
    answers: u32,
}

impl Auth {
    /// The relay has sent a challenge; false if that is none.
    pub(super) fn challenged(&mut self, challenge: String) -> bool {
        if challenge.is_empty() || challenge.len() > CHALLENGE_MAX_BYTES {
            return false;
        }
        self.challenge = Some(challenge);
        if self.state == AuthState::Unasked {
            self.state = AuthState::Challenged;
        }
        true
    }

    /// The answer to the last challenge, if there is one that was not answered. From now on the relay is expected to
    /// say whether it takes it.
    pub(super) fn answer(&mut self, url: &str, signer: &dyn Signer, now_s: u64) -> Option<Event> {
        if self.answers >= ANSWERS_MAX {
            return None;
        }
        let challenge = self.challenge.take()?;
        let tag = |name: &str, value: String| vec![name.to_owned(), value];
        let tags = vec![tag("relay", url.to_owned()), tag("challenge", challenge)];
        let draft = Draft { kind: kind::AUTH, created_at: now_s, tags, content: String::new() };
        let event = draft.sign(signer).ok()?;
        self.answers = self.answers.saturating_add(1);
        (self.state, self.sent) = (AuthState::Sent, Some(event.id));
        Some(event)
    }

    /// Whether this is about our proof.
    pub(super) fn is_about(&self, id: &EventId) -> bool {
        self.sent.as_ref() == Some(id)
    }

    /// The relay has said whether it takes our proof.
    pub(super) fn answered(&mut self, accepted: bool, message: &str) {
        self.sent = None;
        self.state = match accepted {
            true => AuthState::Proven,
            false => AuthState::Refused(words(message)),
        };
    }
}
