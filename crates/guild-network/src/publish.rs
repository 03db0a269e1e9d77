//! Our own events on their way to relays.
//!
//! An event is kept and queued in the transaction that decides it, and pinned if it proves something: one message for
//! each relay, named by what it is. Whatever dies when, every relay of our own is offered the same signed event until
//! it has it or refuses it for good, and what it said is written down.
//!
//! Relays that somebody else names are guests: they have a sink of their own, with few lanes and few attempts, and one
//! lane for whoever named them. So whatever strangers name, our own relays and other strangers wait for none of it.

use std::sync::Arc;

use guild_protocol::env::{Clock, UnixMs};
use guild_protocol::nostr::{Event, EventId, Limits};
use guild_store::outbox::{self, Deliver, Failure, Message, NewMessage};
use guild_store::{Error as StoreError, Rx, Store, Tx, args};

use crate::archive::{self, Verified};
use crate::client::{Pool, PublishError};
use crate::delivery::{self, Outcome};
use crate::{Error, Result};

mod destinations;

pub use destinations::Destinations;

/// The sink that takes messages to our own relays. A lane is a relay, or what is put aside for it.
pub const SINK: &str = "relay";
/// How the name of a lane ends in which nobody waits for anything. No address of a relay ends like that.
const ASIDE: &str = "#aside";
/// The sink that takes messages to relays that others name. A lane is whoever named them.
pub const GUEST_SINK: &str = "relay-guest";

/// So many messages may wait for the relays that one person names; further ones are not queued.
const GUEST_WAITING_MAX: i64 = 32;

/// How the outbox delivers to guests, given how it delivers to our own: it is a courtesy, and may cost little.
pub fn guest_options(own: &outbox::Options) -> outbox::Options {
    outbox::Options {
        lanes_max: own.lanes_max.min(4),
        max_attempts: own.max_attempts.min(3),
        backoff_min_ms: own.backoff_min_ms.saturating_mul(4).min(own.backoff_max_ms),
        // Nobody revives them.
        keep_dead_ms: own.keep_done_ms,
        ..own.clone()
    }
}

/// How an event stands at a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AckState {
    /// It is on its way.
    Queued,
    /// The relay has it.
    Acked,
    /// The relay will never take it.
    Refused,
    /// It could not be brought there. A relay of our own gets it when it is back; a guest does not.
    GivenUp,
}

impl AckState {
    /// As it is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            AckState::Queued => "queued",
            AckState::Acked => "acked",
            AckState::Refused => "refused",
            AckState::GivenUp => "given_up",
        }
    }

    fn read(text: &str) -> Result<AckState> {
        let all = [AckState::Queued, AckState::Acked, AckState::Refused, AckState::GivenUp];
        all.into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| StoreError::Decode(format!("{text:?} is no state of an ack")).into())
    }
}

/// How an event stands at a relay, and what was said about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayAck {
    /// Which relay.
    pub relay: String,
    /// How the event stands there.
    pub state: AckState,
    /// The relay's words; or why it was not taken the last time, if it waits or was given up.
    pub message: String,
    /// When the relay said so, or when it was queued.
    pub at_ms: UnixMs,
}

/// Keeps an event of ours for ever and queues it. The same event again adds only relays that are new to it.
pub fn enqueue(tx: &mut Tx<'_>, event: &Verified, to: &Destinations, now_ms: UnixMs) -> Result<()> {
    enqueue_unpinned(tx, event, to, now_ms)?;
    archive::pin(tx, &event.event().id)?;
    Ok(())
}

/// The same for what proves nothing, what we replace ourselves, and what strangers can make us say any number of times:
/// it is kept as the events of others are.
pub fn enqueue_unpinned(
    tx: &mut Tx<'_>,
    event: &Verified,
    to: &Destinations,
    now_ms: UnixMs,
) -> Result<()> {
    archive::put(tx, std::slice::from_ref(event), "own", now_ms)?;
    for url in to.own_urls() {
        queue(tx, event, (SINK, url), url, now_ms)?;
    }
    queue_guests(tx, event, to, now_ms)
}

/// The same for what nobody waits for: it goes beside everything else, so that a relay which takes it badly keeps
/// nothing else of ours waiting.
pub fn enqueue_aside(
    tx: &mut Tx<'_>,
    event: &Verified,
    to: &Destinations,
    now_ms: UnixMs,
) -> Result<()> {
    archive::put(tx, std::slice::from_ref(event), "own", now_ms)?;
    for url in to.own_urls() {
        queue(tx, event, (SINK, &format!("{url}{ASIDE}")), url, now_ms)?;
    }
    queue_guests(tx, event, to, now_ms)
}

fn queue_guests(
    tx: &mut Tx<'_>,
    event: &Verified,
    to: &Destinations,
    now_ms: UnixMs,
) -> Result<()> {
    for (url, named_by) in to.guests() {
        let lane = named_by.hex();
        if outbox::waiting(tx, GUEST_SINK, &lane, GUEST_WAITING_MAX)? >= GUEST_WAITING_MAX {
            metrics::counter!("publish_guests_left_out_total").increment(1);
            continue;
        }
        queue(tx, event, (GUEST_SINK, &lane), url, now_ms)?;
    }
    Ok(())
}

fn queue(
    tx: &mut Tx<'_>,
    event: &Verified,
    (sink, lane): (&str, &str),
    url: &str,
    now_ms: UnixMs,
) -> Result<()> {
    let id = event.event().id;
    let queued = tx.exec(
        "INSERT INTO nostr_ack (event_id, relay, state, message, at_ms)
         VALUES ($1, $2, 'queued', '', $3) ON CONFLICT (event_id, relay) DO NOTHING",
        args![&id.hex(), url, now_ms],
    )?;
    if queued == 0 {
        // The outbox forgets what it delivered before this table does.
        return Ok(());
    }
    let idempotency_key = message_name(url, &id);
    let message =
        NewMessage { sink, key: lane, idempotency_key: &idempotency_key, body: event.json() };
    Ok(outbox::enqueue(tx, &message, now_ms)?)
}

/// How the names of these messages begin.
const NAMED: &str = "relay:";

/// Names the message that brings an event to a relay.
fn message_name(url: &str, id: &EventId) -> String {
    format!("{NAMED}{url}:{id}")
}

/// The relay that a message is for, and the event that it carries: its name says so.
///
/// ```
/// use guild_network::publish::addressed;
/// let id = "1".repeat(64);
/// let name = format!("relay:ws://a.example:4848/relay:{id}");
/// assert_eq!(addressed(&name), Some(("ws://a.example:4848/relay", id.parse().unwrap())));
/// assert_eq!(addressed("bell:1"), None);
/// ```
pub fn addressed(idempotency_key: &str) -> Option<(&str, EventId)> {
    let (url, id) = idempotency_key.strip_prefix(NAMED)?.rsplit_once(':')?;
    Some((url, id.parse().ok()?))
}

/// Whether something of ours still waits to be taken to a relay.
pub fn has_mail(rx: &mut Rx<'_>) -> Result<bool> {
    for sink in [SINK, GUEST_SINK] {
        let state = Some(outbox::State::Queued);
        let filter = outbox::Filter { state, sink: Some(sink.to_owned()), after: 0 };
        if !outbox::list(rx, &filter, 1)?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// How an event stands at every relay, by address.
pub fn acks(rx: &mut Rx<'_>, id: &EventId) -> Result<Vec<RelayAck>> {
    let rows: Vec<(String, String, String, i64)> = rx.all(
        "SELECT relay, state, message, at_ms FROM nostr_ack WHERE event_id = $1 ORDER BY relay",
        args![&id.hex()],
    )?;
    let mut acks = Vec::new();
    for (relay, state, message, at_ms) in rows {
        let ack = RelayAck { relay, state: AckState::read(&state)?, message, at_ms };
        acks.push(match ack.state {
            AckState::Queued => on_its_way(rx, id, ack)?,
            _ => ack,
        });
    }
    Ok(acks)
}

/// What no relay has spoken about is where the outbox says that it is. Only there is it known what was given up, and
/// what is tried again.
fn on_its_way(rx: &mut Rx<'_>, id: &EventId, ack: RelayAck) -> Result<RelayAck> {
    let name = message_name(&ack.relay, id);
    let mut message = None;
    for sink in [SINK, GUEST_SINK] {
        message = message.or(outbox::find(rx, sink, &name)?);
    }
    let waits = message.as_ref().is_some_and(|message| message.state == outbox::State::Queued);
    // One that is not there at all was given up and forgotten: what is delivered has an ack first.
    let state = if waits { AckState::Queued } else { AckState::GivenUp };
    let words = message.and_then(|message| message.last_error).unwrap_or_default();
    Ok(RelayAck { state, message: words, ..ack })
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

/// A relay of our own is back: what waits for it may leave at once, and what was given up while it was away is tried
/// again. What it refused stays refused. Goes on behind number `after`; none means that this is all.
pub fn revive(tx: &mut Tx<'_>, relay: &str, after: i64, now_ms: UnixMs) -> Result<Option<i64>> {
    let aside = format!("{relay}{ASIDE}");
    outbox::reopen(tx, SINK, &aside, now_ms)?;
    if after == 0 {
        outbox::revive(tx, SINK, &aside, 0, now_ms)?;
    }
    outbox::reopen(tx, SINK, relay, now_ms)?;
    Ok(outbox::revive(tx, SINK, relay, after, now_ms)?)
}

/// How long it is known what a relay said: longer than the outbox keeps what it gave up.
const ACK_KEPT_MS: i64 = 60 * 24 * 3_600 * 1_000;
/// So much is forgotten at a time.
const FORGET_MAX: i64 = 500;

/// Forgets what relays said long ago, a limited number at a time; how many.
pub fn forget(tx: &mut Tx<'_>, now_ms: UnixMs) -> Result<u64> {
    let before_ms = now_ms.saturating_sub(ACK_KEPT_MS);
    let forgotten = tx.exec(
        "DELETE FROM nostr_ack WHERE (event_id, relay) IN
           (SELECT event_id, relay FROM nostr_ack WHERE at_ms < $1 ORDER BY at_ms LIMIT $2)",
        args![before_ms, FORGET_MAX],
    )?;
    Ok(forgotten)
}

/// Carries queued events to their relays, our own and those of others.
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
    let Some((relay, _)) = addressed(&message.idempotency_key) else {
        return Err(Failure::Never("the message names no relay".to_owned()));
    };
    let said = pool.publish(relay, &event).await;
    let (state, words) = match &said {
        Ok(ack) => (AckState::Acked, ack.message.clone()),
        Err(PublishError::Refused(words)) => (AckState::Refused, words.clone()),
        Err(PublishError::Later(words)) => {
            observe(store, clock, relay, &event, Outcome::Unanswered).await;
            return Err(Failure::Retry(words.clone()));
        }
    };
    let outcome = if said.is_ok() { Outcome::Taken } else { Outcome::Refused };
    observe(store, clock, relay, &event, outcome).await;
    let (id, relay, now_ms) = (event.id, relay.to_owned(), clock.now_ms());
    let text = words.replace('\0', "\u{fffd}");
    let written = store.write(move |tx| acknowledge(tx, &id, &relay, (state, &text), now_ms)).await;
    // Said again, the relay answers "duplicate": then it is written down.
    written.map_err(|error: Error| Failure::Retry(error.to_string()))?;
    match said {
        Ok(_) => Ok(()),
        Err(_) => Err(Failure::Never(words)),
    }
}

/// Notes how a request fared at a relay, for each whom it addresses. It is worth no failure.
async fn observe(store: &Store, clock: &dyn Clock, relay: &str, event: &Event, outcome: Outcome) {
    let addressed = delivery::addressed(event);
    if addressed.is_empty() {
        return;
    }
    let (relay, now_ms) = (relay.to_owned(), clock.now_ms());
    let written = store.write(move |tx| {
        addressed.iter().try_for_each(|to| delivery::record(tx, &relay, to, outcome, now_ms))
    });
    let written: Result<()> = written.await;
    if let Err(error) = written {
        tracing::warn!(%error, "how a request fared could not be written down");
    }
}
