//! What is kept with everything below it, for whom, and why.

use guild_protocol::content::{Cid, Codec};
use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_store::{Rx, Tx, args};
use serde::Serialize;

use super::block::{self, Phase, Why};
use super::{Content, Reach, Walked};
use crate::error::code;
use crate::{Error, Result};

/// The most bytes of an owner's name and of a reason.
const MAX_TEXT_BYTES: usize = 256;
/// The most pins on one page.
const PAGE_MAX: i64 = 1_000;

/// Whoever the node works for, as an owner of pins.
pub const OPERATOR: &str = "operator";

/// Who wants to keep something, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// Who: each owner has a pin of its own, and what several have pinned stays until the last of them lets go.
    pub owner: String,
    /// Why, in words.
    pub reason: String,
}

impl Pin {
    /// A pin for this owner.
    pub fn new(owner: &str, reason: &str) -> Result<Pin> {
        let good = |text: &str| text.len() <= MAX_TEXT_BYTES && !text.chars().any(char::is_control);
        if owner.is_empty() || !good(owner) || !good(reason) {
            let message = format!(
                "an owner has 1 to {MAX_TEXT_BYTES} bytes, a reason at most as many, both without control characters"
            );
            return Err(Error::refused(&code::CONTENT_PIN, message));
        }
        Ok(Pin { owner: owner.to_owned(), reason: reason.to_owned() })
    }
}

/// Something that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pinned {
    /// The root, in version 1.
    pub cid: Cid,
    /// For whom.
    pub owner: String,
    /// Why.
    pub reason: String,
    /// Since when.
    pub at_ms: UnixMs,
}

impl Content {
    /// Keeps a root with everything below it. All of it must be here, or within reach.
    pub async fn pin(&self, root: &Cid, pin: &Pin, reach: Reach) -> Result<Walked> {
        let adding = self.begin().await?;
        match self.walk_for(root, reach, Some(adding.session_id())).await {
            Ok(walked) => adding.keep(&[*root], pin).await.map(|()| walked),
            Err(error) => {
                // Nothing is left that would keep garbage for a while.
                adding.end().await?;
                Err(error)
            }
        }
    }

    /// Lets go of a root, for this owner; whether it had pinned it.
    pub async fn unpin(&self, root: &Cid, owner: &str) -> Result<bool> {
        let (root, owner) = (*root, owner.to_owned());
        self.store.write(move |tx| let_go(tx, &root, &owner)).await
    }

    /// Who has pinned this root.
    pub async fn pins_of(&self, root: &Cid) -> Result<Vec<Pinned>> {
        let (digest, is_node) = key(root)?;
        self.store.read(move |rx| of_root(rx, &digest, is_node)).await
    }

    /// A page of what is pinned, in the order of the roots, behind this one.
    pub async fn pins(&self, after: Option<&Pinned>) -> Result<Vec<Pinned>> {
        let after = match after {
            Some(pinned) => {
                let (digest, is_node) = key(&pinned.cid)?;
                (digest, is_node, pinned.owner.clone())
            }
            None => (String::new(), 0, String::new()),
        };
        self.store.read(move |rx| page(rx, &after)).await
    }
}

/// Lets go of a root, for this owner, in the transaction of whoever knows that nobody needs it; whether it had pinned
/// it.
pub fn let_go(tx: &mut Tx<'_>, root: &Cid, owner: &str) -> Result<bool> {
    let (digest, is_node) = key(root)?;
    let gone = tx.exec(
        "DELETE FROM content_pin WHERE digest = $1 AND is_node = $2 AND owner = $3",
        args![&digest, is_node, owner],
    )?;
    Ok(gone > 0)
}

fn key(root: &Cid) -> Result<(String, i64)> {
    Ok((root.digest()?.hex(), i64::from(root.codec() == Codec::DagPb)))
}

type Row = (String, i64, String, String, i64);

fn read((digest, is_node, owner, reason, at_ms): Row) -> Result<Pinned> {
    let codec = if is_node == 1 { Codec::DagPb } else { Codec::Raw };
    let cid = Cid::v1(codec, Hash::parse_liberal(&digest)?);
    Ok(Pinned { cid, owner, reason, at_ms })
}

fn of_root(rx: &mut Rx<'_>, digest: &str, is_node: i64) -> Result<Vec<Pinned>> {
    let rows: Vec<Row> = rx.all(
        "SELECT digest, is_node, owner, reason, at_ms FROM content_pin
         WHERE digest = $1 AND is_node = $2 ORDER BY owner LIMIT $3",
        args![digest, is_node, PAGE_MAX],
    )?;
    rows.into_iter().map(read).collect()
}

fn page(rx: &mut Rx<'_>, (digest, is_node, owner): &(String, i64, String)) -> Result<Vec<Pinned>> {
    let rows: Vec<Row> = rx.all(
        "SELECT digest, is_node, owner, reason, at_ms FROM content_pin
         WHERE (digest, is_node, owner) > ($1, $2, $3) ORDER BY digest, is_node, owner LIMIT $4",
        args![digest, *is_node, owner, PAGE_MAX],
    )?;
    rows.into_iter().map(read).collect()
}

/// Writes the pin. Everything below it is there and safe until now, by the session that ends in the same transaction.
pub(super) fn insert(tx: &mut Tx<'_>, root: &Cid, pin: &Pin, now_ms: UnixMs) -> Result<()> {
    let (digest, is_node) = key(root)?;
    if !block::has(tx, &digest)? {
        return Err(block::missing(root));
    }
    tx.exec(
        "INSERT INTO content_pin (digest, is_node, owner, reason, at_ms) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (digest, is_node, owner) DO UPDATE SET reason = $4",
        args![&digest, is_node, &pin.owner, &pin.reason, now_ms],
    )?;
    let mut head = block::head(tx)?;
    if head.phase != Phase::Idle {
        block::need(tx, &digest, is_node == 1, Why::Pinned, &mut head)?;
        block::set_head(tx, &head)?;
    }
    Ok(())
}
