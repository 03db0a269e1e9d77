//! The rows of blocks.

use guild_protocol::content::dag_pb::{MAX_BLOCK_BYTES, PbNode};
use guild_protocol::content::{Cid, Codec};
use guild_protocol::env::UnixMs;
use guild_store::{Rx, Tx, args};

use super::{Options, Summary};
use crate::error::code;
use crate::{Error, Result};

/// A block on its way in. Its bytes are those that its CID names.
pub(super) struct Fresh {
    pub(super) digest: String,
    pub(super) bytes: Vec<u8>,
    /// How many links it has, if it is read as a node.
    links: i64,
    /// Whether it is read as a node.
    is_node: bool,
}

impl Fresh {
    /// A block from somebody: refused if its bytes are not those of its CID, or no node where it says that it is one.
    pub(super) fn new(cid: &Cid, bytes: Vec<u8>) -> Result<Fresh> {
        check_size(&bytes)?;
        cid.verify(&bytes)?;
        match cid.codec() {
            Codec::DagPb => drop(PbNode::decode(&bytes)?),
            Codec::Raw => {}
            Codec::Other(number) => {
                let message = format!("{cid} has codec {number:#x}, neither raw nor dag-pb");
                let code = &guild_protocol::content::code::UNSUPPORTED_CODEC;
                return Err(Error::refused(code, message));
            }
        }
        Fresh::of(cid, bytes)
    }

    /// A block that was made here.
    pub(super) fn of(cid: &Cid, bytes: Vec<u8>) -> Result<Fresh> {
        // Of the bytes alone, whatever the CID says of them: one row stands for the raw block and for the node.
        let links = PbNode::decode(&bytes).map_or(0, |node| node.links.len());
        let links = i64::try_from(links).unwrap_or(i64::MAX);
        let is_node = cid.codec() == Codec::DagPb;
        Ok(Fresh { digest: cid.digest()?.hex(), bytes, links, is_node })
    }
}

fn check_size(bytes: &[u8]) -> Result<()> {
    if bytes.len() <= MAX_BLOCK_BYTES {
        return Ok(());
    }
    let message = format!("{} bytes are more than the limit of {MAX_BLOCK_BYTES}", bytes.len());
    Err(Error::refused(&guild_protocol::content::code::BLOCK_SIZE, message))
}

/// Where the collection of garbage stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing is collected.
    Idle,
    /// What is needed is marked.
    Mark,
    /// What is not marked is removed.
    Sweep,
}

impl Phase {
    fn as_str(self) -> &'static str {
        match self {
            Phase::Idle => "idle",
            Phase::Mark => "mark",
            Phase::Sweep => "sweep",
        }
    }

    fn parse(text: &str) -> Option<Phase> {
        [Phase::Idle, Phase::Mark, Phase::Sweep].into_iter().find(|phase| phase.as_str() == text)
    }
}

/// The one row about all blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) blocks: i64,
    pub(super) bytes: i64,
    /// The last number that was given to what came in.
    pub(super) seq: i64,
    /// The last round of collection.
    pub(super) round: i64,
    pub(super) phase: Phase,
    /// Up to this digest the round has swept.
    pub(super) sweep_after: String,
    /// What the round has removed.
    pub(super) removed: i64,
    pub(super) removed_bytes: i64,
}

pub(super) fn head(rx: &mut Rx<'_>) -> Result<Head> {
    type Row = (i64, i64, i64, i64, String, String, i64, i64);
    let row: Option<Row> = rx.first(
        "SELECT blocks, bytes, seq, round, phase, sweep_after, removed, removed_bytes FROM content_head",
        &[],
    )?;
    let unreadable = || guild_store::Error::Decode("the content has no head".to_owned());
    let (blocks, bytes, seq, round, phase, sweep_after, removed, removed_bytes) =
        row.ok_or_else(unreadable)?;
    let phase = Phase::parse(&phase).ok_or_else(unreadable)?;
    Ok(Head { blocks, bytes, seq, round, phase, sweep_after, removed, removed_bytes })
}

pub(super) fn set_head(tx: &mut Tx<'_>, head: &Head) -> Result<()> {
    let phase = head.phase.as_str();
    tx.exec(
        "UPDATE content_head SET blocks = $1, bytes = $2, seq = $3, round = $4, phase = $5, sweep_after = $6,
         removed = $7, removed_bytes = $8",
        args![
            head.blocks,
            head.bytes,
            head.seq,
            head.round,
            phase,
            &head.sweep_after,
            head.removed,
            head.removed_bytes
        ],
    )?;
    Ok(())
}

pub(super) fn summary(rx: &mut Rx<'_>) -> Result<Summary> {
    let head = head(rx)?;
    let count = |row: Option<(i64,)>| row.map_or(0, |(n,)| u64::try_from(n).unwrap_or(0));
    let pins = count(rx.first("SELECT count(*) FROM content_pin", &[])?);
    let aside = count(rx.first("SELECT count(*) FROM content_aside", &[])?);
    let positive = |n: i64| u64::try_from(n).unwrap_or(0);
    Ok(Summary { blocks: positive(head.blocks), bytes: positive(head.bytes), pins, aside })
}

pub(super) fn has(rx: &mut Rx<'_>, digest: &str) -> Result<bool> {
    let sql = "SELECT bytes FROM content_block WHERE digest = $1";
    let row: Option<(i64,)> = rx.first(sql, args![digest])?;
    Ok(row.is_some())
}

/// The bytes as they are in the database.
pub(super) fn data(rx: &mut Rx<'_>, digest: &str) -> Result<Option<Vec<u8>>> {
    let row: Option<(Vec<u8>,)> =
        rx.first("SELECT data FROM content_bytes WHERE digest = $1", args![digest])?;
    Ok(row.map(|(data,)| data))
}

/// Keeps blocks, all or none. What is there already counts as added anew. `session` is whoever adds, if it is more than
/// this; a session that has expired is refused.
pub(super) fn put(
    tx: &mut Tx<'_>,
    blocks: &[Fresh],
    session: Option<&str>,
    options: &Options,
    now_ms: UnixMs,
) -> Result<()> {
    if let Some(session) = session {
        renew(tx, session, options, now_ms)?;
    }
    let mut head = head(tx)?;
    head.seq = head.seq.saturating_add(1);
    for block in blocks {
        let touched = tx.exec(
            "UPDATE content_block SET touched_seq = $2, touched_ms = $3 WHERE digest = $1",
            args![&block.digest, head.seq, now_ms],
        )?;
        if touched == 0 {
            insert(tx, block, &mut head, options, now_ms)?;
        }
        keep_in_round(tx, block, &mut head)?;
    }
    set_head(tx, &head)
}

fn insert(
    tx: &mut Tx<'_>,
    block: &Fresh,
    head: &mut Head,
    options: &Options,
    now_ms: UnixMs,
) -> Result<()> {
    let bytes = i64::try_from(block.bytes.len()).unwrap_or(i64::MAX);
    let total = head.bytes.saturating_add(bytes);
    let most = i64::try_from(options.max_bytes).unwrap_or(i64::MAX);
    if total > most {
        let message = format!("{bytes} bytes more would be {total}, and at most {most} are kept");
        return Err(Error::refused(&code::CONTENT_FULL, message));
    }
    tx.exec(
        "INSERT INTO content_block (digest, bytes, links, marked, walked, touched_seq, touched_ms)
         VALUES ($1, $2, $3, 0, 0, $4, $5)",
        args![&block.digest, bytes, block.links, head.seq, now_ms],
    )?;
    tx.exec(
        "INSERT INTO content_bytes (digest, data) VALUES ($1, $2)",
        args![&block.digest, block.bytes.as_slice()],
    )?;
    head.blocks = head.blocks.saturating_add(1);
    head.bytes = total;
    Ok(())
}

/// What comes in during a round is needed in it, with everything below it: somebody may be about to pin it.
fn keep_in_round(tx: &mut Tx<'_>, block: &Fresh, head: &mut Head) -> Result<()> {
    if head.phase == Phase::Idle {
        return Ok(());
    }
    need(tx, &block.digest, block.is_node && block.links > 0, Why::Fresh, head)
}

/// Why a block is needed in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// It came in meanwhile.
    Fresh,
    /// A pin keeps it.
    Pinned,
}

/// Marks a block as needed in this round. The links of a node are still to be followed, so a round that was sweeping
/// marks again first.
pub(super) fn need(
    tx: &mut Tx<'_>,
    digest: &str,
    has_links: bool,
    why: Why,
    head: &mut Head,
) -> Result<()> {
    tx.exec(
        "UPDATE content_block SET marked = $2 WHERE digest = $1 AND marked < $2",
        args![digest, head.round],
    )?;
    if has_links {
        tx.exec(
            "INSERT INTO content_grey (digest, pinned) VALUES ($1, $2) ON CONFLICT (digest) DO UPDATE
             SET pinned = CASE WHEN excluded.pinned = 1 THEN 1 ELSE content_grey.pinned END",
            args![digest, i64::from(why == Why::Pinned)],
        )?;
        head.phase = Phase::Mark;
    }
    Ok(())
}

/// Until when whoever adds may be silent. Not less than it takes to bring a piece over a slow line.
pub(super) fn session_expires_ms(options: &Options, now_ms: UnixMs) -> UnixMs {
    const LEAST_MS: i64 = 600_000;
    now_ms.saturating_add(options.grace_ms.max(LEAST_MS))
}

/// Says that a session goes on.
pub(super) fn renew(
    tx: &mut Tx<'_>,
    session: &str,
    options: &Options,
    now_ms: UnixMs,
) -> Result<()> {
    let expires_ms = session_expires_ms(options, now_ms);
    let renewed = tx.exec(
        "UPDATE content_session SET expires_ms = $2 WHERE session_id = $1 AND expires_ms > $3",
        args![session, expires_ms, now_ms],
    )?;
    if renewed == 1 { Ok(()) } else { Err(expired()) }
}

pub(super) fn expired() -> Error {
    let message = "whoever added this was silent for so long that parts of it may be gone";
    Error::refused(&code::CONTENT_EXPIRED, message)
}

/// Forgets a block. Whether somebody needs it has been decided.
pub(super) fn remove(tx: &mut Tx<'_>, digest: &str, bytes: i64, head: &mut Head) -> Result<()> {
    tx.exec("DELETE FROM content_block WHERE digest = $1", args![digest])?;
    tx.exec("DELETE FROM content_bytes WHERE digest = $1", args![digest])?;
    head.blocks = head.blocks.saturating_sub(1);
    head.bytes = head.bytes.saturating_sub(bytes);
    Ok(())
}

pub(super) fn missing(cid: &Cid) -> Error {
    Error::refused(&code::CONTENT_MISSING, format!("the block {cid} is not here"))
}
