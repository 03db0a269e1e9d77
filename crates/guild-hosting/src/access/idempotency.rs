//! Asking twice is asking once.
//!
//! A request is known by its user, method, path and idempotency key. [`run`] has its effect and keeps its answer in one
//! transaction, so whatever dies, there are both or neither; the same request again gets the same answer.
//!
//! - Only what happened is kept. A refusal leaves no row, be it an error, which rolls everything back, or an
//!   [`Answer::refusal`], which does not: after a deposit the same key may buy what it could not buy before.
//! - What an answer shows once is not in what is kept ([`Answer::shown_once`]): a repeat gets the answer without it.
//! - An effect outside of the database has two steps: [`begin`], the effect under [`Ticket::effect_id`], [`finish`].
//!   While it is in flight a repeat is refused. If whoever began it dies, the first repeat after its time goes on with
//!   the same effect id, so an effect that knows its ids happens once. Whoever does not learn what became of it lets
//!   go ([`release`]), and the next repeat goes on at once.
//!
//! ```
//! # use guild_hosting::access::idempotency::{self, Answer, Reply, Request};
//! # use guild_hosting::Result;
//! # use guild_store::Tx;
//! fn create(tx: &mut Tx<'_>, request: &Request, now_ms: i64) -> Result<Reply> {
//!     idempotency::run(tx, request, now_ms, |tx| {
//!         // … whatever is to be done, with `tx` …
//!         Answer::new(201, r#"{"job_id":"job_…"}"#)
//!     })
//! }
//! ```

use std::fmt;

use guild_protocol::env::UnixMs;
use guild_protocol::hash::{Hash, Hasher};
use guild_store::{Rx, Tx, args};
use zeroize::Zeroizing;

use super::token::holds_token;
use super::{SWEEP_MAX, code};
use crate::{Error, Result, UserId};

/// How long an answer is kept: 24 hours, and one more for whoever asks at the last moment.
pub const KEEP_MS: i64 = 25 * 3_600 * 1_000;
/// The most bytes of an answer that is kept.
pub const MAX_BODY_BYTES: usize = 64 * 1024;
/// The longest that an effect may be in flight before another may go on with it: 10 minutes.
pub const MAX_FLIGHT_MS: i64 = 10 * 60 * 1_000;

const MAX_PATH_BYTES: usize = 1_024;

/// A request, as far as it counts for being the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    user_id: UserId,
    method: String,
    path: String,
    key: String,
    request_hash: Hash,
}

impl Request {
    /// A request with the value of its header `Idempotency-Key`. Two are the same if query and body are.
    pub fn new(
        user_id: &UserId,
        method: &str,
        path: &str,
        key: &str,
        query: &str,
        body: &[u8],
    ) -> Result<Request> {
        Request::of_hash(user_id, method, path, key, query, &Hash::of(body))
    }

    /// The same for a body that is known by its hash.
    pub fn of_hash(
        user_id: &UserId,
        method: &str,
        path: &str,
        key: &str,
        query: &str,
        body_hash: &Hash,
    ) -> Result<Request> {
        let visible = |text: &str, most: usize| {
            (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
        };
        let refused = |message: &str| Err(Error::refused(&code::IDEMPOTENCY_MALFORMED, message));
        if !visible(key, 255) {
            return refused("an idempotency key is 1 to 255 visible ASCII characters");
        }
        if !visible(method, 16) || !visible(path, MAX_PATH_BYTES) {
            return refused("the method or the path is not of its form");
        }
        let mut hasher = Hasher::new();
        hasher.update(Hash::of(query.as_bytes()).as_bytes());
        hasher.update(body_hash.as_bytes());
        Ok(Request {
            user_id: user_id.clone(),
            method: method.to_owned(),
            path: path.to_owned(),
            key: key.to_owned(),
            request_hash: hasher.finish(),
        })
    }
}

/// What was answered. Its `Debug` shows no body.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    status: u16,
    body: String,
    shown: Option<Zeroizing<String>>,
    kept: bool,
}

impl Answer {
    /// A success with this status and body. It is kept.
    pub fn new(status: u16, body: impl Into<String>) -> Result<Answer> {
        let answer = Answer { status, body: body.into(), shown: None, kept: true };
        answer.check().map(|()| answer)
    }

    /// A refusal (4xx) of which something must stay, such as a quote. It is not kept: the same request again is tried
    /// again.
    pub fn refusal(status: u16, body: impl Into<String>) -> Result<Answer> {
        let answer = Answer { status, body: body.into(), shown: None, kept: false };
        answer.check().map(|()| answer)
    }

    /// A success that shows a secret to the first one who hears it: `shown`. What is kept, and said to all others, is
    /// `kept`.
    pub fn shown_once(status: u16, shown: String, kept: impl Into<String>) -> Result<Answer> {
        let shown = Some(Zeroizing::new(shown));
        let answer = Answer { status, body: kept.into(), shown, kept: true };
        answer.check().map(|()| answer)
    }

    fn check(&self) -> Result<()> {
        let unfit = |message| Err(Error::refused(&code::ANSWER_UNFIT, message));
        if !(if self.kept { 200..300 } else { 400..500 }).contains(&self.status) {
            return unfit("what is kept is a success (2xx), what is not is a refusal (4xx)");
        }
        if self.body.len() > MAX_BODY_BYTES || self.body.contains('\0') {
            return unfit("an answer that is kept is at most 64 KiB, without NUL");
        }
        // A last look: whoever builds answers must not have to remember what is a secret.
        if holds_token(&self.body) {
            return unfit("an answer that is kept holds no token");
        }
        Ok(())
    }

    /// Its status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Its body, with the secret if there is one to show.
    pub fn body(&self) -> &str {
        self.shown.as_ref().map_or(&self.body, |shown| shown.as_str())
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answer({}, {} bytes)", self.status, self.body.len())
    }
}

/// What is said to whoever asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The answer.
    pub answer: Answer,
    /// Whether it is of an earlier request.
    pub repeated: bool,
}

/// Has the effect and keeps its answer, in this transaction; or gives the answer of the first time. An error of the
/// effect goes through and leaves no row.
pub fn run<E: From<Error>>(
    tx: &mut Tx<'_>,
    request: &Request,
    now_ms: UnixMs,
    effect: impl FnOnce(&mut Tx<'_>) -> Result<Answer, E>,
) -> Result<Reply, E> {
    match find(tx, request)? {
        Found::Done(answer) => return Ok(Reply { answer, repeated: true }),
        Found::InFlight { .. } => return Err(in_flight().into()),
        Found::Nothing => {}
    }
    let answer = effect(tx)?;
    if answer.kept {
        insert(tx, request, &State::Done(&answer), now_ms)?;
    }
    Ok(Reply { answer, repeated: false })
}

fn in_flight() -> Error {
    let message = "the first request with this key is not answered yet";
    Error::refused(&code::IDEMPOTENCY_IN_FLIGHT, message)
}

/// The right to have an effect outside of the database, for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    request: Request,
    tries: i64,
    /// When the first try began: a key that is used again after its time is another request.
    created_ms: UnixMs,
}

impl Ticket {
    /// The id under which the effect is had: 32 hex digits, the same for every try of this request and of no other.
    /// A command in a sandbox is `exec_` and these.
    pub fn effect_id(&self) -> String {
        let Request { user_id, method, path, key, .. } = &self.request;
        let mut hasher = Hasher::new();
        for part in [user_id.as_str(), method, path, key, &self.created_ms.to_string()] {
            hasher.update(Hash::of(part.as_bytes()).as_bytes());
        }
        hasher.finish().hex().chars().take(32).collect()
    }

    /// Whether an earlier try may have had the effect already.
    pub fn is_again(&self) -> bool {
        self.tries > 1
    }
}

/// Whether to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// Have the effect, then [`finish`].
    Go(Ticket),
    /// It was had, and answered like this.
    Known(Answer),
}

/// Begins an effect outside of the database. Until `flight_ms` have passed a repeat is refused; after that it takes
/// over.
pub fn begin(tx: &mut Tx<'_>, request: &Request, flight_ms: i64, now_ms: UnixMs) -> Result<Begun> {
    let until_ms = now_ms.saturating_add(flight_ms.clamp(1, MAX_FLIGHT_MS));
    let (tries, created_ms) = match find(tx, request)? {
        Found::Done(answer) => return Ok(Begun::Known(answer)),
        Found::InFlight { until_ms: until, .. } if flies(until, now_ms) => return Err(in_flight()),
        Found::InFlight { tries, created_ms, .. } => {
            let tries = tries.saturating_add(1);
            tx.cas(
                "UPDATE access_idempotency SET tries = $5, until_ms = $6
                 WHERE user_id = $1 AND method = $2 AND path = $3 AND key = $4 AND state = 'in_flight'",
                args![
                    request.user_id.as_str(),
                    &request.method,
                    &request.path,
                    &request.key,
                    tries,
                    until_ms
                ],
            )?;
            (tries, created_ms)
        }
        Found::Nothing => {
            insert(tx, request, &State::InFlight { until_ms }, now_ms)?;
            (1, now_ms)
        }
    };
    Ok(Begun::Go(Ticket { request: request.clone(), tries, created_ms }))
}

/// One that seems to fly longer than any may was begun under a wrong clock.
fn flies(until_ms: UnixMs, now_ms: UnixMs) -> bool {
    now_ms < until_ms && until_ms <= now_ms.saturating_add(MAX_FLIGHT_MS).saturating_add(60_000)
}

/// Keeps the answer of an effect, or [gives up](give_up) if it is a refusal. Refused if another try has taken over; its
/// answer counts.
pub fn finish(tx: &mut Tx<'_>, ticket: &Ticket, answer: &Answer) -> Result<()> {
    if !answer.kept {
        return give_up(tx, ticket);
    }
    let Ticket { request, tries, created_ms } = ticket;
    let kept = tx.exec(
        "UPDATE access_idempotency SET state = 'done', until_ms = NULL, status = $6, body = $7
         WHERE user_id = $1 AND method = $2 AND path = $3 AND key = $4
           AND state = 'in_flight' AND tries = $5 AND created_ms = $8",
        args![
            request.user_id.as_str(),
            &request.method,
            &request.path,
            &request.key,
            *tries,
            i64::from(answer.status),
            &answer.body,
            *created_ms
        ],
    )?;
    own(kept)
}

/// Gives the ticket back: the effect was refused and has not happened. The same key may be used again.
pub fn give_up(tx: &mut Tx<'_>, ticket: &Ticket) -> Result<()> {
    let Ticket { request, tries, created_ms } = ticket;
    let gone = tx.exec(
        "DELETE FROM access_idempotency
         WHERE user_id = $1 AND method = $2 AND path = $3 AND key = $4
           AND state = 'in_flight' AND tries = $5 AND created_ms = $6",
        args![
            request.user_id.as_str(),
            &request.method,
            &request.path,
            &request.key,
            *tries,
            *created_ms
        ],
    )?;
    own(gone)
}

/// Lets go of the ticket: nobody knows whether the effect was had. The same request again goes on at once, with the
/// same effect id. Nothing changes if another try has taken over, or it was answered.
pub fn release(tx: &mut Tx<'_>, ticket: &Ticket) -> Result<()> {
    let Ticket { request, tries, created_ms } = ticket;
    tx.exec(
        "UPDATE access_idempotency SET until_ms = 0
         WHERE user_id = $1 AND method = $2 AND path = $3 AND key = $4
           AND state = 'in_flight' AND tries = $5 AND created_ms = $6",
        args![
            request.user_id.as_str(),
            &request.method,
            &request.path,
            &request.key,
            *tries,
            *created_ms
        ],
    )?;
    Ok(())
}

fn own(changed: u64) -> Result<()> {
    if changed == 1 {
        return Ok(());
    }
    Err(Error::refused(&code::IDEMPOTENCY_LOST, "another try of this request has taken over"))
}

/// What is known of a request.
enum Found {
    Nothing,
    InFlight { tries: i64, until_ms: UnixMs, created_ms: UnixMs },
    Done(Answer),
}

type FoundRow = (String, i64, Option<i64>, Option<i64>, Option<String>, i64);

fn find(rx: &mut Rx<'_>, request: &Request) -> Result<Found> {
    let row: Option<FoundRow> = rx.first(
        "SELECT request_hash, tries, until_ms, status, body, created_ms FROM access_idempotency
         WHERE user_id = $1 AND method = $2 AND path = $3 AND key = $4",
        args![request.user_id.as_str(), &request.method, &request.path, &request.key],
    )?;
    let Some((request_hash, tries, until_ms, status, body, created_ms)) = row else {
        return Ok(Found::Nothing);
    };
    if request_hash != request.request_hash.hex() {
        let message = "the key was used for another query or body";
        return Err(Error::refused(&code::IDEMPOTENCY_MISMATCH, message));
    }
    match (until_ms, status.and_then(|status| u16::try_from(status).ok()), body) {
        (Some(until_ms), None, None) => Ok(Found::InFlight { tries, until_ms, created_ms }),
        (None, Some(status), Some(body)) => {
            Ok(Found::Done(Answer { status, body, shown: None, kept: true }))
        }
        _ => Err(guild_store::Error::Decode("an answer is not of its form".to_owned()).into()),
    }
}

enum State<'a> {
    InFlight { until_ms: UnixMs },
    Done(&'a Answer),
}

fn insert(tx: &mut Tx<'_>, request: &Request, state: &State<'_>, now_ms: UnixMs) -> Result<()> {
    let (word, until_ms, answer) = match state {
        State::InFlight { until_ms } => ("in_flight", Some(*until_ms), None),
        State::Done(answer) => ("done", None, Some(answer)),
    };
    tx.exec(
        "INSERT INTO access_idempotency
           (user_id, method, path, key, request_hash, state, tries, until_ms, status, body, created_ms)
         VALUES ($1, $2, $3, $4, $5, $6, 1, $7, $8, $9, $10)",
        args![
            request.user_id.as_str(),
            &request.method,
            &request.path,
            &request.key,
            &request.request_hash.hex(),
            word,
            until_ms,
            answer.map(|answer| i64::from(answer.status)),
            answer.map(|answer| answer.body.as_str()),
            now_ms
        ],
    )?;
    Ok(())
}

/// Takes away a few that were kept long enough.
pub(super) fn sweep(tx: &mut Tx<'_>, now_ms: UnixMs) -> Result<u64> {
    Ok(tx.exec(
        "DELETE FROM access_idempotency WHERE (user_id, method, path, key) IN
           (SELECT user_id, method, path, key FROM access_idempotency WHERE created_ms <= $1 LIMIT $2)",
        args![now_ms.saturating_sub(KEEP_MS), SWEEP_MAX],
    )?)
}
