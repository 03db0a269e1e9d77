//! Directories.

use std::collections::BTreeMap;

use super::dag_pb::{Link, PbNode};
use super::import::{Block, Tree, node_cid};
use super::unixfs::{Data, Kind};
use super::wire::byte_count;
use super::{Version, code};
use crate::hash::shorten;
use crate::{Error, Result};

/// From this sum of names and CIDs on, Kubo shards a directory.
const SHARDED_FROM_BYTES: u64 = 256 * 1024;

/// As in file systems.
const MAX_NAME_BYTES: usize = 255;

/// A directory being made. Its entries are files and other directories that have already been imported.
#[derive(Debug, Clone)]
pub struct Directory {
    version: Version,
    entries: BTreeMap<String, Tree>,
    listed_bytes: u64,
}

impl Directory {
    /// An empty directory.
    pub fn new(version: Version) -> Directory {
        Directory { version, entries: BTreeMap::new(), listed_bytes: 0 }
    }

    /// Adds an entry.
    pub fn insert(&mut self, name: &str, tree: Tree) -> Result<()> {
        check_name(name)?;
        if self.entries.contains_key(name) {
            let message = format!("the directory already has an entry {name:?}");
            return Err(Error::new(&code::DUPLICATE_NAME, message));
        }
        let listed = byte_count(name.as_bytes()).saturating_add(byte_count(&tree.cid.to_bytes()));
        let listed_bytes = self.listed_bytes.saturating_add(listed);
        if listed_bytes >= SHARDED_FROM_BYTES {
            let message = format!(
                "the names and CIDs would take {listed_bytes} bytes, and {SHARDED_FROM_BYTES} are too many"
            );
            return Err(Error::new(&code::DIRECTORY_SIZE, message));
        }
        self.listed_bytes = listed_bytes;
        self.entries.insert(name.to_owned(), tree);
        Ok(())
    }

    /// Hands out the block of the directory.
    pub fn finish(&self, mut sink: impl FnMut(Block<'_>) -> Result<()>) -> Result<Tree> {
        let message = Data::new(Kind::Directory).encode();
        let links = self.entries.iter().map(|(name, tree)| Link {
            cid: tree.cid,
            name: Some(name),
            tree_bytes: Some(tree.tree_bytes),
        });
        let block = PbNode { links: links.collect(), data: Some(&message) }.encode();
        let sum = |bytes: fn(&Tree) -> u64| {
            self.entries.values().fold(0u64, |sum, tree| sum.saturating_add(bytes(tree)))
        };
        let tree = Tree {
            cid: node_cid(self.version, crate::hash::Hash::of(&block)),
            content_bytes: sum(|tree| tree.content_bytes),
            tree_bytes: sum(|tree| tree.tree_bytes).saturating_add(byte_count(&block)),
        };
        sink(Block::new(tree.cid, [&block, &[], &[], &[]]))?;
        Ok(tree)
    }
}

/// A plain file name: what can be an entry of a directory on a disk without leaving it.
pub(super) fn check_name(name: &str) -> Result<()> {
    let why = match name {
        "" => "is empty",
        "." | ".." => "means a directory itself",
        _ if name.len() > MAX_NAME_BYTES => "is longer than 255 bytes",
        _ if name.contains(['/', '\0']) => "has a slash or a NUL in it",
        _ => return Ok(()),
    };
    Err(Error::new(&code::BAD_NAME, format!("the entry name {:?} {why}", shorten(name))))
}
