//! One connection: carries frames between a socket and its [`Session`], and what the session asks for to the intake,
//! the database and the hub. Everything that waits is bounded; while there is too much, nothing more is read.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::{Either, FutureExt, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use guild_protocol::env::{BoxFuture, UnixMs};
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::EventId;

use super::hub::{Mailbox, Taken};
use super::question::{Question, Reply};
use super::session::{Action, Session, TOO_SLOW, refused};
use super::sync::Sync;
use super::{Admission, Frame, Shared};
use crate::intake::{Origin, Pending, Source, Verdict};

mod reply;

/// Why a connection ended, as it is counted.
pub(super) type Ended = &'static str;

type Offered = (EventId, PublicKey, Verdict);

/// An event that is taken up; its verdict is to come.
struct Submitted {
    id: EventId,
    author: PublicKey,
    verdict: Pending,
}

/// Something happened.
enum Woken {
    Offered(Offered),
    Replied(Reply),
    Taken(Taken),
    Frame(Frame),
    Tick,
}

pub(super) struct Connection {
    shared: Arc<Shared>,
    number: u64,
    mailbox: Arc<Mailbox>,
    source: Source,
    session: Session,
    /// An event that waits for room. Nothing is read meanwhile.
    submitting: Option<BoxFuture<Submitted>>,
    /// Events that are being checked and stored.
    offers: FuturesUnordered<BoxFuture<Offered>>,
    questions: VecDeque<Question>,
    asked: Option<BoxFuture<Reply>>,
    syncs: BTreeMap<String, Sync>,
    timer: BoxFuture<()>,
    opened_ms: UnixMs,
    heard_ms: UnixMs,
    has_spoken: bool,
    /// Whether something was sent that may not have left yet.
    is_dirty: bool,
    /// Until when the client must have taken what is being sent, once it does not take it at once.
    patience: Option<BoxFuture<()>>,
}

impl Connection {
    pub(super) fn new(shared: Arc<Shared>, admission: &Admission) -> Connection {
        let now_ms = shared.clock.now_ms();
        let options = &shared.options;
        let mut challenge = [0; 16];
        shared.random.fill(&mut challenge);
        let challenge = guild_protocol::hash::to_hex(&challenge);
        let (number, mailbox) = shared.hub.enter(options.queue_max_bytes);
        Connection {
            number,
            mailbox,
            source: shared.intake.source(&Origin::Client(number)),
            session: Session::new(options.clone(), admission.host(), challenge, now_ms),
            submitting: None,
            offers: FuturesUnordered::new(),
            questions: VecDeque::new(),
            asked: None,
            syncs: BTreeMap::new(),
            timer: shared.clock.sleep(options.ping_ms.min(options.first_frame_max_ms)),
            opened_ms: now_ms,
            heard_ms: now_ms,
            has_spoken: false,
            is_dirty: false,
            patience: None,
            shared,
        }
    }

    /// Serves until one of both ends it.
    pub(super) async fn run<S, E>(&mut self, socket: &mut S) -> Ended
    where
        S: Stream<Item = Result<Frame, E>> + Sink<Frame, Error = E> + Unpin,
    {
        let greeting = self.session.greeting();
        let mut ended = self.send(socket, Frame::Text(greeting)).await.err();
        while ended.is_none() {
            let woken = match poll_fn(|cx| self.poll(socket, cx)).await {
                Ok(woken) => woken,
                Err(ended) => return ended,
            };
            ended = self.handle(socket, woken).await.err();
        }
        ended.unwrap_or_default()
    }

    /// What happens next. Before it waits, what was sent is flushed.
    fn poll<S, E>(&mut self, socket: &mut S, cx: &mut Context<'_>) -> Poll<Result<Woken, Ended>>
    where
        S: Stream<Item = Result<Frame, E>> + Sink<Frame, Error = E> + Unpin,
    {
        if let Some(submitting) = &mut self.submitting
            && let Poll::Ready(Submitted { id, author, verdict }) = submitting.poll_unpin(cx)
        {
            self.submitting = None;
            self.offers.push(Box::pin(async move { (id, author, verdict.await) }));
        }
        if let Poll::Ready(Some(offered)) = self.offers.poll_next_unpin(cx) {
            return Poll::Ready(Ok(Woken::Offered(offered)));
        }
        if self.asked.is_none() {
            self.asked = self.questions.pop_front().map(|question| question.ask(&self.shared));
        }
        if let Some(asked) = &mut self.asked
            && let Poll::Ready(reply) = asked.poll_unpin(cx)
        {
            self.asked = None;
            return Poll::Ready(Ok(Woken::Replied(reply)));
        }
        if let Poll::Ready(taken) = self.mailbox.poll_take(cx) {
            return Poll::Ready(Ok(Woken::Taken(taken)));
        }
        if self.may_read()
            && let Poll::Ready(read) = socket.poll_next_unpin(cx)
        {
            return Poll::Ready(match read {
                Some(Ok(frame)) => Ok(Woken::Frame(frame)),
                Some(Err(_)) => Err("broken"),
                None => Err("gone"),
            });
        }
        if self.is_dirty
            && let Poll::Ready(flushed) = socket.poll_flush_unpin(cx)
        {
            self.is_dirty = false;
            if flushed.is_err() {
                return Poll::Ready(Err("broken"));
            }
        }
        self.timer.poll_unpin(cx).map(|()| Ok(Woken::Tick))
    }

    fn may_read(&self) -> bool {
        self.submitting.is_none()
            && self.offers.len() < self.shared.options.events_waiting_max
            && self.questions.len() < self.shared.options.queries_waiting_max
    }

    async fn handle<S, E>(&mut self, socket: &mut S, woken: Woken) -> Result<(), Ended>
    where
        S: Stream<Item = Result<Frame, E>> + Sink<Frame, Error = E> + Unpin,
    {
        let now_ms = self.shared.clock.now_ms();
        self.patience = None;
        let actions = match woken {
            Woken::Offered((id, author, verdict)) => {
                if let Verdict::Stored { .. } = verdict {
                    self.shared.keys().count(&author, now_ms);
                }
                self.session.offered(id, &verdict, now_ms)
            }
            Woken::Replied(Reply::Stored(number, Ok(answer), _room)) => {
                for frame in self.session.stored(number, answer) {
                    self.send(socket, Frame::Text(frame)).await?;
                }
                Vec::new()
            }
            Woken::Replied(reply) => self.replied(reply),
            Woken::Taken(Taken::Events(events)) => {
                for (number, live) in events {
                    let actions = self.session.delivered(number, &live);
                    self.act(socket, actions).await?;
                }
                Vec::new()
            }
            Woken::Taken(Taken::Missed) => self.session.missed(TOO_SLOW),
            Woken::Taken(Taken::Ended) => return Err("shutdown"),
            Woken::Frame(frame) => {
                self.heard_ms = now_ms;
                match frame {
                    Frame::Text(text) => {
                        self.has_spoken = true;
                        let shared = self.shared.clone();
                        let allows = |key: &PublicKey| shared.keys().allows(key, now_ms);
                        self.session.take(&text, allows, now_ms)
                    }
                    Frame::Close => return Err("closed"),
                    Frame::TooLarge => {
                        refused("frame_size");
                        return Err("frame_size");
                    }
                    Frame::Ping | Frame::Pong => self.session.take_empty(now_ms),
                }
            }
            Woken::Tick => return self.tick(socket, now_ms).await,
        };
        self.act(socket, actions).await
    }

    async fn act<S, E>(&mut self, socket: &mut S, actions: Vec<Action>) -> Result<(), Ended>
    where
        S: Sink<Frame, Error = E> + Unpin,
    {
        for action in actions {
            match action {
                Action::Send(frame) => self.send(socket, Frame::Text(frame)).await?,
                Action::Disconnect(why) => return Err(why),
                // None is there: a frame brings one event, and the next is read when this one has room.
                Action::Offer(event) => {
                    let (source, id, author) = (self.source.clone(), event.id, event.pubkey);
                    self.submitting = Some(Box::pin(async move {
                        Submitted { id, author, verdict: source.submit(*event).await }
                    }));
                }
                Action::Subscribe { number, filters } => {
                    let passed_on = self.shared.hub.subscribe(self.number, number, filters.clone());
                    let proven = self.session.proven().clone();
                    self.questions.push_back(Question::Stored {
                        number,
                        filters,
                        passed_on,
                        proven,
                    });
                }
                Action::Unsubscribe(number) => {
                    self.shared.hub.unsubscribe(self.number, number);
                    self.questions.retain(|question| !question.is_of(number));
                }
                Action::Count { sub, filters } => {
                    self.questions.push_back(Question::Count { sub, filters });
                }
                Action::OpenSync { sub, filter, message } => {
                    self.questions.push_back(Question::Sync { sub, filter, message });
                }
                Action::Sync { sub, message } => {
                    if let Action::Send(frame) = self.answer_sync(&sub, &message) {
                        self.send(socket, Frame::Text(frame)).await?;
                    }
                }
                Action::CloseSync(sub) => self.close_sync(&sub),
            }
        }
        Ok(())
    }

    /// Sends, and ends a connection that does not take it. An answer has one deadline, however many frames it has.
    async fn send<S, E>(&mut self, socket: &mut S, frame: Frame) -> Result<(), Ended>
    where
        S: Sink<Frame, Error = E> + Unpin,
    {
        self.is_dirty = true;
        let mut ready = poll_fn(|cx| socket.poll_ready_unpin(cx));
        let made_ready = match (&mut ready).now_or_never() {
            Some(made_ready) => made_ready,
            None => {
                let late = || self.shared.clock.sleep(self.shared.options.silence_max_ms);
                match select(ready, self.patience.get_or_insert_with(late)).await {
                    Either::Left((made_ready, _)) => made_ready,
                    Either::Right(_) => {
                        refused("stalled");
                        return Err("stalled");
                    }
                }
            }
        };
        made_ready.and_then(|()| socket.start_send_unpin(frame)).map_err(|_| "broken")
    }

    async fn tick<S, E>(&mut self, socket: &mut S, now_ms: UnixMs) -> Result<(), Ended>
    where
        S: Sink<Frame, Error = E> + Unpin,
    {
        let options = self.shared.options.clone();
        if !self.has_spoken && now_ms - self.opened_ms >= options.first_frame_max_ms {
            refused("handshake");
            return Err("handshake");
        }
        if now_ms - self.heard_ms >= options.silence_max_ms {
            refused("silent");
            return Err("silent");
        }
        self.timer = self.shared.clock.sleep(options.ping_ms.min(options.first_frame_max_ms));
        self.send(socket, Frame::Ping).await
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let open: Vec<String> = self.syncs.keys().cloned().collect();
        open.iter().for_each(|sub| self.close_sync(sub));
        self.shared.hub.leave(self.number);
    }
}
