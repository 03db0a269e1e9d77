//! Content by its hash: CIDs, the UnixFS importer and the reader of its blocks.
//!
//! The importer gives the CIDs that Kubo gives with the same settings. It takes bytes in pieces of any size and hands
//! every block out at once, so that memory holds one chunk and the open lists of links, however large the content is.
//! The reader takes blocks from strangers: it checks them against their CID and refuses whatever it would not itself
//! have written.
//!
//! ```
//! use guild_protocol::content::{Directory, Importer, Options, Version, read};
//!
//! let mut blocks = Vec::new();
//! let mut importer = Importer::new(Options::default(), |block| {
//!     blocks.push((block.cid, block.to_vec()));
//!     Ok(())
//! })?;
//! importer.push(b"hel")?;
//! importer.push(b"lo")?;
//! let file = importer.finish()?;
//! assert_eq!(file.cid.to_string(), "bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq");
//!
//! let mut directory = Directory::new(Version::V1);
//! directory.insert("greeting.txt", file)?;
//! let root = directory.finish(|block| {
//!     let bytes = block.to_vec();
//!     let node = read(&block.cid, &bytes)?;
//!     assert_eq!(node.entry("greeting.txt").map(|entry| entry.cid), Some(file.cid));
//!     Ok(())
//! })?;
//! assert_eq!(root.content_bytes, 5);
//! # Ok::<(), guild_protocol::Error>(())
//! ```

pub mod car;
mod cid;
pub mod dag_pb;
mod directory;
mod import;
mod read;
pub mod unixfs;
mod wire;

pub use cid::{Cid, Codec, Version};
pub use directory::Directory;
pub use import::{Block, Importer, Options, Tree, import};
pub use read::{Child, Entry, Node, read};

/// The codes of this module.
pub mod code {
    crate::codes! {
        BAD_CID = "cid.malformed", Invalid,
            "A content id is not a CID in base32, base58 or hex, or not in its one normal form.",
            "Copy it again in full, as bafy…, bafk…, Qm…, z… or f01….";
        UNSUPPORTED_HASH = "cid.unsupported_hash", Invalid,
            "A CID uses another hash function than SHA-256.",
            "Add the content again with SHA-256, the default everywhere.";
        UNSUPPORTED_CODEC = "cid.unsupported_codec", Invalid,
            "A CID names data that is neither raw nor dag-pb.",
            "Add the content as a UnixFS file or directory.";
        CID_MISMATCH = "cid.mismatch", Invalid,
            "The bytes do not have the hash that their CID promises.",
            "Fetch the block again, from somebody else.";
        BLOCK_SIZE = "block.size", Invalid,
            "A block is larger than the limit, or has too many links.",
            "Add the content again with the default chunk size and links per node.";
        BAD_NODE = "block.dag_pb_malformed", Invalid,
            "A block is not dag-pb in its normal form.",
            "Add the content again; the block was written by faulty or hostile software.";
        BAD_UNIXFS = "block.unixfs_malformed", Invalid,
            "A dag-pb block does not hold a consistent UnixFS file or directory.",
            "Add the content again; the block was written by faulty or hostile software.";
        UNSUPPORTED_UNIXFS = "block.unixfs_unsupported", Invalid,
            "A UnixFS node is of a kind that is not read, as the shard of a very large directory.",
            "Use directories of fewer entries.";
        BAD_NAME = "content.name_malformed", Invalid,
            "The name of a directory entry is empty, `.` or `..`, too long, or has a slash or a NUL in it.",
            "Give the entry a plain file name.";
        DUPLICATE_NAME = "content.duplicate_name", Invalid,
            "A directory has two entries of one name.",
            "Rename one of them.";
        DIRECTORY_SIZE = "content.directory_size", Invalid,
            "A directory is so large that other software would shard it, which gives it another CID.",
            "Split it into directories of at most a few thousand entries.";
        BAD_OPTIONS = "content.options", Invalid,
            "The chunk size or the number of links per node is out of range.",
            "Use 1 to 1048576 bytes per chunk and 2 to 8192 links per node.";
    }
}
