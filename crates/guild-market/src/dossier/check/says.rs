//! What results say, and which say the same: the rules of `docs/delegation.md`, written a second time.
//!
//! They are written as plainly as they can be. That both come to the same is what a test over made-up results asserts.

use std::collections::{BTreeMap, BTreeSet};

use guild_memory::embed::{DEFAULT_DIMENSIONS, HashEmbedder, MAX_TEXT_BYTES, cosine, length};
use guild_protocol::hash::Hash;
use guild_protocol::schema::{Job, Registry, verification_hash};
use serde_json::Value;

/// How like vectors are that say the same.
const VECTORS_ALIKE: f64 = 0.999;
/// Which part of the best two rankings share that say the same.
const RANKS_ALIKE: f64 = 0.8;
/// How like texts are that say the same.
const TEXTS_ALIKE: f64 = 0.8;

/// A result as it is compared.
struct Said {
    number: usize,
    hash: Hash,
    value: Value,
    /// Of an analysis, its words as a vector.
    words: Option<Vec<f64>>,
}

/// The hash of what a result says; none if it is not what its schema asks for.
pub(super) fn hash(registry: &Registry, job: &Job, output_text: &str) -> Option<Hash> {
    said(registry, job, 0, output_text).map(|said| said.hash)
}

fn said(registry: &Registry, job: &Job, number: usize, output_text: &str) -> Option<Said> {
    let output = registry.validate_output_text(job.schema_id(), output_text.as_bytes()).ok()?;
    let value = output.value().clone();
    if job.schema_id().as_str() == "oa.code_chunk_analysis.v1" {
        let text = analysis(&value);
        let words = HashEmbedder::new(DEFAULT_DIMENSIONS).ok()?.embed(&text).ok();
        return Some(Said { number, hash: Hash::of(text.as_bytes()), value, words });
    }
    let hash = verification_hash(registry.get(job.schema_id()).ok()?, &output).ok()?;
    Some(Said { number, hash, value, words: None })
}

/// For whom each result counts: by its number, the hash of the answer.
pub(super) fn votes(
    registry: &Registry,
    job: &Job,
    outputs: &[(usize, &str)],
) -> BTreeMap<usize, Hash> {
    let all = outputs.iter().filter_map(|(number, text)| said(registry, job, *number, text));
    let mut left: Vec<Said> = all.collect();
    let mut votes = BTreeMap::new();
    loop {
        // The one that most others are like; then the lowest hash; then the first.
        let mut best: Option<(usize, &Said)> = None;
        for one in &left {
            let like = left.iter().filter(|other| alike(job, one, other)).count();
            let better = match best {
                None => true,
                Some((most, known)) => {
                    like > most
                        || (like == most && (one.hash, one.number) < (known.hash, known.number))
                }
            };
            if better {
                best = Some((like, one));
            }
        }
        let Some((_, centre)) = best else { return votes };
        let near = |one: &Said| one.number == centre.number || alike(job, centre, one);
        let members: BTreeSet<usize> =
            left.iter().filter(|one| near(one)).map(|one| one.number).collect();
        let hash = centre.hash;
        votes.extend(members.iter().map(|number| (*number, hash)));
        left.retain(|one| !members.contains(&one.number));
    }
}

fn alike(job: &Job, a: &Said, b: &Said) -> bool {
    if a.hash == b.hash {
        return true;
    }
    match job.schema_id().as_str() {
        "oa.embedding.v1" => vectors_alike(&a.value, &b.value),
        "oa.retrieval_rerank.v1" => ranks_alike(&a.value, &b.value),
        "oa.code_chunk_analysis.v1" => match (&a.words, &b.words) {
            (Some(a), Some(b)) => cosine(a, b).is_some_and(|cosine| cosine >= TEXTS_ALIKE),
            _ => false,
        },
        _ => false,
    }
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or("")
}

fn vectors_alike(a: &Value, b: &Value) -> bool {
    let (of_a, of_b) = (list(a, "embeddings"), list(b, "embeddings"));
    let numbers = |vector: &Value| -> Vec<f64> {
        let all = vector.as_array().map_or(&[] as &[Value], Vec::as_slice);
        all.iter().map(|number| number.as_f64().unwrap_or(f64::NAN)).collect()
    };
    text(a, "model_id") == text(b, "model_id")
        && of_a.len() == of_b.len()
        && of_a.iter().zip(of_b).all(|(a, b)| vector_alike(&numbers(a), &numbers(b)))
}

/// The cosine, times the smaller length by the larger.
fn vector_alike(a: &[f64], b: &[f64]) -> bool {
    let (Some(long_a), Some(long_b), Some(cosine)) = (length(a), length(b), cosine(a, b)) else {
        return false;
    };
    (cosine * (long_a.min(long_b) / long_a.max(long_b))).clamp(0.0, 1.0) >= VECTORS_ALIKE
}

fn ranks_alike(a: &Value, b: &Value) -> bool {
    let ids = |value: &Value| -> Vec<String> {
        let mut ranked: Vec<(u64, String)> = list(value, "topk")
            .iter()
            .map(|one| {
                let rank = one.get("rank").and_then(Value::as_u64).unwrap_or(u64::MAX);
                (rank, text(one, "id").to_owned())
            })
            .collect();
        // Where ranks are the same, the place in the list counts.
        ranked.sort_by_key(|(rank, _)| *rank);
        ranked.into_iter().map(|(_, id)| id).collect()
    };
    let (a, b) = (ids(a), ids(b));
    if a.first() != b.first() {
        return false;
    }
    let (a, b): (BTreeSet<String>, BTreeSet<String>) =
        (a.into_iter().collect(), b.into_iter().collect());
    let count = |number: usize| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
    let longer = a.len().max(b.len());
    longer == 0 || count(a.intersection(&b).count()) / count(longer) >= RANKS_ALIKE
}

/// What an analysis says, a line for each part.
fn analysis(value: &Value) -> String {
    let mut lines = vec![text(value, "summary")];
    for symbol in list(value, "symbols") {
        lines.extend([text(symbol, "name"), text(symbol, "kind")]);
    }
    for fault in list(value, "suspected_faults") {
        lines.extend([text(fault, "severity"), text(fault, "description")]);
    }
    lines.extend(list(value, "recommended_next_probes").iter().map(|probe| text(probe, "path")));
    let mut all = lines.join("\n");
    let mut end = all.len().min(MAX_TEXT_BYTES);
    while !all.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    all.truncate(end);
    all
}

#[cfg(test)]
mod tests {
    use guild_protocol::env::Signer;
    use guild_protocol::identity::SecretKey;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::delegation::Options;
    use crate::delegation::vote::{Says, group, projection};

    fn npub() -> String {
        SecretKey::from_bytes([1; 32]).unwrap().public_key().npub()
    }

    fn job(schema_id: &str, input: &Value) -> Job {
        Registry::builtin().validate_input(&schema_id.parse().unwrap(), input).unwrap()
    }

    fn same(job: &Job, outputs: &[String]) {
        let registry = Registry::builtin();
        let says = (0..).zip(outputs).map(|(number, text)| Says { number, output_text: text });
        let says: Vec<Says<'_>> = says.collect();
        let theirs = group(&registry, &Options::default(), job, &says);
        let ours: Vec<(usize, &str)> = outputs.iter().map(String::as_str).enumerate().collect();
        let ours = votes(&registry, job, &ours);
        let theirs: BTreeMap<usize, Hash> = theirs
            .into_iter()
            .map(|(number, hash)| (usize::try_from(number).unwrap(), hash))
            .collect();
        assert_eq!(ours, theirs, "{outputs:?}");
        for text in outputs {
            assert_eq!(hash(&registry, job, text), projection(&registry, job, text), "{text}");
        }
    }

    /// Words of which some texts are alike, and some are not.
    const WORDS: [&str; 6] =
        ["opens a file", "never closes it", "leaks", "is fine", "ship it", "x"];

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

        /// The rules that are written here, and those by which votes are counted.
        #[test]
        fn vectors_are_grouped_alike(degrees in prop::collection::vec((0u32..60, any::<bool>()), 0..7)) {
            let job = job("oa.embedding.v1", &json!({"texts": ["x"], "dimensions": 2}));
            let output = |(degrees, other): &(u32, bool)| {
                let (y, x) = (f64::from(*degrees) / 4.0).to_radians().sin_cos();
                let model = if *other { "n" } else { "m" };
                json!({
                    "embeddings": [[x, y]], "model_id": model, "dimensions": 2,
                    "provenance": {"model": model, "provider_id": npub()},
                }).to_string()
            };
            let mut outputs: Vec<String> = degrees.iter().map(output).collect();
            outputs.push("rubbish".to_owned());
            same(&job, &outputs);
        }

        #[test]
        fn rankings_are_grouped_alike(
            ranked in prop::collection::vec(prop::collection::vec((0u64..4, 0u32..6), 1..6), 0..6),
        ) {
            let candidates: Vec<Value> =
                (0..6).map(|n| json!({"id": n.to_string(), "content": "c"})).collect();
            let job = job("oa.retrieval_rerank.v1", &json!({"user_task": "t", "candidates": candidates}));
            let output = |ranked: &Vec<(u64, u32)>| {
                let one = |(rank, id): &(u64, u32)| json!({"rank": rank, "id": id.to_string(), "score": 0.5});
                let topk: Vec<Value> = ranked.iter().map(one).collect();
                json!({"topk": topk, "provenance": {"model": "m", "provider_id": npub()}}).to_string()
            };
            same(&job, &ranked.iter().map(output).collect::<Vec<_>>());
        }

        #[test]
        fn analyses_are_grouped_alike(said in prop::collection::vec(prop::collection::vec(0usize..6, 0..5), 0..6)) {
            let chunk = json!({"path": "a.rs", "start_line": 1, "end_line": 2, "content": "fn a() {}"});
            let job = job("oa.code_chunk_analysis.v1", &json!({"task": "find faults", "chunk": chunk}));
            let output = |said: &Vec<usize>| {
                let summary: Vec<&str> = said.iter().map(|word| WORDS[*word]).collect();
                json!({
                    "summary": summary.join(" "), "confidence": 0.5,
                    "provenance": {"model": "m", "provider_id": npub()},
                }).to_string()
            };
            same(&job, &said.iter().map(output).collect::<Vec<_>>());
        }
    }
}
