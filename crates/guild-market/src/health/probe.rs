//! Tests of providers that look like work: each is an ordinary order with an ordinary request, and nobody but this node
//! knows what it is for.
//!
//! | reason | when |
//! |---|---|
//! | `hidden` | with so many of the ordinary orders of a provider, some time later |
//! | `heartbeat` | once a week |
//! | `silent` | when nothing was heard of it for a day |
//! | `verify` | when it gets half as much work: what it passes ends that |
//!
//! A test is a row before it is an order, under a key that nobody can guess, and becomes an order once.

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_store::{Columns, Decode, Rx, Tx, args};

use super::known;
use crate::Result;
use crate::order::OrderId;
use crate::routing::TaskType;
use crate::row::{Cells, page, unreadable};

/// What is not posted after so long is not posted any more.
pub const LATE_MS: i64 = 24 * 3_600_000;
/// Dropped tests are forgotten after so long.
const FORGET_MS: i64 = 30 * 24 * 3_600_000;

/// Why there is a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It was drawn with an ordinary order.
    Hidden,
    /// A week is over.
    Heartbeat,
    /// Nothing was heard for a day.
    Silent,
    /// It gets less work, until it passes one.
    Verify,
}

impl Reason {
    const ALL: [Reason; 4] = [Reason::Hidden, Reason::Heartbeat, Reason::Silent, Reason::Verify];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Hidden => "hidden",
            Reason::Heartbeat => "heartbeat",
            Reason::Silent => "silent",
            Reason::Verify => "verify",
        }
    }
}

/// A test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The key of its order.
    pub probe_key: String,
    /// Whom it tests.
    pub provider: PublicKey,
    /// For which work.
    pub task: TaskType,
    /// Why.
    pub reason: Reason,
    /// Since when it is there.
    pub made_ms: UnixMs,
    /// When it is posted.
    pub due_ms: UnixMs,
    /// Whose answer is known; none if the result is checked by itself.
    pub known: Option<OrderId>,
    /// Its order, once it is posted.
    pub order_id: Option<OrderId>,
    /// Why it was not posted, if it was not.
    pub words: Option<String>,
}

impl Decode for Probe {
    fn decode(row: &dyn Columns) -> guild_store::Result<Probe> {
        let mut cells = Cells::of(row);
        Ok(Probe {
            probe_key: cells.next()?,
            provider: cells.parsed()?,
            task: cells.parsed()?,
            reason: {
                let word: String = cells.next()?;
                let found = Reason::ALL.into_iter().find(|reason| reason.name() == word);
                found.ok_or_else(|| unreadable(format!("a test is for {word:?}")))?
            },
            made_ms: cells.next()?,
            due_ms: cells.next()?,
            known: cells.parsed_or_none()?,
            order_id: cells.parsed_or_none()?,
            words: cells.next()?,
        })
    }
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT probe_key, provider, task_type, reason, made_ms, due_ms, known_order_id, order_id, words
             FROM market_probe ",
            $rest
        )
    };
}

/// Whether a draw is one of so many ten-thousandths.
///
/// ```
/// use guild_market::health::probe::is_drawn;
/// let drawn = (0..10_000_u64).filter(|n| is_drawn(200, n.wrapping_mul(7_919))).count();
/// assert_eq!(drawn, 200);
/// ```
pub fn is_drawn(rate_bp: u32, chance: u64) -> bool {
    chance.checked_rem(10_000).is_some_and(|drawn| drawn < u64::from(rate_bp))
}

/// Writes down that somebody is to be tested. Its key must be one that nobody can guess.
pub fn add(
    tx: &mut Tx<'_>,
    probe_key: &str,
    (provider, task): (&PublicKey, &TaskType),
    reason: Reason,
    (due_ms, now_ms): (UnixMs, UnixMs),
) -> Result<()> {
    tx.exec(
        "INSERT INTO market_probe (probe_key, provider, task_type, reason, made_ms, due_ms, state)
         VALUES ($1, $2, $3, $4, $5, $6, 'due') ON CONFLICT DO NOTHING",
        args![probe_key, &provider.npub(), task.as_str(), reason.name(), now_ms, due_ms],
    )?;
    Ok(())
}

/// Tests that are to be posted now, the longest due first.
pub fn due(rx: &mut Rx<'_>, now_ms: UnixMs, limit: i64) -> Result<Vec<Probe>> {
    let sql = select!("WHERE state = 'due' AND due_ms <= $1 ORDER BY due_ms, probe_key LIMIT $2");
    Ok(rx.all(sql, args![now_ms, page(limit)])?)
}

/// The test that an order is, if it is one.
pub fn of_order(rx: &mut Rx<'_>, order_id: &OrderId) -> Result<Option<Probe>> {
    Ok(rx.first(select!("WHERE order_id = $1"), args![order_id.as_str()])?)
}

/// The latest tests of a provider for some work that were not drawn with an order, the newest first.
pub fn latest(
    rx: &mut Rx<'_>,
    (provider, task): (&PublicKey, &TaskType),
    limit: i64,
) -> Result<Vec<Probe>> {
    let sql = select!(
        "WHERE provider = $1 AND task_type = $2 AND reason <> 'hidden' ORDER BY made_ms DESC, probe_key LIMIT $3"
    );
    Ok(rx.all(sql, args![&provider.npub(), task.as_str(), page(limit)])?)
}

/// How many tests of a provider for some work were posted, and how many of those were answered otherwise than is known,
/// or not at all.
pub fn tally(rx: &mut Rx<'_>, (provider, task): (&PublicKey, &TaskType)) -> Result<(i64, i64)> {
    let found: Option<(i64, i64)> = rx.first(
        "SELECT count(*), CAST(coalesce(sum(CASE WHEN o.state IN ('withheld', 'expired', 'failed') THEN 1 ELSE 0 END),
           0) AS BIGINT)
         FROM market_probe p JOIN market_order o ON o.order_id = p.order_id WHERE p.provider = $1 AND p.task_type = $2",
        args![&provider.npub(), task.as_str()],
    )?;
    Ok(found.unwrap_or_default())
}

/// Writes down that a test has become this order, in the transaction that posts it. Whether it was still to be posted:
/// if not, nothing may be.
pub fn posted(
    tx: &mut Tx<'_>,
    probe_key: &str,
    order_id: &OrderId,
    known: Option<&OrderId>,
) -> Result<bool> {
    let changed = tx.exec(
        "UPDATE market_probe SET state = 'posted', order_id = $2, known_order_id = $3
         WHERE probe_key = $1 AND state = 'due'",
        args![probe_key, order_id.as_str(), known.map(OrderId::as_str)],
    )?;
    if let Some(known) = known.filter(|_| changed > 0) {
        known::used(tx, known)?;
    }
    Ok(changed > 0)
}

/// Writes down that a test is not posted, and why.
pub fn drop_it(tx: &mut Tx<'_>, probe_key: &str, words: &str) -> Result<()> {
    const WORDS_MAX_CHARS: usize = 300;
    let words: String = words.chars().take(WORDS_MAX_CHARS).collect();
    tx.exec(
        "UPDATE market_probe SET state = 'dropped', words = $2 WHERE probe_key = $1 AND state = 'due'",
        args![probe_key, &words],
    )?;
    Ok(())
}

/// Forgets what was dropped long ago.
pub fn forget(tx: &mut Tx<'_>, now_ms: UnixMs) -> Result<u64> {
    Ok(tx.exec(
        "DELETE FROM market_probe WHERE state = 'dropped' AND made_ms < $1",
        args![now_ms.saturating_sub(FORGET_MS)],
    )?)
}
