//! What a request only refers to: kept by its hash, so whoever reads it can check it.

use std::sync::Arc;

use futures_util::future::{Either, select};
use guild_market::code::INPUT_UNREACHABLE;
use guild_market::job::Refusal;
use guild_market::reference;
use guild_network::content::{Content, FoundNode, Path, Pin, Reach};
use guild_protocol::content::{Cid, Options as Layout};
use guild_protocol::env::{BoxFuture, Clock, Shutdown};
use guild_store::Store;

use crate::Result;

/// Keeps bytes where others can have them; the address.
pub type Refer = Arc<dyn Fn(Vec<u8>) -> BoxFuture<Result<String>> + Send + Sync>;
/// Reads a file of content, of at most so many bytes; or why not, for whoever sent the reference.
pub type Fetch = Arc<dyn Fn(Path, usize) -> BoxFuture<Result<String, Refusal>> + Send + Sync>;

/// How long content may take.
const FETCH_MS: i64 = 5_000;
/// How often it is looked for what nobody needs any more.
const LET_GO_MS: i64 = 3_600_000;

/// Keeps bytes in the content of a node, pinned, for whoever asks at this address: as long as a request that names it
/// [needs it](reference). Both are in this store.
pub fn refer_to(content: Content, store: Store, clock: Arc<dyn Clock>, url: &str) -> Refer {
    let url = url.trim_end_matches('/').to_owned();
    Arc::new(move |bytes| {
        let (content, store, url) = (content.clone(), store.clone(), url.clone());
        let now_ms = clock.now_ms();
        Box::pin(async move {
            let pin = Pin::new(reference::OWNER, "the input of a request")?;
            let mut adding = content.begin().await?;
            let mut file = adding.file(Layout::default())?;
            file.push(&bytes).await?;
            let tree = file.finish().await?;
            // Before the pin: what is pinned without a row would stay for ever.
            let cid = tree.cid;
            store.write(move |tx| reference::kept(tx, &cid, now_ms)).await?;
            adding.keep(&[tree.cid], &pin).await?;
            Ok(format!("{url}/ipfs/{}", tree.cid))
        })
    })
}

/// Lets go of what no request needs any more, again and again, until the shutdown.
pub async fn look_after(content: Content, store: Store, clock: Arc<dyn Clock>, shutdown: Shutdown) {
    let rounds = std::pin::pin!(async {
        let mut is_adopted = false;
        loop {
            let adopted = match is_adopted {
                true => Ok(()),
                false => adopt(&content, &store, &*clock).await,
            };
            is_adopted = adopted.is_ok();
            let gone = match adopted {
                Ok(()) => let_go(&store, &*clock).await,
                Err(error) => Err(error),
            };
            match gone {
                Ok(0) => {}
                Ok(gone) => tracing::info!(gone, "inputs of requests are not kept any more"),
                Err(error) => tracing::warn!(%error, "no input of a request could be let go"),
            }
            clock.sleep(LET_GO_MS).await;
        }
    });
    select(shutdown.triggered(), rounds).await;
}

/// Writes down what an earlier version has pinned.
async fn adopt(content: &Content, store: &Store, clock: &dyn Clock) -> Result<()> {
    let mut after = None;
    loop {
        let pins = content.pins(after.as_ref()).await?;
        let ours = pins.iter().filter(|pin| pin.owner == reference::OWNER);
        let cids: Vec<Cid> = ours.map(|pin| pin.cid).collect();
        let now_ms = clock.now_ms();
        if !cids.is_empty() {
            let adopted = store
                .write(move |tx| cids.iter().try_for_each(|cid| reference::adopt(tx, cid, now_ms)));
            adopted.await?;
        }
        match pins.into_iter().last() {
            Some(last) => after = Some(last),
            None => return Ok(()),
        }
    }
}

async fn let_go(store: &Store, clock: &dyn Clock) -> Result<u64> {
    let mut all = 0_u64;
    loop {
        let now_ms = clock.now_ms();
        let (gone, is_full) = store.write(move |tx| reference::let_go(tx, now_ms)).await?;
        all = all.saturating_add(gone);
        if !is_full {
            return Ok(all);
        }
    }
}

/// Reads content that is here, or that the peers of this node have. Nobody else is asked: the host that a stranger
/// names is not called, and every block is hashed.
pub fn fetch_from(content: Content, clock: Arc<dyn Clock>) -> Fetch {
    Arc::new(move |path, most_bytes| {
        let (content, clock) = (content.clone(), clock.clone());
        Box::pin(async move {
            let late = clock.sleep(FETCH_MS);
            match select(Box::pin(read(&content, &path, most_bytes)), late).await {
                Either::Left((read, _)) => read,
                Either::Right(_) => Err(refused("it did not come in time")),
            }
        })
    })
}

fn refused(why: &str) -> Refusal {
    Refusal::new(&INPUT_UNREACHABLE, format!("the input cannot be had: {why}"))
}

async fn read(content: &Content, path: &Path, most_bytes: usize) -> Result<String, Refusal> {
    let unreachable = |error: guild_network::Error| refused(&error.to_string());
    let found = content.resolve(path, Reach::Peers).await.map_err(unreachable)?;
    let FoundNode::File(content_bytes) = found.node else {
        return Err(refused("it is no file"));
    };
    let most = u64::try_from(most_bytes).unwrap_or(u64::MAX);
    if content_bytes > most {
        return Err(refused(&format!("{content_bytes} bytes are more than {most}")));
    }
    let mut reader = content.read_file(&found.cid, content_bytes, (0, content_bytes), Reach::Peers);
    let mut bytes = Vec::new();
    while let Some(part) = reader.next().await.map_err(unreachable)? {
        if bytes.len().saturating_add(part.len()) > most_bytes {
            return Err(refused("it has more bytes than it says"));
        }
        bytes.extend(part);
    }
    String::from_utf8(bytes).map_err(|_| refused("it is no text"))
}
