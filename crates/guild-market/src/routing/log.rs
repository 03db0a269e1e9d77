//! The log of the matrix: everything that happens to it is a row before it takes effect.
//!
//! A row says what happened and what the entry is afterwards, and its hash covers the row before it. Whoever appends
//! computes the entry from its latest row, in the same transaction: so any number of processes may, and none of them
//! needs to have read the others' rows. The matrix of each is what it has [caught up](catch_up) with.

use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::json;
use guild_store::{Rx, Tx, args};
use serde::Serialize;

use super::{Asked, Change, Effect, Entry, Logged, Matrix, Options, TaskType, next};
use crate::error::code;
use crate::health::Stage;
use crate::operator;
use crate::row::page;
use crate::{Error, Result};

/// The bell that tells of new rows.
pub const TOPIC: &str = "routing";

/// The version of the form of rows and snapshots.
pub(super) const SCHEMA_VERSION: u32 = 1;

/// So many rows are read at once.
const PAGE: i64 = 500;

/// seq, change_key, at_ms, task_type, provider, version, mutation, entry, prev_hash, hash
type Row = (i64, String, i64, String, String, i64, String, String, String, String);

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT seq, change_key, at_ms, task_type, provider, version, mutation, entry, prev_hash, hash
             FROM market_route_log ",
            $rest
        )
    };
}
/// What the first row follows.
pub(super) fn start() -> Hash {
    Hash::from_bytes([0; 32])
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// The row.
    pub effect: Effect,
    /// What the entry was before; nothing if there was none, or if the row is not new.
    pub before: Option<Entry>,
    /// Whether it was written now, and not before.
    pub is_new: bool,
}

impl Appended {
    /// Whether it is worth telling somebody far away: somebody came, is hired or is not any more, or its trust has
    /// moved by a tenth.
    pub fn is_significant(&self) -> bool {
        let after = &self.effect.entry;
        self.is_new
            && match &self.before {
                None => true,
                Some(before) => {
                    let moved = before.trust_bp.abs_diff(after.trust_bp);
                    let is_worse = after.health.stage > before.health.stage.max(Stage::Warned);
                    before.status != after.status || moved >= SIGNIFICANT_BP || is_worse
                }
            }
    }
}

/// A move of trust that is worth telling.
const SIGNIFICANT_BP: u32 = 1_000;

/// What the hash of a row covers.
#[derive(Serialize)]
struct Link<'a> {
    schema_version: u32,
    prev_hash: &'a Hash,
    seq: i64,
    change_key: &'a str,
    at_ms: UnixMs,
    task_type: &'a str,
    provider: &'a str,
    version: i64,
    mutation: &'a str,
    entry: &'a str,
}

/// Writes changes down, in this order, all or none. One that is known with the same content is known; with other
/// content it is a conflict.
pub fn append(
    tx: &mut Tx<'_>,
    options: &Options,
    changes: &[Change],
    now_ms: UnixMs,
) -> Result<Vec<Appended>> {
    let mut head = head(tx)?;
    let first = head.0;
    let mut appended = Vec::with_capacity(changes.len());
    for change in changes {
        change.check()?;
        appended.push(match known(tx, change)? {
            Some(effect) => Appended { effect, before: None, is_new: false },
            None => write(tx, options, change, &mut head, now_ms)?,
        });
    }
    if head.0 > first {
        tx.ring(TOPIC, first);
    }
    Ok(appended)
}

/// The number and the hash of the last row.
pub fn head(rx: &mut Rx<'_>) -> Result<(i64, Hash)> {
    let sql = "SELECT seq, hash FROM market_route_log ORDER BY seq DESC LIMIT 1";
    let row: Option<(i64, String)> = rx.first(sql, &[])?;
    match row {
        Some((seq, hash)) => Ok((seq, hash.parse()?)),
        None => Ok((0, start())),
    }
}

/// The row of a change that was written before.
fn known(rx: &mut Rx<'_>, change: &Change) -> Result<Option<Effect>> {
    let row: Option<Row> = rx.first(select!("WHERE change_key = $1"), args![&change.key])?;
    let Some(row) = row else { return Ok(None) };
    let effect = effect(&row)?;
    let same = effect.task == change.task
        && effect.provider == change.provider
        && effect.mutation == change.mutation;
    if same {
        return Ok(Some(effect));
    }
    let why = format!("something else was written as {:?}", change.key);
    Err(Error::refused(&code::ROUTE_CONFLICT, why))
}

fn write(
    tx: &mut Tx<'_>,
    options: &Options,
    change: &Change,
    head: &mut (i64, Hash),
    now_ms: UnixMs,
) -> Result<Appended> {
    let npub = change.provider.npub();
    let before = latest(tx, &change.task, &change.provider)?;
    let entry = next(options, before.as_ref(), &change.mutation, now_ms)?;
    let (mutation_text, entry_text) = (canonical(&change.mutation)?, canonical(&entry)?);
    let seq = head.0.saturating_add(1);
    let link = Link {
        schema_version: SCHEMA_VERSION,
        prev_hash: &head.1,
        seq,
        change_key: &change.key,
        at_ms: now_ms,
        task_type: change.task.as_str(),
        provider: &npub,
        version: entry.version,
        mutation: &mutation_text,
        entry: &entry_text,
    };
    let hash = json::hash(&link)?;
    tx.exec(
        "INSERT INTO market_route_log
           (seq, change_key, at_ms, task_type, provider, version, mutation, entry, prev_hash, hash)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        args![
            seq,
            &change.key,
            now_ms,
            change.task.as_str(),
            &npub,
            entry.version,
            &mutation_text,
            &entry_text,
            &head.1.to_string(),
            &hash.to_string()
        ],
    )?;
    *head = (seq, hash);
    if entry.is_shut_out() && !before.as_ref().is_some_and(Entry::is_shut_out) {
        operator::remember(tx, &change.provider, now_ms)?;
    }
    let effect = Effect {
        seq,
        at_ms: now_ms,
        task: change.task.clone(),
        provider: change.provider,
        mutation: change.mutation.clone(),
        entry,
    };
    Ok(Appended { effect, before, is_new: true })
}

pub(super) fn canonical(value: &impl Serialize) -> Result<String> {
    Ok(String::from_utf8_lossy(&json::to_canonical(value)?).into_owned())
}

fn effect(row: &Row) -> Result<Effect> {
    let (seq, _, at_ms, task, provider, _, mutation, entry, _, _) = row;
    Ok(Effect {
        seq: *seq,
        at_ms: *at_ms,
        task: task.parse()?,
        provider: provider.parse()?,
        mutation: json::decode(mutation.as_bytes())?,
        entry: json::decode(entry.as_bytes())?,
    })
}

/// What an entry is now; nothing if there is none.
pub fn latest(rx: &mut Rx<'_>, task: &TaskType, provider: &PublicKey) -> Result<Option<Entry>> {
    let row: Option<(String,)> = rx.first(
        "SELECT entry FROM market_route_log WHERE task_type = $1 AND provider = $2
         ORDER BY version DESC LIMIT 1",
        args![task.as_str(), &provider.npub()],
    )?;
    Ok(row.map(|(text,)| json::decode(text.as_bytes())).transpose()?)
}

/// Whether a change of this key was written.
pub fn is_known(rx: &mut Rx<'_>, key: &str) -> Result<bool> {
    let sql = "SELECT seq FROM market_route_log WHERE change_key = $1";
    Ok(rx.first::<(i64,)>(sql, args![key])?.is_some())
}

/// Rows with what they changed, the newest first.
pub(super) fn rows_before(rx: &mut Rx<'_>, asked: &Asked, limit: i64) -> Result<Vec<Logged>> {
    let task = asked.task.as_ref().map(TaskType::as_str);
    let provider = asked.provider.map(|provider| provider.npub());
    let before_seq = asked.before_seq.unwrap_or(i64::MAX);
    // An empty text is nobody's.
    let (task, provider) = (task.unwrap_or_default(), provider.unwrap_or_default());
    let rows: Vec<Row> = rx.all(
        select!(
            "WHERE seq < $1 AND ($2 = '' OR task_type = $2) AND ($3 = '' OR provider = $3)
             ORDER BY seq DESC LIMIT $4"
        ),
        args![before_seq, task, &provider, page(limit)],
    )?;
    rows.iter().map(|row| logged(rx, row)).collect()
}

fn logged(rx: &mut Rx<'_>, row: &Row) -> Result<Logged> {
    let (seq, key, _, task, provider, version, _, _, prev_hash, written) = row;
    let before: Option<(String,)> = rx.first(
        "SELECT entry FROM market_route_log WHERE task_type = $1 AND provider = $2 AND version = $3",
        args![task, provider, version.saturating_sub(1)],
    )?;
    let above: Option<(String,)> =
        rx.first("SELECT hash FROM market_route_log WHERE seq = $1", args![seq.saturating_sub(1)])?;
    let above = above.map_or_else(|| start().to_string(), |(hash,)| hash);
    let hash = hash_of(row, &prev_hash.parse()?)?;
    Ok(Logged {
        key: key.clone(),
        effect: effect(row)?,
        before: before.map(|(text,)| json::decode(text.as_bytes())).transpose()?,
        hash,
        is_whole: *written == hash.to_string() && *prev_hash == above,
    })
}

/// The hash that a row must have.
fn hash_of(row: &Row, prev_hash: &Hash) -> Result<Hash> {
    let (seq, change_key, at_ms, task_type, provider, version, mutation, entry, _, _) = row;
    Ok(json::hash(&Link {
        schema_version: SCHEMA_VERSION,
        prev_hash,
        seq: *seq,
        change_key,
        at_ms: *at_ms,
        task_type,
        provider,
        version: *version,
        mutation,
        entry,
    })?)
}

/// Brings a matrix up to the last row; how many rows that were. A row that does not follow from the one before it stops
/// that, and is named: up to it the matrix is right.
pub fn catch_up(rx: &mut Rx<'_>, matrix: &mut Matrix) -> Result<u64> {
    let mut count = 0_u64;
    loop {
        let rows: Vec<Row> =
            rx.all(select!("WHERE seq > $1 ORDER BY seq LIMIT $2"), args![matrix.seq(), PAGE])?;
        if rows.is_empty() {
            return Ok(count);
        }
        for row in rows {
            let head = matrix.head();
            let hash = hash_of(&row, &head)?;
            let (seq, .., prev_hash, written) = &row;
            if *prev_hash != head.to_string() || *written != hash.to_string() {
                let why = format!("row {seq} of the routing log is not what was written");
                return Err(Error::refused(&code::ROUTE_LOG, why));
            }
            matrix.apply(effect(&row)?)?;
            matrix.set_head(hash);
            count = count.saturating_add(1);
        }
    }
}

/// The matrix that the whole log gives.
pub fn replay(rx: &mut Rx<'_>, options: &Options) -> Result<Matrix> {
    let mut matrix = Matrix::new(options.clone());
    catch_up(rx, &mut matrix)?;
    Ok(matrix)
}

/// What happened to an entry, the newest first.
pub fn history(
    rx: &mut Rx<'_>,
    task: &TaskType,
    provider: &PublicKey,
    limit: i64,
) -> Result<Vec<Effect>> {
    let rows: Vec<Row> = rx.all(
        select!("WHERE task_type = $1 AND provider = $2 ORDER BY version DESC LIMIT $3"),
        args![task.as_str(), &provider.npub(), page(limit)],
    )?;
    rows.iter().map(effect).collect()
}
