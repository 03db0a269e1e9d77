//! What we say to one relay, and what we make of what it says. Pure: frames and time go in, effects come out.
//!
//! There are two sorts of subscriptions. `live` brings what is new of everything that is wanted, and our own echo;
//! `page` fetches what is stored, one want and one page after the other ([`super::fetch`]). What a relay ends is asked
//! for again, and what came in between is fetched; what it refuses of one want holds up no other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use guild_protocol::env::{Random, Signer, UnixMs};
use guild_protocol::nostr::message::{ClientMessage, RelayMessage};
use guild_protocol::nostr::{Event, EventId, Limits, unix_s};

use super::Options;
use super::dial::FRAME_MAX_BYTES;
use super::fetch::Fetch;
use super::information::Information;
use super::pace::Strikes;
use super::status::{AuthState, Counts, EchoState, SubState, words};
use super::want::Want;
use crate::marks::Mark;

mod asking;
mod auth;
mod echo;
mod live;
mod sub;

use auth::Auth;
use echo::Echo;
use live::Live;
use sub::{Prefix, Sub, prefix};

/// What became of an event that was published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The relay has it, now or for long.
    Accepted(String),
    /// The relay does not take it.
    Refused {
        /// Its words.
        message: String,
        /// It never will.
        is_final: bool,
    },
    /// It did not say.
    Unanswered,
}

/// Why a connection is to be ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// Nothing was heard for too long.
    Silent,
    /// What it was given did not come back.
    Deaf,
    /// It did too much harm.
    Banned(&'static str),
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Send this text.
    Send(String),
    /// Send a ping.
    Ping,
    /// Hand this event on; its id and signature are not checked.
    Offer(Box<Event>),
    /// Tell whoever published it.
    Answer(EventId, Answer),
    /// Once all events before it are stored, write this watermark.
    Mark(String, Mark),
    /// End the connection.
    End(End),
}

/// What became of an event that was handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judged {
    Stored,
    Known,
    /// Not one that we keep.
    Refused,
    /// Its id or signature is wrong.
    Hostile,
}

impl Judged {
    fn as_str(self) -> &'static str {
        match self {
            Judged::Stored => "stored",
            Judged::Known => "known",
            Judged::Refused => "refused",
            Judged::Hostile => "hostile",
        }
    }
}

/// An event on its way to the relay.
#[derive(Debug)]
struct Publishing {
    frame: String,
    answer_by_ms: UnixMs,
    /// It waits until the relay knows who we are.
    needs_auth: bool,
}

/// What is fetched and followed.
#[derive(Debug)]
struct Following {
    want: Want,
    fetch: Fetch,
    /// The subscription of its pages.
    page: Sub,
    /// When it goes on, if as much was fetched as may be for now.
    resume_ms: Option<UnixMs>,
}

impl Following {
    /// Whether no page of it is to be had for now.
    fn is_fetched_or_refused(&self) -> bool {
        self.fetch.page().is_none() || self.page.is_refused()
    }
}

/// A conversation, from the opening of a connection to its end.
pub(crate) struct Session {
    url: String,
    options: Arc<Options>,
    signer: Arc<dyn Signer>,
    random: Arc<dyn Random>,
    information: Information,
    following: Vec<Following>,
    lives: Vec<Live>,
    auth: Auth,
    echo: Echo,
    /// Whether this relay is known to pass on what it is given: then silence means something.
    echoes: bool,
    publishing: BTreeMap<EventId, Publishing>,
    wrongs: Wrongs,
    subs_made: u64,
    /// So many subscriptions we have ended, and the relay has not said that it knows.
    closes_unconfirmed: u64,
    heard_ms: UnixMs,
    pinged_ms: Option<UnixMs>,
    notice: Option<String>,
    counts: Counts,
    effects: VecDeque<Effect>,
}

/// What a relay has done wrong lately.
#[derive(Debug)]
pub(crate) struct Wrongs {
    hostile: Strikes,
    nuisance: Strikes,
}

impl Wrongs {
    pub(crate) fn none(options: &Options) -> Wrongs {
        Wrongs {
            hostile: Strikes::new(options.hostile_max, options.hostile_window_ms),
            nuisance: Strikes::new(options.nuisance_max, options.nuisance_window_ms),
        }
    }
}

/// What a session begins with.
pub(crate) struct Begin {
    pub(crate) url: String,
    pub(crate) options: Arc<Options>,
    pub(crate) signer: Arc<dyn Signer>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) information: Information,
    /// What is wanted of this relay, and how far earlier connections have come.
    pub(crate) wants: Vec<(Want, Option<Mark>)>,
    /// Whether what is new is followed; otherwise it is fetched, and that is all.
    pub(crate) follows: bool,
    /// What earlier connections did wrong: whoever comes back has not made it good.
    pub(crate) wrongs: Option<Wrongs>,
    /// Whether this relay has ever passed on our echo.
    pub(crate) echoes: bool,
    /// What was counted before.
    pub(crate) counts: Counts,
    pub(crate) now_ms: UnixMs,
}

impl Session {
    /// The connection stands: begins to ask.
    pub(crate) fn new(begin: Begin) -> Session {
        let Begin { url, options, signer, random, information, wants, .. } = begin;
        let Begin { follows, wrongs, echoes, counts, now_ms, .. } = begin;
        let following = wants.into_iter().map(|(want, mark)| {
            let most = want.max_events.unwrap_or(u64::MAX).min(options.fetch_max_events);
            let (now_s, overlap_s) = (unix_s(now_ms), options.overlap_s);
            let fetch = Fetch::new(mark, now_s, want.lookback_s, overlap_s, most);
            Following { want, fetch, page: Sub::new(), resume_ms: None }
        });
        let following: Vec<Following> = following.collect();
        let mut session = Session {
            url,
            lives: if follows { Live::all(following.len()) } else { Vec::new() },
            following,
            wrongs: wrongs.unwrap_or_else(|| Wrongs::none(&options)),
            options,
            signer,
            random,
            information,
            auth: Auth::default(),
            echo: Echo::new(),
            echoes,
            publishing: BTreeMap::new(),
            subs_made: 0,
            closes_unconfirmed: 0,
            heard_ms: now_ms,
            pinged_ms: None,
            notice: None,
            counts: Counts { connections: counts.connections.saturating_add(1), ..counts },
            effects: VecDeque::new(),
        };
        session.go_on(now_ms);
        session
    }

    /// The next thing to do.
    pub(crate) fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// A text has come.
    pub(crate) fn text(&mut self, frame: &str, now_ms: UnixMs) {
        self.count_frame(frame.len(), now_ms);
        if frame.len() > FRAME_MAX_BYTES {
            return self.oversized(now_ms);
        }
        match RelayMessage::parse(frame.as_bytes(), &Limits::DEFAULT) {
            Ok(message) => self.message(message, now_ms),
            Err(_) => {
                self.counts.malformed += 1;
                self.annoyed(now_ms);
            }
        }
        self.go_on(now_ms);
    }

    /// Bytes have come that are no text: no relay has a reason to send them.
    pub(crate) fn binary(&mut self, bytes: usize, now_ms: UnixMs) {
        self.count_frame(bytes, now_ms);
        self.counts.malformed += 1;
        self.annoyed(now_ms);
    }

    /// A frame has come that is longer than any message.
    pub(crate) fn oversized(&mut self, now_ms: UnixMs) {
        self.counts.oversized += 1;
        self.annoyed(now_ms);
    }

    /// A ping has come. It says that the relay is there, and nothing about what it has read.
    pub(crate) fn pinged(&mut self, now_ms: UnixMs) {
        self.heard_ms = now_ms;
        self.annoyed(now_ms);
    }

    /// A pong has come.
    pub(crate) fn alive(&mut self, now_ms: UnixMs) {
        self.heard_ms = now_ms;
        let Some(pinged_ms) = self.pinged_ms.take() else { return self.annoyed(now_ms) };
        // What was sent before the answer to a ping has been read by now.
        if self.echo.state != EchoState::Heard {
            self.confirm(pinged_ms);
        }
    }

    /// What became of an event that was handed on.
    pub(crate) fn judged(&mut self, judged: Judged, now_ms: UnixMs) {
        metrics::counter!("client_events_total", "verdict" => judged.as_str()).increment(1);
        match judged {
            Judged::Stored => self.counts.stored += 1,
            Judged::Known => self.counts.known += 1,
            Judged::Refused => self.counts.refused += 1,
            Judged::Hostile => {
                self.counts.hostile += 1;
                if self.wrongs.hostile.strike(now_ms) {
                    self.ban("it sends events with wrong ids or signatures");
                }
            }
        }
    }

    /// Publishes an event. Its answer comes as an effect, in any case.
    pub(crate) fn publish(&mut self, event: &Event, now_ms: UnixMs) {
        let frame = ClientMessage::Event(Box::new(event.clone())).to_json();
        let most = self.information.max_message_bytes.unwrap_or(u64::MAX);
        if u64::try_from(frame.len()).unwrap_or(u64::MAX) > most {
            let message = format!("invalid: {} bytes are more than the relay reads", frame.len());
            return self
                .effects
                .push_back(Effect::Answer(event.id, Answer::Refused { message, is_final: true }));
        }
        let answer_by_ms = now_ms.saturating_add(self.options.answer_ms);
        self.send(frame.clone());
        let publishing = Publishing { frame, answer_by_ms, needs_auth: false };
        self.publishing.insert(event.id, publishing);
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now_ms: UnixMs) {
        self.look_for_silence(now_ms);
        let late: Vec<EventId> = self
            .publishing
            .iter()
            .filter(|(_, publishing)| now_ms >= publishing.answer_by_ms)
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            self.publishing.remove(&id);
            self.effects.push_back(Effect::Answer(id, Answer::Unanswered));
        }
        if self.echo.is_deaf(self.options.echo_patience_ms, now_ms) && self.echoes {
            self.effects.push_back(Effect::End(End::Deaf));
        }
        self.go_on(now_ms);
    }

    /// When [`Session::tick`] has something to do.
    pub(crate) fn due_ms(&self) -> UnixMs {
        let Options { ping_ms, silence_ms, eose_ms, echo_patience_ms, .. } = *self.options;
        let quiet_ms = if self.awaits_pong() { silence_ms } else { ping_ms };
        let asked = self.subs().filter_map(|sub| sub.answer_by_ms(eose_ms));
        // What may not be asked for yet is due when something else has ended.
        let lives = self.lives.iter().filter_map(|live| live.sub.again_ms());
        let lives = lives.min().filter(|_| self.may_ask_live());
        let publishing = self.publishing.values().map(|publishing| publishing.answer_by_ms);
        let echo = self.echo.due_ms(echo_patience_ms);
        let others = [lives, self.page_due_ms(), echo].into_iter().flatten();
        let first = asked.chain(publishing).chain(others).min().unwrap_or(UnixMs::MAX);
        first.min(self.heard_ms.saturating_add(quiet_ms))
    }

    /// Whether nothing is under way: a connection that is not configured may end now.
    pub(crate) fn is_idle(&self) -> bool {
        self.publishing.is_empty()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn is_fetched(&self) -> bool {
        self.following.iter().all(|following| following.fetch.is_done())
    }

    /// Whether nothing is left to fetch for now but what the relay does not give.
    pub(crate) fn is_settled(&self) -> bool {
        self.following.iter().all(|f| f.is_fetched_or_refused() && !f.page.is_open())
    }

    /// What it did wrong, for the next connection.
    pub(crate) fn into_wrongs(self) -> Wrongs {
        self.wrongs
    }

    pub(crate) fn auth_state(&self) -> &AuthState {
        &self.auth.state
    }

    pub(crate) fn echo_state(&self) -> (&EchoState, Option<i64>) {
        (&self.echo.state, self.echo.took_ms)
    }

    /// What the relay last said to people.
    pub(crate) fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    fn count_frame(&mut self, bytes: usize, now_ms: UnixMs) {
        self.heard_ms = now_ms;
        self.counts.frames += 1;
        self.counts.bytes_in += u64::try_from(bytes).unwrap_or(0);
    }

    fn message(&mut self, message: RelayMessage, now_ms: UnixMs) {
        match message {
            RelayMessage::Event { sub, event } => self.event(&sub, event, now_ms),
            RelayMessage::Ok { id, accepted, message } => self.ok(&id, accepted, message, now_ms),
            RelayMessage::Refused(message) => self.refused(message, now_ms),
            RelayMessage::Eose(sub) => self.eose(&sub, now_ms),
            RelayMessage::Closed { sub, message } => self.closed(&sub, &message, now_ms),
            RelayMessage::Notice(message) => {
                self.counts.notices += 1;
                self.notice = Some(words(&message));
                self.annoyed(now_ms);
            }
            RelayMessage::Auth(challenge) => {
                self.counts.auths += 1;
                if !self.auth.challenged(challenge) {
                    self.annoyed(now_ms);
                }
            }
            RelayMessage::Count { .. }
            | RelayMessage::NegMsg { .. }
            | RelayMessage::NegErr { .. } => self.stray(now_ms),
        }
    }

    fn event(&mut self, sub: &str, event: Box<Event>, now_ms: UnixMs) {
        if let Some(sent_ms) = self.echo.hear(&event, now_ms) {
            self.echoes = true;
            return self.confirm(sent_ms);
        }
        let ours = sub.starts_with(LIVE) || sub.starts_with(PAGE);
        let wanted = self.following.iter().any(|f| f.want.filter.matches(&event));
        if !ours || !wanted {
            // Echoes that are late are no harm; there are few.
            self.counts.unasked += 1;
            return self.annoyed(now_ms);
        }
        self.counts.events += 1;
        if let Some(known) = self.subs_mut().find(|known| known.is(sub)) {
            known.heard(now_ms);
        }
        let paged = |f: &&mut Following| f.page.is(sub) && f.want.filter.matches(&event);
        if let Some(following) = self.following.iter_mut().find(paged)
            && following.fetch.take(event.created_at) > self.options.page_max_events
        {
            // More than one page: an answer without an end.
            self.annoyed(now_ms);
        }
        self.effects.push_back(Effect::Offer(event));
    }

    fn ok(&mut self, id: &EventId, accepted: bool, message: String, now_ms: UnixMs) {
        self.counts.ok += 1;
        if !accepted {
            self.counts.ok_refused += 1;
        }
        if self.auth.is_about(id) {
            self.auth.answered(accepted, &message);
            return self.after_auth(accepted, &message, now_ms);
        }
        if self.echo.answered(id, accepted, &message) {
            return;
        }
        let Some(publishing) = self.publishing.get_mut(id) else { return self.stray(now_ms) };
        let reason = message.split(':').next().unwrap_or_default().trim();
        let answer = match prefix(&message) {
            _ if accepted || matches!(reason, "duplicate" | "replaced") => {
                Answer::Accepted(words(&message))
            }
            // Once: whoever is known and still asked who it is will not be let in.
            Prefix::AuthRequired if !publishing.needs_auth => {
                publishing.needs_auth = true;
                return;
            }
            prefix => {
                let is_final = prefix == Prefix::Final || reason == "deleted";
                Answer::Refused { message: words(&message), is_final }
            }
        };
        self.publishing.remove(id);
        self.effects.push_back(Effect::Answer(*id, answer));
    }

    /// Whoever is refused without a name is known if nobody else waits for an answer.
    fn refused(&mut self, message: String, now_ms: UnixMs) {
        let mut waiting = self.publishing.keys();
        match (waiting.next().copied(), waiting.next()) {
            (Some(id), None) => self.ok(&id, false, message, now_ms),
            _ => self.stray(now_ms),
        }
    }

    fn eose(&mut self, sub: &str, now_ms: UnixMs) {
        self.counts.eose += 1;
        if !self.live_eose(sub, now_ms) && !self.page_eose(sub, now_ms) {
            self.stray(now_ms);
        }
    }

    fn closed(&mut self, sub: &str, message: &str, now_ms: UnixMs) {
        self.counts.closed += 1;
        self.sub_ended(sub, message, now_ms);
    }

    /// Whoever waited for the relay to know us is served, or is not.
    fn after_auth(&mut self, accepted: bool, message: &str, now_ms: UnixMs) {
        for sub in self.subs_mut().filter(|sub| sub.state == SubState::NeedsAuth) {
            match accepted {
                true => sub.state = SubState::Idle,
                false => sub.refused(message, now_ms),
            }
        }
        if accepted {
            self.echo.forgive();
            self.begin_echo(now_ms);
        }
        let waiting = self.publishing.iter_mut().filter(|(_, publishing)| publishing.needs_auth);
        let ids: Vec<EventId> = waiting.map(|(id, _)| *id).collect();
        for id in ids {
            if accepted {
                let Some(publishing) = self.publishing.get_mut(&id) else { continue };
                publishing.answer_by_ms = now_ms.saturating_add(self.options.answer_ms);
                let frame = publishing.frame.clone();
                self.send(frame);
            } else {
                self.publishing.remove(&id);
                let answer = Answer::Refused { message: words(message), is_final: false };
                self.effects.push_back(Effect::Answer(id, answer));
            }
        }
    }

    fn look_for_silence(&mut self, now_ms: UnixMs) {
        let quiet_ms = now_ms.saturating_sub(self.heard_ms);
        if quiet_ms >= self.options.silence_ms {
            self.effects.push_back(Effect::End(End::Silent));
        } else if quiet_ms >= self.options.ping_ms && !self.awaits_pong() {
            self.pinged_ms = Some(now_ms);
            self.effects.push_back(Effect::Ping);
        } else if quiet_ms < 0 {
            // The clock was set back.
            self.heard_ms = now_ms;
        }
    }

    /// Whether nothing was heard since the last ping.
    fn awaits_pong(&self) -> bool {
        self.pinged_ms.is_some_and(|pinged_ms| pinged_ms >= self.heard_ms)
    }

    fn sub_name(&mut self, what: &str) -> String {
        self.subs_made += 1;
        format!("{what}{}", self.subs_made)
    }

    fn stray(&mut self, now_ms: UnixMs) {
        self.counts.stray += 1;
        self.annoyed(now_ms);
    }

    /// A frame that brought nothing. A few are normal, a flood is not.
    fn annoyed(&mut self, now_ms: UnixMs) {
        if self.wrongs.nuisance.strike(now_ms) {
            self.ban("it sends what nobody asked for");
        }
    }

    fn ban(&mut self, why: &'static str) {
        self.counts.bans += 1;
        self.effects.push_back(Effect::End(End::Banned(why)));
    }

    fn send(&mut self, frame: String) {
        self.counts.bytes_out += u64::try_from(frame.len()).unwrap_or(0);
        self.effects.push_back(Effect::Send(frame));
    }
}

/// How the names of subscriptions begin.
const LIVE: &str = "live-";
const PAGE: &str = "page-";

#[cfg(test)]
mod tests;
