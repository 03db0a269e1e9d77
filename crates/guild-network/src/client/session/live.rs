//! The subscriptions of what is new. One brings everything; a relay that does not give all of it may give parts.

use guild_protocol::env::UnixMs;
use guild_protocol::nostr::message::ClientMessage;
use guild_protocol::nostr::{Filter, unix_s};

use super::super::status::SubState;
use super::echo::Echo;
use super::sub::Sub;
use super::{Effect, LIVE, Session};

/// One of them.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) sub: Sub,
    /// The wants that it is about, by their places.
    wants: Vec<usize>,
    /// Whether our echo comes by it.
    has_echo: bool,
}

impl Live {
    /// One for everything; none if nothing is wanted.
    pub(super) fn all(wants: usize) -> Vec<Live> {
        let whole = Live { sub: Sub::new(), wants: (0..wants).collect(), has_echo: true };
        if wants == 0 { Vec::new() } else { vec![whole] }
    }

    /// One for each part.
    fn parts(&self) -> Vec<Live> {
        let want = |i: &usize| Live { sub: Sub::new(), wants: vec![*i], has_echo: false };
        let echo = Live { sub: Sub::new(), wants: Vec::new(), has_echo: true };
        self.wants.iter().map(want).chain(self.has_echo.then_some(echo)).collect()
    }
}

/// How bad a state is: that of the worst subscription is told.
fn badness(state: &SubState) -> u8 {
    match state {
        SubState::Live => 0,
        SubState::Asked => 1,
        SubState::Idle => 2,
        SubState::NeedsAuth => 3,
        SubState::Closed(_) => 4,
        SubState::Refused(_) => 5,
    }
}

impl Session {
    /// How the relay answers what we want to follow.
    pub(crate) fn live_state(&self) -> &SubState {
        let states = self.lives.iter().filter(|live| !live.wants.is_empty());
        let states = states.map(|live| &live.sub.state);
        states.max_by_key(|state| badness(state)).unwrap_or(&SubState::Idle)
    }

    /// Whether a relay that allows few subscriptions has room for those of what is new.
    pub(super) fn may_ask_live(&self) -> bool {
        let fetching =
            self.following.iter().any(|f| f.page.is_open() || !f.is_fetched_or_refused());
        !self.has_room_for_one() || !fetching
    }

    /// Whether the relay allows one subscription only.
    pub(super) fn has_room_for_one(&self) -> bool {
        self.information.max_subscriptions.is_some_and(|most| most <= 1)
    }

    /// Asks for whatever of what is new is due.
    pub(super) fn ask_lives(&mut self, now_ms: UnixMs) {
        for place in 0..self.lives.len() {
            let due = self.lives.get(place).is_some_and(|live| live.sub.is_due(now_ms));
            if due && self.may_ask_live() {
                self.ask_live(place, now_ms);
            }
        }
    }

    fn ask_live(&mut self, place: usize, now_ms: UnixMs) {
        let name = self.sub_name(LIVE);
        let since = Some(unix_s(now_ms).saturating_sub(self.options.overlap_s));
        let Some(live) = self.lives.get_mut(place) else { return };
        let again = live.sub.was_open();
        live.sub.ask(name.clone(), now_ms);
        let mut filters = Vec::new();
        for place in &live.wants {
            let Some(following) = self.following.get_mut(*place) else { continue };
            if again {
                following.fetch.reopen(unix_s(now_ms));
            }
            filters.push(Filter { since, ..following.want.filter.clone() });
        }
        if live.has_echo {
            filters.push(Filter { since, ..Echo::filter(&*self.signer) });
        }
        self.send(ClientMessage::Req { sub: name, filters }.to_json());
    }

    /// What a relay had stored has come; false if that is about another subscription.
    pub(super) fn live_eose(&mut self, sub: &str, now_ms: UnixMs) -> bool {
        let Some(live) = self.lives.iter_mut().find(|live| live.sub.is(sub)) else { return false };
        live.sub.eose(now_ms);
        if live.has_echo {
            self.echo.begin(now_ms);
        }
        true
    }

    /// A relay has ended a subscription, or does not answer; false if that is about another one.
    pub(super) fn live_ended(&mut self, sub: &str, message: &str, now_ms: UnixMs) -> bool {
        let Some(place) = self.lives.iter().position(|live| live.sub.is(sub)) else { return false };
        let drawn = self.random.next_u64();
        let Some(live) = self.lives.get_mut(place) else { return false };
        live.sub.ended(message, now_ms, drawn);
        if live.has_echo {
            self.echo.pause();
        }
        if live.sub.is_refused() {
            self.split(place, message);
        }
        true
    }

    /// A relay that refuses a question for one of its parts may answer the others.
    fn split(&mut self, place: usize, message: &str) {
        let Some(live) = self.lives.get(place) else { return };
        let parts = live.parts();
        if parts.len() == 1 {
            if live.has_echo {
                self.echo.refused(message);
            }
            return;
        }
        // One more is for what is fetched.
        let needed = self.lives.len().saturating_add(parts.len());
        let most = self.information.max_subscriptions.unwrap_or(u64::MAX);
        if u64::try_from(needed).unwrap_or(u64::MAX) <= most {
            self.lives.splice(place..=place, parts);
        }
    }

    /// Our echo has its way again, if its subscription stands.
    pub(super) fn begin_echo(&mut self, now_ms: UnixMs) {
        if self.lives.iter().any(|live| live.has_echo && live.sub.state == SubState::Live) {
            self.echo.begin(now_ms);
        }
    }

    /// What the relay had before this moment has come, of everything that it tells us.
    pub(super) fn confirm(&mut self, at_ms: UnixMs) {
        let live = self.lives.iter().filter(|live| live.sub.state == SubState::Live);
        for place in live.flat_map(|live| &live.wants) {
            if let Some(following) = self.following.get_mut(*place)
                && let Some(mark) = following.fetch.confirm(unix_s(at_ms))
            {
                self.effects.push_back(Effect::Mark(following.want.mark_name(), mark));
            }
        }
    }
}
