//! What the database answered, and the reconciliations that go on from it.

use guild_protocol::nostr::EventId;
use guild_protocol::nostr::message::RelayMessage;

use super::super::question::Reply;
use super::super::session::{Action, closed, refused};
use super::super::sync::Sync;
use super::Connection;

impl Connection {
    /// What to do about an answer of the database.
    pub(super) fn replied(&mut self, reply: Reply) -> Vec<Action> {
        match reply {
            Reply::Stored(number, answer, _) => match answer {
                Ok(answer) => self.session.stored(number, answer).map(Action::Send).collect(),
                Err(words) => self.session.unanswered(number, &words),
            },
            Reply::Count(sub, Ok(count)) => {
                vec![Action::Send(RelayMessage::Count { sub, count }.to_json())]
            }
            Reply::Count(sub, Err(words)) => vec![closed(&sub, &words)],
            // Closed meanwhile, or opened anew: then another question waits, and its answer is the one that counts.
            Reply::Sync { sub, .. }
                if !self.session.has_sync(&sub)
                    || self.questions.iter().any(|question| question.is_sync_of(&sub)) =>
            {
                Vec::new()
            }
            Reply::Sync { sub, message, events } => {
                match events.and_then(|events| self.open_sync(&sub, &events)) {
                    Ok(()) => vec![self.answer_sync(&sub, &message)],
                    Err(words) => vec![self.session.sync_failed(&sub, &words)],
                }
            }
        }
    }

    fn open_sync(&mut self, sub: &str, events: &[(u64, EventId)]) -> Result<(), String> {
        self.close_sync(sub);
        let most = self.shared.options.sync_max_events;
        if events.len() > most {
            refused("sync_events");
            return Err(format!("blocked: more than {most} events; ask for fewer at once"));
        }
        let sync = Sync::new(events).map_err(|error| format!("error: {error}"))?;
        if !self.shared.take_sync_room(sync.count()) {
            refused("syncs");
            return Err("blocked: too many reconciliations are open; try again later".to_owned());
        }
        self.syncs.insert(sub.to_owned(), sync);
        Ok(())
    }

    /// Goes on with a reconciliation.
    pub(super) fn answer_sync(&mut self, sub: &str, message: &str) -> Action {
        let answer = match self.syncs.get(sub) {
            Some(sync) => sync.answer(message).map_err(|words| format!("invalid: {words}")),
            // Its events are still being looked up.
            None => {
                Err("invalid: the answer to the first message has not been sent yet".to_owned())
            }
        };
        match answer {
            Ok(message) => {
                let sub = sub.to_owned();
                Action::Send(RelayMessage::NegMsg { sub, message }.to_json())
            }
            Err(words) => {
                refused("sync_message");
                self.close_sync(sub);
                self.session.sync_failed(sub, &words)
            }
        }
    }

    /// Forgets a reconciliation, also one whose events are still to be looked up.
    pub(super) fn close_sync(&mut self, sub: &str) {
        if let Some(sync) = self.syncs.remove(sub) {
            self.shared.give_sync_room(sync.count());
        }
        self.questions.retain(|question| !question.is_sync_of(sub));
    }
}
