//! One connection to a relay: carries frames, events, answers and time between the session and the world, and decides
//! nothing.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::task::{Context, Poll};

use futures_util::future::select;
use futures_util::stream::FuturesUnordered;
use futures_util::{Sink, StreamExt};
use guild_protocol::env::{BoxFuture, Shutdown, UnixMs};
use guild_protocol::nostr::{Event, EventId};
use tokio::sync::{mpsc, oneshot};
use tokio_tungstenite::tungstenite::{self, Message};

use super::Shared;
use super::dial::Socket;
use super::session::{Answer, Effect, End, Judged, Session};
use super::status::{RelayStatus, words};
use crate::intake::{NotKept, Origin, Pending, Prefix, Refusal, Source, Verdict};
use crate::marks;
use crate::sync::lock;

/// How long the last word to a relay may take.
pub(super) const FAREWELL_MS: i64 = 1_000;

/// An event to be published, and whom to tell.
pub(super) struct Command {
    pub(super) event: Event,
    pub(super) caller: oneshot::Sender<Answer>,
}

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    /// It broke, or was given up.
    Lost(String),
    /// The relay takes events and does not pass them on.
    Deaf,
    /// The relay did too much harm.
    Banned(String),
    /// Nobody needs it any more.
    Idle,
    /// A poll that would not end.
    Cut(&'static str),
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// The settings name the relay: it is followed, and made again whenever it ends.
    Configured,
    /// A relay that a stranger named, and that is worth to be followed.
    Followed,
    /// A relay that is fetched from, and left.
    Poll,
    /// A relay to which something is published, and which is left when idle.
    Guest,
}

impl Mode {
    /// Whether it is made again whenever it ends.
    pub(super) fn is_kept(self) -> bool {
        matches!(self, Mode::Configured | Mode::Followed)
    }
}

/// What can happen next.
enum Happened {
    Frame(Option<Result<Message, tungstenite::Error>>),
    Judged(Verdict),
    Command(Option<Command>),
    Broke(tungstenite::Error),
    Time,
    Stop,
}

/// A connection that stands.
pub(super) struct Connection<'a> {
    pub(super) shared: &'a Shared,
    pub(super) status: &'a Mutex<RelayStatus>,
    pub(super) url: &'a str,
    pub(super) mode: Mode,
    pub(super) socket: Socket,
    pub(super) session: Session,
    pub(super) commands: &'a mut mpsc::Receiver<Command>,
    source: Source,
    traffic: Traffic,
    stop: BoxFuture<()>,
    began_ms: UnixMs,
    /// How many events the relay had sent before.
    began_events: u64,
}

/// An event that is taken up; its verdict is to come.
struct Submitted(Pending);

/// What is under way.
#[derive(Default)]
struct Traffic {
    outgoing: VecDeque<Message>,
    /// Since when the relay has not read what we sent.
    unread_since_ms: Option<UnixMs>,
    /// An event that waits for room. Nothing is read meanwhile.
    submitting: Option<BoxFuture<Submitted>>,
    /// Events that are being checked and stored.
    offers: FuturesUnordered<Pending>,
    callers: BTreeMap<EventId, Vec<oneshot::Sender<Answer>>>,
    timer: Option<(UnixMs, BoxFuture<()>)>,
    used_ms: UnixMs,
}

impl<'a> Connection<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        (status, url, mode): (&'a Mutex<RelayStatus>, &'a str, Mode),
        leave: &Shutdown,
        commands: &'a mut mpsc::Receiver<Command>,
        socket: Socket,
        session: Session,
    ) -> Connection<'a> {
        let source = shared.intake.source(&Origin::Relay(url.to_owned()));
        let began_ms = shared.clock.now_ms();
        let traffic = Traffic { used_ms: began_ms, ..Traffic::default() };
        let (all, this) = (shared.stop.clone(), leave.clone());
        let stop = Box::pin(async move {
            select(pin!(all.triggered()), pin!(this.triggered())).await;
        });
        let began_events = session.counts().events;
        Connection {
            shared,
            status,
            url,
            mode,
            socket,
            session,
            commands,
            source,
            traffic,
            stop,
            began_ms,
            began_events,
        }
    }

    /// Talks until the connection ends; the session tells what was learnt.
    pub(super) async fn run(mut self) -> (Ended, Session) {
        let ended = self.talk().await;
        self.report();
        // Whoever only goes away looks like a connection that broke. One that did break fails here at once.
        let farewell = pin!(self.socket.close(None));
        select(farewell, self.shared.clock.sleep(FAREWELL_MS)).await;
        (ended, self.session)
    }

    async fn talk(&mut self) -> Ended {
        loop {
            if let Some(ended) = self.carry_out().await {
                return ended;
            }
            self.report();
            let now_ms = self.shared.clock.now_ms();
            if let Some(ended) = self.polled(now_ms) {
                return ended;
            }
            self.set_timer(now_ms);
            let happened = poll_fn(|cx| self.poll(cx)).await;
            let now_ms = self.shared.clock.now_ms();
            if let Some(ended) = self.take(happened, now_ms).or_else(|| self.look(now_ms)) {
                return ended;
            }
        }
    }

    /// Does what the session wants; how the connection ended, if it did.
    async fn carry_out(&mut self) -> Option<Ended> {
        while let Some(effect) = self.session.next_effect() {
            match effect {
                Effect::Send(text) => self.traffic.outgoing.push_back(Message::text(text)),
                Effect::Ping => {
                    self.traffic.outgoing.push_back(Message::Ping(Vec::new().into()));
                }
                Effect::Offer(event) => {
                    self.submitted().await;
                    let source = self.source.clone();
                    let submitting = async move { Submitted(source.submit(*event).await) };
                    self.traffic.submitting = Some(Box::pin(submitting));
                }
                Effect::Answer(id, answer) => {
                    for caller in self.traffic.callers.remove(&id).unwrap_or_default() {
                        // Whoever no longer waits asks again.
                        let _ = caller.send(answer.clone());
                    }
                }
                Effect::Mark(name, mark) => {
                    if let Some(ended) = self.mark(name, mark).await {
                        return Some(ended);
                    }
                }
                Effect::End(End::Silent) => {
                    return Some(Ended::Lost("the relay is silent".to_owned()));
                }
                Effect::End(End::Deaf) => return Some(Ended::Deaf),
                Effect::End(End::Banned(why)) => return Some(Ended::Banned(why.to_owned())),
            }
        }
        None
    }

    /// Writes a watermark, once everything that it vouches for is stored. Nothing is read meanwhile.
    async fn mark(&mut self, name: String, mark: marks::Mark) -> Option<Ended> {
        self.submitted().await;
        while let Some(verdict) = self.traffic.offers.next().await {
            if let Some(ended) = self.judged(&verdict) {
                return Some(ended);
            }
        }
        let (relay, clock) = (self.url.to_owned(), self.shared.clock.clone());
        let written = self
            .shared
            .store
            .write(move |tx| marks::set(tx, &relay, &name, &mark, clock.now_ms()))
            .await;
        // The next connection begins a little earlier then: nothing is lost.
        written.err().map(|error| Ended::Lost(format!("a watermark was not written: {error}")))
    }

    /// Waits until what waits for room has it.
    async fn submitted(&mut self) {
        if let Some(submitting) = self.traffic.submitting.take() {
            self.traffic.offers.push(submitting.await.0);
        }
    }

    fn judged(&mut self, verdict: &Verdict) -> Option<Ended> {
        let Some(judged) = judgement(verdict) else {
            return Some(Ended::Lost("an event could not be stored".to_owned()));
        };
        self.session.judged(judged, self.shared.clock.now_ms());
        None
    }

    fn take(&mut self, happened: Happened, now_ms: UnixMs) -> Option<Ended> {
        match happened {
            Happened::Frame(Some(Ok(frame))) => match frame {
                Message::Text(text) => self.session.text(&text, now_ms),
                Message::Binary(bytes) => self.session.binary(bytes.len(), now_ms),
                Message::Close(_) => return Some(lost("the relay closed the connection")),
                Message::Ping(_) => self.session.pinged(now_ms),
                Message::Pong(_) | Message::Frame(_) => self.session.alive(now_ms),
            },
            Happened::Frame(Some(Err(error))) | Happened::Broke(error) => {
                if matches!(error, tungstenite::Error::Capacity(_)) {
                    self.session.oversized(now_ms);
                }
                return Some(lost(&error.to_string()));
            }
            Happened::Frame(None) => return Some(lost("the relay closed the connection")),
            Happened::Judged(verdict) => return self.judged(&verdict),
            Happened::Command(Some(Command { event, caller })) => {
                if !caller.is_closed() {
                    self.traffic.used_ms = now_ms;
                    let callers = self.traffic.callers.entry(event.id).or_default();
                    callers.push(caller);
                    // Whoever publishes the same a second time waits with the first.
                    if callers.len() == 1 {
                        self.session.publish(&event, now_ms);
                    }
                }
            }
            // The pool is gone, or goes.
            Happened::Command(None) | Happened::Stop => return Some(Ended::Idle),
            // Also if nothing is due: the clock may have been set back.
            Happened::Time => self.session.tick(now_ms),
        }
        None
    }

    /// What time alone decides.
    fn look(&mut self, now_ms: UnixMs) -> Option<Ended> {
        if now_ms >= self.session.due_ms() {
            self.session.tick(now_ms);
        }
        let Traffic { unread_since_ms, used_ms, callers, .. } = &self.traffic;
        let unread_ms = unread_since_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms));
        if unread_ms >= self.shared.options.stall_ms {
            return Some(lost("the relay does not read"));
        }
        let unused_ms = now_ms.saturating_sub(*used_ms);
        let idle = self.mode == Mode::Guest
            && callers.is_empty()
            && self.session.is_idle()
            && unused_ms >= self.shared.options.guest_idle_ms;
        idle.then_some(Ended::Idle)
    }

    /// Whether a poll is over: all is there and stored, or there is no end to it.
    fn polled(&self, now_ms: UnixMs) -> Option<Ended> {
        if self.mode != Mode::Poll {
            return None;
        }
        let Traffic { offers, submitting, callers, .. } = &self.traffic;
        let is_quiet = offers.is_empty() && submitting.is_none() && callers.is_empty();
        if self.session.is_settled() && is_quiet {
            return Some(Ended::Idle);
        }
        let options = &self.shared.options;
        let events = self.session.counts().events.saturating_sub(self.began_events);
        if events >= options.poll_max_events {
            return Some(Ended::Cut("it has more events than one poll takes"));
        }
        let took_ms = now_ms.saturating_sub(self.began_ms);
        (took_ms >= options.poll_ms).then_some(Ended::Cut("it takes longer than a poll may"))
    }

    fn set_timer(&mut self, now_ms: UnixMs) {
        let options = &self.shared.options;
        let mut due_ms = self.session.due_ms();
        if let Some(since_ms) = self.traffic.unread_since_ms {
            due_ms = due_ms.min(since_ms.saturating_add(options.stall_ms));
        }
        if self.mode == Mode::Guest && self.traffic.callers.is_empty() {
            due_ms = due_ms.min(self.traffic.used_ms.saturating_add(options.guest_idle_ms));
        }
        if self.mode == Mode::Poll {
            due_ms = due_ms.min(self.began_ms.saturating_add(options.poll_ms));
        }
        // One that is set for earlier does no harm; making one for every frame would.
        if self.traffic.timer.as_ref().is_none_or(|(set_ms, _)| due_ms < *set_ms) {
            let sleep = self.shared.clock.sleep(due_ms.saturating_sub(now_ms).max(1));
            self.traffic.timer = Some((due_ms, sleep));
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Happened> {
        if let Poll::Ready(Err(error)) = self.poll_send(cx) {
            return Poll::Ready(Happened::Broke(error));
        }
        if self.stop.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Happened::Stop);
        }
        let Traffic { offers, submitting, callers, timer, .. } = &mut self.traffic;
        if let Some(Poll::Ready(pending)) = submitting.as_mut().map(|s| s.as_mut().poll(cx)) {
            *submitting = None;
            offers.push(pending.0);
        }
        if let Poll::Ready(Some(verdict)) = offers.poll_next_unpin(cx) {
            return Poll::Ready(Happened::Judged(verdict));
        }
        if callers.len() < self.shared.options.publishing_max
            && let Poll::Ready(command) = self.commands.poll_recv(cx)
        {
            return Poll::Ready(Happened::Command(command));
        }
        if let Some((_, sleep)) = timer
            && sleep.as_mut().poll(cx).is_ready()
        {
            *timer = None;
            return Poll::Ready(Happened::Time);
        }
        // What cannot be stored as fast as it comes stays in the socket, and in the end with the relay.
        if submitting.is_some() || offers.len() >= self.shared.options.offers_max {
            return Poll::Pending;
        }
        self.socket.poll_next_unpin(cx).map(Happened::Frame)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), tungstenite::Error>> {
        let mut socket = Pin::new(&mut self.socket);
        if self.traffic.outgoing.is_empty() && self.traffic.unread_since_ms.is_none() {
            return Poll::Ready(Ok(()));
        }
        let now_ms = self.shared.clock.now_ms();
        self.traffic.unread_since_ms.get_or_insert(now_ms);
        while let Some(message) = self.traffic.outgoing.pop_front() {
            match socket.as_mut().poll_ready(cx) {
                Poll::Ready(Ok(())) => socket.as_mut().start_send(message)?,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.traffic.outgoing.push_front(message);
                    return Poll::Pending;
                }
            }
        }
        let flushed = socket.poll_flush(cx);
        if flushed.is_ready() {
            self.traffic.unread_since_ms = None;
        }
        flushed
    }

    /// Tells what is known by now.
    fn report(&self) {
        let mut status = lock(self.status);
        let (echo, echo_ms) = self.session.echo_state();
        status.counts = self.session.counts();
        status.fetched = self.session.is_fetched();
        status.echo_ms = echo_ms;
        // Texts are copied only if they have changed.
        if status.live != *self.session.live_state() {
            status.live = self.session.live_state().clone();
        }
        if status.auth != *self.session.auth_state() {
            status.auth = self.session.auth_state().clone();
        }
        if status.echo != *echo {
            status.echo = echo.clone();
        }
        if status.last_error.as_deref() != self.session.notice() && self.session.notice().is_some()
        {
            status.last_error = self.session.notice().map(str::to_owned);
        }
    }
}

/// What the session makes of a verdict. None if the event must come again, so that nothing after it may move the
/// watermark. One that is refused for what it is must not: it would come again for ever, and all behind it never.
fn judgement(verdict: &Verdict) -> Option<Judged> {
    Some(match verdict {
        Verdict::Stored { .. } => Judged::Stored,
        Verdict::Known | Verdict::NotKept(NotKept::Older) => Judged::Known,
        Verdict::NotKept(_) => Judged::Refused,
        Verdict::Refused(refusal) if refusal.is_hostile() => Judged::Hostile,
        Verdict::Refused(Refusal { prefix: Prefix::Error | Prefix::RateLimited, .. }) => {
            return None;
        }
        Verdict::Refused(_) => Judged::Refused,
    })
}

fn lost(why: &str) -> Ended {
    Ended::Lost(words(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_be_stored_later_must_come_again() {
        let refused = |prefix| judgement(&Refusal::new(prefix, &crate::code::STOPPED, "no").into());
        for prefix in [Prefix::Error, Prefix::RateLimited] {
            assert_eq!(refused(prefix), None);
        }
        for prefix in [Prefix::Invalid, Prefix::Blocked, Prefix::Pow] {
            assert_eq!(refused(prefix), Some(Judged::Refused), "the watermark moves");
        }
        assert_eq!(judgement(&Verdict::NotKept(NotKept::Deleted)), Some(Judged::Refused));
        assert_eq!(judgement(&Verdict::NotKept(NotKept::Older)), Some(Judged::Known));
    }
}
