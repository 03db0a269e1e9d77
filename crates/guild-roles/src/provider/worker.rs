//! Who does the work.

use std::future::poll_fn;
use std::task::Poll;

use guild_market::code::OUTPUT_TOO_LARGE;
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

    /// Whether it can do this very job, with an output of at most so many bytes. Asked before the job is taken, so it
    /// only looks, and a stranger may have made the job as large as its schema lets it be.
    fn check(&self, _job: &Job, _max_output_bytes: usize) -> Result<(), Refusal> {
        Ok(())
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

/// The most bytes that a number of a vector takes, with its comma: it has six decimals.
const NUMBER_MAX_BYTES: usize = "-0.123456,".len();
/// All of an output but its vectors, with room to spare.
const FRAME_BYTES: usize = 1_024;

/// What a job asks for.
fn asked(job: &Job) -> Result<(HashEmbedder, Vec<&str>), Refusal> {
    let dimensions = job.payload().get("dimensions").and_then(Value::as_u64);
    let dimensions =
        dimensions.map_or(DEFAULT_DIMENSIONS, |wish| usize::try_from(wish).unwrap_or(usize::MAX));
    let embedder = HashEmbedder::new(dimensions).map_err(refused)?;
    let texts = job.payload().get("texts").and_then(Value::as_array);
    Ok((embedder, texts.into_iter().flatten().filter_map(Value::as_str).collect()))
}

fn refused(error: guild_protocol::Error) -> Refusal {
    Refusal::new(error.code(), error.to_string())
}

impl Worker for Embedder {
    fn schema_ids(&self) -> Vec<SchemaId> {
        "oa.embedding.v1".parse().into_iter().collect()
    }

    fn models(&self) -> Vec<String> {
        vec![embed::MODEL_ID.to_owned()]
    }

    fn check(&self, job: &Job, max_output_bytes: usize) -> Result<(), Refusal> {
        let (embedder, texts) = asked(job)?;
        let numbers = embedder.dimensions().saturating_mul(texts.len());
        let brackets = texts.len().saturating_mul("[],".len());
        let bytes = numbers.saturating_mul(NUMBER_MAX_BYTES).saturating_add(brackets);
        if bytes.saturating_add(FRAME_BYTES) <= max_output_bytes {
            return Ok(());
        }
        let most = max_output_bytes.saturating_sub(FRAME_BYTES) / NUMBER_MAX_BYTES;
        let words =
            format!("{numbers} numbers do not fit into a result, which has room for {most}");
        Err(Refusal::new(&OUTPUT_TOO_LARGE, words))
    }

    fn work(&self, task: Task) -> BoxFuture<Result<Value, Refusal>> {
        Box::pin(async move {
            let (embedder, texts) = asked(&task.job)?;
            let mut embeddings = Vec::new();
            for text in texts {
                embeddings.push(embedder.embed(text).map_err(refused)?);
                // Others have a turn, and the limit of time a chance.
                yield_once().await;
            }
            Ok(json!({
                "embeddings": embeddings, "model_id": embed::MODEL_ID,
                "dimensions": embedder.dimensions(),
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

#[cfg(test)]
mod tests {
    use guild_protocol::env::Signer;
    use guild_protocol::identity::SecretKey;
    use guild_protocol::schema::Registry;
    use proptest::prelude::*;

    use super::*;

    fn job(texts: &[String], dimensions: usize) -> Job {
        let payload = json!({"texts": texts, "dimensions": dimensions});
        let id = "oa.embedding.v1".parse().unwrap();
        Registry::builtin().validate_input(&id, &payload).unwrap()
    }

    /// The output of a job, as it is sent.
    fn output(job: Job) -> String {
        let provider = SecretKey::from_bytes([1; 32]).unwrap().public_key();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let output = runtime.block_on(Embedder.work(Task { job, provider })).unwrap();
        String::from_utf8(guild_protocol::json::to_canonical(&output).unwrap()).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn what_passes_the_check_fits(
            texts in prop::collection::vec(".{0,200}", 1..20),
            dimensions in 1usize..300,
            max_bytes in 1_100usize..40_000,
        ) {
            let job = job(&texts, dimensions);
            if Embedder.check(&job, max_bytes).is_ok() {
                prop_assert!(output(job).len() <= max_bytes);
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_before_it_is_made() {
        let code = |job: &Job, max_bytes| Embedder.check(job, max_bytes).err().map(|e| e.code.name);
        let huge = job(&vec![String::new(); 2_048], 4_096);
        assert_eq!(code(&huge, 256 * 1_024), Some("market.output_too_large"));
        assert_eq!(code(&job(&["a".to_owned()], 4_097), usize::MAX), Some("embed.dimensions"));
        let hundred = job(&vec!["some words".to_owned(); 100], 256);
        assert_eq!(code(&hundred, 256 * 1_024), None);
        assert_eq!(code(&hundred, 65_535), Some("market.output_too_large"));
    }
}
