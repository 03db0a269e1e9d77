//! The collection of garbage: rounds of marking and sweeping, each in small transactions beside everything else.
//!
//! A round first marks what is needed: every root that is pinned, and whatever hangs below it. What comes in or is
//! pinned during a round is marked too, at once and with everything below it, so nothing that is needed can slip behind
//! the marking. Then it removes what was not marked, unless it was touched within the grace period or by a session that
//! still adds. Whoever dies leaves a round in the middle; the next one to collect goes on with it.
//!
//! If a node below a pin is missing or has wrong bytes, nobody knows what hangs below it: the round removes nothing.

use std::collections::BTreeSet;

use guild_protocol::content::dag_pb::PbNode;
use guild_protocol::content::{Cid, Codec};
use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_store::{Column, Sql, Tx, args};

use super::block::{self, Head, Phase};
use super::{Content, Options};
use crate::error::code;
use crate::{Error, Result};

/// So many links are followed in one transaction.
const STEP_LINKS: i64 = 2_000;
/// So many nodes are looked for at a time.
const PAGE_NODES: i64 = 32;
/// So many blocks are looked at in one transaction.
const STEP_BLOCKS: i64 = 256;
/// So many bytes are removed in one transaction, and a block more.
const STEP_BYTES: i64 = 4 << 20;

/// What a round has removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collected {
    /// Blocks.
    pub removed: u64,
    /// Their bytes.
    pub removed_bytes: u64,
}

/// How far one transaction has come.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// There is more to do.
    More,
    /// The round is over.
    Done(Collected),
    /// A node that a pin needs is not there, or is not what its name says.
    Broken(Hash),
}

impl Content {
    /// Removes what nobody needs. Goes on with a round that was left in the middle, or begins one.
    pub async fn collect(&self) -> Result<Collected> {
        let mut begin = true;
        loop {
            let (options, now_ms) = (self.options, self.clock.now_ms());
            let step = move |tx: &mut Tx<'_>| step(tx, &options, now_ms, begin);
            match self.store.write_patiently(step).await? {
                Step::More => begin = false,
                Step::Done(collected) => {
                    metrics::counter!("content_removed_total").increment(collected.removed);
                    return Ok(collected);
                }
                Step::Broken(digest) => return Err(self.broken(digest).await),
            }
        }
    }

    /// Why a round had to stop: at a node that is not there, or not what its name says.
    async fn broken(&self, digest: Hash) -> Error {
        let (cid, name) = (Cid::v1(Codec::DagPb, digest), digest.hex());
        match self.store.read(move |rx| block::has(rx, &name)).await {
            Ok(true) => self.set_aside(&cid, digest).await,
            Ok(false) => {
                let message =
                    format!("{cid} is needed by a pin and is not here: nothing is removed");
                Error::refused(&code::CONTENT_BROKEN, message)
            }
            Err(error) => error,
        }
    }
}

fn step(tx: &mut Tx<'_>, options: &Options, now_ms: UnixMs, begin: bool) -> Result<Step> {
    let mut head = block::head(tx)?;
    if head.phase == Phase::Idle {
        if !begin {
            // Somebody else has ended the round.
            return Ok(Step::Done(collected(&head)));
        }
        begin_round(tx, &mut head)?;
    }
    if head.phase == Phase::Mark
        && let Some(digest) = mark(tx, &mut head)?
    {
        head.phase = Phase::Idle;
        tx.exec("DELETE FROM content_grey", &[])?;
        block::set_head(tx, &head)?;
        return Ok(Step::Broken(digest));
    }
    if head.phase == Phase::Sweep {
        sweep(tx, &mut head, options, now_ms)?;
    }
    block::set_head(tx, &head)?;
    match head.phase {
        Phase::Idle => Ok(Step::Done(collected(&head))),
        Phase::Mark | Phase::Sweep => Ok(Step::More),
    }
}

fn collected(head: &Head) -> Collected {
    let positive = |n: i64| u64::try_from(n).unwrap_or(0);
    Collected { removed: positive(head.removed), removed_bytes: positive(head.removed_bytes) }
}

fn begin_round(tx: &mut Tx<'_>, head: &mut Head) -> Result<()> {
    head.round = head.round.saturating_add(1);
    head.phase = Phase::Mark;
    head.sweep_after = String::new();
    (head.removed, head.removed_bytes) = (0, 0);
    tx.exec("DELETE FROM content_grey", &[])?;
    tx.exec(
        "INSERT INTO content_grey (digest, pinned) SELECT DISTINCT digest, 1 FROM content_pin WHERE is_node = 1",
        &[],
    )?;
    tx.exec(
        "UPDATE content_block SET marked = $1
         WHERE digest IN (SELECT digest FROM content_pin WHERE is_node = 0)",
        args![head.round],
    )?;
    Ok(())
}

/// Follows the links of nodes that are needed. A node below a pin that cannot be followed is the answer.
fn mark(tx: &mut Tx<'_>, head: &mut Head) -> Result<Option<Hash>> {
    let mut links_left = STEP_LINKS;
    loop {
        let grey: Vec<(String, i64, Option<i64>)> = tx.all(
            "SELECT g.digest, g.pinned, b.links FROM content_grey g
             LEFT JOIN content_block b ON b.digest = g.digest ORDER BY g.digest LIMIT $1",
            args![PAGE_NODES],
        )?;
        if grey.is_empty() {
            head.phase = Phase::Sweep;
            return Ok(None);
        }
        for (digest, pinned, links) in grey {
            tx.exec("DELETE FROM content_grey WHERE digest = $1", args![&digest])?;
            let walked = head.round.saturating_mul(2).saturating_add(pinned);
            tx.exec(
                "UPDATE content_block SET marked = $2, walked = $3 WHERE digest = $1",
                args![&digest, head.round, walked],
            )?;
            let name = Hash::parse_liberal(&digest)?;
            let broken = match links {
                Some(0) => None,
                Some(_) => follow(tx, name, pinned, head.round)?,
                None => Some(name),
            };
            // What came in without a pin may be a part of something; nobody has promised to keep it.
            if broken.is_some() && pinned == 1 {
                return Ok(broken);
            }
            links_left = links_left.saturating_sub(links.unwrap_or(0).max(1));
            if links_left <= 0 {
                return Ok(None);
            }
        }
    }
}

const MARK: Sql = Sql {
    lite: "UPDATE content_block SET marked = $2 WHERE digest = $1 AND marked < $2",
    pg: "UPDATE content_block SET marked = child.round
         FROM unnest($1::text[], $2::bigint[]) AS child (digest, round)
         WHERE content_block.digest = child.digest AND marked < child.round",
};

const GREY: Sql = Sql {
    lite: "INSERT INTO content_grey (digest, pinned)
           SELECT digest, $3 FROM content_block WHERE digest = $1 AND walked < $2
           ON CONFLICT (digest) DO UPDATE
           SET pinned = CASE WHEN excluded.pinned = 1 THEN 1 ELSE content_grey.pinned END",
    pg: "INSERT INTO content_grey (digest, pinned)
         SELECT b.digest, child.pinned FROM unnest($1::text[], $2::bigint[], $3::bigint[])
           AS child (digest, walked, pinned)
         JOIN content_block b ON b.digest = child.digest WHERE b.walked < child.walked
         ON CONFLICT (digest) DO UPDATE
         SET pinned = CASE WHEN excluded.pinned = 1 THEN 1 ELSE content_grey.pinned END",
};

const THERE: Sql = Sql {
    lite: "SELECT digest FROM content_block WHERE digest = $1",
    pg: "SELECT digest FROM content_block WHERE digest = ANY ($1::text[])",
};

/// Marks what a node links to. A node that cannot be followed is the answer: itself, or one that it links to.
fn follow(tx: &mut Tx<'_>, name: Hash, pinned: i64, round: i64) -> Result<Option<Hash>> {
    let data = block::data(tx, &name.hex())?.filter(|data| Hash::of(data) == name);
    let Some(data) = data else { return Ok(Some(name)) };
    let Ok(node) = PbNode::decode(&data) else { return Ok(Some(name)) };
    let (mut leaves, mut nodes) = (BTreeSet::new(), BTreeSet::new());
    for link in &node.links {
        // What has another hash is not kept here at all, so it cannot be lost.
        let Ok(child) = link.cid.digest() else { continue };
        match link.cid.codec() {
            Codec::DagPb => nodes.insert(child.hex()),
            Codec::Raw | Codec::Other(_) => leaves.insert(child.hex()),
        };
    }
    let leaves: Vec<&str> = leaves.iter().map(String::as_str).collect();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let rounds = vec![round; leaves.len()];
    tx.exec_set(MARK, &[Column::Texts(&leaves), Column::Ints(&rounds)])?;
    let walked = vec![round.saturating_mul(2).saturating_add(pinned); nodes.len()];
    let pinned = vec![pinned; nodes.len()];
    tx.exec_set(GREY, &[Column::Texts(&nodes), Column::Ints(&walked), Column::Ints(&pinned)])?;
    let there: Vec<(String,)> = tx.all_set(THERE, &[Column::Texts(&nodes)])?;
    let there: BTreeSet<&str> = there.iter().map(|(digest,)| digest.as_str()).collect();
    let lost = nodes.into_iter().find(|node| !there.contains(node));
    Ok(lost.map(Hash::parse_liberal).transpose()?)
}

fn sweep(tx: &mut Tx<'_>, head: &mut Head, options: &Options, now_ms: UnixMs) -> Result<()> {
    let first: Option<(Option<i64>,)> = tx
        .first("SELECT min(start_seq) FROM content_session WHERE expires_ms > $1", args![now_ms])?;
    let sessions_from = first.and_then(|(seq,)| seq).unwrap_or(i64::MAX);
    let page: Vec<(String, i64, i64, i64, i64)> = tx.all(
        "SELECT digest, bytes, marked, touched_seq, touched_ms FROM content_block
         WHERE digest > $1 ORDER BY digest LIMIT $2",
        args![&head.sweep_after, STEP_BLOCKS],
    )?;
    let is_last = i64::try_from(page.len()).unwrap_or(i64::MAX) < STEP_BLOCKS;
    let mut bytes_left = STEP_BYTES;
    for (digest, bytes, marked, touched_seq, touched_ms) in page {
        let fresh = touched_ms.saturating_add(options.grace_ms) > now_ms;
        if marked < head.round && touched_seq < sessions_from && !fresh {
            block::remove(tx, &digest, bytes, head)?;
            head.removed = head.removed.saturating_add(1);
            head.removed_bytes = head.removed_bytes.saturating_add(bytes);
            bytes_left = bytes_left.saturating_sub(bytes);
        }
        head.sweep_after = digest;
        if bytes_left <= 0 {
            return Ok(());
        }
    }
    if is_last {
        head.phase = Phase::Idle;
        tx.exec("DELETE FROM content_session WHERE expires_ms <= $1", args![now_ms])?;
    }
    Ok(())
}
