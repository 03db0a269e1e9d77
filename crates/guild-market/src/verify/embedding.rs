//! `oa.embedding.v1` is checked by doing it again.

use guild_memory::embed::{self, DEFAULT_DIMENSIONS, HashEmbedder, cosine, length};
use guild_protocol::schema::{Job, Output, Registry, verification_hash};
use guild_protocol::verification::{Problem, Verification};
use serde_json::{Value, json};

use super::{Options, PROBLEMS_MAX};
use crate::error::code;

/// Records the checks; the least likeness of a vector to the recomputed one.
pub(super) fn judge(
    registry: &Registry,
    options: &Options,
    job: &Job,
    output: &Output,
    checks: &mut Verification,
) -> Option<f64> {
    let model = output.value().get("model_id").and_then(Value::as_str).unwrap_or_default();
    let unknown = (model != embed::MODEL_ID).then(|| {
        let message = format!("only {} can be recomputed here", embed::MODEL_ID);
        Problem::new(&code::UNVERIFIABLE, message).at("model_id")
    });
    checks.record("model", "the model can be recomputed", unknown.clone());
    if unknown.is_some() {
        return None;
    }
    let problems = shape_problems(job, output);
    let shaped = problems.is_empty();
    checks.record("shape", "as many vectors as texts, each as long as ordered", problems);
    if !shaped {
        return None;
    }
    let embeddings = match recompute(job) {
        Ok(embeddings) => embeddings,
        Err(error) => {
            checks.record("recomputed", "", [Problem::new(&code::UNVERIFIABLE, error.to_string())]);
            return None;
        }
    };
    if is_equal(registry, job, output, &embeddings) {
        checks.record("recomputed", "the output has the hash of the recomputed one", []);
        return Some(1.0);
    }
    let (problems, score) = compare(options, output, &embeddings);
    checks.record("recomputed", "every vector is like the recomputed one", problems);
    score
}

/// Why this very work cannot be done again here, if it cannot.
pub(super) fn no_way(job: &Job) -> Option<String> {
    let hint = job.payload().get("model_hint").and_then(Value::as_str);
    if let Some(other) = hint.filter(|hint| *hint != embed::MODEL_ID) {
        return Some(format!("only {} can be recomputed here, not {other}", embed::MODEL_ID));
    }
    if let Err(error) = HashEmbedder::new(dimensions_of(job)) {
        return Some(error.to_string());
    }
    let long = texts_of(job).find(|text| text.len() > embed::MAX_TEXT_BYTES)?;
    Some(format!("a text of {} bytes is more than can be recomputed", long.len()))
}

/// The length that was ordered: without a wish, the one that the model has by itself.
fn dimensions_of(job: &Job) -> usize {
    let wish = job.payload().get("dimensions").and_then(Value::as_u64);
    wish.map_or(DEFAULT_DIMENSIONS, |wish| usize::try_from(wish).unwrap_or(usize::MAX))
}

fn texts_of(job: &Job) -> impl Iterator<Item = &str> {
    let texts = job.payload().get("texts").and_then(Value::as_array);
    texts.into_iter().flatten().filter_map(Value::as_str)
}

pub(crate) fn vectors_of(output: &Output) -> Vec<Vec<f64>> {
    let vectors = output.value().get("embeddings").and_then(Value::as_array);
    let numbers = |vector: &Value| {
        let numbers = vector.as_array().into_iter().flatten();
        numbers.map(|x| x.as_f64().unwrap_or(f64::NAN)).collect()
    };
    vectors.into_iter().flatten().map(numbers).collect()
}

fn shape_problems(job: &Job, output: &Output) -> Vec<Problem> {
    let (ordered, texts) = (dimensions_of(job), texts_of(job).count());
    let problem = |at: String, is: usize, wanted: usize| {
        (is != wanted)
            .then(|| Problem::new(&code::OUTPUT_SHAPE, format!("{is} instead of {wanted}")).at(at))
    };
    let stated = output.value().get("dimensions").and_then(Value::as_u64);
    let stated = stated.and_then(|stated| usize::try_from(stated).ok()).unwrap_or(usize::MAX);
    let vectors = vectors_of(output);
    let lengths = vectors.iter().enumerate();
    let first = [
        problem("dimensions".to_owned(), stated, ordered),
        problem("embeddings".to_owned(), vectors.len(), texts),
    ];
    let each =
        lengths.map(|(i, vector)| problem(format!("embeddings[{i}]"), vector.len(), ordered));
    first.into_iter().chain(each).flatten().take(PROBLEMS_MAX).collect()
}

fn recompute(job: &Job) -> guild_protocol::Result<Vec<Vec<f64>>> {
    let embedder = HashEmbedder::new(dimensions_of(job))?;
    texts_of(job).map(|text| embedder.embed(text)).collect()
}

fn is_equal(registry: &Registry, job: &Job, output: &Output, embeddings: &[Vec<f64>]) -> bool {
    let hashes = registry.get(job.schema_id()).map_err(Into::into).and_then(|schema| {
        let provenance = output.value().get("provenance");
        let recomputed = json!({
            "embeddings": embeddings, "model_id": embed::MODEL_ID, "dimensions": dimensions_of(job),
            "provenance": provenance,
        });
        let recomputed = registry.validate_output(job.schema_id(), &recomputed)?;
        Ok::<_, guild_protocol::problems::Problems>(
            verification_hash(schema, output)? == verification_hash(schema, &recomputed)?,
        )
    });
    hashes.unwrap_or(false)
}

fn compare(
    options: &Options,
    output: &Output,
    embeddings: &[Vec<f64>],
) -> (Vec<Problem>, Option<f64>) {
    let (mut problems, mut least) = (Vec::new(), None::<f64>);
    for (i, (vector, recomputed)) in vectors_of(output).iter().zip(embeddings).enumerate() {
        let likeness = likeness(vector, recomputed).unwrap_or(0.0);
        least = Some(least.map_or(likeness, |least| least.min(likeness)));
        if likeness < options.min_likeness && problems.len() < PROBLEMS_MAX {
            let message = format!("{likeness:.6} like the recomputed vector");
            let problem = Problem::new(&code::OUTPUT_DIFFERS, message);
            problems.push(problem.at(format!("embeddings[{i}]")));
        }
    }
    (problems, least)
}

/// The cosine, times the quotient of the lengths: the model says how long its vectors are, too. Never below zero.
pub(crate) fn likeness(a: &[f64], b: &[f64]) -> Option<f64> {
    let (long_a, long_b) = (length(a)?, length(b)?);
    Some((cosine(a, b)? * (long_a.min(long_b) / long_a.max(long_b))).clamp(0.0, 1.0))
}
