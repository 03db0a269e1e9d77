//! From a root to what is below it: paths, ranges of files, everything.
//!
//! Blocks are made by strangers. A tree of them cannot have a circle, but it can be deep, wide, lie about sizes, and
//! name one block a million times. So depth and count are bounded, sizes are compared with what is found, and only
//! what is asked for is read.

use std::collections::BTreeSet;

use guild_protocol::content::dag_pb::PbNode;
use guild_protocol::content::{Cid, Codec, Node, read};
use guild_store::{Column, Sql, Tx};

use super::{Content, Reach, block};
use crate::error::code;
use crate::{Error, Result};

/// The most levels of a file. Files of a petabyte have five with the usual layout.
const FILE_DEPTH_MAX: usize = 16;
/// The most names of a path.
const PATH_MAX_NAMES: usize = 64;
/// The most bytes of a path.
const PATH_MAX_BYTES: usize = 4_096;
/// So many blocks are said to be in use at a time.
const TOUCH_MAX: usize = 256;

/// A root and the names below it: `CID/a/b`.
///
/// ```
/// use guild_network::content::Path;
/// let path: Path = "/ipfs/bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq/a//b/".parse().unwrap();
/// assert_eq!(path.names, ["a", "b"]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// The root.
    pub root: Cid,
    /// The names, from the root on.
    pub names: Vec<String>,
}

impl Path {
    /// The path of these names.
    pub fn new(root: Cid, path: &str) -> Result<Path> {
        let names: Vec<String> =
            path.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        if names.len() > PATH_MAX_NAMES || path.len() > PATH_MAX_BYTES {
            let message =
                format!("a path has at most {PATH_MAX_NAMES} names and {PATH_MAX_BYTES} bytes");
            return Err(Error::refused(&code::CONTENT_PATH, message));
        }
        Ok(Path { root, names })
    }
}

impl std::str::FromStr for Path {
    type Err = Error;
    fn from_str(text: &str) -> Result<Path> {
        let text = text.strip_prefix("ipfs://").unwrap_or(text);
        let text = text.strip_prefix("/ipfs/").unwrap_or(text);
        let (root, path) = text.split_once('/').unwrap_or((text, ""));
        Path::new(root.parse()?, path)
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.root)?;
        self.names.iter().try_for_each(|name| write!(f, "/{name}"))
    }
}

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its block.
    pub cid: Cid,
    /// What it is.
    pub node: FoundNode,
}

/// What a path can name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundNode {
    /// A file of so many bytes, as its root says.
    File(u64),
    /// A directory.
    Directory(Vec<Listed>),
    /// A symbolic link. Its target is a text from a stranger: it is not followed.
    Symlink(String),
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its block.
    pub cid: Cid,
    /// The bytes of all its blocks, as whoever made the directory says.
    pub tree_bytes: u64,
}

/// What is below a root.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Walked {
    /// Blocks, each counted once.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Content {
    /// Finds what a path names.
    pub async fn resolve(&self, path: &Path, reach: Reach) -> Result<Found> {
        let mut found = self.look(&path.root, reach).await?;
        for name in &path.names {
            let FoundNode::Directory(entries) = &found.node else {
                let message = format!("{} is no directory and has no {:?}", found.cid, shown(name));
                return Err(Error::refused(&code::CONTENT_NO_ENTRY, message));
            };
            let Some(entry) = entries.iter().find(|entry| entry.name == *name) else {
                let message = format!("the directory {} has no {:?}", found.cid, shown(name));
                return Err(Error::refused(&code::CONTENT_NO_ENTRY, message));
            };
            let cid = entry.cid;
            found = self.look(&cid, reach).await?;
        }
        Ok(found)
    }

    async fn look(&self, cid: &Cid, reach: Reach) -> Result<Found> {
        let bytes = self.block(cid, reach).await?;
        let node = match read(cid, &bytes)? {
            Node::File { content_bytes, .. } => FoundNode::File(content_bytes),
            Node::Symlink(target) => FoundNode::Symlink(target.to_owned()),
            Node::Directory(entries) => {
                let listed = entries.iter().map(|entry| Listed {
                    name: entry.name.to_owned(),
                    cid: entry.cid,
                    tree_bytes: entry.tree_bytes,
                });
                FoundNode::Directory(listed.collect())
            }
        };
        Ok(Found { cid: *cid, node })
    }

    /// Reads a part of a file: from `start` up to `end`, or to its end if that comes first. `content_bytes` is what
    /// [`Content::resolve`] said of it.
    pub fn read_file(
        &self,
        cid: &Cid,
        content_bytes: u64,
        (start, end): (u64, u64),
        reach: Reach,
    ) -> FileReader {
        let root = Part { cid: *cid, begins: 0, content_bytes, depth: 0 };
        let end = end.min(content_bytes);
        FileReader { content: self.clone(), reach, start, end, parts: vec![root] }
    }

    /// Reads everything below a root, each block once. So it is known that all of it is there, with the right bytes.
    pub async fn walk(&self, root: &Cid, reach: Reach) -> Result<Walked> {
        self.walk_for(root, reach, None).await
    }

    /// The same for somebody who is about to pin it: what was seen stays until then.
    pub(super) async fn walk_for(
        &self,
        root: &Cid,
        reach: Reach,
        session: Option<&str>,
    ) -> Result<Walked> {
        let mut walked = Walked::default();
        let mut walker = self.walker(root, reach)?;
        let mut touched = BTreeSet::new();
        while let Some((cid, bytes)) = walker.next().await? {
            walked.blocks = walked.blocks.saturating_add(1);
            walked.bytes = walked.bytes.saturating_add(u64::try_from(bytes.len()).unwrap_or(0));
            touched.insert(cid.digest()?.hex());
            if session.is_some() && touched.len() >= TOUCH_MAX {
                self.touch(std::mem::take(&mut touched), session).await?;
            }
        }
        self.touch(touched, session).await?;
        Ok(walked)
    }

    /// Reads everything below a root, block by block.
    pub fn walker(&self, root: &Cid, reach: Reach) -> Result<Walker> {
        let seen = BTreeSet::from([key(root)?]);
        Ok(Walker { content: self.clone(), reach, root: *root, open: vec![*root], seen })
    }

    /// Says that blocks are in use by a session.
    async fn touch(&self, digests: BTreeSet<String>, session: Option<&str>) -> Result<()> {
        let Some(session) = session.map(str::to_owned) else { return Ok(()) };
        let (options, now_ms) = (self.options, self.clock.now_ms());
        let touch = self.store.write(move |tx| {
            block::renew(tx, &session, &options, now_ms)?;
            touch(tx, &digests, now_ms)
        });
        touch.await
    }
}

/// A name from a stranger, for a message.
fn shown(name: &str) -> String {
    name.chars().take(60).collect()
}

/// A block as a raw one is another than the same as a node: only one of them has links.
fn key(cid: &Cid) -> Result<(bool, [u8; 32])> {
    match cid.codec() {
        Codec::Raw => Ok((false, *cid.digest()?.as_bytes())),
        Codec::DagPb => Ok((true, *cid.digest()?.as_bytes())),
        Codec::Other(number) => {
            let message = format!("{cid} has codec {number:#x}, neither raw nor dag-pb");
            let code = &guild_protocol::content::code::UNSUPPORTED_CODEC;
            Err(Error::refused(code, message))
        }
    }
}

const TOUCH: Sql = Sql {
    lite: "UPDATE content_block SET touched_seq = $2, touched_ms = $3 WHERE digest = $1",
    pg: "UPDATE content_block SET touched_seq = t.seq, touched_ms = t.at_ms
         FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS t (digest, seq, at_ms)
         WHERE content_block.digest = t.digest",
};

fn touch(tx: &mut Tx<'_>, digests: &BTreeSet<String>, now_ms: i64) -> Result<()> {
    let mut head = block::head(tx)?;
    head.seq = head.seq.saturating_add(1);
    block::set_head(tx, &head)?;
    let names: Vec<&str> = digests.iter().map(String::as_str).collect();
    let (seqs, times) = (vec![head.seq; names.len()], vec![now_ms; names.len()]);
    let columns = [Column::Texts(&names), Column::Ints(&seqs), Column::Ints(&times)];
    let touched = tx.exec_set(TOUCH, &columns)?;
    if usize::try_from(touched).ok() == Some(names.len()) {
        return Ok(());
    }
    let message = "a block was removed as garbage while it was being pinned";
    Err(Error::refused(&code::CONTENT_EXPIRED, message))
}

/// Reads everything below a root, each block once: parents first, and their children in order.
pub struct Walker {
    content: Content,
    reach: Reach,
    root: Cid,
    /// What is next stands last.
    open: Vec<Cid>,
    seen: BTreeSet<(bool, [u8; 32])>,
}

impl Walker {
    /// The next block, or none at the end.
    pub async fn next(&mut self) -> Result<Option<(Cid, Vec<u8>)>> {
        let Some(cid) = self.open.pop() else { return Ok(None) };
        let bytes = self.content.block(&cid, self.reach).await?;
        if cid.codec() == Codec::DagPb {
            self.follow(&bytes)?;
        }
        Ok(Some((cid, bytes)))
    }

    fn follow(&mut self, bytes: &[u8]) -> Result<()> {
        let mut fresh = Vec::new();
        for link in &PbNode::decode(bytes)?.links {
            if self.seen.insert(key(&link.cid)?) {
                fresh.push(link.cid);
            }
        }
        let most = self.content.options.walk_max_blocks;
        if self.seen.len() > most {
            let message = format!("below {} are more than {most} blocks", self.root);
            return Err(Error::refused(&code::CONTENT_TOO_WIDE, message));
        }
        self.open.extend(fresh.into_iter().rev());
        Ok(())
    }
}

impl std::fmt::Debug for Walker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walker").field("root", &self.root).finish_non_exhaustive()
    }
}

/// A part of a file that is still to be read.
struct Part {
    cid: Cid,
    /// Where it begins in the file.
    begins: u64,
    /// How long its parent says that it is.
    content_bytes: u64,
    depth: usize,
}

/// Reads a file, block by block. Blocks outside of the range are not even looked at.
pub struct FileReader {
    content: Content,
    reach: Reach,
    start: u64,
    end: u64,
    /// What is next stands last.
    parts: Vec<Part>,
}

impl FileReader {
    /// The next bytes, or none at the end. Never an empty piece.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        while let Some(part) = self.parts.pop() {
            if !self.wants(&part) {
                continue;
            }
            let bytes = self.content.block(&part.cid, self.reach).await?;
            let piece = self.open(&part, &bytes)?;
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    fn wants(&self, part: &Part) -> bool {
        let ends = part.begins.saturating_add(part.content_bytes);
        part.begins < self.end && ends > self.start
    }

    /// What a block has of the range; its children come next.
    fn open(&mut self, part: &Part, bytes: &[u8]) -> Result<Vec<u8>> {
        let Node::File { data, children, content_bytes } = read(&part.cid, bytes)? else {
            let message = format!("{} is no file", part.cid);
            return Err(Error::refused(&code::CONTENT_NOT_A_FILE, message));
        };
        if content_bytes != part.content_bytes {
            let said = part.content_bytes;
            let message =
                format!("{} has {content_bytes} bytes and not {said}, as was said", part.cid);
            return Err(Error::refused(&code::CONTENT_LIES, message));
        }
        if part.depth >= FILE_DEPTH_MAX && !children.is_empty() {
            let message = format!("a file has more than {FILE_DEPTH_MAX} levels");
            return Err(Error::refused(&code::CONTENT_TOO_DEEP, message));
        }
        let mut begins = part.begins.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
        let mut below = Vec::new();
        for child in &children {
            let depth = part.depth.saturating_add(1);
            let next = Part { cid: child.cid, begins, content_bytes: child.content_bytes, depth };
            begins = begins.saturating_add(child.content_bytes);
            if self.wants(&next) {
                below.push(next);
            }
        }
        self.parts.extend(below.into_iter().rev());
        let from = within(self.start.saturating_sub(part.begins), data);
        let to = within(self.end.saturating_sub(part.begins), data);
        Ok(data.get(from..to).unwrap_or_default().to_vec())
    }
}

fn within(place: u64, data: &[u8]) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX).min(data.len())
}

impl std::fmt::Debug for FileReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let range = self.start..self.end;
        f.debug_struct("FileReader").field("range", &range).finish_non_exhaustive()
    }
}
