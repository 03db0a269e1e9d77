//! Our own events on their way to relays.
//!
//! An event is kept, pinned and queued in the transaction that decides it: one message for each relay, named by what it
//! is. Whatever dies when, every relay is offered the same signed event until it has it or refuses it for good, and
//! what it said is written down.

use std::collections::BTreeSet;
use std::sync::Arc;

use guild_protocol::env::{Clock, UnixMs};
use guild_protocol::nostr::{Event, EventId, Limits};
use guild_store::outbox::{self, Deliver, Failure, Message, NewMessage};
use guild_store::{Error as StoreError, Rx, Store, Tx, args};

use crate::archive::{self, Verified};
use crate::client::{Pool, PublishError, relay_url};
use crate::{Error, Result};

/// The sink that takes these messages.
pub const SINK: &str = "relay";

/// How an event stands at a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AckState {
    /// It is on its way.
    Queued,
    /// The relay has it.
    Acked,
    /// The relay will never take it.
    Refused,
}

impl AckState {
    /// As it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            AckState::Queued => "queued",
            AckState::Acked => "acked",
            AckState::Refused => "refused",
        }
    }

    fn read(text: &str) -> Result<AckState> {
        let all = [AckState::Queued, AckState::Acked, AckState::Refused];
        all.into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| StoreError::Decode(format!("{text:?} is no state of an ack")).into())
    }
}

/// What a relay said about an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayAck {
    /// Which relay.
    pub relay: String,
    /// How the event stands there.
    pub state: AckState,
    /// The relay's words.
    pub message: String,
    /// When.
    pub at_ms: UnixMs,
}

/// Keeps an event of ours and queues it for these relays. The same event again adds only relays that are new to it.
/// An address that is none is left out: it came from a stranger.
pub fn enqueue(tx: &mut Tx<'_>, event: &Verified, relays: &[String], now_ms: UnixMs) -> Result<()> {
    let id = event.event().id;
    archive::put(tx, std::slice::from_ref(event), "own", now_ms)?;
    archive::pin(tx, &id)?;
    let urls: BTreeSet<String> = relays.iter().filter_map(|url| relay_url(url).ok()).collect();
    for url in urls {
        let queued = tx.exec(
            "INSERT INTO nostr_ack (event_id, relay, state, message, at_ms)
             VALUES ($1, $2, 'queued', '', $3) ON CONFLICT (event_id, relay) DO NOTHING",
            args![&id.hex(), &url, now_ms],
        )?;
        if queued == 0 {
            // The outbox forgets what it delivered long ago; this table does not.
            continue;
        }
        let idempotency_key = format!("relay:{url}:{id}");
        let (key, body) = (url.as_str(), event.json());
        let message = NewMessage { sink: SINK, key, idempotency_key: &idempotency_key, body };
        outbox::enqueue(tx, &message, now_ms)?;
    }
    Ok(())
}

/// Where an event goes: all relays of our own, and some of those that its receiver is said to read. Addresses that are
/// none are left out.
///
/// ```
/// use guild_network::publish::destinations;
/// let own = ["ws://a.example".to_owned()];
/// let hints = ["ws://A.example/", "rubbish", "wss://b.example", "wss://c.example"];
/// assert_eq!(destinations(&own, hints, 1), ["ws://a.example", "wss://b.example"]);
/// ```
pub fn destinations<'a>(
    own: &[String],
    hints: impl IntoIterator<Item = &'a str>,
    hints_max: usize,
) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for url in own.iter().filter_map(|url| relay_url(url).ok()) {
        if !all.contains(&url) {
            all.push(url);
        }
    }
    let most = all.len().saturating_add(hints_max);
    for url in hints.into_iter().filter_map(|url| relay_url(url).ok()) {
        if all.len() < most && !all.contains(&url) {
            all.push(url);
        }
    }
    all
}

/// What every relay said about an event, by address.
pub fn acks(rx: &mut Rx<'_>, id: &EventId) -> Result<Vec<RelayAck>> {
    let rows: Vec<(String, String, String, i64)> = rx.all(
        "SELECT relay, state, message, at_ms FROM nostr_ack WHERE event_id = $1 ORDER BY relay",
        args![&id.hex()],
    )?;
    let ack = |(relay, state, message, at_ms): (String, String, String, i64)| {
        Ok(RelayAck { relay, state: AckState::read(&state)?, message, at_ms })
    };
    rows.into_iter().map(ack).collect()
}

/// Writes down what a relay said.
pub fn acknowledge(
    tx: &mut Tx<'_>,
    id: &EventId,
    relay: &str,
    (state, message): (AckState, &str),
    now_ms: UnixMs,
) -> Result<()> {
    tx.exec(
        "INSERT INTO nostr_ack (event_id, relay, state, message, at_ms) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (event_id, relay) DO UPDATE SET state = $3, message = $4, at_ms = $5
         WHERE nostr_ack.state <> 'acked'",
        args![&id.hex(), relay, state.as_str(), message, now_ms],
    )?;
    Ok(())
}

/// How many dead letters are looked at when a relay is back.
const REVIVE_MAX: i64 = 500;

/// A relay is back: what waits for it may leave at once, and what was given up while it was away is tried again. What
/// it refused stays refused.
pub fn revive(tx: &mut Tx<'_>, relay: &str, now_ms: UnixMs) -> Result<()> {
    let filter =
        outbox::Filter { state: Some(outbox::State::Dead), sink: Some(SINK.to_owned()), after: 0 };
    let dead = outbox::list(tx, &filter, REVIVE_MAX)?;
    for letter in dead.into_iter().filter(|letter| letter.key == relay) {
        let refused: Option<(i64,)> = tx.first(
            "SELECT 1 FROM nostr_ack WHERE event_id = $1 AND relay = $2 AND state = 'refused'",
            args![letter.idempotency_key.rsplit(':').next().unwrap_or_default(), relay],
        )?;
        if refused.is_none() {
            outbox::retry(tx, letter.seq, now_ms)?;
        }
    }
    outbox::reopen(tx, SINK, relay, now_ms)?;
    Ok(())
}

/// The sink that carries queued events to their relays.
pub fn sink(pool: Pool, store: Store, clock: Arc<dyn Clock>) -> Deliver {
    Arc::new(move |message: Message| {
        let (pool, store, clock) = (pool.clone(), store.clone(), clock.clone());
        Box::pin(async move { deliver(&pool, &store, &*clock, &message).await })
    })
}

async fn deliver(
    pool: &Pool,
    store: &Store,
    clock: &dyn Clock,
    message: &Message,
) -> Result<(), Failure> {
    // It was checked when it was queued; whoever changed the table since gets no further than the relay.
    let event = Event::parse(message.body.as_bytes(), &Limits::DEFAULT)
        .map_err(|error| Failure::Never(format!("the message holds no event: {error}")))?;
    let said = pool.publish(&message.key, &event).await;
    let (state, words) = match &said {
        Ok(ack) => (AckState::Acked, ack.message.clone()),
        Err(PublishError::Refused(words)) => (AckState::Refused, words.clone()),
        Err(PublishError::Later(words)) => return Err(Failure::Retry(words.clone())),
    };
    let (id, relay, now_ms) = (event.id, message.key.clone(), clock.now_ms());
    let text = words.replace('\0', "\u{fffd}");
    let written = store.write(move |tx| acknowledge(tx, &id, &relay, (state, &text), now_ms)).await;
    // Said again, the relay answers "duplicate": then it is written down.
    written.map_err(|error: Error| Failure::Retry(error.to_string()))?;
    match said {
        Ok(_) => Ok(()),
        Err(_) => Err(Failure::Never(words)),
    }
}
