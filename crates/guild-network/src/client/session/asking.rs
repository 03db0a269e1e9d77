//! What a session asks for by itself, given what it knows.

use guild_protocol::env::UnixMs;
use guild_protocol::nostr::message::ClientMessage;
use guild_protocol::nostr::{Filter, unix_s};

use super::echo::Echo;
use super::{LIVE, PAGE, Session, SubState};

impl Session {
    /// Everything that the state alone demands.
    pub(super) fn go_on(&mut self, now_ms: UnixMs) {
        self.prove(now_ms);
        self.give_up_waiting(now_ms);
        if self.wants_live(now_ms) {
            self.ask_live(now_ms);
        }
        self.ask_page(now_ms);
        if self.echo.is_due(now_ms) {
            let (every_ms, drawn) = (self.options.echo_ms, self.random.next_u64());
            if let Some(event) = self.echo.send(&*self.signer, drawn, every_ms, now_ms) {
                self.send(ClientMessage::Event(Box::new(event)).to_json());
            }
        }
    }

    /// Tells the relay who we are, if it asked and something waits for it.
    fn prove(&mut self, now_ms: UnixMs) {
        let needed = self.information.auth_required
            || [&self.live, &self.page].iter().any(|sub| sub.state == SubState::NeedsAuth)
            || self.publishing.values().any(|publishing| publishing.needs_auth);
        if needed && let Some(event) = self.auth.answer(&self.url, &*self.signer, unix_s(now_ms)) {
            self.send(ClientMessage::Auth(Box::new(event)).to_json());
        }
    }

    /// A question that the relay does not answer is one that it ended.
    fn give_up_waiting(&mut self, now_ms: UnixMs) {
        let (eose_ms, random) = (self.options.eose_ms, self.random.clone());
        let mut forgotten = Vec::new();
        for sub in [&mut self.live, &mut self.page] {
            if sub.answer_by_ms(eose_ms).is_some_and(|by_ms| now_ms >= by_ms) {
                forgotten.push(ClientMessage::Close(sub.id.clone()).to_json());
                sub.ended("error: no answer", now_ms, random.next_u64());
            }
        }
        forgotten.into_iter().for_each(|frame| self.send(frame));
    }

    fn wants_live(&self, now_ms: UnixMs) -> bool {
        let room = self.information.max_subscriptions.is_none_or(|most| most > 1);
        let due = match self.live.state {
            SubState::Idle => room || self.is_fetched(),
            _ => self.live.again_ms().is_some_and(|again_ms| now_ms >= again_ms),
        };
        due && !self.following.is_empty()
    }

    fn ask_live(&mut self, now_ms: UnixMs) {
        let since = Some(unix_s(now_ms).saturating_sub(self.options.overlap_s));
        let wanted = self.following.iter().map(|following| following.want.filter.clone());
        let filters = wanted.chain([Echo::filter(&*self.signer)]);
        let filters = filters.map(|filter| Filter { since, ..filter }).collect();
        let sub = self.sub_name(LIVE);
        self.send(ClientMessage::Req { sub: sub.clone(), filters }.to_json());
        self.live.ask(sub, now_ms);
    }

    /// Asks for the next page, if none is under way.
    fn ask_page(&mut self, now_ms: UnixMs) {
        let due = match self.page.state {
            SubState::Idle => true,
            _ => self.page.again_ms().is_some_and(|again_ms| now_ms >= again_ms),
        };
        if !due {
            return;
        }
        let next = self.following.iter_mut().enumerate();
        let mut next = next.filter_map(|(i, f)| f.fetch.page().map(|page| (i, page, f)));
        let Some((i, page, following)) = next.next() else { return };
        following.fetch.begin();
        let most = self.information.max_limit.unwrap_or(u64::MAX);
        let filter = Filter {
            since: (page.since_s > 0).then_some(page.since_s),
            until: Some(page.until_s),
            limit: Some(self.options.page_max_events.min(most)),
            ..following.want.filter.clone()
        };
        self.paging = Some(i);
        let sub = self.sub_name(PAGE);
        self.send(ClientMessage::Req { sub: sub.clone(), filters: vec![filter] }.to_json());
        self.page.ask(sub, now_ms);
    }
}
