//! The relay of a running node: used by a foreign client, and attacked. All over real sockets.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::io::Write;
use std::net::TcpStream;

use futures_util::{SinkExt, StreamExt};
use guild_protocol::identity::SecretKey;
use guild_protocol::nostr::message::{ClientMessage, RelayMessage};
use guild_protocol::nostr::{Draft, Event, Filter, Limits};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::explorer::counted;
use crate::node::{ANY_PORT, Node};
use crate::support::Home;

/// A node is bounded below this, whatever strangers do. A debug build without them has about half.
const RESIDENT_MAX_KB: u64 = 200_000;

struct Client(WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>);

impl Client {
    async fn connect(node: &Node) -> Client {
        let (socket, _) = connect_async(format!("ws://{}/relay", node.address())).await.unwrap();
        Client(socket)
    }

    async fn say(&mut self, message: &ClientMessage) {
        self.0.send(Message::text(message.to_json())).await.unwrap();
    }

    async fn ask(&mut self, filter: Filter) {
        self.say(&ClientMessage::Req { sub: "s".to_owned(), filters: vec![filter] }).await;
    }

    /// The next message; nothing once the relay has ended it.
    async fn hear(&mut self) -> Option<RelayMessage> {
        loop {
            match self.0.next().await? {
                Ok(Message::Text(text)) => {
                    let said = RelayMessage::parse(text.as_bytes(), &Limits::DEFAULT).unwrap();
                    if !matches!(said, RelayMessage::Auth(_)) {
                        return Some(said);
                    }
                }
                Ok(Message::Close(_)) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// An honest client publishes an event and finds it.
    async fn works(node: &Node, content: &str) -> bool {
        let note = event(9, content);
        let mut client = Client::connect(node).await;
        client.say(&ClientMessage::Event(Box::new(note.clone()))).await;
        let stored = matches!(client.hear().await, Some(RelayMessage::Ok { accepted: true, .. }));
        client.ask(Filter { ids: Some([note.id].into()), ..Filter::default() }).await;
        let told = RelayMessage::Event { sub: "s".to_owned(), event: Box::new(note) };
        stored && client.hear().await == Some(told)
    }
}

fn event(author: u32, content: &str) -> Event {
    let key: SecretKey = format!("{author:064x}").parse().unwrap();
    let created_at = u64::try_from(testbed::now_ms() / 1_000).unwrap();
    Draft { kind: 1, created_at, tags: vec![], content: content.to_owned() }.sign(&key).unwrap()
}

/// How often the relay of a node has refused something, by its own count.
fn refusals(node: &Node, why: &str) -> u64 {
    counted(node, &format!("relay_refused_total{{why=\"{why}\"}}")).unwrap_or(0)
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

#[test]
fn a_foreign_client_publishes_reads_proves_its_key_and_learns_the_limits() {
    let home = Home::new();
    let node = Node::up(&home, &ANY_PORT);
    for path in ["/relay", ""] {
        let url = format!("ws://{}{path}", node.address());
        let seen = testbed::javascript::run("relay-client.mjs", &[&url]).unwrap();
        let seen: Value = serde_json::from_str(&seen).unwrap();
        let expected = json!({
            "live": [[false, "{\"name\":\"one\"}"], [true, "{\"name\":\"two\"}"]],
            "replaced": ["{\"name\":\"two\"}"],
            "not_by_others": 1,
            "deleted": 0,
            "deleted_for_good": 0,
            "forged": "invalid",
            "expired": "invalid: the event has expired",
            "future": "invalid",
            "ephemeral": "hello",
            "ephemeral_kept": 0,
            "wrap_unproven": "auth-required: prove the key of whom it is for",
            "wrap": ["secret"],
            "wrap_of_another": 0,
            "proof_for_another": "invalid",
            "count": 1,
            "nips": [1, 9, 11, 40, 42, 45, 70, 77],
            "limit": 1000,
        });
        assert_eq!(seen, expected, "at {url}");
    }
    assert_eq!(node.stop(), 0);
}

#[test]
fn a_relay_that_is_not_wanted_is_not_there() {
    let home = Home::new();
    let node = Node::up(&home, &[&ANY_PORT[..], &["--set", "relay.enabled=false"]].concat());
    run(async {
        let refused = connect_async(format!("ws://{}/relay", node.address())).await.unwrap_err();
        assert!(refused.to_string().contains("404"), "{refused}");
    });
    assert_eq!(node.stop(), 0);
}

#[test]
fn a_flood_of_a_hundred_thousand_events_is_refused_in_words_counted_and_costs_no_memory() {
    const FLOOD: usize = 100_000;
    let home = Home::new();
    let options = [&ANY_PORT[..], &["--set", "relay.frames_per_minute=1000000"]].concat();
    let node = Node::up(&home, &options);
    run(async {
        let client = Client::connect(&node).await;
        let (mut writing, reading) = client.0.split();
        let mut reading = reading.filter_map(|read| async { read.ok()?.into_text().ok() }).boxed();
        let flood = async {
            let honest = event(1, "0").to_json();
            for n in 0..FLOOD {
                // Only the first are checked at all, and nobody finds out that they are forged: they are what they say.
                let text = match n % 10 {
                    0 if n < 2_000 => event(1 + n as u32 % 3, &n.to_string()).to_json(),
                    _ => honest.clone(),
                };
                writing.feed(Message::text(format!(r#"["EVENT",{text}]"#))).await.unwrap();
            }
            writing.flush().await.unwrap();
        };
        let (mut taken, mut refused) = (0, 0);
        let answers = async {
            while taken + refused < FLOOD {
                let said = reading.next().await.unwrap();
                taken += usize::from(said.contains(",true,"));
                refused += usize::from(said.contains(",false,\"rate-limited: "));
            }
        };
        futures_util::future::join(flood, answers).await;
        assert!(refused > 80_000 && taken >= 6_000, "{taken} taken, {refused} refused");
        let counted = ["events", "key_events"].map(|why| refusals(&node, why));
        assert_eq!(counted.iter().sum::<u64>(), u64::try_from(refused).unwrap(), "{counted:?}");
        assert!(counted[0] > 80_000, "most are too many of one connection: {counted:?}");
        assert!(Client::works(&node, "in the middle of it").await);
    });
    let resident_kb = node.resident_kb();
    assert!(resident_kb < RESIDENT_MAX_KB, "{resident_kb} kB");
    assert_eq!(node.stop(), 0);
}

#[test]
fn readers_that_never_read_cost_little_and_hold_up_nobody() {
    let home = Home::new();
    let node = Node::up(&home, &ANY_PORT);
    run(async {
        let mut deaf = Vec::new();
        for _ in 0..30 {
            let mut client = Client::connect(&node).await;
            client.ask(Filter::kinds([1])).await;
            assert_eq!(client.hear().await, Some(RelayMessage::Eose("s".to_owned())));
            deaf.push(client);
        }
        let (mut writer, mut reader) = (Client::connect(&node).await, Client::connect(&node).await);
        reader.ask(Filter::kinds([1])).await;
        assert_eq!(reader.hear().await, Some(RelayMessage::Eose("s".to_owned())));
        for n in 0..150 {
            let note = event(1, &format!("{n} {}", "x".repeat(200_000)));
            writer.say(&ClientMessage::Event(Box::new(note.clone()))).await;
            assert!(matches!(writer.hear().await, Some(RelayMessage::Ok { accepted: true, .. })));
            let told = RelayMessage::Event { sub: "s".to_owned(), event: Box::new(note) };
            assert_eq!(reader.hear().await, Some(told));
        }
        let resident_kb = node.resident_kb();
        assert!(resident_kb < RESIDENT_MAX_KB, "{resident_kb} kB");
        // One that begins to read at last is told why it has missed something.
        let mut heard = deaf.pop().unwrap();
        let mut closed = false;
        while !closed {
            closed = match heard.hear().await.unwrap() {
                RelayMessage::Closed { message, .. } => message.starts_with("rate-limited: "),
                _ => false,
            };
        }
    });
    assert_eq!(node.stop(), 0);
}

#[test]
fn half_handshakes_oversized_frames_and_rubbish_are_counted_and_harm_nobody() {
    let home = Home::new();
    let node = Node::up(&home, &ANY_PORT);
    let mut half = Vec::new();
    for n in 0..200 {
        let mut socket = TcpStream::connect(node.address()).unwrap();
        let some = [
            "GET /relay HTTP/1.1\r\nhost: local",
            "GET /relay HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\n",
        ];
        socket.write_all(some[n % 2].as_bytes()).unwrap();
        half.push(socket);
    }
    run(async {
        assert!(Client::works(&node, "beside the half ones").await);
        let mut large = Client::connect(&node).await;
        // The relay may be gone before all of it is sent.
        let _ = large.0.send(Message::text("x".repeat(3_000_000))).await;
        assert_eq!(large.hear().await, None);
        let mut rubbish = Client::connect(&node).await;
        for _ in 0..5 {
            let _ = rubbish.0.send(Message::binary(vec![0xff; 1_000])).await;
            assert!(matches!(rubbish.hear().await, Some(RelayMessage::Notice(_))));
        }
        assert!(Client::works(&node, "after all of that").await);
    });
    assert_eq!((refusals(&node, "frame_size"), refusals(&node, "malformed")), (1, 5));
    assert_eq!(counted(&node, "relay_ended_total{why=\"frame_size\"}"), Some(1));
    assert!(node.resident_kb() < RESIDENT_MAX_KB);
    assert_eq!(node.stop(), 0);
}
