//! What a block from a stranger means.

use super::dag_pb::{self, Link, PbNode};
use super::directory::check_name;
use super::unixfs::{Data, Kind, malformed};
use super::wire::byte_count;
use super::{Cid, Codec, code};
use crate::{Error, Result};

/// A block that has passed every check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node<'a> {
    /// A file, or a part of one: its content is `data` and then the content of every child.
    File {
        /// The content in this block.
        data: &'a [u8],
        /// The blocks with the rest, in order.
        children: Vec<Child>,
        /// The bytes of content in this block and below: the sum of the above.
        content_bytes: u64,
    },
    /// A directory, with its entries in the order of their names' bytes.
    Directory(Vec<Entry<'a>>),
    /// A symbolic link to this target. The target is a text from a stranger: do not follow it.
    Symlink(&'a str),
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Child {
    /// Its block.
    pub cid: Cid,
    /// The bytes of content that it must have.
    pub content_bytes: u64,
}

/// An entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// A plain file name.
    pub name: &'a str,
    /// The block of the file or directory.
    pub cid: Cid,
    /// The bytes of all its blocks, as the writer of the directory says.
    pub tree_bytes: u64,
}

/// Checks a block against its CID and reads it.
pub fn read<'a>(cid: &Cid, block: &'a [u8]) -> Result<Node<'a>> {
    dag_pb::check_size(block)?;
    cid.verify(block)?;
    match cid.codec() {
        Codec::Raw => Ok(leaf(block)),
        Codec::DagPb => Node::of(&PbNode::decode(block)?),
        Codec::Other(number) => Err(Error::new(
            &code::UNSUPPORTED_CODEC,
            format!("{cid} has codec {number:#x}, neither raw nor dag-pb"),
        )),
    }
}

impl<'a> Node<'a> {
    fn of(node: &PbNode<'a>) -> Result<Node<'a>> {
        let message = node.data.ok_or_else(|| malformed("the node holds no UnixFS message"))?;
        let data = Data::decode(message)?;
        match data.kind {
            Kind::File | Kind::Raw => file(node, &data),
            Kind::Directory => directory(node, &data),
            Kind::Symlink => symlink(node, &data),
        }
    }

    /// The entry of a directory with this name.
    pub fn entry(&self, name: &str) -> Option<&Entry<'a>> {
        match self {
            Node::Directory(entries) => entries.iter().find(|entry| entry.name == name),
            _ => None,
        }
    }
}

fn leaf(data: &[u8]) -> Node<'_> {
    Node::File { data, children: Vec::new(), content_bytes: byte_count(data) }
}

fn file<'a>(node: &PbNode<'a>, message: &Data<'a>) -> Result<Node<'a>> {
    if node.links.len() != message.child_bytes.len() {
        return Err(malformed("the file does not say the size of each of its parts"));
    }
    let data = message.data.unwrap_or_default();
    let sum = message.child_bytes.iter().try_fold(byte_count(data), |sum, n| sum.checked_add(*n));
    let content_bytes = sum.ok_or_else(|| malformed("the sizes of the parts overflow"))?;
    if message.content_bytes.is_some_and(|said| said != content_bytes) {
        return Err(malformed("the size of the file is not the sum of its parts"));
    }
    let named = |link: &Link<'_>| link.name.is_some_and(|name| !name.is_empty());
    if node.links.iter().any(named) {
        return Err(malformed("a part of a file has a name"));
    }
    let children = node.links.iter().zip(&message.child_bytes);
    let children =
        children.map(|(link, &content_bytes)| Child { cid: link.cid, content_bytes }).collect();
    Ok(Node::File { data, children, content_bytes })
}

fn directory<'a>(node: &PbNode<'a>, message: &Data<'a>) -> Result<Node<'a>> {
    // Some writers say a size of zero.
    let content = message.data.is_some() || message.content_bytes.is_some_and(|bytes| bytes > 0);
    if content || !message.child_bytes.is_empty() {
        return Err(malformed("a directory has content of its own"));
    }
    let mut entries: Vec<Entry<'a>> = Vec::with_capacity(node.links.len());
    for (i, link) in node.links.iter().enumerate() {
        let name = link.name.unwrap_or_default();
        check_name(name).map_err(|e| e.at(format!("links[{i}]")))?;
        if entries.last().is_some_and(|last| last.name >= name) {
            return Err(malformed("the entries are not sorted by name, or one stands twice")
                .at(format!("links[{i}]")));
        }
        entries.push(Entry { name, cid: link.cid, tree_bytes: link.tree_bytes.unwrap_or(0) });
    }
    Ok(Node::Directory(entries))
}

fn symlink<'a>(node: &PbNode<'a>, message: &Data<'a>) -> Result<Node<'a>> {
    if !node.links.is_empty() || !message.child_bytes.is_empty() {
        return Err(malformed("a symbolic link has links to blocks"));
    }
    let target = std::str::from_utf8(message.data.unwrap_or_default());
    target.map(Node::Symlink).map_err(|_| malformed("the target of a symbolic link is not UTF-8"))
}
