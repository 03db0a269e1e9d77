//! Collects garbage while the node runs.

use futures_util::future::select;
use guild_protocol::env::Shutdown;

use super::Content;

/// The service that removes what nobody needs.
pub struct Keeper {
    content: Content,
    every_ms: i64,
}

impl Keeper {
    /// A keeper that looks so often.
    pub fn new(content: Content, every_ms: i64) -> Keeper {
        Keeper { content, every_ms }
    }

    /// Looks again and again, until the shutdown. A round that is left in the middle is gone on with later.
    pub async fn run(self, shutdown: Shutdown) {
        let rounds = std::pin::pin!(async {
            loop {
                self.content.clock.sleep(self.every_ms).await;
                match self.content.collect().await {
                    Ok(collected) if collected.removed > 0 => {
                        let (blocks, bytes) = (collected.removed, collected.removed_bytes);
                        tracing::info!(blocks, bytes, "content that nobody needs was removed");
                    }
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "no content could be removed"),
                }
            }
        });
        select(shutdown.triggered(), rounds).await;
    }
}
