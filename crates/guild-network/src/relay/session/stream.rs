//! A subscription: first what is stored, then EOSE, then what is new, nothing twice and nothing left out.
//!
//! New events are passed on from the moment the question is read, before the database is asked. What comes while it is
//! asked is held back. An event that was stored in that time is in both: it is known by its number and dropped once.

use std::collections::BTreeSet;
use std::sync::Arc;

use guild_protocol::nostr::message::{RelayMessage, event_frame};

use super::{Action, Session, auth, closed, refused};
use crate::archive::Stored;
use crate::intake::LiveEvent;

/// What the database says to a question.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The stored events, newest first, without those that the client may not see.
    pub(crate) stored: Vec<Stored>,
    /// All that was stored up to this number may be among new events no more.
    pub(crate) passed_on: i64,
}

/// The frames of an answer, made one by one while they are sent.
pub(crate) type Streamed = Box<dyn Iterator<Item = String> + Send>;

/// One subscription.
#[derive(Debug)]
pub(super) struct Stream {
    sub: String,
    weight: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The database is being asked; this came meanwhile.
    Asking { held: Vec<Arc<LiveEvent>>, bytes: usize },
    /// All that is stored was sent. These of it may come once more, as new ones.
    Open { sent: BTreeSet<i64> },
}

impl Stream {
    pub(super) fn new(sub: &str, weight: usize) -> Stream {
        let state = State::Asking { held: Vec::new(), bytes: 0 };
        Stream { sub: sub.to_owned(), weight, state }
    }

    pub(super) fn sub(&self) -> &str {
        &self.sub
    }

    pub(super) fn weight(&self) -> usize {
        self.weight
    }
}

impl Session {
    /// The frames that answer a question, or none if it has been closed meanwhile.
    pub(crate) fn stored(&mut self, number: u64, answer: Answer) -> Streamed {
        let Some(stream) = self.streams.get_mut(&number) else {
            return Box::new(std::iter::empty());
        };
        let mut sent: BTreeSet<i64> = answer.stored.iter().map(|stored| stored.seq).collect();
        sent.retain(|seq| *seq > answer.passed_on);
        let State::Asking { held, .. } =
            std::mem::replace(&mut stream.state, State::Open { sent: BTreeSet::new() })
        else {
            return Box::new(std::iter::empty());
        };
        let held: Vec<_> = held.into_iter().filter(|live| is_new(&mut sent, live)).collect();
        stream.state = State::Open { sent };
        let (first, then) = (stream.sub.clone(), stream.sub.clone());
        let eose = RelayMessage::Eose(stream.sub.clone()).to_json();
        let stored = answer.stored.into_iter().map(move |stored| event_frame(&first, &stored.json));
        let held = held.into_iter().map(move |live| event_frame(&then, live.json()));
        Box::new(stored.chain([eose]).chain(held))
    }

    /// The question could not be answered.
    pub(crate) fn unanswered(&mut self, number: u64, words: &str) -> Vec<Action> {
        match self.streams.remove(&number) {
            Some(stream) => vec![Action::Unsubscribe(number), closed(&stream.sub, words)],
            None => Vec::new(),
        }
    }

    /// What to do about a new event that a subscription wants.
    pub(crate) fn delivered(&mut self, number: u64, live: &Arc<LiveEvent>) -> Vec<Action> {
        let visible = auth::may_see(live.event(), &self.proven, &self.options.private_kinds);
        let Some(stream) = self.streams.get_mut(&number).filter(|_| visible) else {
            return Vec::new();
        };
        match &mut stream.state {
            State::Asking { held, bytes } => {
                *bytes += live.json().len();
                if *bytes > self.options.queue_max_bytes {
                    refused("queue");
                    return self.unanswered(number, TOO_SLOW);
                }
                held.push(live.clone());
                Vec::new()
            }
            State::Open { sent } => match is_new(sent, live) {
                true => vec![Action::Send(event_frame(&stream.sub, live.json()))],
                false => Vec::new(),
            },
        }
    }

    /// New events were left out, so no subscription may go on as if there had been none.
    pub(crate) fn missed(&mut self, words: &str) -> Vec<Action> {
        let streams = std::mem::take(&mut self.streams);
        let end = |(number, stream): (u64, Stream)| {
            [Action::Unsubscribe(number), closed(&stream.sub, words)]
        };
        streams.into_iter().flat_map(end).collect()
    }
}

/// What a reader is told whose subscriptions end because it does not keep up.
pub(crate) const TOO_SLOW: &str =
    "rate-limited: events came faster than you read them; subscribe again";

/// Whether an event was not already sent as a stored one. New ones come in the order of their numbers, so those before
/// it are forgotten.
fn is_new(sent: &mut BTreeSet<i64>, live: &LiveEvent) -> bool {
    let Some(seq) = live.seq else { return true };
    let later = sent.split_off(&seq.saturating_add(1));
    !std::mem::replace(sent, later).contains(&seq)
}
