//! The outbox: what must leave this node, committed together with the reason why.
//!
//! Messages of one *lane* (a sink and a key) leave in order, at least once, always with the same idempotency key.
//! A lane is delivered by one holder at a time, under a lease whose loss stops all further effects. What fails waits
//! longer each time and in the end becomes a dead letter, which can be listed and retried; the lane then goes on. Dead
//! letters are kept for a while, and not any number of them.

use std::collections::BTreeMap;

use guild_protocol::env::UnixMs;

use crate::db::{Column, Engine, Sql};
use crate::tx::{Rx, Tx};
use crate::{Error, Result, args};

mod drainer;
mod lane;
mod listing;

pub use drainer::{Deliver, Drainer, Failure, Options, Wake};
pub use listing::{Filter, Listed, State, find, list, retry_dead};

/// The topic of the bell that rings when a message has been queued.
pub const TOPIC: &str = "outbox";

/// A message to be queued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage<'a> {
    /// Which kind of sink takes it: `bus`, `relay`, `chain`, …
    pub sink: &'a str,
    /// Messages with one key leave in order.
    pub key: &'a str,
    /// Names the effect, not the attempt: made from what it is, never from when it is tried.
    pub idempotency_key: &'a str,
    /// What the sink understands.
    pub body: &'a str,
}

/// A message on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its place in the order.
    pub seq: i64,
    /// Which kind of sink takes it.
    pub sink: String,
    /// Messages with one key leave in order.
    pub key: String,
    /// The same at every attempt.
    pub idempotency_key: String,
    /// What the sink understands.
    pub body: String,
    /// How often it has been tried before.
    pub attempts: i64,
}

/// A message that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The message.
    pub message: Message,
    /// When it was given up.
    pub closed_ms: UnixMs,
    /// Why.
    pub last_error: String,
}

const INSERT: Sql = Sql {
    lite: "INSERT INTO outbox (sink, key, idempotency_key, body, state, attempts, due_ms, created_ms)
           VALUES ($1, $2, $3, $4, 'queued', 0, $5, $5)
           ON CONFLICT (sink, idempotency_key) DO NOTHING RETURNING seq",
    pg: "WITH given AS (UPDATE counter SET last = last + 1 WHERE name = 'outbox' RETURNING last)
         INSERT INTO outbox (seq, sink, key, idempotency_key, body, state, attempts, due_ms, created_ms)
         SELECT last, $1, $2, $3, $4, 'queued', 0, $5, $5 FROM given
         ON CONFLICT (sink, idempotency_key) DO NOTHING RETURNING seq",
};

/// Queues a message. The same idempotency key with the same content is the same message, for as long as it is
/// remembered (`keep_done_ms` after its delivery). So a message is queued in the transaction of a change that itself
/// happens once.
pub fn enqueue(tx: &mut Tx<'_>, message: &NewMessage<'_>, now_ms: UnixMs) -> Result<()> {
    let queued: Option<(i64,)> = tx.first(
        INSERT,
        args![message.sink, message.key, message.idempotency_key, message.body, now_ms],
    )?;
    let Some((seq,)) = queued else {
        let known: Option<(String, String)> = tx.first(
            "SELECT key, body FROM outbox WHERE sink = $1 AND idempotency_key = $2",
            args![message.sink, message.idempotency_key],
        )?;
        return match known {
            Some((key, body)) if key == message.key && body == message.body => Ok(()),
            _ => Err(Error::OutboxConflict(message.idempotency_key.to_owned())),
        };
    };
    lane::wake(tx, message.sink, message.key, now_ms)?;
    tx.ring(TOPIC, seq.saturating_sub(1));
    Ok(())
}

/// Numbers, messages and lanes at once. What was queued before is seen as it was before this statement: so only what
/// is known with other content comes back as a conflict.
const INSERT_ALL: &str = "WITH wanted AS
       (SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[])
          WITH ORDINALITY AS w (sink, key, idempotency_key, body, now_ms, place)),
     given AS (UPDATE counter SET last = last + (SELECT count(*) FROM wanted)
       WHERE name = 'outbox' RETURNING last - (SELECT count(*) FROM wanted) AS before),
     queued AS
       (INSERT INTO outbox (seq, sink, key, idempotency_key, body, state, attempts, due_ms, created_ms)
        SELECT given.before + w.place, w.sink, w.key, w.idempotency_key, w.body, 'queued', 0, w.now_ms,
          w.now_ms FROM wanted AS w, given
        ON CONFLICT (sink, idempotency_key) DO NOTHING RETURNING seq, sink, key, due_ms),
     woken AS
       (INSERT INTO outbox_lane (sink, key, due_ms, token, until_ms, epoch)
        SELECT DISTINCT sink, key, due_ms, NULL::text, 0::bigint, 0::bigint FROM queued
        ON CONFLICT (sink, key)
        DO UPDATE SET due_ms = coalesce(outbox_lane.due_ms, excluded.due_ms))
     SELECT min(seq), NULL::text FROM queued
     UNION ALL
     SELECT NULL::bigint, o.idempotency_key FROM wanted AS w
     JOIN outbox AS o ON o.sink = w.sink AND o.idempotency_key = w.idempotency_key
     WHERE o.key <> w.key OR o.body <> w.body";

/// Queues messages in this order, all or none, as [`enqueue`] does one: on PostgreSQL in one journey.
pub fn enqueue_all<'a>(tx: &mut Tx<'_>, messages: &[NewMessage<'a>], now_ms: UnixMs) -> Result<()> {
    if tx.engine() == Engine::Sqlite || messages.len() < 2 {
        return messages.iter().try_for_each(|message| enqueue(tx, message, now_ms));
    }
    let mut known: BTreeMap<(&str, &str), &NewMessage<'_>> = BTreeMap::new();
    let mut wanted = Vec::with_capacity(messages.len());
    for message in messages {
        match known.insert((message.sink, message.idempotency_key), message) {
            None => wanted.push(message),
            Some(same) if same == message => {}
            Some(_) => return Err(Error::OutboxConflict(message.idempotency_key.to_owned())),
        }
    }
    let texts = |of: fn(&NewMessage<'a>) -> &'a str| -> Vec<&'a str> {
        wanted.iter().map(|message| of(message)).collect()
    };
    let columns = [
        Column::Texts(&texts(|message| message.sink)),
        Column::Texts(&texts(|message| message.key)),
        Column::Texts(&texts(|message| message.idempotency_key)),
        Column::Texts(&texts(|message| message.body)),
        Column::Ints(&vec![now_ms; wanted.len()]),
    ];
    let answers: Vec<(Option<i64>, Option<String>)> = tx.all_set(INSERT_ALL, &columns)?;
    for (first, conflict) in answers {
        if let Some(idempotency_key) = conflict {
            return Err(Error::OutboxConflict(idempotency_key));
        }
        if let Some(seq) = first {
            tx.ring(TOPIC, seq.saturating_sub(1));
        }
    }
    Ok(())
}

/// The way of a lane is open again: what waits there for another try may leave now. How many messages that is.
pub fn reopen(tx: &mut Tx<'_>, sink: &str, key: &str, now_ms: UnixMs) -> Result<u64> {
    let waiting = tx.exec(
        "UPDATE outbox SET due_ms = $3
         WHERE sink = $1 AND key = $2 AND state = 'queued' AND due_ms > $3",
        args![sink, key, now_ms],
    )?;
    if waiting > 0 {
        lane::set_due(tx, sink, key)?;
        tx.ring(TOPIC, 0);
    }
    Ok(waiting)
}

/// How many dead letters are revived in one transaction.
const REVIVE_MAX: i64 = 500;

/// The way of a lane is open again: up to 500 of its dead letters behind number `after` are queued again, oldest first,
/// but not what the sink itself refused. The last of their numbers; none if there are no more.
pub fn revive(
    tx: &mut Tx<'_>,
    sink: &str,
    key: &str,
    after: i64,
    now_ms: UnixMs,
) -> Result<Option<i64>> {
    let revived: Vec<(i64,)> = tx.all(
        "UPDATE outbox SET state = 'queued', attempts = 0, due_ms = $4, closed_ms = NULL
         WHERE seq IN
           (SELECT seq FROM outbox
            WHERE sink = $1 AND key = $2 AND seq > $3 AND state = 'dead' AND refused = 0
            ORDER BY seq LIMIT $5)
         RETURNING seq",
        args![sink, key, after, now_ms, REVIVE_MAX],
    )?;
    let last = revived.into_iter().map(|(seq,)| seq).max();
    if last.is_some() {
        lane::wake(tx, sink, key, now_ms)?;
        lane::set_due(tx, sink, key)?;
        tx.ring(TOPIC, 0);
    }
    Ok(last)
}

/// How many messages of a lane wait; no more than `limit` are counted.
pub fn waiting(rx: &mut Rx<'_>, sink: &str, key: &str, limit: i64) -> Result<i64> {
    let counted: Option<(i64,)> = rx.first(
        "SELECT count(*) FROM
           (SELECT seq FROM outbox WHERE sink = $1 AND key = $2 AND state = 'queued' LIMIT $3)
         AS waiting",
        args![sink, key, limit.max(0)],
    )?;
    Ok(counted.map_or(0, |(count,)| count))
}

/// Up to `limit` dead letters, oldest first.
pub fn dead_letters(rx: &mut Rx<'_>, limit: i64) -> Result<Vec<DeadLetter>> {
    type Row = (i64, String, String, String, String, i64, i64, Option<String>);
    let rows: Vec<Row> = rx.all(
        "SELECT seq, sink, key, idempotency_key, body, attempts, closed_ms, last_error FROM outbox
         WHERE state = 'dead' ORDER BY seq LIMIT $1",
        // Less than nothing would be everything on SQLite, and refused by PostgreSQL.
        args![limit.max(0)],
    )?;
    let letter = |(seq, sink, key, idempotency_key, body, attempts, closed_ms, last_error): Row| {
        DeadLetter {
            message: Message { seq, sink, key, idempotency_key, body, attempts },
            closed_ms,
            last_error: last_error.unwrap_or_default(),
        }
    };
    Ok(rows.into_iter().map(letter).collect())
}

/// Queues a dead letter again; false if there is none with this number.
pub fn retry(tx: &mut Tx<'_>, seq: i64, now_ms: UnixMs) -> Result<bool> {
    let revived: Option<(String, String)> = tx.first(
        "UPDATE outbox SET state = 'queued', refused = 0, attempts = 0, due_ms = $2, closed_ms = NULL
         WHERE seq = $1 AND state = 'dead' RETURNING sink, key",
        args![seq, now_ms],
    )?;
    let Some((sink, key)) = revived else { return Ok(false) };
    // It may now stand before the message that the lane was waiting for.
    lane::wake(tx, &sink, &key, now_ms)?;
    lane::set_due(tx, &sink, &key)?;
    tx.ring(TOPIC, seq.saturating_sub(1));
    Ok(true)
}
