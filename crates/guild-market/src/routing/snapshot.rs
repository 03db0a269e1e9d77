//! The whole matrix as one document, now and then: so a start need not replay the whole log.
//!
//! A snapshot is of a row of the log, and says so: its hash covers all of it, and the row must have the hash that it
//! names. One that is damaged, of another version or of another log is left aside for an older one; without any the log
//! is replayed. So a snapshot makes a start quicker, and nothing else depends on it.

use std::collections::BTreeMap;

use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::json;
use guild_store::{Rx, Tx, args};
use serde::{Deserialize, Serialize};

use super::log::{SCHEMA_VERSION, canonical, catch_up};
use super::{Entry, Matrix, Options, TaskType};
use crate::error::code;
use crate::{Error, Result};

/// How long it is from one to the next.
pub const INTERVAL_MS: i64 = 300_000;

/// So many are kept.
const KEEP: i64 = 3;

/// Everybody for one task type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Shelf {
    /// In the order of admission.
    pub(super) entries: Vec<(PublicKey, Entry)>,
    /// What was given away lately, the oldest first.
    pub(super) given: Vec<(UnixMs, PublicKey)>,
    pub(super) outcomes: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    schema_version: u32,
    seq: i64,
    head: Hash,
    tasks: BTreeMap<TaskType, Shelf>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    body: Body,
    /// Of the body.
    hash: Hash,
}

/// A matrix as a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The row of the log that it is of.
    pub seq: i64,
    /// The hash of that row.
    pub head: Hash,
    /// Canonical JSON, with its own hash in it.
    pub text: String,
}

impl Snapshot {
    /// The snapshot of a matrix.
    pub fn of(matrix: &Matrix) -> Result<Snapshot> {
        let shelf = |task: &super::matrix::Task| Shelf {
            entries: task.entries().to_vec(),
            given: task.shares.given().collect(),
            outcomes: task.outcomes,
        };
        let tasks = matrix.tasks().iter().map(|(name, task)| (name.clone(), shelf(task))).collect();
        let (seq, head) = (matrix.seq(), matrix.head());
        let body = Body { schema_version: SCHEMA_VERSION, seq, head, tasks };
        let hash = json::hash(&body)?;
        Ok(Snapshot { seq, head, text: canonical(&Document { body, hash })? })
    }

    /// The matrix of a text, if the text is whole.
    pub fn read(text: &str, options: &Options) -> Result<Matrix> {
        let Document { body, hash } = json::decode(text.as_bytes())?;
        if body.schema_version != SCHEMA_VERSION || json::hash(&body)? != hash {
            let why = "a snapshot of the routing matrix is damaged, or of another version";
            return Err(Error::refused(&code::ROUTE_SNAPSHOT, why));
        }
        Ok(Matrix::restored(options.clone(), (body.seq, body.head), body.tasks))
    }
}

/// The hash of a row of the log, if there is such a row.
fn hash_at(rx: &mut Rx<'_>, seq: i64) -> Result<Option<Hash>> {
    let row: Option<(String,)> =
        rx.first("SELECT hash FROM market_route_log WHERE seq = $1", args![seq])?;
    Ok(row.map(|(hash,)| hash.parse()).transpose()?)
}

/// Writes a snapshot, and forgets all but the newest; whether there was something new to write. One of rows that the
/// log does not have is refused: nothing takes effect before it is logged.
pub fn write(tx: &mut Tx<'_>, snapshot: &Snapshot, now_ms: UnixMs) -> Result<bool> {
    if snapshot.seq == 0 {
        return Ok(false);
    }
    if hash_at(tx, snapshot.seq)? != Some(snapshot.head) {
        let why = format!("the log has no row {} such as this snapshot is of", snapshot.seq);
        return Err(Error::refused(&code::ROUTE_SNAPSHOT, why));
    }
    let written = tx.exec(
        "INSERT INTO market_route_snapshot (seq, at_ms, text) VALUES ($1, $2, $3)
         ON CONFLICT (seq) DO NOTHING",
        args![snapshot.seq, now_ms, &snapshot.text],
    )?;
    tx.exec(
        "DELETE FROM market_route_snapshot WHERE seq NOT IN
           (SELECT seq FROM market_route_snapshot ORDER BY seq DESC LIMIT $1)",
        args![KEEP],
    )?;
    Ok(written > 0)
}

/// When a snapshot was written last, and of which row.
pub fn newest(rx: &mut Rx<'_>) -> Result<Option<(UnixMs, i64)>> {
    let sql = "SELECT at_ms, seq FROM market_route_snapshot ORDER BY seq DESC LIMIT 1";
    Ok(rx.first(sql, &[])?)
}

/// A matrix after a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The matrix, up to the last row.
    pub matrix: Matrix,
    /// The row that the snapshot is of; nothing if there was none that could be used.
    pub snapshot_seq: Option<i64>,
    /// How many rows came after it.
    pub replayed: u64,
    /// Snapshots that could not be used, by their row, and why.
    pub damaged: Vec<(i64, String)>,
}

/// The newest snapshot that is whole and of this log, and what was logged after it.
pub fn recover(rx: &mut Rx<'_>, options: &Options) -> Result<Recovered> {
    let mut damaged = Vec::new();
    let mut before = i64::MAX;
    loop {
        let row: Option<(i64, String)> = rx.first(
            "SELECT seq, text FROM market_route_snapshot WHERE seq < $1 ORDER BY seq DESC LIMIT 1",
            args![before],
        )?;
        let (mut matrix, snapshot_seq) = match row {
            None => (Matrix::new(options.clone()), None),
            Some((seq, text)) => match usable(rx, seq, &text, options)? {
                Ok(matrix) => (matrix, Some(seq)),
                Err(why) => {
                    damaged.push((seq, why));
                    before = seq;
                    continue;
                }
            },
        };
        let replayed = catch_up(rx, &mut matrix)?;
        return Ok(Recovered { matrix, snapshot_seq, replayed, damaged });
    }
}

/// The matrix of a snapshot, or why it cannot be used.
fn usable(
    rx: &mut Rx<'_>,
    seq: i64,
    text: &str,
    options: &Options,
) -> Result<std::result::Result<Matrix, String>> {
    let matrix = match Snapshot::read(text, options) {
        Ok(matrix) => matrix,
        Err(error) => return Ok(Err(error.to_string())),
    };
    if matrix.seq() != seq || hash_at(rx, seq)? != Some(matrix.head()) {
        return Ok(Err("it is not of this log".to_owned()));
    }
    Ok(Ok(matrix))
}
