//! Files and directories becoming blocks.

use std::sync::mpsc::{Receiver, Sender, channel};

use guild_protocol::content::{Block, Cid, Directory, Importer, Options as Layout, Tree};
use guild_protocol::hash::to_hex;
use guild_store::{Tx, args};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::Content;
use super::block::{self, Fresh};
use super::pin::{self, Pin};
use crate::error::code;
use crate::{Error, Result};

/// So many bytes of blocks go into one transaction, and a block more.
const BATCH_BYTES: usize = 1 << 20;
/// So many bytes are read at a time.
const PIECE_BYTES: usize = 256 * 1024;

/// Somebody who adds content. What it has added is no garbage until it ends or has been silent for the grace period.
pub struct Adding {
    content: Content,
    /// None: nothing is kept, only CIDs are wanted.
    session_id: Option<String>,
}

type Handed = (Cid, Vec<u8>);
type Sink = Box<dyn FnMut(Block<'_>) -> guild_protocol::Result<()> + Send>;

impl Content {
    /// Begins to add.
    pub async fn begin(&self) -> Result<Adding> {
        let mut id = [0; 16];
        self.random.fill(&mut id);
        let session_id = to_hex(&id);
        let (written, now_ms) = (session_id.clone(), self.clock.now_ms());
        let expires_ms = block::session_expires_ms(&self.options, now_ms);
        self.store.write(move |tx| begin(tx, &written, expires_ms)).await?;
        Ok(Adding { content: self.clone(), session_id: Some(session_id) })
    }

    /// Computes CIDs and keeps nothing.
    pub fn only_hash(&self) -> Adding {
        Adding { content: self.clone(), session_id: None }
    }
}

fn begin(tx: &mut Tx<'_>, session_id: &str, expires_ms: i64) -> Result<()> {
    let head = block::head(tx)?;
    tx.exec(
        "INSERT INTO content_session (session_id, start_seq, expires_ms) VALUES ($1, $2, $3)
         ON CONFLICT (session_id) DO NOTHING",
        args![session_id, head.seq.saturating_add(1), expires_ms],
    )?;
    Ok(())
}

impl Adding {
    pub(super) fn session_id(&self) -> &str {
        self.session_id.as_deref().unwrap_or_default()
    }

    /// Begins a file.
    pub fn file(&mut self, layout: Layout) -> Result<NewFile<'_>> {
        let (hand, handed): (Sender<Handed>, Receiver<Handed>) = channel();
        let keeps = self.session_id.is_some();
        let sink: Sink = Box::new(move |block: Block<'_>| {
            if keeps {
                // The other end lives as long as the importer does.
                let _ = hand.send((block.cid, block.to_vec()));
            }
            Ok(())
        });
        let importer = Some(Importer::new(layout, sink)?);
        Ok(NewFile { adding: self, importer, handed, waiting: Vec::new(), waiting_bytes: 0 })
    }

    /// Adds all that can be read, as one file.
    pub async fn read(
        &mut self,
        layout: Layout,
        mut from: impl AsyncRead + Unpin + Send,
    ) -> Result<Tree> {
        let mut file = self.file(layout)?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let read = from.read(&mut piece).await;
            let read = read.map_err(|e| Error::refused(&code::CONTENT_SOURCE, e.to_string()))?;
            match piece.get(..read) {
                Some([]) | None => return file.finish().await,
                Some(piece) => file.push(piece).await?,
            }
        }
    }

    /// Adds a directory of what has been added.
    pub async fn directory(&mut self, directory: &Directory) -> Result<Tree> {
        let mut made = None;
        let tree = directory.finish(|block| {
            made = Some((block.cid, block.to_vec()));
            Ok(())
        })?;
        if let Some((cid, bytes)) = made.filter(|_| self.session_id.is_some()) {
            self.put(vec![Fresh::of(&cid, bytes)?]).await?;
        }
        Ok(tree)
    }

    /// Adds one block.
    pub async fn block(&mut self, cid: &Cid, bytes: Vec<u8>) -> Result<()> {
        self.put(vec![Fresh::new(cid, bytes)?]).await
    }

    /// Ends, and pins these roots in the same moment: there is no time between in which they could be garbage.
    pub async fn keep(self, roots: &[Cid], pin: &Pin) -> Result<()> {
        let Adding { content, session_id } = self;
        let (roots, pin, now_ms) = (roots.to_vec(), pin.clone(), content.clock.now_ms());
        let Some(session_id) = session_id else { return Ok(()) };
        let ended = content.store.write(move |tx| {
            if !end(tx, &session_id, now_ms)? {
                return Err(block::expired());
            }
            roots.iter().try_for_each(|root| pin::insert(tx, root, &pin, now_ms))
        });
        ended.await
    }

    /// Ends. What was added stays for the grace period.
    pub async fn end(self) -> Result<()> {
        let now_ms = self.content.clock.now_ms();
        let Some(session_id) = self.session_id else { return Ok(()) };
        self.content.store.write(move |tx| end(tx, &session_id, now_ms)).await.map(drop)
    }

    async fn put(&self, blocks: Vec<Fresh>) -> Result<()> {
        let Some(session_id) = self.session_id.clone() else { return Ok(()) };
        let (options, now_ms) = (self.content.options, self.content.clock.now_ms());
        // It may be much: whoever waits goes first.
        let put = self.content.store.write_patiently(move |tx| {
            block::put(tx, &blocks, Some(&session_id), &options, now_ms)
        });
        put.await
    }
}

/// Whether the session was alive until now.
fn end(tx: &mut Tx<'_>, session_id: &str, now_ms: i64) -> Result<bool> {
    let ended = tx.exec(
        "DELETE FROM content_session WHERE session_id = $1 AND expires_ms > $2",
        args![session_id, now_ms],
    )?;
    Ok(ended == 1)
}

impl std::fmt::Debug for Adding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Adding").field("session_id", &self.session_id).finish_non_exhaustive()
    }
}

fn finished() -> Error {
    Error::refused(&code::CONTENT_SOURCE, "the file is at its end already")
}

/// A file on its way in. Memory holds some blocks of it, however large it is.
pub struct NewFile<'a> {
    adding: &'a mut Adding,
    /// There until the end.
    importer: Option<Importer<Sink>>,
    handed: Receiver<Handed>,
    waiting: Vec<Fresh>,
    waiting_bytes: usize,
}

impl NewFile<'_> {
    /// The next bytes of it.
    pub async fn push(&mut self, bytes: &[u8]) -> Result<()> {
        for piece in bytes.chunks(BATCH_BYTES) {
            self.importer.as_mut().ok_or_else(finished)?.push(piece)?;
            self.take()?;
            if self.waiting_bytes >= BATCH_BYTES {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// The end of it: all its blocks are kept.
    pub async fn finish(mut self) -> Result<Tree> {
        let Some(importer) = self.importer.take() else { return Err(finished()) };
        let tree = importer.finish()?;
        self.take()?;
        self.flush().await?;
        Ok(tree)
    }

    fn take(&mut self) -> Result<()> {
        for (cid, bytes) in self.handed.try_iter() {
            self.waiting_bytes = self.waiting_bytes.saturating_add(bytes.len());
            self.waiting.push(Fresh::of(&cid, bytes)?);
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<()> {
        self.waiting_bytes = 0;
        let blocks = std::mem::take(&mut self.waiting);
        if blocks.is_empty() { Ok(()) } else { self.adding.put(blocks).await }
    }
}
