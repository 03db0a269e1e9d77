//! Providers as they are in real life: one works slowly, one cheats.

use guild_market::job::Refusal;
use guild_protocol::env::{BoxFuture, Clock};
use guild_protocol::schema::SchemaId;
use guild_roles::provider::{Embedder, Task, Worker};
use serde_json::Value;

use crate::real::SystemClock;

/// Does good work, after a while.
pub(super) struct Slow {
    pub(super) pause_ms: i64,
}

impl Worker for Slow {
    fn schema_ids(&self) -> Vec<SchemaId> {
        Embedder.schema_ids()
    }

    fn models(&self) -> Vec<String> {
        Embedder.models()
    }

    fn work(&self, task: Task) -> BoxFuture<Result<Value, Refusal>> {
        let pause = SystemClock.sleep(self.pause_ms);
        Box::pin(async move {
            pause.await;
            Embedder.work(task).await
        })
    }
}

/// Sells vectors of the right form that belong to no text.
pub(super) struct Cheat;

impl Worker for Cheat {
    fn schema_ids(&self) -> Vec<SchemaId> {
        Embedder.schema_ids()
    }

    fn models(&self) -> Vec<String> {
        Embedder.models()
    }

    fn work(&self, task: Task) -> BoxFuture<Result<Value, Refusal>> {
        Box::pin(async move {
            let mut output = Embedder.work(task).await?;
            let vectors = output.get_mut("embeddings").and_then(Value::as_array_mut);
            for vector in vectors.into_iter().flatten().filter_map(Value::as_array_mut) {
                vector.reverse();
            }
            Ok(output)
        })
    }
}
