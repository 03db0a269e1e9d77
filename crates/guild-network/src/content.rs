//! Content by its hash: what this node keeps, why it keeps it, and where else it looks.
//!
//! | module | what it settles |
//! |---|---|
//! | [`Content`] | the handle: blocks in and out, pins, what is known of all of it |
//! | [`Adding`], [`Folder`] | files and directories becoming blocks, safe from the collection of garbage meanwhile |
//! | [`Path`], [`FileReader`], [`Walker`] | what a path names, ranges of files, everything below a root |
//! | `gc` | which blocks nobody needs, found and removed a few at a time |
//! | [`Peers`] | other nodes: Kubo's RPC and gateways |
//! | [`Keeper`] | the service that collects garbage |
//!
//! A block is kept under the hash of its bytes, and its bytes are hashed again each time they are read: what does not
//! fit is set aside and never served. A pin keeps a root with everything below it. What nobody has pinned stays for a
//! grace period after it was last added, and then goes.

mod adding;
mod aside;
mod block;
mod folder;
mod gc;
mod keeper;
mod peer;
mod pin;
mod walk;

use std::sync::Arc;

use guild_protocol::content::Cid;
use guild_protocol::env::{Clock, Random};
use guild_store::{Migration, Sql, Store};

use crate::Result;

pub use adding::{Adding, NewFile};
pub use aside::{Aside, Scrubbed};
pub use folder::{Folder, Packed};
pub use gc::Collected;
pub use keeper::Keeper;
pub use peer::{PeerStatus, Peers, PeersOptions, peer_url};
pub use pin::{OPERATOR, Pin, Pinned, let_go};
pub use walk::{FileReader, Found, FoundNode, Listed, Path, Walked, Walker};

/// The tables of this module.
pub(crate) fn migration() -> Migration {
    let sql = Sql {
        lite: include_str!("../migrations/sqlite/0004_content.sql"),
        pg: include_str!("../migrations/postgres/0004_content.sql"),
    };
    Migration { area: "network", number: 4, name: "content", sql }
}

/// How content is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The most bytes of all blocks together; an addition beyond it is refused.
    pub max_bytes: u64,
    /// How long a block that nobody has pinned stays after it was last added, and how long whoever adds may be silent.
    pub grace_ms: i64,
    /// The most blocks below one root that is pinned or walked.
    pub walk_max_blocks: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { max_bytes: 4_000_000_000, grace_ms: 3_600_000, walk_max_blocks: 1_000_000 }
    }
}

/// How far a reader may go for a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// What is kept here, and nothing else. What strangers ask for, above all: a node is no open door to its peers.
    Local,
    /// Also what peers have. It is kept for a while.
    Peers,
}

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Roots that are kept, each owner counted.
    pub pins: u64,
    /// Blocks that were set aside because their bytes were wrong.
    pub aside: u64,
}

/// The content of this node. Cheap to clone.
#[derive(Clone)]
pub struct Content {
    store: Store,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    options: Options,
    peers: Option<Peers>,
}

impl Content {
    /// The content in this store.
    pub fn new(
        options: Options,
        store: Store,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Content {
        Content { store, clock, random, options, peers: None }
    }

    /// Looks also at these peers.
    #[must_use]
    pub fn with_peers(mut self, peers: Peers) -> Content {
        self.peers = Some(peers);
        self
    }

    /// How it is kept.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// What is known of the peers.
    pub fn peers(&self) -> Vec<PeerStatus> {
        self.peers.as_ref().map(Peers::status).unwrap_or_default()
    }

    /// How much is kept.
    pub async fn summary(&self) -> Result<Summary> {
        self.store.read(block::summary).await
    }

    /// Whether a block is kept here. Says nothing about its bytes.
    pub async fn has(&self, cid: &Cid) -> Result<bool> {
        let digest = cid.digest()?.hex();
        self.store.read(move |rx| block::has(rx, &digest)).await
    }

    /// The bytes of a block, which are those that the CID names.
    pub async fn block(&self, cid: &Cid, reach: Reach) -> Result<Vec<u8>> {
        let digest = cid.digest()?;
        let name = digest.hex();
        let found = self.store.read(move |rx| block::data(rx, &name)).await?;
        let refused = match found {
            Some(bytes) if cid.verify(&bytes).is_ok() => return Ok(bytes),
            Some(_) => self.set_aside(cid, digest).await,
            None => block::missing(cid),
        };
        let Some(peers) = self.peers.as_ref().filter(|_| reach == Reach::Peers) else {
            return Err(refused);
        };
        let bytes = peers.fetch(cid).await?;
        // Whoever asked gets it also when there is no room to keep it.
        if let Err(error) = self.put(cid, bytes.clone()).await {
            tracing::debug!(%cid, %error, "a block of a peer is not kept");
        }
        Ok(bytes)
    }

    /// Keeps one block, for the grace period unless it becomes part of something that is pinned.
    pub async fn put(&self, cid: &Cid, bytes: Vec<u8>) -> Result<()> {
        let block = block::Fresh::new(cid, bytes)?;
        let (options, now_ms) = (self.options, self.clock.now_ms());
        let blocks = vec![block];
        self.store.write(move |tx| block::put(tx, &blocks, None, &options, now_ms)).await
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Content").field("options", &self.options).finish_non_exhaustive()
    }
}
