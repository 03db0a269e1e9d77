//! One client of the relay, as a state machine: a frame comes in, and what must be done about it comes out. Nothing
//! here waits, so every path can be tested without a socket.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::message::{ClientMessage, RelayMessage};
use guild_protocol::nostr::{Event, EventId, Filter, Limits, kind, tag, unix_s};

use super::Options;
use super::auth;
use super::meter::Meter;
use super::subscriptions::weight;
use crate::intake::Verdict;

mod stream;

use stream::Stream;
pub(crate) use stream::{Answer, TOO_SLOW};

/// What must be done about a frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send this.
    Send(String),
    /// Check and store this event, and tell [`Session::offered`].
    Offer(Box<Event>),
    /// From now on pass on new events; then look up what is stored, and tell [`Session::stored`].
    Subscribe {
        /// The number of the subscription.
        number: u64,
        /// What it wants.
        filters: Vec<Filter>,
    },
    /// Pass on nothing more for this one.
    Unsubscribe(u64),
    /// Count what is stored, and answer.
    Count {
        /// The client's name for it.
        sub: String,
        /// What is counted.
        filters: Vec<Filter>,
    },
    /// Begin to reconcile, in the place of an older one of this name, and answer.
    OpenSync {
        /// The client's name for it.
        sub: String,
        /// Of which events.
        filter: Box<Filter>,
        /// The client's first message.
        message: String,
    },
    /// Go on with it.
    Sync {
        /// The client's name for it.
        sub: String,
        /// The client's message.
        message: String,
    },
    /// Forget it.
    CloseSync(String),
    /// End the connection, for this reason.
    Disconnect(&'static str),
}

/// The client.
#[derive(Debug)]
pub(crate) struct Session {
    options: Arc<Options>,
    /// The host under which the client asked.
    host: String,
    challenge: String,
    proven: BTreeSet<PublicKey>,
    streams: BTreeMap<u64, Stream>,
    streams_made: u64,
    syncs: BTreeSet<String>,
    frames: Meter,
    events: Meter,
    strikes: Meter,
}

impl Session {
    /// A client that has just come.
    pub(crate) fn new(
        options: Arc<Options>,
        host: &str,
        challenge: String,
        now_ms: UnixMs,
    ) -> Session {
        Session {
            host: auth::plain(host),
            challenge,
            proven: BTreeSet::new(),
            streams: BTreeMap::new(),
            streams_made: 0,
            syncs: BTreeSet::new(),
            frames: Meter::new(options.frames_per_minute, now_ms),
            events: Meter::new(options.events_per_minute, now_ms),
            strikes: Meter::new(options.strikes_per_minute, now_ms),
            options,
        }
    }

    /// The first words to the client.
    pub(crate) fn greeting(&self) -> String {
        RelayMessage::Auth(self.challenge.clone()).to_json()
    }

    /// What to do about a frame that says nothing: it costs something, too.
    pub(crate) fn take_empty(&mut self, now_ms: UnixMs) -> Vec<Action> {
        self.count_frame(now_ms).unwrap_or_default()
    }

    /// What to do about a frame that is one too many.
    fn count_frame(&mut self, now_ms: UnixMs) -> Option<Vec<Action>> {
        if self.frames.take(now_ms) {
            return None;
        }
        refused("frames");
        Some(self.strike(notice("rate-limited: too many messages"), now_ms))
    }

    /// What to do about a frame. `key_allows` says whether an author may have more stored.
    pub(crate) fn take(
        &mut self,
        frame: &str,
        key_allows: impl FnOnce(&PublicKey) -> bool,
        now_ms: UnixMs,
    ) -> Vec<Action> {
        if let Some(too_many) = self.count_frame(now_ms) {
            return too_many;
        }
        if frame.len() > self.options.frame_max_bytes {
            refused("frame_size");
            let most = self.options.frame_max_bytes;
            return self
                .strike(notice(format!("invalid: a message has at most {most} bytes")), now_ms);
        }
        match ClientMessage::parse(frame.as_bytes(), &Limits::DEFAULT) {
            Ok(message) => self.obey(message, key_allows, now_ms),
            Err(error) => {
                refused("malformed");
                let place = error.place().map(|place| format!("{place}: ")).unwrap_or_default();
                self.strike(notice(format!("invalid: {place}{}", error.message())), now_ms)
            }
        }
    }

    fn obey(
        &mut self,
        message: ClientMessage,
        key_allows: impl FnOnce(&PublicKey) -> bool,
        now_ms: UnixMs,
    ) -> Vec<Action> {
        match message {
            ClientMessage::Event(event) => self.publish(event, key_allows, now_ms),
            ClientMessage::Req { sub, filters } => self.subscribe(sub, filters),
            ClientMessage::Count { sub, filters } => match self.refusal_to_read(&filters) {
                None => vec![Action::Count { sub, filters }],
                Some(words) => vec![closed(&sub, &words)],
            },
            ClientMessage::Close(sub) => self.unsubscribe(&sub),
            ClientMessage::Auth(proof) => self.prove(&proof, now_ms),
            ClientMessage::NegOpen { sub, filter, message } => self.open_sync(sub, filter, message),
            ClientMessage::NegMsg { sub, message } if self.syncs.contains(&sub) => {
                vec![Action::Sync { sub, message }]
            }
            ClientMessage::NegMsg { sub, .. } => {
                refused("sync_message");
                self.strike(sync_error(&sub, "closed: there is none of this name"), now_ms)
            }
            ClientMessage::NegClose(sub) => match self.syncs.remove(&sub) {
                true => vec![Action::CloseSync(sub)],
                false => Vec::new(),
            },
        }
    }

    fn publish(
        &mut self,
        event: Box<Event>,
        key_allows: impl FnOnce(&PublicKey) -> bool,
        now_ms: UnixMs,
    ) -> Vec<Action> {
        let refuse = |why: &'static str, words: &str| {
            refused(why);
            vec![ok(event.id, false, words)]
        };
        if !self.events.take(now_ms) {
            return refuse("events", "rate-limited: too many events of this connection");
        }
        if event.kind == kind::AUTH {
            return refuse("kind", "invalid: a proof is sent with AUTH");
        }
        if self.options.auth_to_write && self.proven.is_empty() {
            return refuse("auth", "auth-required: prove a key to publish here");
        }
        if tag::has(&event.tags, "-") && !self.proven.contains(&event.pubkey) {
            return refuse("auth", "auth-required: only its author may publish this event");
        }
        if !key_allows(&event.pubkey) {
            return refuse("key_events", "rate-limited: too many events of this author");
        }
        vec![Action::Offer(event)]
    }

    /// What became of an event that was offered.
    pub(crate) fn offered(
        &mut self,
        id: EventId,
        verdict: &Verdict,
        now_ms: UnixMs,
    ) -> Vec<Action> {
        let answer = ok(id, verdict.is_accepted(), &verdict.message());
        match verdict {
            Verdict::Refused(refusal) => {
                refused(refusal.code.name);
                if refusal.is_hostile() { self.strike(answer, now_ms) } else { vec![answer] }
            }
            _ => vec![answer],
        }
    }

    fn subscribe(&mut self, sub: String, filters: Vec<Filter>) -> Vec<Action> {
        // The older one of this name ends, also if the new one is refused.
        let mut actions = self.unsubscribe(&sub);
        if let Some(words) =
            self.refusal_to_read(&filters).or_else(|| self.refusal_of_room(&filters))
        {
            actions.push(closed(&sub, &words));
            return actions;
        }
        self.streams_made += 1;
        let number = self.streams_made;
        self.streams.insert(number, Stream::new(&sub, weight(&filters)));
        actions.push(Action::Subscribe { number, filters });
        actions
    }

    fn refusal_of_room(&self, filters: &[Filter]) -> Option<String> {
        let held: usize = self.streams.values().map(Stream::weight).sum();
        if self.streams.len() >= self.options.subscriptions_max {
            refused("subscriptions");
            let most = self.options.subscriptions_max;
            return Some(format!("rate-limited: at most {most} subscriptions at once"));
        }
        if held + weight(filters) > self.options.values_max {
            refused("values");
            let most = self.options.values_max;
            return Some(format!("rate-limited: at most {most} values in all filters"));
        }
        None
    }

    fn refusal_to_read(&self, filters: &[Filter]) -> Option<String> {
        if filters.len() > self.options.filters_max {
            refused("filters");
            return Some(format!("invalid: at most {} filters", self.options.filters_max));
        }
        let private = |filter: &Filter| auth::is_within(filter, &self.options.private_kinds);
        let needs_key = self.options.auth_to_read || filters.iter().all(private);
        (needs_key && self.proven.is_empty()).then(|| {
            refused("auth");
            "auth-required: prove the key of whom it is for".to_owned()
        })
    }

    fn unsubscribe(&mut self, sub: &str) -> Vec<Action> {
        let found = self.streams.iter().find(|(_, stream)| stream.sub() == sub);
        let Some(number) = found.map(|(number, _)| *number) else { return Vec::new() };
        self.streams.remove(&number);
        vec![Action::Unsubscribe(number)]
    }

    fn prove(&mut self, proof: &Event, now_ms: UnixMs) -> Vec<Action> {
        // As many keys as one person may have.
        const PROVEN_MAX: usize = 16;
        let is_ours = |host: &str| {
            let named = |ours: &String| auth::plain(ours) == host.split(':').next().unwrap_or(host);
            host == self.host || self.options.hosts.iter().any(named)
        };
        match auth::check(proof, &self.challenge, is_ours, unix_s(now_ms)) {
            Ok(_) if self.proven.len() >= PROVEN_MAX => {
                refused("auth");
                vec![ok(proof.id, false, "restricted: too many keys for one connection")]
            }
            Ok(key) => {
                self.proven.insert(key);
                vec![ok(proof.id, true, "")]
            }
            Err(words) => {
                refused("auth");
                self.strike(ok(proof.id, false, words), now_ms)
            }
        }
    }

    fn open_sync(&mut self, sub: String, filter: Filter, message: String) -> Vec<Action> {
        // One of this name ends in any case.
        let mut actions = Vec::new();
        if self.syncs.remove(&sub) {
            actions.push(Action::CloseSync(sub.clone()));
        }
        let filters = [filter];
        if let Some(words) = self.refusal_to_read(&filters) {
            actions.push(sync_error(&sub, &words));
        } else if self.syncs.len() >= self.options.syncs_max {
            refused("syncs");
            let most = self.options.syncs_max;
            actions.push(sync_error(&sub, &format!("blocked: at most {most} at once")));
        } else {
            let [filter] = filters;
            self.syncs.insert(sub.clone());
            actions.push(Action::OpenSync { sub, filter: Box::new(filter), message });
        }
        actions
    }

    /// A reconciliation ended on our side, for these reasons.
    pub(crate) fn sync_failed(&mut self, sub: &str, words: &str) -> Action {
        self.syncs.remove(sub);
        sync_error(sub, words)
    }

    /// Which keys the client has proven.
    pub(crate) fn proven(&self) -> &BTreeSet<PublicKey> {
        &self.proven
    }

    /// Whether a reconciliation of this name goes on.
    pub(crate) fn has_sync(&self, sub: &str) -> bool {
        self.syncs.contains(sub)
    }

    /// An answer to something that should not have been sent; too many of them end the connection.
    fn strike(&mut self, answer: Action, now_ms: UnixMs) -> Vec<Action> {
        if self.strikes.take(now_ms) {
            return vec![answer];
        }
        vec![answer, Action::Disconnect("strikes")]
    }
}

/// Every refusal is counted.
pub(crate) fn refused(why: &'static str) {
    metrics::counter!("relay_refused_total", "why" => why).increment(1);
}

fn notice(words: impl Into<String>) -> Action {
    Action::Send(RelayMessage::Notice(words.into()).to_json())
}

fn ok(id: EventId, accepted: bool, words: &str) -> Action {
    Action::Send(RelayMessage::Ok { id, accepted, message: words.to_owned() }.to_json())
}

pub(crate) fn closed(sub: &str, words: &str) -> Action {
    Action::Send(RelayMessage::Closed { sub: sub.to_owned(), message: words.to_owned() }.to_json())
}

fn sync_error(sub: &str, words: &str) -> Action {
    Action::Send(RelayMessage::NegErr { sub: sub.to_owned(), message: words.to_owned() }.to_json())
}

#[cfg(test)]
mod tests;
