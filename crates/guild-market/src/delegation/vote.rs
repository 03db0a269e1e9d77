//! What a result says, and which results say the same.
//!
//! A result becomes a vote by its projection: what its schema compares, without who made it, how long it took and how
//! it is explained, in canonical JSON. Two with the same hash say the same. Where honest results differ in their bytes,
//! likeness decides:
//!
//! | schema | say the same if |
//! |---|---|
//! | `oa.embedding.v1` | the model is the same, and each vector is like the other's |
//! | `oa.retrieval_rerank.v1` | the best is the same, and they share most of the best |
//! | `oa.code_chunk_analysis.v1` | their texts are alike: what is there, what may be wrong, where to look next |
//! | any other, `oa.sandbox_run.v1` among them | the projections have the same hash |
//!
//! Likeness need not be transitive, so the one that most others are like is the first that others are compared with.
//! That depends on what was said, and not on who came first.

use std::collections::{BTreeMap, BTreeSet};

use guild_memory::embed::{DEFAULT_DIMENSIONS, HashEmbedder, MAX_TEXT_BYTES, cosine};
use guild_protocol::hash::Hash;
use guild_protocol::schema::{Job, Output, Registry, verification_hash};
use serde_json::Value;

use super::Options;
use crate::verify::embedding::{likeness, vectors_of};

/// A result that takes part.
#[derive(Debug, Clone, Copy)]
pub struct Says<'a> {
    /// Of which replica.
    pub number: i64,
    /// What came, as it came.
    pub output_text: &'a str,
}

/// The hash of what a result says; none if it is not what its schema asks for.
pub fn projection(registry: &Registry, job: &Job, output_text: &str) -> Option<Hash> {
    let output = registry.validate_output_text(job.schema_id(), output_text.as_bytes()).ok()?;
    hash_of(registry, job, &output)
}

/// An analysis is what it says in words, of which its schema compares nothing; anything else is its projection.
fn hash_of(registry: &Registry, job: &Job, output: &Output) -> Option<Hash> {
    match job.schema_id().as_str() {
        ANALYSIS => Some(Hash::of(analysis(output).as_bytes())),
        _ => verification_hash(registry.get(job.schema_id()).ok()?, output).ok(),
    }
}

const ANALYSIS: &str = "oa.code_chunk_analysis.v1";

/// A result that can be compared.
struct Compared {
    number: i64,
    hash: Hash,
    form: Form,
}

/// By what it is compared.
enum Form {
    Exact,
    Vectors { model: String, vectors: Vec<Vec<f64>> },
    Ranks(Vec<String>),
    Text(Vec<f64>),
}

/// Who says what: the results that say the same have the same hash, that of the one they are like. Whoever's result
/// cannot be read says nothing.
pub fn group(
    registry: &Registry,
    options: &Options,
    job: &Job,
    said: &[Says<'_>],
) -> BTreeMap<i64, Hash> {
    let mut left: Vec<Compared> =
        said.iter().filter_map(|says| compared(registry, job, says)).collect();
    let mut votes = BTreeMap::new();
    while !left.is_empty() {
        let like =
            |centre: &Compared| left.iter().filter(|one| alike(options, centre, one)).count();
        // The one that most are like; of those the one with the lowest hash, and then the first number.
        let centre =
            left.iter().min_by_key(|one| (std::cmp::Reverse(like(one)), one.hash, one.number));
        let Some(centre) = centre else { break };
        let members: BTreeSet<i64> = left
            .iter()
            .filter(|one| one.number == centre.number || alike(options, centre, one))
            .map(|one| one.number)
            .collect();
        let hash = centre.hash;
        votes.extend(members.iter().map(|number| (*number, hash)));
        left.retain(|one| !members.contains(&one.number));
    }
    votes
}

fn compared(registry: &Registry, job: &Job, says: &Says<'_>) -> Option<Compared> {
    let bytes = says.output_text.as_bytes();
    let output = registry.validate_output_text(job.schema_id(), bytes).ok()?;
    let hash = hash_of(registry, job, &output)?;
    let form = match job.schema_id().as_str() {
        "oa.embedding.v1" => Form::Vectors {
            model: text(output.value(), "model_id").to_owned(),
            vectors: vectors_of(&output),
        },
        "oa.retrieval_rerank.v1" => Form::Ranks(ranked(&output)),
        ANALYSIS => {
            let embedder = HashEmbedder::new(DEFAULT_DIMENSIONS).ok()?;
            Form::Text(embedder.embed(&analysis(&output)).ok()?)
        }
        _ => Form::Exact,
    };
    Some(Compared { number: says.number, hash, form })
}

fn alike(options: &Options, a: &Compared, b: &Compared) -> bool {
    if a.hash == b.hash {
        return true;
    }
    match (&a.form, &b.form) {
        (
            Form::Vectors { model, vectors },
            Form::Vectors { model: other_model, vectors: others },
        ) => {
            let near = |(a, b): (&Vec<f64>, &Vec<f64>)| {
                a.len() == b.len()
                    && likeness(a, b).is_some_and(|likeness| likeness >= options.vectors_alike)
            };
            model == other_model
                && vectors.len() == others.len()
                && vectors.iter().zip(others).all(near)
        }
        (Form::Ranks(a), Form::Ranks(b)) => {
            a.first() == b.first() && shared(a, b) >= options.ranks_alike
        }
        (Form::Text(a), Form::Text(b)) => {
            cosine(a, b).is_some_and(|cosine| cosine >= options.texts_alike)
        }
        _ => false,
    }
}

/// The ids, the best first: by rank, and by their places where ranks are the same.
fn ranked(output: &Output) -> Vec<String> {
    let topk = output.value().get("topk").and_then(Value::as_array);
    let mut ranked: Vec<(u64, &str)> = topk
        .into_iter()
        .flatten()
        .map(|one| (one.get("rank").and_then(Value::as_u64).unwrap_or(u64::MAX), text(one, "id")))
        .collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, id)| id.to_owned()).collect()
}

/// Which part of the longer list both have.
fn shared(a: &[String], b: &[String]) -> f64 {
    let (first, second): (BTreeSet<&String>, BTreeSet<&String>) =
        (a.iter().collect(), b.iter().collect());
    let longer = first.len().max(second.len());
    if longer == 0 {
        return 1.0;
    }
    let both = u32::try_from(first.intersection(&second).count()).unwrap_or(u32::MAX);
    f64::from(both) / f64::from(u32::try_from(longer).unwrap_or(u32::MAX))
}

/// What an analysis says, as one text; as much of it as can be compared.
fn analysis(output: &Output) -> String {
    let value = output.value();
    let mut said = vec![text(value, "summary").to_owned()];
    let each = |name: &str, fields: &[&str], said: &mut Vec<String>| {
        let items = value.get(name).and_then(Value::as_array);
        for item in items.into_iter().flatten() {
            said.extend(fields.iter().map(|field| text(item, field).to_owned()));
        }
    };
    each("symbols", &["name", "kind"], &mut said);
    each("suspected_faults", &["severity", "description"], &mut said);
    each("recommended_next_probes", &["path"], &mut said);
    let mut all = said.join("\n");
    let mut end = all.len().min(MAX_TEXT_BYTES);
    while !all.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    all.truncate(end);
    all
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use guild_protocol::env::Signer;
    use guild_protocol::identity::SecretKey;
    use serde_json::json;

    use super::*;

    /// Somebody's key, as it stands in a result.
    fn npub(n: u8) -> String {
        SecretKey::from_bytes([n; 32]).unwrap().public_key().npub()
    }

    fn job(schema_id: &str, input: &Value) -> Job {
        let id = schema_id.parse().unwrap();
        Registry::builtin().validate_input(&id, input).unwrap()
    }

    /// Which results say the same, as letters.
    fn grouped(job: &Job, outputs: &[Value]) -> String {
        let texts: Vec<String> = outputs.iter().map(Value::to_string).collect();
        let said: Vec<Says<'_>> =
            (1..).zip(&texts).map(|(number, output_text)| Says { number, output_text }).collect();
        let votes = group(&Registry::builtin(), &Options::default(), job, &said);
        let mut names: Vec<Hash> = Vec::new();
        (1..)
            .take(outputs.len())
            .map(|number| match votes.get(&number) {
                None => '-',
                Some(hash) => {
                    let place = names.iter().position(|one| one == hash).unwrap_or_else(|| {
                        names.push(*hash);
                        names.len() - 1
                    });
                    char::from(b'a' + u8::try_from(place).unwrap())
                }
            })
            .collect()
    }

    #[test]
    fn who_made_it_does_not_count() {
        let job = job("oa.embedding.v1", &json!({"texts": ["x"], "dimensions": 2}));
        let of = |vector: Value, by: u8| {
            json!({
                "embeddings": [vector], "model_id": "m", "dimensions": 2,
                "provenance": {"model": "m", "provider_id": npub(by)},
            })
        };
        let near = of(json!([0.9999, 0.0001]), 2);
        let outputs = [of(json!([1, 0]), 1), near, of(json!([0, 1]), 3), json!({})];
        assert_eq!(grouped(&job, &outputs), "aab-");
        // As long is part of what a model says.
        assert_eq!(grouped(&job, &[of(json!([1, 0]), 1), of(json!([2, 0]), 2)]), "ab");
    }

    #[test]
    fn how_long_it_took_does_not_count() {
        let image = "sha256:00";
        let input =
            json!({"sandbox": {"image_digest": image}, "commands": [{"cmd": "true"}], "repo": {}});
        let job = job("oa.sandbox_run.v1", &input);
        let of = |exit_code: i64, duration_ms: u64| {
            let hash = Hash::of(b"").to_string();
            json!({
                "env_info": {"image_digest": image},
                "runs": [{"cmd": "true", "exit_code": exit_code, "duration_ms": duration_ms,
                    "stdout_sha256": hash, "stderr_sha256": hash}],
                "artifacts": [], "status": "success",
                "provenance": {"model": "m", "provider_id": npub(u8::try_from(duration_ms).unwrap())},
            })
        };
        assert_eq!(grouped(&job, &[of(0, 5), of(0, 9), of(1, 5)]), "aab");
    }

    #[test]
    fn rankings_share_the_first_and_most_of_the_rest() {
        let candidates: Vec<Value> =
            (0..9).map(|n| json!({"id": n.to_string(), "content": "c"})).collect();
        let job =
            job("oa.retrieval_rerank.v1", &json!({"user_task": "t", "candidates": candidates}));
        let of = |ids: &[u32]| {
            let topk: Vec<Value> = (1..)
                .zip(ids)
                .map(|(rank, id)| json!({"rank": rank, "id": id.to_string(), "score": 0.5}))
                .collect();
            json!({"topk": topk, "provenance": {"model": "m", "provider_id": npub(1)}})
        };
        let outputs = [of(&[1, 2, 3, 4, 5]), of(&[1, 3, 2, 4, 6]), of(&[2, 1, 3, 4, 5])];
        assert_eq!(grouped(&job, &outputs), "aab");
        assert_eq!(grouped(&job, &[of(&[1, 2, 3, 4, 5]), of(&[1, 6, 7, 8, 5])]), "ab");
    }

    #[test]
    fn analyses_are_compared_by_what_they_say() {
        let chunk = json!({"path": "a.rs", "start_line": 1, "end_line": 2, "content": "fn a() {}"});
        let job = job("oa.code_chunk_analysis.v1", &json!({"task": "find faults", "chunk": chunk}));
        let of = |summary: &str, confidence: f64| {
            json!({
                "summary": summary, "confidence": confidence,
                "provenance": {"model": "m", "provider_id": npub(1)},
            })
        };
        let outputs = [
            of("the function opens a file and never closes it, so descriptors leak", 0.5),
            of("the function opens a file and never closes it: descriptors leak", 0.9),
            of("nothing is wrong here at all, ship it", 1.0),
        ];
        assert_eq!(grouped(&job, &outputs), "aab");
    }

    #[test]
    fn who_says_what_does_not_depend_on_who_came_first() {
        let job = job("oa.embedding.v1", &json!({"texts": ["x"], "dimensions": 2}));
        let at = |degrees: f64| {
            let (y, x) = degrees.to_radians().sin_cos();
            json!({
                "embeddings": [[x, y]], "model_id": "m", "dimensions": 2,
                "provenance": {"model": "m", "provider_id": npub(1)},
            })
        };
        // Two and a half degrees are alike; the one in the middle is like both others, which are not alike.
        assert_eq!(grouped(&job, &[at(0.0), at(2.0), at(4.0)]), "aaa");
        assert_eq!(grouped(&job, &[at(4.0), at(0.0), at(2.0)]), "aaa");
        assert_eq!(grouped(&job, &[at(0.0), at(4.0)]), "ab");
    }
}
