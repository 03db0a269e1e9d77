//! Files: content cut into chunks, and a balanced tree of links over them.

use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::dag_pb::{Link, PbNode};
use super::unixfs::{Data, Kind};
use super::wire::{self, byte_count};
use super::{Cid, Codec, Version, code};
use crate::hash::{Hash, Hasher};
use crate::{Error, Result};

const MAX_CHUNK_BYTES: usize = 1024 * 1024;
const MAX_LINKS_PER_NODE: usize = 8192;

/// Chunks for each thread at a time: enough work to be worth the start of a thread.
const CHUNKS_PER_THREAD: usize = 32;

/// How content becomes blocks. Other options give other CIDs for the same content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The bytes of content in a leaf.
    pub chunk_bytes: usize,
    /// The most links of a node.
    pub max_links: usize,
    /// Whether leaves are raw blocks or dag-pb nodes.
    pub raw_leaves: bool,
    /// The version of the CIDs of nodes. Raw leaves always have version 1.
    pub version: Version,
}

impl Default for Options {
    /// As `ipfs add --cid-version=1`.
    fn default() -> Options {
        Options { chunk_bytes: 262_144, max_links: 174, raw_leaves: true, version: Version::V1 }
    }
}

impl Options {
    /// As `ipfs add` without options.
    pub fn v0() -> Options {
        Options { raw_leaves: false, version: Version::V0, ..Options::default() }
    }

    fn check(&self) -> Result<()> {
        let refuse = |field: &str, value: usize, low: usize, high: usize| {
            let message = format!("{value} is not from {low} to {high}");
            Err(Error::new(&code::BAD_OPTIONS, message).at(field))
        };
        if !(1..=MAX_CHUNK_BYTES).contains(&self.chunk_bytes) {
            return refuse("chunk_bytes", self.chunk_bytes, 1, MAX_CHUNK_BYTES);
        }
        if !(2..=MAX_LINKS_PER_NODE).contains(&self.max_links) {
            return refuse("max_links", self.max_links, 2, MAX_LINKS_PER_NODE);
        }
        Ok(())
    }
}

/// A block on its way to where blocks are kept. Its bytes are borrowed in pieces, so that nothing is copied for
/// those who only want the CID.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    /// The CID of the bytes.
    pub cid: Cid,
    parts: [&'a [u8]; 4],
}

impl<'a> Block<'a> {
    pub(super) fn new(cid: Cid, parts: [&'a [u8]; 4]) -> Block<'a> {
        Block { cid, parts }
    }

    /// The bytes, in pieces to be joined. Some may be empty.
    pub fn parts(&self) -> &[&'a [u8]] {
        &self.parts
    }

    /// The bytes in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        self.parts.concat()
    }
}

/// The root of an imported file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tree {
    /// The CID of its root block.
    pub cid: Cid,
    /// The bytes of content.
    pub content_bytes: u64,
    /// The bytes of all blocks, a block that is used twice counted twice.
    pub tree_bytes: u64,
}

/// Imports content that is in memory.
pub fn import(
    options: Options,
    content: &[u8],
    sink: impl FnMut(Block<'_>) -> Result<()>,
) -> Result<Tree> {
    let mut importer = Importer::new(options, sink)?;
    importer.push(content)?;
    importer.finish()
}

/// Makes blocks of a file whose content arrives in pieces. Every block is handed to `sink` as soon as it is complete,
/// children before their parents.
pub struct Importer<S> {
    options: Options,
    sink: S,
    threads: NonZeroUsize,
    /// The beginning of a chunk that is not complete.
    pending: Vec<u8>,
    /// The complete subtrees that have no parent yet, by height. None of them is full between calls.
    levels: Vec<Vec<Tree>>,
    failed: Option<Error>,
}

impl<S: FnMut(Block<'_>) -> Result<()>> Importer<S> {
    /// An empty file.
    pub fn new(options: Options, sink: S) -> Result<Importer<S>> {
        options.check()?;
        let (pending, levels) = (Vec::new(), Vec::new());
        Ok(Importer { options, sink, threads: NonZeroUsize::MIN, pending, levels, failed: None })
    }

    /// Lets up to so many threads hash, one if this is never called. It helps when pieces of many chunks are pushed.
    /// Blocks, their order and the thread that `sink` runs on stay the same.
    #[must_use]
    pub fn with_threads(mut self, threads: NonZeroUsize) -> Importer<S> {
        self.threads = threads;
        self
    }

    /// Takes the next piece of content. When `sink` has failed once, every later call fails with the same error.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        let chunk_bytes = self.options.chunk_bytes;
        loop {
            if self.pending.is_empty() {
                let most = self.threads.get().saturating_mul(CHUNKS_PER_THREAD);
                let chunks = bytes.len().checked_div(chunk_bytes).unwrap_or(0).min(most);
                if chunks > 1 {
                    let (batch, rest) = bytes.split_at(chunks.saturating_mul(chunk_bytes));
                    let hashes = hash_leaves(&self.options, batch, self.threads);
                    for (chunk, hash) in batch.chunks(chunk_bytes).zip(hashes) {
                        self.add_chunk(chunk, Some(hash))?;
                    }
                    bytes = rest;
                    continue;
                }
            }
            let missing = chunk_bytes.saturating_sub(self.pending.len());
            let Some((head, rest)) = bytes.split_at_checked(missing) else {
                self.pending.extend_from_slice(bytes);
                return self.failed.clone().map_or(Ok(()), Err);
            };
            self.add_chunk(head, None)?;
            bytes = rest;
        }
    }

    /// Hands out what remains, and the root at last.
    pub fn finish(mut self) -> Result<Tree> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if !self.pending.is_empty() {
            self.add_chunk(&[], None)?;
        }
        let levels = std::mem::take(&mut self.levels);
        let top = levels.len().saturating_sub(1);
        let mut carried = None;
        for (height, mut trees) in levels.into_iter().enumerate() {
            trees.extend(carried.take());
            carried = match trees.as_slice() {
                [] => None,
                [root] if height == top => Some(*root),
                // Below the top also a single tree gets a parent: all leaves are at one depth.
                _ => Some(self.node(&trees)?),
            };
        }
        match carried {
            Some(root) => Ok(root),
            // There was no content at all: one empty leaf.
            None => self.leaf(&[], &[], None),
        }
    }

    /// Ends a chunk: what is pending, and then `tail`. The hash of its leaf may be known already.
    fn add_chunk(&mut self, tail: &[u8], hash: Option<Hash>) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let mut pending = std::mem::take(&mut self.pending);
        let result = self.leaf(&pending, tail, hash).and_then(|leaf| self.add_tree(0, leaf));
        pending.clear();
        self.pending = pending;
        // A lost block would make the root lie.
        result.inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn add_tree(&mut self, height: usize, tree: Tree) -> Result<()> {
        let (mut height, mut tree) = (height, tree);
        loop {
            if height >= self.levels.len() {
                self.levels.push(Vec::new());
            }
            let Some(level) = self.levels.get_mut(height) else { return Ok(()) };
            level.push(tree);
            if level.len() < self.options.max_links {
                return Ok(());
            }
            let full = std::mem::take(level);
            tree = self.node(&full)?;
            height = height.saturating_add(1);
        }
    }

    fn leaf(&mut self, head: &[u8], tail: &[u8], hash: Option<Hash>) -> Result<Tree> {
        let content_bytes = byte_count(head).saturating_add(byte_count(tail));
        let (before, after) = leaf_frame(&self.options, content_bytes);
        let parts = [&before, head, tail, &after];
        let hash = hash.unwrap_or_else(|| hash_parts(&parts));
        let cid = if self.options.raw_leaves {
            Cid::v1(Codec::Raw, hash)
        } else {
            node_cid(self.options.version, hash)
        };
        (self.sink)(Block::new(cid, parts))?;
        let tree_bytes = parts.iter().fold(0u64, |sum, part| sum.saturating_add(byte_count(part)));
        Ok(Tree { cid, content_bytes, tree_bytes })
    }

    fn node(&mut self, children: &[Tree]) -> Result<Tree> {
        let sum = |bytes: fn(&Tree) -> u64| {
            children.iter().fold(0u64, |sum, child| sum.saturating_add(bytes(child)))
        };
        let content_bytes = sum(|child| child.content_bytes);
        let message = Data {
            content_bytes: Some(content_bytes),
            child_bytes: children.iter().map(|child| child.content_bytes).collect(),
            ..Data::new(Kind::File)
        }
        .encode();
        let links = children.iter().map(|child| Link {
            cid: child.cid,
            name: Some(""),
            tree_bytes: Some(child.tree_bytes),
        });
        let block = PbNode { links: links.collect(), data: Some(&message) }.encode();
        let cid = node_cid(self.options.version, Hash::of(&block));
        (self.sink)(Block::new(cid, [&block, &[], &[], &[]]))?;
        let tree_bytes = sum(|child| child.tree_bytes).saturating_add(byte_count(&block));
        Ok(Tree { cid, content_bytes, tree_bytes })
    }
}

impl<S> std::fmt::Debug for Importer<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Importer").field("options", &self.options).finish_non_exhaustive()
    }
}

/// What stands before and after the content in the block of a leaf, so that the content need not be copied into it.
fn leaf_frame(options: &Options, content_bytes: u64) -> (Vec<u8>, Vec<u8>) {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    if options.raw_leaves {
        return (before, after);
    }
    wire::put_number(&mut after, 3, content_bytes);
    let mut message = Data::new(Kind::File).encode();
    if content_bytes > 0 {
        wire::put_length(&mut message, 2, content_bytes);
    }
    let message_bytes =
        byte_count(&message).saturating_add(content_bytes).saturating_add(byte_count(&after));
    wire::put_length(&mut before, 1, message_bytes);
    before.append(&mut message);
    (before, after)
}

fn hash_parts(parts: &[&[u8]]) -> Hash {
    let mut hasher = Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finish()
}

/// The hash of every leaf of a batch of full chunks, in order.
fn hash_leaves(options: &Options, batch: &[u8], threads: NonZeroUsize) -> Vec<Hash> {
    let chunks = batch.chunks(options.chunk_bytes);
    let slots: Vec<_> = chunks.map(|chunk| (chunk, OnceLock::new())).collect();
    let next = AtomicUsize::new(0);
    // Whoever is free takes the next chunk, so that a helper that gets no processor holds nobody up for long.
    let work = || {
        while let Some((chunk, slot)) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
            slot.get_or_init(|| hash_leaf(options, chunk));
        }
    };
    let helpers = threads.get().min(slots.len()).saturating_sub(1);
    thread::scope(|scope| {
        for _ in 0..helpers {
            // When the system has no more threads, those that there are do the work.
            if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    slots
        .into_iter()
        .map(|(chunk, slot)| slot.into_inner().unwrap_or_else(|| hash_leaf(options, chunk)))
        .collect()
}

/// The hash of the leaf of a full chunk.
fn hash_leaf(options: &Options, chunk: &[u8]) -> Hash {
    let (before, after) = leaf_frame(options, byte_count(chunk));
    hash_parts(&[&before, chunk, &after])
}

pub(super) fn node_cid(version: Version, digest: Hash) -> Cid {
    match version {
        Version::V0 => Cid::v0(digest),
        Version::V1 => Cid::v1(Codec::DagPb, digest),
    }
}
