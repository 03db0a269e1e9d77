//! The embedded relay, over sockets that are only queues.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::{join_all, select};
use futures_util::{Sink, Stream};
use guild_network::intake::{Intake, Options as IntakeOptions, Origin};
use guild_network::relay::{Frame, Full, Options, Peer, Relay};
use guild_protocol::env::{Random, Shutdown, Signer};
use guild_protocol::hash::to_hex;
use guild_protocol::nostr::message::{ClientMessage, RelayMessage};
use guild_protocol::nostr::{Draft, Event, Filter, Limits, tag};
use negentropy::{Id, Negentropy, NegentropyStorageVector};
use tokio::sync::mpsc;

use crate::support::{NOW_S, Scratch, SetClock, event, key};

mod attacks;

struct Zeros;
impl Random for Zeros {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }
}

/// The relay's end of a socket. Takes at most so many frames that nobody has read.
pub(crate) struct Server {
    from_client: mpsc::UnboundedReceiver<Frame>,
    to_client: mpsc::Sender<Frame>,
    permit: Option<mpsc::OwnedPermit<Frame>>,
    reserving: Option<Reserving>,
}

type Reserving = Pin<
    Box<dyn Future<Output = Result<mpsc::OwnedPermit<Frame>, mpsc::error::SendError<()>>> + Send>,
>;

impl Stream for Server {
    type Item = Result<Frame, ()>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.from_client.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

impl Sink<Frame> for Server {
    type Error = ();
    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), ()>> {
        if self.permit.is_some() {
            return Poll::Ready(Ok(()));
        }
        let to_client = self.to_client.clone();
        let reserving = self.reserving.get_or_insert_with(|| Box::pin(to_client.reserve_owned()));
        match reserving.as_mut().poll(cx) {
            Poll::Ready(permit) => {
                (self.reserving, self.permit) = (None, permit.ok());
                Poll::Ready(self.permit.as_ref().map(|_| ()).ok_or(()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
    fn start_send(mut self: Pin<&mut Self>, frame: Frame) -> Result<(), ()> {
        self.permit.take().map(|permit| drop(permit.send(frame))).ok_or(())
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
        Poll::Ready(Ok(()))
    }
}

/// The client's end.
pub(crate) struct Client {
    to_relay: mpsc::UnboundedSender<Frame>,
    from_relay: mpsc::Receiver<Frame>,
}

impl Client {
    pub(crate) fn say(&self, message: &ClientMessage) {
        self.say_text(&message.to_json());
    }

    pub(crate) fn say_text(&self, text: &str) {
        // A relay that has gone hears nothing.
        let _ = self.to_relay.send(Frame::Text(text.to_owned()));
    }

    pub(crate) fn publish(&self, event: &Event) {
        self.say(&ClientMessage::Event(Box::new(event.clone())));
    }

    pub(crate) fn ask(&self, sub: &str, filter: Filter) {
        self.say(&ClientMessage::Req { sub: sub.to_owned(), filters: vec![filter] });
    }

    /// The next message; nothing at the end.
    pub(crate) async fn hear(&mut self) -> Option<RelayMessage> {
        loop {
            match self.from_relay.recv().await? {
                Frame::Text(text) => {
                    return Some(RelayMessage::parse(text.as_bytes(), &Limits::DEFAULT).unwrap());
                }
                Frame::Close | Frame::TooLarge => return None,
                Frame::Ping | Frame::Pong => {}
            }
        }
    }

    /// The answer to a question: its events until EOSE.
    pub(crate) async fn stored(&mut self, sub: &str, filter: Filter) -> Vec<Event> {
        self.ask(sub, filter);
        let mut events = Vec::new();
        loop {
            match self.hear().await.unwrap() {
                RelayMessage::Event { event, .. } => events.push(*event),
                RelayMessage::Eose(_) => return events,
                RelayMessage::Auth(_) | RelayMessage::Ok { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    pub(crate) async fn hear_ok(&mut self) -> (bool, String) {
        loop {
            match self.hear().await.unwrap() {
                RelayMessage::Ok { accepted, message, .. } => return (accepted, message),
                RelayMessage::Auth(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A relay with its intake, whose connections run as long as the test.
pub(crate) struct Stage {
    pub(crate) relay: Relay,
    pub(crate) intake: Intake,
    serve: mpsc::UnboundedSender<Server>,
}

impl Stage {
    /// A client that reads at most `unread_max` frames late.
    pub(crate) fn connect_slow(&self, unread_max: usize) -> Client {
        let (to_relay, from_client) = mpsc::unbounded_channel();
        let (to_client, from_relay) = mpsc::channel(unread_max);
        let server = Server { from_client, to_client, permit: None, reserving: None };
        self.serve.send(server).unwrap();
        Client { to_relay, from_relay }
    }

    pub(crate) fn connect(&self) -> Client {
        self.connect_slow(1_000_000)
    }
}

fn peer() -> Peer {
    Peer { address: [127, 0, 0, 1].into(), host: "localhost:4848".to_owned() }
}

/// Runs a test against a relay.
pub(crate) fn with_relay<F: Future<Output = ()>>(
    scratch: &Scratch,
    options: Options,
    test: impl FnOnce(Stage) -> F,
) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let told = async {
        let clock = SetClock::at(NOW_S);
        let intake_options = IntakeOptions { workers: 2, ..IntakeOptions::default() };
        let (intake, intake_service) =
            Intake::new(intake_options, scratch.store.clone(), &*scratch.bus, clock.clone());
        let (relay, relay_service) = Relay::new(
            options,
            intake.clone(),
            scratch.store.clone(),
            clock.clone(),
            Arc::new(Zeros),
        );
        let (serve, mut to_serve) = mpsc::unbounded_channel::<Server>();
        let shutdown = Shutdown::new();
        let mut tasks = tokio::task::JoinSet::new();
        let stop = shutdown.clone();
        tasks.spawn(async move { intake_service.run(stop).await.unwrap() });
        let stop = shutdown.clone();
        tasks.spawn(async move { relay_service.run(stop).await });
        let admitting = relay.clone();
        let mut connections = tokio::task::JoinSet::new();
        let accept = std::pin::pin!(async move {
            while let Some(server) = to_serve.recv().await {
                let admission = admitting.admit(peer()).unwrap();
                connections.spawn(admission.serve(server));
            }
            // All clients have what they wanted; the shutdown ends their connections.
            connections
        });
        let test = std::pin::pin!(test(Stage { relay, intake, serve }));
        match select(test, accept).await {
            futures_util::future::Either::Left(((), accept)) => {
                shutdown.trigger();
                accept.await.join_all().await;
            }
            futures_util::future::Either::Right(_) => panic!("the stage was dropped early"),
        }
        tasks.join_all().await;
    };
    runtime.block_on(testbed::in_time(told));
}

#[test]
fn stored_then_live_without_gap_or_repeat_in_a_storm_of_writes() {
    const EVENTS: u64 = 1_500;
    let scratch = Scratch::sqlite();
    let options = Options { key_events_per_minute: 1_000_000, ..Options::default() };
    let options = Options { limit_max: 5_000, events_per_minute: 1_000_000, ..options };
    let options = Options { frames_per_minute: 1_000_000, ..options };
    with_relay(&scratch, options, |stage| async move {
        let events: Vec<Event> =
            (0..EVENTS).map(|n| event(1, 1, NOW_S - n, &[], &n.to_string())).collect();
        let source = stage.intake.source(&Origin::Own);
        let write = async {
            for some in events.chunks(10) {
                join_all(some.iter().map(|event| source.offer(event.clone()))).await;
            }
        };
        // Readers come all the time while that goes on, and each sees every event once.
        let read = async {
            let mut readers: Vec<Client> = Vec::new();
            for _ in 0..30 {
                let reader = stage.connect();
                reader.ask("s", Filter::kinds([1]));
                readers.push(reader);
                for _ in 0..40 {
                    tokio::task::yield_now().await;
                }
            }
            readers
        };
        let (mut readers, ()) = futures_util::future::join(read, write).await;
        let all: BTreeSet<_> = events.iter().map(|event| event.id).collect();
        for reader in &mut readers {
            let (mut seen, mut ended) = (Vec::new(), 0);
            while seen.len() < all.len() || ended == 0 {
                match reader.hear().await.unwrap() {
                    RelayMessage::Event { event, .. } => seen.push(event.id),
                    RelayMessage::Eose(_) => ended += 1,
                    RelayMessage::Auth(_) => {}
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(ended, 1);
            assert_eq!(seen.iter().copied().collect::<BTreeSet<_>>(), all);
            assert_eq!(seen.len(), all.len(), "none came twice");
        }
    });
}

#[test]
fn what_is_published_is_answered_kept_and_passed_on() {
    crate::support::both(|scratch| {
        with_relay(scratch, Options::default(), |stage| async move {
            let (mut alice, mut bob) = (stage.connect(), stage.connect());
            assert_eq!(bob.stored("s", Filter::kinds([1, 20_001])).await, []);
            let note = event(1, 1, NOW_S, &[], "note");
            let passing = event(1, 20_001, NOW_S, &[], "passing");
            for event in [&note, &passing] {
                alice.publish(event);
                assert_eq!(alice.hear_ok().await, (true, String::new()));
                let told = RelayMessage::Event { sub: "s".to_owned(), event: event.clone().into() };
                assert_eq!(bob.hear().await, Some(told));
            }
            alice.publish(&note);
            let (known, words) = alice.hear_ok().await;
            assert!(known && words.starts_with("duplicate: "), "{words}");
            let mut forged = note.clone();
            forged.content = "forged".to_owned();
            alice.publish(&forged);
            let (taken, words) = alice.hear_ok().await;
            assert!(!taken && words.starts_with("invalid: "), "{words}");
            assert_eq!(alice.stored("all", Filter::default()).await, [note]);
            alice.say(&ClientMessage::Count { sub: "n".into(), filters: vec![Filter::default()] });
            let counted = RelayMessage::Count { sub: "n".to_owned(), count: 1 };
            assert_eq!(alice.hear().await, Some(counted));
        });
    });
}

#[test]
fn what_is_private_reaches_its_recipient_alone() {
    let scratch = Scratch::sqlite();
    with_relay(&scratch, Options::default(), |stage| async move {
        let to = key(2).public_key().hex();
        let wrap = |n: &str| event(1, 1059, NOW_S, &[&["p", &to]], n);
        let (mut author, mut other, mut recipient) =
            (stage.connect(), stage.connect(), stage.connect());
        author.publish(&wrap("1"));
        assert!(author.hear_ok().await.0);
        // Not by a broad question, not by a count, not live.
        assert_eq!(other.stored("s", Filter::default()).await, []);
        other.say(&ClientMessage::Count { sub: "n".into(), filters: vec![Filter::default()] });
        let none = RelayMessage::Count { sub: "n".to_owned(), count: 0 };
        assert_eq!(other.hear().await, Some(none));
        let Some(RelayMessage::Auth(challenge)) = recipient.hear().await else { panic!() };
        let tags = vec![
            tag::tag(["relay", "ws://localhost:4848/relay"]),
            tag::tag(["challenge", &challenge]),
        ];
        let proof = Draft { kind: 22_242, created_at: NOW_S, tags, content: String::new() };
        recipient.say(&ClientMessage::Auth(Box::new(proof.sign(&key(2)).unwrap())));
        assert!(recipient.hear_ok().await.0);
        assert_eq!(recipient.stored("s", Filter::default()).await, [wrap("1")]);
        author.publish(&wrap("2"));
        let told = RelayMessage::Event { sub: "s".to_owned(), event: wrap("2").into() };
        assert_eq!(recipient.hear().await, Some(told));
        // Only now: two events that are on their way together may arrive in any order.
        author.publish(&event(1, 1, NOW_S, &[], "public"));
        let Some(RelayMessage::Event { event, .. }) = other.hear().await else { panic!() };
        assert_eq!(event.content, "public");
    });
}

#[test]
fn a_client_reconciles_what_it_has() {
    let scratch = Scratch::sqlite();
    let here: Vec<Event> = (0..300).map(|n| event(1, 1, NOW_S - n, &[], &n.to_string())).collect();
    scratch.put(&here);
    let options = Options { sync_max_events: 300, ..Options::default() };
    with_relay(&scratch, options, |stage| async move {
        let mut storage = NegentropyStorageVector::new();
        for event in here.iter().skip(100) {
            storage.insert(event.created_at, Id::from_byte_array(*event.id.as_bytes())).unwrap();
        }
        storage.insert(NOW_S, Id::from_byte_array([9; 32])).unwrap();
        storage.seal().unwrap();
        let mut ours = Negentropy::borrowed(&storage, 4_096).unwrap();
        let mut client = stage.connect();
        let message = to_hex(&ours.initiate().unwrap());
        let (sub, filter) = ("n".to_owned(), Filter::kinds([1]));
        client.say(&ClientMessage::NegOpen { sub, filter, message });
        let (mut have, mut need) = (Vec::new(), Vec::new());
        loop {
            match client.hear().await.unwrap() {
                RelayMessage::NegMsg { message, .. } => {
                    let bytes: Vec<u8> = (0..message.len() / 2)
                        .map(|i| u8::from_str_radix(&message[2 * i..2 * i + 2], 16).unwrap())
                        .collect();
                    let next = ours.reconcile_with_ids(&bytes, &mut have, &mut need).unwrap();
                    let Some(next) = next else { break };
                    client.say(&ClientMessage::NegMsg { sub: "n".into(), message: to_hex(&next) });
                }
                RelayMessage::Auth(_) => {}
                other => panic!("{other:?}"),
            }
        }
        let needed: BTreeSet<_> = need.iter().map(|id| id.to_bytes()).collect();
        let wanted: BTreeSet<_> = here[..100].iter().map(|event| *event.id.as_bytes()).collect();
        assert_eq!((have, needed), (vec![Id::from_byte_array([9; 32])], wanted));
        // One more than may be.
        let source = stage.intake.source(&Origin::Own);
        source.offer(event(1, 1, NOW_S, &[], "one more")).await;
        client.say_text(r#"["NEG-OPEN","n",{"kinds":[1]},"61"]"#);
        let refusal = "blocked: more than 300 events; ask for fewer at once".to_owned();
        let told = RelayMessage::NegErr { sub: "n".to_owned(), message: refusal };
        assert_eq!(client.hear().await, Some(told));
    });
}

#[test]
fn there_is_room_for_so_many_and_a_place_is_given_back() {
    let scratch = Scratch::sqlite();
    let options = Options { connections_max: 2, connections_per_address: 1, ..Options::default() };
    with_relay(&scratch, options, |stage| async move {
        let at = |address: [u8; 4]| Peer { address: address.into(), ..peer() };
        let first = stage.relay.admit(at([10, 0, 0, 1])).unwrap();
        assert_eq!(stage.relay.admit(at([10, 0, 0, 1])).err(), Some(Full::OfAddress));
        let _second = stage.relay.admit(at([10, 0, 0, 2])).unwrap();
        assert_eq!(stage.relay.admit(at([10, 0, 0, 3])).err(), Some(Full::InAll));
        drop(first);
        assert!(stage.relay.admit(at([10, 0, 0, 1])).is_ok());
    });
}
