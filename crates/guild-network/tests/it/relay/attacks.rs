//! Clients that mean harm: each is answered in words or sent away, and costs a bounded amount.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::future::FutureExt;
use futures_util::{Sink, Stream};
use guild_network::intake::{Intake, Options as IntakeOptions, Service as IntakeService};
use guild_network::relay::{Frame, Options, Relay, Service};
use guild_protocol::env::{BoxFuture, Clock, UnixMs};
use guild_protocol::nostr::message::{ClientMessage, RelayMessage};
use guild_protocol::nostr::{Event, Filter};
use tokio::sync::mpsc;

use super::{Server, Zeros, peer, with_relay};
use crate::support::{NOW_S, Scratch, SetClock, block_on, event};

#[test]
fn a_reader_that_never_reads_loses_its_subscriptions_and_nobody_waits_for_it() {
    let scratch = Scratch::sqlite();
    let options = Options { queue_max_bytes: 10_000, ..Options::default() };
    with_relay(&scratch, options, |stage| async move {
        let mut slow = stage.connect_slow(3);
        let mut quick = stage.connect();
        slow.ask("s", Filter::kinds([1]));
        assert_eq!(quick.stored("s", Filter::kinds([1])).await, []);
        // Its greeting and its EOSE have gone out, so one frame more fits.
        let mut writer = stage.connect();
        for n in 0..200 {
            writer.publish(&event(1, 1, NOW_S - n, &[], &n.to_string()));
            assert!(writer.hear_ok().await.0);
            assert!(matches!(quick.hear().await, Some(RelayMessage::Event { .. })));
        }
        let (mut events, mut closed) = (0, None);
        while closed.is_none() {
            match slow.hear().await.unwrap() {
                RelayMessage::Event { .. } => events += 1,
                RelayMessage::Closed { message, .. } => closed = Some(message),
                _ => {}
            }
        }
        assert!(events < 100, "{events} events were kept for a reader that does not read");
        assert!(closed.unwrap().starts_with("rate-limited: "));
        // It may begin again.
        assert_eq!(
            slow.stored("s", Filter { limit: Some(2), ..Filter::kinds([1]) }).await.len(),
            2
        );
    });
}

#[test]
fn a_flooded_inbox_can_be_read_and_a_question_that_is_too_wide_is_no_final_no() {
    let scratch = Scratch::sqlite();
    let us = "a".repeat(64);
    let tags: [&[&str]; 2] = [&["p", &us], &["t", "x"]];
    let mail = event(2, 6050, NOW_S - 10_000, &tags, "mail");
    scratch.put(std::slice::from_ref(&mail));
    let flood: Vec<Event> =
        (0..300).map(|n| event(3, 1, NOW_S - n, &tags, &n.to_string())).collect();
    scratch.put(&flood);
    // Many have the one tag, many the other, and none has both.
    let other = "b".repeat(64);
    let beside: Vec<Event> =
        (0..300).map(|n| event(3, 1, NOW_S - n, &[&["p", &other]], &n.to_string())).collect();
    scratch.put(&beside);
    let options = Options { visits_max: 50, ..Options::default() };
    with_relay(&scratch, options, |stage| async move {
        let mut client = stage.connect();
        let inbox = Filter::kinds([6050, 7000]).tag('p', [us]);
        assert_eq!(client.stored("inbox", inbox).await, [mail]);
        client.ask("wide", Filter::kinds([1]).tag('t', ["x"]).tag('p', [other]));
        let Some(RelayMessage::Closed { message, .. }) = client.hear().await else { panic!() };
        assert_eq!(
            message,
            "error: 50 events were looked at and too few pass; name authors, kinds, tags or a time"
        );
    });
}

#[test]
fn forgers_and_babblers_are_sent_away() {
    let scratch = Scratch::sqlite();
    let options = Options { strikes_per_minute: 5, ..Options::default() };
    with_relay(&scratch, options, |stage| async move {
        let (mut forger, mut babbler) = (stage.connect(), stage.connect());
        for n in 0..20 {
            let mut forged = event(1, 1, NOW_S, &[], &n.to_string());
            forged.sig = event(1, 1, NOW_S, &[], "another").sig;
            forger.publish(&forged);
            babbler.say_text(r#"["REQ","s",{"#);
        }
        for client in [&mut forger, &mut babbler] {
            let mut refusals = 0;
            while let Some(said) = client.hear().await {
                match said {
                    RelayMessage::Ok { accepted: false, message, .. }
                    | RelayMessage::Notice(message) => {
                        assert!(message.starts_with("invalid: "), "{message}");
                        refusals += 1;
                    }
                    RelayMessage::Auth(_) => {}
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(refusals, 6, "five in words, and the last with the end");
        }
        assert_eq!(stage.connect().stored("s", Filter::default()).await, []);
    });
}

#[test]
fn a_storm_of_questions_is_answered_or_refused_one_by_one() {
    let scratch = Scratch::sqlite();
    let options = Options { frames_per_minute: 400, subscriptions_max: 10, ..Options::default() };
    with_relay(&scratch, options, |stage| async move {
        let mut client = stage.connect();
        for n in 0..300 {
            client.ask(&n.to_string(), Filter::default());
        }
        let (mut answered, mut refused) = (0, 0);
        while answered + refused < 300 {
            match client.hear().await.unwrap() {
                RelayMessage::Eose(_) => answered += 1,
                RelayMessage::Closed { message, .. } => {
                    assert_eq!(message, "rate-limited: at most 10 subscriptions at once");
                    refused += 1;
                }
                RelayMessage::Auth(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((answered, refused), (10, 290));
    });
}

#[test]
fn an_author_has_a_limit_over_all_connections_and_forgeries_do_not_use_it_up() {
    let scratch = Scratch::sqlite();
    let options = Options { key_events_per_minute: 3, ..Options::default() };
    with_relay(&scratch, options, |stage| async move {
        let mut forger = stage.connect();
        for n in 0..10 {
            let mut forged = event(1, 1, NOW_S, &[], &n.to_string());
            forged.sig = event(1, 1, NOW_S, &[], "another").sig;
            forger.publish(&forged);
            assert!(!forger.hear_ok().await.0);
        }
        let mut stored = Vec::new();
        for n in 0..6 {
            let mut client = stage.connect();
            client.publish(&event(1, 1, NOW_S, &[], &n.to_string()));
            stored.push(client.hear_ok().await);
        }
        let good = stored.iter().filter(|(accepted, _)| *accepted).count();
        assert_eq!(good, 3, "{stored:?}");
        assert_eq!(stored[5].1, "rate-limited: too many events of this author");
    });
}

/// A socket of which everything can be read at once. It counts what was read of it and what it has taken.
#[derive(Default)]
struct Socket {
    frames: VecDeque<Frame>,
    read: Arc<AtomicUsize>,
    taken: Arc<AtomicUsize>,
    /// A client that takes a second for every frame, by this clock; otherwise none at all.
    slow: Option<Slow>,
    polls: usize,
}

impl Stream for Socket {
    type Item = Result<Frame, ()>;
    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.frames.pop_front() {
            Some(frame) => {
                self.read.fetch_add(1, Ordering::SeqCst);
                Poll::Ready(Some(Ok(frame)))
            }
            None => Poll::Pending,
        }
    }
}

impl Sink<Frame> for Socket {
    type Error = ();
    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), ()>> {
        self.polls += 1;
        match &self.slow {
            Some(clock) if !self.polls.is_multiple_of(3) => {
                clock.0.fetch_add(500, Ordering::SeqCst);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            _ => Poll::Ready(Ok(())),
        }
    }
    fn start_send(self: Pin<&mut Self>, _: Frame) -> Result<(), ()> {
        self.taken.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
        Poll::Ready(Ok(()))
    }
}

/// A relay whose services do not run: what it is brought waits for ever.
struct Idle {
    relay: Relay,
    /// There, so that nobody is told that they have ended.
    _services: (IntakeService, Service),
}

impl Idle {
    fn new(
        scratch: &Scratch,
        (options, intake): (Options, IntakeOptions),
        clock: Arc<dyn Clock>,
    ) -> Idle {
        let store = scratch.store.clone();
        let (intake, storing) = Intake::new(intake, store.clone(), &*scratch.bus, clock.clone());
        let (relay, passing) = Relay::new(options, intake, store, clock, Arc::new(Zeros));
        Idle { relay, _services: (storing, passing) }
    }

    /// Serves a client until one of both ends it.
    async fn serve<S>(&self, socket: S)
    where
        S: Stream<Item = Result<Frame, ()>> + Sink<Frame, Error = ()> + Unpin,
    {
        self.relay.admit(peer()).unwrap().serve(socket).await;
    }
}

#[test]
fn events_that_cannot_be_stored_as_fast_stay_with_whoever_brings_them() {
    let scratch = Scratch::sqlite();
    let intake = IntakeOptions { origin_max_bytes: 1_000_000, ..IntakeOptions::default() };
    let relay = Idle::new(&scratch, (Options::default(), intake), SetClock::at(NOW_S));
    let large = "x".repeat(100_000);
    let frame = |n: u64| {
        Frame::Text(format!(r#"["EVENT",{}]"#, event(1, 1, NOW_S - n, &[], &large).to_json()))
    };
    let socket = Socket { frames: (0..50).map(frame).collect(), ..Socket::default() };
    let read = socket.read.clone();
    let mut serving = Box::pin(relay.serve(socket));
    for _ in 0..200 {
        assert!((&mut serving).now_or_never().is_none());
    }
    // An event of 100 kB counts twice; one waits for room, and behind it nothing is read.
    assert_eq!(read.load(Ordering::SeqCst), 5);
}

#[test]
fn a_frame_that_is_too_large_ends_the_connection() {
    let scratch = Scratch::sqlite();
    let relay = Idle::new(&scratch, Default::default(), SetClock::at(NOW_S));
    let behind = Frame::Text(r#"["REQ","s",{}]"#.to_owned());
    let socket = Socket { frames: [Frame::TooLarge, behind].into(), ..Socket::default() };
    let (read, taken) = (socket.read.clone(), socket.taken.clone());
    block_on(relay.serve(socket));
    // The greeting and the farewell went out.
    assert_eq!((read.load(Ordering::SeqCst), taken.load(Ordering::SeqCst)), (1, 2));
}

/// Time passes only while somebody takes a frame.
#[derive(Clone, Default)]
struct Slow(Arc<AtomicI64>);

impl Clock for Slow {
    fn now_ms(&self) -> UnixMs {
        self.0.load(Ordering::SeqCst)
    }
    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        let (clock, due_ms) = (self.clone(), self.now_ms() + duration_ms);
        Box::pin(std::future::poll_fn(move |cx| {
            cx.waker().wake_by_ref();
            if clock.now_ms() < due_ms { Poll::Pending } else { Poll::Ready(()) }
        }))
    }
}

#[test]
fn an_answer_has_one_deadline_however_many_frames_it_has() {
    let scratch = Scratch::sqlite();
    let notes: Vec<_> = (0..500).map(|n| event(1, 1, NOW_S - n, &[], "")).collect();
    scratch.put(&notes);
    let slow = Slow::default();
    let relay = Idle::new(&scratch, Default::default(), Arc::new(slow.clone()));
    let question = Frame::Text(r#"["REQ","s",{"kinds":[1]}]"#.to_owned());
    let socket = Socket { frames: [question].into(), slow: Some(slow), ..Socket::default() };
    let taken = socket.taken.clone();
    block_on(relay.serve(socket));
    let taken = taken.load(Ordering::SeqCst);
    assert!((30..100).contains(&taken), "{taken} frames were sent, one each second");
}

#[test]
fn counting_has_a_limit_too() {
    let scratch = Scratch::sqlite();
    let notes: Vec<_> = (0..11).map(|n| event(1, 1, NOW_S - n, &[], "")).collect();
    scratch.put(&notes);
    let limits = [
        (Options { sync_max_events: 11, ..Options::default() }, None),
        (Options { sync_max_events: 10, ..Options::default() }, Some("more than 10 events")),
        (Options { sync_max_bytes: 1_000, ..Options::default() }, Some("more than 1000 bytes")),
    ];
    for (options, refusal) in limits {
        with_relay(&scratch, options, |stage| async move {
            let mut client = stage.connect();
            let filters = vec![Filter::kinds([1])];
            client.say(&ClientMessage::Count { sub: "n".to_owned(), filters });
            assert!(matches!(client.hear().await, Some(RelayMessage::Auth(_))));
            match (client.hear().await.unwrap(), refusal) {
                (RelayMessage::Count { count, .. }, None) => assert_eq!(count, 11),
                (RelayMessage::Closed { message, .. }, Some(words)) => {
                    assert!(message.contains(words), "{message}");
                }
                (other, _) => panic!("{other:?}"),
            }
        });
    }
}

/// Every sleep is over at once, and that much later it is.
#[derive(Default)]
struct Hasty(AtomicI64);

impl Clock for Hasty {
    fn now_ms(&self) -> UnixMs {
        self.0.load(Ordering::SeqCst)
    }
    fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
        self.0.fetch_add(duration_ms, Ordering::SeqCst);
        Box::pin(std::future::ready(()))
    }
}

/// How often a client that says this much at the beginning is asked whether it is there, and how long it is kept.
fn kept(says: &[&str]) -> (usize, i64) {
    let scratch = Scratch::sqlite();
    let clock = Arc::new(Hasty::default());
    let options = Options { ping_ms: 10_000, silence_max_ms: 30_000, ..Options::default() };
    let relay = Idle::new(&scratch, (options, IntakeOptions::default()), clock.clone());
    let (to_relay, from_client) = mpsc::unbounded_channel();
    let (to_client, mut from_relay) = mpsc::channel(1_000);
    says.iter().for_each(|text| to_relay.send(Frame::Text((*text).to_owned())).unwrap());
    let server = Server { from_client, to_client, permit: None, reserving: None };
    block_on(relay.serve(server));
    let mut pings = 0;
    while let Ok(frame) = from_relay.try_recv() {
        pings += usize::from(frame == Frame::Ping);
    }
    (pings, clock.now_ms())
}

#[test]
fn whoever_says_nothing_is_asked_and_then_let_go() {
    let (pings, kept_ms) = kept(&[r#"["CLOSE","x"]"#]);
    assert_eq!(pings, 3);
    assert!((30_000..60_000).contains(&kept_ms), "{kept_ms}");
    assert_eq!(kept(&[]).0, 2, "also without a first word");
}

#[test]
fn a_socket_that_takes_nothing_is_given_up() {
    let scratch = Scratch::sqlite();
    let clock = Arc::new(Hasty::default());
    let relay = Idle::new(&scratch, Default::default(), clock.clone());
    let (to_relay, from_client) = mpsc::unbounded_channel();
    // Room for the greeting, and nothing more, for ever.
    let (to_client, _from_relay) = mpsc::channel(1);
    to_relay.send(Frame::Text("rubbish".to_owned())).unwrap();
    let server = Server { from_client, to_client, permit: None, reserving: None };
    block_on(relay.serve(server));
    assert!(clock.now_ms() >= Options::default().silence_max_ms);
}
