//! Nodes with links, as dag-pb blocks.
//!
//! A block has one form: links first, then data, each link with its hash, name and size in this order. Blocks in any
//! other form are refused, so that decoding and encoding again always gives the bytes back.

use super::wire::{self, Fields, Parsed};
use super::{Cid, code};
use crate::{Error, Result};

/// The most bytes of a block that is read.
pub const MAX_BLOCK_BYTES: usize = 2 * 1024 * 1024;

/// The most links of a node that is read. A tiny link takes far more memory than bytes in its block.
pub const MAX_LINKS: usize = 16_384;

/// A link to another block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link<'a> {
    /// The block.
    pub cid: Cid,
    /// Its name. In directories the name of the entry, in files empty.
    pub name: Option<&'a str>,
    /// The bytes of the block and of all blocks below it, as its writer says.
    pub tree_bytes: Option<u64>,
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PbNode<'a> {
    /// The links, in order.
    pub links: Vec<Link<'a>>,
    /// What the node itself holds.
    pub data: Option<&'a [u8]>,
}

impl<'a> PbNode<'a> {
    /// Reads a block.
    pub fn decode(block: &'a [u8]) -> Result<PbNode<'a>> {
        check_size(block)?;
        let mut node = PbNode::default();
        let mut fields = Fields::of(block);
        while let Some((field, value)) = fields.next().map_err(malformed)? {
            match field {
                _ if node.data.is_some() => return Err(malformed("fields follow the data")),
                1 => node.data = Some(value.bytes().map_err(malformed)?),
                2 if node.links.len() >= MAX_LINKS => {
                    let message = format!("the node has more than {MAX_LINKS} links");
                    return Err(Error::new(&code::BLOCK_SIZE, message));
                }
                2 => {
                    let place = node.links.len();
                    let link = value.bytes().map_err(malformed).and_then(Link::decode);
                    node.links.push(link.map_err(|e| e.at(format!("links[{place}]")))?);
                }
                _ => return Err(malformed("the node has an unknown field")),
            }
        }
        Ok(node)
    }

    /// The bytes of the block.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for link in &self.links {
            link.encode(&mut out);
        }
        if let Some(data) = self.data {
            wire::put_bytes(&mut out, 1, data);
        }
        out
    }
}

impl<'a> Link<'a> {
    fn decode(message: &'a [u8]) -> Result<Link<'a>> {
        let (hash, name, tree_bytes) = Link::fields(message).map_err(malformed)?;
        let hash = hash.ok_or_else(|| malformed("the link has no hash"))?;
        Ok(Link { cid: Cid::from_bytes(hash)?, name, tree_bytes })
    }

    #[expect(clippy::type_complexity, reason = "the three optional fields of a link, used once")]
    fn fields(message: &'a [u8]) -> Parsed<(Option<&'a [u8]>, Option<&'a str>, Option<u64>)> {
        let (mut hash, mut name, mut tree_bytes) = (None, None, None);
        let mut fields = Fields::of(message);
        let mut last = 0;
        while let Some((field, value)) = fields.next()? {
            if field <= last {
                return Err("the fields of a link are repeated or out of order");
            }
            last = field;
            match field {
                1 => hash = Some(value.bytes()?),
                2 => {
                    let text = std::str::from_utf8(value.bytes()?);
                    name = Some(text.map_err(|_| "the name of a link is not UTF-8")?);
                }
                3 => tree_bytes = Some(value.number()?),
                _ => return Err("a link has an unknown field"),
            }
        }
        Ok((hash, name, tree_bytes))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let hash = self.cid.to_bytes();
        let name = self.name.map(str::as_bytes);
        let length = |bytes: &[u8]| {
            let count = wire::byte_count(bytes);
            count.saturating_add(wire::varint_bytes(count)).saturating_add(1)
        };
        let total = length(&hash)
            .saturating_add(name.map_or(0, length))
            .saturating_add(self.tree_bytes.map_or(0, |n| wire::varint_bytes(n).saturating_add(1)));
        wire::put_length(out, 2, total);
        wire::put_bytes(out, 1, &hash);
        if let Some(name) = name {
            wire::put_bytes(out, 2, name);
        }
        if let Some(tree_bytes) = self.tree_bytes {
            wire::put_number(out, 3, tree_bytes);
        }
    }
}

pub(super) fn check_size(block: &[u8]) -> Result<()> {
    if block.len() <= MAX_BLOCK_BYTES {
        return Ok(());
    }
    let message = format!("{} bytes are more than the limit of {MAX_BLOCK_BYTES}", block.len());
    Err(Error::new(&code::BLOCK_SIZE, message))
}

fn malformed(why: &'static str) -> Error {
    Error::new(&code::BAD_NODE, why)
}
