//! Who does the work.

use std::future::poll_fn;
use std::task::Poll;

use guild_market::job::Refusal;
use guild_memory::embed::{self, DEFAULT_DIMENSIONS, HashEmbedder};
use guild_protocol::env::BoxFuture;
use guild_protocol::identity::PublicKey;
use guild_protocol::schema::{Job, SchemaId};
use serde_json::{Value, json};

/// Work to be done.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// What was ordered, valid and with every default filled in.
    pub job: Job,
    /// Under which key it is delivered: an output says so.
    pub provider: PublicKey,
}

/// Does work of some kinds. The same task may be given again after a crash.
pub trait Worker: Send + Sync {
    /// Which kinds.
    fn schema_ids(&self) -> Vec<SchemaId>;

    /// The models that it uses, for the announcement.
    fn models(&self) -> Vec<String> {
        Vec::new()
    }

    /// The output, as its schema describes it; or why there is none, for the buyer to read. It may be dropped at any
    /// wait: its time is limited.
    fn work(&self, task: Task) -> BoxFuture<Result<Value, Refusal>>;
}

/// Does `oa.embedding.v1` by the built-in embedder, which needs no model: anybody can recompute its vectors.
///
/// ```
/// use guild_roles::provider::{Embedder, Worker};
/// assert_eq!(Embedder.schema_ids()[0].as_str(), "oa.embedding.v1");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Embedder;

impl Worker for Embedder {
    fn schema_ids(&self) -> Vec<SchemaId> {
        "oa.embedding.v1".parse().into_iter().collect()
    }

    fn models(&self) -> Vec<String> {
        vec![embed::MODEL_ID.to_owned()]
    }

    fn work(&self, task: Task) -> BoxFuture<Result<Value, Refusal>> {
        Box::pin(async move {
            let refused = |e: guild_protocol::Error| Refusal::new(e.code(), e.to_string());
            let payload = task.job.payload();
            let dimensions = payload.get("dimensions").and_then(Value::as_u64);
            let dimensions = dimensions
                .map_or(DEFAULT_DIMENSIONS, |wish| usize::try_from(wish).unwrap_or(usize::MAX));
            let embedder = HashEmbedder::new(dimensions).map_err(refused)?;
            let texts = payload.get("texts").and_then(Value::as_array);
            let mut embeddings = Vec::new();
            for text in texts.into_iter().flatten().filter_map(Value::as_str) {
                embeddings.push(embedder.embed(text).map_err(refused)?);
                // Others have a turn, and the limit of time a chance.
                yield_once().await;
            }
            Ok(json!({
                "embeddings": embeddings, "model_id": embed::MODEL_ID, "dimensions": dimensions,
                "provenance": {
                    "model": embed::MODEL_ID, "provider_id": task.provider.npub(),
                    "input_sha256": task.job.job_hash(),
                },
            }))
        })
    }
}

async fn yield_once() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
