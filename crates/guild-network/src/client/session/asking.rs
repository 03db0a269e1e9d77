//! What a session asks for by itself, given what it knows.

use guild_protocol::env::UnixMs;
use guild_protocol::nostr::message::ClientMessage;
use guild_protocol::nostr::{Filter, unix_s};

use super::sub::Sub;
use super::{Effect, Following, PAGE, Session, SubState};

/// A want of which as much was fetched as may be goes on after so long, if the connection stands for so long.
const RESUME_MS: i64 = 60 * 60_000;

impl Session {
    /// Everything that the state alone demands.
    pub(super) fn go_on(&mut self, now_ms: UnixMs) {
        self.prove(now_ms);
        self.give_up_waiting(now_ms);
        self.ask_lives(now_ms);
        self.resume(now_ms);
        self.ask_page(now_ms);
        if self.echo.is_due(now_ms) {
            let (every_ms, drawn) = (self.options.echo_ms, self.random.next_u64());
            if let Some(event) = self.echo.send(&*self.signer, drawn, every_ms, now_ms) {
                self.send(ClientMessage::Event(Box::new(event)).to_json());
            }
        }
    }

    /// Everything that was or will be asked for.
    pub(super) fn subs(&self) -> impl Iterator<Item = &Sub> {
        let pages = self.following.iter().map(|following| &following.page);
        self.lives.iter().map(|live| &live.sub).chain(pages)
    }

    pub(super) fn subs_mut(&mut self) -> impl Iterator<Item = &mut Sub> {
        let pages = self.following.iter_mut().map(|following| &mut following.page);
        self.lives.iter_mut().map(|live| &mut live.sub).chain(pages)
    }

    /// Tells the relay who we are, if it asked and something waits for it.
    fn prove(&mut self, now_ms: UnixMs) {
        let needed = self.information.auth_required
            || self.subs().any(|sub| sub.state == SubState::NeedsAuth)
            || self.publishing.values().any(|publishing| publishing.needs_auth);
        if needed && let Some(event) = self.auth.answer(&self.url, &*self.signer, unix_s(now_ms)) {
            self.send(ClientMessage::Auth(Box::new(event)).to_json());
        }
    }

    /// A question that the relay does not answer is one that it ended.
    fn give_up_waiting(&mut self, now_ms: UnixMs) {
        let eose_ms = self.options.eose_ms;
        let late = |sub: &&Sub| sub.answer_by_ms(eose_ms).is_some_and(|by_ms| now_ms >= by_ms);
        let late: Vec<String> = self.subs().filter(late).map(|sub| sub.id.clone()).collect();
        for sub in late {
            self.sub_ended(&sub, "error: no answer", now_ms);
            self.close(&sub);
        }
    }

    /// The relay has ended a subscription, or does not answer.
    pub(super) fn sub_ended(&mut self, sub: &str, message: &str, now_ms: UnixMs) {
        if self.live_ended(sub, message, now_ms) {
            return;
        }
        let drawn = self.random.next_u64();
        if let Some(following) = self.following.iter_mut().find(|f| f.page.is(sub)) {
            following.page.ended(message, now_ms, drawn);
        } else if self.closes_unconfirmed > 0 {
            self.closes_unconfirmed -= 1;
        } else {
            self.stray(now_ms);
        }
    }

    /// Ends a subscription. Some relays confirm it.
    fn close(&mut self, sub: &str) {
        self.closes_unconfirmed = self.closes_unconfirmed.saturating_add(1);
        self.send(ClientMessage::Close(sub.to_owned()).to_json());
    }

    /// All of a page has come; false if that is about another subscription.
    pub(super) fn page_eose(&mut self, sub: &str, now_ms: UnixMs) -> bool {
        let Some(following) = self.following.iter_mut().find(|f| f.page.is(sub)) else {
            return false;
        };
        following.page.rest();
        let (mark, name) = (following.fetch.end(), following.want.mark_name());
        if following.fetch.is_spent() {
            following.resume_ms = Some(now_ms.saturating_add(RESUME_MS));
        }
        // It said how many it gives, and gave fewer of what there was.
        let lied = following.fetch.take_cut() && self.information.max_limit.is_some();
        self.counts.limits += u64::from(lied);
        self.close(sub);
        self.effects.extend(mark.map(|mark| Effect::Mark(name, mark)));
        true
    }

    /// Whether a page may be asked for: one at a time, and none while what is new has all the room that there is.
    fn may_ask_page(&self) -> bool {
        let paging = self.following.iter().any(|following| following.page.is_open());
        let full = self.has_room_for_one() && self.lives.iter().any(|live| live.sub.is_open());
        !paging && !full
    }

    /// When the next page is to be asked for, one that is under way aside.
    pub(super) fn page_due_ms(&self) -> Option<UnixMs> {
        let wanted = self.following.iter().filter(|following| following.fetch.page().is_some());
        let due = wanted.filter_map(|following| following.page.again_ms()).min();
        let resumed = self.following.iter().filter_map(|following| following.resume_ms).min();
        due.filter(|_| self.may_ask_page()).into_iter().chain(resumed).min()
    }

    /// What was left at its limit goes on after a while.
    fn resume(&mut self, now_ms: UnixMs) {
        for following in &mut self.following {
            if following.resume_ms.is_some_and(|resume_ms| now_ms >= resume_ms) {
                following.resume_ms = None;
                following.fetch.renew();
            }
        }
    }

    /// Asks for the next page, if none is under way. A want that the relay does not answer now holds up no other.
    fn ask_page(&mut self, now_ms: UnixMs) {
        if !self.may_ask_page() {
            return;
        }
        let due = |following: &Following| {
            following.fetch.page().is_some() && following.page.is_due(now_ms)
        };
        let Some(place) = self.following.iter().position(due) else { return };
        let name = self.sub_name(PAGE);
        let most = self.information.max_limit.unwrap_or(u64::MAX);
        let limit = self.options.page_max_events.min(most);
        let Some(following) = self.following.get_mut(place) else { return };
        let Some(page) = following.fetch.page() else { return };
        following.fetch.begin(limit);
        let filter = Filter {
            since: (page.since_s > 0).then_some(page.since_s),
            until: Some(page.until_s),
            limit: Some(limit),
            ..following.want.filter.clone()
        };
        following.page.ask(name.clone(), now_ms);
        self.send(ClientMessage::Req { sub: name, filters: vec![filter] }.to_json());
    }
}
