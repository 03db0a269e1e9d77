//! The outbox as a person looks at it.

use guild_protocol::env::UnixMs;

use super::retry;
use crate::tx::{Rx, Tx};
use crate::{Error, Result, args};

/// How a message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It waits for its turn, or for another try.
    Queued,
    /// Its sink has taken it.
    Done,
    /// It was given up.
    Dead,
}

impl State {
    /// The word in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Queued => "queued",
            State::Done => "done",
            State::Dead => "dead",
        }
    }

    fn read(text: &str) -> Result<State> {
        [State::Queued, State::Done, State::Dead]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| Error::Decode(format!("a message has the state {text:?}")))
    }
}

/// Which messages to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only those that stand so.
    pub state: Option<State>,
    /// Only those of this sink.
    pub sink: Option<String>,
    /// Only those behind this number: the last one of the page before.
    pub after: i64,
}

/// A message in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its place in the order.
    pub seq: i64,
    /// Which kind of sink takes it.
    pub sink: String,
    /// Messages with one key leave in order.
    pub key: String,
    /// The same at every attempt.
    pub idempotency_key: String,
    /// How it stands.
    pub state: State,
    /// How often it has been tried.
    pub attempts: i64,
    /// When it may be tried next, or was last.
    pub due_ms: UnixMs,
    /// Why it was not taken the last time.
    pub last_error: Option<String>,
}

type Row = (i64, String, String, String, String, i64, i64, Option<String>);

fn listed(row: Row) -> Result<Listed> {
    let (seq, sink, key, idempotency_key, state, attempts, due_ms, last_error) = row;
    let state = State::read(&state)?;
    Ok(Listed { seq, sink, key, idempotency_key, state, attempts, due_ms, last_error })
}

/// Up to `limit` messages, oldest first. None means that there are no more.
pub fn list(rx: &mut Rx<'_>, filter: &Filter, limit: i64) -> Result<Vec<Listed>> {
    let state = filter.state.map_or("", State::as_str);
    let sink = filter.sink.as_deref().unwrap_or("");
    let rows: Vec<Row> = rx.all(
        "SELECT seq, sink, key, idempotency_key, state, attempts, due_ms, last_error FROM outbox
         WHERE seq > $1 AND ($2 = '' OR state = $2) AND ($3 = '' OR sink = $3)
         ORDER BY seq LIMIT $4",
        // Less than nothing would be everything on SQLite, and refused by PostgreSQL.
        args![filter.after, state, sink, limit.max(0)],
    )?;
    rows.into_iter().map(listed).collect()
}

/// The message with this name, for as long as it is remembered.
pub fn find(rx: &mut Rx<'_>, sink: &str, idempotency_key: &str) -> Result<Option<Listed>> {
    let row: Option<Row> = rx.first(
        "SELECT seq, sink, key, idempotency_key, state, attempts, due_ms, last_error FROM outbox
         WHERE sink = $1 AND idempotency_key = $2",
        args![sink, idempotency_key],
    )?;
    row.map(listed).transpose()
}

/// How many dead letters are revived in one transaction.
const RETRY_MAX: i64 = 500;

/// Queues dead letters behind number `after` again, of one sink or of all, oldest first and a limited number at a time;
/// their numbers. None means that there are no more.
pub fn retry_dead(
    tx: &mut Tx<'_>,
    sink: Option<&str>,
    after: i64,
    now_ms: UnixMs,
) -> Result<Vec<i64>> {
    let filter = Filter { state: Some(State::Dead), sink: sink.map(str::to_owned), after };
    let mut retried = Vec::new();
    for letter in list(tx, &filter, RETRY_MAX)? {
        if retry(tx, letter.seq, now_ms)? {
            retried.push(letter.seq);
        }
    }
    Ok(retried)
}
