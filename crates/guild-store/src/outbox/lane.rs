//! The rows of a lane: who may deliver, and when there is something to deliver.

use guild_protocol::env::UnixMs;

use super::Message;
use crate::tx::{Rx, Tx};
use crate::{Column, Error, Result, Sql, args};

/// The right to deliver a lane, until it expires. Every write of the holder checks it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) sink: String,
    pub(super) key: String,
    pub(super) token: String,
    pub(super) epoch: i64,
    pub(super) until_ms: UnixMs,
}

/// What became of a batch. The delivered messages are named one by one: a dead letter that is retried meanwhile has
/// a number among theirs and was not delivered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) done: Vec<i64>,
    pub(super) failed: Option<Failed>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) seq: i64,
    pub(super) error: String,
    pub(super) then: Then,
}

/// What becomes of a message that was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// It is tried again at this moment.
    Again(UnixMs),
    /// It was tried often enough.
    GivenUp,
    /// Its sink will never take it.
    Refused,
}

/// Makes the lane and says that it has something to deliver, unless it knows already.
pub(super) fn wake(tx: &mut Tx<'_>, sink: &str, key: &str, due_ms: UnixMs) -> Result<()> {
    tx.exec(
        "INSERT INTO outbox_lane (sink, key, due_ms, token, until_ms, epoch)
         VALUES ($1, $2, $3, NULL, 0, 0)
         ON CONFLICT (sink, key) DO UPDATE SET due_ms = coalesce(outbox_lane.due_ms, excluded.due_ms)",
        args![sink, key, due_ms],
    )?;
    Ok(())
}

/// The lane is due when its first queued message is: a later one never overtakes it.
pub(super) fn set_due(tx: &mut Tx<'_>, sink: &str, key: &str) -> Result<()> {
    tx.exec(
        "UPDATE outbox_lane SET due_ms =
           (SELECT due_ms FROM outbox WHERE sink = $1 AND key = $2 AND state = 'queued'
            ORDER BY seq LIMIT 1)
         WHERE sink = $1 AND key = $2",
        args![sink, key],
    )?;
    Ok(())
}

const CLAIM: Sql = Sql {
    lite: "UPDATE outbox_lane SET token = $3, until_ms = $4, epoch = epoch + 1
           WHERE sink = $1 AND key =
             (SELECT key FROM outbox_lane WHERE sink = $1 AND due_ms <= $2 AND until_ms <= $2
                AND key NOT IN (SELECT value FROM json_each($5))
              ORDER BY due_ms, key LIMIT 1)
           RETURNING key, epoch",
    pg: "UPDATE outbox_lane SET token = $3, until_ms = $4, epoch = epoch + 1
         WHERE sink = $1 AND key =
           (SELECT key FROM outbox_lane WHERE sink = $1 AND due_ms <= $2 AND until_ms <= $2
              AND key NOT IN (SELECT json_array_elements_text($5::text::json))
            ORDER BY due_ms, key LIMIT 1 FOR UPDATE SKIP LOCKED)
         RETURNING key, epoch",
};

/// Takes a lane that is due and free and none of those that the caller holds, and its first messages.
pub(super) fn claim(
    tx: &mut Tx<'_>,
    sink: &str,
    held_json: &str,
    (now_ms, lease_ms): (UnixMs, i64),
    token: &str,
    batch_max: i64,
) -> Result<Option<(Lease, Vec<Message>)>> {
    let until_ms = now_ms.saturating_add(lease_ms);
    let claimed: Option<(String, i64)> =
        tx.first(CLAIM, args![sink, now_ms, token, until_ms, held_json])?;
    let Some((key, epoch)) = claimed else { return Ok(None) };
    let rows: Vec<(i64, String, String, i64, i64)> = tx.all(
        "SELECT seq, idempotency_key, body, attempts, due_ms FROM outbox
         WHERE sink = $1 AND key = $2 AND state = 'queued' ORDER BY seq LIMIT $3",
        args![sink, &key, batch_max],
    )?;
    let messages = rows
        .into_iter()
        .take_while(|(.., due_ms)| *due_ms <= now_ms)
        .map(|(seq, idempotency_key, body, attempts, _)| Message {
            seq,
            sink: sink.to_owned(),
            key: key.clone(),
            idempotency_key,
            body,
            attempts,
        })
        .collect();
    let lease = Lease { sink: sink.to_owned(), key, token: token.to_owned(), epoch, until_ms };
    Ok(Some((lease, messages)))
}

const DONE: Sql = Sql {
    lite: "UPDATE outbox SET state = 'done', attempts = attempts + 1, closed_ms = $2, last_error = NULL
           WHERE seq = $1 AND state = 'queued'",
    pg: "UPDATE outbox SET state = 'done', attempts = attempts + 1, closed_ms = done.closed_ms,
           last_error = NULL
         FROM unnest($1::bigint[], $2::bigint[]) AS done (seq, closed_ms)
         WHERE outbox.seq = done.seq AND outbox.state = 'queued'",
};

/// Writes down what became of the batch and lets the lane go. A holder that lost its lease gets `Fenced`.
pub(super) fn settle(
    tx: &mut Tx<'_>,
    lease: &Lease,
    outcome: &Outcome,
    now_ms: UnixMs,
) -> Result<()> {
    tx.cas(
        "UPDATE outbox_lane SET token = NULL, until_ms = 0
         WHERE sink = $1 AND key = $2 AND token = $3 AND epoch = $4",
        args![&lease.sink, &lease.key, &lease.token, lease.epoch],
    )?;
    if !outcome.done.is_empty() {
        let closed_ms = vec![now_ms; outcome.done.len()];
        let columns = [Column::Ints(&outcome.done), Column::Ints(&closed_ms)];
        if tx.exec_set(DONE, &columns)? != outcome.done.len() as u64 {
            return Err(Error::Fenced);
        }
    }
    if let Some(failed) = &outcome.failed {
        let (state, due_ms, closed_ms) = match failed.then {
            Then::Again(again_ms) => ("queued", again_ms, None),
            Then::GivenUp | Then::Refused => ("dead", now_ms, Some(now_ms)),
        };
        let refused = i64::from(failed.then == Then::Refused);
        tx.cas(
            "UPDATE outbox SET state = $2, attempts = attempts + 1, due_ms = $3, closed_ms = $4,
             last_error = $5, refused = $6 WHERE seq = $1 AND state = 'queued'",
            args![failed.seq, state, due_ms, closed_ms, &failed.error, refused],
        )?;
    }
    set_due(tx, &lease.sink, &lease.key)
}

macro_rules! first_and_last_due {
    ($held:literal) => {
        concat!(
            "SELECT min(CASE WHEN due_ms > until_ms THEN due_ms ELSE until_ms END),
               max(CASE WHEN due_ms > until_ms THEN due_ms ELSE until_ms END) FROM outbox_lane
             WHERE sink = $1 AND due_ms IS NOT NULL AND key NOT IN (SELECT ",
            $held,
            ")"
        )
    };
}

const FIRST_AND_LAST_DUE: Sql = Sql {
    lite: first_and_last_due!("value FROM json_each($2)"),
    pg: first_and_last_due!("json_array_elements_text($2::text::json)"),
};

/// When the first and the last of the waiting lanes of a sink may be claimed, of those that the caller does not hold;
/// nothing if none waits.
pub(super) fn first_and_last_due(
    rx: &mut Rx<'_>,
    sink: &str,
    held_json: &str,
) -> Result<Option<(UnixMs, UnixMs)>> {
    let due: Option<(Option<i64>, Option<i64>)> =
        rx.first(FIRST_AND_LAST_DUE, args![sink, held_json])?;
    Ok(due.and_then(|(first_ms, last_ms)| first_ms.zip(last_ms)))
}

/// How much is forgotten in one transaction, so that no other write waits long for it.
pub(super) const FORGET_MAX: u64 = 1_000;

/// What is old enough to be forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Old {
    /// What was delivered before this moment.
    pub(super) done_before_ms: UnixMs,
    /// What was given up before this moment.
    pub(super) dead_before_ms: UnixMs,
    /// And what was given up before so many others.
    pub(super) dead_max: i64,
}

/// Forgets closed messages, oldest first, and lanes that have nothing left. Of each sort at most [`FORGET_MAX`]; the
/// largest count. From when they are is remembered: only so can be told that a message was never queued.
pub(super) fn forget(tx: &mut Tx<'_>, sink: &str, old: Old) -> Result<u64> {
    let (mut most, mut newest_ms) = (0, None);
    let mut forgotten = |messages: Vec<(UnixMs,)>| {
        most = most.max(u64::try_from(messages.len()).unwrap_or(u64::MAX));
        newest_ms = newest_ms.max(messages.into_iter().map(|(queued_ms,)| queued_ms).max());
    };
    for (state, before_ms) in [("done", old.done_before_ms), ("dead", old.dead_before_ms)] {
        forgotten(tx.all(
            "DELETE FROM outbox WHERE seq IN
               (SELECT seq FROM outbox WHERE state = $1 AND sink = $2 AND closed_ms < $3
                ORDER BY closed_ms LIMIT 1000) RETURNING created_ms",
            args![state, sink, before_ms],
        )?);
    }
    forgotten(tx.all(
        "DELETE FROM outbox WHERE seq IN
           (SELECT seq FROM outbox WHERE state = 'dead' AND sink = $1
            ORDER BY closed_ms DESC, seq DESC LIMIT 1000 OFFSET $2) RETURNING created_ms",
        args![sink, old.dead_max],
    )?);
    if let Some(newest_ms) = newest_ms {
        tx.exec(
            "INSERT INTO outbox_forgotten (sink, before_ms) VALUES ($1, $2)
             ON CONFLICT (sink) DO UPDATE SET before_ms = excluded.before_ms
             WHERE outbox_forgotten.before_ms < excluded.before_ms",
            args![sink, newest_ms.saturating_add(1)],
        )?;
    }
    // A lane without a due time has nothing queued; the next message makes it anew. Whoever still believes to hold it
    // has a token that no later row of it will have.
    let lanes = tx.exec(
        "DELETE FROM outbox_lane WHERE sink = $1 AND key IN
           (SELECT key FROM outbox_lane WHERE sink = $1 AND due_ms IS NULL AND token IS NULL
            LIMIT 1000)",
        args![sink],
    )?;
    Ok(most.max(lanes))
}

/// Brings back what a clock that was wrong has put into the far future: no wait and no lease is meant to be longer
/// than `longest_ms`. Tells how many messages it was.
pub(super) fn recall(tx: &mut Tx<'_>, sink: &str, now_ms: UnixMs, longest_ms: i64) -> Result<u64> {
    let horizon_ms = now_ms.saturating_add(longest_ms);
    let recalled = tx.exec(
        "UPDATE outbox SET due_ms = $2 WHERE sink = $1 AND state = 'queued' AND due_ms > $3",
        args![sink, now_ms, horizon_ms],
    )?;
    tx.exec(
        "UPDATE outbox_lane SET due_ms = $2 WHERE sink = $1 AND due_ms > $3",
        args![sink, now_ms, horizon_ms],
    )?;
    // The token stays, so a holder that is still alive can settle until another one claims the lane.
    tx.exec(
        "UPDATE outbox_lane SET until_ms = $2 WHERE sink = $1 AND until_ms > $3",
        args![sink, now_ms, horizon_ms],
    )?;
    Ok(recalled)
}
