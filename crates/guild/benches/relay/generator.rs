//! What both relays are loaded with: events that were signed before, by clients that do as little as they can.

use std::collections::BTreeSet;

use futures_util::{FutureExt, SinkExt, StreamExt};
use guild_protocol::identity::SecretKey;
use guild_protocol::nostr::message::ClientMessage;
use guild_protocol::nostr::{Draft, tag};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::said;

/// Frames that publish requests for work, each another.
pub(crate) fn signed(count: u64) -> Result<Vec<String>, String> {
    let key: SecretKey = format!("{:064x}", 7).parse().map_err(said)?;
    let created_at = u64::try_from(testbed::now_ms() / 1_000).map_err(said)?;
    let sign = |n: u64| {
        let input = format!("{n:08} {}", "text to be worked on ".repeat(12));
        let tags = vec![
            tag::tag(["i", &input, "text"]),
            tag::tag(["output", "application/json"]),
            tag::tag(["bid", "10000"]),
        ];
        let draft = Draft { kind: 5050, created_at, tags, content: String::new() };
        let event = draft.sign(&key).map_err(said)?;
        Ok(ClientMessage::Event(Box::new(event)).to_json())
    };
    (0..count).map(sign).collect()
}

/// A client that reads no more of a frame than it must.
pub(crate) struct Client(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Client {
    pub(crate) async fn connect(url: &str) -> Result<Client, String> {
        let (socket, _) = connect_async(url).await.map_err(said)?;
        if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
            stream.set_nodelay(true).map_err(said)?;
        }
        Ok(Client(socket))
    }

    /// The next message of a sort; others are passed over, unless they say that something went wrong.
    async fn next(&mut self, sort: &str) -> Result<String, String> {
        loop {
            let message = self.0.next().await.ok_or("the relay has gone")?.map_err(said)?;
            let Message::Text(text) = message else { continue };
            if is(&text, sort) {
                return Ok(text.to_string());
            }
            if is(&text, "NOTICE") || is(&text, "CLOSED") {
                return Err(text.to_string());
            }
        }
    }

    /// Asks for what is new.
    pub(crate) async fn subscribe(&mut self) -> Result<(), String> {
        let ask = r#"["REQ","bench",{"kinds":[5050],"limit":1}]"#;
        self.0.send(Message::text(ask)).await.map_err(said)?;
        self.next("EOSE").await.map(drop)
    }

    /// Publishes, with so many on their way, until all are acknowledged.
    pub(crate) async fn publish(&mut self, frames: &[String], most: usize) -> Result<(), String> {
        let (mut sent, mut acknowledged) = (0, 0);
        while acknowledged < frames.len() {
            while let Some(frame) = frames.get(sent).filter(|_| sent - acknowledged < most) {
                self.0.feed(Message::text(frame.clone())).await.map_err(said)?;
                sent += 1;
            }
            self.0.flush().await.map_err(said)?;
            let mut answer = Some(self.next("OK").await?);
            while let Some(text) = answer {
                if !text.contains("true") {
                    return Err(text);
                }
                acknowledged += 1;
                // Whatever else has come.
                answer = match acknowledged < sent {
                    true => self.next("OK").now_or_never().transpose()?,
                    false => None,
                };
            }
        }
        Ok(())
    }

    /// Receives so many events, each once.
    pub(crate) async fn receive(&mut self, count: usize) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        while seen.len() < count {
            let text = self.next("EVENT").await?;
            let id = text.split(r#""id":"#).nth(1).and_then(|rest| rest.split('"').nth(1));
            if !seen.insert(id.ok_or("an event without an id")?.to_owned()) {
                return Err("an event came twice".to_owned());
            }
        }
        Ok(())
    }
}

fn is(text: &str, sort: &str) -> bool {
    text.trim_start_matches(['[', ' ', '"']).starts_with(sort)
}
