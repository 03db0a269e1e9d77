//! One question, or one event, to one relay, without a node: for a person who wants to know.

use std::collections::BTreeMap;
use std::pin::pin;

use futures_util::future::{Either, select};
use futures_util::{SinkExt, StreamExt};
use guild_protocol::env::Clock;
use guild_protocol::nostr::message::{ClientMessage, RelayMessage};
use guild_protocol::nostr::{Event, EventId, Filter, Limits};
use tokio_tungstenite::tungstenite::Message;

use super::address::Address;
use super::dial::{self, Socket};
use super::status::words;
use crate::error::code;
use crate::{Error, Result};

/// What a relay answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answered {
    /// Events that pass the filters and are what their authors signed, newest first.
    pub events: Vec<Event>,
    /// How many it sent that are not.
    pub dropped: u64,
}

/// Asks a relay for what it has stored, at most `limit` events, within a time.
pub async fn ask(
    url: &str,
    filters: &[Filter],
    limit: usize,
    within_ms: i64,
    clock: &dyn Clock,
) -> Result<Answered> {
    in_time(url, within_ms, clock, question(url, filters, limit)).await
}

/// Publishes an event at a relay, within a time; its words.
pub async fn tell(url: &str, event: &Event, within_ms: i64, clock: &dyn Clock) -> Result<String> {
    in_time(url, within_ms, clock, statement(url, event)).await
}

async fn in_time<T>(
    url: &str,
    within_ms: i64,
    clock: &dyn Clock,
    wanted: impl Future<Output = Result<T>>,
) -> Result<T> {
    match select(pin!(wanted), clock.sleep(within_ms)).await {
        Either::Left((got, _)) => got,
        Either::Right(_) => Err(unreachable(url, &format!("no answer within {within_ms} ms"))),
    }
}

async fn question(url: &str, filters: &[Filter], limit: usize) -> Result<Answered> {
    let mut socket = open(url).await?;
    let sub = "ask".to_owned();
    send(url, &mut socket, &ClientMessage::Req { sub, filters: filters.to_vec() }).await?;
    let (mut found, mut dropped) = (BTreeMap::<EventId, Event>::new(), 0);
    // One that is cut short is an answer too: a relay need not say where it ends.
    while found.len() < limit {
        match hear(url, &mut socket).await? {
            RelayMessage::Event { event, .. } => {
                let passes = filters.iter().any(|filter| filter.matches(&event));
                if passes && event.verify().is_ok() {
                    found.insert(event.id, *event);
                } else {
                    dropped += 1;
                }
            }
            RelayMessage::Eose(_) => break,
            RelayMessage::Closed { message, .. } => return Err(refused(&message)),
            RelayMessage::Notice(message) => {
                tracing::info!(relay = url, said = words(&message), "a relay has a remark");
            }
            _ => {}
        }
    }
    leave(&mut socket).await;
    let mut events: Vec<Event> = found.into_values().collect();
    events.sort_by_key(|event| std::cmp::Reverse(event.created_at));
    Ok(Answered { events, dropped })
}

async fn statement(url: &str, event: &Event) -> Result<String> {
    let mut socket = open(url).await?;
    send(url, &mut socket, &ClientMessage::Event(Box::new(event.clone()))).await?;
    loop {
        match hear(url, &mut socket).await? {
            RelayMessage::Ok { id, accepted, message } if id == event.id => {
                leave(&mut socket).await;
                let known = message.starts_with("duplicate:");
                return if accepted || known {
                    Ok(words(&message))
                } else {
                    Err(refused(&message))
                };
            }
            // Nothing else was sent.
            RelayMessage::Refused(message) => return Err(refused(&message)),
            _ => {}
        }
    }
}

async fn open(url: &str) -> Result<Socket> {
    let address = Address::parse(url)?;
    let opened = async { dial::open(&address, dial::dial(&address, true).await?).await };
    opened.await.map_err(|error| unreachable(url, &error.to_string()))
}

async fn send(url: &str, socket: &mut Socket, message: &ClientMessage) -> Result<()> {
    let sent = socket.send(Message::text(message.to_json())).await;
    sent.map_err(|error| unreachable(url, &error.to_string()))
}

/// Says goodbye: who only goes away looks like a connection that broke. It has its answer, whatever becomes of this.
async fn leave(socket: &mut Socket) {
    let _ = socket.close(None).await;
}

/// The next message; what is none is passed over.
async fn hear(url: &str, socket: &mut Socket) -> Result<RelayMessage> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => {
                if let Ok(message) = RelayMessage::parse(text.as_bytes(), &Limits::DEFAULT) {
                    return Ok(message);
                }
            }
            Some(Ok(Message::Close(_))) | None => {
                return Err(unreachable(url, "it closed the connection"));
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(unreachable(url, &error.to_string())),
        }
    }
}

fn unreachable(url: &str, why: &str) -> Error {
    Error::refused(&code::RELAY_UNREACHABLE, format!("{}: {}", words(url), words(why)))
}

fn refused(message: &str) -> Error {
    Error::refused(&code::RELAY_REFUSED, format!("the relay says: {}", words(message)))
}
