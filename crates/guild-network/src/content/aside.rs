//! Blocks whose bytes are not those of their name: a disk that forgets, or somebody who wrote into the database.

use guild_protocol::content::Cid;
use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_store::{Rx, Tx, args};
use serde::Serialize;

use super::{Content, block};
use crate::error::code;
use crate::{Error, Result};

/// A block that was set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Aside {
    /// The SHA-256 that its bytes should have had, in hex.
    pub digest: String,
    /// How many bytes were found instead.
    pub bytes: u64,
    /// How often that has happened to it.
    pub times: u64,
    /// When it was found last.
    pub at_ms: UnixMs,
}

/// How many are listed.
const LIST_MAX: i64 = 1_000;
/// So many blocks are read at a time when all are looked at.
const SCRUB_BLOCKS: i64 = 16;

/// What a look at some blocks found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// How many were read.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The names of those whose bytes are wrong.
    pub wrong: Vec<Hash>,
    /// Where the next look begins; none if that was all.
    pub next: Option<String>,
}

impl Content {
    /// What was set aside, the newest first.
    pub async fn aside(&self) -> Result<Vec<Aside>> {
        self.store.read(list).await
    }

    /// Reads some blocks again, behind this name, and hashes them. Changes nothing.
    pub async fn scrub(&self, after: Option<&str>) -> Result<Scrubbed> {
        let after = after.unwrap_or_default().to_owned();
        self.store.read(move |rx| scrub(rx, &after)).await
    }

    /// Takes a block whose bytes are wrong out of what is kept, so that it can be added again; the error for whoever
    /// asked for it.
    pub(super) async fn set_aside(&self, cid: &Cid, digest: Hash) -> Error {
        let now_ms = self.clock.now_ms();
        let moved = self.store.write(move |tx| set_aside(tx, digest, now_ms)).await;
        match moved {
            Ok(true) => {
                metrics::counter!("content_corrupt_total").increment(1);
                tracing::error!(%cid, "the bytes of a block are not those of its name; it is set aside");
            }
            // Somebody else has done it, or it has been added again.
            Ok(false) => {}
            Err(error) => {
                tracing::error!(%cid, %error, "a block with wrong bytes cannot be set aside");
            }
        }
        let message = format!("the bytes that are kept as {cid} have another hash");
        Error::refused(&code::CONTENT_CORRUPT, message)
    }
}

fn set_aside(tx: &mut Tx<'_>, digest: Hash, now_ms: UnixMs) -> Result<bool> {
    let name = digest.hex();
    let Some(data) = block::data(tx, &name)? else { return Ok(false) };
    if Hash::of(&data) == digest {
        return Ok(false);
    }
    tx.exec(
        "INSERT INTO content_aside (digest, data, times, at_ms) VALUES ($1, $2, 1, $3)
         ON CONFLICT (digest) DO UPDATE SET data = $2, times = content_aside.times + 1, at_ms = $3",
        args![&name, data.as_slice(), now_ms],
    )?;
    let row: Option<(i64,)> =
        tx.first("SELECT bytes FROM content_block WHERE digest = $1", args![&name])?;
    let mut head = block::head(tx)?;
    match row {
        Some((bytes,)) => block::remove(tx, &name, bytes, &mut head)?,
        // Bytes without a row about them were never counted.
        None => drop(tx.exec("DELETE FROM content_bytes WHERE digest = $1", args![&name])?),
    }
    block::set_head(tx, &head)?;
    Ok(true)
}

fn scrub(rx: &mut Rx<'_>, after: &str) -> Result<Scrubbed> {
    let rows: Vec<(String, Option<Vec<u8>>)> = rx.all(
        "SELECT b.digest, d.data FROM content_block b LEFT JOIN content_bytes d ON d.digest = b.digest
         WHERE b.digest > $1 ORDER BY b.digest LIMIT $2",
        args![after, SCRUB_BLOCKS],
    )?;
    let mut scrubbed = Scrubbed::default();
    for (digest, data) in rows {
        let name = Hash::parse_liberal(&digest)?;
        let bytes = data.as_ref().map_or(0, |data| u64::try_from(data.len()).unwrap_or(0));
        scrubbed.blocks = scrubbed.blocks.saturating_add(1);
        scrubbed.bytes = scrubbed.bytes.saturating_add(bytes);
        if data.is_none_or(|data| Hash::of(&data) != name) {
            scrubbed.wrong.push(name);
        }
        scrubbed.next = Some(digest);
    }
    Ok(scrubbed)
}

fn list(rx: &mut Rx<'_>) -> Result<Vec<Aside>> {
    let rows: Vec<(String, i64, i64, i64)> = rx.all(
        "SELECT digest, CAST(length(data) AS BIGINT), times, at_ms FROM content_aside
         ORDER BY at_ms DESC, digest LIMIT $1",
        args![LIST_MAX],
    )?;
    let positive = |n: i64| u64::try_from(n).unwrap_or(0);
    let aside = |(digest, bytes, times, at_ms)| Aside {
        digest,
        bytes: positive(bytes),
        times: positive(times),
        at_ms,
    };
    Ok(rows.into_iter().map(aside).collect())
}
